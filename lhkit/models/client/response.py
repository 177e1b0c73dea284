"""Read one streamed response: yield events, collect data for `Finished`.

No I/O: bytes are passed to `feed`. A `Content` reads the choices: text that a dialect parses
(`CompletionContent`), or deltas that the server has parsed (`openai_chat.ChatContent`).
"""

import hashlib
import json
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from lhkit.base.errors import ServerFailedError, StreamBrokenError
from lhkit.base.redaction import masked
from lhkit.conversation.messages import ToolCall
from lhkit.conversation.responses import (
    Finished,
    ModelEvent,
    ModelIdentity,
    TextDelta,
    ToolCallParsed,
    Usage,
)
from lhkit.models.client.chat_pieces import TextPieces, has_stray_bytes
from lhkit.models.client.errors import LOGPROBS, reported_error, require_no_error
from lhkit.models.client.logprobs import TokenLogprob, add_logprobs, read_tokens
from lhkit.models.client.sse import (
    EventStreamDecoder,
    integers,
    invalid_event,
    parse_payload,
    typed,
    whole_number,
)
from lhkit.models.client.timing import ChunkTimes, FirstTimes
from lhkit.models.dialects.parser import IncrementalParser, ParsedEvent, ParseResult, Span

_DONE = "[DONE]"
_EVENT_LINE = re.compile(r"\s*(?:\{.*\}|\[DONE\])\s*")
"""A data line that may be a whole event."""
_NO_CONTENT = frozenset({"id", "index", "name", "object", "role", "status", "type"})
"""Fields of a delta that a server may repeat although the model generates nothing."""
_ABORTED = {"abort", "error"}
"""Finish reasons of a response that the server gave up."""
_CUT = {"length", "content_filter"}
"""Finish reasons of a response that the model did not end itself."""


class Content(Protocol):
    """Reads the choices of one response."""

    @property
    def raw_text(self) -> str:
        """The model's output received so far."""
        ...

    @property
    def result(self) -> ParseResult | None:
        """The whole result; None before the end."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Codes of what deviates from an ordinary answer; see `Finished`."""
        ...

    def output(self, tokens: Sequence[TokenLogprob]) -> tuple[str, Sequence[Span | None]]:
        """Return the model's output that these tokens are of, and the place of each call in it."""
        ...

    def has_token(self, choice: Mapping[str, Any]) -> bool:
        """Return True if the choice has generated content."""
        ...

    def feed(self, choice: Mapping[str, Any]) -> Iterable[ParsedEvent]:
        """Return the events that a choice completes.

        Raises:
            StreamBrokenError: the choice is invalid, or comes after the end.
        """
        ...

    def end(self) -> Iterator[ParsedEvent]:
        """Yield the events that the end of the generation completes."""
        ...

    def close(self, *, truncated: bool) -> Iterator[ParsedEvent]:
        """Yield the remaining events, once it is known whether the response was cut."""
        ...


class CompletionContent:
    """Reads the text of `/v1/completions` with a dialect's parser."""

    def __init__(self, parser: IncrementalParser) -> None:
        self._parser = parser
        self._pieces = TextPieces(may_repeat=False)
        self._shown_chars = 0
        self._shown_calls = 0
        self.result: ParseResult | None = None

    @property
    def raw_text(self) -> str:
        """The text received so far."""
        return self._pieces.text

    @property
    def notes(self) -> tuple[str, ...]:
        """No codes: the text is what the model wrote."""
        return ()

    def output(self, tokens: Sequence[TokenLogprob]) -> tuple[str, Sequence[Span | None]]:
        """Return the text, and the place of each call in it."""
        return self._pieces.text, () if self.result is None else self.result.spans

    def has_token(self, choice: Mapping[str, Any]) -> bool:
        """Return True if the choice has text."""
        return bool(choice.get("text"))

    def feed(self, choice: Mapping[str, Any]) -> Sequence[ParsedEvent]:
        """Return the events that a choice completes.

        Raises:
            StreamBrokenError: the text is invalid, or comes after the end.
        """
        text = typed(choice, "text", str)
        if not text:
            return ()
        if self.result is not None:
            raise StreamBrokenError(
                "the server went on after the end: give --base-url of the server itself, without a "
                "proxy that changes its streams"
            )
        return self._feed(self._pieces.add(text))

    def _feed(self, text: str) -> Sequence[ParsedEvent]:
        events = self._parser.feed(text)
        for event in events:
            if isinstance(event, TextDelta):
                self._shown_chars += len(event.text)
            elif isinstance(event, ToolCallParsed):
                self._shown_calls += 1
        return events

    def end(self) -> Iterator[ParsedEvent]:
        """Yield the text and calls that the parser still buffers."""
        yield from self._feed(self._pieces.close())
        self.result = self._parser.close()
        if rest := self.result.text[self._shown_chars :]:
            yield TextDelta(text=rest)
        for call in self.result.calls[self._shown_calls :]:
            yield ToolCallParsed(call=call)

    def close(self, *, truncated: bool) -> Iterator[ParsedEvent]:
        """Yield nothing: the parser knows by itself which calls are complete."""
        return iter(())


