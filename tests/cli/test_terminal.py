"""The terminal chat shows what happens and asks before a write."""

import asyncio
import codecs
import io
import json
import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from prompt_toolkit.input.defaults import create_input
from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys
from rich.cells import cell_len
from rich.console import Console

import lhkit
from lhkit.base.errors import ServerUnreachableError
from lhkit.base.locales import load_catalog
from lhkit.chat.controller import ChatController
from lhkit.cli.chat.chat import terminal_gate
from lhkit.cli.chat.terminal import TerminalChat
from lhkit.cli.frame.typed import LineReader, PipedLines
from lhkit.confirm.form import CANCELLED, DECLINED, FormAction, FormAnswer, parse_form
from lhkit.confirm.gate import ConfirmRequest, GuardedGate
from lhkit.confirm.policy import ApprovalPolicy, ToolRule
from lhkit.confirm.terminal import GUARD_S, TerminalGate, discard_pending_input
from lhkit.conversation.messages import ToolCall, ToolCallMessage, ToolCallOutcome, UserMessage
from lhkit.conversation.tool_results import ToolCancelled, parse_result
from lhkit.harness.authoring.from_chat import scenario_from_chat
from lhkit.harness.chats.chats import ChatRecorder
from lhkit.harness.records.transcript import transcript
from lhkit.harness.results.results import Run
from lhkit.harness.running.sessions import LiveSession
from lhkit.models.client import served
from lhkit.models.client.transport import Endpoint
from lhkit.models.dialects import DIALECTS
from lhkit.models.recorded.scripted import Reply, ScriptedModel, call, say
from lhkit.testing import echo_tool, object_schema
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import BareToolset, load
from tests.children import search_paths
from tests.mcp.conftest import LEDGER
from tests.models.fake_vllm import Behaviour, FakeVllm, completion, streams
from tests.written import habits

pytestmark = pytest.mark.slow

WRITE = echo_tool(
    "add_habit",
    parameters=object_schema(protocol_id={"type": "string"}),
    is_destructive=True,
)


def noon() -> datetime:
    return datetime(2026, 6, 15, 12, tzinfo=UTC)


def lines(typed: Iterable[str | type[BaseException]]) -> LineReader:
    remaining = iter(typed)

    async def read(_prompt: str) -> str:
        line = next(remaining, EOFError)
        if isinstance(line, str):
            return line
        raise line

    return read


async def terminal_output(
    replies: Iterable[Reply],
    typed: Iterable[str | type[BaseException]],
    record: Path | None = None,
    *,
    tool: ToolDefinition = WRITE,
    **look: Any,
) -> str:
    output = io.StringIO()
    options: dict[str, Any] = {"width": 200, "highlight": False, "markup": False} | look
    console = Console(file=output, **options)
    catalog = load_catalog("ko")
    read = lines(typed)
    registry = ToolRegistry([tool])
    controller = ChatController(
        model=ScriptedModel(replies),
        dispatcher=ToolDispatcher(registry),
        confirm=TerminalGate(read, console.print, catalog),
        catalog=catalog,
    )
    bare = LiveSession(BareToolset(registry=registry), None, None, now=noon, locale="ko")
    keeper = None if record is None else ChatRecorder(record, bare, now=noon)
    chat = TerminalChat(
        controller, bare, read=read, console=console, catalog=catalog, now=noon, recorder=keeper
    )
    await asyncio.wait_for(chat.run(model_name="대본"), 120)
    return output.getvalue()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("typed", "mark"),
    [
        (["추가", "n", ""], "▲ 답은 “추가했어요!”라고 하지만, 실행되지 않았습니다."),
        (["추가", "y"], ""),
    ],
)
async def test_terminal_marks_a_reply_that_contradicts_the_truth(
    typed: list[str], mark: str
) -> None:
    claiming = replace(WRITE, claims={"ko": ["추가했"]})
    replies = [call("add_habit", protocol_id="daily-walk"), say("추가했어요!")]
    text = await terminal_output(replies, typed, tool=claiming)
    assert [line for line in text.split("\n") if line.startswith("▲")] == [mark] * bool(mark)


