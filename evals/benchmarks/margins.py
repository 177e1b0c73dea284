"""Simulate `lhkit compare --margin`: how often each verdict is wrong, and the power it promises.

A scenario is a cluster of repeats. With probability `alike` all its repeats have one outcome, else
they are independent: `alike` is the intraclass correlation. A minute; part of `make bench`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from itertools import product

import figures
import numpy as np
from figures import Figure, Measurement
from numpy.typing import NDArray
from scipy.stats import multinomial

from lhkit.harness.figures.statistics import difference_limits, needed_scenarios

RUNS = 2_000
MARGINS = (0, 1, 2, 3, 5)  # points
SCENARIOS = (28, 56, 112, 168, 400, 1_000)
REPEATS = ((1, 0.0), (3, 0.0), (3, 0.5), (3, 1.0), (5, 0.0), (5, 0.2), (5, 0.5), (5, 0.9), (5, 1.0))
"""Repeats and how alike they are."""

GAINS = (0.0, 0.005, 0.02, 0.08, 0.2)
TRUTHS = ((0.0, 0.0), (0.02, 0.02), (0.1, 0.1), (0.08, 0.0), (0.02, 0.1), (0.1, 0.25))
"""Shares of improvements and regressions, off the margins."""

PILOT = 20_000
MOST_WRONG, LEAST_POWER = 5.0, 78.0  # percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The truth of simulated comparisons: shares of improvements and regressions."""

    gain: float
    loss: float
    repeats: int
    alike: float

    def kinds(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return improvements and regressions of each kind of cluster, and the probabilities."""
        n, rates = self.repeats, (self.gain, self.loss, 1 - self.gain - self.loss)
        kinds = np.array([(up, down) for up in range(n + 1) for down in range(n + 1 - up)])
        odds = (1 - self.alike) * multinomial.pmf(np.c_[kinds, n - kinds.sum(axis=1)], n, rates)
        for kind, rate in zip(((n, 0), (0, n), (0, 0)), rates, strict=True):
            odds[(kinds == kind).all(axis=1)] += self.alike * rate
        return kinds, odds / odds.sum()

    def verdicts(
        self, rng: np.random.Generator, scenarios: int, margin: float
    ) -> tuple[float, float]:
        """Return the percentages of comparisons with the verdicts `no worse` and `worse`."""
        kinds, odds = self.kinds()
        counts = rng.multinomial(scenarios, odds, size=RUNS).astype(float)
        sizes = np.full(len(kinds), float(self.repeats))
        improved, regressed = kinds.T.astype(float)
        low, high = difference_limits(counts, improved, regressed, sizes)
        return 100 * float(np.mean(low > -margin)), 100 * float(np.mean(high < -margin))

    def needed(self, margin: float) -> int | None:
        """Return `needed_scenarios` of a large run that shows the truth."""
        kinds, odds = self.kinds()
        times = np.rint(odds * PILOT).astype(int)
        rows = zip(*kinds.T.tolist(), times.tolist(), strict=True)
        clusters = [
            [1] * up + [-1] * down + [0] * (self.repeats - up - down)
            for up, down, count in rows
            for _ in range(count)
        ]
        return needed_scenarios(clusters, margin)


def at_the_margin(margin: int) -> Iterator[tuple[float, float]]:
    """Yield how often each verdict is returned where the true difference is minus the margin."""
    for number, (gain, (repeats, alike), n) in enumerate(product(GAINS, REPEATS, SCENARIOS)):
        loss = gain + margin / 100
        if loss:
            setup = Setup(gain=gain, loss=loss, repeats=repeats, alike=alike)
            yield setup.verdicts(np.random.default_rng([margin, number]), n, margin / 100)


def without_difference(margin: int) -> Iterator[float]:
    """Yield how often `worse` is returned where there is no difference."""
    for number, (gain, (repeats, alike), n) in enumerate(product(GAINS[1:], REPEATS, SCENARIOS)):
        setup = Setup(gain=gain, loss=gain, repeats=repeats, alike=alike)
        yield setup.verdicts(np.random.default_rng([100, margin, number]), n, margin / 100)[1]


def power(margin: int) -> Iterator[tuple[int, float]]:
    """Yield the scenarios asked for, and the power with them."""
    for number, ((gain, loss), (repeats, alike)) in enumerate(product(TRUTHS, REPEATS)):
        setup = Setup(gain=gain, loss=loss, repeats=repeats, alike=alike)
        excess = gain - loss + margin / 100
        needed = setup.needed(margin / 100) if abs(excess) >= 0.01 else None
        if needed is not None:
            rng = np.random.default_rng([200, margin, number])
            no_worse, worse = setup.verdicts(rng, needed, margin / 100)
            yield needed, no_worse if excess > 0 else worse


def main() -> None:
    """Simulate and write the figures."""
    results: list[Figure] = []
    asked: list[int] = []
    for margin in MARGINS:
        verdicts = np.array(list(at_the_margin(margin)))
        for name, column in zip(("no worse", "worse"), verdicts.T, strict=True):
            what = f"margin {margin}: `{name}` of a difference exactly at the margin"
            results.append(Figure(what=what, value=column.max(), unit="%", at_most=MOST_WRONG))
        wrong = max(without_difference(margin))
        what = f"margin {margin}: `worse` where there is no difference"
        results.append(Figure(what=what, value=wrong, unit="%", at_most=MOST_WRONG))
        powers = list(power(margin))
        asked += [needed for needed, _ in powers]
        what = f"margin {margin}: power with the number of scenarios asked for"
        least = min(share for _, share in powers)
        results.append(Figure(what=what, value=least, unit="%", at_least=LEAST_POWER))
    figures.write(
        "margins",
        Measurement(
            title="`compare --margin`: wrong verdicts and power",
            command="python evals/benchmarks/margins.py",
            versions={name: version(name) for name in ("numpy", "scipy")},
            machine=figures.describe_machine(),
            figures=tuple(results),
            notes=(
                f"{RUNS:,} comparisons for each of {len(GAINS) * len(REPEATS) * len(SCENARIOS)} "
                f"setups a margin: {SCENARIOS[0]} to {SCENARIOS[-1]:,} scenarios; 1, 3 or 5 "
                "repeats, independent, alike or equal. Each figure is that of the worst setup.",
                f"The power is that of playing the {min(asked):,} to {max(asked):,} scenarios "
                "that `needed_scenarios` asks for. It takes the observed difference and spread "
                "for true, so after a small run the number is an estimate.",
            ),
        ),
    )


if __name__ == "__main__":
    main()
