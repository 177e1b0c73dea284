"""Injected tools and failures: distractors, the order of tools, scripted failures."""

import json
from pathlib import Path
from typing import Any

import pytest

from lhkit.base.errors import ScenarioError, UsageError
from lhkit.confirm.gate import ScriptedGate
from lhkit.harness.authoring.reference import gold_model
from lhkit.harness.records.record import CallRecord, Verdict
from lhkit.harness.records.store import MANIFEST
from lhkit.harness.results.results import Run
from lhkit.harness.running.plan import plan_run
from lhkit.harness.running.run import replay
from lhkit.harness.running.stress import Stress, parse_stress, stressed
from lhkit.harness.running.tool_injection import NOT_APPLICABLE, distractors, inject_tool_failures
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.harness.scenarios.scenario import Scenario, ToolFailure
from lhkit.lifehelper import toolset as life_helper
from lhkit.lifehelper.shipped import scenario_folder
from lhkit.models.base import ChatModel
from lhkit.models.recorded.scripted import ScriptedModel, call, say
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import Toolset
from tests.harness.build import Load
from tests.rows import check_rows

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
    return await replay(
        scenarios, model, toolset=toolset, stress=stress.label, progress=False, **options
    )


@pytest.mark.slow
async def test_reference_model_passes_shipped_scenarios_under_stress() -> None:
    stress = parse_stress("distractors=20,shuffle,seed=7")
    scenarios = load_scenarios([scenario_folder()])[::3]
    run = await play(scenarios, gold_model, life_helper.LifeHelperToolset(), stress)
    verdicts = {(r.sample_id.scenario, r.score.reasons) for r in run.records}
    assert verdicts == {(scenario.id, ()) for scenario in scenarios}
    requests = [
        each for r in run.records for turn in r.trajectory.turns for each in turn.model_calls
    ]
    labels = {each.response.identity.stress for each in requests if each.response.identity}
    assert labels == {stress.label}


async def test_distractor_call_is_not_applicable_and_unexpected(toolset: Any, load: Load) -> None:
    replies = [call("get_weather", city="Seoul"), call("find_notes", query="milk"), say("none")]
    stress = Stress(distractors=1)
    (record,) = (await play(load(FIND), ScriptedModel(replies), toolset, stress)).records
    assert record.score.verdict is Verdict.FAIL
    assert [c.outcome for c in record.trajectory.turns[0].calls] == [NOT_APPLICABLE, "ok"]
    assert record.score.turn_scores[0].surplus_calls == 1
    assert record.score.violations == ()
    replies = [call("find_notes", query="x"), call("find_notes", query="milk"), say("none")]
    (record,) = (await play(load(FIND), ScriptedModel(replies), toolset, stress)).records
    assert record.score.verdict is Verdict.PASS


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


@check_rows(
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


@check_rows(
    "text",
    ["noise", "distractors", "distractors=-1", "distractors=999", "shuffle=1", "shuffle,shuffle"],
)
def test_parse_stress_refuses_invalid_text(text: str) -> None:
    with pytest.raises(UsageError, match="--stress"):
        parse_stress(text)


def test_stress_refuses_distractor_with_name_of_tool(toolset: Any) -> None:
    taken = distractors(1, "en")[0]
    toolset.registry = ToolRegistry([*toolset.registry.definitions, taken])
    world = stressed(toolset, Stress(distractors=1))
    with pytest.raises(UsageError, match="get_weather"):
        world.open({}, "ko")


FAILING = """
- id: a
  ac: AC-11
  world: {notes: [{id: note-0, text: milk}]}
  tool_failures: [{tool: find_notes, times: 2}]
  turns: [{user: find milk, confirm: accept, expect: {extra: any}, reply: {contains_any: [milk]}}]
"""


def searching(*queries: str) -> ScriptedModel:
    return ScriptedModel([*(call("find_notes", query=query) for query in queries), say("milk")])


async def calls_of(
    scenario: Scenario, model: ScriptedModel, toolset: Toolset
) -> tuple[CallRecord, ...]:
    run = await replay([scenario], model, toolset=toolset, progress=False)
    return run.records[0].trajectory.turns[0].calls


async def test_failure_fails_first_calls_only(load: Load, toolset: Toolset) -> None:
    (scenario,) = load(FAILING)
    calls = await calls_of(scenario, searching("m", "mi", "milk"), toolset)
    assert [each.outcome for each in calls] == ["handler_error", "handler_error", "ok"]
    assert all(each.ran for each in calls)
    assert "ScriptedFaultError" in calls[0].result["reason"]


async def test_failure_counts_start_anew_with_each_sample(load: Load, toolset: Toolset) -> None:
    (scenario,) = load(FAILING)
    outcomes = [
        [each.outcome for each in await calls_of(scenario, searching("m"), toolset)]
        for _ in range(2)
    ]
    assert outcomes == [["handler_error"], ["handler_error"]]


async def test_refused_calls_do_not_use_up_failures(registry: ToolRegistry) -> None:
    broken = inject_tool_failures(registry, [ToolFailure(tool="add_note")])
    dispatch = ToolDispatcher(broken).dispatch
    asked = ScriptedGate([False, True, True])
    outcomes = [
        await dispatch("add_note", args, confirm=asked, deps=[])
        for args in ({}, {"text": "a"}, {"text": "b"}, {"text": "c"})
    ]
    codes = [getattr(each, "code", type(each).__name__) for each in outcomes]
    assert codes == ["validation", "ToolCancelled", "handler_error", "ToolOk"]


async def test_plan_refuses_failure_of_unknown_tool(load: Load, toolset: Toolset) -> None:
    (scenario,) = load(FAILING.replace("tool: find_notes", "tool: find_note"))
    with pytest.raises(
        ScenarioError, match=r"a\.tool_failures\[0\]\.tool: there is no tool 'find_note'"
    ):
        plan_run([scenario], searching(), toolset, repeats=1)


async def test_content_hash_covers_failures(load: Load, toolset: Toolset) -> None:
    (scenario,) = load(FAILING)
    once = scenario.model_copy(update={"tool_failures": (ToolFailure(tool="find_notes", times=1),)})
    hashes = {
        next(plan_run([each], searching(), toolset, repeats=1).samples()).content_hash
        for each in (scenario, once, scenario.model_copy(update={"tool_failures": ()}))
    }
    assert len(hashes) == 3


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("[{times: 1}]", r":5: a\.tool_failures\[0\]\.tool: is required"),
        ("[{tool: find_notes, after: 1}]", r":5: a\.tool_failures\[0\]\.after: unknown field"),
        ("[{tool: x}, {tool: x}]", r":5: a\.tool_failures\[1\]\.tool: x is listed twice"),
    ],
)
async def test_loader_names_line_of_invalid_failure(load: Load, entry: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        load(FAILING.replace("[{tool: find_notes, times: 2}]", entry))
