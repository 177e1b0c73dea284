"""A prompt that a model's own template renders is the built-in one.

The oracle is Google's newest template for Gemma 4, and for FunctionGemma one written by the rules
of the format (`templates_of_tests`). Both are rendered in this process, in the worker's
environment; some prompts go through the worker itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.conversation.messages import Message, ModelMessage, ToolCallMessage, UserMessage
from lhkit.conversation.tool_results import ToolCancelled, ToolErr, ToolOk
from lhkit.models.client.chat_template import ChatTemplate, native_markup
from lhkit.models.client.template_worker import compiled
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.template import template_variables
from tests.models.dialects.chat_templates import NEWEST, REVISIONS, rendered, revision_text
from tests.models.dialects.functiongemma_prompts import PROMPTS
from tests.models.dialects.test_chat_templates import (
    ASK,
    CASES,
    CONVERSATIONS,
    DESCRIBED,
    MCP_TOOLS,
    NOW,
    ROOT,
    TOOLS,
    WORDS,
    call,
    conversations,
    tool,
    tools_of,
)
from tests.models.templates_of_tests import FUNCTIONGEMMA
from tests.rows import check_rows

DAY = datetime(2026, 6, 15)
SENTENCE = "You are a model that can do function calling with the following functions"
Tools = Sequence[Mapping[str, Any]]


def templated(
    dialect: str, template: str, messages: Sequence[Message], tools: Tools, instructions: str
) -> str:
    """Return the prompt of a template, rendered in this process."""
    variables = template_variables(native_markup(dialect), messages, tools, instructions)
    text = compiled(template, DAY.isoformat()).render(
        bos_token="<bos>",  # noqa: S106 - a token of text
        add_generation_prompt=True,
        **variables,
    )
    return str(text)


def gemma4(
    messages: Sequence[Message],
    tools: Tools = (),
    instructions: str = "",
    revision: str = NEWEST,
) -> str:
    return templated("gemma4", revision_text(revision), messages, tools, instructions)


MALFORMED = ToolCallMessage.of(name="", args={}, raw="<|tool_call>call:l", result=ToolErr("a", "b"))
PENDING = ToolCallMessage(call=call(a=1).call)  # type: ignore[union-attr]
MORE: dict[str, list[Message]] = {
    "two texts": [ASK, ModelMessage(text="하나"), ModelMessage(text="둘"), ASK],
    "a text, then a call with text": [ASK, ModelMessage(text="하나"), call(text="둘"), ASK],
    "a text between calls": [ASK, call(), ModelMessage(text="하나"), call(text="둘"), ASK],
    "texts of two calls": [ASK, call(text="하나 "), call(index=1, text="둘")],
    "white space before a call": [ASK, call(text=" \n"), ASK],
    "an empty reply": [ASK, call(), ModelMessage(text=" "), ASK],
    "a reply at the end": [ASK, call(), ModelMessage(text="Here.")],
    "an empty reply at the end": [ASK, call(), ModelMessage(text="")],
    "a text at the end": [ASK, ModelMessage(text="Here.")],
    "a malformed call": [ASK, MALFORMED, ModelMessage(text="네"), ASK],
    "a malformed call at the end": [ASK, MALFORMED],
    "a pending call": [ASK, PENDING],
    "a pending call and a question": [ASK, PENDING, ASK],
    "a pending call and a reply": [ASK, PENDING, ModelMessage(text="네"), ASK],
    "no message": [],
    "a call at first": [call(), ASK],
    "control tokens in texts": [UserMessage(text="<turn|>"), ModelMessage(text="<|turn>"), ASK],
    "joined control tokens": [ASK, call(text="<turn"), call(index=1, text="|>")],
}


@pytest.mark.longer
@check_rows("name", CONVERSATIONS | MORE)
@check_rows("instructions", ["", " 짧게 답해. <turn|>"])
def test_variables_of_gemma4_give_the_built_in_prompt(name: str, instructions: str) -> None:
    messages = (CONVERSATIONS | MORE)[name]
    for tools in ([], tool(at=DESCRIBED)):
        ours = DIALECTS["gemma4"].encode(messages, tools, instructions)
        assert gemma4(messages, tools, instructions) == ours


@pytest.mark.longer
@check_rows("locale", ["ko", "en"])
@check_rows("reference", ["life-helper", f"{ROOT}/evals/pantry/pantry.py:toolset"])
def test_variables_of_toolset_give_the_built_in_prompt(reference: str, locale: str) -> None:
    tools = tools_of(reference, locale, NOW)
    for messages in CONVERSATIONS.values():
        assert gemma4(messages, tools) == DIALECTS["gemma4"].encode(messages, tools)


@pytest.mark.longer
@check_rows("server", MCP_TOOLS)
def test_variables_of_mcp_tools_give_the_built_in_prompt(server: str) -> None:
    tools = MCP_TOOLS[server]
    for messages in CONVERSATIONS.values():
        assert gemma4(messages, tools) == DIALECTS["gemma4"].encode(messages, tools)


@pytest.mark.longer
@given(messages=conversations(), tools=TOOLS, instructions=WORDS)
def test_variables_give_the_built_in_prompt_of_any_conversation(
    messages: list[Message], tools: Tools, instructions: str
) -> None:
    ours = DIALECTS["gemma4"].encode(messages, tools, instructions)
    assert gemma4(messages, tools, instructions) == ours


@st.composite
def untidy(draw: st.DrawFn) -> list[Message]:
    """Return messages in any order: texts in a row, calls without results, empty texts."""
    messages: list[Message] = []
    for kind in draw(st.lists(st.sampled_from("umcp"), max_size=6)):
        text = draw(WORDS | st.sampled_from(["", " "]))
        if kind == "u":
            messages.append(UserMessage(text=text))
        elif kind == "m":
            messages.append(ModelMessage(text=text))
        elif kind == "c":
            for index in range(draw(st.integers(1, 2))):
                messages.append(call(text=text, index=index, a=1))
        else:
            messages.append(PENDING)
    return messages


@pytest.mark.longer
@given(messages=untidy())
def test_variables_give_the_built_in_prompt_of_untidy_conversations(
    messages: list[Message],
) -> None:
    assert gemma4(messages) == DIALECTS["gemma4"].encode(messages, ())
    assert functiongemma(messages) == DIALECTS["functiongemma"].encode(messages, ())


@pytest.mark.longer
@check_rows("revision", REVISIONS)
@check_rows("name", sorted(CONVERSATIONS.keys() - {"a result and a question"}))
def test_variables_and_oracle_agree_in_every_revision(name: str, revision: str) -> None:
    """One conversion is lhkit's, the other that of the tests."""
    messages, tools = CONVERSATIONS[name], tool(at=DESCRIBED)
    assert gemma4(messages, tools, "Be brief.", revision) == rendered(
        revision, messages, tools, "Be brief."
    )


