"""The messages of one conversation as an immutable value."""

from dataclasses import dataclass, replace

from lhkit.messages import (
    Message,
    ModelMessage,
    SystemMessage,
    ToolCall,
    ToolCallMessage,
    UserMessage,
)
from lhkit.responses import Finished


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
