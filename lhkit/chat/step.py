"""Decide what a turn does next, as a pure function of the transcript.

At most `MAX_TURNS` model requests a user turn, at most one destructive call a model message is
confirmed (all of them where the turn ends after the calls, since none can be proposed again), and a
call that repeats the one before is answered with `repeated_call`, because small models repeat
themselves.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from lhkit.base.json_values import (
    NotJsonError,
    canonical,
    escaped_key,
    plain_json,
    without_pointers,
)
from lhkit.base.schema import SchemaNode, fill_defaults, nfc
from lhkit.chat.state import Transcript
from lhkit.confirm.decision import changed_arguments
from lhkit.conversation.events import EndReason
from lhkit.conversation.messages import (
    GateOutcome,
    ModelMessage,
    SystemMessage,
    ToolCall,
    ToolCallMessage,
)
from lhkit.conversation.tool_results import ToolCancelled, ToolErr
from lhkit.tools.validation import Accepted, ArgumentValidator

MAX_TURNS = 4
"""Default limit of model requests in one user turn."""

NOTICE_AFTER_USER_TURNS = 8
"""After more user turns than this, a notice suggests to clear the conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredArguments:
    """A tool's schema with implied defaults, its validator, and `repeatable` of its definition."""

    parameters: Mapping[str, Any]
    validator: ArgumentValidator
    repeatable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits and tools that `next_step` depends on."""

    max_turns: int = MAX_TURNS
    stops_after_calls: bool | Callable[[Sequence[ToolCallMessage]], bool] = False
    destructive: frozenset[str] = frozenset()
    declared: Mapping[str, DeclaredArguments] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallModel:
    """Call the model; `turn` counts from 1 within the user turn."""

    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """Run this call through the dispatcher."""

    pending: ToolCallMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipUnasked:
    """Cancel this destructive call without asking: the message already had one."""

    pending: ToolCallMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRepeated:
    """Answer with the error `repeated_call`: the previous dispatched call was the same."""

    pending: ToolCallMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerTruncated:
    """Answer with the error `truncated_call`: the model's text ended inside this call."""

    pending: ToolCallMessage


