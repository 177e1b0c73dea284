"""One sample: a scripted conversation through the real controller, in a world of its own.

Everything live (model, session, gate) stays in here; what comes out is a record.
"""

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import repeat

from lhkit.chat.controller import ChatController
from lhkit.confirm.gate import ConfirmGate, ScriptedGate
from lhkit.errors import LhkitError, UsageError
from lhkit.harness.records.record import (
    BrokenRule,
    Evidence,
    Judgement,
    RowKeys,
    SampleRecord,
    State,
    TurnRecord,
    Verdict,
)
from lhkit.harness.records.state_diff import state_diff
from lhkit.harness.records.turn_record import EventLog, WallTime, turn_record
from lhkit.harness.replay.breakage import breaking
from lhkit.harness.replay.distractors import counted_tools
from lhkit.harness.replay.environment import (
    Environment,
    Session,
    opened,
    row_keys_of,
    rules_broken,
    state_of,
)
from lhkit.harness.replay.plan import Job, ModelSource, chosen_model, seeded
from lhkit.harness.scenarios.script import Turn
from lhkit.harness.verdicts.audit import audited
from lhkit.harness.verdicts.scorers import ToolFacts, judge
from lhkit.locales import load_catalog
from lhkit.models.base import ChatModel, ModelRequest, ReadsAhead
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.vocab.events import EndReason
from lhkit.vocab.messages import UserMessage

_OPENING = "…"
"""What nobody says in a scenario: of a sample's own words nothing is to be in the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What all samples of a run share. `clock` gives monotonic seconds, `wall` adds them up."""

    model: ModelSource
    environment: Environment
    clock: Callable[[], float]
    keep_prompts: bool = False
    begun_s: float = 0.0
    started_at: datetime | None = None
    wall: WallTime | None = None

    def moment(self) -> str | None:
        """Return the present, counted from the start of the run; None if nobody told that."""
        if self.started_at is None:
            return None
        return (self.started_at + timedelta(seconds=self.clock() - self.begun_s)).isoformat()


@dataclass(slots=True)
class _SoFar:
    """What is known of a conversation so far, so that a crash does not lose it."""

    turns: list[TurnRecord] = field(default_factory=list)
    before: State = field(default_factory=dict)
    after: State = field(default_factory=dict)
    broken_rules: tuple[BrokenRule, ...] = ()
    row_keys: RowKeys = field(default_factory=dict)

    def evidence(self, fault: str | None = None) -> Evidence:
        return Evidence(
            turns=tuple(self.turns),
            initial_state=self.before,
            final_state=self.after,
            broken_rules=self.broken_rules,
            fault=fault,
        )


async def warm_up(job: Job, stage: Stage) -> bool:
    """Have the server read what samples like this one begin with: instructions and tools.

    Return whether it did. It has to come before many of them ask at once, or each has the same
    beginning read anew. A fault is left for the samples to meet, which tell it better.
    """
    scenario = job.scenario
    with opened(stage.environment, scenario.world, scenario.locale) as session:
        model = chosen_model(stage.model, scenario, session.registry)
        request = ModelRequest(
            messages=(UserMessage(text=_OPENING),),
            tools=session.registry.definitions,
            instructions=session.assistant.instructions,
            sampling=session.assistant.sampling,
        )
        try:
            if not isinstance(model, ReadsAhead):
                return False
            await model.warm(request)
        except LhkitError:
            return False
        finally:
            if model is not stage.model:
                await model.aclose()
    return True


async def play_sample(job: Job, stage: Stage, *, attempt: int = 1) -> SampleRecord:
    """Play one scenario once and return its record. A fault of ours makes it `invalid`."""
    started_at, started_s = stage.moment(), stage.clock()
    play = _SoFar()
    fault = None
    try:
        judgement = await _play(job, stage, play)
    except UsageError as error:  # their world or their state: it says what to mend
        fault = str(error)
        judgement = Judgement(verdict=Verdict.INVALID, reasons=(fault,))
    except Exception:  # noqa: BLE001 - boundary: a bug of ours must not count against the model
        fault = traceback.format_exc()
        judgement = Judgement(verdict=Verdict.INVALID, reasons=(fault,))
    wall_s = stage.clock() - started_s
    return sample_record(
        job,
        play.evidence(fault),
        judgement,
        attempts=attempt,
        wall_s=wall_s,
        started_at=started_at,
    )


