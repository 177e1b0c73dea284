"""HTTP to a model server: connection, faults, retries, server-sent events, a stream's times."""

import asyncio
import hashlib
import json
import logging
import random
import re
import time
import zlib
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Protocol

import yarl
from multidict import CIMultiDict, CIMultiDictProxy

from lhkit.errors import (
    ContextTooLongError,
    ModelError,
    RequestRefusedError,
    ServerFailedError,
    ServerOverloadedError,
    ServerUnreachableError,
    StreamBrokenError,
    StreamStalledError,
    UnknownModelError,
    UsageError,
)
from lhkit.messages import (
    Finished,
    ModelEvent,
    ModelIdentity,
    TextDelta,
    Timing,
    ToolCallParsed,
    Usage,
)
from lhkit.models.dialects.base import Constraint, ParsedEvent, ParseResult
from lhkit.models.gguf_serving import BUILD_ALIAS
from lhkit.models.serving import dtype_told, sha256_of
from lhkit.redaction import MASK, hide, masked

_log = logging.getLogger(__name__)

# When a request may be sent again, and after how long: only before any answer began. Pure.
#
# A loop of our own: retry libraries wrap a call, but here the response that finally came must stay
# open and each failed try must be told in the record.
#
# Sources: full jitter and doubling as in AWS's "Exponential Backoff And Jitter"; `Retry-After` in
# seconds, RFC 9110 §10.2.3 (its date form is not obeyed: no wall clock here).


