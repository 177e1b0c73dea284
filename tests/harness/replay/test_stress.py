"""Stress tests: distractor tools and the order of tools."""

import json
from pathlib import Path
from typing import Any

import pytest

from lhkit.errors import UsageError
from lhkit.harness.author.reference import gold_model
from lhkit.harness.loader import load_scenarios
from lhkit.harness.record import Verdict
from lhkit.harness.results import Run
from lhkit.harness.run import replay
from lhkit.harness.store import MANIFEST
from lhkit.harness.stress import Stress, parse_stress, stressed
from lhkit.harness.tool_injection import NOT_APPLICABLE, distractors
from lhkit.lifehelper import toolset as life_helper
from lhkit.lifehelper.shipped import scenario_folder
from lhkit.models.base import ChatModel
from lhkit.models.scripted import ScriptedModel, call, say
from lhkit.tools.registry import ToolRegistry
from tests.harness.build import Load

pytestmark = pytest.mark.anyio

EVERYTHING = Stress(distractors=10, shuffle=True)

FIND = """
- id: find
  ac: AC-1
  turns:
    - user: find milk
      expect: {calls: [{tool: find_notes, args: {query: milk}}], extra: reads}
"""


async def play(scenarios: Any, model: Any, toolset: Any, stress: Stress, **options: Any) -> Run:
    harder, world = stressed(model, toolset, stress)
    return await replay(scenarios, harder, toolset=world, progress=False, **options)


@pytest.mark.slow
async def test_reference_model_passes_shipped_scenarios_under_stress() -> None:
    stress = parse_stress("distractors=20,shuffle,seed=7")
    scenarios = load_scenarios([scenario_folder()])
    run = await play(scenarios, gold_model, life_helper.LifeHelperToolset(), stress)
    verdicts = {(r.sample_id.scenario, r.judgement.reasons) for r in run.records}
    assert verdicts == {(scenario.id, ()) for scenario in scenarios}
    requests = [each for r in run.records for turn in r.evidence.turns for each in turn.model_calls]
    labels = {each.response.identity.stress for each in requests if each.response.identity}
    assert labels == {stress.label}


async def test_distractor_call_is_not_applicable_and_unexpected(toolset: Any, load: Load) -> None:
    replies = [call("get_weather", city="Seoul"), call("find_notes", query="milk"), say("none")]
    stress = Stress(distractors=1)
    (record,) = (await play(load(FIND), ScriptedModel(replies), toolset, stress)).records
    assert record.judgement.verdict is Verdict.FAIL
    assert [c.outcome for c in record.evidence.turns[0].calls] == [NOT_APPLICABLE, "ok"]
    assert record.judgement.scores[0].surplus_calls == 1
    assert record.judgement.violations == ()
    replies = [call("find_notes", query="x"), call("find_notes", query="milk"), say("none")]
    (record,) = (await play(load(FIND), ScriptedModel(replies), toolset, stress)).records
    assert record.judgement.verdict is Verdict.PASS


async def test_shuffle_depends_on_seed(toolset: Any, load: Load) -> None:
    orders = set()
    for seed in (0, 0, 1, 2, 3):
        model = ScriptedModel([say("x")])
        await play(load(FIND), model, toolset, Stress(distractors=5, shuffle=True, seed=seed))
        orders.add((seed, tuple(tool.name for tool in model.requests[0].tools)))
    assert len(orders) == 4
    assert len({frozenset(names) for _, names in orders}) == 1


async def test_stress_changes_content_hash_and_manifest(
    toolset: Any, load: Load, tmp_path: Path
) -> None:
    async def again(stress: Stress) -> Run:
        return await play(load(FIND), gold_model, toolset, stress, run_dir=tmp_path / "run")

    assert (await again(Stress())).kept == 0
    assert (await again(EVERYTHING)).kept == 0
    assert (await again(EVERYTHING)).kept == 1
    assert (await again(Stress(distractors=10, shuffle=True, seed=1))).kept == 0
    manifest = json.loads((tmp_path / "run" / MANIFEST).read_text(encoding="utf-8"))
    assert manifest["models"][0]["stress"] == "distractors=10,shuffle,seed=1"


async def test_stress_closes_only_models_of_factory(toolset: Any, load: Load) -> None:
    class Closing(ScriptedModel):
        closed = 0

        async def aclose(self) -> None:
            self.closed += 1

    model = Closing([])
    await play(load(FIND), model, toolset, Stress(shuffle=True))
    assert model.closed == 0

    def maker(*_: Any) -> ChatModel:
        return model

    await play(load(FIND), maker, toolset, Stress(shuffle=True))
    assert model.closed == 1


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("", ""),
        ("seed=3", ""),
        ("shuffle, distractors=3", "distractors=3,shuffle"),
        ("shuffle,seed=4,", "shuffle,seed=4"),
    ],
)
def test_parse_stress_accepts_any_order(text: str, label: str) -> None:
    assert parse_stress(text).label == label
    assert parse_stress(label).label == label


@pytest.mark.parametrize(
    "text",
    ["noise", "distractors", "distractors=-1", "distractors=999", "shuffle=1", "shuffle,shuffle"],
)
def test_parse_stress_refuses_invalid_text(text: str) -> None:
    with pytest.raises(UsageError, match="--stress"):
        parse_stress(text)


def test_stress_refuses_distractor_with_name_of_tool(toolset: Any) -> None:
    taken = distractors(1, "en")[0]
    toolset.registry = ToolRegistry([*toolset.registry.definitions, taken])
    _, world = stressed(gold_model, toolset, Stress(distractors=1))
    with pytest.raises(UsageError, match="get_weather"):
        world.open({}, "ko")
