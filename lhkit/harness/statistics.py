"""Statistics of clustered results and of paired differences: intervals and tests.

Pure: numbers in, numbers out, and a generator of random numbers where one is needed. Which pairs
and which groups there are is for `metrics` and `compare` to say.

A cluster holds the results of one scenario: its repeats resemble each other, so it is scenarios
that are drawn, not samples.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, betaincinv, ndtr, stdtrit

from lhkit.harness.shares import Interval

_Numbers: TypeAlias = NDArray[np.float64]

_RESAMPLES = 2_000
_CELLS = 2_000_000


def cluster_bootstrap(
    clusters: Iterable[Sequence[float]],
    level: float = 0.95,
    *,
    resamples: int = _RESAMPLES,
    rng: np.random.Generator | None = None,
) -> Interval:
    """Return the bootstrap interval of the mean of all values, drawing whole clusters.

    The percentile interval with the tails of Hesterberg (2015), What teachers should know about
    the bootstrap (expanded percentiles): the plain one is too narrow for few clusters. One cluster,
    or clusters that are all alike, give an interval without width; of shares
    `rates.rate_interval` does better.

    Args:
        clusters: the values of each cluster, at least one value in all; empty ones do not count.
        level: the confidence level.
        resamples: how often the clusters are drawn.
        rng: where randomness comes from; by default the same numbers every time.

    Raises:
        ValueError: there is no value at all.
    """
    kinds = Counter((float(sum(each)), len(each)) for each in clusters if each)
    if not kinds:
        raise ValueError("no values to draw from")
    n = kinds.total()
    sums, sizes = np.array(list(kinds), dtype=float).T
    odds = np.array(list(kinds.values())) / n
    means = np.concatenate(
        [
            drawn @ sums / (drawn @ sizes)
            for drawn in _draws(n, odds, resamples, rng or np.random.default_rng(0))
        ]
    )
    return _percentiles(means, n, level)


def median_interval(clusters: Iterable[Sequence[float]], level: float = 0.95) -> Interval:
    """Return the interval of the (lower) median of all values, drawing whole clusters.

    Woodruff (1952), Confidence intervals for medians and other position measures: the bootstrap
    interval of the share of values up to the median, turned back into values. The median is in it.

    Raises:
        ValueError: there is no value at all.
    """
    kept = [each for each in clusters if each]
    if not kept:
        raise ValueError("no values to draw from")
    values = np.concatenate([np.asarray(each, dtype=float) for each in kept])
    half = (len(values) + 1) // 2
    is_lower = np.zeros(len(values))
    is_lower[np.argsort(values, kind="stable")[:half]] = 1.0  # by rank: there may be ties
    ends = np.cumsum([len(each) for each in kept])[:-1]
    shares = cluster_bootstrap([each.tolist() for each in np.split(is_lower, ends)], level)
    low, high = np.quantile(values, [shares.low, shares.high], method="inverted_cdf")
    return Interval(low=float(low), high=float(high))


def clustered_interval(
    successes: Sequence[int], sizes: Sequence[int], level: float = 0.95
) -> Interval:
    """Return the interval of a share whose results come in clusters, such as repeats.

    Korn and Graubard (1998), Confidence intervals for proportions with small expected number of
    positive counts estimated from survey data: the exact interval of Clopper and Pearson (1934),
    of as many independent results as the clustered ones are worth. That is their number by the
    design effect 1 + (size - 1) * ICC (Kish 1965), with the ICC of Fleiss and Cuzick (1979), The
    reliability of dichotomous judgments.

    Where all results are equal nothing tells the ICC: it is 1, a cluster is worth one result.
    Near 0 and 1 there is hardly an ICC to see, so neither end is ever nearer than there.
    The estimate is always in it. `evals/benchmarks/interval_coverage.md` has its coverage.

    Args:
        successes: in each cluster.
        sizes: results in each cluster, at least 1.
        level: the confidence level.

    Raises:
        ValueError: no cluster, an empty one, or successes not within 0 and the size.
    """
    hits, tries = np.asarray(successes, dtype=float), np.asarray(sizes, dtype=float)
    if not len(hits) or (tries < 1).any() or (hits < 0).any() or (hits > tries).any():
        raise ValueError(f"{list(successes)} successes of {list(sizes)}")
    total, passed = float(tries.sum()), float(hits.sum())
    share, tail = passed / total, (1 - level) / 2
    size = float((tries**2).sum()) / total
    worth = total / (1 + (size - 1) * _icc(hits, tries))
    alike = total / size  # what all are worth if each cluster is worth one result
    none_high = 1 - tail ** (1 / alike)
    up, down = share * worth, worth - share * worth
    low, high = 0.0, 1.0
    if passed > 0:
        low = min(float(betaincinv(up, down + 1, tail)), 1 - none_high)
    if passed < total:
        high = max(float(betaincinv(up + 1, down, 1 - tail)), none_high)
    return Interval(low=low, high=high)


def difference_interval(clusters: Iterable[Sequence[int]], level: float = 0.95) -> Interval | None:
    """Return the interval of the mean of paired differences; None where there is no pair.

    The mean is the share of pairs gained less that of pairs lost. Their intervals
    (`clustered_interval`) are put together as in Newcombe (1998), Improved confidence intervals for
    the difference between binomial proportions based on paired data, method 10; Zou and Donner
    (2008) call it MOVER. The two shares are as correlated as those of one multinomial.

    Args:
        clusters: the differences of each cluster: 1 (gained), -1 (lost) or 0.
        level: the confidence level.
    """
    kept = [each for each in clusters if each]
    if not kept:
        return None
    sizes = [len(each) for each in kept]
    gained, lost = ([each.count(sign) for each in kept] for sign in (1, -1))
    up, down = sum(gained) / sum(sizes), sum(lost) / sum(sizes)
    of_up, of_down = (clustered_interval(each, sizes, level) for each in (gained, lost))
    others = (1 - up) * (1 - down)
    together = min(1.0, (up * down / others) ** 0.5) if others else 0.0

    def reach(above: float, below: float) -> float:
        return float((above**2 + below**2 + 2 * together * above * below) ** 0.5)

    low = up - down - reach(up - of_up.low, of_down.high - down)
    high = up - down + reach(of_up.high - up, down - of_down.low)
    return Interval(low=max(-1.0, low), high=min(1.0, high))


def _icc(hits: _Numbers, tries: _Numbers) -> float:
    """Return how much results of a cluster resemble each other (0..1); 1 where nothing tells."""
    total, passed = float(tries.sum()), float(hits.sum())
    spread = (total - len(tries)) * (passed / total) * (1 - passed / total)
    if spread <= 0:
        return 1.0
    within = float((hits * (tries - hits) / tries).sum())
    return min(1.0, max(0.0, 1 - within / spread))


def _draws(
    n: int, odds: _Numbers, resamples: int, rng: np.random.Generator
) -> Iterable[NDArray[np.int64]]:
    """Yield how often each kind of cluster comes in resamples of n clusters, some rows at once."""
    rows = max(1, _CELLS // len(odds))
    for start in range(0, resamples, rows):
        yield rng.multinomial(n, odds, size=min(rows, resamples - start))


def _percentiles(estimates: _Numbers, n: int, level: float) -> Interval:
    """Return the interval between two percentiles, widened as Student's t is for n clusters."""
    if n == 1:
        return Interval(low=float(estimates.min()), high=float(estimates.max()))
    t = float(stdtrit(n - 1, (1 - level) / 2))
    tail = float(ndtr(t * (n / (n - 1)) ** 0.5))
    low, high = np.quantile(estimates, [tail, 1 - tail])
    return Interval(low=float(low), high=float(high))


