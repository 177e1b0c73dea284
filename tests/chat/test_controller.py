"""The controller's table, row by row, over the scripted model."""

import asyncio
import itertools
import sqlite3
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, TypeAdapter

from lhkit.base.errors import ContextTooLongError, ServerUnreachableError
from lhkit.base.locales import load_catalog
from lhkit.chat.assistant import Assistant
from lhkit.chat.controller import ChatController
from lhkit.chat.state import ChatState, apply_event
from lhkit.confirm.decision import Edit
from lhkit.confirm.gate import ConfirmRequest, ScriptedGate
from lhkit.conversation.events import CallCompleted, EndReason, TurnEnded
from lhkit.conversation.messages import (
    GateOutcome,
    ModelMessage,
    SystemMessage,
    ToolCall,
    ToolCallMessage,
    UserMessage,
)
from lhkit.conversation.responses import (
    Finished,
    ModelEvent,
    ModelIdentity,
    TextDelta,
    ToolCallParsed,
)
from lhkit.conversation.tool_results import ToolCancelled, ToolErr, ToolOk, ToolResult
from lhkit.models.base import ModelRequest
from lhkit.models.client.request import chat_messages
from lhkit.models.dialects import DIALECTS
from lhkit.models.recorded.scripted import Reply, ScriptedModel, call, say
from lhkit.testing import EventLog, echo_tool, object_schema
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.tools.registry import ToolRegistry
from lhkit.tools.validation import Invalid, invalid
from tests.rows import check_rows

ANY_ARGS = object_schema(category={"type": "string"}, protocol_id={"type": "string"})
READ = echo_tool("search_catalog", parameters=ANY_ARGS)
WRITE = echo_tool("add_habit", parameters=ANY_ARGS, is_destructive=True)


KOREAN = load_catalog("ko")


def controller(
    model: Any, *tools: Any, confirm: Any = None, assistant: Assistant | None = None
) -> tuple[ChatController, EventLog]:
    chat = ChatController(
        model=model,
        dispatcher=ToolDispatcher(ToolRegistry(tools or (READ, WRITE)), catalog=KOREAN),
        confirm=confirm,
        assistant=assistant,
        catalog=KOREAN,
    )
    log = EventLog()
    chat.subscribe(log)
    return chat, log


def kinds(chat: ChatController) -> list[str]:
    return [type(message).__name__ for message in chat.state.messages]


def results(chat: ChatController) -> list[ToolResult]:
    return [m.result for m in chat.state.messages if isinstance(m, ToolCallMessage)]


def codes(chat: ChatController) -> list[str]:
    return [r.code if isinstance(r, ToolErr) else type(r).__name__ for r in results(chat)]


@pytest.mark.anyio
async def test_turn_with_a_text_answer() -> None:
    chat, log = controller(ScriptedModel([say("안녕하세요! 무엇을 도와드릴까요?")]))
    await chat.user_turn("안녕")
    assert chat.state.messages == (
        UserMessage(text="안녕"),
        ModelMessage(text="안녕하세요! 무엇을 도와드릴까요?"),
    )
    assert (chat.state.is_streaming, chat.state.streaming_text) == (False, None)
    assert log.of(TurnEnded) == [TurnEnded(reason=EndReason.ANSWERED)]


@pytest.mark.anyio
@check_rows("text", ["", "  ", "\n\t", "\u3000"])
async def test_user_turn_ignores_blank_text(text: str) -> None:
    chat, log = controller(ScriptedModel([say("?")]))
    await chat.user_turn(text)
    assert chat.state == ChatState()
    assert log.events == []


class HeldModel:
    """Streams one word and then waits until it is let go; remembers being closed."""

    identity = ModelIdentity(model="held")

    def __init__(self) -> None:
        self.spoke = asyncio.Event()
        self.go_on = asyncio.Event()
        self.is_closed = False

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        try:
            yield TextDelta(text="잠깐만")
            self.spoke.set()
            await self.go_on.wait()
        finally:
            self.is_closed = True

    async def aclose(self) -> None: ...


