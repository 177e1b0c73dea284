"""Simulate `lhkit compare --margin`: how often each verdict is wrong, and the power it promises.

A scenario is a cluster of repeats. With probability `alike` all its repeats have one outcome, else
they are independent: `alike` is the intraclass correlation. Two minutes; part of `make bench`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from itertools import product

import figures
import numpy as np
from figures import Figure, Measurement
from numpy.typing import NDArray

from lhkit.harness.statistics import difference_limits, needed_scenarios

RUNS = 2_000
MARGINS = (0, 1, 2, 3, 5)  # points
SCENARIOS = (28, 56, 112, 168, 400)
REPEATS = ((1, 0.0), (3, 0.0), (3, 0.5), (3, 1.0), (5, 0.0), (5, 0.5), (5, 1.0))
"""Repeats and how alike they are."""

GAINS = (0.0, 0.02, 0.08, 0.2)
PILOT = 20_000
MOST_WRONG, LEAST_POWER = 5.0, 78.0  # percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The truth of simulated comparisons: shares of improvements and regressions."""

    gain: float
    loss: float
    repeats: int
    alike: float

    def draw(self, rng: np.random.Generator, runs: int, scenarios: int) -> NDArray[np.int64]:
        """Return improvements and regressions, of shape (2, runs, scenarios)."""
        rates = (self.gain, self.loss, 1 - self.gain - self.loss)
        shape = (runs, scenarios)
        one = rng.multinomial(1, rates, size=shape) * self.repeats
        free = rng.multinomial(self.repeats, rates, size=shape)
        is_steady = rng.random(shape)[..., None] < self.alike
        return np.moveaxis(np.where(is_steady, one, free), -1, 0)[:2]

    def said(self, rng: np.random.Generator, scenarios: int, margin: float) -> tuple[float, float]:
        """Return the percentages of comparisons that say `no worse` and `worse`."""
        up, down = self.draw(rng, RUNS, scenarios)
        side = self.repeats + 1
        kinds = up * side + down
        counts = np.zeros((RUNS, side * side))
        np.add.at(counts, (np.arange(RUNS)[:, None], kinds), 1)
        of_kind = np.divmod(np.arange(side * side, dtype=float), side)
        low, high = difference_limits(counts, *of_kind, np.full(side * side, float(self.repeats)))
        return 100 * float(np.mean(low > -margin)), 100 * float(np.mean(high < -margin))


def at_the_margin(margin: int) -> Iterator[tuple[float, float]]:
    """Yield how often each verdict is said where the true difference is minus the margin."""
    for number, (gain, (repeats, alike), n) in enumerate(product(GAINS, REPEATS, SCENARIOS)):
        loss = gain + margin / 100
        if loss:
            setup = Setup(gain=gain, loss=loss, repeats=repeats, alike=alike)
            yield setup.said(np.random.default_rng([margin, number]), n, margin / 100)


def without_difference(margin: int) -> Iterator[float]:
    """Yield how often `worse` is said where there is no difference."""
    for number, (gain, (repeats, alike), n) in enumerate(product(GAINS[1:], REPEATS, SCENARIOS)):
        setup = Setup(gain=gain, loss=gain, repeats=repeats, alike=alike)
        yield setup.said(np.random.default_rng([100, margin, number]), n, margin / 100)[1]


def power(margin: int) -> Iterator[tuple[Setup, int, float]]:
    """Yield truths off the margin, the scenarios asked for, and the power of playing them."""
    truths = ((0.0, 0.0), (0.02, 0.02), (0.1, 0.1), (0.08, 0.0), (0.02, 0.1), (0.1, 0.25))
    for number, ((gain, loss), (repeats, alike)) in enumerate(product(truths, REPEATS)):
        setup = Setup(gain=gain, loss=loss, repeats=repeats, alike=alike)
        rng = np.random.default_rng([200, margin, number])
        pilot = zip(*setup.draw(rng, 1, PILOT)[:, 0].tolist(), strict=True)
        clusters = [[1] * up + [-1] * down + [0] * (repeats - up - down) for up, down in pilot]
        needed = needed_scenarios(clusters, margin / 100)
        if needed is not None and abs(gain - loss + margin / 100) >= 0.01:
            no_worse, worse = setup.said(rng, needed, margin / 100)
            yield setup, needed, no_worse if gain - loss > -margin / 100 else worse


def main() -> None:
    """Simulate and write the figures."""
    results: list[Figure] = []
    asked: list[int] = []
    for margin in MARGINS:
        verdicts = np.array(list(at_the_margin(margin)))
        for name, column in zip(("no worse", "worse"), verdicts.T, strict=True):
            what = f"margin {margin}: `{name}` said of a difference at the margin, at most"
            results.append(Figure(what=what, value=column.max(), unit="%", at_most=MOST_WRONG))
        wrong = max(without_difference(margin))
        what = f"margin {margin}: `worse` said where there is no difference, at most"
        results.append(Figure(what=what, value=wrong, unit="%", at_most=MOST_WRONG))
        powers = list(power(margin))
        asked += [needed for _, needed, _ in powers]
        least = min(share for *_, share in powers)
        what = f"margin {margin}: power with the number of scenarios asked for, at least"
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
                f"setups a margin: {SCENARIOS[0]} to {SCENARIOS[-1]} scenarios, 1, 3 or 5 repeats "
                "that are independent, alike by half or equal. A figure is that of the worst one.",
                f"The power is that of playing the {min(asked):,} to {max(asked):,} scenarios "
                "that `needed_scenarios` asks for. It takes the observed difference and spread "
                "for true, so after a small run the number is an estimate.",
            ),
        ),
    )


if __name__ == "__main__":
    main()
