"""What the eval harness itself costs: CPU, beside inspect-ai, and memory. Run it with `make bench`.

One sample is a user turn with two model calls and one tool call, and a check of both call and
reply. The model is a script, so that what is left is the harness: dispatch, record, score, write.
CPU is user and system time of the whole process, because a shared machine's wall clock says little;
ours and inspect-ai's are taken in turns, and the ratio is the median of the rounds' ratios.
"""

import argparse
import asyncio
import hashlib
import json
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from lhkit.chat.controller import Assistant
from lhkit.harness.matching import match_calls
from lhkit.harness.record import Verdict
from lhkit.harness.runner import replay
from lhkit.harness.script import Expect, ExpectedCall, ExpectedReply, Scenario, Turn
from lhkit.models.scripted import ScriptedModel, call, say
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry
from lhkit.vocab.json_values import JSON
from lhkit.vocab.results import ToolOk

HERE = Path(__file__).parent
RESULTS = HERE / "harness_cost.md"
REQUIREMENTS = HERE / "requirements-inspect.txt"

TURNS_A_SAMPLE = 2
ROUNDS = 5
OUR_SAMPLES = 1_000
INSPECT_SAMPLES = 200
MATCHES = 20_000
SIZES = (1_000, 5_000, 10_000)
SCENARIOS = 100

GOALS = {"cpu_ms": 1.0, "ratio": 20.0, "matches": 20_000.0}

ADD = ToolRegistry(
    [
        ToolDefinition(
            name="add",
            description="Add two numbers",
            parameters={
                "type": "object",
                "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
                "required": ["x", "y"],
            },
            handler=lambda args, _deps: ToolOk({"sum": args["x"] + args["y"]}),
        )
    ]
)


class Session:
    """A world without a state."""

    registry = ADD
    assistant = Assistant(instructions="Add numbers.")
    today = date(2026, 1, 1)

    def state(self) -> Mapping[str, JSON]:
        """Return nothing: there are no tables."""
        return {}

    def close(self) -> None:
        """Release nothing."""


class Environment:
    """Opens such worlds."""

    def open(self, _world: Mapping[str, Any], _locale: str) -> Session:
        """Return a new one."""
        return Session()


def scenarios(count: int) -> list[Scenario]:
    """Return so many scenarios: one call is due, and a sum in words."""
    return [
        Scenario(
            id=f"sum-{n}",
            ac="AC-1",
            turns=(
                Turn(
                    user=f"what is {n} + 1?",
                    expect=Expect(
                        calls=(ExpectedCall(tool="add", args={"x": n, "y": 1}, result="ok"),)
                    ),
                    reply=ExpectedReply(contains_any=("the sum",)),
                ),
            ),
        )
        for n in range(count)
    ]


