"""Calls of the `json` dialect in other shapes than its own, and answers that are JSON."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.conversation.responses import TextDelta
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.parser import ParseResult
from tests.rows import check_rows

DIALECT = DIALECTS["json"]
TOOLS: list[dict[str, Any]] = [
    {"name": name, "description": "", "parameters": {}} for name in ("note", "list_all")
]
ARGS = {"제목": "빵 }] 사기", "n": [1, {"name": "note"}]}
JSON_ARGS = json.dumps(ARGS, ensure_ascii=False)


def parse(raw: str) -> ParseResult:
    """Parse in one piece and cut in two at every place, which must be equal."""
    whole = DIALECT.parse(raw, TOOLS)
    for cut in range(len(raw)):
        parser = DIALECT.incremental(TOOLS)
        events = [*parser.feed(raw[:cut]), *parser.feed(raw[cut:])]
        shown = "".join(event.text for event in events if isinstance(event, TextDelta))
        result = parser.close()
        assert result == whole
        assert result.text.startswith(shown)
    return whole


ONE = {
    "type first": {"type": "function", "name": "note", "parameters": ARGS},
    "id first": {"id": "call_1", "name": "note", "arguments": ARGS},
    "id and type": {"id": 7, "type": "tool_use", "name": "note", "input": ARGS},
    "a thought": {"thought": 'Say "hi" {first}', "name": "note", "args": ARGS},
    "a nested thought": {"plan": {"steps": [1]}, "tool": "note", "args": ARGS},
    "any key": {"단계": 1, "tool_name": "note", "tool_input": ARGS},
    "function and type": {"type": "function", "function": {"name": "note", "arguments": ARGS}},
    "as OpenAI sends it": {
        "id": "call_1",
        "type": "function",
        "function": {"name": "note", "arguments": JSON_ARGS},
    },
    "function_name": {"function_name": "note", "function_args": ARGS},
    "action": {"action": "note", "action_input": ARGS},
    "action as text": {"thought": "x", "action": "note", "action_input": JSON_ARGS},
    "params": {"name": "note", "params": ARGS},
    "two keys of arguments": {"name": "note", "parameters": None, "arguments": ARGS},
    "two names": {"name": "Assistant", "tool": "note", "arguments": ARGS},
    "tool_calls": {"tool_calls": [{"name": "note", "arguments": ARGS}]},
    "tool_call": {"tool_call": {"name": "note", "arguments": ARGS}},
    "a message": {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "note", "arguments": JSON_ARGS}}
        ],
    },
    "function_call": {"function_call": {"name": "note", "arguments": JSON_ARGS}},
    "any wrapper": {"response": {"name": "note", "parameters": ARGS}},
    "a wrapper with a thought": {"thought": "x", "action": {"name": "note", "parameters": ARGS}},
    "two wrappers": {"choices": [{"message": {"tool_calls": [{"name": "note", "args": ARGS}]}}]},
    "encoded twice": {"name": "note", "arguments": json.dumps(JSON_ARGS)},
}
AROUND = {
    "nothing": ("{}", ""),
    "text": ("알겠어요.\n{}\n끝", "알겠어요.\n끝"),
    "a fence": ("```json\n{}\n```", ""),
    "a tag": ("<tool_call>\n{}\n</tool_call>", ""),
    "a list": ("[{}]", ""),
    "a tag and a list": ("<tool_calls>[{}]</tool_calls>", ""),
    "a tag of functions": ("<function_call>{}</function_call>", ""),
    "a fence and a list": ("```json\n[\n{}\n]\n```", ""),
    "other brackets": ("(see [1] and {{x}}) {}", "(see [1] and {x})"),
}


@check_rows(("around", "text"), AROUND.values(), ids=AROUND)
@check_rows("value", ONE.values(), ids=ONE)
@check_rows("indent", [None, 2])
def test_a_call_in_another_shape_is_a_call(
    value: dict[str, Any], indent: int | None, around: str, text: str
) -> None:
    raw = json.dumps(value, ensure_ascii=False, indent=indent)
    result = DIALECT.parse(around.format(raw), TOOLS)
    [call] = result.calls
    assert (call.name, call.args, call.raw) == ("note", ARGS, raw)
    assert (result.text, result.fragment) == (text, "")
    assert call.repairs


@pytest.mark.longer
@check_rows("value", ONE.values(), ids=ONE)
def test_a_call_in_another_shape_may_be_cut_anywhere(value: dict[str, Any]) -> None:
    assert len(parse(f"네 ```json\n{json.dumps(value, ensure_ascii=False)}\n``` 끝").calls) == 1


NOTE = {"name": "note", "arguments": {"a": 1}}
LIST = {"type": "function", "name": "list_all"}
SEVERAL = {
    "tool_calls": ({"tool_calls": [NOTE, LIST]}, ["note", "list_all"]),
    "with ids": ({"tool_calls": [{"id": "1", **NOTE}, {"id": "2", **NOTE}]}, ["note", "note"]),
    "list": ([{"type": "function", **NOTE}, LIST], ["note", "list_all"]),
    "list of functions": ([{"type": "function", "function": NOTE}] * 2, ["note", "note"]),
    "steps": ({"step 1": NOTE, "step 2": {"tool": "list_all", "args": {}}}, ["note", "list_all"]),
    "unknown": ({"tool_calls": [{"name": "erase", "arguments": {}}]}, ["erase"]),
    "unknown, typed": (
        {"type": "function", "function": {"name": "erase", "arguments": {}}},
        ["erase"],
    ),
    "no arguments": ({"type": "function", "name": "list_all"}, ["list_all"]),
    "no arguments, thought": ({"thought": "all", "tool": "list_all"}, ["list_all"]),
    "null": ({"type": "function", "name": "list_all", "parameters": None}, ["list_all"]),
}


@pytest.mark.longer
@check_rows(("value", "names"), SEVERAL.values(), ids=SEVERAL)
def test_calls_in_wrappers_keep_their_order(value: Any, names: list[str]) -> None:
    result = parse(json.dumps(value))
    assert ([call.name for call in result.calls], result.text) == (names, "")


ANSWERS: dict[str, Any] = {
    "data": {"title": "Plan", "items": [1, 2]},
    "a person": {"id": 3, "name": "note", "age": 3},
    "a row": {"id": 1, "name": "list_all"},
    "rows": {"items": [{"id": 1, "name": "note"}, {"id": 2, "name": "list_all"}]},
    "names": {"items": [{"name": "note"}]},
    "an unknown tool": {"id": 1, "name": "Kim", "arguments": {"a": 1}},
    "an unknown tool inside": {"data": {"name": "erase", "arguments": {}}},
    "an action": {"action": "note"},
    "an action with other data": {"action": "note", "input": "words"},
    "a type": {"type": "function", "value": 3},
    "another type": {"type": "habit", "name": "list_all"},
    "a function": {"type": "linear", "function": "x + 1"},
    "a declaration": {
        "type": "function",
        "function": {
            "name": "note",
            "description": "d",
            "parameters": {"type": "object", "properties": {}},
        },
    },
    "a declaration without description": {
        "type": "function",
        "name": "note",
        "parameters": {"type": "object", "properties": {"a": {"type": "string"}}},
    },
    "declarations": {
        "tools": [{"name": "note", "parameters": {"type": "object", "properties": {}}}]
    },
    "no calls": {"role": "assistant", "content": "hi", "tool_calls": []},
    "text": {"answer": 'call {"name": "note", "arguments": {}}'},
}


@pytest.mark.longer
@check_rows("around", ["{}", "답: {}", "```json\n{}\n```"])
@check_rows("value", ANSWERS.values(), ids=ANSWERS)
def test_an_answer_in_json_stays_an_answer(value: dict[str, Any], around: str) -> None:
    raw = around.format(json.dumps(value, ensure_ascii=False))
    assert parse(raw) == ParseResult(text=raw)


CALL = '{"name": "note", "parameters": {"a": 1}}'


@check_rows(
    ("raw", "text", "names"),
    [
        (f'{{"a": 1 그리고 {CALL} 끝', '{"a": 1 그리고\n끝', ["note"]),
        (f'{{"data": {CALL}', '{"data":', ["note"]),
        (f'{{"it\'s": {CALL} 끝', '{"it\'s":\n끝', ["note"]),
        (f'{{"a": "x {CALL}', '{"a": "x', ["note"]),
        (f'{{"a": {{"b": {{"c": 1}} {CALL}', '{"a": {"b": {"c": 1}', ["note"]),
        ('{"a": {"b": 1}', '{"a": {"b": 1}', []),
        ('{"title": "x", "items": [', '{"title": "x", "items": [', []),
    ],
)
def test_an_object_without_end_hides_no_call(raw: str, text: str, names: list[str]) -> None:
    result = parse(raw)
    assert (result.text, [call.name for call in result.calls]) == (text, names)
    assert result.fragment == ""


@pytest.mark.parametrize("begin", ['"type": "function", ', '"thought": "{a}, \\"b\\"", "n": 1, '])
def test_a_cut_call_with_other_keys_first_is_a_fragment(begin: str) -> None:
    raw = f'{{{begin}"name": "note", "parameters": {{"a": '
    assert parse(raw) == ParseResult(text="", fragment=raw)


def test_a_damaged_call_with_other_keys_first_is_malformed() -> None:
    raw = '{"type": "function", "name": "note", "parameters": {a: 1}}'
    [call] = parse(raw).calls
    assert (call.name, call.args, call.repairs) == ("note", raw, ("malformed",))


@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["a", "type", "id", "title", "x y"]), inner, max_size=3
            )
        ),
        max_leaves=10,
    )
)
def test_json_without_names_of_tools_is_an_answer(value: Any) -> None:
    raw = json.dumps(value, ensure_ascii=False)
    assert DIALECT.parse(raw, TOOLS) == ParseResult(text=raw.strip())
