"""Scripted models of a scenario: the reference, the silent and the always-call model.

The reference (`gold`) makes the expected calls and must pass; a scenario that one of the other two
passes requires nothing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from graphlib import TopologicalSorter
from operator import is_
from typing import assert_never

from lhkit.base.errors import ScenarioError
from lhkit.base.schema import SchemaNode
from lhkit.conversation.messages import ToolCall, ToolCallMessage, UserMessage
from lhkit.harness.authoring.examples import (
    example,
    known_ids,
    plausible_args,
    plausible_calls,
    texts_of,
)
from lhkit.harness.running.plan import ModelSource
from lhkit.harness.scenarios.matchers import Place, UnderivableError, example_arguments
from lhkit.harness.scenarios.relative_dates import resolve_dates
from lhkit.harness.scenarios.scenario import Before, Expect, ExpectedReply, Scenario, Turn
from lhkit.harness.scoring.reply import reply_reasons, without_asterisk
from lhkit.models.base import ModelRequest
from lhkit.models.recorded.scripted import Reply, ScriptedModel, say
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry
from lhkit.tools.validation import Accepted, Invalid, Missing, NotAnObject
from lhkit.toolset import Session, Toolset, opened

PLAIN_REPLY = "OK."
_MUST_FIT = (None, "ok", "cancelled")  # with another result, a call may be wrong on purpose
_CLAIMS = {
    "ko": "네, 말씀하신 대로 처리했고 모두 완료했습니다!",
    "en": "Yes, I have done what you asked. It is all done!",
}
_MAX_CLAIMS = 2
_PAST_TENSE_FINAL = 20  # index of ㅆ among the 28 final consonants of Hangul


def silent_model() -> ScriptedModel:
    """Return a model that calls no tool and replies with nothing."""
    return ScriptedModel((), name="silent")


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnTrace:
    """The messages of a model in a user turn: some with calls, then a reply."""

    messages: tuple[tuple[ToolCall, ...], ...] = ()
    reply: str = ""

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """All calls, in order."""
        return tuple(call for message in self.messages for call in message)


def trace_model(turns: Sequence[TurnTrace], *, name: str) -> ScriptedModel:
    """Return a model that sends the messages of `turns`, whatever the tools return.

    User messages before its first request, which the assistant's history contains, do not count.
    """
    replies = [
        [*(Reply(calls=message) for message in turn.messages), say(turn.reply)] for turn in turns
    ]

    earlier: int | None = None

    def script(request: ModelRequest) -> Reply:
        nonlocal earlier
        if earlier is None:
            earlier = sum(isinstance(message, UserMessage) for message in request.messages) - 1
        turn, done = -1 - earlier, 0  # index of the user turn, and its messages with calls so far
        for message in request.messages:
            if isinstance(message, UserMessage):
                turn, done = turn + 1, 0
            elif isinstance(message, ToolCallMessage):
                done += message.index == 0
        planned = replies[turn] if 0 <= turn < len(replies) else []
        return planned[done] if done < len(planned) else Reply()

    return ScriptedModel(script, name=name, needs_isolation=True)


def gold_model(scenario: Scenario, registry: ToolRegistry) -> ScriptedModel:
    """Return a model that makes the required calls of a scenario and then replies.

    Raises:
        ScenarioError: as `reference_trajectory`.
    """
    return trace_model(reference_trajectory(scenario, registry), name="gold")


def gold_models() -> Callable[[Scenario, ToolRegistry], ScriptedModel]:
    """Return `gold_model` with a cache for the samples of a run.

    Trajectories are cached while the tools are identical to those of the previous sample.
    """
    tools: Sequence[ToolDefinition] = ()
    cache: dict[int, tuple[Scenario, Sequence[TurnTrace]]] = {}

    def build(scenario: Scenario, registry: ToolRegistry) -> ScriptedModel:
        nonlocal tools
        if len(registry) != len(tools) or not all(map(is_, registry.definitions, tools)):
            cache.clear()
            tools = registry.definitions
        if id(scenario) not in cache:
            # the scenario is stored too, so that no other one gets its id
            cache[id(scenario)] = scenario, reference_trajectory(scenario, registry)
        return trace_model(cache[id(scenario)][1], name="gold")

    return build


REFERENCE_MODELS: Mapping[str | None, Callable[[], ModelSource]] = {
    "gold": gold_models,
    "silent": silent_model,
}
"""The models that can be named in place of a real one; they need no server."""


def reference_trajectory(scenario: Scenario, registry: ToolRegistry) -> tuple[TurnTrace, ...]:
    """Return the reference calls and reply of each turn, one call per message unless parallel.

    Optional calls and arguments are left out, and the first of several alternatives is used. What
    cannot be derived from matchers (a `matches`) has to be given under `gold`.

    Raises:
        ScenarioError: a call or reply cannot be derived, or is invalid; the message names scenario
            and field.
    """
    turns: list[TurnTrace] = []
    last = len(scenario.turns) - 1
    for number, turn in enumerate(scenario.turns):
        try:
            messages = _turn_messages(turn, scenario, registry)
            reply = _turn_reply(turn, scenario.reply if number == last else None)
        except ScenarioError as error:
            raise ScenarioError(f"{scenario.id}.turns[{number}].{error}") from error
        turns.append(TurnTrace(messages=messages, reply=reply))
    return tuple(turns)


def _turn_messages(
    turn: Turn, scenario: Scenario, registry: ToolRegistry
) -> tuple[tuple[ToolCall, ...], ...]:
    """Return the calls under `gold`, else the required calls of the turn, by message."""
    if turn.gold.calls is None:
        required = _ordered_indices(turn.expect)
        if not required and (turn.expect.results or turn.expect.least):
            raise ScenarioError("expect: lists no call that could be made: give gold.calls")
        return tuple((_example_call(turn.expect, i, scenario, registry),) for i in required)
    messages: list[list[ToolCall]] = []
    for i, call in enumerate(turn.gold.calls):
        try:
            args = resolve_dates(deepcopy(dict(call.args)), scenario.today)
        except ScenarioError as error:
            raise ScenarioError(f"gold.calls[{i}].args: {error}") from error
        made = ToolCall(name=call.tool, args=args)
        if call.parallel and messages:
            messages[-1].append(made)
        else:
            messages.append([made])
    return tuple(map(tuple, messages))


def _ordered_indices(expect: Expect) -> Sequence[int]:
    """Return the indices of the required calls in an order that the expectation allows."""
    required = [i for i, call in enumerate(expect.calls) if not call.optional]
    if not isinstance(expect.order, Before):
        return required
    sorter: TopologicalSorter[int] = TopologicalSorter(dict.fromkeys(range(len(expect.calls)), ()))
    for first, second in expect.order.before:
        sorter.add(second, first)
    return [i for i in sorter.static_order() if i in required]


def _example_call(expect: Expect, i: int, scenario: Scenario, registry: ToolRegistry) -> ToolCall:
    """Return a call that an expectation and its tool accept."""
    expected, tool = expect.calls[i], registry.get(expect.calls[i].tool)
    where = f"expect.calls[{i}]"
    if tool is None and expected.result != "unknown_tool":
        raise ScenarioError(
            f"{where}.tool: tool {expected.tool!r} does not exist; give one that is added later "
            "under gold.calls"
        )
    place = Place(SchemaNode.of(tool.parameters if tool else {}), scenario.today)
    matchers = expected.alternatives[0]
    try:
        args = deepcopy(
            example_arguments(matchers, place, lambda inner: example(inner.node, inner.today))
        )
    except UnderivableError as error:
        raise ScenarioError(f"{where}.args.{error}: give the call under gold.calls") from error
    if tool is not None and expected.result in _MUST_FIT:
        verdict = registry.validator(expected.tool).check(args)
        if not isinstance(verdict, Accepted):
            issue = issue_text(verdict)
            raise ScenarioError(f"{where}.args: {expected.tool} refuses this: {issue}")
    return ToolCall(name=expected.tool, args=args)


def issue_text(verdict: NotAnObject | Missing | Invalid) -> str:
    """Return why the schema of a tool refuses arguments."""
    match verdict:
        case NotAnObject(actual=actual):
            return f"the arguments are not a JSON object ({actual})"
        case Missing(field=field, expected=expected):
            return f"{field} is missing: expected {expected}"
        case Invalid(field=field, expected=expected, actual=actual):
            return f"{field} is {actual}: expected {expected}"
        case _:
            assert_never(verdict)


def _turn_reply(turn: Turn, final: ExpectedReply | None) -> str:
    """Return the reply under `gold`, else the text that the turn requires."""
    required = [*_required_texts(turn.reply), *(_required_texts(final) if final else ())]
    given = turn.gold.say
    reply = (" ".join(required) or PLAIN_REPLY) if given is None else given
    if reasons := reply_reasons(turn.reply, reply):
        advice = "write a reply under gold.say" if given is None else "correct gold.say"
        raise ScenarioError(f"reply: {'; '.join(reasons)}: {advice}")
    return reply


def _required_texts(expected: ExpectedReply) -> Iterator[str]:
    """Yield texts that a reply must contain, without repetitions."""
    parts = (expected, *expected.all_of)
    texts = (text for p in parts for text in (*p.contains_all, *p.contains_any[:1]))
    yield from dict.fromkeys(map(without_asterisk, texts))


def always_call_model(scenario: Scenario, toolset: Toolset) -> ScriptedModel:
    """Return a model that calls all tools in each turn and then claims success.

    Arguments are guessed: existing ids, values from the schemas, the user's message as text. If a
    turn has too few messages for all writes, the most likely ones are made; the last message is the
    claim.

    Raises:
        UsageError: the initial state of the scenario is invalid.
    """
    with opened(toolset, scenario.world, scenario.locale) as session:
        turns = [_call_everything(turn.user, scenario.locale, session) for turn in scenario.turns]
    return trace_model(turns, name="always_call")


def _call_everything(user: str, locale: str, session: Session) -> TurnTrace:
    """Return all reads in a message, then a message per write: the gate asks for one only."""
    ids, registry, today = known_ids(session), session.registry, session.today
    claims = [_CLAIMS.get(locale, _CLAIMS["en"])]
    reads: list[ToolCall] = []
    writes: list[ToolCall] = []
    for tool in registry.definitions:
        validator = registry.validator(tool.name)
        guesses = plausible_calls(tool, validator, ids=ids, text=user, today=today)
        if not guesses:
            args = plausible_args(tool, ids=ids, text=user, today=today)
            guesses = [ToolCall(name=tool.name, args=args)]
        (writes if tool.is_destructive else reads).append(guesses[0])
        claims += success_claims(tool, locale)[:1]

    def lacks_id(call: ToolCall) -> bool:
        return any(name.endswith("_id") and not ids.get(name) for name in call.args)

    limit = session.assistant.max_turns - 1
    likely = sorted(writes, key=lacks_id)[:limit]
    messages = [[call] for call in writes if call in likely]
    if len(messages) < limit:
        messages = [reads, *messages] if reads else messages
    elif messages:
        messages[0] = [*reads, *messages[0]]
    return TurnTrace(messages=tuple(map(tuple, messages)), reply=" ".join(claims))


def success_claims(tool: ToolDefinition, locale: str) -> list[str]:
    """Return sentences that claim success of a tool with its own success phrases, if any."""
    phrases = [next(texts_of(pattern), "").strip() for pattern in tool.claims.get(locale, ())]
    return [_claim_sentence(phrase, locale) for phrase in phrases if phrase][:_MAX_CLAIMS]


def _claim_sentence(phrase: str, locale: str) -> str:
    if locale != "ko":
        return f"Done: {phrase.rstrip('.')}."
    is_past = "가" <= phrase[-1] <= "힣" and (ord(phrase[-1]) - ord("가")) % 28 == _PAST_TENSE_FINAL
    return f"{phrase}어요." if is_past else f"{phrase.rstrip('.')}."
