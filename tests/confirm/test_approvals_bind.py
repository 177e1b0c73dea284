"""An approval belongs to one request: only the shown and approved call runs, once."""

import asyncio
import itertools
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mcp_types import CallToolRequestParams, ElicitResult, InputRequiredResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import Field

from lhkit.base.locales import load_catalog
from lhkit.chat.assistant import Assistant
from lhkit.confirm.form import Form, FormAction
from lhkit.confirm.gate import ConfirmRequest, current_questions
from lhkit.conversation.tool_results import ToolOk, ToolResult
from lhkit.mcp import serving
from lhkit.mcp.serving import ANSWER_TIMEOUT_S, McpServing
from lhkit.notebook.panel.confirm import ButtonConfirmGate
from lhkit.notebook.panel.loop import HomeLoop
from lhkit.notebook.panel.screen import Screen
from lhkit.testing import echo_tool, object_schema
from lhkit.tools.definition import TODAY
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import BareSession
from tests.notebook.conftest import FrontEnd

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

SCHEMA = object_schema("ids", ids={"type": "array", "items": {"type": "integer", "maximum": 8}})
IDS = st.lists(st.integers(0, 3), max_size=2)
SETTLED = 30  # so often the loop goes round until nothing is left to do


async def rounds(times: int) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


WHOSE = st.sampled_from(("own", "own", "old", "none"))
CLICKS = st.sampled_from(("run", "run", "cancel", "escape", "RUN"))  # "send" is for forms
CODE = st.sampled_from((True, True, False, "yes", 1))
ACTIONS = st.one_of(
    st.tuples(st.just("open"), IDS),
    st.tuples(st.just("click"), WHOSE, CLICKS),
    st.tuples(st.just("code"), WHOSE, CODE),
    st.tuples(st.just("change"), IDS),
    st.sampled_from((("close",), ("stop",))),
)
ROUNDS = st.sampled_from((0, 3, SETTLED, SETTLED))


def after_another_card(*actions: tuple[Any, ...]) -> list[tuple[tuple[Any, ...], int]]:
    """Return actions on a card that is opened after another one was cancelled."""
    first = (("open", [0]), ("click", "own", "cancel"), ("open", [1]))
    return [(action, SETTLED) for action in (*first, *actions)]


class Cards:
    """A gate with cards, a dispatcher that asks it, and the arguments that its tool got."""

    def __init__(self) -> None:
        self.ran: list[list[int]] = []
        self.mid_call: list[FormAction] = []
        self.gate = ButtonConfirmGate(ask=lambda _: "y")
        self.screen = Screen(
            loop=HomeLoop(),
            catalog=load_catalog("ko"),
            name="Card()",
            receive=self.gate.take_message,
        )
        self.gate._screen = self.screen
        self.page = FrontEnd(self.screen)
        tool = echo_tool("write", parameters=SCHEMA, is_destructive=True, handler=self._write)
        self.dispatcher = ToolDispatcher(ToolRegistry([tool]))
        self.shown: dict[str, list[int]] = {}
        """Arguments by the card that showed them."""

    async def _write(self, args: Mapping[str, Any], _deps: Any) -> ToolResult:
        self.ran.append(list(args["ids"]))
        questions = current_questions()
        assert questions is not None
        mid = ConfirmRequest(tool="server", description="", args={}, summary="in mid-call")
        self.mid_call.append((await questions.fill_in(mid, Form())).action)
        return ToolOk({})

    def look(self) -> str:
        """Return the open card, and store its text."""
        card = self.screen.state.open_card
        if card is None:
            return "none"
        if card.form is None:
            self.shown[card.card] = json.loads(card.request.summary)["ids"]
        return card.card


