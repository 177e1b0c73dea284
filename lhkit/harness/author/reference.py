"""Models without weights that play a scenario: the reference, the silent and the always-call model.

The reference (`gold`) does what the scenario expects and must pass, or the scenario is wrong. What
the other two pass asks for nothing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from graphlib import TopologicalSorter
from operator import is_
from typing import Any, assert_never

from lhkit.errors import ScenarioError
from lhkit.harness.author.examples import (
    derived,
    known_ids,
    plausible_args,
    plausible_calls,
    texts_of,
)
from lhkit.harness.matchers import UnderivableError
from lhkit.harness.relative_dates import resolve_dates
from lhkit.harness.scenario import Before, Expect, ExpectedReply, Scenario, Turn
from lhkit.harness.scoring.reply import reply_reasons
from lhkit.messages import ToolCall, ToolCallMessage, UserMessage
from lhkit.models.base import ModelRequest
from lhkit.models.scripted import Reply, ScriptedModel, say
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry
from lhkit.tools.validation import Accepted, Invalid, Missing, NotAnObject
from lhkit.toolset import Session, Toolset, opened

_PLAIN_REPLY = "OK."
_MUST_FIT = (None, "ok", "cancelled")  # with another result, a call may be wrong on purpose
_CLAIMS = {
    "ko": "네, 말씀하신 대로 처리했고 모두 완료했습니다!",
    "en": "Yes, I have done what you asked. It is all done!",
}
_MOST_CLAIMS = 2
_PAST_FINAL = 20  # ㅆ, of the past tense, among the 28 finals of Hangul


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


def trace_model(turns: Sequence[TurnTrace], *, name: str) -> ScriptedModel:
    """Return a model that does in each turn what stands in `turns`, whatever comes back."""
    replies = [
        [*(Reply(calls=message) for message in turn.messages), say(turn.words)] for turn in turns
    ]

    def script(request: ModelRequest) -> Reply:
        turn, done = -1, 0  # which user turn it is, and its messages with calls so far
        for message in request.messages:
            if isinstance(message, UserMessage):
                turn, done = turn + 1, 0
            elif isinstance(message, ToolCallMessage):
                done += message.index == 0
        planned = replies[turn] if turn < len(replies) else []
        return planned[done] if done < len(planned) else Reply()

    return ScriptedModel(script, name=name, needs_isolation=True)


def gold_model(scenario: Scenario, registry: ToolRegistry) -> ScriptedModel:
    """Return a model that does what `scenario` expects: each required call, then the reply.

    Raises:
        ScenarioError: as `reference_trajectory`.
    """
    return trace_model(reference_trajectory(scenario, registry), name="gold")


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
            kept[id(scenario)] = scenario, reference_trajectory(scenario, registry)
        return trace_model(kept[id(scenario)][1], name="gold")

    return made


def reference_trajectory(scenario: Scenario, registry: ToolRegistry) -> tuple[TurnTrace, ...]:
    """Return what a perfect model does in each turn of `scenario`, one call a message.

    Optional calls and optional arguments are left out; of alternatives the first is taken. What
    cannot be derived (a `matches`) has to stand under `gold`.

    Raises:
        ScenarioError: something cannot be derived, or does not fit the tool or the reply; the
            message names scenario and field.
    """
    traces, last = [], len(scenario.turns) - 1
    for number, turn in enumerate(scenario.turns):
        try:
            calls = _calls(turn, scenario, registry)
            words = _words(turn, scenario.reply if number == last else None)
        except ScenarioError as error:
            raise ScenarioError(f"{scenario.id}.turns[{number}].{error}") from error
        traces.append(TurnTrace(messages=tuple((call,) for call in calls), words=words))
    return tuple(traces)


def _calls(turn: Turn, scenario: Scenario, registry: ToolRegistry) -> list[ToolCall]:
    """Return the calls under `gold`, or else those that the turn requires."""
    if turn.gold.calls is None:
        required = _in_order(turn.expect)
        if not required and turn.expect.needs_unlisted_calls:
            raise ScenarioError("expect: no calls are listed that it asks for: give gold.calls")
        return [_call(turn.expect, i, scenario, registry) for i in required]
    calls = []
    for i, call in enumerate(turn.gold.calls):
        try:
            args = resolve_dates(deepcopy(dict(call.args)), scenario.today)
        except ScenarioError as error:
            raise ScenarioError(f"gold.calls[{i}].args: {error}") from error
        calls.append(ToolCall(name=call.tool, args=args))
    return calls


def _in_order(expect: Expect) -> Sequence[int]:
    """Return the required calls in an order that the expectation allows."""
    required = [i for i, call in enumerate(expect.calls) if not call.optional]
    if not isinstance(expect.order, Before):
        return required
    sorter: TopologicalSorter[int] = TopologicalSorter(dict.fromkeys(range(len(expect.calls)), ()))
    for first, second in expect.order.before:
        sorter.add(second, first)
    return [i for i in sorter.static_order() if i in required]


def _call(expect: Expect, i: int, scenario: Scenario, registry: ToolRegistry) -> ToolCall:
    """Return an expected call with arguments that fit its matchers and its tool."""
    expected, tool = expect.calls[i], registry.get(expect.calls[i].tool)
    where = f"expect.calls[{i}]"
    if tool is None and expected.result != "unknown_tool":
        raise ScenarioError(
            f"{where}.tool: there is no tool {expected.tool!r}; one that comes later has to be "
            "under gold.calls"
        )
    schema: Mapping[str, Any] = tool.parameters if tool else {}
    try:
        args = deepcopy(derived(expected.alternatives[0], schema, today=scenario.today))
    except UnderivableError as error:
        raise ScenarioError(f"{where}.args.{error}: give the call under gold.calls") from error
    if tool is not None and expected.result in _MUST_FIT:
        verdict = registry.validator(expected.tool).check(args)
        if not isinstance(verdict, Accepted):
            fault = f"{expected.tool} refuses this: {_fault(verdict)}"
            raise ScenarioError(f"{where}.args: {fault}")
    return ToolCall(name=expected.tool, args=args)


def _fault(verdict: NotAnObject | Missing | Invalid) -> str:
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


def _words(turn: Turn, at_the_end: ExpectedReply | None) -> str:
    """Return the reply under `gold`, or else the words that the turn demands."""
    demanded = [*_demanded(turn.reply), *(_demanded(at_the_end) if at_the_end else ())]
    given = turn.gold.say
    words = (" ".join(demanded) or _PLAIN_REPLY) if given is None else given
    if reasons := reply_reasons(turn.reply, words):
        advice = "write a reply under gold.say" if given is None else "correct gold.say"
        raise ScenarioError(f"reply: {'; '.join(reasons)}: {advice}")
    return words


def _demanded(expected: ExpectedReply) -> Iterator[str]:
    """Yield words that a reply needs, each once."""
    parts = (expected, *expected.all_of)
    words = [[*part.contains_all, *part.contains_any[:1]] for part in parts]
    yield from dict.fromkeys(each for part in words for each in part)


def always_call_model(scenario: Scenario, toolset: Toolset) -> ScriptedModel:
    """Return a model that calls all tools in each turn of `scenario` and then claims success.

    Its calls are as good as a blind guess can be: ids that exist, values that the schemas name,
    the user's own words as text. Of more writes than a turn has room for, those are made that can
    go through; the last message is left for the claim.

    Raises:
        UsageError: the initial state of the scenario is invalid.
    """
    with opened(toolset, scenario.world, scenario.locale) as session:
        turns = [_everything(turn.user, scenario.locale, session) for turn in scenario.turns]
    return trace_model(turns, name="always_call")


def _everything(user: str, locale: str, session: Session) -> TurnTrace:
    """Return all reads in one message, then one write a message: only one is asked about."""
    ids, registry, today = known_ids(session), session.registry, session.today
    claims = [_CLAIMS.get(locale, _CLAIMS["en"])]
    reads: list[ToolCall] = []
    writes: list[ToolCall] = []
    for tool in registry.definitions:
        validator = registry.validator(tool.name)
        guesses = plausible_calls(tool, validator, ids=ids, text=user, today=today)
        args = plausible_args(tool, ids=ids, text=user, today=today)
        call = guesses[0] if guesses else ToolCall(name=tool.name, args=args)
        (writes if tool.is_destructive else reads).append(call)
        claims += claims_of_success(tool, locale)[:1]

    def lacks_id(call: ToolCall) -> bool:
        return any(name.endswith("_id") and not ids.get(name) for name in call.args)

    limit = session.assistant.max_turns - 1
    likely = sorted(writes, key=lacks_id)[:limit]
    messages = [[call] for call in writes if call in likely]
    if len(messages) < limit:
        messages = [reads, *messages] if reads else messages
    elif messages:
        messages[0] = [*reads, *messages[0]]
    return TurnTrace(messages=tuple(map(tuple, messages)), words=" ".join(claims))


def claims_of_success(tool: ToolDefinition, locale: str) -> list[str]:
    """Return sentences that report a tool's success in the words that it names, if any."""
    words = [next(texts_of(pattern), "").strip() for pattern in tool.claims.get(locale, ())]
    return [_sentence(each, locale) for each in words if each][:_MOST_CLAIMS]


def _sentence(words: str, locale: str) -> str:
    if locale != "ko":
        return f"Done: {words.rstrip('.')}."
    is_past = "가" <= words[-1] <= "힣" and (ord(words[-1]) - ord("가")) % 28 == _PAST_FINAL
    return f"{words}어요." if is_past else f"{words.rstrip('.')}."
