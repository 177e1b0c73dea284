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

from lhkit.harness.figures.sequential import log_factors
from lhkit.harness.results.arms import OrderedPair, corrected, log_limit

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

    def draw(self, rng: np.random.Generator, scenarios: int) -> Results:
        """Return which scenarios pass in each arm, in random order."""
        shape = len(self.rates), scenarios
        shared = rng.random(shape) < np.sqrt(self.alike)  # so for both arms of a pair
        difficulty = np.where(shared, rng.random(scenarios), rng.random(shape))
        return np.asarray(difficulty < np.array(self.rates)[:, None])

    def shuffle(self, rng: np.random.Generator, scenarios: int) -> Iterator[Results]:
        """Yield one suite, of which the arms pass equal shares, in further and further orders."""
        suite = self.draw(rng, scenarios)
        for row in suite:
            row[:] = rng.permutation(np.arange(scenarios) < round(self.rates[0] * scenarios))
        while True:
            yield suite[:, rng.permutation(scenarios)]


def log_e_values(most: int) -> Numbers:
    """Return the logarithm of the e-value of "worse" after (losses, gains)."""
    loss, gain = (log_factors(np.array(float(sign)), 0.0)[1] for sign in (-1, 1))
    counts = np.arange(most + 1.0)
    wealth = counts[:, None, None] * loss + counts[None, :, None] * gain
    peak = wealth.max(axis=2)
    return np.asarray(peak + np.log(np.exp(wealth - peak[:, :, None]).mean(axis=2)))


LOG_E = log_e_values(SUITE)


def scenarios_run(results: Results) -> list[int]:
    """Return how many scenarios each arm is run on, if it is dropped as soon as it is worse."""
    arms, scenarios = results.shape
    peaks: dict[OrderedPair, Numbers] = {}
    for worse, better in permutations(range(arms), 2):
        losses = np.cumsum(results[better] & ~results[worse])
        gains = np.cumsum(results[worse] & ~results[better])
        peaks[worse, better] = np.maximum.accumulate(np.maximum(LOG_E[losses, gains], 0.0))
    run: list[int] = []
    for arm in range(arms):
        p_values = dict.fromkeys(peaks, 1.0)
        for worse, better in permutations(range(arm), 2):
            last = min(run[worse], run[better]) - 1
            p_values[worse, better] = float(np.exp(-peaks[worse, better][last]))
        rivals = [peaks[arm, rival] for rival in range(arm) if run[rival] == scenarios]
        above = np.array(rivals).max(axis=0) >= log_limit(corrected(p_values)) if rivals else []
        run.append(int(np.argmax(above)) + 1 if np.any(above) else scenarios)
    return run


def simulate(matrix: Matrix, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return how many scenarios each arm of each matrix is run on."""
    return np.array([scenarios_run(matrix.draw(rng, SUITE)) for _ in range(RUNS)])


def best_arms_dropped() -> Iterator[tuple[str, float]]:
    """Yield the percentages of matrices that drop an arm which is truly the best, or as good."""
    for arms in ARMS:
        for number, (rate, alike) in enumerate(product(RATES, ALIKE)):
            rng = np.random.default_rng([500, arms, number])
            run = simulate(Matrix(rates=(rate,) * arms, alike=alike), rng)
            yield f"{arms} equal arms", 100 * float(np.mean((run < SUITE).any(axis=1)))
        for number, rate in enumerate(RATES):
            rng = np.random.default_rng([600, arms, number])
            orders = Matrix(rates=(rate,) * arms, alike=0.0).shuffle(rng, SUITE)
            run = np.array([scenarios_run(next(orders)) for _ in range(RUNS)])
            name = f"{arms} equal arms, one fixed suite"
            yield name, 100 * float(np.mean((run < SUITE).any(axis=1)))
    for number, (points, alike) in enumerate(product(WORSE, ALIKE)):
        best = (False, True, False, True, True, False)  # the worse ones are dropped on the way
        rates = [0.8 if is_best else 0.8 - points / 100 for is_best in best]
        rng = np.random.default_rng([700, number])
        run = simulate(Matrix(rates=rates, alike=alike), rng)
        dropped = (run < SUITE)[:, np.array(best)].any(axis=1)
        yield "3 equal best arms of 6", 100 * float(np.mean(dropped))


def scenarios_saved() -> Iterator[tuple[str, ...]]:
    """Yield a row for each number of arms, of worse ones, and of points."""
    for number, (arms, points) in enumerate(product((2, 3, 6), WORSE)):
        for worse in dict.fromkeys((1, arms - 1)):
            rates = np.array([0.8] * (arms - worse) + [0.8 - points / 100] * worse)
            rng = np.random.default_rng([800, number, worse])
            run = simulate(Matrix(rates=rates, alike=0.5), rng)
            last = run[:, arms - worse :]
            shuffled = []
            for _ in range(RUNS):
                matrix = Matrix(rates=rng.permutation(rates), alike=0.5)
                shuffled.append(scenarios_run(matrix.draw(rng, SUITE)))
            saved, by_chance = (
                100 * (1 - float(np.mean(each)) / SUITE) for each in (run, np.array(shuffled))
            )
            yield (
                f"{arms}",
                f"{worse}",
                f"{points}",
                f"{100 * float(np.mean(last < SUITE)):.0f} %",
                f"{float(np.mean(last)):.0f}",
                f"{float(np.median(last)):.0f}",
                f"{saved:.0f} %",
                f"{by_chance:.0f} %",
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
