"""Two recorded runs of the real model: readable, and scored today as they were then.

`gemma` is the embedded model with the shipped adapter, `gemma-base` the same without it. They were
made with `lhkit eval` and `lhkit eval --model gemma-base --limit 30`; every fourth sample of the
first is kept, and lists of token ids and gaps are left out of both.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import lhkit

MODELS = Path(__file__).parent / "recorded" / "models"
SCENARIOS = Path(__file__).parents[2] / "datasets" / "ac" / "dev"
NAMES = sorted(folder.name for folder in MODELS.iterdir())


def stored(folder: Path) -> dict[str, dict[str, Any]]:
    lines = (folder / "records.jsonl").read_text(encoding="utf-8").split("\n")
    records = [json.loads(line) for line in lines if line]
    return {record["sample_id"]["scenario"]: record for record in records}


def broken_rules(record: dict[str, Any]) -> list[str]:
    """Return the violations, without the flag of false success claims: its detector is learned."""
    violations = record["score"]["violations"]
    names = [f"{each['severity']} {each['code']}" for each in violations]
    return sorted(name for name in names if not name.endswith(" false_claim"))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_rescore_gives_the_recorded_verdicts(name: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(MODELS / name, tmp_path / name))
    run = lhkit.rescore(folder, lhkit.load_scenarios([SCENARIOS]))
    before = stored(MODELS / name)
    verdicts = dict(zip(run.scenarios.scenario, run.scenarios.verdict, strict=True))
    assert verdicts == {key: record["score"]["verdict"] for key, record in before.items()}
    codes: dict[str, list[str]] = {key: [] for key in before}
    for row in run.violations.to_dict("records"):
        if row["code"] != "false_claim":
            codes[row["scenario"]].append(f"{row['severity']} {row['code']}")
    assert {key: sorted(names) for key, names in codes.items()} == {
        key: broken_rules(record) for key, record in before.items()
    }


@pytest.mark.parametrize("name", NAMES)
def test_run_load_reads_a_recorded_run_into_frames(name: str) -> None:
    run = lhkit.Run.load(MODELS / name)
    before = stored(MODELS / name)
    assert set(run.scenarios.scenario) == set(before)
    assert {"scenario", "repeat", "ac", "locale", "verdict", "reason"} <= {*run.scenarios}
    assert {"scenario", "turn", "code", "severity", "detail"} <= {*run.violations}
    assert len(run.turns) == sum(len(each["trajectory"]["turns"]) for each in before.values())
    calls = [turn["calls"] for each in before.values() for turn in each["trajectory"]["turns"]]
    assert len(run.calls) >= sum(map(len, calls))
    assert len(run.latency) > 0


def test_compare_tells_the_better_of_two_recorded_runs() -> None:
    base, tuned = (lhkit.Run.load(MODELS / name) for name in ("gemma-base", "gemma"))
    comparison = lhkit.compare(base, tuned)
    assert len(comparison.pairs) > 0
    assert comparison.passed_b > comparison.passed_a
