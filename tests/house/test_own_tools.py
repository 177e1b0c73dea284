"""The second toolset and the how-to of own tools are what they say they are."""

import importlib
import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest
import yaml

import lhkit
from lhkit.commands.tune import write_skeleton
from lhkit.commands.tune_options import InitOptions
from lhkit.confirm.gate import ScriptedGate
from lhkit.errors import UsageError
from lhkit.harness.author.gold import gold_model, silent_model
from lhkit.harness.author.lint import lint
from lhkit.harness.author.mutate import mutate
from lhkit.harness.record import Verdict
from lhkit.harness.run import tried
from lhkit.harness.scenario import load_scenarios, read_sources
from lhkit.lifehelper import toolset as life_helper
from lhkit.messages import ToolErr, ToolOk
from lhkit.notebook.panel import ChatPanel
from lhkit.notebook.state import AssistantItem, CardItem, ToolItem
from lhkit.settings import Settings
from lhkit.testing import Reply, call, say
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.toolset import load, registry_of

ROOT = Path(__file__).parents[2]
PANTRY = ROOT / "evals" / "pantry"
SCENARIOS = PANTRY / "scenarios"
DIARY = ROOT / "evals" / "diary"
REFERENCE = f"{PANTRY / 'pantry.py'}:toolset"
GUIDE = (ROOT / "docs" / "own-tools.md").read_text(encoding="utf-8")


_WORLD = {
    "now": "2026-06-15T09:00:00+09:00",
    "items": [
        {"id": "egg", "name": "달걀", "amount": 4},
        {"id": "milk", "name": "우유", "amount": 1, "expires_on": "2026-06-17"},
    ],
}


_EGG = {"id": "egg", "name": "달걀", "place": "fridge", "expires_on": None}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


@pytest.mark.anyio
@pytest.mark.promise("own_tools.pantry")
async def test_the_pantry_lints_clean_and_is_passed_by_gold_only() -> None:
    toolset = load(REFERENCE)
    sources = read_sources([SCENARIOS])
    assert await lint(sources, toolset) == ()
    played = [await tried(each, gold_model, toolset) for each in sources.scenarios]
    assert [each.sample_id for each in played if each.judgement.verdict is not Verdict.PASS] == []
    assert [each.sample_id for each in played if each.judgement.violations] == []
    silent = [await tried(each, silent_model(), toolset) for each in sources.scenarios]
    assert [each.sample_id for each in silent if each.judgement.verdict is not Verdict.FAIL] == []


@pytest.mark.anyio
async def test_every_mistake_in_the_pantry_is_noticed() -> None:
    report = await mutate(load_scenarios([SCENARIOS]), load(REFERENCE))
    assert [f"{each.scenario} {each.key}" for each in report.survivors] == []
    assert report.total.tried > 500


@pytest.mark.anyio
@pytest.mark.promise("own_tools.diary")
async def test_of_an_outsiders_mistakes_at_least_97_in_100_are_noticed() -> None:
    toolset, sources = load(f"{DIARY / 'diary.py'}:toolset"), read_sources([DIARY])
    assert await lint(sources, toolset) == ()
    report = await mutate(sources.scenarios, toolset)
    assert report.total.tried > 150
    assert report.total.noticed >= 0.97 * report.total.tried


@pytest.mark.anyio
async def test_an_alarm_of_the_diary_gets_no_id_that_another_has() -> None:
    world = {"alarms": [{"id": "a1", "time": "07:00"}, {"id": "a2", "time": "08:00"}]}
    session = load(f"{DIARY / 'diary.py'}:toolset").open(world, "en")
    dispatcher, gate = ToolDispatcher(session.registry), ScriptedGate([True, True])
    for tool, args in (("delete_alarm", {"alarm_id": "a1"}), ("set_alarm", {"time": "09:00"})):
        await dispatcher.dispatch(tool, args, confirm=gate, deps=session.assistant.deps)
    alarms = session.state()["alarms"]
    assert [(each["id"], each["time"]) for each in alarms] == [("a2", "08:00"), ("a3", "09:00")]


