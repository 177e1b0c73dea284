"""Reads one streamed completion: events out, and the evidence kept for the last of them.

No I/O: bytes come in through `feed`. Source of the chunk format: vLLM's `/v1/completions` with
`return_token_ids` (one chunk a step, prompt ids in the first) and usage in a last chunk.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lhkit.errors import (
    ContextTooLongError,
    ModelError,
    ServerFailedError,
    ServerOverloadedError,
    StreamBrokenError,
)
from lhkit.models.dialects.base import IncrementalParser, ParsedEvent, ParseResult
from lhkit.models.http_faults import is_context_too_long, message_of
from lhkit.models.sse import EventStreamDecoder
from lhkit.vocab.generation import (
    Finished,
    ModelEvent,
    ModelIdentity,
    TextDelta,
    Timing,
    ToolCallParsed,
    Usage,
)

_DONE = "[DONE]"
_BROKEN_OFF = {"abort", "error"}
"""Finish reasons of a response that the server gave up: it is not complete."""


@dataclass(slots=True, kw_only=True)
class _Marks:
    """Moments of one response, in seconds since the request was sent."""

    headers_s: float | None = None
    first_chunk_s: float | None = None
    first_token_s: float | None = None
    first_text_s: float | None = None
    call_ready_s: float | None = None
    last_token_s: float | None = None
    done_s: float | None = None
    gaps_s: list[float] = field(default_factory=list)

    def note_token(self, now_s: float) -> None:
        if self.last_token_s is None:
            self.first_token_s = now_s
        else:
            self.gaps_s.append(now_s - self.last_token_s)
        self.last_token_s = now_s

    def note_event(self, event: ParsedEvent, now_s: float) -> None:
        match event:
            case TextDelta() if self.first_text_s is None:
                self.first_text_s = now_s
            case ToolCallParsed() if self.call_ready_s is None:
                self.call_ready_s = now_s

    def timing(self) -> Timing:
        return Timing(
            headers_s=self.headers_s,
            first_chunk_s=self.first_chunk_s,
            first_token_s=self.first_token_s,
            first_text_s=self.first_text_s,
            call_ready_s=self.call_ready_s,
            last_token_s=self.last_token_s,
            done_s=self.done_s,
            chunk_gaps_s=tuple(self.gaps_s),
        )


class CompletionReader:
    """Collects one response. Times start when it is made, just before the request is sent.

    All that one chunk of bytes says happened when it arrived: the clock is read once for it.
    """

    def __init__(
        self, *, parser: IncrementalParser, max_tokens: int, clock: Callable[[], float]
    ) -> None:
        self._parser = parser
        self._max_tokens = max_tokens
        self._clock = clock
        self._started_s = clock()
        self._last_data_s = 0.0
        self._decoder = EventStreamDecoder()
        self._marks = _Marks()
        self._pieces: list[str] = []
        self._shown_chars = 0
        self._token_ids: list[int] = []
        self._prompt_token_ids: tuple[int, ...] = ()
        self._reason = ""
        self._result: ParseResult | None = None
        self._usage: Mapping[str, Any] = {}
        self._server_metrics: Mapping[str, Any] | None = None

    @property
    def is_done(self) -> bool:
        """True once the server has said that nothing more comes."""
        return self._marks.done_s is not None

    @property
    def silent_s(self) -> float:
        """Seconds since the last event; comments that keep a connection open do not count."""
        return self._now_s() - self._last_data_s

    def headers_came(self) -> None:
        """Note the moment of the response headers."""
        self._marks.headers_s = self._last_data_s = self._now_s()

    def feed(self, chunk: bytes) -> Iterator[ModelEvent]:
        """Yield what the bytes say.

        Raises:
            ServerFailedError: the stream carries an error event, or the server gave up.
            ServerOverloadedError: that event says that the server is busy.
            ContextTooLongError: that event says that the prompt is too long.
            StreamBrokenError: this is not a stream of completions.
            UnicodeDecodeError: it is not even text.
        """
        now_s = self._now_s()
        for data in self._decoder.feed(chunk):
            if self.is_done:
                return
            self._last_data_s = now_s
            if self._marks.first_chunk_s is None:
                self._marks.first_chunk_s = now_s
            if data == _DONE:
                self._marks.done_s = now_s
            else:
                yield from self._take(_payload(data), now_s)

    def finished(
        self, *, identity: ModelIdentity, prompt_text: str, prompt_sha256: str
    ) -> Finished:
        """Return the last event.

        Raises:
            StreamBrokenError: if the stream ended before the server said that it was finished.
        """
        result = self._result
        if result is None or not self.is_done:
            raise StreamBrokenError(
                f"the stream ended early after {len(self._token_ids)} tokens: "
                "check that the server is alive"
            )
        usage = self._final_usage()
        return Finished(
            reason=self._reason,
            text=result.text,
            calls=result.calls,
            fragment=result.fragment,
            truncated=self._reason == "length" or usage.completion_tokens >= self._max_tokens,
            usage=usage,
            timing=self._marks.timing(),
            raw_text="".join(self._pieces),
            token_ids=tuple(self._token_ids),
            prompt_token_ids=self._prompt_token_ids,
            prompt_text=prompt_text,
            prompt_sha256=prompt_sha256,
            identity=identity,
            server_metrics=self._server_metrics,
        )

    def _now_s(self) -> float:
        return self._clock() - self._started_s

    def _take(self, payload: Mapping[str, Any], now_s: float) -> Iterator[ModelEvent]:
        self._usage = _typed(payload, "usage", dict) or self._usage
        self._server_metrics = _typed(payload, "metrics", dict) or self._server_metrics
        for choice in _typed(payload, "choices", list) or ():
            if not isinstance(choice, dict):
                raise _no_completion(payload)
            self._note_tokens(choice, now_s)
            yield from self._read(_typed(choice, "text", str) or "", now_s)
            if reason := _typed(choice, "finish_reason", str):
                yield from self._finish(reason, now_s)

    def _note_tokens(self, choice: Mapping[str, Any], now_s: float) -> None:
        if prompt_token_ids := _typed(choice, "prompt_token_ids", list):
            self._prompt_token_ids = tuple(prompt_token_ids)
        token_ids = _typed(choice, "token_ids", list) or []
        if token_ids or choice.get("text"):
            self._marks.note_token(now_s)
            self._token_ids += token_ids

    def _read(self, text: str, now_s: float) -> Iterator[ModelEvent]:
        if not text:
            return
        if self._result is not None:
            raise StreamBrokenError("the server went on after the end: check what it runs")
        self._pieces.append(text)
        for event in self._parser.feed(text):
            yield self._noted(event, now_s)

    def _finish(self, reason: str, now_s: float) -> Iterator[ModelEvent]:
        """Close the parser as soon as the model has ended, and yield what it held back."""
        if reason in _BROKEN_OFF:
            raise ServerFailedError(f"the server gave up ({reason}): look into its log, try again")
        if self._result is not None:
            return
        self._reason = reason
        self._result = self._parser.close()
        if rest := self._result.text[self._shown_chars :]:
            yield self._noted(TextDelta(text=rest), now_s)

    def _noted(self, event: ParsedEvent, now_s: float) -> ModelEvent:
        self._marks.note_event(event, now_s)
        if isinstance(event, TextDelta):
            self._shown_chars += len(event.text)
        return event

    def _final_usage(self) -> Usage:
        details = _typed(self._usage, "prompt_tokens_details", dict) or {}
        prompt_tokens = _typed(self._usage, "prompt_tokens", int)
        completion_tokens = _typed(self._usage, "completion_tokens", int)
        return Usage(
            prompt_tokens=len(self._prompt_token_ids) if prompt_tokens is None else prompt_tokens,
            completion_tokens=(
                len(self._token_ids) if completion_tokens is None else completion_tokens
            ),
            cached_tokens=_typed(details, "cached_tokens", int),
        )


def _payload(data: str) -> Mapping[str, Any]:
    """Return one event as a mapping.

    Raises:
        ModelError: it reports an error.
        StreamBrokenError: it is not a JSON object.
    """
    try:
        payload = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _no_completion(data) from error
    if not isinstance(payload, dict):
        raise _no_completion(data)
    if payload.get("error") or payload.get("object") == "error":
        raise _reported(payload, data)
    return payload


def _reported(payload: Mapping[str, Any], data: str) -> ModelError:
    said = message_of(data)
    error = payload.get("error")
    code = error.get("code") if isinstance(error, dict) else payload.get("code")
    if is_context_too_long(said):
        return ContextTooLongError(f"the conversation is too long: {said}; clear it")
    if code in {429, 503}:
        return ServerOverloadedError(f"the server is busy: {said}; try later or send less at once")
    return ServerFailedError(f"the server reported in its stream: {said}; look into its log")


def _typed(payload: Mapping[str, Any], key: str, kind: type) -> Any:
    """Return a member that is absent, null or of the type that a completion has there.

    Raises:
        StreamBrokenError: it is of another type.
    """
    value = payload.get(key)
    if value is not None and not isinstance(value, kind):
        raise _no_completion(payload)
    return value


def _no_completion(what_came: object) -> StreamBrokenError:
    return StreamBrokenError(
        f"the stream is not one of completions ({str(what_came)[:100]}): "
        "check that --base-url leads to a vLLM server"
    )
