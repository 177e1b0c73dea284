"""A Gemma behind vLLM's HTTP server, over aiohttp.

The prompt is rendered and the answer parsed here (see `dialects`), through `/v1/completions`: the
server's own tool parsers lose data for Gemma. Raw text, token ids, the client's timestamps and
the server's own account are kept of every response.
"""

import hashlib
import json
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from lhkit.errors import (
    RequestRefusedError,
    ServerFailedError,
    StreamBrokenError,
    UnknownModelError,
    UsageError,
)
from lhkit.models.base import ModelRequest
from lhkit.models.completion_stream import CompletionReader
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.base import Constraint
from lhkit.models.http_faults import not_a_server, refusal, stalled, transport_faults
from lhkit.vocab.generation import ModelEvent, ModelIdentity, Sampling

CONNECT_TIMEOUT_S = 10.0
IDLE_TIMEOUT_S = 300.0
"""Longest silence in a stream. On a CPU the first token waits for the prompts ahead of it."""
_SHOWN_MODELS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a model is served. `base_url` may end in `/v1` or not; `api_key` is optional."""

    base_url: str
    model: str | None = None
    api_key: str | None = None
    dialect: str = "json"
    constraint: Constraint = "off"
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    idle_timeout_s: float = IDLE_TIMEOUT_S

    @property
    def root(self) -> str:
        """The address without `/v1`."""
        return self.base_url.rstrip("/").removesuffix("/v1")


class VllmHttp:
    """A served model. Make one with `connect`; close it with `aclose`.

    Safe for many conversations at once. It holds a session and no other state.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        identity: ModelIdentity,
        session: aiohttp.ClientSession,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._endpoint = endpoint
        self._identity = identity
        self._session = session
        self._clock = clock
        self._address = endpoint.root
        self._dialect = DIALECTS[endpoint.dialect]

    @classmethod
    async def connect(cls, endpoint: Endpoint) -> "VllmHttp":
        """Ask the server who it is and return a model that talks to it.

        Without `endpoint.model`, the only served model is taken.

        Raises:
            UsageError: unknown dialect, or an address that is none.
            UnknownModelError: the server does not serve that model; the message lists what it does.
            ModelError: nothing answers, or it refuses.
        """
        if endpoint.dialect not in DIALECTS:
            known = ", ".join(sorted(DIALECTS))
            raise UsageError(f"no dialect {endpoint.dialect!r}: choose one of {known}")
        if "@" in endpoint.root:  # it would stand in every record
            raise UsageError("give no password in --base-url: set LHKIT_API_KEY instead")
        session = _session(endpoint)
        try:
            identity = await _identify(endpoint, session)
        except BaseException:
            await session.close()
            raise
        return cls(endpoint, identity, session)

    @property
    def identity(self) -> ModelIdentity:
        """Model name, server version, address and dialect."""
        return self._identity

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the events of one response; closing early closes the request on the server.

        Raises:
            ModelError: the server refused, failed, broke off or stalled.
        """
        prompt = self._dialect.encode(request.messages, request.tools, request.instructions)
        body = {
            **self._body(prompt, request.sampling),
            **self._dialect.constrain(request.tools, self._endpoint.constraint),
        }
        reader = CompletionReader(
            parser=self._dialect.incremental(request.tools),
            max_tokens=request.sampling.max_tokens,
            clock=self._clock,
        )
        with transport_faults(self._address):
            async with self._session.post(self._url("/v1/completions"), json=body) as response:
                await self._require_stream(response)
                reader.headers_came()
                async for chunk in response.content.iter_any():
                    for event in reader.feed(chunk):
                        yield event
                    if reader.is_done:
                        break
                    if reader.silent_s > self._endpoint.idle_timeout_s:
                        raise stalled(self._address)  # nothing but keep-alive comments
        yield reader.finished(
            identity=self._identity,
            prompt_text=prompt,
            prompt_sha256=hashlib.sha256(prompt.encode()).hexdigest(),
        )

    async def detokenize(self, token_ids: tuple[int, ...]) -> str:
        """Return the server's own text for token ids: how it read our prompt.

        Raises:
            ModelError: as `stream`.
        """
        body = {"model": self._identity.model, "tokens": list(token_ids)}
        with transport_faults(self._address):
            async with self._session.post(self._url("/detokenize"), json=body) as response:
                payload = await _json_of(response, self._address)
        if not isinstance(prompt := payload.get("prompt"), str):
            raise not_a_server(self._address, "no prompt at /detokenize")
        return prompt

    async def aclose(self) -> None:
        """Close the connections."""
        await self._session.close()

    def _url(self, path: str) -> str:
        return self._endpoint.root + path

    def _body(self, prompt: str, sampling: Sampling) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._identity.model,
            "prompt": prompt,
            "add_special_tokens": False,  # the prompt has its own <bos>, exactly one
            "skip_special_tokens": False,  # a leaked token must be seen
            "stop_token_ids": list(self._dialect.stop_token_ids),
            "stop": list(self._dialect.stop_texts),
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
        }
        if sampling.seed is not None:
            body["seed"] = sampling.seed
        return body

    async def _require_stream(self, response: aiohttp.ClientResponse) -> None:
        if response.status != 200:  # noqa: PLR2004 - HTTP OK
            raise refusal(response.status, await _text_of(response))
        if response.content_type != "text/event-stream":
            raise not_a_server(self._address, f"{response.content_type}, no event stream")


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


async def _identify(endpoint: Endpoint, session: aiohttp.ClientSession) -> ModelIdentity:
    names = await _served_models(endpoint, session)
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
        server=await _server_version(endpoint, session),
        base_url=endpoint.root,
        dialect=endpoint.dialect,
        constraint=endpoint.constraint,
    )


async def _served_models(endpoint: Endpoint, session: aiohttp.ClientSession) -> list[str]:
    entries = (await _get_json(endpoint, session, "/v1/models")).get("data")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise not_a_server(endpoint.root, "no list of models at /v1/models")
    return [str(entry.get("id")) for entry in entries]


async def _server_version(endpoint: Endpoint, session: aiohttp.ClientSession) -> str:
    try:
        return f"vllm {(await _get_json(endpoint, session, '/version'))['version']}"
    except (RequestRefusedError, ServerFailedError, StreamBrokenError, KeyError):
        return "unknown server"  # other servers have no /version


async def _get_json(
    endpoint: Endpoint, session: aiohttp.ClientSession, path: str
) -> Mapping[str, Any]:
    with transport_faults(endpoint.root):
        async with session.get(endpoint.root + path) as response:
            return await _json_of(response, endpoint.root)


async def _json_of(response: aiohttp.ClientResponse, address: str) -> Mapping[str, Any]:
    text = await _text_of(response)
    if response.status != 200:  # noqa: PLR2004 - HTTP OK
        raise refusal(response.status, text)
    try:
        payload = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise not_a_server(address, text) from error
    if not isinstance(payload, dict):
        raise not_a_server(address, text)
    return payload


async def _text_of(response: aiohttp.ClientResponse) -> str:
    return await response.text(errors="replace")
