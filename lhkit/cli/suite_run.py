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
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, cast

from lhkit.base.errors import LhkitError, MissingPackageError, UsageError
from lhkit.base.locales import load_catalog
from lhkit.base.options import validate_options
from lhkit.base.redaction import masked, without_secrets
from lhkit.base.text import one_line
from lhkit.cli.eval.evaluation import OpenedModel, prepare_evaluation, read_provenance
from lhkit.cli.frame.options import ThresholdOptions
from lhkit.cli.frame.thresholds import ThresholdResult, check_thresholds, load_baseline
from lhkit.harness.figures.regressions import count_regressions
from lhkit.harness.records.manifest import Manifest
from lhkit.harness.records.record import SampleRecord, decode_line, encode_record
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
from lhkit.harness.results.results import Run
from lhkit.harness.running.plan import Plan, PlannedScenario, run_clock
from lhkit.harness.running.prepared import choose_scenarios
from lhkit.harness.running.run import Execution, begin_invocation, new_execution, run_manifest
from lhkit.harness.running.run_options import RunOptions
from lhkit.harness.running.score_run import Scorer, rebuilt_states
from lhkit.harness.running.scores import load_scores
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.harness.scenarios.scenario_filter import ScenarioSelection
from lhkit.settings import Settings, load_settings
from lhkit.toolset import load

if TYPE_CHECKING:  # it needs NumPy
    from lhkit.harness.running.stopping import InterimAnalysis

_SHOWN_REGRESSIONS = 20
_REASON_CHARS = 300


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
        selection: how the scenarios were selected; None if they are all.
    """

    scenarios: Mapping[str, PlannedScenario]
    execution: Execution
    manifest: str
    notices: tuple[str, ...]
    scorer: Scorer
    selection: ScenarioSelection | None

    def has_record(self, scenario: str, repeat: int) -> bool:
        """Return whether the run folder has a usable record of a sample."""
        return self.scenarios[scenario].sample(repeat).sample_id in self.execution.records

    async def record(self, scenario: str, repeat: int) -> "RecordedSample":
        """Run a sample, or take its record from the run folder, and score it."""
        sample, line = self.scenarios[scenario].sample(repeat), ""
        record = self.execution.records.get(sample.sample_id)
        if record is None:
            with _quiet_log():
                record = cast(SampleRecord, await self.execution.run_sample(sample))  # not encoded
            line = record_line(record)
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


def record_line(record: SampleRecord) -> str:
    """Return the line of a record; for the process that ran it, which alone knows the secrets."""
    return masked(encode_record(record))


@contextmanager
def _quiet_log() -> Iterator[None]:
    """Leave out lhkit's own errors, which are the reason of the sample, from the captured log."""

    def keep(record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], LhkitError))

    logger = logging.getLogger("lhkit.chat.controller")
    logger.addFilter(keep)
    try:
        yield
    finally:
        logger.removeFilter(keep)


