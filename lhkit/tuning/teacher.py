"""The scripted teacher whose conversations are the lessons."""

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeAlias

from lhkit.errors import TuningError
from lhkit.harness.record import SampleRecord, Verdict
from lhkit.harness.run import replay
from lhkit.harness.scenario import Expect, Scenario, ScriptedFault, Turn
from lhkit.messages import (
    Finished,
    ModelEvent,
    ModelIdentity,
    ToolCall,
    ToolCallMessage,
    UserMessage,
)
from lhkit.models.base import ModelRequest
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.base import Dialect
from lhkit.models.scripted import Reply, ScriptedModel
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import Toolset
from lhkit.tuning.data import Exchange, TrainingSequence, sequences_of

# An expert that plays training conversations: what it does is scripted, what it meets is real.
#
# Its calls go through the real dispatcher, gate and store, so every result, refusal and
# cancellation in the data is one that the application gives. The wording of a domain is not here.


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


class Author(Protocol):
    """Writes conversations: what `lhkit tune data --conversations` asks for.

    def mine(count, *, seed, korean_share):
        for number in range(count):
            yield Conversation(name=f"mine.{seed}.{number}", kind=..., locale=..., lines=...)
    """

    def __call__(self, count: int, *, seed: int, korean_share: float) -> Iterable[Conversation]:
        """Yield `count` conversations of different names; the same arguments give the same ones."""
        ...


class ExpertModel:
    """A `ChatModel` that plays a conversation's expert and keeps prompt and answer as text.

    The prompt is the one that a served model would get, to the byte: rendered by the dialect.
    """

    def __init__(self, conversation: Conversation, dialect: Dialect) -> None:
        self._conversation = conversation
        self._dialect = dialect
        self._scripted = ScriptedModel(self._reply, name="expert")
        self.needs_isolation = True

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


# Conversations to training sequences, by playing them for real.
#
# Each is replayed like a scenario: a world of its own, the real controller, dispatcher, gate and
# store. What went wrong in a play (an invalid sample, a loop) never becomes data.


_AC = "training"


async def simulate(
    conversations: Sequence[Conversation],
    toolset: Toolset,
    *,
    dialect: str = "json",
    progress: bool = True,
) -> tuple[TrainingSequence, ...]:
    """Play the conversations and return what there is to learn from them, in order.

    Args:
        conversations: with unique names.
        toolset: opens a world for each.
        dialect: how the model will be spoken to.
        progress: show a bar.

    Raises:
        TuningError: a conversation could not be played to its end; names it and says why.
        UsageError: worlds that cannot be, or two conversations of one name.
    """
    chosen = DIALECTS[dialect]
    by_name = {each.name: each for each in conversations}

    def expert(scenario: Scenario, _registry: ToolRegistry) -> ExpertModel:
        return ExpertModel(by_name[scenario.id], chosen)

    run = await replay(
        [scenario_of(each) for each in conversations],
        expert,
        toolset=toolset,
        keep_prompts=True,
        max_attempts=1,
        progress=progress,
    )
    return tuple(
        sequence
        for record, conversation in zip(run.records, conversations, strict=True)
        for sequence in _sequences(record, conversation)
    )


def scenario_of(conversation: Conversation) -> Scenario:
    """Return the conversation as a scenario that expects nothing."""
    turns = tuple(
        Turn(user=line.user, confirm=line.confirm, expect=Expect(extra="any"))
        for line in conversation.lines
    )
    world: dict[str, Any] = conversation.world
    return Scenario(
        id=conversation.name,
        ac=_AC,
        locale=conversation.locale,
        world=world,
        turns=turns,
        faults=conversation.faults,
    )


def _sequences(record: SampleRecord, conversation: Conversation) -> Iterable[TrainingSequence]:
    if record.judgement.verdict is Verdict.INVALID or len(record.evidence.turns) < len(
        conversation.lines
    ):
        raise TuningError(
            f"{conversation.name} could not be played: {'; '.join(record.judgement.reasons)}"
        )
    exchanges = [
        Exchange(
            prompt=call.response.prompt_text,
            answer=call.response.raw_text,
            is_learnt=number not in line.slips,
        )
        for turn, line in zip(record.evidence.turns, conversation.lines, strict=True)
        for number, call in enumerate(turn.model_calls)
    ]
    return sequences_of(conversation.name, conversation.locale, conversation.kind, exchanges)
