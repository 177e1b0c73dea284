"""Base class of the HTTP clients: identity, connection and streaming."""

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from lhkit.conversation.responses import ModelEvent, ModelIdentity
from lhkit.models.base import ModelRequest, prefill
from lhkit.models.client.errors import translate_errors
from lhkit.models.client.response import ResponseReader
from lhkit.models.client.transport import Connection

_log = logging.getLogger(__name__)

_NOTES = {
    "refusal": "%s refused to answer: its refusal is the reply (logged once)",
    "other_choices": "%s sends several choices: only the first is read (logged once)",
    "cumulative_text": "%s repeats the text so far in every event: it is read once (logged once)",
}
"""Lines of the log by the codes of `Finished.notes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One HTTP request: path, body, prompt, and the reader of the response."""

    path: str
    body: Mapping[str, Any]
    prompt: str
    reader: ResponseReader


class HttpModel(ABC):
    """A served model; close it with `aclose`. Safe for concurrent conversations."""

    def __init__(self, identity: ModelIdentity, connection: Connection) -> None:
        self._identity = identity
        self._connection = connection
        self._noted: set[str] = set()  # notes of answers that are in the log

    @property
    def identity(self) -> ModelIdentity:
        """Model name, server version, address and dialect."""
        return self._identity

    @abstractmethod
    async def _exchange(self, request: ModelRequest) -> Exchange:
        """Build the HTTP request for a model request.

        Raises:
            ModelError: as `stream`.
            UsageError: the constraint is not available for these tools.
        """

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the events of one response; closing early closes the request.

        Raises:
            ModelError: the server refused, failed, disconnected or stalled.
            UsageError: the constraint is not available for these tools.
        """
        exchange = await self._exchange(request)
        stream = self._connection.events(exchange.path, exchange.body, exchange.reader)
        async with aclosing(stream) as events:
            async for event in events:
                yield event
        with translate_errors(self._connection.address):
            finished = exchange.reader.finished(
                identity=self._identity, prompt_text=exchange.prompt
            )
        for note in set(finished.notes) - self._noted:
            self._noted.add(note)
            _log.warning(_NOTES[note], self._connection.address)
        yield finished

    async def warm(self, request: ModelRequest) -> None:
        """Process a prompt in advance (see `SupportsWarmUp`).

        Raises:
            ModelError: as `stream`.
        """
        await prefill(self, request)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._connection.aclose()
