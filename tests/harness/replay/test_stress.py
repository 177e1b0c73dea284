"""Stress: harder for the model, the same for everybody else."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.errors import UsageError
from lhkit.harness.author.gold import gold_model
from lhkit.harness.log import MANIFEST
from lhkit.harness.record import Verdict
from lhkit.harness.results import Run
from lhkit.harness.run import replay
from lhkit.harness.scenario import Scenario, load_scenarios
from lhkit.harness.stress import (
    MAX_DISTRACTORS,
    NOT_APPLICABLE,
    UNSEEN,
    Stress,
    disguise,
    distractors,
    parse_stress,
    stressed,
)
from lhkit.lifehelper import toolset as life_helper
from lhkit.lifehelper.shipped import scenario_folder
from lhkit.messages import Finished, ToolCall, ToolCallMessage, ToolErr, ToolOk, UserMessage
from lhkit.models.base import ChatModel, ModelRequest
from lhkit.models.scripted import Reply, ScriptedModel, call, say
from lhkit.testing import echo_tool
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry

Load = Callable[[str], tuple[Scenario, ...]]
EVERYTHING = Stress(distractors=10, rename=True, shuffle=True)

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


@pytest.mark.anyio
@pytest.mark.promise("eval.stress")
@pytest.mark.parametrize(
    "label",
    ["distractors=20", "rename", "shuffle", "distractors=10,rename,shuffle,seed=7"],
)
async def test_gold_passes_every_shipped_scenario_under_any_stress(label: str) -> None:
    scenarios = load_scenarios([scenario_folder()])
    run = await play(scenarios, gold_model, life_helper.LifeHelperToolset(), parse_stress(label))
    wrong = {
        r.sample_id.scenario: r.judgement.reasons
        for r in run.records
        if r.judgement.verdict is not Verdict.PASS
    }
    assert wrong == {}
    assert {each.label for each in [parse_stress(label)]} == {
        call.response.identity.stress
        for record in run.records
        for turn in record.evidence.turns
        for call in turn.model_calls
        if call.response.identity
    }


def listening(seen: list[ModelRequest], *replies: Reply) -> ScriptedModel:
    script = iter(replies)

    def answer(request: ModelRequest) -> Reply:
        seen.append(request)
        return next(script, Reply())

    return ScriptedModel(answer, name="listening")


@pytest.mark.anyio
async def test_the_model_sees_other_names_and_the_record_holds_the_real_ones(
    toolset: Any, load: Load, registry: ToolRegistry
) -> None:
    names = disguise(sorted(registry.definitions, key=lambda tool: tool.name), seed=0)
    find, query = names.tools["find_notes"], names.arguments["query"]
    seen: list[ModelRequest] = []
    model = listening(seen, call(find, **{query: "milk"}), say("none"))
    (record,) = (await play(load(FIND), model, toolset, Stress(rename=True))).records
    assert record.judgement.verdict is Verdict.PASS
    (made,) = record.evidence.turns[0].calls
    assert (made.tool, made.raw_args) == ("find_notes", {"query": "milk"})
    assert find in record.evidence.turns[0].model_calls[0].response.raw_text
    assert {tool.name for tool in seen[0].tools} == set(names.tools.values())
    repeated = seen[1].messages[-1]
    assert isinstance(repeated, ToolCallMessage)
    assert (repeated.name, repeated.args) == (find, {query: "milk"})
    assert "find_notes" not in repr(seen[1])


@pytest.mark.anyio
async def test_a_real_name_that_was_not_shown_is_no_tool(toolset: Any, load: Load) -> None:
    """A tuned model must not pass by ignoring its prompt."""
    model = ScriptedModel([call("find_notes", query="milk"), say("none")])
    (record,) = (await play(load(FIND), model, toolset, Stress(rename=True))).records
    assert record.judgement.verdict is Verdict.FAIL
    assert record.evidence.turns[0].calls[0].outcome == "unknown_tool"
    assert record.evidence.turns[0].calls[0].tool == f"{UNSEEN}find_notes"


@pytest.mark.anyio
async def test_a_distractor_answers_not_applicable_and_is_surplus_though_it_only_reads(
    toolset: Any, load: Load
) -> None:
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


@pytest.mark.anyio
async def test_the_order_of_the_tools_follows_the_seed(toolset: Any, load: Load) -> None:
    orders = set()
    for seed in (0, 0, 1, 2, 3):
        seen: list[ModelRequest] = []
        stress = Stress(distractors=5, shuffle=True, seed=seed)
        await play(load(FIND), listening(seen, say("x")), toolset, stress)
        orders.add((seed, tuple(tool.name for tool in seen[0].tools)))
    assert len(orders) == 4
    assert len({frozenset(names) for _, names in orders}) == 1


@pytest.mark.anyio
@pytest.mark.promise("eval.stress")
async def test_a_run_under_stress_is_another_question_and_the_manifest_says_so(
    toolset: Any, load: Load, tmp_path: Path
) -> None:
    async def again(stress: Stress) -> Run:
        return await play(load(FIND), gold_model, toolset, stress, run_dir=tmp_path / "run")

    assert (await again(Stress())).kept == 0
    assert (await again(EVERYTHING)).kept == 0
    assert (await again(EVERYTHING)).kept == 1
    assert (await again(Stress(distractors=10, rename=True, shuffle=True, seed=1))).kept == 0
    manifest = json.loads((tmp_path / "run" / MANIFEST).read_text(encoding="utf-8"))
    assert manifest["models"][0]["stress"] == "distractors=10,rename,shuffle,seed=1"


@pytest.mark.anyio
async def test_a_shared_model_stays_open_and_a_maker_s_model_is_closed(
    toolset: Any, load: Load
) -> None:
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


def test_words_that_are_surely_names_are_renamed_in_prose_and_ordinary_words_are_not() -> None:
    registry = life_helper.registry_of("en")
    names = disguise(registry.definitions, seed=0)
    habit, date = names.arguments["habit_id"], names.arguments["date"]
    told = names.text("date: give habit_id or 'date', then list_habits. log_tracker_entrys date(x)")
    assert told == (
        f"date: give {habit} or '{date}', then {names.tools['list_habits']}. "
        f"log_tracker_entrys {date}(x)"
    )


def test_a_name_that_begins_as_another_one_is_renamed_as_a_whole() -> None:
    tools = [echo_tool(name) for name in ("get-item", "get-item-list", "startEngine")]
    names = disguise(tools, 0)
    told = names.text("After get-item-list call get-item, then startEngine.")
    of = names.tools
    assert told == f"After {of['get-item-list']} call {of['get-item']}, then {of['startEngine']}."


def test_a_schema_is_renamed_where_it_speaks_of_its_own_arguments() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"properties": {"a": {}}}, "b": {"description": "see look_up, 'a'"}},
        "required": ["a"],
        "anyOf": [{"required": ["a"]}, {"not": {"required": ["b"]}}],
        "dependentRequired": {"a": ["b"]},
    }
    tool = ToolDefinition(
        name="look_up", description="x", parameters=schema, handler=lambda _args, _deps: ToolOk({})
    )
    names = disguise([tool], seed=0)
    a, b = names.arguments["a"], names.arguments["b"]
    assert names.tool(tool).parameters == {
        "type": "object",
        "properties": {
            a: {"properties": {"a": {}}},
            b: {"description": f"see {names.tools['look_up']}, '{a}'"},
        },
        "required": [a],
        "anyOf": [{"required": [a]}, {"not": {"required": [b]}}],
        "dependentRequired": {a: [b]},
    }
    assert names.inverse.tool(names.tool(tool)).parameters == schema


@given(st.integers(0, 1000), st.sampled_from(["ko", "en"]))
def test_a_disguise_is_one_to_one_and_the_way_back_is_exact(seed: int, locale: str) -> None:
    tools = [*life_helper.registry_of(locale).definitions, *distractors(MAX_DISTRACTORS, locale)]
    names = disguise(tools, seed)
    assert len(set(names.tools.values())) == len(tools)
    for tool in tools:
        shown = names.tool(tool)
        made = ToolCall(name=shown.name, args=dict.fromkeys(shown.parameters["properties"], 1))
        said = Finished(reason="stop", calls=(made,), server_calls=(made,), raw_text="as it was")
        finished = names.event(said)
        assert isinstance(finished, Finished)
        assert (finished.server_calls, finished.own_calls) == (finished.calls, None)
        (real,) = finished.calls
        assert real.name == tool.name
        assert list(real.args) == list(tool.parameters["properties"])
        assert finished.raw_text == "as it was"


def test_reasons_of_refusals_are_renamed_and_data_is_not() -> None:
    names = disguise(life_helper.registry_of("ko").definitions, seed=0)
    refused = ToolCallMessage(
        name="add_habit", args=5, result=ToolErr("r8_anchor", "anchor_when을 넣으세요")
    )
    told = ToolCallMessage(name="list_habits", args={}, result=ToolOk({"note": "add_habit"}))
    request = ModelRequest(messages=(UserMessage(text="add_habit"), refused, told))
    user, first, second = names.request(request).messages
    assert user == UserMessage(text="add_habit")
    assert isinstance(first, ToolCallMessage)
    assert first.args == 5
    assert first.result == ToolErr("r8_anchor", f"{names.arguments['anchor_when']}을 넣으세요")
    assert isinstance(second, ToolCallMessage)
    assert second.result == ToolOk({"note": "add_habit"})


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("", ""),
        ("seed=3", ""),
        ("shuffle, distractors=3", "distractors=3,shuffle"),
        ("rename,seed=4,", "rename,seed=4"),
    ],
)
def test_the_flag_is_read_in_any_order(text: str, label: str) -> None:
    assert parse_stress(text).label == label
    assert parse_stress(label).label == label


@pytest.mark.parametrize(
    "text",
    ["noise", "distractors", "distractors=-1", "distractors=999", "rename=1", "rename,rename"],
)
def test_a_stress_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--stress"):
        parse_stress(text)


def test_a_distractor_that_is_called_like_a_tool_is_refused(toolset: Any) -> None:
    taken = distractors(1, "en")[0]
    toolset.registry = ToolRegistry([*toolset.registry.definitions, taken])
    _, world = stressed(gold_model, toolset, Stress(distractors=1))
    with pytest.raises(UsageError, match="get_weather"):
        world.open({}, "ko")
