"""Confidence intervals and tests for clustered results and paired differences. Pure.

A cluster is the results of one scenario. Its repeats are correlated, so scenarios are resampled,
not samples.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from lhkit.errors import importing
from lhkit.harness.rates import Interval

with importing("eval"):
    import numpy as np
    from numpy.typing import NDArray
    from scipy.special import bdtr, betaincinv, ndtr, stdtrit

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
    or equal clusters, give an interval without width; for shares use `metrics.rate_interval`.

    Args:
        clusters: the values of each cluster; empty clusters are ignored.
        level: the confidence level.
        resamples: the number of bootstrap resamples.
        rng: the random number generator; by default a new one with a fixed seed.

    Raises:
        ValueError: there are no values.
    """
    kinds = Counter((float(sum(values)), len(values)) for values in clusters if values)
    if not kinds:
        raise ValueError("no values to resample")
    n = kinds.total()
    sums, sizes = np.array(list(kinds), dtype=float).T
    odds = np.array(list(kinds.values())) / n
    means = np.concatenate(
        [
            counts @ sums / (counts @ sizes)
            for counts in _draws(n, odds, resamples, rng or np.random.default_rng(0))
        ]
    )
    return _percentiles(means, n, level)


def median_interval(clusters: Iterable[Sequence[float]], level: float = 0.95) -> Interval:
    """Return the interval of the (lower) median of all values, drawing whole clusters.

    Woodruff (1952), Confidence intervals for medians and other position measures: the bootstrap
    interval of the share of values up to the median, mapped back to values. It contains the median.

    Raises:
        ValueError: there are no values.
    """
    filled = [each for each in clusters if each]
    if not filled:
        raise ValueError("no values to resample")
    values = np.concatenate([np.asarray(each, dtype=float) for each in filled])
    half = (len(values) + 1) // 2
    is_lower = np.zeros(len(values))
    is_lower[np.argsort(values, kind="stable")[:half]] = 1.0  # by rank: there may be ties
    ends = np.cumsum([len(each) for each in filled])[:-1]
    shares = cluster_bootstrap([each.tolist() for each in np.split(is_lower, ends)], level)
    low, high = np.quantile(values, [shares.low, shares.high], method="inverted_cdf")
    return Interval(low=float(low), high=float(high))


def clustered_interval(
    successes: Sequence[int], sizes: Sequence[int], level: float = 0.95
) -> Interval:
    """Return the interval of a share of clustered results, such as repeats.

    Korn and Graubard (1998), Confidence intervals for proportions with small expected number of
    positive counts estimated from survey data: the exact interval of Clopper and Pearson (1934) for
    the effective sample size, which is the number of results divided by the design effect
    1 + (size - 1) * ICC (Kish 1965), with the ICC of Fleiss and Cuzick (1979), The reliability of
    dichotomous judgments.

    If all results are equal, the ICC cannot be estimated and is taken as 1. Near 0 and 1 its
    estimate is poor, so an end is never closer to 0 or 1 than in that case. The interval always
    contains the estimate. `evals/benchmarks/interval_coverage.md` has its coverage.

    Args:
        successes: the successes in each cluster.
        sizes: the results in each cluster, at least 1.
        level: the confidence level.

    Raises:
        ValueError: there is no cluster, an empty one, or successes not within 0 and the size.
    """
    hits, tries = np.asarray(successes, dtype=float), np.asarray(sizes, dtype=float)
    if not len(hits) or (tries < 1).any() or (hits < 0).any() or (hits > tries).any():
        raise ValueError(f"{list(successes)} successes of {list(sizes)}")
    total, passed = float(tries.sum()), float(hits.sum())
    share, tail = passed / total, (1 - level) / 2
    size = float((tries**2).sum()) / total
    effective = total / (1 + (size - 1) * _icc(hits, tries))
    least = total / size  # the effective sample size if the ICC is 1
    none_high = 1 - tail ** (1 / least)
    up, down = share * effective, effective - share * effective
    low, high = 0.0, 1.0
    if passed > 0:
        low = min(float(betaincinv(up, down + 1, tail)), 1 - none_high)
    if passed < total:
        high = max(float(betaincinv(up + 1, down, 1 - tail)), none_high)
    return Interval(low=low, high=high)


