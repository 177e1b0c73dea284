"""Confidence intervals and tests for clustered results and paired differences. Pure.

A cluster is the results of one scenario. Its repeats are correlated, so scenarios are resampled,
not samples.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import TypeAlias

from lhkit.base.errors import importing
from lhkit.harness.figures.rates import ALPHA, Interval

with importing("eval"):
    import numpy as np
    from numpy.typing import NDArray
    from scipy.special import bdtr, betaincinv, ndtr, stdtrit

_Numbers: TypeAlias = NDArray[np.float64]

MAX_SCENARIOS = 100_000
"""The most scenarios that `needed_scenarios` proposes."""

_POWER = 0.8
_RESAMPLES = 2_000
_CELLS = 2_000_000
"""The most counts that are drawn at once."""

_TAIL = (1 - 0.95) / 2
"""The probability beyond each end of a 95 % interval."""

_MOST_EXACT = 12
_SIGNS = 20_000
_TINY = 1e-300
_CLOSEST = 1e-9


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
    generator, means = rng or np.random.default_rng(0), []
    rows = max(1, _CELLS // len(odds))
    for start in range(0, resamples, rows):
        counts = generator.multinomial(n, odds, size=min(rows, resamples - start))
        means.append(counts @ sums / (counts @ sizes))
    return _percentiles(np.concatenate(means), n, level)


def median_interval(clusters: Iterable[Sequence[float]]) -> Interval:
    """Return the 95 % interval of the (lower) median of all values, drawing whole clusters.

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
    shares = cluster_bootstrap([each.tolist() for each in np.split(is_lower, ends)])
    low, high = np.quantile(values, [shares.low, shares.high], method="inverted_cdf")
    return Interval(low=float(low), high=float(high))


def clustered_interval(successes: Sequence[int], sizes: Sequence[int]) -> Interval:
    """Return the 95 % interval of a share of clustered results, such as repeats.

    Korn and Graubard (1998), Confidence intervals for proportions with small expected number of
    positive counts estimated from survey data: the exact interval of Clopper and Pearson (1934) for
    the effective sample size, which is the number of results divided by the design effect
    1 + (size - 1) * ICC (Kish 1965), with the ICC of Fleiss and Cuzick (1979), The reliability of
    dichotomous judgments.

    If all results are equal, the ICC is taken as 1. Near 0 and 1 its estimate is poor, so it is
    shrunk towards 1 (`_icc`), and an end is never closer to 0 or 1 than in that case. The interval
    always contains the estimate.

    Args:
        successes: the successes in each cluster.
        sizes: the results in each cluster, at least 1.

    Raises:
        ValueError: there is no cluster, an empty one, or successes not within 0 and the size.
    """
    hits, tries = np.asarray(successes, dtype=float), np.asarray(sizes, dtype=float)
    if not len(hits) or (tries < 1).any() or (hits < 0).any() or (hits > tries).any():
        raise ValueError(f"{list(successes)} successes of {list(sizes)}")
    _, low, high = _share_limits(np.ones((1, len(hits))), hits, tries)
    return Interval(low=float(low[0]), high=float(high[0]))


def difference_interval(clusters: Iterable[Sequence[int]]) -> Interval | None:
    """Return the 95 % interval of the mean of paired differences; None without pairs.

    The mean is the share of improvements minus the share of regressions. Their intervals
    (`clustered_interval`) are combined as in Newcombe (1998), Improved confidence intervals for
    the difference between binomial proportions based on paired data, method 10; Zou and Donner
    (2008) call it MOVER. The correlation of the two shares is that of one multinomial.

    Args:
        clusters: the differences of each cluster: 1 (improvement), -1 (regression) or 0.
    """
    filled = [each for each in clusters if each]
    if not filled:
        return None
    low, high = difference_limits(np.ones((1, len(filled))), *_flip_counts(filled))
    return Interval(low=float(low[0]), high=float(high[0]))