@pytest.mark.parametrize(
    ("reference", "message", "told"),
    [
        (REFERENCE, "연두부는 모레까지야", "모레 = 2026-06-17"),
        (f"{DIARY / 'diary.py'}:toolset", "금요일 저녁 7시 반", "금요일 = 2026-06-19"),
        (f"{DIARY / 'diary.py'}:toolset", "금요일 저녁 7시 반", "저녁 7시 반 = 19:30"),
    ],
)
def test_the_context_tells_what_the_days_and_times_of_a_message_mean(
    reference: str, message: str, told: str
) -> None:
    session = load(reference).open({"now": _WORLD["now"]}, "ko")
    assert told in session.assistant.context(message).splitlines()


_LOOK, _EVENTS = call("find_item", query="달걀"), call("list_events", day="2026-06-15")
_MOVED = call("move_item", item_id="milk", place="freezer")
_ALARM = call("set_alarm", time="06:30")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("reference", "calls"),
    [
        (REFERENCE, [_LOOK, call("use_item", item_id="egg", amount=1), _LOOK, _MOVED]),
        (f"{DIARY / 'diary.py'}:toolset", [_EVENTS, _ALARM, _EVENTS, _ALARM]),
    ],
    ids=["pantry", "diary"],
)
async def test_two_wishes_that_each_look_something_up_still_get_an_answer(
    tmp_path: Path, reference: str, calls: list[Reply]
) -> None:
    panel = ChatPanel(
        model=lhkit.ScriptedModel([*calls, say("둘 다 했어요")]),
        toolset=reference,
        world=_WORLD if reference == REFERENCE else {"now": _WORLD["now"]},
        opt_in=True,
        settings=Settings(config_dir=tmp_path),
    )
    await panel.send("하나 하고 또 하나 해 줘", answers=[True, True])
    assert panel.state.last_turn[-1] == AssistantItem(text="둘 다 했어요")
    ran = [each.result for each in panel.state.last_turn if isinstance(each, ToolItem)]
    assert [type(each) for each in ran] == [ToolOk] * len(calls)


def test_the_pantry_is_small_bilingual_and_another_domain() -> None:
    scenarios = load_scenarios([SCENARIOS])
    assert Counter(each.locale for each in scenarios) == {"ko": 24, "en": 16}
    assert max(len(each.turns) for each in scenarios) <= 3
    toolset = load(REFERENCE)
    for locale in ("ko", "en"):
        registry = registry_of(toolset, scenarios[0].world, locale)
        assert len(registry) == 5
        assert len(registry.destructive) == 3
        assert set(registry).isdisjoint(life_helper.registry_of(locale))
    assert len((PANTRY / "pantry.py").read_text(encoding="utf-8").splitlines()) < 340


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("tool", "args", "outcome"),
    [
        ("find_item", {}, ["egg", "milk"]),
        ("find_item", {"query": "저지방 우유를"}, ["milk"]),
        ("find_item", {"place": "shelf"}, []),
        ("list_expiring", {"days": 1}, []),
        ("list_expiring", {}, ["milk"]),
        ("use_item", {"item_id": "egg", "amount": 5}, "r1_stock"),
        ("use_item", {"item_id": "eggs", "amount": 1}, "not_found"),
        ("use_item", {"item_id": "egg", "amount": 0}, "validation"),
        ("move_item", {"item_id": "rice", "place": "shelf"}, "not_found"),
        ("add_item", {"name": "쌀", "amount": 1, "expires_on": "2026-02-30"}, "invalid_date"),
        ("add_item", {"name": "쌀", "amount": 1, "place": "roof"}, "validation"),
        ("add_item", {"name": "쌀", "amount": 1}, "item-1"),
    ],
)
async def test_a_tool_of_the_pantry_answers_what_is_true(
    tool: str, args: dict[str, object], outcome: object
) -> None:
    session = load(REFERENCE).open(_WORLD, "ko")
    before = session.state()
    dispatcher = ToolDispatcher(session.registry)
    gate = ScriptedGate([True])
    result = await dispatcher.dispatch(tool, args, confirm=gate, deps=session.assistant.deps)
    match result:
        case ToolOk(data={"items": [*items]}):
            assert [each["id"] for each in items] == outcome
        case ToolOk(data={"item": {"id": item_id}}):
            assert item_id == outcome
            assert before != session.state()
        case ToolErr(code=code):
            assert (code, session.state()) == (outcome, before)
        case _:
            pytest.fail(str(result))


