"""What the clients of all servers share: identity, connection, how a request is streamed."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from lhkit.models.base import ModelRequest, read_ahead
from lhkit.models.response import ResponseReader
from lhkit.models.transport import Connection
from lhkit.responses import ModelEvent, ModelIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request to a server: what is sent where, the prompt's text, and who reads the answer."""

    path: str
    body: Mapping[str, Any]
    prompt: str
    reader: ResponseReader


class HttpModel(ABC):
    """A served model; close it with `aclose`. Safe for many conversations at once."""

    def __init__(self, identity: ModelIdentity, connection: Connection) -> None:
        self._identity = identity
        self._connection = connection

    @property
    def identity(self) -> ModelIdentity:
        """Model name, server version, address and dialect."""
        return self._identity

    @abstractmethod
    async def _exchange(self, request: ModelRequest) -> Exchange:
        """Return what is sent for a request.

        Raises:
            ModelError: as `stream`.
            UsageError: the constraint cannot be had for these tools.
        """

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the events of one response; closing early closes the request on the server.

        Raises:
            ModelError: the server refused, failed, broke off or stalled.
            UsageError: the constraint cannot be had for these tools.
        """
        sent = await self._exchange(request)
        answer = self._connection.events(sent.path, sent.body, sent.reader)
        async with aclosing(answer) as events:
            async for event in events:
                yield event
        yield sent.reader.finished(identity=self._identity, prompt_text=sent.prompt)

    async def warm(self, request: ModelRequest) -> None:
        """Have the server read a prompt in advance (see `ReadsAhead`).

        Raises:
            ModelError: as `stream`.
        """
        await read_ahead(self, request)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._connection.aclose()