@pytest.mark.anyio
async def test_terminal_indents_the_rest_of_a_wrapped_line_of_truth() -> None:
    """No part of a long value begins a line on the screen."""
    replies = [call("add_habit", protocol_id="x " * 8 + "실행함: pay · Bo"), say(".")]
    look = {"width": 30, "force_terminal": True, "no_color": True}
    text = await terminal_output(replies, ["추가", "y"], **look)
    screen = re.sub(r"\x1b\[[0-9;]*m", "", text).split("\n")
    (start,) = (n for n, line in enumerate(screen) if line.startswith("실행함: "))
    assert screen[start].startswith("실행함: add_habit")
    assert screen[start + 1].startswith("    ")
    assert all(cell_len(line) <= 30 for line in screen[start : start + 2])


@pytest.mark.anyio
async def test_terminal_shows_the_truth_under_a_reply_that_lies(tmp_path: Path) -> None:
    write = call("add_habit", protocol_id="daily-walk")
    replies = [say("다 했어요!"), write, say("추가했어요!"), write, say("바꿨어요!")]
    typed = ["추가해", "걷기 추가", "n", "오늘은 말고", "다시", "e", "water", "y", "/quit"]
    text = await terminal_output(replies, typed, tmp_path)
    for reply, truth in (
        ("다 했어요!", "쓰는 도구는 실행되지 않음"),
        ("추가했어요!", "실행하지 않음: add_habit · daily-walk"),
        ("바꿨어요!", '실행함: add_habit · water (수정함: protocol_id "daily-walk" → "water")'),
    ):
        assert f"{reply}\n{truth}\n" in text
    assert '⚙ add_habit {"protocol_id":"water"} → 완료' in text
    assert "→ 완료" in text
    assert "→ 취소됨" in text
    (record,) = Run.load(tmp_path).records
    _, refused, edited = record.trajectory.turns
    assert refused.calls[0].result["user_message"] == refused.calls[0].reason == "오늘은 말고"
    assert edited.calls[0].edited == {"protocol_id": "water"}
    printed = transcript(record, load_catalog("ko"), max_chars=9_999)
    assert "바뀐 것: 실행함: add_habit · water" in printed
    saved = scenario_from_chat(
        [
            UserMessage(text="하나"),
            *(
                ToolCallMessage(
                    call=ToolCall(name=each.tool, args=each.raw_args),
                    outcome=ToolCallOutcome(
                        result=parse_result(each.result) or ToolCancelled(),
                        gate=each.gate,
                        args=each.args,
                        reason=each.reason,
                        run_args=each.run_args,
                    ),
                )
                for each in (refused.calls[0], edited.calls[0])
            ),
        ],
        initial_state={},
        final_state={},
        destructive={"add_habit"},
        locale="ko",
        scenario_id="saved",
    )
    (scenario,) = yaml.safe_load(saved)
    answers = [{"reject": "오늘은 말고"}, {"edit": {"protocol_id": "water"}}]
    assert scenario["turns"][0]["confirm"] == answers


@pytest.mark.anyio
async def test_terminal_ctrl_c_at_question_rejects() -> None:
    replies = [call("add_habit", protocol_id="daily-walk"), say("안 했어요"), say("또 왔네요")]
    text = await terminal_output(replies, ["걷기 추가", KeyboardInterrupt, KeyboardInterrupt, "또"])
    assert "취소됨" in text
    assert "또 왔네요" in text


@pytest.mark.anyio
async def test_commands_clear_retry_quit_and_unknown() -> None:
    replies = [Reply(error=ServerUnreachableError("down")), say("이제 돼요")]
    text = await terminal_output(
        replies, ["안녕", "/retry", "/clear", "/nope", "/help", "/quit", "never read"]
    )
    assert "연결할 수 없습니다" in text
    assert "이제 돼요" in text
    assert "대화를 지웠습니다." in text
    assert "/nope" in text
    assert "/retry는 오류 뒤에 다시 묻고" in text
    assert "never read" not in text
    assert text.endswith("안녕히 가세요.\n")


@pytest.mark.anyio
async def test_terminal_records_chats_with_unique_names(
    tmp_path: Path,
) -> None:
    write = call("add_habit", protocol_id="daily-walk")
    first = await terminal_output(
        [write, say("네"), write, say("또"), say("새로")],
        ["걷기", "y", "걷기", "n", "", "/clear", "안녕"],
        tmp_path,
    )
    await terminal_output(
        [Reply(error=ServerUnreachableError("down")), say("됨")], ["야", "/retry"], tmp_path
    )
    assert f"{tmp_path}에 남깁니다" in first
    turns = {str(r.sample_id): r.trajectory.turns for r in Run.load(tmp_path).records}
    assert {name: [turn.user for turn in each] for name, each in turns.items()} == {
        "chat-20260615-120000": ["걷기", "걷기"],
        "chat-20260615-120000-2": ["안녕"],
        "chat-20260615-120000-3": ["야"],
    }
    answers = [each.answer for turn in turns["chat-20260615-120000"] for each in turn.calls]
    assert answers == ["typed_yes", "typed_no"]
    assert turns["chat-20260615-120000-3"][0].reply == "됨"