_BUSY = frozenset({429, 503})
_GATEWAY = frozenset({502, 504})


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How often and how long. `longest_s` bounds one pause, `total_s` all of one request.

    A run has second tries of its own (`replay`'s `max_attempts`, 3): they play a whole sample again
    after these have failed. So one request is sent nine times at most.
    """

    retries: int = 2
    first_s: float = 0.5
    longest_s: float = 10.0
    total_s: float = 20.0

    def pause_s(
        self, failure: BaseException | None, *, failed: int, paused_s: float, rng: random.Random
    ) -> float | None:
        """Return how long to wait before the next try, None if there must be none.

        Args:
            failure: what aiohttp said of the try; None for a fault that it knows nothing of.
            failed: tries that have failed, this one included.
            paused_s: seconds already waited for this request.
            rng: where the jitter comes from.
        """
        if failed > self.retries or not may_pass(failure):
            return None
        asked_s = _retry_after_s(failure)
        ceiling_s = min(self.longest_s, self.first_s * 2 ** (failed - 1))
        pause_s = ceiling_s * rng.uniform(0.5, 1.0) if asked_s is None else asked_s
        is_too_long = pause_s > self.longest_s or paused_s + pause_s > self.total_s
        return None if is_too_long else pause_s


def may_pass(failure: BaseException | None) -> bool:
    """Return True for what another try may mend: refused, reset, too busy, a gateway's trouble.

    The server has generated nothing then, or nothing that anybody saw. An unknown host name, a
    bad certificate, a time-out and every other status stay what they are.
    """
    import aiohttp

    match failure:
        case aiohttp.ClientConnectorDNSError() | aiohttp.ClientSSLError():
            return False
        case aiohttp.ClientResponseError(status=status):
            return status in _BUSY or status in _GATEWAY
        case aiohttp.ClientOSError() | aiohttp.ServerDisconnectedError():
            return True
        case _:
            return False


def _retry_after_s(failure: BaseException | None) -> float | None:
    import aiohttp

    if not isinstance(failure, aiohttp.ClientResponseError) or failure.headers is None:
        return None
    told = failure.headers.get("Retry-After", "").strip()
    return float(told) if told.isascii() and told.isdigit() else None


# What goes wrong between us and a server, as typed exceptions with a sentence each.
#
# Each sentence names the thing and the next step.


_SHOWN_CHARS = 300
_NO_SUCH_MODEL = re.compile(r"model\b.*(?:does not exist|not found)", re.IGNORECASE)
_NO_PARSER = re.compile(r"tool choice requires .*--tool-call-parser", re.IGNORECASE)
_TOO_LONG = re.compile(r"context (?:length|size)|maximum model length", re.IGNORECASE)
_PAGE = re.compile(r"\s*<(?:!doctype|html)\b", re.IGNORECASE)
"""How an answer begins that a web server or proxy gives, for a browser."""


@contextmanager
def transport_faults(address: str) -> Iterator[None]:
    """Turn aiohttp's exceptions into ours.

    Raises:
        UsageError: `address` is no address.
        ServerUnreachableError: nothing listens there, or the name is unknown.
        StreamStalledError: silence for longer than the idle limit.
        StreamBrokenError: the connection ended early, or what came was not UTF-8.
    """
    import aiohttp

    try:
        yield
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
        raise no_address(address) from error
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        raise ServerUnreachableError(
            f"nothing answers at {address}: start a server (`lhkit serve`) or correct --base-url"
        ) from error
    except TimeoutError as error:
        raise stalled(address) from error
    except (aiohttp.ClientError, OSError) as error:
        raise StreamBrokenError(
            f"the connection to {address} broke off ({type(error).__name__}): "
            "check that the server is alive"
        ) from error
    except UnicodeDecodeError as error:
        raise not_a_server(address, str(error)) from error


def no_address(address: str) -> UsageError:
    """Return the exception for what is no address at all."""
    return UsageError(f"{address!r} is no address of a server: give --base-url http://HOST:PORT")


def stalled(address: str) -> StreamStalledError:
    """Return the exception for a server that is silent for too long."""
    return StreamStalledError(
        f"{address} sent nothing for too long: see in its log whether it is overloaded or stuck"
    )


def not_a_server(address: str, what_came: str) -> StreamBrokenError:
    """Return the exception for an answer that no server of ours would give."""
    return StreamBrokenError(
        f"{address} answered with something else than expected ({_short(what_came)}): "
        "check that --base-url leads to an OpenAI-compatible server"
    )


def refusal(status: int, text: str) -> ModelError:
    """Return the exception for an HTTP status other than 200."""
    said = message_of(text)
    _, fault, what, advice = next(row for row in _REFUSALS if row[0](status, said))
    told = f"{what} (HTTP {status}): {said}" if said else f"{what} (HTTP {status})"
    error = fault(f"{told}; {advice}")
    if isinstance(error, RequestRefusedError) and status in {400, 422}:
        error.field = refused_field(text)
    return error


def is_context_too_long(said: str) -> bool:
    """Return True if a server's message says that the prompt exceeds the model's context."""
    return _TOO_LONG.search(said) is not None


def has_no_parser(said: str) -> bool:
    """Return True if a server's message says that it does not parse calls (vLLM 0.32's words)."""
    return _NO_PARSER.search(said) is not None


def message_of(text: str) -> str:
    """Return the human part of an error body, shortened; nothing of a page for browsers."""
    try:
        payload: Any = json.loads(text)
    except (ValueError, RecursionError):
        payload = None
    if isinstance(payload, dict):
        error = payload.get("error") or payload
        said = error.get("message") or error.get("detail") if isinstance(error, dict) else None
        text = str(said or error)
    return "" if _PAGE.match(text) else _short(text)


# Which request field a server does not support, by the words of its refusal. A refusal that only
# names a field (its value is too large, a tool has an argument of that name) is none of these.


_UNKNOWN_FIELD = (  # Unrecognized request argument supplied: stream_options
    r"(?:unsupported|unrecogni[sz]ed|unknown|unexpected|extra|does not support|not supported)"
    r"(?: \w+){0,2}? (?:parameter|argument|field|name|property|key|input|option)s?(?:\(s\))?"
    r"(?: supplied| provided)?:? ?[\[({]*(?:[\"'`]?\w+[\"'`]?, ?)*FIELD"
)
_NOT_SUPPORTED = (  # 'stream_options' is not supported
    r"FIELD(?: (?:parameter|field|argument|option))?(?: is| was| were)? "
    r"(?:not (?:yet |currently )?(?:supported|permitted|allowed|recogni[sz]ed|implemented)"
    r"|unsupported|unknown|unrecogni[sz]ed|unexpected|deprecated)\b"
    r"(?! (?:to|above|below|over|when|if|unless|for values|with values?|together|in combin\w+)\b)"
)
_NOT_PERMITTED = r"FIELD:? extra (?:inputs|fields) (?:are )?not permitted"
_NOT_ZERO = (  # temperature must be strictly positive
    r"FIELD:? (?:value )?(?:must|should|has to) be (?:a )?(?:strictly )?"
    r"(?:positive|(?:(?:greater|larger|higher) than|>) ?0(?:\.0+)?(?!\.?\d)|in \(0"
    r"|(?:at least|>=|between) ?0\.\d*[1-9])"
)


def _refusing(name: str, *more: str) -> re.Pattern[str]:
    patterns = "|".join([_UNKNOWN_FIELD, _NOT_SUPPORTED, _NOT_PERMITTED, *more])
    named = rf"(?<![\w.\]/])[\"'`]?{name}[\"'`]?(?![\w\[]|\.\w)"  # not within `tools[0].{name}`
    return re.compile(patterns.replace("FIELD", named), re.IGNORECASE)


_REFUSING = {
    "stream_options": _refusing("stream_options"),
    "max_tokens": _refusing("max_tokens", r"use [\"'`]?max_completion_tokens\b"),
    "temperature": _refusing(
        "temperature",
        _NOT_ZERO,
        r"FIELD (?:does not support|only supports)\b",
        r"invalid FIELD:? only 1\b",
    ),
}
_OF_TOOLS = re.compile(r"\b(?:schema|function|tool)", re.IGNORECASE)
_EXTRA = ("extra_forbidden", "value_error.extra")
_READ_CHARS = 4_000


def refused_field(text: str) -> str:
    """Return the request field that an error body refuses; empty for other refusals.

    One of `stream_options`, `max_tokens` and `temperature` (of which 0 may be refused).
    """
    try:
        payload: Any = json.loads(text)
    except (ValueError, RecursionError):
        payload = text
    error = payload[0] if isinstance(payload, list) and payload else payload
    error = error.get("error") or error if isinstance(error, dict) else error
    told = error if isinstance(error, dict) else {"message": error}
    message = told.get("message") or told.get("detail")
    nested = message if isinstance(message, dict) else {}
    details = told.get("detail"), told.get("details"), nested.get("detail"), message
    entries = [each for some in details if isinstance(some, list) for each in some]
    if entries:
        return next(filter(None, map(_refused_place, entries)), "")
    names, words = list(_REFUSING), str(message)[:_READ_CHARS]
    if isinstance(param := told.get("param"), str) and param:
        names = [param] if param in _REFUSING else []
        code = told.get("code")
        no_zero = param == "temperature" and code == "unsupported_value"
        if names and (no_zero or code in ("unsupported_parameter", "unknown_parameter")):
            return param
    elif _OF_TOOLS.search(words):
        return ""
    return next((name for name in names if _REFUSING[name].search(words)), "")


def _refused_place(entry: Any) -> str:
    """Return the field that one of pydantic's errors refuses, as FastAPI's servers send them."""
    if not isinstance(entry, dict):
        return ""
    place, kind = entry.get("loc"), str(entry.get("type"))
    for name in _REFUSING:
        is_zero = name == "temperature" and kind.startswith("greater_than")
        if place in ([name], ["body", name]) and (kind in _EXTRA or is_zero):
            return name
    return ""


def without_refused(body: Mapping[str, Any], refused: Collection[str]) -> dict[str, Any]:
    """Return a request body for a server that refuses these fields.

    Only a temperature of 0, which is lhkit's own default, gives way to the server's.
    """
    sent = dict(body)
    if "stream_options" in refused:
        sent.pop("stream_options", None)
    if "temperature" in refused and sent.get("temperature") == 0:
        del sent["temperature"]
    if "max_tokens" in refused and "max_tokens" in sent:
        sent["max_completion_tokens"] = sent.pop("max_tokens")
    return sent


def _short(text: str) -> str:
    return " ".join(masked(text).split())[:_SHOWN_CHARS].rstrip()


def _knows_no_such_model(status: int, said: str) -> bool:
    return status == 404 and _NO_SUCH_MODEL.search(said) is not None


_REFUSALS: tuple[tuple[Callable[[int, str], bool], type[ModelError], str, str], ...] = (
    (
        lambda status, _: status in {429, 503},
        ServerOverloadedError,
        "the server is busy",
        "try later or send less at once",
    ),
    (
        lambda status, _: status >= 500,
        ServerFailedError,
        "the server failed",
        "look into its log",
    ),
    (
        lambda status, _: status in {401, 403},
        RequestRefusedError,
        "the server refused the API key",
        "correct LHKIT_API_KEY",
    ),
    (
        _knows_no_such_model,
        UnknownModelError,
        "the server does not know the model",
        "give one that it serves with --model",
    ),
    (
        lambda status, _: status in {404, 405},
        RequestRefusedError,
        "there is no such service",
        "check that --base-url leads to a vLLM server",
    ),
    (
        lambda _, said: is_context_too_long(said),
        ContextTooLongError,
        "the conversation is too long",
        "clear it, or serve with a larger --max-model-len",
    ),
    (
        lambda _, said: has_no_parser(said),
        RequestRefusedError,
        "the server does not parse calls",
        "start it as `lhkit serve MODEL --server-parser`, or give --dialect json",
    ),
    (
        lambda *_: True,
        RequestRefusedError,
        "the server refused the request",
        "change what it names",
    ),
)
"""(does it apply to status and message, exception, what happened, what to do); first match wins."""


# Bytes of a server-sent event stream to the data of its events. Pure.
#
# As the HTML standard parses them (section 9.2.6). Lines are split as bytes (`str.splitlines` would
# also cut at U+2028, which may stand inside JSON) and decoded when complete, so that a Korean
# letter split over two chunks survives.


_LINE_END = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"


class EventStreamDecoder:
    """Collects bytes and gives out the data of each complete event."""

    def __init__(self) -> None:
        self._line: list[bytes] = []  # the pieces of the line that is not complete yet
        self._is_first = True
        self._is_after_cr = False
        self._data: list[str] = []
        self._name = ""

    @property
    def pending(self) -> Sequence[str]:
        """The data lines of an event whose blank line has not come yet."""
        return self._data

    def feed(self, chunk: bytes) -> list[str]:
        """Return the data of the events that are complete, their lines joined by newlines.

        Data of an event named `error` is given out as the member `error` of an object, which is how
        servers of completions report a fault.

        Raises:
            UnicodeDecodeError: if a complete line is not UTF-8.
        """
        if self._is_after_cr and chunk.startswith(b"\n"):
            chunk, self._is_after_cr = chunk[1:], False
        if chunk:
            self._is_after_cr = chunk.endswith(b"\r")
        events: list[str] = []
        *ends, rest = _LINE_END.split(chunk)
        for end in ends:
            line = b"".join([*self._line, end])
            self._line = []
            if self._is_first:
                line, self._is_first = line.removeprefix(_BOM), False
            if line:
                self._take_field(line)
            else:
                events += self._dispatched()
        self._line.append(rest)
        return events

    def _take_field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" ").decode("utf-8"))
        elif name == b"event":
            self._name = value.removeprefix(b" ").decode("utf-8")

    def _dispatched(self) -> list[str]:
        """Return the data of the event that a blank line has ended, if it has any."""
        lines, name = self._data, self._name
        self._data, self._name = [], ""
        data = "\n".join(lines)
        return [_as_error(data) if name == "error" else data] if lines else []


def _as_error(data: str) -> str:
    """Return the data of an event named `error` as an object with the member `error`."""
    try:
        payload = json.loads(data)
    except (ValueError, RecursionError):
        payload = data
    if isinstance(payload, dict) and payload.get("error"):
        return data
    return json.dumps({"error": payload or "no reason"}, ensure_ascii=False, separators=(",", ":"))


# Moments of one response, noted as they happen, in seconds since the request was sent.


@dataclass(slots=True, kw_only=True)
class Moments:
    """What becomes a `Timing`: the first of each kind counts, of tokens and data also the last."""

    headers_s: float | None = None
    first_chunk_s: float | None = None
    first_token_s: float | None = None
    first_text_s: float | None = None
    call_ready_s: float | None = None
    last_token_s: float | None = None
    done_s: float | None = None
    gaps_s: list[float] = field(default_factory=list)

    def note_token(self, now_s: float) -> None:
        """A chunk with something generated has come."""
        if self.last_token_s is None:
            self.first_token_s = now_s
        else:
            self.gaps_s.append(now_s - self.last_token_s)
        self.last_token_s = now_s

    def take_tokens(self, other: "Moments") -> None:
        """Have the tokens' moments of `other`."""
        self.first_token_s, self.last_token_s = other.first_token_s, other.last_token_s
        self.gaps_s = other.gaps_s

    def note_event(self, event: ParsedEvent, now_s: float) -> None:
        """Something has become certain."""
        match event:
            case TextDelta() if self.first_text_s is None:
                self.first_text_s = now_s
            case ToolCallParsed() if self.call_ready_s is None:
                self.call_ready_s = now_s

    def timing(self, *, retries: int, retried_s: float) -> Timing:
        """Return all of it as a value."""
        return Timing(
            headers_s=self.headers_s,
            first_chunk_s=self.first_chunk_s,
            first_token_s=self.first_token_s,
            first_text_s=self.first_text_s,
            call_ready_s=self.call_ready_s,
            last_token_s=self.last_token_s,
            done_s=self.done_s,
            chunk_gaps_s=tuple(self.gaps_s),
            retries=retries,
            retried_s=retried_s,
        )


