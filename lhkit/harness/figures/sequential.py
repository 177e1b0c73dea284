"""An always-valid paired test: it may be looked at after each scenario, and stop a run. Pure.

The betting e-process of Waudby-Smith and Ramdas (2024), Estimating means of bounded random
variables by betting, JRSS B 86(1), with a mixture over the bets as in Cover's universal portfolio
(Orabona and Jun 2024, Tight concentrations and confidence sequences from the regret of universal
portfolio). With pairs of one repeat and no margin it is a mixture of likelihood ratios of the sign
test (Robbins 1970).

If the true difference is at most d, the wealth of a gambler who bets a part of it on each next
scenario being above d is a supermartingale that starts at 1, so by Ville's inequality it ever
reaches 40 in at most 2.5 % of runs, however often and whenever it is looked at. The same holds for
bets on the other side. A scenario is one bet: its repeats and wordings are correlated. Scenarios
must be looked at in an order that is independent of their results, and of how long they took.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from lhkit.base.errors import importing
from lhkit.harness.figures.rates import ALPHA, Interval
from lhkit.harness.scenarios.sample_id import SampleId
from lhkit.harness.scenarios.scenario_filter import random_key

with importing("eval"):
    import numpy as np
    from numpy.typing import NDArray

_Numbers: TypeAlias = NDArray[np.float64]

BETS: _Numbers = 1 - (1 - (np.arange(128) + 0.5) / 128) ** 2
"""The bets, as parts of the wealth: equally weighted quantiles of Beta(1, 1/2).