@pytest.mark.anyio
async def test_terminal_escapes_control_sequences_of_model() -> None:
    text = await terminal_output(
        [say("\x1b[2J지웠다"), call("\x1b]0;x", a="\x1b[1m")], ["안녕", "또"]
    )
    assert "\x1b" not in text
    assert "\\x1b[2J지웠다" in text


@pytest.mark.anyio
async def test_terminal_gate_shows_question_verbatim() -> None:
    output = io.StringIO()
    console = Console(file=output, width=20, force_terminal=True, color_system=None)
    path = "/srv/a:on:b/:x:/[red]c[/red]/https://a.example/" + "d" * 40 + "  e"
    request = ConfirmRequest(tool="rm", description=":b:", args={}, summary=path)
    with os.fdopen(os.open(os.devnull, os.O_RDONLY)) as nothing:
        gate = terminal_gate(PipedLines(nothing.fileno()), console, load_catalog("en"))
        assert not await gate.confirm(request)
    assert output.getvalue() == f"rm: :b:\n{path}\n"


class Pty:
    """A terminal: typed input and output."""

    def __init__(self) -> None:
        self.master, self.slave = pty.openpty()
        self.seen = ""
        self._rest = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    async def until(self, text: str) -> None:
        """Read what the terminal shows until `text` stands there, after what was waited for so far.

        What came in one piece with it is left for the next call.
        """
        terminal_output, fresh = self._rest, asyncio.Event()

        def take() -> None:
            nonlocal terminal_output
            terminal_output += self._decoder.decode(os.read(self.master, 4096))
            fresh.set()

        loop = asyncio.get_running_loop()
        loop.add_reader(self.master, take)
        try:
            while text not in terminal_output:
                await fresh.wait()
                fresh.clear()
        finally:
            loop.remove_reader(self.master)
            before, part, self._rest = terminal_output.partition(text)
            self.seen += before + part

    def close(self) -> None:
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def terminal() -> Iterator[Pty]:
    made = Pty()
    yield made
    made.close()


REQUEST = ConfirmRequest(tool="add_habit", description="adds", args={}, summary="물 한 잔")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("early", "typed", "expected"),
    [("네\n", "\n", False), ("네", "\n", False), ("네\n", "네\n", True), ("", "네\n", True)],
)
async def test_terminal_gate_ignores_yes_typed_before_question(
    terminal: Pty, monkeypatch: pytest.MonkeyPatch, early: str, typed: str, *, expected: bool
) -> None:
    terminal_output: list[str] = []

    async def read(prompt: str) -> str:
        terminal_output.append(prompt)
        terminal.type(typed)
        return await asyncio.to_thread(stdin.readline)

    with os.fdopen(os.dup(terminal.slave), encoding="utf-8") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        if early:
            terminal.type(early)
            await terminal.until(early.strip())  # the echo: it is in the terminal's queue
        gate = TerminalGate(read, terminal_output.append, load_catalog("ko"), forget=no_guard)
        assert bool(await gate.confirm(REQUEST)) is expected
    shown_text = "질문이 나오기 전에 입력한 내용은 답으로 치지 않습니다."
    assert (shown_text in terminal_output) is bool(early)
    assert terminal_output[-1].endswith("[y/N] ")


async def no_guard() -> bool:
    return await discard_pending_input(guard_s=0)


@pytest.mark.anyio
async def test_terminal_gate_discards_read_ahead_input(
    terminal: Pty, monkeypatch: pytest.MonkeyPatch
) -> None:
    with os.fdopen(os.dup(terminal.slave), encoding="utf-8") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        source = create_input(stdin)
        store_typeahead(source, [KeyPress("y", "y"), KeyPress(Keys.ControlM, "\r")])
        assert await no_guard() is True
        assert get_typeahead(source) == []
        assert await no_guard() is False


