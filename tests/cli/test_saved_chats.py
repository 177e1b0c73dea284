"""A chat over tools of the user, in a terminal or a panel, becomes a scenario of them."""

import io
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from lhkit.app import open_chat
from lhkit.base.errors import UsageError
from lhkit.base.locales import load_catalog
from lhkit.cli.chat.chat import open_live_session
from lhkit.cli.chat.terminal import TerminalChat
from lhkit.cli.lint import LintOptions, lint_paths
from lhkit.confirm.gate import ScriptedGate
from lhkit.harness.authoring.reference import gold_model
from lhkit.harness.records.record import Verdict
from lhkit.harness.running.sample import run_sample
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.models.recorded.scripted import ScriptedModel, call, say
from lhkit.notebook.panel.panel import ChatPanel
from lhkit.settings import Settings
from lhkit.toolset import load

pytestmark = pytest.mark.anyio

OWN = '''\
from datetime import date, datetime

from lhkit import Assistant, ToolRegistry

rooms = ToolRegistry()


@rooms.tool(destructive=True)
def book(room: str, hour: int) -> dict:
    """Book a room."""
    return {"room": room, "hour": hour}


def bare():
    return rooms


class Session:
    def __init__(self, world):
        self.booked = list(world.get("booked", []))
        self.today = datetime.fromisoformat(world["now"]).date()
        self.assistant = Assistant(instructions="Be short.")
        self.registry = ToolRegistry()

        @self.registry.tool(destructive=True)
        def book(room: str, hour: int) -> dict:
            """Book a room."""
            self.booked.append({"id": f"b{len(self.booked) + 1}", "room": room, "hour": hour})
            return self.booked[-1]

    def state(self):
        return {"booked": self.booked}

    def close(self):
        pass


class House:
    def open(self, world, locale):
        return Session(world)


house = House()


def made():
    return House()
'''
WITHOUT_A_WORLD = ("own_rooms.py:rooms", "own_rooms.py:bare", "own_rooms:rooms")
WITH_A_WORLD = ("own_rooms.py:house", "own_rooms.py:House", "own_rooms.py:made", "own_rooms:house")
SAID = {"ko": ("파란 방 9시에 예약해 줘", "예약했어요."), "en": ("Book blue at 9", "It is booked.")}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own_rooms.py").write_text(OWN, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def now() -> datetime:
    return datetime(2026, 6, 15, 12, tzinfo=UTC)


def model(locale: str) -> ScriptedModel:
    return ScriptedModel([call("book", room="blue", hour=9), say(SAID[locale][1])] * 2)


async def terminal(
    reference: str, locale: str, settings: Settings, typed: list[str], **options: Path
) -> str:
    """Return the terminal output of a chat."""
    localized = settings.model_copy(update={"locale": locale})
    around = open_live_session(reference, options.get("world"), options.get("file"), localized)
    shown = io.StringIO()
    script: Iterator[str] = iter(typed)

    async def read(_prompt: str) -> str:
        return next(script)

    gate = ScriptedGate([True, True])
    chat = TerminalChat(
        open_chat(model(locale), around.session, gate, locale),
        around,
        read=read,
        console=Console(file=shown, width=200, highlight=False, markup=False),
        catalog=load_catalog(locale),
        now=now,
    )
    await chat.run(model_name="script")
    return shown.getvalue()


async def require_fit(file: Path, reference: str, settings: Settings) -> None:
    """Require that a saved scenario is clean in lint and passed by gold."""
    assert await lint_paths(LintOptions(paths=(file,), toolset=reference), settings) == 0
    (scenario,) = load_scenarios([file])
    record = await run_sample(scenario, gold_model, load(reference))
    assert record.score.verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("reference", "locale"),
    [*((each, "en") for each in (*WITHOUT_A_WORLD, *WITH_A_WORLD)), (WITH_A_WORLD[0], "ko")],
)
async def test_terminal_save_writes_scenario_that_gold_passes(
    reference: str, locale: str, settings: Settings, folder: Path
) -> None:
    shown = await terminal(
        reference, locale, settings, [SAID[locale][0], "/save mine/one.yaml", "/quit"]
    )
    file = folder / "mine" / "one.yaml"
    assert str(file.relative_to(folder)) in shown
    (saved,) = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert (saved["id"], saved["locale"]) == ("chat-20260615-120000", locale)
    assert "ac" not in saved
    booked = {"booked": [{"id": "b1", "room": "blue", "hour": 9}]}
    assert saved.get("final") == (booked if reference in WITH_A_WORLD else None)
    await require_fit(file, reference, settings)


