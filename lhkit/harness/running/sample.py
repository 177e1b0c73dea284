"""Running one sample: a scripted conversation through the controller, in a session of its own."""

import asyncio
import hashlib
import time
import traceback
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from lhkit.base.errors import LhkitError
from lhkit.base.locales import load_catalog
from lhkit.chat.controller import ChatController
from lhkit.confirm.gate import ConfirmRequest, DenyGate
from lhkit.confirm.policy import PolicyGate
from lhkit.conversation.events import EndReason
from lhkit.conversation.messages import UserMessage
from lhkit.harness.records.record import (
    BrokenRule,
    RowKeys,
    SampleRecord,
    SampleScore,
    State,
    Trajectory,
    TurnRecord,
    Verdict,
)
from lhkit.harness.records.turn_record import TimedEvents, turn_record
from lhkit.harness.records.wall_clock import WallClock
from lhkit.harness.running.fingerprint import tool_specs
from lhkit.harness.running.measured import measured_in_front
from lhkit.harness.running.plan import ModelSource, PlannedSample, seed_sampling, select_model
from lhkit.harness.running.run_options import RunOptions
from lhkit.harness.running.sessions import find_broken_rules, read_row_keys
from lhkit.harness.running.simulated_users import SimulatedUser, confirm_gate
from lhkit.harness.running.tool_injection import inject_tool_failures, real_tools
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.harness.scenarios.values import limited_searches
from lhkit.harness.scoring.state import state_diff
from lhkit.harness.scoring.verdict import ToolMetadata, judge
from lhkit.models.base import ChatModel, ModelRequest, SupportsWarmUp
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
    watch_state,
)

