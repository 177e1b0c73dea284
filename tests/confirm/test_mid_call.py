"""What a tool asks in the midst of its work: of a person only, on that person's time."""

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
from lhkit.messages import ToolCallOutcome
from lhkit.testing import BrokenGate, echo_tool
from lhkit.tool_results import ToolErr, ToolOk, ToolResult
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
    """A person who takes their time; `asked` is set when the question stands there."""

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


async def test_the_time_of_a_tool_stands_still_while_a_person_thinks() -> None:
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
async def test_nobody_and_a_script_say_no_and_a_broken_gate_goes_away(
    gate: ConfirmGate | None, answer: str
) -> None:
    assert (await trace_of(gate)).result == ToolOk({"answer": answer})


async def test_a_question_that_outlives_its_call_is_taken_back() -> None:
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


async def test_whoever_stops_the_turn_answers_no_and_waits_no_longer() -> None:
    person = Slow(None)
    turn = asyncio.create_task(trace_of(person))
    await person.asked.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn


async def test_outside_of_a_tool_there_is_nothing_to_ask() -> None:
    assert current_questions() is None
    assert not isinstance((await trace_of(None)).result, ToolErr)
