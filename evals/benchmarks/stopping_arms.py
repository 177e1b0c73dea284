"""Simulate `lhkit matrix --stop-when-decided`: best arms dropped, and scenarios saved.

`stopping` runs it, and `stopping.md` has the tables.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product

import numpy as np
from figures import Figure
from margins import RUNS
from numpy.typing import NDArray

from lhkit.harness.figures.rates import ALPHA
from lhkit.harness.figures.sequential import log_factors

Numbers = NDArray[np.float64]
Results = NDArray[np.bool_]

SUITE = 168
ARMS = (2, 3, 4, 5, 6)
RATES = (0.2, 0.5, 0.8)
ALIKE = (0.0, 0.5, 0.9)
"""Shares of the scenarios that pass in two arms for the same reason."""
WORSE = (10, 20, 40, 60)  # points
MOST_WRONG = 5.0  # percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """The true pass rates of arms, in their order, and how alike their results are."""

    rates: Sequence[float]
    alike: float

    def draw(self, rng: np.random.Generator, runs: int = RUNS) -> Results:
        """Return which scenarios pass in each arm of each run, in random order."""
        shape = runs, len(self.rates), SUITE
        shared = rng.random(shape) < np.sqrt(self.alike)  # so for both arms of a pair
        difficulty = np.where(shared, rng.random((runs, 1, SUITE)), rng.random(shape))
        return np.asarray(difficulty < np.array(self.rates)[:, None])


def fixed_suite(rng: np.random.Generator, arms: int, rate: float) -> Results:
    """Return one suite, of which all arms pass equal shares, in another order in each run."""
    passed = np.arange(SUITE) < round(rate * SUITE)
    suite = np.array([rng.permutation(passed) for _ in range(arms)])
    return np.array([suite[:, rng.permutation(SUITE)] for _ in range(RUNS)])


def log_e_values(most: int) -> Numbers:
    """Return the logarithm of the e-value of "worse" after (losses, gains)."""
    loss, gain = (log_factors(np.array(float(sign)), 0.0)[1] for sign in (-1, 1))
    counts = np.arange(most + 1.0)
    wealth = counts[:, None, None] * loss + counts[None, :, None] * gain
    peak = wealth.max(axis=2)
    return np.asarray(peak + np.log(np.exp(wealth - peak[:, :, None]).mean(axis=2)))


LOG_E = log_e_values(SUITE)


def scenarios_run(results: Results) -> NDArray[np.int64]:
    """Return how many scenarios each arm of each run is run on, if worse arms are dropped.

    Args:
        results: which scenarios pass, of the shape (runs, arms, scenarios).
    """
    runs, arms, scenarios = results.shape
    pairs = list(permutations(range(arms), 2))
    peaks: dict[tuple[int, int], Numbers] = {}
    for worse, better in pairs:
        losses = np.cumsum(results[:, better] & ~results[:, worse], axis=1)
        gains = np.cumsum(results[:, worse] & ~results[:, better], axis=1)
        peaks[worse, better] = np.maximum.accumulate(LOG_E[losses, gains], axis=1)
    run = np.full((runs, arms), scenarios)
    for arm in range(1, arms):
        p_values = np.ones((runs, len(pairs)))
        for number, (worse, better) in enumerate(pairs):
            if max(worse, better) < arm:
                last = np.minimum(run[:, worse], run[:, better]) - 1
                p_values[:, number] = np.exp(-peaks[worse, better][np.arange(runs), last])
        limit = np.log((len(pairs) - rejected(p_values)) / ALPHA)
        rivals = [
            np.where(run[:, [rival]] == scenarios, peaks[arm, rival], -np.inf)
            for rival in range(arm)
        ]
        is_worse = np.max(rivals, axis=0) >= limit[:, None]
        run[:, arm] = np.where(is_worse.any(axis=1), is_worse.argmax(axis=1) + 1, scenarios)
    return run


def rejected(p_values: Numbers) -> NDArray[np.int64]:
    """Return how many of the hypotheses of each run are rejected after the correction (Holm)."""
    steps = np.sort(p_values, axis=1) * np.arange(p_values.shape[1], 0, -1)
    return np.asarray(np.logical_and.accumulate(steps < ALPHA, axis=1).sum(axis=1))


def best_arms_dropped() -> Iterator[tuple[str, float]]:
    """Yield the percentages of matrices that drop an arm which is truly the best, or as good."""
    for arms in ARMS:
        for number, (rate, alike) in enumerate(product(RATES, ALIKE)):
            rng = np.random.default_rng([500, arms, number])
            run = scenarios_run(Matrix(rates=(rate,) * arms, alike=alike).draw(rng))
            yield f"{arms} equal arms", 100 * float(np.mean((run < SUITE).any(axis=1)))
        for number, rate in enumerate(RATES):
            rng = np.random.default_rng([600, arms, number])
            run = scenarios_run(fixed_suite(rng, arms, rate))
            name = f"{arms} equal arms, one fixed suite"
            yield name, 100 * float(np.mean((run < SUITE).any(axis=1)))
    for number, (points, alike) in enumerate(product(WORSE, ALIKE)):
        is_best = np.array([False, True, False, True, True, False])
        rates = np.where(is_best, 0.8, 0.8 - points / 100).tolist()
        rng = np.random.default_rng([700, number])
        run = scenarios_run(Matrix(rates=rates, alike=alike).draw(rng))
        dropped = (run < SUITE)[:, is_best].any(axis=1)
        yield "3 equal best arms of 6", 100 * float(np.mean(dropped))


def scenarios_saved() -> Iterator[tuple[str, ...]]:
    """Yield a row for each number of arms, of worse ones, and of points."""
    for arms, points in product((2, 3, 6), WORSE):
        for worse in dict.fromkeys((1, arms - 1)):
            rates = [0.8] * (arms - worse) + [0.8 - points / 100] * worse
            rng = np.random.default_rng([800, arms, points, worse])
            results = Matrix(rates=rates, alike=0.5).draw(rng)
            run = scenarios_run(results)
            last = run[:, arms - worse :]
            order = np.argsort(rng.random((RUNS, arms)), axis=1)
            by_chance = scenarios_run(np.take_along_axis(results, order[:, :, None], axis=1))
            yield (
                f"{arms}",
                f"{worse}",
                f"{points}",
                f"{100 * float(np.mean(last < SUITE)):.0f} %",
                f"{float(np.mean(last)):.0f}",
                f"{float(np.median(last)):.0f}",
                *(f"{100 * (1 - float(np.mean(each)) / SUITE):.0f} %" for each in (run, by_chance)),
            )


HEAD = (
    "arms",
    "worse ones",
    "by points",
    "of them dropped",
    f"scenarios of {SUITE}, mean",
    "median",
    "saved of the matrix, best first",
    "saved, any order",
)


def figures() -> list[Figure]:
    """Print and return the worst share of best arms dropped, of each kind of matrix."""
    worst: dict[str, float] = {}
    for name, wrong in best_arms_dropped():
        worst[name] = max(worst.get(name, 0.0), wrong)
    results: list[Figure] = []
    for name, wrong in worst.items():
        what = f"{name}: a best arm is dropped"
        print(f"{what}: {wrong:.2f} %", flush=True)
        results.append(Figure(what=what, value=wrong, unit="%", at_most=MOST_WRONG))
    return results
