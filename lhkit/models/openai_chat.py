"""Client of `/v1/chat/completions`, where the server parses tool calls.

For servers other than vLLM, and to compare lhkit's parsers with the server's. Extensions of vLLM
are sent to vLLM only.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from lhkit.errors import StreamBrokenError
from lhkit.json_values import compact, json_or_repr
from lhkit.messages import ToolCall
from lhkit.models.base import ModelRequest
from lhkit.models.client import Exchange, HttpModel
from lhkit.models.dialects.arguments import read_arguments
from lhkit.models.dialects.base import tool_names
from lhkit.models.dialects.parser import ParsedEvent, ParseResult
from lhkit.models.request import chat_body, rendered_fields
from lhkit.models.response import ResponseReader
from lhkit.models.sse import invalid_event, typed, whole_number
from lhkit.responses import TextDelta, ThinkingDelta, ToolCallParsed

_THINKING_KEYS = ("reasoning", "reasoning_content")
_CALL_REASONS = frozenset({"tool_calls", "tool_call", "tool_use", "function_call"})
"""Finish reasons of a response that ends with calls; all but the first are of other protocols."""
_VALUE = re.compile(r"[^ \t\r\n]")
_THINKING_PARTS = frozenset({"thinking", "reasoning", "reasoning_content", "reasoning_text"})
_TEXTLESS_PARTS = frozenset({"reference", "redacted_thinking"})
_MAX_PART_DEPTH = 3
"""A content has parts, a thinking part has parts of its own, and these have a text."""


class OpenAiHttp(HttpModel):
    """A model whose server parses tool calls.

    Make one with `connect`; close it with `aclose`. Safe for concurrent conversations: the
    connection is its only state.
    """

    async def _exchange(self, request: ModelRequest) -> Exchange:
        body = chat_body(request, self._identity)
        reader = ResponseReader(
            content=ChatContent(tool_names(request.tools), server=self._connection.address),
            max_tokens=request.sampling.max_tokens,
            clock=self._connection.clock.now,
        )
        prompt = compact(rendered_fields(body))
        return Exchange(path="/v1/chat/completions", body=body, prompt=prompt, reader=reader)


@dataclass(slots=True, kw_only=True)
class _PartialCall:
    """A call as its deltas arrive; `place` is its index in the response."""

    place: int
    id: str = ""
    name: str = ""
    text: str = ""
    value: Any = None

    @property
    def raw(self) -> str:
        """The call received so far, as text."""
        value = "" if self.value is None else json_or_repr(self.value)
        return f"{self.name} {self.text}{value}".strip()

    @property
    def is_empty(self) -> bool:
        """True if there is neither a name nor an argument."""
        return not (self.name or self.text.strip() or self.value is not None)

    def add(self, delta: Mapping[str, Any], known: Collection[str]) -> None:
        self.id = self.id or _call_id(delta)
        function = typed(delta, "function", dict) or {}
        name = typed(function, "name", str) or ""
        if name != self.name and self.name not in known:  # some servers repeat it in every delta
            self.name += name
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            self.text += arguments
        elif arguments or self.value is None:  # an empty object may also follow the complete one
            self.value = arguments

    def call(self) -> ToolCall:
        args, repairs = self._arguments()
        return ToolCall(name=self.name, args=args, raw=self.raw, repairs=repairs)

    def _arguments(self) -> tuple[Any, tuple[str, ...]]:
        """Return arguments and repairs; invalid JSON stays text for validation."""
        if self.value is None:
            args, repairs = read_arguments(self.text)
        elif not self.text.strip():
            args, repairs = read_arguments(self.value)
            repairs = ("object_arguments", *repairs)
        else:
            args, repairs = self.text, ("malformed",)
        if "malformed" not in repairs:
            return args, repairs
        try:
            return _common_object([*_json_texts(self.text), self.value])
        except (ValueError, RecursionError):
            return self.text or self.raw, ("malformed",)


def _json_texts(text: str) -> Iterator[str]:
    """Yield concatenated JSON values, each as text.

    Raises:
        ValueError: the text contains something else.
    """
    decoder = json.JSONDecoder()
    at = 0
    while start := _VALUE.search(text, at):
        _, at = decoder.raw_decode(text, start.start())
        yield text[start.start() : at]


def _common_object(values: Sequence[Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the object that all non-empty values are equal to, and the repairs.

    Raises:
        ValueError: they differ.
    """
    distinct: dict[str, dict[str, Any]] = {}
    codes = {"repeated_arguments": None}
    for value in values:
        args, repairs = read_arguments(value)
        if not isinstance(args, dict) or "malformed" in repairs:
            raise ValueError("not an object")
        if args:  # as text, because 1 == 1.0 == True in Python
            distinct[json.dumps(args, sort_keys=True)] = args
            codes |= dict.fromkeys(repairs)
    if len(distinct) > 1:
        raise ValueError("the arguments are several values")
    return next(iter(distinct.values()), {}), tuple(codes)


