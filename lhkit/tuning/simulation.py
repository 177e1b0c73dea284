"""Conversations to training sequences, by playing them for real.

Each is replayed like a scenario: a world of its own, the real controller, dispatcher, gate and
store. What went wrong in a play (an invalid sample, a loop) never becomes data.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from lhkit.errors import TuningError
from lhkit.harness.records.record import SampleRecord, Verdict
from lhkit.harness.replay.environment import Environment
from lhkit.harness.replay.runner import replay
from lhkit.harness.scenarios.script import Expect, Scenario, Turn
from lhkit.models.dialects import DIALECTS
from lhkit.tools.registry import ToolRegistry
from lhkit.tuning.expert import Conversation, ExpertModel
from lhkit.tuning.sequence import Exchange, TrainingSequence, sequences_of

_AC = "training"


async def simulate(
    conversations: Sequence[Conversation],
    environment: Environment,
    *,
    dialect: str = "json",
    progress: bool = True,
) -> tuple[TrainingSequence, ...]:
    """Play the conversations and return what there is to learn from them, in order.

    Args:
        conversations: with unique names.
        environment: opens a world for each.
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
        environment=environment,
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
    if record.verdict is Verdict.INVALID or len(record.turns) < len(conversation.lines):
        raise TuningError(f"{conversation.name} could not be played: {'; '.join(record.reasons)}")
    exchanges = [
        Exchange(
            prompt=call.prompt_text or "",
            answer=call.raw_text,
            is_learnt=number not in line.slips,
        )
        for turn, line in zip(record.turns, conversation.lines, strict=True)
        for number, call in enumerate(turn.model_calls)
    ]
    return sequences_of(conversation.name, conversation.locale, conversation.kind, exchanges)
