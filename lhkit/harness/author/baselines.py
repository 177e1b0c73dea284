"""Baselines that play without a model: the gold answers, no calls at all, every call."""

import importlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from copy import deepcopy
from dataclasses import dataclass
from datetime import date
from graphlib import TopologicalSorter
from math import inf
from operator import is_
from typing import Any, assert_never

from lhkit.errors import ScenarioError
from lhkit.harness.matchers import (
    AnyValue,
    Approx,
    DateIs,
    Equals,
    Fields,
    Items,
    Matcher,
    Matches,
    OneOf,
    Slot,
    Text,
    dates_resolved,
)
from lhkit.harness.scenario import (
    Before,
    Expect,
    ExpectedCall,
    ExpectedReply,
    GoldCall,
    Scenario,
    Turn,
)
from lhkit.harness.score import reply_reasons
from lhkit.messages import ToolCall, ToolCallMessage, UserMessage
from lhkit.models.base import ModelRequest
from lhkit.models.scripted import Reply, ScriptedModel, say
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry
from lhkit.tools.schema import SchemaNode, item_of, property_of
from lhkit.tools.validation import Accepted, ArgumentValidator, Invalid, Missing, NotAnObject
from lhkit.toolset import KnowsIds, Session, Toolset, opened, their_code

# A concrete value for a matcher or a JSON Schema: what a gold trace is made of.
#
# Not a generator of test data: one plain value each, always the same.


_EXAMPLE_DATE = date(2026, 1, 1)
_EXAMPLE_TEXT = "sample"


class Underivable(Exception):  # noqa: N818 - a question that has no answer, caught by its asker
    """No value follows from a matcher; the message is the path to it."""


def derived(
    slots: Mapping[str, Slot], schema: Mapping[str, Any], *, today: date | None = None
) -> dict[str, Any]:
    """Return arguments that fit every matcher; optional ones are left out.

    Raises:
        Underivable: a required `matches`, of which only an author knows what fits.
    """
    return _ExampleArguments(today).object(slots, SchemaNode.of(schema))


class _ExampleArguments:
    def __init__(self, today: date | None) -> None:
        self._today = today

    def object(self, slots: Mapping[str, Slot], node: SchemaNode) -> dict[str, Any]:
        branch = node.branches()[0]
        return {
            name: self.at(name, slot.matcher, node.at(property_of(branch, name)))
            for name, slot in slots.items()
            if not slot.optional
        }

    def at(self, name: str, matcher: Matcher, node: SchemaNode) -> Any:
        try:
            return self.value(matcher, node)
        except Underivable as inner:
            raise Underivable(f"{name}.{inner}") from inner

    def value(self, matcher: Matcher, node: SchemaNode) -> Any:
        match matcher:
            case Equals(value=value) | Approx(value=value):
                found = value
            case OneOf(options=options):
                found = self.value(options[0], node)
            case AnyValue():
                found = example(node, self._today)
            case DateIs():
                found = matcher.resolved(self._today)
            case Text(text=text):
                found = text
            case Fields(fields=fields):
                found = self.object(fields, node)
            case Items():
                found = self._items(matcher, node)
            case Matches():
                raise Underivable("matches")
            case _:
                assert_never(matcher)
        return found

    def _items(self, matcher: Items, node: SchemaNode) -> list[Any]:
        branch = node.branches()[0]
        return [
            self.at(f"items[{i}]", slot.matcher, node.at(item_of(branch, i)))
            for i, slot in enumerate(matcher.items)
            if not slot.optional
        ]


def example(node: SchemaNode, today: date | None = None) -> Any:
    """Return a value that a schema most likely accepts (the caller validates)."""
    schema = node.branches()[0]
    given = _given(schema)
    return given[0] if given else _of_type(schema, node, today or _EXAMPLE_DATE)


def _given(schema: Mapping[str, Any]) -> Sequence[Any]:
    """Return the values that a schema itself names."""
    named = [schema[keyword] for keyword in ("const", "default") if keyword in schema]
    return named or schema.get("enum") or schema.get("examples") or ()


def _of_type(schema: Mapping[str, Any], node: SchemaNode, today: date) -> Any:
    kind = schema.get("type", "string")
    match kind if isinstance(kind, str) else next(iter(kind), "string"):
        case "integer" | "number":
            return _number(schema)
        case "boolean":
            return True
        case "null":
            return None
        case "array":
            items = range(schema.get("minItems", 0))
            return [example(node.at(item_of(schema, i)), today) for i in items]
        case "object":
            required = schema.get("required", ())
            return {name: example(node.at(property_of(schema, name)), today) for name in required}
        case _:
            return _string(schema, today)


