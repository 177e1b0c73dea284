"""Replaying scenarios against a model: concurrently, with retries, resuming after a stop.

It only awaits and never starts an event loop, so it works in a notebook. `sample` runs a single
conversation, `scoring` scores it.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from tqdm.auto import tqdm

from lhkit.base.errors import (
    ServerFailedError,
    ServerOverloadedError,
    ServerUnreachableError,
    StreamBrokenError,
    StreamStalledError,
    UsageError,
    require_packages,
)
from lhkit.base.locales import load_catalog
from lhkit.base.text import percent
from lhkit.base.user_locale import user_catalog
from lhkit.harness.records.manifest import Invocation, Manifest, Provenance
from lhkit.harness.records.record import (
    SampleRecord,
    SampleScore,
    Trajectory,
    Verdict,
    encode_record,
)
from lhkit.harness.records.resume import (
    RecordStatus,
    Resumption,
    check_resumption,
    record_status,
    select_records,
)
from lhkit.harness.records.store import (
    Journal,
    open_journal,
    read_manifest,
    require_kept_whole,
    stored_records,
    stored_statuses,
    write_manifest,
)
from lhkit.harness.records.wall_clock import WallClock
from lhkit.harness.results.results import Run
from lhkit.harness.running.plan import ModelSource, Plan, PlannedSample, run_clock
from lhkit.harness.running.prepared import PreparedRun, choose_scenarios, prepare_run
from lhkit.harness.running.run_options import RunOptions, RunOverrides
from lhkit.harness.running.sample import SampleContext, run_planned_sample, sample_record, warm_up
from lhkit.harness.running.score_run import rebuilt_states, score_run
from lhkit.harness.running.scores import load_scores
from lhkit.harness.scenarios.assignment import FEW, load_solver
from lhkit.harness.scenarios.sample_id import SampleId
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.harness.scenarios.scenario_filter import ScenarioSelection
from lhkit.models.families import UNFIT, unfit_values
from lhkit.settings import load_settings
from lhkit.toolset import ToolsetSource, load_toolset

if TYPE_CHECKING:  # they need NumPy
    from lhkit.harness.running.stopping import Rule, Stopping, StopRule

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0

_UNREACHABLE = ServerUnreachableError.__name__
_TRANSIENT = {
    error.__name__
    for error in (
        ServerUnreachableError,
        ServerOverloadedError,
        ServerFailedError,
        StreamBrokenError,
        StreamStalledError,
    )
}
"""Errors that a retry may fix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedRecord:
    """A record as its line, with the fields that the run needs of it.

    `cause` is the type of the error that ended an `invalid` sample, None for a valid one.
    """

    line: str
    verdict: Verdict
    cause: str | None = None

    @classmethod
    def from_record(cls, record: SampleRecord) -> "EncodedRecord":
        """Encode a record."""
        verdict = record.score.verdict
        return cls(line=encode_record(record), verdict=verdict, cause=_cause(record))


def _cause(record: SampleRecord) -> str | None:
    turns = record.trajectory.turns
    return turns[-1].cause if turns and not record.is_valid else None


class SampleRunner(Protocol):
    """Runs the samples elsewhere, each with its own model, tools and state.

    Plan, retries, journal and progress stay with the run.
    """

    async def run_sample(self, sample: PlannedSample, attempt: int) -> EncodedRecord:
        """Run one sample once; one that is lost with its worker is run again.

        Raises:
            ServerUnreachableError: no worker is left.
        """

    async def warm_up(self, samples: Sequence[PlannedSample]) -> int:
        """Have all workers cache the prompt prefixes of `samples`; return how many did."""

    @property
    def status(self) -> str:
        """A short text for the progress bar."""