def difference_interval(clusters: Iterable[Sequence[int]], level: float = 0.95) -> Interval | None:
    """Return the interval of the mean of paired differences; None without pairs.

    The mean is the share of improvements minus the share of regressions. Their intervals
    (`clustered_interval`) are combined as in Newcombe (1998), Improved confidence intervals for
    the difference between binomial proportions based on paired data, method 10; Zou and Donner
    (2008) call it MOVER. The correlation of the two shares is that of one multinomial.

    Args:
        clusters: the differences of each cluster: 1 (improvement), -1 (regression) or 0.
        level: the confidence level.
    """
    filled = [each for each in clusters if each]
    if not filled:
        return None
    sizes = [len(each) for each in filled]
    improved, regressed = ([each.count(sign) for each in filled] for sign in (1, -1))
    up, down = sum(improved) / sum(sizes), sum(regressed) / sum(sizes)
    of_up, of_down = (clustered_interval(each, sizes, level) for each in (improved, regressed))
    others = (1 - up) * (1 - down)
    correlation = min(1.0, (up * down / others) ** 0.5) if others else 0.0

    def reach(above: float, below: float) -> float:
        return float((above**2 + below**2 + 2 * correlation * above * below) ** 0.5)

    low = up - down - reach(up - of_up.low, of_down.high - down)
    high = up - down + reach(of_up.high - up, down - of_down.low)
    return Interval(low=max(-1.0, low), high=min(1.0, high))


def _icc(hits: _Numbers, tries: _Numbers) -> float:
    """Return the intraclass correlation (0 to 1); 1 if it cannot be estimated."""
    total, passed = float(tries.sum()), float(hits.sum())
    spread = (total - len(tries)) * (passed / total) * (1 - passed / total)
    if spread <= 0:
        return 1.0
    within = float((hits * (tries - hits) / tries).sum())
    return min(1.0, max(0.0, 1 - within / spread))


def _draws(
    n: int, odds: _Numbers, resamples: int, rng: np.random.Generator
) -> Iterable[NDArray[np.int64]]:
    """Yield the counts of each kind of cluster in resamples of n clusters, in batches."""
    rows = max(1, _CELLS // len(odds))
    for start in range(0, resamples, rows):
        yield rng.multinomial(n, odds, size=min(rows, resamples - start))


def _percentiles(estimates: _Numbers, n: int, level: float) -> Interval:
    """Return the interval between two percentiles, widened as Student's t for n clusters."""
    if n == 1:
        return Interval(low=float(estimates.min()), high=float(estimates.max()))
    t = float(stdtrit(n - 1, (1 - level) / 2))
    tail = float(ndtr(t * (n / (n - 1)) ** 0.5))
    low, high = np.quantile(estimates, [tail, 1 - tail])
    return Interval(low=float(low), high=float(high))


def sign_flip(differences: Iterable[int], *, mid_p: bool = False) -> float:
    """Return the two-sided p-value of the exact sign-flip (randomisation) test.

    The test (Fisher 1935) swaps a and b in whole clusters and is computed exactly, where
    `scipy.stats.permutation_test` samples. With one pair a cluster it is McNemar's exact test;
    with repeats McNemar's would take them for independent and raise too many false alarms.

    Args:
        differences: for each cluster, the samples passed in b minus those passed in a.
        mid_p: count the probability of the observed value half: the rate of false alarms is close
            to alpha, sometimes slightly above, where that of the exact test is usually below
            (Fagerland, Lydersen, Laake 2013, The McNemar test for binary matched-pairs data).
    """
    nonzero = [difference for difference in differences if difference]
    if not nonzero:
        return 1.0
    probabilities = np.ones(1)
    for step, times in Counter(map(abs, nonzero)).items():
        probabilities = np.convolve(probabilities, _flip_sums(step, times))
    centre = len(probabilities) // 2
    observed = abs(sum(nonzero))
    beyond = float(
        probabilities[centre + observed + 1 :].sum() + probabilities[: centre - observed].sum()
    )
    same = float(
        probabilities[centre + observed] + (probabilities[centre - observed] if observed else 0.0)
    )
    return min(1.0, beyond + (same / 2 if mid_p else same))


def _flip_sums(step: int, times: int) -> _Numbers:
    """Return the probabilities of the sums -step*times … step*times of random signs of a step."""
    probabilities = np.zeros(2 * step * times + 1)
    cumulated = bdtr(np.arange(times + 1), times, 0.5)
    probabilities[:: 2 * step] = np.diff(cumulated, prepend=0.0)
    return probabilities
