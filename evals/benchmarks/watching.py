"""What it costs to watch a run while it plays, of the harness's own time.

The model is a script, so that all the time of a run is the harness's; the samples are those of
`harness_cost.py`. A run is watched in a terminal of 100 columns, and by a `RunWatch` in a real
Jupyter kernel. Taking a sample and drawing are timed in the run itself, and divided by the
run's own time: both slow down alike on a busy machine. Run it with `make bench`.
"""

import asyncio
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import figures
import nbformat
from figures import Figure, Machine, Measurement
from nbclient import NotebookClient
from rich.console import Console
from rich.live import Live
from scripted_sample import Toolset, answering, scenarios

from lhkit.commands.watch import screen
from lhkit.harness.rates import counted_interval
from lhkit.harness.run import replay
from lhkit.harness.watch import Watched, Watching
from lhkit.locales import load_catalog
from lhkit.notebook import RunWatch

GOAL_PERCENT = 2.0
SHAPES = ((1_000, 1), (4_000, 1), (500, 4))
"""Scenarios and repeats: the intervals of repeats take more."""

CELL = """
import sys, json
sys.path.insert(0, {here!r})
import watching
watching.load_intervals()
found = [await watching.in_notebook(*shape) for shape in watching.SHAPES]
print("FOUND" + json.dumps(found))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """One run that was watched: where, how large, and what it took."""

    where: str
    scenarios: int
    repeats: int
    spent_s: float
    drawn: int
    wall_s: float

    @property
    def percent(self) -> float:
        """What watching took of the run, in percent."""
        return 100 * self.spent_s / self.wall_s


async def played(count: int, repeats: int, watch: Callable[..., Any]) -> float:
    """Return the seconds of a run that is watched."""
    asked = scenarios(count)
    with tempfile.TemporaryDirectory() as folder:
        begun_s = time.perf_counter()
        await replay(
            asked,
            answering,
            toolset=Toolset(),
            run_dir=Path(folder) / "run",
            repeats=repeats,
            concurrency=8,
            progress=False,
            watch=watch,
        )
        return time.perf_counter() - begun_s


def in_terminal(count: int, repeats: int) -> Watch:
    """Return what watching took in a terminal that nobody reads."""
    catalog, folder = load_catalog("en"), Path("runs/mine")
    with Path(os.devnull).open("w", encoding="utf-8") as out:
        console = Console(file=out, force_terminal=True, width=100, height=50)
        with Live(console=console, auto_refresh=False) as live:
            watch = Watching(
                Watched(count * repeats),
                lambda state: live.update(screen(state, folder, catalog), refresh=True),
            )
            wall_s = asyncio.run(played(count, repeats, watch))
    return Watch(
        where="terminal",
        scenarios=count,
        repeats=repeats,
        spent_s=watch.spent_s,
        drawn=watch.drawn,
        wall_s=wall_s,
    )


async def in_notebook(count: int, repeats: int) -> dict[str, Any]:
    """Return what watching took in this kernel, as plain data."""
    watch = RunWatch(asked=count * repeats, locale="en")
    wall_s = await played(count, repeats, watch)
    return asdict(
        Watch(
            where="notebook",
            scenarios=count,
            repeats=repeats,
            spent_s=watch.spent_s,
            drawn=watch.drawn,
            wall_s=wall_s,
        )
    )


def load_intervals() -> None:
    """Load SciPy, as the table at the end of any run with repeats does."""
    counted_interval([1], [2])


def by_kernel() -> list[Watch]:
    """Return what watching took in a kernel of its own."""
    cell = nbformat.v4.new_code_cell(CELL.format(here=str(figures.HERE)))
    notebook = nbformat.v4.new_notebook(cells=[cell])
    NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    told = "".join(each.get("text", "") for each in notebook.cells[0].outputs)
    return [Watch(**each) for each in json.loads(told.split("FOUND")[1])]


def found(watches: list[Watch], machine: Machine) -> Measurement:
    """Return the figures."""
    rows = [
        Figure(
            what=f"{each.where}, {each.scenarios:,} × {each.repeats} samples",
            value=each.percent,
            unit="%",
            at_most=GOAL_PERCENT,
        )
        for each in watches
    ]
    return Measurement(
        title="Watching a run: what it costs of the harness's own time",
        command="python evals/benchmarks/watching.py",
        versions={
            "Python": platform.python_version(),
            "rich": version("rich"),
            "ipykernel": version("ipykernel"),
        },
        figures=tuple(rows),
        machine=machine,
    )


def page(watches: list[Watch], told: Measurement) -> str:
    """Return the page."""
    lines = [
        *figures.heading(told, "a scripted model, 8 conversations at a time"),
        "All of such a run is the harness's own time. What taking the samples and drawing took of",
        "it, both by the clock of the run itself:",
        "",
        *figures.goals(told.figures),
        "",
        "| where | samples | run | drawn | a sample |",
        "|---|---|---|---|---|",
        *(
            f"| {each.where} | {each.scenarios:,} × {each.repeats} | {each.wall_s:.2f} s "
            f"| {each.drawn} times "
            f"| {1e6 * each.spent_s / (each.scenarios * each.repeats):.1f} µs |"
            for each in watches
        ),
        "",
        "The kernel's own thread then hands a drawing to the page; a browser was not attached.",
        "With repeats the first drawing loads SciPy, once in a process, which the table at the end",
        "needs in any case: here it was loaded before.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure, print and write the page."""
    machine = figures.this_machine()
    load_intervals()
    watches = [in_terminal(*shape) for shape in SHAPES]
    watches += by_kernel()
    measurement = found(watches, machine)
    figures.write("watching", page(watches, measurement), measurement)


if __name__ == "__main__":
    main()
