"""A scenario (evaluation.md §1): its values, and the JSON Schema of its file for editors.

Reading files is `scenario`'s business; whether a scenario makes sense for the tools and the data of
a domain is the environment's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, TypeAdapter, WithJsonSchema

from lhkit.harness.expectations.matchers import MATCHER_KEYS
from lhkit.locales import DEFAULT_LOCALE

_Words: TypeAlias = Annotated[str, Field(pattern=r"\S")]
_MATCHER_MARK = {"x-lhkit": "matcher"}
_Matcher: TypeAlias = Annotated[Any, WithJsonSchema(_MATCHER_MARK)]
_Answer: TypeAlias = Literal["accept", "reject"]
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


def _about(text: str) -> Any:
    return Field(description=text)


class _Strict:
    """Tells pydantic to refuse unknown fields; a plain base so that values stay dataclasses."""

    __slots__ = ()
    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012 - pydantic's name and type


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedCall(_Strict):
    """A call that must happen, or may if it is `optional`."""

    tool: Annotated[_Words, _about("Name of the tool.")]
    args: Annotated[Mapping[str, _Matcher], _about("A matcher for each argument.")] = field(
        default_factory=dict
    )
    optional: Annotated[bool, _about("The call may be left out.")] = False
    result: Annotated[
        _Words | None, _about("What it comes to: ok, cancelled or an error code. Any if left out.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Before(_Strict):
    """A partial order of the expected calls."""

    before: Annotated[
        tuple[tuple[int, int], ...], _about("[i, j]: call i happens before call j (from 0).")
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect(_Strict):
    """The calls of one turn. Without it, a turn expects none."""

    calls: Annotated[tuple[ExpectedCall, ...], _about("What must happen.")] = ()
    order: Annotated[Literal["any", "strict"] | Before, _about("Order of the calls.")] = "any"
    extra: Annotated[
        Literal["none", "reads", "any"], _about("Which unlisted calls are tolerated.")
    ] = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForbiddenCall(_Strict):
    """A minefield: a call of this tool whose listed arguments fit."""

    tool: Annotated[_Words, _about("Name of the tool.")]
    args: Annotated[
        Mapping[str, _Matcher], _about("Only with these arguments; others do not matter.")
    ] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedReply(_Strict):
    """What the user must (not) read. Compared without regard to case and white space."""

    contains_any: Annotated[tuple[_Words, ...], _about("At least one of these.")] = ()
    contains_all: Annotated[tuple[_Words, ...], _about("Every one of these.")] = ()
    excludes: Annotated[tuple[_Words, ...], _about("None of these.")] = ()
    matches: Annotated[str | None, _about("A regular expression that is found.")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldCall(_Strict):
    """A call of the gold trace, with its real arguments."""

    tool: Annotated[_Words, _about("Name of the tool.")]
    args: Annotated[Mapping[str, Any], _about("Arguments as the model gives them.")] = field(
        default_factory=dict
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Gold(_Strict):
    """What a perfect model does, where it cannot be derived from the expectation."""

    say: Annotated[str | None, _about("The reply.")] = None
    calls: Annotated[tuple[GoldCall, ...] | None, _about("The calls, one a model turn.")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn(_Strict):
    """One thing the user says and what must come of it."""

    user: Annotated[_Words, _about("What the user says.")]
    confirm: Annotated[
        _Answer | Literal["absent"] | tuple[_Answer, ...],
        _about(
            "The user's answers to the confirm gate: one word answers every question of the turn, "
            "a list answers in order and then says no, absent means that there is no gate."
        ),
    ] = ()
    expect: Annotated[Expect, _about("The calls; none if left out.")] = field(
        default_factory=Expect
    )
    forbid: Annotated[tuple[ForbiddenCall, ...], _about("Calls that must not happen.")] = ()
    reply: Annotated[ExpectedReply, _about("What the user reads.")] = field(
        default_factory=ExpectedReply
    )
    gold: Annotated[Gold, _about("A perfect model's turn, where it cannot be derived.")] = field(
        default_factory=Gold
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedFault(_Strict):
    """A tool that breaks: its first calls that are let through fail, as after an exception."""

    tool: Annotated[_Words, _about("Name of the tool.")]
    error: Annotated[
        Literal["handler_error"], _about("What the model is told; only handler_error is known.")
    ] = "handler_error"
    times: Annotated[int, Field(ge=1, description="How many calls fail before it works.")] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario(_Strict):
    """A scripted conversation and what must come of it.

    `world` is the initial state, in the terms of the environment; its `now` is the clock.
    `faults` are tools that break while it is played.
    `final` lists, by table, the rows that must be there at the end and may be new or changed,
    `gone` those of the start that must have been deleted. Whatever is not listed must be as it was.
    """

    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$", description="Unique name.")]
    ac: Annotated[_Words, _about("The acceptance criterion it belongs to, such as AC-6.")]
    turns: Annotated[tuple[Turn, ...], Field(min_length=1, description="The conversation.")]
    locale: Annotated[str, _about("Language of the conversation.")] = DEFAULT_LOCALE
    tags: Annotated[tuple[_Words, ...], _about("Free labels.")] = ()
    world: Annotated[_World, _about("The state at the start.")] = field(default_factory=dict)
    faults: Annotated[tuple[ScriptedFault, ...], _about("Tools that break, each once.")] = ()
    final: Annotated[
        Mapping[str, tuple[Mapping[str, _Matcher], ...]], _about("Rows expected at the end.")
    ] = field(default_factory=dict)
    gone: Annotated[
        Mapping[str, tuple[Mapping[str, _Matcher], ...]],
        _about("Rows of the start that must have been deleted."),
    ] = field(default_factory=dict)

    @property
    def today(self) -> date | None:
        """The day of the scenario's clock, in its own zone; None if it has no clock."""
        now = self.world.get("now")
        return None if now is None else datetime.fromisoformat(now).date()


