"""Simulate `lhkit approvals`: how often a tool above the budget is let through, and the power.

A scenario is a cluster of writes. With probability `alike` all of them have one outcome, else they
are independent. Writes `approvals.csv`, a row for each setup; `approvals.md` has the summary. Half
an hour on one core.

    python evals/benchmarks/approvals.py
"""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from math import ceil, log
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from lhkit.harness.figures.approvals import ApprovalDecision, Evidence, Proposal, approvals_of
from lhkit.harness.figures.risk_limits import risk_p_values
from lhkit.harness.figures.statistics import holm

RUNS = 2_000
MORE_RUNS = 200_000
"""The runs with which the worst setups of the grid are simulated again."""

RISKS = (0.01, 0.02, 0.05, 0.1)
ALPHA = 0.05
WRITES = ((1, 0.0), (3, 0.0), (3, 0.2), (3, 0.5), (3, 0.9), (3, 1.0), (5, 0.0), (5, 0.5), (5, 1.0))
"""Writes a scenario, and how alike they are."""

PARTS = (0.2, 0.34, 0.5, 0.67, 0.8, 0.95)
MIXES = (0.02, 0.1, 0.3, 1.0)
"""Scenarios with a share of wrong writes between 0 and 1, and what part of the risk is theirs."""

MOST_AGAIN = 20
CHECKED = 5

Distribution = tuple[NDArray[np.float64], NDArray[np.float64]]
"""The possible shares of wrong writes in a scenario, and their probabilities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One setup, and in how many per cent of the runs something happened."""

    what: str
    setup: str
    budget: float
    scenarios: int
    runs: int
    percent: float


def scenario_numbers(risk: float) -> list[int]:
    """Return numbers of scenarios, also those at which one more wrong write is allowed."""
    first = ceil(log(ALPHA) / log(1 - risk))
    edges = [
        next(n for n in range(first, 40 * first) if binom.cdf(k, n, risk) <= ALPHA)
        for k in (0, 1, 2, 5)
    ]
    return sorted({10, 30, 100, 300, 1_000, *edges, *(edge - 1 for edge in edges), 2 * edges[0]})


def alike_writes(writes: int, alike: float, risk: float) -> Distribution:
    """Return the shares of scenarios with so many writes."""
    wrong = np.arange(writes + 1)
    odds = (1 - alike) * binom.pmf(wrong, writes, risk)
    odds[0] += alike * (1 - risk)
    odds[-1] += alike * risk
    return wrong / writes, odds / odds.sum()


def uneven_writes(risk: float, most: int = 6) -> Distribution:
    """Return the shares of scenarios with 1 to `most` writes, where more of them are worse."""
    sizes = np.arange(1, most + 1)
    odds: dict[float, float] = {}
    for size, bad in zip(sizes, risk * sizes / sizes.mean(), strict=True):
        for wrong in range(size + 1):
            share = wrong / size
            odds[share] = odds.get(share, 0.0) + float(binom.pmf(wrong, size, bad)) / most
    return np.array(list(odds)), np.array(list(odds.values())) / sum(odds.values())


def between(part: float, mix: float, risk: float) -> Distribution:
    """Return the shares 0, `part` and 1, where `mix` of the risk is of scenarios with `part`."""
    odds = np.array([risk * mix / part, risk * (1 - mix)])
    return np.array([0.0, part, 1.0]), np.array([1 - odds.sum(), *odds])


def distributions(risk: float) -> Iterator[tuple[str, Distribution]]:
    """Yield the kinds of scenarios of the grid, all with the same risk."""
    for writes, alike in WRITES:
        yield f"{writes} writes, alike {alike:g}", alike_writes(writes, alike, risk)
    yield "1 to 6 writes, more of them are worse", uneven_writes(risk)
    for part in PARTS:
        for mix in MIXES:
            yield f"shares 0, {part:g}, 1; {mix:g} of the risk between", between(part, mix, risk)


def let_through(
    distribution: Distribution, scenarios: int, budget: float, runs: int, rng: np.random.Generator
) -> float:
    """Return the percentage of runs in which a single tool may run unasked."""
    shares, odds = distribution
    counts = rng.multinomial(scenarios, odds, size=runs).astype(float)
    return 100 * float(np.mean(risk_p_values(counts, shares, budget) <= ALPHA))