async def replay(
    scenarios: Sequence[Scenario],
    model: ModelSource,
    options: RunOptions | None = None,
    *,
    toolset: ToolsetSource | None = None,
    runner: SampleRunner | None = None,
    run_dir: Path | None = None,
    keep_records: bool = True,
    progress: bool = True,
    on_resume: Callable[[Resumption], object] | None = None,
    provenance: Provenance | None = None,
    stop: "StopRule | None" = None,
    clock: Callable[[], float] | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    **overrides: Unpack[RunOverrides],
) -> Run:
    """Run every scenario and return the records.

    With a `run_dir`, each finished sample is on disk at once, and a second call resumes: a sample
    is reused if it has a record that is not `invalid`, with the same content hash (scenario, model
    with its weights if known, everything sent to it, source of the tools if known, version of
    lhkit). Cancelling loses only the samples in progress.

    A transient error makes a sample `invalid` only after `max_attempts` attempts, with pauses of
    1, 2, 4 … seconds. If the server is unreachable for as many attempts in a row as all
    conversations have together, the remaining samples become `invalid` without an attempt; the next
    call runs them.

    Args:
        scenarios: the scenarios.
        model: a model, or a factory that creates one for each scenario.
        options: the options of the run, such as those of an arm of a suite. Its fields that
            say how to open a model are not read: `model` is open.
        toolset: a toolset that opens an isolated session for each sample, or its reference; by
            default that of the options.
        runner: runs the samples elsewhere (see `scale`). `model` then only provides the identity,
            and the records stay on disk, as with `keep_records=False`.
        run_dir: the folder of the records; None keeps them in memory only.
        keep_records: hold the records in memory; otherwise each is read from disk when it is
            accessed, so that memory does not grow with them. Requires a `run_dir`.
        progress: show a progress bar.
        on_resume: called before the first sample with the counts of reused and new samples.
        provenance: metadata for the manifest: start, commit, hardware.
        stop: run the scenarios in a random order, and stop as soon as the comparison with a
            baseline is decided (see `stopping`). Without it a second call runs the rest.
        clock: monotonic seconds; by default `plan.run_clock`.
        sleep: waits for so many seconds.
        overrides: fields of `RunOptions` and `ScenarioFilter` instead of those in `options`, such
            as `repeats=3` or `tag="hard"`.

    Raises:
        UsageError: an option is out of range (`RunOptions`), or a scenario is invalid
            (`ScenarioError`).
        RunError: the folder is in use, or cannot be read or written.
    """
    if unknown := overrides.keys() - RunOverrides.__annotations__.keys():
        raise TypeError(f"replay() got an unexpected keyword argument {min(unknown)!r}")
    options = (options or RunOptions()).derive(**overrides)
    chosen = choose_scenarios(scenarios, options)
    tools = load_toolset(options.toolset if toolset is None else toolset)
    prepared = prepare_run(chosen, tools, options)
    if prepared.options.approvals is not None and progress:
        for line in prepared.plan(model).policy_lines(user_catalog()):
            tqdm.write(line)
    return await run_prepared(
        prepared,
        model,
        runner=runner,
        run_dir=run_dir,
        keep_records=keep_records,
        progress=progress,
        on_resume=on_resume,
        provenance=provenance or Provenance(),
        stop=stop,
        clock=clock,
        sleep=sleep,
    )


def _signature() -> Signature:
    """Return the signature of `replay` with each of `overrides`, for `help` and editors."""
    declared, defaults = signature(replay), RunOptions()
    *given, _ = declared.parameters.values()
    overrides = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=getattr(defaults, name), annotation=kind)
        for name, kind in RunOverrides.__annotations__.items()
    ]
    return declared.replace(parameters=[*given, *overrides])


replay.__signature__ = _signature()  # type: ignore[attr-defined]


