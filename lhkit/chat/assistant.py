"""The configuration of a conversation: a value, which the controller runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lhkit.chat.step import MAX_TURNS
from lhkit.conversation.messages import Message, ToolCallMessage
from lhkit.conversation.responses import Sampling
from lhkit.conversation.tool_results import MAX_RESULT_BYTES, MIN_RESULT_BYTES, ResultFormat


def _no_context(_message: str) -> str:  # a function, so that an Assistant can be pickled
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assistant:
    """The configuration of a conversation, apart from model and tools.

    Attributes:
        instructions: the system text; keep it constant, so that servers can cache the prefix.
        context: returns a line for the model, such as the date, from a user message's text.
        deps: dependencies for the tools' handlers, such as a database.
        sampling: temperature, token limits and the like.
        max_turns: limit of model requests for one user message.
        stops_after_calls: end the turn after the first message with calls, without an answer. A
            function decides by the completed calls of the turn.
        history: messages that precede the first user message.
        max_result_bytes: limit of a tool result for the model, as JSON in UTF-8.
        truncation_hint: what the model reads instead of a larger result, such as which tool
            returns a single item; `{bytes}` in it becomes the size.
        result_format: how the model reads results: `envelope`, with their status, or `plain`, only
            the data. By default `plain` in the native dialects (`functiongemma`, `gemma4`), which
            are trained on plain data, and `envelope` in all others.

    Raises:
        ValueError: a limit is too small, or `result_format` is invalid.
    """

    instructions: str = ""
    context: Callable[[str], str] = _no_context
    deps: Any = None
    sampling: Sampling = field(default_factory=Sampling)
    max_turns: int = MAX_TURNS
    stops_after_calls: bool | Callable[[Sequence[ToolCallMessage]], bool] = False
    history: tuple[Message, ...] = ()
    max_result_bytes: int = MAX_RESULT_BYTES
    truncation_hint: str = ""
    result_format: ResultFormat | None = None

    def __post_init__(self) -> None:
        """Validate the limits and the format."""
        if self.result_format not in {None, "envelope", "plain"}:
            raise ValueError(
                f"result_format={self.result_format!r} of the Assistant is invalid: give envelope "
                "or plain, or leave it out."
            )
        for name, minimum in (("max_turns", 1), ("max_result_bytes", MIN_RESULT_BYTES)):
            value = getattr(self, name)
            if value < minimum:
                raise ValueError(f"{name}={value} of the Assistant: give at least {minimum}")