def sign_flip(differences: Iterable[int], *, mid_p: bool = False) -> float:
    """Return the two-sided p-value that each cluster's difference could as well be the other way.

    Args:
        differences: for each cluster, how many samples passed in b less how many in a.
        mid_p: whether what was seen counts half: close to alpha false alarms, sometimes a little
            more, where the exact test has usually fewer (Fagerland, Lydersen, Laake 2013, The
            McNemar test for binary matched-pairs data).

    The randomisation test (Fisher 1935) that swaps a and b in whole clusters, computed exactly;
    `scipy.stats.permutation_test` would draw them. With one pair a cluster it is McNemar's exact
    test; with repeats McNemar's would take them for independent and raise too many alarms.
    """
    moved = [each for each in differences if each]
    if not moved:
        return 1.0
    chances = np.ones(1)
    for step, times in Counter(map(abs, moved)).items():
        chances = np.convolve(chances, _flips(step, times))
    reach = len(chances) // 2
    seen = abs(sum(moved))
    far = float(chances[reach + seen + 1 :].sum() + chances[: reach - seen].sum())
    same = float(chances[reach + seen] + (chances[reach - seen] if seen else 0.0))
    return min(1.0, far + (same / 2 if mid_p else same))


def _flips(step: int, times: int) -> _Numbers:
    """Return the chances of -step*times … step*times as the sum of so many flips of one step."""
    chances = np.zeros(2 * step * times + 1)
    cumulated = bdtr(np.arange(times + 1), times, 0.5)
    chances[:: 2 * step] = np.diff(cumulated, prepend=0.0)
    return chances
