"""The confirm gates: only an explicit yes to the open question is a yes."""

import asyncio
from typing import Any

import lhkit
from lhkit.testing import BrokenGate
from tests.rows import check_rows

REQUEST = lhkit.ConfirmRequest(tool="write", description="Write", args={"n": 1}, summary="n: 1")


async def typed(line: str | type[BaseException]) -> lhkit.Decision:
    async def read(_prompt: str) -> str:
        if isinstance(line, str):
            return line
        raise line

    async def forget() -> bool:
        return False

    return await lhkit.TerminalGate(read, lambda _line: None, forget=forget).confirm(REQUEST)


@check_rows("line", ["y", "Y", "yes", " yes ", "네", "예", "ㅛ"])
def test_terminal_gate_takes_an_explicit_yes(line: str) -> None:
    assert isinstance(asyncio.run(typed(line)), lhkit.Approve)


@check_rows(
    "line",
    ["", "n", "no", "yeah", "yy", "아니요", "수행", "ok", "1", "true", EOFError, KeyboardInterrupt],
)
def test_terminal_gate_takes_anything_else_for_a_no(line: Any) -> None:
    assert isinstance(asyncio.run(typed(line)), lhkit.Reject)


def test_deny_gate_says_no() -> None:
    assert asyncio.run(lhkit.DenyGate().confirm(REQUEST)) is False


def test_scripted_gate_answers_in_order_and_then_says_no() -> None:
    async def answers() -> list[lhkit.Decision | bool]:
        gate = lhkit.ScriptedGate([True, False, True])
        return [await gate.confirm(REQUEST) for _ in range(5)]

    assert asyncio.run(answers()) == [True, False, True, False, False]


def test_guarded_gate_says_no_while_a_question_is_open() -> None:
    async def both() -> list[bool]:
        opened, shown = asyncio.Event(), asyncio.Event()

        class Waiting:
            async def confirm(self, _request: lhkit.ConfirmRequest) -> bool:
                shown.set()
                await opened.wait()
                return True

        gate = lhkit.GuardedGate(Waiting())
        first = asyncio.create_task(gate.confirm(REQUEST))
        await shown.wait()
        second = await gate.confirm(REQUEST)
        opened.set()
        return [bool(await first), bool(second)]

    assert asyncio.run(both()) == [True, False]


def test_guarded_gate_says_no_when_time_is_up_or_the_gate_is_broken() -> None:
    class Never:
        async def confirm(self, _request: lhkit.ConfirmRequest) -> bool:
            await asyncio.Event().wait()
            return True

    async def late() -> lhkit.Decision:
        return await lhkit.GuardedGate(Never(), timeout_s=0.01).confirm(REQUEST)

    async def broken() -> lhkit.Decision:
        return await lhkit.GuardedGate(BrokenGate(RuntimeError())).confirm(REQUEST)

    assert isinstance(asyncio.run(late()), lhkit.Reject)
    assert isinstance(asyncio.run(broken()), lhkit.Reject)
