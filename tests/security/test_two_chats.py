"""Two processes, as two notebooks are, with a conversation each over one chat database."""

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
from lhkit.lifehelper import store as store_module
from lhkit.lifehelper import toolset as life_helper
from lhkit.lifehelper.catalog import load_protocols
from lhkit.lifehelper.habits import list_entries
from lhkit.lifehelper.store import Store
from lhkit.lifehelper.tools import LifeHelper
from lhkit.settings import Settings
from lhkit.tool_results import ToolErr, ToolOk
from lhkit.tools.dispatcher import ToolDispatcher

NOTEBOOK = """
import asyncio, json, sys
from contextlib import closing
from pathlib import Path
from lhkit import app
from lhkit.confirm.gate import ScriptedGate
from lhkit.lifehelper.toolset import LIFE_HELPER
from lhkit.models.scripted import ScriptedModel, call, say
from lhkit.settings import Settings
from lhkit.messages import ToolCallMessage
from lhkit.tool_results import result_to_dict

async def said(session, name, args):
    model = ScriptedModel([call(name, **args), say("네")])
    chat = app.open_chat(model, session, ScriptedGate([True]), "ko")
    await chat.user_turn("부탁해")
    return [result_to_dict(m.result) for m in chat.state.messages if isinstance(m, ToolCallMessage)]

session = LIFE_HELPER.open_kept(Path(sys.argv[1]), now=Settings().now, locale="ko")
with closing(session), asyncio.Runner() as runner:
    print("open", flush=True)
    for line in sys.stdin:
        found = [runner.run(said(session, *each)) for each in json.loads(line)]
        print(json.dumps([result for results in found for result in results]), flush=True)
"""
HABIT = {"frame_level": "identity", "framed_text": "나는 매일 걷는 사람이다", "anchor_when": "아침"}
DAYS = 8


class Notebook:
    """A process with a conversation open on the database."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def ask(self, *calls: tuple[str, dict[str, Any]]) -> None:
        """Have the model make some calls; the user says yes to each."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(calls) + "\n")
        self.process.stdin.flush()

    def heard(self) -> Any:
        """Return what the tools answered."""
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
        for each in opened:
            assert each.process.stdout is not None
            assert each.process.stdout.readline() == "open\n"
        yield opened


@pytest.mark.slow
def test_two_notebooks_on_one_database_lose_nothing_and_break_no_rule_together(
    tmp_path: Path,
) -> None:
    path = tmp_path / "chat.sqlite3"
    today = Settings().now().date()
    days = [(today - timedelta(days=n)).isoformat() for n in range(DAYS)]
    with notebooks(path, 2) as (one, two):  # both made the file, at once
        one.ask(("add_habit", {"protocol_id": "daily-walk", **HABIT}))
        two.ask(("add_habit", {"protocol_id": "box-breathing", **HABIT}))
        results = [*one.heard(), *two.heard()]
        assert sorted(each.get("code", each["status"]) for each in results) == ["ok", "r3_quota"]
        habit_id = next(each["data"]["habit"]["id"] for each in results if each["status"] == "ok")
        for each, value in ((one, "done"), (two, "blank")):
            each.ask(
                *(
                    ("log_tracker_entry", {"habit_id": habit_id, "date": day, "value": value})
                    for day in days
                )
            )
        assert {each["status"] for each in [*one.heard(), *two.heard()]} == {"ok"}
        one.process.kill()
        two.ask(("query_tracker", {"habit_id": habit_id}))
        (told,) = two.heard()
        assert told["status"] == "ok"
    with Store.open(path, load_protocols()) as store:
        assert store.number("SELECT count(*) FROM habit") == 1
        assert [each.date.isoformat() for each in list_entries(store, habit_id)] == days
        assert [tuple(row) for row in store.rows("PRAGMA integrity_check")] == [("ok",)]


@pytest.mark.anyio
async def test_a_database_that_is_locked_for_too_long_is_an_error_to_the_model_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "BUSY_TIMEOUT_S", 0.05)
    path, settings = tmp_path / "chat.sqlite3", Settings()
    dispatcher = ToolDispatcher(life_helper.registry_of("ko"))
    args = {"protocol_id": "daily-walk", **HABIT}
    with Store.open(path, load_protocols()) as mine, Store.open(path, load_protocols()) as another:
        deps = LifeHelper(store=mine, now=settings.now)
        gate = ScriptedGate([True, True])
        with another.transaction():
            refused = await dispatcher.dispatch("add_habit", args, confirm=gate, deps=deps)
        assert isinstance(refused, ToolErr)
        assert refused.code == "handler_error"
        assert "OperationalError" in refused.reason
        assert mine.number("SELECT count(*) FROM habit") == 0
        done = await dispatcher.dispatch("add_habit", args, confirm=gate, deps=deps)
        assert isinstance(done, ToolOk)
