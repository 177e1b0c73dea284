"""Tools that differ by scenario, and tools that a call brings in mid-conversation."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from lhkit.chat.controller import Assistant
from lhkit.harness.record import Verdict
from lhkit.harness.results import Run
from lhkit.harness.run import replay, rescore
from lhkit.harness.scenario import Scenario
from lhkit.messages import ToolOk
from lhkit.models.scripted import ScriptedModel, call, say
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry

pytestmark = [pytest.mark.anyio, pytest.mark.promise("eval.tools_that_come")]


def tool(name: str, handler: Callable[..., Any], **options: Any) -> ToolDefinition:
    parameters = options.pop("parameters", {"type": "object", "properties": {}})
    return ToolDefinition(
        name=name, description=f"{name}.", parameters=parameters, handler=handler, **options
    )


@dataclass
class BoxSession:
    """A box that is opened by a call; what is in it can be taken only then."""

    world: Mapping[str, Any]
    taken: list[dict[str, Any]] = field(default_factory=list)
    today: date = date(2026, 6, 15)
    registry: ToolRegistry = field(init=False)

    def __post_init__(self) -> None:
        self.registry = ToolRegistry([tool("open_box", self._open)])
        if self.world.get("radio"):
            self.registry.register(tool("play_radio", lambda _args, _deps: ToolOk({})))

    @property
    def assistant(self) -> Assistant:
        return Assistant(instructions="Boxes.")

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

    def state(self) -> Mapping[str, Any]:
        return {"taken": self.taken}

    def close(self) -> None:
        pass


class Boxes:
    def open(self, world: Mapping[str, Any], locale: str) -> BoxSession:  # noqa: ARG002 - one locale
        return BoxSession(world)


def scenario(name: str, **more: Any) -> Scenario:
    take = {"tool": "take", "args": {"count": {"equals": 1}}}
    return Scenario.from_data(
        {
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
    )


MODEL = ScriptedModel([call("open_box"), say("open"), call("take"), say("ok")])


@pytest.fixture
def play(clock: Callable[[], float], tmp_path: Path) -> Callable[..., Any]:
    async def run(*scenarios: Scenario) -> Run:
        return await replay(
            scenarios,
            MODEL,
            toolset=Boxes(),
            progress=False,
            clock=clock,
            run_dir=tmp_path / "run",
        )

    return run


async def test_a_tool_that_a_call_brings_is_asked_about_judged_and_recorded(
    play: Callable[..., Any], tmp_path: Path
) -> None:
    run = await play(scenario("box"))
    (record,) = run.records
    assert record.judgement.verdict is Verdict.PASS, record.judgement.reasons  # 1 is its default
    came = [[each["name"] for each in turn.new_tools] for turn in record.evidence.turns]
    assert came == [["take"], []]
    assert [each["name"] for each in run.manifest["locales"]["en"]["tools"]] == ["open_box"]
    (taken,) = record.evidence.turns[1].calls
    assert (taken.tool, taken.destructive, taken.gate) == ("take", True, "accepted")
    again = rescore(tmp_path / "run", [scenario("box")], Boxes())
    assert again.records == run.records


async def test_scenarios_may_have_tools_of_their_own(
    play: Callable[..., Any], tmp_path: Path
) -> None:
    run = await play(scenario("radio", world={"radio": [{}]}), scenario("box"))
    manifest = run.manifest
    told = [each["name"] for each in manifest["locales"]["en"]["tools"]]
    assert told == ["open_box", "play_radio"]
    assert manifest["tools"] == {"box": ["open_box"]}
    assert Run.load(tmp_path / "run").manifest == manifest


async def test_where_all_have_the_same_tools_nothing_more_is_told(play: Callable[..., Any]) -> None:
    run = await play(scenario("one"), scenario("two"))
    assert "tools" not in run.manifest
