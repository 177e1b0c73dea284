"""vLLM's completions endpoint: the prompt is rendered and the reply is parsed here."""

import hashlib
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from typing import Any

from lhkit.errors import ModelError, StreamBrokenError, UsageError
from lhkit.messages import ModelEvent, ModelIdentity, TextDelta, ToolCallParsed
from lhkit.models.base import ModelRequest, read_ahead
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.base import BOS, IncrementalParser, ParsedEvent, ParseResult
from lhkit.models.errors import not_a_server
from lhkit.models.identity import connecting
from lhkit.models.payload import typed
from lhkit.models.request import completion_body
from lhkit.models.response import ResponseReader
from lhkit.models.transport import Connection, Endpoint, Pace

# The choices of `/v1/completions`: plain text, which a dialect's parser reads as it comes.
#
# Source of the format: vLLM's `/v1/completions` with `return_token_ids` (one chunk a step).


class CompletionContent:
    """Feeds one response's text to a parser and keeps it."""

    def __init__(self, parser: IncrementalParser) -> None:
        self._parser = parser
        self._pieces: list[str] = []
        self._shown_chars = 0
        self._shown_calls = 0
        self.result: ParseResult | None = None

    @property
    def raw_text(self) -> str:
        """All of the text."""
        return "".join(self._pieces)

    def has_token(self, choice: Mapping[str, Any]) -> bool:
        """Return True if the choice has text."""
        return bool(choice.get("text"))

    def feed(self, choice: Mapping[str, Any]) -> Iterator[ParsedEvent]:
        """Yield what has become certain.

        Raises:
            StreamBrokenError: there is text after the end, or it is no text.
        """
        text = typed(choice, "text", str)
        if not text:
            return
        if self.result is not None:
            raise StreamBrokenError(
                "the server went on after the end: give --base-url of the server itself, without a "
                "proxy that changes its streams"
            )
        self._pieces.append(text)
        for event in self._parser.feed(text):
            if isinstance(event, TextDelta):
                self._shown_chars += len(event.text)
            elif isinstance(event, ToolCallParsed):
                self._shown_calls += 1
            yield event

    def end(self) -> Iterator[ParsedEvent]:
        """Yield what the parser held back, as soon as the model has ended."""
        self.result = self._parser.close()
        if rest := self.result.text[self._shown_chars :]:
            yield TextDelta(text=rest)
        for call in self.result.calls[self._shown_calls :]:
            yield ToolCallParsed(call=call)

    def close(self, *, truncated: bool) -> Iterator[ParsedEvent]:
        """Yield nothing: in the text itself every call is complete, or is a fragment."""
        return iter(())


# A Gemma behind vLLM's HTTP server, spoken to in its own dialect.
#
# The prompt is rendered and the answer parsed here (see `dialects`), through `/v1/completions`:
# the server's own tool parsers lose data for Gemma. Raw text, token ids, the client's timestamps
# and the server's own account are kept of every response.


__all__ = ["Endpoint", "VllmHttp", "adding_start"]


async def adding_start(connection: Connection, model: str) -> bool:
    """Return whether a server puts a `<bos>` before a prompt that has one, asked not to.

    vLLM does as it is asked. Others (llama.cpp's `/v1/completions` among them) always add one: it
    shows in how many tokens they count for a prompt that is nothing else. A server that does not
    count is spoken to as if it were a vLLM.
    """
    asked = {"model": model, "prompt": BOS, "max_tokens": 1, "add_special_tokens": False}
    try:
        told = await connection.post("/v1/completions", {**asked, "temperature": 0.0})
    except ModelError:
        return False  # whatever it is, the first request will tell
    counted = (typed(told, "usage", dict) or {}).get("prompt_tokens")
    return bool(counted == 2)


class VllmHttp:
    """A served model. Make one with `connect`; close it with `aclose`.

    Safe for many conversations at once. It holds a connection and no other state. A server that
    puts a `<bos>` before every prompt (`adds_start`, see `adding_start`) gets prompts without.
    """

    def __init__(
        self, identity: ModelIdentity, connection: Connection, *, adds_start: bool = False
    ) -> None:
        self._identity = identity
        self._connection = connection
        self._dialect = DIALECTS[identity.dialect]
        self._adds_start = adds_start

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
        prompt: str = body["prompt"]
        if self._adds_start:
            body = {**body, "prompt": prompt.removeprefix(BOS)}
        reader = ResponseReader(
            content=CompletionContent(self._dialect.incremental(request.tools)),
            max_tokens=request.sampling.max_tokens,
            clock=self._connection.pace.clock,
        )
        async with aclosing(self._connection.events("/v1/completions", body, reader)) as events:
            async for event in events:
                yield event
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
        asked = {"model": self._identity.model, "tokens": list(token_ids)}
        told = await self._connection.post("/detokenize", asked)
        if not isinstance(prompt := told.get("prompt"), str):
            raise not_a_server(self._connection.address, "no prompt at /detokenize")
        return prompt

    async def warm(self, request: ModelRequest) -> None:
        """Have the server read a prompt in advance (see `ReadsAhead`).

        Raises:
            ModelError: as `stream`.
        """
        await read_ahead(self, request)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._connection.aclose()
