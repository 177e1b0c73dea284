"""What the chat asks of a model: one request in, a stream of events out."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from lhkit.messages import Message
from lhkit.responses import ModelEvent, ModelIdentity, Sampling
from lhkit.tools.definition import ToolDefinition


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One request: the whole conversation, the tools, the instructions and how to sample."""

    messages: tuple[Message, ...]
    tools: tuple[ToolDefinition, ...] = ()
    instructions: str = ""
    sampling: Sampling = field(default_factory=Sampling)


class ChatModel(Protocol):
    """A model that answers requests: `VllmHttp`, `ScriptedModel`, `CassetteModel`, and others."""

    @property
    def identity(self) -> ModelIdentity:
        """Who answers: written into every record."""
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield events; the last one is `Finished`.

        Closing the iterator early frees the server's slot.

        Raises:
            ModelError: if the world failed (see `lhkit.errors`), never for what the model said.
        """
        ...

    async def aclose(self) -> None:
        """Release connections. The model must not be used afterwards."""
        ...


@runtime_checkable
class ReadsAhead(Protocol):
    """A model that can be shown a prompt in advance: its server keeps what it has read of it."""

    async def warm(self, request: ModelRequest) -> None:
        """Have the prompt read, so that prompts with the same beginning are answered sooner.

        Raises:
            ModelError: as `ChatModel.stream`.
        """
        ...


@runtime_checkable
class PerConversation(Protocol):
    """A model of several servers: each conversation gets one that stays where it began."""

    def conversation(self) -> ChatModel:
        """Return the model of one conversation; closing it makes room for another."""
        ...


async def read_ahead(model: ChatModel, request: ModelRequest) -> None:
    """Have a request read by the shortest answer there is: one token, which nobody sees.

    Raises:
        ModelError: as `ChatModel.stream`.
    """
    shortest = replace(request, sampling=replace(request.sampling, max_tokens=1))
    async with aclosing(model.stream(shortest)) as events:
        async for _ in events:
            pass
