"""Gathers what the benchmarks found into RESULTS.md; measures nothing. `make bench` calls it last.

Every benchmark leaves its figures as JSON (`figures.py`). What has not been
measured is said to be missing, and figures from different machines are told apart.
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
    "dispatch_latency",
    "start_up",
    "main_job",
)
"""The benchmarks with figures, in the order of the page; further ones come after, by name."""

ON_THE_MODEL = ("throughput", "main_job")
"""Those of `make bench-model`."""

COMMANDS = {
    "make bench": "all but those on the real Gemma, within ten minutes on two quiet cores",
    "make bench-model": "those on the real Gemma, in half an hour",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One benchmark's figures and the stem of its files."""

    stem: str
    measurement: Measurement


def gathered(folder: Path) -> tuple[list[Found], list[str]]:
    """Return what was measured, in order, and the stems of what was not."""
    there = {path.stem: path for path in sorted(folder.glob("*.json"))}
    stems = [*ORDER, *(stem for stem in there if stem not in ORDER)]
    found = [
        Found(stem=stem, measurement=figures.read(there[stem])) for stem in stems if stem in there
    ]
    return found, [stem for stem in ORDER if stem not in there]


def page(found: Sequence[Found], missing: Sequence[str], others: Sequence[str]) -> str:
    """Return RESULTS.md.

    Args:
        found: what was measured.
        missing: stems of known benchmarks without figures.
        others: stems of pages that have no figures to gather.
    """
    judged = [f.holds for each in found for f in each.measurement.figures if f.holds is not None]
    lines = [
        "# Results",
        "",
        "Written by `make bench` from the figures that each benchmark leaves as JSON; do not",
        "edit. A ratio is taken within one run, both sides in turns on the same work; every",
        "peer has a pinned environment of its own (`requirements-*.txt`). Goals without a source",
        "are ours.",
        "",
        f"**{sum(judged)} of {len(judged)} goals hold.**",
        "",
        *_commands(),
        *_machines(found),
        *(line for each in found for line in _section(each)),
        *_missing(missing),
        *_others(others),
    ]
    return "\n".join(lines)


def _commands() -> list[str]:
    rows = (f"{line}  # {what}" for line, what in COMMANDS.items())
    return ["```console", *rows, "```", ""]


def _machines(found: Sequence[Found]) -> list[str]:
    """Return where things were measured: one line a machine, with what was measured there."""
    places: dict[Machine, list[Found]] = {}
    for each in found:
        places.setdefault(replace(each.measurement.machine, load=0.0), []).append(each)
    return [
        "| machine | cores | memory | system | Python | measured there | load average before |",
        "|---|---|---|---|---|---|---|",
        *(_machine_row(machine, there) for machine, there in places.items()),
        "",
    ]


def _machine_row(machine: Machine, there: Sequence[Found]) -> str:
    loads = sorted(each.measurement.machine.load for each in there)
    cells = (
        machine.cpu,
        str(machine.cores),
        f"{machine.memory_gib:.0f} GiB",
        machine.system,
        machine.python,
        ", ".join(each.stem for each in there),
        f"{loads[0]:.1f} to {loads[-1]:.1f}",
    )
    return f"| {' | '.join(cells)} |"


def _section(each: Found) -> list[str]:
    told = each.measurement
    versions = ", ".join(f"{name} {number}" for name, number in told.versions.items())
    return [
        f"## {told.title}",
        "",
        f"`{told.command}` · {versions}",
        "",
        *figures.goals(told.figures),
        "",
        *(line for plot in told.plots for line in (f"![{plot.alt}]({plot.file})", "")),
        *(line for note in told.notes for line in (note, "")),
    ]


def _missing(stems: Sequence[str]) -> list[str]:
    told: dict[str, list[str]] = {}
    for stem in stems:
        command = "make bench-model" if stem in ON_THE_MODEL else "make bench"
        told.setdefault(command, []).append(f"`{stem}.py`")
    groups = (f"Not measured here: {', '.join(names)} (`{how}`)." for how, names in told.items())
    return [line for group in groups for line in (group, "")]


def _others(stems: Sequence[str]) -> list[str]:
    if not stems:
        return []
    links = ", ".join(f"[{stem}]({stem}.md)" for stem in stems)
    return [f"Also measured, with pages of their own: {links}.", ""]


def pages_without_figures(folder: Path) -> list[str]:
    """Return the stems of the other benchmarks' pages, such as those on the real Gemma."""
    stems = (path.stem for path in sorted(folder.glob("*.md")) if path.stem.islower())
    return [stem for stem in stems if not (folder / f"{stem}.json").exists()]


def main() -> None:
    """Gather and write the page."""
    found, missing = gathered(figures.HERE)
    text = page(found, missing, pages_without_figures(figures.HERE))
    (figures.HERE / "RESULTS.md").write_text(text, encoding="utf-8")
    print(f"evals/benchmarks/RESULTS.md: {len(found)} benchmarks, {len(missing)} not measured")


if __name__ == "__main__":
    main()
