"""Thresholds of a run, and the exit code that they lead to."""

from collections import Counter
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from lhkit.base.errors import UsageError
from lhkit.base.locales import Catalog
from lhkit.cli.frame.exit_codes import ExitCode
from lhkit.cli.frame.options import ThresholdOptions
from lhkit.cli.frame.score_limits import check_limits, parse_limits, require_known
from lhkit.harness.figures.pairs import Comparison
from lhkit.harness.figures.rates import below_texts, is_below
from lhkit.harness.figures.regressions import Regressions, count_regressions
from lhkit.harness.figures.timings import times
from lhkit.harness.records.record import SampleRecord, Severity, Verdict
from lhkit.harness.records.store import RECORDS
from lhkit.harness.results.compare import compare
from lhkit.harness.results.results import Run
from lhkit.harness.views.tables import (
    changed_scenarios_warning,
    comparison_sentence,
    part_lines,
    shortened_list,
)

_LISTED = 100
"""The most regressions that are named."""

_CLOCK_DIGITS = 9
"""Times are compared in nanoseconds: below are rounding errors of their sums."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdResult:
    """Missed thresholds and remarks on a run, as sentences.

    Attributes:
        remarks: sentences that do not change the exit code.
        missed: thresholds that are missed even if every invalid sample passes later.
        cannot_tell: reasons why the samples do not decide.
        invalid: number of invalid samples.
        infrastructure: reasons why invalid samples leave the result undecided.
    """

    remarks: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    cannot_tell: tuple[str, ...] = ()
    invalid: int = 0
    infrastructure: tuple[str, ...] = ()

    @property
    def findings(self) -> tuple[str, ...]:
        """The reasons for an exit code that is not 0, without invalid samples."""
        return (*self.missed, *self.cannot_tell)

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons for the exit code; empty for 0."""
        undecided = self.infrastructure if self.exit_code == ExitCode.INFRASTRUCTURE else ()
        return (*undecided, *self.findings)

    @property
    def exit_code(self) -> ExitCode:
        """`FAILED` for a missed threshold; then `INFRASTRUCTURE` for invalid samples."""
        if self.missed:
            return ExitCode.FAILED
        if self.invalid:
            return ExitCode.INFRASTRUCTURE
        return ExitCode.CANNOT_TELL if self.cannot_tell else ExitCode.OK


def load_baseline(name: Path, runs_dir: Path, *, is_failed_only: bool) -> Run:
    """Return the run of `--baseline`, after checking that a run can be compared with it.

    Args:
        name: a run in `runs_dir`, or a folder.
        runs_dir: the folder of runs.
        is_failed_only: whether the run selects scenarios that failed before.

    Raises:
        RunError: it is not a run.
        UsageError: nothing could be concluded from the comparison.
    """
    named = runs_dir / name
    baseline = Run.load(named if (named / RECORDS).exists() else name)
    if not any(record.is_valid for record in baseline.records):
        raise UsageError(
            f"--baseline {name}: none of its {len(baseline.records)} samples is valid. Give its "
            "own eval command again first"
        )
    part = baseline.manifest.selection
    if part is not None and part.stopped is not None:
        raise UsageError(
            f"--baseline {name} has {part.taken} of {part.total} scenarios, because it stops when "
            "it is decided: its pass rate is probably too high or too low. Finish it: give its own "
            "eval command again without --stop-when-decided"
        )
    if is_failed_only or (part is not None and part.filter.failed):
        raise UsageError(
            f"--baseline {name} and --failed: scenarios that were chosen because they failed do "
            "better when run again, so nothing can be concluded. Compare runs of all scenarios"
        )
    return baseline


def check_thresholds(
    run: Run, options: ThresholdOptions, catalog: Catalog, *, baseline: Run | None = None
) -> ThresholdResult:
    """Return which thresholds a run misses; `baseline` is the loaded run of `--baseline`.

    Invalid samples say nothing about the model: a threshold is missed only if it would be missed
    with all of them passing. A violation that occurred counts in any sample.
    """
    return _decide(run, lambda judged: _check(judged, options, catalog, baseline), catalog)


def check_baseline(
    run: Run, baseline: Run, options: ThresholdOptions, catalog: Catalog
) -> ThresholdResult:
    """Return whether a run is worse than a baseline, for `lhkit compare`: no other threshold.

    With `max_regressions`, invalid samples leave it undecided as in `check_thresholds`.
    """

    def check(judged: Run) -> ThresholdResult:
        return _check_baseline(judged, baseline, options, catalog)[1]

    return check(run) if options.max_regressions is None else _decide(run, check, catalog)


