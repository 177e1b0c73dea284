"""HTTP transport: sessions, streaming, retries with backoff, size limits.

`vllm`, `llama_cpp` and `openai_chat` build the requests and read the responses.
"""

import asyncio
import json
import logging
import random
import time
import zlib
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multidict import CIMultiDict, CIMultiDictProxy

from lhkit.base.errors import ModelError, RequestRefusedError
from lhkit.base.redaction import hide, masked, masked_repr, secrets_in
from lhkit.conversation.responses import ModelEvent
from lhkit.models.client.errors import (
    drop_refused_fields,
    error_message,
    http_error,
    redirected,
    refuses_logprobs,
    require_no_error,
    stalled,
    too_large,
    translate_errors,
    unexpected_answer,
)
from lhkit.models.client.response import ResponseReader
from lhkit.models.decoding import Constraint

if TYPE_CHECKING:
    import aiohttp

_log = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S = 10.0
_IDLE_TIMEOUT_S = 300.0
"""Longest time without progress. On a CPU the first token waits for the prompts before it."""

_KEEP_ALIVE_S = 2.0
"""How long an unused connection stays open. Servers close theirs after 5 s (vLLM, llama.cpp)."""

_END_S = 0.05
"""The wait for the end of a stream after its last event; a connection without it is closed."""

MAX_BODY_BYTES = 16 << 20
MAX_ERROR_BYTES = 1 << 20
MAX_LINE_BYTES = 16 << 20
"""The first event of vLLM has the token ids of the whole prompt."""
_STREAM_BYTES = 64 << 20
_TOKEN_BYTES = 16 << 10
_STREAM_EVENTS = 10_000
_TOKEN_EVENTS = 16
_INFLATE_BYTES = 1 << 20

