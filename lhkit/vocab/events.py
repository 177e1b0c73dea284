"""What happens in a chat, as values. The state of a chat is a fold of these and nothing else."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from lhkit.vocab.generation import Finished
from lhkit.vocab.messages import SystemMessage, ToolCall, ToolCallMessage, UserMessage
from lhkit.vocab.trace import DispatchTrace


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