def answering(scenario: Scenario, _registry: ToolRegistry) -> ScriptedModel:
    """Return the model of one sample."""
    n = int(scenario.id.removeprefix("sum-"))
    return ScriptedModel([call("add", x=n, y=1), say("the sum is there")])


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A run's cost: CPU seconds, and the process's largest resident memory so far."""

    cpu_s: float
    peak_mib: float


def play(count: int, repeats: int = 1) -> Played:
    """Replay and write `count` scenarios `repeats` times, and check that all passed."""
    asked = scenarios(count)
    with tempfile.TemporaryDirectory() as folder:
        started_s = time.process_time()
        run = asyncio.run(
            replay(
                asked,
                answering,
                environment=Environment(),
                run_dir=Path(folder) / "run",
                repeats=repeats,
                keep_records=repeats == 1,
                concurrency=8,
                progress=False,
            )
        )
        cpu_s = time.process_time() - started_s
        if any(record.verdict is not Verdict.PASS for record in run.records):
            raise AssertionError("a sample did not pass")
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Played(cpu_s=cpu_s, peak_mib=peak_kib / 1024)


def ours_ms() -> float:
    """Return CPU milliseconds per sample."""
    return 1000 * play(OUR_SAMPLES).cpu_s / OUR_SAMPLES


def matches_per_s() -> float:
    """Return how many one-call samples are matched in a second of CPU."""
    wanted = [{"tool": "add", "args": {"x": 1, "y": 2}}]
    schemas = {"add": ADD["add"].parameters}
    started_s = time.process_time()
    for _ in range(MATCHES):
        if not match_calls(wanted, wanted, schemas=schemas).matched:
            raise AssertionError("the same call did not match")
    return MATCHES / (time.process_time() - started_s)


def in_a_fresh_process(samples: int) -> Played:
    """Return what a run of so many samples costs in a process that did nothing else."""
    line = [sys.executable, __file__, "--samples", str(samples)]
    done = subprocess.run(line, capture_output=True, text=True, check=True)  # noqa: S603 - ourselves
    return Played(**json.loads(done.stdout))


def inspect_python() -> Path:
    """Return the Python of inspect-ai's environment, made at the first run (about a minute)."""
    pins = REQUIREMENTS.read_bytes()
    folder = user_cache_path("lhkit") / "benchmarks" / hashlib.sha256(pins).hexdigest()[:12]
    python, finished = folder / "bin" / "python", folder / "installed"
    if not finished.exists():
        print(f"making {folder}", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        subprocess.run([*pip, "--no-deps", "-r", str(REQUIREMENTS)], check=True)  # noqa: S603 - ourselves
        finished.touch()
    return python


def inspect_ms(python: Path) -> dict[str, Any]:
    """Return inspect-ai's CPU milliseconds per sample by mode, and its version."""
    script = HERE / "inspect_sample.py"
    line = [str(python), str(script), "--samples", str(INSPECT_SAMPLES)]
    done = subprocess.run(line, capture_output=True, text=True, check=True)  # noqa: S603 - ourselves
    modes = [json.loads(each) for each in done.stdout.splitlines() if each.startswith("{")]
    found: dict[str, Any] = {each["mode"]: each["cpu_ms_per_sample"] for each in modes}
    return {**found, "version": modes[0]["version"]}


def slope(sizes: Sequence[int], values: Sequence[float]) -> float:
    """Return the least-squares slope of `values` over `sizes`."""
    return statistics.linear_regression(sizes, values).slope


def report() -> str:
    """Measure everything and return the page."""
    python = inspect_python()
    play(100)  # imports, caches
    rounds = [(ours_ms(), inspect_ms(python)) for _ in range(ROUNDS)]
    ours = statistics.median(mine for mine, _ in rounds)
    rows = []
    for mode in ("default", "quickest"):
        theirs = statistics.median(other[mode] for _, other in rounds)
        ratio = statistics.median(other[mode] / mine for mine, other in rounds)
        rows.append(f"| {mode} | {ours:.2f} | {theirs:.1f} | {ratio:.0f} × |")
    matched = statistics.median(matches_per_s() for _ in range(ROUNDS))
    grown = [in_a_fresh_process(samples) for samples in SIZES]
    memory = [
        f"| {samples:,} | {each.peak_mib:.0f} | {1000 * each.cpu_s / samples:.2f} |"
        for samples, each in zip(SIZES, grown, strict=True)
    ]
    a_sample_kib = 1024 * slope(SIZES, [each.peak_mib for each in grown])
    setting = (
        f"`make bench` · Python {platform.python_version()} · inspect-ai {rounds[0][1]['version']} "
        f"· medians of {ROUNDS} rounds"
    )
    return "\n".join(
        [
            "# Harness cost: lhkit's eval harness beside inspect-ai",
            "",
            f"{setting}. A sample is two model calls and one tool call, scored and written; the",
            "model is a script. CPU is user and system time of the process, milliseconds a sample.",
            "`default` is inspect-ai as it comes, `quickest` without its realtime log.",
            "",
            "| inspect-ai | lhkit CPU ms | inspect-ai CPU ms | ratio |",
            "|---|---|---|---|",
            *rows,
            "",
            f"- lhkit, a model turn: **{ours / TURNS_A_SAMPLE:.2f} ms** (goal {GOALS['cpu_ms']:g})",
            f"- ratio to inspect-ai: goal {GOALS['ratio']:g} ×",
            f"- `match_calls`, one call: **{matched:,.0f} a second** (goal {GOALS['matches']:,g})",
            "",
            f"Samples of {SCENARIOS} scenarios in a process of their own:",
            "",
            "| samples | peak memory MiB | CPU ms a sample |",
            "|---|---|---|",
            *memory,
            "",
            f"Memory grows by {a_sample_kib:.1f} KiB a sample.",
            "",
        ]
    )


def main() -> None:
    """Measure, print and write the page; or, as a child, one run only."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, help="one run of so many samples, as JSON")
    samples: int | None = parser.parse_args().samples
    if samples is not None:
        played = play(SCENARIOS, repeats=samples // SCENARIOS)
        print(json.dumps({"cpu_s": played.cpu_s, "peak_mib": played.peak_mib}))
        return
    text = report()
    print(text)
    RESULTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
