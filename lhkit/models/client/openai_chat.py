"""Client of `/v1/chat/completions`, where the server parses tool calls.

For servers other than vLLM, and to compare lhkit's parsers with the server's. Extensions of vLLM
are sent to vLLM only.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from lhkit.base.errors import StreamBrokenError
from lhkit.base.json_values import compact
from lhkit.conversation.responses import TextDelta, ThinkingDelta, ToolCallParsed
from lhkit.models.base import ModelRequest
from lhkit.models.client.chat_pieces import CallPieces, TextPieces, join_values
from lhkit.models.client.client import Exchange, HttpModel
from lhkit.models.client.logprobs import TokenLogprob, chat_spans
from lhkit.models.client.request import chat_body, rendered_fields
from lhkit.models.client.response import ResponseReader
from lhkit.models.client.sse import invalid_event, typed
from lhkit.models.dialects.base import tool_names
from lhkit.models.dialects.parser import ParsedEvent, ParseResult, Span

_THINKING_KEYS = ("reasoning", "reasoning_content")
_CALL_REASONS = frozenset({"tool_calls", "tool_call", "tool_use", "function_call"})
"""Finish reasons of a response that ends with calls; all but the first are of other protocols."""
_ECHOED_KEYS = ("reasoning_content", "reasoning_details", "thinking_blocks", "extra_content")
"""Fields of a message with calls that servers want back. Not `reasoning`: those who send it refuse
it, or do not need it."""
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
            logprobs=request.logprobs,
        )
        prompt = compact(rendered_fields(body))
        return Exchange(path="/v1/chat/completions", body=body, prompt=prompt, reader=reader)


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
    string of JSON), `repeated_arguments` (twice, or after an empty object), `cumulative_arguments`
    (every piece repeats the ones before). A server that announces calls and sends none, or sends
    them in a wrong field, is an infrastructure error, not an error of the model.

    Args:
        known: names of the tools, to distinguish a repeated name from a continued one.
        server: name of the server in error messages.
    """

    def __init__(self, known: Collection[str] = (), *, server: str = "the server") -> None:
        self._server = server
        self._reason = ""
        self._misplaced: dict[str, str] = {}
        self._text = TextPieces()
        self._thinking = TextPieces()
        self._calls = CallPieces(known)
        self._echo: defaultdict[str, list[Any]] = defaultdict(list)
        self._is_refusal = False
        self._has_ended = False
        self.result: ParseResult | None = None

    @property
    def raw_text(self) -> str:
        """The text and calls as the server sent them, not the raw output."""
        raws = (call.raw for call in self._calls.calls)
        return "\n".join(part for part in [self._text.text, *raws] if part)

    @property
    def notes(self) -> tuple[str, ...]:
        """Codes of what deviates from an ordinary answer; see `Finished`."""
        is_cumulative = self._text.is_cumulative or self._thinking.is_cumulative
        codes = {"refusal": self._is_refusal, "cumulative_text": is_cumulative}
        return tuple(code for code, is_noted in codes.items() if is_noted)

    def output(self, tokens: Sequence[TokenLogprob]) -> tuple[str, Sequence[Span | None]]:
        """Return the model's output, and the place of each call in it."""
        partial_calls = self._calls.calls
        others = f"{self._text.text}{self._thinking.text}".strip()
        is_only_call = len(partial_calls) == 1 and not others
        count = 0 if self.result is None else len(self.result.calls)  # without one that is cut
        calls = [(call.name, call.sent_arguments) for call in partial_calls[:count]]
        return chat_spans(tokens, calls, is_only_call=is_only_call)

    def has_token(self, choice: Mapping[str, Any]) -> bool:
        """Return True if the delta has text, thinking or a part of a call."""
        delta = typed(choice, "delta", dict) or {}
        return bool(delta.get("tool_calls")) or any(
            True
            for key in ("content", "refusal", *_THINKING_KEYS)
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
        refusal = _content_deltas(self._refusal(choice, delta), TextDelta)
        for event in [*next(filter(None, thinking), []), *text, *refusal]:
            yield from self._add(event)
        pieces = delta.get("tool_calls") or ()
        pieces = [pieces] if isinstance(pieces, dict) else pieces
        if not isinstance(pieces, list | tuple) or not all(
            isinstance(piece, dict) for piece in pieces
        ):
            raise invalid_event(choice)
        self._calls.feed(pieces)
        for key in _ECHOED_KEYS:
            if delta.get(key) is not None:
                self._echo[key].append(delta[key])

    def end(self) -> Iterator[ParsedEvent]:
        """Yield the text that was held back; only `close` knows whether the last call was cut."""
        self._has_ended = True
        if thinking := self._thinking.close():
            yield ThinkingDelta(text=thinking)
        if text := self._text.close():
            yield TextDelta(text=text)

    def close(self, *, truncated: bool) -> Iterator[ParsedEvent]:
        """Yield the calls in order, without the last one if the response was cut.

        Raises:
            StreamBrokenError: the server announced calls and sent none, or sent text or calls
                only in fields that a stream does not have.
        """
        self._require_complete(truncated=truncated)
        self._calls.close()
        partial_calls = list(self._calls.calls)
        cut = partial_calls.pop() if truncated and partial_calls else None
        calls = [call.call() for call in partial_calls]
        if calls and self._echo:
            first = -1 if self._thinking.is_cumulative else 0
            fields = {key: join_values(values[first:]) for key, values in self._echo.items()}
            calls[0] = replace(calls[0], echo={**(calls[0].echo or {}), "message": fields})
        text = self._text.text
        self.result = ParseResult(
            text=text if text.strip() else "",
            calls=tuple(calls),
            fragment=cut.raw or "…" if cut else "",
            thinking=self._thinking.text,
        )
        for call in calls:
            yield ToolCallParsed(call=call)

    def _add(self, event: TextDelta | ThinkingDelta) -> Iterator[ParsedEvent]:
        """Yield the part of the event's text that is certain."""
        is_text = isinstance(event, TextDelta)
        if certain := (self._text if is_text else self._thinking).add(event.text):
            yield TextDelta(text=certain) if is_text else ThinkingDelta(text=certain)

    def _refusal(self, choice: Mapping[str, Any], delta: Mapping[str, Any]) -> Any:
        """Return the text with which the model refuses, which is its reply."""
        message = typed(choice, "message", dict) or {}
        refusal = delta.get("refusal") or ("" if self._is_refusal else message.get("refusal"))
        content = delta.get("content")
        parts = content if isinstance(content, list) else [content]
        is_part = any(isinstance(part, dict) and part.get("type") == "refusal" for part in parts)
        self._is_refusal = self._is_refusal or bool(refusal) or is_part
        return refusal

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
        calls = self._calls.calls
        has_calls = any(not call.is_empty for call in calls)
        has_content = {"tool calls": has_calls, "text": bool(self._text.text)}
        for what, place in self._misplaced.items():
            if not has_content[what]:
                self._refuse(f"its {what} came in {place!r}, where a streamed answer has none")
        if self._reason in _CALL_REASONS and not has_calls and not truncated:
            self._refuse(f"its finish_reason is {self._reason!r}, but it has no tool calls")
        if not truncated and any(call.is_empty for call in calls):
            self._refuse("it has a tool call with neither a name nor arguments")

    def _refuse(self, why: str) -> NoReturn:
        raise StreamBrokenError(
            f"The answer of {self._server} is invalid: {why}. Correct the server's tool parser (or "
            "the proxy before it), or give a dialect of lhkit's own, such as --dialect json."
        )
