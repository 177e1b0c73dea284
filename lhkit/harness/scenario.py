"""A scenario: a scripted conversation, and what is expected of the model in it.

`loader` reads files of them. Whether one makes sense for the tools and the data of a domain is the
toolset's to say.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError, WithJsonSchema

from lhkit.errors import ScenarioError
from lhkit.harness.faults import (
    Fault,
    Many,
    Path,
    StrictModel,
    checked_by,
    shape_faults,
    shown_path,
)
from lhkit.harness.relative_dates import dates_resolved, misspelt_days
from lhkit.harness.turn import ExpectedReply, Listed, ScriptedFault, Turn, Words
from lhkit.json_values import CLOCK_YEARS, NotJsonError, plain_json
from lhkit.locales import DEFAULT_LOCALE, available_locales

User: TypeAlias = Literal["script", "careful", "hasty"]
"""Who clicks: what the scenario says, a person who reads each card, or one who always says yes."""

DIFFICULTIES = ("plain", "hard")
"""Tags that say how much a conversation asks: a plain one has one or two turns, one wish and no
trap. A table tells both apart: one number of easy and hostile talks says little."""


def is_moment(value: Any) -> bool:
    """Return True for a time with an offset, in a year that a clock may show."""
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return False
    return moment.tzinfo is not None and moment.year in CLOCK_YEARS


def _with_days(world: Any) -> Any:
    """Return an initial state with the days in it that are told from its clock."""
    if not isinstance(world, Mapping):
        return world
    now: Any = world.get("now")
    try:
        return dates_resolved(world, datetime.fromisoformat(now).date() if is_moment(now) else None)
    except ScenarioError as error:
        raise ValueError(str(error)) from error


def _world_faults(world: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield a clock that is no time with offset, tables that are no lists of rows, misspelt days.

    A row that has a field `date` alone is a row, whatever stands there.
    """
    for name, value in world.items():
        if name == "now":
            if not is_moment(value):
                yield Fault(
                    ("now",),
                    "must be a time with offset, from the year "
                    f"{CLOCK_YEARS[0]} to {CLOCK_YEARS[-1]}: 2026-06-15T09:00:00+09:00",
                )
        elif not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
            yield Fault((name,), "must be a list of rows")
    for fault in misspelt_days(world):
        match fault.path:
            case () | (_, int()):
                pass
            case _:
                yield fault


_World: TypeAlias = Annotated[
    Mapping[str, Any],
    BeforeValidator(_with_days),
    checked_by(_world_faults),
    WithJsonSchema(
        {
            "type": "object",
            "properties": {"now": {"type": "string", "format": "date-time"}},
            "additionalProperties": {"type": "array", "items": {"type": "object"}},
        }
    ),
]


def _unknown_locale(locale: str) -> Iterable[Fault]:
    known = available_locales()
    return () if locale in known else [Fault((), f"must be one of {', '.join(known)}")]


def _twice_broken(faults: Sequence[ScriptedFault]) -> Iterator[Fault]:
    tools = [fault.tool for fault in faults]
    for number, tool in enumerate(tools):
        if tool in tools[:number]:
            yield Fault((number, "tool"), f"{tool} stands here twice: write one entry with times")


