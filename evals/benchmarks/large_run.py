"""Measure a large suite from its files to its reports: how CPU grows, and the size of the page.

Every step of 2,000 scenarios is compared with that of 500, in one process; then a run of 20,000
samples becomes an HTML page in a new process. The scenarios are those of `dev`, again under other
ids. Run it with `make bench`.
"""

import argparse
import asyncio
import gc
import json
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import figures
import peers
import yaml
from figures import Figure, Machine, Measurement
from scripted_sample import peak_mib

from lhkit.base.locales import load_catalog
from lhkit.harness.authoring.lint import lint
from lhkit.harness.authoring.reference import gold_model
from lhkit.harness.records.record import SampleRecord, Verdict, encode_record
from lhkit.harness.report.page import html_page
from lhkit.harness.results.compare import compare
from lhkit.harness.results.results import Run
from lhkit.harness.running.rescore import rescore
from lhkit.harness.running.run import replay
from lhkit.harness.scenarios.loader import load_scenarios, read_sources
from lhkit.lifehelper.shipped import scenario_paths
from lhkit.toolset import load

SIZES = (500, 2_000)
WARM_UP = 20
PAGE_SAMPLES = 20_000
FAILING = 3
"""One of so many samples of the page fails."""
GOAL_GROWTH = 1.5
GOAL_PAGE_MB = 10.0
GOAL_PAGE_MIB = 400.0


def write_scenarios(file: Path, count: int) -> None:
    """Write that many scenarios, those of `dev` again and again under other ids."""
    files = sorted(path for folder in scenario_paths("dev") for path in folder.rglob("*.yaml"))
    dev = [row for path in files for row in yaml.safe_load(path.read_text("utf-8"))]
    rows = ({**row, "id": f"{row['id']}-{n}"} for n, row in enumerate(islice(cycle(dev), count)))
    file.write_text("".join(f"{json.dumps(row, default=str)}\n" for row in rows), encoding="utf-8")


def measure_steps(count: int, folder: Path) -> dict[str, float]:
    """Return CPU milliseconds a sample of each step, on that many scenarios."""
    file, runs, toolset = folder / "many.jsonl", folder / "run", load("life-helper")
    write_scenarios(file, count)
    results: dict[str, float] = {}

    def step(name: str, work: Callable[[], Any]) -> Any:
        gc.collect()
        began_s = time.process_time()
        result = work()
        results[name] = 1000 * (time.process_time() - began_s) / count
        return result

    scenarios = step("load scenarios", lambda: load_scenarios([file]))
    step(
        "eval gold",
        lambda: asyncio.run(
            replay(
                scenarios,
                gold_model,
                toolset=toolset,
                run_dir=runs,
                keep_records=False,
                progress=False,
            )
        ),
    )
    run = step("load run", lambda: Run.load(runs))
    if run.summary().total.passed != count:
        raise AssertionError(f"{run.summary().total.passed} of {count} samples passed")
    step("summary", run.summary)
    step("rescore", lambda: rescore(run, scenarios, toolset))
    failing = replace(run, records=tuple(with_failures(run.records)))
    step("compare", lambda: compare(run, failing))
    step("lint", lambda: asyncio.run(lint(read_sources([file]), toolset)))
    return results


def with_failures(records: Iterable[SampleRecord]) -> Iterable[SampleRecord]:
    """Yield records of which one of `FAILING` fails."""
    for number, record in enumerate(records):
        if number % FAILING:
            yield record
        else:
            reasons = ("turn 0: the reply has none of 'x'",)
            score = replace(record.score, verdict=Verdict.FAIL, reasons=reasons)
            yield replace(record, score=score)


def write_run(source: Run, folder: Path) -> None:
    """Write a run of `PAGE_SAMPLES` samples: the records of a run again, as further scenarios."""
    folder.mkdir()
    records = with_failures(islice(cycle(source.records), PAGE_SAMPLES))
    with (folder / "records.jsonl").open("w", encoding="utf-8") as file:
        for number, record in enumerate(records):
            name = replace(record.sample_id, scenario=f"{record.sample_id.scenario}-{number}")
            file.write(f"{encode_record(replace(record, sample_id=name))}\n")


def measure_page(folder: Path) -> dict[str, float]:
    """Return size, CPU and memory of the HTML page of a run, besides loading it."""
    run = Run.load(folder)
    loaded_mib, began_s = peak_mib(), time.process_time()
    page = html_page(run, load_catalog("en"), name="large")
    return {
        "mb": len(page.encode()) / 1e6,
        "cpu_s": time.process_time() - began_s,
        "mib": peak_mib() - loaded_mib,
    }


def build_measurement(
    steps: Sequence[Mapping[str, float]], page: Mapping[str, float], machine: Machine
) -> Measurement:
    """Return the figures."""
    small, large = steps
    first, last = SIZES
    growth = [
        Figure(
            what=f"{name}: CPU a sample at {last:,}, times that at {first:,}",
            value=large[name] / small[name],
            unit="×",
            at_most=GOAL_GROWTH,
        )
        for name in large
    ]
    costs = [
        Figure(what=f"{name}: CPU a sample at {last:,}", value=large[name], unit="ms")
        for name in large
    ]
    samples = f"{PAGE_SAMPLES:,} samples"
    report = (
        Figure(what=f"HTML report of {samples}", value=page["mb"], unit="MB", at_most=GOAL_PAGE_MB),
        Figure(
            what=f"HTML report of {samples}: peak memory besides the loaded run",
            value=page["mib"],
            unit="MiB",
            at_most=GOAL_PAGE_MIB,
        ),
        Figure(what=f"HTML report of {samples}: CPU", value=page["cpu_s"], unit="s"),
    )
    return Measurement(
        title="A large suite: from its files to its reports",
        command="python evals/benchmarks/large_run.py",
        versions={"Python": platform.python_version()},
        figures=(*growth, *costs, *report),
        machine=machine,
        notes=(
            "The scenarios of `dev` under other ids, with the reference calls; a third of the "
            "samples of the page fails. `lhkit report RUN --all` writes a page of all samples.",
        ),
    )


def main() -> None:
    """Measure and write the figures; with `--page`, measure the page of one run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, help="measure the page of this run, as JSON")
    options = parser.parse_args()
    if options.page is not None:
        print(json.dumps(measure_page(options.page)))
        return
    machine = figures.describe_machine()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("warm", *map(str, SIZES)):
            (folder / part).mkdir()
        measure_steps(WARM_UP, folder / "warm")  # imports, caches
        steps = [measure_steps(size, folder / str(size)) for size in SIZES]
        write_run(Run.load(folder / str(SIZES[-1]) / "run"), folder / "page")
        (page,) = peers.run_script(
            sys.executable, Path(__file__).name, "--page", str(folder / "page")
        )
    figures.write("large_run", build_measurement(steps, page, machine))


if __name__ == "__main__":
    main()
