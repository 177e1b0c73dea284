"""Find the rules that a state breaks, whoever wrote it: R3, R7, R8 and no entry of the future.

`rules` decides before a write; this looks at the rows afterwards, as `world.snapshot` gives
them, so that a way around the tools shows. Rows that were there before do not count.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any, TypeAlias

from lhkit.lifehelper.rules import (
    Facts,
    NewHabit,
    Refusal,
    Rule,
    RuleLimits,
    entry_date,
    has_anchor,
    is_positively_framed,
    week_of,
)

Row: TypeAlias = Mapping[str, Any]
Rows: TypeAlias = Sequence[Row]
State: TypeAlias = Mapping[str, Rows]

_NO_FACTS = Facts(is_known=True, is_active=False, added_on=())
_OF_A_HABIT: tuple[Rule, ...] = (has_anchor, is_positively_framed)


def broken_rules(
    before: State,
    after: State,
    *,
    today: date,
    limits: RuleLimits | None = None,
) -> tuple[tuple[str, str], ...]:
    """Return (code, detail) of each rule that the change from one state to another breaks.

    Args:
        before: the rows of `habits` and `tracker` at the start.
        after: the rows at the end.
        today: the day of the state's clock.
        limits: the thresholds of the rules.
    """
    told = limits or RuleLimits()
    habits = after.get("habits", ())
    changed = _new(before.get("habits", ()), habits)
    known = {row["id"] for row in before.get("habits", ())}
    added = [row for row in changed if row["id"] not in known]
    return (
        *_quota(habits, added, told),
        *(each for row in changed for each in _of_a_habit(row, told, today)),
        *_of_the_future(_new(before.get("tracker", ()), after.get("tracker", ())), today),
    )


def _new(before: Rows, after: Rows) -> list[Row]:
    return [row for row in after if row not in before]


def _quota(habits: Rows, added: Rows, limits: RuleLimits) -> Iterator[tuple[str, str]]:
    """Yield R3 for each week to which a habit was added beyond the limit."""
    weeks = Counter(_week(row) for row in habits)
    for year, week in sorted({_week(row) for row in added}):
        count = weeks[year, week]
        if count > limits.habits_per_week:
            yield (
                "r3_quota",
                f"{count} habits added in week {year}-W{week:02}, allowed {limits.habits_per_week}",
            )


def _week(row: Row) -> tuple[int, int]:
    return week_of(date.fromisoformat(row["created_on"]))


def _of_a_habit(row: Row, limits: RuleLimits, today: date) -> Iterator[tuple[str, str]]:
    wish = NewHabit(
        protocol_id=row["protocol_id"],
        frame_level=row["frame_level"],
        framed_text=row["framed_text"],
        anchor_when=row["anchor_when"],
        anchor_after_what=row["anchor_after_what"],
    )
    for rule in _OF_A_HABIT:
        ruling = rule(wish, _NO_FACTS, limits, today)
        if isinstance(ruling, Refusal):
            yield ruling.code, f"the habit {row['id']}: {ruling.key}"


def _of_the_future(entries: Rows, today: date) -> Iterator[tuple[str, str]]:
    for row in entries:
        ruling = entry_date(row["date"], today)
        if isinstance(ruling, Refusal):
            yield ruling.code, f"the entry of {row['habit_id']} on {row['date']}, today is {today}"
