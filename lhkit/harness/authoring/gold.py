"""A scenario's own expectation played as a model: it must pass, or the scenario is wrong.

Also the model that does nothing: what it passes asks for nothing. The model that calls everything
is `bluff`'s business.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any, assert_never

from lhkit.errors import ScenarioError
from lhkit.harness.authoring.examples import Underivable, derived
from lhkit.harness.expectations.matchers import parse_slot
from lhkit.harness.scenarios.script import Before, Expect, ExpectedCall, Scenario, Turn
from lhkit.harness.verdicts.reply import reply_reasons
from lhkit.models.base import ModelRequest
from lhkit.models.scripted import Reply, ScriptedModel, say
from lhkit.tools.registry import ToolRegistry
from lhkit.tools.validation import Accepted, Invalid, Missing, NotAnObject
from lhkit.vocab.messages import ToolCall, ToolCallMessage, UserMessage

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


def gold_trace(scenario: Scenario, registry: ToolRegistry) -> tuple[TurnTrace, ...]:
    """Return what a perfect model does in each turn of `scenario`, one call a message.

    Optional calls and optional arguments are left out; of alternatives the first is taken. What
    cannot be derived (a `matches`) has to stand under `gold`.

    Raises:
        ScenarioError: something cannot be derived, or does not fit the tool or the reply; the
            message names scenario and field.
    """
    return tuple(
        _Deriving(scenario=scenario, registry=registry, number=number, turn=turn).trace()
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

    return ScriptedModel(script, name=name)


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
class _Deriving:
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
            return [ToolCall(name=call.tool, args=deepcopy(dict(call.args))) for call in given]
        return [self._call(i) for i in _in_order(self.turn.expect)]

    def _call(self, i: int) -> ToolCall:
        wish = self.turn.expect.calls[i]
        where = f"expect.calls[{i}]"
        if wish.tool not in self.registry and wish.result != "unknown_tool":
            raise self._fault(f"{where}.tool", f"there is no tool {wish.tool!r}")
        tool = self.registry.get(wish.tool)
        args = self._args(wish, tool.parameters if tool else {}, where)
        if tool is not None and wish.result in _MUST_FIT:
            verdict = self.registry.validator(wish.tool).check(args)
            if not isinstance(verdict, Accepted):
                told = f"{wish.tool} refuses this: {_worded(verdict)}"
                raise self._fault(f"{where}.args", told)
        return ToolCall(name=wish.tool, args=args)

    def _args(self, wish: ExpectedCall, schema: Mapping[str, Any], where: str) -> dict[str, Any]:
        slots = {name: parse_slot(raw) for name, raw in wish.args.items()}
        try:
            return deepcopy(derived(slots, schema, today=self.scenario.today))
        except Underivable as error:
            raise self._fault(f"{where}.args.{error}", "give the call under gold.calls") from error

    def _words(self) -> str:
        expected = self.turn.reply
        parts = [*expected.contains_all, *expected.contains_any[:1]]
        given = self.turn.gold.say
        words = (" ".join(parts) or _PLAIN_REPLY) if given is None else given
        reasons = reply_reasons(expected, words)
        if reasons:
            advice = "write a reply under gold.say" if given is None else "correct gold.say"
            raise self._fault("reply", f"{'; '.join(reasons)}: {advice}")
        return words

    def _fault(self, field: str, message: str) -> ScenarioError:
        return ScenarioError(f"{self.scenario.id}.turns[{self.number}].{field}: {message}")


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
