"""The interface of a chat model: one request in, a stream of events out."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from lhkit.conversation.messages import Message
from lhkit.conversation.responses import ModelEvent, ModelIdentity, Sampling
from lhkit.conversation.tool_spec import ToolSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One request: whole conversation, tools, instructions and sampling.

    `choices` are the only answers that are wanted. vLLM and llama.cpp can write nothing else then;
    of other servers any answer may come. With `logprobs` the calls of the answer have the
    log-probabilities of their tokens, where the server reports them.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    instructions: str = ""
    sampling: Sampling = field(default_factory=Sampling)
    choices: tuple[str, ...] = ()
    logprobs: bool = False


class ChatModel(Protocol):
    """A model that answers requests, such as `VllmHttp` or `ScriptedModel`."""

    @property
    def identity(self) -> ModelIdentity:
        """The identity of the model, which is written into every record."""
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield events; the last one is `Finished`.

        Closing the iterator early frees the server's slot.

        Raises:
            ModelError: an infrastructure error (see `lhkit.base.errors`), never a bad answer.
        """
        ...

    async def aclose(self) -> None:
        """Release connections. The model must not be used afterwards."""
        ...


@runtime_checkable
class SupportsWarmUp(Protocol):
    """A model whose server caches prompts, so that one can be processed in advance."""

    async def warm(self, request: ModelRequest) -> None:
        """Process a prompt in advance: prompts with the same prefix are answered sooner.

        Raises:
            ModelError: as `ChatModel.stream`.
        """
        ...


async def prefill(model: ChatModel, request: ModelRequest) -> None:
    """Have a model process a prompt by requesting a single token.

    Raises:
        ModelError: as `ChatModel.stream`.
    """
    shortest = replace(request, sampling=replace(request.sampling, max_tokens=1))
    async with aclosing(model.stream(shortest)) as events:
        async for _ in events:
            pass