@pytest.mark.longer
@example(actions=after_another_card(("click", "old", "run")))
@example(actions=after_another_card(("code", "old", True)))
@example(actions=after_another_card(("code", "own", "yes")))
@example(
    actions=after_another_card(("change", [2]), ("click", "own", "run"), ("click", "own", "run"))
)
@example(actions=after_another_card(("click", "own", "run"), ("code", "own", True)))  # in mid-call
@given(actions=st.lists(st.tuples(ACTIONS, ROUNDS), max_size=20))
async def test_gate_runs_only_what_a_card_showed_and_an_answer_approved_once(
    actions: list[tuple[tuple[Any, ...], int]],
) -> None:
    cards = Cards()
    calls: list[tuple[asyncio.Task[ToolResult], dict[str, Any]]] = []
    approved: set[str] = set()
    seen = ["none"]
    for action, times in actions:
        own = cards.look()
        seen += [own] if own not in seen else []
        old = seen[-2] if own == seen[-1] and seen[1:] else seen[-1]
        named = {"own": own, "old": old, "none": "none"}
        match action:
            case ("open", ids):
                args = {"ids": list(ids)}
                dispatched = cards.dispatcher.dispatch("write", args, confirm=cards.gate)
                calls.append((asyncio.ensure_future(dispatched), args))
            case ("click", whose, how):
                cards.page.press("answer", card=named[whose], how=how)
                approved |= {named[whose]} if how == "run" else set()
            case ("code", whose, is_allowed):
                cards.gate.settle(named[whose], is_allowed)
                approved |= {named[whose]} if is_allowed is True else set()
            case ("change", ids):
                for _, args in calls:
                    args["ids"][:] = ids
                shown = cards.screen.state.open_card
                if shown is not None and shown.form is None:
                    with pytest.raises(TypeError):
                        shown.request.args["ids"].append(9)
                    with pytest.raises(TypeError):
                        shown.request.args["ids"] = ids
            case ("close",):
                cards.gate.close()
            case ("stop",) if calls:
                calls[-1][0].cancel()
        await rounds(times)
        cards.look()
    for _ in range(len(calls) + 1):  # what still asks, for itself or in mid-call, gets a no
        cards.gate.close()
        await rounds(SETTLED)
        cards.look()
    await asyncio.gather(*(task for task, _ in calls), return_exceptions=True)
    yes = Counter(tuple(ids) for card, ids in cards.shown.items() if card in approved)
    assert Counter(map(tuple, cards.ran)) <= yes
    assert FormAction.ACCEPT not in cards.mid_call  # no press here fills in a form


ANSWERS = st.one_of(
    st.sampled_from((True, True, True, True, False, "true", 1, "decline", "cancel", "nothing")),
    IDS,  # run, with these arguments
    st.just([9]),  # which the tool refuses
)
STEPS = st.one_of(
    st.tuples(st.just("ask"), IDS),
    st.tuples(
        st.just("answer"),
        st.integers(1, 3),  # the last question, the one before, …
        st.one_of(st.none(), st.none(), IDS),  # with other arguments
        ANSWERS,
    ),
    st.tuples(st.just("wait"), st.sampled_from((1.0, ANSWER_TIMEOUT_S))),
    st.tuples(st.just("drift"), st.integers(0, 1)),
)


