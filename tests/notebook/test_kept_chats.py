"""Recorded chats: saved turn by turn, with cards and clicks, also after a kernel kill."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lhkit.base.errors import RunError, ServerUnreachableError, UsageError
from lhkit.chat.controller import ChatController
from lhkit.cli.chat.chats import (
    ForgetOptions,
    ListOptions,
    ShowOptions,
    list_chats,
    remove_chats,
    show_chat,
)
from lhkit.conversation.events import EndReason
from lhkit.conversation.messages import SystemMessage
from lhkit.harness.chats.chats import ChatRecorder
from lhkit.harness.exports.openai_messages import write_openai_messages
from lhkit.harness.records.record import Trajectory, Verdict
from lhkit.harness.records.store import RECORDS, read_records
from lhkit.harness.results.results import Run
from lhkit.harness.running.sessions import LiveSession
from lhkit.models.recorded.scripted import Reply, ScriptedModel, call, say
from lhkit.notebook import demo_panel
from lhkit.notebook.panel.panel import ChatPanel
from lhkit.notebook.panel.state import ErrorItem
from lhkit.settings import Settings
from lhkit.testing import echo_tool, object_schema
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import BareToolset, Toolset
from tests.children import run_to_its_death

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

MakePanel = Callable[..., ChatPanel]
MakeFrontEnd = Callable[[Any], Any]

NOTES = ToolRegistry(
    [echo_tool("write", parameters=object_schema("a", a={"type": "integer"}), is_destructive=True)]
)

DYING = """
import asyncio, os, signal
from pathlib import Path
from lhkit.harness.records.store import Journal
from lhkit.harness.records.record import encode_record
from lhkit.models.recorded.scripted import ScriptedModel, call, say
from lhkit.notebook.panel.panel import ChatPanel
from lhkit.settings import Settings
from lhkit.testing import echo_tool
from lhkit.tools.registry import ToolRegistry

def half(self, record):
    self._file.write(encode_record(record).encode()[:-40])
    self._file.flush()
    os.kill(os.getpid(), signal.SIGKILL)

async def chat():
    model = ScriptedModel([call("write", a=1), say("done"), say("two"), say("three")])
    tools = ToolRegistry([echo_tool("write", is_destructive=True)])
    panel = ChatPanel(model=model, toolset=tools, opt_in=True, record="runs/chats",
                      settings=Settings(config_dir=Path("config")))
    await panel.send("write", answers=[True])
    await panel.send("more")
    Journal.append = half
    await panel.send("lost")

