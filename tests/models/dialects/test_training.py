"""Training text: prompts as served, and spans of the model's output."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from lhkit.base.errors import UsageError
from lhkit.chat.assistant import Assistant
from lhkit.chat.controller import ChatController
from lhkit.confirm.gate import ScriptedGate
from lhkit.conversation.messages import ToolCall, ToolCallMessage, UserMessage
from lhkit.conversation.responses import ModelIdentity
from lhkit.conversation.tool_results import (
    ResultFormat,
    ToolCancelled,
    ToolErr,
    ToolOk,
    ToolResult,
    encode_tool_result,
    plain_result,
)
from lhkit.models.base import ModelRequest
from lhkit.models.client.request import chat_messages, chat_tools, request_body
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.training import prompt_completions, training_text
from lhkit.models.recorded.scripted import Reply, ScriptedModel, call, say
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.tools.registry import ToolRegistry
from tests.rows import check_rows

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
@check_rows("dialect", [*DIALECTS])
async def test_training_text_has_the_prompts_of_serving(dialect: str) -> None:
    model, conversation = await chatted()
    identity = ModelIdentity(model="m", server="s", dialect=dialect)
    served = [request_body(request, identity)["prompt"] for request in model.requests]
    rendered = training_text(conversation, DIALECTS[dialect])
    assert [rendered.text[:begin] for begin, _ in rendered.spans] == served
    assert "_truncated" in served[-1]
    assert "not_found" in served[-1]


@pytest.mark.anyio
@check_rows("dialect", [*DIALECTS])
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
CALL: dict[str, Any] = {
    "role": "assistant",
    "tool_calls": [{"id": "a", "function": {"name": "f"}}],
}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "{}"}


@check_rows(
    ("messages", "sentence"),
    [
        ([USER, REPLY, REPLY], r"messages\[2\]: an assistant message follows another one"),
        ([{"role": "robot", "content": ""}], r"messages\[0\].role is invalid: 'robot'"),
        ([USER, {"role": "system", "content": ""}], r"messages\[1\].role is invalid"),
        ([{"role": "user", "content": [{"text": "a"}]}], r"messages\[0\].content is invalid"),
        ([USER, CALL, USER], r"messages\[1\].tool_calls\[0\] has no result: .* 'a'"),
        (
            [USER, CALL, {**RESULT, "tool_call_id": "b"}],
            r"1 of the results after it",
        ),
        ([USER, CALL, RESULT, RESULT], r"1 of the results after it"),
        ([USER, RESULT], r"messages\[1\] is invalid: no call precedes"),
        ([USER, REPLY, RESULT], r"messages\[2\] is invalid: no call precedes"),
        ([USER, {"role": "developer", "content": ""}], r"messages\[1\].role is invalid"),
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


@check_rows("form", [None, "envelope", "plain"])
@check_rows("dialect", [*DIALECTS])
def test_training_text_has_results_as_served(dialect: str, form: ResultFormat | None) -> None:
    results: tuple[ToolResult, ...] = (
        ToolOk({"n": 1}),
        ToolErr("not_found", "없어요"),
        ToolCancelled(),
    )
    calls = [
        ToolCallMessage.of(name="f", args={}, result=each, index=index, result_format=form)
        for index, each in enumerate(results)
    ]
    request = ModelRequest(messages=(UserMessage(text="?"), *calls))
    identity = ModelIdentity(model="m", server="s", dialect=dialect)
    served = request_body(request, identity)["prompt"]
    contents = [encode_tool_result(each) for each in results]
    if form == "plain":  # as in the file of such a toolset
        contents = [plain_result(each) for each in contents]
    row: dict[str, Any] = {
        "messages": [
            {"role": "user", "content": "?"},
            {
                "role": "assistant",
                "tool_calls": [{"id": str(n), "function": {"name": "f"}} for n in range(3)],
            },
            *(
                {"role": "tool", "tool_call_id": str(n), "content": text}
                for n, text in enumerate(contents)
            ),
            REPLY,
        ],
        **({"result_format": form} if form else {}),
    }
    begin, _ = training_text(row, DIALECTS[dialect]).spans[-1]
    assert training_text(row, DIALECTS[dialect]).text[:begin] == served
    is_plain = form == "plain" or (form is None and dialect in {"functiongemma", "gemma4"})
    assert ("not_found: 없어요" in served) == is_plain


def test_training_text_refuses_an_unknown_result_format() -> None:
    with pytest.raises(UsageError, match="result_format is invalid: 'flat'"):
        training_text({"messages": [USER, REPLY], "result_format": "flat"}, DIALECTS["json"])


SINGLE_CALL = {
    "json": '{"name": "f", "parameters": {}}<end_of_turn>',
    "pythonic": "[f()]<end_of_turn>",
    "functiongemma": "<start_function_call>call:f{}<end_function_call><start_function_response>",
    "gemma4": "<|tool_call>call:f{}<tool_call|><|tool_response>",
}


@check_rows("dialect", [*DIALECTS])
def test_training_text_ends_with_a_call_without_result(dialect: str) -> None:
    [pair] = prompt_completions({"messages": [USER, CALL]}, DIALECTS[dialect])
    assert pair["prompt"] == DIALECTS[dialect].encode([UserMessage(text="안녕")], [])
    assert pair["completion"] == SINGLE_CALL[dialect]


@check_rows("dialect", [*DIALECTS])
def test_training_text_keeps_parallel_calls_in_one_message(dialect: str) -> None:
    calls = {**CALL, "tool_calls": [*CALL["tool_calls"], {"function": {"name": "g"}}]}
    [pair] = prompt_completions({"messages": [USER, calls]}, DIALECTS[dialect])
    parsed = DIALECTS[dialect].parse(pair["completion"], [{"name": "f"}, {"name": "g"}])
    assert [each.name for each in parsed.calls] == ["f", "g"]


@check_rows("role", ["system", "developer"])
@check_rows("dialect", [*DIALECTS])
def test_training_text_has_the_first_message_as_instructions(dialect: str, role: str) -> None:
    row = {"messages": [{"role": role, "content": " 짧게.\n"}, USER, REPLY]}
    text = training_text(row, DIALECTS[dialect]).text
    assert text.startswith(DIALECTS[dialect].encode([UserMessage(text="안녕")], [], "짧게."))


ROUTE = {"name": "map", "arguments": {"to": "B", "at": "A"}}
LIGHT = {"name": "light", "arguments": {}}
SENTENCE = "You are a model that can do function calling with the following functions"
GOOGLE: dict[str, Any] = {
    "messages": [
        {"role": "developer", "content": f"Today is Friday\n{SENTENCE}\n"},
        {"role": "user", "content": "Light and map", "tool_calls": None},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"type": "function", "function": ROUTE},
                {"type": "function", "function": LIGHT},
            ],
        },
        {
            "role": "tool",
            "content": [
                {"name": "map", "response": {"shown": True, "n": 2}},
                {"name": "light", "response": "on"},
            ],
        },
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "And off"},
        {"role": "assistant", "tool_calls": [{"function": LIGHT}]},
    ],
    "tools": [
        {"function": {"name": "light", "description": "Light.", "parameters": {"type": "OBJECT"}}}
    ],
}
"""A row as in Google's data sets: a developer, no ids, results of several calls in one message."""


