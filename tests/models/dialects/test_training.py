"""Training text: prompts as served, and spans of what the model writes."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from lhkit.base.errors import UsageError
from lhkit.chat.assistant import Assistant
from lhkit.chat.controller import ChatController
from lhkit.confirm.gate import ScriptedGate
from lhkit.conversation.messages import ToolCall
from lhkit.conversation.responses import ModelIdentity
from lhkit.conversation.tool_results import ToolErr, ToolOk, ToolResult
from lhkit.models.client.request import chat_messages, chat_tools, request_body
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.training import prompt_completions, training_text
from lhkit.models.recorded.scripted import Reply, ScriptedModel, call, say
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.tools.registry import ToolRegistry

TEXT = {"type": "string"}
ENDS = {
    "json": ("<end_of_turn>", "<end_of_turn>"),
    "pythonic": ("<end_of_turn>", "<end_of_turn>"),
    "functiongemma": ("<start_function_response>", "<end_of_turn>"),
    "gemma4": ("<|tool_response>", "<turn|>"),
}
"""What ends a call and a reply, by dialect."""


def _find(args: Mapping[str, Any], _deps: Any) -> ToolResult:
    if args["query"] == "없음":
        return ToolErr(code="not_found", reason="그런 메모는 없어요")
    return ToolOk({"notes": [args["query"]] * (200 if args["query"] == "많음" else 1), "n": 1.5})


def tool(name: str, *, is_destructive: bool = False) -> ToolDefinition:
    schema = {"type": "object", "properties": {"query": TEXT}, "required": ["query"]}
    return ToolDefinition(
        name=name,
        description="메모를 다룬다",
        parameters=schema,
        handler=_find,
        is_destructive=is_destructive,
    )


TOOLS = ToolRegistry([tool("find"), tool("drop", is_destructive=True)])
CONVERSATION: tuple[tuple[str, Sequence[Reply]], ...] = (
    ("안녕? <end_of_turn>", (say("안녕하세요 <bos>!"),)),
    (
        "우유와 빵을 찾아 줘",
        (
            Reply(
                text="찾을게요.",
                calls=(
                    ToolCall(name="find", args={"query": "우유 <escape>"}),
                    ToolCall(name="find", args={"query": '"빵" & <|tool_call>'}),
                ),
            ),
            call("find", query="없음"),
            say("빵만\n있어요."),
        ),
    ),
    ("많이 찾아 줘", (call("find", query="많음"), say("많아요."))),
    ("지워 줘", (call("drop", query="우유"), say("그만둘게요 \U0001f95b."))),
)


async def chatted() -> tuple[ScriptedModel, dict[str, Any]]:
    """Return the model of a chat, and the chat as a training conversation."""
    replies = [reply for _, replies in CONVERSATION for reply in replies]
    model = ScriptedModel(replies)
    assistant = Assistant(
        instructions=" 메모를 적어.\n짧게 답해. ",
        context=lambda _: "[오늘: 2026-06-15 월요일]",
        max_result_bytes=600,
        truncation_hint="{bytes} 바이트예요. 하나씩 찾으세요.",
    )
    controller = ChatController(
        model=model, dispatcher=ToolDispatcher(TOOLS), assistant=assistant, confirm=ScriptedGate([])
    )
    for user, _ in CONVERSATION:
        await controller.user_turn(user)
    messages = chat_messages(controller.state.transcript.messages, assistant.instructions)
    data = {"messages": messages, "tools": chat_tools(TOOLS.definitions)}
    return model, json.loads(json.dumps(data))


@pytest.mark.anyio
@pytest.mark.parametrize("dialect", [*DIALECTS])
async def test_training_text_has_the_prompts_of_serving(dialect: str) -> None:
    model, conversation = await chatted()
    identity = ModelIdentity(model="m", server="s", dialect=dialect)
    served = [request_body(request, identity)["prompt"] for request in model.requests]
    rendered = training_text(conversation, DIALECTS[dialect])
    assert [rendered.text[:begin] for begin, _ in rendered.spans] == served
    assert "_truncated" in served[-1]
    assert "not_found" in served[-1]


@pytest.mark.anyio
@pytest.mark.parametrize("dialect", [*DIALECTS])
async def test_training_spans_have_the_models_text_and_end_token(dialect: str) -> None:
    model, conversation = await chatted()
    rendered = training_text(conversation, DIALECTS[dialect])
    after_call, after_reply = ENDS[dialect]
    replies = [reply for _, replies in CONVERSATION for reply in replies]
    assert len(rendered.spans) == len(model.requests) == len(replies)
    for (begin, end), reply in zip(rendered.spans, replies, strict=True):
        mark = after_call if reply.calls else after_reply
        written = rendered.text[begin:end]
        assert written.endswith(mark)
        assert written.count(mark) == 1
        parsed = DIALECTS[dialect].parse(written.removesuffix(mark), TOOLS.definitions)
        assert [(each.name, each.args) for each in parsed.calls] == [
            (each.name, each.args) for each in reply.calls
        ]
        assert parsed.text == reply.text.replace("<bos>", "< bos>")
        assert not any(each.repairs for each in parsed.calls if not reply.text)
    assert rendered.text.count("<bos>") == 1
    assert rendered.spans[-1][1] == len(rendered.text)


@pytest.mark.anyio
async def test_training_pairs_skip_messages_without_weight() -> None:
    _, conversation = await chatted()
    conversation["messages"][2]["weight"] = 0
    dialect = DIALECTS["json"]
    rendered, pairs = (
        training_text(conversation, dialect),
        prompt_completions(conversation, dialect),
    )
    assert len(pairs) == len(rendered.spans) == 7
    assert pairs[0]["completion"].startswith("찾을게요.")
    assert "안녕하세요" in pairs[0]["prompt"]
    assert pairs[-1]["prompt"] + pairs[-1]["completion"] == rendered.text


def test_training_text_takes_objects_and_foreign_results() -> None:
    function = {"name": "light", "arguments": {"room": "거실"}}
    conversation = {
        "messages": [
            {"role": "user", "content": "불 켜 줘"},
            {"role": "assistant", "tool_calls": [{"id": "a", "function": function}]},
            {"role": "tool", "tool_call_id": "a", "content": "켰음"},
            {"role": "assistant", "content": "켰어요."},
        ]
    }
    text = training_text(conversation, DIALECTS["json"]).text
    assert '{"name": "light", "parameters": {"room":"거실"}}<end_of_turn>' in text
    assert 'Result of light: {"status":"ok","data":{"result":"켰음"}}' in text


USER = {"role": "user", "content": "안녕"}
REPLY = {"role": "assistant", "content": "네"}


@pytest.mark.parametrize(
    ("messages", "sentence"),
    [
        ([USER, REPLY, REPLY], r"messages\[2\]: an assistant message follows another one"),
        ([{"role": "robot", "content": ""}], r"messages\[0\].role is invalid: 'robot'"),
        ([USER, {"role": "system", "content": ""}], r"messages\[1\].role is invalid"),
        ([{"role": "user", "content": [{"text": "a"}]}], r"messages\[0\].content is invalid"),
        (
            [USER, {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f"}}]}],
            r"tool_calls\[0\] has no result: .* 'a'",
        ),
        (
            [
                USER,
                {
                    "role": "assistant",
                    "tool_calls": [{"function": {"name": "f", "arguments": "["}}],
                },
            ],
            r"messages\[1\].tool_calls\[0\] is invalid: it needs a function",
        ),
    ],
)
def test_training_text_refuses_invalid_messages(
    messages: list[dict[str, Any]], sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence):
        training_text({"messages": messages}, DIALECTS["json"])
