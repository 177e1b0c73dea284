"""The state of a chat: a pure fold of its events. There is no second source of state."""

from dataclasses import dataclass, field, replace
from typing import assert_never

from lhkit.chat.transcript import Transcript
from lhkit.events import (
    CallSettled,
    ChatEvent,
    EndReason,
    HistoryCleared,
    ModelCalled,
    TurnEnded,
    TurnStarted,
)
from lhkit.messages import Message, ModelMessage, SystemMessage
from lhkit.responses import Finished, TextDelta, ThinkingDelta, ToolCallParsed


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatState:
    """What a user interface shows.

    `streaming_text` is the answer so far while it streams, `error` a sentence about the last
    fault, None when all is well.
    """

    transcript: Transcript = field(default_factory=Transcript)
    is_streaming: bool = False
    streaming_text: str | None = None
    error: str | None = None

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation so far; it only ever grows, until it is cleared."""
        return self.transcript.messages


def apply_event(state: ChatState, event: ChatEvent) -> ChatState:
    """Return the state after `event`."""
    transcript = state.transcript
    match event:
        case TurnStarted(message=message):
            return ChatState(
                transcript=transcript.started(message), is_streaming=True, streaming_text=""
            )
        case ModelCalled():
            return replace(state, transcript=transcript.model_called(), streaming_text="")
        case TextDelta(text=text):
            return replace(state, streaming_text=(state.streaming_text or "") + text)
        case Finished():
            return replace(state, transcript=transcript.answered(event), streaming_text=None)
        case CallSettled(message=message):
            return replace(state, transcript=transcript.settled(message))
        case SystemMessage():
            return replace(state, transcript=transcript.appended(event))
        case TurnEnded():
            return _ended(state, event)
        case HistoryCleared():
            return ChatState()
        case ThinkingDelta() | ToolCallParsed():
            return state
        case _:
            assert_never(event)


def _ended(state: ChatState, event: TurnEnded) -> ChatState:
    transcript = state.transcript
    if event.reason is EndReason.STOPPED and state.streaming_text:
        transcript = transcript.appended(ModelMessage(text=state.streaming_text, stopped=True))
    return ChatState(transcript=transcript, error=event.error)
