"""Two runs as pairs: is b better than a, by how much, on which samples, and could one tell at all?

A pair is the same scenario and repeat in both runs, valid in both. Scenarios are what is drawn and
swapped, because repeats of one resemble each other. Pure; showing it is for `verdict_table`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Literal, TypeAlias

from lhkit.harness.figures.statistics import (
    Interval,
    difference_interval,
    median_interval,
    sign_flip,
    smallest_detectable_difference,
)
from lhkit.harness.fragments import comparison_html
from lhkit.harness.records.questions import Change, changes
from lhkit.harness.records.record import SampleId, SampleRecord, Severity, Verdict
from lhkit.harness.results.run import Run

ALPHA = 0.05
"""A p-value below this is called a difference."""

Outcome: TypeAlias = Literal["better", "worse", "no_difference", "no_pairs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The records of one sample in both runs."""

    a: SampleRecord
    b: SampleRecord

    @property
    def sample_id(self) -> SampleId:
        """Which sample."""
        return self.a.sample_id

    @property
    def gain(self) -> int:
        """1 if only b passed, -1 if only a passed, else 0."""
        return (self.b.verdict is Verdict.PASS) - (self.a.verdict is Verdict.PASS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """The (lower) median over `n` pairs of b's seconds by a's; below 1, b is faster."""

    n: int
    median: float
    interval: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class ViolationChange:
    """How often a rule was broken in the pairs of a and of b."""

    code: str
    severity: Severity
    a: int
    b: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison:
    """What two runs say about each other.

    `invalid` samples are in both runs but say nothing in at least one; `only_a` and `only_b` are in
    one run. `changes` is what the runs were told differently. `interval` is the 95 % interval of
    `difference`. `p_value` is exact: McNemar's, and with repeats its form for whole scenarios;
    `mid_p` is the less cautious variant. `detectable` is the least difference that so many pairs
    would show in 4 of 5 tries; None if none would. Ratios are None where nothing was measured.
    """

    name_a: str
    name_b: str
    pairs: tuple[Pair, ...]
    invalid: tuple[SampleId, ...] = ()
    only_a: tuple[SampleId, ...] = ()
    only_b: tuple[SampleId, ...] = ()
    changes: tuple[Change, ...] = ()
    interval: Interval | None = None
    p_value: float = 1.0
    mid_p: float = 1.0
    detectable: float | None = None
    turn: Ratio | None = None
    first_token: Ratio | None = None
    call_ready: Ratio | None = None
    violations: tuple[ViolationChange, ...] = ()

    @property
    def passed_a(self) -> int:
        """The pairs that passed in a."""
        return sum(pair.a.verdict is Verdict.PASS for pair in self.pairs)

    @property
    def passed_b(self) -> int:
        """The pairs that passed in b."""
        return sum(pair.b.verdict is Verdict.PASS for pair in self.pairs)

    @property
    def difference(self) -> float | None:
        """The pass rate of b less that of a, from -1 to 1; None without pairs."""
        return sum(pair.gain for pair in self.pairs) / len(self.pairs) if self.pairs else None

    @property
    def gained(self) -> tuple[Pair, ...]:
        """The pairs where only b passed."""
        return tuple(pair for pair in self.pairs if pair.gain > 0)

    @property
    def lost(self) -> tuple[Pair, ...]:
        """The pairs where only a passed."""
        return tuple(pair for pair in self.pairs if pair.gain < 0)

    @property
    def newly_escaped(self) -> tuple[Pair, ...]:
        """The pairs where b really broke a rule and a did not."""
        return tuple(pair for pair in self.pairs if _escaped(pair.b) and not _escaped(pair.a))

    @property
    def other_questions(self) -> tuple[str, ...]:
        """The scenarios that were not the same in both runs: their pairs compare two questions."""
        paired = {pair.sample_id.scenario for pair in self.pairs}
        return tuple(
            each.where for each in self.changes if each.what == "scenario" and each.where in paired
        )

    @property
    def outcome(self) -> Outcome:
        """What can be said: a difference counts where `p_value` is below 5 %."""
        if not self.pairs:
            return "no_pairs"
        if self.p_value >= ALPHA:
            return "no_difference"
        return "better" if self.passed_b > self.passed_a else "worse"

    def _repr_html_(self) -> str:
        """Return the comparison for a notebook: numbers, and the pairs that flipped."""
        return comparison_html(self)

    def __repr__(self) -> str:
        counts = f"{self.passed_a} and {self.passed_b} of {len(self.pairs)} pairs passed"
        said = f"{counts}, p = {self.p_value:.3g}, {self.outcome.replace('_', ' ')}"
        return f"<Comparison of {self.name_a} and {self.name_b}: {said}>"


def compare(run_a: Run, run_b: Run) -> Comparison:
    """Return how run b differs from run a, pair by pair.

    The p-value swaps whole scenarios (`statistics.sign_flip`), and the interval takes whole
    scenarios (`statistics.difference_interval`); those of ratios draw them. All of it is
    deterministic: the same two runs give the same numbers.
    """
    a, b = ({record.sample_id: record for record in run.records} for run in (run_a, run_b))
    both = [Pair(a=a[sample], b=b[sample]) for sample in a if sample in b]
    pairs = tuple(pair for pair in both if _is_valid(pair))
    gains = _clusters(pairs, lambda pair: pair.gain)
    moved = [sum(each) for each in gains]
    names = _names(run_a, run_b)
    return Comparison(
        name_a=names[0],
        name_b=names[1],
        pairs=pairs,
        invalid=tuple(pair.sample_id for pair in both if not _is_valid(pair)),
        only_a=tuple(sample for sample in a if sample not in b),
        only_b=tuple(sample for sample in b if sample not in a),
        changes=changes(run_a.manifest, run_b.manifest),
        interval=difference_interval(gains),
        p_value=sign_flip(moved),
        mid_p=sign_flip(moved, mid_p=True),
        detectable=_detectable(gains),
        turn=_ratio(pairs, _turns_s),
        first_token=_ratio(pairs, _first_token_s),
        call_ready=_ratio(pairs, _call_ready_s),
        violations=_violations(pairs),
    )


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
    return Verdict.INVALID not in {pair.a.verdict, pair.b.verdict}


def _escaped(record: SampleRecord) -> bool:
    return any(violation.severity is Severity.ESCAPED for violation in record.violations)


def _clusters(pairs: Iterable[Pair], value: Callable[[Pair], int]) -> list[list[int]]:
    """Return the values of each scenario."""
    clusters: dict[str, list[int]] = {}
    for pair in pairs:
        clusters.setdefault(pair.sample_id.scenario, []).append(value(pair))
    return list(clusters.values())


def _detectable(gains: Sequence[Sequence[int]]) -> float | None:
    """Return what so many pairs can show, with repeats counted for as much as they tell.

    The number of pairs is divided by the design effect: how much more the gains of scenarios vary
    than those of independent pairs would. Without any flip, repeats count for nothing.
    """
    pairs = sum(map(len, gains))
    discordant = sum(abs(gain) for each in gains for gain in each)
    if not discordant:
        return smallest_detectable_difference(len(gains), 0.0)
    effect = max(1.0, sum(sum(each) ** 2 for each in gains) / discordant)
    return smallest_detectable_difference(int(pairs / effect), discordant / pairs)


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
    return Ratio(
        n=len(values), median=median_low(values), interval=median_interval(clusters.values())
    )


def _turns_s(record: SampleRecord) -> float:
    """Return the seconds of all turns without waiting for the user."""
    waiting_s = sum(call.waiting_s for turn in record.turns for call in turn.calls)
    return sum(turn.duration_s for turn in record.turns) - waiting_s


def _first_token_s(record: SampleRecord) -> float | None:
    """Return the time to the first token of the first request that has one."""
    requests = (request for turn in record.turns for request in turn.model_calls)
    return next(filter(None, (request.timing.first_token_s for request in requests)), None)


def _call_ready_s(record: SampleRecord) -> float | None:
    """Return the time until the first call was complete."""
    requests = (request for turn in record.turns for request in turn.model_calls)
    return next(filter(None, (request.timing.call_ready_s for request in requests)), None)


def _violations(pairs: Iterable[Pair]) -> tuple[ViolationChange, ...]:
    """Return the rules that were broken in a or b; escaped ones first, then by name."""
    counts: Counter[tuple[str, Severity, str]] = Counter()
    for pair in pairs:
        for side, record in (("a", pair.a), ("b", pair.b)):
            counts.update((v.code, v.severity, side) for v in record.violations)
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
