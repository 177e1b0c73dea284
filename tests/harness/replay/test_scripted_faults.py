"""Scripted `faults` of tools, through the real dispatcher."""

import pytest

from lhkit.confirm.gate import ScriptedGate
from lhkit.errors import ScenarioError
from lhkit.harness.plan import plan_run
from lhkit.harness.record import CallRecord
from lhkit.harness.run import replay
from lhkit.harness.scenario import Scenario, ScriptedFault
from lhkit.harness.tool_injection import inject_faults
from lhkit.models.scripted import ScriptedModel, call, say
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import Toolset
from tests.harness.build import Load

pytestmark = pytest.mark.anyio

FAULTY = """
- id: a
  ac: AC-11
  world: {notes: [{id: note-0, text: milk}]}
  faults: [{tool: find_notes, times: 2}]
  turns: [{user: find milk, confirm: accept, expect: {extra: any}, reply: {contains_any: [milk]}}]
"""


def searching(*queries: str) -> ScriptedModel:
    return ScriptedModel([*(call("find_notes", query=query) for query in queries), say("milk")])


async def calls_of(
    scenario: Scenario, model: ScriptedModel, toolset: Toolset
) -> tuple[CallRecord, ...]:
    run = await replay([scenario], model, toolset=toolset, progress=False)
    return run.records[0].evidence.turns[0].calls


async def test_fault_fails_first_calls_only(load: Load, toolset: Toolset) -> None:
    (scenario,) = load(FAULTY)
    calls = await calls_of(scenario, searching("m", "mi", "milk"), toolset)
    assert [each.outcome for each in calls] == ["handler_error", "handler_error", "ok"]
    assert all(each.ran for each in calls)
    assert "ScriptedFaultError" in calls[0].result["reason"]


async def test_fault_counts_start_anew_with_each_sample(load: Load, toolset: Toolset) -> None:
    (scenario,) = load(FAULTY)
    outcomes = [
        [each.outcome for each in await calls_of(scenario, searching("m"), toolset)]
        for _ in range(2)
    ]
    assert outcomes == [["handler_error"], ["handler_error"]]


async def test_refused_calls_do_not_use_up_faults(registry: ToolRegistry) -> None:
    broken = inject_faults(registry, [ScriptedFault(tool="add_note")])
    dispatch = ToolDispatcher(broken).dispatch
    asked = ScriptedGate([False, True, True])
    outcomes = [
        await dispatch("add_note", args, confirm=asked, deps=[])
        for args in ({}, {"text": "a"}, {"text": "b"}, {"text": "c"})
    ]
    codes = [getattr(each, "code", type(each).__name__) for each in outcomes]
    assert codes == ["validation", "ToolCancelled", "handler_error", "ToolOk"]


async def test_plan_refuses_fault_of_unknown_tool(load: Load, toolset: Toolset) -> None:
    (scenario,) = load(FAULTY.replace("tool: find_notes", "tool: find_note"))
    with pytest.raises(ScenarioError, match=r"a\.faults\[0\]\.tool: there is no tool 'find_note'"):
        plan_run([scenario], searching(), toolset, repeats=1)


async def test_content_hash_covers_faults(load: Load, toolset: Toolset) -> None:
    (scenario,) = load(FAULTY)
    once = scenario.model_copy(update={"faults": (ScriptedFault(tool="find_notes", times=1),)})
    hashes = {
        next(plan_run([each], searching(), toolset, repeats=1).samples()).content_hash
        for each in (scenario, once, scenario.model_copy(update={"faults": ()}))
    }
    assert len(hashes) == 3


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("[{times: 1}]", r":5: a\.faults\[0\]\.tool: is required"),
        ("[{tool: find_notes, after: 1}]", r":5: a\.faults\[0\]\.after: unknown field"),
        ("[{tool: x}, {tool: x}]", r":5: a\.faults\[1\]\.tool: x is listed twice"),
    ],
)
async def test_loader_names_line_of_invalid_fault(load: Load, entry: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        load(FAULTY.replace("[{tool: find_notes, times: 2}]", entry))
