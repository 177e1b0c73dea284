"""The user's habits: rows of the store as values, and the one way to add one."""

from dataclasses import dataclass
from datetime import date
from itertools import chain, count

from lhkit.lifehelper.catalog import nearest_ids
from lhkit.lifehelper.rules import NewHabit
from lhkit.lifehelper.store import Store


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


_SELECT = (
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


def free_habit_id(store: Store, protocol_id: str) -> str:
    """Return the id for a new habit: the protocol's, or with -2, -3, … when that is taken."""
    candidates = chain([protocol_id], (f"{protocol_id}-{number}" for number in count(2)))
    return next(each for each in candidates if find_habit(store, each) is None)


def insert_habit(store: Store, wish: NewHabit, *, created_on: date) -> str:
    """Store a new active habit, in one transaction, and return its id. Asks no rule.

    Raises:
        sqlite3.IntegrityError: the protocol is unknown or already active.
    """
    with store.transaction():
        habit_id = free_habit_id(store, wish.protocol_id)
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
    rows = store.rows(f"{_SELECT} WHERE {condition} ORDER BY created_on, id", [locale, value])
    return tuple(
        Habit(**{**dict(row), "created_on": date.fromisoformat(row["created_on"])}) for row in rows
    )
