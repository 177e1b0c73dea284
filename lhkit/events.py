"""What happens in a chat, as values, and the record of one dispatch.

The state of a chat is a fold of these events and nothing else. Times are seconds of a monotonic
clock, as durations.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from lhkit.json_values import JSON
from lhkit.messages import SystemMessage, ToolCall, ToolCallMessage, UserMessage
from lhkit.responses import Finished
from lhkit.tool_results import ToolResult


class GateOutcome(StrEnum):
    """What became of the question to the user."""

    NOT_NEEDED = "not_needed"  # read-only, or it never came to the question
    ABSENT = "absent"  # destructive, and nobody there to ask
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    FAILED = "failed"  # the gate raised: counts as no
    NOT_ASKED = "not_asked"  # another destructive call of the same message came first


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchTrace:
    """What one call went through.

    `args` holds the validated arguments (None if validation failed), `extra_args` the keys that
    were dropped. `ran` tells whether the handler was started. `waiting_s` is time spent waiting
    for a person and is no part of the tool's latency. `summary` is what that person read of the
    call; empty where nobody was asked.
    """

    name: str
    raw_args: Any
    args: Mapping[str, JSON] | None
    extra_args: tuple[str, ...]
    gate: GateOutcome
    ran: bool
    result: ToolResult
    validation_s: float = 0.0
    waiting_s: float = 0.0
    handler_s: float = 0.0
    summary: str = ""


class EndReason(StrEnum):
    """Why a turn ended."""

    ANSWERED = "answered"
    TOO_LONG = "too_long"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStarted:
    """A user turn began. `message` is None when a failed turn is retried."""

    message: UserMessage | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCalled:
    """A request went to the model; `turn` counts from 1 within the user turn."""

    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TextStreamed:
    """More words arrived."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingStreamed:
    """More reasoning arrived; not part of the answer."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallReady:
    """A call is complete and will be dispatched when the model has finished."""

    call: ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFinished:
    """The model's message is complete."""

    response: Finished


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSettled:
    """A call has its result. `trace` is None where nothing was dispatched."""

    message: ToolCallMessage
    trace: DispatchTrace | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HintAdded:
    """The application has a hint for the user."""

    message: SystemMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnded:
    """The turn is over. `error` is a sentence for the user where `reason` is a fault.

    `cause` is the exception's type name, and `detail` its message, for logs and records.
    """

    reason: EndReason
    error: str | None = None
    cause: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class HistoryCleared:
    """The user cleared the conversation."""


ChatEvent: TypeAlias = (
    TurnStarted
    | ModelCalled
    | TextStreamed
    | ThinkingStreamed
    | CallReady
    | ModelFinished
    | CallSettled
    | HintAdded
    | TurnEnded
    | HistoryCleared
)