class Served:
    """The server of one write, whose summary depends on a state that changes."""

    def __init__(self) -> None:
        self.ran: list[list[int]] = []
        self.balance = 0
        self.now_s = 0.0
        tool = echo_tool("write", parameters=SCHEMA, is_destructive=True, handler=self._write)
        tool = replace(tool, summarize=self._summary)
        session = BareSession(
            registry=ToolRegistry([tool]), assistant=Assistant(), today=date(2026, 6, 15)
        )
        self.serving = McpServing(
            session, name="bank", catalog=load_catalog("en"), clock=lambda: self.now_s
        )

    def _write(self, args: Mapping[str, Any], _deps: Any) -> ToolResult:
        self.ran.append(list(args["ids"]))
        return ToolOk({})

    def _summary(self, args: Mapping[str, Any], _catalog: Any) -> str:
        return f"{args['ids']} of {self.balance}"

    async def call(
        self,
        ids: list[int],
        *,
        state: str | None = None,
        answer: Any = "nothing",
        elicit: Any = None,
    ) -> Any:
        """Call the tool as a client does: a modern one, or with `elicit` a legacy one."""
        session = SimpleNamespace(
            client_capabilities=SimpleNamespace(
                elicitation=SimpleNamespace(form=object(), url=None)
            ),
            elicit_form=elicit,
        )
        version = MODERN_PROTOCOL_VERSIONS[-1] if elicit is None else "2025-06-18"
        context: Any = SimpleNamespace(protocol_version=version, session=session, request_id=1)
        given = {} if answer == "nothing" else {"run": result_of(answer)}
        params = CallToolRequestParams(
            name="write", arguments={"ids": ids}, request_state=state, input_responses=given
        )
        return await self.serving._call(context, params)


def result_of(answer: Any) -> ElicitResult:
    if answer in ("decline", "cancel"):
        return ElicitResult(action=answer)
    if isinstance(answer, list):
        return ElicitResult(action="accept", content={"run": True, "args.ids": json.dumps(answer)})
    return ElicitResult(action="accept", content={"run": answer})


@pytest.mark.longer
@example(steps=[("ask", [1]), ("answer", 1, None, True), ("answer", 1, None, True)])  # replayed
@example(steps=[("ask", [1]), ("answer", 1, [2], True), ("answer", 1, [1], True)])  # changed
@example(steps=[("ask", [1]), ("wait", ANSWER_TIMEOUT_S), ("answer", 1, None, True)])  # late
@example(steps=[("ask", [1]), ("drift", 1), ("answer", 1, None, True)])  # about something else
@example(steps=[("ask", [1]), ("answer", 1, None, False), ("answer", 2, None, True)])
@example(steps=[("ask", [1]), ("answer", 1, None, [2]), ("answer", 1, None, True)])  # edited
@example(steps=[("ask", [1]), ("answer", 1, None, [2]), ("answer", 1, [3], True)])
@example(steps=[("ask", [1]), ("answer", 1, None, [2]), ("answer", 2, None, True)])
@example(steps=[("ask", [1]), ("answer", 1, None, [9]), ("answer", 1, None, True)])
@example(steps=[("ask", [1]), ("answer", 1, None, [2]), ("drift", 1), ("answer", 1, None, True)])
@given(steps=st.lists(STEPS, max_size=25))
async def test_serving_runs_only_what_its_question_showed_and_an_answer_approved_once(
    steps: list[tuple[Any, ...]],
) -> None:
    served = Served()
    questions: list[str] = []
    asked: dict[str, tuple[list[int], list[int], int, float]] = {}
    """By state: the arguments, those that were shown, and when."""
    expected: list[list[int]] = []
    for step in steps:
        match step:
            case ("ask", ids):
                shown = ids
                done = await served.call(ids)
            case ("answer", number, other, answer):
                state = questions[-number] if number <= len(questions) else "made up"
                question = asked.pop(state, None)
                ids = other if other is not None else question[0] if question else []
                done, shown = await served.call(ids, state=state, answer=answer), ids
                is_same = question is not None and (question[0], question[2]) == (
                    ids,
                    served.balance,
                )
                if is_same and question and served.now_s - question[3] < ANSWER_TIMEOUT_S:
                    shown = question[1]
                    is_edit = isinstance(answer, list) and answer != shown
                    assert isinstance(done, InputRequiredResult) is is_edit
                    expected += [shown] if answer is True or answer == shown else []
                    shown = answer if is_edit and answer != [9] else shown
            case ("wait", seconds):
                served.now_s += seconds
                continue
            case ("drift", balance):
                served.balance = balance
                continue
        if isinstance(done, InputRequiredResult):
            assert done.request_state not in questions
            questions.append(str(done.request_state))
            asked[questions[-1]] = (ids, shown, served.balance, served.now_s)
            assert f"{shown} of {served.balance}" in str(done.input_requests)
        assert served.ran == expected