More of them are near 1 than in a uniform mixture, which separates worse runs from equal ones later.
"""

LOG_LIMIT = float(np.log(2 / ALPHA))
"""The logarithm of the e-value that decides, for one of two sides."""

_TINY = 1e-12
_STEPS = 40


def log_factors(excess: _Numbers, null: float) -> _Numbers:
    """Return the logarithms by which the wealth of each bet grows, for bets above and below.

    Args:
        excess: of each scenario, the sum of its differences minus `null` for each of its pairs,
            divided by the most pairs of a scenario.
        null: the difference that is tested, -1 to 1.

    Returns:
        An array of the shape (2, bets, *excess.shape).
    """
    bets = BETS.reshape(-1, *[1] * excess.ndim)
    above, below = max(1 + null, _TINY), max(1 - null, _TINY)
    return np.log1p(np.stack([bets * excess / above, -bets * excess / below]))


@dataclass(slots=True, kw_only=True)
class SequentialTest:
    """A test of whether a difference is above or below minus a margin.

    Attributes:
        margin: 0 to 1: a decrease of this size is tested.
        largest: the most pairs of a scenario, known before the first is looked at.
        limit: the logarithm of the e-value of one side that decides.
        direction: 1 (above), -1 (below), 0 while it is undecided. It never changes afterwards.
        looked: the scenarios looked at until the decision, else all.
    """

    margin: float
    largest: int
    limit: float = LOG_LIMIT
    direction: int = 0
    looked: int = 0
    _log_wealth: _Numbers = field(default_factory=lambda: np.zeros((2, len(BETS))))

    def add(self, gains: Sequence[int]) -> None:
        """Look at the next scenario.

        Args:
            gains: the differences of its pairs: 1 (improvement), -1 (regression) or 0.
        """
        if self.direction or not gains:
            return
        excess = np.array((sum(gains) + self.margin * len(gains)) / self.largest)
        self._log_wealth += log_factors(excess, -self.margin)
        self.looked += 1
        above, below = (_log_mean(self._log_wealth) >= self.limit).tolist()
        self.direction = int(above) - int(below)


@dataclass(frozen=True, slots=True, kw_only=True)
class SequentialResult:
    """What the test found in a sequence of scenarios.

    Attributes:
        direction: as in `SequentialTest`, for the margin.
        sign: as `direction`, without a margin.
        looked: as in `SequentialTest`, for the margin.
        interval: the 95 % interval of the difference, valid after any number of scenarios: the
            differences that no look rejected.
        p_value: of no difference, two-sided, valid after any number of scenarios.
    """

    direction: int
    sign: int
    looked: int
    interval: Interval
    p_value: float


def sequential_result(
    clusters: Iterable[Sequence[int]], margin: float, *, largest: int
) -> SequentialResult:
    """Return what the test found in scenarios.

    Args:
        clusters: the differences of each scenario, as for `SequentialTest.add`, in the order in
            which they were looked at.
        margin: as for `SequentialTest`.
        largest: as for `SequentialTest`.
    """
    filled = [each for each in clusters if each]
    tests = [SequentialTest(margin=each, largest=largest) for each in (margin, 0.0)]
    for test in tests:
        for gains in filled:
            test.add(gains)
    sums, sizes = _counts(filled, largest)
    most = float(_peaks(sums, sizes, 0.0).max())
    return SequentialResult(
        direction=tests[0].direction,
        sign=tests[1].direction,
        looked=tests[0].looked,
        interval=Interval(low=_limit(sums, sizes, side=0), high=_limit(sums, sizes, side=1)),
        p_value=float(min(1.0, 2 * np.exp(-most))),
    )


def one_sided_p_values(clusters: Iterable[Sequence[int]], *, largest: int) -> tuple[float, float]:
    """Return the p-values of "no increase" and of "no decrease", valid after any scenario.

    The inverse of an e-value is a p-value (Vovk and Wang 2021, E-values: calibration, combination
    and applications, Annals of Statistics 49(3)); that of the largest so far is always valid.

    Args:
        clusters: as for `sequential_result`.
        largest: as for `SequentialTest`.
    """
    peaks = _peaks(*_counts([each for each in clusters if each], largest), 0.0)
    above, below = np.exp(-np.maximum(peaks, 0.0)).tolist()
    return above, below


def in_random_order(samples: Iterable[SampleId], seed: int) -> Mapping[str, list[SampleId]]:
    """Return the samples of each scenario, in the random order of a seed."""
    scenarios: dict[str, list[SampleId]] = {}
    for sample in samples:
        scenarios.setdefault(sample.scenario, []).append(sample)
    order = sorted(scenarios, key=lambda scenario: random_key(seed, scenario))
    return {scenario: scenarios[scenario] for scenario in order}


def least_losses(margin: float) -> int | None:
    """Return the number of scenarios whose loss is found worse: all fail that passed before.

    None if no number would do.
    """
    if margin >= 1:
        return None
    test, growth = SequentialTest(margin=margin, largest=1), 0
    while not test.direction:
        growth += 1
        test.add([-1])
    return growth


def _counts(clusters: Sequence[Sequence[int]], largest: int) -> tuple[_Numbers, _Numbers]:
    """Return sums and sizes of clusters, divided by the size of the largest."""
    counts = [(sum(each), len(each)) for each in clusters or [()]]
    sums, sizes = np.array(counts, dtype=float).T / largest
    return sums, sizes


def _log_mean(log_wealth: _Numbers) -> _Numbers:
    """Return the logarithm of the mean over the bets (the second axis)."""
    most = log_wealth.max(axis=1, keepdims=True)  # faster than `logaddexp.reduce`
    return np.asarray(most[:, 0] + np.log(np.exp(log_wealth - most).mean(axis=1)))


def _peaks(sums: _Numbers, sizes: _Numbers, null: float) -> _Numbers:
    """Return the logarithm of the largest e-value of each side, over all looks."""
    wealth = np.cumsum(log_factors(sums - null * sizes, null), axis=2)
    return np.asarray(_log_mean(wealth).max(axis=1))


def _limit(sums: _Numbers, sizes: _Numbers, *, side: int) -> float:
    """Return the end of the differences that are rejected on one side: 0 below, 1 above.

    The e-value of a side falls as the difference that it is about moves towards that side.
    """
    rejected, kept = (-1.0, 1.0) if side == 0 else (1.0, -1.0)
    if _peaks(sums, sizes, rejected)[side] < LOG_LIMIT:
        return rejected
    for _ in range(_STEPS):
        middle = (rejected + kept) / 2
        if _peaks(sums, sizes, middle)[side] >= LOG_LIMIT:
            rejected = middle
        else:
            kept = middle
    return rejected
