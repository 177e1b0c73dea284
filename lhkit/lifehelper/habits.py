"""Read and write the user's habits and tracker entries."""

from dataclasses import dataclass
from datetime import date, timedelta
from itertools import chain, count

from lhkit.lifehelper.catalog import nearest_ids
from lhkit.lifehelper.rules import NewHabit
from lhkit.lifehelper.store import Store

DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit:
    """One habit. `title` is the protocol's title in the requested language."""

    id: str
    protocol_id: str
    title: str
    status: str
    frame_level: str
    framed_text: str
    anchor_when: str | None
    anchor_after_what: str | None
    created_on: date


_SELECT_HABIT = (
    "SELECT habit.id, habit.protocol_id, coalesce(title, habit.protocol_id) AS title, status,"
    " frame_level, framed_text, anchor_when, anchor_after_what, created_on FROM habit"
    " LEFT JOIN protocol_text AS t ON t.protocol_id = habit.protocol_id AND t.locale = ?"
)


def list_habits(store: Store, *, locale: str, status: str = "active") -> tuple[Habit, ...]:
    """Return the habits of a status (`active`, `archived`, `all`), oldest first, then by id."""
    return _select_habits(store, "? IN ('all', status)", locale, status)


def find_habit(store: Store, habit_id: str, *, locale: str) -> Habit | None:
    """Return a habit by id, active or archived."""
    return next(iter(_select_habits(store, "habit.id = ?", locale, habit_id)), None)


def find_active_habit(store: Store, protocol_id: str, *, locale: str) -> Habit | None:
    """Return the active habit of a protocol; there is at most one."""
    condition = "habit.protocol_id = ? AND status = 'active'"
    return next(iter(_select_habits(store, condition, locale, protocol_id)), None)


def nearest_habits(store: Store, habit_id: str, *, locale: str, n: int = 3) -> tuple[str, ...]:
    """Return up to `n` ids of active habits with a similar id or title, best match first."""
    names = {habit.id: [habit.title] for habit in list_habits(store, locale=locale)}
    return nearest_ids(habit_id, names, n)


def list_creation_dates(store: Store) -> tuple[date, ...]:
    """Return the creation dates of all habits, archived ones included, oldest first."""
    rows = store.rows("SELECT created_on FROM habit ORDER BY created_on")
    return tuple(date.fromisoformat(row["created_on"]) for row in rows)


def insert_habit(store: Store, habit: NewHabit, *, created_on: date) -> str:
    """Store a new active habit, in one transaction, and return its id; checks no rule.

    The id is the protocol's, with a suffix -2, -3, … if that is taken.

    Raises:
        sqlite3.IntegrityError: the protocol is unknown or already active.
    """
    with store.transaction():
        ids = chain([habit.protocol_id], (f"{habit.protocol_id}-{n}" for n in count(2)))
        habit_id = next(id_ for id_ in ids if find_habit(store, id_, locale="en") is None)
        store.write(
            "INSERT INTO habit VALUES (?, ?, 'active', ?, ?, ?, ?, ?)",
            [
                habit_id,
                habit.protocol_id,
                habit.frame_level,
                habit.framed_text,
                habit.anchor_when,
                habit.anchor_after_what,
                created_on.isoformat(),
            ],
        )
    return habit_id


def _select_habits(store: Store, condition: str, locale: str, value: str) -> tuple[Habit, ...]:
    rows = store.rows(f"{_SELECT_HABIT} WHERE {condition} ORDER BY created_on, id", [locale, value])
    return tuple(
        Habit(**{**dict(row), "created_on": date.fromisoformat(row["created_on"])}) for row in rows
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A tracker entry of a habit for a day: `done`, or `blank` for not done."""

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
    """Store `entry` in one transaction and return the entry that it replaced, if any.

    Raises:
        sqlite3.IntegrityError: the habit does not exist.
    """
    with store.transaction():
        before = find_entry(store, entry.habit_id, entry.date)
        if before != entry:
            store.write(
                "INSERT OR REPLACE INTO tracker_entry VALUES (?, ?, ?)",
                [entry.habit_id, entry.date.isoformat(), entry.value],
            )
    return before


def current_streak(store: Store, habit_id: str, today: date) -> int:
    """Return the number of consecutive done days up to today, or up to yesterday.

    A day without an entry ends a streak, except today: it may still be logged.
    """
    entries = list_entries(store, habit_id, end=today)
    done = {entry.date for entry in entries if entry.value == DONE}
    day = today if today in done else today - timedelta(days=1)
    length = 0
    while day - timedelta(days=length) in done:
        length += 1
    return length