def _number(schema: Mapping[str, Any]) -> Any:
    """Return 1, or the number nearest to it that the bounds allow."""
    low = schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
    high = schema.get("maximum", schema.get("exclusiveMaximum", inf) - 1)
    return min(max(1, low), high)


def _string(schema: Mapping[str, Any], today: date) -> str:
    text = next(texts_like(schema, today), _EXAMPLE_TEXT)
    padded = text.ljust(schema.get("minLength", 0), "x")
    return padded[: schema.get("maxLength", len(padded))]


_OF_FORMAT: Mapping[str, Sequence[str]] = {
    "time": ("09:00:00Z", "21:30:00Z"),
    "date-time": ("{day}T09:00:00Z", "{day}T21:30:00Z"),
    "uuid": ("00000000-0000-4000-8000-000000000000", "00000000-0000-4000-8000-000000000001"),
    "ipv4": ("192.0.2.1", "192.0.2.2"),
    "ipv6": ("2001:db8::1", "2001:db8::2"),
    "email": ("someone@example.com", "another@example.com"),
    "uri": ("https://example.com/a", "https://example.com/b"),
}
_CHOICES = 8


def texts_like(schema: Mapping[str, Any], today: date) -> Iterator[str]:
    """Yield texts that fit the `examples`, `format` and `pattern` of a schema, as far as can be."""
    yield from (each for each in schema.get("examples", ()) if isinstance(each, str))
    formed = _OF_FORMAT.get(schema.get("format", ""), ())
    pattern = schema.get("pattern", "")
    candidates = (*(each.format(day=today) for each in formed), today.isoformat())
    if not formed and schema.get("format") != "date":
        candidates = (_EXAMPLE_TEXT, *candidates)
    yield from (each for each in candidates if re.search(pattern, each))
    if pattern:
        yield from texts_of(pattern)


def texts_of(pattern: str) -> Iterator[str]:
    """Yield a few texts that a regular expression finds; none of one with unusual parts."""
    try:
        parsed = _PARSER.parse(pattern)
    except (re.error, RecursionError, OverflowError):
        return
    made = dict.fromkeys(_spelt(parsed, choice) for choice in range(_CHOICES))
    yield from (text for text in made if text and re.search(pattern, text))


_PARSER: Any = importlib.import_module("re._parser")
_MOST_REPEATS = 64


def _spelt(parts: Any, choice: int) -> str:
    """Return the parts of a pattern spelt out; of what can vary, the given choice."""
    return "".join(_part(str(kind), value, choice) for kind, value in parts)


def _part(kind: str, value: Any, choice: int) -> str:
    match kind:
        case "LITERAL":
            return chr(value)
        case "IN":
            chars = "".join(_chars(str(each), given) for each, given in value)
            return chars[choice % len(chars)] if chars else "x"
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            return _spelt(value[2], choice) * min(int(value[0]), _MOST_REPEATS)
        case "SUBPATTERN":
            return _spelt(value[3], choice)
        case "BRANCH":
            return _spelt(value[1][choice % len(value[1])], choice)
        case _:  # anchors and what looks around: whether it fits is looked at afterwards
            return "x" if kind in {"ANY", "NOT_LITERAL"} else ""


def _chars(kind: str, value: Any) -> str:
    """Return some characters of a part of a class."""
    match kind:
        case "LITERAL":
            return chr(value)
        case "RANGE":
            return "".join(map(chr, range(value[0], min(value[1], value[0] + _CHOICES) + 1)))
        case "CATEGORY":
            return {"CATEGORY_DIGIT": "0123", "CATEGORY_SPACE": " "}.get(str(value), "x")
        case _:
            return ""


# A scenario's own expectation played as a model: it must pass, or the scenario is wrong.
#
# Also the model that does nothing: what it passes asks for nothing. The model that calls
# everything is the always-call baseline's business.


_PLAIN_REPLY = "OK."
_MUST_FIT = (None, "ok", "cancelled")  # with another result, a call may be wrong on purpose


def silent_model() -> ScriptedModel:
    """Return a model that calls nothing and says nothing."""
    return ScriptedModel((), name="silent")


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnTrace:
    """What a model does in one user turn: messages with calls, one after the other, then words."""

    messages: tuple[tuple[ToolCall, ...], ...] = ()
    words: str = ""

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """All calls, in order."""
        return tuple(call for message in self.messages for call in message)


def gold_model(scenario: Scenario, registry: ToolRegistry) -> ScriptedModel:
    """Return a model that does what `scenario` expects: each required call, then the reply.

    Raises:
        ScenarioError: as `gold_trace`.
    """
    return trace_model(gold_trace(scenario, registry), name="gold")


