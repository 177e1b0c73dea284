"""Several servers of one model as one `ChatModel`.

A conversation stays on its server, whose prefix cache has its prompts. A new conversation goes to
the server with the fewest. A server that fails gets no new conversations while another works; the
caller retries the interrupted ones, which then go to another server.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict, dataclass, replace

from lhkit.base.errors import (
    ModelError,
    ServerFailedError,
    ServerUnreachableError,
    StreamBrokenError,
    StreamStalledError,
    UnknownModelError,
    UsageError,
)
from lhkit.conversation.responses import ModelEvent, ModelIdentity
from lhkit.models.base import ChatModel, ModelRequest, prefill
from lhkit.models.client.served import connect
from lhkit.models.client.transport import Endpoint

_SERVER_ERRORS = (
    ServerUnreachableError,
    ServerFailedError,
    StreamBrokenError,
    StreamStalledError,
    UnknownModelError,
)
"""Errors of a server, not of a request; an overloaded server has not failed."""


@dataclass(slots=True, eq=False)
class _Server:
    """A model on one server, its number of conversations, and whether it has failed."""

    model: ChatModel
    conversations: int = 0
    has_failed: bool = False


class ServerPool:
    """A `ChatModel` over several servers.

    `conversation` returns a model bound to one of them. Make a pool with `connect_pool`.
    """

    def __init__(self, models: Sequence[ChatModel], addresses: Sequence[str]) -> None:
        self._servers = [_Server(model) for model in models]
        self._addresses = addresses

    def __len__(self) -> int:
        """Return the number of servers that were connected."""
        return len(self._servers)

    @property
    def identity(self) -> ModelIdentity:
        """The common identity, with all addresses in `base_url`, separated by spaces."""
        return replace(self._servers[0].model.identity, base_url=" ".join(self._addresses))

    @property
    def failed_addresses(self) -> tuple[str, ...]:
        """The addresses of the servers that never answered or have failed."""
        working = {
            server.model.identity.base_url for server in self._servers if not server.has_failed
        }
        return tuple(address for address in self._addresses if address not in working)

    def conversation(self) -> ChatModel:
        """Return a model for one conversation; its first request chooses the server."""
        return _Conversation(self)

    def least_busy(self) -> _Server:
        """Return the working server with the fewest conversations."""
        return min(self._servers, key=lambda server: (server.has_failed, server.conversations))

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the events of one response, as a conversation of its own.

        Raises:
            ModelError: as `ChatModel.stream`.
        """
        async with (
            aclosing(self.conversation()) as model,
            aclosing(model.stream(request)) as events,
        ):
            async for event in events:
                yield event

    async def warm(self, request: ModelRequest) -> None:
        """Process a prompt on every working server in advance (see `SupportsWarmUp`).

        Raises:
            ModelError: all servers failed.
        """
        servers = [server for server in self._servers if not server.has_failed] or self._servers
        results = await asyncio.gather(
            *(prefill(server.model, request) for server in servers), return_exceptions=True
        )
        errors = [result for result in results if result is not None]
        for error in errors:
            if len(errors) == len(servers) or not isinstance(error, ModelError):
                raise error

    async def aclose(self) -> None:
        """Close the connections."""
        for server in self._servers:
            await server.model.aclose()


class _Conversation:
    """A model for one conversation, whose requests all go to one server."""

    def __init__(self, pool: ServerPool) -> None:
        self._pool = pool
        self._server: _Server | None = None

    @property
    def identity(self) -> ModelIdentity:
        """The pool's identity; each `Finished` has that of the server that answered."""
        return self._pool.identity

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the events of one response.

        Raises:
            ModelError: as `ChatModel.stream`.
        """
        server = self._server
        if server is None:
            server = self._server = self._pool.least_busy()
            server.conversations += 1
        try:
            async with aclosing(server.model.stream(request)) as events:
                async for event in events:
                    yield event
        except _SERVER_ERRORS:
            server.has_failed = True
            raise

    async def warm(self, request: ModelRequest) -> None:
        """Process a prompt on all servers in advance, because none is chosen yet.

        Raises:
            ModelError: all servers failed.
        """
        await self._pool.warm(request)

    async def aclose(self) -> None:
        """Free the place on the server. The connections belong to the pool."""
        if self._server is not None:
            self._server.conversations -= 1
            self._server = None


@asynccontextmanager
async def connect_pool(endpoints: Sequence[Endpoint]) -> AsyncIterator[ServerPool]:
    """Connect to all servers and yield them as one model.

    A server that does not answer is skipped, so that a command can be repeated after one has died.
    All others must have the same identity.

    Raises:
        UsageError: two servers differ in model, weights or version, or an address is invalid.
        UnknownModelError: a server does not serve that model.
        ModelError: no server answers, or one refuses.
    """
    results = await asyncio.gather(*map(connect, endpoints), return_exceptions=True)
    models = [result for result in results if not isinstance(result, BaseException)]
    async with aclosing(ServerPool(models, [endpoint.root for endpoint in endpoints])) as pool:
        for result in results:
            is_skipped = isinstance(result, ServerUnreachableError) and models
            if isinstance(result, BaseException) and not is_skipped:
                raise result
        _require_same([model.identity for model in models])
        yield pool


def _require_same(identities: Sequence[ModelIdentity]) -> None:
    first = asdict(identities[0])
    for other in map(asdict, identities[1:]):
        differences = [
            f"{name} ({first[name] or 'unknown'}, {other[name] or 'unknown'})"
            for name in first
            if name != "base_url" and first[name] != other[name]
        ]
        if differences:
            raise UsageError(
                f"{first['base_url']} and {other['base_url']} differ in {'; '.join(differences)}: "
                "the servers of one run have to serve one model. Remove one of them from "
                "--base-url."
            )
