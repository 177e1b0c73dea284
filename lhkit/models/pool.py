"""Several servers of one model as one: a conversation stays at the server where it began.

Its prompts are in that server's cache. A new conversation goes to the server with the fewest. One
that fails gets no new ones until it has told again who it is; what broke off there is the caller's
to play again, and comes to another one then.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict, dataclass, field, replace

from lhkit.errors import (
    LhkitError,
    ModelError,
    ServerFailedError,
    ServerUnreachableError,
    StreamBrokenError,
    StreamStalledError,
    UnknownModelError,
    UsageError,
)
from lhkit.messages import ModelEvent, ModelIdentity
from lhkit.models.base import ChatModel, ModelRequest, read_ahead
from lhkit.models.http import Endpoint, Pace
from lhkit.models.served import connect

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0

_GONE = (
    ServerUnreachableError,
    ServerFailedError,
    StreamBrokenError,
    StreamStalledError,
    UnknownModelError,
)
"""Faults of a server, not of a request; one that is only too busy is still there."""


@dataclass(slots=True, kw_only=True)
class _Server:
    """One server. `model` is None until it has answered once.

    `talks` are the conversations that are there, `pauses` how often it was left without a whole
    answer since, `times_left` how often in all.
    """

    endpoint: Endpoint
    model: ChatModel | None = None
    talks: int = 0
    pauses: int = 0
    times_left: int = 0
    is_left: bool = False


@dataclass(slots=True, kw_only=True)
class ServerPool:
    """A `ChatModel` over several servers; `conversation` gives one that stays at one of them.

    Make one with `connected_pool`. `identity` is what all servers share, with their addresses in
    its `base_url`, blanks between them.
    """

    identity: ModelIdentity
    pace: Pace
    _servers: Sequence[_Server]
    _returns: set[asyncio.Task[None]] = field(default_factory=set)

    def __len__(self) -> int:
        """How many servers there are, those that are left included."""
        return len(self._servers)

    @property
    def times_left(self) -> Mapping[str, int]:
        """How often each server was left, by its address; only of those that ever were."""
        return {each.endpoint.root: each.times_left for each in self._servers if each.times_left}

    def conversation(self) -> ChatModel:
        """Return the model of one conversation: its first request chooses the server."""
        return _Conversation(self)

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
        """Have every server that answers read a prompt in advance (see `ReadsAhead`).

        Raises:
            ModelError: none of them did.
        """
        up = [each for each in self._servers if not each.is_left]
        done = await asyncio.gather(
            *(self._read_ahead(each, request) for each in up or self._known()),
            return_exceptions=True,
        )
        faults = [each for each in done if isinstance(each, BaseException)]
        for fault in faults:
            if len(faults) == len(done) or not isinstance(fault, ModelError):
                raise fault

    async def aclose(self) -> None:
        """Close the connections, and ask no server any more whether it is back."""
        for task in self._returns:
            task.cancel()
        await asyncio.gather(*self._returns, return_exceptions=True)
        for model in (each.model for each in self._servers):
            if model is not None:
                await model.aclose()

    def least_busy(self) -> _Server:
        """Return the server with the fewest conversations; one that was left only if all were."""
        return min(self._known(), key=lambda each: (each.is_left, each.talks))

    def leave(self, server: _Server) -> None:
        """Give a server nothing new until it answers again."""
        if server.is_left:
            return
        server.is_left = True
        server.times_left += 1
        task = asyncio.create_task(self._return(server))
        self._returns.add(task)
        task.add_done_callback(self._returns.discard)

    def _known(self) -> list[_Server]:
        return [each for each in self._servers if each.model is not None]

    async def _read_ahead(self, server: _Server, request: ModelRequest) -> None:
        await read_ahead(_Conversation(self, server), request)

    async def events(
        self, server: _Server, request: ModelRequest
    ) -> AsyncGenerator[ModelEvent, None]:
        """Yield one server's events, and leave it if it fails."""
        if server.model is None:
            raise ServerUnreachableError(f"nothing has answered at {server.endpoint.root} yet")
        try:
            async with aclosing(server.model.stream(request)) as events:
                async for event in events:
                    yield event
        except _GONE:
            self.leave(server)
            raise
        server.pauses = 0

    async def _return(self, server: _Server) -> None:
        """Ask a server who it is, after longer and longer pauses, until it is the same again."""
        while server.is_left:
            await self.pace.sleep(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**server.pauses))
            server.pauses += 1
            try:
                model = await connect(server.endpoint, pace=self.pace)
            except LhkitError:
                continue
            server.is_left = bool(_difference(self.identity, model.identity))
            if server.is_left or server.model is not None:  # whose connections may be in use
                await model.aclose()
            else:
                server.model = model


