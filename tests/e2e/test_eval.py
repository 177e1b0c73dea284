"""Scenarios replayed against the real Gemma: valid verdicts, and the evidence in every record."""

import json
from pathlib import Path

import pytest

from lhkit.conversation.responses import Sampling
from lhkit.harness.records.record import Verdict
from lhkit.harness.running.run import replay
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.lifehelper import toolset as life_helper
from lhkit.lifehelper.shipped import scenario_paths
from lhkit.models.base import ChatModel

pytestmark = [pytest.mark.anyio, pytest.mark.model, pytest.mark.timeout(1200)]


async def test_eval_records_are_complete_and_valid(gemma: ChatModel, tmp_path: Path) -> None:
    scenarios = load_scenarios(scenario_paths("dev"), limit=2)
    toolset = life_helper.LifeHelperToolset(sampling=Sampling(max_tokens=20))
    folder = tmp_path / "run"
    run = await replay(
        scenarios, gemma, toolset=toolset, run_dir=folder, concurrency=2, progress=False
    )
    assert len(run.records) == len(scenarios)
    assert all(record.score.verdict is not Verdict.INVALID for record in run.records)
    written = (folder / "records.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(written) == len(scenarios)
    for line in written:
        for turn in json.loads(line)["trajectory"]["turns"]:
            for call in (request["response"] for request in turn["model_calls"]):
                assert call["raw_text"]
                assert call["token_ids"]
                assert call["prompt_sha256"]
                assert call["timing"]["first_token_s"] > 0
                assert call["identity"]["server"].startswith("vllm ")
                assert call["server_metrics"]["time_to_first_token_ms"] > 0

    again = await replay(scenarios, gemma, toolset=toolset, run_dir=folder, progress=False)
    assert again.kept == len(scenarios)