_WARM_UP_MESSAGE = "…"
"""The warm-up message; no scenario has it, so that nothing of a sample's own turns is cached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleContext:
    """What all samples of a run share.

    Attributes:
        clock: returns monotonic seconds.
        scoring: the thread that scores conversations; None scores each where it ran, which delays
            the tokens of others.
    """

    model: ModelSource
    toolset: Toolset
    clock: Callable[[], float]
    options: RunOptions = field(default_factory=RunOptions)
    begun_s: float = 0.0
    started_at: datetime | None = None
    wall: WallClock | None = None
    scoring: Executor | None = None

    def moment(self) -> str | None:
        """Return the present time by `clock`; None without a start of the run."""
        if self.started_at is None:
            return None
        return (self.started_at + timedelta(seconds=self.clock() - self.begun_s)).isoformat()


@dataclass(slots=True)
class _Progress:
    """The trajectory of a conversation so far, so that a crash does not lose it."""

    turns: list[TurnRecord] = field(default_factory=list)
    before: State = field(default_factory=dict)
    after: State = field(default_factory=dict)
    broken_rules: tuple[BrokenRule, ...] = ()
    row_keys: RowKeys = field(default_factory=dict)

    def trajectory(self, error_text: str | None = None) -> Trajectory:
        return Trajectory(
            turns=tuple(self.turns),
            initial_state=self.before,
            final_state=self.after,
            broken_rules=self.broken_rules,
            error=error_text,
        )


async def run_sample(scenario: Scenario, model: ModelSource, toolset: Toolset) -> SampleRecord:
    """Run one sample of a scenario; an infrastructure error makes its record `invalid`."""
    context = SampleContext(
        model=model,
        toolset=toolset,
        clock=lambda: 0.0,
        options=RunOptions(keep_states=True),
    )
    return await run_planned_sample(
        PlannedSample(scenario=scenario, repeat=0, content_hash=""), context
    )


async def run_planned_sample(
    sample: PlannedSample, context: SampleContext, *, attempt: int = 1
) -> SampleRecord:
    """Run one sample and return its record; an infrastructure error makes it `invalid`."""
    started_at, started_s = context.moment(), context.clock()
    progress = _Progress()
    error_text = None
    score = SampleScore(verdict=Verdict.INVALID)
    try:
        async with _open_sample(sample, context) as (session, model):
            try:
                await _converse(sample, context, progress, session, model)
                score = await _judge(context, sample.scenario, progress, session)
            except Exception as error:  # noqa: BLE001 - boundary: what is known still counts
                error_text = _error_text(error)
                score = replace(score, reasons=(error_text,))
                score = await _judge(context, sample.scenario, progress, session, error_text)
    except Exception as error:  # noqa: BLE001 - boundary: our bug must not count against the model
        if error_text is None:
            error_text = _error_text(error)
            score = replace(
                score,
                verdict=Verdict.INVALID,
                reasons=(error_text,),
                turn_scores=(),
                state_equal=None,
            )
    return sample_record(
        sample,
        progress.trajectory(error_text),
        score,
        attempts=attempt,
        wall_s=context.clock() - started_s,
        started_at=started_at,
        keep_states=context.options.keep_states,
    )


async def _judge(
    context: SampleContext,
    scenario: Scenario,
    progress: _Progress,
    session: Session,
    error_text: str | None = None,
) -> SampleScore:
    tools, today = ToolMetadata.of(real_tools(session.registry), session.today), session.today

    def score() -> SampleScore:
        with limited_searches(time.thread_time):
            return judge(
                scenario,
                progress.trajectory(error_text),
                tools,
                today=today,
                row_keys=progress.row_keys,
            )

    if context.scoring is None:
        return score()
    return await asyncio.get_running_loop().run_in_executor(context.scoring, score)


def _error_text(error: Exception) -> str:
    """Return the text that is recorded for an error; that of an LhkitError says how to fix it."""
    if isinstance(error, LhkitError):
        return str(error)
    return "".join(traceback.format_exception(error))


def sample_record(
    sample: PlannedSample,
    trajectory: Trajectory,
    score: SampleScore,
    *,
    attempts: int,
    wall_s: float = 0.0,
    started_at: str | None = None,
    keep_states: bool = False,
) -> SampleRecord:
    """Create the record of a sample, without its states unless they are kept."""
    before, after = trajectory.initial_state, trajectory.final_state
    if (before or after) and not keep_states:
        digest = state_sha256(before)
        trajectory = replace(trajectory, initial_state={}, final_state={}, initial_sha256=digest)
    outside_s = sum(
        sum(call.handler_s + call.waiting_s for call in turn.calls)
        + sum(call.duration_s for call in turn.model_calls)
        for turn in trajectory.turns
    )
    return SampleRecord(
        sample_id=sample.sample_id,
        content_hash=sample.content_hash,
        ac=sample.scenario.ac,
        locale=sample.scenario.locale,
        tags=sample.scenario.tags,
        score=score,
        trajectory=trajectory,
        state_diff=state_diff(before, after),
        attempts=attempts,
        wall_s=wall_s,
        harness_s=wall_s - outside_s,
        started_at=started_at,
    )


def state_sha256(state: State) -> str:
    """Return the hash of a state, which depends on the order of keys."""
    return hashlib.sha256(repr(state).encode(errors="surrogatepass")).hexdigest()


async def warm_up(sample: PlannedSample, context: SampleContext) -> bool:
    """Have the server cache the prompt prefix of a sample; return whether it did.

    Without it, the first concurrent samples would each have the same instructions and tools
    processed. Errors are ignored here: the samples report them better.
    """
    async with _open_sample(sample, context) as (session, model):
        if not isinstance(model, SupportsWarmUp):
            return False
        request = ModelRequest(
            messages=(UserMessage(text=_WARM_UP_MESSAGE),),
            tools=session.registry.definitions,
            instructions=session.assistant.instructions,
            sampling=session.assistant.sampling,
        )
        try:
            await model.warm(request)
        except LhkitError:
            return False
    return True


@asynccontextmanager
async def _open_sample(
    sample: PlannedSample, context: SampleContext
) -> AsyncIterator[tuple[Session, ChatModel]]:
    """Open the session and the model of a sample, and close them."""
    scenario, toolset = sample.scenario, context.toolset
    async with _opened_session(toolset, scenario) as session:
        model = select_model(context.model, scenario, session.registry, toolset)
        try:
            yield session, model
        finally:
            if model is not context.model:
                await model.aclose()


async def _converse(
    sample: PlannedSample,
    context: SampleContext,
    progress: _Progress,
    session: Session,
    model: ChatModel,
) -> None:
    """Send the user's messages one after the other, until a turn fails."""
    scenario = sample.scenario
    catalog = load_catalog(scenario.locale)
    sampling = seed_sampling(session.assistant.sampling, sample.repeat)
    controller = ChatController(
        model=model,
        dispatcher=ToolDispatcher(
            inject_tool_failures(
                session.registry, scenario.tool_failures, later=scenario.called_tools
            ),
            catalog=catalog,
            clock=context.clock,
            today=lambda: session.today,
        ),
        assistant=replace(assistant_of(session), sampling=sampling),
        catalog=catalog,
        # without a time limit: a busy machine must not change a record
        watch=watch_state(session, waits=is_blocking(context.toolset), max_read_s=None),
        logprobs=context.options.logprobs,
    )
    log = TimedEvents(context.clock)
    controller.subscribe(log)
    if context.wall is not None:
        controller.subscribe(context.wall.listener())
    progress.before = progress.after = await _read_state(context, session, {})
    progress.row_keys = read_row_keys(session, progress.before)
    tools = session.registry.definitions
    policy_gate = _policy_gate(context, model, session, scenario)
    for turn in scenario.turns:
        controller.confirm = confirm_gate(turn, session)
        if policy_gate is not None and controller.confirm is not None:
            policy_gate.gate, controller.confirm = controller.confirm, policy_gate
        await controller.user_turn(turn.user)
        record = turn_record(
            turn.user,
            log.take(),
            destructive=session.registry.destructive,
            keep_prompts=context.options.keep_prompts,
        )
        if scenario.checks_each_turn:
            before = progress.after
            progress.after = await _read_state(context, session, before)
            record = replace(record, state_diff=state_diff(before, progress.after))
        before_turn, tools = tools, session.registry.definitions
        if tools != before_turn:  # a call registered some
            added = ToolRegistry(tool for tool in tools if tool not in before_turn)
            record = replace(record, new_tools=tuple(tool_specs(added)))
        progress.turns.append(record)
        if record.ended is EndReason.FAILED:
            break
    progress.after = await _read_state(context, session, progress.after)
    calls = [call for turn in progress.turns for call in turn.calls]
    progress.broken_rules = find_broken_rules(session, progress.before, progress.after, calls)


def _policy_gate(
    context: SampleContext, model: ChatModel, session: Session, scenario: Scenario
) -> PolicyGate | None:
    """Return the gate that follows the run's policy in a conversation; None without one."""
    if context.options.approvals is None:
        return None

    def skip(request: ConfirmRequest) -> None:
        if isinstance(gate.gate, SimulatedUser):
            gate.gate.skip(request)

    front = measured_in_front(model.identity, context.toolset, lambda: (session, scenario.locale))
    gate = PolicyGate(context.options.approvals, DenyGate(), front, ran=skip)
    return gate


@asynccontextmanager
async def _opened_session(toolset: Toolset, scenario: Scenario) -> AsyncIterator[Session]:
    """Open a session and close it, in a thread if it waits for another process."""
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
    """Close a session that was opened after its sample had been cancelled."""
    if not opening.cancelled() and opening.exception() is None:
        _close(opening.result())


async def _read_state(context: SampleContext, session: Session, before: State) -> State:
    """Return the state, which shares unchanged rows with the earlier one."""
    if is_blocking(context.toolset):
        return await asyncio.to_thread(read_state, session, before=before)
    return read_state(session, before=before)