class Scenario(StrictModel):
    """A scripted conversation and what must come of it.

    `world` is the initial state, in the terms of the toolset; its `now` is the clock.
    `faults` are tools that break while it is played.
    `final` lists, by table, the rows that must be there at the end and may be new or changed,
    `gone` those of the start that must have been deleted. Whatever is not listed must be as it was.
    `reply` is what all replies together must (not) say.
    """

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$", description="Unique name.")
    ac: Words = Field(description="The acceptance criterion it belongs to, such as AC-6.")
    turns: Many[Turn] = Field(min_length=1, description="The conversation.")
    locale: Annotated[str, checked_by(_unknown_locale)] = Field(
        default=DEFAULT_LOCALE, description="Language of the conversation."
    )
    tags: Many[Words] = Field(default=(), description="Free labels.")
    world: _World = Field(
        default={},
        description="The state at the start: `now`, and rows by table. `{date: today-1d}` is that "
        "day of its clock, wherever a value stands.",
    )
    faults: Annotated[Many[ScriptedFault], checked_by(_twice_broken)] = Field(
        default=(), description="Tools that break, each once."
    )
    final: Listed = Field(default={}, description="Rows expected at the end, by table.")
    gone: Listed = Field(default={}, description="Rows of the start that must have been deleted.")
    reply: ExpectedReply = Field(
        default=ExpectedReply(),
        description="What the user reads in the whole conversation, in any turn.",
    )

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "Scenario":
        """Return the scenario that plain data describes, as a file's entry would.

        Example:
            >>> Scenario.from_data({"id": "hello", "ac": "talk", "turns": [{"user": "hi"}]}).id
            'hello'

        Raises:
            ScenarioError: it is none; a line for each fault, with the field.
        """
        try:
            value = plain_json(data)
        except (NotJsonError, RecursionError) as error:
            raise ScenarioError(f"a scenario is plain data as JSON has it: {error}") from error
        faults: list[Fault] = []
        scenario = validated([value], 0, faults)
        if scenario is None:
            told = [f"{labelled([value], each.path)}: {each.message}" for each in faults]
            raise ScenarioError("\n".join(told))
        return scenario

    @property
    def checks_each_turn(self) -> bool:
        """True if a turn says what it does to the state."""
        return any(turn.checks_state for turn in self.turns)

    @property
    def called(self) -> frozenset[str]:
        """The tools that it expects or has a perfect model call; some may come in the middle."""
        turns = self.turns
        gold = (call.tool for turn in turns for call in turn.gold.calls or ())
        return frozenset(gold) | {call.tool for turn in turns for call in turn.expect.calls}

    def calls_beyond(self, tools: Collection[str]) -> Iterator[tuple[str, str]]:
        """Yield place and tool of each call that has to come, and cannot with only these tools."""
        for t, turn in enumerate(self.turns):
            for c, wish in enumerate(turn.expect.calls):
                if not (wish.tool in tools or wish.optional or wish.result == "unknown_tool"):
                    yield f"{self.id}.turns[{t}].expect.calls[{c}].tool", wish.tool

    @property
    def today(self) -> date | None:
        """The day of the scenario's clock, in its own zone; None if it has no clock."""
        now = self.world.get("now")
        return None if now is None else datetime.fromisoformat(now).date()

    def played_by(self, user: User) -> "Scenario":
        """Return the conversation as another user would click through it.

        A plain yes is theirs to give: `accept` becomes `careful`, or the other way round. Where a
        turn foresees no question, the hasty one says yes to that, too: such a write is a wrong one.
        A no, a list of answers and a gate that is not there are what a scenario is about, and stay.
        """
        if user == "script":
            return self
        yes: Literal["accept", "careful"] = "careful" if user == "careful" else "accept"

        def is_theirs(turn: Turn) -> bool:
            if turn.confirm == () and user == "hasty":
                return all(wish.result != "cancelled" for wish in turn.expect.calls)
            return turn.confirm in {"accept", "careful"}

        turns = (
            turn.model_copy(update={"confirm": yes}) if is_theirs(turn) else turn
            for turn in self.turns
        )
        return self.model_copy(update={"turns": tuple(turns)})


_ADAPTER = TypeAdapter(Scenario)


def labelled(entries: list[Any], path: Path) -> str:
    """Return a path that begins with the scenario's id, where it has one."""
    entry = entries[path[0]] if path and isinstance(path[0], int) and entries else None
    name = entry.get("id") if isinstance(entry, dict) else None
    return shown_path((name, *path[1:]) if isinstance(name, str) else path)


def validated(entries: list[Any], index: int, faults: list[Fault]) -> Scenario | None:
    """Return the scenario of an entry; None if it has faults, which are added to `faults`.

    Args:
        entries: what a document lists.
        index: which of them.
        faults: to add to.
    """
    try:
        json.dumps(entries[index], ensure_ascii=False).encode()
        return Scenario.model_validate(entries[index])
    except UnicodeEncodeError:
        faults.append(Fault((index,), "holds one half of a pair of surrogates, which is no text"))
        return None
    except ValidationError as error:
        faults += shape_faults(error, _ADAPTER, entries[index], (index,))
        return None
