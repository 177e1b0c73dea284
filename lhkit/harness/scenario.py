"""Scenarios: what a scripted conversation says and expects, and the YAML files it is read from."""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from difflib import get_close_matches
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError, WithJsonSchema
from pydantic_core import ErrorDetails
from ruamel.yaml.resolver import implicit_resolvers
from yaml.composer import Composer
from yaml.cyaml import CParser
from yaml.error import MarkedYAMLError, YAMLError
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.resolver import BaseResolver

from lhkit.errors import ScenarioError, UsageError
from lhkit.harness.assignment import Problem, assign_ordered
from lhkit.harness.matchers import (
    ANY_OF,
    DAY_WORDS,
    MATCHER_KEYS,
    Fault,
    Path,
    Slot,
    args_faults,
    comparable,
    dates_resolved,
    misspelt_days,
    parse_alternatives,
    pattern_fault,
    row_faults,
    shown_path,
)
from lhkit.harness.matching import Expectation
from lhkit.json_values import CLOCK_YEARS, NotJsonError, compact, plain_json
from lhkit.locales import DEFAULT_LOCALE, available_locales
from lhkit.tools.schema import SchemaNode, item_of, property_of

# What pydantic found wrong in a file, in the words of the other faults. Knows no file.


_UNKNOWN = "unknown field"
_WORDS: Mapping[str, str] = {
    "unexpected_keyword_argument": _UNKNOWN,
    "extra_forbidden": _UNKNOWN,
    "missing": "is required",
}
_KINDS: Mapping[str, str] = {
    "string_type": "a text",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "tuple_type": "a list",
    "dict_type": "a mapping (`key: value`)",
    "mapping_type": "a mapping (`key: value`)",
    "dataclass_type": "a mapping (`key: value`)",
    "model_type": "a mapping (`key: value`)",
    "greater_than_equal": "{ge:g} or more",
    "less_than_equal": "{le:g} or less",
    "too_short": "a list of {min_length} or more",
    "too_long": "a list of {max_length} or less",
}


def shape_words(errors: Sequence[ErrorDetails], known: Sequence[str] = ()) -> str:
    """Return one sentence about a field: what it must be, and what was probably meant.

    Args:
        errors: all that is wrong there; of a union, one or more for each member.
        known: the fields that may stand there (`known_fields`), for one that is unknown.
    """
    allowed = [each for error in errors for each in _allowed(error)]
    kinds = dict.fromkeys(filter(None, map(_kind, errors)))
    others = dict.fromkeys(
        _WORDS.get(error["type"], error["msg"])
        for error in errors
        if error["type"] != "literal_error" and _kind(error) is None
    )
    wanted = [_one_of(allowed)] if allowed else []
    told = " or ".join([*wanted, *kinds])
    sentence = " or ".join([*([f"must be {told}"] if told else []), *others])
    if _UNKNOWN in others:
        return sentence + did_you_mean(errors[0]["loc"][-1], known)
    return sentence + did_you_mean(errors[0]["input"], allowed)


def did_you_mean(written: Any, known: Sequence[str]) -> str:
    """Return the end of a sentence that names what was probably meant; empty if nothing is near."""
    near = get_close_matches(written.lower(), known, n=1) if isinstance(written, str) else []
    return f": did you mean {near[0]}?" if near else ""


def known_fields(schema: Mapping[str, Any], path: Path) -> tuple[str, ...]:
    """Return the fields that a JSON Schema names at a place, of all that may stand there."""
    nodes = [SchemaNode.of(schema)]
    for part in path:
        nodes = [node.at(_inside(at, part)) for node in nodes for at in node.branches()]
    branches = (branch for node in nodes for branch in node.branches())
    return tuple(dict.fromkeys(name for each in branches for name in each.get("properties", {})))


def _inside(branch: Mapping[str, Any], part: str | int) -> Any:
    return item_of(branch, part) if isinstance(part, int) else property_of(branch, part)


def _kind(error: ErrorDetails) -> str | None:
    """Return what the value must be, for a sentence that begins with `must be`."""
    context: Mapping[str, Any] = error.get("ctx", {})
    if error["type"] == "string_pattern_mismatch":
        pattern = context["pattern"]
        return "more than white space" if pattern == r"\S" else f"a text like {pattern}"
    kind = _KINDS.get(error["type"])
    return None if kind is None else kind.format(**context)


def _allowed(error: ErrorDetails) -> Iterator[str]:
    """Yield the words that a choice takes; pydantic has them as `'a', 'b' or 'c'`."""
    if error["type"] == "literal_error":
        listed = str(error["ctx"]["expected"]).replace(" or ", ", ").split(", ")
        yield from (each.strip("'") for each in listed)


