"""Prompts of the native dialects are those of the checkpoints' templates, byte for byte.

For Gemma 4 the newest revision equals the built-in rendering; how the older ones differ is in
docs/dialects.md, in a table that is compared here. `mcp_schemas.json` has the structure of the
tools of 33 MCP servers, with all names and texts replaced.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.conversation.messages import Message, ModelMessage, ToolCallMessage, UserMessage
from lhkit.conversation.tool_results import ToolCancelled, ToolErr, ToolOk, ToolResult
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.base import tool_spec
from lhkit.toolset import load_toolset, registry_of
from tests.hostile import json_values
from tests.models.dialects.chat_templates import NEWEST, REVISIONS, rendered, templates_folder
from tests.models.dialects.functiongemma_prompts import EXTENSION, PROMPTS
from tests.rows import check_rows

ROOT = Path(__file__).parents[3]
DIALECT = DIALECTS["gemma4"]

Tools = Sequence[Mapping[str, Any]]


RESULT = ToolOk({"n": 1, "Items": ["a", 1.5], "b": {"z": True, "y": []}})


def call(
    name: str = "look",
    *,
    result: ToolResult = RESULT,
    index: int = 0,
    text: str = "",
    **args: Any,
) -> Message:
    return ToolCallMessage.of(name=name, args=args, result=result, index=index, text=text)


ASK = UserMessage(text="어디 있어? ", context="[now: 09:00]")
CONVERSATIONS: dict[str, list[Message]] = {
    "one question": [ASK],
    "two turns": [ASK, ModelMessage(text=" 서랍에요.\n"), UserMessage(text='and "now" {x}: [y]?')],
    "two questions": [ASK, UserMessage(text=" 그리고? ")],
    "a call": [ASK, call(Query="우유", at=[1, {"b": 2.5, "A": None}])],
    "a call and a reply": [ASK, call(), ModelMessage(text="Here."), ASK],
    "two calls in a message": [ASK, call(b=1, a=True), call("find", index=1)],
    "calls in two messages": [ASK, call(a=1), call("find", q="x"), ModelMessage(text="네"), ASK],
    "a text before a call": [ASK, call(text="볼게요. ", a=1), ModelMessage(text="없어요"), ASK],
    "an error": [ASK, call(result=ToolErr("not_found", "없어요"), a=1), call(a=2)],
    "a cancelled call": [ASK, call(result=ToolCancelled(), a=1), ModelMessage(text="네."), ASK],
    "a result and a question": [ASK, call(a=1), UserMessage(text="왜?")],
}  # fmt: skip


def tools_of(reference: str, locale: str, world: Mapping[str, Any]) -> Tools:
    return [
        tool_spec(tool) for tool in registry_of(load_toolset(reference), world, locale).definitions
    ]


def mcp_tools() -> dict[str, Tools]:
    lists = json.loads(Path(__file__).with_name("mcp_schemas.json").read_text(encoding="utf-8"))
    return {
        server: [{"name": f"tool_{number}", **tool} for number, tool in enumerate(tools)]
        for server, tools in lists.items()
    }


MCP_TOOLS = mcp_tools()
NOW = {"now": "2026-06-15T09:00:00+09:00"}


@pytest.mark.longer
@check_rows("conversation", CONVERSATIONS)
@check_rows("locale", ["ko", "en"])
@check_rows("reference", ["life-helper", f"{ROOT}/evals/pantry/pantry.py:toolset"])
def test_gemma4_prompt_of_a_toolset_is_the_templates(
    reference: str, locale: str, conversation: str
) -> None:
    tools = tools_of(reference, locale, NOW)
    messages = CONVERSATIONS[conversation]
    assert DIALECT.encode(messages, tools, " 짧게 답해. ") == rendered(
        NEWEST, messages, tools, " 짧게 답해. "
    )


def test_mcp_schemas_are_of_twenty_servers() -> None:
    assert len(MCP_TOOLS) >= 20


@pytest.mark.longer
@check_rows("server", MCP_TOOLS)
def test_gemma4_prompt_of_mcp_tools_is_the_templates(server: str) -> None:
    tools = MCP_TOOLS[server]
    for messages in CONVERSATIONS.values():
        assert DIALECT.encode(messages, tools) == rendered(NEWEST, messages, tools)


WORDS = st.text(st.characters(exclude_characters="<\ud800", exclude_categories=["Cs"]), max_size=12)
KEYS = st.from_regex(r"[A-Za-z가-힣_][\w.\-@$/]{0,6}", fullmatch=True)
NAMES = KEYS | st.sampled_from(
    ["type", "description", "properties", "required", "nullable", "items"]
)
JSON = json_values(WORDS, KEYS, max_leaves=6)
OBJECTS = st.dictionaries(KEYS, JSON, max_size=4)
COMMON: dict[str, Any] = {
    "description": WORDS,
    "title": WORDS,
    "default": JSON,
    "nullable": st.booleans(),
}


def schema_of(kind: Any, **keywords: Any) -> Any:
    return st.fixed_dictionaries({"type": st.just(kind)}, optional={**COMMON, **keywords})


LEAVES = st.one_of(
    schema_of(
        "string", enum=st.lists(WORDS, max_size=3), pattern=WORDS, maxLength=st.integers(0, 9)
    ),
    schema_of("integer", minimum=st.integers(), enum=st.lists(st.integers(), max_size=2)),
    schema_of("number", maximum=st.floats(allow_nan=False, allow_infinity=False)),
    schema_of("boolean"),
    schema_of(["string", "null"], enum=st.lists(st.none() | WORDS, max_size=2)),
    st.fixed_dictionaries(
        {"anyOf": st.just([{"type": "string"}, {"type": "null"}])}, optional=COMMON
    ),
    st.fixed_dictionaries({"$ref": st.just("#/$defs/x")}),
    st.booleans(),
)


def _nested(inner: Any) -> Any:
    properties = st.dictionaries(NAMES, inner, max_size=3)
    required = st.lists(NAMES, max_size=2)
    return st.one_of(
        schema_of("object", properties=properties, required=required, additionalProperties=inner),
        schema_of("array", items=inner, minItems=st.integers(0, 3)),
    )


SCHEMAS = st.recursive(LEAVES, _nested, max_leaves=8)
PARAMETERS = st.fixed_dictionaries(
    {"type": st.just("object")},
    optional={
        "properties": st.dictionaries(NAMES, SCHEMAS, max_size=4),
        "required": st.lists(NAMES, max_size=3),
        "additionalProperties": st.booleans(),
    },
)
RESPONSES = st.fixed_dictionaries({"type": st.just("object")}, optional={"description": WORDS})
TOOLS = st.lists(
    st.fixed_dictionaries(
        {"name": st.from_regex(r"[a-z][\w-]{0,8}", fullmatch=True), "description": WORDS},
        optional={"parameters": PARAMETERS, "response": RESPONSES},
    ),
    max_size=3,
)


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    results = (
        st.builds(ToolOk, OBJECTS) | st.builds(ToolErr, WORDS, WORDS) | st.just(ToolCancelled())
    )
    messages: list[Message] = []
    for _ in range(draw(st.integers(1, 3))):
        messages.append(UserMessage(text=draw(WORDS), context=draw(st.just("") | WORDS)))
        for _ in range(draw(st.integers(0, 2))):
            for index in range(draw(st.integers(1, 2))):
                name, args = draw(st.from_regex(r"[a-z]\w{0,8}", fullmatch=True)), draw(OBJECTS)
                messages.append(
                    ToolCallMessage.of(name=name, args=args, result=draw(results), index=index)
                )
        messages.append(ModelMessage(text=f"x{draw(WORDS)}"))
    return messages[:-1]  # the model is asked after a user message or a result


@pytest.mark.longer
@given(messages=conversations(), tools=TOOLS, instructions=WORDS)
def test_gemma4_prompt_is_the_templates(
    messages: list[Message], tools: Tools, instructions: str
) -> None:
    ours = DIALECT.encode(messages, tools, instructions)
    assert ours == rendered(NEWEST, messages, tools, instructions)


def tool(**properties: Any) -> Tools:
    schema = {"type": "object", "properties": properties}
    return [{"name": "look", "description": "Looks.", "parameters": schema}]


DESCRIBED = {"type": "string", "description": "Where."}
OBJECT = {**DESCRIBED, "type": "object", "properties": {"x": DESCRIBED}, "required": ["x"]}
ARRAY = {"type": "array", "items": {"type": "string"}}
CASES: dict[str, tuple[Sequence[Message], Tools, str]] = {
    "system text": ([ASK], (), "Be brief."),
    "tools, no system text": ([ASK], tool(at=DESCRIBED), ""),
    "a tool without arguments": ([ASK], tool(), ""),
    "limits, pattern, default": ([ASK], tool(at={**DESCRIBED, "maxLength": 3, "default": "x"}), ""),
    "enum": ([ASK], tool(at={**DESCRIBED, "enum": ["a", "b"]}), ""),
    "nested object": ([ASK], tool(at=OBJECT), ""),
    "array": ([ASK], tool(at={**DESCRIBED, **ARRAY}), ""),
    "an array without a description": ([ASK], tool(at=ARRAY), ""),
    "a parameter called `type`": ([ASK], tool(type=DESCRIBED), ""),
    "call": ([ASK, call(b=1, a="x")], (), ""),
    "two calls": ([ASK, call(a=1), call("find", index=1)], (), ""),
    "calls in two messages": (CONVERSATIONS["calls in two messages"], (), ""),
    "result and reply": ([ASK, call(), ModelMessage(text="x"), ASK], (), ""),
    "error": ([ASK, call(result=ToolErr("code", "why"))], (), ""),
    "cancelled call": ([ASK, call(result=ToolCancelled())], (), ""),
    "null": ([ASK, call(a=None)], (), ""),
    "a text before a call": ([ASK, call(text="So.")], (), ""),
    "a user message after a result": ([ASK, call(), ASK], (), ""),
}  # fmt: skip
REASONS = {
    "an array without a description": "writes a comma before the first member",
    "a parameter called `type`": "leaves the parameter out",
    "calls in two messages": "opens another turn",
    "null": "writes `None`",
    "a text before a call": "closes the turn after the text",
    "a user message after a result": "leaves the turn open",
}
"""What an older revision does where it differs; the same for all that differ."""


def table() -> str:
    """Return the table of docs/dialects.md."""
    head = ["case", *(f"`{name}`" for name in REVISIONS), "`functiongemma`"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for case, (messages, tools, instructions) in CASES.items():
        ours = DIALECT.encode(messages, tools, instructions)
        cells = [
            "=" if rendered(name, messages, tools, instructions) == ours else REASONS.get(case, "?")
            for name in REVISIONS
        ]
        source = PROMPTS[case][1]
        cells.append(source if source == EXTENSION else f"= ({source})")
        lines.append(f"| {' | '.join([case, *cells])} |")
    return "\n".join(lines)


@check_rows("case", CASES)
def test_functiongemma_prompt_is_as_google_prints_it(case: str) -> None:
    prompt, _ = PROMPTS[case]
    assert DIALECTS["functiongemma"].encode(*CASES[case]) == prompt


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="make installs TRL on Linux")
def test_trl_is_installed_for_all_tests() -> None:
    assert templates_folder() is not None, "run `make finetune`: the chat templates are not checked"


@pytest.mark.longer
def test_table_of_revisions_is_that_of_the_docs() -> None:
    assert table() in (ROOT / "docs" / "dialects.md").read_text(encoding="utf-8")
