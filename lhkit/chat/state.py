"""The state of a chat, computed from its events alone."""

from dataclasses import dataclass, field, replace
from typing import assert_never

from lhkit.chat.transcript import Transcript
from lhkit.events import (
    CallCompleted,
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
    """The state that a user interface renders.

    Attributes:
        transcript: the conversation so far.
        is_streaming: a turn is running.
        streaming_text: the text of the model message that is being streamed; else None.
        error: a sentence for the user if the last turn failed; else None.
    """

    transcript: Transcript = field(default_factory=Transcript)
    is_streaming: bool = False
    streaming_text: str | None = None
    error: str | None = None

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages so far; appended to until the conversation is cleared."""
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
        case CallCompleted(message=message):
            return replace(state, transcript=transcript.completed(message))
        case SystemMessage():
            return replace(state, transcript=transcript.appended(event))
        case TurnEnded():
            if event.reason is EndReason.STOPPED and state.streaming_text:
                partial = ModelMessage(text=state.streaming_text, stopped=True)
                transcript = transcript.appended(partial)
            return ChatState(transcript=transcript, error=event.error)
        case HistoryCleared():
            return ChatState()
        case ThinkingDelta() | ToolCallParsed():
            return state
        case _:
            assert_never(event)