class ResponseReader:
    """Collects one response.

    Times count from the last `mark_sent`, the attempt that succeeded. The clock is read once for
    each chunk of bytes.

    `control_ids` are tokens of which every prompt of the dialect has some; a server that reports a
    prompt without them has another tokenizer. With `logprobs` the calls of `finished` have the
    log-probabilities that the server reports.
    """

    def __init__(
        self,
        *,
        content: Content,
        max_tokens: int,
        clock: Callable[[], float],
        control_ids: Sequence[int] = (),
        logprobs: bool = False,
    ) -> None:
        self._content = content
        self._wants_logprobs = logprobs
        self._logprobs: list[TokenLogprob] = []
        self._control_ids = frozenset(control_ids)
        self._max_tokens = max_tokens
        self._clock = clock
        self._first_sent_s: float | None = None
        self._started_s = 0.0
        self._attempts = 0
        self._last_progress_s = 0.0
        self._prompt_progress: Any = None
        self._decoder = EventStreamDecoder()
        self._first_times = FirstTimes()
        self._token_times = ChunkTimes()
        self._choice_times = ChunkTimes()
        self._token_ids: list[int] = []
        self._prompt_token_ids: tuple[int, ...] = ()
        self._reason = ""
        self._usage: Mapping[str, Any] = {}
        self._server_metrics: Mapping[str, Any] | None = None
        self._index: int | None = None  # the lowest one of the choices
        self._others: list[Mapping[str, Any]] = []  # choices of that index, if it is not 0
        self._has_others = False
        self.refused_fields: tuple[str, ...] = ()
        """Fields that were left out of the request, because the server refuses them."""

    @property
    def is_done(self) -> bool:
        """True once the server has ended the stream."""
        return "done_s" in self._first_times.times

    @property
    def max_tokens(self) -> int:
        """The token limit of the request."""
        return self._max_tokens

    @property
    def silent_s(self) -> float:
        """Seconds without progress.

        Progress is a part of the answer, a token, the end, or a count that grows (usage, progress
        of the prompt). Comments and events without any of these only keep the connection alive.
        """
        return self._now_s() - self._last_progress_s

    def mark_sent(self) -> None:
        """Record that the request is being sent or retried."""
        now_s = self._clock()
        if self._first_sent_s is None:
            self._first_sent_s = now_s
        self._started_s = now_s
        self._attempts += 1

    def mark_headers(self) -> None:
        """Record the arrival of the response headers."""
        self._last_progress_s = self._now_s()
        self._first_times.record("headers_s", self._last_progress_s)

    def feed(self, chunk: bytes) -> Iterator[ModelEvent]:
        """Yield the events in a chunk of bytes.

        Raises:
            ServerFailedError: the stream has an error event, the server gave up, or its tokenizer
                is not of the dialect's family.
            ServerOverloadedError: an error event reports that the server is busy.
            ContextTooLongError: an error event reports that the prompt is too long.
            StreamBrokenError: this is not a stream of completions.
            UnicodeDecodeError: this is not UTF-8.
        """
        now_s = self._now_s()
        for event in self._decoder.feed(chunk):
            lines = event.split("\n")
            # Some servers leave the blank lines out. An object never continues after a line like
            # these, so that an event of several lines is not read as several events.
            if len(lines) > 1 and not all(map(_EVENT_LINE.fullmatch, lines)):
                lines = [event]
            for data in lines:
                if self.is_done:
                    return
                self._first_times.record("first_chunk_s", now_s)
                if data.strip() == _DONE:
                    events = self.end(now_s)
                else:
                    events = self.feed_payload(parse_payload(data), now_s)
                for parsed in events:
                    self._first_times.record_event(parsed, now_s)
                    yield parsed

    def feed_end(self) -> Iterator[ModelEvent]:
        """Yield the last event of a closed connection if it lacks its blank line.

        Raises:
            ModelError: as `feed`; also for an error that is the whole answer.
        """
        pending = self._decoder.pending
        if pending and pending[-1].strip() == _DONE:
            yield from self.feed(b"\n\n")
        if not self.is_done:
            require_no_error(self._decoder.rest, "answer")

    def finished(self, *, identity: ModelIdentity, prompt_text: str) -> Finished:
        """Return the last event.

        Raises:
            StreamBrokenError: the connection closed before the server ended the stream.
            UnicodeDecodeError: a part of a character has no other part.
        """
        result = self._content.result
        if result is None or not self.is_done:
            raise StreamBrokenError(
                f"the stream ended early after {len(self._token_ids)} tokens: "
                "check that the server is alive"
            )
        if self._decoder.decode_error and has_stray_bytes(self._content.raw_text + result.thinking):
            raise self._decoder.decode_error
        # Without token ids, each chunk with a choice counts as a token.
        token_times = self._token_times if self._token_ids else self._choice_times
        first_sent_s = self._started_s if self._first_sent_s is None else self._first_sent_s
        calls, note = self._with_logprobs(result)
        return Finished(
            reason=self._reason,
            text=masked(result.text),  # a key may be split over several chunks
            calls=calls,
            fragment=result.fragment,
            truncated=self._is_truncated,
            usage=self._final_usage(),
            timing=self._first_times.timing(
                token_times,
                retries=max(0, self._attempts - 1),
                retried_s=self._started_s - first_sent_s,
            ),
            raw_text=masked(self._content.raw_text),
            token_ids=tuple(self._token_ids),
            prompt_token_ids=self._prompt_token_ids,
            prompt_text=prompt_text,
            prompt_sha256=hashlib.sha256(prompt_text.encode()).hexdigest(),
            prompt_ids_sha256=_ids_sha256(self._prompt_token_ids),
            identity=identity,
            server_metrics=self._server_metrics,
            refused_fields=self.refused_fields,
            notes=(
                *self._content.notes,
                *(["other_choices"] if self._has_others else []),
                *([note] if note else []),
            ),
        )

    def _now_s(self) -> float:
        return self._clock() - self._started_s

    @property
    def _is_truncated(self) -> bool:
        is_full = self._final_usage().completion_tokens >= self._max_tokens
        return self._reason in _CUT or (is_full and not self._has_others)  # they count together

    def end(self, now_s: float) -> Iterator[ParsedEvent]:
        """Yield the remaining events at the end of the stream."""
        for choice in self._others:
            yield from self._feed_choice(choice, now_s)
        self._first_times.record("done_s", now_s)
        if self._reason:
            yield from self._content.close(truncated=self._is_truncated)

    def feed_payload(self, payload: Mapping[str, Any], now_s: float) -> Iterator[ParsedEvent]:
        """Yield the events in one parsed event of the stream."""
        usage, prompt_progress = self._usage, payload.get("prompt_progress")  # of llama.cpp
        self._usage = typed(payload, "usage", dict) or usage
        if self._usage != usage or (prompt_progress and prompt_progress != self._prompt_progress):
            self._last_progress_s = now_s
            self._prompt_progress = prompt_progress
        self._server_metrics = typed(payload, "metrics", dict) or self._server_metrics
        self._read_prompt_ids(payload)
        for choice in typed(payload, "choices", list) or ():
            if not isinstance(choice, dict):
                raise invalid_event(payload)
            if choice.get("token_ids") or choice.get("finish_reason") or _has_content(choice):
                self._last_progress_s = now_s
            if self._is_first(choice):
                yield from self._feed_choice(choice, now_s)

    def _is_first(self, choice: Mapping[str, Any]) -> bool:
        """Return True for the choice of index 0; keep those of the lowest one until it comes."""
        index = max(0, whole_number(choice, "index") or 0)
        self._has_others = self._has_others or self._index not in {None, index}
        if self._index is None or index < self._index:
            self._index, self._others = index, []
        if 0 < index == self._index:
            self._others.append(choice)
        return index == 0

    def _feed_choice(self, choice: Mapping[str, Any], now_s: float) -> Iterator[ParsedEvent]:
        if choice.get("error"):
            raise reported_error(choice, json.dumps({"error": choice["error"]}), "stream")
        self._read_prompt_ids(choice)
        self._read_tokens(choice, now_s)
        if self._wants_logprobs:
            self._read_logprobs(choice)
        yield from self._content.feed(choice)
        if reason := typed(choice, "finish_reason", str):
            yield from self._end_generation(reason)

    def _read_prompt_ids(self, source: Mapping[str, Any]) -> None:
        """Keep the prompt's token ids, from a choice (completions) or event (chat).

        Raises:
            ServerFailedError: the tokenizer is not of the dialect's family.
        """
        if prompt_token_ids := integers(source, "prompt_token_ids"):
            self._prompt_token_ids = tuple(prompt_token_ids)
            if self._control_ids and self._control_ids.isdisjoint(prompt_token_ids):
                raise ServerFailedError(
                    "the server's tokenizer does not know the control tokens of this dialect, so "
                    "that the model cannot read the prompt: serve a Gemma with its own tokenizer, "
                    "leave --dialect out to take that of the model's family, or choose openai"
                )

    def _read_tokens(self, choice: Mapping[str, Any], now_s: float) -> None:
        """Keep the token ids of a choice and its time.

        If a server sends no token ids, a chunk with an empty text may contain a special token:
        then each chunk with a choice counts, as in `vllm bench serve`
        (`benchmarks/lib/endpoint_request_func.py`, vLLM 0.32), and `usage` has the token count.
        """
        token_ids = integers(choice, "token_ids")
        self._choice_times.record(now_s)
        if token_ids or self._content.has_token(choice):
            self._token_times.record(now_s)
            self._token_ids += token_ids

    def _read_logprobs(self, choice: Mapping[str, Any]) -> None:
        """Keep the log-probabilities of a choice.

        llama.cpp omits those of a token that is not the last part of its character. It counts all.
        """
        tokens = list(read_tokens(choice))
        count = choice.get("token_count")
        if tokens and type(count) is int:
            omitted = min(count, self._max_tokens) - len(self._logprobs) - len(tokens)
            self._logprobs += [TokenLogprob(text=b"", logprob=None)] * omitted
        self._logprobs += tokens

    def _with_logprobs(self, result: ParseResult) -> tuple[tuple[ToolCall, ...], str]:
        """Return the calls with their log-probabilities, and a code if one of them has none."""
        if not self._wants_logprobs or not result.calls:
            return result.calls, ""
        if not any(token.logprob is not None for token in self._logprobs):
            is_refused = not {*LOGPROBS}.isdisjoint(self.refused_fields)  # which is logged
            return result.calls, "" if is_refused else "no_logprobs"
        calls = result.calls
        # each token but the one that ended the response, which some servers leave out
        if len(self._logprobs) >= self._final_usage().completion_tokens - 1:
            calls = add_logprobs(calls, self._logprobs, *self._content.output(self._logprobs))
        is_incomplete = any(call.min_logprob is None for call in calls)
        return calls, "incomplete_logprobs" if is_incomplete else ""

    def _end_generation(self, reason: str) -> Iterator[ParsedEvent]:
        if reason in _ABORTED:
            raise ServerFailedError(f"the server gave up ({reason}): look into its log, try again")
        if self._reason:
            return
        self._reason = reason
        yield from self._content.end()

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


def _ids_sha256(token_ids: Sequence[int]) -> str:
    """Return the hash of token ids; empty without ids.

    Raises:
        StreamBrokenError: an id is not a number of 64 bits.
    """
    if not token_ids:
        return ""
    try:
        packed = struct.pack(f"<{len(token_ids)}q", *token_ids)
    except struct.error as error:
        raise invalid_event({"prompt_token_ids": token_ids}) from error
    return hashlib.sha256(packed).hexdigest()


def _has_content(choice: Mapping[str, Any]) -> bool:
    """Return whether a choice has a part of an answer, such as a text or arguments of a call."""
    waiting: list[Any] = [choice.get(key) for key in ("text", "delta", "message")]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += (inner for key, inner in value.items() if key not in _NO_CONTENT)
        elif isinstance(value, list):
            waiting += value
        elif value not in (None, "") and not isinstance(value, bool):
            return True
    return False
