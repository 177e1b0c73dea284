"""Read a file of conversations into their messages and tools, whatever its form.

A file is one conversation or many, as JSON, as JSON lines, as JSON values one after another, or as
Parquet; a folder is a data set in such files. A conversation is a list of messages, an object with
them under `messages` or another known key, or a row of a data set of calls (`row_shapes`). An
invalid conversation does not affect the others.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lhkit.base.errors import LhkitError, UsageError
from lhkit.base.files import open_regular
from lhkit.base.json_values import compact
from lhkit.imports.decoding import decode_json, to_utf8_json
from lhkit.imports.functions import build_registry, replay_handler
from lhkit.imports.importers import MAX_LISTED, cut_list
from lhkit.imports.message_shapes import is_message
from lhkit.imports.row_shapes import to_messages
from lhkit.imports.tables import TABLE_SUFFIXES, DataFile, data_files, is_split, read_table
from lhkit.imports.tool_shapes import ToolList, read_tools

_NO_TOOLS = ToolList(functions=(), repairs={})


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedChat:
    """The messages and tools of one conversation.

    Attributes:
        where: its position in the file.
        messages: the messages; none if there is an error.
        tools: the tools that it lists.
        shape: the name of the shape of its row; empty for another form.
        split: the split of the data set; empty if none is named.
        metadata: further scalars of the row, by key.
        error: the reason why it cannot be read; empty if it can.
    """

    where: str
    messages: tuple[Mapping[str, Any], ...] = ()
    tools: ToolList = _NO_TOOLS
    shape: str = ""
    split: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatFile:
    """The conversations of a file, and the positions of the comments between them."""

    chats: tuple[RecordedChat, ...]
    comments: tuple[str, ...] = ()


MAX_BYTES = 1_000_000_000
"""Limit of a file; it is read as a whole."""

_FORMAT = 'give a list of messages, or objects with "messages", as JSON or JSON lines'
_MESSAGE_KEYS = (
    *("messages", "conversation", "conversations", "chat", "dialog", "dialogue"),
    *("history", "turns", "contents", "input", "prompt"),
)
_REPLY_KEYS = ("completion", "response", "output", "choices")
_INNER_KEYS = ("request", "body", "row", "data", "text")
_LIST_KEYS = ("conversations", "chats", "dialogs", "dialogues", "data", "rows", "records", "items")
_INSTRUCTION_KEYS = ("system", "system_prompt", "instructions", "systemInstruction")


def read_chat_file(source: Path, shape: str | None = None) -> ChatFile:
    """Read the conversations of a file or folder, including the errors of invalid ones.

    Args:
        source: a file, or a folder of a data set.
        shape: the name of the shape of all rows (`row_shapes`); recognised by default.

    Raises:
        UsageError: a file cannot be read or there is no valid conversation; the message names the
            position.
        MissingPackageError: Parquet or Arrow files need pyarrow.
    """
    comments: list[str] = []
    valid: set[str] = set()
    chats: list[RecordedChat] = []
    for part in data_files(source) if source.is_dir() else [DataFile(path=source)]:
        entries = list(_read_file(part.path, comments))
        name = part.path.relative_to(source.parent) if source.is_dir() else Path(source.name)
        if name != Path(part.path.name):
            prefix = f"{name.parent.as_posix()}/"
            entries = [replace(entry, where=f"{prefix}{entry.where}") for entry in entries]
        for entry in entries:
            chat = _read_entry(entry, valid, shape)
            chats.append(replace(chat, split=chat.split or entry.split or part.split))
    if all(chat.error for chat in chats):
        lines = [f"{chat.where}: {chat.error}." for chat in chats]
        raise UsageError("\n".join(cut_list(lines, MAX_LISTED)))
    return ChatFile(chats=tuple(chats), comments=tuple(comments))


def _read_file(file: Path, comments: list[str]) -> list["_Entry"]:
    if file.suffix in TABLE_SUFFIXES:
        rows = read_table(file)
        return [_Entry(where=f"{file.name}[{n}]", value=row) for n, row in enumerate(rows)]
    text = _read_text(file)
    if not text.strip():
        raise UsageError(f"{file} is empty: {_FORMAT}.")
    entries = list(_split(file, text, comments))
    if len(entries) > 1 and all(_is_message(entry.value) for entry in entries):
        messages = [entry.value for entry in entries]  # one conversation, a message a line
        entries = [_Entry(where=file.name, value=messages)]
    return entries


def _read_text(file: Path) -> str:
    try:
        with open_regular(file) as opened:
            content = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}.") from error
    if len(content) > MAX_BYTES:
        raise UsageError(f"{file} is larger than {MAX_BYTES:,} bytes: split the file.")
    encoding = json.detect_encoding(content)  # by a byte order mark, or where the zeros are
    try:
        return content.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        name = "UTF-8" if encoding.startswith("utf-8") else encoding.upper()
        raise UsageError(f"{file} is not valid {name}: {error}.") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A decoded entry of a file and its split, or the reason why it cannot be decoded."""

    where: str
    value: Any = None
    error: str = ""
    split: str = ""


