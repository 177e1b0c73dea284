"""The history of one conversation as a value: appending returns a new one."""

from dataclasses import dataclass, field, replace

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
    """Messages in order, the calls still pending, and the model turns of this user turn."""

    messages: tuple[Message, ...] = ()
    pending: tuple[ToolCallMessage, ...] = field(default=())
    model_turns: int = 0

    @property
    def user_turns(self) -> int:
        """How many messages are the user's."""
        return sum(isinstance(message, UserMessage) for message in self.messages)

    @property
    def turn_start(self) -> int:
        """Where the user's last message is; 0 where there is none."""
        for index in range(len(self.messages) - 1, -1, -1):
            if isinstance(self.messages[index], UserMessage):
                return index
        return 0

    @property
    def calls_of_this_turn(self) -> tuple[ToolCallMessage, ...]:
        """The settled calls since the user's last message."""
        turn = self.messages[self.turn_start :]
        return tuple(message for message in turn if isinstance(message, ToolCallMessage))

    def started(self, message: UserMessage | None) -> "Transcript":
        """Begin a user turn; None takes up the last one again."""
        messages = self.messages if message is None else (*self.messages, message)
        return replace(self, messages=messages, model_turns=0)

    def model_called(self) -> "Transcript":
        """Count one more model turn."""
        return replace(self, model_turns=self.model_turns + 1)

    def answered(self, response: Finished) -> "Transcript":
        """Take in a complete model message: words end the turn, calls are left pending."""
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

    def settled(self, message: ToolCallMessage) -> "Transcript":
        """Append the first pending call with its outcome."""
        return replace(self, messages=(*self.messages, message), pending=self.pending[1:])

    def appended(self, message: ModelMessage | SystemMessage) -> "Transcript":
        """Append a message that asks for nothing."""
        return replace(self, messages=(*self.messages, message))

    def without_last_turn(self) -> "Transcript":
        """Return what was before the user's last message."""
        return Transcript(messages=self.messages[: self.turn_start])