# One event of a completion stream to a mapping whose members have the types they must have.


def payload_of(data: str) -> Mapping[str, Any]:
    """Return one event as a mapping.

    Raises:
        ModelError: it reports an error.
        StreamBrokenError: it is not a JSON object.
    """
    try:
        payload = json.loads(masked(data))
    except (ValueError, RecursionError) as error:
        raise no_completion(data) from error
    if not isinstance(payload, dict):
        raise no_completion(data)
    if payload.get("error") or "error" in (payload.get("object"), payload.get("type")):
        raise _reported(payload, data)
    return payload


def typed(payload: Mapping[str, Any], key: str, kind: type) -> Any:
    """Return a member that is absent, null or of the type that a completion has there.

    Raises:
        StreamBrokenError: it is of another type.
    """
    value = payload.get(key)
    if value is not None and not isinstance(value, kind):
        raise no_completion(payload)
    return value


def whole_number(payload: Mapping[str, Any], key: str) -> int | None:
    """Return a member that is an integer, or `7.0` or `"7"`; None if absent or null.

    Raises:
        StreamBrokenError: it is something else.
    """
    value = payload.get(key)
    if isinstance(value, str) and (digits := _NUMBER.fullmatch(value.strip())):
        return int(digits[1])
    if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT:
        return int(value)
    if value is None or type(value) is int:
        return value
    raise no_completion(payload)


