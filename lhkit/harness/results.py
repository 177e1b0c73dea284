"""A finished (or interrupted) run as a value: its records, as numbers and as tables.

Reads run folders; writing them is for `run` and `store`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lhkit.errors import MissingRunError, UsageError
from lhkit.harness.frames import (
    calls_frame,
    latency_frame,
    scenarios_frame,
    turns_frame,
    violations_frame,
)
from lhkit.harness.html import SampleView, run_html
from lhkit.harness.metrics import Summary, summarise
from lhkit.harness.record import SampleId, SampleRecord, Verdict
from lhkit.harness.resume import answers, asked_of
from lhkit.harness.store import RECORDS, read_manifest, read_records, stored_answers
from lhkit.harness.timings import spent
from lhkit.settings import DEFAULT_TOOLSET

if TYPE_CHECKING:
    import pandas as pd

_USUAL = Path("runs")
_WANTED = f"give a folder with a {RECORDS}, such as {_USUAL / 'NAME'}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Run:
    """The records of the samples that were asked for, in the order of the scenarios.

    `kept` of them were taken over from an earlier run of the same folder. `manifest` is what
    `manifest.json` says. `name` is the folder's, and `folder` where it is; a run that is kept
    nowhere has none. `skipped` are samples that could not be judged again, with the reason (see
    `rescore`).
    """

    records: Sequence[SampleRecord]
    manifest: Mapping[str, Any]
    kept: int = 0
    name: str = ""
    folder: Path | None = None
    skipped: Mapping[SampleId, str] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path | str, *, keep_records: bool = True) -> "Run":
        """Return the run of a folder, as its newest invocation asked for it.

        Of each sample the newest answer to that question counts, a valid one before an invalid
        one. A half-written last line is left out; a run that still goes on can be read.

        Args:
            folder: the run's.
            keep_records: hold the records in memory; otherwise they stay on disk and are read
                when they are looked at, so that a run may be larger than the memory.

        Raises:
            MissingRunError: the folder holds no run.
            RunError: the run is broken; the message names the line.
        """
        path = Path(folder)
        if not (path / RECORDS).is_file():
            near = _USUAL / path
            hint = f"did you mean {near}?" if (near / RECORDS).is_file() else _WANTED
            raise MissingRunError(f"{path} holds no run: {hint}")
        manifest = read_manifest(path)
        asked = asked_of(manifest)
        records: Sequence[SampleRecord] = (
            answers(read_records(path), asked) if keep_records else stored_answers(path, asked)
        )
        return cls(records=records, manifest=manifest, name=path.resolve().name, folder=path)

    @property
    def toolset(self) -> str:
        """The name of what was played in; of runs that do not say it, life-helper."""
        return str(self.manifest.get("toolset") or DEFAULT_TOOLSET)

    def summary(self) -> Summary:
        """Return the run in numbers."""
        return replace(summarise(self.records), time_breakdown=spent(self.manifest))

    @property
    def scenarios(self) -> "pd.DataFrame":
        """One row per sample; see `lhkit.harness.frames.SCENARIOS` for the columns."""
        return scenarios_frame(self.records)

    @property
    def turns(self) -> "pd.DataFrame":
        """One row per user turn; see `lhkit.harness.frames.TURNS` for the columns."""
        return turns_frame(self.records)

    @property
    def calls(self) -> "pd.DataFrame":
        """One row per call of a tool; see `lhkit.harness.frames.CALLS` for the columns."""
        return calls_frame(self.records)

    @property
    def violations(self) -> "pd.DataFrame":
        """One row per violation; see `lhkit.harness.frames.VIOLATIONS` for the columns."""
        return violations_frame(self.records)

    @property
    def latency(self) -> "pd.DataFrame":
        """One row per request; see `lhkit.harness.frames.LATENCY` for the columns."""
        return latency_frame(self.records)

    def sample(self, scenario: str, repeat: int = 0) -> SampleView:
        """Return one sample to look at; `repeat` counts from 0.

        Raises:
            UsageError: the run has no such sample; the message names some that it has.
        """
        wanted = SampleId(scenario=scenario, repeat=repeat)
        for record in self.records:
            if record.sample_id == wanted:
                return SampleView(record)
        some = ", ".join(sorted({r.sample_id.scenario for r in self.records})[:5])
        raise UsageError(f"no sample {scenario!r} with repeat {repeat}: there is {some or 'none'}")

    def _repr_html_(self) -> str:
        """Return the run for a notebook: numbers, failures first."""
        return run_html(self.records, self.summary(), toolset=self.toolset, name=self.name)

    def __repr__(self) -> str:
        verdicts = [record.judgement.verdict for record in self.records]
        passed, failed, invalid = (
            verdicts.count(each) for each in (Verdict.PASS, Verdict.FAIL, Verdict.INVALID)
        )
        counts = f"{len(verdicts)} samples: {passed} passed, {failed} failed, {invalid} invalid"
        return f"<Run {self.name}: {counts}>" if self.name else f"<Run: {counts}>"
