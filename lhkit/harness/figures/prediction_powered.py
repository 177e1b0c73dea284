"""Correct the rate of a judge with labels of a person: prediction-powered inference. Pure.

Angelopoulos, Bates, Fannjiang, Jordan and Zrnic (2023), Prediction-powered inference, Science 382,
with the power tuning of Angelopoulos, Duchi and Zrnic (2023), PPI++: the estimate is the rate of
the labels, plus a multiple of how much the judge's rate of all samples differs from that of the
labelled ones.

The papers' normal intervals are too narrow for few labels and for rates near 0 and 1. The interval
here spans two others, of which each is too narrow where a part of the counts is near 0:

- With answers yes and no the variance is that of a binomial share of an effective number of labels
  (Tenenbein 1970, A double sampling scheme for estimating from binomial data with
  misclassifications): the mid-P interval of such a share.
- The rate is the sum of the true shares among the judge's yes and among its no, weighted with their
  number: the interval of a sum from those of its parts (MOVER; Zou and Donner 2008, Construction of
  confidence limits about effect measures), which are Jeffreys and Wilson intervals.

`evals/benchmarks/judge.md` has its coverage.
"""

from collections.abc import Sequence
from statistics import NormalDist
from typing import TypeAlias

from lhkit.base.errors import importing
from lhkit.harness.figures.rates import Corrected, Interval

with importing("eval"):
    import numpy as np
    from numpy.typing import NDArray
    from scipy.special import betainc, betaincinv

_Numbers: TypeAlias = NDArray[np.float64]

_PRIOR = 0.25
"""Added to each of the four counts for the multiple and the correlation, which are often 1 by
chance for few labels. The estimate stays consistent: any multiple is valid."""
_LOST = 1.0
"""The labels that the estimated mean costs."""
_TAIL = (1 - 0.95) / 2
_Z = NormalDist().inv_cdf(1 - _TAIL)
_STEPS = 20
_TINY = 1e-12


def corrected_limits(
    counts: _Numbers, others: _Numbers, effect: float = 1.0
) -> tuple[_Numbers, _Numbers, _Numbers, _Numbers]:
    """Return corrected rates, both ends of their 95 % intervals, and the squared correlations.

    Args:
        counts: labelled samples, a row for each data set, with a column for label and judge: yes
            yes, yes no, no yes, no no.
        others: the judge's yes and no of the samples without a label, in two columns.
        effect: the design effect of repeats, at least 1.
    """
    n = counts.sum(axis=1)
    total = n + others.sum(axis=1)
    label = (counts[:, 0] + counts[:, 1]) / n
    said = (counts[:, 0] + counts[:, 2]) / n
    said_all = (counts[:, 0] + counts[:, 2] + others[:, 0]) / total
    a, b, c, d = (counts + _PRIOR).T
    slope = a / (a + c) - b / (b + d)
    rate = np.clip(label + slope * (said_all - said), 0.0, 1.0)
    correlation = (a * d - b * c) ** 2 / ((a + b) * (c + d) * (a + c) * (b + d))
    variance = (1 - correlation) / np.maximum(n - _LOST, 1) + correlation / total
    low, high = _mid_p(rate, 1 / (variance * effect))
    low_sum, high_sum = _mover(counts / effect, others / effect)
    return rate, np.minimum(low, low_sum), np.maximum(high, high_sum), correlation


def _mover(counts: _Numbers, others: _Numbers) -> tuple[_Numbers, _Numbers]:
    """Return the limits of the sum of the shares among the judge's yes and among its no."""
    said = counts[:, :2] + counts[:, 2:]
    total = said.sum(axis=1) + others.sum(axis=1)
    # without labels the share is anywhere
    shares = np.where(said > 0, counts[:, :2] / np.maximum(said, _TINY), 0.5)
    low, high = _jeffreys(counts[:, :2], said)
    yes = (said[:, 0] + others[:, 0]) / total
    weights = np.c_[yes, 1 - yes]
    slope = shares[:, 0] - shares[:, 1]
    ends = [slope * (end - yes) for end in _wilson(yes, total)]
    below = np.sum((weights * (shares - low)) ** 2, axis=1) + np.minimum(*ends) ** 2
    above = np.sum((weights * (high - shares)) ** 2, axis=1) + np.maximum(*ends) ** 2
    rate = np.sum(weights * shares, axis=1)
    return np.maximum(rate - below**0.5, 0.0), np.minimum(rate + above**0.5, 1.0)


