"""Collect the figures of all benchmarks into RESULTS.md; `make bench` runs it last.

Every benchmark writes its figures as JSON (`figures.py`). Missing ones are listed, and figures from
different machines are shown separately.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import figures
from figures import Machine, Measurement

ORDER = (
    "throughput",
    "harness_cost",
    "growth",
    "large_run",
    "dispatch_latency",
    "start_up",
    "main_job",
)
"""The benchmarks with figures, in the order of the page; others follow, by name."""

_TIMES = "CPU a sample at 2,000, times that at 500"
FELT = {
    "start_up": (
        "`lhkit --help`, CPU",
        "`lhkit eval --model gold` on one scenario, CPU",
        "`demo_panel()` in a warm kernel, CPU",
        *(
            f"{name}, CPU: times that of `import inspect_ai`"
            for name in (
                "`lhkit --help`",
                "`lhkit eval --model gold` on one scenario",
                "`demo_panel()` in a warm kernel",
            )
        ),
    ),
    "harness_cost": ("CPU a sample, lhkit", "CPU a sample, inspect-ai, default: times lhkit's"),
    "growth": (
        "CPU a sample at 10,000, times that at 1,000",
        "peak memory at 10,000 samples",
        "peak memory to drive 100,000 samples, times that of 1,000",
    ),
    "large_run": (
        *(
            f"{step}: {_TIMES}"
            for step in (
                *("load scenarios", "eval gold", "load run", "summary"),
                *("rescore", "compare", "lint"),
            )
        ),
        "HTML report of 20,000 samples",
    ),
    "throughput": tuple(
        f"output tokens a second, {n} at once: lhkit's share of vLLM's own benchmark"
        for n in (1, 8, 16, 32)
    ),
}
"""The figures that people feel, by benchmark: the table at the top of the page."""

ON_THE_MODEL = ("throughput", "main_job")
"""The benchmarks of `make bench-model`."""

COMMANDS = {
    "make bench": "all except those on the real Gemma, about 20 minutes on two cores",
    "make bench-model": "those on the real Gemma, in half an hour",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The figures of one benchmark and the stem of its files."""

    stem: str
    measurement: Measurement


def collect_results(folder: Path) -> tuple[list[Result], list[str]]:
    """Return the results in order, and the stems of missing benchmarks."""
    files = {path.stem: path for path in sorted(folder.glob("*.json"))}
    stems = [*ORDER, *(stem for stem in files if stem not in ORDER)]
    results = [
        Result(stem=stem, measurement=figures.read(files[stem])) for stem in stems if stem in files
    ]
    return results, [stem for stem in ORDER if stem not in files]


def render_page(results: Sequence[Result], missing: Sequence[str], others: Sequence[str]) -> str:
    """Return RESULTS.md.

    Args:
        results: the measured benchmarks.
        missing: stems of known benchmarks without figures.
        others: stems of pages without collected figures.
    """
    goals = [f.is_met for r in results for f in r.measurement.figures if f.is_met is not None]
    lines = [
        "# Results",
        "",
        "Written by `make bench` from the JSON figures of each benchmark; do not edit. Both sides",
        "of a ratio are measured alternately within one run, on the same work. Every peer has its",
        "own pinned environment (`requirements-*.txt`). The goals are lhkit's own.",
        "",
        f"**{sum(goals)} of {len(goals)} goals are met.**",
        "",
        *_commands(),
        *_machines(results),
        *_felt(results),
        *(line for result in results for line in _section(result.measurement)),
        *_missing(missing),
        *_others(others),
    ]
    return "\n".join(lines)


def _commands() -> list[str]:
    rows = (f"{line}  # {what}" for line, what in COMMANDS.items())
    return ["```console", *rows, "```", ""]


def _machines(results: Sequence[Result]) -> list[str]:
    """Return a table of the machines with their benchmarks."""
    by_machine: dict[Machine, list[Result]] = {}
    for result in results:
        by_machine.setdefault(replace(result.measurement.machine, load=0.0), []).append(result)
    return [
        "| machine | cores | memory | system | Python | benchmarks | load average before |",
        "|---|---|---|---|---|---|---|",
        *(_machine_row(machine, measured) for machine, measured in by_machine.items()),
        "",
        *_loaded(results),
    ]


