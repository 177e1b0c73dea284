"""What a turn does next: a pure function of the transcript. No I/O, no clock.

Source: seeds, `ChatSessionController.userTurn` (MAX_TURNS, one question a message); the loop
breaker for repeated calls is ours, because small models repeat themselves.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from lhkit.chat.transcript import Transcript
from lhkit.events import EndReason
from lhkit.json_values import NotJsonError, canonical, plain_json
from lhkit.messages import ModelMessage, SystemMessage, ToolCall, ToolCallMessage
from lhkit.tool_results import ToolCancelled, ToolErr
from lhkit.tools.schema import ABSENT, SchemaNode, default_of, item_of, nfc, property_of
from lhkit.tools.validation import Accepted, ArgumentValidator

MAX_TURNS = 4
"""Model turns within one user turn."""

HINT_AFTER_USER_TURNS = 8
"""More user turns than this in the history earn a hint to clear it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredArguments:
    """What a tool says of its arguments: the schema, and the validator compiled from it.

    `repeatable`: the same call once more is to be run.
    """

    parameters: Mapping[str, Any]
    validator: ArgumentValidator
    repeatable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What `next_step` has to know besides the transcript: numbers, and the tools there are."""

    max_turns: int = MAX_TURNS
    destructive: frozenset[str] = frozenset()
    declared: Mapping[str, DeclaredArguments] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallModel:
    """Ask the model; `turn` counts from 1 within the user turn."""

    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """Run this call through the dispatcher."""

    pending: ToolCallMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipUnasked:
    """Cancel this destructive call without asking: one was already asked in this message."""

    pending: ToolCallMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRepeated:
    """Answer with `repeated_call`: the call before it, if it was asked or run, was the same."""

    pending: ToolCallMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerTruncated:
    """Answer with `truncated_call`: the model's text ended inside this call."""

    pending: ToolCallMessage


CallPlan: TypeAlias = Dispatch | SkipUnasked | AnswerRepeated | AnswerTruncated


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTools:
    """Settle these calls, in order."""

    plans: tuple[CallPlan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The turn is over."""

    reason: EndReason


Step: TypeAlias = CallModel | RunTools | Finish


def next_step(transcript: Transcript, limits: Limits) -> Step:
    """Return what to do next for this transcript."""
    if transcript.pending:
        return RunTools(plans=_plans(transcript, limits))
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


def _plans(transcript: Transcript, limits: Limits) -> tuple[CallPlan, ...]:
    """Plan the pending calls; a write that was not asked is no earlier call."""
    previous: ToolCall | ToolCallMessage | None = None
    has_asked = False  # in this message of the model
    for call in transcript.calls_of_this_turn:
        is_destructive = call.name in limits.destructive
        has_asked = has_asked and call.index > 0
        if _was_dispatched(call, is_blocked=is_destructive and has_asked):
            previous = call
            has_asked = has_asked or is_destructive
    has_asked = has_asked and transcript.pending[0].index > 0
    plans: list[CallPlan] = []
    for pending in transcript.pending:
        is_destructive = pending.call.name in limits.destructive
        declared = limits.declared.get(pending.call.name)
        may_repeat = declared is not None and declared.repeatable
        is_repeated = (
            not may_repeat
            and previous is not None
            and is_same_call(previous, pending.call, declared)
        )
        is_blocked = is_destructive and has_asked
        plan = _plan(pending, is_repeated=is_repeated, is_blocked=is_blocked)
        plans.append(plan)
        if isinstance(plan, Dispatch | AnswerTruncated):
            previous = pending.call
            has_asked = has_asked or is_destructive
    return tuple(plans)


def _was_dispatched(call: ToolCallMessage, *, is_blocked: bool) -> bool:
    """Return False for a repeated call, and for a write that was not asked."""
    if isinstance(call.result, ToolErr):
        return call.result.code != "repeated_call"
    return not (is_blocked and isinstance(call.result, ToolCancelled))


def _plan(pending: ToolCallMessage, *, is_repeated: bool, is_blocked: bool) -> CallPlan:
    if pending.is_cut:
        return AnswerTruncated(pending=pending)
    if is_repeated:
        return AnswerRepeated(pending=pending)
    if is_blocked:
        return SkipUnasked(pending=pending)
    return Dispatch(pending=pending)


def is_same_call(
    first: ToolCall | ToolCallMessage,
    second: ToolCall | ToolCallMessage,
    declared: DeclaredArguments | None = None,
) -> bool:
    """Return True if both would do the same: one tool, and arguments that mean the same to it.

    With types (`1` is not `true`), but whatever the order of keys; `1` is `1.0`, a default that is
    spelled out is one that is left out, an undeclared key is none (the dispatcher drops it), and
    letters are the same however they are composed (NFC, NFD).

    Args:
        first: a call.
        second: the call after it.
        declared: the tool of that name, None if there is none.
    """
    if not first.name or first.name != second.name:
        return False
    try:
        return _meaning(first.args, declared) == _meaning(second.args, declared)
    except NotJsonError:
        return first.args is second.args


def _meaning(raw_args: Any, declared: DeclaredArguments | None) -> str:
    args = plain_json(raw_args)
    if declared is not None:
        args = _as_run(args, declared)
    return canonical(_composed(args))


def _as_run(args: Any, declared: DeclaredArguments) -> Any:
    """Return the arguments as the handler would get them, defaults filled in; else as they are."""
    try:
        verdict = declared.validator.check(args)
    except Exception:  # noqa: BLE001 - boundary: a schema may break its validator; see dispatch
        return args
    if not isinstance(verdict, Accepted):
        return args
    return _with_defaults(plain_json(verdict.args), SchemaNode.of(declared.parameters))


def _with_defaults(value: Any, node: SchemaNode) -> Any:
    """Return `value` with defaults spelled out, where the schema leaves no choice of them."""
    branches = [each for each in node.branches() if each.get("type") != "null"]
    if len(branches) != 1:
        return value
    branch = branches[0]
    if isinstance(value, list):
        return [_with_defaults(item, node.at(item_of(branch, i))) for i, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    filled = {
        name: _with_defaults(each, node.at(property_of(branch, name)))
        for name, each in value.items()
    }
    for name in branch.get("properties", {}):
        default = default_of(branch, name, node.root)
        if name not in filled and default is not ABSENT:
            filled[name] = plain_json(default)
    return filled


def _composed(value: Any) -> Any:
    """Return plain JSON with one spelling of each number and letter."""
    if isinstance(value, str):
        return nfc(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {_composed(key): _composed(item) for key, item in value.items()}
    return [_composed(item) for item in value] if isinstance(value, list) else value