@pytest.mark.anyio
async def test_piped_lines_before_question_reject() -> None:
    reader, writer = os.pipe()
    lines = PipedLines(reader)
    terminal_output: list[str] = []
    gate = TerminalGate(lines.read, terminal_output.append, load_catalog("en"), forget=lines.forget)
    os.write(writer, "추가해줘\n네\n다음 말\n".encode())
    assert await lines.read("> ") == "추가해줘"
    assert not await gate.confirm(REQUEST)
    assert terminal_output[-1] == "Input from before the question is ignored."
    assert await lines.read("> ") == "다음 말"
    os.write(writer, "네".encode())
    asked = asyncio.create_task(gate.confirm(REQUEST))
    await asyncio.sleep(0)  # a line that was begun before is early, too
    os.write(writer, b"\n")
    assert not await asked
    asked = asyncio.create_task(gate.confirm(REQUEST))
    await asyncio.sleep(0)
    os.write(writer, "네\n".encode())
    assert await asked
    os.close(writer)
    assert not await gate.confirm(REQUEST)
    os.close(reader)


@pytest.mark.anyio
async def test_piped_lines_of_file_never_confirm(tmp_path: Path) -> None:
    script = tmp_path / "script.txt"
    script.write_text("추가해줘\ny\n")
    with script.open("rb") as file:
        lines = PipedLines(file.fileno())
        gate = TerminalGate(lines.read, lambda _text: None, forget=lines.forget)
        assert await lines.read("> ") == "추가해줘"
        assert not await gate.confirm(REQUEST)
        with pytest.raises(EOFError):
            await lines.read("> ")


FORM = parse_form(
    {
        "properties": {
            "who": {"type": "string", "title": "Who?"},
            "mail": {"type": "string", "format": "email"},
            "meal": {"type": "string", "oneOf": [{"const": "l", "title": "Lunch"}, {"const": "d"}]},
            "tag": {"type": "string", "enum": ["a", "b", "c"], "default": "c"},
        },
        "required": ["who", "meal"],
    },
    "Your password?",
    load_catalog("en"),
)


async def filled_in(*typed: str | type[BaseException]) -> tuple[FormAnswer, str]:
    """Return the answer to these typed lines, and the output."""
    terminal_output: list[str] = []
    gate = TerminalGate(
        lines(typed), terminal_output.append, load_catalog("en"), forget=nothing_typed
    )
    return await GuardedGate(gate).fill_in(REQUEST, FORM), "\n".join(terminal_output)


async def nothing_typed() -> bool:
    return False


@pytest.mark.anyio
async def test_terminal_form_asks_fields_and_reports_invalid_values() -> None:
    answer, terminal_output = await filled_in("", "Kim", "kim", "kim@x.kr", "2", "2", "y")
    assert answer.action is FormAction.ACCEPT
    assert answer.content == {"who": "Kim", "mail": "kim@x.kr", "meal": "d", "tag": "b"}
    assert terminal_output.count("This field is required.") == 1
    assert terminal_output.count("Invalid value. Expected: an e-mail address.") == 1
    assert "1. Lunch" in terminal_output
    assert "current value: c" in terminal_output
    assert "password or another secret" in terminal_output
    filled, _ = await filled_in("Kim", "", "Lunch", "", "y")
    assert filled.content == {"who": "Kim", "meal": "l", "tag": "c"}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (["/decline"], DECLINED),
        (["Kim", " /decline "], DECLINED),
        (["Kim", "/cancel"], CANCELLED),
        (["Kim", "", "1", "", "/decline"], DECLINED),
        (["Kim", "", "1", "", "/cancel"], CANCELLED),
        (["Kim", KeyboardInterrupt], CANCELLED),
        (["Kim"], CANCELLED),  # the end of input
        (["Kim", "", "1", "", "n"], DECLINED),
        (["Kim", "", "1", "", ""], CANCELLED),
        (["Kim", "", "1", "", "sure"], CANCELLED),
    ],
)
async def test_terminal_form_can_be_declined_and_cancelled(
    typed: list[str | type[BaseException]], answer: FormAnswer
) -> None:
    assert (await filled_in(*typed))[0] == answer