def one_tool() -> Iterator[Row]:
    """Yield how often a tool exactly at the budget is let through; the worst setups once more."""
    cells = [
        (risk, n, setup, distribution)
        for risk in RISKS
        for n in scenario_numbers(risk)
        for setup, distribution in distributions(risk)
    ]
    rates = []
    for number, (risk, n, setup, distribution) in enumerate(cells):
        rng = np.random.default_rng([1, number])
        rates.append(let_through(distribution, n, risk, RUNS, rng))
        yield Row(
            what="at the budget",
            setup=setup,
            budget=risk,
            scenarios=n,
            runs=RUNS,
            percent=rates[-1],
        )
    for number in np.argsort(rates)[::-1][:MOST_AGAIN]:
        risk, n, setup, distribution = cells[number]
        rng = np.random.default_rng([2, int(number)])
        rate = let_through(distribution, n, risk, MORE_RUNS, rng)
        yield Row(
            what="at the budget, again",
            setup=setup,
            budget=risk,
            scenarios=n,
            runs=MORE_RUNS,
            percent=rate,
        )


def power() -> Iterator[Row]:
    """Yield how often a tool below the budget is let through."""
    for number, (true, n, (writes, alike)) in enumerate(
        (true, n, kind)
        for true in (0.0, 0.001, 0.005, 0.01)
        for n in (149, 200, 300, 600, 1_000)
        for kind in ((1, 0.0), (3, 0.2), (3, 1.0))
    ):
        rng = np.random.default_rng([3, number])
        rate = let_through(alike_writes(writes, alike, true), n, 0.02, RUNS, rng)
        setup = f"true risk {100 * true:g} %, {writes} writes, alike {alike:g}"
        yield Row(what="power", setup=setup, budget=0.02, scenarios=n, runs=RUNS, percent=rate)


def several_tools() -> Iterator[Row]:
    """Yield how often any tool exactly at the budget is let through.

    The tools of a scenario are also alike: a hard scenario is hard for all of them. For some runs
    the decisions are those of `approvals_of`, which must be the same.
    """
    risk = 0.1
    for number, (tools, bad, n, (writes, alike), shared) in enumerate(
        (tools, bad, n, kind, shared)
        for tools, bad in ((3, 3), (10, 10), (10, 5), (25, 25), (100, 100))
        for n in (29, 46, 60, 90)
        for kind in ((1, 0.0), (3, 0.5))
        for shared in (0.0, 0.8)
    ):
        rng = np.random.default_rng([4, number])
        risks = np.where(np.arange(tools) < bad, risk, risk / 50)[:, None, None]
        counts = np.empty((RUNS, tools, writes + 1))
        for run in range(RUNS):
            own, common = rng.random((tools, n, writes)), rng.random((1, n, 1))
            own = np.where(rng.random((tools, n, 1)) < alike, own[:, :, :1], own)
            draws = np.where(rng.random((tools, n, 1)) < shared, common, own)
            wrong = (draws < risks).sum(axis=2)
            counts[run] = (wrong[:, :, None] == np.arange(writes + 1)).sum(axis=1)
        p_values = risk_p_values(
            counts.reshape(-1, writes + 1), np.arange(writes + 1) / writes, risk
        ).reshape(RUNS, tools)
        safe = np.array([holm(row) for row in p_values.tolist()]) <= ALPHA
        for run in range(CHECKED):
            rows = approvals_of(evidence_of(counts[run].astype(int)), risk=risk).tools
            decided = {int(row.tool[1:]) for row in rows if row.decision is ApprovalDecision.RUN}
            if decided != {*np.flatnonzero(safe[run]).tolist()}:
                raise RuntimeError(f"approvals_of decides otherwise: {decided}")
        setup = (
            f"{tools} tools, {bad} of them at the budget, {writes} writes, alike {alike:g}, "
            f"scenarios alike {shared:g}"
        )
        percent = 100 * float(safe[:, :bad].any(axis=1).mean())
        yield Row(
            what="several tools",
            setup=setup,
            budget=risk,
            scenarios=n,
            runs=RUNS,
            percent=percent,
        )


