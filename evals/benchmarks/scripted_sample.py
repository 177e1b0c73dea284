"""The scripted sample that every harness is measured with, on lhkit.

One user turn with two model calls and one tool call, and a check of both call and reply. The model
is a script, so that only the harness is measured: dispatch, record, score, write. The same sample
on the peers is `inspect_sample.py` and `pydantic_sample.py`.
"""

import asyncio
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from lhkit.base.json_values import JSON
from lhkit.chat.assistant import Assistant
from lhkit.conversation.tool_results import ToolOk
from lhkit.harness.records.record import Verdict, encode_record
from lhkit.harness.results.results import Run
from lhkit.harness.running.plan import PlannedSample
from lhkit.harness.running.run import EncodedRecord, replay
from lhkit.harness.scenarios.scenario import Expect, ExpectedCall, ExpectedReply, Scenario, Turn
from lhkit.models.recorded.scripted import ScriptedModel, call, say
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry


def _add(args: Mapping[str, Any], _deps: Any) -> ToolOk:
    return ToolOk({"sum": args["x"] + args["y"]})


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
            handler=_add,
        )
    ]
)


class Session:
    """A session without state."""

    registry = ADD
    assistant = Assistant(instructions="Add numbers.")
    today = date(2026, 1, 1)

    def state(self) -> Mapping[str, JSON]:
        """Return no tables."""
        return {}

    def close(self) -> None:
        """Do nothing."""


class Toolset:
    """Opens sessions without state."""

    def open(self, _world: Mapping[str, Any], _locale: str) -> Session:
        """Return a new session."""
        return Session()


def scenarios(count: int) -> list[Scenario]:
    """Return scenarios that each expect one call and a reply."""
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


def scripted_model(scenario: Scenario, _registry: ToolRegistry) -> ScriptedModel:
    """Return the model of one sample."""
    n = int(scenario.id.removeprefix("sum-"))
    return ScriptedModel([call("add", x=n, y=1), say("the sum is there")])


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """CPU (user and system) and wall seconds, and the peak memory of the process."""

    cpu_s: float
    wall_s: float
    peak_mib: float


def play(count: int, folder: Path, *, repeats: int = 1) -> Cost:
    """Replay `count` scenarios `repeats` times into a new run folder, and check that all passed."""
    samples = scenarios(count)
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    run = asyncio.run(
        replay(
            samples,
            scripted_model,
            toolset=Toolset(),
            run_dir=folder,
            repeats=repeats,
            keep_records=repeats == 1,
            concurrency=8,
            progress=False,
        )
    )
    cost = Cost(
        cpu_s=time.process_time() - cpu_s, wall_s=time.perf_counter() - wall_s, peak_mib=peak_mib()
    )
    if any(record.score.verdict is not Verdict.PASS for record in run.records):
        raise AssertionError("a sample did not pass")
    return cost


class PreparedSamples:
    """Runs no sample: its record is that of its scenario in a run without repeats."""

    status = ""

    def __init__(self, run: Run) -> None:
        self._lines = {
            record.sample_id.scenario: (encode_record(record), record.content_hash)
            for record in run.records
        }

    async def warm_up(self, _samples: Sequence[PlannedSample]) -> int:
        """Do nothing."""
        return 0

    async def run_sample(self, sample: PlannedSample, _attempt: int) -> EncodedRecord:
        """Return the record at once."""
        await asyncio.sleep(0)
        line, content_hash = self._lines[sample.scenario.id]
        line = line.replace('"repeat":0', f'"repeat":{sample.repeat}', 1)
        line = line.replace(content_hash, sample.content_hash, 1)
        return EncodedRecord(line=line, verdict=Verdict.PASS)


def drive(count: int, folder: Path, *, repeats: int) -> Cost:
    """Drive a run without playing its samples: plan, journal and memory are what is left."""

    async def run(name: str, repeats: int, runner: PreparedSamples | None) -> Run:
        return await replay(
            scenarios(count),
            scripted_model,
            toolset=Toolset(),
            run_dir=folder / name,
            repeats=repeats,
            runner=runner,
            concurrency=8,
            progress=False,
        )

    played = asyncio.run(run("played", 1, None))
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    driven = asyncio.run(run("driven", repeats, PreparedSamples(played)))
    cost = Cost(
        cpu_s=time.process_time() - cpu_s, wall_s=time.perf_counter() - wall_s, peak_mib=peak_mib()
    )
    if len(driven.records) != count * repeats:
        raise AssertionError(f"{len(driven.records)} samples were recorded")
    return cost


def measure_ms(samples: int) -> float:
    """Return CPU milliseconds per sample of a temporary run."""
    with tempfile.TemporaryDirectory() as folder:
        return 1000 * play(samples, Path(folder) / "run").cpu_s / samples


def summarize(folder: Path, samples: int) -> Cost:
    """Load and summarize a run as `lhkit report` does, and check that no sample is missing."""
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    summary = Run.load(folder).summary()
    cost = Cost(
        cpu_s=time.process_time() - cpu_s, wall_s=time.perf_counter() - wall_s, peak_mib=peak_mib()
    )
    if summary.total.passed != samples:
        raise AssertionError(f"{summary.total.passed} of {samples} samples were read")
    return cost


def peak_mib() -> float:
    """Return the peak resident memory of this process.

    Read from /proc, since with `getrusage` a child starts with the peak of its parent.
    """
    return peak_of(Path("/proc/self/status").read_text(encoding="utf-8"))


def peak_of(status: str) -> float:
    """Return the MiB of `VmHWM` in the text of Linux' /proc/PID/status."""
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024
