"""The pantry toolset: its scenarios, context line and use in a panel."""

from pathlib import Path

import pytest
import yaml

import lhkit
from lhkit.conversation.messages import ModelMessage, ToolCallMessage
from lhkit.conversation.tool_results import ToolOk
from lhkit.harness.authoring.lint import lint
from lhkit.harness.authoring.mutate import mutate
from lhkit.harness.authoring.reference import gold_model
from lhkit.harness.records.record import Verdict
from lhkit.harness.running.sample import run_sample
from lhkit.harness.scenarios.loader import load_scenarios, read_sources
from lhkit.models.recorded.scripted import call, say
from lhkit.notebook.panel.panel import ChatPanel
from lhkit.notebook.panel.state import CardItem
from lhkit.settings import Settings
from lhkit.toolset import load

ROOT = Path(__file__).parents[2]
PANTRY = ROOT / "evals" / "pantry"
SCENARIOS = PANTRY / "scenarios"
REFERENCE = f"{PANTRY / 'pantry.py'}:toolset"


_WORLD = {
    "now": "2026-06-15T09:00:00+09:00",
    "items": [
        {"id": "egg", "name": "달걀", "amount": 4},
        {"id": "milk", "name": "우유", "amount": 1, "expires_on": "2026-06-17"},
    ],
}


_EGG = {"id": "egg", "name": "달걀", "place": "fridge", "expires_on": None}


@pytest.mark.slow
@pytest.mark.anyio
async def test_pantry_scenarios_lint_clean() -> None:
    """Lint also tries the reference, which must pass, and a silent model, which must fail."""
    assert await lint(read_sources([SCENARIOS]), load(REFERENCE)) == ()


@pytest.mark.anyio
@pytest.mark.parametrize(
    "every", [pytest.param(1, marks=pytest.mark.nightly), pytest.param(6, marks=pytest.mark.slow)]
)
async def test_pantry_scenarios_notice_every_mutation(every: int) -> None:
    report = await mutate(load_scenarios([SCENARIOS])[::every], load(REFERENCE))
    assert [f"{outcome.scenario} {outcome.key}" for outcome in report.survivors] == []
    assert report.total.tried > 500 / every


@pytest.mark.slow
def test_pantry_context_contains_mentioned_dates() -> None:
    session = load(REFERENCE).open({"now": _WORLD["now"]}, "ko")
    assert "모레 = 2026-06-17" in session.assistant.context("연두부는 모레까지야").splitlines()


_LOOK = call("find_item", query="달걀")
_MOVED = call("move_item", item_id="milk", place="freezer")


@pytest.mark.slow
@pytest.mark.anyio
async def test_pantry_max_turns_allow_two_requests_with_lookups(tmp_path: Path) -> None:
    calls = [_LOOK, call("use_item", item_id="egg", amount=1), _LOOK, _MOVED]
    panel = ChatPanel(
        model=lhkit.ScriptedModel([*calls, say("둘 다 했어요")]),
        toolset=REFERENCE,
        world=_WORLD,
        opt_in=True,
        settings=Settings(config_dir=tmp_path),
    )
    await panel.send("하나 하고 또 하나 해 줘", answers=[True, True])
    assert ModelMessage(text="둘 다 했어요") in panel.state.last_turn
    results = [item.result for item in panel.state.last_turn if isinstance(item, ToolCallMessage)]
    assert [type(result) for result in results] == [ToolOk] * len(calls)


@pytest.fixture
def panel(tmp_path: Path) -> ChatPanel:
    """Return a panel over the pantry whose model uses an egg at each request."""
    script = [call("use_item", item_id="egg", amount=1), say("썼어요")] * 2
    return ChatPanel(
        model=lhkit.ScriptedModel(script),
        toolset=REFERENCE,
        world=_WORLD,
        opt_in=True,
        settings=Settings(config_dir=tmp_path),
    )


@pytest.mark.slow
@pytest.mark.anyio
async def test_panel_over_the_pantry_saves_a_scenario(panel: ChatPanel, tmp_path: Path) -> None:
    await panel.send("달걀 하나 썼어", answers=[True])
    saved = panel.save_scenario(tmp_path / "saved.yaml")
    assert await lint(read_sources([saved]), load(REFERENCE)) == ()
    (scenario,) = load_scenarios([saved])
    assert scenario.final == {"items": ({**_EGG, "amount": 3},)}
    assert (await run_sample(scenario, gold_model, load(REFERENCE))).score.verdict is Verdict.PASS


@pytest.mark.slow
@pytest.mark.anyio
async def test_panel_over_the_pantry_keeps_its_state_across_locales(
    panel: ChatPanel,
) -> None:
    await panel.send("달걀 하나 썼어", answers=[True])
    panel.set_locale("en")
    await panel.send("I used another egg", answers=[True])
    card = next(item for item in panel.state.last_turn if isinstance(item, CardItem))
    assert card.request.summary == "Use: 1 of 달걀"
    (saved,) = yaml.safe_load(panel.to_scenario())
    assert saved["final"] == {"items": [{**_EGG, "amount": 2}]}
