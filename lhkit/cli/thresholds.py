"""Thresholds of a run, and the exit code that they lead to."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from lhkit.cli.exit_codes import ExitCode
from lhkit.errors import UsageError
from lhkit.harness.compare import compare
from lhkit.harness.pairs import Comparison
from lhkit.harness.record import SampleRecord, Severity, Verdict
from lhkit.harness.results import Run
from lhkit.harness.tables import changed_scenarios_warning, comparison_sentence, shortened_list
from lhkit.locales import Catalog


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Requirements on a run; None requires nothing.

    Attributes:
        fail_under: the lowest pass rate in percent.
        max_violations: the most blocked violations; one that occurred is never allowed.
        baseline: a run that must not be better, by the paired test at 5 %.
    """

    fail_under: float | None = None
    max_violations: int | None = None
    baseline: Run | None = None


def require_percent(value: float | None, name: str) -> None:
    """Refuse a fraction where a percentage is meant.

    Raises:
        UsageError: `value` is between 0 and 1; the message calls it `name`.
    """
    if value is not None and 0 < value < 1:
        raise UsageError(f"{name} is in percent: for a share of {value:g} give {100 * value:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdResult:
    """Missed thresholds and remarks on a run, as sentences.

    Attributes:
        remarks: sentences that do not change the exit code.
        missed: thresholds that are missed even if every invalid sample passes later.
        invalid: number of invalid samples.
    """

    remarks: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    invalid: int = 0

    @property
    def exit_code(self) -> ExitCode:
        """`FAILED` if a threshold is missed, else `INFRASTRUCTURE` if samples are invalid."""
        if self.missed:
            return ExitCode.FAILED
        return ExitCode.INFRASTRUCTURE if self.invalid else ExitCode.OK


def check_thresholds(run: Run, thresholds: Thresholds, catalog: Catalog) -> ThresholdResult:
    """Return which thresholds a run misses.

    Invalid samples say nothing about the model: a threshold is missed only if it would be missed
    with all of them passing. A violation that occurred counts in any sample.
    """
    invalid = sum(record.judgement.verdict is Verdict.INVALID for record in run.records)
    missed, remarks = _check(run, thresholds, catalog)
    if not invalid:
        return ThresholdResult(remarks=remarks, missed=missed)
    remarks = (catalog.text("eval.invalid", count=invalid), *remarks)
    if not missed:
        return ThresholdResult(remarks=remarks, invalid=invalid)
    best_case = replace(run, records=tuple(map(_best_case, run.records)))
    if _check(best_case, thresholds, catalog)[0]:
        return ThresholdResult(remarks=remarks, missed=missed, invalid=invalid)
    provisional = missed if invalid < len(run.records) else ()  # without samples there is no rate
    undecided = catalog.text("eval.undecided", count=invalid)
    return ThresholdResult(remarks=(*remarks, *provisional, undecided), invalid=invalid)


def _best_case(record: SampleRecord) -> SampleRecord:
    """Return an invalid record as passed, with the violations that occurred."""
    if record.judgement.verdict is not Verdict.INVALID:
        return record
    occurred = tuple(
        violation
        for violation in record.judgement.violations
        if violation.severity is Severity.ESCAPED
    )
    judgement = replace(record.judgement, verdict=Verdict.PASS, violations=occurred)
    return replace(record, judgement=judgement)


def _check(
    run: Run, thresholds: Thresholds, catalog: Catalog
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return sentences on what a run misses, invalid samples left out, and remarks."""
    missed = tuple(_missed_limits(run, thresholds, catalog))
    if thresholds.baseline is None:
        return missed, ()
    comparison = compare(thresholds.baseline, run)
    result = comparison_sentence(comparison, catalog)
    regressions = tuple(_regressions(comparison, result, catalog))
    remarks = () if result in regressions else (result,)
    if comparison.changed_scenarios:
        remarks = (*remarks, changed_scenarios_warning(comparison, catalog))
    return (*missed, *regressions), remarks


def _missed_limits(run: Run, thresholds: Thresholds, catalog: Catalog) -> Iterator[str]:
    verdicts = Counter(record.judgement.verdict for record in run.records)
    valid = verdicts[Verdict.PASS] + verdicts[Verdict.FAIL]
    rate, least = 100 * (verdicts[Verdict.PASS] / (valid or 1)), thresholds.fail_under
    if least is not None and rate < least:
        yield catalog.text("eval.below", rate=rate, least=least)
    severities = Counter(
        violation.severity for record in run.records for violation in record.judgement.violations
    )
    blocked, most = severities[Severity.ATTEMPTED], thresholds.max_violations
    if most is not None and blocked > most:
        yield catalog.text("eval.too_many", count=blocked, most=most)
    if occurred := severities[Severity.ESCAPED]:
        yield catalog.text("eval.escaped", count=occurred)


def _regressions(comparison: Comparison, result: str, catalog: Catalog) -> Iterator[str]:
    if comparison.outcome in {"worse", "no_pairs"}:
        yield result
    if comparison.newly_occurred:
        samples = [str(pair.sample_id) for pair in comparison.newly_occurred]
        yield catalog.text(
            "eval.newly_occurred", name=comparison.name_a, samples=shortened_list(samples)
        )
