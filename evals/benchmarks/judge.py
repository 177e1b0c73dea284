"""Coverage of the corrected rate of a judge, and a run with a small model as judge.

python evals/benchmarks/judge.py                    # the simulation; writes judge.csv
python evals/benchmarks/judge.py http://127.0.0.1:8080 20   # a judge on a served model, 20 samples
"""

import asyncio
import sys
from itertools import product
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray

from lhkit import Run, Sample, add_scores, gold_model, judge, load_scenarios, replay
from lhkit.harness.figures.prediction_powered import corrected_limits
from lhkit.harness.figures.rates import wilson

RUNS = 2_000
SAMPLES = (400,)
RATES = (0.01, 0.03, 0.1, 0.3, 0.5, 0.8, 0.95, 0.99)
ERRORS = ((0.05, 0.05), (0.1, 0.2), (0.3, 0.1), (0.02, 0.4), (0.4, 0.4))
"""Shares of false yes among the true no, and of false no among the true yes."""
LABELS = (30, 50, 100, 200, 300)
FOLDER = Path(__file__).parent
DEV = FOLDER.parents[1] / "datasets" / "ac" / "dev"


def coverage(
    rng: np.random.Generator, samples: int, rate: float, errors: tuple[float, float], labels: int
) -> tuple[float, float, float]:
    """Return the percentages of intervals with the true rate: corrected, plain PPI, uncorrected."""
    false_yes, false_no = errors
    odds = [rate * (1 - false_no), rate * false_no, (1 - rate) * false_yes]
    counts = rng.multinomial(labels, [*odds, 1 - sum(odds)], size=RUNS).astype(float)
    yes = rng.binomial(samples - labels, odds[0] + odds[2], size=RUNS).astype(float)
    others = np.c_[yes, samples - labels - yes]
    _, low, high, _ = corrected_limits(counts, others)
    said = (counts[:, 0] + counts[:, 2] + yes).astype(int)
    naive = [rate in wilson(int(hits), samples) for hits in said]
    return (
        100 * float(np.mean((low <= rate) & (rate <= high))),
        100 * float(np.mean(plain(counts, others, rate))),
        100 * float(np.mean(naive)),
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
    """Print and write the coverage by labels and by rate."""
    rng = np.random.default_rng(0)
    rows = []
    for samples, rate, errors, labels in product(SAMPLES, RATES, ERRORS, LABELS):
        values = coverage(rng, samples, rate, errors, labels)
        rows.append((samples, rate, *errors, labels, *(round(value, 2) for value in values)))
    head = "samples,rate,false_yes,false_no,labels,corrected,plain_ppi,uncorrected"
    lines = [head, *(",".join(map(str, row)) for row in rows)]
    (FOLDER / "judge.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name, column, keys in (("labels", 4, LABELS), ("true rate", 1, RATES), ("all", None, (0,))):
        print(f"| {name} | corrected: mean, lowest, highest | PPI, normal | uncorrected |")
        print("|---|---|---|---|")
        for key in keys:
            chosen = np.array([row[5:] for row in rows if column is None or row[column] == key])
            mean, least, most = chosen.mean(axis=0), chosen.min(axis=0), chosen.max(axis=0)
            corrected = f"{mean[0]:.1f}, {least[0]:.1f}, {most[0]:.1f}"
            print(f"| {key} | {corrected} | {mean[1]:.1f}, {least[1]:.1f} | {mean[2]:.1f} |")
    corrected = np.array([row[5] for row in rows])
    print(
        f"{len(rows)} setups of {RUNS:,} runs; from 94 to 96 %: "
        f"{100 * np.mean((corrected >= 94) & (corrected <= 96)):.0f} %, below 94 %: "
        f"{100 * np.mean(corrected < 94):.0f} %, above 96 %: "
        f"{100 * np.mean(corrected > 96):.0f} %"
    )


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
    print(run.summary().scores)
    print(run.agreement("wrote", {name: truth[name] for name in part}))
    print("true rate", sum(truth.values()) / len(truth))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(measure(sys.argv[1], int(sys.argv[2])))
    else:
        simulate()