def sample_record(
    job: Job,
    evidence: Evidence,
    judgement: Judgement,
    *,
    attempts: int,
    wall_s: float = 0.0,
    started_at: str | None = None,
) -> SampleRecord:
    """Put the record of a sample together."""
    return SampleRecord(
        sample_id=job.sample_id,
        content_hash=job.content_hash,
        verdict=judgement.verdict,
        reasons=judgement.reasons,
        ac=job.scenario.ac,
        locale=job.scenario.locale,
        tags=job.scenario.tags,
        violations=judgement.violations,
        scores=judgement.scores,
        state_equal=judgement.state_equal,
        turns=evidence.turns,
        initial_state=evidence.initial_state,
        final_state=evidence.final_state,
        broken_rules=evidence.broken_rules,
        state_diff=state_diff(evidence.initial_state, evidence.final_state),
        fault=evidence.fault,
        attempts=attempts,
        wall_s=wall_s,
        harness_s=wall_s - sum(map(_elsewhere_s, evidence.turns)),
        started_at=started_at,
    )


async def _play(job: Job, stage: Stage, play: _SoFar) -> Judgement:
    scenario = job.scenario
    with opened(stage.environment, scenario.world, scenario.locale) as session:
        model = chosen_model(stage.model, scenario, session.registry)
        try:
            await _converse(job, stage, play, session, model)
        finally:
            if model is not stage.model:
                await model.aclose()
        tools = ToolFacts(
            schemas={
                tool.name: tool.schema_on(session.today) for tool in counted_tools(session.registry)
            },
            destructive=session.registry.destructive,
        )
        evidence = play.evidence()
        return judge(scenario, evidence, tools, today=session.today, row_keys=play.row_keys)


async def _converse(
    job: Job, stage: Stage, play: _SoFar, session: Session, model: ChatModel
) -> None:
    """Say the user's lines one after the other, until one fails."""
    catalog = load_catalog(job.scenario.locale)
    sampling = seeded(session.assistant.sampling, job.repeat)
    controller = ChatController(
        model=model,
        dispatcher=ToolDispatcher(
            breaking(session.registry, job.scenario.faults), catalog=catalog, clock=stage.clock
        ),
        assistant=replace(session.assistant, sampling=sampling),
        catalog=catalog,
    )
    log = EventLog(stage.clock)
    controller.subscribe(log)
    if stage.wall is not None:
        controller.subscribe(stage.wall.listener())
    play.before = state_of(session)
    play.row_keys = row_keys_of(session, play.before)
    schemas = {tool.name: tool.parameters for tool in session.registry.definitions}
    for turn in job.scenario.turns:
        controller.confirm = _gate(turn)
        await controller.user_turn(turn.user)
        record = turn_record(
            turn.user,
            log.take(),
            destructive=session.registry.destructive,
            keep_prompts=stage.keep_prompts,
        )
        play.turns.append(audited(record, schemas))
        if record.ended is EndReason.FAILED:
            break
    play.after = state_of(session)
    play.broken_rules = rules_broken(session, play.before, play.after)


def _gate(turn: Turn) -> ConfirmGate | None:
    match turn.confirm:
        case "absent":
            return None
        case "accept":
            return ScriptedGate(repeat(True))
        case "reject":
            return ScriptedGate(())
        case answers:
            return ScriptedGate(answer == "accept" for answer in answers)


def _elsewhere_s(turn: TurnRecord) -> float:
    """Return the time that model, tools and user took, in seconds."""
    tools_s = sum(call.handler_s + call.waiting_s for call in turn.calls)
    return tools_s + sum(call.duration_s for call in turn.model_calls)