@pytest.mark.anyio
async def test_user_turn_is_ignored_while_one_is_running() -> None:
    model = HeldModel()
    chat, _ = controller(model)
    turn = asyncio.create_task(chat.user_turn("하나"))
    await model.spoke.wait()
    before = chat.state
    assert (before.is_streaming, before.streaming_text) == (True, "잠깐만")
    await chat.user_turn("둘")
    chat.clear()
    await chat.retry()
    assert chat.state is before
    chat.stop()
    await turn


@pytest.mark.anyio
async def test_turn_runs_repeated_calls_of_a_repeatable_tool() -> None:
    gate = ScriptedGate([True, True])
    up = call("cd", path="..")
    chat, _ = controller(
        ScriptedModel([up, up, say("네")]),
        replace(echo_tool("cd", is_destructive=True), repeatable=True),
        confirm=gate,
    )
    await chat.user_turn("두 층 위로")
    assert codes(chat) == ["ToolOk", "ToolOk"]
    assert len(gate.asked) == 2


@pytest.mark.anyio
async def test_turn_asks_once_a_message_for_tools_registered_later() -> None:
    registry = ToolRegistry([READ])
    gate = ScriptedGate([True] * 4)

    def learn(_args: Mapping[str, Any], _deps: Any) -> ToolResult:
        registry.register(WRITE)
        return ToolOk({})

    registry.register(echo_tool("learn", handler=learn))
    writes = [ToolCall(name="add_habit", args={"protocol_id": name}) for name in "ab"]
    model = ScriptedModel(
        [
            Reply(calls=(ToolCall(name="learn", args={}), *writes)),
            Reply(calls=tuple(writes)),
            say("네"),
        ]
    )
    chat = ChatController(model=model, dispatcher=ToolDispatcher(registry), confirm=gate)
    await chat.user_turn("배워서 추가해줘")
    assert codes(chat) == ["ToolOk", "ToolOk", "ToolCancelled", "repeated_call", "ToolOk"]
    assert [request.args["protocol_id"] for request in gate.asked] == ["a", "b"]


@pytest.mark.anyio
async def test_turn_copies_results() -> None:
    shelf = {"item": {"left": 9}}
    seen: list[Any] = []

    def use(args: Mapping[str, Any], _deps: Any) -> ToolResult:
        shelf["item"]["left"] -= 3
        seen.append(args)
        return ToolOk(shelf["item"])

    model = ScriptedModel(
        [call("search_catalog", category="a"), call("use", n=[3]), say("네"), say("네")]
    )
    chat, log = controller(
        model,
        replace(READ, handler=lambda _args, _deps: ToolOk(shelf)),
        echo_tool("use", parameters=object_schema(n={}), handler=use),
    )
    await chat.user_turn("찾아서 써줘")
    seen[0]["n"].append("mutated")
    for message in chat.state.messages[1:3]:
        assert isinstance(message, ToolCallMessage)
        with pytest.raises(TypeError, match="copy"):
            message.args["x"] = 1
    shelf["item"]["left"] = 0
    await chat.user_turn("또")
    first, used = model.requests[-1].messages[1:3]
    assert isinstance(first, ToolCallMessage)
    assert isinstance(used, ToolCallMessage)
    assert first.result == ToolOk({"item": {"left": 9}})
    assert (used.args, used.result) == ({"n": [3]}, ToolOk({"left": 6}))
    assert log.of(CallCompleted)[1].message.outcome.args == {"n": [3]}