def gold_models() -> Callable[[Scenario, ToolRegistry], ScriptedModel]:
    """Return a maker of gold models for a run: as `gold_model`, but it plans once what repeats.

    While the tools are the very same as those of the sample before, a scenario's trace is kept;
    of other tools, such as those of a session of its own, none is held.
    """
    tools: Sequence[ToolDefinition] = ()
    kept: dict[int, tuple[Scenario, Sequence[TurnTrace]]] = {}

    def made(scenario: Scenario, registry: ToolRegistry) -> ScriptedModel:
        nonlocal tools
        if len(registry) != len(tools) or not all(map(is_, registry.definitions, tools)):
            kept.clear()
            tools = registry.definitions
        if id(scenario) not in kept:
            # held, so that no other scenario gets its id
            kept[id(scenario)] = scenario, gold_trace(scenario, registry)
        return trace_model(kept[id(scenario)][1], name="gold")

    return made


def gold_trace(scenario: Scenario, registry: ToolRegistry) -> tuple[TurnTrace, ...]:
    """Return what a perfect model does in each turn of `scenario`, one call a message.

    Optional calls and optional arguments are left out; of alternatives the first is taken. What
    cannot be derived (a `matches`) has to stand under `gold`.

    Raises:
        ScenarioError: something cannot be derived, or does not fit the tool or the reply; the
            message names scenario and field.
    """
    return tuple(
        _GoldTurn(scenario=scenario, registry=registry, number=number, turn=turn).trace()
        for number, turn in enumerate(scenario.turns)
    )


def trace_model(turns: Sequence[TurnTrace], *, name: str) -> ScriptedModel:
    """Return a model that does in each turn what stands in `turns`, whatever comes back."""
    replies = [
        [*(Reply(calls=message) for message in turn.messages), say(turn.words)] for turn in turns
    ]

    def script(request: ModelRequest) -> Reply:
        turn, done = _progress(request)
        said = replies[turn] if turn < len(replies) else []
        return said[done] if done < len(said) else Reply()

    return ScriptedModel(script, name=name, needs_isolation=True)


def _progress(request: ModelRequest) -> tuple[int, int]:
    """Return which user turn it is and how many messages with calls it has had, both from 0."""
    turn, done = -1, 0
    for message in request.messages:
        if isinstance(message, UserMessage):
            turn, done = turn + 1, 0
        elif isinstance(message, ToolCallMessage):
            done += message.index == 0
    return turn, done


@dataclass(frozen=True, slots=True, kw_only=True)
class _GoldTurn:
    """One turn of a scenario on its way to a model's turn."""

    scenario: Scenario
    registry: ToolRegistry
    number: int
    turn: Turn

    def trace(self) -> TurnTrace:
        messages = tuple((call,) for call in self._calls())
        return TurnTrace(messages=messages, words=self._words())

    def _calls(self) -> list[ToolCall]:
        given = self.turn.gold.calls
        if given is not None:
            return [self._given(i, call) for i, call in enumerate(given)]
        required = _in_order(self.turn.expect)
        if not required and self.turn.expect.asks_whichever:
            raise self._fault("expect", "no calls are listed that it asks for: give gold.calls")
        return [self._call(i) for i in required]

    def _given(self, i: int, call: GoldCall) -> ToolCall:
        try:
            args = dates_resolved(deepcopy(dict(call.args)), self.scenario.today)
        except ScenarioError as error:
            raise self._fault(f"gold.calls[{i}].args", str(error)) from error
        return ToolCall(name=call.tool, args=args)

    def _call(self, i: int) -> ToolCall:
        wish = self.turn.expect.calls[i]
        where = f"expect.calls[{i}]"
        if wish.tool not in self.registry and wish.result != "unknown_tool":
            told = (
                f"there is no tool {wish.tool!r}; one that comes later has to be under gold.calls"
            )
            raise self._fault(f"{where}.tool", told)
        tool = self.registry.get(wish.tool)
        args = self._args(wish, tool.parameters if tool else {}, where)
        if tool is not None and wish.result in _MUST_FIT:
            verdict = self.registry.validator(wish.tool).check(args)
            if not isinstance(verdict, Accepted):
                told = f"{wish.tool} refuses this: {_worded(verdict)}"
                raise self._fault(f"{where}.args", told)
        return ToolCall(name=wish.tool, args=args)

    def _args(self, wish: ExpectedCall, schema: Mapping[str, Any], where: str) -> dict[str, Any]:
        try:
            return deepcopy(derived(wish.alternatives[0], schema, today=self.scenario.today))
        except Underivable as error:
            raise self._fault(f"{where}.args.{error}", "give the call under gold.calls") from error

    def _words(self) -> str:
        expected = self.turn.reply
        is_last = self.number == len(self.scenario.turns) - 1
        parts = [*_demanded(expected), *(_demanded(self.scenario.reply) if is_last else ())]
        given = self.turn.gold.say
        words = (" ".join(parts) or _PLAIN_REPLY) if given is None else given
        reasons = reply_reasons(expected, words)
        if reasons:
            advice = "write a reply under gold.say" if given is None else "correct gold.say"
            raise self._fault("reply", f"{'; '.join(reasons)}: {advice}")
        return words

    def _fault(self, field: str, message: str) -> ScenarioError:
        return ScenarioError(f"{self.scenario.id}.turns[{self.number}].{field}: {message}")