def _split(file: Path, text: str, comments: list[str]) -> Iterator[_Entry]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        yield from _split_invalid(file, text, error, comments)
        return
    entries = _unwrapped(content)
    if isinstance(content, Mapping) and entries is content:
        if content and all(is_split(str(k)) and isinstance(v, list) for k, v in content.items()):
            for name, rows in content.items():
                for number, row in enumerate(rows):
                    where = f"{file.name}[{name}][{number}]"
                    yield _Entry(where=where, value=row, split=str(name))
            return
        entries = [content]
    elif _is_conversation(entries):
        entries = [entries]
    if not isinstance(entries, list) or not entries:
        raise UsageError(f"{file} has no conversation: {_FORMAT}.")
    for number, entry in enumerate(entries):
        yield _Entry(where=f"{file.name}[{number}]", value=entry)


def _split_invalid(
    file: Path, text: str, error: Exception, comments: list[str]
) -> Iterator[_Entry]:
    """Yield the parts of a text that is not valid JSON as a whole.

    Of the two readings, as lines and as values one after another, that with more rows.
    """
    numbered = [(n, line) for n, line in enumerate(text.split("\n"), start=1) if line.strip()]
    lines = [(n, line) for n, line in numbered if not _COMMENT.match(line)]
    by_line = [_decode(line, f"{file.name}:{number}") for number, line in lines]
    values = _values_in_sequence(file, text)
    lines_win = _count_rows(by_line) - _count_rows(values)
    if lines_win > 0 or (lines_win == 0 and not text.lstrip().startswith("[")):
        values = by_line
    if not any(map(_is_value, values)):
        raise UsageError(f"{file} is not valid JSON: {_reason(error)}.") from error
    if values is by_line:
        comments += [f"{file.name}:{n}" for n, line in numbered if _COMMENT.match(line)]
    yield from values


def _is_value(entry: _Entry) -> bool:
    return isinstance(entry.value, dict | list)


def _count_rows(entries: Sequence[_Entry]) -> int:
    """Return how many entries are objects or lists, but no messages."""
    return sum(_is_value(entry) and not _is_message(entry.value) for entry in entries)


_COMMENT = re.compile(r"\s*(//|#)")


def _decode(text: str, where: str) -> _Entry:
    """Return the value of a text; a comma after it, as in a list, does not count."""
    try:
        return _Entry(where=where, value=json.loads(text.strip().removesuffix(",")))
    except (ValueError, RecursionError) as error:
        reason = _reason(error, is_line="\n" not in text.strip())
        return _Entry(where=where, error=f"not valid JSON: {reason}")


def _reason(error: Exception, *, is_line: bool = False) -> str:
    if isinstance(error, json.JSONDecodeError):
        place = f"column {error.colno}" if is_line else f"line {error.lineno} column {error.colno}"
        return f"{error.msg} at {place}"
    return "too deeply nested" if isinstance(error, RecursionError) else str(error)


