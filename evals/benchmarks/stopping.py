"""Simulate `--stop-when-decided`: wrong decisions at any time, scenarios and power.

The truths are those of `margins`, and further ones that are skewed, of unequal sizes, or a fixed
suite in random order; the arms of a matrix are those of `stopping_arms`. `stopping.md` has the
tables. Some minutes on one core; part of `make bench`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import product
from pathlib import Path

import figures
import numpy as np
import stopping_arms
from figures import Figure, Measurement
from margins import GAINS, REPEATS, RUNS, Setup
from numpy.typing import NDArray

from lhkit.harness.figures.sequential import BETS, LOG_LIMIT, log_factors
from lhkit.harness.figures.statistics import difference_limits, needed_scenarios

Numbers = NDArray[np.float64]

MARGINS = (0, 3, 10)  # points
LONGEST = 500
"""Scenarios of the runs whose wrong decisions are counted, at any time."""
SUITES = (20, 56, 168, 500)
"""Scenarios of fixed suites, which are run in random order."""

TRUTHS = {
    60: (0.62, 0.02),
    20: (0.30, 0.10),
    10: (0.20, 0.10),
    3: (0.10, 0.07),
    0: (0.10, 0.10),
    -3: (0.07, 0.10),
    -10: (0.10, 0.20),
    -20: (0.10, 0.30),
    -60: (0.02, 0.62),
}
"""Shares of improvements and regressions, by their difference in points."""
SUITE, MOST = 168, 6_000
MOST_WRONG = 5.0  # percent
AGAIN = 20_000
"""The runs of a setup whose first 2,000 were wrong more often than that: sampling error is 0.5."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """The clusters of simulated comparisons: sums of differences, sizes, probabilities."""

    sums: Numbers
    sizes: Numbers
    odds: Numbers

    @classmethod
    def of(cls, gain: float, loss: float, repeats: int = 1, alike: float = 0.0) -> "Truth":
        """Return the truth of a `Setup`."""
        kinds, odds = Setup(gain=gain, loss=loss, repeats=repeats, alike=alike).kinds()
        sums = (kinds[:, 0] - kinds[:, 1]).astype(float)
        return cls(sums=sums, sizes=np.full(len(odds), float(repeats)), odds=odds)

    def draw(
        self, rng: np.random.Generator, scenarios: int, runs: int | None = None
    ) -> NDArray[np.int64]:
        """Return the kinds of the scenarios of each run."""
        return rng.choice(len(self.odds), size=(runs or RUNS, scenarios), p=self.odds)

    def shuffle(self, rng: np.random.Generator, scenarios: int) -> NDArray[np.int64]:
        """Return the kinds of one suite with these shares, in another order in each run."""
        counts = np.floor(self.odds * scenarios).astype(int)
        counts[np.argmin(np.abs(self.sums))] += scenarios - counts.sum()
        suite = np.repeat(np.arange(len(counts)), counts)
        return rng.permuted(np.tile(suite, (RUNS, 1)), axis=1)

    def decisions(self, kinds: NDArray[np.int64], margin: float) -> tuple[Numbers, Numbers]:
        """Return of each run the direction of the decision (0 without one), and after how many."""
        excess = (self.sums + margin * self.sizes) / self.sizes.max()
        factors = log_factors(excess, -margin).reshape(-1, len(excess)).T
        wealth = np.zeros((len(kinds), factors.shape[1]))
        direction, after = np.zeros(len(kinds)), np.full(len(kinds), float(kinds.shape[1]))
        alive = np.arange(len(kinds))
        for number in range(kinds.shape[1]):
            wealth += factors[kinds[alive, number]]
            e_values = np.exp(wealth).reshape(len(alive), 2, len(BETS)).mean(axis=2)
            is_decided = (e_values >= np.exp(LOG_LIMIT)).any(axis=1)
            if is_decided.any():
                found = alive[is_decided]
                direction[found] = 1 - 2 * e_values[is_decided].argmax(axis=1)
                after[found] = number + 1
                alive, wealth = alive[~is_decided], wealth[~is_decided]
            if not len(alive):
                break
        return direction, after


def skewed(margin: int) -> Iterator[Truth]:
    """Yield truths with many small gains and few whole losses, and with the reverse."""
    for (small, large), sign in product(((1.0, 3.0), (2.0, 5.0)), (1.0, -1.0)):
        whole, part = -large * sign, small * sign
        chance = 0.05 + (margin / 100 if whole < 0 else 0.0)
        odds = -(margin / 100 * large + chance * whole) / part  # balances the mean
        yield Truth(
            sums=np.array([whole, part, 0.0]),
            sizes=np.full(3, large),
            odds=np.array([chance, odds, 1 - chance - odds]),
        )


def unequal(margin: int, share: float) -> Truth:
    """Return scenarios with one wording and a share with three, of which the difference differs."""
    gap = 0.1
    three = gap * (1 - share) / (3 * share)  # balances the mean over the pairs
    rows = []
    for size, excess, weight in ((1.0, gap, 1 - share), (3.0, -three, share)):
        half = (excess - margin / 100) / 2
        for sign, chance in ((1.0, 0.3 + half), (-1.0, 0.3 - half), (0.0, 0.4)):
            rows.append((sign * size, size, weight * chance))
    sums, sizes, odds = np.array(rows).T
    return Truth(sums=sums, sizes=sizes, odds=odds)


def at_the_margin(margin: int) -> Iterator[tuple[str, float]]:
    """Yield the percentages of wrong decisions where the difference is exactly minus the margin.

    Each decision is then wrong, also `better` and `no worse`.
    """
    truths: list[tuple[str, Truth]] = []
    for gain, (repeats, alike) in product(GAINS, REPEATS):
        loss = gain + margin / 100
        if loss:
            truths.append(("clusters", Truth.of(gain, loss, repeats, alike)))
    truths += [("skewed", truth) for truth in skewed(margin)]
    truths += [("unequal", unequal(margin, weight)) for weight in (0.2, 0.8)]
    for number, (name, truth) in enumerate(truths):
        rng = np.random.default_rng([margin, number])
        direction, _ = truth.decisions(truth.draw(rng, LONGEST), margin / 100)
        wrong = 100 * float(np.mean(direction != 0))
        if wrong > MOST_WRONG:  # the largest of many estimates: once more, with new draws
            direction, _ = truth.decisions(truth.draw(rng, LONGEST, AGAIN), margin / 100)
            print(f"margin {margin}, {name} {number}: {wrong:.2f} %, then", flush=True)
            wrong = 100 * float(np.mean(direction != 0))
        yield name, wrong
    for number, (gain, scenarios) in enumerate(product(GAINS[1:], SUITES)):
        truth = Truth.of(gain, gain + margin / 100)
        rng = np.random.default_rng([300, margin, number])
        direction, _ = truth.decisions(truth.shuffle(rng, scenarios), margin / 100)
        yield "fixed suite", 100 * float(np.mean(direction != 0))


def fixed_power(truth: Truth, margin: float, scenarios: int, rng: np.random.Generator) -> float:
    """Return how often the fixed test decides after all scenarios, in percent."""
    counts = rng.multinomial(scenarios, truth.odds, size=RUNS).astype(float)
    up, down = np.maximum(truth.sums, 0), np.maximum(-truth.sums, 0)
    low, high = difference_limits(counts, up, down, truth.sizes)
    return 100 * float(np.mean((low > -margin) | (high < -margin)))


def scenarios_needed(margin: int) -> Iterator[tuple[str, ...]]:
    """Yield a row for each true difference."""
    for number, (points, (gain, loss)) in enumerate(TRUTHS.items()):
        truth = Truth.of(gain, loss)
        rng = np.random.default_rng([400, margin, number])
        direction, after = truth.decisions(truth.draw(rng, SUITE), margin / 100)
        right = 1 if points + margin > 0 else -1 if points + margin < 0 else 0
        clusters = [[1]] * round(1_000 * gain) + [[-1]] * round(1_000 * loss)
        clusters += [[0]] * (1_000 - len(clusters))
        fixed = needed_scenarios(clusters, margin / 100) if right else None
        needed = "–"
        if fixed is not None and fixed < MOST:
            length = min(MOST, 6 * fixed)
            found, whole = truth.decisions(truth.draw(rng, length), margin / 100)
            whole[found != right] = np.inf
            last = float(np.quantile(whole, 0.8, method="inverted_cdf"))
            needed = f"{last:,.0f}" if np.isfinite(last) else f"> {length:,}"
        yield (
            f"{points:+d}",
            f"{np.mean(after):.0f}",
            f"{np.median(after):.0f}",
            f"{100 * np.mean(direction == right) if right else 0:.0f} %" if right else "–",
            f"{100 * np.mean(direction == -right):.1f} %"
            if right
            else f"{100 * np.mean(direction != 0):.1f} %",
            f"{fixed_power(truth, margin / 100, SUITE, rng):.0f} %",
            f"{fixed:,}" if fixed else "–",
            needed,
        )


HEAD = (
    "true difference",
    f"run of {SUITE}, mean",
    "median",
    "decided rightly",
    "wrongly",
    f"fixed test of {SUITE} decides",
    "fixed test: scenarios for 80 %",
    "stopping: scenarios for 80 %",
)


def table(rows: Sequence[Sequence[str]], head: Sequence[str] = HEAD) -> str:
    """Return a Markdown table."""
    lines = [head, ["---:"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Simulate, write the figures, and print the tables."""
    results: list[Figure] = []
    for margin in MARGINS:
        worst: dict[str, float] = {}
        for name, wrong in at_the_margin(margin):
            worst[name] = max(worst.get(name, 0.0), wrong)
        for name, wrong in worst.items():
            what = f"margin {margin}, {name}: decided at any time, exactly at the margin"
            print(f"{what}: {wrong:.2f} %", flush=True)
            results.append(Figure(what=what, value=wrong, unit="%", at_most=MOST_WRONG))
    for margin in MARGINS[:2]:
        rows = list(scenarios_needed(margin))
        print(f"\nmargin {margin}\n\n{table(rows)}", flush=True)
    results += stopping_arms.figures()
    saved = table(list(stopping_arms.scenarios_saved()), stopping_arms.HEAD)
    print(f"\narms\n\n{saved}", flush=True)
    figures.write(
        "stopping",
        Measurement(
            title="`--stop-when-decided`: wrong decisions at any time",
            command="python evals/benchmarks/stopping.py",
            versions={name: version(name) for name in ("numpy", "scipy")},
            machine=figures.describe_machine(),
            figures=tuple(results),
            notes=(
                f"{RUNS:,} runs for each setup. *clusters*: the {len(GAINS) * len(REPEATS)} "
                f"truths of `margins`, up to {LONGEST} scenarios, each look counted; *skewed*: "
                "many small gains and few whole losses, and the reverse; *unequal*: scenarios with "
                "one and with three wordings; *fixed suite*: one suite of "
                f"{', '.join(map(str, SUITES))} scenarios in random order. Each figure is that of "
                f"the worst setup; one above {MOST_WRONG:g} % is estimated again with {AGAIN:,} "
                "new runs, because it is the largest of many estimates.",
                f"*Arms*: matrices of up to {stopping_arms.SUITE} scenarios, with pass rates of "
                f"{', '.join(f'{rate:.0%}' for rate in stopping_arms.RATES)}, independent to "
                "nearly equal results; each figure is that of the worst setup.",
                f"[{Path('stopping.md')}](stopping.md) has the scenarios needed beside the fixed "
                "test.",
            ),
        ),
    )


if __name__ == "__main__":
    main()
