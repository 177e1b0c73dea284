"""Thresholds of a run, and the exit code that they lead to."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from lhkit.cli.exit_codes import ExitCode
from lhkit.cli.options import ThresholdOptions
from lhkit.harness.compare import compare
from lhkit.harness.record import SampleRecord, Severity, Verdict
from lhkit.harness.results import Run
from lhkit.harness.tables import (
    changed_scenarios_warning,
    comparison_sentence,
    part_lines,
    shortened_list,
)
from lhkit.harness.timings import times
from lhkit.locales import Catalog
from lhkit.text import seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdResult:
    """Missed thresholds and remarks on a run, as sentences.

    Attributes:
        remarks: sentences that do not change the exit code.
        missed: thresholds that are missed even if every invalid sample passes later.
        cannot_tell: what the samples are too few to tell.
        invalid: number of invalid samples.
    """

    remarks: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    cannot_tell: tuple[str, ...] = ()
    invalid: int = 0

    @property
    def findings(self) -> tuple[str, ...]:
        """The reasons for an exit code that is not 0, without invalid samples."""
        return (*self.missed, *self.cannot_tell)

    @property
    def exit_code(self) -> ExitCode:
        """`FAILED` for a missed threshold; then `INFRASTRUCTURE` for invalid samples."""
        if self.missed:
            return ExitCode.FAILED
        if self.invalid:
            return ExitCode.INFRASTRUCTURE
        return ExitCode.CANNOT_TELL if self.cannot_tell else ExitCode.OK


def check_thresholds(
    run: Run, options: ThresholdOptions, catalog: Catalog, *, baseline: Run | None = None
) -> ThresholdResult:
    """Return which thresholds a run misses; `baseline` is the loaded run of `--baseline`.

    Invalid samples say nothing about the model: a threshold is missed only if it would be missed
    with all of them passing. A violation that occurred counts in any sample.
    """
    invalid = sum(not record.is_valid for record in run.records)
    result = _check(run, options, catalog, baseline)
    if not invalid:
        return result
    remarks = (catalog.text("eval.invalid", count=invalid), *result.remarks)
    result = replace(result, remarks=remarks, invalid=invalid)
    if not result.missed:
        return result
    best_case = replace(run, records=tuple(map(_best_case, run.records)))
    if _check(best_case, options, catalog, baseline).missed:
        return result
    # without samples there is no rate
    provisional = result.missed if invalid < len(run.records) else ()
    undecided = catalog.text("eval.undecided", count=invalid)
    return replace(result, remarks=(*remarks, *provisional, undecided), missed=())


def _best_case(record: SampleRecord) -> SampleRecord:
    """Return an invalid record as passed in no time, with the violations that occurred."""
    if record.is_valid:
        return record
    occurred = tuple(
        violation
        for violation in record.judgement.violations
        if violation.severity is Severity.ESCAPED
    )
    turns = tuple(
        replace(turn, duration_s=0.0, calls=(), model_calls=()) for turn in record.evidence.turns
    )
    return replace(
        record,
        judgement=replace(record.judgement, verdict=Verdict.PASS, violations=occurred),
        evidence=replace(record.evidence, turns=turns),
    )


def _check(
    run: Run, options: ThresholdOptions, catalog: Catalog, baseline: Run | None
) -> ThresholdResult:
    """Return what a run misses, invalid samples left out."""
    missed = [*_missed_limits(run, options, catalog)]
    over, unmeasured = _check_costs(run, options, catalog)
    missed += over
    if baseline is None:
        return ThresholdResult(missed=tuple(missed), cannot_tell=tuple(unmeasured))
    comparison = compare(baseline, run, margin=options.margin)
    sentence = comparison_sentence(comparison, catalog)
    remarks = [*part_lines(comparison, catalog)]
    if comparison.outcome in {"worse", "worse_than_margin", "no_pairs"}:
        missed.append(sentence)
    elif comparison.outcome == "cannot_tell":
        unmeasured.append(sentence)
    else:
        remarks.append(sentence)
    if comparison.newly_occurred:
        samples = shortened_list([str(pair.sample_id) for pair in comparison.newly_occurred])
        missed.append(catalog.text("eval.newly_occurred", name=comparison.name_a, samples=samples))
    if comparison.changed_scenarios:
        remarks.append(changed_scenarios_warning(comparison, catalog))
    return ThresholdResult(
        remarks=tuple(remarks), missed=tuple(missed), cannot_tell=tuple(unmeasured)
    )


def _missed_limits(run: Run, options: ThresholdOptions, catalog: Catalog) -> Iterator[str]:
    verdicts = Counter(record.judgement.verdict for record in run.records)
    valid = verdicts[Verdict.PASS] + verdicts[Verdict.FAIL]
    rate, least = 100 * (verdicts[Verdict.PASS] / (valid or 1)), options.fail_under
    if least is not None and rate < least:
        yield catalog.text("eval.below", rate=rate, least=least)
    severities = Counter(
        violation.severity for record in run.records for violation in record.judgement.violations
    )
    blocked, most = severities[Severity.ATTEMPTED], options.max_violations
    if most is not None and blocked > most:
        yield catalog.text("eval.too_many", count=blocked, most=most)
    if occurred := severities[Severity.ESCAPED]:
        yield catalog.text("eval.escaped", count=occurred)


def _check_costs(
    run: Run, options: ThresholdOptions, catalog: Catalog
) -> tuple[list[str], list[str]]:
    """Return sentences on limits of time and tokens: those exceeded, and those not measured."""
    over: list[str] = []
    unmeasured: list[str] = []
    limits = (options.max_p95_turn, options.max_p95_ttft, options.max_prompt_tokens)
    if limits == (None, None, None):
        return over, unmeasured
    measured = times(run.records)
    prompts = (
        request.response.usage.prompt_tokens
        for record in run.records
        if record.is_valid
        for request in record.evidence.requests
    )
    values = (measured["turn_time"].p95_s, measured["first_token"].p95_s, max(prompts, default=0))
    for name, value, most in zip(("turn", "ttft", "prompt"), values, limits, strict=True):
        if most is not None and not value:
            unmeasured.append(catalog.text(f"eval.unmeasured_{name}"))
        elif most is not None and value is not None and value > most:
            shown = [f"{n:,}" if name == "prompt" else seconds(n) for n in (value, most)]
            over.append(catalog.text(f"eval.over_{name}", value=shown[0], most=shown[1]))
    return over, unmeasured