def _values_in_sequence(file: Path, text: str) -> list[_Entry]:
    """Return the values of a list, or that follow each other, each over any number of lines.

    A value that cannot be read ends with its brackets, or where the next one begins as the first
    does: a row is not lost because another is broken or cut off.
    """
    first = _FIRST_VALUE.match(text)
    if first is None:
        return []
    tokens = _TOKEN.findall(first["value"])
    following = re.compile(r"[,\n]\s*(?=" + r"\s*".join(map(re.escape, tokens)) + ")")
    entries: list[_Entry] = []
    end = first.start("value")
    while rest := _NEXT_VALUE.match(text, end):
        at = rest.end()
        if first["list"] and text[at] == "]":
            return [] if text[at + 1 :].strip() else entries
        number = len(entries) if first["list"] else text.count("\n", 0, at) + 1
        where = f"{file.name}[{number}]" if first["list"] else f"{file.name}:{number}"
        try:
            value, end = json.JSONDecoder().raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            # the brackets of what is only too deep or too large are right
            is_broken = isinstance(error, json.JSONDecodeError)
            closed = None if is_broken else _end_of_brackets(text, at)
            after = following.search(text, at + 1) if closed is None else None
            end = closed or (after.start() if after else len(text))
            entries.append(_decode(text[at:end], where))
        else:
            entries.append(_Entry(where=where, value=value))
    return entries


def _end_of_brackets(text: str, at: int) -> int | None:
    """Return where the brackets of a value are closed; None if they are not."""
    depth = 0
    for match in _BRACKET.finditer(text, at):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(match[0], 0)
        if depth == 0:
            return match.end()
    return None


_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')

_FIRST_VALUE = re.compile(r'\s*(?P<list>\[)?\s*(?P<value>(?:\[\s*)?\{\s*"[^"\\]*"\s*:)')
_TOKEN = re.compile(r'"[^"]*"|[^\s"]')
_NEXT_VALUE = re.compile(r"[\s,]*(?=[^\s,])")


def _is_message(entry: Any) -> bool:
    """Return whether this is a message, not a conversation."""
    return is_message(entry) and not any(isinstance(entry.get(key), list) for key in _MESSAGE_KEYS)


def _is_conversation(entry: Any) -> bool:
    return isinstance(entry, list) and any(map(_is_message, entry))


def _unwrapped(content: Any) -> Any:
    """Return the list of conversations that an object has under a key; else the content."""
    if not isinstance(content, Mapping) or _is_message(content):
        return content
    for key in _LIST_KEYS:
        entries = decode_json(content.get(key))
        is_list = isinstance(entries, list) and all(isinstance(e, dict | list) for e in entries)
        if is_list and entries and not _is_conversation(entries):
            return entries
    return content


def _read_entry(entry: _Entry, valid: set[str], shape: str | None) -> RecordedChat:
    """Return the conversation of an entry; `valid` are the tools that are known to be valid."""
    if entry.error:
        return RecordedChat(where=entry.where, error=entry.error)
    try:
        return _to_chat(entry.value, entry.where, valid, shape)
    except UnicodeEncodeError:
        reason = "it contains a lone surrogate"
    except RecursionError:
        reason = "too deeply nested"
    except (LhkitError, ValueError) as error:
        reason = str(error).rstrip(".")
    return RecordedChat(where=entry.where, error=f"not a valid conversation: {reason}")


def _to_chat(entry: Any, where: str, valid: set[str], shape: str | None) -> RecordedChat:
    to_utf8_json(entry)
    row, shape_name = to_messages(entry, shape)
    messages, described = _find_messages(row)
    if not all(map(_is_message, messages)):
        raise UsageError(_FORMAT)
    tools = read_tools(described) if described else _NO_TOOLS
    for function in tools.functions:
        text = compact(function)
        if text not in valid:
            build_registry([function], replay_handler)
            valid.add(text)
    split, metadata = _read_metadata(row)
    return RecordedChat(
        where=where,
        messages=tuple(messages),
        tools=tools,
        shape=shape_name,
        split=split,
        metadata=metadata,
    )


