"""Coverage of the corrected rate of a judge, and a run with a small model as judge.

python evals/benchmarks/judge.py                    # the simulation; writes judge.csv
python evals/benchmarks/judge.py http://127.0.0.1:8080 20   # a judge on a served model, 20 samples
"""

import asyncio
import sys
from itertools import product
from pathlib import Path
from random import Random
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lhkit import Run, Sample, add_scores, gold_model, judge, load_scenarios, replay
from lhkit.base.locales import load_catalog
from lhkit.harness.figures.prediction_powered import corrected_limits
from lhkit.harness.figures.rates import wilson
from lhkit.harness.views.agreement import agreement_lines
from lhkit.harness.views.scores import figure_lines

RUNS, MORE_RUNS = 2_000, 10_000
SAMPLES = (400, 10_000)
RATES = (0.01, 0.03, 0.1, 0.3, 0.5, 0.8, 0.95, 0.99)
ERRORS = ((0.05, 0.05), (0.1, 0.2), (0.3, 0.1), (0.02, 0.4), (0.4, 0.4), (0.0, 0.3), (0.3, 0.0))
"""Shares of false yes among the true no, and of false no among the true yes."""
LABELS = (30, 50, 100, 200, 300)
FOLDER = Path(__file__).parent
DEV = FOLDER.parents[1] / "datasets" / "ac" / "dev"


Setup: TypeAlias = tuple[int, float, tuple[float, float], int]
"""Samples, the true rate, the judge's errors, labels."""


def coverage(rng: np.random.Generator, setup: Setup, runs: int) -> tuple[float, ...]:
    """Return percentages of intervals with the true rate: corrected, plain PPI, uncorrected.

    The last number is the mean width of the corrected ones, in widths of the normal interval of the
    best estimate if all parameters were known.
    """
    samples, rate, (false_yes, false_no), labels = setup
    odds = [rate * (1 - false_no), rate * false_no, (1 - rate) * false_yes]
    counts = rng.multinomial(labels, [*odds, 1 - sum(odds)], size=runs).astype(float)
    yes = rng.binomial(samples - labels, odds[0] + odds[2], size=runs).astype(float)
    others = np.c_[yes, samples - labels - yes]
    _, low, high, _ = corrected_limits(counts, others)
    said = (counts[:, 0] + counts[:, 2] + yes).astype(int)
    naive = [rate in wilson(int(hits), samples) for hits in said]
    shared = (odds[0] - rate * (odds[0] + odds[2])) ** 2
    shared /= (odds[0] + odds[2]) * (1 - odds[0] - odds[2])
    variance = (rate * (1 - rate) - shared) / labels + shared / samples
    return (
        100 * float(np.mean((low <= rate) & (rate <= high))),
        100 * float(np.mean(plain(counts, others, rate))),
        100 * float(np.mean(naive)),
        float(np.mean(high - low)) / (2 * 1.959964 * variance**0.5),
    )


def plain(
    counts: NDArray[np.float64], others: NDArray[np.float64], rate: float
) -> NDArray[np.bool_]:
    """Return whether the normal interval of the first paper contains a rate."""
    n, more = counts.sum(axis=1), others.sum(axis=1)
    said = others[:, 0] / more
    error = (counts[:, 1] - counts[:, 2]) / n
    spread = (counts[:, 1] + counts[:, 2]) / n - error**2
    reach = 1.959964 * np.sqrt(spread / n + said * (1 - said) / more)
    contains: NDArray[np.bool_] = np.abs(said + error - rate) <= reach
    return contains


def simulate() -> None:
    """Print and write the coverage by labels and by rate, and again that of the lowest setups."""
    rng = np.random.default_rng(0)
    setups = list(product(SAMPLES, RATES, ERRORS, LABELS))
    found = np.array([coverage(rng, setup, RUNS) for setup in setups])
    lines = ["samples,rate,false_yes,false_no,labels,corrected,plain_ppi,uncorrected,width"]
    for (samples, rate, errors, labels), values in zip(setups, found, strict=True):
        shown = (round(float(value), 2) for value in values)
        lines.append(",".join(map(str, (samples, rate, *errors, labels, *shown))))
    (FOLDER / "judge.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name, place, keys in (("samples", 0, SAMPLES), ("labels", 3, LABELS), ("rate", 1, RATES)):
        print(f"| {name} | corrected: mean, lowest, highest | width | PPI, normal | uncorrected |")
        print("|---|---|---|---|---|")
        for key in keys:
            chosen = found[[setup[place] == key for setup in setups]]
            mean, least, most = chosen.mean(axis=0), chosen.min(axis=0), chosen.max(axis=0)
            corrected = f"{mean[0]:.1f}, {least[0]:.1f}, {most[0]:.1f} | {mean[3]:.2f}"
            print(f"| {key:,} | {corrected} | {mean[1]:.1f}, {least[1]:.1f} | {mean[2]:.1f} |")
    of = f"of {len(setups)} setups of {RUNS:,} data sets"
    for text, share in (("below 94", found[:, 0] < 94), ("above 96", found[:, 0] > 96)):
        print(f"{text} %: {100 * np.mean(share):.0f} % {of}")
    print(f"the lowest again, {MORE_RUNS:,} data sets:")
    for number in np.argsort(found[:, 0])[:10]:
        again = coverage(rng, setups[number], MORE_RUNS)
        print(f"| {setups[number]} | {found[number, 0]:.1f} | {again[0]:.1f} |")


def wrote(sample: Sample) -> bool:
    """Return the true answer to the judge's question."""
    return any(call.writes and call.run is not None for call in sample.calls)


async def measure(address: str, samples: int) -> None:
    """Print how a served model judges whether the assistant changed data in some samples."""
    scenarios = Random(0).sample(load_scenarios([DEV]), samples)
    run: Run = await replay(scenarios, gold_model, progress=False)
    question = "Did the assistant add, change or delete data in this conversation?"
    run = await add_scores(run, [judge(address, question, name="wrote", concurrency=1)])
    truth = {sample.id: wrote(sample) for sample in run.samples}
    part = Random(0).sample(sorted(truth), 3 * samples // 4)
    catalog = load_catalog("en")
    print(f"true rate: {sum(truth.values())}/{len(truth)}")
    print("\n".join(figure_lines(run.summary().scores, catalog)))
    found = run.agreement("wrote", {name: truth[name] for name in part})
    print("\n".join(agreement_lines(found, catalog)))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(measure(sys.argv[1], int(sys.argv[2])))
    else:
        simulate()
