"""The terminal chat shows what happens and asks before a write."""

import asyncio
import io
from collections.abc import Iterable

import pytest
from rich.console import Console

from lhkit.chat.controller import ChatController
from lhkit.commands.terminal import LineReader, TerminalChat
from lhkit.confirm.gate import TerminalGate
from lhkit.errors import ServerUnreachableError
from lhkit.locales import load_catalog
from lhkit.testing import Reply, ScriptedModel, call, echo_tool, object_schema, say
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.tools.registry import ToolRegistry

WRITE = echo_tool(
    "add_habit",
    parameters=object_schema(protocol_id={"type": "string"}),
    is_destructive=True,
)


def lines(typed: Iterable[str | type[BaseException]]) -> LineReader:
    remaining = iter(typed)

    async def read(_prompt: str) -> str:
        line = next(remaining, EOFError)
        if isinstance(line, str):
            return line
        raise line

    return read


async def shown(replies: Iterable[Reply], typed: Iterable[str | type[BaseException]]) -> str:
    output = io.StringIO()
    console = Console(file=output, width=200, highlight=False, markup=False)
    catalog = load_catalog("ko")
    read = lines(typed)
    controller = ChatController(
        model=ScriptedModel(replies),
        dispatcher=ToolDispatcher(ToolRegistry([WRITE])),
        confirm=TerminalGate(read, console.print, catalog),
    )
    chat = TerminalChat(controller, read=read, console=console, catalog=catalog)
    await asyncio.wait_for(chat.run(model_name="대본"), 5)
    return output.getvalue()


@pytest.mark.anyio
async def test_words_are_shown_and_the_chat_ends_with_the_input() -> None:
    text = await shown([say("안녕하세요!")], ["안녕"])
    assert "안녕하세요!\n" in text
    assert text.endswith("안녕히 가세요.\n")


@pytest.mark.anyio
async def test_a_confirmed_write_is_shown_as_done_and_a_refused_one_as_cancelled() -> None:
    replies = [call("add_habit", protocol_id="daily-walk"), say("네")]
    done = await shown(replies, ["걷기 추가", "y"])
    assert "add_habit" in done
    assert "→ 완료" in done
    refused = await shown(replies, ["걷기 추가", "n"])
    assert "→ 취소됨" in refused


@pytest.mark.anyio
async def test_ctrl_c_at_the_question_means_no_and_the_chat_goes_on() -> None:
    replies = [call("add_habit", protocol_id="daily-walk"), say("안 했어요"), say("또 왔네요")]
    text = await shown(replies, ["걷기 추가", KeyboardInterrupt, KeyboardInterrupt, "또"])
    assert "취소됨" in text
    assert "또 왔네요" in text


@pytest.mark.anyio
async def test_commands_clear_retry_quit_and_unknown() -> None:
    replies = [Reply(error=ServerUnreachableError("down")), say("이제 돼요")]
    text = await shown(
        replies, ["안녕", "/retry", "/clear", "/nope", "/help", "/quit", "never read"]
    )
    assert "연결할 수 없습니다" in text
    assert "이제 돼요" in text
    assert "대화를 정리했어요." in text
    assert "/nope" in text
    assert "/retry는 오류 뒤에 다시 묻고" in text
    assert "never read" not in text


@pytest.mark.anyio
async def test_escape_sequences_of_the_model_are_shown_not_obeyed() -> None:
    text = await shown([say("\x1b[2J지웠다"), call("\x1b]0;x", a="\x1b[1m")], ["안녕", "또"])
    assert "\x1b" not in text
    assert "\\x1b[2J지웠다" in text
