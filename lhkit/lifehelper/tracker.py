"""The habit tracker: one entry per habit and day, and the two numbers people ask for."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta

from lhkit.lifehelper.store import Store

DONE = "done"
BLANK = "blank"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What was logged for a habit on a day: `done`, or `blank` for a day left open."""

    habit_id: str
    date: date
    value: str


def find_entry(store: Store, habit_id: str, day: date) -> Entry | None:
    """Return the entry of a habit on a day."""
    return next(iter(list_entries(store, habit_id, start=day, end=day)), None)


def list_entries(
    store: Store, habit_id: str, *, start: date = date.min, end: date = date.max
) -> tuple[Entry, ...]:
    """Return the entries of a habit from `start` to `end`, both included, newest first."""
    rows = store.rows(
        "SELECT habit_id, date, value FROM tracker_entry"
        " WHERE habit_id = ? AND date BETWEEN ? AND ? ORDER BY date DESC",
        [habit_id, start.isoformat(), end.isoformat()],
    )
    return tuple(Entry(**{**dict(row), "date": date.fromisoformat(row["date"])}) for row in rows)


def put_entry(store: Store, entry: Entry) -> Entry | None:
    """Store `entry` in one transaction and return the one it replaced, if there was one.

    Raises:
        sqlite3.IntegrityError: there is no such habit.
    """
    with store.transaction():
        before = find_entry(store, entry.habit_id, entry.date)
        if before != entry:
            store.write(
                "INSERT OR REPLACE INTO tracker_entry VALUES (?, ?, ?)",
                [entry.habit_id, entry.date.isoformat(), entry.value],
            )
    return before


def done_days(entries: Iterable[Entry]) -> int:
    """Return how many of `entries` are done."""
    return sum(entry.value == DONE for entry in entries)


def done_rate(entries: Iterable[Entry]) -> float | None:
    """Return the share of `entries` that are done, 0..1; None if there are no entries."""
    values = [entry.value for entry in entries]
    return values.count(DONE) / len(values) if values else None


def current_streak(store: Store, habit_id: str, today: date) -> int:
    """Return the number of consecutive done days that end today or, if today is open, yesterday.

    A day without an entry ends a streak like a blank one; today may still be logged, so that it
    does not.
    """
    entries = list_entries(store, habit_id, end=today)
    done = {entry.date for entry in entries if entry.value == DONE}
    day = today if today in done else today - timedelta(days=1)
    length = 0
    while day - timedelta(days=length) in done:
        length += 1
    return length