def _one_of(allowed: Sequence[str]) -> str:
    return allowed[0] if len(allowed) == 1 else f"one of {', '.join(allowed)}"


# YAML text to plain JSON data, with the line of every value. Knows nothing of scenarios.
#
# Stricter than YAML: no tags, no duplicate or merged keys, numbers as JSON writes them; dates stay
# text. Anchors may be used, but what they expand to is bounded.


MAX_VALUES = 500_000
MAX_DEPTH = 60

_SHOWN_CHARS = 40

_TAG = "tag:yaml.org,2002:"
_TEXT_TAGS = {_TAG + "str", _TAG + "timestamp"}
_JSON_TAGS = {_TAG + "int", _TAG + "float", _TAG + "bool", _TAG + "null"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """What a file says. `lines` counts from 1; `faults` are in order of appearance."""

    value: Any
    lines: Mapping[Path, int]
    faults: tuple[Fault, ...]

    def line(self, path: Path) -> int:
        """Return the line of a value, or of the nearest thing around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


class _Core(BaseResolver):  # type: ignore[misc]  # PyYAML has no types
    """What a bare word is in YAML 1.2: `no` is a text, `12:30` too."""


for _version, _tag, _pattern, _first in implicit_resolvers:
    if (1, 2) in _version:
        _Core.add_implicit_resolver(_tag, _pattern, _first)


class _Parser(Composer, CParser, _Core):  # type: ignore[misc]  # PyYAML has no types
    """libyaml reads, which is quick; Python composes: libyaml itself crashes on deep nesting."""

    def __init__(self, text: str) -> None:
        Composer.__init__(self)
        CParser.__init__(self, text)
        _Core.__init__(self)


def read_yaml(text: str) -> Document:
    """Return the one document of `text`; its faults are listed, never raised."""
    reader = _Reader()
    try:
        node = _Parser(text).get_single_node()
        value = None if node is None else reader.value(node, ())
    except MarkedYAMLError as error:
        reader.lines[()] = error.problem_mark.line + 1 if error.problem_mark else 1
        reader.faults.append(Fault((), f"not YAML: {error.problem or error.context}"))
        value = None
    except (YAMLError, ValueError) as error:  # a character that YAML forbids
        reader.faults.append(Fault((), f"not YAML: {' '.join(str(error).split())}"))
        value = None
    except RecursionError:
        reader.faults.append(Fault((), f"nested deeper than {MAX_DEPTH} levels"))
        value = None
    return Document(value=value, lines=reader.lines, faults=tuple(reader.faults))


def read_json(text: str) -> Document:
    """Return what JSON text says, with the line of every value; its faults are listed."""
    twice: list[str] = []

    def read(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        twice.extend(
            name for name, count in Counter(name for name, _ in pairs).items() if count > 1
        )
        return dict(pairs)

    try:
        value = json.loads(text, object_pairs_hook=read, parse_constant=_no, parse_float=_finite)
        value = plain_json(value)
    except json.JSONDecodeError as error:
        fault = Fault((), f"not JSON: {error.msg}")
        return Document(value=None, lines={(): error.lineno}, faults=(fault,))
    except (ValueError, RecursionError) as error:
        return Document(value=None, lines={}, faults=(Fault((), f"not JSON: {error}"),))
    faults = tuple(Fault((), f"the key {name!r} stands in one object twice") for name in twice)
    return Document(value=value, lines=_json_lines(text), faults=faults)


def _json_lines(text: str) -> Mapping[Path, int]:
    """Return where the values of JSON stand: as YAML, which it is but for pairs of surrogates."""
    reader = _Reader()
    try:
        node = _Parser(
            re.sub(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}", r"\\u0020", text)
        ).get_single_node()
        if node is not None:
            reader.value(node, ())
    except (YAMLError, ValueError, RecursionError):  # tabs, say: then all stands in line 1
        return {}
    return reader.lines


def read_json_lines(text: str) -> Document:
    """Return a list with what each line of JSON text says; empty lines are none."""
    values: list[Any] = []
    lines: dict[Path, int] = {}
    faults: list[Fault] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            told = read_json(line)
            lines |= dict.fromkeys(_paths(told.value, (len(values),)), number)
            faults += [Fault((len(values),), fault.message) for fault in told.faults]
            values.append(told.value)
    return Document(value=values, lines=lines, faults=tuple(faults))


def _paths(value: Any, at: Path) -> Iterator[Path]:
    """Yield the place of a value and of all that is in it."""
    yield at
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _paths(item, (*at, key))


_FORMATS: Mapping[str, Callable[[str], Document]] = {
    ".json": read_json,
    ".jsonl": read_json_lines,
}
"""How a file is read, by the end of its name; any other is YAML."""


class _Reader:
    """Turns nodes into values, keeping lines and faults."""

    def __init__(self) -> None:
        self.lines: dict[Path, int] = {}
        self.faults: list[Fault] = []

    def value(self, node: Node, path: Path) -> Any:
        self.lines[path] = node.start_mark.line + 1
        if len(self.lines) > MAX_VALUES:
            raise ValueError(f"more than {MAX_VALUES} values: split the file")
        if len(path) > MAX_DEPTH:
            raise RecursionError
        if isinstance(node, MappingNode) and node.tag == _TAG + "map":
            return self._mapping(node, path)
        if isinstance(node, SequenceNode) and node.tag == _TAG + "seq":
            return [self.value(item, (*path, i)) for i, item in enumerate(node.value)]
        if isinstance(node, ScalarNode) and node.tag in _TEXT_TAGS:
            return str(node.value)
        if isinstance(node, ScalarNode) and node.tag in _JSON_TAGS:
            return self._scalar(node, path)
        return self._wrong(path, f"the tag {node.tag} is not allowed: write plain data")

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, item in node.value:
            name = key.value if isinstance(key, ScalarNode) else None
            if name is None or key.tag not in _TEXT_TAGS:
                self.lines[path] = key.start_mark.line + 1
                self._wrong(path, f"a key must be a text in quotes, not {name or 'a structure'}")
            elif name in found:
                first = self.lines[*path, name]
                self.lines[*path, name] = key.start_mark.line + 1
                self._wrong((*path, name), f"the key stands here twice (first in line {first})")
            else:
                found[name] = self.value(item, (*path, name))
                self.lines[*path, name] = key.start_mark.line + 1
        return found

    def _scalar(self, node: ScalarNode, path: Path) -> Any:
        text = str(node.value)
        if node.tag == _TAG + "null":
            return None
        try:
            return json.loads(
                text.lower() if node.tag == _TAG + "bool" else text,
                parse_constant=_no,
                parse_float=_finite,
            )
        except ValueError:
            shown = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
            return self._wrong(path, f"{shown} is no JSON number: put it in quotes or write it out")

    def _wrong(self, path: Path, message: str) -> None:
        self.faults.append(Fault(path, message))


def _no(constant: str) -> Any:
    raise ValueError(constant)


def _finite(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _no(digits)


# A scenario (evaluation.md §1): its values, and the JSON Schema of its file for editors.
#
# Reading files: further below; whether a scenario makes sense for the tools and the data
# of a domain is the toolset's.


_Words: TypeAlias = Annotated[str, Field(pattern=r"\S")]


def _searchable(phrase: str) -> str:
    if not comparable(phrase):
        raise ValueError("nothing of it can be seen in a reply: write a word or a number")
    return phrase


_Phrase: TypeAlias = Annotated[_Words, AfterValidator(_searchable)]
_ARGS_MARK = {"x-lhkit": "args"}
_Args: TypeAlias = Annotated[Mapping[str, Any], WithJsonSchema(_ARGS_MARK)]
_ROW_MARK = {"x-lhkit": "row"}
_Row: TypeAlias = Annotated[Mapping[str, Any], WithJsonSchema(_ROW_MARK)]
_Listed: TypeAlias = Mapping[str, tuple[_Row, ...]]
_Alternatives: TypeAlias = tuple[Mapping[str, Slot], ...]
_Answer: TypeAlias = Literal["accept", "reject"]
User: TypeAlias = Literal["script", "careful", "hasty"]
"""Who clicks: what the scenario says, a person who reads each card, or one who always says yes."""


DIFFICULTIES = ("plain", "hard")
"""Tags that say how much a conversation asks: a plain one has one or two turns, one wish and no
trap. A table tells both apart: one number of easy and hostile talks says little."""


def user_of(word: str) -> User:
    """Return the user that a word names.

    Raises:
        UsageError: it names none.
    """
    users: Mapping[str, User] = {user: user for user in get_args(User)}
    if word in users:
        return users[word]
    raise UsageError(f"no user {word!r}: choose one of {', '.join(users)}")


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
class _Wish(_Strict):
    """A tool and matchers for its arguments: as they were written, and parsed, once."""

    tool: Annotated[_Words, _about("Name of the tool.")]
    args: Annotated[
        _Args, _about("A matcher for each argument; or `any_of` with a list of such sets.")
    ] = field(default_factory=dict)
    _alternatives: _Alternatives | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parsed: _Alternatives | None = None
        with suppress(ScenarioError):  # who reads the file tells it with its line
            parsed = parse_alternatives(self.args)
        object.__setattr__(self, "_alternatives", parsed)

    @property
    def alternatives(self) -> _Alternatives:
        """The matchers of each set of arguments that is right; one, unless `any_of` lists several.

        Raises:
            ScenarioError: one of them is malformed.
        """
        return parse_alternatives(self.args) if self._alternatives is None else self._alternatives


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedCall(_Wish):
    """A call that must happen, or may if it is `optional`."""

    optional: Annotated[bool, _about("The call may be left out.")] = False
    result: Annotated[
        _Words | None, _about("What it comes to: ok, cancelled or an error code. Any if left out.")
    ] = None

    @property
    def expectation(self) -> Expectation:
        """The call as `match_calls` takes it.

        Raises:
            ScenarioError: a matcher is malformed.
        """
        return Expectation(
            tool=self.tool,
            alternatives=self.alternatives,
            optional=self.optional,
            result=self.result,
        )


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
    results: Annotated[
        tuple[_Row, ...],
        Field(
            description="What calls must have come to by the end of the turn, whichever calls they "
            "were, in this turn or before it: rows as under `final`, each held against the data "
            "of a call of its own that went well.",
            examples=[[{"celsius": {"approx": 21.5, "abs": 0.1}}, {"equals": {"count": 3}}]],
        ),
    ] = ()
    least: Annotated[
        int, Field(ge=0, description="So many calls at least, whichever they are.")
    ] = 0

    @property
    def asks_whichever(self) -> bool:
        """True if it asks for calls of which it does not say which they are."""
        return bool(self.results or self.least)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForbiddenCall(_Wish):
    """A minefield: a call of this tool whose listed arguments fit."""

    args: Annotated[
        _Args, _about("Only with these arguments; others do not matter. `any_of` as expected.")
    ] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyPart(_Strict):
    """Words that must (not) stand in a reply, in any case and with any width of white space."""

    contains_any: Annotated[tuple[_Phrase, ...], _about("At least one of these.")] = ()
    contains_all: Annotated[tuple[_Phrase, ...], _about("Every one of these.")] = ()
    excludes: Annotated[tuple[_Phrase, ...], _about("None of these.")] = ()
    matches: Annotated[str | None, _about("A regular expression that is found.")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedReply(ReplyPart):
    """What the user must (not) read."""

    all_of: Annotated[
        tuple[ReplyPart, ...],
        _about("Each of these must hold too: `[{contains_any: [7, seven]}, {contains_any: …}]`."),
    ] = ()
    ignore: Annotated[
        Literal["spaces"] | None, _about("White space does not count: 물 마시기 is 물마시기.")
    ] = None
    claims: Annotated[
        Literal["none"] | None,
        _about("It claims no finished write, whatever was done in this conversation or before."),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldCall(_Strict):
    """A call of the gold trace, with its real arguments."""

    tool: Annotated[_Words, _about("Name of the tool.")]
    args: Annotated[
        Mapping[str, Any],
        _about("Arguments as the model gives them; `{date: today+1d}` is the day that it means."),
    ] = field(default_factory=dict)


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
        _Answer | Literal["absent", "careful"] | tuple[_Answer, ...],
        _about(
            "The user's answers to the confirm gate: one word answers every question of the turn, "
            "a list answers in order and then says no, careful says yes to what this turn expects, "
            "each call once, and no to any other, absent means that there is no gate."
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
    final: Annotated[
        _Listed | None,
        _about(
            "Rows that must be there after this turn and may be new or changed, by table; all "
            "others must be as they were before it. `{}`: it changes nothing. Left out: only the "
            "end is looked at."
        ),
    ] = None
    gone: Annotated[_Listed | None, _about("Rows that this turn must have deleted.")] = None

    @property
    def checks_state(self) -> bool:
        """True if it says what this turn does to the state."""
        return self.final is not None or self.gone is not None


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

    `world` is the initial state, in the terms of the toolset; its `now` is the clock.
    `faults` are tools that break while it is played.
    `final` lists, by table, the rows that must be there at the end and may be new or changed,
    `gone` those of the start that must have been deleted. Whatever is not listed must be as it was.
    `reply` is what all replies together must (not) say.
    """

    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$", description="Unique name.")]
    ac: Annotated[_Words, _about("The acceptance criterion it belongs to, such as AC-6.")]
    turns: Annotated[tuple[Turn, ...], Field(min_length=1, description="The conversation.")]
    locale: Annotated[str, _about("Language of the conversation.")] = DEFAULT_LOCALE
    tags: Annotated[tuple[_Words, ...], _about("Free labels.")] = ()
    world: Annotated[
        _World,
        _about(
            "The state at the start: `now`, and rows by table. `{date: today-1d}` is that day of "
            "its clock, wherever a value stands."
        ),
    ] = field(default_factory=dict)
    faults: Annotated[tuple[ScriptedFault, ...], _about("Tools that break, each once.")] = ()
    final: Annotated[_Listed, _about("Rows expected at the end, by table.")] = field(
        default_factory=dict
    )
    gone: Annotated[_Listed, _about("Rows of the start that must have been deleted.")] = field(
        default_factory=dict
    )
    reply: Annotated[
        ExpectedReply, _about("What the user reads in the whole conversation, in any turn.")
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
        document = Document(value=value, lines=dict.fromkeys(_paths(value, ()), 1), faults=())
        faults: list[Fault] = []
        scenario = _validated(value[0], 0, document, faults)
        if scenario is None:
            told = [f"{_labelled(value, each.path)}: {each.message}" for each in faults]
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


def scenario_json_schema() -> dict[str, Any]:
    """Return the JSON Schema (Draft 2020-12) of a scenario file, for editors."""
    schema = TypeAdapter(tuple[Scenario, ...]).json_schema()
    described: dict[str, Any] = _with_grammar(schema)
    described["$defs"] |= _GRAMMAR
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **described}


def _with_grammar(node: Any) -> Any:
    """Replace each mark by a reference: pydantic has no word for a recursive grammar."""
    if isinstance(node, dict):
        for mark, name in ((_ARGS_MARK, "Args"), (_ROW_MARK, "Row")):
            if node.items() >= mark.items():
                rest = {key: value for key, value in node.items() if key not in mark}
                return {"$ref": f"#/$defs/{name}", **rest}
        return {key: _with_grammar(value) for key, value in node.items()}
    return [_with_grammar(value) for value in node] if isinstance(node, list) else node


def _matcher_schema(
    key: str, value: Mapping[str, Any], about: str, example: Any, **modifiers: Any
) -> dict[str, Any]:
    optional = {"type": "boolean", "description": "The argument may be left out."}
    return {
        "title": key,
        "description": about,
        "examples": [example],
        "type": "object",
        "properties": {key: {**value, "description": about}, **modifiers, "optional": optional},
        "required": [key],
        "additionalProperties": False,
    }


def _modifier(about: str, **schema: Any) -> dict[str, Any]:
    return {**schema, "description": about}


_NESTED = {"$ref": "#/$defs/Matcher"}
_FIELDS = {"type": "object", "additionalProperties": _NESTED}

_MATCHERS: Sequence[Mapping[str, Any]] = (
    _matcher_schema(
        "equals",
        {},
        "Exactly this value, also if it looks like a matcher.",
        {"equals": {"date": "today"}},
    ),
    _matcher_schema(
        "one_of",
        {"type": "array", "items": _NESTED, "minItems": 1},
        "One of these values or matchers.",
        {"one_of": ["morning", {"text": "in the morning"}]},
    ),
    _matcher_schema("any", {"const": True}, "Any value, but there must be one.", {"any": True}),
    _matcher_schema(
        "matches",
        {"type": "string", "format": "regex"},
        "A text in which this regular expression is found.",
        {"matches": "^010-[0-9]{4}"},
    ),
    _matcher_schema(
        "approx",
        {"type": "number"},
        "A number as near as this; without `abs` and `rel` only rounding is forgiven.",
        {"approx": 37.5, "abs": 0.1},
        abs=_modifier("The largest difference.", type="number", minimum=0),
        rel=_modifier("The largest difference, as a share of it.", type="number", minimum=0),
    ),
    _matcher_schema(
        "date",
        {"type": "string"},
        "A day: YYYY-MM-DD, or told from the scenario's day. today, yesterday, tomorrow, weekstart "
        "(this week's Monday), weekendstart (its Saturday, on a Sunday that day), "
        "monthstart, monthend; friday (today or the first to come), next "
        "friday (the first after today), last friday (the last before it); each with +Nd, -Nw, +Nm "
        "(days, weeks, months).",
        {"date": "last friday"},
    ),
    _matcher_schema(
        "text",
        {"type": "string"},
        "This text, in any case, Unicode form and width of white space.",
        {"text": "I drink water", "ignore": "spaces"},
        ignore=_modifier("White space does not count at all.", const="spaces"),
    ),
    _matcher_schema(
        "fields",
        _FIELDS,
        "An object with these fields and no others.",
        {"fields": {"lat": {"approx": 37.5, "abs": 0.1}}, "extra": True},
        extra=_modifier("Others do not matter.", type="boolean"),
    ),
    _matcher_schema(
        "items",
        {"type": "array", "items": _NESTED},
        "A list of just these, in this order.",
        {"items": ["milk", {"matches": "^egg"}], "unordered": True},
        unordered=_modifier("In any order.", type="boolean"),
    ),
)

_GRAMMAR: Mapping[str, Any] = {
    "Matcher": {
        "description": "A value, which stands for itself, or one of the matchers.",
        "anyOf": [
            *_MATCHERS,
            {"not": {"type": "object", "anyOf": [{"required": [key]} for key in MATCHER_KEYS]}},
        ],
    },
    "Args": {
        "description": "A matcher for each argument, or several sets of which one must fit.",
        "anyOf": [
            {
                "description": "Several sets of arguments that are right.",
                "examples": [{ANY_OF: [{"day": "monday"}, {"from": "monday", "to": "monday"}]}],
                "type": "object",
                "properties": {ANY_OF: {"type": "array", "items": _FIELDS, "minItems": 1}},
                "required": [ANY_OF],
                "additionalProperties": False,
            },
            _FIELDS,
        ],
    },
    "Row": {
        "description": "Matchers for some fields of a row (of a table, or of the data that a call "
        "came to), others do not matter; or `equals` with "
        "the whole row, or `fields` with all of its fields.",
        "examples": [{"title": "tea"}, {"equals": {"id": 1, "title": "tea"}}],
        **_FIELDS,
    },
}


# Scenario files to scenarios, with every fault by file, line and field.


__all__ = [
    "Origin",
    "Scenario",
    "SourceFault",
    "Sources",
    "load_scenarios",
    "read_document",
    "read_sources",
    "scenario_faults",
    "scenario_json_schema",
    "shape_faults",
]

MAX_FILE_BYTES = 10_000_000
"""A larger file would take minutes to read."""

_ADAPTER = TypeAdapter(Scenario)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a scenario stands."""

    file: FilePath
    index: int
    document: Document

    def line(self, path: Path = ()) -> int:
        """Return the line of one of its fields, counted from 1."""
        return self.document.line((self.index, *path))


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFault:
    """What is wrong in a file; `place` begins with the scenario's id where there is one."""

    file: FilePath
    line: int
    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.place}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The well-formed scenarios of some files, where each stands, and what is wrong in the rest."""

    scenarios: tuple[Scenario, ...]
    origins: Mapping[str, Origin]
    faults: tuple[SourceFault, ...]


def load_scenarios(
    paths: Iterable[FilePath | str], *, limit: int | None = None
) -> tuple[Scenario, ...]:
    """Return the scenarios of files and folders, in the order given, folders by name.

    Args:
        paths: files in YAML, JSON (`*.json`: a list) or JSONL (`*.jsonl`: a scenario a line), or
            folders, which are searched for `*.yaml` and `*.yml`.
        limit: the most to return; files after those that hold so many are not read.

    Raises:
        ScenarioError: a file is not there or is wrong. One line per fault, over all files:
            `file:line: scenario.field: what is wrong`.
    """
    sources = read_sources(paths, limit=limit)
    if sources.faults:
        raise ScenarioError("\n".join(map(str, sources.faults)))
    return sources.scenarios[:limit]


def read_sources(paths: Iterable[FilePath | str], *, limit: int | None = None) -> Sources:
    """Return all of the files with the place of each scenario, and the faults as values.

    Once `limit` scenarios are found, no further file is read.

    Raises:
        ScenarioError: a file is not there or cannot be read.
    """
    found: dict[str, tuple[Scenario, Origin]] = {}
    faults: list[SourceFault] = []
    for file in _files(paths):
        if limit is not None and len(found) >= limit:
            break
        document = read_document(file)
        for origin, scenario in _scenarios(file, document, faults):
            if scenario.id in found:
                first = found[scenario.id][1]
                message = f"the id is taken by {first.file}:{first.line()}"
                faults.append(_fault(origin, scenario.id, message))
            else:
                found[scenario.id] = (scenario, origin)
    return Sources(
        scenarios=tuple(scenario for scenario, _ in found.values()),
        origins={name: origin for name, (_, origin) in found.items()},
        faults=tuple(faults),
    )


def _fault(origin: Origin, place: str, message: str) -> SourceFault:
    return SourceFault(file=origin.file, line=origin.line(), place=place, message=message)


def _files(paths: Iterable[FilePath | str]) -> list[FilePath]:
    files: dict[FilePath, FilePath] = {}
    for path in map(FilePath, paths):
        inside = [path]
        if path.is_dir():
            inside = sorted(each for each in path.rglob("*") if each.suffix in {".yaml", ".yml"})
        if not inside or not all(each.is_file() for each in inside):
            raise ScenarioError(f"{path}: no scenario file there: give a *.yaml file or a folder")
        files |= {each.resolve(): each for each in inside if each.resolve() not in files}
    return list(files.values())


def read_document(file: FilePath) -> Document:
    """Return what a YAML, JSON or JSONL file says; its faults are listed in it.

    Raises:
        ScenarioError: the file cannot be read as text, or is larger than `MAX_FILE_BYTES`.
    """
    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            raise ScenarioError(f"{file}: larger than {MAX_FILE_BYTES:,} bytes: split the file")
        read = _FORMATS.get(file.suffix.lower(), read_yaml)
        return read(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise ScenarioError(f"{file}: there is no such file") from error
    except OSError as error:
        raise ScenarioError(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{file}: cannot be read as UTF-8 text: {error}") from error


def _scenarios(
    file: FilePath, document: Document, faults: list[SourceFault]
) -> Iterator[tuple[Origin, Scenario]]:
    """Yield the good scenarios of a file with their place; add the faults of the others."""
    found = list(document.faults)
    entries = document.value if isinstance(document.value, list) else []
    if not entries and not found:
        found.append(Fault((), "must be a list of scenarios (`- id: …`)"))
    for index, entry in enumerate(entries) if not found else ():
        scenario = _validated(entry, index, document, found)
        if scenario is not None:
            yield Origin(file=file, index=index, document=document), scenario
    for fault in sorted(found, key=lambda each: document.line(each.path)):
        line = document.line(fault.path)
        place = _labelled(entries, fault.path)
        faults.append(SourceFault(file=file, line=line, place=place, message=fault.message))


def _labelled(entries: list[Any], path: Path) -> str:
    """Return a path that begins with the scenario's id, where it has one."""
    entry = entries[path[0]] if path and isinstance(path[0], int) and entries else None
    name = entry.get("id") if isinstance(entry, dict) else None
    return shown_path((name, *path[1:]) if isinstance(name, str) else path)


