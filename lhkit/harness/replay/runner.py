"""Replaying scenarios against a model: many at once, each on its own, nothing lost when stopped.

It awaits, and never starts an event loop, so it works in a notebook as it is. What happens inside
one conversation is `sample`'s business, what it is worth `scorers`'.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from lhkit.errors import (
    ServerFailedError,
    ServerOverloadedError,
    ServerUnreachableError,
    StreamBrokenError,
    StreamStalledError,
    UsageError,
)
from lhkit.harness.expectations.assignment import load_solver
from lhkit.harness.records.journal import Journal, open_journal, read_manifest, write_manifest
from lhkit.harness.records.manifest import (
    Provenance,
    Sitting,
    earlier_sittings,
    manifest_of,
    versions,
)
from lhkit.harness.records.questions import Resumption, resumption
from lhkit.harness.records.record import Evidence, Judgement, SampleId, SampleRecord, Verdict
from lhkit.harness.records.stored import stored_records, without_evidence
from lhkit.harness.records.turn_record import WallTime
from lhkit.harness.replay.environment import Environment
from lhkit.harness.replay.plan import Job, ModelSource, Plan, clock_of, plan_run, require_playable
from lhkit.harness.replay.sample import Stage, play_sample, sample_record, warm_up
from lhkit.harness.results.run import Run
from lhkit.harness.scenarios.script import Scenario
from lhkit.locales import load_catalog

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
    environment: Environment,
    run_dir: Path | None = None,
    repeats: int = 1,
    concurrency: int = 1,
    max_attempts: int = 3,
    keep_prompts: bool = False,
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
        environment: opens an isolated world for each sample.
        run_dir: folder of the records; None keeps them in memory only.
        repeats: samples per scenario.
        concurrency: conversations at a time.
        max_attempts: tries per sample.
        keep_prompts: store prompts as text beside their hash.
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
    if run_dir is None and not keep_records:
        raise UsageError("keep_records=False needs a run_dir: where else should the records be?")
    wall = WallTime(asyncio.get_running_loop().time)  # also where `clock` is a recording's
    plan = plan_run(scenarios, model, environment, repeats=repeats)
    load_solver()  # not in the middle of a turn that is being timed
    told = provenance or Provenance()
    clock = clock or clock_of(model, concurrency=concurrency)
    stage = Stage(
        model=model,
        environment=environment,
        clock=clock,
        keep_prompts=keep_prompts,
        begun_s=clock(),
        started_at=told.started_at,
        wall=wall,
    )
    with ExitStack() as stack:
        journal = stack.enter_context(open_journal(run_dir)) if run_dir else None
        crew = _Crew(
            stage=stage,
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


async def _replayed(
    plan: Plan,
    crew: "_Crew",
    told: Provenance,
    *,
    concurrency: int,
    progress: bool,
    report: Callable[[Resumption], object],
) -> Run:
    jobs = plan.jobs
    facts, before = plan.facts, read_manifest(crew.journal.folder) if crew.journal else {}
    found = crew.journal.found if crew.journal else ()
    asked = {job.sample_id: job.content_hash for job in jobs}
    resumed = resumption(asked, found, before, {"versions": versions(), **facts})
    report(resumed)
    kept = plan.kept(found)
    crew.done |= {sample_id: crew.held(record) for sample_id, record in kept.items()}
    todo = [job for job in jobs if job.sample_id not in kept]
    sitting = Sitting(
        started_at=crew.stage.moment(),
        concurrency=concurrency,
        kept=len(kept),
        changes=list(resumed.changes),
        remarks=_remarks(resumed),
        setup_s=told.setup_s,
        server_s=told.server_s,
    )
    earlier = earlier_sittings(before)

    def file_manifest(present: Sitting) -> Mapping[str, Any]:
        manifest = manifest_of(facts, told, [*earlier, asdict(present)])
        if crew.journal:
            write_manifest(crew.journal.folder, manifest)
        return manifest

    file_manifest(sitting)
    try:
        with tqdm(total=len(jobs), initial=len(kept), unit="sample", disable=not progress) as bar:
            await crew.warm_up(plan.openings(todo) if concurrency > 1 else ())
            await crew.work(todo, concurrency, bar.update)
    finally:
        manifest = file_manifest(_closed(sitting, crew, len(jobs)))
    records = _records(jobs, crew)
    name = crew.journal.folder.resolve().name if crew.journal else ""
    return Run(records=records, manifest=manifest, kept=len(kept), name=name)


def _remarks(resumed: Resumption) -> list[str]:
    """Return what the manifest says of answers that were kept, as the terminal says it."""
    told = {"models": ", ".join(resumed.unsure)}
    return [load_catalog("en").text("eval.unsure", **told)] if resumed.unsure else []


def _records(jobs: Sequence[Job], crew: "_Crew") -> Sequence[SampleRecord]:
    if crew.journal and not crew.keep_records:
        asked = [(job.sample_id, job.content_hash) for job in jobs]
        return stored_records(crew.journal.folder, asked)
    return tuple(crew.done[job.sample_id] for job in jobs)


def _closed(sitting: Sitting, crew: "_Crew", asked: int) -> Sitting:
    verdicts = [record.verdict for record in crew.done.values()]
    return replace(
        sitting,
        ended_at=crew.stage.moment(),
        played=len(verdicts) - sitting.kept,
        invalid=verdicts.count(Verdict.INVALID),
        finished=len(verdicts) == asked,
        warmed_up=crew.warmed_up,
        **crew.wall.seconds(),
    )


@dataclass(slots=True, kw_only=True)
class _Crew:
    """The workers of one run, what they have done, and how long they put up with a dead server."""

    stage: Stage
    journal: Journal | None
    keep_records: bool
    writer: ThreadPoolExecutor
    max_attempts: int
    patience: int
    sleep: Callable[[float], Awaitable[None]]
    wall: WallTime
    unreachable: int = 0
    warmed_up: int = 0
    unwritten: deque[SampleRecord] = field(default_factory=deque)
    done: dict[SampleId, SampleRecord] = field(default_factory=dict)

    async def warm_up(self, openings: Sequence[Job]) -> None:
        """Have the server read what many samples begin with, before they all ask at once."""
        with self.wall.asking():
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

    async def _worker(self, jobs: Iterator[Job], tick: Callable[[], object]) -> None:
        for job in jobs:
            record = await self._settled(job)
            await self._keep(record)
            tick()

    async def _settled(self, job: Job) -> SampleRecord:
        record: SampleRecord | None = None
        for attempt in range(1, self.max_attempts + 1):
            if self.unreachable >= self.patience:
                break
            record = await play_sample(job, self.stage, attempt=attempt)
            cause = _cause(record)
            self.unreachable = self.unreachable + 1 if cause == _UNREACHABLE else 0
            if cause not in _PASSING:
                break
            if attempt < self.max_attempts:
                await self.sleep(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (attempt - 1)))
        return record or self._not_tried(job)

    def _not_tried(self, job: Job) -> SampleRecord:
        reason = f"not tried: the server was unreachable {self.unreachable} times in a row"
        judgement = Judgement(verdict=Verdict.INVALID, reasons=(reason,))
        started_at = self.stage.moment()
        return sample_record(
            job, Evidence(fault=reason), judgement, attempts=0, started_at=started_at
        )

    def held(self, record: SampleRecord) -> SampleRecord:
        """Return what is kept of a record in memory."""
        return record if self.keep_records else without_evidence(record)

    async def _keep(self, record: SampleRecord) -> None:
        """Put a record on disk, in a thread: a slow disk must not disturb what is being timed."""
        self.done[record.sample_id] = self.held(record)
        if self.journal is not None:
            loop = asyncio.get_running_loop()
            self.unwritten.append(record)
            write = loop.run_in_executor(self.writer, self._write, self.journal)
            write.add_done_callback(asyncio.Future.exception)  # seen, also if nobody waits any more
            with self.wall.writing():
                await asyncio.wait({write})  # which does not cancel it: it gets written
            write.result()

    def _write(self, journal: Journal) -> None:
        """Write all that waits: what came while the disk was busy goes there in one step."""
        waiting = [self.unwritten.popleft() for _ in range(len(self.unwritten))]
        if waiting:
            journal.append(*waiting)


def _cause(record: SampleRecord) -> str | None:
    """Return the type of the fault that ended an invalid sample, None for a valid one."""
    is_invalid = record.verdict is Verdict.INVALID
    return record.turns[-1].cause if is_invalid and record.turns else None
