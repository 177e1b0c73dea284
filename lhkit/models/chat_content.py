"""The choices of `/v1/chat/completions`: words and calls as the server parsed them.

Nothing in the protocol says that one call is complete before all of them are, so calls are
handed on at the very end, and never one that the token limit may have cut: servers close the
JSON of such a call, or name another reason. What a server does loosely is read, and listed as a
repair: `empty_arguments` ("" for {}), `object_arguments` (no string of JSON),
`repeated_arguments` (twice, or after an empty object), `malformed` (no JSON at all).

A server that announces calls and sends none, or sends them in a place that a stream does not
have, is broken: its answer must not count as a wrong one of the model.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from lhkit.errors import StreamBrokenError
from lhkit.json_values import json_or_repr, plain_json
from lhkit.messages import ToolCall
from lhkit.models.dialects.parser import ParsedEvent, ParseResult
from lhkit.models.sse import no_completion, typed, whole_number
from lhkit.responses import TextDelta, ThinkingDelta, ToolCallParsed

_THINKING_KEYS = ("reasoning", "reasoning_content")
_ANNOUNCING = frozenset({"tool_calls", "tool_call", "tool_use", "function_call"})
"""Finish reasons of a response that ends with calls; all but the first are other protocols'."""
_NO_ARGUMENTS: tuple[Any, ...] = ({}, None, "")
_THINKING_PARTS = frozenset({"thinking", "reasoning", "reasoning_content", "reasoning_text"})
_WORDLESS_PARTS = frozenset({"reference", "redacted_thinking"})
"""Types of parts of a content that have no text by design."""
_PARTS_DEPTH = 3
"""A content has parts, a thinking part has parts of its own, and these have a text."""


@dataclass(slots=True, kw_only=True)
class _CallParts:
    """One call as its pieces arrive; `place` is its index among the calls of the response."""

    place: int
    id: str = ""
    name: str = ""
    text: str = ""
    value: Any = None

    @property
    def raw(self) -> str:
        """The call as text, as far as it came."""
        given = "" if self.value is None else json_or_repr(self.value)
        return f"{self.name} {self.text}{given}".strip()

    @property
    def has_come(self) -> bool:
        """True if there is a name or an argument: not only an empty piece."""
        return bool(self.name or self.text.strip() or self.value is not None)

    def add(self, delta: Mapping[str, Any], known: Collection[str]) -> None:
        self.id = self.id or _id_of(delta)
        function = typed(delta, "function", dict) or {}
        name = typed(function, "name", str) or ""
        if name != self.name and self.name not in known:  # some servers repeat it in every piece
            self.name += name
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            self.text += arguments
        elif arguments or self.value is None:  # an empty object may also come after the whole one
            self.value = arguments

    def call(self) -> ToolCall:
        args, repairs = self._arguments()
        return ToolCall(name=self.name, args=args, raw=self.raw, repairs=repairs)

    def _arguments(self) -> tuple[Any, tuple[str, ...]]:
        """Return the arguments; what is no JSON stays text, which validation tells the model."""
        try:
            values = [plain_json(each) for each in _json_values(self.text)]
            if self.value is not None:
                values.append(plain_json(self.value))
            if not values:
                return {}, ("empty_arguments",)
            if len(values) > 1:
                return _same_object(values), ("repeated_arguments",)
        except (ValueError, RecursionError):
            return self.text or self.raw, ("malformed",)
        return values[0], () if self.value is None else ("object_arguments",)


def _json_values(text: str) -> Iterator[Any]:
    """Yield the JSON values that follow each other in `text`.

    Raises:
        ValueError: something else than JSON follows.
    """
    decoder = json.JSONDecoder()
    text = text.strip(" \t\r\n")
    at = 0
    while at < len(text):
        value, at = decoder.raw_decode(text, at)
        yield value
        while at < len(text) and text[at] in " \t\r\n":
            at += 1


def _same_object(values: Sequence[Any]) -> dict[str, Any]:
    """Return the one object that all values are, apart from empty ones.

    Raises:
        ValueError: they differ, so that none of them is certain.
    """
    # Compared as JSON texts, because Python takes 1, 1.0 and True for equal.
    distinct = {
        json.dumps(value, sort_keys=True): value for value in values if value not in _NO_ARGUMENTS
    }
    if not distinct:
        return {}
    first, *others = distinct.values()
    if others or not isinstance(first, dict):
        raise ValueError("the arguments are several values")
    return first


def _id_of(piece: Mapping[str, Any]) -> str:
    """Return the id of a call, which some servers count as integers; empty if there is none."""
    value = piece.get("id")
    if type(value) is int:
        return str(value)
    return typed(piece, "id", str) or ""