@pytest.mark.anyio
async def test_turn_copies_the_models_calls() -> None:
    class Restless:
        identity = ModelIdentity(model="restless")

        def __init__(self) -> None:
            self.args = {"protocol_id": "one"}

        async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
            if len(request.messages) > 1:
                self.args["protocol_id"] = "all"
                yield Finished(reason="stop", text="네")
                return
            made = ToolCall(name="add_habit", args=self.args)
            yield ToolCallParsed(call=made)
            yield Finished(reason="stop", calls=(made,))
            self.args["protocol_id"] = "other"

        async def aclose(self) -> None: ...

    gate = ScriptedGate([True])
    chat, log = controller(Restless(), confirm=gate)
    await chat.user_turn("하나만")
    asked = {"protocol_id": "one"}
    assert gate.asked[0].args == asked
    assert results(chat) == [ToolOk({"args": asked})]
    assert (log.of(ToolCallParsed)[0].call.args, log.of(CallCompleted)[0].message.args) == (
        asked,
        asked,
    )


@pytest.mark.anyio
@check_rows("dialect", ["json", "pythonic", "gemma4", "functiongemma", "openai"])
async def test_turn_replaces_a_large_result_by_the_assistants_hint(dialect: str) -> None:
    model = ScriptedModel([call("search_catalog"), say("네")])
    tool = replace(READ, handler=lambda _args, _deps: ToolOk({"all": "가" * 3_000}))
    for hint, expected in (
        ("ask open_item ({bytes} bytes)", "ask open_item (9"),
        ("", "single item"),
    ):
        chat, _ = controller(model, tool, assistant=Assistant(truncation_hint=hint))
        await chat.user_turn("다 보여줘")
        messages = model.requests[-1].messages
        text = (
            str(chat_messages(messages))
            if dialect == "openai"
            else DIALECTS[dialect].encode(messages, model.requests[-1].tools)
        )
        assert expected in text
        assert "query_protocol" not in text
        model = ScriptedModel([call("search_catalog"), say("네")])


@pytest.mark.anyio
@pytest.mark.parametrize("most", [256, 9_100])
async def test_turn_limits_results_to_max_result_bytes(
    most: int, caplog: pytest.LogCaptureFixture
) -> None:
    model = ScriptedModel([call("search_catalog"), say("네")])
    tool = replace(READ, handler=lambda _args, _deps: ToolOk({"all": "가" * 3_000}))
    chat, _ = controller(model, tool, assistant=Assistant(max_result_bytes=most))
    await chat.user_turn("다 보여줘")
    prompt = DIALECTS["json"].encode(model.requests[-1].messages, model.requests[-1].tools)
    is_whole = most > 9_000
    assert ("가" * 3_000 in prompt, "_truncated" in prompt) == (is_whole, not is_whole)
    warning = "search_catalog returned 9033 bytes: the model reads at most max_result_bytes=256"
    assert (warning in caplog.text) is not is_whole


@pytest.mark.anyio
async def test_turn_error_names_max_turns() -> None:
    reads = [call("search_catalog", query=str(n)) for n in range(3)]
    chat, log = controller(ScriptedModel(reads), READ, assistant=Assistant(max_turns=2))
    await chat.user_turn("찾아줘")
    assert chat.state.error == "도구 호출이 너무 많이 이어져 중단했습니다."
    assert not chat.state.is_streaming
    (ended,) = log.of(TurnEnded)
    assert ended.reason is EndReason.TOO_LONG
    assert "max_turns=2" in str(ended.detail)


@pytest.mark.anyio
async def test_turn_error_of_pydantic_has_no_link_to_its_documentation() -> None:
    def reply(_request: Any) -> Any:
        TypeAdapter(list[int]).validate_python(["a", "b"])

    chat, log = controller(ScriptedModel(reply), READ)
    await chat.user_turn("찾아줘")
    detail = str(log.of(TurnEnded)[0].detail)
    assert (detail.count("Input should be a valid integer"), "https://" in detail) == (2, False)


@pytest.mark.parametrize("limit", [{"max_turns": 0}, {"max_result_bytes": 255}])
def test_assistant_refuses_limits_that_are_too_small(limit: Any) -> None:
    [(name, value)] = limit.items()
    with pytest.raises(ValueError, match=rf"{name}={value} .* at least"):
        Assistant(**limit)


