"""Two processes with a conversation each over one chat database."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lhkit.confirm.gate import ScriptedGate
from lhkit.conversation.tool_results import ToolErr, ToolOk
from lhkit.lifehelper import store as store_module
from lhkit.lifehelper import toolset as life_helper
from lhkit.lifehelper.catalog import load_protocols
from lhkit.lifehelper.habits import list_entries
from lhkit.lifehelper.store import Store
from lhkit.lifehelper.tools import LifeHelper
from lhkit.settings import Settings
from lhkit.tools.dispatcher import ToolDispatcher

NOTEBOOK = """
import asyncio, json, sys
from contextlib import closing
from pathlib import Path
from lhkit import app
from lhkit.confirm.gate import ScriptedGate
from lhkit.lifehelper.toolset import LIFE_HELPER
from lhkit.models.recorded.scripted import ScriptedModel, call, say
from lhkit.settings import Settings
from lhkit.conversation.messages import ToolCallMessage
from lhkit.conversation.tool_results import result_to_dict

async def run_turn(session, name, args):
    model = ScriptedModel([call(name, **args), say("네")])
    chat = app.open_chat(model, session, ScriptedGate([True]), "ko")
    await chat.user_turn("부탁해")
    return [result_to_dict(m.result) for m in chat.state.messages if isinstance(m, ToolCallMessage)]

session = LIFE_HELPER.open_kept(Path(sys.argv[1]), now=Settings().now, locale="ko")
with closing(session), asyncio.Runner() as runner:
    print("open", flush=True)
    for line in sys.stdin:
        turns = [runner.run(run_turn(session, *request)) for request in json.loads(line)]
        print(json.dumps([result for results in turns for result in results]), flush=True)
"""
HABIT = {"frame_level": "identity", "framed_text": "나는 매일 걷는 사람이다", "anchor_when": "아침"}
DAYS = 8


class Notebook:
    """A process with an open conversation over the database."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def ask(self, *calls: tuple[str, dict[str, Any]]) -> None:
        """Let the model make calls; the user approves each."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(calls) + "\n")
        self.process.stdin.flush()

    def read_results(self) -> Any:
        """Return the tool results."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())


@contextmanager
def notebooks(database: Path, count: int) -> Iterator[list[Notebook]]:
    with ExitStack() as stack:
        opened = []
        for _ in range(count):
            process = subprocess.Popen(
                [sys.executable, "-c", NOTEBOOK, str(database)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            opened.append(Notebook(process))
        for notebook in opened:
            assert notebook.process.stdout is not None
            assert notebook.process.stdout.readline() == "open\n"
        yield opened


@pytest.mark.slow
def test_store_keeps_rules_and_writes_of_two_processes(tmp_path: Path) -> None:
    path = tmp_path / "chat.sqlite3"
    today = Settings().now().date()
    days = [(today - timedelta(days=n)).isoformat() for n in range(DAYS)]
    with notebooks(path, 2) as (one, two):  # both create the file concurrently
        one.ask(("add_habit", {"protocol_id": "daily-walk", **HABIT}))
        two.ask(("add_habit", {"protocol_id": "box-breathing", **HABIT}))
        results = [*one.read_results(), *two.read_results()]
        codes = sorted(result.get("code", result["status"]) for result in results)
        assert codes == ["ok", "r3_quota"]
        habit_id = next(r["data"]["habit"]["id"] for r in results if r["status"] == "ok")
        for notebook, value in ((one, "done"), (two, "blank")):
            notebook.ask(
                *(
                    ("log_tracker_entry", {"habit_id": habit_id, "date": day, "value": value})
                    for day in days
                )
            )
        results = [*one.read_results(), *two.read_results()]
        assert {result["status"] for result in results} == {"ok"}
        one.process.kill()
        two.ask(("query_tracker", {"habit_id": habit_id}))
        (result,) = two.read_results()
        assert result["status"] == "ok"
    with Store.open(path, load_protocols()) as store:
        assert store.number("SELECT count(*) FROM habit") == 1
        assert [entry.date.isoformat() for entry in list_entries(store, habit_id)] == days
        assert [tuple(row) for row in store.rows("PRAGMA integrity_check")] == [("ok",)]


@pytest.mark.anyio
async def test_add_habit_on_a_locked_store_is_a_handler_error_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "BUSY_TIMEOUT_S", 0.05)
    path, settings = tmp_path / "chat.sqlite3", Settings()
    dispatcher = ToolDispatcher(life_helper.registry_of("ko"))
    args = {"protocol_id": "daily-walk", **HABIT}
    with Store.open(path, load_protocols()) as mine, Store.open(path, load_protocols()) as another:
        deps = LifeHelper(store=mine, now=settings.now, locale="ko")
        gate = ScriptedGate([True, True])
        with another.transaction():
            refused = await dispatcher.dispatch("add_habit", args, confirm=gate, deps=deps)
        assert isinstance(refused, ToolErr)
        assert refused.code == "handler_error"
        assert "OperationalError" in refused.reason
        assert mine.number("SELECT count(*) FROM habit") == 0
        done = await dispatcher.dispatch("add_habit", args, confirm=gate, deps=deps)
        assert isinstance(done, ToolOk)
