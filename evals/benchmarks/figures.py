"""The figures of a benchmark, stored as a JSON file next to its script.

`results.py` collects the JSON files into a page. Machines are described by their hardware and load,
never by name or path.
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
    """The machine of a measurement; `load` is the load average of the minute before."""

    cpu: str
    cores: int
    memory_gib: float
    system: str
    python: str
    load: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A measured value with its unit and, optionally, its goal."""

    what: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None

    @property
    def is_met(self) -> bool | None:
        """Whether the value meets its goal; None without a goal."""
        if self.at_least is None and self.at_most is None:
            return None
        low = self.at_least is None or self.value >= self.at_least
        return low and (self.at_most is None or self.value <= self.at_most)

    @property
    def goal(self) -> str:
        """The goal as text; empty without a goal."""
        bounds = (("at least", self.at_least), ("at most", self.at_most))
        return ", ".join(
            f"{word} {format_value(bound, self.unit)}"
            for word, bound in bounds
            if bound is not None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """An image file in the folder of the page, with its alternative text."""

    file: str
    alt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The result of one benchmark, with title and command for the page."""

    title: str
    command: str
    versions: dict[str, str]
    figures: tuple[Figure, ...]
    machine: Machine
    plots: tuple[Plot, ...] = ()
    notes: tuple[str, ...] = field(default=())


_FILE = TypeAdapter(Measurement)


def format_value(value: float, unit: str) -> str:
    """Format a number with its unit, to about three significant digits."""
    size = abs(value)
    digits = 0 if size >= 100 or value == int(value) else 1 if size >= 10 else 2
    number = f"{value:,.{digits}f}"
    return f"{number} {unit}".rstrip()


def describe_machine() -> Machine:
    """Return this machine and its load of the last minute."""
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
    """Return the CPU model in the text of Linux' /proc/cpuinfo, or an empty string."""
    lines = (line.partition(":") for line in cpuinfo.splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == "model name"), "")


def _system() -> str:
    kernel = f"{platform.system()} {platform.machine()}"
    try:
        return f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {kernel}"
    except (OSError, KeyError):
        return kernel


def write(stem: str, measurement: Measurement, folder: Path = HERE) -> None:
    """Write `stem.json`, and print the figures."""
    print("\n".join(format_table(measurement.figures)))
    (folder / f"{stem}.json").write_bytes(_FILE.dump_json(measurement, indent=1) + b"\n")


def read(path: Path) -> Measurement:
    """Read a JSON file that `write` has written.

    Raises:
        pydantic.ValidationError: the file has another format.
    """
    return _FILE.validate_json(path.read_bytes())


def format_table(figures: Sequence[Figure]) -> list[str]:
    """Return a Markdown table of the figures, with goals and whether they are met."""
    marks = {True: "yes", False: "**no**", None: ""}
    return [
        "| figure | measured | goal | met |",
        "|---|---|---|---|",
        *(
            f"| {f.what} | {format_value(f.value, f.unit)} | {f.goal} | {marks[f.is_met]} |"
            for f in figures
        ),
    ]