def _loaded(results: Sequence[Result]) -> list[str]:
    """Return which benchmarks were measured while others used all cores."""
    machines = {result.stem: result.measurement.machine for result in results}
    stems = [stem for stem, machine in machines.items() if machine.load > 2 * machine.cores]
    if not stems:
        return []
    return [
        f"Measured while other work used all cores: {', '.join(stems)}. Seconds and milliseconds,",
        "of CPU as well, are then about twice those of an idle machine; ratios hold. Measure them",
        "again on an idle one.",
        "",
    ]


def _machine_row(machine: Machine, results: Sequence[Result]) -> str:
    loads = sorted(result.measurement.machine.load for result in results)
    cells = (
        machine.cpu,
        str(machine.cores),
        f"{machine.memory_gib:.0f} GiB",
        machine.system,
        machine.python,
        ", ".join(result.stem for result in results),
        f"{loads[0]:.1f} to {loads[-1]:.1f}",
    )
    return f"| {' | '.join(cells)} |"


def _felt(results: Sequence[Result]) -> list[str]:
    """Return the table of what people feel, with the command of each row."""
    marks = {True: "yes", False: "**no**", None: ""}
    measured = {
        (result.stem, figure.what): figure
        for result in results
        for figure in result.measurement.figures
    }
    rows = []
    for stem, names in FELT.items():
        for what in names:
            figure = measured.get((stem, what))
            cells = ("not measured", "", "")
            if figure is not None:
                value = figures.format_value(figure.value, figure.unit)
                cells = (value, figure.goal, marks[figure.is_met])
            rows.append(f"| {' | '.join((what, *cells, f'`{stem}.py`'))} |")
    return [
        "## What people feel",
        "",
        "| figure | measured | goal | met | script |",
        "|---|---|---|---|---|",
        *rows,
        "",
        "How work grows with turns, tools, replies, rows and calls is counted in operations, not",
        "in time: `pytest -m slow tests/laws/test_growth.py`. Times of a fresh machine, and of the",
        "tests: [fresh_machine](fresh_machine.md).",
        "",
    ]


def _section(measurement: Measurement) -> list[str]:
    versions = ", ".join(f"{name} {number}" for name, number in measurement.versions.items())
    return [
        f"## {measurement.title}",
        "",
        f"`{measurement.command}` · {versions}",
        "",
        *figures.format_table(measurement.figures),
        "",
        *(line for plot in measurement.plots for line in (f"![{plot.alt}]({plot.file})", "")),
        *(line for note in measurement.notes for line in (note, "")),
    ]


def _missing(stems: Sequence[str]) -> list[str]:
    by_command: dict[str, list[str]] = {}
    for stem in stems:
        command = "make bench-model" if stem in ON_THE_MODEL else "make bench"
        by_command.setdefault(command, []).append(f"`{stem}.py`")
    groups = (f"Not measured: {', '.join(names)} (`{how}`)." for how, names in by_command.items())
    return [line for group in groups for line in (group, "")]


def _others(stems: Sequence[str]) -> list[str]:
    if not stems:
        return []
    links = ", ".join(f"[{stem}]({stem}.md)" for stem in stems)
    return [f"Further measurements: {links}.", ""]


def pages_without_figures(folder: Path) -> list[str]:
    """Return the stems of pages without JSON figures."""
    stems = (path.stem for path in sorted(folder.glob("*.md")) if path.stem.islower())
    return [stem for stem in stems if not (folder / f"{stem}.json").exists()]


def main() -> None:
    """Collect the figures and write the page."""
    results, missing = collect_results(figures.HERE)
    text = render_page(results, missing, pages_without_figures(figures.HERE))
    (figures.HERE / "RESULTS.md").write_text(text, encoding="utf-8")
    print(f"evals/benchmarks/RESULTS.md: {len(results)} benchmarks, {len(missing)} not measured")


if __name__ == "__main__":
    main()
