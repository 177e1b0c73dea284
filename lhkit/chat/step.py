"""What a turn does next: a pure function of the transcript. No I/O, no clock.

Source: seeds, `ChatSessionController.userTurn` (MAX_TURNS, one question a message); the loop
breaker for repeated calls is ours, because small models repeat themselves.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lhkit.chat.transcript import PendingCall, Transcript
from lhkit.vocab.events import EndReason
from lhkit.vocab.json_values import NotJsonError, canonical
from lhkit.vocab.messages import ModelMessage, SystemMessage, ToolCall, ToolCallMessage

MAX_TURNS = 4
"""Model turns within one user turn."""

HINT_AFTER_USER_TURNS = 8
"""More user turns than this in the history earn a hint to clear it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What `next_step` has to know besides the transcript."""

    max_turns: int = MAX_TURNS
    destructive: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallModel:
    """Ask the model; `turn` counts from 1 within the user turn."""

    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """Run this call through the dispatcher."""

    pending: PendingCall


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipUnasked:
    """Cancel this destructive call without asking: one was already asked in this message."""

    pending: PendingCall


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRepeated:
    """Answer with `repeated_call`: the call just before it was the same."""

    pending: PendingCall


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerTruncated:
    """Answer with `truncated_call`: the model's text ended inside this call."""

    pending: PendingCall


Plan: TypeAlias = Dispatch | SkipUnasked | AnswerRepeated | AnswerTruncated


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTools:
    """Settle these calls, in order."""

    plans: tuple[Plan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The turn is over."""

    reason: EndReason


Step: TypeAlias = CallModel | RunTools | Finish


def next_step(transcript: Transcript, limits: Limits) -> Step:
    """Return what to do next for this transcript."""
    if transcript.pending:
        return RunTools(plans=_plans(transcript, limits.destructive))
    if _is_answered(transcript):
        return Finish(reason=EndReason.ANSWERED)
    if transcript.model_turns >= limits.max_turns:
        return Finish(reason=EndReason.TOO_LONG)
    return CallModel(turn=transcript.model_turns + 1)


def wants_clear_hint(transcript: Transcript) -> bool:
    """Return True if the history is long and has no hint yet."""
    if transcript.user_turns <= HINT_AFTER_USER_TURNS:
        return False
    return not any(isinstance(message, SystemMessage) for message in transcript.messages)


def _is_answered(transcript: Transcript) -> bool:
    spoken = [m for m in transcript.messages[-2:] if not isinstance(m, SystemMessage)]
    return bool(spoken) and isinstance(spoken[-1], ModelMessage)


def _plans(transcript: Transcript, destructive: frozenset[str]) -> tuple[Plan, ...]:
    earlier = transcript.calls_of_this_turn
    previous: ToolCall | ToolCallMessage | None = earlier[-1] if earlier else None
    # Calls of this very message that are settled already (a stop in between) count as asked.
    has_asked = any(call.name in destructive for call in _same_message(earlier, transcript))
    plans: list[Plan] = []
    for pending in transcript.pending:
        is_destructive = pending.call.name in destructive
        plans.append(_plan(pending, previous, is_blocked=is_destructive and has_asked))
        has_asked = has_asked or is_destructive
        previous = pending.call
    return tuple(plans)


def _same_message(
    earlier: Sequence[ToolCallMessage], transcript: Transcript
) -> Sequence[ToolCallMessage]:
    settled = transcript.pending[0].index
    return earlier[len(earlier) - settled :]


def _plan(
    pending: PendingCall, previous: ToolCall | ToolCallMessage | None, *, is_blocked: bool
) -> Plan:
    if pending.is_cut:
        return AnswerTruncated(pending=pending)
    if previous is not None and is_same_call(previous, pending.call):
        return AnswerRepeated(pending=pending)
    if is_blocked:
        return SkipUnasked(pending=pending)
    return Dispatch(pending=pending)


def is_same_call(first: ToolCall | ToolCallMessage, second: ToolCall | ToolCallMessage) -> bool:
    """Return True if name and arguments are the same, with types (`1` is not `true`)."""
    if not first.name or first.name != second.name:
        return False
    try:
        return canonical(first.args) == canonical(second.args)
    except NotJsonError:
        return first.args is second.args
