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
from lhkit.tool_results import MAX_RESULT_BYTES, ToolResult


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCall:
    """A call that the model made and that has no result yet.

    `index` is its place in the model's message, `text` what was said before it (first call only).
    `is_cut` marks the remains of a call that was cut off: it can only be answered, never run.
    """

    call: ToolCall
    index: int
    text: str = ""
    is_cut: bool = False

    def settled(
        self, result: ToolResult, *, hint: str = "", max_bytes: int = MAX_RESULT_BYTES
    ) -> ToolCallMessage:
        """Return the message that joins this call with its result."""
        return ToolCallMessage(
            name=self.call.name,
            args=self.call.args,
            result=result,
            text=self.text,
            index=self.index,
            raw=self.call.raw,
            hint=hint,
            max_bytes=max_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """Messages in order, the calls still waiting, and the model turns of this user turn."""

    messages: tuple[Message, ...] = ()
    pending: tuple[PendingCall, ...] = field(default=())
    model_turns: int = 0

    @property
    def user_turns(self) -> int:
        """How many times the user spoke."""
        return sum(isinstance(message, UserMessage) for message in self.messages)

    @property
    def calls_of_this_turn(self) -> tuple[ToolCallMessage, ...]:
        """The settled calls since the user last spoke."""
        calls: list[ToolCallMessage] = []
        for message in reversed(self.messages):
            if isinstance(message, UserMessage):
                break
            if isinstance(message, ToolCallMessage):
                calls.append(message)
        return tuple(reversed(calls))

    def started(self, message: UserMessage | None) -> "Transcript":
        """Begin a user turn; None takes up the last one again."""
        messages = self.messages if message is None else (*self.messages, message)
        return replace(self, messages=messages, model_turns=0)

    def model_called(self) -> "Transcript":
        """Count one more model turn."""
        return replace(self, model_turns=self.model_turns + 1)

    def answered(self, response: Finished) -> "Transcript":
        """Take in a complete model message: words end the turn, calls are left pending."""
        pending = _pending_of(response)
        if pending:
            return replace(self, pending=pending)
        return self.appended(ModelMessage(text=response.text))

    def settled(self, message: ToolCallMessage) -> "Transcript":
        """Append the result of the first pending call."""
        return replace(self, messages=(*self.messages, message), pending=self.pending[1:])

    def appended(self, message: ModelMessage | SystemMessage) -> "Transcript":
        """Append a message that asks for nothing."""
        return replace(self, messages=(*self.messages, message))


def _pending_of(response: Finished) -> tuple[PendingCall, ...]:
    calls = [(call, False) for call in response.calls]
    if response.fragment:
        calls.append((ToolCall(name="", args={}, raw=response.fragment), True))
    return tuple(
        PendingCall(call=call, index=i, text="" if i else response.text, is_cut=is_cut)
        for i, (call, is_cut) in enumerate(calls)
    )