async def run_prepared(
    prepared: PreparedRun,
    model: ModelSource,
    *,
    provenance: Provenance,
    concurrency: int = 1,
    runner: SampleRunner | None = None,
    run_dir: Path | None = None,
    keep_records: bool = True,
    progress: bool = True,
    on_resume: Callable[[Resumption], object] | None = None,
    stop: "Rule | None" = None,
    clock: Callable[[], float] | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Run:
    """Run a prepared run, as `replay`; `concurrency` is the default of the options'.

    Raises:
        LhkitError: as `replay`.
    """
    options = prepared.options
    concurrency = options.concurrency or concurrency
    keep_records = keep_records and runner is None
    if run_dir is None and not keep_records:
        option = "keep_records=False" if runner is None else "runner"
        raise UsageError(f"{option} requires run_dir: the records are stored there.")
    wall = WallClock(asyncio.get_running_loop().time)  # real time, even if `clock` is a recording's
    scores = load_scores(options.scores, prepared.toolset)  # before the model works
    if stop is not None and (checks := [score.name for score in scores if score.fails]):
        raise UsageError(
            f"A run with checks ({', '.join(checks)}) cannot stop when it is decided: they are "
            "computed after the last sample. Leave one of them out."
        )
    plan = prepared.plan(model)
    expected = (turn.expect for planned in plan.scenarios for turn in planned.scenario.turns)
    if any(max(len(expect.calls), len(expect.results)) > FEW for expect in expected):
        load_solver()  # not during a turn that is timed
    if options.repeats > 1:
        require_packages("eval", "numpy", "scipy")  # before the model works
    with ExitStack() as stack:
        writer = None
        if run_dir is not None:
            writer = _JournalWriter(
                journal=stack.enter_context(open_journal(run_dir, reads=keep_records)),
                thread=stack.enter_context(ThreadPoolExecutor(1, "lhkit-journal")),
                wall=wall,
            )
        # a scripted model answers at once: it has no tokens that wait
        is_waiting = concurrency > 1 and runner is None and not callable(model)
        scoring = (
            stack.enter_context(ThreadPoolExecutor(1, "lhkit-scoring")) if is_waiting else None
        )
        execution = new_execution(
            prepared,
            model,
            wall=wall,
            scoring=scoring,
            started_at=provenance.started_at,
            concurrency=min(concurrency, max(1, len(plan.hashes))),
            runner=runner,
            writer=writer,
            keep_records=keep_records,
            clock=clock or run_clock(model, concurrency=concurrency),
            sleep=sleep,
        )
        run = await _run_plan(
            plan,
            execution,
            prepared.chosen.selection,
            provenance,
            concurrency=concurrency,
            progress=progress,
            on_resume=on_resume,
            stop=stop,
        )
    return await score_prepared(run, prepared, progress=progress) if scores else run


async def score_prepared(run: Run, prepared: PreparedRun, *, progress: bool = False) -> Run:
    """Return a run with the scores of its toolset and options; only missing ones are computed.

    Raises:
        UsageError: a score is invalid.
        RunError: the folder cannot be written.
    """
    scores = load_scores(prepared.options.scores, prepared.toolset)
    states = rebuilt_states(prepared.chosen.scenarios, prepared.toolset)
    return await score_run(run, scores, states=states, progress=progress)


def new_execution(
    prepared: PreparedRun,
    model: ModelSource,
    *,
    wall: WallClock,
    started_at: datetime | None,
    concurrency: int,
    clock: Callable[[], float],
    runner: SampleRunner | None = None,
    writer: "_JournalWriter | None" = None,
    scoring: Executor | None = None,
    keep_records: bool = True,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> "Execution":
    """Return what runs the samples of a prepared run.

    Args:
        prepared: the run.
        model: its model, without the label of the stress.
        wall: measures where the time goes.
        started_at: when the run started, with a time zone.
        concurrency: samples at a time; so many attempts a sample may find no server in a row.
        clock: monotonic seconds.
        runner: as in `replay`.
        writer: writes the records; None if the caller does.
        scoring: scores the samples; None for the thread that runs them.
        keep_records: as in `replay`.
        sleep: as in `replay`.
    """
    context = SampleContext(
        model=prepared.label(model),
        toolset=prepared.toolset,
        clock=clock,
        options=prepared.options,
        begun_s=clock(),
        started_at=started_at,
        wall=wall,
        scoring=scoring,
    )
    return Execution(
        context=context,
        runner=runner,
        writer=writer,
        keep_records=keep_records,
        max_unreachable=prepared.options.max_attempts * concurrency,
        sleep=sleep,
        wall=wall,
    )


def _remarks(plan: Plan, resumption: Resumption) -> list[str]:
    """Return remarks on doubtful or unverified conditions, for the manifest."""
    catalog, models = load_catalog("en"), ", ".join(resumption.unverified)
    remarks = [catalog.text("eval.unsure", models=models)] if models else []
    if resumption.is_code_unknown:
        remarks.append(catalog.text("eval.unknown_code", count=resumption.kept))
    identities = dict.fromkeys(planned.identity for planned in plan.scenarios)
    unfit = filter(None, map(unfit_values, identities))
    return [
        *remarks,
        *(catalog.text(UNFIT, **values) for values in unfit),
        *plan.policy_lines(catalog),
    ]


def begin_invocation(
    plan: Plan,
    resumption: Resumption,
    context: SampleContext,
    provenance: Provenance,
    *,
    concurrency: int,
) -> Invocation:
    """Return the invocation of a run that starts now."""
    return Invocation(
        started_at=context.moment(),
        concurrency=concurrency,
        kept=resumption.kept,
        changes=[asdict(change) for change in resumption.changes],
        remarks=_remarks(plan, resumption),
        setup_s=provenance.setup_s,
        server_s=provenance.server_s,
        concurrency_reason=provenance.concurrency_reason,
    )


def run_manifest(
    plan: Plan,
    before: Manifest,
    provenance: Provenance,
    selection: ScenarioSelection | None,
    invocation: Invocation,
) -> Manifest:
    """Return the manifest of a plan, with the invocations of `before` and one more."""
    metadata = {
        "git_commit": provenance.git_commit,
        "command": list(provenance.command),
        "hardware": dict(provenance.hardware),
        **({"selection": selection} if selection else {}),
        "invocations": [*before.invocations, invocation.model_dump(warnings=False)],
    }
    return Manifest.model_validate(plan.manifest.model_copy(update=metadata).plain())


async def _run_plan(
    plan: Plan,
    execution: "Execution",
    selection: ScenarioSelection | None,
    provenance: Provenance,
    *,
    concurrency: int,
    progress: bool,
    on_resume: Callable[[Resumption], object] | None,
    stop: "Rule | None",
) -> Run:
    folder = execution.writer.journal.folder if execution.writer else None
    before = read_manifest(folder) if folder else Manifest()
    if folder:
        names = [planned.scenario.id for planned in plan.scenarios]
        require_kept_whole(folder, names, selection)
    plan = plan.resuming(before)
    hashes = plan.hashes
    existing = execution.writer.journal.records if execution.writer else ()
    resumption = execution.resume(plan, before, existing)
    kept = resumption.kept_samples
    stopping = None if stop is None else _begin_stopping(stop, plan, execution, before, resumption)
    if on_resume:
        on_resume(resumption)

    def pending() -> Iterator[PlannedSample]:
        if stopping is not None:
            return stopping.samples(kept)
        return (sample for sample in plan.samples() if sample.sample_id not in kept)

    started = begin_invocation(
        plan, resumption, execution.context, provenance, concurrency=concurrency
    )
    if stop is not None:
        started = started.model_copy(update={"order_seed": stop.seed})

    def store_manifest(invocation: Invocation) -> Manifest:
        part = selection if stopping is None else stopping.selection(selection)
        manifest = run_manifest(plan, before, provenance, part, invocation)
        if folder:
            write_manifest(folder, manifest)
        return manifest

    store_manifest(started)
    try:
        unit = user_catalog().text("eval.unit")
        with tqdm(total=len(hashes), initial=len(kept), unit=unit, disable=not progress) as bar:
            async with _moving(bar, execution.wall):
                await execution.warm_up(plan.warm_up_samples(pending()) if concurrency > 1 else ())
                await execution.run_all(pending(), concurrency, bar)
    finally:
        completed = execution.verdicts.total()
        result = {
            "ended_at": execution.context.moment(),
            "completed": completed,
            "invalid": execution.verdicts[Verdict.INVALID],
            "finished": completed + len(kept) == len(hashes),
            "warmed_up": execution.warmed_up,
            **execution.wall.seconds(),
        }
        manifest = store_manifest(started.model_copy(update=result))
    records: Sequence[SampleRecord]
    if folder and not execution.keep_records:
        records = stored_records(folder, hashes, is_complete=stopping is None)
    else:
        recorded = execution.records
        records = tuple(recorded[each] for each in hashes if stopping is None or each in recorded)
    name = folder.resolve().name if folder else ""
    return Run(records=records, manifest=manifest, kept=len(kept), name=name, folder=folder)


def _begin_stopping(
    rule: "Rule", plan: Plan, execution: "Execution", before: Manifest, resumption: Resumption
) -> "Stopping":
    """Return the test of a run that may stop, after looking at the records that are kept.

    Raises:
        UsageError: the run could replace a whole one.
    """
    from lhkit.harness.running.stopping import Stopping, require_startable

    records: Iterable[SampleRecord] = execution.records.values()
    if execution.writer is not None:
        folder = execution.writer.journal.folder
        if rule.runs:
            require_startable(folder, before, resumption)
        if not execution.keep_records and resumption.kept:
            records = stored_records(folder, plan.hashes)
    stopping = execution.stopping = Stopping(rule, plan)
    for record in records:
        if record.sample_id in resumption.kept_samples:
            stopping.record(record.sample_id, record.score.verdict)
    return stopping


TICK_S = 1.0
"""Seconds after which the progress line of a terminal moves, whether or not a sample ended."""


@asynccontextmanager
async def _moving(bar: "tqdm[Any]", wall: WallClock) -> AsyncIterator[None]:
    """Draw a bar again each second of the block, in a terminal: a model may read for minutes."""
    if bar.disable or not getattr(bar.fp, "isatty", bool)():
        yield
        return
    reading = load_catalog(load_settings().locale).text("chat.reading")

    async def tick() -> None:
        while True:
            await asyncio.sleep(TICK_S)
            bar.set_description_str(reading if wall.is_reading else "", refresh=False)
            bar.refresh()

    ticking = asyncio.create_task(tick())
    try:
        yield
    finally:
        ticking.cancel()
        bar.set_description_str("", refresh=False)


@dataclass(slots=True, kw_only=True)
class Execution:
    """The workers of one run, and the records they have produced."""

    context: SampleContext
    runner: SampleRunner | None
    writer: "_JournalWriter | None"
    keep_records: bool
    max_unreachable: int
    sleep: Callable[[float], Awaitable[None]]
    wall: WallClock
    stopping: "Stopping | None" = None
    unreachable: int = 0
    warmed_up: int = 0
    records: dict[SampleId, SampleRecord] = field(default_factory=dict)
    verdicts: Counter[Verdict] = field(default_factory=Counter)

    def resume(self, plan: Plan, before: Manifest, existing: Sequence[SampleRecord]) -> Resumption:
        """Take the reusable records of a folder, and return their counts.

        Args:
            plan: the samples of this run.
            before: the manifest of the folder.
            existing: the records of the folder, if records are held in memory.
        """
        if self.writer is None or self.keep_records:
            statuses: Iterable[RecordStatus] = map(record_status, existing)
        else:
            statuses = stored_statuses(self.writer.journal.folder)
        resumption = check_resumption(plan.hashes, statuses, before, plan.manifest)
        self.records = {
            record.sample_id: record
            for record in select_records(existing, plan.hashes)
            if record.sample_id in resumption.kept_samples
        }
        return resumption

    async def warm_up(self, samples: Sequence[PlannedSample]) -> None:
        """Have the server cache shared prompt prefixes before the concurrent requests."""
        with self.wall.request(is_reading=True):
            if self.runner is not None:
                self.warmed_up = await self.runner.warm_up(samples)
            else:
                done = await asyncio.gather(*(warm_up(each, self.context) for each in samples))
                self.warmed_up = sum(done)

    async def run_all(
        self, samples: Iterator[PlannedSample], concurrency: int, bar: "tqdm[Any]"
    ) -> None:
        """Run samples, `concurrency` at a time; the first exception stops all workers."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(concurrency):
                    group.create_task(self._worker(samples, bar))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _worker(self, samples: Iterator[PlannedSample], bar: "tqdm[Any]") -> None:
        for sample in samples:
            await self._store(sample, await self.run_sample(sample))
            passed, failed = self.verdicts[Verdict.PASS], self.verdicts[Verdict.FAIL]
            share = percent(passed / (passed + failed) if passed + failed else None)
            status = user_catalog().text("eval.progress", share=share, failed=failed)
            if self.runner is not None:
                status = f"{status}, {self.runner.status}"
            bar.set_postfix_str(status, refresh=False)
            bar.update()

    async def run_sample(self, sample: PlannedSample) -> SampleRecord | EncodedRecord:
        """Run one sample, with a pause before each retry after a transient error.

        The record is encoded if a `runner` ran the sample. Nothing is stored.
        """
        record: SampleRecord | EncodedRecord | None = None
        max_attempts = self.context.options.max_attempts
        for attempt in range(1, max_attempts + 1):
            if self.unreachable >= self.max_unreachable:
                break
            record = await self._run_once(sample, attempt)
            cause = record.cause if isinstance(record, EncodedRecord) else _cause(record)
            self.unreachable = self.unreachable + 1 if cause == _UNREACHABLE else 0
            if cause not in _TRANSIENT:
                break
            if attempt < max_attempts:
                await self.sleep(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (attempt - 1)))
        reason = f"the server was unreachable {self.unreachable} times in a row"
        return record or self._untried_record(sample, reason)

    async def _run_once(self, sample: PlannedSample, attempt: int) -> SampleRecord | EncodedRecord:
        if self.runner is None:
            return await run_planned_sample(sample, self.context, attempt=attempt)
        try:
            with self.wall.request():
                return await self.runner.run_sample(sample, attempt)
        except ServerUnreachableError as error:
            return self._untried_record(sample, str(error))

    def _untried_record(self, sample: PlannedSample, why: str) -> SampleRecord:
        reason = f"not tried: {why}"
        score = SampleScore(verdict=Verdict.INVALID, reasons=(reason,))
        started_at = self.context.moment()
        return sample_record(
            sample, Trajectory(error=reason), score, attempts=0, started_at=started_at
        )

    async def _store(self, sample: PlannedSample, record: SampleRecord | EncodedRecord) -> None:
        verdict = record.verdict if isinstance(record, EncodedRecord) else record.score.verdict
        self.verdicts[verdict] += 1
        if not isinstance(record, EncodedRecord) and self.keep_records:
            self.records[sample.sample_id] = record
        if self.writer is not None:
            await self.writer.write(record.line if isinstance(record, EncodedRecord) else record)
        if self.stopping is not None:  # on what is on disk
            self.stopping.record(sample.sample_id, verdict)


@dataclass(slots=True, kw_only=True)
class _JournalWriter:
    """Writes records in a thread, so that a slow disk does not disturb timings.

    Records that finish while a write is pending are written with it in one step.
    """

    journal: Journal
    thread: ThreadPoolExecutor
    wall: WallClock
    waiting: deque[SampleRecord | str] = field(default_factory=deque)
    pending: "asyncio.Future[None] | None" = None
    is_pending: bool = False

    async def write(self, record: SampleRecord | str) -> None:
        """Write a record, and return when it is on disk."""
        self.waiting.append(record)
        try:
            await asyncio.sleep(0)  # others that finish now are written with it
        finally:
            write = self._next_write()
        with self.wall.writing():
            await asyncio.wait({write})  # does not cancel the write
        write.result()

    def _next_write(self) -> "asyncio.Future[None]":
        """Return the next write of all waiting records, shared until it begins."""
        if self.pending is None or not self.is_pending:
            self.is_pending = True  # before it can begin
            loop = asyncio.get_running_loop()
            self.pending = loop.run_in_executor(self.thread, self._write_all)
            # retrieves the exception, even if every worker was cancelled
            self.pending.add_done_callback(asyncio.Future.exception)
        return self.pending

    def _write_all(self) -> None:
        self.is_pending = False  # later records belong to the next write
        records = [self.waiting.popleft() for _ in range(len(self.waiting))]
        if records:
            self.journal.append(*records)
