"""Read recorded chats from a file, and split their messages into user turns with calls and results.

A file is one conversation or many: a JSON list of messages, a list of such lists, or objects with
`messages` (and `tools`), as JSON or JSON lines. An invalid conversation does not affect the others.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lhkit.errors import LhkitError, UsageError
from lhkit.imports.functions import (
    build_registry,
    builtin_tools,
    decode_json,
    parse_tools,
    replay_handler,
    to_utf8_json,
)
from lhkit.imports.importers import Loss
from lhkit.json_values import canonical, compact
from lhkit.messages import ToolCall
from lhkit.tools.registration import NAME_PATTERN


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedChat:
    """The messages and tools of one conversation; `where` is its position in the file.

    `builtin_tools` are the types of the provider's own tools, which are left out. `error` is
    the reason why it cannot be read; it has no messages then.
    """

    where: str
    messages: tuple[Mapping[str, Any], ...] = ()
    tools: tuple[dict[str, Any], ...] = ()
    builtin_tools: tuple[str, ...] = ()
    error: str = ""


def read_chats(file: Path) -> tuple[RecordedChat, ...]:
    """Read the conversations of a file, including the errors of invalid ones.

    Raises:
        UsageError: the file cannot be read or has no valid conversation; the message names the
            position.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not valid UTF-8: {error}.") from error
    chats = tuple(_parse_file(file, text))
    if all(chat.error for chat in chats):
        raise UsageError(chats[0].error)
    return chats


_FORMAT = 'give a list of messages, or objects with "messages", as JSON or JSON lines'


def _parse_file(file: Path, text: str) -> Iterator[RecordedChat]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        lines = [(n, line) for n, line in enumerate(text.split("\n"), start=1) if line.strip()]
        if elements := _split_list(text):
            parts = [(f"{file.name}[{i}]", element) for i, element in enumerate(elements)]
        elif len(lines) > 1:
            parts = [(f"{file.name}:{number}", line) for number, line in lines]
        else:
            raise UsageError(f"{file} is not valid JSON: {error}.") from error
        for where, part in parts:
            yield _parse_chat(part, where)
        return
    entries = [content] if _is_conversation(content) else content
    if not isinstance(entries, list) or not entries:
        raise UsageError(f"{file} has no conversation: {_FORMAT}.")
    for number, entry in enumerate(entries):
        yield _validate_chat(entry, f"{file.name}[{number}]")


def _is_conversation(entry: Any) -> bool:
    if isinstance(entry, Mapping):
        return True
    return isinstance(entry, list) and any(
        isinstance(item, Mapping) and "role" in item for item in entry
    )


_JSON_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},]', re.DOTALL)


def _split_list(text: str) -> list[str]:
    """Return the texts of the elements of a JSON list that cannot be parsed as a whole.

    Empty if the text is not a list of conversations or its brackets do not match.
    """
    elements: list[str] = []
    depth = begin = 0
    if not text.lstrip().startswith("["):
        return []
    for match in _JSON_TOKEN.finditer(text):
        symbol = match.group()
        if symbol in {"[", "{"}:
            depth += 1
            begin = match.end() if depth == 1 else begin
        elif depth == 1 and symbol in {",", "]", "}"}:
            elements.append(text[begin : match.start()])
            begin = match.end()
            depth -= symbol != ","
        elif symbol in {"]", "}"}:
            depth -= 1
    is_messages = any(re.match(r'\s*\{\s*"role"', element) for element in elements)
    return [] if depth or is_messages or text[begin:].strip() else elements


def _parse_chat(text: str, where: str) -> RecordedChat:
    try:
        entry = json.loads(text)
    except ValueError as error:
        return RecordedChat(where=where, error=f"{where} is not valid JSON: {error}.")
    except RecursionError:
        error_text = f"{where} is not a valid conversation: too deeply nested."
        return RecordedChat(where=where, error=error_text)
    return _validate_chat(entry, where)


def _validate_chat(entry: Any, where: str) -> RecordedChat:
    try:
        return _to_chat(entry, where)
    except UnicodeEncodeError:
        reason = "it contains a lone surrogate"
    except (LhkitError, ValueError, RecursionError) as error:
        reason = str(error).rstrip(".")
    return RecordedChat(where=where, error=f"{where} is not a valid conversation: {reason}.")


