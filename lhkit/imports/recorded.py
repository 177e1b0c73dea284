"""Recorded chats of a file, and their messages as user turns with calls and results."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lhkit.errors import LhkitError, UsageError
from lhkit.imports.functions import (
    build_registry,
    decode_json,
    parse_tools,
    replay_handler,
    to_utf8_json,
)
from lhkit.imports.imported import Loss
from lhkit.json_values import canonical, compact
from lhkit.messages import ToolCall
from lhkit.tools.registration import NAME_PATTERN


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedChat:
    """The messages of one conversation, where they stand, and the tools that were given along.

    `fault` is the reason why it cannot be read; it has no messages then.
    """

    where: str
    messages: tuple[Mapping[str, Any], ...] = ()
    tools: tuple[dict[str, Any], ...] = ()
    fault: str = ""


def read_chats(file: Path) -> tuple[RecordedChat, ...]:
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


def _is_conversation(entry: Any) -> bool:
    if isinstance(entry, Mapping):
        return True
    return isinstance(entry, list) and any(
        isinstance(each, Mapping) and "role" in each for each in entry
    )


def _chat(entry: Any, where: str) -> RecordedChat:
    try:
        to_utf8_json(entry)
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
        decode_json(entry.get("tools") or entry.get("functions")) if messages is not entry else ()
    )
    try:
        tools = parse_tools(given) if given else ()
        for tool in tools:
            build_registry([tool], replay_handler)
    except LhkitError as error:
        return RecordedChat(where=where, fault=f"{where}: {error}")
    return RecordedChat(where=where, messages=tuple(messages), tools=tools)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """A call of the recording, and what the model then read; None if nothing came back."""

    call: ToolCall
    content: str | None = None


@dataclass(slots=True, kw_only=True)
class RecordedTurn:
    """A user message, and all that followed until the next."""

    user: str
    called: list[RecordedCall] = field(default_factory=list)
    words: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """A call without a result; `place` is its turn and number, None if the call was left out."""

    id: str | None
    name: str
    place: tuple[RecordedTurn, int] | None = None


@dataclass(slots=True, kw_only=True)
class TurnReader:
    """Reads the messages of one conversation in order, and keeps what it has to leave out.

    `waiting` are the calls without a result, oldest first; those from `latest` on are of the last
    model messages.
    """

    where: str
    instructions: str = ""
    turns: list[RecordedTurn] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    waiting: list[_Waiting] = field(default_factory=list)
    latest: int = 0
    is_calling: bool = False

    def read(self, messages: Iterable[Mapping[str, Any]]) -> None:
        """Take in all messages.

        Raises:
            UsageError: a call has no form that can be read.
        """
        for message in messages:
            match message["role"]:
                case "system" | "developer":
                    self.instructions = f"{self.instructions}\n\n{self._text(message)}".strip()
                case "user":
                    self._user(self._text(message))
                case "assistant":
                    self._assistant(message)
                case "tool" | "function":
                    self._result(message)
                case other:
                    self._lose("role", other)

    def _lose(self, code: str, detail: str = "") -> None:
        self.losses.append(Loss(code=code, where=self.where, detail=detail))

    def _text(self, message: Mapping[str, Any]) -> str:
        """Return the content as text; an object or list that is no list of parts as JSON."""
        content = message.get("content")
        if content is None or isinstance(content, str):
            return content or ""
        is_result = message["role"] in {"tool", "function"}
        if not isinstance(content, list) or not all(_is_part(p, is_result) for p in content):
            return compact(content)
        texts = [part if isinstance(part, str) else part.get("text") for part in content]
        for part, text in zip(content, texts, strict=True):
            if not isinstance(text, str):
                self._lose("part", str(part.get("type", "")))
        return "\n".join(text for text in texts if isinstance(text, str))

    def _user(self, text: str) -> None:
        self.is_calling = False
        if not text.strip():
            self._lose("blank")
        elif self.turns and not self.turns[-1].words and not self.turns[-1].called:
            self.turns[-1].user += f"\n{text}"
        else:
            self.turns.append(RecordedTurn(user=text))

    def _assistant(self, message: Mapping[str, Any]) -> None:
        text, calls = self._text(message), list(_calls_of(message, self.where))
        if calls and not self.is_calling:
            self.latest = len(self.waiting)
            self.is_calling = True
        if not self.turns:
            self._lose("opening", text or ", ".join(name for _, name, _ in calls))
            return
        turn = self.turns[-1]
        if text.strip():
            turn.words.append(text)
        if calls and text.strip():
            self._lose("words_before_calls", text)
        if len(calls) > 1:
            self._lose("parallel", ", ".join(name for _, name, _ in calls))
        for called_id, name, written in calls:
            call = self._call(name, written)
            place = None if call is None else (turn, len(turn.called))
            self.waiting.append(_Waiting(id=called_id, name=name, place=place))
            if call is not None:
                turn.called.append(RecordedCall(call=call))

    def _call(self, name: str, written: Any) -> ToolCall | None:
        """Return a call that can be made again; None, and a loss, where it cannot."""
        args = _arguments(written)
        if args is None:
            self._lose("arguments", f"{name}({written})")
            return None
        if not NAME_PATTERN.fullmatch(name):
            self._lose("name", name)
            return None
        call = ToolCall(name=name, args=args)
        if self.turns[-1].called and _same(self.turns[-1].called[-1].call, call):
            self._lose("repeated", name)
            return None
        return call

    def _result(self, message: Mapping[str, Any]) -> None:
        self.is_calling = False
        content = self._text(message)
        number = self._called_at(_id_of(message.get("tool_call_id")), message)
        if number is None:
            self._lose("stray_result", content)
            return
        place = self.waiting.pop(number).place
        self.latest -= number < self.latest
        if place is not None:
            turn, at = place
            turn.called[at] = replace(turn.called[at], content=content)

    def _called_at(self, result_id: str | None, message: Mapping[str, Any]) -> int | None:
        """Return the number of the waiting call that a result belongs to.

        By id, by the tool's name, by order: the first that fits, of the last model messages before
        those of earlier ones.
        """
        name = message.get("name") or message.get("tool_name")
        places = [*range(self.latest, len(self.waiting)), *range(self.latest)]
        same_id = [i for i in places if result_id is not None and self.waiting[i].id == result_id]
        if not same_id and result_id is not None:
            places = [i for i in places if self.waiting[i].id is None]
        same_name = [i for i in same_id or places if self.waiting[i].name == name]
        if same_id or name is None:
            return next(iter(same_name or same_id or places), None)
        return next(iter(same_name), None)


_PARTS = frozenset(
    {"text", "input_text", "output_text", "refusal", "image_url", "image", "input_image"}
    | {"input_audio", "audio", "file", "input_file", "video_url"}
)


def _is_part(part: Any, is_result: bool) -> bool:
    """Return True for a part of a message; in a result, objects and texts can be data too."""
    if is_result:
        return isinstance(part, Mapping) and part.get("type") in _PARTS
    return isinstance(part, str | Mapping)


def _calls_of(message: Mapping[str, Any], where: str) -> Iterator[tuple[str | None, str, Any]]:
    """Yield id, name and written arguments of each call; the older `function_call` is one, too.

    Raises:
        UsageError: one is no object with a name.
    """
    calls = decode_json(message.get("tool_calls") or [])
    if not isinstance(calls, list):
        raise UsageError(f"{where} is no conversation: tool_calls is no list")
    old = decode_json(message.get("function_call"))
    for number, call in enumerate([*calls, *([{"function": old}] if old else [])]):
        function = decode_json(call.get("function", call)) if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise UsageError(f"{where} is no conversation: tool_calls[{number}] names no function")
        yield _id_of(call.get("id")), function["name"], function.get("arguments")


def _id_of(value: Any) -> str | None:
    return None if value is None or value == "" else str(value)


def _arguments(written: Any) -> dict[str, Any] | None:
    """Return the arguments as an object; None if they are none."""
    unpacked = {} if written in (None, "") else decode_json(written)
    return dict(unpacked) if isinstance(unpacked, Mapping) else None


def _same(first: ToolCall, second: ToolCall) -> bool:
    return first.name == second.name and canonical(first.args) == canonical(second.args)