async def test_serving_forgets_the_oldest_question_when_too_many_are_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "_MAX_PENDING", 2)
    served = Served()
    states = [(await served.call([number])).request_state for number in range(3)]
    again = await served.call([0], state=states[0], answer=True)
    assert isinstance(again, InputRequiredResult)
    assert served.ran == []
    await served.call([2], state=states[2], answer=True)
    assert served.ran == [[2]]


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("call"), IDS),
            st.tuples(st.just("reply"), st.sampled_from((True, True, False, "true", "decline"))),
            st.tuples(st.just("stop"), st.integers(0, 5)),
        ),
        max_size=15,
    )
)
async def test_serving_asks_a_legacy_client_one_by_one_and_runs_what_it_approved(
    steps: list[tuple[Any, ...]],
) -> None:
    served = Served()
    questions: list[tuple[list[int], asyncio.Future[ElicitResult]]] = []
    open_at_once: list[int] = []

    async def elicit(message: str, _schema: Any, _request_id: Any) -> ElicitResult:
        listed = re.search(r"\[.*\]", message)
        assert listed is not None
        answer: asyncio.Future[ElicitResult] = asyncio.get_running_loop().create_future()
        questions.append((json.loads(listed[0]), answer))
        open_at_once.append(sum(not future.done() for _, future in questions))
        return await answer

    calls: list[asyncio.Future[Any]] = []
    expected: list[list[int]] = []
    for step in [*steps, *([("reply", False)] * len(steps))]:
        match step:
            case ("call", ids):
                calls.append(asyncio.ensure_future(served.call(ids, elicit=elicit)))
            case ("reply", answer) if questions and not questions[-1][1].done():
                questions[-1][1].set_result(result_of(answer))
                expected += [questions[-1][0]] if answer is True else []
            case ("stop", number) if number < len(calls):
                calls[number].cancel()
        await rounds(SETTLED)
        assert served.ran == expected
    for call in calls:
        call.cancel()  # all have ended; an error must not make the test wait
    await asyncio.gather(*calls, return_exceptions=True)
    assert set(open_at_once) <= {1}


async def test_serving_answer_counts_for_the_value_of_the_clock_that_was_shown() -> None:
    served, ticks, ran = Served(), itertools.count(), []
    registry = ToolRegistry()

    @registry.tool(destructive=True)
    def write(
        ids: list[int], at: int = Field(default_factory=lambda: next(ticks)), day: str = ""
    ) -> dict[str, Any]:
        """Write."""
        ran.append((ids, at, day))
        return {}

    registry = registry.mapped(lambda tool: replace(tool, implied={"day": TODAY}))
    session = BareSession(registry=registry, assistant=Assistant(), today=date(2026, 6, 15))
    served.serving = McpServing(session, name="bank", catalog=load_catalog("en"))
    asked = await served.call([1])
    (shown,) = re.findall(r'"at": (\d+) \(default\)', str(asked.input_requests))
    assert '"day": "2026-06-15" (default)' in str(asked.input_requests).replace('\\"', '"')
    other = await served.call([2], state=asked.request_state, answer=True)
    assert ran == []
    await served.call([2], state=other.request_state, answer=[3])
    asked = await served.call([1])
    (shown,) = re.findall(r'"at": (\d+) \(default\)', str(asked.input_requests))
    done = await served.call([1], state=asked.request_state, answer=True)
    assert ran == [([1], int(shown), "2026-06-15")]
    assert "edited" not in str(done)
    asked = await served.call([1])
    edited = await served.call([1], state=asked.request_state, answer=[4])
    (shown,) = re.findall(r'"at": (\d+) \(default\)', str(edited.input_requests))
    await served.call([1], state=edited.request_state, answer=True)
    assert ran[1:] == [([4], int(shown), "2026-06-15")]