_OK = 200
_TRANSIENT_STATUSES = frozenset({429, 502, 503, 504})
_REDIRECTS = frozenset({300, 301, 302, 303, 305, 307, 308})


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where and how a model is served.

    Args:
        base_url: address of the server, with or without `/v1`.
        model: served name; None takes the only served model.
        api_key: sent as a bearer token.
        dialect: how prompts are rendered and calls parsed; None takes that of the model's family,
            of an unknown model `openai` if the server parses calls.
        chat_template: file or folder of the model's chat template, which renders the prompts of a
            native dialect; None takes the server's, where it has one, else lhkit's own rendering.
        constraint: whether decoding is constrained to valid calls.
        idle_timeout_s: longest time in a stream without a part of the answer; what only keeps the
            connection alive does not count. Also the longest time until the headers, and of an
            answer that is not a stream.
        retries: how often a request is retried after a transient error; 0 for never.
        dtype: number type of the model, for a server that does not report it.
    """

    base_url: str
    model: str | None = None
    api_key: str | None = field(default=None, repr=False)
    dialect: str | None = None
    chat_template: Path | None = None
    constraint: Constraint = "off"
    idle_timeout_s: float = _IDLE_TIMEOUT_S
    retries: int = 2
    dtype: str = ""

    def __repr__(self) -> str:
        """Show the endpoint without keys."""
        return masked_repr(self, "base_url")

    @property
    def root(self) -> str:
        """The address without `/v1`."""
        return self.base_url.rstrip("/").removesuffix("/v1")


def _today() -> datetime:
    return datetime(*time.localtime()[:3])


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Time, sleep and random numbers, which tests replace; `today` is for chat templates."""

    today: Callable[[], datetime] = _today
    now: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    rng: random.Random = field(default_factory=random.SystemRandom)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Exponential backoff with jitter.

    It applies only before an answer begins. As in AWS's "Exponential Backoff And Jitter";
    `Retry-After` in seconds is respected (RFC 9110 section 10.2.3; not its date form, which needs a
    wall clock). `longest_s` limits one pause, `total_s` all pauses of one request.

    A run also retries whole samples (`max_attempts` of `replay`, 3), so that one request is sent
    nine times at most.
    """

    retries: int = 2
    first_s: float = 0.5
    longest_s: float = 10.0
    total_s: float = 20.0

    def pause_s(
        self, failure: BaseException | None, *, failed: int, paused_s: float, rng: random.Random
    ) -> float | None:
        """Return the pause before the next attempt; None for no further attempt.

        Args:
            failure: aiohttp's exception; None for another issue.
            failed: number of failed attempts, including this one.
            paused_s: seconds already waited for this request.
            rng: source of the jitter.
        """
        if failed > self.retries or not is_transient(failure):
            return None
        retry_after_s = _retry_after_s(failure)
        ceiling_s = min(self.longest_s, self.first_s * 2 ** (failed - 1))
        pause_s = ceiling_s * rng.uniform(0.5, 1.0) if retry_after_s is None else retry_after_s
        is_too_long = pause_s > self.longest_s or paused_s + pause_s > self.total_s
        return None if is_too_long else pause_s


class StreamLimits:
    """Limits the size of one stream, in case a server never ends it."""

    def __init__(self, address: str, max_tokens: int) -> None:
        self._address = address
        self._max_bytes = _STREAM_BYTES + _TOKEN_BYTES * max_tokens
        self._max_events = _STREAM_EVENTS + _TOKEN_EVENTS * max_tokens
        self._max_tokens = max_tokens
        self._bytes = self._events = self._line_bytes = 0

    def count(self, chunk: bytes) -> None:
        """Count a chunk.

        Raises:
            StreamBrokenError: the stream exceeds a limit.
        """
        last = len(chunk) - chunk.rfind(b"\n") - 1
        longest = self._line_bytes + len(chunk)  # at most
        if longest > MAX_LINE_BYTES:
            lines = chunk.split(b"\n")
            longest = max(self._line_bytes + len(lines[0]), *map(len, lines))
        self._line_bytes = last if last < len(chunk) else self._line_bytes + last
        self._bytes += len(chunk)
        self._events += chunk.count(b"data:")
        if longest > MAX_LINE_BYTES:
            raise too_large(self._address, f"a line of more than {MAX_LINE_BYTES >> 20} MiB")
        if self._bytes > self._max_bytes or self._events > self._max_events:
            raise too_large(
                self._address,
                f"{self._events} events and {self._bytes} bytes for {self._max_tokens} tokens at "
                "most",
            )


class Connection:
    """A session with one server; remembers request fields that it refuses.

    Requests may run concurrently.
    """

    def __init__(
        self, endpoint: Endpoint, session: "aiohttp.ClientSession", clock: Clock | None = None
    ) -> None:
        self.address = endpoint.root
        self.clock = clock or Clock()
        self._session = session
        self._idle_timeout_s = endpoint.idle_timeout_s
        self._backoff = Backoff(retries=endpoint.retries)
        self._refused: tuple[str, ...] = ()  # in the order of the refusals

    async def events(
        self, path: str, body: Mapping[str, Any], reader: ResponseReader
    ) -> AsyncGenerator[ModelEvent, None]:
        """Yield the events of a streamed response; closing early closes the request.

        Raises:
            ModelError: the server refused, failed, disconnected or stalled.
        """
        with translate_errors(self.address):
            async with await self._open_stream(path, body, reader) as response:
                reader.mark_headers()
                limits = StreamLimits(self.address, reader.max_tokens)
                decode = body_decoder(response, self.address)
                async for received in response.content.iter_any():
                    for chunk in decode(received):
                        limits.count(chunk)
                        for event in reader.feed(chunk):
                            yield event
                        if reader.is_done:
                            await _read_end(response)
                            return
                    if reader.silent_s > self._idle_timeout_s:
                        raise stalled(self.address, is_kept_alive=True)
                for event in reader.feed_end():
                    yield event

    async def get(self, path: str) -> Mapping[str, Any]:
        """Return a JSON object.

        Raises:
            ModelError: the server does not answer, refuses, or sends something else.
        """
        return _require_object(await self.get_json(path), self.address)

    async def get_json(self, path: str) -> Any:
        """Return any JSON value.

        Raises:
            ModelError: as `get`.
        """
        with translate_errors(self.address):
            async with (
                self._limited(),
                self._session.get(self.address + path, allow_redirects=False) as response,
            ):
                return await _read_json(response, self.address)

    async def get_text(self, path: str) -> str:
        """Return a text.

        Raises:
            ModelError: as `get`.
        """
        with translate_errors(self.address):
            async with (
                self._limited(),
                self._session.get(self.address + path, allow_redirects=False) as response,
            ):
                await _require_ok(response, self.address)
                body = await read_up_to(response, self.address, MAX_BODY_BYTES)
                return body.decode("utf-8", "replace")

    async def post(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a body and return the JSON object of the response.

        Raises:
            ModelError: as `get`.
        """
        with translate_errors(self.address):
            async with (
                self._limited(),
                await self._send(path, body) as response,
            ):
                return _require_object(await _read_json(response, self.address), self.address)

    def _limited(self) -> asyncio.Timeout:
        """Return a limit of time for a whole answer, or for the headers of a stream."""
        return asyncio.timeout(_CONNECT_TIMEOUT_S + self._idle_timeout_s)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def _open_stream(
        self, path: str, body: Mapping[str, Any], reader: ResponseReader
    ) -> "aiohttp.ClientResponse":
        """Return the response to a body, sent without the fields that the server refuses.

        A field is remembered as refused only if the server accepts the request without it.
        """
        refused = self._refused
        while True:
            sent = drop_refused_fields(body, refused)
            try:
                response = await self._retry(path, sent, reader)
                break
            except ModelError as error:
                field_ = error.field if isinstance(error, RequestRefusedError) else ""
                field_ = "logprobs" if refuses_logprobs(error, sent) else field_
                refused = tuple(dict.fromkeys((*refused, field_)))
                if drop_refused_fields(body, refused) == sent:
                    raise
        if new := sorted({*refused} - {*self._refused}):
            _log.warning("%s refuses the fields %s: left out", self.address, ", ".join(new))
        self._refused = tuple(dict.fromkeys((*self._refused, *refused)))
        reader.refused_fields = tuple(sorted(body.keys() - sent.keys()))
        return response

    async def _retry(
        self, path: str, body: Mapping[str, Any], reader: ResponseReader
    ) -> "aiohttp.ClientResponse":
        """Return the response of the first successful attempt."""
        failed, paused_s = 0, 0.0
        while True:
            reader.mark_sent()
            try:
                return await self._post_stream(path, body)
            except ModelError as error:
                failed += 1
                pause_s = self._backoff.pause_s(
                    error.__cause__, failed=failed, paused_s=paused_s, rng=self.clock.rng
                )
                if pause_s is None:
                    raise
                paused_s += pause_s
                await self.clock.sleep(pause_s)

    async def _post_stream(self, path: str, body: Mapping[str, Any]) -> "aiohttp.ClientResponse":
        with translate_errors(self.address):
            async with self._limited():  # also headers that never end
                response = await self._send(path, body)
            if response.status == _OK and response.content_type == "text/event-stream":
                return response
            async with self._limited(), response:
                await _require_ok(response, self.address)
                received = await read_up_to(response, self.address, MAX_ERROR_BYTES)
                text = received.decode("utf-8", "replace").strip()
                require_no_error(text, "answer")
                message = error_message(text)
                answer = f"{response.content_type}, no event stream"
                raise unexpected_answer(self.address, f"{answer}: {message}" if message else answer)

    async def _send(self, path: str, body: Mapping[str, Any]) -> "aiohttp.ClientResponse":
        """Post a body, a second time if the connection was an old one that the server had closed.

        Only if no byte of an answer came. `get` needs no such care: aiohttp repeats it itself.
        """
        import aiohttp

        attempt = _Attempt()
        try:
            return await self._post(path, body, attempt)
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
            if not attempt.is_reused or _has_begun(error):
                raise
        return await self._post(path, body, _Attempt())

    async def _post(
        self, path: str, body: Mapping[str, Any], attempt: "_Attempt"
    ) -> "aiohttp.ClientResponse":
        return await self._session.post(
            self.address + path, json=body, allow_redirects=False, trace_request_ctx=attempt
        )


