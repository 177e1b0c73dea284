"""The initial state of a replay, checked and put into a store; and the state after it, as JSON.

The file format of `world:` in a scenario (evaluation.md). Line numbers are the scenario reader's
business; errors here name the field.
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

from lhkit.errors import UsageError
from lhkit.json_values import CLOCK_YEARS
from lhkit.lifehelper.schemas import ANCHOR_CHARS, SENTENCE_CHARS
from lhkit.lifehelper.search import find_protocol, nearest_protocols
from lhkit.lifehelper.store import Store

DEFAULT_SENTENCE = "나는 이 습관을 매일 이어 가는 사람이다"
DEFAULT_ANCHOR = "아침 식사"
ROW_KEYS = {"habits": ("id",), "tracker": ("habit_id", "date")}
"""The fields that tell the rows of `snapshot` apart."""

DEFAULT_AGE_DAYS = 28
"""A habit without a date was added four weeks ago, the next one a week earlier: R3 stays quiet."""

_Anchor: TypeAlias = Annotated[str, Field(min_length=1, max_length=ANCHOR_CHARS)] | None
_Day = TypeVar("_Day", bound=date)
_STRICT = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)


def _in_the_calendar(day: _Day) -> _Day:
    if day.year not in CLOCK_YEARS:
        raise ValueError(f"the year must be from {CLOCK_YEARS[0]} to {CLOCK_YEARS[-1]}")
    return day


_Date: TypeAlias = Annotated[date, AfterValidator(_in_the_calendar)]
_Moment: TypeAlias = Annotated[AwareDatetime, AfterValidator(_in_the_calendar)]


class WorldHabit(BaseModel):
    """A habit that exists at the start. Only `protocol_id` is required.

    `id` is by default the protocol's; without any anchor it gets `DEFAULT_ANCHOR` as the thing
    done before; `created_on` is by default well before this week.
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
    """The state at the start of a scenario. `now` needs an offset; all days are in its zone."""

    model_config = _STRICT

    now: _Moment
    habits: tuple[WorldHabit, ...] = ()
    tracker: tuple[WorldEntry, ...] = ()

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        _refuse_duplicates("habits", "id", [_habit_id(each) for each in self.habits])
        active = [each.protocol_id for each in self.habits if each.status == "active"]
        _refuse_duplicates("habits", "protocol_id of an active habit", active)
        _refuse_duplicates("tracker", "habit_id and date", _entry_keys(self))
        known = {_habit_id(each) for each in self.habits}
        for index, entry in enumerate(self.tracker):
            if entry.habit_id not in known:
                raise ValueError(f"tracker.{index}.habit_id: no habit {entry.habit_id!r} in habits")
            if entry.date > self.now.date():
                raise ValueError(f"tracker.{index}.date: {entry.date} is after now")
        return self


def parse_world(data: Any) -> World:
    """Return the world that `data` (a mapping from YAML or JSON) describes.

    Raises:
        UsageError: one sentence per fault, each with the field, such as `world.habits.0.status`.
    """
    try:
        return World.model_validate(data)
    except ValidationError as error:
        raise UsageError("; ".join(_sentence(fault) for fault in error.errors())) from error


def seed(store: Store, world: World) -> None:
    """Put the habits and entries of `world` into `store`, in one transaction.

    Raises:
        UsageError: a habit names a protocol that is not in the store.
        sqlite3.IntegrityError: the store already holds one of them.
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
            _created_on(world, index, habit).isoformat(),
        ],
    )


def _created_on(world: World, index: int, habit: WorldHabit) -> date:
    age_days = DEFAULT_AGE_DAYS + 7 * index
    return habit.created_on or date.fromordinal(max(1, world.now.toordinal() - age_days))


def _habit_id(habit: WorldHabit) -> str:
    return habit.id or habit.protocol_id


def _entry_keys(world: World) -> list[tuple[str, date]]:
    return [(entry.habit_id, entry.date) for entry in world.tracker]


def _refuse_duplicates(where: str, what: str, keys: list[Any]) -> None:
    for index, key in enumerate(keys):
        if key in keys[:index]:
            raise ValueError(f"{where}: the {what} {key} stands there twice")


def _sentence(fault: Any) -> str:
    where = ".".join(map(str, ("world", *fault["loc"])))
    if fault["type"] == "extra_forbidden" and len(fault["loc"]) == 1:
        known = ", ".join(World.model_fields)
        return f"{where}: life-helper's world has only {known}; other tools need --toolset"
    if fault["type"] == "extra_forbidden":
        known = ", ".join((WorldHabit if fault["loc"][0] == "habits" else WorldEntry).model_fields)
        return f"{where}: unknown field; choose among {known}"
    is_ours = fault["type"] == "value_error" and not fault["loc"]  # its text begins with the field
    text = str(fault["msg"]).removeprefix("Value error, ")
    return f"{where}.{text}" if is_ours else f"{where}: {text}"
