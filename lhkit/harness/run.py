"""Replaying scenarios against a model: many at once, each on its own, nothing lost when stopped.

It awaits, and never starts an event loop, so it works in a notebook as it is. What happens
inside one conversation is in `sample`, its verdict in `scoring`.
"""

import asyncio
import json
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tqdm.auto import tqdm

from lhkit.errors import (
    ServerFailedError,
    ServerOverloadedError,
    ServerUnreachableError,
    StreamBrokenError,
    StreamStalledError,
    UsageError,
)
from lhkit.harness.assignment import FEW, load_solver
from lhkit.harness.manifest import Invocation, Manifest, Provenance
from lhkit.harness.plan import ModelSource, Plan, PlannedSample, clock_of, plan_run
from lhkit.harness.record import Evidence, Judgement, SampleId, SampleRecord, Verdict
from lhkit.harness.record_json import decode_record, encode_record
from lhkit.harness.results import Run
from lhkit.harness.resume import Answered, Questions, Resumption, answered, answers, resumption
from lhkit.harness.run_options import ReplayOptions
from lhkit.harness.sample import SampleContext, play_sample, sample_record, warm_up
from lhkit.harness.scenario import Scenario, User
from lhkit.harness.store import Journal, open_journal, read_manifest, write_manifest
from lhkit.harness.stored_records import stored_answered, stored_records
from lhkit.harness.wall_clock import WallClock
from lhkit.locales import load_catalog
from lhkit.settings import validate_options
from lhkit.text import percent
from lhkit.toolset import DEFAULT, ToolsetSource, load_toolset

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


def cause_of(record: SampleRecord) -> str | None:
    """Return the type of the fault that ended an invalid sample, None for a valid one."""
    is_invalid = record.judgement.verdict is Verdict.INVALID
    return record.evidence.turns[-1].cause if is_invalid and record.evidence.turns else None


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


class SampleRunner(Protocol):
    """Others who play the samples of a run, each with a model, tools and worlds of its own.

    Plan, retries, journal and progress stay with the run.
    """

    async def play(self, job: PlannedSample, attempt: int) -> Played:
        """Have one sample played once; one that got lost on the way is played anew, unnoticed.

        Raises:
            ServerUnreachableError: there is nobody any more who could play.
        """

    async def warm_up(self, openings: Sequence[PlannedSample]) -> int:
        """Have all of them read what many samples begin with (`warm_up`); return how many."""

    @property
    def state(self) -> str:
        """A few words for the progress bar."""


def _silent(_: Resumption) -> None:
    """Tell nobody."""