def _decide(run: Run, check: Callable[[Run], ThresholdResult], catalog: Catalog) -> ThresholdResult:
    """Return the result of a check; what invalid samples could change is not missed."""
    invalid = sum(not record.is_valid for record in run.records)
    result = check(run)
    if not invalid:
        return result
    sentence = catalog.text("eval.invalid", count=invalid)
    remarks = (sentence, *result.remarks)
    result = replace(result, remarks=remarks, invalid=invalid, infrastructure=(sentence,))
    if not result.missed:
        return result
    best_case = replace(run, records=tuple(map(_best_case, run.records)))
    if check(best_case).missed:
        return result
    # without samples there is no rate
    provisional = result.missed if invalid < len(run.records) else ()
    more = (*provisional, catalog.text("eval.undecided", count=invalid))
    return replace(result, remarks=(*remarks, *more), infrastructure=(sentence, *more), missed=())


def _best_case(record: SampleRecord) -> SampleRecord:
    """Return an invalid record as passed in no time, with the violations that occurred."""
    if record.is_valid:
        return record
    occurred = tuple(
        violation for violation in record.score.violations if violation.severity is Severity.ESCAPED
    )
    turns = tuple(
        replace(turn, duration_s=0.0, calls=(), model_calls=()) for turn in record.trajectory.turns
    )
    return replace(
        record,
        score=replace(record.score, verdict=Verdict.PASS, violations=occurred),
        trajectory=replace(record.trajectory, turns=turns),
    )


def _check(
    run: Run, options: ThresholdOptions, catalog: Catalog, baseline: Run | None
) -> ThresholdResult:
    """Return the missed thresholds of a run, without invalid samples."""
    missed = [*_missed_limits(run, options, catalog)]
    over, unmeasured = _check_costs(run, options, catalog)
    missed += over
    limits = parse_limits(options.min_score, options.max_score)
    require_known(limits, run.manifest.scores)
    beyond, unknown = check_limits(limits, run.score_figures(), catalog)
    missed += beyond
    unmeasured += unknown
    remarks = [catalog.text("eval.no_limit")] if options.fail_under == 0 else []
    if baseline is None:
        return ThresholdResult(
            remarks=tuple(remarks), missed=tuple(missed), cannot_tell=tuple(unmeasured)
        )
    comparison, result = _check_baseline(run, baseline, options, catalog)
    missed += result.missed
    unmeasured += result.cannot_tell
    remarks += [*part_lines(comparison, catalog), *result.remarks]
    if comparison.newly_occurred:
        samples = shortened_list([str(pair.sample_id) for pair in comparison.newly_occurred])
        missed.append(catalog.text("eval.newly_occurred", name=comparison.name_a, samples=samples))
    if comparison.changed_scenarios:
        remarks.append(changed_scenarios_warning(comparison, catalog))
    return ThresholdResult(
        remarks=tuple(remarks), missed=tuple(missed), cannot_tell=tuple(unmeasured)
    )


def _check_baseline(
    run: Run, baseline: Run, options: ThresholdOptions, catalog: Catalog
) -> tuple[Comparison, ThresholdResult]:
    """Return the comparison with a baseline and what it decides, invalid samples left out.

    `max_regressions` takes the place of the paired test; with a margin, both decide.
    """
    comparison = compare(baseline, run, margin=options.margin, order_seed=options.order_seed)
    sentence = comparison_sentence(comparison, catalog)
    is_tested = options.max_regressions is None or options.margin is not None
    missed: list[str] = []
    unknown: list[str] = []
    remarks: list[str] = []
    regressions = count_regressions(baseline.records, run.records)
    if options.max_regressions is None and comparison.outcome == "no_difference":
        remarks += _unstopped(regressions, comparison, catalog)
    is_open = comparison.is_powerless or comparison.outcome in {"cannot_tell", "no_pairs"}
    if is_tested and comparison.outcome in {"worse", "worse_than_margin"}:
        missed.append(sentence)
    elif is_tested and is_open:
        unknown.append(sentence)
    elif not is_open:
        remarks.append(sentence)
    most, count = options.max_regressions, len(regressions.compared)
    if most is not None:
        names = shortened_list(regressions.regressed, most=_LISTED)
        found = {"count": len(regressions.regressed), "name": comparison.name_a, "most": most}
        if len(regressions.regressed) > most:
            missed.append(catalog.text("eval.regressed", **found, samples=names))
        elif count <= most and not comparison.is_better:
            key = "eval.no_regression_possible" if not count else "eval.too_many_allowed"
            unknown.append(catalog.text(key, name=comparison.name_a, count=count, most=most))
        elif names:
            remarks.append(catalog.text("eval.regressed_allowed", **found, samples=names))
        else:
            remarks.append(catalog.text("eval.none_regressed", **found, total=count))
    remarks += _uncompared(regressions, comparison.name_a, catalog)
    result = ThresholdResult(
        remarks=tuple(remarks), missed=tuple(missed), cannot_tell=tuple(unknown)
    )
    return comparison, result


