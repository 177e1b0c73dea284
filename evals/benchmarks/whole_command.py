"""What a person waits for: lhkit's commands and its panel, as CPU of whole processes.

A scripted sample is what 1,050 of them cost beyond 50, played by the gold model in life-helper's
own world (a database each) through `lhkit eval`, records written; inspect-ai's is its own scripted
sample (`inspect_sample.py`) in the same round. A warm kernel is a Python that has imported
ipykernel and ipywidgets. All take turns within one run. Run it with `make bench`.
"""

import platform
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import figures
import peers
import start_up
from figures import Figure, Machine, Measurement

ROUNDS = 5
FEW, MANY = 50, 1_050
PEER_SAMPLES = 200
SCENARIO = """
- id: habits
  ac: AC-5
  world: {now: "2026-06-15T09:00:00+09:00"}
  turns:
    - user: 지금 하고 있는 습관을 보여 줘
      expect: {calls: [{tool: list_habits}]}
      reply: {contains_any: [습관]}
"""
WARM = "import ipykernel.kernelapp, ipywidgets"
DEMO = f"{WARM}; from lhkit.notebook import demo_panel; demo_panel()"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """CPU seconds of each command, CPU milliseconds a sample: ours, and inspect-ai's."""

    gold_s: float
    demo_s: float
    help_s: float
    sample_ms: float
    inspect_ms: float


def gold_s(folder: Path, *, repeats: int = 1) -> float:
    """Return the CPU seconds of `lhkit eval --model gold` on one scenario."""
    file = folder / "one.yaml"
    file.write_text(SCENARIO, encoding="utf-8")
    with tempfile.TemporaryDirectory(dir=folder) as runs:
        line = [sys.executable, "-m", "lhkit", "eval", str(file), "--model", "gold"]
        return start_up.start([*line, "--repeats", str(repeats), "--runs-dir", runs]).cpu_s


def measure(rounds: int = ROUNDS) -> tuple[list[Round], str]:
    """Return the rounds, and inspect-ai's version."""
    python, version = peers.peer_python(peers.INSPECT), ""
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        gold_s(folder)  # page cache, bytecode
        for _ in range(rounds):
            modes = peers.told_by(python, "inspect_sample.py", "--samples", str(PEER_SAMPLES))
            version = modes[0]["version"]
            few_s, many_s = (gold_s(folder, repeats=each) for each in (FEW, MANY))
            warm_s, demo_s = (
                start_up.start([sys.executable, "-c", each]).cpu_s for each in (WARM, DEMO)
            )
            found.append(
                Round(
                    gold_s=gold_s(folder),
                    demo_s=demo_s - warm_s,
                    help_s=start_up.start([sys.executable, "-m", "lhkit", "--help"]).cpu_s,
                    sample_ms=1000 * (many_s - few_s) / (MANY - FEW),
                    inspect_ms=next(
                        each["cpu_ms_per_sample"] for each in modes if each["mode"] == "default"
                    ),
                )
            )
    return found, version


def found(rounds: Sequence[Round], version: str, machine: Machine) -> Measurement:
    """Return the figures: medians of the rounds."""

    def median(name: str) -> float:
        return statistics.median(getattr(each, name) for each in rounds)

    ratio = statistics.median(each.inspect_ms / each.sample_ms for each in rounds)
    return Measurement(
        title="The whole command: what a person waits for",
        command="python evals/benchmarks/whole_command.py",
        versions={"Python": platform.python_version(), "inspect-ai": version},
        figures=(
            Figure(
                what="`lhkit eval --model gold`, one scenario, CPU",
                value=median("gold_s"),
                unit="s",
                at_most=1.2,
            ),
            Figure(
                what="`demo_panel()` in a warm kernel, CPU",
                value=median("demo_s"),
                unit="s",
                at_most=1.5,
            ),
            Figure(what="`lhkit --help`, CPU", value=median("help_s"), unit="s"),
            Figure(
                what="a scripted sample through the whole command, CPU",
                value=median("sample_ms"),
                unit="ms",
                at_most=1.0,
            ),
            Figure(
                what="CPU a sample, inspect-ai, default: times lhkit's whole command",
                value=ratio,
                unit="×",
                at_least=20.0,
            ),
        ),
        machine=machine,
    )


def page(measurement: Measurement, rounds: int) -> str:
    """Return the page."""
    lines = [
        *figures.heading(measurement, f"medians of {rounds} rounds"),
        "CPU is user and system time of whole processes, everything in the page cache. A sample is",
        f"what {MANY:,} of them cost beyond {FEW} in `lhkit eval --model gold`, each in a world of",
        "life-helper's with a database of its own, records written. On a busy machine the CPU time",
        f"of all grows: the load was {measurement.machine.load:.1f} when this began.",
        "",
        *figures.goals(measurement.figures),
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure, print and write the page."""
    machine = figures.this_machine()
    rounds, version = measure()
    measurement = found(rounds, version, machine)
    figures.write("whole_command", page(measurement, len(rounds)), measurement)


if __name__ == "__main__":
    main()