_SPLIT_KEYS = ("split", "subset_split", "partition")
_NAMES_OF_ROWS = re.compile(r"(^|_)(id|ids|uuid|guid|hash|sha\d*|index|idx|url)$", re.IGNORECASE)
_MAX_METADATA_CHARS = 60


def _read_metadata(row: Any) -> tuple[str, dict[str, str]]:
    """Return the split of a row, and its other short scalars but those that name the row.

    `metadata` is the split itself (as in mobile-actions), or an object with it and other values.
    """
    if not isinstance(row, Mapping):
        return "", {}
    more = decode_json(row.get("metadata"))
    values = {**row, **more} if isinstance(more, Mapping) else dict(row)
    known = {*_MESSAGE_KEYS, *_REPLY_KEYS, *_INSTRUCTION_KEYS, "tools", "functions", "metadata"}
    scalars = {
        str(key): str(value).strip()
        for key, value in values.items()
        if key not in known
        and isinstance(value, str | bool | int)
        and not _NAMES_OF_ROWS.search(str(key))
    }
    split = next((scalars.pop(key) for key in _SPLIT_KEYS if key in scalars), "")
    if not split and isinstance(more, str):
        split = more.strip()
    return split, {k: v for k, v in scalars.items() if v and len(v) <= _MAX_METADATA_CHARS}


def _find_messages(entry: Any) -> tuple[list[Any], Any]:
    """Return the messages of a conversation, and its tools as they are written.

    Raises:
        UsageError: there are none.
    """
    if isinstance(entry, list):
        return entry, None
    if not isinstance(entry, Mapping):
        raise UsageError(_FORMAT)
    described = next(
        filter(None, (decode_json(entry.get(k)) for k in ("tools", "functions"))), None
    )
    found = (decode_json(entry.get(key)) for key in _MESSAGE_KEYS)
    messages = next((value for value in found if isinstance(value, list)), None)
    if messages is None:
        inner = (decode_json(entry.get(key)) for key in _INNER_KEYS)
        if (part := next((value for value in inner if isinstance(value, Mapping)), None)) is None:
            raise UsageError(f"{_FORMAT}; this has {_listed(entry)}")
        messages, inner_tools = _find_messages(part)
        described = described or inner_tools
    if described is None and messages and isinstance(messages[0], Mapping):
        listed = (decode_json(messages[0].get(key)) for key in ("tools", "functions"))
        described = next((tools for tools in listed if isinstance(tools, list)), None)
    if _awaits_reply(messages):
        messages = [*messages, *_read_replies(entry)]
    texts = (entry.get(key) for key in _INSTRUCTION_KEYS)
    if text := next(filter(None, texts), None):
        content = text.get("parts", text) if isinstance(text, Mapping) else text
        messages = [{"role": "system", "content": content}, *messages]
    return messages, described


def _listed(entry: Mapping[str, Any]) -> str:
    names = [str(key)[:30] for key in entry]
    return ", ".join(names[:5]) or "no keys"


def _awaits_reply(messages: Sequence[Any]) -> bool:
    last = messages[-1] if messages else None
    if not isinstance(last, Mapping):
        return False
    role = str(last.get("role") or last.get("from") or last.get("type")).lower()
    return role in {"user", "human", "tool", "function", "function_call_output"}


def _read_replies(entry: Mapping[str, Any]) -> list[Any]:
    """Return the messages of a response that is stored apart from its request."""
    for key in _REPLY_KEYS:
        value = decode_json(entry.get(key))
        if isinstance(value, Mapping) and isinstance(value.get("body"), Mapping):  # OpenAI's batch
            value = value["body"]
        if isinstance(value, Mapping) and not _is_message(value):
            value = next((value[k] for k in ("choices", "output", "message") if k in value), value)
        listed = value if isinstance(value, list) else [value]
        if all(isinstance(item, Mapping) and _maps(item.get("message")) for item in listed):
            listed = [item["message"] for item in listed[:1]]  # of several choices the first
        if listed and all(map(_is_message, listed)):
            return listed
        if isinstance(value, str) and value:
            return [{"role": "assistant", "content": value}]
    return []


def _maps(value: Any) -> bool:
    return isinstance(value, Mapping)