@dataclass(slots=True)
class _Attempt:
    """One sending of a request; `is_reused` if its connection has had an answer before."""

    is_reused: bool = False


async def _mark_reused(_session: Any, context: Any, _params: Any) -> None:
    attempt = context.trace_request_ctx
    if isinstance(attempt, _Attempt):
        attempt.is_reused = True


def _has_begun(error: Exception) -> bool:
    """Return True if a part of the headers came before the server disconnected."""
    return not isinstance(getattr(error, "message", ""), str)


async def _read_end(response: "aiohttp.ClientResponse") -> None:
    """Read the end of a body whose content is complete, so that its connection is used again."""
    import aiohttp

    if response.content.at_eof():
        return
    with suppress(aiohttp.ClientError, OSError):  # OSError: also a timeout
        async with asyncio.timeout(_END_S):
            while not response.content.at_eof():
                await response.content.readany()


def open_session(endpoint: Endpoint) -> "aiohttp.ClientSession":
    """Open an HTTP session for an endpoint, and register its key for masking."""
    import aiohttp

    api_key = (endpoint.api_key or "").strip()  # keys are pasted with line ends
    hide(api_key)
    for secret in secrets_in([endpoint.base_url]):
        hide(secret)
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    headers["Accept-Encoding"] = "identity"
    timeout = aiohttp.ClientTimeout(
        total=None,
        sock_connect=_CONNECT_TIMEOUT_S,
        sock_read=endpoint.idle_timeout_s,
    )
    trace = aiohttp.TraceConfig()
    trace.on_connection_reuseconn.append(_mark_reused)
    return aiohttp.ClientSession(
        # no limit: the server queues, not the client
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S),
        timeout=timeout,
        headers=headers,
        auto_decompress=False,
        trace_configs=[trace],
    )


