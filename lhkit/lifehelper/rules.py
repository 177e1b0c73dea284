"""Rules for add_habit and log_tracker_entry: quota (R3), framing (R7), anchor (R8) and dates.

The functions are pure: the handlers read the facts from the store, and `prompts` has the sentences
that the model reads about a refusal.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date, timedelta
from typing import Any, TypeAlias

from lhkit.lifehelper.framing import find_negation, is_blank

HABITS_PER_WEEK = 1
"""R3: how many habits may be added in one ISO week (Monday to Sunday)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewHabit:
    """The habit that an add_habit call requests; texts are stripped, a blank anchor is None."""

    protocol_id: str
    frame_level: str
    framed_text: str
    anchor_when: str | None = None
    anchor_after_what: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The part of the store that the rules need: the protocol's status and days of additions."""

    is_known: bool
    is_active: bool
    added_on: tuple[date, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A refused call: `code` for the tool result, `key` and `values` for its message."""

    code: str
    key: str
    values: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AlreadyActive:
    """The protocol is an active habit already: no write is needed, and the call is no error."""


def check_habit(
    habit: NewHabit, facts: Facts, today: date, *, habits_per_week: int = HABITS_PER_WEEK
) -> Refusal | AlreadyActive | None:
    """Return the first rule's decision against a new habit, or None if it may be added."""
    if not facts.is_known:
        return Refusal(code="not_found", key="protocol_unknown", values={"id": habit.protocol_id})
    if facts.is_active:
        return AlreadyActive()
    return (
        _check_anchor(habit)
        or _check_framing(habit)
        or _check_quota(facts.added_on, today, habits_per_week)
    )


def _check_anchor(habit: NewHabit) -> Refusal | None:
    if habit.anchor_when or habit.anchor_after_what:
        return None
    return Refusal(code="r8_anchor", key="anchor_missing")


def _check_framing(habit: NewHabit) -> Refusal | None:
    if is_blank(habit.framed_text):
        return Refusal(code="r7_framing", key="framing_blank")
    negation = find_negation(habit.framed_text)
    if negation is None:
        return None
    return Refusal(code="r7_framing", key="framing_negative", values={"words": negation})


def _check_quota(added_on: Sequence[date], today: date, limit: int) -> Refusal | None:
    count = sum(_iso_week(day) == _iso_week(today) for day in added_on)
    if count < limit:
        return None
    next_monday = today + timedelta(days=8 - today.isoweekday())
    values: dict[str, str | int] = {
        "count": count,
        "limit": limit,
        "next": next_monday.isoformat(),
    }
    return Refusal(code="r3_quota", key="quota_reached", values=values)


def parse_date(text: str, *, argument: str) -> date | Refusal:
    """Parse `YYYY-MM-DD`; return a refusal if the calendar has no such date."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        values = {"argument": argument, "date": text}
        return Refusal(code="invalid_date", key="date_impossible", values=values)


def parse_entry_date(text: str | None, today: date) -> date | Refusal:
    """Parse the date of a tracker entry (default: today); a future date is refused."""
    day = today if text is None else parse_date(text, argument="date")
    if isinstance(day, date) and day > today:
        values = {"date": day.isoformat(), "today": today.isoformat()}
        return Refusal(code="invalid_date", key="date_in_future", values=values)
    return day


Row: TypeAlias = Mapping[str, Any]
State: TypeAlias = Mapping[str, Sequence[Row]]


def find_broken_rules(
    before: State, after: State, *, today: date, habits_per_week: int = HABITS_PER_WEEK
) -> tuple[tuple[str, str], ...]:
    """Return (code, detail) of each rule that the change from one state to another breaks.

    The rows are checked after the fact, so writes that bypassed the tools are detected too.

    Args:
        before: the rows of `habits` and `tracker` at the start, as `world.snapshot` returns them.
        after: the rows at the end.
        today: the date by the session's clock.
        habits_per_week: the limit of R3.
    """
    habits = after.get("habits", ())
    old_ids = {row["id"] for row in before.get("habits", ())}
    changed = [row for row in habits if row not in before.get("habits", ())]
    entries = [row for row in after.get("tracker", ()) if row not in before.get("tracker", ())]
    new_weeks = {_week_added(row) for row in changed if row["id"] not in old_ids}
    broken: list[tuple[str, str]] = []
    for (year, week), count in sorted(Counter(map(_week_added, habits)).items()):
        if (year, week) in new_weeks and count > habits_per_week:
            detail = f"{count} habits added in week {year}-W{week:02}, allowed {habits_per_week}"
            broken.append(("r3_quota", detail))
    for row in changed:
        habit = NewHabit(**{field.name: row[field.name] for field in fields(NewHabit)})
        for refusal in (_check_anchor(habit), _check_framing(habit)):
            if refusal:
                broken.append((refusal.code, f"the habit {row['id']}: {refusal.key}"))
    for row in entries:
        day = parse_entry_date(row["date"], today)
        if isinstance(day, Refusal):
            detail = f"the entry of {row['habit_id']} on {row['date']}, today is {today}"
            broken.append((day.code, detail))
    return tuple(broken)


def _iso_week(day: date) -> tuple[int, int]:
    return day.isocalendar()[:2]


def _week_added(row: Row) -> tuple[int, int]:
    return _iso_week(date.fromisoformat(row["created_on"]))