def evidence_of(counts: NDArray[np.int64]) -> Evidence:
    """Return the evidence for the number of scenarios (column: wrong writes) of each tool (row)."""
    writes = counts.shape[1] - 1
    return Evidence(
        proposals=tuple(
            Proposal(tool=f"t{tool}", cluster=f"s{wrong}-{each}", is_wrong=number < wrong)
            for tool, row in enumerate(counts.tolist())
            for wrong, times in enumerate(row)
            for each in range(times)
            for number in range(writes)
        ),
        turns=1,
    )


def thresholds() -> Iterator[Row]:
    """Yield how often a threshold is accepted although calls above it are worse than the budget.

    A write with certainty u, from 0 to 1, is wrong with the probability worst * (1 - u) ** steep.
    The scenarios have a share of certainty in common. True risks are those of a large sample.
    """
    budget = 0.05
    for number, (worst, steep, n, writes) in enumerate(
        (worst, steep, n, writes)
        for worst, steep in ((0.06, 0.0), (0.12, 1.0), (0.3, 2.0), (0.5, 8.0), (0.06, 0.1))
        for n, writes in ((150, 1), (400, 1), (400, 3))
    ):
        rng = np.random.default_rng([5, number])
        large = certain_writes(rng, 200_000, writes, worst, steep)
        broken = claimed = 0
        saved = []
        for _ in range(RUNS):
            sure, wrong = certain_writes(rng, n, writes, worst, steep)
            proposals = tuple(
                Proposal(
                    tool="t",
                    cluster=f"s{s}",
                    is_wrong=bool(wrong[s, w]),
                    min_logprob=float(log(sure[s, w])),
                )
                for s in range(n)
                for w in range(writes)
            )
            row = approvals_of(Evidence(proposals=proposals, turns=1), risk=budget).tools[0]
            if row.decision is ApprovalDecision.RUN:
                broken += true_risk(large, 0.0) > budget
            elif row.decision is ApprovalDecision.RUN_ABOVE and row.threshold is not None:
                broken += true_risk(large, float(np.exp(row.threshold.above))) > budget
                claimed += 1
                saved.append(row.threshold.saved.rate or 0.0)
        setup = f"wrong {worst:g} * (1 - u)^{steep:g}, {writes} writes"
        for what, value in (
            ("threshold, budget broken", broken),
            ("threshold, one found", claimed),
        ):
            yield Row(
                what=what,
                setup=setup,
                budget=budget,
                scenarios=n,
                runs=RUNS,
                percent=100 * value / RUNS,
            )
        mean = 100 * float(np.mean(saved)) if saved else 0.0
        yield Row(
            what="threshold, cards saved",
            setup=setup,
            budget=budget,
            scenarios=n,
            runs=RUNS,
            percent=mean,
        )


def certain_writes(
    rng: np.random.Generator, scenarios: int, writes: int, worst: float, steep: float
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return certainty and wrongness of the writes (columns) of each scenario (row)."""
    common = rng.random((scenarios, 1))
    own = rng.random((scenarios, writes))
    sure = np.where(rng.random((scenarios, writes)) < 0.5, common, own)
    return np.maximum(sure, 1e-12), rng.random(sure.shape) < worst * (1 - sure) ** steep


def true_risk(large: tuple[NDArray[np.float64], NDArray[np.bool_]], above: float) -> float:
    """Return the mean over scenarios of the share of wrong writes above a certainty."""
    sure, wrong = large
    is_above = sure > above
    counts = is_above.sum(axis=1)
    shares = (wrong & is_above).sum(axis=1)[counts > 0] / counts[counts > 0]
    return float(shares.mean()) if len(shares) else 0.0


def main() -> None:
    """Simulate, write the rows, and print the highest and lowest of each kind."""
    path = Path(__file__).with_suffix(".csv")
    rows: list[Row] = []
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow([each.name for each in fields(Row)])
        for part in (one_tool, power, several_tools, thresholds):
            for row in part():
                rows.append(row)
                table.writerow(astuple(row))
            print(*summary(rows), sep="\n", flush=True)


def summary(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a line for each kind of setup: how many, the lowest, the mean and the highest."""
    for what in dict.fromkeys(row.what for row in rows):
        rates = [row.percent for row in rows if row.what == what]
        mean = sum(rates) / len(rates)
        least, most = min(rates), max(rates)
        yield f"{what}: {len(rates)} setups, {least:.2f} to {most:.2f} %, mean {mean:.2f} %"


if __name__ == "__main__":
    main()
