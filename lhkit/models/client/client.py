"""Base class of the HTTP clients: identity, connection and streaming."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

from lhkit.base.errors import RequestRefusedError, ServerFailedError, StreamBrokenError, UsageError
from lhkit.base.spelling import Spelling, spelled
from lhkit.conversation.responses import ModelEvent, ModelIdentity
from lhkit.models.base import ModelRequest, prefill
from lhkit.models.client.chat_template import ChatTemplate
from lhkit.models.client.errors import translate_errors
from lhkit.models.client.response import ResponseReader
from lhkit.models.client.transport import Connection
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.turns import BOS

_log = logging.getLogger(__name__)

_NOTES = {
    "refusal": "%s refused to answer: its refusal is the reply (logged once)",
    "other_choices": "%s sends several choices: only the first is read (logged once)",
    "cumulative_text": "%s repeats the text so far in every event: it is read once (logged once)",
    "no_logprobs": "%s reports no log-probabilities: calls have none (logged once)",
    "incomplete_logprobs": "%s does not report the log-probability of every token of a call: such "
    "calls have none (logged once)",
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

    def __init__(
        self,
        identity: ModelIdentity,
        connection: Connection,
        template: ChatTemplate | None = None,
    ) -> None:
        self._identity = identity
        self._template = template
        self._connection = connection
        self._noted: set[str] = set()  # notes of answers that are in the log
        self.spelling: Spelling | None = None
        """How errors name the settings of the model; None for options of the command line."""
        self.max_num_seqs = 0
        """The batch size that the server reports; 0 if it does not."""

    @property
    def identity(self) -> ModelIdentity:
        """Model name, server version, address and dialect."""
        return self._identity

    async def read_metrics(self) -> str:
        """Return the metrics of the server, in Prometheus' text format.

        Raises:
            ModelError: it has none, or does not answer.
        """
        return await self._connection.get_text("/metrics")

    async def _rendered(self, request: ModelRequest) -> str | None:
        """Return the prompt of the model's chat template; None without one.

        Raises:
            UsageError: the template refuses the request.
        """
        if self._template is None:
            return None
        return await asyncio.to_thread(
            self._template.encode,
            self._identity.dialect,
            request.messages,
            request.tools,
            request.instructions,
        )

    @abstractmethod
    async def _exchange(self, request: ModelRequest) -> Exchange:
        """Build the HTTP request for a model request.

        Raises:
            ModelError: as `stream`.
            UsageError: the constraint is not available for these tools, or the chat template
                refuses the request.
        """

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the events of one response; closing early closes the request.

        Raises:
            ModelError: the server refused, failed, disconnected or stalled.
            UsageError: the constraint is not available for these tools.
        """
        with spelled(self.spelling):
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

    async def prompt_of_server(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> str | None:
        """Return the prompt that the server renders of chat messages with its own template.

        llama.cpp has `/apply-template`, vLLM `/tokenize` with messages.

        Args:
            messages: chat messages in OpenAI's format.
            tools: function definitions in OpenAI's format.

        Returns:
            None if the server has no such path, or refuses the messages.

        Raises:
            ModelError: the server does not answer.
        """
        body: dict[str, Any] = {"messages": messages, "add_generation_prompt": True}
        body |= {"tools": tools} if tools else {}
        with suppress(RequestRefusedError, ServerFailedError, StreamBrokenError):
            prompt = (await self._connection.post("/apply-template", body)).get("prompt")
            if isinstance(prompt, str):  # its tokenizer adds the token, which it cuts off here
                return prompt if prompt.startswith(BOS) else BOS + prompt
        model = {"model": self._identity.model}
        with suppress(RequestRefusedError, ServerFailedError, StreamBrokenError):
            tokens = (await self._connection.post("/tokenize", {**model, **body})).get("tokens")
            if isinstance(tokens, list):
                text = await self._connection.post("/detokenize", {**model, "tokens": tokens})
                if isinstance(prompt := text.get("prompt"), str):
                    return prompt
        return None

    async def rendered_prompt(self, request: ModelRequest) -> str:
        """Return the prompt as it is sent, in the dialect or by the model's chat template.

        Raises:
            UsageError: the server renders the prompt, or the template refuses the request.
        """
        if self._identity.dialect not in DIALECTS:
            raise UsageError(
                "With the dialect openai the server renders the prompt. Give another --dialect."
            )
        rendered = await self._rendered(request)
        dialect = DIALECTS[self._identity.dialect]
        if rendered is not None:
            return rendered
        return dialect.encode(request.messages, request.tools, request.instructions)

    async def warm(self, request: ModelRequest) -> None:
        """Process a prompt in advance (see `SupportsWarmUp`).

        Raises:
            ModelError: as `stream`.
        """
        await prefill(self, request)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._connection.aclose()
