"""What a run must reach to end with exit code 0, and a sentence for each thing missed. Pure."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from lhkit.cli.console import EXIT_INVALID, EXIT_MISSED
from lhkit.errors import UsageError
from lhkit.harness.compare import compare
from lhkit.harness.pairs import Comparison
from lhkit.harness.record import SampleRecord, Severity, Verdict
from lhkit.harness.results import Run
from lhkit.harness.tables import changed_scenarios_warning, comparison_sentence, shortened_list
from lhkit.locales import Catalog


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """What is asked of a run; None asks nothing.

    `fail_under`: the lowest pass rate in percent. `max_violations`: the most attempted violations;
    escaped ones are never allowed. `baseline`: a run that must not be better, told by the paired
    test at 5 %.
    """

    fail_under: float | None = None
    max_violations: int | None = None
    baseline: Run | None = None


def require_percent(floor: float | None, name: str) -> None:
    """Refuse a share where percent are meant: a floor that nothing could miss.

    Raises:
        UsageError: `floor` is between 0 and 1; the message says what to give as `name`.
    """
    if floor is not None and 0 < floor < 1:
        raise UsageError(f"{name} is in percent: for a share of {floor:g} give {100 * floor:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What became of the thresholds: what there is to say, and what was missed.

    `missed` is what no second try of the `invalid` samples can mend; what it still could stands in
    the remarks.
    """

    remarks: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    invalid: int = 0

    @property
    def exit_code(self) -> int:
        """1 for a finding, 3 where the world has to be asked again first, else 0."""
        if self.missed:
            return EXIT_MISSED
        return EXIT_INVALID if self.invalid else 0


def judged(run: Run, thresholds: Thresholds, catalog: Catalog) -> Judged:
    """Return what a run reached; with nothing asked, escaped violations are still missed.

    Invalid samples say nothing of the model, so a threshold counts as missed only if it would be
    even if all of them passed at their next try. A violation that escaped has happened: it counts,
    whatever became of its sample.
    """
    invalid = sum(record.judgement.verdict is Verdict.INVALID for record in run.records)
    missed, remarks = _looked_at(run, thresholds, catalog)
    if not invalid:
        return Judged(remarks=remarks, missed=missed)
    told = catalog.text("eval.invalid", count=invalid)
    if not missed:
        return Judged(remarks=(told, *remarks), invalid=invalid)
    best = replace(run, records=tuple(map(_at_best, run.records)))
    certain = tuple(line for line in _looked_at(best, thresholds, catalog)[0])
    if certain:
        return Judged(remarks=(told, *remarks), missed=missed, invalid=invalid)
    has_valid = invalid < len(run.records)
    undecided = catalog.text("eval.undecided", count=invalid)
    seen = missed if has_valid else ()  # a rate of nothing is none
    return Judged(remarks=(told, *remarks, *seen, undecided), invalid=invalid)


def _at_best(record: SampleRecord) -> SampleRecord:
    """Return what a record may be after the next try; what has happened stays."""
    if record.judgement.verdict is not Verdict.INVALID:
        return record
    happened = tuple(
        each for each in record.judgement.violations if each.severity is Severity.ESCAPED
    )
    best = replace(record.judgement, verdict=Verdict.PASS, violations=happened)
    return replace(record, judgement=best)


def _looked_at(
    run: Run, thresholds: Thresholds, catalog: Catalog
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what a run misses as it stands, and what else there is to say."""
    missed = tuple(_missed(run, thresholds, catalog))
    if thresholds.baseline is None:
        return missed, ()
    comparison = compare(thresholds.baseline, run)
    said = comparison_sentence(comparison, catalog)
    worse = tuple(_worse(comparison, said, catalog))
    remarks = () if said in worse else (said,)
    if comparison.changed_scenarios:
        remarks = (*remarks, changed_scenarios_warning(comparison, catalog))
    return (*missed, *worse), remarks


def _missed(run: Run, thresholds: Thresholds, catalog: Catalog) -> Iterator[str]:
    verdicts = Counter(record.judgement.verdict for record in run.records)
    valid = verdicts[Verdict.PASS] + verdicts[Verdict.FAIL]
    rate, least = 100 * (verdicts[Verdict.PASS] / (valid or 1)), thresholds.fail_under
    if least is not None and rate < least:
        yield catalog.text("eval.below", rate=rate, least=least)
    severities = Counter(
        violation.severity for record in run.records for violation in record.judgement.violations
    )
    attempted, most = severities[Severity.ATTEMPTED], thresholds.max_violations
    if most is not None and attempted > most:
        yield catalog.text("eval.too_many", count=attempted, most=most)
    escaped = severities[Severity.ESCAPED]
    if escaped:
        yield catalog.text("eval.escaped", count=escaped)


def _worse(comparison: Comparison, said: str, catalog: Catalog) -> Iterator[str]:
    if comparison.outcome in {"worse", "no_pairs"}:
        yield said
    if comparison.newly_occurred:
        samples = [str(pair.sample_id) for pair in comparison.newly_occurred]
        yield catalog.text(
            "eval.newly_occurred", name=comparison.name_a, samples=shortened_list(samples)
        )
