"""A scenario's own expectation played as a model: it must pass, or the scenario is wrong.

Also the model that does nothing: what it passes asks for nothing. The model that calls everything
is `always_call`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from graphlib import TopologicalSorter
from operator import is_
from typing import Any, assert_never

from lhkit.errors import ScenarioError
from lhkit.harness.author.examples import derived
from lhkit.harness.matchers import Underivable
from lhkit.harness.relative_dates import dates_resolved
from lhkit.harness.scenario import Scenario
from lhkit.harness.scoring.reply import reply_reasons
from lhkit.harness.turn import Before, Expect, ExpectedCall, ExpectedReply, GoldCall, Turn
from lhkit.messages import ToolCall, ToolCallMessage, UserMessage
from lhkit.models.base import ModelRequest
from lhkit.models.scripted import Reply, ScriptedModel, say
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry
from lhkit.tools.validation import Accepted, Invalid, Missing, NotAnObject

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