_NUMBER = re.compile(r"([0-9]{1,15})(?:\.0+)?")
_EXACT = 2**53
"""Up to here a float is an integer exactly."""


def integers(payload: Mapping[str, Any], key: str) -> list[int]:
    """Return a member that is a list of integers; empty where it is absent or null.

    Raises:
        StreamBrokenError: it is something else. What is kept of it could not be read again.
    """
    found: list[int] = typed(payload, key, list) or []
    if not all(type(each) is int for each in found):
        raise no_completion(payload)
    return found


def no_completion(what_came: object) -> StreamBrokenError:
    """Return the exception for an event that no server of ours would send."""
    return StreamBrokenError(
        f"the stream is not one of completions ({masked(str(what_came))[:100]}): "
        "check that --base-url leads to an OpenAI-compatible server"
    )


def _reported(payload: Mapping[str, Any], data: str) -> ModelError:
    said = message_of(data)
    error = payload.get("error")
    code = str(error.get("code") if isinstance(error, dict) else payload.get("code"))
    if is_context_too_long(said):
        return ContextTooLongError(f"the conversation is too long: {said}; clear it")
    if code in {"429", "503"}:
        return ServerOverloadedError(f"the server is busy: {said}; try later or send less at once")
    return ServerFailedError(f"the server reported in its stream: {said}; look into its log")


# Reads one streamed response: events out, and the evidence kept for the last of them.
#
# No I/O: bytes come in through `feed`. What a chunk says is the business of a `Content`: text that
# a dialect parses (`completion_content`), or deltas that the server has parsed (`chat_content`).


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


