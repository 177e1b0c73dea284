"""Several servers of one model as one: a conversation stays at the server where it began.

Its prompts are in that server's cache. A new conversation goes to the server with the fewest. One
that fails is left: it gets no new ones while another is there. What broke off is the caller's to
play again, and comes to another one then.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict, dataclass, replace

from lhkit.errors import (
    ModelError,
    ServerFailedError,
    ServerUnreachableError,
    StreamBrokenError,
    StreamStalledError,
    UnknownModelError,
    UsageError,
)
from lhkit.models.base import ChatModel, ModelRequest, read_ahead
from lhkit.models.served import connect
from lhkit.models.transport import Endpoint
from lhkit.responses import ModelEvent, ModelIdentity

_SERVER_FAULTS = (
    ServerUnreachableError,
    ServerFailedError,
    StreamBrokenError,
    StreamStalledError,
    UnknownModelError,
)
"""Faults of a server, not of a request; one that is only too busy is still there."""


@dataclass(slots=True, eq=False)
class _Server:
    """A model at one server, how many conversations it has, and whether it has failed."""

    model: ChatModel
    conversations: int = 0
    is_left: bool = False


class ServerPool:
    """A `ChatModel` over several servers; `conversation` gives one that stays at one of them.

    Make one with `connected_pool`.
    """

    def __init__(self, models: Sequence[ChatModel], addresses: Sequence[str]) -> None:
        self._servers = [_Server(each) for each in models]
        self._addresses = addresses

    def __len__(self) -> int:
        """How many servers answered when they were connected."""
        return len(self._servers)

    @property
    def identity(self) -> ModelIdentity:
        """What all servers share, with their addresses in `base_url`, blanks between them."""
        return replace(self._servers[0].model.identity, base_url=" ".join(self._addresses))

    @property
    def left(self) -> tuple[str, ...]:
        """The addresses of the servers that never answered or have failed."""
        there = {each.model.identity.base_url for each in self._servers if not each.is_left}
        return tuple(each for each in self._addresses if each not in there)

    def conversation(self) -> ChatModel:
        """Return the model of one conversation: its first request chooses the server."""
        return _Conversation(self)

    def least_busy(self) -> _Server:
        """Return the server with the fewest conversations; one that failed only if all did."""
        return min(self._servers, key=lambda each: (each.is_left, each.conversations))

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
        """Have every server that has not failed read a prompt in advance (see `ReadsAhead`).

        Raises:
            ModelError: none of them did.
        """
        asked = [each for each in self._servers if not each.is_left] or self._servers
        done = await asyncio.gather(
            *(read_ahead(each.model, request) for each in asked), return_exceptions=True
        )
        faults = [each for each in done if each is not None]
        for fault in faults:
            if len(faults) == len(asked) or not isinstance(fault, ModelError):
                raise fault

    async def aclose(self) -> None:
        """Close the connections."""
        for each in self._servers:
            await each.model.aclose()


class _Conversation:
    """The model of one conversation: all its requests go to one server."""

    def __init__(self, pool: ServerPool) -> None:
        self._pool = pool
        self._server: _Server | None = None

    @property
    def identity(self) -> ModelIdentity:
        """What all servers share; who really answered stands in each `Finished`."""
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
        except _SERVER_FAULTS:
            server.is_left = True
            raise

    async def warm(self, request: ModelRequest) -> None:
        """Have all servers read a prompt in advance: nobody knows yet which one will be asked.

        Raises:
            ModelError: none of them did.
        """
        await self._pool.warm(request)

    async def aclose(self) -> None:
        """Make room at the server. The connections are the pool's."""
        if self._server is not None:
            self._server.conversations -= 1
            self._server = None


@asynccontextmanager
async def connected_pool(endpoints: Sequence[Endpoint]) -> AsyncIterator[ServerPool]:
    """Ask all servers who they are, and yield them as one model.

    One that does not answer is left: somebody who gives a command again after a server has died is
    not to be refused. All others have to be the same.

    Raises:
        UsageError: two serve different models, weights or versions, or an address is none.
        UnknownModelError: a server does not serve that model.
        ModelError: none of them answers, or one refuses.
    """
    done = await asyncio.gather(*map(connect, endpoints), return_exceptions=True)
    models = [each for each in done if not isinstance(each, BaseException)]
    async with aclosing(ServerPool(models, [each.root for each in endpoints])) as pool:
        for fault in done:
            is_absent = isinstance(fault, ServerUnreachableError) and models
            if isinstance(fault, BaseException) and not is_absent:
                raise fault
        _require_same([each.identity for each in models])
        yield pool


def _require_same(identities: Sequence[ModelIdentity]) -> None:
    first = asdict(identities[0])
    for other in map(asdict, identities[1:]):
        found = [
            f"{name} ({first[name] or 'untold'}, {other[name] or 'untold'})"
            for name in first
            if name != "base_url" and first[name] != other[name]
        ]
        if found:
            raise UsageError(
                f"{first['base_url']} and {other['base_url']} differ in {'; '.join(found)}: the "
                "servers of one run have to serve one model: take one of the two out of --base-url"
            )
