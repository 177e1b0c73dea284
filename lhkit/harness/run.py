"""Samples are played: one by one against a model, judged, or judged again from their records."""

import asyncio
import hashlib
import json
import traceback
from collections import Counter, deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Protocol

from tqdm.auto import tqdm

from lhkit.chat.controller import ChatController
from lhkit.confirm.gate import ConfirmGate, ConfirmRequest, ScriptedGate
from lhkit.errors import (
    LhkitError,
    ServerFailedError,
    ServerOverloadedError,
    ServerUnreachableError,
    StreamBrokenError,
    StreamStalledError,
    UsageError,
)
from lhkit.events import EndReason, GateOutcome
from lhkit.harness.assignment import FEW, load_solver
from lhkit.harness.log import (
    RESCORED_FROM,
    Answered,
    Invocation,
    Journal,
    Provenance,
    Questions,
    Resumption,
    answered,
    answers,
    earlier_invocations,
    manifest_of,
    open_journal,
    read_manifest,
    resumption,
    stored_answered,
    stored_records,
    versions,
    write_manifest,
)
from lhkit.harness.matching import MadeCall, match_calls
from lhkit.harness.plan import (
    Job,
    Plan,
    chosen_model,
    clock_of,
    plan_run,
    require_playable,
    scenario_hash,
    seeded,
    tool_specs,
)
from lhkit.harness.record import (
    BrokenRule,
    Evidence,
    Judgement,
    RowKeys,
    SampleId,
    SampleRecord,
    State,
    TimedEvents,
    TurnRecord,
    Verdict,
    WallTime,
    decode_record,
    encode_record,
    turn_record,
)
from lhkit.harness.results import Run
from lhkit.harness.scenario import Scenario, Turn, User
from lhkit.harness.score import ToolFacts, judge
from lhkit.harness.sessions import row_keys_of, rules_broken
from lhkit.harness.state_diff import state_diff, with_diff
from lhkit.harness.stress import ModelSource, breaking, counted_tools
from lhkit.locales import load_catalog
from lhkit.messages import UserMessage
from lhkit.models.base import ChatModel, ModelRequest, ReadsAhead
from lhkit.text import percent
from lhkit.tool_results import ToolErr
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import (
    DEFAULT,
    KnowsRules,
    Session,
    Toolset,
    ToolsetSource,
    assistant_of,
    closed_after,
    open_session,
    opened,
    state_of,
    toolset_of,
    waits_of,
)

# One sample: a scripted conversation through the real controller, in a world of its own.
#
# Everything live (model, session, gate) stays in here; what comes out is a record.


_OPENING = "…"
"""What nobody says in a scenario: of a sample's own words nothing is to be in the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleStage:
    """What all samples of a run share. `clock` gives monotonic seconds, `wall` adds them up."""

    model: ModelSource
    toolset: Toolset
    clock: Callable[[], float]
    keep_prompts: bool = False
    keep_states: bool = False
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


async def warm_up(job: Job, stage: SampleStage) -> bool:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A sample that was played elsewhere: its record as a line, and what is asked of it here."""

    line: str
    verdict: Verdict
    cause: str | None = None

    def read(self) -> SampleRecord:
        """Return the record that the line holds."""
        return decode_record(json.loads(self.line))

    @classmethod
    def of(cls, record: SampleRecord) -> "Played":
        """Return what travels of a record."""
        verdict = record.judgement.verdict
        return cls(line=encode_record(record), verdict=verdict, cause=cause_of(record))


class Players(Protocol):
    """Others who play the samples of a run, each with a model, tools and worlds of its own.

    Plan, retries, journal and progress stay with the run.
    """

    async def play(self, job: Job, attempt: int) -> Played:
        """Have one sample played once; one that got lost on the way is played anew, unnoticed.

        Raises:
            ServerUnreachableError: there is nobody any more who could play.
        """

    async def warm_up(self, openings: Sequence[Job]) -> int:
        """Have all of them read what many samples begin with (`warm_up`); return how many."""

    @property
    def state(self) -> str:
        """A few words for the progress bar."""


