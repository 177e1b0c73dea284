"""StoredRecords: records left on disk, for runs larger than the memory."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lhkit.errors import RunError, UsageError
from lhkit.harness.author.reference import gold_model, silent_model
from lhkit.harness.record import SampleId
from lhkit.harness.results import Run
from lhkit.harness.resume import SampleHashes
from lhkit.harness.run import replay
from lhkit.harness.store import StoredRecords, stored_records
from tests.harness.build import Load

pytestmark = pytest.mark.anyio

FIND = """
- id: find-{n}
  ac: AC-1
  turns:
    - user: find milk
      expect: {{calls: [{{tool: find_notes, args: {{query: milk}}}}]}}
"""
BENCHMARK = Path(__file__).parents[3] / "evals" / "benchmarks" / "growth.py"


async def play(load: Load, toolset: Any, folder: Path, model: Any = gold_model) -> Run:
    scenarios = load("".join(FIND.format(n=n) for n in range(4)))
    return await replay(
        scenarios,
        model,
        toolset=toolset,
        run_dir=folder,
        repeats=2,
        keep_records=False,
        concurrency=3,
        progress=False,
    )


async def test_stored_records_equal_records_of_run(
    load: Load, toolset: Any, tmp_path: Path
) -> None:
    run = await play(load, toolset, tmp_path / "run")
    assert isinstance(run.records, StoredRecords)
    assert tuple(run.records) == Run.load(tmp_path / "run").records
    assert [each.sample_id for each in run.records[2:4]] == [
        SampleId(scenario="find-1", repeat=0),
        SampleId(scenario="find-1", repeat=1),
    ]
    assert run.records[-1] == tuple(run.records)[-1]
    assert run.records[0].evidence.turns[0].user == "find milk"
    assert run.summary().total.passed == len(run.records) == 8
    with pytest.raises(IndexError):
        run.records[8]


async def test_stored_records_are_newest_after_resume(
    load: Load, toolset: Any, tmp_path: Path
) -> None:
    await play(load, toolset, tmp_path / "run", silent_model())
    await play(load, toolset, tmp_path / "run")
    again = await play(load, toolset, tmp_path / "run")
    assert (again.kept, again.summary().total.passed) == (8, 8)


async def test_replay_without_records_requires_run_dir(load: Load, toolset: Any) -> None:
    with pytest.raises(UsageError, match="keep_records=False requires run_dir"):
        await replay(load(FIND.format(n=0)), gold_model, toolset=toolset, keep_records=False)


async def test_stored_records_name_missing_sample(load: Load, toolset: Any, tmp_path: Path) -> None:
    await play(load, toolset, tmp_path / "run")
    with pytest.raises(RunError, match="find-0"):
        stored_records(
            tmp_path / "run", SampleHashes({"find-0": ["another hash"]}, 1), is_complete=True
        )


@pytest.mark.slow
async def test_stored_records_do_not_grow_memory(tmp_path: Path) -> None:
    """Five times as many samples, and not another record (4 KiB) for each."""

    def peak_mib(samples: int) -> float:
        folder = str(tmp_path / str(samples))
        line = [sys.executable, str(BENCHMARK), "--samples", str(samples), "--folder", folder]
        done = subprocess.run(line, capture_output=True, text=True, check=True)
        peak: float = json.loads(done.stdout)["peak_mib"]
        return peak

    few, many = 400, 2000
    assert 1024 * (peak_mib(many) - peak_mib(few)) / (many - few) < 2.5