def test_a_kitchen_that_cannot_be_names_the_field() -> None:
    toolset = load(REFERENCE)
    for world, field in (
        ({}, "world.now"),
        ({**_WORLD, "shelves": []}, "world.shelves"),
        (
            {**_WORLD, "items": [{"id": "egg", "name": "달걀", "amount": -1}]},
            "world.items.0.amount",
        ),
    ):
        with pytest.raises(UsageError, match=f"^{re.escape(field)}: "):
            toolset.open(world, "ko")
    with pytest.raises(UsageError, match="no pantry texts for locale 'fr'"):
        toolset.open(_WORLD, "fr")


def test_nothing_of_the_pantry_is_in_the_training_phrases() -> None:
    """It shows how far a tuned model generalises only as long as nobody trains on it."""
    sources = (ROOT / "lhkit" / "tuning").rglob("*")
    texts = [
        file.read_text(encoding="utf-8")
        for file in sources
        if file.suffix in {".py", ".yaml", ".toml"}
    ]
    assert texts
    names = set(registry_of(load(REFERENCE), _WORLD, "en"))
    said = {turn.user for each in load_scenarios([SCENARIOS]) for turn in each.turns}
    assert [each for each in names | said if any(each in text for text in texts)] == []


PLAYER = """
import json, sys
from lhkit.__main__ import main

for sys.argv in json.loads(sys.argv[1]):
    try:
        main()
    except SystemExit as left:
        print(f"<exit {left.code or 0}>", flush=True)
"""
"""Plays several commands in one process, so that packages are loaded once."""


@pytest.mark.promise("own_tools.guide")
def test_the_guide_to_own_tools_does_what_it_says(tmp_path: Path) -> None:
    """Write its files, run its console block; what stands under a command must be in its output."""
    (tmp_path / "kitchen.py").write_text("\n\n".join(blocks("python")), encoding="utf-8")
    (tmp_path / "kitchen.yaml").write_text(blocks("yaml")[0], encoding="utf-8")
    export, *steps = (part.splitlines() for part in blocks("console")[0][2:].split("\n$ "))
    assert export == ["export LHKIT_LOCALE=en"]
    commands = [shlex.split(step[0]) for step in steps]
    assert [words[:2] for words in commands] == [
        ["lhkit", name] for name in ("lint", "eval", "eval", "mutate", "prompt")
    ]
    done = subprocess.run(
        [sys.executable, "-c", PLAYER, json.dumps(commands)],
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "200", "LHKIT_LOCALE": "en"},  # noqa: TID251 - for the child
        capture_output=True,
        text=True,
        check=True,
    )
    outputs = done.stdout.split("<exit 0>\n")
    assert len(outputs) == len(steps) + 1, done.stdout + done.stderr
    for (_, *promised), shown in zip(steps, outputs, strict=False):
        assert promised
        assert [line for line in promised if line not in shown] == []
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {
        "gold-json-kitchen",
        "silent-json-kitchen",
    }


