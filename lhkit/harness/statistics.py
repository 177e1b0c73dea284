"""Statistics of clustered results and of paired differences: intervals, tests, power.

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
from scipy.special import bdtr, bdtrik, betaincinv, ndtr, stdtrit

from lhkit.harness.shares import Interval

_Numbers: TypeAlias = NDArray[np.float64]

_RESAMPLES = 2_000
_CELLS = 2_000_000
_STEPS = 40
_FAR = 8.0
_DOUBT = 5.0
_TINY = 1e-300  # a beta distribution has no parameter of 0


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
    `metrics.rate_interval` does better.

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

    Near 0 and 1 there is hardly an ICC to see: a single pass in 14 * 3 tries would make all tries
    independent. So it is drawn towards 1, where a cluster is worth one result, as strongly as
    `_DOUBT` clusters that saw both results or the rarer one would draw it. Neither end is ever
    nearer than where no result, or every one, is a success. The estimate is always in it, and
    another success lowers neither end (tried for all data of few clusters).

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
    worth = total / (1 + (size - 1) * _cautious_icc(hits, tries))
    alike = total / size  # what all are worth if each cluster is worth one result
    none_high = 1 - tail ** (1 / alike)
    ends = betaincinv(
        np.array([share * worth, share * worth + 1]) + _TINY,
        np.array([worth - share * worth + 1, worth - share * worth]) + _TINY,
        np.array([tail, 1 - tail]),
    )
    low = 0.0 if passed == 0 else min(float(ends[0]), 1 - none_high)
    high = 1.0 if passed == total else max(float(ends[1]), none_high)
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


def _cautious_icc(hits: _Numbers, tries: _Numbers) -> float:
    """Return how much results of a cluster resemble each other (0..1), drawn towards 1."""
    total, passed = float(tries.sum()), float(hits.sum())
    rare = float(min((hits > 0).sum(), (hits < tries).sum()))
    spread = (total - len(tries)) * (passed / total) * (1 - passed / total)
    if spread <= 0:
        return 1.0
    within = float((hits * (tries - hits) / tries).sum())
    seen = min(1.0, max(0.0, 1 - within / spread))
    return (rare * seen + _DOUBT) / (rare + _DOUBT)


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