@pytest.mark.anyio
async def test_turn_keeps_text_before_a_call() -> None:
    calls = (
        ToolCall(name="search_catalog", args={"category": "a"}),
        ToolCall(name="search_catalog", args={"category": "b"}),
    )
    chat, _ = controller(ScriptedModel([Reply(text="찾아볼게요.", calls=calls), say("여기요")]))
    await chat.user_turn("찾아줘")
    assert [m.text for m in chat.state.messages] == ["찾아줘", "찾아볼게요.", "", "여기요"]


@pytest.mark.anyio
async def test_turn_does_not_show_thinking() -> None:
    chat, log = controller(ScriptedModel([Reply(thinking="음…", text="네")]))
    await chat.user_turn("안녕")
    assert chat.state.messages[-1] == ModelMessage(text="네")
    assert [e.text for e in log.events if type(e).__name__ == "ThinkingDelta"] == ["음…"]


@pytest.mark.anyio
@check_rows(
    ("error", "sentence"),
    [
        (ServerUnreachableError("x"), "연결할 수 없습니다"),
        (ContextTooLongError("x"), "길이를 넘었습니다"),
        (RuntimeError("bug"), "예상하지 못한 오류"),
    ],
)
async def test_turn_reports_a_failed_stream_and_can_be_retried(
    error: Exception, sentence: str
) -> None:
    chat, log = controller(ScriptedModel([Reply(text="그러", error=error), say("다시 왔어요")]))
    await chat.user_turn("안녕")
    assert sentence in (chat.state.error or "")
    assert type(error).__name__ in (chat.state.error or "")
    assert not chat.state.is_streaming
    assert log.of(TurnEnded)[0].cause == type(error).__name__
    await chat.retry()
    assert chat.state.messages == (UserMessage(text="안녕"), ModelMessage(text="다시 왔어요"))
    assert chat.state.error is None


@pytest.mark.anyio
async def test_retry_is_ignored_without_an_error() -> None:
    chat, _ = controller(ScriptedModel([say("네")]))
    await chat.user_turn("안녕")
    before = chat.state
    await chat.retry()
    assert chat.state is before


@pytest.mark.anyio
async def test_turn_fails_if_the_stream_has_no_finished_event() -> None:
    model = HeldModel()
    model.go_on.set()
    chat, _ = controller(model)
    await chat.user_turn("안녕")
    assert "StreamBrokenError" in (chat.state.error or "")


@pytest.mark.anyio
async def test_stop_closes_the_request_and_keeps_the_text() -> None:
    model = HeldModel()
    chat, log = controller(model)
    turn = asyncio.create_task(chat.user_turn("길게 말해줘"))
    await model.spoke.wait()
    chat.stop()
    await turn
    assert model.is_closed
    assert chat.state.messages[-1] == ModelMessage(text="잠깐만", stopped=True)
    assert (chat.state.is_streaming, chat.state.error) == (False, None)
    assert log.of(TurnEnded)[0].reason is EndReason.STOPPED


@pytest.mark.anyio
async def test_turn_passes_a_cancellation_and_stays_usable() -> None:
    model = HeldModel()
    chat, _ = controller(model)
    turn = asyncio.create_task(chat.user_turn("하나"))
    await model.spoke.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert not chat.state.is_streaming
    chat.clear()
    assert chat.state == ChatState()


@pytest.mark.anyio
async def test_turn_continues_if_a_subscriber_raises() -> None:
    def closed_panel(_event: object) -> None:
        raise RuntimeError

    chat, _ = controller(ScriptedModel([say("네")]))
    chat.subscribe(closed_panel)
    await chat.user_turn("안녕")
    assert chat.state.messages[-1] == ModelMessage(text="네")


@pytest.mark.anyio
async def test_subscribe_returns_a_function_that_unsubscribes() -> None:
    chat, _ = controller(ScriptedModel([say("네")]))
    log = EventLog()
    chat.subscribe(log)()
    await chat.user_turn("안녕")
    assert log.events == []


