"""One sample: a scripted conversation through the real controller, in a world of its own.

Everything live (model, session, gate) stays in here; what comes out is a record.
"""

import asyncio
import hashlib
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import repeat

from lhkit.chat.controller import ChatController
from lhkit.confirm.gate import ConfirmGate, ConfirmRequest, ScriptedGate
from lhkit.errors import LhkitError
from lhkit.events import EndReason
from lhkit.harness.distractors import counted_tools
from lhkit.harness.fingerprint import tool_specs
from lhkit.harness.matching import ActualCall, match_calls
from lhkit.harness.plan import ModelSource, PlannedSample, chosen_model, seeded
from lhkit.harness.record import (
    BrokenRule,
    Evidence,
    Judgement,
    RowKeys,
    SampleRecord,
    State,
    TurnRecord,
    Verdict,
)
from lhkit.harness.run_options import ReplayOptions
from lhkit.harness.scenario import Scenario
from lhkit.harness.scoring.verdict import ToolMetadata, judge
from lhkit.harness.scripted_faults import breaking
from lhkit.harness.sessions import row_keys_of, rules_broken
from lhkit.harness.state_diff import state_diff
from lhkit.harness.turn import Turn
from lhkit.harness.turn_record import TimedEvents, turn_record
from lhkit.harness.wall_clock import WallClock
from lhkit.locales import load_catalog
from lhkit.messages import UserMessage
from lhkit.models.base import ChatModel, ModelRequest, ReadsAhead
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import (
    Session,
    Toolset,
    assistant_of,
    closing_session,
    is_blocking,
    open_session,
    opened,
    read_state,
)

_OPENING = "…"
"""What nobody says in a scenario: of a sample's own words nothing is to be in the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleContext:
    """What all samples of a run share. `clock` gives monotonic seconds, `wall` adds them up."""

    model: ModelSource
    toolset: Toolset
    clock: Callable[[], float]
    options: ReplayOptions = field(default_factory=ReplayOptions)
    begun_s: float = 0.0
    started_at: datetime | None = None
    wall: WallClock | None = None

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


async def warm_up(job: PlannedSample, stage: SampleContext) -> bool:
    """Have the server read what samples like this one begin with: instructions and tools.

    Return whether it did. It has to come before many of them ask at once, or each has the same
    beginning read anew. A fault is left for the samples to meet, which tell it better.
    """
    scenario = job.scenario
    async with _set(stage.toolset, scenario) as session:
        model = chosen_model(stage.model, scenario, session.registry, stage.toolset)
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


async def play_sample(
    job: PlannedSample, stage: SampleContext, *, attempt: int = 1
) -> SampleRecord:
    """Play one scenario once and return its record. A fault of ours makes it `invalid`."""
    started_at, started_s = stage.moment(), stage.clock()
    play = _SoFar()
    fault = None
    try:
        judgement = await _play(job, stage, play)
    except LhkitError as error:  # their world, state or server: it says what to mend
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
        keep_states=stage.options.keep_states,
    )


def sample_record(
    job: PlannedSample,
    evidence: Evidence,
    judgement: Judgement,
    *,
    attempts: int,
    wall_s: float = 0.0,
    started_at: str | None = None,
    keep_states: bool = False,
) -> SampleRecord:
    """Put the record of a sample together; of its states what changed, unless they are kept."""
    before, after = evidence.initial_state, evidence.final_state
    if (before or after) and not keep_states:
        digest = state_sha256(before)
        evidence = replace(evidence, initial_state={}, final_state={}, initial_sha256=digest)
    return SampleRecord(
        sample_id=job.sample_id,
        content_hash=job.content_hash,
        ac=job.scenario.ac,
        locale=job.scenario.locale,
        tags=job.scenario.tags,
        judgement=judgement,
        evidence=evidence,
        state_diff=state_diff(before, after),
        attempts=attempts,
        wall_s=wall_s,
        harness_s=wall_s - sum(map(_elsewhere_s, evidence.turns)),
        started_at=started_at,
    )


def state_sha256(state: State) -> str:
    """Return the hash of a state; of plain JSON in its own order, which `repr` tells exactly."""
    return hashlib.sha256(repr(state).encode(errors="surrogatepass")).hexdigest()


async def _play(job: PlannedSample, stage: SampleContext, play: _SoFar) -> Judgement:
    scenario = job.scenario
    async with _set(stage.toolset, scenario) as session:
        model = chosen_model(stage.model, scenario, session.registry, stage.toolset)
        try:
            await _converse(job, stage, play, session, model)
        finally:
            if model is not stage.model:
                await model.aclose()
        tools = ToolMetadata.of(counted_tools(session.registry), session.today)
        evidence = play.evidence()
        return judge(scenario, evidence, tools, today=session.today, row_keys=play.row_keys)


async def _converse(
    job: PlannedSample, stage: SampleContext, play: _SoFar, session: Session, model: ChatModel
) -> None:
    """Say the user's lines one after the other, until one fails."""
    catalog = load_catalog(job.scenario.locale)
    sampling = seeded(session.assistant.sampling, job.repeat)
    controller = ChatController(
        model=model,
        dispatcher=ToolDispatcher(
            breaking(session.registry, job.scenario.faults, coming=job.scenario.called),
            catalog=catalog,
            clock=stage.clock,
        ),
        assistant=replace(assistant_of(session), sampling=sampling),
        catalog=catalog,
    )
    log = TimedEvents(stage.clock)
    controller.subscribe(log)
    if stage.wall is not None:
        controller.subscribe(stage.wall.listener())
    play.before = play.after = await _state(stage, session, {})  # no change is known yet
    play.row_keys = row_keys_of(session, play.before)
    tools = session.registry.definitions
    for turn in job.scenario.turns:
        controller.confirm = _gate(turn, session)
        await controller.user_turn(turn.user)
        record = turn_record(
            turn.user,
            log.take(),
            destructive=session.registry.destructive,
            keep_prompts=stage.options.keep_prompts,
        )
        if job.scenario.checks_each_turn:
            before, play.after = play.after, await _state(stage, session, play.after)
            record = replace(record, state_diff=state_diff(before, play.after))
        before_turn, tools = tools, session.registry.definitions
        if tools != before_turn:  # a call brought some
            came = ToolRegistry(tool for tool in tools if tool not in before_turn)
            record = replace(record, new_tools=tuple(tool_specs(came)))
        play.turns.append(record)
        if record.ended is EndReason.FAILED:
            break
    play.after = await _state(stage, session, play.after)
    play.broken_rules = rules_broken(session, play.before, play.after)


