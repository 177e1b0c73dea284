"""The user's habits and tracker entries: rows of the store as values, and the ways to add one."""

from dataclasses import dataclass
from datetime import date, timedelta
from itertools import chain, count

from lhkit.lifehelper.catalog import nearest_ids
from lhkit.lifehelper.rules import NewHabit
from lhkit.lifehelper.store import Store

DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit:
    """One habit. `title` is its protocol's, in the language that was asked for."""

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


def list_habits(store: Store, *, status: str = "active", locale: str = "ko") -> tuple[Habit, ...]:
    """Return the habits of a status (`active`, `archived`, `all`), oldest first, then by id."""
    return _habits(store, "? IN ('all', status)", locale, status)


def find_habit(store: Store, habit_id: str, *, locale: str = "ko") -> Habit | None:
    """Return the habit of that id, whatever its status."""
    return next(iter(_habits(store, "habit.id = ?", locale, habit_id)), None)


def active_habit_of(store: Store, protocol_id: str, *, locale: str = "ko") -> Habit | None:
    """Return the active habit of a protocol; there is at most one."""
    condition = "habit.protocol_id = ? AND status = 'active'"
    return next(iter(_habits(store, condition, locale, protocol_id)), None)


def nearest_habits(store: Store, habit_id: str, n: int = 3) -> tuple[str, ...]:
    """Return up to `n` ids of active habits whose id or title resembles `habit_id`, best first."""
    names = {habit.id: [habit.title] for habit in list_habits(store)}
    return nearest_ids(habit_id, names, n)


def added_on(store: Store) -> tuple[date, ...]:
    """Return the days on which habits were added, archived ones included, oldest first."""
    rows = store.rows("SELECT created_on FROM habit ORDER BY created_on")
    return tuple(date.fromisoformat(row["created_on"]) for row in rows)


def insert_habit(store: Store, wish: NewHabit, *, created_on: date) -> str:
    """Store a new active habit, in one transaction, and return its id. Asks no rule.

    The id is the protocol's, or with -2, -3, … when that is taken.

    Raises:
        sqlite3.IntegrityError: the protocol is unknown or already active.
    """
    with store.transaction():
        names = chain([wish.protocol_id], (f"{wish.protocol_id}-{n}" for n in count(2)))
        habit_id = next(name for name in names if find_habit(store, name) is None)
        store.write(
            "INSERT INTO habit VALUES (?, ?, 'active', ?, ?, ?, ?, ?)",
            [
                habit_id,
                wish.protocol_id,
                wish.frame_level,
                wish.framed_text,
                wish.anchor_when,
                wish.anchor_after_what,
                created_on.isoformat(),
            ],
        )
    return habit_id


def _habits(store: Store, condition: str, locale: str, value: str) -> tuple[Habit, ...]:
    rows = store.rows(f"{_SELECT_HABIT} WHERE {condition} ORDER BY created_on, id", [locale, value])
    return tuple(
        Habit(**{**dict(row), "created_on": date.fromisoformat(row["created_on"])}) for row in rows
    )


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