CallPlan: TypeAlias = Dispatch | SkipUnasked | AnswerRepeated | AnswerTruncated


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTools:
    """Complete these calls, in order."""

    plans: tuple[CallPlan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The turn is over."""

    reason: EndReason


Step: TypeAlias = CallModel | RunTools | Finish


def next_step(transcript: Transcript, limits: Limits) -> Step:
    """Return the next step for a transcript."""
    if transcript.pending:
        return RunTools(plans=_plan_calls(transcript, limits))
    recent = [m for m in transcript.messages[-2:] if not isinstance(m, SystemMessage)]
    if recent and isinstance(recent[-1], ModelMessage):
        return Finish(reason=EndReason.ANSWERED)
    stops, calls = limits.stops_after_calls, transcript.calls_of_this_turn
    if calls and (stops(calls) if callable(stops) else stops):
        return Finish(reason=EndReason.ANSWERED)
    if transcript.model_turns >= limits.max_turns:
        return Finish(reason=EndReason.TOO_LONG)
    return CallModel(turn=transcript.model_turns + 1)


def needs_clear_notice(transcript: Transcript) -> bool:
    """Return True if the conversation is long and has no notice yet."""
    if transcript.user_turns <= NOTICE_AFTER_USER_TURNS:
        return False
    return not any(isinstance(message, SystemMessage) for message in transcript.messages)


def _plan_calls(transcript: Transcript, limits: Limits) -> tuple[CallPlan, ...]:
    """Plan the pending calls; only dispatched calls count as a previous call."""
    previous: ToolCall | ToolCallMessage | None = None
    has_asked = False  # a destructive call of the current model message was asked
    for call in transcript.calls_of_this_turn:
        is_destructive = call.name in limits.destructive
        has_asked = has_asked and call.index > 0
        if _was_dispatched(call, is_blocked=is_destructive and has_asked):
            previous = call
            has_asked = has_asked or (is_destructive and _was_asked(call))
    has_asked = has_asked and transcript.pending[0].index > 0
    plans: list[CallPlan] = []
    for pending in transcript.pending:
        is_destructive = pending.call.name in limits.destructive
        declared = limits.declared.get(pending.call.name)
        is_repeated = (
            previous is not None
            and not limits.stops_after_calls
            and not (declared is not None and declared.repeatable)
            and is_same_call(previous, pending.call, declared)
        )
        plan: CallPlan
        if pending.is_cut:
            plan = AnswerTruncated(pending=pending)
        elif is_repeated:
            plan = AnswerRepeated(pending=pending)
        elif is_destructive and has_asked and not limits.stops_after_calls:
            plan = SkipUnasked(pending=pending)
        else:
            plan = Dispatch(pending=pending)
        plans.append(plan)
        if isinstance(plan, Dispatch | AnswerTruncated):
            previous = pending.call
            # it may be refused before the question: the controller plans the rest again after it
            has_asked = has_asked or is_destructive
    return tuple(plans)


def _was_dispatched(call: ToolCallMessage, *, is_blocked: bool) -> bool:
    """Return False for a repeated call, and for a destructive call that was skipped."""
    if isinstance(call.result, ToolErr):
        return call.result.code != "repeated_call"
    return not (is_blocked and isinstance(call.result, ToolCancelled))


def _was_asked(call: ToolCallMessage) -> bool:
    """Return False for a destructive call that was refused before the question."""
    return call.outcome is None or call.outcome.gate is not GateOutcome.NOT_NEEDED


def is_same_call(
    first: ToolCall | ToolCallMessage,
    second: ToolCall | ToolCallMessage,
    declared: DeclaredArguments | None = None,
) -> bool:
    """Return True if both calls would do the same: same tool, equivalent arguments.

    A call that the user edited counts as proposed and as run.

    Ignored are the order of keys, `1` versus `1.0`, a default that is passed explicitly, undeclared
    keys (the dispatcher drops them) and Unicode composition (NFC, NFD). `1` and `true` differ.

    Args:
        first: a call.
        second: the call after it.
        declared: the called tool; None if it is unknown.
    """
    if not first.name or first.name != second.name:
        return False
    try:
        wanted = _normal_form(second.args, declared)
        return any(_normal_form(args, declared) == wanted for args in _versions(first))
    except NotJsonError:
        return first.args is second.args


def _versions(call: ToolCall | ToolCallMessage) -> Iterator[Any]:
    """Yield the arguments of a call as proposed and, of an edited call, as run."""
    yield call.args
    outcome = call.outcome if isinstance(call, ToolCallMessage) else None
    if outcome is not None and outcome.run_args is not None:
        yield outcome.run_args
        changed = changed_arguments(outcome.args or {}, outcome.run_args)
        places = {f"/{escaped_key(name)}" for name in changed}
        unchanged = [at for at in outcome.filled_in if f"/{at.split('/')[1]}" not in places]
        yield without_pointers(outcome.run_args, unchanged)  # as a model would write it


def _normal_form(raw_args: Any, declared: DeclaredArguments | None) -> str:
    """Return the arguments as comparable text, with defaults if they are valid."""
    args = plain_json(raw_args)
    if declared is not None:
        with suppress(Exception):  # boundary: a tool's check is user code; see the dispatcher
            verdict = declared.validator.check(args)
            if isinstance(verdict, Accepted):
                valid = plain_json(verdict.args)
                args = fill_defaults(valid, SchemaNode.of(declared.parameters))
    return canonical(_normalize(args))


def _normalize(value: Any) -> Any:
    """Return plain JSON with whole floats as integers and strings in NFC."""
    if isinstance(value, str):
        return nfc(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {_normalize(key): _normalize(item) for key, item in value.items()}
    return [_normalize(item) for item in value] if isinstance(value, list) else value
