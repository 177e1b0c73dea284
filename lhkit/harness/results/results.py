"""A finished or interrupted run as a value: its records, as numbers and as tables.

Reads run folders; `run` and `store` write them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Unpack

from lhkit.base.errors import MissingRunError, UsageError
from lhkit.base.options import DEFAULT_TOOLSET, validate_options
from lhkit.harness.figures.agreement import JudgeAgreement
from lhkit.harness.figures.approvals import (
    DEFAULT_CONFIDENCE,
    DEFAULT_RISK,
    Approvals,
    WriteTools,
    approvals_of,
    chat_evidence,
    run_evidence,
)
from lhkit.harness.figures.frames import (
    approvals_frame,
    calls_frame,
    latency_frame,
    scenarios_frame,
    scores_frame,
    turns_frame,
    violations_frame,
)
from lhkit.harness.figures.metrics import ScoreFigure, Summary, summarise
from lhkit.harness.figures.score_figures import compare_judge, score_figures
from lhkit.harness.records.judge_labels import (
    JudgeLabel,
    labels_of,
    new_labels,
    read_label_file,
    read_labels,
)
from lhkit.harness.records.manifest import Manifest
from lhkit.harness.records.record import SampleRecord, Verdict
from lhkit.harness.records.resume import SampleHashes, select_records
from lhkit.harness.records.score_record import ScoreRecord
from lhkit.harness.records.store import (
    RECORDS,
    read_manifest,
    read_records,
    scored_records,
    select_scenarios,
    stored_records,
)
from lhkit.harness.scenarios.sample_id import SampleId
from lhkit.harness.scenarios.scenario_filter import FilterOverrides, ScenarioFilter

if TYPE_CHECKING:
    import pandas as pd

    from lhkit.harness.views.sample import Sample
    from lhkit.toolset import Criteria

_DEFAULT_PARENT = Path("runs")


class _Described(NamedTuple):
    """What a filter reads of the samples of a scenario."""

    id: str
    ac: str | None
    locale: str
    tags: tuple[str, ...]

    @classmethod
    def of(cls, record: SampleRecord) -> "_Described":
        return cls(record.sample_id.scenario, record.ac, record.locale, record.tags)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Run:
    """The records of the requested samples, in the order of the scenarios.

    Attributes:
        manifest: the contents of `manifest.json`.
        kept: the number of records reused from an earlier run of the same folder.
        name: the name of the folder.
        folder: the folder; None if the run is only in memory.
        skipped: samples that could not be rescored, with the reason (see `rescore`).
        score_records: the results of the user's scores; `scores` is their data frame.
        labels: the labels of a person for the questions of judges.
    """

    records: Sequence[SampleRecord]
    manifest: Manifest = field(default_factory=Manifest)
    kept: int = 0
    name: str = ""
    folder: Path | None = None
    skipped: Mapping[SampleId, str] = field(default_factory=dict)
    score_records: tuple[ScoreRecord, ...] = ()
    labels: tuple[JudgeLabel, ...] = ()
    _summaries: list[Summary] = field(default_factory=list, init=False, compare=False)

    @classmethod
    def load(cls, folder: Path | str, *, keep_records: bool = True) -> "Run":
        """Return the run in a folder, with the samples of its newest invocation.

        The newest record of each sample counts, a valid one before an `invalid` one. A half-written
        last line is ignored, so a run in progress can be loaded.

        Args:
            folder: the run folder.
            keep_records: whether the records are held in memory; otherwise each is read from disk
                when it is accessed, so that a run may be larger than the memory.

        Raises:
            MissingRunError: the folder has no run.
            RunError: the run is invalid; the message names the line.
        """
        path = Path(folder)
        if not (path / RECORDS).is_file():
            near = _DEFAULT_PARENT / path
            hint = f"Give a folder with a {RECORDS}, such as {_DEFAULT_PARENT / 'NAME'}."
            if (near / RECORDS).is_file():
                hint = f"Did you mean {near}?"
            raise MissingRunError(f"{path} is not a run folder. {hint}")
        manifest = read_manifest(path)
        hashes = SampleHashes.from_manifest(manifest)
        records: Sequence[SampleRecord] = (
            select_records(read_records(path), hashes)
            if keep_records
            else stored_records(path, hashes)
        )
        records, scores = scored_records(path, manifest, records)
        return cls(
            records=records,
            manifest=manifest,
            name=path.resolve().name,
            folder=path,
            score_records=scores,
            labels=read_labels(path),
        )

    @property
    def toolset(self) -> str:
        """The name of the toolset; the default one if the manifest has none."""
        return self.manifest.toolset or DEFAULT_TOOLSET

    @property
    def criteria(self) -> "Criteria":
        """The toolset's texts of the acceptance criteria, by criterion and language.

        Those in the manifest; a run of the default toolset without any gets today's.
        """
        if self.manifest.criteria or self.toolset != DEFAULT_TOOLSET:
            return self.manifest.criteria
        from lhkit.toolset import criteria_of, load  # loads the toolset, for such runs only

        return criteria_of(load())

    def summary(self) -> Summary:
        """Return counts, rates and latencies of the run."""
        if not self._summaries:  # a report with its charts reads it five times
            summary = replace(
                summarise(self.records),
                time_breakdown=self.manifest.time_breakdown(),
                selection=self.manifest.selection,
                user=self.manifest.simulated_user,
                scores=self.score_figures(),
            )
            self._summaries.append(summary)
        return self._summaries[0]

    def score_figures(self) -> tuple[ScoreFigure, ...]:
        """Return rate or mean of each score, with its interval."""
        if not self.score_records:
            return ()
        valid = {record.sample_id for record in self.records if record.is_valid}
        return score_figures(valid, self.score_records, self._labels())

    def _labels(self) -> Mapping[str, Mapping[SampleId, bool]]:
        return {
            name: labels_of(name, self.labels, self.records)
            for name in dict.fromkeys(label.score for label in self.labels)
        }

    def agreement(
        self, score: str, labels: Mapping[str, bool] | Path | str | None = None
    ) -> JudgeAgreement:
        """Return how far a judge agrees with a person.

        Args:
            score: the name of the judge.
            labels: the person's answers by sample, or a CSV or JSONL file of them; None for those
                in the run's folder. They are not stored.

        Raises:
            UsageError: the run has no such judge or sample, or the file is invalid.
        """
        judges = dict.fromkeys(each.score for each in self.score_records if each.judge)
        if score not in judges:
            known = (
                ", ".join(judges) or "none: add one with `lhkit rescore RUN --score FILE.py:NAME`"
            )
            raise UsageError(f"The run has no judge {score!r} with answers. It has {known}.")
        own = self.labels
        if labels is not None:
            given = labels if isinstance(labels, Mapping) else read_label_file(Path(labels))
            own = new_labels(score, given, self.records)
        valid = {record.sample_id for record in self.records if record.is_valid}
        results = [each for each in self.score_records if each.sample_id in valid]
        return compare_judge(score, results, labels_of(score, own, self.records))

    def select(self, **filters: Unpack[FilterOverrides]) -> "Run":
        """Return the part of the run with selected scenarios.

        Args:
            filters: the fields of `ScenarioFilter`, such as `tag="plain"` or `only=["ac01-*"]`.

        Raises:
            UsageError: a filter is invalid, or fits no scenario.
            RunError: the run of `failed` cannot be read.
        """
        items = {record.sample_id.scenario: _Described.of(record) for record in self.records}
        selector = validate_options(ScenarioFilter, **filters)
        taken, selection = select_scenarios(selector, list(items.values()))
        if selection is None:
            return self
        ids = {item.id for item in taken}
        before = self.manifest.selection
        if before is not None:  # a part of a part
            total, given = before.total, {**before.filter.values(), **selector.values()}
            selection = selection.model_copy(
                update={
                    "total": total,
                    "filter": ScenarioFilter(**given),
                    "stopped": before.stopped,
                }
            )
        content_hashes = {
            name: hashes
            for name, hashes in self.manifest.content_hashes.items()
            if SampleId.from_name(name).scenario in ids
        }
        part = {"selection": selection, "content_hashes": content_hashes}
        return replace(
            self,
            records=tuple(each for each in self.records if each.sample_id.scenario in ids),
            manifest=self.manifest.model_copy(update=part),
            score_records=tuple(
                each for each in self.score_records if each.sample_id.scenario in ids
            ),
        )

    @property
    def scenarios(self) -> "pd.DataFrame":
        """One row per sample; see `lhkit.harness.figures.frames.SCENARIOS` for the columns."""
        return scenarios_frame(self.records)

    @property
    def turns(self) -> "pd.DataFrame":
        """One row per user turn; see `lhkit.harness.figures.frames.TURNS` for the columns."""
        return turns_frame(self.records)

    @property
    def calls(self) -> "pd.DataFrame":
        """One row per tool call; see `lhkit.harness.figures.frames.CALLS` for the columns."""
        return calls_frame(self.records)

    @property
    def violations(self) -> "pd.DataFrame":
        """One row per violation; see `lhkit.harness.figures.frames.VIOLATIONS` for the columns."""
        return violations_frame(self.records)

    @property
    def latency(self) -> "pd.DataFrame":
        """One row per request; see `lhkit.harness.figures.frames.LATENCY` for the columns."""
        return latency_frame(self.records)

    @property
    def scores(self) -> "pd.DataFrame":
        """One row per value of a score; see `lhkit.harness.figures.frames.SCORES`."""
        return scores_frame(self.records, self.score_records)

    def approvals(
        self, *, risk: float = DEFAULT_RISK, confidence: float = DEFAULT_CONFIDENCE
    ) -> "pd.DataFrame":
        """Return one row per tool that writes: whether it needs its confirmation card.

        `lhkit.approvals` takes several runs, recorded chats and their reviews.

        Args:
            risk: the highest risk at which a tool may run unasked, above 0 and below 1.
            confidence: the confidence level, from 0.5 and below 1.

        Returns:
            See `lhkit.harness.figures.frames.APPROVALS` for the columns.

        Raises:
            UsageError: an argument is out of range.
        """
        return approvals_frame(self.tool_risks(risk=risk, confidence=confidence).tools)

    def tool_risks(
        self, *, risk: float = DEFAULT_RISK, confidence: float = DEFAULT_CONFIDENCE
    ) -> Approvals:
        """Return the values of `approvals`, for tables."""
        tools = WriteTools.of([self.manifest])
        evidence = chat_evidence if self.manifest.user == "person" else run_evidence
        return approvals_of(evidence(self.records), tools=tools, risk=risk, confidence=confidence)

    @property
    def samples(self) -> "tuple[Sample, ...]":
        """The samples, in the order of `records`, each with its scores."""
        from lhkit.harness.views.sample import Sample  # builds on the HTML templates

        results = self.results_by_sample()
        return tuple(
            Sample.of(record, scores=results.get(record.sample_id, ())) for record in self.records
        )

    def results_by_sample(self) -> Mapping[SampleId, Sequence[ScoreRecord]]:
        """Return the results of scores of each sample that has any."""
        results: dict[SampleId, list[ScoreRecord]] = {}
        for result in self.score_records:
            results.setdefault(result.sample_id, []).append(result)
        return results

    def sample(self, scenario: str, repeat: int = 0, wording: int = 0) -> "Sample":
        """Return one sample; `repeat` and `wording` count from 0.

        Raises:
            UsageError: the run has no such sample; the message names some that it has.
        """
        from lhkit.harness.views.sample import Sample

        record = self.record(scenario, repeat, wording)
        return Sample.of(record, scores=self.score_records)

    def record(self, scenario: str, repeat: int = 0, wording: int = 0) -> SampleRecord:
        """Return the record of one sample, whose format may change with any version.

        Raises:
            UsageError: as `sample`.
        """
        sample_id = SampleId(scenario=scenario, repeat=repeat, wording=wording)
        for record in self.records:
            if record.sample_id == sample_id:
                return record
        names = sorted({record.sample_id.scenario for record in self.records})[:5]
        raise UsageError(
            f"The run has no sample {scenario!r} with repeat {repeat} and wording {wording}. "
            f"It has {', '.join(names) or 'none'}."
        )

    def _repr_html_(self) -> str:
        """Return the summary and the samples as HTML, failures first."""
        from lhkit.harness.views.html import run_html, shown_records
        from lhkit.harness.views.sample import Sample

        results, shown = self.results_by_sample(), shown_records(self.records)
        samples = [Sample.of(record, scores=results.get(record.sample_id, ())) for record in shown]
        return run_html(
            samples,
            self.summary(),
            left_out=len(self.records) - len(samples),
            criteria=self.criteria,
            name=self.name,
        )

    def __repr__(self) -> str:
        verdicts = Counter(record.score.verdict for record in self.records)
        counts = (
            f"{len(self.records)} samples: {verdicts[Verdict.PASS]} passed, "
            f"{verdicts[Verdict.FAIL]} failed, {verdicts[Verdict.INVALID]} invalid"
        )
        return f"<Run {self.name}: {counts}>" if self.name else f"<Run: {counts}>"
