"""The samples of a pytest session: planned once a toolset, run one at a time, recorded at once.

The plugin imports this only if there are scenarios, since it loads most of lhkit.
"""

import asyncio
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from lhkit.base.errors import LhkitError, UsageError
from lhkit.base.locales import load_catalog
from lhkit.base.redaction import masked, without_secrets
from lhkit.cli.eval.evaluation import OpenedModel, prepare_evaluation, read_provenance
from lhkit.harness.records.manifest import Manifest
from lhkit.harness.records.record import SampleRecord, encode_record
from lhkit.harness.records.resume import SampleHashes
from lhkit.harness.records.score_record import ScoreRecord, encode_score, with_checks
from lhkit.harness.records.store import (
    SCORES,
    Journal,
    open_journal,
    read_manifest,
    read_records,
    read_scores,
    require_kept_whole,
    write_manifest,
)
from lhkit.harness.records.wall_clock import WallClock
from lhkit.harness.running.plan import PlannedScenario, run_clock
from lhkit.harness.running.prepared import choose_scenarios
from lhkit.harness.running.run import Execution, begin_invocation, new_execution, run_manifest
from lhkit.harness.running.run_options import RunOptions
from lhkit.harness.running.score_run import Scorer, rebuilt_states
from lhkit.harness.running.scores import load_scores
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.settings import Settings, load_settings
from lhkit.toolset import load


class ModelUnavailableError(LhkitError):
    """The model cannot be opened; the message is that of the cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSuite:
    """The samples of one toolset, ready to run.

    Attributes:
        scenarios: the planned scenarios, by name.
        execution: runs them, and has the records to reuse.
        manifest: of the run folder, as JSON; empty if nothing is written to one.
        notices: sentences about unverified or unwritten results.
        scorer: has the scores, and their results to reuse.
    """

    scenarios: Mapping[str, PlannedScenario]
    execution: Execution
    manifest: str
    notices: tuple[str, ...]
    scorer: Scorer

    async def record(self, scenario: str, repeat: int) -> "RecordedSample":
        """Run a sample, or take its record from the run folder, and score it."""
        sample, line = self.scenarios[scenario].sample(repeat), ""
        record = self.execution.records.get(sample.sample_id)
        if record is None:
            with _short_log():
                record = cast(SampleRecord, await self.execution.run_sample(sample))  # not encoded
            line = masked(encode_record(record))  # only this process knows the secrets
        results, new = await self.scorer.score(record)
        return RecordedSample(
            record=with_checks(record, results),
            line=line,
            scores=results,
            score_lines=tuple(masked(encode_score(result)) for result in new),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSample:
    """A sample that was run, or whose record was there.

    Attributes:
        record: its record, with the verdicts of its checks.
        line: the line for the run folder; empty if it was there.
        scores: the results of its scores.
        score_lines: the lines of those that were computed now.
    """

    record: SampleRecord
    line: str
    scores: tuple[ScoreRecord, ...]
    score_lines: tuple[str, ...]


@contextmanager
def _short_log() -> Iterator[None]:
    """Leave out the tracebacks of lhkit's own errors, which pytest would show of each test."""

    def shorten(record: logging.LogRecord) -> bool:
        if record.exc_info and isinstance(error := record.exc_info[1], LhkitError):
            record.msg, record.exc_info = f"{record.msg}: {type(error).__name__}", None
        return True

    logger = logging.getLogger("lhkit.chat.controller")
    logger.addFilter(shorten)
    try:
        yield
    finally:
        logger.removeFilter(shorten)