def _call_id(delta: Mapping[str, Any]) -> str:
    """Return the id of a call, an integer on some servers; empty if it has none."""
    value = delta.get("id")
    if type(value) is int:
        return str(value)
    return typed(delta, "id", str) or ""


def _content_deltas(
    value: Any, kind: type[TextDelta] | type[ThinkingDelta], depth: int = _MAX_PART_DEPTH
) -> Iterator[TextDelta | ThinkingDelta]:
    """Yield the text of a content, which is a string or a list of typed parts.

    Raises:
        StreamBrokenError: it is something else, or has a part without text, such as an image.
    """
    parts = value if isinstance(value, list) else [value]
    for part in parts:
        if isinstance(part, str):
            yield from [kind(text=part)] if part else []
        elif isinstance(part, dict) and depth:
            name = typed(part, "type", str) or "text"
            is_thinking = name in _THINKING_PARTS
            text = next(
                (part[key] for key in ("text", name, "summary", "content") if key in part), None
            )
            if text is None and not is_thinking and name not in _TEXTLESS_PARTS:
                raise invalid_event(value)
            yield from _content_deltas(text, ThinkingDelta if is_thinking else kind, depth - 1)
        elif part is not None:
            raise invalid_event(value)


class ChatContent:
    """Collects the text and calls of one streamed chat response.

    The protocol does not mark a call as complete, so calls are yielded at the end, without one
    that the token limit may have cut. Deviations that servers are known for are accepted and
    listed as repairs of the call: those of `read_arguments`, `object_arguments` (an object for a
    string of JSON), `repeated_arguments` (twice, or after an empty object). A server that
    announces calls and sends none, or sends them in a wrong field, is an infrastructure error, not
    an error of the model.

    Args:
        known: names of the tools, to distinguish a repeated name from a continued one.
        server: name of the server in error messages.
    """

    def __init__(self, known: Collection[str] = (), *, server: str = "the server") -> None:
        self._known = frozenset(known)
        self._server = server
        self._reason = ""
        self._misplaced: dict[str, str] = {}
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._calls: list[_PartialCall] = []
        self._has_ended = False
        self.result: ParseResult | None = None

    @property
    def raw_text(self) -> str:
        """The text and calls as the server sent them, not the raw output."""
        raws = (call.raw for call in sorted(self._calls, key=lambda call: call.place))
        return "\n".join(part for part in ["".join(self._text), *raws] if part)

    def has_token(self, choice: Mapping[str, Any]) -> bool:
        """Return True if the delta has text, thinking or a part of a call."""
        delta = typed(choice, "delta", dict) or {}
        return bool(delta.get("tool_calls")) or any(
            True
            for key in ("content", *_THINKING_KEYS)
            for _ in _content_deltas(delta.get(key), TextDelta)
        )

    def feed(self, choice: Mapping[str, Any]) -> Iterator[ParsedEvent]:
        """Yield text and thinking of a delta; calls follow at the end.

        Raises:
            StreamBrokenError: the delta is invalid, or comes after the end.
        """
        delta = typed(choice, "delta", dict) or {}
        if self._has_ended and self.has_token(choice):
            raise StreamBrokenError(
                "the server went on after the end: give --base-url of the server itself, without a "
                "proxy that changes its streams"
            )
        self._reason = self._reason or str(choice.get("finish_reason") or "")
        self._note_misplaced(choice, delta)
        thinking = (list(_content_deltas(delta.get(key), ThinkingDelta)) for key in _THINKING_KEYS)
        text = _content_deltas(delta.get("content"), TextDelta)
        for event in [*next(filter(None, thinking), []), *text]:
            (self._text if isinstance(event, TextDelta) else self._thinking).append(event.text)
            yield event
        for piece in typed(delta, "tool_calls", list) or ():
            if not isinstance(piece, dict):
                raise invalid_event(choice)
            self._call_for(piece).add(piece, self._known)

    def end(self) -> Iterator[ParsedEvent]:
        """Yield nothing: only `close` knows whether the last call was cut."""
        self._has_ended = True
        return iter(())

    def close(self, *, truncated: bool) -> Iterator[ParsedEvent]:
        """Yield the calls in order, without the last one if the response was cut.

        Raises:
            StreamBrokenError: the server announced calls and sent none, or sent text or calls
                only in fields that a stream does not have.
        """
        self._require_complete(truncated=truncated)
        partial_calls = sorted(self._calls, key=lambda call: call.place)
        cut = partial_calls.pop() if truncated and partial_calls else None
        calls = tuple(call.call() for call in partial_calls)
        text = "".join(self._text)
        self.result = ParseResult(
            text=text if text.strip() else "",
            calls=calls,
            fragment=cut.raw or "…" if cut else "",
            thinking="".join(self._thinking),
        )
        for call in calls:
            yield ToolCallParsed(call=call)

    def _note_misplaced(self, choice: Mapping[str, Any], delta: Mapping[str, Any]) -> None:
        """Note text and calls outside of the delta, and calls in the old format."""
        message = typed(choice, "message", dict) or {}
        legacy = typed(delta, "function_call", dict) or {}
        if any(legacy.values()):
            self._misplaced.setdefault("tool calls", "function_call")
        if message.get("tool_calls") or message.get("function_call"):
            self._misplaced.setdefault("tool calls", "message")
        if message.get("content"):
            self._misplaced.setdefault("text", "message")
        if choice.get("text"):  # a completion, not a chat
            self._misplaced.setdefault("text", "text")

    def _require_complete(self, *, truncated: bool) -> None:
        """Refuse an answer that has less than the server claims; see `close`.

        A response that the token limit cut may lack the call that it announces.
        """
        has_calls = any(not call.is_empty for call in self._calls)
        has_content = {"tool calls": has_calls, "text": bool(self._text)}
        for what, place in self._misplaced.items():
            if not has_content[what]:
                self._refuse(f"its {what} came in {place!r}, where a streamed answer has none")
        if self._reason in _CALL_REASONS and not has_calls and not truncated:
            self._refuse(f"its finish_reason is {self._reason!r}, but it has no tool calls")
        if not truncated and any(call.is_empty for call in self._calls):
            self._refuse("it has a tool call with neither a name nor arguments")

    def _refuse(self, why: str) -> NoReturn:
        raise StreamBrokenError(
            f"The answer of {self._server} is invalid: {why}. Correct the server's tool parser (or "
            "the proxy before it), or give a dialect of lhkit's own, such as --dialect json."
        )

    def _call_for(self, piece: Mapping[str, Any]) -> _PartialCall:
        """Return the call that a piece belongs to, a new one if it begins one."""
        index, call_id = whole_number(piece, "index"), _call_id(piece)
        has_name = bool((typed(piece, "function", dict) or {}).get("name"))
        call: _PartialCall | None
        if index is not None:
            call = next((call for call in reversed(self._calls) if call.place == index), None)
        elif call_id:
            call = next((call for call in self._calls if call.id == call_id), None)
        else:
            call = self._calls[-1] if self._calls else None
            if call is not None and has_name and (call.text or call.value is not None):
                call = None  # a piece without index and id that names a tool anew
        # Some servers give all calls the index 0; another id with a name begins another call.
        begins_another = call is not None and has_name and bool(call_id and call.id)
        if call is not None and not (begins_another and call_id != call.id):
            return call
        last = max((call.place for call in self._calls), default=-1)
        place = last + 1 if index is None or call is not None else index
        self._calls.append(_PartialCall(place=place))
        return self._calls[-1]