async def play_sample(job: Job, stage: SampleStage, *, attempt: int = 1) -> SampleRecord:
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
        keep_states=stage.keep_states,
    )


def sample_record(
    job: Job,
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
        digest = _state_sha256(before)
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


def _state_sha256(state: State) -> str:
    """Return the hash of a state; of plain JSON in its own order, which `repr` tells exactly."""
    return hashlib.sha256(repr(state).encode(errors="surrogatepass")).hexdigest()


async def _play(job: Job, stage: SampleStage, play: _SoFar) -> Judgement:
    scenario = job.scenario
    async with _set(stage.toolset, scenario) as session:
        model = chosen_model(stage.model, scenario, session.registry, stage.toolset)
        try:
            await _converse(job, stage, play, session, model)
        finally:
            if model is not stage.model:
                await model.aclose()
        tools = ToolFacts.of(counted_tools(session.registry), session.today)
        evidence = play.evidence()
        return judge(scenario, evidence, tools, today=session.today, row_keys=play.row_keys)


async def _converse(
    job: Job, stage: SampleStage, play: _SoFar, session: Session, model: ChatModel
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
            keep_prompts=stage.keep_prompts,
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
    if not waits_of(toolset):
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
    with closed_after(session):
        pass


def _close_late(opening: "asyncio.Future[Session]") -> None:
    """Close what was opened when nobody waited for it any more."""
    if not opening.cancelled() and opening.exception() is None:
        _close(opening.result())


async def _state(stage: SampleStage, session: Session, before: State) -> State:
    """Return the state, which shares with the earlier one what is the same."""
    if waits_of(stage.toolset):
        return await asyncio.to_thread(state_of, session, before=before)
    return state_of(session, before=before)


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
            replace(wish.expectation, result=None)
            for wish in turn.expect.calls
            if wish.result != "cancelled"
        ]
        self._session = session
        self._accepted: list[MadeCall] = []

    async def confirm(self, request: ConfirmRequest) -> bool:
        """Return True if this call and all that were accepted before it are expected."""
        made = [*self._accepted, MadeCall(tool=request.tool, args=request.args)]
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


# One scenario played by a scripted model, in memory: the real controller, gate, tools and judge.
#
# For checking scenarios, not models: nothing is written, timed or tried again.


async def tried(scenario: Scenario, model: ModelSource, toolset: Toolset) -> SampleRecord:
    """Return the record of one sample; a fault of ours is in it, as `invalid`."""
    stage = SampleStage(model=model, toolset=toolset, clock=_no_clock, keep_states=True)
    return await play_sample(Job(scenario=scenario, repeat=0, content_hash=""), stage)


def _no_clock() -> float:
    return 0.0


# Replaying scenarios against a model: many at once, each on its own, nothing lost when stopped.
#
# It awaits, and never starts an event loop, so it works in a notebook as it is. What happens
# inside one conversation is `sample`'s business, what it is worth `scorers`'.


FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0

_UNREACHABLE = ServerUnreachableError.__name__
_PASSING = {
    error.__name__
    for error in (
        ServerUnreachableError,
        ServerOverloadedError,
        ServerFailedError,
        StreamBrokenError,
        StreamStalledError,
    )
}
"""Faults that another try may mend; a refused request or a bug of ours stays what it is."""


def _silent(_: Resumption) -> None:
    """Tell nobody."""


async def replay(
    scenarios: Sequence[Scenario],
    model: ModelSource,
    *,
    toolset: ToolsetSource = DEFAULT,
    players: Players | None = None,
    run_dir: Path | None = None,
    repeats: int = 1,
    user: User = "script",
    concurrency: int = 1,
    max_attempts: int = 3,
    keep_prompts: bool = False,
    keep_states: bool = False,
    keep_records: bool = True,
    progress: bool = True,
    report: Callable[[Resumption], object] = _silent,
    provenance: Provenance | None = None,
    clock: Callable[[], float] | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Run:
    """Play every scenario and return the records.

    With a `run_dir`, each finished sample is on disk at once, and a second call takes up where the
    first one stopped: a sample whose content hash (scenario, model with its weights where they are
    known, all that reaches it, version of lhkit) is already there and not `invalid` is kept.
    Cancelling loses only what was still being played.

    An `invalid` sample whose fault may pass is tried again, with pauses of 1, 2, 4 … seconds. When
    the server was unreachable for so many tries in a row as all conversations have together
    (`max_attempts` each), the rest becomes `invalid` without being tried; the next call plays it.

    Args:
        scenarios: what to play.
        model: one model, or a maker of one for each scenario.
        toolset: opens an isolated world for each sample; or its reference (`toolset.load`).
        players: who plays instead of this process (see `scale`): `model` is then only who they
            say they are, and the records stay on disk, as with `keep_records=False`.
        run_dir: folder of the records; None keeps them in memory only.
        repeats: samples per scenario.
        user: who clicks where a scenario says yes: the script, a careful reader of the cards, or
            a hasty one (`Scenario.played_by`).
        concurrency: conversations at a time.
        max_attempts: tries per sample.
        keep_prompts: store prompts as text beside their hash.
        keep_states: store the whole states at start and end, not only what changed.
        keep_records: hold the records in memory; otherwise they stay on disk and are read when
            they are looked at, so that memory does not grow with them. Needs a `run_dir`.
        progress: show a progress bar.
        report: told before the first sample what the folder already holds, and what is asked anew.
        provenance: what the manifest says of start, commit and hardware.
        clock: monotonic seconds; by default `plan.clock_of` the model.
        sleep: waits for so many seconds.

    Raises:
        UsageError: a number below 1 or beyond all use (`require_playable`); or scenarios that
            cannot be played (`ScenarioError`).
        RunError: the folder is in use, or cannot be read or written.
    """
    require_playable(
        len(scenarios), repeats=repeats, concurrency=concurrency, max_attempts=max_attempts
    )
    keep_records = keep_records and players is None
    _require_folder(run_dir, players, keep_records=keep_records)
    wall = WallTime(asyncio.get_running_loop().time)  # also where `clock` is a recording's
    own = toolset_of(toolset)
    plan = plan_run(scenarios, model, own, repeats=repeats, user=user)
    turns = (turn.expect for each in scenarios for turn in each.turns)
    if any(max(len(each.calls), len(each.results)) > FEW for each in turns):
        load_solver()  # not in the middle of a turn that is being timed
    told = provenance or Provenance()
    clock = clock or clock_of(model, concurrency=concurrency)
    stage = SampleStage(
        model=model,
        toolset=own,
        clock=clock,
        keep_prompts=keep_prompts,
        keep_states=keep_states,
        begun_s=clock(),
        started_at=told.started_at,
        wall=wall,
    )
    opening = open_journal(run_dir, reads=keep_records) if run_dir else None
    with ExitStack() as stack:
        journal = stack.enter_context(opening) if opening else None
        crew = _Crew(
            stage=stage,
            players=players,
            journal=journal,
            keep_records=keep_records,
            writer=stack.enter_context(ThreadPoolExecutor(1, "lhkit-journal")),
            max_attempts=max_attempts,
            patience=max_attempts * min(concurrency, max(1, len(plan.scenes) * plan.repeats)),
            sleep=sleep,
            wall=wall,
        )
        return await _replayed(
            plan, crew, told, concurrency=concurrency, progress=progress, report=report
        )


def _require_folder(run_dir: Path | None, players: Players | None, *, keep_records: bool) -> None:
    if run_dir is None and not keep_records:
        what = "keep_records=False" if players is None else "players"
        raise UsageError(f"{what} needs a run_dir: where else should the records be?")


async def _replayed(
    plan: Plan,
    crew: "_Crew",
    told: Provenance,
    *,
    concurrency: int,
    progress: bool,
    report: Callable[[Resumption], object],
) -> Run:
    facts, before = plan.facts, read_manifest(crew.journal.folder) if crew.journal else {}
    asked = plan.questions
    resumed = resumption(asked, crew.answered(), before, {"versions": versions(), **facts})
    report(resumed)
    kept = crew.take_up(asked)

    def todo() -> Iterator[Job]:
        return (job for job in plan.each_job() if job.sample_id not in kept)

    invocation = Invocation(
        started_at=crew.stage.moment(),
        concurrency=concurrency,
        kept=len(kept),
        changes=list(resumed.changes),
        remarks=_remarks(resumed),
        setup_s=told.setup_s,
        server_s=told.server_s,
        footprint=told.footprint(),
    )
    earlier = earlier_invocations(before)

    def file_manifest(present: Invocation) -> Mapping[str, Any]:
        manifest = manifest_of(facts, told, [*earlier, asdict(present)])
        if crew.journal:
            write_manifest(crew.journal.folder, manifest)
        return manifest

    file_manifest(invocation)
    try:
        with tqdm(total=len(asked), initial=len(kept), unit="sample", disable=not progress) as bar:
            await crew.warm_up(plan.openings(todo()) if concurrency > 1 else ())
            await crew.work(todo(), concurrency, lambda: crew.tell(bar))
    finally:
        closed = _closed(invocation, crew, len(asked))
        manifest = file_manifest(replace(closed, footprint=told.footprint()))
    records = _records(asked, crew)
    folder = crew.journal.folder if crew.journal else None
    name = folder.resolve().name if folder else ""
    return Run(records=records, manifest=manifest, kept=len(kept), name=name, folder=folder)


def _remarks(resumed: Resumption) -> list[str]:
    """Return what the manifest says of answers that were kept, as the terminal says it."""
    told = {"models": ", ".join(resumed.unsure)}
    return [load_catalog("en").text("eval.unsure", **told)] if resumed.unsure else []


def _records(asked: Questions, crew: "_Crew") -> Sequence[SampleRecord]:
    if crew.journal and not crew.keep_records:
        return stored_records(crew.journal.folder, asked)
    return tuple(crew.done[sample] for sample in asked)


def _closed(invocation: Invocation, crew: "_Crew", asked: int) -> Invocation:
    played = crew.verdicts.total()
    return replace(
        invocation,
        ended_at=crew.stage.moment(),
        played=played,
        invalid=crew.verdicts[Verdict.INVALID],
        finished=played + invocation.kept == asked,
        warmed_up=crew.warmed_up,
        **crew.wall.seconds(),
    )


@dataclass(slots=True, kw_only=True)
class _Crew:
    """The workers of one run, what they have done, and how long they put up with a dead server."""

    stage: SampleStage
    players: Players | None
    journal: Journal | None
    keep_records: bool
    writer: ThreadPoolExecutor
    max_attempts: int
    patience: int
    sleep: Callable[[float], Awaitable[None]]
    wall: WallTime
    unreachable: int = 0
    warmed_up: int = 0
    unwritten: deque[SampleRecord | str] = field(default_factory=deque)
    write: "asyncio.Future[None] | None" = None
    is_write_due: bool = False
    done: dict[SampleId, SampleRecord] = field(default_factory=dict)
    verdicts: Counter[Verdict] = field(default_factory=Counter)

    def answered(self) -> Iterable[Answered]:
        """Return what the folder already answers."""
        if self.journal is None:
            return ()
        if self.keep_records:
            return answered(self.journal.found)
        return stored_answered(self.journal.folder)

    def take_up(self, asked: Questions) -> Collection[SampleId]:
        """Return which samples are answered already; their records are kept with the others."""
        kept = {
            sample
            for (sample, question), is_valid in self.answered()
            if is_valid and asked.get(sample) == question
        }
        for record in answers(self.journal.found, asked) if self.journal and kept else ():
            if record.sample_id in kept:
                self.done[record.sample_id] = record
        return kept

    async def warm_up(self, openings: Sequence[Job]) -> None:
        """Have the server read what many samples begin with, before they all ask at once."""
        with self.wall.asking():
            if self.players is not None:
                self.warmed_up = await self.players.warm_up(openings)
                return
            done = await asyncio.gather(*(warm_up(each, self.stage) for each in openings))
        self.warmed_up = sum(done)

    async def work(self, todo: Iterable[Job], concurrency: int, tick: Callable[[], object]) -> None:
        """Play all jobs, `concurrency` at a time; the first failure of ours stops everybody."""
        jobs = iter(todo)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(concurrency):
                    group.create_task(self._worker(jobs, tick))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    def tell(self, bar: "tqdm[Any]") -> None:
        """Show that a sample is done."""
        passed, failed = self.verdicts[Verdict.PASS], self.verdicts[Verdict.FAIL]
        share = percent(passed / (passed + failed) if passed + failed else None)
        words = f"{share} passed, {failed} failed"
        state = "" if self.players is None else f", {self.players.state}"
        bar.set_postfix_str(words + state, refresh=False)
        bar.update()

    async def _worker(self, jobs: Iterator[Job], tick: Callable[[], object]) -> None:
        for job in jobs:
            record = await self._settled(job)
            await self._keep(job, record)
            tick()

    async def _settled(self, job: Job) -> SampleRecord | Played:
        record: SampleRecord | Played | None = None
        for attempt in range(1, self.max_attempts + 1):
            if self.unreachable >= self.patience:
                break
            record = await self._played(job, attempt)
            cause = record.cause if isinstance(record, Played) else cause_of(record)
            self.unreachable = self.unreachable + 1 if cause == _UNREACHABLE else 0
            if cause not in _PASSING:
                break
            if attempt < self.max_attempts:
                await self.sleep(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (attempt - 1)))
        times = f"the server was unreachable {self.unreachable} times in a row"
        return record or self._not_tried(job, times)

    async def _played(self, job: Job, attempt: int) -> SampleRecord | Played:
        if self.players is None:
            return await play_sample(job, self.stage, attempt=attempt)
        try:
            with self.wall.asking():
                return await self.players.play(job, attempt)
        except ServerUnreachableError as error:
            return self._not_tried(job, str(error))

    def _not_tried(self, job: Job, why: str) -> SampleRecord:
        reason = f"not tried: {why}"
        judgement = Judgement(verdict=Verdict.INVALID, reasons=(reason,))
        started_at = self.stage.moment()
        return sample_record(
            job, Evidence(fault=reason), judgement, attempts=0, started_at=started_at
        )

    async def _keep(self, job: Job, record: SampleRecord | Played) -> None:
        """Put a record on disk, in a thread: a slow disk must not disturb what is being timed."""
        if isinstance(record, Played):
            self.verdicts[record.verdict] += 1
        else:
            self.verdicts[record.judgement.verdict] += 1
        if self.keep_records and isinstance(record, SampleRecord):
            self.done[job.sample_id] = record
        if self.journal is not None:
            self.unwritten.append(record.line if isinstance(record, Played) else record)
            try:
                await asyncio.sleep(0)  # whoever ends at this moment, too, is written with it
            finally:
                write = self._next_write(self.journal)
            with self.wall.writing():
                await asyncio.wait({write})  # which does not cancel it: it gets written
            write.result()

    def _next_write(self, journal: Journal) -> "asyncio.Future[None]":
        """Return the write that takes what waits now: one for all, until it begins."""
        if self.write is None or not self.is_write_due:
            self.is_write_due = True  # before it can begin
            loop = asyncio.get_running_loop()
            self.write = loop.run_in_executor(self.writer, self._write, journal)
            self.write.add_done_callback(asyncio.Future.exception)  # seen, also if nobody waits
        return self.write

    def _write(self, journal: Journal) -> None:
        """Write all that waits: what came while the disk was busy goes there in one step."""
        self.is_write_due = False  # what comes from here on is for the next one
        waiting = [self.unwritten.popleft() for _ in range(len(self.unwritten))]
        if waiting:
            journal.append(*waiting)


def cause_of(record: SampleRecord) -> str | None:
    """Return the type of the fault that ended an invalid sample, None for a valid one."""
    is_invalid = record.judgement.verdict is Verdict.INVALID
    return record.evidence.turns[-1].cause if is_invalid and record.evidence.turns else None


# Old evidence before today's scorers and today's expectations: no model, no server, no replay.
#
# Only what is expected may have changed since. A conversation whose user turns, initial state,
# language or answers to the gate are others today would be another conversation, so its record is
# left out, with the reason.


_ANSWERS = {GateOutcome.ACCEPTED: True, GateOutcome.REJECTED: False}


def rescore(
    run: Run | Path | str, scenarios: Iterable[Scenario], toolset: ToolsetSource = DEFAULT
) -> Run:
    """Return the run as it would be scored today; `skipped` says what could not be.

    Args:
        run: a run, or its folder; neither is changed.
        scenarios: what is expected today.
        toolset: opens the initial states that records are held against, or its reference.

    Raises:
        RunError: the folder holds no run, or a broken one.
        UsageError: a world of today's scenarios cannot be.
    """
    old = run if isinstance(run, Run) else Run.load(run)
    own = toolset_of(toolset)
    user = old.manifest.get("user", "script")
    asked = {scenario.id: scenario.played_by(user) for scenario in scenarios}
    records: list[SampleRecord] = []
    skipped: dict[SampleId, str] = {}
    for record in old.records:
        scenario = asked.get(record.sample_id.scenario)
        again = _again(record, scenario, own, old.manifest)
        if isinstance(again, str):
            skipped[record.sample_id] = again
        else:
            records.append(again)
    expected = {record.sample_id.scenario: asked[record.sample_id.scenario] for record in records}
    return replace(
        old,
        records=tuple(records),
        folder=None,
        kept=len(records),
        skipped=skipped,
        manifest=_manifest(old, expected),
    )


def _manifest(old: Run, expected: Mapping[str, Scenario]) -> dict[str, Any]:
    """Return the old manifest, with what the verdicts depend on now."""
    then: Mapping[str, str] = old.manifest.get("scenarios", {})
    now = {name: scenario_hash(scenario) for name, scenario in expected.items()}
    return {
        **old.manifest,
        "scenarios": {**then, **now},
        RESCORED_FROM: old.name,
        "rescored_with": versions(),
    }


def _again(
    record: SampleRecord,
    scenario: Scenario | None,
    toolset: Toolset,
    manifest: Mapping[str, Any],
) -> SampleRecord | str:
    """Return the record with today's judgement, or why it is of another conversation."""
    if scenario is None:
        return "there is no such scenario today"
    if record.locale != scenario.locale:
        return f"the language was {record.locale} and is {scenario.locale} today"
    with opened(toolset, scenario.world, scenario.locale) as session:
        state = state_of(session)
        if record.evidence.turns and _is_other_start(record.evidence, state):
            return "the initial state is another one today"
        reason = next(_other_turns(scenario.turns, record), None)
        keys = row_keys_of(session, state)
        if record.evidence.initial_sha256:
            after = with_diff(state, record.state_diff)
            whole = replace(record.evidence, initial_state=state, final_state=after)
        else:
            whole = record.evidence
        return reason or _judged(record, whole, scenario, session, manifest=manifest, row_keys=keys)


def _is_other_start(evidence: Evidence, state: State) -> bool:
    """Return whether a conversation began in another state than `state`."""
    if evidence.initial_sha256:
        return evidence.initial_sha256 != _state_sha256(state)
    return bool(state_diff(evidence.initial_state, state))


def _judged(
    record: SampleRecord,
    evidence: Evidence,
    scenario: Scenario,
    session: Session,
    *,
    manifest: Mapping[str, Any],
    row_keys: RowKeys,
) -> SampleRecord:
    if isinstance(session, KnowsRules):
        rules = rules_broken(session, evidence.initial_state, evidence.final_state)
        evidence = replace(evidence, broken_rules=rules)
    tools = _tools(scenario.locale, session, manifest, evidence)
    try:
        judgement = judge(scenario, evidence, tools, today=session.today, row_keys=row_keys)
    except UsageError as error:  # a pattern that takes too long
        judgement = Judgement(verdict=Verdict.INVALID, reasons=(str(error),))
    kept = replace(record.evidence, broken_rules=evidence.broken_rules)
    return replace(record, judgement=judgement, evidence=kept, ac=scenario.ac, tags=scenario.tags)


def _tools(
    locale: str, session: Session, manifest: Mapping[str, Any], evidence: Evidence
) -> ToolFacts:
    """Return the tools of today, with schemas, what they implied and their claims as then.

    Those that came in the conversation are as they were.

    A manifest from before anything could be implied or claimed says nothing of it: today's word
    counts.
    """
    told = manifest.get("locales", {}).get(locale, {}).get("tools", ())
    then = {spec["name"]: spec for spec in told}
    tools = [_as_then(tool, then.get(tool.name, {})) for tool in counted_tools(session.registry)]
    return ToolFacts.of([*tools, *tools_that_came(evidence)], session.today)


def tools_that_came(evidence: Evidence) -> tuple[ToolDefinition, ...]:
    """Return the tools that came in mid-conversation, as its record tells of them."""
    return tuple(_that_came(spec) for turn in evidence.turns for spec in turn.new_tools)


def _that_came(spec: Mapping[str, Any]) -> ToolDefinition:
    """Return a tool that a record tells of, for judging: nobody calls it any more."""
    tool = ToolDefinition(
        name=spec["name"],
        description=spec["description"],
        parameters=spec["parameters"],
        handler=lambda _args, _deps: ToolErr("not_found", "a tool of a record"),
        is_destructive=spec["destructive"],
    )
    return _as_then(tool, spec)


def _as_then(tool: ToolDefinition, spec: Mapping[str, Any]) -> ToolDefinition:
    return replace(
        tool,
        parameters=spec.get("parameters", tool.parameters),
        implied=spec.get("implied", tool.implied),
        claims=spec.get("claims", tool.claims),
    )


def _other_turns(turns: Sequence[Turn], record: SampleRecord) -> Iterator[str]:
    """Yield what the user does otherwise today. A record that broke off has fewer turns."""
    said = [turn.user for turn in record.evidence.turns]
    if said != [turn.user for turn in turns[: len(said)]]:
        yield "the user's words are others today"
    if not record.evidence.turns[-1:] or len(said) == len(turns):
        pass
    elif record.evidence.turns[-1].cause is None and record.evidence.fault is None:
        yield f"{len(said)} turns were played and there are {len(turns)} today"
    for number, (turn, played) in enumerate(zip(turns, record.evidence.turns, strict=False)):
        if not _is_answered(turn, played):
            yield f"turn {number}: the gate is answered otherwise today"
        if turn.checks_state and played.state_diff is None:
            yield f"turn {number}: what it did to the state was not recorded: play it again"


def _is_answered(turn: Turn, played: TurnRecord) -> bool:
    """Return whether today's script would give the gate the answers that were given."""
    outcomes = [call.gate for call in played.calls]
    if turn.confirm == "absent":
        return not any(outcome in _ANSWERS for outcome in outcomes)
    if turn.confirm == "careful":  # what was expected then may be another call than today
        return GateOutcome.ABSENT not in outcomes
    given = [_ANSWERS[outcome] for outcome in outcomes if outcome in _ANSWERS]
    return GateOutcome.ABSENT not in outcomes and given == _script(turn.confirm, len(given))


def _script(confirm: str | Sequence[str], n: int) -> list[bool]:
    """Return the first n answers of a script."""
    if isinstance(confirm, str):
        return [confirm == "accept"] * n
    answers = chain((answer == "accept" for answer in confirm), repeat(False))
    return [next(answers) for _ in range(n)]