@pytest.mark.anyio
async def test_terminal_form_ignores_lines_piped_before() -> None:
    reader, writer = os.pipe()
    piped = PipedLines(reader)
    gate = TerminalGate(piped.read, lambda _text: None, load_catalog("en"), forget=piped.forget)
    os.write(writer, b"Kim\nnext\n")
    assert await gate.fill_in(REQUEST, FORM) == CANCELLED
    assert await piped.read("> ") == "next"  # the script stays in step
    asked = asyncio.create_task(gate.fill_in(REQUEST, FORM))
    await asyncio.sleep(0)
    os.write(writer, b"Kim\n\n1\n\ny\n")  # a yes before it was asked for
    assert await asked == CANCELLED
    os.close(writer)
    os.close(reader)


ADDED = {
    "protocol_id": "daily-walk",
    "frame_level": "action",
    "framed_text": "나는 매일 걷는다",
    "anchor_when": "오전 7시",
}
WISH = DIALECTS["json"].render_call("add_habit", ADDED)


def after(released: asyncio.Event, asked: asyncio.Event) -> Behaviour:
    """Answer with the call, but not before it is let."""

    async def behave(request: web.Request) -> web.StreamResponse:
        asked.set()
        await released.wait()
        return await streams(completion([WISH]))(request)

    return behave


@pytest.fixture
def lhkit_command(commands: Path) -> Sequence[str]:
    """Return the command `lhkit`, which starts at once."""
    return (str(commands / "lhkit"),)