async def _read_json(response: "aiohttp.ClientResponse", address: str) -> Any:
    await _require_ok(response, address)
    body = await read_up_to(response, address, MAX_BODY_BYTES + 1)
    if len(body) > MAX_BODY_BYTES:
        raise too_large(address, f"more than {MAX_BODY_BYTES >> 20} MiB in one answer")
    text = body.decode("utf-8", "replace")
    try:
        return json.loads(masked(text))
    except (ValueError, RecursionError) as error:
        raise unexpected_answer(address, text) from error


def _require_object(payload: Any, address: str) -> Mapping[str, Any]:
    if not isinstance(payload, dict):
        raise unexpected_answer(address, json.dumps(payload))
    return payload


async def _require_ok(response: "aiohttp.ClientResponse", address: str) -> None:
    if response.status == _OK:
        return
    import aiohttp

    if response.status in _REDIRECTS:
        raise redirected(str(response.url), response.headers.get("Location", ""))
    body = await read_up_to(response, address, MAX_ERROR_BYTES)
    request = response.request_info
    cause = aiohttp.ClientResponseError(  # without the request's headers, which have the key
        aiohttp.RequestInfo(request.url, request.method, CIMultiDictProxy(CIMultiDict())),
        (),
        status=response.status,
        headers=response.headers,
    )
    text = body.decode("utf-8", "replace")
    raise http_error(response.status, text, response.reason or "") from cause


def is_transient(failure: BaseException | None) -> bool:
    """Return True for a refused or reset connection, or a busy server.

    An unknown host name, an invalid certificate, a timeout and any other status are permanent.
    """
    import aiohttp

    match failure:
        case aiohttp.ClientConnectorDNSError() | aiohttp.ClientSSLError():
            return False
        case aiohttp.ClientResponseError(status=status):
            return status in _TRANSIENT_STATUSES
        case aiohttp.ClientOSError() | aiohttp.ServerDisconnectedError():
            return True
        case _:
            return False


def _retry_after_s(failure: BaseException | None) -> float | None:
    import aiohttp

    if not isinstance(failure, aiohttp.ClientResponseError) or failure.headers is None:
        return None
    value = failure.headers.get("Retry-After", "").strip()
    return float(value) if value.isascii() and value.isdigit() else None


def body_decoder(
    response: "aiohttp.ClientResponse", address: str
) -> Callable[[bytes], Iterable[bytes]]:
    """Return a function that decompresses a part of a body, in chunks of limited size.

    Raises:
        StreamBrokenError: the encoding was not requested.
    """
    encoding = response.headers.get("Content-Encoding", "").strip().casefold()
    if encoding in {"", "identity"}:
        return lambda received: (received,)
    if encoding not in {"gzip", "deflate"}:
        raise unexpected_answer(address, f"content encoding {encoding}, which was not requested")
    inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)

    def decompress(received: bytes) -> Iterator[bytes]:
        while received:
            try:
                yield inflate.decompress(received, _INFLATE_BYTES)
            except zlib.error as error:
                raise unexpected_answer(address, f"invalid {encoding}: {error}") from error
            received = inflate.unconsumed_tail

    return decompress


async def read_up_to(response: "aiohttp.ClientResponse", address: str, limit: int) -> bytes:
    """Return a body, cut after `limit` bytes."""
    body = bytearray()
    decode = body_decoder(response, address)
    async for received in response.content.iter_any():
        for chunk in decode(received):
            body += chunk
            if len(body) >= limit:
                return bytes(body[:limit])
    return bytes(body)
