"""What a sample over a world of 5 MB costs: processor time, and bytes of its record.

    python evals/benchmarks/large_world.py

A register of people (20,000 rows, 5 MB as JSON) is read once and written once; gold plays it
through the real controller, gate and dispatcher, with `replay` as in a notebook, and with the
thresholds of the collector that `lhkit eval` has. What came out stands in large_world.md.
"""

import asyncio
import gc
import json
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from lhkit import Assistant, Scenario, ToolOk, ToolRegistry, ToolResult
from lhkit.__main__ import COLLECTOR
from lhkit.harness.author.gold import gold_model
from lhkit.harness.record import Verdict
from lhkit.harness.run import replay

ROWS = 20_000
FEW, MANY = 2, 12
REGISTRY = ToolRegistry()
People = list[dict[str, Any]]


@REGISTRY.tool()
def count_people(city: str, deps: People) -> ToolResult:
    """Count the people of a city."""
    return ToolOk({"count": sum(person["city"] == city for person in deps)})


@REGISTRY.tool(destructive=True)
def move_person(person_id: str, city: str, deps: People) -> ToolResult:
    """Move a person to a city."""
    person = next(each for each in deps if each["id"] == person_id)
    person["city"] = city
    return ToolOk({"moved": person_id})


@dataclass
class Town:
    """A session: what its tools work on."""

    people: People
    registry: ToolRegistry = field(default_factory=lambda: REGISTRY)
    today: date = date(2026, 6, 15)

    @property
    def assistant(self) -> Assistant:
        """What the model is told."""
        return Assistant(instructions="You keep the register of a town.", deps=self.people)

    def state(self) -> Mapping[str, Any]:
        """Return all rows."""
        return {"people": self.people}

    def close(self) -> None:
        """Let go of nothing."""


class TownToolset:
    """Opens a town of the world's people."""

    name, locales = "town", ("en",)

    def open(self, world: Mapping[str, Any], locale: str) -> Town:  # noqa: ARG002 - as a toolset has it
        """Return a session."""
        return Town(world["people"])


def large_scenario() -> tuple[Scenario, float]:
    """Return the scenario, and how many megabytes its world has as JSON."""
    people = [
        {
            "id": f"p{number}",
            "name": f"Person number {number}",
            "city": ("Seoul", "Busan", "Jeju")[number % 3],
            "street": "x" * 90,
            "age": number % 90,
            "note": f"some words of a note that stand here {number}",
            "tags": ["a", "b"],
        }
        for number in range(ROWS)
    ]
    calls = [
        {"tool": "count_people", "args": {"city": "Seoul"}},
        {"tool": "move_person", "args": {"person_id": "p17", "city": "Paris"}},
    ]
    return Scenario.from_data(
        {
            "id": "a-move",
            "ac": "write",
            "locale": "en",
            "world": {"now": "2026-06-15T09:00:00+09:00", "people": people},
            "turns": [{"user": "Move p17.", "confirm": "accept", "expect": {"calls": calls}}],
            "final": {"people": [{"id": "p17", "city": "Paris"}]},
        }
    ), len(json.dumps(people)) / 1e6


def cost(scenario: Scenario, repeats: int) -> tuple[float, int]:
    """Return processor seconds and bytes of records of so many samples."""
    with tempfile.TemporaryDirectory() as folder:
        begun_s = time.process_time()
        told = replay(
            [scenario],
            gold_model,
            toolset=TownToolset(),
            repeats=repeats,
            run_dir=Path(folder),
            progress=False,
        )
        run = asyncio.run(told)
        spent_s = time.process_time() - begun_s
        if {record.judgement.verdict for record in run.records} != {Verdict.PASS}:
            raise SystemExit("gold does not pass: there is nothing to measure")
        return spent_s, (Path(folder) / "records.jsonl").stat().st_size


def main() -> None:
    """Print a line for each way."""
    scenario, megabytes = large_scenario()
    print(f"world: {megabytes:.1f} MB, {ROWS:,} rows")
    cost(scenario, 1)
    for way, thresholds in (("replay", gc.get_threshold()), ("lhkit eval", COLLECTOR)):
        gc.set_threshold(*thresholds)
        few_s, _ = cost(scenario, FEW)
        many_s, size = cost(scenario, MANY)
        each_s = (many_s - few_s) / (MANY - FEW)
        print(f"{way}: {each_s:.3f} CPU s a sample, {size / MANY / 1e3:.1f} KB a record")


if __name__ == "__main__":
    main()
