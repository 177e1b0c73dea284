"""Decide whether add_habit and log_tracker_entry may write: R3, R7, R8 and what comes before them.

A rule is one function over (wish, facts, limits, today) and one row of `RULES`; the first row
that speaks decides. Facts are read from the store by the handler; the words that the model reads
about a refusal are in `prompts`. Source: seeds (codes), domain.md (meaning and order).
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date, timedelta
from typing import Any, TypeAlias

from lhkit.lifehelper.framing import is_blank, negation_in


@dataclass(frozen=True, slots=True, kw_only=True)
class NewHabit:
    """The habit that add_habit was asked for; texts trimmed, a blank anchor is None."""

    protocol_id: str
    frame_level: str
    framed_text: str
    anchor_when: str | None = None
    anchor_after_what: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the store says: is the protocol known, is it active, when were habits added."""

    is_known: bool
    is_active: bool
    added_on: tuple[date, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleLimits:
    """The thresholds of the rules. `habits_per_week`: R3, per ISO week in the clock's zone."""

    habits_per_week: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A call is refused: `code` for the envelope, `key` and `values` for the sentence."""

    code: str
    key: str
    values: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AlreadyActive:
    """The protocol is an active habit: nothing to write, and nothing wrong."""


Ruling: TypeAlias = Refusal | AlreadyActive | None
Rule: TypeAlias = Callable[[NewHabit, Facts, RuleLimits, date], Ruling]


def known_protocol(wish: NewHabit, facts: Facts, _limits: RuleLimits, _today: date) -> Ruling:
    """Refuse a protocol that is not in the catalog."""
    if facts.is_known:
        return None
    return Refusal(code="not_found", key="protocol_unknown", values={"id": wish.protocol_id})


def not_yet_active(_wish: NewHabit, facts: Facts, _limits: RuleLimits, _today: date) -> Ruling:
    """Settle a protocol that is active already."""
    return AlreadyActive() if facts.is_active else None


def has_anchor(wish: NewHabit, _facts: Facts, _limits: RuleLimits, _today: date) -> Ruling:
    """R8: a habit hangs on a moment or on something one does anyway."""
    if wish.anchor_when or wish.anchor_after_what:
        return None
    return Refusal(code="r8_anchor", key="anchor_missing")


def is_positively_framed(
    wish: NewHabit, _facts: Facts, _limits: RuleLimits, _today: date
) -> Ruling:
    """R7: the sentence says what one does, not what one does not."""
    if is_blank(wish.framed_text):
        return Refusal(code="r7_framing", key="framing_blank")
    negation = negation_in(wish.framed_text)
    if negation is None:
        return None
    return Refusal(code="r7_framing", key="framing_negative", values={"words": negation})


def within_quota(_wish: NewHabit, facts: Facts, limits: RuleLimits, today: date) -> Ruling:
    """R3: at most `habits_per_week` habits are added in one ISO week (Monday to Sunday)."""
    this_week = sum(week_of(day) == week_of(today) for day in facts.added_on)
    if this_week < limits.habits_per_week:
        return None
    next_monday = today + timedelta(days=8 - today.isoweekday())
    return Refusal(
        code="r3_quota",
        key="quota_reached",
        values={
            "count": this_week,
            "limit": limits.habits_per_week,
            "next": next_monday.isoformat(),
        },
    )


RULES: tuple[Rule, ...] = (
    known_protocol,
    not_yet_active,
    has_anchor,
    is_positively_framed,
    within_quota,
)
"""In order of precedence."""


def judge(wish: NewHabit, facts: Facts, limits: RuleLimits, today: date) -> Ruling:
    """Return the first ruling of `RULES`, or None if the habit may be added."""
    rulings = (rule(wish, facts, limits, today) for rule in RULES)
    return next((ruling for ruling in rulings if ruling is not None), None)


def parsed_date(text: str, *, argument: str) -> date | Refusal:
    """Return the date `YYYY-MM-DD`, or the refusal of one that no calendar has."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        values = {"argument": argument, "date": text}
        return Refusal(code="invalid_date", key="date_impossible", values=values)


def entry_date(text: str | None, today: date) -> date | Refusal:
    """Return the day of a tracker entry (default: today); a future day is refused."""
    day = today if text is None else parsed_date(text, argument="date")
    if isinstance(day, date) and day > today:
        values = {"date": day.isoformat(), "today": today.isoformat()}
        return Refusal(code="invalid_date", key="date_in_future", values=values)
    return day


def week_of(day: date) -> tuple[int, int]:
    """Return the ISO year and week of a day."""
    year, week, _ = day.isocalendar()
    return year, week


Row: TypeAlias = Mapping[str, Any]
State: TypeAlias = Mapping[str, Sequence[Row]]


def broken_rules(
    before: State, after: State, *, today: date, limits: RuleLimits | None = None
) -> tuple[tuple[str, str], ...]:
    """Return (code, detail) of each rule that the change from one state to another breaks.

    This looks at the rows afterwards, whoever wrote them, so that a way around the tools shows.

    Args:
        before: the rows of `habits` and `tracker` at the start, as `world.snapshot` gives them.
        after: the rows at the end.
        today: the day of the state's clock.
        limits: the thresholds of the rules.
    """
    limits = limits or RuleLimits()
    habits = after.get("habits", ())
    known = {row["id"] for row in before.get("habits", ())}
    changed = [row for row in habits if row not in before.get("habits", ())]
    entries = [row for row in after.get("tracker", ()) if row not in before.get("tracker", ())]
    added = {_week(row) for row in changed if row["id"] not in known}
    broken: list[tuple[str, str]] = []
    for (year, week), count in sorted(Counter(map(_week, habits)).items()):
        if (year, week) in added and count > limits.habits_per_week:
            told = f"{count} habits added in week {year}-W{week:02}"
            broken.append(("r3_quota", f"{told}, allowed {limits.habits_per_week}"))
    for row in changed:
        wish = NewHabit(**{field.name: row[field.name] for field in fields(NewHabit)})
        for rule in (has_anchor, is_positively_framed):
            ruling = rule(wish, _NO_FACTS, limits, today)
            if isinstance(ruling, Refusal):
                broken.append((ruling.code, f"the habit {row['id']}: {ruling.key}"))
    for row in entries:
        day = entry_date(row["date"], today)
        if isinstance(day, Refusal):
            told = f"the entry of {row['habit_id']} on {row['date']}, today is {today}"
            broken.append((day.code, told))
    return tuple(broken)


_NO_FACTS = Facts(is_known=True, is_active=False, added_on=())


def _week(row: Row) -> tuple[int, int]:
    return week_of(date.fromisoformat(row["created_on"]))
