"""Reads one streamed response: events out, and the evidence kept for the last of them.

No I/O: bytes come in through `feed`. What a chunk says is the business of a `Content`: text that
a dialect parses (`CompletionContent`), or deltas that the server has parsed (`chat_content`).
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from lhkit.errors import ServerFailedError, StreamBrokenError
from lhkit.models.dialects.parser import IncrementalParser, ParsedEvent, ParseResult
from lhkit.models.sse import (
    EventStreamDecoder,
    integers,
    no_completion,
    payload_of,
    typed,
    whole_number,
)
from lhkit.models.timing import Moments, Tokens
from lhkit.redaction import masked
from lhkit.responses import Finished, ModelEvent, ModelIdentity, TextDelta, ToolCallParsed, Usage

_DONE = "[DONE]"
_EVENT_LINE = re.compile(r"\s*(?:\{.*\}|\[DONE\])\s*")
"""A data line that may be all of an event."""
_BROKEN_OFF = {"abort", "error"}
"""Finish reasons of a response that the server gave up: it is not complete."""
_CUT = {"length", "content_filter"}
"""Finish reasons of a response that has an end, but not the model's own."""


class Content(Protocol):
    """What the choices of one response say."""

    @property
    def raw_text(self) -> str:
        """What the model produced, as far as the stream itself says."""
        ...

    @property
    def result(self) -> ParseResult | None:
        """The whole result; None before the end."""
        ...

    def has_token(self, choice: Mapping[str, Any]) -> bool:
        """Return True if the choice carries something that was generated."""
        ...

    def feed(self, choice: Mapping[str, Any]) -> Iterator[ParsedEvent]:
        """Yield what has become certain with this choice.

        Raises:
            StreamBrokenError: it says what it cannot say, or more comes after the end.
        """
        ...

    def end(self) -> Iterator[ParsedEvent]:
        """Yield what is certain now that the model has ended."""
        ...

    def close(self, *, truncated: bool) -> Iterator[ParsedEvent]:
        """Yield what is certain now that the token limit is known to have cut it, or not."""
        ...


class CompletionContent:
    """The choices of `/v1/completions`: plain text, which a dialect's parser reads as it comes."""

    def __init__(self, parser: IncrementalParser) -> None:
        self._parser = parser
        self._pieces: list[str] = []
        self._shown_chars = 0
        self._shown_calls = 0
        self.result: ParseResult | None = None

    @property
    def raw_text(self) -> str:
        """All of the text."""
        return "".join(self._pieces)

    def has_token(self, choice: Mapping[str, Any]) -> bool:
        """Return True if the choice has text."""
        return bool(choice.get("text"))

    def feed(self, choice: Mapping[str, Any]) -> Iterator[ParsedEvent]:
        """Yield what has become certain.

        Raises:
            StreamBrokenError: there is text after the end, or it is no text.
        """
        text = typed(choice, "text", str)
        if not text:
            return
        if self.result is not None:
            raise StreamBrokenError(
                "the server went on after the end: give --base-url of the server itself, without a "
                "proxy that changes its streams"
            )
        self._pieces.append(text)
        for event in self._parser.feed(text):
            if isinstance(event, TextDelta):
                self._shown_chars += len(event.text)
            elif isinstance(event, ToolCallParsed):
                self._shown_calls += 1
            yield event

    def end(self) -> Iterator[ParsedEvent]:
        """Yield what the parser held back, as soon as the model has ended."""
        self.result = self._parser.close()
        if rest := self.result.text[self._shown_chars :]:
            yield TextDelta(text=rest)
        for call in self.result.calls[self._shown_calls :]:
            yield ToolCallParsed(call=call)

    def close(self, *, truncated: bool) -> Iterator[ParsedEvent]:
        """Yield nothing: in the text itself every call is complete, or is a fragment."""
        return iter(())


