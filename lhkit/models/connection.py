"""One OpenAI-compatible server over aiohttp: who it is, its streams, its faults, second tries.

What is asked of it, and what its answers mean, is `vllm_http`'s and `openai_http`'s business.
"""

import asyncio
import json
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import aiohttp
import yarl

from lhkit.errors import (
    ModelError,
    RequestRefusedError,
    ServerFailedError,
    StreamBrokenError,
    UnknownModelError,
    UsageError,
)
from lhkit.models.backoff import Backoff
from lhkit.models.dialects.base import Constraint
from lhkit.models.http_faults import no_address, not_a_server, refusal, stalled, transport_faults
from lhkit.models.response_reader import ResponseReader
from lhkit.models.vllm_server import sha256_of
from lhkit.vocab.generation import ModelEvent, ModelIdentity

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
    api_key: str | None = None
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
    """A session with one server. It holds no other state; many requests may run at once."""

    def __init__(
        self, endpoint: Endpoint, session: aiohttp.ClientSession, pace: Pace | None = None
    ) -> None:
        self.address = endpoint.root
        self.pace = pace or Pace()
        self._session = session
        self._idle_timeout_s = endpoint.idle_timeout_s
        self._backoff = Backoff(retries=endpoint.retries)

    async def events(
        self, path: str, body: Mapping[str, Any], reader: ResponseReader
    ) -> AsyncGenerator[ModelEvent, None]:
        """Yield what `reader` makes of the streamed answer; closing early closes the request.

        Raises:
            ModelError: the server refused, failed, broke off or stalled.
        """
        with transport_faults(self.address):
            async with self._opened(path, body, reader) as response:
                reader.headers_came()
                async for chunk in response.content.iter_any():
                    for event in reader.feed(chunk):
                        yield event
                    if reader.is_done:
                        break
                    if reader.silent_s > self._idle_timeout_s:
                        raise stalled(self.address)  # nothing but keep-alive comments

    async def get(self, path: str) -> Mapping[str, Any]:
        """Return a JSON object.

        Raises:
            ModelError: nothing answers, it refuses, or it answers something else.
        """
        with transport_faults(self.address):
            async with self._session.get(self.address + path) as response:
                return await _json_of(response, self.address)

    async def post(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the JSON object that answers `body`.

        Raises:
            ModelError: as `get`.
        """
        with transport_faults(self.address):
            async with self._session.post(self.address + path, json=body) as response:
                return await _json_of(response, self.address)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._session.close()

    @asynccontextmanager
    async def _opened(
        self, path: str, body: Mapping[str, Any], reader: ResponseReader
    ) -> AsyncIterator[aiohttp.ClientResponse]:
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

    async def _stream(self, path: str, body: Mapping[str, Any]) -> aiohttp.ClientResponse:
        with transport_faults(self.address):
            response = await self._session.post(self.address + path, json=body)
            if response.status == _OK and response.content_type == "text/event-stream":
                return response
            async with response:
                await _require_ok(response)
                raise not_a_server(self.address, f"{response.content_type}, no event stream")


@asynccontextmanager
async def connecting(
    endpoint: Endpoint, pace: Pace | None = None
) -> AsyncIterator[tuple[Connection, ModelIdentity]]:
    """Yield a new connection and who answers there; it is closed only if the block fails.

    Without `endpoint.model`, the only served model is taken. Nothing is tried twice here: a wrong
    address is to be told at once.

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


def _session(endpoint: Endpoint) -> aiohttp.ClientSession:
    api_key = (endpoint.api_key or "").strip()  # keys are pasted with line ends
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    timeout = aiohttp.ClientTimeout(
        total=None,
        sock_connect=endpoint.connect_timeout_s,
        sock_read=endpoint.idle_timeout_s,
    )
    # No limit: the server queues, not the client. One connection a request: a pooled one may be
    # closing already (vLLM does so after 5 s), and a request sent into it fails for nothing.
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    return aiohttp.ClientSession(connector=connector, timeout=timeout, headers=headers)


async def _identify(endpoint: Endpoint, connection: Connection) -> ModelIdentity:
    served = await _served_models(connection)
    names = list(served)
    if endpoint.model is None and len(names) == 1:
        model = names[0]
    elif endpoint.model in names:
        model = str(endpoint.model)
    else:
        listed = ", ".join(names[:_SHOWN_MODELS]) or "no model at all"
        raise UnknownModelError(
            f"{endpoint.root} serves {listed}, not {endpoint.model or 'exactly one model'}: "
            "give one of these with --model"
        )
    return ModelIdentity(
        model=model,
        server=await _server_version(connection),
        base_url=endpoint.root,
        dialect=endpoint.dialect,
        constraint=endpoint.constraint,
        weights=weights_name(served[model].root, model),
        weights_sha256=served[model].weights_sha256,
    )


def weights_name(root: str, model: str) -> str:
    """Return what names the weights behind a served name; empty where the name says it all.

    Of a folder its own name, so that no path of a machine gets into records.
    """
    name = PurePath(root).name if PurePath(root).is_absolute() else root
    return "" if name == model else name


@dataclass(frozen=True, slots=True, kw_only=True)
class _Served:
    """What a server says of one name: what it loaded, and the hash of that; empty if untold."""

    root: str
    weights_sha256: str


async def _served_models(connection: Connection) -> dict[str, _Served]:
    """Return what is served, by name. The alias that tells a hash is no model of its own.

    It tells of the names with its own root: an adapter that is served beside has another one.
    """
    entries = (await connection.get("/v1/models")).get("data")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise not_a_server(connection.address, "no list of models at /v1/models")
    roots = {str(entry.get("id")): str(entry.get("root") or "") for entry in entries}
    hashes = {root: sha256 for name, root in roots.items() if root and (sha256 := sha256_of(name))}
    return {
        name: _Served(root=root, weights_sha256=hashes.get(root, ""))
        for name, root in roots.items()
        if not sha256_of(name)
    }


async def _server_version(connection: Connection) -> str:
    try:
        return f"vllm {(await connection.get('/version'))['version']}"
    except (RequestRefusedError, ServerFailedError, StreamBrokenError, KeyError):
        return "unknown server"  # other servers have no /version


async def _json_of(response: aiohttp.ClientResponse, address: str) -> Mapping[str, Any]:
    await _require_ok(response)
    text = await response.text(errors="replace")
    try:
        payload = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise not_a_server(address, text) from error
    if not isinstance(payload, dict):
        raise not_a_server(address, text)
    return payload


async def _require_ok(response: aiohttp.ClientResponse) -> None:
    if response.status == _OK:
        return
    told = aiohttp.ClientResponseError(
        response.request_info, (), status=response.status, headers=response.headers
    )
    raise refusal(response.status, await response.text(errors="replace")) from told