def _validated(entry: Any, index: int, document: Document, found: list[Fault]) -> Scenario | None:
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
    """Return an entry with the days in its world that are told from its clock."""
    world = entry.get("world") if isinstance(entry, dict) else None
    return entry if not isinstance(world, dict) else {**entry, "world": world_with_days(world)}


def world_with_days(world: Mapping[str, Any]) -> dict[str, Any]:
    """Return a world with the days in it that are told from its clock.

    Raises:
        ScenarioError: a day is told from a clock that the world does not have, or is beyond the
            calendar.
    """
    now: Any = world.get("now")
    today = datetime.fromisoformat(now).date() if _is_moment(now) else None
    dated: dict[str, Any] = dates_resolved(world, today)
    return dated


def shape_faults(
    error: ValidationError, adapter: TypeAdapter[Any], document: Document, at: Path = ()
) -> tuple[Fault, ...]:
    """Return what `adapter` found wrong with the value that stands at `at` in a document."""
    schema = adapter.json_schema()
    found: dict[Path, list[ErrorDetails]] = {}
    for each in error.errors(include_url=False):
        if each["type"] == "too_short" and each["input"]:
            continue  # its items are there and wrong: said elsewhere
        path = _path_of((*at, *each["loc"]), each["type"], document.lines)
        found.setdefault(path, []).append(each)
    return tuple(
        Fault(path, shape_words(errors, known_fields(schema, path[len(at) : -1])))
        for path, errors in found.items()
    )