asyncio.run(chat())
"""


def read_chats(folder: Path) -> tuple[Trajectory, ...]:
    return tuple(record.trajectory for record in Run.load(folder).records)


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def user_texts(trajectory: Trajectory) -> list[str]:
    return [turn.user for turn in trajectory.turns]


async def test_record_contains_messages_cards_and_clicks(
    make_panel: MakePanel, front_end: MakeFrontEnd, tmp_path: Path
) -> None:
    folder = tmp_path / "chats"
    replies = [call("write", a=1), say("done"), call("write", a=2), say("no")]
    panel = make_panel(replies, toolset=NOTES, record=folder)
    page = front_end(panel)
    for how in ("run", "escape"):
        page.press("send", text=f"write {how}")
        await page.until_asked()
        page.answer(how)
        await page.until(lambda: panel.state.has_figures and not panel.is_busy)
    run = Run.load(folder)
    (record,) = run.records
    calls = [call for turn in record.trajectory.turns for call in turn.calls]
    assert [(each.tool, each.gate, each.answer, each.ran) for each in calls] == [
        ("write", "accepted", "run", True),
        ("write", "rejected", "escape", False),
    ]
    assert '"a": 1' in calls[0].summary
    assert [turn.reply for turn in record.trajectory.turns] == ["done", "no"]
    assert run.toolset == "tools"
    assert record.score.verdict is Verdict.INVALID
    assert run.summary().total.valid == 0
    assert len(run.calls) == 2


async def test_record_is_off_by_default(
    make_panel: MakePanel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    panel = make_panel([say("hi")], locale="en")
    await panel.send("hello")
    assert not [item for item in panel.state.items if isinstance(item, SystemMessage)]
    assert RECORDS not in files_in(tmp_path)
    panel = make_panel([say("hi")], record="runs/chats", locale="en", opt_in=False)
    assert isinstance(panel.state.items[0], SystemMessage)
    assert "Recorded on this machine in runs/chats" in panel.state.items[0].text
    panel.clear()
    assert "runs/chats" in panel.state.items[0].text
    assert panel.state.needs_opt_in


@pytest.mark.slow
def test_record_keeps_finished_turns_after_kernel_kill(tmp_path: Path) -> None:
    run_to_its_death(DYING, folder=tmp_path)
    folder = tmp_path / "runs/chats"
    (trajectory,) = read_chats(folder)
    assert user_texts(trajectory) == ["write", "more"]
    assert trajectory.turns[0].calls[0].answer == "code_yes"


async def test_record_rejects_a_folder_of_other_tools(
    make_panel: MakePanel, settings: Settings, tmp_path: Path
) -> None:
    await make_panel([say("hi")], record=tmp_path).send("one")
    with pytest.raises(UsageError, match="has chats with the toolset tools, and this one has"):
        demo_panel(pace_s=0, record=tmp_path, settings=settings)


async def test_record_repairs_a_truncated_line(make_panel: MakePanel, tmp_path: Path) -> None:
    await make_panel([say("hi")], record=tmp_path).send("one")
    with (tmp_path / RECORDS).open("ab") as file:
        file.write(b'{"sample_id": {"scen')
    await make_panel([say("hi")], record=tmp_path).send("two")
    assert [user_texts(each) for each in read_chats(tmp_path)] == [["one"], ["two"]]


async def test_record_compacts_earlier_chats(make_panel: MakePanel, tmp_path: Path) -> None:
    panel = make_panel([say("hi")] * 4, record=tmp_path)
    for text in ("one", "two", "three"):
        await panel.send(text)
    assert len(read_records(tmp_path)) == 3
    panel.clear()
    await panel.send("four")
    assert [user_texts(record.trajectory) for record in read_records(tmp_path)] == [
        ["one", "two", "three"],
        ["four"],
    ]


async def test_record_contains_repeated_and_resumed_turns_once(
    make_panel: MakePanel, tmp_path: Path
) -> None:
    replies = [say("bad"), say("good"), Reply(error=ServerUnreachableError("down")), say("back")]
    panel = make_panel(replies, record=tmp_path)
    await panel.send("one")
    await panel.retry()
    await panel.send("two")
    assert [turn.ended for turn in read_chats(tmp_path)[0].turns] == [
        EndReason.ANSWERED,
        EndReason.FAILED,
    ]
    await panel.retry()
    (trajectory,) = read_chats(tmp_path)
    assert [(turn.user, turn.reply, turn.ended) for turn in trajectory.turns] == [
        ("one", "good", EndReason.ANSWERED),
        ("two", "back", EndReason.ANSWERED),
    ]
    assert len(trajectory.turns[1].model_calls) == 2


async def test_record_excludes_the_pause_before_a_retry(tmp_path: Path) -> None:
    present_s = 0.0
    tools = BareToolset(registry=NOTES)
    noon = datetime(2026, 6, 15, 12, tzinfo=UTC)
    around = LiveSession(tools, None, None, now=lambda: noon, locale="ko")
    keeper = ChatRecorder(tmp_path, around, now=lambda: noon, clock=lambda: present_s)
    model = ScriptedModel([Reply(error=ServerUnreachableError("down")), say("back")])
    chat = ChatController(model=model, dispatcher=ToolDispatcher(NOTES))
    chat.subscribe(keeper.handle)
    await chat.user_turn("one")
    present_s = 3600.0
    await chat.retry()
    keeper.save("ko")
    (turn,) = read_chats(tmp_path)[0].turns
    assert (turn.reply, turn.duration_s) == ("back", 0.0)


async def test_record_contains_stopped_turns(
    make_panel: MakePanel, front_end: MakeFrontEnd, tmp_path: Path
) -> None:
    panel = make_panel([call("write"), say("never")], record=tmp_path)
    page = front_end(panel)
    page.press("send", text="write")
    await page.until_asked()
    panel.stop()
    await page.until(lambda: not panel.is_busy)
    (turn,) = read_chats(tmp_path)[0].turns
    assert turn.ended is EndReason.STOPPED
    assert [(each.answer, each.ran) for each in turn.calls] == [("stopped", False)]


async def test_record_contains_initial_and_final_state(
    make_panel: MakePanel, purse: type[Toolset], tmp_path: Path
) -> None:
    world = {"now": "2026-06-15T09:00:00+09:00"}
    replies = [call("spend"), say("ok")]
    await make_panel(replies, toolset=purse, world=world, record=tmp_path).send("spend one")
    (record,) = Run.load(tmp_path).records
    assert record.started_at == "2026-06-15T09:00:00+09:00"
    assert record.trajectory.initial_state == {"jars": ({"id": "j1", "coins": 3},)}
    assert record.trajectory.final_state == {"jars": ({"id": "j1", "coins": 2},)}
    assert set(record.state_diff) == {"jars"}


async def test_record_write_error_is_shown_and_repaired(
    make_panel: MakePanel, tmp_path: Path
) -> None:
    folder = tmp_path / "chats"
    panel = make_panel([say("hi")] * 2, record=folder, locale="en")
    folder.write_text("a file is in the way", encoding="utf-8")
    await panel.send("one")
    assert isinstance(panel.state.items[-1], ErrorItem)
    assert "Choose another folder" in panel.state.items[-1].detail
    folder.unlink()
    await panel.send("two")
    assert [user_texts(each) for each in read_chats(folder)] == [["one", "two"]]


async def test_record_rejects_the_folder_of_a_run(make_panel: MakePanel, tmp_path: Path) -> None:
    (tmp_path / RECORDS).write_bytes(b"{}\n")
    with pytest.raises(UsageError, match="has a run"):
        make_panel([], record=tmp_path)
    (tmp_path / RECORDS).write_bytes(b"")
    with pytest.raises(UsageError, match="has a run"):
        await remove_chats(ForgetOptions(folder=tmp_path, is_all=True), Settings())


async def test_chats_commands_list_show_and_export(
    make_panel: MakePanel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, english = tmp_path / "chats", Settings(locale="en")
    replies = [call("write", a=1), say("done")]
    panel = make_panel(replies, toolset=NOTES, record=folder, locale="en")
    await panel.send("write\x1b[2J it", answers=[True])
    await list_chats(ListOptions(folder=folder), english)
    listed = capsys.readouterr().out
    assert "1 turn · write" in listed
    assert "\x1b" not in listed
    name = listed.split(" ")[0]
    await show_chat(ShowOptions(name=name, folder=folder), english)
    shown = capsys.readouterr().out
    assert "[accepted: code_yes]" in shown
    assert '  Confirmation card: {\n  "a": 1\n}\n' in shown
    out = tmp_path / "chats.jsonl"
    write_openai_messages(Run.load(folder), out)
    assert '"name":"write"' in out.read_text(encoding="utf-8")


@pytest.mark.longer
async def test_chats_forget_deletes_only_the_named_chat(
    make_panel: MakePanel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for word in ("secret-one", "other-two", "third"):
        panel = make_panel([say("hi")] * 2, record=tmp_path)
        await panel.send(word)
        await panel.send(f"more of {word}")
    names = [str(record.sample_id) for record in Run.load(tmp_path).records]
    with pytest.raises(UsageError, match="has no chat 'nope'"):
        await remove_chats(ForgetOptions(names=(names[0], "nope"), folder=tmp_path), Settings())
    for mistaken in ({"names": (), "is_all": False}, {"names": names, "is_all": True}):
        with pytest.raises(UsageError, match="name the chats to delete"):
            await remove_chats(ForgetOptions(folder=tmp_path, **mistaken), Settings())
    await remove_chats(ForgetOptions(names=names[:1], folder=tmp_path), Settings())
    assert not any(b"secret-one" in content for content in files_in(tmp_path).values())
    assert [user_texts(each)[0] for each in read_chats(tmp_path)] == ["other-two", "third"]
    capsys.readouterr()
    await remove_chats(ForgetOptions(folder=tmp_path, is_all=True), Settings(locale="en"))
    assert capsys.readouterr().out.splitlines()[-1] == f"Deleted: 2 chats of {tmp_path}"
    assert (tmp_path / RECORDS).read_bytes() == b""


async def test_chats_commands_report_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not a run folder"):
        await list_chats(ListOptions(folder=tmp_path / "none"), Settings())
