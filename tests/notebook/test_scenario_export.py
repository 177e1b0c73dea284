"""A conversation saved as a scenario loads, and its own expectation passes it."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import pytest
import yaml
from pydantic import AfterValidator, BaseModel, StringConstraints

from lhkit.chat.controller import ChatController
from lhkit.confirm.gate import ScriptedGate
from lhkit.conversation.messages import ToolCall
from lhkit.harness.authoring.from_chat import scenario_from_chat
from lhkit.harness.authoring.lint import lint
from lhkit.harness.authoring.reference import gold_model
from lhkit.harness.records.record import Verdict
from lhkit.harness.running.run import replay
from lhkit.harness.scenarios.loader import read_sources
from lhkit.harness.scoring.state import StateVerdict, check_state
from lhkit.lifehelper import toolset as life_helper
from lhkit.models.base import ModelRequest
from lhkit.models.recorded.scripted import Reply, ScriptedModel, call, say
from lhkit.notebook import demo_panel, life_helper_panel
from lhkit.notebook.panel.panel import ChatPanel
from lhkit.settings import Settings
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import Toolset

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

ADD = "카페인 줄이는 습관을 추가해줘"


async def passes(panel: ChatPanel, tmp_path: Path) -> Any:
    """Save the conversation, replay it with the gold model and return the scenario."""
    path = panel.save_scenario(tmp_path / "saved.yaml")
    sources = read_sources([path])
    assert await lint(sources, life_helper.LifeHelperToolset()) == ()
    (scenario,) = sources.scenarios
    run = await replay(
        [scenario],
        gold_model,
        toolset=life_helper.LifeHelperToolset(),
        run_dir=tmp_path / "run",
    )
    (record,) = run.records
    assert record.score.verdict is Verdict.PASS, record.score.reasons
    assert record.score.violations == ()
    return scenario


@pytest.mark.longer
@pytest.mark.parametrize(
    ("turns", "ac"),
    [
        ([("안녕", ())], "AC-12"),
        ([(ADD, [True]), ("오늘 카페인 지켰어, 기록해줘", [True])], "AC-10"),
        ([(ADD, [False]), ("내 습관 목록", ())], "AC-7"),
        ([(ADD, [True]), ("스트레칭 습관을 추가해줘", [True]), (ADD, [True])], "AC-9"),
        ([("Add a habit to cut caffeine", [True]), ("List my habits", ())], "AC-10"),
    ],
)
async def test_to_scenario_passes_with_the_reference(
    turns: list[tuple[str, Any]], ac: str, settings: Settings, tmp_path: Path
) -> None:
    panel = demo_panel(pace_s=0, settings=settings)
    for words, answers in turns:
        await panel.send(words, answers=answers)
    scenario = await passes(panel, tmp_path)
    assert scenario.ac == ac
    assert [turn.user for turn in scenario.turns] == [words for words, _ in turns]


@pytest.mark.longer
async def test_to_scenario_keeps_the_initial_state(settings: Settings, tmp_path: Path) -> None:
    path = tmp_path / "habits.sqlite3"
    await demo_panel(path, pace_s=0, settings=settings).send(ADD, answers=[True])
    panel = demo_panel(path, pace_s=0, settings=settings)
    await panel.send("오늘 카페인 지켰어, 기록해줘", answers=[True])
    scenario = await passes(panel, tmp_path)
    assert [habit["id"] for habit in scenario.world["habits"]] == ["caffeine-cutoff"]
    assert set(scenario.final) == {"tracker"}


async def test_to_scenario_expects_deleted_rows_by_id(settings: Settings, tmp_path: Path) -> None:
    panel = demo_panel(pace_s=0, settings=settings)
    await panel.send("안녕")
    notes = [{"id": "n1", "text": "우유"}, {"id": "n2", "text": "빵"}]
    begun = {
        "now": "2026-06-15T09:00:00+09:00",
        "notes": notes,
        "tags": [{"name": "a"}, {"name": "b"}],
    }
    ended = {**begun, "notes": [{"id": "n2", "text": "식빵"}], "tags": [{"name": "c"}]}
    path = tmp_path / "saved.yaml"
    path.write_text(
        scenario_from_chat(
            panel.state.chat.messages,
            initial_state=begun,
            final_state=ended,
            destructive=(),
            locale="ko",
            scenario_id="a-ko-01",
        ),
        encoding="utf-8",
    )
    (scenario,) = read_sources([path]).scenarios
    assert scenario.gone == {"notes": ({"id": "n1"},), "tags": ({"name": "a"}, {"name": "b"})}
    assert scenario.final == {"notes": ({"id": "n2", "text": "식빵"},), "tags": ({"name": "c"},)}
    tables = [{name: tuple(each[name]) for name in ("notes", "tags")} for each in (begun, ended)]
    verdict = check_state(scenario.final, gone=scenario.gone, before=tables[0], after=tables[1])
    assert verdict == StateVerdict()


async def test_scenario_from_chat_makes_up_no_criterion(settings: Settings) -> None:
    panel = demo_panel(pace_s=0, settings=settings)
    await panel.send(ADD, answers=[False])
    options: dict[str, Any] = {"initial_state": {}, "final_state": {}, "destructive": {"add_habit"}}
    messages = panel.state.chat.messages

    def saved(**more: Any) -> Any:
        text = scenario_from_chat(messages, locale="ko", scenario_id="a", **options, **more)
        return yaml.safe_load(text)[0]

    assert "ac" not in saved()
    assert "ac" not in saved(criterion=lambda _calls: None)
    answers = saved(criterion=lambda calls: " ".join(str(call.answer) for call in calls))["ac"]
    assert answers == "None reject"
    assert saved(ac="given", criterion=lambda _calls: "other")["ac"] == "given"


async def test_to_scenario_copies_the_initial_state(
    settings: Settings, purse: type[Toolset]
) -> None:
    model = ScriptedModel([call("spend"), say("ok")])
    now = datetime(2026, 6, 15, 9, tzinfo=UTC)
    panel = ChatPanel(model=model, toolset=purse, now=lambda: now, opt_in=True, settings=settings)
    await panel.send("spend one")
    (saved,) = yaml.safe_load(panel.to_scenario())
    assert saved["world"] == {
        "now": "2026-06-15T09:00:00+00:00",
        "jars": [{"id": "j1", "coins": 3}],
    }
    assert saved["final"] == {"jars": [{"id": "j1", "coins": 2}]}
    assert "gone" not in saved


async def test_to_scenario_uses_row_keys(settings: Settings) -> None:
    days = [{"habit_id": "h", "date": f"2026-06-0{n}", "value": "done"} for n in (1, 2, 3)]
    panel = demo_panel(pace_s=0, settings=settings)
    await panel.send("안녕")
    options: dict[str, Any] = {"destructive": (), "locale": "ko", "scenario_id": "a"}
    text = scenario_from_chat(
        panel.state.chat.messages,
        initial_state={"days": days[:2]},
        final_state={"days": [days[0], days[2]]},
        row_keys={"days": ("habit_id", "date")},
        **options,
    )
    (saved,) = yaml.safe_load(text)
    assert saved["final"] == {"days": [days[2]]}
    assert saved["gone"] == {"days": [{"habit_id": "h", "date": "2026-06-02"}]}


def clumsy(request: ModelRequest) -> Reply:
    """Play a model that makes every mistake there is before it does something."""
    search = ToolCall(name="search_catalog", args={"query": "물", "limit": 2})
    steps = [
        Reply(calls=(ToolCall(name="delete_all", args={}), search, search)),
        call("add_habit", protocol_id="water-on-waking", surprise=1),
        Reply(
            calls=(
                ToolCall(
                    name="add_habit",
                    args={
                        "protocol_id": "water-on-waking",
                        "frame_level": "action",
                        "framed_text": "나는 일어나서 물을 마신다",
                        "anchor_when": "아침 7시",
                        "extra": True,
                    },
                ),
                ToolCall(
                    name="log_tracker_entry", args={"habit_id": "water-on-waking", "value": "done"}
                ),
            )
        ),
        say("추가했어요"),
    ]
    answered = sum(1 for each in request.messages if type(each).__name__ == "ToolCallMessage")
    return steps[{0: 0, 3: 1, 4: 2, 6: 3}[answered]]


async def test_to_scenario_leaves_out_failed_calls(settings: Settings, tmp_path: Path) -> None:
    panel = life_helper_panel(ScriptedModel(clumsy), opt_in=True, settings=settings)
    await panel.send("물 마시는 습관 추가해줘", answers=[True])
    scenario = await passes(panel, tmp_path)
    calls = scenario.turns[0].expect.calls
    assert [call.tool for call in calls] == ["search_catalog", "add_habit"]
    assert "extra" not in calls[1].args


async def test_to_scenario_treats_a_stopped_card_as_rejected(
    settings: Settings, tmp_path: Path, front_end: Callable[[Any], Any]
) -> None:
    panel = demo_panel(pace_s=0, settings=settings)
    page = front_end(panel)
    page.press("send", text=ADD)
    await page.until_asked()
    panel.stop()
    await page.until(lambda: not panel.is_busy)
    scenario = await passes(panel, tmp_path)
    assert scenario.turns[0].confirm == "reject"


async def test_to_scenario_expects_the_words_of_the_model() -> None:
    class Guest(BaseModel):
        name: Annotated[str, AfterValidator(lambda name: f"Mr {name}")]
        is_late: bool = False

    registry = ToolRegistry()

    @registry.tool(destructive=True)
    def invite(
        guests: list[Guest],
        place: Annotated[str, StringConstraints(strip_whitespace=True, to_upper=True)],
        n: int = 1,
    ) -> dict[str, Any]:
        """Invite guests."""
        return {"n": n, "place": place, "guests": len(guests)}

    args = {"guests": [{"name": "Bo", "age": 4}], "place": " home "}
    chat = ChatController(
        model=ScriptedModel([call("invite", **args), say(".")]),
        dispatcher=ToolDispatcher(registry),
        confirm=ScriptedGate([True]),
    )
    await chat.user_turn("go")
    text = scenario_from_chat(
        chat.state.transcript.messages,
        initial_state={},
        final_state={},
        destructive={"invite"},
        locale="en",
        scenario_id="a-en-01",
    )
    (turn,) = yaml.safe_load(text)[0]["turns"]
    (expected,) = turn["expect"]["calls"]
    assert expected["args"] == {"guests": [{"name": "Bo"}], "place": " home "}