class ResponseReader:
    """Collects one response. Times start at the last `sent`: the try that was answered.

    All that one chunk of bytes says happened when it arrived: the clock is read once for it.
    """

    def __init__(self, *, content: Content, max_tokens: int, clock: Callable[[], float]) -> None:
        self._content = content
        self._max_tokens = max_tokens
        self._clock = clock
        self._first_sent_s: float | None = None
        self._started_s = 0.0
        self._tries = 0
        self._last_data_s = 0.0
        self._decoder = EventStreamDecoder()
        self._moments = Moments()
        self._tokens = Tokens()
        self._choices = Tokens()
        self._token_ids: list[int] = []
        self._prompt_token_ids: tuple[int, ...] = ()
        self._reason = ""
        self._usage: Mapping[str, Any] = {}
        self._server_metrics: Mapping[str, Any] | None = None
        self.refused_fields: tuple[str, ...] = ()
        """Fields that the request went without, because the server refuses them."""

    @property
    def is_done(self) -> bool:
        """True once the server has said that nothing more comes."""
        return "done_s" in self._moments.firsts

    @property
    def max_tokens(self) -> int:
        """The most tokens that were asked for."""
        return self._max_tokens

    @property
    def silent_s(self) -> float:
        """Seconds since the last event; comments that keep a connection open do not count."""
        return self._now_s() - self._last_data_s

    def sent(self) -> None:
        """Note that the request is being sent, for the first time or once more."""
        now_s = self._clock()
        if self._first_sent_s is None:
            self._first_sent_s = now_s
        self._started_s = now_s
        self._tries += 1

    def headers_came(self) -> None:
        """Note the moment of the response headers."""
        self._last_data_s = self._now_s()
        self._moments.note("headers_s", self._last_data_s)

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
        for event in self._decoder.feed(chunk):
            lines = event.split("\n")
            # Some servers leave the blank lines out. An object never goes on after a line like
            # these, so that no event of several lines is taken for several events.
            are_events = all(_EVENT_LINE.fullmatch(line) for line in lines)
            for data in lines if are_events else [event]:
                if self.is_done:
                    return
                self._last_data_s = now_s
                self._moments.note("first_chunk_s", now_s)
                if data.strip() == _DONE:
                    yield from self.end(now_s)
                else:
                    yield from self.take(payload_of(data), now_s)

    def connection_ended(self) -> Iterator[ModelEvent]:
        """Yield what the last event says if it is the end and only lacks its blank line.

        Raises:
            ModelError: as `feed`.
        """
        pending = self._decoder.pending
        if pending and pending[-1].strip() == _DONE:
            yield from self.feed(b"\n\n")

    def finished(self, *, identity: ModelIdentity, prompt_text: str) -> Finished:
        """Return the last event.

        Raises:
            StreamBrokenError: if the stream ended before the server said that it was finished.
        """
        result = self._content.result
        if result is None or not self.is_done:
            raise StreamBrokenError(
                f"the stream ended early after {len(self._token_ids)} tokens: "
                "check that the server is alive"
            )
        # Where no ids say which chunks hold a token, each chunk with a choice counts as one.
        tokens = self._tokens if self._token_ids else self._choices
        ids = ",".join(map(str, self._prompt_token_ids))
        first_sent_s = self._started_s if self._first_sent_s is None else self._first_sent_s
        return Finished(
            reason=self._reason,
            text=masked(result.text),  # a key may come in several pieces
            calls=result.calls,
            fragment=result.fragment,
            truncated=self._is_truncated,
            usage=self._final_usage(),
            timing=self._moments.timing(
                tokens,
                retries=max(0, self._tries - 1),
                retried_s=self._started_s - first_sent_s,
            ),
            raw_text=masked(self._content.raw_text),
            token_ids=tuple(self._token_ids),
            prompt_token_ids=self._prompt_token_ids,
            prompt_text=prompt_text,
            prompt_sha256=hashlib.sha256(prompt_text.encode()).hexdigest(),
            prompt_ids_sha256=hashlib.sha256(ids.encode()).hexdigest() if ids else "",
            identity=identity,
            server_metrics=self._server_metrics,
            refused_fields=self.refused_fields,
        )

    def _now_s(self) -> float:
        return self._clock() - self._started_s

    @property
    def _is_truncated(self) -> bool:
        is_full = self._final_usage().completion_tokens >= self._max_tokens
        return self._reason in _CUT or is_full

    def end(self, now_s: float) -> Iterator[ModelEvent]:
        """Yield what is certain now that nothing more comes."""
        self._moments.note("done_s", now_s)
        if self._reason:
            rest = self._content.close(truncated=self._is_truncated)
            yield from self._noted(rest, now_s)

    def take(self, payload: Mapping[str, Any], now_s: float) -> Iterator[ModelEvent]:
        """Yield what one event of the stream says."""
        self._usage = typed(payload, "usage", dict) or self._usage
        self._server_metrics = typed(payload, "metrics", dict) or self._server_metrics
        self._note_prompt(payload)
        for choice in typed(payload, "choices", list) or ():
            if not isinstance(choice, dict):
                raise no_completion(payload)
            self._note_prompt(choice)
            self._note_tokens(choice, now_s)
            yield from self._noted(self._content.feed(choice), now_s)
            if reason := typed(choice, "finish_reason", str):
                yield from self._noted(self._ended(reason), now_s)

    def _note_prompt(self, source: Mapping[str, Any]) -> None:
        """Keep the prompt's ids: `/v1/completions` has them in the choice, chat beside it."""
        if prompt_token_ids := integers(source, "prompt_token_ids"):
            self._prompt_token_ids = tuple(prompt_token_ids)

    def _note_tokens(self, choice: Mapping[str, Any], now_s: float) -> None:
        """Note that something was generated.

        Where a server gives no token ids, a chunk with an empty text may hold a special token: as
        `vllm bench serve` does it (`benchmarks/lib/endpoint_request_func.py`, vLLM 0.32), each
        chunk with a choice counts then, and the tokens are those of `usage`.
        """
        token_ids = integers(choice, "token_ids")
        self._choices.note(now_s)
        if token_ids or self._content.has_token(choice):
            self._tokens.note(now_s)
            self._token_ids += token_ids

    def _ended(self, reason: str) -> Iterator[ParsedEvent]:
        if reason in _BROKEN_OFF:
            raise ServerFailedError(f"the server gave up ({reason}): look into its log, try again")
        if self._reason:
            return
        self._reason = reason
        yield from self._content.end()

    def _noted(self, events: Iterator[ParsedEvent], now_s: float) -> Iterator[ModelEvent]:
        for event in events:
            self._moments.note_event(event, now_s)
            yield event

    def _final_usage(self) -> Usage:
        details = typed(self._usage, "prompt_tokens_details", dict) or {}
        prompt_tokens = whole_number(self._usage, "prompt_tokens")
        completion_tokens = whole_number(self._usage, "completion_tokens")
        return Usage(
            prompt_tokens=len(self._prompt_token_ids) if prompt_tokens is None else prompt_tokens,
            completion_tokens=(
                len(self._token_ids) if completion_tokens is None else completion_tokens
            ),
            cached_tokens=whole_number(details, "cached_tokens"),
        )
