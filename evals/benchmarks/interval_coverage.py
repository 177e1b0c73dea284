"""How often lhkit's intervals of clustered shares and differences hold the truth: a simulation.

    python evals/benchmarks/interval_coverage.py      # writes interval_coverage.md; some minutes

Repeats of a scenario pass with a chance of their own, drawn from a beta distribution: `alike` is
the ICC, 0 for independent tries, 1 for repeats that always agree. No server, no model.
"""

from pathlib import Path

import numpy as np

from lhkit.harness.statistics import clustered_interval, difference_interval

CLUSTERS = (10, 14, 40, 168)
REPEATS = (2, 3, 5)
RATES = (0.02, 0.05, 0.1, 0.3, 0.5, 0.9, 0.95, 0.98)
ALIKE = (0.0, 0.2, 0.5, 0.9, 1.0)
CHANGES = ((0.0, 0.0), (0.02, 0.0), (0.02, 0.1), (0.1, 0.1), (0.5, 0.0), (0.45, 0.45), (0.02, 0.9))
TRIES = 1_500
LEAST = 0.93
PAGE = Path(__file__).with_name("interval_coverage.md")


def share_coverage(
    clusters: int, repeats: int, rate: float, alike: float, *, tries: int = TRIES
) -> float:
    """Return the share of intervals that hold `rate`."""
    rng = np.random.default_rng(clusters * 100 + repeats)
    chances = _chances(rng, (rate, 1 - rate), alike, (tries, clusters))[..., 0]
    sizes = [repeats] * clusters
    rows = rng.binomial(repeats, chances)
    return float(np.mean([rate in clustered_interval(row.tolist(), sizes) for row in rows]))


def difference_coverage(
    clusters: int, repeats: int, gain: float, loss: float, alike: float, *, tries: int = TRIES
) -> float:
    """Return the share of intervals that hold `gain` - `loss`."""
    rng = np.random.default_rng(clusters * 100 + repeats)
    chances = _chances(rng, (gain, loss, 1 - gain - loss), alike, (tries, clusters))
    held = 0
    for row in rng.multinomial(repeats, chances):
        gains = [[1] * up + [-1] * down + [0] * same for up, down, same in row.tolist()]
        found = difference_interval(gains)
        held += found is not None and found.low - 1e-12 <= gain - loss <= found.high + 1e-12
    return held / tries


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


def main() -> None:
    """Simulate every cell and write the page."""
    shares = {
        (clusters, repeats, rate, alike): share_coverage(clusters, repeats, rate, alike)
        for clusters in CLUSTERS
        for repeats in REPEATS
        for rate in RATES
        for alike in ALIKE
    }
    changes = {
        (clusters, repeats, *change, alike): difference_coverage(clusters, repeats, *change, alike)
        for clusters in CLUSTERS
        for repeats in (1, *REPEATS)
        for change in CHANGES
        for alike in ALIKE
    }
    lines = ["# Do the intervals hold the truth?", ""]
    lines += [f"{TRIES:,} simulated runs a cell; 95 % is announced, {LEAST:.0%} the least wanted."]
    for title, cells in (("A share with repeats", shares), ("A paired difference", changes)):
        lowest = min(cells, key=lambda cell: cells[cell])
        below = sum(each < LEAST for each in cells.values())
        lines += [
            "",
            f"## {title}",
            "",
            "| clusters | lowest | mean | cells |",
            "|---|---|---|---|",
        ]
        for clusters in CLUSTERS:
            held = [each for cell, each in cells.items() if cell[0] == clusters]
            row = f"{min(held):.1%} | {np.mean(held):.1%} | {len(held)}"
            lines.append(f"| {clusters} | {row} |")
        lines += ["", f"Below {LEAST:.0%}: {below} of {len(cells)} cells. The lowest: {lowest}."]
    lines += ["", "Written by `python evals/benchmarks/interval_coverage.py`."]
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
