"""Simulate descriptions as an axis of `lhkit matrix`: false wins, and power.

An arm is chosen on one half of the scenarios and compared with the first one on the other half
(`halves.decide`). A scenario is a cluster of samples: repeats, wordings, translations. With
probability `alike` all its samples of an arm have one outcome, and with probability `shared` a
sample has the same outcome in all equal arms. `wording.md` has the tables. Some minutes on one
core; part of `make bench`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import combinations, product

import figures
import numpy as np
from figures import Figure, Measurement
from numpy.typing import NDArray

from lhkit.harness.figures.halves import decide
from lhkit.harness.figures.statistics import holm, sign_flip

Counts = NDArray[np.int64]

RUNS = 2_000
ARMS = (2, 3, 4, 5, 6)
SCENARIOS = (40, 100, 400)
RATES = (0.1, 0.5, 0.9)
SAMPLES = ((1, 0.0), (3, 0.0), (3, 0.5), (3, 1.0))
"""Samples of a scenario, and how alike they are."""
SHARED = (0.0, 0.7)
POINTS = (5, 10, 20, 40)
LEVEL = 0.05
MOST_WRONG = 5.0  # percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The truth of simulated suites: the pass rate of each arm."""

    rates: tuple[float, ...]
    scenarios: int
    samples: int = 1
    alike: float = 0.0
    shared: float = 0.0

    def draw(self, rng: np.random.Generator) -> Counts:
        """Return the passed samples of each scenario in each arm, for every run."""
        shape = (RUNS, self.scenarios, self.samples, len(self.rates))
        luck = rng.random(shape, dtype=np.float32)
        common = rng.random((*shape[:3], 1), dtype=np.float32)
        luck = np.where(rng.random((*shape[:3], 1)) < self.shared, common, luck)
        is_alike = rng.random((RUNS, self.scenarios, 1, 1)) < self.alike
        luck = np.where(is_alike, luck[:, :, :1], luck)
        counts: Counts = (luck < np.asarray(self.rates)).sum(axis=2)
        return counts

    def calls(self, rng: np.random.Generator) -> Iterator[tuple[int, int]]:
        """Yield of each run the arm that is called better and the one called worse; 0 for none."""
        half = self.scenarios // 2
        for counts in self.draw(rng):
            rows = counts.tolist()
            chosen, p = decide(rows[:half], rows[half:])
            gain = sum(row[chosen] - row[0] for row in rows[half:])
            is_found = p is not None and p < LEVEL
            yield (chosen if is_found and gain > 0 else 0, chosen if is_found and gain < 0 else 0)


def equal_arms(number_of_arms: int) -> Iterator[float]:
    """Yield how often an arm is called better although all are equal, for each setup."""
    setups = product(SCENARIOS, RATES, SAMPLES, SHARED)
    for number, (scenarios, rate, (samples, alike), shared) in enumerate(setups):
        rng = np.random.default_rng([number_of_arms, number])
        setup = Setup(
            rates=(rate,) * number_of_arms,
            scenarios=scenarios,
            samples=samples,
            alike=alike,
            shared=shared,
        )
        yield share(better for better, _ in setup.calls(rng))


def on_the_same_scenarios(number_of_arms: int) -> tuple[float, float]:
    """Return how often one of equal arms is called better on the scenarios that chose it.

    First without a correction, then by `lhkit compare`: corrected (Holm) for all pairs of arms.
    """
    rng = np.random.default_rng([500, number_of_arms])
    setup = Setup(rates=(0.5,) * number_of_arms, scenarios=200, shared=0.7)
    wrong, corrected = [], []
    for counts in setup.draw(rng):
        best = int(counts.sum(axis=0).argmax())
        pairs = list(combinations(range(number_of_arms), 2))
        p_values = [sign_flip((counts[:, b] - counts[:, a]).tolist()) for a, b in pairs]
        at = pairs.index((0, best)) if best else 0
        wrong.append(best > 0 and p_values[at] < LEVEL)
        corrected.append(best > 0 and holm(p_values)[at] < LEVEL)
    return share(wrong), share(corrected)


def cancelling(number_of_arms: int, scenarios: int) -> Iterator[float]:
    """Yield how often an arm is called better that helps in some scenarios and hurts in others.

    One suite, which is split anew in each run. Of three samples each arm gains one in 30 % of the
    scenarios and loses all in 10 %, or the reverse.
    """
    for number, sign in enumerate((1, -1)):
        rng = np.random.default_rng([600, number_of_arms, scenarios, number])
        small, whole = scenarios * 3 // 10, scenarios // 10
        gains = np.r_[np.ones(small), np.full(whole, -3), np.zeros(scenarios - small - whole)]
        columns = [
            np.zeros(scenarios),
            *(rng.permutation(gains) for _ in range(number_of_arms - 1)),
        ]
        suite = (sign * np.array(columns).T).astype(int)
        wrong = []
        for _ in range(RUNS):
            rows = rng.permutation(suite).tolist()
            half = scenarios // 2
            chosen, p = decide(rows[:half], rows[half:])
            gain = sum(row[chosen] for row in rows[half:])
            wrong.append(p is not None and p < LEVEL and gain > 0)
        yield share(wrong)


def share(found: Iterator[int] | Sequence[int]) -> float:
    """Return the percentage of true values."""
    return 100 * float(np.mean([bool(value) for value in found]))


