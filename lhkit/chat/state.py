"""The transcript of a conversation, and the state of a chat, computed from its events."""

from dataclasses import dataclass, field, replace
from typing import assert_never

from lhkit.conversation.events import (
    CallCompleted,
    ChatEvent,
    EndReason,
    HistoryCleared,
    ModelCalled,
    TurnEnded,
    TurnStarted,
)
from lhkit.conversation.messages import (
    Message,
    ModelMessage,
    SystemMessage,
    ToolCall,
    ToolCallMessage,
    UserMessage,
)
from lhkit.conversation.responses import Finished, TextDelta, ThinkingDelta, ToolCallParsed


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """The messages of a conversation; each method returns a new transcript.

    Attributes:
        messages: in order; calls appear once they have an outcome.
        pending: the calls of the last model message that have no outcome yet.
        model_turns: the number of model requests since the last user message.
    """

    messages: tuple[Message, ...] = ()
    pending: tuple[ToolCallMessage, ...] = ()
    model_turns: int = 0

    @property
    def user_turns(self) -> int:
        """The number of user messages."""
        return sum(isinstance(message, UserMessage) for message in self.messages)

    @property
    def turn_start(self) -> int:
        """The index of the last user message; 0 if there is none."""
        for index in range(len(self.messages) - 1, -1, -1):
            if isinstance(self.messages[index], UserMessage):
                return index
        return 0

    @property
    def calls_of_this_turn(self) -> tuple[ToolCallMessage, ...]:
        """The completed calls since the last user message."""
        turn = self.messages[self.turn_start :]
        return tuple(message for message in turn if isinstance(message, ToolCallMessage))

    @property
    def text_of_this_turn(self) -> str:
        """All text of the model since the last user message."""
        turn = self.messages[self.turn_start :]
        texts = (m.text for m in turn if isinstance(m, ModelMessage | ToolCallMessage))
        return "\n".join(filter(None, texts))

    def started(self, message: UserMessage | None) -> "Transcript":
        """Start a user turn; None retries the last one."""
        messages = self.messages if message is None else (*self.messages, message)
        return replace(self, messages=messages, model_turns=0)

    def model_called(self) -> "Transcript":
        """Count one more model turn."""
        return replace(self, model_turns=self.model_turns + 1)

    def answered(self, response: Finished) -> "Transcript":
        """Add a complete model message: text is appended, calls become pending."""
        calls = [(call, False) for call in response.calls]
        if response.fragment:
            calls.append((ToolCall(name="", args={}, raw=response.fragment), True))
        if not calls:
            return self.appended(ModelMessage(text=response.text))
        pending = tuple(
            ToolCallMessage(call=call, index=i, text="" if i else response.text, is_cut=is_cut)
            for i, (call, is_cut) in enumerate(calls)
        )
        return replace(self, pending=pending)

    def completed(self, message: ToolCallMessage) -> "Transcript":
        """Append the first pending call, which now has its outcome."""
        return replace(self, messages=(*self.messages, message), pending=self.pending[1:])

    def appended(self, message: ModelMessage | SystemMessage) -> "Transcript":
        """Append a message."""
        return replace(self, messages=(*self.messages, message))

    def without_last_turn(self) -> "Transcript":
        """Remove the last user message and everything after it."""
        return Transcript(messages=self.messages[: self.turn_start])


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
            return ChatState(  # quicker than `replace`, and there is one for each token
                transcript=transcript,
                is_streaming=state.is_streaming,
                streaming_text=(state.streaming_text or "") + text,
                error=state.error,
            )
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
