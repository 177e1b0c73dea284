"""Read the recorded chats of a file: lists of messages, as JSON or one a line."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lhkit.errors import LhkitError, UsageError
from lhkit.imports.functions import playing_back, registry_of_tools, tools_in, utf8_json


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedChat:
    """The messages of one conversation, where they stand, and the tools that were given along.

    `fault` is the reason why it cannot be read; it has no messages then.
    """

    where: str
    messages: tuple[Mapping[str, Any], ...] = ()
    tools: tuple[dict[str, Any], ...] = ()
    fault: str = ""


def read_conversations(file: Path) -> tuple[RecordedChat, ...]:
    """Return the conversations of a file, with the faults of those that cannot be read.

    Raises:
        UsageError: it cannot be read, or contains no conversation; the sentence names the line or
            the place in the list.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: no UTF-8 text: {error}") from error
    chats = tuple(_chats(file, text))
    if all(chat.fault for chat in chats):
        raise UsageError(chats[0].fault)
    return chats


_HOW = 'give a list of messages, or objects with "messages", as JSON or one a line'


def _chats(file: Path, text: str) -> Iterator[RecordedChat]:
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        lines = [(n, line) for n, line in enumerate(text.split("\n"), start=1) if line.strip()]
        if parts := _elements(text):
            named = [(f"{file.name}[{i}]", part) for i, part in enumerate(parts)]
        elif len(lines) > 1:
            named = [(f"{file.name}:{number}", line) for number, line in lines]
        else:
            raise UsageError(f"{file}: no JSON: {error}") from error
        for where, part in named:
            yield _read_chat(part, where)
        return
    entries = [whole] if _is_conversation(whole) else whole
    if not isinstance(entries, list) or not entries:
        raise UsageError(f"{file}: no conversation there: {_HOW}")
    for number, entry in enumerate(entries):
        yield _chat(entry, f"{file.name}[{number}]")


_JSON_MARK = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},]', re.DOTALL)


def _elements(text: str) -> list[str]:
    """Return the texts of the conversations in a JSON list that cannot be read as a whole.

    Empty if it is no list of conversations, or if its brackets do not match.
    """
    parts: list[str] = []
    depth = begin = 0
    if not text.lstrip().startswith("["):
        return []
    for mark in _JSON_MARK.finditer(text):
        if mark.group() in {"[", "{"}:
            depth += 1
            begin = mark.end() if depth == 1 else begin
        elif (mark.group() == "," and depth == 1) or (mark.group() in {"]", "}"} and depth == 1):
            parts.append(text[begin : mark.start()])
            begin = mark.end()
            depth -= mark.group() != ","
        elif mark.group() in {"]", "}"}:
            depth -= 1
    is_messages = any(re.match(r'\s*\{\s*"role"', part) for part in parts)
    return [] if depth or is_messages or text[begin:].strip() else parts


def _read_chat(text: str, where: str) -> RecordedChat:
    try:
        entry = json.loads(text)
    except ValueError as error:
        return RecordedChat(where=where, fault=f"{where}: no JSON: {error}")
    except RecursionError:
        return RecordedChat(where=where, fault=f"{where} is no conversation: nested too deep")
    return _chat(entry, where)


def _is_conversation(told: Any) -> bool:
    if isinstance(told, Mapping):
        return True
    return isinstance(told, list) and any(
        isinstance(each, Mapping) and "role" in each for each in told
    )


def _chat(entry: Any, where: str) -> RecordedChat:
    try:
        utf8_json(entry)
    except UnicodeEncodeError:
        return RecordedChat(where=where, fault=f"{where} is no conversation: half a surrogate pair")
    except (ValueError, RecursionError) as error:
        return RecordedChat(where=where, fault=f"{where} is no conversation: {error}")
    messages = entry.get("messages") if isinstance(entry, Mapping) else entry
    if not isinstance(messages, list) or not all(
        isinstance(each, Mapping) and isinstance(each.get("role"), str) for each in messages
    ):
        return RecordedChat(where=where, fault=f"{where} is no conversation: {_HOW}")
    given = (
        unpacked_json(entry.get("tools") or entry.get("functions")) if messages is not entry else ()
    )
    try:
        tools = tools_in(given) if given else ()
        for tool in tools:
            registry_of_tools([tool], playing_back)
    except LhkitError as error:
        return RecordedChat(where=where, fault=f"{where}: {error}")
    return RecordedChat(where=where, messages=tuple(messages), tools=tools)


def unpacked_json(value: Any) -> Any:
    """Return what a JSON text contains; any other value, and any other text, as it is."""
    if not isinstance(value, str):
        return value
    try:
        return utf8_json(json.loads(value))
    except (ValueError, RecursionError):
        return value
