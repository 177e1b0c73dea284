"""The confirm gate: yes only by an explicit Run, and never a hang."""

import asyncio
import os
import pty
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lhkit.base.locales import load_catalog
from lhkit.confirm.decision import Approve, Edit, QuestionOutcome, Reject
from lhkit.confirm.form import CANCELLED, DECLINED, Form, FormAction, FormAnswer, parse_form
from lhkit.confirm.gate import ConfirmRequest
from lhkit.conversation.tool_results import ToolCancelled, ToolOk, ToolResult
from lhkit.notebook.panel.confirm import ButtonConfirmGate
from lhkit.notebook.panel.loop import HomeLoop
from lhkit.notebook.panel.screen import Screen
from lhkit.testing import echo_tool, object_schema
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.tools.registry import ToolRegistry

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

REQUEST = ConfirmRequest(tool="write", description="d", args={}, summary="s")
MakeFrontEnd = Callable[[Any], Any]


def raise_eof(_prompt: str) -> str:
    raise EOFError


@pytest.fixture
def screen() -> Screen:
    return Screen(
        loop=HomeLoop(), catalog=load_catalog("ko"), name="Card()", receive=lambda _: None
    )


@pytest.fixture
async def gate(screen: Screen) -> ButtonConfirmGate:
    made = ButtonConfirmGate(screen=screen, ask=raise_eof, locale="ko")
    screen._receive = made.take_message
    return made


@pytest.fixture
async def page(screen: Screen, front_end_of: MakeFrontEnd, gate: ButtonConfirmGate) -> Any:
    assert gate
    screen._loop.bind()
    return front_end_of(screen)


@pytest.mark.parametrize(
    ("how", "outcome"),
    [
        ("run", QuestionOutcome.RUN),
        ("cancel", QuestionOutcome.CANCEL),
        ("escape", QuestionOutcome.ESCAPE),
    ],
)
async def test_gate_returns_the_pressed_answer(
    gate: ButtonConfirmGate, page: Any, how: str, outcome: QuestionOutcome
) -> None:
    asked = asyncio.create_task(gate.confirm(REQUEST))
    await page.until_asked()
    page.answer(how)
    assert bool(await asked) is (how == "run")
    assert gate.outcomes == [outcome]
    assert gate._screen.state.items[-1].outcome is outcome


async def test_gate_rejects_a_second_question(gate: ButtonConfirmGate, page: Any) -> None:
    first = asyncio.create_task(gate.confirm(REQUEST))
    await page.until_asked()
    assert not await gate.confirm(REQUEST)
    page.answer("run")
    assert await first


async def test_gate_settle_works_from_another_thread(gate: ButtonConfirmGate, page: Any) -> None:
    asked = asyncio.create_task(gate.confirm(REQUEST))
    await page.until_asked()
    card = page.screen.state.open_card.card
    await asyncio.to_thread(gate.settle, card, True)
    assert await asked
    assert gate.outcomes == [QuestionOutcome.CODE_YES]


async def test_home_loop_call_soon_wakes_the_loop() -> None:
    home, ran = HomeLoop(), asyncio.Event()
    threads: list[int] = []

    def work() -> None:
        threads.append(threading.get_ident())
        ran.set()

    waiting = asyncio.create_task(ran.wait())
    await asyncio.to_thread(home.call_soon, work)
    async with asyncio.timeout(1):
        await waiting
    assert threads == [threading.get_ident()]


@pytest.mark.longer
async def test_gate_timeout_rejects(screen: Screen, front_end_of: MakeFrontEnd) -> None:
    gate = ButtonConfirmGate(screen=screen, timeout_s=0.01, ask=raise_eof)
    front_end_of(screen)
    assert not await gate.confirm(REQUEST)
    assert gate.outcomes == [QuestionOutcome.TIMED_OUT]


async def test_gate_rejects_when_the_screen_fails(gate: ButtonConfirmGate, page: Any) -> None:
    page.screen.apply = None
    assert not await gate.confirm(REQUEST)