def _path_of(location: Path, kind: str, lines: Mapping[Path, int]) -> Path:
    """Return pydantic's location without the names of union members, which are no keys."""
    path: Path = ()
    for part in location:
        if (*path, part) in lines:
            path = (*path, part)
    return (*path, location[-1]) if kind == "missing" else path


def scenario_faults(scenario: Scenario) -> Iterator[Fault]:
    """Yield what is wrong inside a well-formed scenario: matchers, patterns, order, clock."""
    if scenario.locale not in available_locales():
        yield Fault(("locale",), f"must be one of {', '.join(available_locales())}")
    yield from _world_faults(scenario.world)
    yield from day_faults(scenario.world, ("world",))
    yield from _twice_broken(scenario.faults)
    yield from _listed_faults(scenario, ())
    yield from _reply_faults(scenario.reply, ("reply",))
    for number, turn in enumerate(scenario.turns):
        yield from _turn_faults(turn, ("turns", number))


def _world_faults(world: Mapping[str, Any]) -> Iterator[Fault]:
    for name, value in world.items():
        if name == "now":
            if not _is_moment(value):
                yield Fault(
                    ("world", "now"),
                    "must be a time with offset, from the year "
                    f"{CLOCK_YEARS[0]} to {CLOCK_YEARS[-1]}: 2026-06-15T09:00:00+09:00",
                )
        elif not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
            yield Fault(("world", name), "must be a list of rows")


