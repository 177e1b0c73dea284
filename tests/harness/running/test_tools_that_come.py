"""Tools that differ by scenario, and tools that a call registers mid-conversation."""

import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from lhkit.base.locales import load_catalog
from lhkit.conversation.tool_results import ToolOk
from lhkit.harness.authoring.lint import scenario_remarks
from lhkit.harness.exports.openai_messages import write_openai_messages
from lhkit.harness.records.record import Verdict
from lhkit.harness.records.transcript import transcript
from lhkit.harness.results.results import Run
from lhkit.harness.running.rescore import rescore
from lhkit.harness.running.run import replay
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.harness.views.sample import Sample
from lhkit.models.recorded.scripted import ScriptedModel, call, say
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry
from tests.harness.build import PlainSession, Play

pytestmark = pytest.mark.anyio


def tool(name: str, handler: Callable[..., Any], **options: Any) -> ToolDefinition:
    parameters = options.pop("parameters", {"type": "object", "properties": {}})
    return ToolDefinition(
        name=name, description=f"{name}.", parameters=parameters, handler=handler, **options
    )


class BoxSession(PlainSession):
    """A box that a call opens; its items can be taken only then."""

    def __init__(self, world: Mapping[str, Any]) -> None:
        self.taken: list[dict[str, Any]] = []
        tools = [tool("open_box", self._open)]
        if world.get("radio"):
            tools.append(tool("play_radio", lambda _args, _deps: ToolOk({})))
        super().__init__(registry=ToolRegistry(tools), seen=lambda: {"taken": self.taken})

    def _open(self, _args: Any, _deps: Any) -> ToolOk:
        if "take" not in self.registry:
            count = {"type": "integer", "default": 1}
            parameters = {"type": "object", "properties": {"count": count}}
            self.registry.register(
                tool("take", self._take, parameters=parameters, is_destructive=True)
            )
        return ToolOk({"holds": "tea"})

    def _take(self, args: Mapping[str, Any], _deps: Any) -> ToolOk:
        self.taken.append({"id": len(self.taken), "count": args.get("count", 1)})
        return ToolOk({})


class Boxes:
    def open(self, world: Mapping[str, Any], locale: str) -> BoxSession:
        return BoxSession(world)


def data_of(name: str, **more: Any) -> dict[str, Any]:
    take = {"tool": "take", "args": {"count": {"equals": 1}}}
    return {
        "id": name,
        "ac": "boxes",
        "locale": "en",
        "turns": [
            {"user": "open it", "expect": {"calls": [{"tool": "open_box"}]}},
            {"user": "take one", "confirm": "careful", "expect": {"calls": [take]}},
        ],
        "final": {"taken": [{"count": 1}]},
        **more,
    }


def scenario(name: str, **more: Any) -> Scenario:
    return Scenario.from_data(data_of(name, **more))


def taking(_scenario: Scenario, _registry: ToolRegistry) -> ScriptedModel:
    """Open the box, then take one."""
    return ScriptedModel([call("open_box"), say("open"), call("take"), say("ok")])


@pytest.fixture
def play(play: Play, tmp_path: Path) -> Play:
    """Return a function that runs scenarios of boxes."""

    def run(*scenarios: Scenario) -> Awaitable[Run]:
        return play(scenarios, taking, toolset=Boxes(), run_dir=tmp_path / "run")

    return run


async def test_new_tool_is_confirmed_scored_and_recorded(play: Play, tmp_path: Path) -> None:
    run = await play(scenario("box"))
    (record,) = run.records
    assert record.score.verdict is Verdict.PASS, record.score.reasons  # 1 is its default
    came = [[each["name"] for each in turn.new_tools] for turn in record.trajectory.turns]
    assert came == [["take"], []]
    assert [each["name"] for each in run.manifest.locales["en"].tools] == ["open_box"]
    (taken,) = record.trajectory.turns[1].calls
    assert (taken.tool, taken.destructive, taken.gate) == ("take", True, "accepted")
    again = rescore(tmp_path / "run", [scenario("box")], Boxes())
    assert again.records == run.records


async def test_new_tool_has_scripted_failures(play: Play) -> None:
    run = await play(scenario("box", tool_failures=[{"tool": "take"}]))
    (record,) = run.records
    (taken,) = record.trajectory.turns[1].calls
    assert (taken.gate, taken.outcome) == ("accepted", "handler_error")
    assert record.score.verdict is Verdict.FAIL


@pytest.mark.parametrize("stress", ["distractors=2", "shuffle", "distractors=1,shuffle"])
async def test_new_tool_works_under_stress(clock: Callable[[], float], stress: str) -> None:
    run = await replay(
        [scenario("box")], taking, toolset=Boxes(), stress=stress, progress=False, clock=clock
    )
    (record,) = run.records
    assert record.score.verdict is Verdict.PASS, record.score.reasons
    (taken,) = record.trajectory.turns[1].calls
    assert (taken.tool, taken.gate) == ("take", "accepted")


async def test_lint_accepts_new_tool_in_reference_calls() -> None:
    gold = {"gold": {"calls": [{"tool": "take"}], "say": "Taken."}}
    first, second = data_of("box")["turns"]
    words = {"reply": {"contains_any": ["taken"]}}
    fits = Scenario.from_data(data_of("box", turns=[first, {**second, **gold, **words}]))
    codes = {each.code for each in await scenario_remarks(fits, Boxes())}
    assert not codes & {"unknown_tool", "gold", "underivable", "final_state"}
    late = Scenario.from_data(data_of("box", turns=[first, {**second, **words}]))
    (remark,) = [e for e in await scenario_remarks(late, Boxes()) if e.code == "unknown_tool"]
    assert "tool 'take' does not exist" in remark.message


async def test_reports_show_new_tool(play: Play) -> None:
    run = await play(scenario("one"), scenario("two"))
    added = "Tools added in this turn"
    assert f"{added}: take" in transcript(run.records[0], load_catalog("en"), max_chars=9_000)
    assert added in Sample.of(run.records[0])._repr_html_()
    assert run.manifest.tools == {}  # equal tools are listed once


async def test_manifest_and_export_have_tools_of_each_scenario(play: Play, tmp_path: Path) -> None:
    run = await play(scenario("radio", world={"radio": [{}]}), scenario("box"))
    names = [each["name"] for each in run.manifest.locales["en"].tools]
    assert names == ["open_box", "play_radio"]
    assert run.manifest.tools == {"box": ["open_box"]}
    assert Run.load(tmp_path / "run").manifest == run.manifest
    write_openai_messages(run, tmp_path / "chats.jsonl")
    lines = (tmp_path / "chats.jsonl").read_text(encoding="utf-8").splitlines()
    tools = [[tool["function"]["name"] for tool in json.loads(each)["tools"]] for each in lines]
    assert tools == [["open_box", "play_radio", "take"], ["open_box", "take"]]
