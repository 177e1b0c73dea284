"""What a benchmark found, as data in a JSON file beside it.

`results.py` gathers the JSON; nobody reads figures out of a page. A figure without a goal is told
and not judged. Machines are told by what matters for time; never by name or path.
"""

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from pydantic import TypeAdapter

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where something was measured; `load` is the load average of the minute before."""

    cpu: str
    cores: int
    memory_gib: float
    system: str
    python: str
    load: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number, with the bound it has to keep, if any; `unit` says what of."""

    what: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None

    @property
    def holds(self) -> bool | None:
        """Whether the value keeps its bounds; None without any."""
        if self.at_least is None and self.at_most is None:
            return None
        low = self.at_least is None or self.value >= self.at_least
        return low and (self.at_most is None or self.value <= self.at_most)

    @property
    def goal(self) -> str:
        """The bounds in words, empty without any."""
        bounds = (("at least", self.at_least), ("at most", self.at_most))
        return ", ".join(
            f"{word} {told(bound, self.unit)}" for word, bound in bounds if bound is not None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A picture beside the page, `file` being its name there, and what it shows in words."""

    file: str
    alt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What one benchmark found: `title` and `command` as the reader is told."""

    title: str
    command: str
    versions: dict[str, str]
    figures: tuple[Figure, ...]
    machine: Machine
    plots: tuple[Plot, ...] = ()
    notes: tuple[str, ...] = field(default=())


_FILE = TypeAdapter(Measurement)


def told(value: float, unit: str) -> str:
    """Return a number with its unit, with as many digits as it deserves."""
    size = abs(value)
    digits = 0 if size >= 100 or value == int(value) else 1 if size >= 10 else 2
    number = f"{value:,.{digits}f}"
    return f"{number} {unit}".rstrip()


def this_machine() -> Machine:
    """Return where this process runs, and how busy it was just before."""
    info = Path("/proc/cpuinfo")
    text = info.read_text(encoding="utf-8") if info.exists() else ""
    return Machine(
        cpu=cpu_model(text) or platform.machine(),
        cores=psutil.cpu_count() or 1,
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        system=_system(),
        python=platform.python_version(),
        load=round(os.getloadavg()[0], 1),
    )


def cpu_model(cpuinfo: str) -> str:
    """Return the model's name in the text of Linux' /proc/cpuinfo, empty if it has none."""
    lines = (line.partition(":") for line in cpuinfo.splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == "model name"), "")


def _system() -> str:
    kernel = f"{platform.system()} {platform.machine()}"
    try:
        return f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {kernel}"
    except (OSError, KeyError):
        return kernel


def write(stem: str, found: Measurement, folder: Path = HERE) -> None:
    """Write `stem.json`, and print the figures."""
    print("\n".join(goals(found.figures)))
    (folder / f"{stem}.json").write_bytes(_FILE.dump_json(found, indent=1) + b"\n")


def read(path: Path) -> Measurement:
    """Return the figures of a JSON file.

    Raises:
        pydantic.ValidationError: it was written by something else.
    """
    return _FILE.validate_json(path.read_bytes())


def goals(figures: Sequence[Figure]) -> list[str]:
    """Return a table of all figures, one with a goal also with whether it holds."""
    marks = {True: "yes", False: "**no**", None: ""}
    return [
        "| what | measured | goal | holds |",
        "|---|---|---|---|",
        *(f"| {f.what} | {told(f.value, f.unit)} | {f.goal} | {marks[f.holds]} |" for f in figures),
    ]