@contextmanager
def chat(
    terminal: Pty, base_url: str, folder: Path, *options: str, lhkit: Sequence[str]
) -> "Iterator[subprocess.Popen[bytes]]":
    """A real `lhkit chat` in the terminal; it does not outlive the test."""
    with subprocess.Popen(
        [*lhkit, "chat", "--base-url", base_url, *options],
        stdin=terminal.slave,
        stdout=terminal.slave,
        stderr=terminal.slave,
        env={
            **search_paths(),
            **{f"LHKIT_{kind}_DIR": str(folder) for kind in ("DATA", "CACHE", "CONFIG")},
            "TERM": "xterm",
            "PROMPT_TOOLKIT_NO_CPR": "1",
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "LHKIT_LOCALE": "ko",
        },
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.anyio
async def test_chat_writes_only_after_confirmation(terminal: Pty, tmp_path: Path) -> None:
    released, asked = asyncio.Event(), asyncio.Event()
    database = tmp_path / "chat.sqlite3"
    done = streams(completion(["그랬어요."]))
    server = FakeVllm(after(released, asked), done, streams(completion([WISH])), done)
    async with server:
        new = (sys.executable, "-m", "lhkit")
        started = chat(terminal, server.base_url, tmp_path, "--db", str(database), lhkit=new)
        with started as process:
            await terminal.until("나>")
            terminal.type("걷기 추가해줘\r")
            await asked.wait()  # the model is at work, and no question is on the screen
            terminal.type("네\r")
            await terminal.until("네\r\n")  # the echo: the terminal has it
            released.set()
            await terminal.until("[y/N]")
            assert terminal.seen.count("답으로 치지 않습니다") == 1
            for typed, rows in (("", 0), ("네", 1)):
                terminal.type(f"{typed}\r")
                await terminal.until("그랬어요.")
                await terminal.until("나>")
                assert len(habits(database)) == rows
                if not rows:
                    terminal.type("다시 추가해줘\r")
                    await terminal.until("[y/N]")
            assert terminal.seen.count("답으로 치지 않습니다") == 1
            terminal.type("/quit\r")
            await terminal.until("안녕히 가세요.")
            assert await asyncio.to_thread(process.wait) == 0


async def policy_at(base_url: str, folder: Path) -> Path:
    """Write a policy for the chat with a server, in which habits are added unasked."""
    model = await served.connect(Endpoint(base_url=base_url))
    live = LiveSession(load("life-helper"), None, folder / "m.sqlite3", now=noon, locale="ko")
    try:
        front = live.measured(model.identity, lambda: "ko")()
    finally:
        live.close()
        await model.aclose()
    rule = ToolRule(rule="run", proposed=200, wrong=0, scenarios=200, upper=0.015)
    tools = {"add_habit": rule}
    policy = ApprovalPolicy(
        risk=0.02, confidence=0.95, runs=("x",), measured={"ko": front}, tools=tools
    )
    policy.write(folder / "approvals.toml")
    return folder / "approvals.toml"


@pytest.mark.anyio
async def test_chat_says_what_runs_without_asking_and_that_it_did(
    terminal: Pty, tmp_path: Path, lhkit_command: Sequence[str]
) -> None:
    database, done = tmp_path / "chat.sqlite3", streams(completion(["추가했어요."]))
    server = FakeVllm(streams(completion([WISH])), done)
    async with server:
        file = await policy_at(server.base_url, tmp_path)
        options = ("--db", str(database), "--approvals", str(file))
        with chat(terminal, server.base_url, tmp_path, *options, lhkit=lhkit_command) as process:
            await terminal.until("나>")
            seen = re.sub(r"\s+", " ", terminal.seen)
            assert "다음 도구는 확인 없이 실행합니다(위험 2% 이하): add_habit" in seen
            terminal.type("걷기 추가해줘\r")
            await terminal.until("추가했어요.")
            await terminal.until("확인 없이 실행함: add_habit")
            assert "[y/N]" not in terminal.seen
            assert len(habits(database)) == 1
            terminal.type("/quit\r")
            await terminal.until("안녕히 가세요.")
            assert await asyncio.to_thread(process.wait) == 0


USED = DIALECTS["json"].render_call("use_item", {"item_id": "egg", "amount": 3})
PANTRY = Path(__file__).parents[2] / "evals" / "pantry" / "pantry.py"


@pytest.mark.anyio
async def test_chat_with_own_toolset_asks_before_writes(
    terminal: Pty, tmp_path: Path, lhkit_command: Sequence[str]
) -> None:
    world = tmp_path / "fridge.yaml"
    world.write_text("items: [{id: egg, name: 달걀, amount: 9}]\n", encoding="utf-8")
    look = DIALECTS["json"].render_call("find_item", {})
    server = FakeVllm(
        *(streams(completion([text])) for text in (USED, "그랬어요.", look, "여기요."))
    )
    options = ("--toolset", f"{PANTRY}:toolset", "--world", str(world))
    async with server:
        with chat(terminal, server.base_url, tmp_path, *options, lhkit=lhkit_command) as process:
            await terminal.until("나>")
            terminal.type("달걀 세 개 썼어\r")
            await terminal.until("쓰기: 달걀 3개")
            await terminal.until("[y/N]")
            terminal.type("네\r")
            await terminal.until("그랬어요.")
            await terminal.until("나>")
            terminal.type("뭐가 있지?\r")
            await terminal.until("여기요.")
            assert '"amount":6' in str(server.bodies[-1]).replace(" ", "").replace("\\", "")
            await terminal.until("나>")
            terminal.type("/quit\r")
            assert await asyncio.to_thread(process.wait) == 0


@pytest.mark.anyio
async def test_chat_answers_elicitation_only_after_yes(
    terminal: Pty, tmp_path: Path, commands: Path, lhkit_command: Sequence[str]
) -> None:
    ledger = tmp_path / "ledger.txt"
    options = (
        "--toolset",
        f"mcp:{shlex.join([str(commands / 'python'), str(LEDGER), str(ledger)])}",
    )
    wish = DIALECTS["json"].render_call("add_detailed", {"text": "rent"})
    server = FakeVllm(streams(completion([wish])), streams(completion(["그랬어요."])))
    async with server:
        with chat(terminal, server.base_url, tmp_path, *options, lhkit=lhkit_command) as process:
            await terminal.until("나>")
            terminal.type("월세 적어줘\r")
            await terminal.until("[y/N]")
            terminal.type("y\r")
            for label, typed in (
                ("Who pays?*>", "Kim"),
                ("mail>", ""),
                ("amount>", "7"),
                ("cash>", "2"),
                ("book*>", "Work"),
                ("tag>", "rent"),
            ):
                await terminal.until(label)
                terminal.type(f"{typed}\r")
            await terminal.until("이대로 보낼까요?")
            assert not ledger.exists()
            terminal.type("y\r")
            await terminal.until("그랬어요.")
            sent = {"amount": 7, "book": "w", "cash": False, "tag": "rent", "who": "Kim"}
            assert ledger.read_text(encoding="utf-8") == f"rent {json.dumps(sent)}\n"
            await terminal.until("나>")
            terminal.type("/quit\r")
            assert await asyncio.to_thread(process.wait) == 0


def test_terminal_and_card_share_guard_time() -> None:
    shared = Path(lhkit.__file__).parent / "notebook" / "static" / "shared.js"
    assert f"const EARLY_MS = {GUARD_S * 1000:.0f};" in shared.read_text(encoding="utf-8")
