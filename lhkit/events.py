"""Events of a conversation: those of the model, and those of the controller around it.

The state of a chat is a fold of these events and nothing else.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from lhkit.messages import SystemMessage, ToolCallMessage, UserMessage
from lhkit.responses import ModelEvent


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
class CallSettled:
    """A call has its outcome."""

    message: ToolCallMessage


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
    | ModelEvent
    | CallSettled
    | SystemMessage
    | TurnEnded
    | HistoryCleared
)
"""Between `ModelCalled` and `Finished` come the model's own events. A notice is its message."""
