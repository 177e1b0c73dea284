"""A scenario: a scripted conversation, and what is expected of the model in it.

`loader` reads files of them. Whether one makes sense for the tools and the data of a domain is the
toolset's to say.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError, WithJsonSchema

from lhkit.errors import ScenarioError
from lhkit.harness.documents import Document, paths_in, shape_faults
from lhkit.harness.faults import Fault, Path, shown_path
from lhkit.harness.relative_dates import dates_resolved
from lhkit.harness.scenario_checks import (
    day_faults,
    is_moment,
    listed_faults,
    reply_faults,
    turn_faults,
    twice_broken,
    world_faults,
)
from lhkit.harness.turn import ExpectedReply, Listed, ScriptedFault, Strict, Turn, Words, about
from lhkit.json_values import NotJsonError, compact, plain_json
from lhkit.locales import DEFAULT_LOCALE, available_locales

User: TypeAlias = Literal["script", "careful", "hasty"]
"""Who clicks: what the scenario says, a person who reads each card, or one who always says yes."""

DIFFICULTIES = ("plain", "hard")
"""Tags that say how much a conversation asks: a plain one has one or two turns, one wish and no
trap. A table tells both apart: one number of easy and hostile talks says little."""


_World: TypeAlias = Annotated[
    Mapping[str, Any],
    WithJsonSchema(
        {
            "type": "object",
            "properties": {"now": {"type": "string", "format": "date-time"}},
            "additionalProperties": {"type": "array", "items": {"type": "object"}},
        }
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario(Strict):
    """A scripted conversation and what must come of it.

    `world` is the initial state, in the terms of the toolset; its `now` is the clock.
    `faults` are tools that break while it is played.
    `final` lists, by table, the rows that must be there at the end and may be new or changed,
    `gone` those of the start that must have been deleted. Whatever is not listed must be as it was.
    `reply` is what all replies together must (not) say.
    """

    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$", description="Unique name.")]
    ac: Annotated[Words, about("The acceptance criterion it belongs to, such as AC-6.")]
    turns: Annotated[tuple[Turn, ...], Field(min_length=1, description="The conversation.")]
    locale: Annotated[str, about("Language of the conversation.")] = DEFAULT_LOCALE
    tags: Annotated[tuple[Words, ...], about("Free labels.")] = ()
    world: Annotated[
        _World,
        about(
            "The state at the start: `now`, and rows by table. `{date: today-1d}` is that day of "
            "its clock, wherever a value stands."
        ),
    ] = field(default_factory=dict)
    faults: Annotated[tuple[ScriptedFault, ...], about("Tools that break, each once.")] = ()
    final: Annotated[Listed, about("Rows expected at the end, by table.")] = field(
        default_factory=dict
    )
    gone: Annotated[Listed, about("Rows of the start that must have been deleted.")] = field(
        default_factory=dict
    )
    reply: Annotated[
        ExpectedReply, about("What the user reads in the whole conversation, in any turn.")
    ] = field(default_factory=ExpectedReply)

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
            value = [plain_json(data)]
        except (NotJsonError, RecursionError) as error:
            raise ScenarioError(f"a scenario is plain data as JSON has it: {error}") from error
        document = Document(value=value, lines=dict.fromkeys(paths_in(value, ()), 1), faults=())
        faults: list[Fault] = []
        scenario = validated(value[0], 0, document, faults)
        if scenario is None:
            told = [f"{labelled(value, each.path)}: {each.message}" for each in faults]
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

        turns = (replace(turn, confirm=yes) if is_theirs(turn) else turn for turn in self.turns)
        return replace(self, turns=tuple(turns))


_ADAPTER = TypeAdapter(Scenario)


def labelled(entries: list[Any], path: Path) -> str:
    """Return a path that begins with the scenario's id, where it has one."""
    entry = entries[path[0]] if path and isinstance(path[0], int) and entries else None
    name = entry.get("id") if isinstance(entry, dict) else None
    return shown_path((name, *path[1:]) if isinstance(name, str) else path)


def validated(entry: Any, index: int, document: Document, found: list[Fault]) -> Scenario | None:
    """Return the scenario of an entry; None if it has faults, which are added to `found`."""
    try:
        text = compact(entry)
        if '{"date":"' in text:  # worlds may be large, and most have no such day
            text = compact(_with_days(entry))
        scenario = _ADAPTER.validate_json(text, strict=True)
    except ScenarioError as error:
        found.append(Fault((index, "world"), str(error)))
        return None
    except ValidationError as error:
        found += shape_faults(error, _ADAPTER, document, (index,))
        return None
    wrong = [Fault((index, *each.path), each.message) for each in scenario_faults(scenario)]
    found += wrong
    return None if wrong else scenario


def _with_days(entry: Any) -> Any:
    """Return an entry with the days in its world that are told from its clock.

    Raises:
        ScenarioError: a day is told from a clock that the world does not have, or is beyond the
            calendar.
    """
    world = entry.get("world") if isinstance(entry, dict) else None
    if not isinstance(world, dict):
        return entry
    now: Any = world.get("now")
    today = datetime.fromisoformat(now).date() if is_moment(now) else None
    return {**entry, "world": dates_resolved(world, today)}


def scenario_faults(scenario: Scenario) -> Iterator[Fault]:
    """Yield what is wrong inside a well-formed scenario: matchers, patterns, order, clock."""
    if scenario.locale not in available_locales():
        yield Fault(("locale",), f"must be one of {', '.join(available_locales())}")
    yield from world_faults(scenario.world)
    yield from day_faults(scenario.world, ("world",))
    yield from twice_broken(scenario.faults)
    yield from listed_faults(scenario.final, scenario.gone, ())
    yield from reply_faults(scenario.reply, ("reply",))
    for number, turn in enumerate(scenario.turns):
        yield from turn_faults(turn, ("turns", number))
