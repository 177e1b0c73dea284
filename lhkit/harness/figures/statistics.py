"""Statistics of shares and of paired differences: intervals, repeats, tests, power.

Pure: numbers in, numbers out, and a generator of random numbers where one is needed. Which pairs
and which groups there are is for `metrics` and `compare` to say.

A cluster holds the results of one scenario: its repeats resemble each other, so it is scenarios
that are drawn, not samples.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import comb
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, bdtrik, ndtr, ndtri, stdtrit

_Numbers: TypeAlias = NDArray[np.float64]

_RESAMPLES = 2_000
_CELLS = 2_000_000
_STEPS = 40
_FAR = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A confidence interval, both ends included."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


def wilson(successes: int, n: int, level: float = 0.95) -> Interval:
    """Return Wilson's score interval of a share; [0, 1] where nothing was counted.

    Wilson (1927), Probable inference, the law of succession, and statistical inference. Never
    leaves [0, 1] and stays honest at 0 and n successes.

    Raises:
        ValueError: `successes` is not within 0 and `n`.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n}")
    if n == 0:
        return Interval(low=0.0, high=1.0)
    z2 = float(ndtri((1 + level) / 2)) ** 2
    share = successes / n
    centre = share + z2 / (2 * n)
    reach = (z2 * (share * (1 - share) / n + z2 / (4 * n * n))) ** 0.5
    scale = 1 + z2 / n
    low = 0.0 if successes == 0 else (centre - reach) / scale
    high = 1.0 if successes == n else (centre + reach) / scale
    return Interval(low=low, high=high)


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
    or clusters that are all alike, give an interval without width; `rate_interval` does better.

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


def rate_interval(clusters: Iterable[Sequence[bool]], level: float = 0.95) -> Interval | None:
    """Return the interval of a share, by what the data are; None where nothing was counted.

    Wilson's where every cluster holds one result. With repeats the cluster bootstrap; but where
    all clusters are alike, there is nothing to draw, and Wilson's of one result a cluster stands.
    """
    kept = [each for each in clusters if each]
    if not kept:
        return None
    shares = [sum(each) / len(each) for each in kept]
    if all(len(each) == 1 for each in kept) or set(shares) in ({0.0}, {1.0}):
        return wilson(round(sum(shares)), len(kept), level)
    if len(set(shares)) == 1:
        return wilson(sum(map(sum, kept)), sum(map(len, kept)), level)
    return cluster_bootstrap(kept, level)


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


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return the chance that at least one of k tries passes, from c passes in n tries.

    Unbiased: Chen et al. (2021), Evaluating large language models trained on code, eq. 1.

    Raises:
        ValueError: not 0 <= c <= n and 1 <= k <= n.
    """
    _check_tries(n, c, k)
    return 1 - comb(n - c, k) / comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float:
    """Return the chance that all of k tries pass (pass^k), from c passes in n tries.

    Unbiased: Yao et al. (2024), tau-bench, section 3.

    Raises:
        ValueError: not 0 <= c <= n and 1 <= k <= n.
    """
    _check_tries(n, c, k)
    return comb(c, k) / comb(n, k)


def _check_tries(n: int, c: int, k: int) -> None:
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"{k} of {n} tries with {c} passes")


def mcnemar_exact(b: int, c: int, *, mid_p: bool = False) -> float:
    """Return the two-sided p-value that two kinds of discordant pairs are equally likely.

    The exact binomial test on b + c pairs: never more than alpha false alarms, usually fewer,
    because counts are discrete. The mid-p variant counts only half of what was seen itself and
    comes close to alpha, sometimes a little above (Fagerland, Lydersen, Laake 2013, The McNemar
    test for binary matched-pairs data). No discordant pair: 1.
    """
    return sign_flip([1] * b + [-1] * c, mid_p=mid_p)


def sign_flip(differences: Iterable[int], *, mid_p: bool = False) -> float:
    """Return the two-sided p-value that each cluster's difference could as well be the other way.

    Args:
        differences: for each cluster, how many samples passed in b less how many in a.
        mid_p: whether what was seen counts half, as in `mcnemar_exact`.

    The randomisation test (Fisher 1935) that swaps a and b in whole clusters, computed exactly.
    With one pair a cluster it is McNemar's exact test; with repeats McNemar's would take them for
    independent and raise too many alarms.
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


def smallest_detectable_difference(
    pairs: int, discordant_rate: float, *, power: float = 0.8, alpha: float = 0.05
) -> float | None:
    """Return the least true difference of two rates that McNemar's exact test would mostly notice.

    Args:
        pairs: the number of independent pairs.
        discordant_rate: the share of pairs whose two results differ.
        power: the chance of noticing it.
        alpha: the level of the test.

    Computed from the exact power: the number of discordant pairs is binomial, and so is their
    split (Duffy 1984, Asymptotic and exact power for the McNemar test). A difference above
    `discordant_rate` needs that many discordant pairs, all one way.

    Returns:
        The difference between 0 and 1; None where so few pairs can never show one.
    """
    if pairs <= 0 or _power(pairs, discordant_rate, 1.0, alpha) < power:
        return None
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if _power(pairs, discordant_rate, middle, alpha) < power:
            low = middle
        else:
            high = middle
    return high


def _power(pairs: int, discordant_rate: float, difference: float, alpha: float) -> float:
    """Return the chance of a p-value of at most alpha."""
    rate = max(discordant_rate, difference)
    centre, reach = pairs * rate, _FAR * (pairs * rate * (1 - rate)) ** 0.5 + 1
    counts = np.arange(max(0, int(centre - reach)), min(pairs, int(centre + reach)) + 1)
    chances = bdtr(counts, pairs, rate) - np.where(counts > 0, bdtr(counts - 1, pairs, rate), 0.0)
    critical = np.floor(np.nan_to_num(bdtrik(alpha / 2, np.maximum(counts, 1), 0.5), nan=-1.0))
    critical = np.where(2 * bdtr(critical, counts, 0.5) <= alpha, critical, critical - 1)
    share = (1 + difference / rate) / 2 if rate else 0.5
    noticed = _at_most(critical, counts, 1 - share) + _at_most(critical, counts, share)
    return float((chances * noticed).sum())


def _at_most(most: _Numbers, counts: NDArray[np.int64], share: float) -> _Numbers:
    """Return the chances of at most `most` of `counts`; 0 where `most` is negative."""
    return np.where(most < 0, 0.0, bdtr(np.maximum(most, 0), counts, share))
