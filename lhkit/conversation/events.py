"""The events of a conversation, of the model and of the controller.

`lhkit.chat.state` computes the state of a chat from them.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from lhkit.conversation.messages import FalseReplyClaim, SystemMessage, ToolCallMessage, UserMessage
from lhkit.conversation.responses import ModelEvent


class EndReason(StrEnum):
    """Why a turn ended."""

    ANSWERED = "answered"
    TOO_LONG = "too_long"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStarted:
    """A user turn started; `message` is None when a failed turn is retried."""

    message: UserMessage | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCalled:
    """A request was sent to the model; `turn` counts from 1 within the user turn."""

    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCompleted:
    """A call has its outcome; `message` contains both."""

    message: ToolCallMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnded:
    """A user turn ended.

    Attributes:
        reason: why it ended.
        error: a sentence for the user, if the turn failed or was too long.
        cause: the type name of the exception, for logs and records.
        detail: the message of the exception, for logs and records.
        claim: the words of the reply that claim a write which did not happen in the turn.
    """

    reason: EndReason
    error: str | None = None
    cause: str | None = None
    detail: str | None = None
    claim: FalseReplyClaim | None = None


@dataclass(frozen=True, slots=True)
class HistoryCleared:
    """The user cleared the conversation."""


ChatEvent: TypeAlias = (
    TurnStarted
    | ModelCalled
    | ModelEvent
    | CallCompleted
    | SystemMessage
    | TurnEnded
    | HistoryCleared
)
"""The model's events come between `ModelCalled` and `Finished`. A notice is a `SystemMessage`."""