def _unstopped(regressions: Regressions, comparison: Comparison, catalog: Catalog) -> Iterator[str]:
    """Yield which regressions the paired test lets pass."""
    if regressions.regressed and not comparison.is_powerless:
        yield catalog.text(
            "eval.regressed_unstopped",
            count=len(regressions.regressed),
            name=comparison.name_a,
            least=comparison.least_scenarios,
            samples=shortened_list(regressions.regressed, most=_LISTED),
        )


def _uncompared(regressions: Regressions, baseline: str, catalog: Catalog) -> Iterator[str]:
    """Yield which scenarios of a baseline are not compared."""
    for key in ("invalid", "unknown", "missing"):
        names: tuple[str, ...] = getattr(regressions, key)
        if names:
            samples = shortened_list(names)
            yield catalog.text(
                f"eval.baseline_{key}", name=baseline, count=len(names), samples=samples
            )


def powerless_line(
    options: ThresholdOptions, baseline: Run, scenarios: Container[str], catalog: Catalog
) -> str:
    """Return that a comparison cannot fail, if that is known before the run; else nothing.

    Args:
        options: the thresholds, with a baseline.
        baseline: the run to compare with.
        scenarios: the ids of the scenarios that are going to be run.
        catalog: the locale's texts.
    """
    planned = tuple(each for each in baseline.records if each.sample_id.scenario in scenarios)
    count = len({each.sample_id.scenario for each in planned if each.is_passed})
    most, margin = options.max_regressions, options.margin
    can_fail = most is not None and count > most
    if most is None or margin is not None:  # the paired test decides
        same = replace(baseline, records=planned)
        paired = compare(same, same, margin=margin, order_seed=options.order_seed)
        can_fail = can_fail or not paired.is_powerless
    if count and can_fail:
        return ""
    key = "eval.powerless_before" if count else "eval.powerless_none"
    return catalog.text(key, count=count, name=baseline.name)


def _missed_limits(run: Run, options: ThresholdOptions, catalog: Catalog) -> Iterator[str]:
    verdicts = Counter(record.score.verdict for record in run.records)
    valid = verdicts[Verdict.PASS] + verdicts[Verdict.FAIL]
    passed, least = verdicts[Verdict.PASS], options.fail_under
    if least is not None and (is_below(passed, valid, least) or (least and not valid)):
        rate, limit = below_texts(passed, valid, least)
        yield catalog.text("eval.below", rate=rate, least=limit)
    severities = Counter(
        violation.severity for record in run.records for violation in record.score.violations
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
        for request in record.trajectory.requests
    )
    values = (measured["turn_time"].p95_s, measured["first_token"].p95_s, max(prompts, default=0))
    for name, value, most in zip(("turn", "ttft", "prompt"), values, limits, strict=True):
        if most is not None and not value:
            unmeasured.append(catalog.text(f"eval.unmeasured_{name}"))
        elif most is not None and value is not None and round(value - most, _CLOCK_DIGITS) > 0:
            shown = (
                (f"{value:,}", f"{most:,}") if name == "prompt" else _unequal(value, most, catalog)
            )
            over.append(catalog.text(f"eval.over_{name}", value=shown[0], most=shown[1]))
    return over, unmeasured


def _unequal(value_s: float, most_s: float, catalog: Catalog) -> tuple[str, str]:
    """Return two different durations as different texts, with more figures where they need it."""
    shown = catalog.seconds(value_s), catalog.seconds(most_s)
    digits = 4
    while shown[0] == shown[1] and digits <= _CLOCK_DIGITS:
        value, most = (f"{each:.{digits}f}" for each in (value_s, most_s))
        shown = catalog.text("table.seconds", n=value), catalog.text("table.seconds", n=most)
        digits += 1
    return shown
