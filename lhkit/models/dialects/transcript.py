"""A transcript as the model sees it: the calls of one model message together, no hints."""

import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias, assert_never

from lhkit.messages import Message, ModelMessage, SystemMessage, ToolCallMessage, UserMessage
from lhkit.tool_results import TRUNCATION_HINT, encode_tool_result

LONE_SURROGATE = re.compile("[\ud800-\udfff]")

Group: TypeAlias = UserMessage | ModelMessage | list[ToolCallMessage]
"""The user's words, the model's words, or the calls of one model message."""


def grouped(messages: Iterable[Message]) -> list[Group]:
    """Return what the model sees, with the calls of one model message together."""
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


def words_of(message: UserMessage) -> str:
    """Return what the user said below the line for the model."""
    return f"{message.context}\n{message.text}" if message.context else message.text


def result_text(message: ToolCallMessage) -> str:
    """Return the result of a call as the model reads it, within the budget of bytes."""
    hint = message.hint or TRUNCATION_HINT
    return encode_tool_result(message.result, message.max_bytes, hint=hint)


def is_writable(message: ToolCallMessage) -> bool:
    """Return False for a call that was cut off or made no sense: only its raw text can be shown."""
    return bool(message.name) and isinstance(message.args, Mapping)


def unicode_of(text: str) -> str:
    """Return `text` with U+FFFD for lone surrogates, which vLLM refuses with HTTP 400."""
    return LONE_SURROGATE.sub("\ufffd", text)