def scenario_json_schema() -> dict[str, Any]:
    """Return the JSON Schema (Draft 2020-12) of a scenario file, for editors."""
    schema = TypeAdapter(tuple[Scenario, ...]).json_schema()
    described: dict[str, Any] = _with_matchers(schema)
    described["$defs"]["Matcher"] = _MATCHER_SCHEMA
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **described}


def _with_matchers(node: Any) -> Any:
    """Replace each mark by a reference: pydantic has no word for a recursive grammar."""
    if isinstance(node, dict):
        if node.items() >= _MATCHER_MARK.items():
            return {"$ref": "#/$defs/Matcher"}
        return {key: _with_matchers(value) for key, value in node.items()}
    return [_with_matchers(value) for value in node] if isinstance(node, list) else node


def _matcher_schema(key: str, value: Any, **modifiers: Any) -> dict[str, Any]:
    properties = {key: value, **modifiers, "optional": {"type": "boolean"}}
    return {
        "type": "object",
        "properties": properties,
        "required": [key],
        "additionalProperties": False,
    }


_NESTED = {"$ref": "#/$defs/Matcher"}
_NUMBER = {"type": "number"}
_BOOLEAN = {"type": "boolean"}

_MATCHER_SCHEMA: Mapping[str, Any] = {
    "description": "A literal value, or one of the matchers.",
    "anyOf": [
        _matcher_schema("equals", {}),
        _matcher_schema("one_of", {"type": "array", "items": _NESTED, "minItems": 1}),
        _matcher_schema("any", {"const": True}),
        _matcher_schema("matches", {"type": "string", "format": "regex"}),
        _matcher_schema("approx", _NUMBER, abs=_NUMBER, rel=_NUMBER),
        _matcher_schema("date", {"type": "string"}),
        _matcher_schema("text", {"type": "string"}),
        _matcher_schema(
            "fields", {"type": "object", "additionalProperties": _NESTED}, extra=_BOOLEAN
        ),
        _matcher_schema("items", {"type": "array", "items": _NESTED}, unordered=_BOOLEAN),
        {"not": {"type": "object", "anyOf": [{"required": [key]} for key in MATCHER_KEYS]}},
    ],
}
