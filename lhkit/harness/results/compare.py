"""Compare two runs pair by pair: difference, significance, latency, violations, votes. Pure.

A pair is the same scenario and repeat in both runs, valid in both. Tests and intervals treat a
scenario as one cluster, because its repeats are correlated.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, takewhile
from statistics import median_low

from lhkit.base.errors import UsageError
from lhkit.harness.figures.pairs import Arm, Comparison, Pair, PersonVotes, Ratio, ViolationChange
from lhkit.harness.figures.rates import ALPHA
from lhkit.harness.figures.score_figures import score_changes
from lhkit.harness.records.manifest import manifest_changes
from lhkit.harness.records.record import SampleRecord, Severity, Vote
from lhkit.harness.records.resume import SampleHashes
from lhkit.harness.results.arms import WorseArms
from lhkit.harness.results.arms import order_seed as seed_of
from lhkit.harness.results.results import Run


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class _NotebookComparison(Comparison):
    """A comparison with an HTML form for notebooks."""

    def _repr_html_(self) -> str:
        """Return the comparison table and the pairs that flipped."""
        from lhkit.harness.views.html import comparison_html

        return comparison_html(self)


def compare(
    run_a: Run, run_b: Run, *, margin: float | None = None, order_seed: int | None = None
) -> Comparison:
    """Return the comparison of run b with run a.

    P-values (`statistics.sign_flip`) and intervals (`statistics.difference_interval`,
    `statistics.median_interval`) are clustered by scenario. The result is deterministic.

    If one of the runs stopped when it was decided, or with an `order_seed`, the pass rates are
    compared by the always-valid test (`sequential`), which looks at the scenarios in random order.

    Args:
        run_a: the baseline.
        run_b: the run to compare with it.
        margin: the points by which run b may be worse, 0 to 100. The outcome is then `no_worse`,
            `worse_than_margin` or `cannot_tell`.
        order_seed: the seed of the order in which the scenarios were run to stop when decided; by
            default that of a run that stopped.

    With too few scenarios that run a passed, run b could not have been found worse: the comparison
    then `is_powerless`.

    Raises:
        UsageError: the margin is not from 0 to 100.
    """
    from lhkit.harness.figures.statistics import difference_interval, needed_scenarios, sign_flip

    if margin is not None and not 0 <= margin <= 100:
        raise UsageError(f"margin is invalid: {margin:g}. Give points from 0 to 100")

    a, b = ({record.sample_id: record for record in run.records} for run in (run_a, run_b))
    both = [_with_vote(Pair(a=a[sample], b=b[sample])) for sample in a if sample in b]
    pairs = tuple(pair for pair in both if pair.a.is_valid and pair.b.is_valid)
    paired = {pair.sample_id for pair in pairs}
    gains = _clustered_gains(pairs)
    differences = [sum(cluster) for cluster in gains]
    names = [run.name or _models(run) for run in (run_a, run_b)]
    if names[0] == names[1] or not all(names):
        names = [run_a.name or "a", run_b.name or "b"]
    comparison = _NotebookComparison(
        name_a=names[0],
        name_b=names[1],
        pairs=pairs,
        invalid=tuple(pair.sample_id for pair in both if pair.sample_id not in paired),
        only_a=tuple(sample for sample in a if sample not in b),
        only_b=tuple(sample for sample in b if sample not in a),
        changes=manifest_changes(run_a.manifest, run_b.manifest),
        interval=difference_interval(gains),
        p_value=sign_flip(differences),
        mid_p=sign_flip(differences, mid_p=True),
        turn=_ratio(pairs, lambda r: sum(turn.active_s for turn in r.trajectory.turns)),
        first_token=_ratio(pairs, _moment_s("first_token_s")),
        call_ready=_ratio(pairs, _moment_s("call_ready_s")),
        violations=_violations(pairs),
        people=_votes(pairs),
        scores=score_changes(
            paired,
            run_a.score_records,
            run_b.score_records,
            p_value=sign_flip(differences),
            labelled=set.intersection(
                *({label.score for label in run.labels} for run in (run_a, run_b))
            ),
        ),
        selection_a=run_a.manifest.selection,
        selection_b=run_b.manifest.selection,
        margin=margin,
    )
    order_seed = order_seed if order_seed is not None else _stopped_seed(run_b, run_a)
    if order_seed is not None:
        comparison = _with_sequential(comparison, run_a, run_b, order_seed)
    elif pairs and not comparison.people:  # votes prefer one of two: neither is the baseline
        comparison = _with_power(comparison)
    if margin is None or comparison.outcome != "cannot_tell" or comparison.is_powerless:
        return comparison
    return replace(comparison, needed_scenarios=needed_scenarios(gains, margin / 100))


def _stopped_seed(*runs: Run) -> int | None:
    """Return the seed of the order of the first run that stopped when it was decided."""
    selections = (run.manifest.selection for run in runs)
    stopped = (selection.stopped for selection in selections if selection is not None)
    return next((each.seed for each in stopped if each is not None), None)


def _with_sequential(
    comparison: _NotebookComparison, run_a: Run, run_b: Run, seed: int
) -> _NotebookComparison:
    """Return the comparison by the always-valid test, and whether that could find b worse.

    It ends before the first scenario of which a sample is missing: of the later ones only the
    fastest may have been recorded.
    """
    from lhkit.harness.figures.sequential import (
        SequentialTest,
        in_random_order,
        least_losses,
        sequential_result,
    )

    a = {record.sample_id: record for record in run_a.records if record.is_valid}
    b = {record.sample_id: record for record in run_b.records}
    planned = SampleHashes.from_manifest(run_b.manifest) or b
    order = in_random_order((sample for sample in a if sample in planned), seed)
    largest = max(map(len, order.values()), default=1)
    margin = (comparison.margin or 0.0) / 100
    gains = [
        [Pair(a=a[sample], b=b[sample]).gain for sample in samples if b[sample].is_valid]
        for samples in takewhile(lambda samples: all(s in b for s in samples), order.values())
    ]
    worst = SequentialTest(margin=margin, largest=largest)
    for samples in order.values():
        worst.add([-int(a[sample].is_passed) for sample in samples])
    found = sequential_result(gains, margin, largest=largest)
    return replace(
        comparison,
        sequential=found,
        planned=len(order),
        interval=found.interval,
        p_value=found.p_value,
        mid_p=found.p_value,
        can_be_worse=worst.direction < 0,
        least_scenarios=least_losses(margin),
    )


def _with_power(comparison: _NotebookComparison) -> _NotebookComparison:
    """Return the comparison with whether b could have been found worse: by failing everything."""
    from lhkit.harness.figures.statistics import (
        difference_interval,
        least_passing,
        least_scenarios,
        sign_flip,
    )

    least: int | None
    worst: dict[str, list[int]] = {}
    for pair in comparison.pairs:
        worst.setdefault(pair.sample_id.scenario, []).append(-int(pair.a.is_passed))
    if comparison.margin is None:
        can_be_worse = sign_flip([sum(cluster) for cluster in worst.values()]) < ALPHA
        least = least_passing()
    else:
        interval, margin = difference_interval(worst.values()), comparison.margin
        can_be_worse = interval is not None and 100 * interval.high < -margin
        least = None if can_be_worse else least_scenarios(worst.values(), margin / 100)
    return replace(comparison, can_be_worse=can_be_worse, least_scenarios=least)


def compare_arms(
    runs: Sequence[tuple[str, Run]], *, order_seed: int | None = None
) -> tuple[Arm, ...]:
    """Return the comparison of several named runs, corrected for all their pairs.

    If one of the runs stopped when it was decided, or with an `order_seed`, all p-values are those
    of the always-valid test (`arms`).

    Args:
        runs: names and runs, in their order.
        order_seed: as for `compare`.

    Raises:
        UsageError: the runs that stopped were run in different orders.
    """
    from lhkit.harness.figures.statistics import holm, sign_flip

    seed = seed_of(runs) if order_seed is None else order_seed
    if seed is not None:
        return _compare_always_valid(runs, seed)
    verdicts = [
        {record.sample_id: record.is_passed for record in run.records if record.is_valid}
        for _, run in runs
    ]
    places = list(combinations(range(len(runs)), 2))
    p_values = []
    for one, other in places:
        gains: Counter[str] = Counter()
        for sample in verdicts[one].keys() & verdicts[other].keys():
            gains[sample.scenario] += verdicts[other][sample] - verdicts[one][sample]
        p_values.append(sign_flip(gains.values()))
    corrected = {frozenset(at): p for at, p in zip(places, holm(p_values), strict=True)}
    summaries = [run.summary() for _, run in runs]
    best = max(range(len(runs)), key=lambda arm: summaries[arm].total.pass_rate or 0.0)

    def is_powerless(arm: int) -> bool:
        """Return whether an arm that failed everything would not be separated from the best."""
        losses: Counter[str] = Counter()
        for sample in verdicts[arm].keys() & verdicts[best].keys():
            losses[sample.scenario] -= verdicts[best][sample]
        at = places.index((min(arm, best), max(arm, best)))
        worst = [*p_values[:at], sign_flip(losses.values()), *p_values[at + 1 :]]
        return holm(worst)[at] >= ALPHA

    return tuple(
        Arm(
            name=name,
            summary=summary,
            comparison=compare(runs[0][1], run) if number else None,
            p_first=corrected.get(frozenset({0, number})),
            p_best=corrected.get(frozenset({best, number})),
            is_powerless=number != best and is_powerless(number),
        )
        for number, ((name, run), summary) in enumerate(zip(runs, summaries, strict=True))
    )


def _compare_always_valid(runs: Sequence[tuple[str, Run]], seed: int) -> tuple[Arm, ...]:
    """Return the comparison of runs of which some may have stopped early.

    The best is one of those that did not: over the first scenarios only, a rate may be higher.
    """
    tests = WorseArms([run for _, run in runs], seed=seed)
    summaries = [run.summary() for _, run in runs]
    whole = [arm for arm, (_, run) in enumerate(runs) if _stopped_seed(run) is None]
    candidates = whole or range(len(runs))
    best = max(candidates, key=lambda arm: summaries[arm].total.pass_rate or 0.0)

    def is_powerless(arm: int) -> bool:
        return tests.p_value(arm) >= ALPHA and not tests.could_be_worse(arm, best)

    return tuple(
        Arm(
            name=name,
            summary=summary,
            comparison=compare(runs[0][1], run, order_seed=seed) if number else None,
            p_first=tests.p_difference(0, number) if number else None,
            p_best=tests.p_value(number) if number != best else None,
            is_powerless=number != best and is_powerless(number),
        )
        for number, ((name, run), summary) in enumerate(zip(runs, summaries, strict=True))
    )


def _with_vote(pair: Pair) -> Pair:
    """Return the pair with its vote on both sides: a crash may have lost one of the two."""
    if pair.a.vote is not None and pair.b.vote is None:
        return replace(pair, b=_judged(pair.b, pair.a.vote.opposite))
    if pair.b.vote is not None and pair.a.vote is None:
        return replace(pair, a=_judged(pair.a, pair.b.vote.opposite))
    return pair


def _judged(record: SampleRecord, vote: Vote) -> SampleRecord:
    return replace(record, vote=vote, score=vote.score)


def _votes(pairs: Iterable[Pair]) -> tuple[PersonVotes, ...]:
    """Return the votes of each person; empty without votes."""
    from lhkit.harness.figures.statistics import difference_interval, sign_flip

    by_person: dict[str, list[Pair]] = {}
    for pair in pairs:
        if pair.a.vote is not None:
            by_person.setdefault(pair.a.vote.person, []).append(pair)
    votes = []
    for person, voted in sorted(by_person.items()):
        gains = _clustered_gains(voted)
        votes.append(
            PersonVotes(
                person=person,
                votes=len(voted),
                preferred_a=sum(pair.gain < 0 for pair in voted),
                preferred_b=sum(pair.gain > 0 for pair in voted),
                interval=difference_interval(gains),
                p_value=sign_flip([sum(cluster) for cluster in gains]),
            )
        )
    return tuple(votes)


def _models(run: Run) -> str:
    return ", ".join(
        model.model if model.constraint == "off" else f"{model.model} {model.constraint}"
        for model in run.summary().models
    )


def _clustered_gains(pairs: Iterable[Pair]) -> list[list[int]]:
    """Return the gains of the pairs of each scenario."""
    clusters: dict[str, list[int]] = {}
    for pair in pairs:
        clusters.setdefault(pair.sample_id.scenario, []).append(pair.gain)
    return list(clusters.values())


def _ratio(pairs: Iterable[Pair], seconds: Callable[[SampleRecord], float | None]) -> Ratio | None:
    """Return the median of b's seconds divided by a's, over pairs with both measurements."""
    clusters: dict[str, list[float]] = {}
    for pair in pairs:
        a_s, b_s = seconds(pair.a), seconds(pair.b)
        if a_s and b_s:
            clusters.setdefault(pair.sample_id.scenario, []).append(b_s / a_s)
    values = [value for cluster in clusters.values() for value in cluster]
    if not values:
        return None
    from lhkit.harness.figures.statistics import median_interval

    return Ratio(
        n=len(values), median=median_low(values), interval=median_interval(clusters.values())
    )


def _moment_s(name: str) -> Callable[[SampleRecord], float | None]:
    """Return a reader of the first measurement of a moment, in seconds from its request."""

    def first_s(record: SampleRecord) -> float | None:
        timings = (request.response.timing for request in record.trajectory.requests)
        return next(filter(None, (getattr(timing, name) for timing in timings)), None)

    return first_s


def _violations(pairs: Iterable[Pair]) -> tuple[ViolationChange, ...]:
    """Return the counts by violation; those that occurred first, then by name."""
    counts: Counter[tuple[str, Severity, str]] = Counter()
    for pair in pairs:
        for side, record in (("a", pair.a), ("b", pair.b)):
            counts.update((v.code, v.severity, side) for v in record.score.violations)
    kinds = {(code, severity) for code, severity, _ in counts}
    return tuple(
        ViolationChange(
            code=code,
            severity=severity,
            a=counts[code, severity, "a"],
            b=counts[code, severity, "b"],
        )
        for code, severity in sorted(kinds, key=lambda kind: (kind[1] is Severity.ATTEMPTED, kind))
    )