@asynccontextmanager
async def _set(toolset: Toolset, scenario: Scenario) -> AsyncIterator[Session]:
    """Open a scenario's world and close it; what waits for another process does so in a thread."""
    if not is_blocking(toolset):
        with opened(toolset, scenario.world, scenario.locale) as session:
            yield session
        return
    opening = asyncio.ensure_future(
        asyncio.to_thread(open_session, toolset, scenario.world, scenario.locale)
    )
    try:
        session = await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close_late)
        raise
    try:
        yield session
    finally:
        await asyncio.shield(asyncio.to_thread(_close, session))


def _close(session: Session) -> None:
    with closing_session(session):
        pass


def _close_late(opening: "asyncio.Future[Session]") -> None:
    """Close what was opened when nobody waited for it any more."""
    if not opening.cancelled() and opening.exception() is None:
        _close(opening.result())


async def _state(stage: SampleContext, session: Session, before: State) -> State:
    """Return the state, which shares with the earlier one what is the same."""
    if is_blocking(stage.toolset):
        return await asyncio.to_thread(read_state, session, before=before)
    return read_state(session, before=before)


def _gate(turn: Turn, session: Session) -> ConfirmGate | None:
    match turn.confirm:
        case "absent":
            return None
        case "careful":
            return _CarefulGate(turn, session)
        case "accept":
            return ScriptedGate(repeat(True))
        case "reject":
            return ScriptedGate(())
        case answers:
            return ScriptedGate(answer == "accept" for answer in answers)


class _CarefulGate:
    """A user who reads the card: yes to what the turn expects, each call once, no to any other."""

    def __init__(self, turn: Turn, session: Session) -> None:
        self._expected = [
            wish.model_copy(update={"result": None})
            for wish in turn.expect.calls
            if wish.result != "cancelled"
        ]
        self._session = session
        self._accepted: list[ActualCall] = []

    async def confirm(self, request: ConfirmRequest) -> bool:
        """Return True if this call and all that were accepted before it are expected."""
        made = [*self._accepted, ActualCall(tool=request.tool, args=request.args)]
        today = self._session.today
        tools = self._session.registry.definitions  # there may be more than when the turn began
        schemas = {tool.name: tool.schema_on(today) for tool in tools}
        match = match_calls(self._expected, made, schemas=schemas, today=today)
        if len(match.right) < len(made):
            return False
        self._accepted = made
        return True


def _elsewhere_s(turn: TurnRecord) -> float:
    """Return the time that model, tools and user took, in seconds."""
    tools_s = sum(call.handler_s + call.waiting_s for call in turn.calls)
    return tools_s + sum(call.duration_s for call in turn.model_calls)


async def tried(scenario: Scenario, model: ModelSource, toolset: Toolset) -> SampleRecord:
    """Return the record of one sample; a fault of ours is in it, as `invalid`."""
    stage = SampleContext(
        model=model,
        toolset=toolset,
        clock=lambda: 0.0,
        options=ReplayOptions(keep_states=True),
    )
    return await play_sample(PlannedSample(scenario=scenario, repeat=0, content_hash=""), stage)