@pytest.mark.parametrize(
    ("reference", "world", "locale"),
    [
        (WITHOUT_A_WORLD[0], None, "ko"),
        (WITHOUT_A_WORLD[0], {"now": "2026-06-15T09:00:00+09:00"}, "en"),
        (WITH_A_WORLD[0], None, "en"),
    ],
)
async def test_panel_save_writes_scenario_that_gold_passes(
    reference: str, world: dict[str, str] | None, locale: str, settings: Settings, folder: Path
) -> None:
    panel = ChatPanel(
        model=model(locale),
        toolset=reference,
        world=world,
        locale=locale,
        opt_in=True,
        settings=settings,
    )
    await panel.send(SAID[locale][0], answers=[True])
    file = panel.save_scenario(folder / "two.yaml")
    (saved,) = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert saved["locale"] == locale
    assert "ac" not in saved
    assert world is None or saved["world"] == world
    await require_fit(file, reference, settings)


CRITERIA = {
    "none": ("return None", None),
    "blank": ('return "  "', "criterion() of House is invalid: it returned"),
    "number": ("return 7", "criterion() of House is invalid: it returned 7. Return a criterion"),
    "fails": ("return calls[7]", "criterion() of House failed at"),
    "text": ('return f"{len(calls)} {calls[0].tool} {calls[0].result}"', "1 book ok"),
    "words": ('return "예약" if calls[0].answer == "accept" else "x"', "예약"),
}


def error_of(panel: ChatPanel) -> str:
    with pytest.raises(UsageError) as error:
        panel.to_scenario()
    return str(error.value)


@pytest.mark.parametrize("name", CRITERIA)
async def test_saved_chat_has_the_criterion_of_its_toolset(
    name: str, settings: Settings, folder: Path
) -> None:
    body, expected = CRITERIA[name]
    code = OWN.replace(
        "class House:\n", f"class House:\n    def criterion(self, calls):\n        {body}\n\n"
    )
    (folder / "own_named.py").write_text(code, encoding="utf-8")
    reference = "own_named.py:house"
    panel = ChatPanel(
        model=model("ko"), toolset=reference, locale="ko", opt_in=True, settings=settings
    )
    await panel.send(SAID["ko"][0], answers=[True])
    shown = await terminal(reference, "ko", settings, [SAID["ko"][0], "/save one.yaml", "/quit"])
    if name in {"blank", "number", "fails"}:
        assert expected is not None
        assert load_catalog("ko").translate(error_of(panel)) in shown
        assert not (folder / "one.yaml").exists()
        assert expected in error_of(panel)
        return
    for text in (panel.to_scenario(), (folder / "one.yaml").read_text(encoding="utf-8")):
        (saved,) = yaml.safe_load(text)
        assert saved.get("ac") == expected
    assert yaml.safe_load(panel.to_scenario(ac="mine"))[0]["ac"] == "mine"
    await require_fit(folder / "one.yaml", reference, settings)


async def test_terminal_clear_resets_initial_state(settings: Settings, folder: Path) -> None:
    world = folder / "world.yaml"
    world.write_text("booked: [{id: b1, room: red, hour: 8}]\n", encoding="utf-8")
    message = SAID["en"][0]
    typed = [message, "/clear", message, "/save one.yaml", "/quit"]
    await terminal(WITH_A_WORLD[0], "en", settings, typed, world=world)
    (saved,) = yaml.safe_load((folder / "one.yaml").read_text(encoding="utf-8"))
    assert [row["id"] for row in saved["world"]["booked"]] == ["b1", "b2"]
    assert saved["final"] == {"booked": [{"id": "b3", "room": "blue", "hour": 9}]}
    assert len(saved["turns"]) == 1
    await require_fit(folder / "one.yaml", WITH_A_WORLD[0], settings)


async def test_terminal_save_reports_errors_and_continues(settings: Settings, folder: Path) -> None:
    (folder / "there.yaml").write_text("mine\n", encoding="utf-8")
    typed = ["/save", SAID["en"][0], "/save there.yaml", "/save", "/quit"]
    shown = await terminal(WITH_A_WORLD[0], "en", settings, typed)
    assert "the conversation is empty" in shown
    assert "File exists: 'there.yaml'" in shown
    assert (folder / "there.yaml").read_text(encoding="utf-8") == "mine\n"
    assert (folder / "scenarios" / "chat-20260615-120000.yaml").is_file()