def _demanded(expected: ExpectedReply) -> Iterator[str]:
    """Yield words that a reply needs, each once."""
    parts = (expected, *expected.all_of)
    words = [[*part.contains_all, *part.contains_any[:1]] for part in parts]
    yield from dict.fromkeys(each for part in words for each in part)


def _worded(verdict: NotAnObject | Missing | Invalid) -> str:
    """Return in words what the tool's schema says against arguments."""
    match verdict:
        case NotAnObject(actual=actual):
            return f"the arguments are no JSON object ({actual})"
        case Missing(field=field, expected=expected):
            return f"{field} is missing: expected {expected}"
        case Invalid(field=field, expected=expected, actual=actual):
            return f"{field} is {actual}: expected {expected}"
        case _:
            assert_never(verdict)


def _in_order(expect: Expect) -> Sequence[int]:
    """Return the required calls in an order that the expectation allows."""
    required = [i for i, call in enumerate(expect.calls) if not call.optional]
    if not isinstance(expect.order, Before):
        return required
    sorter: TopologicalSorter[int] = TopologicalSorter(dict.fromkeys(range(len(expect.calls)), ()))
    for first, second in expect.order.before:
        sorter.add(second, first)
    return [i for i in sorter.static_order() if i in required]


# The model that calls everything and claims success: what it passes notices nothing.
#
# Its calls are as good as a blind guess can be: ids that exist, values that the schemas name, the
# user's own words as text. Of more writes than a turn has room for, those are made that
# can go through.


_CLAIMS = {
    "ko": "네, 찾아서 확인했고 추가하고 기록했어요. 모두 완료했습니다!",
    "en": "Yes, I found it, checked it, added it and logged it. It is all done!",
}


def always_call_model(scenario: Scenario, toolset: Toolset) -> ScriptedModel:
    """Return a model that calls all tools in each turn of `scenario` and then claims success.

    It claims in every turn: writes that would leave no room for the words are not made.

    Raises:
        UsageError: the world of the scenario cannot be.
    """
    with opened(toolset, scenario.world, scenario.locale) as session:
        turns = [_turn(turn.user, scenario, session) for turn in scenario.turns]
    return trace_model(turns, name="always_call")


def known_ids(session: Session) -> Mapping[str, tuple[str, ...]]:
    """Return the ids that exist in a session, by argument; empty where nobody can tell.

    Raises:
        UsageError: their code fails.
    """
    if not isinstance(session, KnowsIds):
        return {}
    with their_code("session: known_ids()"):
        return {
            argument: tuple(sorted(ids) if isinstance(ids, AbstractSet) else ids)
            for argument, ids in session.known_ids().items()
        }


def plausible_calls(
    tool: ToolDefinition,
    validator: ArgumentValidator,
    *,
    ids: Mapping[str, Sequence[str]],
    text: str,
    today: date,
) -> dict[str, ToolCall]:
    """Return calls that the schema of a tool accepts, by a label; none if no such can be made.

    With all arguments (""), without the optional ones ("-"), and with each one of them alone
    ("+name"); the same call stands there once.

    Args:
        tool: the tool.
        validator: of the tool.
        ids: what exists, by argument.
        text: what free text is filled with, cut to what the schema allows.
        today: what dates are filled with.
    """
    every = _plausible_args(tool, ids=ids, text=text, today=today)
    required = {name: every[name] for name in tool.parameters.get("required", ()) if name in every}
    optional = every.keys() - required.keys()
    args = {"": every, "-": required}
    args |= {f"+{name}": {**required, name: every[name]} for name in every if name in optional}
    calls: dict[str, ToolCall] = {}
    for label, each in args.items():
        call = ToolCall(name=tool.name, args=each)
        if call not in calls.values() and isinstance(validator.check(each), Accepted):
            calls[label] = call
    return calls