@dataclass(eq=False, slots=True, kw_only=True)
class SuitePlanner:
    """Plans the toolsets of a session with one model, opened for the first.

    Attributes:
        settings: from the environment.
        folder: the run folder; None if nothing is written.
        workers: processes that run samples.
        command: the command line, without the program.
        gate: may stop the session when its comparison is decided; None without a comparison.
    """

    settings: Settings
    folder: Path | None
    workers: int
    command: Sequence[str]
    gate: "SuiteGate | None" = None
    _opened: OpenedModel | None = None
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def plan(self, options: RunOptions, scenarios: Sequence[Scenario]) -> PlannedSuite:
        """Load the toolset of the options and plan the scenarios that they select.

        Raises:
            UsageError: toolset, scenarios or options are invalid.
            MissingPackageError: the model needs an extra that is not installed.
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
        except (UsageError, MissingPackageError):  # the same for every test
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
        selection = chosen.selection
        if self.gate is not None and (analysis := self.gate.begin(plan)) is not None:
            if folder is not None:
                from lhkit.harness.running.stopping import require_startable

                require_startable(folder, before, resumption)
            invocation = invocation.model_copy(update={"order_seed": options.seed})
            selection = analysis.selection(selection)
        manifest = run_manifest(plan, before, provenance, selection, invocation)
        sources = {score.name: score.source for score in scores}
        manifest = manifest.model_copy(update={"scores": sources} if sources else {})
        scorer = Scorer(scores, stored, states=rebuilt_states(chosen.scenarios, toolset))
        self._stack.push_async_callback(scorer.aclose)
        return PlannedSuite(
            scenarios={planned.scenario.name: planned for planned in plan.scenarios},
            execution=execution,
            manifest="" if folder is None else masked(json.dumps(manifest.plain())),
            notices=(*notices, *invocation.remarks),
            scorer=scorer,
            selection=chosen.selection,
        )

    async def aclose(self) -> None:
        """Close the model, and those of judges."""
        await self._stack.aclose()


@dataclass(eq=False, slots=True)
class SuiteRecorder:
    """Writes records to a run folder, each at once, in the one process that gets all reports.

    Attributes:
        folder: the run folder.
        error: why it cannot be written; empty if it can.
        selection: of a session that stopped when it was decided, which scenarios it has.
    """

    folder: Path
    error: str = ""
    selection: ScenarioSelection | None = None
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
            if manifest.selection is not None and manifest.selection.stopped is not None:
                manifest = manifest.model_copy(update={"selection": self.selection})
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


class GateOptions(ThresholdOptions):
    """The thresholds of a session.

    Attributes:
        stop_seed: the seed of the random order of one that stops when it is decided.
    """

    stop_seed: int | None = None

    @property
    def order_seed(self) -> int | None:
        """The seed of the random order of one that stops when it is decided; None for others."""
        return self.stop_seed


@dataclass(eq=False, slots=True, kw_only=True)
class SuiteGate:
    """Compares the samples of a session with a baseline, as `lhkit eval --baseline` does.

    Attributes:
        baseline: the accepted run.
        options: the thresholds, and whether the session stops when it is decided.
        analysis: the always-valid test of a session that may stop.
    """

    baseline: Run
    options: "GateOptions"
    analysis: "InterimAnalysis | None" = None
    _manifest: Manifest = field(default_factory=Manifest)
    _records: list[SampleRecord] = field(default_factory=list)

    @classmethod
    def load(
        cls,
        baseline: Path,
        runs_dir: Path,
        max_regressions: int | None,
        *,
        is_failed_only: bool,
        order_seed: int | None = None,
    ) -> "SuiteGate":
        """Load and check a baseline.

        With an `order_seed`, the session stops when it is decided.

        Raises:
            RunError: it is not a run.
            UsageError: nothing could be concluded from the comparison.
            MissingPackageError: a package of the extra `eval` is not installed.
        """
        import_module("lhkit.harness.figures.statistics")  # before anything is run
        return cls(
            baseline=load_baseline(baseline, runs_dir, is_failed_only=is_failed_only),
            options=validate_options(
                GateOptions,
                baseline=baseline,
                max_regressions=max_regressions,
                stop_seed=order_seed,
            ),
        )

    def begin(self, plan: Plan) -> "InterimAnalysis | None":
        """Return the test that looks at the samples; None if the session does not stop."""
        if self.options.order_seed is not None:
            from lhkit.harness.running.stopping import InterimAnalysis, StopRule

            rule = StopRule(baseline=self.baseline, seed=self.options.order_seed)
            self.analysis = InterimAnalysis(rule, plan.hashes)
            hashes: dict[str, Sequence[str]] = {
                planned.scenario.name: planned.hashes for planned in plan.scenarios
            }
            self._manifest = Manifest(content_hashes=hashes, repeats=plan.repeats)
        return self.analysis

    def stopped_lines(self) -> Iterator[str]:
        """Yield that the session stopped when it was decided, and how to run the rest."""
        selection = None if self.analysis is None else self.analysis.selection(None)
        if self.analysis is not None and self.analysis.is_decided and selection is not None:
            yield load_catalog("en").text(
                "eval.stopped",
                taken=selection.taken,
                planned=selection.total,
                name=self.baseline.name,
            )

    def add(self, line: str) -> None:
        """Add the record of a sample."""
        self._records.append(decode_line(line))

    def is_decided_by(self, name: str) -> bool:
        """Return whether one failed sample of a scenario in a wording misses the threshold."""
        before = [record for record in self.baseline.records if record.sample_id.name == name]
        passed = {record.is_passed for record in before if record.is_valid}
        return self.options.max_regressions == 0 and passed == {True}

    def check(self) -> ThresholdResult | None:
        """Return what the comparison decides; None if no sample was run."""
        if not self._records:
            return None
        manifest = self._manifest
        if self.analysis is not None and (part := self.analysis.selection(None)) is not None:
            manifest = manifest.model_copy(update={"selection": part})
        run = Run(records=self._records, name="this session", manifest=manifest)
        return check_thresholds(run, self.options, load_catalog("en"), baseline=self.baseline)

    def regressed_lines(self) -> Iterator[str]:
        """Yield the first reason of each scenario that regressed."""
        regressed = count_regressions(self.baseline.records, self._records).regressed
        for name in regressed[:_SHOWN_REGRESSIONS]:
            failed = (
                record
                for record in self._records
                if record.sample_id.scenario == name and record.is_valid and not record.is_passed
            )
            for record in islice(failed, 1):
                reason = one_line(next(iter(record.score.reasons), ""), max_chars=_REASON_CHARS)
                yield f"  {record.sample_id} · {reason}"
