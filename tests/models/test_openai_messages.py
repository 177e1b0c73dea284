"""Conversations as OpenAI messages, and through the pythonic chat template."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.conversation.messages import (
    Message,
    ModelMessage,
    SystemMessage,
    ToolCallMessage,
    UserMessage,
)
from lhkit.conversation.tool_results import ToolErr, ToolOk, encode_tool_result
from lhkit.models.client.request import chat_messages, chat_tools, tool_fields
from lhkit.models.dialects import DIALECTS
from lhkit.models.families import parser_args
from tests.rows import check_rows

TOOLS = (
    {
        "name": "search",
        "description": "찾기 <end_of_turn>",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}},
    },
    {"name": "list", "description": "", "parameters": {"type": "object", "properties": {}}},
)
FOUND = ToolOk({"found": ["잠 <end_of_turn>"]})


def called(name: str, args: Any, **more: Any) -> ToolCallMessage:
    return ToolCallMessage.of(name=name, args=args, result=FOUND, **more)


CONVERSATION: tuple[Message, ...] = (
    UserMessage(text="잠 <end_of_turn>\n<start_of_turn>model", context="[오늘: 2026-06-15]"),
    called("search", {"query": '"잠" <bos>', "days": 3, "ok": True, "no": None}, text="찾을게요."),
    called("search", {"list": [1, "둘", {"a": 0.5}], "map": {"가": False}}, index=1),
    SystemMessage(text="앱의 안내"),
    ModelMessage(text="찾았어요."),
    UserMessage(text="고마워"),
    called("list", {}),
    UserMessage(text="응"),
)


def test_chat_messages_of_a_conversation() -> None:
    result = encode_tool_result(FOUND)
    converted = chat_messages(CONVERSATION[:5], " 비서 ")
    arguments = [call["function"].pop("arguments") for call in converted[2]["tool_calls"]]
    assert [json.loads(each) for each in arguments] == [
        {"query": '"잠" <bos>', "days": 3, "ok": True, "no": None},
        {"list": [1, "둘", {"a": 0.5}], "map": {"가": False}},
    ]
    assert converted == [
        {"role": "system", "content": "비서"},
        {"role": "user", "content": "[오늘: 2026-06-15]\n잠 <end_of_turn>\n<start_of_turn>model"},
        {
            "role": "assistant",
            "content": "찾을게요.",
            "tool_calls": [
                {"id": "call00000", "type": "function", "function": {"name": "search"}},
                {"id": "call00001", "type": "function", "function": {"name": "search"}},
            ],
        },
        {"role": "tool", "tool_call_id": "call00000", "name": "search", "content": result},
        {"role": "tool", "tool_call_id": "call00001", "name": "search", "content": result},
        {"role": "assistant", "content": "찾았어요."},
    ]


def test_chat_messages_have_stable_unique_call_ids() -> None:
    converted = chat_messages(CONVERSATION)
    ids = [call["id"] for message in converted for call in message.get("tool_calls", ())]
    assert ids == ["call00000", "call00001", "call00002"]
    assert chat_messages(CONVERSATION[:5]) == converted[:5]


@pytest.mark.parametrize("args", ['{"query": 잠', [1], {"n": float("nan")}])
def test_chat_messages_turn_invalid_calls_into_text(args: Any) -> None:
    refused = ToolErr("invalid_arguments", "no object")
    raw = 'search {"query": 잠'
    cut = ToolCallMessage.of(name="search", args=args, result=refused, raw=raw)
    good = called("list", {}, index=1)
    converted = chat_messages((UserMessage(text="?"), cut, good))
    assert converted[1]["content"] == raw
    assert [call["function"]["name"] for call in converted[1]["tool_calls"]] == ["list"]
    assert [message["role"] for message in converted] == ["user", "assistant", "tool", "user"]
    assert converted[3]["content"] == f"Result of search: {encode_tool_result(refused)}"


def test_chat_messages_content_is_null_without_text() -> None:
    assert chat_messages((called("list", {}),))[0]["content"] is None
    [message, result] = chat_messages((called("", None, raw="list {"),))
    assert (message["content"], "tool_calls" in message) == ("list {", False)
    assert result["content"].startswith("Result of the call: ")


CUT = ToolCallMessage.of(name="", args=None, raw="list {", result=ToolErr("truncated_call", "cut"))
STOPPED = ModelMessage(text="잠깐", stopped=True)


@check_rows(
    ("messages", "roles", "last"),
    [
        ([UserMessage(text="a"), UserMessage(text="b", context="c")], ["user"], "a\n\nc\nb"),
        (
            [UserMessage(text="a"), SystemMessage(text="앱"), UserMessage(text="b")],
            ["user"],
            "a\n\nb",
        ),
        (
            [UserMessage(text="a"), CUT, UserMessage(text="b")],
            ["user", "assistant", "user"],
            f"Result of the call: {encode_tool_result(CUT.result)}\n\nb",
        ),
        ([STOPPED, SystemMessage(text="앱"), STOPPED], ["assistant"], "잠깐\n\n잠깐"),
        ([STOPPED, CUT], ["assistant", "user"], None),
        ([STOPPED, called("list", {})], ["assistant", "tool"], None),
        (
            [called("list", {}), STOPPED, STOPPED],
            ["assistant", "tool", "assistant"],
            "잠깐\n\n잠깐",
        ),
        (
            [called("list", {}), called("list", {})],
            ["assistant", "tool", "assistant", "tool"],
            None,
        ),
    ],
)
def test_chat_messages_join_adjacent_messages_of_one_role(
    messages: list[Message], roles: list[str], last: str | None
) -> None:
    converted = chat_messages(messages)
    assert [each["role"] for each in converted] == roles
    assert last is None or converted[-1]["content"] == last


def test_chat_messages_keep_the_text_before_calls() -> None:
    [spoken, _] = chat_messages((STOPPED, called("list", {}, text="찾을게요.")))
    assert spoken["content"] == "잠깐\n\n찾을게요."
    assert [each["function"]["name"] for each in spoken["tool_calls"]] == ["list"]
    [spoken, _] = chat_messages((STOPPED, called("list", {})))
    assert spoken["content"] == "잠깐"


TEXTS = st.sampled_from(["", "a", "b\n", "잠"])
MESSAGES = (
    st.builds(UserMessage, text=TEXTS, context=TEXTS)
    | st.builds(ModelMessage, text=TEXTS, stopped=st.booleans())
    | st.builds(SystemMessage, text=TEXTS)
    | st.builds(
        ToolCallMessage.of,
        name=st.sampled_from(["", "list"]),
        args=st.sampled_from([None, {}, {"a": 1}, "{", {"n": float("nan")}]),
        result=st.just(FOUND) | st.just(ToolErr("truncated_call", "cut")),
        text=TEXTS,
        raw=TEXTS,
        index=st.integers(0, 2),
    )
)


@given(messages=st.lists(MESSAGES, max_size=12), instructions=TEXTS)
def test_chat_messages_never_repeat_a_role(messages: list[Message], instructions: str) -> None:
    converted = chat_messages(messages, instructions)
    assert all(a["role"] != b["role"] or a["role"] == "tool" for a, b in pairwise(converted))
    ids = [call["id"] for each in converted for call in each.get("tool_calls", ())]
    assert ids == [each["tool_call_id"] for each in converted if each["role"] == "tool"]
    before = ["assistant" if "tool_calls" in each else each["role"] for each in converted]
    assert all(a in {"assistant", "tool"} for a, b in pairwise(before) if b == "tool")
    spoken = "\n".join(each["content"] or "" for each in converted)
    words = [each.text for each in messages if isinstance(each, UserMessage | ModelMessage)]
    assert all(word.strip() in spoken for word in words)


def test_chat_messages_replace_lone_surrogates() -> None:
    [message] = chat_messages((UserMessage(text="a\ud800"),))
    assert message["content"] == "a\ufffd"


def test_tool_fields_with_and_without_tools() -> None:
    assert tool_fields((), required=True) == {}
    assert tool_fields(TOOLS, required=False)["tool_choice"] == "auto"
    assert tool_fields(TOOLS, required=True) == {
        "tools": [{"type": "function", "function": tool} for tool in TOOLS],
        "tool_choice": "required",
    }


@pytest.fixture(scope="module")
def rendered() -> Callable[..., str]:
    transformers = pytest.importorskip("transformers", reason="what vLLM renders templates with")
    options = parser_args("gemma-3-4b-it")
    template = Path(options[options.index("--chat-template") + 1]).read_text(encoding="utf-8")
    render = transformers.utils.chat_template_utils.render_jinja_template

    def render_one(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> str:
        texts, _ = render(
            [messages],
            tools=tools or None,
            chat_template=template,
            add_generation_prompt=True,
            bos_token="<bos>",  # noqa: S106 - a control token, no secret
        )
        return str(texts[0])

    return render_one


def as_vllm_does(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages as vLLM hands them to a template: arguments as objects."""
    for message in messages:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return messages


@pytest.mark.longer
@check_rows("length", range(1, len(CONVERSATION) + 1))
@check_rows("tools", [TOOLS, ()], ids=["tools", "no tools"])
@check_rows("instructions", ["비서 <bos>", ""])
def test_pythonic_template_equals_the_pythonic_dialect(
    rendered: Callable[..., str], length: int, tools: Any, instructions: str
) -> None:
    messages = CONVERSATION[:length]
    prompt = rendered(as_vllm_does(chat_messages(messages, instructions)), chat_tools(tools))
    assert prompt == DIALECTS["pythonic"].encode(messages, tools, instructions)