@dataclass(eq=False, slots=True, kw_only=True)
class SuitePlanner:
    """Plans the toolsets of a session with one model, opened for the first.

    Attributes:
        settings: from the environment.
        folder: the run folder; None if nothing is written.
        workers: processes that run samples.
        command: the command line, without the program.
    """

    settings: Settings
    folder: Path | None
    workers: int
    command: Sequence[str]
    _opened: OpenedModel | None = None
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def plan(self, options: RunOptions, scenarios: Sequence[Scenario]) -> PlannedSuite:
        """Load the toolset of the options and plan the scenarios that they select.

        Raises:
            UsageError: toolset, scenarios or options are invalid.
            RunError: the run folder cannot be read.
            ModelUnavailableError: the model cannot be opened.
        """
        chosen = choose_scenarios(scenarios, options)
        folder, before, existing = self.folder, Manifest(), tuple[SampleRecord, ...]()
        notices: list[str] = []
        stored: list[ScoreRecord] = []
        if folder is not None and folder.is_dir():
            before, existing = read_manifest(folder), read_records(folder)
            stored = list(read_scores(folder))
            try:
                require_kept_whole(folder, {each.id for each in chosen.scenarios}, chosen.selection)
            except UsageError as error:
                notices.append(str(error))
                folder = None
        toolset = load(options.toolset)
        scores = load_scores(options.scores, toolset)
        evaluation = prepare_evaluation(
            options,
            chosen,
            toolset,
            folder=folder or Path(os.devnull),  # which has no records
            settings=self.settings,
            placement=None,
        )
        try:
            if self._opened is None:
                self._opened = await self._stack.enter_async_context(evaluation.open(None))
        except UsageError:
            raise
        except LhkitError as error:
            raise ModelUnavailableError(str(error)) from error
        model, prepared = self._opened.source, evaluation.prepared
        plan = prepared.plan(model).resuming(before)
        provenance = replace(
            await read_provenance(self.settings),
            command=("pytest", *map(without_secrets, self.command)),
        )
        execution = new_execution(
            prepared,
            model,
            wall=WallClock(asyncio.get_running_loop().time),
            started_at=provenance.started_at,
            concurrency=1,
            clock=run_clock(model, concurrency=1),
        )
        resumption = execution.resume(plan, before, existing)
        invocation = begin_invocation(
            plan, resumption, execution.context, provenance, concurrency=self.workers
        )
        manifest = run_manifest(plan, before, provenance, chosen.selection, invocation)
        sources = {score.name: score.source for score in scores}
        manifest = manifest.model_copy(update={"scores": sources} if sources else {})
        states = rebuilt_states(chosen.scenarios, toolset)
        return PlannedSuite(
            scenarios={planned.scenario.name: planned for planned in plan.scenarios},
            execution=execution,
            manifest="" if folder is None else masked(json.dumps(manifest.plain())),
            notices=(*notices, *invocation.remarks),
            scorer=Scorer(scores, stored, states=states),
        )

    async def aclose(self) -> None:
        """Close the model."""
        await self._stack.aclose()


@dataclass(eq=False, slots=True)
class SuiteRecorder:
    """Writes records to a run folder, each at once, in the one process that gets all reports.

    Attributes:
        folder: the run folder.
        error: why it cannot be written; empty if it can.
    """

    folder: Path
    error: str = ""
    _kept: set[str] = field(default_factory=set)
    _are_valid: dict[str, bool] = field(default_factory=dict)
    _scores: list[str] = field(default_factory=list)
    _stack: ExitStack = field(default_factory=ExitStack)
    _journal: Journal | None = None
    _manifest: Manifest | None = None

    def add(
        self, *, sample: str, line: str, is_valid: bool, manifest: str, scores: Sequence[str] = ()
    ) -> None:
        """Write the record of a sample; before the first, the manifest.

        Args:
            sample: its id.
            line: the record; empty if it was kept.
            is_valid: whether it could be scored.
            manifest: with the first sample of each process; empty if nothing is written.
            scores: the results of its scores, written by `close`.
        """
        self._scores += scores
        if line:
            self._are_valid[sample] = is_valid
        else:
            self._kept.add(sample)
        if self.error:
            return
        try:
            if manifest and self._manifest is None:
                self._manifest = Manifest.model_validate_json(manifest)
                self._journal = self._stack.enter_context(open_journal(self.folder, reads=False))
                write_manifest(self.folder, self._manifest)
            if line and self._journal is not None:
                self._journal.append(line)
        except LhkitError as error:
            self.error = str(error)

    def close(self) -> None:
        """Complete the manifest, release the folder, and write the results of scores."""
        self._complete()
        if self._scores and self._manifest is not None and not self.error:
            try:
                with open_journal(self.folder, reads=False, file_name=SCORES) as journal:
                    journal.append(*self._scores)
            except LhkitError as error:
                self.error = str(error)

    def _complete(self) -> None:
        with self._stack:
            if self._manifest is None or self.error:
                return
            *earlier, last = self._manifest.invocations
            run = len(self._are_valid)
            result = {
                "ended_at": load_settings().now().isoformat(),
                "completed": run,
                "invalid": list(self._are_valid.values()).count(False),
                "finished": last.kept + run == len(SampleHashes.from_manifest(self._manifest)),
            }
            invocations = [*earlier, last.model_copy(update=result)]
            manifest = self._manifest.model_copy(update={"invocations": invocations})
            try:
                write_manifest(self.folder, manifest)
            except LhkitError as error:
                self.error = str(error)

    def summary(self) -> Iterator[str]:
        """Yield how many samples were kept, and why records could not be written."""
        if self._kept:
            total = len(self._kept | self._are_valid.keys())
            yield load_catalog("en").text("eval.kept", count=len(self._kept), asked=total)
        if self.error:
            yield self.error