@pytest.mark.anyio
async def test_turn_shows_one_notice_after_eight_user_turns() -> None:
    chat, _ = controller(ScriptedModel(lambda _request: say("네")))
    hints = []
    for turn in range(11):
        await chat.user_turn(f"{turn}번째")
        hints.append(sum(isinstance(m, SystemMessage) for m in chat.state.messages))
    assert hints == [0] * 8 + [1] * 3
    chat.clear()
    assert chat.state.messages == ()


@pytest.mark.anyio
async def test_request_has_instructions_context_and_tools() -> None:
    model = ScriptedModel([say("네")])
    assistant = Assistant(
        instructions="너는 도우미다", context=lambda text: f"[오늘: 월요일, {len(text)}자]"
    )
    chat, _ = controller(model, assistant=assistant)
    await chat.user_turn("안녕")
    request = model.requests[0]
    assert request.instructions == "너는 도우미다"
    assert request.messages == (UserMessage(text="안녕", context="[오늘: 월요일, 2자]"),)
    assert [tool.name for tool in request.tools] == ["search_catalog", "add_habit"]


@pytest.mark.anyio
async def test_state_is_computed_from_events() -> None:
    model = ScriptedModel([Reply(text="네, ", calls=call("search_catalog").calls), say("끝")])
    chat, log = controller(model)
    await chat.user_turn("찾아줘")
    state = ChatState()
    for event in log.events:
        state = apply_event(state, event)
    assert state == chat.state


NAMES = st.sampled_from(["search_catalog", "add_habit", "nope"])
CALLS = st.builds(
    lambda name, value: ToolCall(name=name, args={"protocol_id": value}),
    NAMES,
    st.sampled_from(["a", "b", 1, None]),
)
REPLIES = st.builds(
    Reply, text=st.text(max_size=5), calls=st.lists(CALLS, max_size=3).map(tuple),
    fragment=st.sampled_from(["", '{"name": "add_habit"']),
)  # fmt: skip


@pytest.mark.longer
@pytest.mark.anyio
@given(
    replies=st.lists(REPLIES, max_size=8),
    answers=st.lists(st.booleans(), max_size=6),
    has_gate=st.booleans(),
)
async def test_no_write_runs_without_an_accepted_confirmation(
    replies: list[Reply], answers: list[bool], has_gate: bool
) -> None:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE habit (protocol_id TEXT)")

    def insert(args: Mapping[str, Any], _deps: Any) -> ToolResult:
        database.execute("INSERT INTO habit VALUES (?)", [args["protocol_id"]])
        return ToolOk({})

    gate = ScriptedGate(answers)
    required = object_schema("protocol_id", protocol_id={"type": "string"})
    write = replace(WRITE, parameters=required, handler=insert)
    chat, log = controller(ScriptedModel(replies), READ, write, confirm=gate if has_gate else None)
    for text in ("하나", "둘"):
        await chat.user_turn(text)
    accepted = [
        request.args["protocol_id"]
        for request, answer in zip(gate.asked, answers, strict=False)
        if answer
    ]
    written = [row[0] for row in database.execute("SELECT protocol_id FROM habit")]
    database.close()
    assert written == (accepted if has_gate else [])
    assert all(s.message.result is not None for s in log.of(CallCompleted))


PAY = object_schema(
    "to",
    to={"type": "string", "minLength": 1},
    amount={"type": "integer", "minimum": 1},
    unit={"type": "string", "default": "EUR"},
)


def payments(
    *decisions: Any, replies: list[Any]
) -> tuple[ChatController, ScriptedGate, list[Mapping[str, Any]]]:
    """Return a chat whose tool pays, its gate, and the payments that ran."""
    runs: list[Mapping[str, Any]] = []

    def pay(args: Mapping[str, Any], _deps: Any) -> ToolResult:
        runs.append(args)
        return ToolOk({})

    def check(args: Mapping[str, Any]) -> Invalid | None:
        return invalid("to", "somebody else", args["to"]) if args["to"] == "me" else None

    gate = ScriptedGate(decisions)
    tool = echo_tool("pay", parameters=PAY, is_destructive=True, handler=pay)
    chat, _ = controller(ScriptedModel(replies), replace(tool, check=check), confirm=gate)
    return chat, gate, runs