def difference_limits(
    counts: _Numbers, improved: _Numbers, regressed: _Numbers, sizes: _Numbers
) -> tuple[_Numbers, _Numbers]:
    """Return the limits of `difference_interval` for many sets of clusters at once.

    Args:
        counts: for each set (row), the number of clusters of each kind (column).
        improved: the improvements in a cluster of each kind.
        regressed: the regressions in a cluster of each kind.
        sizes: the pairs in a cluster of each kind.
    """
    up, up_low, up_high = _share_limits(counts, improved, sizes)
    down, down_low, down_high = _share_limits(counts, regressed, sizes)
    others = (1 - up) * (1 - down)
    correlation = np.sqrt(np.minimum(1.0, up * down / np.where(others > 0, others, np.inf)))

    def reach(above: _Numbers, below: _Numbers) -> _Numbers:
        return np.sqrt(above**2 + below**2 + 2 * correlation * above * below)

    low = up - down - reach(up - up_low, down_high - down)
    high = up - down + reach(up_high - up, down - down_low)
    return np.maximum(-1.0, low), np.minimum(1.0, high)


def needed_scenarios(clusters: Iterable[Sequence[int]], margin: float) -> int | None:
    """Return the number of scenarios that tell on which side of a margin a difference lies.

    The observed clusters are drawn with replacement, so the difference, its spread and the repeats
    are taken as observed. Deterministic; rounded up to two digits.

    Args:
        clusters: as for `difference_interval`; at least one with a pair.
        margin: the margin, 0 to 1: a decrease of this size.

    Returns:
        The number with which `difference_interval` does not contain `-margin` with a probability of
        80 %; None if `MAX_SCENARIOS` do not suffice: the difference is too close to the margin.
    """
    filled = [each for each in clusters if each]
    improved, regressed, sizes = _flip_counts(filled)
    excess = float((improved - regressed).sum() / sizes.sum()) + margin
    if abs(excess) < _CLOSEST:
        return None
    kinds = Counter(zip(improved, regressed, sizes, strict=True))
    kind_counts = np.array(list(kinds), dtype=float).T
    odds = np.array(list(kinds.values())) / len(filled)
    error = (_POWER * (1 - _POWER) / _RESAMPLES) ** 0.5  # of the simulation
    least = _POWER + 2 * error

    def is_enough(n: int) -> bool:
        counts = np.random.default_rng(0).multinomial(n, odds, size=_RESAMPLES).astype(float)
        low, high = difference_limits(counts, *kind_counts)
        return bool(np.mean(low > -margin if excess > 0 else high < -margin) >= least)

    below, enough = 0, len(filled)
    while not is_enough(enough):
        below, enough = enough, 2 * enough
        if below >= MAX_SCENARIOS:
            return None
    while enough - below > enough // 50 + 1:
        middle = (below + enough) // 2
        below, enough = (below, middle) if is_enough(middle) else (middle, enough)
    step = int(10 ** max(0, len(str(enough)) - 2))
    return -(-enough // step) * step


def least_scenarios(clusters: Iterable[Sequence[int]], margin: float) -> int | None:
    """Return the number of scenarios at which a margin could be found exceeded at all.

    Args:
        clusters: the worst differences that could be observed, as for `difference_interval`.
        margin: the margin, 0 to 1: a decrease of this size.

    Returns:
        The smallest number of such clusters with which `difference_interval` is below `-margin`;
        None if `MAX_SCENARIOS` do not suffice.
    """
    filled = [each for each in clusters if each]
    improved, regressed, sizes = _flip_counts(filled)
    if float((improved - regressed).sum() / sizes.sum()) + margin > -_CLOSEST:
        return None
    odds = np.full(len(filled), 1 / len(filled))

    def is_enough(n: int) -> bool:
        _, high = difference_limits(n * odds[np.newaxis], improved, regressed, sizes)
        return bool(high[0] < -margin)

    return smallest(is_enough, most=MAX_SCENARIOS)


def smallest(is_enough: Callable[[int], bool], *, most: int) -> int | None:
    """Return the smallest number from 1 that is enough; None if it is well above `most`.

    Args:
        is_enough: true for a number and all above it.
        most: the search ends at the first power of two from here on that is not enough.
    """
    below, enough = 0, 1
    while not is_enough(enough):
        below, enough = enough, 2 * enough
        if below >= most:
            return None
    while enough - below > 1:
        middle = (below + enough) // 2
        below, enough = (below, middle) if is_enough(middle) else (middle, enough)
    return enough


def _flip_counts(clusters: Sequence[Sequence[int]]) -> tuple[_Numbers, _Numbers, _Numbers]:
    """Return the improvements, regressions and pairs of each cluster."""
    rows = [(each.count(1), each.count(-1), len(each)) for each in clusters]
    improved, regressed, sizes = np.array(rows, dtype=float).T
    return improved, regressed, sizes


def _share_limits(
    counts: _Numbers, hits: _Numbers, tries: _Numbers
) -> tuple[_Numbers, _Numbers, _Numbers]:
    """Return share and limits (`clustered_interval`) of each row of counts of kinds of clusters."""
    total, passed = counts @ tries, counts @ hits
    share, tail = passed / total, _TAIL
    size = counts @ tries**2 / total
    effective = total / (1 + (size - 1) * _icc(counts, hits, tries))
    least = total / size  # the effective sample size if the ICC is 1
    none_high = 1 - tail ** (1 / least)
    up, down = share * effective, effective - share * effective
    low = np.minimum(betaincinv(np.maximum(up, _TINY), down + 1, tail), 1 - none_high)
    high = np.maximum(betaincinv(up + 1, np.maximum(down, _TINY), 1 - tail), none_high)
    return share, np.where(passed > 0, low, 0.0), np.where(passed < total, high, 1.0)


def _icc(counts: _Numbers, hits: _Numbers, tries: _Numbers) -> _Numbers:
    """Return the intraclass correlations, 0 to 1.

    Half a cluster of hits and half a cluster of misses are added: of a few hits in large samples
    the estimate is often 0 by chance, which makes intervals too narrow.
    """
    total = counts @ tries
    size = counts @ tries**2 / total
    passed, clusters = counts @ hits + size / 2, counts.sum(axis=1) + 1
    total += size
    spread = (total - clusters) * (passed / total) * (1 - passed / total)
    within = counts @ (hits * (tries - hits) / tries)
    correlation = 1 - within / np.where(spread > 0, spread, 1.0)  # without repeats it is not used
    return np.clip(correlation, 0.0, 1.0)


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


def sign_flip_numbers(differences: Sequence[float]) -> float:
    """Return the two-sided p-value of the sign-flip test for numbers, as `sign_flip` for counts.

    Up to 12 clusters all signs are tried, for more 20,000 random ones with a fixed seed, of which
    the observed one counts as one more (Phipson and Smyth 2010, Permutation p-values should never
    be zero). A sum that differs from the observed one by rounding only counts as equal.

    Args:
        differences: for each cluster, the sum of b's values minus that of a's.
    """
    values = np.asarray([difference for difference in differences if difference], dtype=float)
    if not len(values):
        return 1.0
    is_exact = len(values) <= _MOST_EXACT
    if is_exact:
        signs = 1.0 - 2.0 * (np.arange(2 ** len(values))[:, None] >> np.arange(len(values)) & 1)
    else:
        generator = np.random.default_rng(0)
        signs = generator.choice((-1.0, 1.0), size=(_SIGNS, len(values)))
    observed = abs(values.sum())
    hits = int((np.abs(signs @ values) >= observed - 1e-9 * np.abs(values).sum()).sum())
    return min(1.0, hits / len(signs) if is_exact else (hits + 1) / (len(signs) + 1))


def least_passing() -> int:
    """Return the fewest scenarios whose loss is significant: all fail that passed before."""
    return next(n for n in count(1) if sign_flip([-1] * n) < ALPHA)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number (Holm 1979, a step-down Bonferroni)."""
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p)
    corrected = np.empty_like(p)
    corrected[order] = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    return [min(1.0, value) for value in corrected.tolist()]


def _flip_sums(step: int, times: int) -> _Numbers:
    """Return the probabilities of the sums -step*times … step*times of random signs of a step."""
    probabilities = np.zeros(2 * step * times + 1)
    cumulated = bdtr(np.arange(times + 1), times, 0.5)
    probabilities[:: 2 * step] = np.diff(cumulated, prepend=0.0)
    return probabilities
