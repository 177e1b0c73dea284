"""One OpenAI-compatible server over aiohttp: its session, its streams, second tries, its limits.

What is asked of it, and what its answers mean, is the business of `vllm`, `llama_cpp` and
`openai_chat`.
"""

import asyncio
import json
import logging
import random
import time
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yarl
from multidict import CIMultiDict, CIMultiDictProxy

from lhkit.errors import ModelError, RequestRefusedError, UsageError
from lhkit.models.dialects.base import Constraint
from lhkit.models.errors import (
    no_address,
    not_a_server,
    redirected,
    refusal,
    stalled,
    too_much,
    transport_faults,
    without_refused,
)
from lhkit.models.response import ResponseReader
from lhkit.redaction import hide, masked
from lhkit.responses import ModelEvent

if TYPE_CHECKING:
    import aiohttp

_log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 10.0
IDLE_TIMEOUT_S = 300.0
"""Longest silence in a stream. On a CPU the first token waits for the prompts ahead of it."""

MOST_BODY_BYTES = 16 << 20
MOST_ERROR_BYTES = 1 << 20
MOST_LINE_BYTES = 16 << 20
"""The first event of a vLLM has the ids of the whole prompt."""
_STREAM_BYTES = 64 << 20
_TOKEN_BYTES = 16 << 10
_STREAM_EVENTS = 10_000
_TOKEN_EVENTS = 16
_PIECE_BYTES = 1 << 20

_OK = 200
_MAY_PASS = frozenset({429, 502, 503, 504})
_PORTS = 65_536
_REDIRECTS = frozenset({300, 301, 302, 303, 305, 307, 308})


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """When a request is sent again, and after how long: only before any answer began.

    Full jitter and doubling as in AWS's "Exponential Backoff And Jitter"; `Retry-After` in seconds,
    RFC 9110 section 10.2.3 (its date form is not obeyed: no wall clock here). `longest_s` bounds
    one pause, `total_s` all of one request.

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
        if failed > self.retries or not is_transient(failure):
            return None
        asked_s = _retry_after_s(failure)
        ceiling_s = min(self.longest_s, self.first_s * 2 ** (failed - 1))
        pause_s = ceiling_s * rng.uniform(0.5, 1.0) if asked_s is None else asked_s
        is_too_long = pause_s > self.longest_s or paused_s + pause_s > self.total_s
        return None if is_too_long else pause_s


class StreamBounds:
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
                bounds = StreamBounds(self.address, reader.max_tokens)
                async with aclosing(plain_chunks(response, self.address)) as chunks:
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


def session_for(endpoint: Endpoint) -> "aiohttp.ClientSession":
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


async def _json_of(response: "aiohttp.ClientResponse", address: str) -> Any:
    await _require_ok(response, address)
    body = await first_bytes(response, address, MOST_BODY_BYTES + 1)
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
    body = await first_bytes(response, address, MOST_ERROR_BYTES)
    request = response.request_info
    told = aiohttp.ClientResponseError(  # without the request's headers, which have the key
        aiohttp.RequestInfo(request.url, request.method, CIMultiDictProxy(CIMultiDict())),
        (),
        status=response.status,
        headers=response.headers,
    )
    raise refusal(response.status, body.decode("utf-8", "replace")) from told


def is_transient(failure: BaseException | None) -> bool:
    """Return True for what another try may mend: refused, reset, too busy, a gateway's trouble.

    The server has generated nothing then, or nothing that anybody saw. An unknown host name, a
    bad certificate, a time-out and every other status stay what they are.
    """
    import aiohttp

    match failure:
        case aiohttp.ClientConnectorDNSError() | aiohttp.ClientSSLError():
            return False
        case aiohttp.ClientResponseError(status=status):
            return status in _MAY_PASS
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


async def plain_chunks(
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


async def first_bytes(response: "aiohttp.ClientResponse", address: str, most: int) -> bytes:
    """Return a body, cut where it is longer than `most` bytes."""
    body = bytearray()
    async with aclosing(plain_chunks(response, address)) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) >= most:
                break
    return bytes(body[:most])
