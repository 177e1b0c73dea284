"""Questions of a running tool: to a person only, and on that person's time."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from lhkit.confirm.form import CANCELLED, Form
from lhkit.confirm.gate import (
    ConfirmGate,
    ConfirmRequest,
    GuardedGate,
    ScriptedGate,
    current_questions,
)
from lhkit.conversation.messages import ToolCallOutcome
from lhkit.conversation.tool_results import ToolErr, ToolOk, ToolResult
from lhkit.testing import BrokenGate, echo_tool
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.tools.registry import ToolRegistry

pytestmark = pytest.mark.anyio

QUESTION = ConfirmRequest(tool="asks", description="", args={}, summary="sure?")
LIMIT_S = 1.0


async def _asks(_args: Mapping[str, Any], _deps: Any) -> ToolResult:
    questions = current_questions()
    assert questions is not None
    return ToolOk({"answer": (await questions.fill_in(QUESTION, Form())).action})


class Slow:
    """A person who takes their time; `asked` is set when the question is shown."""

    is_person = True

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self.asked = asyncio.Event()

    async def confirm(self, request: ConfirmRequest) -> bool:
        assert request is QUESTION
        self.asked.set()
        await asyncio.wait({asyncio.get_running_loop().create_future()}, timeout=self._seconds)
        return True


class BrokenPerson(BrokenGate):
    is_person = True


async def trace_of(gate: ConfirmGate | None) -> ToolCallOutcome:
    traces: list[ToolCallOutcome] = []
    tools = ToolRegistry([echo_tool("asks", handler=_asks, timeout_s=LIMIT_S)])
    await ToolDispatcher(tools).dispatch("asks", {}, confirm=gate, observe=traces.append)
    return traces[0]


@pytest.mark.longer
async def test_mid_call_question_pauses_the_tools_timeout() -> None:
    trace = await trace_of(GuardedGate(Slow(1.5 * LIMIT_S)))
    assert trace.result == ToolOk({"answer": "accept"})
    assert trace.waiting_s >= LIMIT_S
    assert trace.handler_s < trace.waiting_s


@pytest.mark.parametrize(
    ("gate", "answer"),
    [
        (None, "decline"),
        (ScriptedGate([True]), "decline"),
        (BrokenPerson(RuntimeError("x")), "cancel"),
    ],
)
async def test_mid_call_question_is_declined_without_a_person(
    gate: ConfirmGate | None, answer: str
) -> None:
    assert (await trace_of(gate)).result == ToolOk({"answer": answer})


async def test_mid_call_question_is_cancelled_after_its_call() -> None:
    person, questions = Slow(None), list[asyncio.Task[Any]]()

    async def leaves_it_open(_args: Mapping[str, Any], _deps: Any) -> ToolResult:
        asked = current_questions()
        assert asked is not None
        questions.append(asyncio.create_task(asked.fill_in(QUESTION, Form())))
        await person.asked.wait()
        return ToolOk({})

    tools = ToolRegistry([echo_tool("asks", handler=leaves_it_open)])
    assert await ToolDispatcher(tools).dispatch("asks", {}, confirm=person) == ToolOk({})
    assert await questions[0] == CANCELLED


async def test_mid_call_question_is_cancelled_with_the_turn() -> None:
    person = Slow(None)
    turn = asyncio.create_task(trace_of(person))
    await person.asked.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn


async def test_mid_call_questions_are_none_outside_of_a_tool() -> None:
    assert current_questions() is None
    assert not isinstance((await trace_of(None)).result, ToolErr)