def day_faults(world: Mapping[str, Any], path: Path) -> Iterator[Fault]:
    """Yield the misspelt days of a world, each at its field.

    A row that has a field `date` alone is a row, whatever stands there.
    """
    for place, word in misspelt_days(world):
        is_row = len(place) == _ROW_DEPTH and isinstance(place[-1], int)
        if place and not is_row:
            yield _no_day((*path, *place), word)


_ROW_DEPTH = 2
"""`items[0]`: a table and the place in it."""


def _no_day(path: Path, word: str) -> Fault:
    return Fault(
        path,
        f"date: {word!r} is no day: write today, tomorrow-1w, last friday or monthstart-1m, or "
        f"YYYY-MM-DD without `date`{did_you_mean(word, DAY_WORDS)}",
    )


def _twice_broken(faults: Sequence[ScriptedFault]) -> Iterator[Fault]:
    tools = [fault.tool for fault in faults]
    for number, tool in enumerate(tools):
        if tool in tools[:number]:
            yield Fault(
                ("faults", number, "tool"), f"{tool} stands here twice: write one entry with times"
            )


def _is_moment(value: Any) -> bool:
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return False
    return moment.tzinfo is not None and moment.year in CLOCK_YEARS


def _turn_faults(turn: Turn, path: Path) -> Iterator[Fault]:
    for number, call in enumerate(turn.expect.calls):
        yield from args_faults(call.args, (*path, "expect", "calls", number, "args"))
    for number, forbidden in enumerate(turn.forbid):
        yield from args_faults(forbidden.args, (*path, "forbid", number, "args"))
    yield from _gold_faults(turn.gold, (*path, "gold"))
    for number, row in enumerate(turn.expect.results):
        yield from row_faults(row, (*path, "expect", "results", number))
    if turn.expect.asks_whichever and not turn.expect.calls and turn.expect.extra == "none":
        yield Fault(
            (*path, "expect", "results" if turn.expect.results else "least"),
            "asks for calls, and none may be made: say which with extra: reads or extra: any",
        )
    yield from _reply_faults(turn.reply, (*path, "reply"))
    yield from _listed_faults(turn, path)
    if isinstance(turn.expect.order, Before):
        yield from _order_faults(turn.expect.order, len(turn.expect.calls), path)