class _Conversation:
    """The model of one conversation: all its requests go to one server, the given one if any."""

    def __init__(self, pool: ServerPool, server: _Server | None = None) -> None:
        self._pool = pool
        self._server = server

    @property
    def identity(self) -> ModelIdentity:
        """What all servers share; who really answered stands in each `Finished`."""
        return self._pool.identity

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the events of one response.

        Raises:
            ModelError: as `ChatModel.stream`.
        """
        if self._server is None:
            self._server = self._pool.least_busy()
            self._server.talks += 1
        async with aclosing(self._pool.events(self._server, request)) as events:
            async for event in events:
                yield event

    async def warm(self, request: ModelRequest) -> None:
        """Have all servers read a prompt in advance: nobody knows yet which one will be asked.

        Raises:
            ModelError: none of them did.
        """
        await self._pool.warm(request)

    async def aclose(self) -> None:
        """Make room at the server. The connections are the pool's."""
        if self._server is not None:
            self._server.talks -= 1
            self._server = None


@asynccontextmanager
async def connected_pool(
    endpoints: Sequence[Endpoint], *, pace: Pace | None = None
) -> AsyncIterator[ServerPool]:
    """Ask all servers who they are, and yield them as one model.

    One that does not answer is left for now: somebody who gives a command again after a server has
    died is not to be refused. All others have to be the same.

    Raises:
        UsageError: two serve different models, weights or versions, or an address is none.
        UnknownModelError: a server does not serve that model.
        ModelError: none of them answers, or one refuses.
    """
    servers = [_Server(endpoint=each) for each in endpoints]
    pace = pace or Pace()
    done = await asyncio.gather(
        *(connect(each, pace=pace) for each in endpoints), return_exceptions=True
    )
    for server, answer in zip(servers, done, strict=True):
        server.model = None if isinstance(answer, BaseException) else answer
    faults = [each for each in done if isinstance(each, BaseException)]
    known = [each.model.identity for each in servers if each.model is not None]
    pool = ServerPool(
        identity=replace(known[0], base_url=" ".join(each.root for each in endpoints))
        if known
        else ModelIdentity(model=""),
        pace=pace,
        _servers=servers,
    )
    try:
        for fault in faults:
            if not known or not isinstance(fault, ServerUnreachableError):
                raise fault
        for other in known[1:]:
            if told := _difference(known[0], other):
                raise UsageError(
                    f"{known[0].base_url} and {other.base_url} differ in {told}: the servers of "
                    "one run have to serve one model: take one of the two out of --base-url"
                )
        for server in servers:
            if server.model is None:
                pool.leave(server)
        yield pool
    finally:
        await pool.aclose()


def _difference(one: ModelIdentity, other: ModelIdentity) -> str:
    """Return what two servers tell differently, the address aside; empty for nothing."""
    theirs = asdict(other)
    return "; ".join(
        f"{name} ({value or 'untold'}, {theirs[name] or 'untold'})"
        for name, value in asdict(one).items()
        if name != "base_url" and value != theirs[name]
    )