POWER_SCENARIOS = (40, 100, 168, 400, 1_000)
FIRST = 0.5


def power(points: int, scenarios: int, *, shared: float = 0.5) -> tuple[float, float, float]:
    """Return how often a planted wording is found, a bad one called better, a good one worse.

    Three arms of one sample a scenario: the first passes 50 %, the good one so many points more,
    the bad one so many fewer.
    """
    rng = np.random.default_rng([700, points, scenarios])
    rates = (FIRST, FIRST - points / 100, FIRST + points / 100)
    calls = list(Setup(rates=rates, scenarios=scenarios, shared=shared).calls(rng))
    return (
        share([better == 2 for better, _ in calls]),
        share([better == 1 for better, _ in calls]),
        share([worse == 2 for _, worse in calls]),
    )


def all_pairs(points: int, scenarios: int, *, shared: float = 0.5) -> float:
    """Return how often the planted wording is found by the test of all pairs on all scenarios.

    That is `lhkit compare` of the three runs: corrected (Holm) for three pairs.
    """
    rng = np.random.default_rng([900, points, scenarios])
    rates = (FIRST, FIRST - points / 100, FIRST + points / 100)
    found = []
    for counts in Setup(rates=rates, scenarios=scenarios, shared=shared).draw(rng):
        gains = [counts[:, b] - counts[:, a] for a, b in ((0, 2), (0, 1), (1, 2))]
        corrected = holm([sign_flip(gain.tolist()) for gain in gains])
        found.append(corrected[0] < LEVEL and gains[0].sum() > 0)
    return share(found)


def bad_only(points: int, scenarios: int) -> float:
    """Return how often the only other wording is called better although it is worse."""
    rng = np.random.default_rng([800, points, scenarios])
    setup = Setup(rates=(FIRST, FIRST - points / 100), scenarios=scenarios, shared=0.5)
    return share([better for better, _ in setup.calls(rng)])


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---:"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Simulate, write the figures, and print the tables."""
    results: list[Figure] = []

    def add(what: str, value: float, **limits: float) -> None:
        print(f"{what}: {value:.2f} %", flush=True)
        results.append(Figure(what=what, value=value, unit="%", **limits))

    for arms in ARMS:
        found = list(equal_arms(arms))
        add(
            f"{arms} equal wordings: one is called better, worst setup",
            max(found),
            at_most=MOST_WRONG,
        )
        add(
            f"{arms} equal wordings: one is called better, mean",
            float(np.mean(found)),
            at_most=MOST_WRONG,
        )
    for arms in ARMS:
        wrong, corrected = on_the_same_scenarios(arms)
        what = f"{arms} equal wordings, chosen and compared on all scenarios: called better"
        add(f"{what}, no correction", wrong)
        add(f"{what}, corrected for all pairs", corrected, at_most=MOST_WRONG)
    found = [wrong for arms in (2, 6) for n in SCENARIOS for wrong in cancelling(arms, n)]
    add(
        "wordings that help and hurt equally, one suite: called better, worst setup",
        max(found),
        at_most=MOST_WRONG,
    )
    rows, wrong_rows = [], []
    for points in POINTS:
        cells = [power(points, scenarios) for scenarios in POWER_SCENARIOS]
        rows.append([f"{points}", *(f"{good:.0f} %" for good, _, _ in cells)])
        wrong_rows += [bad for _, bad, _ in cells] + [worse for _, _, worse in cells]
        wrong_rows += [bad_only(points, scenarios) for scenarios in POWER_SCENARIOS]
    add(
        "a planted bad wording is called better, or a good one worse: worst setup",
        max(wrong_rows),
        at_most=MOST_WRONG,
    )
    for name, good in ((row[0], row[3]) for row in rows):
        add(
            f"a wording that is {name} points better is found, of 168 scenarios",
            float(good.rstrip(" %")),
        )
    head = ("difference", *(f"{n:,} scenarios" for n in POWER_SCENARIOS))
    print(f"\n{table(head, rows)}", flush=True)
    whole = [
        [f"{points}", *(f"{all_pairs(points, n):.0f} %" for n in POWER_SCENARIOS)]
        for points in POINTS
    ]
    print(f"\nall pairs on all scenarios\n\n{table(head, whole)}", flush=True)
    figures.write(
        "wording",
        Measurement(
            title="Descriptions in `lhkit matrix`: false wins, and power",
            command="python evals/benchmarks/wording.py",
            versions={name: version(name) for name in ("numpy", "scipy")},
            machine=figures.describe_machine(),
            figures=tuple(results),
            notes=(
                f"{RUNS:,} runs for each of "
                f"{len(SCENARIOS) * len(RATES) * len(SAMPLES) * len(SHARED)} setups a number of "
                f"wordings: {SCENARIOS[0]} to {SCENARIOS[-1]} scenarios, pass rates "
                f"{100 * RATES[0]:.0f} to {100 * RATES[-1]:.0f} %, 1 or 3 samples a scenario that "
                "are independent, alike or equal; arms independent, or 70 % of the samples with "
                "one outcome in all. *On all scenarios*: 200 scenarios choose and compare.",
                "[wording.md](wording.md) has the power, and a run of the embedded model.",
            ),
        ),
    )


if __name__ == "__main__":
    main()
