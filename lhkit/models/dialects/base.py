"""The abstract dialect, and what all dialects read of messages and tools."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, assert_never

from lhkit.base.errors import UsageError
from lhkit.base.json_values import JSON
from lhkit.base.text import is_whole
from lhkit.conversation import tool_spec as conversation
from lhkit.conversation.messages import (
    Message,
    ModelMessage,
    SystemMessage,
    ToolCallMessage,
    UserMessage,
)
from lhkit.conversation.tool_results import (
    TRUNCATION_HINT,
    ResultFormat,
    encode_tool_result,
    plain_result,
)
from lhkit.models.decoding import Constraint
from lhkit.models.dialects.parser import IncrementalParser, ParseResult

LONE_SURROGATE = re.compile("[\ud800-\udfff]")

ToolSpec: TypeAlias = conversation.ToolSpec | Mapping[str, Any]
"""A definition, or a plain `{"name", "description", "parameters"}` mapping."""


class Dialect(ABC):
    """The format of prompts and calls of one model family. Stateless, safe to share."""

    name: str
    """The key in `DIALECTS`."""
    stop_token_ids: tuple[int, ...]
    """Token ids that end generation, in addition to the model's end of sequence."""
    stop_texts: tuple[str, ...]
    """Texts that end generation; not part of the response."""

    def constrain(self, tools: Sequence[ToolSpec], constraint: Constraint) -> Mapping[str, Any]:
        """Return the request fields that constrain decoding; none for `off`.

        Raises:
            UsageError: the dialect does not support the constraint.
        """
        if constraint != "off":
            raise UsageError(f"The dialect {self.name} cannot be constrained: use --constrain off.")
        return {}

    def unconstrained_tools(self, tools: Sequence[ToolSpec]) -> Mapping[str, str]:
        """Return the tools that a constraint leaves out, which cannot be called: name to reason."""
        return {}

    def undeclared_parameters(self, tools: Sequence[ToolSpec]) -> Mapping[str, Sequence[str]]:
        """Return the parameters that the prompt does not declare: tool to names."""
        return {}

    @abstractmethod
    def encode(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], instructions: str = ""
    ) -> str:
        """Return the whole prompt, with exactly one begin-of-sequence token.

        Instructions and tools come first, so that all conversations share a prefix.

        Args:
            messages: the conversation so far.
            tools: the tools that the model may call.
            instructions: the system text.
        """

    @abstractmethod
    def render_call(self, name: str, args: Mapping[str, JSON]) -> str:
        """Return the text of a call in the model's format.

        Raises:
            NotJsonError: the arguments are not JSON.
        """

    def parse(self, raw: str, tools: Sequence[ToolSpec] = ()) -> ParseResult:
        """Return the text and calls of a complete response. Never raises."""
        return self.incremental(tools).whole(raw)

    @abstractmethod
    def incremental(self, tools: Sequence[ToolSpec] = ()) -> IncrementalParser:
        """Return a parser for one streamed response, which knows the names of the tools."""


def tool_spec(tool: ToolSpec) -> dict[str, Any]:
    """Return a tool as a plain `{"name", "description", "parameters"}` mapping."""
    if isinstance(tool, conversation.ToolSpec):
        return {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        }
    return {key: tool[key] for key in ("name", "description", "parameters") if key in tool}


def tool_names(tools: Sequence[ToolSpec]) -> frozenset[str]:
    """Return the names of the tools."""
    return frozenset(str(tool_spec(tool).get("name")) for tool in tools)


Group: TypeAlias = UserMessage | ModelMessage | list[ToolCallMessage]
"""A user message, a text of the model, or the calls of one model message."""


def group_messages(messages: Iterable[Message]) -> list[Group]:
    """Return the messages without notices, the calls of one model message as a list."""
    groups: list[Group] = []
    for message in messages:
        match message:
            case SystemMessage():
                continue
            case ToolCallMessage():
                last = groups[-1] if groups else None
                if message.index > 0 and isinstance(last, list):
                    last.append(message)
                else:
                    groups.append([message])
            case UserMessage() | ModelMessage():
                groups.append(message)
            case _:
                assert_never(message)
    return groups


def user_text(message: UserMessage) -> str:
    """Return the text of a user message, after its line of context."""
    return f"{message.context}\n{message.text}" if message.context else message.text


def result_text(message: ToolCallMessage, default: ResultFormat = "envelope") -> str:
    """Return the result of a call as JSON, within its limit of bytes.

    Args:
        message: the completed call.
        default: the format of a toolset that does not specify one.
    """
    hint = message.hint or TRUNCATION_HINT
    text = encode_tool_result(message.result, message.max_bytes, hint=hint)
    return plain_result(text) if (message.result_format or default) == "plain" else text


def is_renderable(message: ToolCallMessage) -> bool:
    """Return False for a call that was cut off or malformed, which has only its raw text."""
    return bool(message.name) and isinstance(message.args, Mapping)


def replace_lone_surrogates(text: str) -> str:
    """Return `text` with U+FFFD for each lone surrogate, which vLLM refuses with HTTP 400."""
    return text if is_whole(text) else LONE_SURROGATE.sub("\ufffd", text)
