"""A Gemma behind vLLM's HTTP server, spoken to in its own dialect.

The prompt is rendered and the answer parsed here (see `dialects`), through `/v1/completions`: the
server's own tool parsers lose data for Gemma. Raw text, token ids, the client's timestamps and
the server's own account are kept of every response.
"""

import hashlib
from collections.abc import AsyncGenerator
from contextlib import aclosing

from lhkit.errors import UsageError
from lhkit.models.base import ModelRequest, read_ahead
from lhkit.models.completion_content import CompletionContent
from lhkit.models.connection import Connection, Endpoint, Pace, connecting
from lhkit.models.detokenizing import detokenized
from lhkit.models.dialects import DIALECTS
from lhkit.models.request_body import completion_body
from lhkit.models.response_reader import ResponseReader
from lhkit.vocab.generation import ModelEvent, ModelIdentity

__all__ = ["Endpoint", "VllmHttp"]


class VllmHttp:
    """A served model. Make one with `connect`; close it with `aclose`.

    Safe for many conversations at once. It holds a connection and no other state.
    """

    def __init__(self, identity: ModelIdentity, connection: Connection) -> None:
        self._identity = identity
        self._connection = connection
        self._dialect = DIALECTS[identity.dialect]

    @classmethod
    async def connect(cls, endpoint: Endpoint, *, pace: Pace | None = None) -> "VllmHttp":
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
        async with connecting(endpoint, pace) as (connection, identity):
            return cls(identity, connection)

    @property
    def identity(self) -> ModelIdentity:
        """Model name, server version, address and dialect."""
        return self._identity

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the events of one response; closing early closes the request on the server.

        Raises:
            ModelError: the server refused, failed, broke off or stalled.
        """
        body = completion_body(request, self._identity)
        reader = ResponseReader(
            content=CompletionContent(self._dialect.incremental(request.tools)),
            max_tokens=request.sampling.max_tokens,
            clock=self._connection.pace.clock,
        )
        async with aclosing(self._connection.events("/v1/completions", body, reader)) as events:
            async for event in events:
                yield event
        prompt: str = body["prompt"]
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
        return await detokenized(self._connection, self._identity.model, token_ids)

    async def warm(self, request: ModelRequest) -> None:
        """Have the server read a prompt in advance (see `ReadsAhead`).

        Raises:
            ModelError: as `stream`.
        """
        await read_ahead(self, request)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._connection.aclose()