def test_training_text_of_googles_data_is_as_their_notebooks_print() -> None:
    assert training_text(GOOGLE, DIALECTS["functiongemma"]).text == (
        f"<bos><start_of_turn>developer\nToday is Friday\n{SENTENCE}"
        "<start_function_declaration>declaration:light{description:<escape>Light.<escape>,"
        "parameters:{type:<escape>OBJECT<escape>}}<end_function_declaration><end_of_turn>\n"
        "<start_of_turn>user\nLight and map<end_of_turn>\n<start_of_turn>model\n"
        "<start_function_call>call:map{at:<escape>A<escape>,to:<escape>B<escape>}"
        "<end_function_call><start_function_call>call:light{}<end_function_call>"
        "<start_function_response>response:map{n:2,shown:true}<end_function_response>"
        "<start_function_response>response:light{value:<escape>on<escape>}<end_function_response>"
        "Done.<end_of_turn>\n<start_of_turn>user\nAnd off<end_of_turn>\n<start_of_turn>model\n"
        "<start_function_call>call:light{}<end_function_call><start_function_response>"
    )


def test_training_text_takes_ids_that_are_used_again() -> None:
    def exchange(content: str) -> list[dict[str, Any]]:
        return [USER, CALL, {**RESULT, "content": content}, REPLY]

    row = {"messages": [*exchange('{"n":1}'), *exchange('{"n":2}')]}
    text = training_text(row, DIALECTS["gemma4"]).text
    assert text.index("response:f{n:1}") < text.index("response:f{n:2}")