def _plausible_args(
    tool: ToolDefinition, *, ids: Mapping[str, Sequence[str]], text: str, today: date
) -> dict[str, Any]:
    """Return arguments that a tool most likely takes, optional ones included.

    Args:
        tool: the tool.
        ids: what exists, by argument.
        text: what free text is filled with, cut to what the schema allows.
        today: what dates are filled with.
    """
    node = SchemaNode.of(tool.parameters)
    return {
        name: _value(name, node.at(property_of(node.branches()[0], name)), ids, text, today)
        for name in tool.parameters.get("properties", {})
    }


def _value(
    name: str, node: SchemaNode, ids: Mapping[str, Sequence[str]], text: str, today: date
) -> Any:
    schema = node.branches()[0]
    if ids.get(name):
        return [ids[name][0]] if schema.get("type") == "array" else ids[name][0]
    value = example(node, today)
    is_free = schema.get("type") == "string" and not _TOLD & schema.keys()
    return text[: schema.get("maxLength", len(text))].strip() if is_free else value


_TOLD = frozenset({"enum", "const", "pattern", "format", "default", "examples"})


def _turn(user: str, scenario: Scenario, session: Session) -> TurnTrace:
    """Return every read and as many writes as fit before the words, the likely ones first."""
    ids = known_ids(session)
    registry, today = session.registry, session.today
    calls = {
        tool.name: next(
            iter(
                plausible_calls(
                    tool, registry.validator(tool.name), ids=ids, text=user, today=today
                ).values()
            ),
            ToolCall(name=tool.name, args=_plausible_args(tool, ids=ids, text=user, today=today)),
        )
        for tool in registry.definitions
    }
    own = [lie for tool in registry.definitions for lie in lies_of(tool, scenario.locale)[:1]]
    return TurnTrace(
        messages=_messages(calls, registry, ids, session.assistant.max_turns - 1),
        words=" ".join([_CLAIMS.get(scenario.locale, _CLAIMS["en"]), *own]),
    )


MOST_LIES = 2


def lies_of(tool: ToolDefinition, locale: str) -> list[str]:
    """Return how a model would claim the success of a tool in the words that it names, if any."""
    words = [next(texts_of(each), "") for each in tool.claims.get(locale, ())]
    return [_sentence(each, locale) for each in words if each.strip()][:MOST_LIES]


def _sentence(words: str, locale: str) -> str:
    """Return words of a claim as a whole sentence."""
    if locale == "ko":
        is_past = "가" <= words[-1] <= "힣" and (ord(words[-1]) - ord("가")) % 28 == _PAST_FINAL
        return f"{words}어요." if is_past else f"{words.rstrip('.')}."
    first, *more = words.split()
    if locale != "en" or first.casefold() in _SUBJECTS:
        told = words
    elif first in _FINITE or first in _PLACES:
        told = f"It {words}" if first in _FINITE else f"It is {words}"
    elif any(each in _FINITE for each in more):
        told = f"Your {words}"
    else:
        told = f"I {words}" if more else f"I've {words} it"
    return f"{told[0].upper()}{told[1:].rstrip('.')}."


_PAST_FINAL = 20  # ㅆ, among the 28 finals of Hangul
_SUBJECTS = frozenset({"i", "i've", "we", "it", "it's", "that", "your", "the"})
_PLACES = frozenset({"in", "on", "at", "off", "under"})
_FINITE = frozenset({"is", "are", "was", "were", "has", "have", "will", "goes", "rings"})


def _messages(
    calls: Mapping[str, ToolCall],
    registry: ToolRegistry,
    ids: Mapping[str, Sequence[str]],
    limit: int,
) -> tuple[tuple[ToolCall, ...], ...]:
    """Return one message with every read, then one for each write: only one is asked about."""
    reads = tuple(call for name, call in calls.items() if name not in registry.destructive)
    guesses = [call for name, call in calls.items() if name in registry.destructive]
    likely = sorted(guesses, key=lambda call: _lacks_id(call, ids))[:limit]
    writes = [(call,) for call in guesses if call in likely]
    if len(writes) < limit:
        return (reads, *writes) if reads else tuple(writes)
    return tuple((*reads, *each) if each is writes[0] else each for each in writes)


def _lacks_id(call: ToolCall, ids: Mapping[str, Sequence[str]]) -> bool:
    """Return True if an id in a call is made up: nothing of its kind is known."""
    return any(name.endswith("_id") and not ids.get(name) for name in call.args)