async def replay(
    scenarios: Sequence[Scenario],
    model: ModelSource,
    *,
    toolset: ToolsetSource = DEFAULT,
    players: SampleRunner | None = None,
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
        UsageError: a number below 1 or beyond all use (`ReplayOptions`); or scenarios that
            cannot be played (`ScenarioError`).
        RunError: the folder is in use, or cannot be read or written.
    """
    options = validate_options(
        ReplayOptions,
        repeats=repeats,
        user=user,
        concurrency=concurrency,
        max_attempts=max_attempts,
        keep_prompts=keep_prompts,
        keep_states=keep_states,
    )
    options.require_few(len(scenarios))
    keep_records = keep_records and players is None
    if run_dir is None and not keep_records:
        what = "keep_records=False" if players is None else "players"
        raise UsageError(f"{what} needs a run_dir: where else should the records be?")
    wall = WallClock(asyncio.get_running_loop().time)  # also where `clock` is a recording's
    own = load_toolset(toolset)
    plan = plan_run(scenarios, model, own, repeats=repeats, user=user)
    turns = (turn.expect for each in scenarios for turn in each.turns)
    if any(max(len(each.calls), len(each.results)) > FEW for each in turns):
        load_solver()  # not in the middle of a turn that is being timed
    provenance = provenance or Provenance()
    clock = clock or clock_of(model, concurrency=concurrency)
    stage = SampleContext(
        model=model,
        toolset=own,
        clock=clock,
        options=options,
        begun_s=clock(),
        started_at=provenance.started_at,
        wall=wall,
    )
    samples = len(plan.scenarios) * plan.repeats
    with ExitStack() as stack:
        journal = None
        if run_dir is not None:
            journal = stack.enter_context(open_journal(run_dir, reads=keep_records))
        crew = _Crew(
            stage=stage,
            players=players,
            journal=journal,
            keep_records=keep_records,
            writer=stack.enter_context(ThreadPoolExecutor(1, "lhkit-journal")),
            max_attempts=max_attempts,
            patience=max_attempts * min(concurrency, max(1, samples)),
            sleep=sleep,
            wall=wall,
        )
        return await _replayed(
            plan, crew, provenance, concurrency=concurrency, progress=progress, report=report
        )


async def _replayed(
    plan: Plan,
    crew: "_Crew",
    provenance: Provenance,
    *,
    concurrency: int,
    progress: bool,
    report: Callable[[Resumption], object],
) -> Run:
    folder = crew.journal.folder if crew.journal else None
    before = Manifest.of(read_manifest(folder) if folder else {})
    manifest, asked = plan.manifest, plan.questions
    resumed = resumption(asked, crew.answered(), before, manifest)
    report(resumed)
    kept = crew.take_up(asked)

    def todo() -> Iterator[PlannedSample]:
        return (job for job in plan.each_job() if job.sample_id not in kept)

    unsure = ", ".join(resumed.unsure)
    invocation = Invocation(
        started_at=crew.stage.moment(),
        concurrency=concurrency,
        kept=len(kept),
        changes=[asdict(each) for each in resumed.changes],
        remarks=[load_catalog("en").text("eval.unsure", models=unsure)] if unsure else [],
        setup_s=provenance.setup_s,
        server_s=provenance.server_s,
    )

    def file_manifest(present: Invocation) -> dict[str, Any]:
        facts = {
            "git_commit": provenance.git_commit,
            "command": list(provenance.command),
            "hardware": dict(provenance.hardware),
            "invocations": [*before.invocations, present.model_dump(warnings=False)],
        }
        told = manifest.model_copy(update=facts).plain()
        if folder:
            write_manifest(folder, told)
        return told

    file_manifest(invocation)
    try:
        with tqdm(total=len(asked), initial=len(kept), unit="sample", disable=not progress) as bar:
            await crew.warm_up(plan.openings(todo()) if concurrency > 1 else ())
            await crew.work(todo(), concurrency, lambda: crew.tell(bar))
    finally:
        played = crew.verdicts.total()
        ended = {
            "ended_at": crew.stage.moment(),
            "played": played,
            "invalid": crew.verdicts[Verdict.INVALID],
            "finished": played + len(kept) == len(asked),
            "warmed_up": crew.warmed_up,
            **crew.wall.seconds(),
        }
        filed = file_manifest(invocation.model_copy(update=ended))
    records: Sequence[SampleRecord]
    if folder and not crew.keep_records:
        records = stored_records(folder, asked)
    else:
        records = tuple(crew.done[sample] for sample in asked)
    name = folder.resolve().name if folder else ""
    return Run(records=records, manifest=filed, kept=len(kept), name=name, folder=folder)


@dataclass(slots=True, kw_only=True)
class _Crew:
    """The workers of one run, what they have done, and how long they put up with a dead server."""

    stage: SampleContext
    players: SampleRunner | None
    journal: Journal | None
    keep_records: bool
    writer: ThreadPoolExecutor
    max_attempts: int
    patience: int
    sleep: Callable[[float], Awaitable[None]]
    wall: WallClock
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

    async def warm_up(self, openings: Sequence[PlannedSample]) -> None:
        """Have the server read what many samples begin with, before they all ask at once."""
        with self.wall.asking():
            if self.players is not None:
                self.warmed_up = await self.players.warm_up(openings)
                return
            done = await asyncio.gather(*(warm_up(each, self.stage) for each in openings))
        self.warmed_up = sum(done)

    async def work(
        self, todo: Iterable[PlannedSample], concurrency: int, tick: Callable[[], object]
    ) -> None:
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

    async def _worker(self, jobs: Iterator[PlannedSample], tick: Callable[[], object]) -> None:
        for job in jobs:
            record = await self._settled(job)
            await self._keep(job, record)
            tick()

    async def _settled(self, job: PlannedSample) -> SampleRecord | Played:
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

    async def _played(self, job: PlannedSample, attempt: int) -> SampleRecord | Played:
        if self.players is None:
            return await play_sample(job, self.stage, attempt=attempt)
        try:
            with self.wall.asking():
                return await self.players.play(job, attempt)
        except ServerUnreachableError as error:
            return self._not_tried(job, str(error))

    def _not_tried(self, job: PlannedSample, why: str) -> SampleRecord:
        reason = f"not tried: {why}"
        judgement = Judgement(verdict=Verdict.INVALID, reasons=(reason,))
        started_at = self.stage.moment()
        return sample_record(
            job, Evidence(fault=reason), judgement, attempts=0, started_at=started_at
        )

    async def _keep(self, job: PlannedSample, record: SampleRecord | Played) -> None:
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
