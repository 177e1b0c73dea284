"""An expert that plays training conversations: what it does is scripted, what it meets is real.

Its calls go through the real dispatcher, gate and store, so every result, refusal and cancellation
in the data is one that the application gives. The wording of a domain is not here.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from lhkit.harness.scenarios.script import ScriptedFault
from lhkit.models.base import ModelRequest
from lhkit.models.dialects.base import Dialect
from lhkit.models.scripted import Reply, ScriptedModel
from lhkit.vocab.generation import Finished, ModelEvent, ModelIdentity
from lhkit.vocab.messages import ToolCall, ToolCallMessage, UserMessage

Act: TypeAlias = Callable[[Sequence[ToolCallMessage]], Reply]
"""What the expert does next in a turn, given the turn's settled calls so far."""

Answers: TypeAlias = Literal["accept", "reject", "absent"] | tuple[Literal["accept", "reject"], ...]
"""What the user clicks in a turn: always the same, one after the other, or nothing at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One thing the user says, what the user clicks, and how the expert acts on it.

    `slips` are the expert's messages of this turn (from 0) that are played but not learnt: mistakes
    that show how to go on after one.
    """

    user: str
    act: Act
    confirm: Answers = "accept"
    slips: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A conversation to learn from; `kind` names what it teaches, `world` is its first state.

    `faults` are tools whose first calls fail.
    """

    name: str
    kind: str
    locale: str
    world: dict[str, Any] = field(default_factory=dict)
    lines: tuple[Line, ...] = ()
    faults: tuple[ScriptedFault, ...] = ()


class ExpertModel:
    """A `ChatModel` that plays a conversation's expert and keeps prompt and answer as text.

    The prompt is the one that a served model would get, to the byte: rendered by the dialect.
    """

    def __init__(self, conversation: Conversation, dialect: Dialect) -> None:
        self._conversation = conversation
        self._dialect = dialect
        self._scripted = ScriptedModel(self._reply, name="expert")

    @property
    def identity(self) -> ModelIdentity:
        """Who answers: the expert, in its dialect."""
        return replace(self._scripted.identity, dialect=self._dialect.name)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the events of the expert's next reply."""
        prompt = self._dialect.encode(request.messages, request.tools, request.instructions)
        async for event in self._scripted.stream(request):
            yield replace(event, prompt_text=prompt) if isinstance(event, Finished) else event

    async def aclose(self) -> None:
        """Do nothing: there is nothing to release."""

    def _reply(self, request: ModelRequest) -> Reply:
        turns = [i for i, said in enumerate(request.messages) if isinstance(said, UserMessage)]
        settled = [
            message
            for message in request.messages[turns[-1] :]
            if isinstance(message, ToolCallMessage)
        ]
        reply = self._conversation.lines[len(turns) - 1].act(settled)
        return replace(reply, calls=tuple(map(self._written, reply.calls)))

    def _written(self, call: ToolCall) -> ToolCall:
        return replace(call, raw=self._dialect.render_call(call.name, call.args))