async def test_gate_rejects_at_once_in_a_script() -> None:
    gate = ButtonConfirmGate()
    async with asyncio.timeout(60):  # it would wait for a page for ever
        assert not await gate.confirm(REQUEST)
    assert gate.outcomes == [QuestionOutcome.NOBODY]


@pytest.mark.parametrize(
    ("typed", "outcome"), [("y", QuestionOutcome.TYPED_YES), ("", QuestionOutcome.TYPED_NO)]
)
async def test_gate_asks_in_a_terminal(
    monkeypatch: pytest.MonkeyPatch, typed: str, outcome: QuestionOutcome
) -> None:
    monkeypatch.setattr("lhkit.notebook.panel.front_end.is_terminal", lambda: True)
    gate = ButtonConfirmGate(ask=lambda prompt: typed if "write: d\ns" in prompt else "?")
    assert bool(await gate.confirm(REQUEST)) is outcome.is_allowed
    assert gate.outcomes == [outcome]


@pytest.mark.longer
async def test_gate_discards_earlier_terminal_input(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    person, terminal = pty.openpty()
    with os.fdopen(terminal, encoding="utf-8") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        os.write(person, b"y\n")
        echo = b""
        while b"y" not in echo:  # the echo: the terminal has it
            echo += await asyncio.to_thread(os.read, person, 64)

        def ask(_prompt: str) -> str:
            os.write(person, b"\n")
            return stdin.readline()

        gate = ButtonConfirmGate(ask=ask)
        assert not await gate.confirm(REQUEST)
        assert gate.outcomes == [QuestionOutcome.TYPED_NO]
    os.close(person)


FIELDS = {
    "type": "object",
    "properties": {
        "who": {"type": "string", "title": "Who?"},
        "amount": {"type": "integer", "maximum": 9, "default": 1},
    },
    "required": ["who"],
}
FORM = parse_form(FIELDS, "", load_catalog("ko"))
WITH_DEFAULTS = replace(FORM, fields=FORM.fields[1:])


def send(page: Any, **fields: Any) -> None:
    page.press("answer", card=page.screen.state.open_card.card, how="send", fields=fields)


async def test_form_is_validated_before_it_is_sent(gate: ButtonConfirmGate, page: Any) -> None:
    asked = asyncio.create_task(gate.fill_in(REQUEST, FORM))
    await page.until_asked()
    send(page, who="", amount="12")
    await page.until(lambda: page.screen.state.open_card.errors)
    card = page.screen.state.open_card
    assert card.errors == {
        "who": "채워야 하는 칸입니다.",
        "amount": "맞지 않는 값입니다. 필요한 것: 정수, 9 이하.",
    }
    send(page, who="Kim", amount="7", more=5)
    assert await asked == FormAnswer(action=FormAction.ACCEPT, content={"who": "Kim", "amount": 7})
    item = page.screen.state.items[-1]
    assert (item.outcome, item.attempts, item.errors) == (QuestionOutcome.SENT, 1, {})
    assert "Kim" not in str(page.screen.state)  # input is not stored
    assert gate.outcomes == []  # it answers no call


@pytest.mark.parametrize(
    ("how", "outcome", "answer"),
    [
        ("decline", QuestionOutcome.DECLINED, DECLINED),
        ("cancel", QuestionOutcome.CANCEL, CANCELLED),
        ("escape", QuestionOutcome.ESCAPE, CANCELLED),
    ],
)
async def test_form_decline_and_cancel(
    gate: ButtonConfirmGate, page: Any, how: str, outcome: QuestionOutcome, answer: FormAnswer
) -> None:
    asked = asyncio.create_task(gate.fill_in(REQUEST, FORM))
    await page.until_asked()
    page.answer("run")  # the yes of another kind of card
    page.answer(how)
    assert await asked == answer
    assert page.screen.state.items[-1].outcome is outcome


async def test_card_without_form_ignores_send_and_decline(
    gate: ButtonConfirmGate, page: Any
) -> None:
    asked = asyncio.create_task(gate.confirm(REQUEST))
    await page.until_asked()
    send(page)
    page.answer("decline")
    page.answer("cancel")
    assert not await asked
    assert gate.outcomes == [QuestionOutcome.CANCEL]


@pytest.mark.longer
async def test_form_ignores_settled_cards_and_cancels_on_close(
    gate: ButtonConfirmGate, page: Any
) -> None:
    first = asyncio.create_task(gate.fill_in(REQUEST, FORM))
    await page.until_asked()
    old = page.screen.state.open_card.card
    page.answer("cancel")
    await first
    second = asyncio.create_task(gate.fill_in(REQUEST, FORM))
    await page.until_asked()
    page.press("answer", card=old, how="send", fields={"who": "Kim"})
    page.close()
    assert await second == CANCELLED
    assert page.screen.state.items[-1].outcome is QuestionOutcome.CLOSED


async def test_form_is_withdrawn_when_its_server_is_gone(
    gate: ButtonConfirmGate, page: Any
) -> None:
    asked = asyncio.create_task(gate.fill_in(REQUEST, FORM))
    await page.until_asked()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert page.screen.state.items[-1].outcome is QuestionOutcome.WITHDRAWN


@pytest.mark.parametrize("form", [FORM, WITH_DEFAULTS, Form()])
async def test_gate_code_answers_decline_forms(
    gate: ButtonConfirmGate, page: Any, form: Form
) -> None:
    assert page
    gate.answer_from_code([True, True])
    assert await gate.confirm(REQUEST)
    assert await gate.fill_in(REQUEST, form) == DECLINED
    assert gate._screen.state.items[-1].outcome is QuestionOutcome.CODE_NO
    assert await gate.confirm(REQUEST)
    assert await gate.fill_in(REQUEST, form) == DECLINED  # also when no answer is left
    assert gate.outcomes == [QuestionOutcome.CODE_YES, QuestionOutcome.CODE_YES]


@pytest.mark.parametrize("form", [FORM, WITH_DEFAULTS, Form()])
async def test_gate_settle_declines_forms(gate: ButtonConfirmGate, page: Any, form: Form) -> None:
    asked = asyncio.create_task(gate.fill_in(REQUEST, form))
    await page.until_asked()
    gate.settle(page.screen.state.open_card.card, True)
    assert await asked == DECLINED


async def test_gate_code_answers_accept_only_true(gate: ButtonConfirmGate, page: Any) -> None:
    not_true: list[Any] = ["no", 1, "yes", [False]]
    gate.answer_from_code(not_true)
    assert not any([await gate.confirm(REQUEST) for _ in not_true])
    asked = asyncio.create_task(gate.confirm(REQUEST))
    await page.until_asked()
    gate.settle(page.screen.state.open_card.card, not_true[0])
    assert not await asked


async def test_form_is_filled_in_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lhkit.notebook.panel.front_end.is_terminal", lambda: True)
    prompts: list[str] = []
    typed = iter(["", "Kim", "12", "", "y"])

    def ask(prompt: str) -> str:
        prompts.append(prompt)
        return next(typed)

    gate = ButtonConfirmGate(ask=ask, locale="en")
    answer = await gate.fill_in(REQUEST, FORM)
    assert answer == FormAnswer(action=FormAction.ACCEPT, content={"who": "Kim", "amount": 1})
    assert "Who?" in prompts[0]
    assert "This field is required." in prompts[1]
    assert "a whole number, at most 9" in prompts[3]


async def test_form_is_declined_in_a_script() -> None:
    assert await ButtonConfirmGate().fill_in(REQUEST, FORM) == DECLINED


NOTE = object_schema(
    "day",
    day={"type": "string", "format": "date"},
    hours={"type": "number", "minimum": 0},
)
DAY = {"day": "2026-06-15", "hours": 1}


@pytest.fixture
def dispatch(gate: ButtonConfirmGate) -> Callable[..., Any]:
    """Return a function that begins a call, and returns its result and the calls that ran."""
    ran: list[Any] = []

    def write(args: Any, _deps: Any) -> ToolResult:
        ran.append(dict(args))
        return ToolOk({})

    tool = echo_tool("write", parameters=NOTE, is_destructive=True, handler=write)

    async def dispatched() -> tuple[ToolResult, list[Any]]:
        result = await ToolDispatcher(ToolRegistry([tool])).dispatch("write", DAY, confirm=gate)
        return result, ran

    return dispatched


@pytest.mark.parametrize(
    ("presses", "result", "ran"),
    [
        (
            [("edit", {}), ("check", {"day": "2026-06-16"}), ("run", {})],
            ToolOk({}, {"day": "2026-06-16"}),
            [{"day": "2026-06-16", "hours": 1}],
        ),
        (
            [("edit", {}), ("check", {"hours": ""}), ("run", {})],
            ToolOk({}, {"hours": None}),
            [{"day": "2026-06-15"}],
        ),
        ([("edit", {}), ("check", {"hours": "2"}), ("cancel", {})], ToolCancelled(), []),
        ([("edit", {}), ("check", {"hours": "-2"}), ("back", {}), ("run", {})], ToolOk({}), [DAY]),
        ([("edit", {}), ("check", {"day": "June"}), ("run", {}), ("back", {})], None, []),
        ([("edit", {}), ("check", {}), ("run", {})], ToolOk({}), [DAY]),
        ([("check", {"hours": "2"}), ("run", {})], ToolOk({}), [DAY]),
    ],
)
async def test_gate_edit_runs_the_arguments_that_the_card_shows(
    dispatch: Callable[..., Any],
    page: Any,
    presses: list[tuple[str, dict[str, str]]],
    result: ToolResult | None,
    ran: list[Any],
) -> None:
    running = asyncio.create_task(dispatch())
    await page.until_asked()
    for how, fields in presses:
        page.answer(how, fields=fields)
    if result is None:
        assert page.screen.state.open_card is not None
        page.answer("cancel")
    assert await running == (result or ToolCancelled(), ran)


@pytest.mark.parametrize(
    ("decision", "result", "outcome"),
    [
        (Approve(), ToolOk({}), QuestionOutcome.CODE_YES),
        (Edit({**DAY, "hours": 2}), ToolOk({}, {"hours": 2}), QuestionOutcome.CODE_YES),
        (Reject("not today"), ToolCancelled("not today"), QuestionOutcome.CODE_NO),
    ],
)
async def test_gate_settle_speaks_all_decisions(
    dispatch: Callable[..., Any],
    gate: ButtonConfirmGate,
    page: Any,
    decision: Any,
    result: ToolResult,
    outcome: QuestionOutcome,
) -> None:
    running = asyncio.create_task(dispatch())
    await page.until_asked()
    card = page.screen.state.open_card.card
    gate.settle(card, Edit({**DAY, "hours": -1}))  # invalid: the card stays open
    await page.until(lambda: page.screen.state.open_card.errors)
    gate.settle(card, decision)
    assert (await running)[0] == result
    assert gate.outcomes == [outcome]


async def test_gate_code_answers_reject_an_invalid_edit(
    dispatch: Callable[..., Any], gate: ButtonConfirmGate, page: Any
) -> None:
    gate.answer_from_code([Edit({"day": "June"}), Edit({"day": "2026-06-16"})])
    assert await dispatch() == (ToolCancelled(), [])
    assert gate.outcomes == [QuestionOutcome.INVALID_EDIT]
    assert await dispatch() == (
        ToolOk({}, {"day": "2026-06-16", "hours": None}),
        [{"day": "2026-06-16"}],
    )
    assert page.screen.state.open_card is None


@pytest.mark.parametrize(
    ("how", "outcome"),
    [
        ("close", QuestionOutcome.CLOSED),
        ("page gone", QuestionOutcome.CLOSED),
        ("interrupt", QuestionOutcome.INTERRUPTED),
    ],
)
@pytest.mark.parametrize("is_edited", [False, True])
async def test_gate_that_ends_writes_nothing(
    dispatch: Callable[..., Any],
    gate: ButtonConfirmGate,
    page: Any,
    how: str,
    outcome: QuestionOutcome,
    *,
    is_edited: bool,
) -> None:
    running = asyncio.create_task(dispatch())
    await page.until_asked()
    if is_edited:
        page.answer("edit")
        page.answer("check", fields={"hours": "2"})
        page.answer("edit")
    match how:
        case "close":
            gate.close()
        case "page gone":
            page.close()
        case _:
            running.cancel()
    (done,) = await asyncio.gather(running, return_exceptions=True)
    is_cancelled = isinstance(done, asyncio.CancelledError)
    assert is_cancelled if how == "interrupt" else done == (ToolCancelled(), [])
    assert page.screen.state.open_card is None
    assert gate.outcomes == [outcome]


async def test_gate_reason_of_a_cancel_is_bounded_and_counts_for_cancel_only(
    dispatch: Callable[..., Any], page: Any
) -> None:
    for how, reason, words in (
        ("cancel", "  not today\n", "not today"),
        ("cancel", "x" * 9999, "x" * 500),
        ("cancel", ["x"], ""),
        ("escape", "not today", ""),
    ):
        running = asyncio.create_task(dispatch())
        await page.until_asked()
        page.answer(how, reason=reason)
        assert (await running)[0] == ToolCancelled(words)


@pytest.mark.parametrize(
    "decision",
    [Approve(binding="other"), Edit({**DAY, "hours": 2}, binding="other"), Reject(binding="other")],
)
@pytest.mark.parametrize("how", ["settle", "answers"])
async def test_gate_decision_on_another_request_runs_nothing(
    dispatch: Callable[..., Any], gate: ButtonConfirmGate, page: Any, decision: Any, how: str
) -> None:
    if how == "answers":
        gate.answer_from_code([decision])
        running = asyncio.create_task(dispatch())
    else:
        running = asyncio.create_task(dispatch())
        await page.until_asked()
        gate.settle(page.screen.state.open_card.card, decision)
    assert await running == (ToolCancelled(), [])
    assert gate.outcomes == [QuestionOutcome.OTHER_REQUEST]


async def test_gate_decision_is_bound_to_what_the_card_shows(
    dispatch: Callable[..., Any], gate: ButtonConfirmGate, page: Any
) -> None:
    running = asyncio.create_task(dispatch())
    await page.until_asked()
    proposed = page.screen.state.open_card.request
    page.answer("edit")
    page.answer("check", fields={"hours": "2"})
    shown = page.screen.state.open_card
    gate.settle(shown.card, Approve(binding=shown.request.binding))
    assert (await running)[1] == [{**DAY, "hours": 2}]
    running = asyncio.create_task(dispatch())
    await page.until_asked()
    page.answer("edit")
    page.answer("check", fields={"hours": "3"})
    gate.settle(page.screen.state.open_card.card, Approve(binding=proposed.binding))
    assert await running == (ToolCancelled(), [{**DAY, "hours": 2}])


@pytest.mark.parametrize("decision", [True, False, Approve(), Edit({**DAY, "hours": 3}), Reject()])
async def test_gate_decision_while_the_user_edits_decides_nothing(
    dispatch: Callable[..., Any], gate: ButtonConfirmGate, page: Any, decision: Any
) -> None:
    running = asyncio.create_task(dispatch())
    await page.until_asked()
    page.answer("edit")
    gate.settle(page.screen.state.open_card.card, decision)
    page.answer("check", fields={"hours": "2"})
    assert page.screen.state.open_card.proposed == DAY
    page.answer("run")
    assert (await running)[1] == [{**DAY, "hours": 2}]