@pytest.mark.anyio
@check_rows(
    "refused",
    [
        {"to": ""},
        {"amount": 1},
        {"to": "Bo", "amount": "1"},
        {"to": "me"},
        [],
        "Bo",
        None,
    ],
)
@check_rows("times", [1, 2])
async def test_turn_asks_a_valid_write_after_refused_ones_in_one_message(
    refused: Any, times: int
) -> None:
    first = [
        ToolCall(name="pay", args=refused if i == 0 else {"to": "", "amount": i})
        for i in range(times)
    ]
    valid = [ToolCall(name="pay", args={"to": name, "amount": 1}) for name in ("Bo", "Al")]
    chat, gate, runs = payments(True, True, replies=[Reply(calls=(*first, *valid)), say("ok")])
    await chat.user_turn("pay")
    assert codes(chat) == ["validation"] * times + ["ToolOk", "ToolCancelled"]
    assert [request.args["to"] for request in gate.asked] == ["Bo"]
    assert [run["to"] for run in runs] == ["Bo"]


@pytest.mark.anyio
@check_rows("answer", [False, Edit({"to": "", "amount": 1})])
async def test_turn_asks_one_write_of_a_message_whatever_the_answer(answer: Any) -> None:
    calls = tuple(ToolCall(name="pay", args={"to": name, "amount": 1}) for name in ("Bo", "Al"))
    chat, gate, _ = payments(answer, True, replies=[Reply(calls=calls), say("ok")])
    await chat.user_turn("pay")
    second = chat.state.messages[2]
    assert isinstance(second, ToolCallMessage)
    assert second.outcome is not None
    assert (second.result, second.outcome.gate) == (ToolCancelled(), GateOutcome.NOT_ASKED)
    assert len(gate.asked) == 1


@pytest.mark.anyio
@check_rows(
    ("again", "is_repeated"),
    [
        ({"to": "Bo", "amount": 2}, True),  # what ran
        ({"amount": 2.0, "to": "Bo", "unit": "EUR"}, True),
        ({"to": "Al", "amount": 5}, True),  # what was proposed
        ({"to": "Bo", "amount": 5}, False),
        ({"to": "Bo", "amount": 2, "unit": "USD"}, False),
    ],
)
async def test_turn_reports_a_repetition_of_what_ran_after_an_edit(
    again: dict[str, Any], *, is_repeated: bool
) -> None:
    edit = Edit({"to": "Bo", "amount": 2, "unit": "EUR"})
    proposed = call("pay", to="Al", amount=5)
    replies = [proposed, call("pay", **again), say("ok")]
    chat, gate, runs = payments(edit, True, replies=replies)
    await chat.user_turn("pay")
    assert codes(chat) == ["ToolOk", "repeated_call" if is_repeated else "ToolOk"]
    assert (len(gate.asked), len(runs)) == ((1, 1) if is_repeated else (2, 2))


@pytest.mark.anyio
async def test_turn_reports_a_repetition_after_an_edit_that_keeps_a_default_of_the_clock() -> None:
    ticks, runs = itertools.count(), []
    registry = ToolRegistry()

    @registry.tool(destructive=True)
    def log(text: str, at: int = Field(default_factory=lambda: next(ticks))) -> dict[str, Any]:
        """Log."""
        runs.append((text, at))
        return {}

    class Editor:
        async def confirm(self, request: ConfirmRequest) -> Edit:
            return Edit({**request.args, "text": "tea"})

    replies = [call("log", text="coffee"), call("log", text="tea"), say("ok")]
    chat = ChatController(
        model=ScriptedModel(replies), dispatcher=ToolDispatcher(registry), confirm=Editor()
    )
    await chat.user_turn("log")
    assert codes(chat) == ["ToolOk", "repeated_call"]
    assert [text for text, _ in runs] == ["tea"]
