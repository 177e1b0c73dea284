"""Simulate the coverage of intervals of clustered shares and of differences.

The pass probability of a scenario is drawn from a beta distribution: `alike` is the ICC, 0 for
independent trials, 1 for repeats that always agree.
"""

import numpy as np

from lhkit.harness.statistics import clustered_interval, difference_interval


def share_coverage(clusters: int, repeats: int, rate: float, alike: float, *, tries: int) -> float:
    """Return the share of intervals that contain `rate`."""
    rng = np.random.default_rng(clusters * 100 + repeats)
    chances = _chances(rng, (rate, 1 - rate), alike, (tries, clusters))[..., 0]
    sizes = [repeats] * clusters
    rows = rng.binomial(repeats, chances)
    return float(np.mean([rate in clustered_interval(row.tolist(), sizes) for row in rows]))


def difference_coverage(
    clusters: int, repeats: int, gain: float, loss: float, alike: float, *, tries: int
) -> float:
    """Return the share of intervals that contain `gain` - `loss`."""
    rng = np.random.default_rng(clusters * 100 + repeats)
    chances = _chances(rng, (gain, loss, 1 - gain - loss), alike, (tries, clusters))
    covered = 0
    for row in rng.multinomial(repeats, chances):
        gains = [[1] * up + [-1] * down + [0] * same for up, down, same in row.tolist()]
        interval = difference_interval(gains)
        covered += interval is not None and (
            interval.low - 1e-12 <= gain - loss <= interval.high + 1e-12
        )
    return covered / tries


def _chances(
    rng: np.random.Generator, rates: tuple[float, ...], alike: float, shape: tuple[int, int]
) -> np.ndarray:
    """Return the chances of each cluster: of mean `rates`, with `alike` as their ICC."""
    means = np.array(rates)
    if alike == 0:
        return np.broadcast_to(means, (*shape, len(rates)))
    if alike == 1:
        return np.eye(len(rates))[rng.choice(len(rates), size=shape, p=means)]
    size, weights = (*shape, len(rates)), np.maximum(means * (1 - alike) / alike, 1e-9)
    # in logarithms, since most of so small gamma variates are below the least float
    logs = np.log(rng.gamma(weights + 1, size=size)) + np.log(rng.random(size)) / weights
    logs = np.where(means > 0, logs, -np.inf)
    drawn = np.exp(logs - logs.max(-1, keepdims=True))
    return drawn / drawn.sum(-1, keepdims=True)
