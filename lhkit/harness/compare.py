"""Two runs as pairs: is b better than a, by how much, on which samples, and is it significant?

A pair is the same scenario and repeat in both runs, valid in both. Scenarios are what is drawn
and swapped, because repeats of one resemble each other. Pure.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from statistics import median_low

from lhkit.harness.html import comparison_html
from lhkit.harness.manifest import manifest_changes
from lhkit.harness.pairs import Comparison, Pair, PersonVotes, Ratio, ViolationChange
from lhkit.harness.record import SampleRecord, Severity, Verdict, Vote
from lhkit.harness.results import Run


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class _Shown(Comparison):
    """A comparison that a notebook shows."""

    def _repr_html_(self) -> str:
        """Return it for a notebook: numbers, and the pairs that flipped."""
        return comparison_html(self)


def compare(run_a: Run, run_b: Run) -> Comparison:
    """Return how run b differs from run a, pair by pair.

    The p-value swaps whole scenarios (`statistics.sign_flip`), and the interval takes whole
    scenarios (`statistics.difference_interval`); those of ratios draw them. All of it is
    deterministic: the same two runs give the same numbers.
    """
    from lhkit.harness.statistics import difference_interval, sign_flip

    a, b = ({record.sample_id: record for record in run.records} for run in (run_a, run_b))
    both = [_voted(Pair(a=a[sample], b=b[sample])) for sample in a if sample in b]
    pairs = tuple(pair for pair in both if _is_valid(pair))
    gains = _clusters(pairs, lambda pair: pair.gain)
    moved = [sum(each) for each in gains]
    names = _names(run_a, run_b)
    return _Shown(
        name_a=names[0],
        name_b=names[1],
        pairs=pairs,
        invalid=tuple(pair.sample_id for pair in both if not _is_valid(pair)),
        only_a=tuple(sample for sample in a if sample not in b),
        only_b=tuple(sample for sample in b if sample not in a),
        changes=manifest_changes(run_a.manifest, run_b.manifest),
        interval=difference_interval(gains),
        p_value=sign_flip(moved),
        mid_p=sign_flip(moved, mid_p=True),
        turn=_ratio(pairs, _turns_s),
        first_token=_ratio(pairs, _moment_s("first_token_s")),
        call_ready=_ratio(pairs, _moment_s("call_ready_s")),
        violations=_violations(pairs),
        people=_people(pairs),
    )


def _voted(pair: Pair) -> Pair:
    """Return the pair with its vote on both sides: a process may end between writing the two."""
    if pair.a.vote is not None and pair.b.vote is None:
        return replace(pair, b=_judged(pair.b, pair.a.vote.opposite))
    if pair.b.vote is not None and pair.a.vote is None:
        return replace(pair, a=_judged(pair.a, pair.b.vote.opposite))
    return pair


def _judged(record: SampleRecord, vote: Vote) -> SampleRecord:
    return replace(record, vote=vote, judgement=vote.judgement)


def _people(pairs: Iterable[Pair]) -> tuple[PersonVotes, ...]:
    """Return how each person voted; nothing where nobody did."""
    from lhkit.harness.statistics import difference_interval, sign_flip

    votes: dict[str, list[Pair]] = {}
    for pair in pairs:
        if pair.a.vote is not None:
            votes.setdefault(pair.a.vote.person, []).append(pair)
    found = []
    for person, theirs in sorted(votes.items()):
        gains = _clusters(theirs, lambda pair: pair.gain)
        found.append(
            PersonVotes(
                person=person,
                votes=len(theirs),
                preferred_a=sum(pair.gain < 0 for pair in theirs),
                preferred_b=sum(pair.gain > 0 for pair in theirs),
                interval=difference_interval(gains),
                p_value=sign_flip([sum(each) for each in gains]),
            )
        )
    return tuple(found)


def _names(run_a: Run, run_b: Run) -> tuple[str, str]:
    """Return what the runs are called: their folders, else their models, else a and b."""
    a, b = (run.name or _models(run) for run in (run_a, run_b))
    return (a, b) if a and b and a != b else (run_a.name or "a", run_b.name or "b")


def _models(run: Run) -> str:
    """Return the models of a run that was not kept in a folder, with their constraints."""
    models = [
        each.model if each.constraint == "off" else f"{each.model} {each.constraint}"
        for each in run.summary().models
    ]
    return ", ".join(models)


def _is_valid(pair: Pair) -> bool:
    return Verdict.INVALID not in {pair.a.judgement.verdict, pair.b.judgement.verdict}


def _clusters(pairs: Iterable[Pair], value: Callable[[Pair], int]) -> list[list[int]]:
    """Return the values of each scenario."""
    clusters: dict[str, list[int]] = {}
    for pair in pairs:
        clusters.setdefault(pair.sample_id.scenario, []).append(value(pair))
    return list(clusters.values())


def _ratio(pairs: Iterable[Pair], seconds: Callable[[SampleRecord], float | None]) -> Ratio | None:
    """Return the median of b's seconds by a's, over the pairs where both were measured."""
    clusters: dict[str, list[float]] = {}
    for pair in pairs:
        a_s, b_s = seconds(pair.a), seconds(pair.b)
        if a_s and b_s:
            clusters.setdefault(pair.sample_id.scenario, []).append(b_s / a_s)
    values = [value for each in clusters.values() for value in each]
    if not values:
        return None
    from lhkit.harness.statistics import median_interval

    return Ratio(
        n=len(values), median=median_low(values), interval=median_interval(clusters.values())
    )


def _turns_s(record: SampleRecord) -> float:
    """Return the seconds of all turns without waiting for the user."""
    return sum(turn.active_s for turn in record.evidence.turns)


def _moment_s(name: str) -> Callable[[SampleRecord], float | None]:
    """Return a function that reads when something first happened, from its request's sending."""

    def first_s(record: SampleRecord) -> float | None:
        requests = (request for turn in record.evidence.turns for request in turn.model_calls)
        moments = (getattr(request.response.timing, name) for request in requests)
        return next(filter(None, moments), None)

    return first_s


def _violations(pairs: Iterable[Pair]) -> tuple[ViolationChange, ...]:
    """Return the rules that were broken in a or b; escaped ones first, then by name."""
    counts: Counter[tuple[str, Severity, str]] = Counter()
    for pair in pairs:
        for side, record in (("a", pair.a), ("b", pair.b)):
            counts.update((v.code, v.severity, side) for v in record.judgement.violations)
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