def _to_chat(entry: Any, where: str) -> RecordedChat:
    to_utf8_json(entry)
    messages, tools = entry, None
    if isinstance(entry, Mapping):
        messages = entry.get("messages")
        tools = decode_json(entry.get("tools") or entry.get("functions"))
    if not isinstance(messages, list) or not all(
        isinstance(message, Mapping) and isinstance(message.get("role"), str)
        for message in messages
    ):
        raise UsageError(_FORMAT)
    functions = parse_tools(tools) if tools else ()
    for function in functions:
        build_registry([function], replay_handler)
    return RecordedChat(
        where=where, messages=tuple(messages), tools=functions, builtin_tools=builtin_tools(tools)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """A recorded call and the content of its result; None if it has no result."""

    call: ToolCall
    content: str | None = None


@dataclass(slots=True, kw_only=True)
class RecordedTurn:
    """A user message with the calls and assistant texts up to the next user message."""

    user: str
    calls: list[RecordedCall] = field(default_factory=list)
    replies: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PendingCall:
    """A call without a result; `position` is its turn and index, None if the call was dropped."""

    id: str | None
    name: str
    position: tuple[RecordedTurn, int] | None = None


@dataclass(slots=True, kw_only=True)
class TurnReader:
    """Splits the messages of one conversation into turns, and collects losses.

    `pending` are the calls without a result, oldest first; those from `latest` on belong to the
    last assistant messages.
    """

    where: str
    instructions: str = ""
    turns: list[RecordedTurn] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    pending: list[_PendingCall] = field(default_factory=list)
    latest: int = 0
    is_calling: bool = False

    def read(self, messages: Iterable[Mapping[str, Any]]) -> None:
        """Read all messages.

        Raises:
            UsageError: a tool call is invalid.
        """
        for message in messages:
            match message["role"]:
                case "system" | "developer":
                    self.instructions = f"{self.instructions}\n\n{self._text(message)}".strip()
                case "user":
                    self._read_user(self._text(message))
                case "assistant":
                    self._read_assistant(message)
                case "tool" | "function":
                    self._read_result(message)
                case other:
                    self._add_loss("role", other)

    def _add_loss(self, code: str, detail: str = "") -> None:
        self.losses.append(Loss(code=code, where=self.where, detail=detail))

    def _text(self, message: Mapping[str, Any]) -> str:
        """Return the text of the content; an object or list that is not a list of parts as JSON."""
        content = message.get("content") or message.get("refusal")  # of which a reply has one
        if content is None or isinstance(content, str):
            return content or ""
        is_result = message["role"] in {"tool", "function"}
        if not isinstance(content, list) or not all(_is_part(p, is_result) for p in content):
            return compact(content)
        texts = []
        for part in content:
            text = part if isinstance(part, str) else part.get("text", part.get("refusal"))
            if isinstance(text, str):
                texts.append(text)
            else:
                self._add_loss("part", str(part.get("type", "")))
        return "\n".join(texts)

    def _read_user(self, text: str) -> None:
        self.is_calling = False
        if not text.strip():
            self._add_loss("blank")
        elif self.turns and not self.turns[-1].replies and not self.turns[-1].calls:
            self.turns[-1].user += f"\n{text}"
        else:
            self.turns.append(RecordedTurn(user=text))

    def _read_assistant(self, message: Mapping[str, Any]) -> None:
        text, calls = self._text(message), list(_parse_calls(message, self.where))
        names = ", ".join(name for _, name, _ in calls)
        if calls and not self.is_calling:
            self.latest = len(self.pending)
            self.is_calling = True
        if not self.turns:
            self._add_loss("opening", text or names)
            return
        turn = self.turns[-1]
        if text.strip():
            turn.replies.append(text)
            if calls:
                self._add_loss("words_before_calls", text)
        if len(calls) > 1:
            self._add_loss("parallel", names)
        for call_id, name, arguments in calls:
            call = self._replayable_call(name, arguments)
            position = None if call is None else (turn, len(turn.calls))
            self.pending.append(_PendingCall(id=call_id, name=name, position=position))
            if call is not None:
                turn.calls.append(RecordedCall(call=call))

    def _replayable_call(self, name: str, arguments: Any) -> ToolCall | None:
        """Return the call, or None with a loss if it cannot be replayed."""
        args = {} if arguments in (None, "") else decode_json(arguments)
        if not isinstance(args, Mapping):
            self._add_loss("arguments", f"{name}({arguments})")
            return None
        if not NAME_PATTERN.fullmatch(name):
            self._add_loss("name", name)
            return None
        call = ToolCall(name=name, args=dict(args))
        for last in self.turns[-1].calls[-1:]:
            if last.call.name == name and canonical(last.call.args) == canonical(call.args):
                self._add_loss("repeated", name)
                return None
        return call

    def _read_result(self, message: Mapping[str, Any]) -> None:
        self.is_calling = False
        content = self._text(message)
        index = self._find_pending(_parse_id(message.get("tool_call_id")), message)
        if index is None:
            self._add_loss("stray_result", content)
            return
        position = self.pending.pop(index).position
        self.latest -= index < self.latest
        if position is not None:
            turn, number = position
            turn.calls[number] = replace(turn.calls[number], content=content)

    def _find_pending(self, result_id: str | None, message: Mapping[str, Any]) -> int | None:
        """Return the index of the pending call that a result belongs to.

        Matched by id, by tool name, by order; calls of the last assistant messages come first.
        """
        name = message.get("name") or message.get("tool_name")
        indices = [*range(self.latest, len(self.pending)), *range(self.latest)]
        same_id = [i for i in indices if result_id is not None and self.pending[i].id == result_id]
        if not same_id and result_id is not None:
            indices = [i for i in indices if self.pending[i].id is None]
        same_name = [i for i in same_id or indices if self.pending[i].name == name]
        if same_id or name is None:
            return next(iter(same_name or same_id or indices), None)
        return next(iter(same_name), None)


_PART_TYPES = frozenset(
    {"text", "input_text", "output_text", "refusal", "image_url", "image", "input_image"}
    | {"input_audio", "audio", "file", "input_file", "video_url"}
)


def _is_part(part: Any, is_result: bool) -> bool:
    """Return whether this is a content part; in a result, objects and strings may be data."""
    if is_result:
        return isinstance(part, Mapping) and part.get("type") in _PART_TYPES
    return isinstance(part, str | Mapping)


def _parse_calls(message: Mapping[str, Any], where: str) -> Iterator[tuple[str | None, str, Any]]:
    """Yield id, name and encoded arguments of each call, including the older `function_call`."""
    calls = decode_json(message.get("tool_calls") or [])
    if not isinstance(calls, list):
        raise UsageError(f"{where} is not a valid conversation: tool_calls must be a list.")
    function_call = decode_json(message.get("function_call"))
    if function_call:
        calls = [*calls, {"function": function_call}]
    for number, call in enumerate(calls):
        function = decode_json(call.get("function", call)) if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise UsageError(
                f"{where} is not a valid conversation: tool_calls[{number}] has no function name."
            )
        yield _parse_id(call.get("id")), function["name"], function.get("arguments")


def _parse_id(value: Any) -> str | None:
    return None if value is None or value == "" else str(value)