def _gold_faults(gold: Gold, path: Path) -> Iterator[Fault]:
    for number, call in enumerate(gold.calls or ()):
        for place, word in misspelt_days(call.args):
            if place:  # an argument that is called date is one
                yield _no_day((*path, "calls", number, "args", *place), word)


def _reply_faults(reply: ExpectedReply, path: Path) -> Iterator[Fault]:
    parts = ((("all_of", i), part) for i, part in enumerate(reply.all_of))
    for at, part in (((), reply), *parts):
        fault = None if part.matches is None else pattern_fault(part.matches)
        if fault is not None:
            yield Fault((*path, *at, "matches"), fault)


def _listed_faults(of: Scenario | Turn, path: Path) -> Iterator[Fault]:
    for name, tables in (("final", of.final), ("gone", of.gone)):
        for table, rows in (tables or {}).items():
            for number, row in enumerate(rows):
                yield from row_faults(row, (*path, name, table, number))


def _order_faults(order: Before, n: int, path: Path) -> Iterator[Fault]:
    nothing = Problem(costs=[[]] * n, left_expected=[0] * n, left_actual=[])
    try:
        assign_ordered(nothing, order.before)
    except ScenarioError as error:
        yield Fault((*path, "expect", "order"), str(error).removeprefix("order: "))