def _ids_sha256(ids: Sequence[int]) -> str:
    """Return the hash of a prompt's ids, "" of none."""
    return hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest() if ids else ""


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
        self._choices = Moments()
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
        return self._moments.done_s is not None

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
        self._moments.headers_s = self._last_data_s = self._now_s()

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
                if self._moments.first_chunk_s is None:
                    self._moments.first_chunk_s = now_s
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

    def finished(
        self, *, identity: ModelIdentity, prompt_text: str, prompt_sha256: str
    ) -> Finished:
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
        if not self._token_ids:  # nobody said which chunks hold a token: then each with a choice
            self._moments.take_tokens(self._choices)
        first_sent_s = self._started_s if self._first_sent_s is None else self._first_sent_s
        return Finished(
            reason=self._reason,
            text=masked(result.text),  # a key may come in several pieces
            calls=result.calls,
            fragment=result.fragment,
            truncated=self._is_truncated,
            usage=self._final_usage(),
            timing=self._moments.timing(
                retries=max(0, self._tries - 1), retried_s=self._started_s - first_sent_s
            ),
            raw_text=masked(self._content.raw_text),
            token_ids=tuple(self._token_ids),
            prompt_token_ids=self._prompt_token_ids,
            prompt_text=prompt_text,
            prompt_sha256=prompt_sha256,
            prompt_ids_sha256=_ids_sha256(self._prompt_token_ids),
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
        self._moments.done_s = now_s
        yield from self._noted(self._closed(), now_s)

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
        self._choices.note_token(now_s)
        if token_ids or self._content.has_token(choice):
            self._moments.note_token(now_s)
            self._token_ids += token_ids

    def _ended(self, reason: str) -> Iterator[ParsedEvent]:
        if reason in _BROKEN_OFF:
            raise ServerFailedError(f"the server gave up ({reason}): look into its log, try again")
        if self._reason:
            return
        self._reason = reason
        yield from self._content.end()

    def _closed(self) -> Iterator[ParsedEvent]:
        if self._reason:
            yield from self._content.close(truncated=self._is_truncated)

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


# One OpenAI-compatible server over aiohttp: who it is, its streams, its faults, second tries.
#
# What is asked of it, and what its answers mean, is `vllm_http`'s and `openai_http`'s business.


if TYPE_CHECKING:
    import aiohttp

CONNECT_TIMEOUT_S = 10.0
IDLE_TIMEOUT_S = 300.0
"""Longest silence in a stream. On a CPU the first token waits for the prompts ahead of it."""
_SHOWN_MODELS = 20
_OK = 200
_PORTS = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a model is served. `base_url` may end in `/v1` or not; `api_key` is optional.

    `retries` is how often a request is sent again that was refused, reset or turned away before
    any answer began; 0 for never.
    """

    base_url: str
    model: str | None = None
    api_key: str | None = field(default=None, repr=False)
    dialect: str = "json"
    constraint: Constraint = "off"
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    idle_timeout_s: float = IDLE_TIMEOUT_S
    retries: int = 2

    @property
    def root(self) -> str:
        """The address without `/v1`."""
        return self.base_url.rstrip("/").removesuffix("/v1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Where time and chance come from: given, so that tests need neither."""

    clock: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    rng: random.Random = field(default_factory=random.SystemRandom)


class Connection:
    """A session with one server, and which request fields that refuses.

    Many requests may run at once.
    """

    def __init__(
        self, endpoint: Endpoint, session: "aiohttp.ClientSession", pace: Pace | None = None
    ) -> None:
        self.address = endpoint.root
        self.pace = pace or Pace()
        self._session = session
        self._idle_timeout_s = endpoint.idle_timeout_s
        self._backoff = Backoff(retries=endpoint.retries)
        self._refused: frozenset[str] = frozenset()

    async def events(
        self, path: str, body: Mapping[str, Any], reader: ResponseReader
    ) -> AsyncGenerator[ModelEvent, None]:
        """Yield what `reader` makes of the streamed answer; closing early closes the request.

        Raises:
            ModelError: the server refused, failed, broke off or stalled.
        """
        with transport_faults(self.address):
            async with self._accepted(path, body, reader) as response:
                reader.headers_came()
                bounds = _StreamBounds(self.address, reader.max_tokens)
                async with aclosing(_plain_chunks(response, self.address)) as chunks:
                    async for chunk in chunks:
                        bounds.take(chunk)
                        for event in reader.feed(chunk):
                            yield event
                        if reader.is_done:
                            break
                        if reader.silent_s > self._idle_timeout_s:
                            raise stalled(self.address)  # nothing but keep-alive comments
                    else:
                        for event in reader.connection_ended():
                            yield event

    async def get(self, path: str) -> Mapping[str, Any]:
        """Return a JSON object.

        Raises:
            ModelError: nothing answers, it refuses, or it answers something else.
        """
        return _object(await self.get_json(path), self.address)

    async def get_json(self, path: str) -> Any:
        """Return any JSON value.

        Raises:
            ModelError: as `get`.
        """
        with transport_faults(self.address):
            async with self._session.get(self.address + path, allow_redirects=False) as response:
                return await _json_of(response, self.address)

    async def post(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the JSON object that answers `body`.

        Raises:
            ModelError: as `get`.
        """
        with transport_faults(self.address):
            async with self._session.post(
                self.address + path, json=body, allow_redirects=False
            ) as response:
                return _object(await _json_of(response, self.address), self.address)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._session.close()

    @asynccontextmanager
    async def _accepted(
        self, path: str, body: Mapping[str, Any], reader: ResponseReader
    ) -> AsyncIterator["aiohttp.ClientResponse"]:
        """Yield the answer to the body, or to the body without what the server refuses of it.

        A field is given up for later requests only if the server accepts the request without it.
        """
        refused = self._refused
        async with AsyncExitStack() as stack:
            while True:
                sent = without_refused(body, refused)
                try:
                    response = await stack.enter_async_context(self._opened(path, sent, reader))
                    break
                except RequestRefusedError as error:
                    refused |= {error.field}
                    if without_refused(body, refused) == sent:
                        raise
            if new := refused - self._refused:
                _log.warning("%s refuses %s: sent without", self.address, ", ".join(sorted(new)))
            self._refused |= refused
            reader.refused_fields = tuple(sorted(body.keys() - sent.keys()))
            yield response

    @asynccontextmanager
    async def _opened(
        self, path: str, body: Mapping[str, Any], reader: ResponseReader
    ) -> AsyncIterator["aiohttp.ClientResponse"]:
        """Yield the answer to the first try that got a stream."""
        failed, paused_s = 0, 0.0
        while True:
            reader.sent()
            try:
                response = await self._stream(path, body)
                break
            except ModelError as error:
                failed += 1
                pause_s = self._backoff.pause_s(
                    error.__cause__, failed=failed, paused_s=paused_s, rng=self.pace.rng
                )
                if pause_s is None:
                    raise
                paused_s += pause_s
                await self.pace.sleep(pause_s)
        async with response:
            yield response

    async def _stream(self, path: str, body: Mapping[str, Any]) -> "aiohttp.ClientResponse":
        with transport_faults(self.address):
            response = await self._session.post(
                self.address + path, json=body, allow_redirects=False
            )
            if response.status == _OK and response.content_type == "text/event-stream":
                return response
            async with response:
                await _require_ok(response, self.address)
                raise not_a_server(self.address, f"{response.content_type}, no event stream")


@asynccontextmanager
async def connecting(
    endpoint: Endpoint, pace: Pace | None = None
) -> AsyncIterator[tuple[Connection, ModelIdentity]]:
    """Yield a new connection and who answers there; it is closed only if the block fails.

    Without `endpoint.model`, the only served model is taken. With it, a server need not list its
    models. Nothing is tried twice here: a wrong address is to be told at once.

    Raises:
        UsageError: an address that is none.
        UnknownModelError: the server does not serve that model; the message lists what it does.
        ModelError: nothing answers, or it refuses.
    """
    require_address(endpoint.root)
    connection = Connection(endpoint, _session(endpoint), pace)
    try:
        yield connection, await _identify(endpoint, connection)
    except BaseException:
        await connection.aclose()
        raise


def require_address(base_url: str) -> None:
    """Refuse an address that is none, or that holds a password: it would stand in every record.

    Raises:
        UsageError: as the summary says; nothing was asked yet.
    """
    if "@" in base_url:
        raise UsageError("give no password in --base-url: set LHKIT_API_KEY instead")
    try:
        url = yarl.URL(base_url)
        is_address = url.scheme in {"http", "https"} and bool(url.host)
        is_address = is_address and (url.port or 0) in range(1, _PORTS)
    except ValueError:  # a port beyond all, brackets that do not fit
        is_address = False
    if not is_address:
        raise no_address(base_url)


def _session(endpoint: Endpoint) -> "aiohttp.ClientSession":
    import aiohttp

    api_key = (endpoint.api_key or "").strip()  # keys are pasted with line ends
    hide(api_key)
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    headers["Accept-Encoding"] = "identity"
    timeout = aiohttp.ClientTimeout(
        total=None,
        sock_connect=endpoint.connect_timeout_s,
        sock_read=endpoint.idle_timeout_s,
    )
    # No limit: the server queues, not the client. One connection a request: a pooled one may be
    # closing already (vLLM does so after 5 s), and a request sent into it fails for nothing.
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    return aiohttp.ClientSession(
        connector=connector, timeout=timeout, headers=headers, auto_decompress=False
    )


async def _identify(endpoint: Endpoint, connection: Connection) -> ModelIdentity:
    try:
        served = await _served_models(connection)
    except ModelError as error:
        if not endpoint.model or not _has_no_list(error):
            raise
        served = {endpoint.model: _Served()}
    software = await _software(connection)
    if software.file:  # llama.cpp's name of a model without one is the path of its file
        served = {PurePath(name).name: each for name, each in served.items()}
    names = list(served)
    whole = [name for name in names if not _is_wildcard(name)]
    told = [name for name in whole if name != PurePath(software.file).name] or whole
    if endpoint.model is None and len(told) == 1:  # beside its file's name, one that was given
        model = listed = told[0]
    elif endpoint.model and (found := _listed_as(endpoint.model, names)):
        model, listed = endpoint.model, found
    else:
        shown = ", ".join(map(_short, names[:_SHOWN_MODELS])) or "no model at all"
        raise UnknownModelError(
            f"{endpoint.root} serves {shown}, not {endpoint.model or 'exactly one model'}: "
            "give one of these with --model"
        )
    return ModelIdentity(
        model=model,
        server=_with_build(software.name, served[listed].build),
        base_url=endpoint.root,
        dialect=endpoint.dialect,
        constraint=endpoint.constraint,
        weights=weights_name(served[listed].root or software.file, model),
        weights_sha256=served[listed].weights_sha256,
        dtype=served[listed].dtype or software.quantisation,
    )


def _listed_as(model: str, names: Sequence[str]) -> str | None:
    """Return the listed name that a model's name means: itself, `models/…`, or a wildcard."""
    bare = model.removeprefix(_MODELS)
    means = [name for name in names if name.removeprefix(_MODELS) == bare]
    means += [name for name in names if _is_wildcard(name) and fnmatchcase(model, name)]
    return model if model in names else next(iter(means), None)


def _is_wildcard(name: str) -> bool:
    return "*" in name.replace(MASK, "")  # a masked key in a name is none


_MODELS = "models/"
"""What Gemini's servers put before a name, and take it with or without."""


def _has_no_list(error: ModelError) -> bool:
    """Return True if a server answered without a list of models; it may serve one all the same."""
    import aiohttp

    match error.__cause__:
        case aiohttp.ClientResponseError(status=status):
            return status in {400, 404, 405, 410, 422, 501}
        case aiohttp.ClientError() | OSError():
            return False
        case _:
            return isinstance(error, StreamBrokenError)


def weights_name(root: str, model: str) -> str:
    """Return what names the weights behind a served name; empty where the name says it all.

    Of a folder its own name, so that no path of a machine gets into records.
    """
    name = PurePath(root).name if PurePath(root).is_absolute() else root
    return "" if name == model else name


@dataclass(frozen=True, slots=True, kw_only=True)
class _Served:
    """What a server says of one name: what it loaded, the hash of that, and what it computes in.

    `build` is which build of llama.cpp serves, if lhkit started it. Each is empty if untold.
    """

    root: str = ""
    weights_sha256: str = ""
    dtype: str = ""
    build: str = ""


async def _served_models(connection: Connection) -> dict[str, _Served]:
    """Return what is served, by name. An alias that tells something is no model of its own.

    A hash is of the names with its own root: an adapter that is served beside has another one. All
    of a server compute in one type.
    """
    payload = await connection.get_json("/v1/models")
    if isinstance(payload, dict):
        entries = payload.get("data", payload.get("models"))
    else:
        entries = payload or None  # without models it may be any list
    if not isinstance(entries, list) or not all(map(_name_of, entries)):
        raise not_a_server(connection.address, f"no list of models at /v1/models: {payload}")
    entries = [each if isinstance(each, dict) else {"id": each} for each in entries]
    roots = {
        str(name): str(entry.get("root") or "")
        for entry in entries
        for name in (_name_of(entry), *(typed(entry, "aliases", list) or ()))  # llama.cpp's
    }
    hashes = {root: sha256 for name, root in roots.items() if (sha256 := sha256_of(name))}
    dtype = next(filter(None, map(dtype_told, roots)), "")
    builds = [name for name in roots if name.startswith(BUILD_ALIAS)]
    build = builds[0].removeprefix(BUILD_ALIAS) if builds else ""
    return {
        name: _Served(root=root, weights_sha256=hashes.get(root, ""), dtype=dtype, build=build)
        for name, root in roots.items()
        if not (sha256_of(name) or dtype_told(name) or name in builds)
    }


def _name_of(entry: Any) -> str:
    """Return the name of one listed model; empty if it has none."""
    if isinstance(entry, dict):
        entry = entry.get("id") or entry.get("name") or entry.get("model")
    return entry if isinstance(entry, str) else ""


LLAMA_CPP = "llama.cpp"
"""How the name of a llama.cpp server begins."""
_NO_BUILD = "b0-unknown"
"""What llama.cpp calls a build whose makers did not tell it of which commit it is."""


def _with_build(software: str, build: str) -> str:
    """Return what serves with the build that lhkit tells, in place of one that is untold."""
    if not build or not software.startswith(LLAMA_CPP):
        return software
    return f"{software.removesuffix(_NO_BUILD).strip()} {build}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Software:
    """What serves: its name and version; of llama.cpp also the file and its quantisation."""

    name: str
    file: str = ""
    quantisation: str = ""


async def _software(connection: Connection) -> _Software:
    """Return what serves, by the addresses that vLLM or llama.cpp answers."""
    missing = (RequestRefusedError, ServerFailedError, StreamBrokenError, KeyError)
    with suppress(*missing):
        told = await connection.get("/version")
        return _Software(name=f"vllm {told['version']}")
    with suppress(*missing):
        props = await connection.get("/props")
        return _Software(
            name=f"{LLAMA_CPP} {props['build_info']}",
            file=PurePath(str(props.get("model_path") or "")).name,
            quantisation=str(props.get("model_ftype") or ""),
        )
    return _Software(name="unknown server")


async def _json_of(response: "aiohttp.ClientResponse", address: str) -> Any:
    await _require_ok(response, address)
    body = await _first_bytes(response, address, MOST_BODY_BYTES + 1)
    if len(body) > MOST_BODY_BYTES:
        raise too_much(address, f"more than {MOST_BODY_BYTES >> 20} MiB in one answer")
    text = body.decode("utf-8", "replace")
    try:
        return json.loads(masked(text))
    except (ValueError, RecursionError) as error:
        raise not_a_server(address, text) from error


def _object(payload: Any, address: str) -> Mapping[str, Any]:
    if not isinstance(payload, dict):
        raise not_a_server(address, json.dumps(payload))
    return payload


async def _require_ok(response: "aiohttp.ClientResponse", address: str) -> None:
    if response.status == _OK:
        return
    import aiohttp

    if response.status in _REDIRECTS:
        raise redirected(str(response.url), response.headers.get("Location", ""))
    body = await _first_bytes(response, address, _MOST_ERROR_BYTES)
    request = response.request_info
    told = aiohttp.ClientResponseError(  # without the request's headers, which have the key
        aiohttp.RequestInfo(request.url, request.method, CIMultiDictProxy(CIMultiDict())),
        (),
        status=response.status,
        headers=response.headers,
    )
    raise refusal(response.status, body.decode("utf-8", "replace")) from told


# How much is read of a server, whatever it sends. Far above what any answer needs.

MOST_BODY_BYTES = 16 << 20
_MOST_ERROR_BYTES = 1 << 20
MOST_LINE_BYTES = 16 << 20
"""The first event of a vLLM has the ids of the whole prompt."""
_STREAM_BYTES = 64 << 20
_TOKEN_BYTES = 16 << 10
_STREAM_EVENTS = 10_000
_TOKEN_EVENTS = 16
_PIECE_BYTES = 1 << 20
_REDIRECTS = frozenset({300, 301, 302, 303, 305, 307, 308})


class _StreamBounds:
    """Counts what comes in one stream, against a server that never ends it."""

    def __init__(self, address: str, max_tokens: int) -> None:
        self._address = address
        self._most_bytes = _STREAM_BYTES + _TOKEN_BYTES * max_tokens
        self._most_events = _STREAM_EVENTS + _TOKEN_EVENTS * max_tokens
        self._max_tokens = max_tokens
        self._bytes = self._events = self._line_bytes = 0

    def take(self, chunk: bytes) -> None:
        """Count a chunk.

        Raises:
            StreamBrokenError: it is more than any response of so many tokens has.
        """
        first, *others = chunk.split(b"\n")
        self._line_bytes += len(first)
        longest = max([self._line_bytes, *map(len, others)])
        self._line_bytes = len(others[-1]) if others else self._line_bytes
        self._bytes += len(chunk)
        self._events += chunk.count(b"data:")
        if longest > MOST_LINE_BYTES:
            raise too_much(self._address, f"a line of more than {MOST_LINE_BYTES >> 20} MiB")
        if self._bytes > self._most_bytes or self._events > self._most_events:
            raise too_much(
                self._address,
                f"{self._events} events and {self._bytes} bytes for {self._max_tokens} tokens at "
                "most",
            )


async def _plain_chunks(
    response: "aiohttp.ClientResponse", address: str
) -> AsyncGenerator[bytes, None]:
    """Yield a body as it comes; compressed ones in pieces that no bomb makes larger."""
    encoding = response.headers.get("Content-Encoding", "").strip().casefold()
    if encoding in {"", "identity"}:
        async for chunk in response.content.iter_any():
            yield chunk
        return
    if encoding not in {"gzip", "deflate"}:
        raise not_a_server(address, f"content encoding {encoding}, which was not asked for")
    inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
    async for packed in response.content.iter_any():
        rest = packed
        while rest:
            try:
                yield inflate.decompress(rest, _PIECE_BYTES)
            except zlib.error as error:
                raise not_a_server(address, f"broken {encoding}: {error}") from error
            rest = inflate.unconsumed_tail


async def _first_bytes(response: "aiohttp.ClientResponse", address: str, most: int) -> bytes:
    """Return a body, cut where it is longer than `most` bytes."""
    body = bytearray()
    async with aclosing(_plain_chunks(response, address)) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) >= most:
                break
    return bytes(body[:most])


def redirected(address: str, location: str) -> RequestRefusedError:
    """Return the exception for a server that names another address: prompts do not go there."""
    return RequestRefusedError(
        f"{_short(address)} redirects to {_short(location) or 'nowhere'}, and prompts go only to "
        "the address that was given: give that one with --base-url if you trust it"
    )


def too_much(address: str, what: str) -> StreamBrokenError:
    """Return the exception for a server that sends more than any answer needs."""
    return StreamBrokenError(
        f"{address} sent too much ({what}): check that --base-url leads to an OpenAI-compatible "
        "server"
    )


# vLLM's own text for token ids: how it read a prompt, and what a model wrote before any parser.


async def detokenized(connection: Connection, model: str, token_ids: Sequence[int]) -> str:
    """Return the text of token ids, control tokens included.

    Raises:
        ModelError: the server has no `/detokenize`, or failed.
    """
    payload = await connection.post("/detokenize", {"model": model, "tokens": list(token_ids)})
    if not isinstance(prompt := payload.get("prompt"), str):
        raise not_a_server(connection.address, "no prompt at /detokenize")
    return prompt
