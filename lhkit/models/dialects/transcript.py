"""Group the messages of a conversation as the model sees them, without notices."""

import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias, assert_never

from lhkit.messages import Message, ModelMessage, SystemMessage, ToolCallMessage, UserMessage
from lhkit.tool_results import TRUNCATION_HINT, encode_tool_result

LONE_SURROGATE = re.compile("[\ud800-\udfff]")

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


def result_text(message: ToolCallMessage) -> str:
    """Return the encoded result of a call, within its limit of bytes."""
    hint = message.hint or TRUNCATION_HINT
    return encode_tool_result(message.result, message.max_bytes, hint=hint)


def is_renderable(message: ToolCallMessage) -> bool:
    """Return False for a call that was cut off or malformed, which has only its raw text."""
    return bool(message.name) and isinstance(message.args, Mapping)


def replace_lone_surrogates(text: str) -> str:
    """Return `text` with U+FFFD for each lone surrogate, which vLLM refuses with HTTP 400."""
    return LONE_SURROGATE.sub("\ufffd", text)
