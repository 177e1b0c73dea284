"""The initial state of a scenario (`world:`): its model, seeding a store, and snapshots.

Errors here name the field; the scenario loader adds file and line.
"""

from datetime import date
from typing import Annotated, Any, Literal, Self, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from lhkit.base.errors import UsageError
from lhkit.base.json_values import CLOCK_YEARS
from lhkit.lifehelper.schemas import ANCHOR_CHARS, SENTENCE_CHARS
from lhkit.lifehelper.search import find_protocol, nearest_protocols
from lhkit.lifehelper.store import Store

DEFAULT_SENTENCE = "나는 이 습관을 매일 이어 가는 사람이다"
DEFAULT_ANCHOR = "아침 식사"
ROW_KEYS = {"habits": ("id",), "tracker": ("habit_id", "date")}
"""The key fields of the rows of `snapshot`."""

DEFAULT_AGE_DAYS = 28
"""The default age of the first habit; each later one is a week older, so that R3 is kept."""

_Anchor: TypeAlias = Annotated[str, Field(min_length=1, max_length=ANCHOR_CHARS)] | None
_Day = TypeVar("_Day", bound=date)
_STRICT = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)


def _check_year(day: _Day) -> _Day:
    if day.year not in CLOCK_YEARS:
        raise ValueError(f"the year must be from {CLOCK_YEARS[0]} to {CLOCK_YEARS[-1]}")
    return day


_Date: TypeAlias = Annotated[date, AfterValidator(_check_year)]
_Moment: TypeAlias = Annotated[AwareDatetime, AfterValidator(_check_year)]


class WorldHabit(BaseModel):
    """A habit that exists at the start. Only `protocol_id` is required.

    Defaults: `id` is the protocol's id; without any anchor, `anchor_after_what` is
    `DEFAULT_ANCHOR`; `created_on` is at least `DEFAULT_AGE_DAYS` before `now`.
    """

    model_config = _STRICT

    protocol_id: str
    id: Annotated[str, Field(min_length=1)] | None = None
    status: Literal["active", "archived"] = "active"
    frame_level: Literal["identity", "action", "outcome"] = "identity"
    framed_text: Annotated[str, Field(min_length=1, max_length=SENTENCE_CHARS)] = DEFAULT_SENTENCE
    anchor_when: _Anchor = None
    anchor_after_what: _Anchor = None
    created_on: _Date | None = None


class WorldEntry(BaseModel):
    """A tracker entry that exists at the start."""

    model_config = _STRICT

    habit_id: str
    date: _Date
    value: Literal["done", "blank"]


class World(BaseModel):
    """The initial state. `now` needs a UTC offset; all dates are in its time zone."""

    model_config = _STRICT

    now: _Moment
    habits: tuple[WorldHabit, ...] = ()
    tracker: tuple[WorldEntry, ...] = ()

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        ids = [_habit_id(habit) for habit in self.habits]
        _refuse_duplicates("habits", "id", ids)
        active = [habit.protocol_id for habit in self.habits if habit.status == "active"]
        _refuse_duplicates("habits", "protocol_id of an active habit", active)
        entry_keys = [(entry.habit_id, entry.date) for entry in self.tracker]
        _refuse_duplicates("tracker", "habit_id and date", entry_keys)
        for index, entry in enumerate(self.tracker):
            if entry.habit_id not in ids:
                raise ValueError(f"tracker.{index}.habit_id: no habit {entry.habit_id!r} in habits")
            if entry.date > self.now.date():
                raise ValueError(f"tracker.{index}.date: {entry.date} is after now")
        return self


def parse_world(data: Any) -> World:
    """Validate an initial state (a mapping from YAML or JSON).

    Raises:
        UsageError: the state is invalid; each error names its field, e.g. `world.habits.0.status`.
    """
    try:
        return World.model_validate(data)
    except ValidationError as error:
        raise UsageError("; ".join(map(_error_message, error.errors()))) from error


def seed(store: Store, world: World) -> None:
    """Insert the habits and entries of `world` into `store`, in one transaction.

    Raises:
        UsageError: a habit's protocol is not in the store.
        sqlite3.IntegrityError: a habit or entry exists already.
    """
    with store.transaction():
        for index, habit in enumerate(world.habits):
            _seed_habit(store, world, index, habit)
        for entry in world.tracker:
            values = [entry.habit_id, entry.date.isoformat(), entry.value]
            store.write("INSERT INTO tracker_entry VALUES (?, ?, ?)", values)


def snapshot(store: Store) -> dict[str, list[dict[str, Any]]]:
    """Return all habits (by id) and entries (by habit and date) as plain JSON."""
    habits = store.rows(
        "SELECT id, protocol_id, status, frame_level, framed_text, anchor_when, anchor_after_what,"
        " created_on FROM habit ORDER BY id"
    )
    tracker = store.rows("SELECT habit_id, date, value FROM tracker_entry ORDER BY habit_id, date")
    return {"habits": [dict(row) for row in habits], "tracker": [dict(row) for row in tracker]}


def _seed_habit(store: Store, world: World, index: int, habit: WorldHabit) -> None:
    if find_protocol(store, habit.protocol_id, locale="ko") is None:
        nearest = ", ".join(nearest_protocols(store, habit.protocol_id))
        raise UsageError(
            f"world.habits.{index}.protocol_id: no protocol {habit.protocol_id!r} in the catalog; "
            f"nearest: {nearest}"
        )
    after = habit.anchor_after_what
    if after is None and habit.anchor_when is None:
        after = DEFAULT_ANCHOR
    age_days = DEFAULT_AGE_DAYS + 7 * index
    default_date = date.fromordinal(max(1, world.now.toordinal() - age_days))
    store.write(
        "INSERT INTO habit VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [
            _habit_id(habit),
            habit.protocol_id,
            habit.status,
            habit.frame_level,
            habit.framed_text,
            habit.anchor_when,
            after,
            (habit.created_on or default_date).isoformat(),
        ],
    )


def _habit_id(habit: WorldHabit) -> str:
    return habit.id or habit.protocol_id


def _refuse_duplicates(field: str, key_name: str, keys: list[Any]) -> None:
    for index, key in enumerate(keys):
        if key in keys[:index]:
            raise ValueError(f"{field}: duplicate {key_name} {key}")


def _error_message(error: Any) -> str:
    loc = error["loc"]
    field = ".".join(map(str, ("world", *loc)))
    if error["type"] == "extra_forbidden" and len(loc) == 1:
        known = ", ".join(World.model_fields)
        return (
            f"{field}: unknown field of life-helper's world; choose among {known}, "
            "or select other tools with --toolset"
        )
    if error["type"] == "extra_forbidden":
        known = ", ".join((WorldHabit if loc[0] == "habits" else WorldEntry).model_fields)
        return f"{field}: unknown field; choose among {known}"
    text = str(error["msg"]).removeprefix("Value error, ")
    is_from_model = error["type"] == "value_error" and not loc  # its text starts with the field
    return f"{field}.{text}" if is_from_model else f"{field}: {text}"
