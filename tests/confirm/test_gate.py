import asyncio
from typing import Any

import pytest

from lhkit.base.locales import load_catalog
from lhkit.confirm.decision import Approve, QuestionOutcome, Reject
from lhkit.confirm.form import parse_form
from lhkit.confirm.gate import ConfirmRequest, GuardedGate
from lhkit.confirm.terminal import TerminalGate
from tests.rows import check_rows

REQUEST = ConfirmRequest(tool="add_habit", description="adds", args={}, summary="물 한 잔")


class EndlessGate:
    async def confirm(self, request: ConfirmRequest) -> bool:
        return await asyncio.get_running_loop().create_future()


class LateGate:
    """Returns True when it is cancelled."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def confirm(self, request: ConfirmRequest) -> bool:
        self.asked.set()
        try:
            return await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            return True


@pytest.mark.anyio
@check_rows("inner", [EndlessGate, LateGate])
async def test_guarded_gate_denies_after_the_timeout(inner: Any) -> None:
    decision = await GuardedGate(inner(), timeout_s=0.01).confirm(REQUEST)
    assert decision == Reject(how=QuestionOutcome.TIMED_OUT)


@pytest.mark.anyio
async def test_guarded_gate_ignores_a_yes_after_a_cancellation() -> None:
    inner = LateGate()
    asking = asyncio.create_task(GuardedGate(inner).confirm(REQUEST))
    await inner.asked.wait()
    asking.cancel()
    assert await asking == Reject(how=QuestionOutcome.WITHDRAWN)


class FlakyGate:
    """Raises once, then returns True."""

    def __init__(self) -> None:
        self._is_broken = True

    async def confirm(self, request: ConfirmRequest) -> bool:
        if self._is_broken:
            self._is_broken = False
            raise RuntimeError
        return True


@pytest.mark.anyio
async def test_guarded_gate_denies_on_error_and_can_be_asked_again() -> None:
    gate = GuardedGate(FlakyGate())
    decisions = [await gate.confirm(REQUEST) for _ in range(3)]
    assert decisions == [Reject(how=QuestionOutcome.FAILED), Approve(), Approve()]


@pytest.mark.anyio
async def test_terminal_gate_discards_what_was_typed_before_the_card_was_shown() -> None:
    log: list[str] = []

    async def read(_prompt: str) -> str:
        log.append("read")
        return "y"

    async def forget() -> bool:
        log.append("forget")
        return False

    gate = TerminalGate(read, lambda _text: log.append("show"), forget=forget)
    assert isinstance(await gate.confirm(REQUEST), Approve)
    assert log == ["show", "show", "forget", "read"]


@pytest.mark.anyio
async def test_terminal_gate_escapes_invisible_characters() -> None:
    hidden = "bo\u200db\u3164\xa0\u2800\U000e0100\u202e\x9b"
    request = ConfirmRequest(tool=hidden, description=hidden, args={}, summary=hidden)
    schema = {"properties": {"who": {"type": "string", "title": hidden, "description": hidden}}}
    form = parse_form(schema, "", load_catalog("ko"))
    shown: list[str] = []
    prompts: list[str] = []

    async def read(prompt: str) -> str:
        prompts.append(prompt)
        return ""

    async def nothing() -> bool:
        return False

    catalog = load_catalog("en")
    gate = TerminalGate(read, shown.append, catalog, forget=nothing)
    await gate.confirm(request)
    await gate.fill_in(request, form)
    text = "".join([*shown, *prompts])
    assert text.count("bo\\u200db\\u3164\\xa0\\u2800\\U000e0100\\u202e\\x9b") == 9
    assert not set(text) & set(hidden) - set("bo")
    assert catalog.text("form.secret") not in text