@pytest.mark.anyio
@pytest.mark.promise("own_tools.guide")
async def test_the_chat_of_the_guide_is_a_panel_over_its_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kitchen.py").write_text("\n\n".join(blocks("python")), encoding="utf-8")
    cell = blocks("ipython")[0].replace("ChatPanel(model", "return ChatPanel(model")
    cell = cell.replace('locale="en")', 'locale="en", opt_in=True)')
    body = textwrap.indent(cell, "    ")
    (tmp_path / "kitchen_chat.py").write_text(f"async def cell():\n{body}", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    script = [call("use_item", item_id="egg", amount=3), say("There are 6 left.")]

    async def scripted(_address: str) -> lhkit.ScriptedModel:
        return lhkit.ScriptedModel(script)

    monkeypatch.setattr(lhkit, "connect", scripted)
    panel = await importlib.import_module("kitchen_chat").cell()
    await panel.send("I used three eggs.", answers=[True])
    (saved,) = yaml.safe_load(panel.to_scenario())
    assert saved["world"]["items"] == [{"id": "egg", "name": "eggs", "amount": 9}]
    assert saved["final"] == {"items": [{"id": "egg", "name": "eggs", "amount": 6}]}


@pytest.fixture
def panel(tmp_path: Path) -> ChatPanel:
    """Return a panel over the pantry whose model uses an egg at each wish."""
    script = [call("use_item", item_id="egg", amount=1), say("썼어요")] * 2
    return ChatPanel(
        model=lhkit.ScriptedModel(script),
        toolset=REFERENCE,
        world=_WORLD,
        opt_in=True,
        settings=Settings(config_dir=tmp_path),
    )


@pytest.mark.anyio
@pytest.mark.promise("own_tools.one_door")
async def test_what_was_said_in_a_panel_over_the_pantry_is_a_scenario_of_it(
    panel: ChatPanel, tmp_path: Path
) -> None:
    await panel.send("달걀 하나 썼어", answers=[True])
    saved = panel.save_scenario(tmp_path / "saved.yaml")
    assert await lint(read_sources([saved]), load(REFERENCE)) == ()
    (scenario,) = load_scenarios([saved])
    assert scenario.final == {"items": ({**_EGG, "amount": 3},)}
    assert (await tried(scenario, gold_model, load(REFERENCE))).judgement.verdict is Verdict.PASS


@pytest.mark.anyio
@pytest.mark.promise("gate.summary_looks_up")
async def test_a_panel_that_changes_its_language_goes_on_in_the_same_kitchen(
    panel: ChatPanel,
) -> None:
    await panel.send("달걀 하나 썼어", answers=[True])
    panel.set_locale("en")
    await panel.send("I used another egg", answers=[True])
    card = next(item for item in panel.state.last_turn if isinstance(item, CardItem))
    assert card.request.summary == "Use: 1 of 달걀"
    (saved,) = yaml.safe_load(panel.to_scenario())
    assert saved["final"] == {"items": [{**_EGG, "amount": 2}]}


def test_the_pantry_keeps_nothing_in_a_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="for tools that keep their data"):
        ChatPanel(
            model=lhkit.ScriptedModel([]),
            toolset=REFERENCE,
            world=_WORLD,
            file=tmp_path / "pantry.db",
            settings=Settings(config_dir=tmp_path),
        )


@pytest.mark.anyio
@pytest.mark.promise("own_tools.one_door")
async def test_the_pantry_is_tuned_on_by_the_same_reference(tmp_path: Path) -> None:
    phrases = tmp_path / "phrases.yaml"
    options = InitOptions(toolset=REFERENCE, out=phrases)
    assert await write_skeleton(options, Settings(config_dir=tmp_path)) == 0
    assert "use_item:" in phrases.read_text(encoding="utf-8")


def test_the_links_of_the_guide_lead_somewhere() -> None:
    links = re.findall(r"\]\((?!http)([^)]+)\)", GUIDE)
    assert links
    assert [each for each in links if not (ROOT / "docs" / each).exists()] == []