def _spoken(
    value: Any, kind: type[TextDelta] | type[ThinkingDelta], depth: int = _PARTS_DEPTH
) -> Iterator[TextDelta | ThinkingDelta]:
    """Yield what a content says, which is a text or a list of typed parts.

    Raises:
        StreamBrokenError: it is something else, or a part that has no words, such as an image.
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
            if text is None and not is_thinking and name not in _WORDLESS_PARTS:
                raise no_completion(value)
            yield from _spoken(text, ThinkingDelta if is_thinking else kind, depth - 1)
        elif part is not None:
            raise no_completion(value)


class ChatContent:
    """Collects one response that the server has parsed.

    Args:
        known: names of the tools, to tell a name that is repeated from one that goes on.
        server: how messages name the server.
    """

    def __init__(self, known: Collection[str] = (), *, server: str = "the server") -> None:
        self._known = frozenset(known)
        self._server = server
        self._reason = ""
        self._misplaced: dict[str, str] = {}
        self._words: list[str] = []
        self._thinking: list[str] = []
        self._calls: list[_CallParts] = []
        self._has_ended = False
        self.result: ParseResult | None = None

    @property
    def raw_text(self) -> str:
        """The words, and the calls as the server told them: not what the model wrote."""
        raws = (each.raw for each in sorted(self._calls, key=lambda each: each.place))
        return "\n".join(part for part in ["".join(self._words), *raws] if part)

    def has_token(self, choice: Mapping[str, Any]) -> bool:
        """Return True if the delta has words, thinking or a piece of a call."""
        delta = typed(choice, "delta", dict) or {}
        return bool(delta.get("tool_calls")) or any(
            True for key in ("content", *_THINKING_KEYS) for _ in _spoken(delta.get(key), TextDelta)
        )

    def feed(self, choice: Mapping[str, Any]) -> Iterator[ParsedEvent]:
        """Yield words and thinking; calls wait for the end.

        Raises:
            StreamBrokenError: it is no delta of a chat, or it comes after the end.
        """
        delta = typed(choice, "delta", dict) or {}
        if self._has_ended and self.has_token(choice):
            raise StreamBrokenError(
                "the server went on after the end: give --base-url of the server itself, without a "
                "proxy that changes its streams"
            )
        self._reason = self._reason or str(choice.get("finish_reason") or "")
        self._note_misplaced(choice, delta)
        thinking = (list(_spoken(delta.get(key), ThinkingDelta)) for key in _THINKING_KEYS)
        for event in [*next(filter(None, thinking), []), *_spoken(delta.get("content"), TextDelta)]:
            kept = self._words if isinstance(event, TextDelta) else self._thinking
            kept.append(event.text)
            yield event
        for piece in typed(delta, "tool_calls", list) or ():
            if not isinstance(piece, dict):
                raise no_completion(choice)
            self._parts_of(piece).add(piece, self._known)

    def end(self) -> Iterator[ParsedEvent]:
        """Yield nothing: whether the last call was cut is known at the close."""
        self._has_ended = True
        return iter(())

    def close(self, *, truncated: bool) -> Iterator[ParsedEvent]:
        """Yield the calls in order, without the last one if the response was cut.

        Raises:
            StreamBrokenError: the server announced calls and sent none, or words or calls came
                only where a stream has none.
        """
        self._require_whole(truncated=truncated)
        parts = sorted(self._calls, key=lambda each: each.place)
        cut = parts.pop() if truncated and parts else None
        calls = tuple(each.call() for each in parts)
        words = "".join(self._words)
        self.result = ParseResult(
            text=words if words.strip() else "",
            calls=calls,
            fragment=cut.raw or "…" if cut else "",
            thinking="".join(self._thinking),
        )
        for call in calls:
            yield ToolCallParsed(call=call)

    def _note_misplaced(self, choice: Mapping[str, Any], delta: Mapping[str, Any]) -> None:
        """Note words and calls outside of the delta, and calls in the form of before 2023."""
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

    def _require_whole(self, *, truncated: bool) -> None:
        """Refuse an answer that has less than the server claims; see `close`.

        A response that the token limit cut may have lost the call that it announces.
        """
        has_calls = any(each.has_come for each in self._calls)
        has_come = {"tool calls": has_calls, "text": bool(self._words)}
        for what, place in self._misplaced.items():
            if not has_come[what]:
                self._refuse(f"its {what} came in {place!r}, where a streamed answer has none")
        if self._reason in _ANNOUNCING and not has_calls and not truncated:
            self._refuse(f"its finish_reason is {self._reason!r}, but it has no tool calls")
        if not truncated and not all(each.has_come for each in self._calls):
            self._refuse("it has a tool call with neither a name nor arguments")

    def _refuse(self, why: str) -> NoReturn:
        raise StreamBrokenError(
            f"The answer of {self._server} is invalid: {why}. Correct the server's tool parser (or "
            "the proxy before it), or give a dialect of lhkit's own, such as --dialect json."
        )

    def _parts_of(self, piece: Mapping[str, Any]) -> _CallParts:
        """Return the call that a piece belongs to, a new one if it begins one."""
        index, its_id = whole_number(piece, "index"), _id_of(piece)
        if index is None:
            same = (each for each in self._calls if each.id == its_id)
            found = next(same, None) if its_id else self._last_unless_new(piece)
        else:
            found = next((each for each in reversed(self._calls) if each.place == index), None)
        if found is not None and not self._begins_another(found, piece, its_id):
            return found
        last = max((each.place for each in self._calls), default=-1)
        place = last + 1 if index is None or found is not None else index
        self._calls.append(_CallParts(place=place))
        return self._calls[-1]

    def _last_unless_new(self, piece: Mapping[str, Any]) -> _CallParts | None:
        """Return the last call, or None if a piece without index and id names a tool anew."""
        last = self._calls[-1] if self._calls else None
        names = bool((typed(piece, "function", dict) or {}).get("name"))
        has_arguments = last is not None and bool(last.text or last.value is not None)
        return None if names and has_arguments else last

    def _begins_another(self, found: _CallParts, piece: Mapping[str, Any], its_id: str) -> bool:
        """Return True for another id with a name: some servers give all calls the index 0."""
        names = bool((typed(piece, "function", dict) or {}).get("name"))
        return names and bool(its_id) and bool(found.id) and its_id != found.id