def _jeffreys(hits: _Numbers, n: _Numbers) -> tuple[_Numbers, _Numbers]:
    """Return the limits of shares; Brown, Cai and DasGupta (2001)."""
    ends = [betaincinv(hits + 0.5, n - hits + 0.5, tail) for tail in (_TAIL, 1 - _TAIL)]
    return np.where(hits > 0, ends[0], 0.0), np.where(hits < n, ends[1], 1.0)


def _wilson(share: _Numbers, n: _Numbers) -> tuple[_Numbers, _Numbers]:
    z2 = _Z**2
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    reach = _Z / (1 + z2 / n) * np.sqrt(share * (1 - share) / n + z2 / (4 * n**2))
    return middle - reach, middle + reach


def _mid_p(rate: _Numbers, n: _Numbers) -> tuple[_Numbers, _Numbers]:
    """Return the mid-P limits of shares of n, which need not be whole; by bisection."""
    hits = rate * n

    def at_least(p: _Numbers) -> _Numbers:
        """Return the probability of as many hits, those themselves counted half."""
        with_them = np.where(hits > 0, betainc(np.maximum(hits, _TINY), n - hits + 1, p), 1.0)
        above = np.where(hits < n, betainc(hits + 1, np.maximum(n - hits, _TINY), p), 0.0)
        return (with_them + above) / 2

    ends = []
    for target in (_TAIL, 1 - _TAIL):
        low, high = np.zeros_like(rate), np.ones_like(rate)
        for _ in range(_STEPS):
            middle = (low + high) / 2
            is_below = at_least(middle) < target
            low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
        ends.append((low + high) / 2)
    return np.where(rate > _TINY, ends[0], 0.0), np.where(rate < 1 - _TINY, ends[1], 1.0)


def corrected_rate(clusters: Sequence[Sequence[tuple[bool, bool | None]]]) -> Corrected:
    """Return the corrected rate of a judge.

    Args:
        clusters: for each scenario its samples: the judge's answer, and the label or None. At least
            one has a label. The labelled samples are a random part.
    """
    samples = [each for cluster in clusters for each in cluster]
    labelled = [(label, said) for said, label in samples if label is not None]
    pairs = ((True, True), (True, False), (False, True), (False, False))
    counts = np.array([[labelled.count(pair) for pair in pairs]], dtype=float)
    unlabelled = [said for said, label in samples if label is None]
    others = np.array([[unlabelled.count(True), unlabelled.count(False)]], dtype=float)
    effect = _design_effect(clusters, counts[0])
    rate, low, high, correlation = (float(x[0]) for x in corrected_limits(counts, others, effect))
    return Corrected(
        rate=rate,
        interval=Interval(low=low, high=high),
        labels=len(labelled),
        to_halve=_labels_to_halve(len(labelled), len(samples), correlation),
    )


def _labels_to_halve(n: int, total: int, correlation: float) -> int | None:
    """Return the labels with a quarter of the variance; None if all samples do not suffice."""
    variance = (1 - correlation) / max(n - _LOST, 1) + correlation / total
    rest = variance / 4 - correlation / total
    needed = _LOST + (1 - correlation) / rest if rest > 0 else np.inf
    return int(np.ceil(needed)) if needed <= total else None


def _design_effect(
    clusters: Sequence[Sequence[tuple[bool, bool | None]]], counts: _Numbers
) -> float:
    """Return how much repeats of scenarios increase the variance: that of sums by scenario.

    Without any variation it is the mean size of a labelled cluster, as if repeats were equal.
    """
    if all(len(cluster) == 1 for cluster in clusters):
        return 1.0
    n, total = counts.sum(), sum(map(len, clusters))
    a, b, c, d = counts + _PRIOR
    slope = a / (a + c) - b / (b + d)
    label = (counts[0] + counts[1]) / n
    said = (counts[0] + counts[2]) / n
    said_all = sum(said for cluster in clusters for said, _ in cluster) / total

    def influence(judge: bool, person: bool | None) -> float:
        value = slope * (judge - said_all) / total
        corrected = (0.0 if person is None else person - label - slope * (judge - said)) / n
        return float(value + corrected)

    values = [[influence(*each) for each in cluster] for cluster in clusters]
    alone = sum(value**2 for cluster in values for value in cluster)
    together = sum(sum(cluster) ** 2 for cluster in values)
    sizes = [sum(label is not None for _, label in cluster) for cluster in clusters]
    if alone < _TINY:
        return float(sum(size**2 for size in sizes)) / float(n)
    number = sum(size > 0 for size in sizes)
    return max(1.0, float(together / alone * number / max(1, number - 1)))
