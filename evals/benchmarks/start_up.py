"""Measure the start-up time of lhkit and its commands, compared with the peers.

Every measurement is a new process; all alternate within one run, with cached bytecode and files in
the page cache. The lower bound is a Python that does nothing. Run it with `make bench`.
"""

import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace

import figures
import peers
from figures import Figure, Machine, Measurement

ROUNDS = 7
FLOOR, IMPORT, WHOLE, VERSION, COMMANDS, HELP, GOLD, KERNEL, PANEL = (
    "`python -c pass`",
    "`import lhkit`",
    "`import lhkit`, every name used",
    "`lhkit --version`",
    "`lhkit --help`",
    "`lhkit eval --help`",
    "`lhkit eval --model gold` on one scenario",
    "a warm kernel",
    "`demo_panel()` in a warm kernel",
)
YARDSTICK = "`import inspect_ai`"
GOALS = {IMPORT: 0.25, COMMANDS: 0.32, GOLD: 1.0, PANEL: 0.8}
"""The most CPU, relative to the yardstick, because machines differ by a factor of two and more.

They are 0.3, 0.4, 1.2 and 1.0 s where the yardstick takes 1.25 s, as it did on an idle machine.
"""
EVERY_NAME = "import lhkit; [getattr(lhkit, name) for name in lhkit.__all__]"
"""Loads all of lhkit, which otherwise imports modules lazily, unlike the peers."""
WARM = "import ipykernel.kernelapp"
"""What a Jupyter kernel has loaded before its first cell."""
FOLDER = "FOLDER"
"""Stands for a new folder each time, in a command."""
COMPARISONS = (
    ("`import pydantic_evals`", IMPORT, 1.0),
    ("`inspect --version`", VERSION, 1.0),
    ("`inspect eval` on one sample", GOLD, 1.0),
    ("`import pydantic_evals, pydantic_ai`", WHOLE, None),
    (YARDSTICK, WHOLE, None),
)
"""Command of a peer, command of lhkit, and minimum CPU of the peer relative to lhkit."""


def commands() -> dict[str, list[str]]:
    """Return the commands by their names in the table."""
    inspect, pydantic = (peers.peer_python(name) for name in (peers.INSPECT, peers.PYDANTIC_EVALS))
    lhkit = [sys.executable, "-m", "lhkit"]
    return {
        FLOOR: [sys.executable, "-c", "pass"],
        IMPORT: [sys.executable, "-c", "import lhkit"],
        WHOLE: [sys.executable, "-c", EVERY_NAME],
        VERSION: [*lhkit, "--version"],
        COMMANDS: [*lhkit, "--help"],
        HELP: [*lhkit, "eval", "--help"],
        GOLD: [*lhkit, "eval", "--model", "gold", "--limit", "1", "--runs-dir", FOLDER],
        KERNEL: [sys.executable, "-c", WARM],
        PANEL: [sys.executable, "-c", f"{WARM}; from lhkit.notebook import *; demo_panel()"],
        "`inspect eval` on one sample": [
            *(str(inspect), str(figures.HERE / "inspect_sample.py"), "--single")
        ],
        "`inspect --version`": [str(inspect.parent / "inspect"), "--version"],
        YARDSTICK: [str(inspect), "-c", "import inspect_ai"],
        "`import pydantic_evals`": [str(pydantic), "-c", "import pydantic_evals"],
        "`import pydantic_evals, pydantic_ai`": [
            *(str(pydantic), "-c", "import pydantic_evals, pydantic_ai")
        ],
    }


def measure_cpu_s(line: Sequence[str]) -> float:
    """Run a command, discard its output, and return its CPU time (user and system) in seconds.

    Raises:
        AssertionError: the command failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        words = [folder if word == FOLDER else word for word in line]
        child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise AssertionError(f"{' '.join(line)} exited with {child.returncode}")
    return usage.ru_utime + usage.ru_stime


def compare(cpu_s: dict[str, list[float]], name: str, base: str) -> Figure:
    """Return the CPU of a command relative to another's, as the median of the rounds."""
    pairs = zip(cpu_s[name], cpu_s[base], strict=True)
    ratio = statistics.median(measured / unit for measured, unit in pairs)
    return Figure(what=f"{name}, CPU: times that of {base}", value=ratio, unit="×")


def build_measurement(
    cpu_s: dict[str, list[float]], machine: Machine, versions: dict[str, str]
) -> Measurement:
    """Return the figures."""
    own = [
        Figure(
            what=f"{name}, CPU",
            value=statistics.median(cpu_s[name]),
            unit="s",
        )
        for name in (IMPORT, WHOLE, VERSION, COMMANDS, HELP, GOLD, PANEL, YARDSTICK)
    ]
    goals = [replace(compare(cpu_s, name, YARDSTICK), at_most=most) for name, most in GOALS.items()]
    comparisons = [
        replace(compare(cpu_s, other, mine), at_least=least) for other, mine, least in COMPARISONS
    ]
    return Measurement(
        title="Start-up: lhkit compared with inspect-ai and pydantic_evals",
        command="python evals/benchmarks/start_up.py",
        versions=versions,
        figures=(*own, *goals, *comparisons),
        machine=machine,
        notes=(
            "A new process each time, with all files in the page cache; CPU is user and system "
            "time. lhkit imports modules lazily, so the peers are also compared with loading all "
            "of it. Of `demo_panel()` it is that of a process with what a kernel has loaded, less "
            "that of the same process without it. Machines differ by a factor of two and more, so "
            "the goals are relative to what a Python of the same machine needs for "
            f"{YARDSTICK}: 1.25 s on an idle one, where they are 0.3, 0.4, 1.2 and 1.0 s.",
        ),
    )


def main() -> None:
    """Measure, and write the figures."""
    machine = figures.describe_machine()
    lines = commands()
    for line in lines.values():
        measure_cpu_s(line)  # page cache, bytecode
    cpu_s: dict[str, list[float]] = {name: [] for name in lines}
    for _ in range(ROUNDS):
        for name, line in lines.items():
            cpu_s[name].append(measure_cpu_s(line))
    cpu_s[PANEL] = [
        panel - kernel for panel, kernel in zip(cpu_s[PANEL], cpu_s[KERNEL], strict=True)
    ]
    measurement = build_measurement(cpu_s, machine, versions())
    figures.write("start_up", measurement)


def versions() -> dict[str, str]:
    """Return the versions of Python and of the peers in their environments."""
    result = {"Python": platform.python_version()}
    for name, package in ((peers.INSPECT, "inspect-ai"), (peers.PYDANTIC_EVALS, "pydantic-evals")):
        code = f"from importlib.metadata import version; print(version({package!r}))"
        line = [str(peers.peer_python(name)), "-c", code]
        result[package] = subprocess.run(
            line, stdout=subprocess.PIPE, text=True, check=True
        ).stdout.strip()
    return result


if __name__ == "__main__":
    main()
