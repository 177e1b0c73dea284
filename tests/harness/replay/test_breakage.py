"""`faults`: a tool that breaks on purpose, met through the real dispatcher."""

from collections.abc import Callable

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

Load = Callable[[str], tuple[Scenario, ...]]

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


async def test_the_first_calls_fail_as_after_an_exception_and_then_the_tool_works(
    load: Load, toolset: Toolset
) -> None:
    (scenario,) = load(FAULTY)
    calls = await calls_of(scenario, searching("m", "mi", "milk"), toolset)
    assert [each.outcome for each in calls] == ["handler_error", "handler_error", "ok"]
    assert all(each.ran for each in calls)
    assert "ScriptedFaultError" in calls[0].result["reason"]


async def test_every_sample_starts_with_all_its_faults(load: Load, toolset: Toolset) -> None:
    (scenario,) = load(FAULTY)
    outcomes = [
        [each.outcome for each in await calls_of(scenario, searching("m"), toolset)]
        for _ in range(2)
    ]
    assert outcomes == [["handler_error"], ["handler_error"]]


async def test_a_call_that_is_refused_or_not_confirmed_uses_up_no_fault(
    registry: ToolRegistry,
) -> None:
    broken = inject_faults(registry, [ScriptedFault(tool="add_note")])
    dispatch = ToolDispatcher(broken).dispatch
    asked = ScriptedGate([False, True, True])
    outcomes = [
        await dispatch("add_note", args, confirm=asked, deps=[])
        for args in ({}, {"text": "a"}, {"text": "b"}, {"text": "c"})
    ]
    codes = [getattr(each, "code", type(each).__name__) for each in outcomes]
    assert codes == ["validation", "ToolCancelled", "handler_error", "ToolOk"]


async def test_a_fault_of_a_tool_that_is_not_there_is_named_before_anything_is_played(
    load: Load, toolset: Toolset
) -> None:
    (scenario,) = load(FAULTY.replace("tool: find_notes", "tool: find_note"))
    with pytest.raises(ScenarioError, match=r"a\.faults\[0\]\.tool: there is no tool 'find_note'"):
        plan_run([scenario], searching(), toolset, repeats=1)


async def test_faults_are_part_of_what_a_run_is_resumed_by(load: Load, toolset: Toolset) -> None:
    (scenario,) = load(FAULTY)
    once = scenario.model_copy(update={"faults": (ScriptedFault(tool="find_notes", times=1),)})
    hashes = {
        plan_run([each], searching(), toolset, repeats=1).jobs[0].content_hash
        for each in (scenario, once, scenario.model_copy(update={"faults": ()}))
    }
    assert len(hashes) == 3


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("[{times: 1}]", r":5: a\.faults\[0\]\.tool: is required"),
        ("[{tool: find_notes, times: 0}]", r":5: a\.faults\[0\]\.times: .*1 or more"),
        ("[{tool: find_notes, error: timeout}]", r":5: a\.faults\[0\]\.error: .*handler_error"),
        ("[{tool: find_notes, after: 1}]", r":5: a\.faults\[0\]\.after: unknown field"),
        ("[{tool: x}, {tool: x}]", r":5: a\.faults\[1\]\.tool: x is listed twice"),
    ],
)
async def test_a_malformed_fault_is_named_with_its_line(load: Load, entry: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        load(FAULTY.replace("[{tool: find_notes, times: 2}]", entry))