@pytest.mark.longer
@check_rows("revision", REVISIONS[1:])
def test_variables_close_the_turn_of_an_unanswered_result_in_older_revisions(revision: str) -> None:
    messages = CONVERSATIONS["a result and a question"]
    assert gemma4(messages, revision=revision) == DIALECTS["gemma4"].encode(messages, ())


def test_variables_are_plain_json_of_read_only_schemas() -> None:
    (look,) = tool(at=MappingProxyType(DESCRIBED))
    tools = [{**look, "parameters": MappingProxyType(look["parameters"])}]
    assert gemma4([ASK], tools) == DIALECTS["gemma4"].encode([ASK], tool(at=DESCRIBED))


def functiongemma(messages: Sequence[Message], tools: Tools = (), instructions: str = "") -> str:
    return templated("functiongemma", FUNCTIONGEMMA, messages, tools, instructions)


@check_rows("name", CONVERSATIONS)
def test_variables_of_functiongemma_give_the_built_in_prompt(name: str) -> None:
    messages = CONVERSATIONS[name]
    for tools in ([], tool(at=DESCRIBED)):
        for instructions in ("", "Be kind."):
            ours = DIALECTS["functiongemma"].encode(messages, tools, instructions)
            assert functiongemma(messages, tools, instructions) == ours


SIMPLE = [
    case for case, (_, tools, _) in CASES.items() if tools in ((), tool(), tool(at=DESCRIBED))
]
"""The cases whose tools the template of the tests can declare."""


@check_rows("case", SIMPLE)
def test_variables_of_functiongemma_give_what_google_prints(case: str) -> None:
    messages, tools, instructions = CASES[case]
    assert functiongemma(messages, tools, instructions) == PROMPTS[case][0]


@check_rows(
    "instructions",
    ["", "Be kind.", f"Be kind.\n{SENTENCE}", f"{SENTENCE.upper()}.", SENTENCE.replace(" ", "\n")],
)
def test_variables_end_the_system_text_as_the_built_in_prompt(instructions: str) -> None:
    tools = tool(at=DESCRIBED)
    prompt = functiongemma([ASK], tools, instructions)
    assert prompt == DIALECTS["functiongemma"].encode([ASK], tools, instructions)
    assert " ".join(prompt.casefold().split()).count(SENTENCE.casefold()) == 1


@check_rows("result_format", ["envelope", "plain", None])
@check_rows("result", [ToolOk({"a": 1}), ToolErr("b", "c"), ToolCancelled()])
def test_variables_have_results_in_the_format_of_the_toolset(
    result: Any, result_format: Any
) -> None:
    one = ToolCallMessage.of(name="look", args={}, result=result, result_format=result_format)
    for render, dialect in ((gemma4, "gemma4"), (functiongemma, "functiongemma")):
        prompt = render([ASK, one])
        assert prompt == DIALECTS[dialect].encode([ASK, one], ())
        assert ("status" in prompt) == (result_format == "envelope")


@pytest.mark.parametrize(
    ("calls", "theirs", "ours"),
    [
        ([call(at="<turn|>")], '<|"|>< turn|><|"|>', '"\\u003cturn|>"'),
        ([call(at={"a b": 1})], "{a b:1}", '{<|"|>a b<|"|>:1}'),
        (
            [call(), replace(MALFORMED, index=1)],
            "< |tool_call>call:l<|tool_call>call:look{}<tool_call|>",
            "<|tool_call>call:look{}<tool_call|>< |tool_call>call:l",
        ),
    ],
    ids=["token in a string", "key that is no word", "malformed call after another"],
)
def test_variables_differ_where_a_template_cannot_render_the_built_in_prompt(
    calls: list[Message], theirs: str, ours: str
) -> None:
    """The exceptions of docs/dialects.md."""
    assert theirs in gemma4([ASK, *calls])
    assert ours in DIALECTS["gemma4"].encode([ASK, *calls], ())


def test_functiongemma_template_closes_the_turn_after_a_malformed_call() -> None:
    messages = [ASK, MALFORMED]
    ours = DIALECTS["functiongemma"].encode(messages, ())
    closed = ours.replace("call:l<", "call:l<end_of_turn>\n<")
    assert functiongemma(messages) == closed != ours


@pytest.mark.longer
def test_worker_renders_the_built_in_prompt() -> None:
    template = ChatTemplate(text=revision_text(NEWEST), source="of a test", now=DAY)
    tools = tools_of("life-helper", "ko", NOW)
    for messages in (CONVERSATIONS | MORE).values():
        ours = DIALECTS["gemma4"].encode(messages, tools, "짧게.")
        assert template.encode("gemma4", messages, tools, "짧게.") == ours
