"""The `json` dialect read back: every value survives, every chunking agrees, nothing is guessed."""

from collections.abc import Sequence
from typing import Any

import pytest

from lhkit.conversation.responses import TextDelta, ToolCallParsed
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.parser import ParseResult
from tests.rows import check_rows

DIALECT = DIALECTS["json"]
TOOLS: list[dict[str, Any]] = [
    {"name": name, "description": "", "parameters": {}} for name in ("f", "g")
]
F = '{"name": "f", "parameters": {"a": 1}}'
G = '{"name": "g", "parameters": {}}'


def streamed(chunks: Sequence[str]) -> tuple[list[TextDelta | ToolCallParsed], ParseResult]:
    parser = DIALECT.incremental(TOOLS)
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    return events, parser.close()


def names(result: ParseResult) -> list[str]:
    return [call.name for call in result.calls]


@pytest.mark.parametrize("raw", [f"네, {F}\n끝", f"```json\n[{F}, {G}]\n```", "그냥 {말} [1]"])
def test_incremental_emits_events_as_soon_as_certain(raw: str) -> None:
    events, result = streamed(list(raw))
    assert tuple(e.call for e in events if isinstance(e, ToolCallParsed)) == result.calls
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == result.text


@check_rows(
    "call",
    [
        F,
        '{"name": "f", "parameters": {}}',
        DIALECT.render_call("f", {"a": {"name": "g", "parameters": {}}, "b": ['}{"', "it's"]}),
        '{"name": "f", "parameters": "{\\"a\\": 1}"}',
        """{'name': 'f', 'parameters': {'a': "it's }", 'b': '{"name": "g", "parameters": {}}'}}""",
        '{"function": {"name": "f", "arguments": {"a": {"name": "g", "parameters": {}}}}}',
    ],
)
@check_rows("wrapping", ["", "네, ", "```json\n", "[", "<tool_code>"])
def test_parse_makes_no_call_of_a_prefix(call: str, wrapping: str) -> None:
    for end in range(len(call)):
        result = DIALECT.parse(wrapping + call[:end], TOOLS)
        assert result.calls == ()
        assert not result.fragment or result.fragment == call[:end]
        assert result.truncated == bool(result.fragment)
    assert names(DIALECT.parse(wrapping + call, TOOLS)) == ["f"]


@check_rows(
    ("raw", "text", "repairs"),
    [
        (F, "", [()]),
        (f"\n {F}\n", "", [()]),
        (f"알겠어요. {F}", "알겠어요.", [()]),
        (f"{F}\n끝났어요.", "끝났어요.", [()]),
        (f"앞 {F} 뒤", "앞\n뒤", [()]),
        (f"앞 {F} 사이 {G} 뒤", "앞\n사이\n뒤", [(), ()]),
        (f"{F}{G}", "", [(), ()]),
        (f"{F}\n{G}", "", [(), ()]),
        (f"{F}, {G}", "", [(), ("separator",)]),
        (f"{F}; {G}", "", [(), ("separator",)]),
        (f"[{F}]", "", [("array",)]),
        (f"[{F}, {G}]", "", [("array",), ("array",)]),
        (f"[{F}]\n{G}", "", [("array",), ()]),
        (f"```json\n{F}\n```", "", [("fence",)]),
        (f"```tool_code\n{F}\n```", "", [("fence",)]),
        (f"```\n{F}\n```", "", [("fence",)]),
        (f"```{F}```", "", [("fence",)]),
        (f"```json\n{F}\n{G}\n```", "", [("fence",), ("fence",)]),
        (f"```json\n{F}\n```\n```json\n{G}\n```", "", [("fence",), ("fence",)]),
        (f"```json\n{F}\n```\n그리고\n```json\n{G}\n```", "그리고", [("fence",), ("fence",)]),
        (f"```json\n{F}", "", [("fence",)]),
        (f"<tool_code>\n{F}\n</tool_code>", "", [("tag",)]),
        (f"<tool_call>{F}</tool_call>", "", [("tag",)]),
        (f"<tool_code>\n```json\n[{F}]\n```\n</tool_code>", "", [("tag", "fence", "array")]),
        (f"호출: {F}", "호출:", [()]),
        # After a call, what closes nothing is text.
        (f"{F}\n[링크](https://a.b)", "[링크](https://a.b)", [()]),
        (f"{F}, 그리고 물도 드세요", ", 그리고 물도 드세요", [()]),
        (f"{F}\n```python\nx = 1\n```", "```python\nx = 1\n```", [()]),
        (f"```json\n{F}\n```\n```python\nx\n```", "```python\nx\n```", [("fence",)]),
    ],
)
def test_parse_drops_marks_around_calls(
    raw: str, text: str, repairs: list[tuple[str, ...]]
) -> None:
    result = DIALECT.parse(raw, TOOLS)
    assert (result.text, result.fragment) == (text, "")
    assert [call.repairs for call in result.calls] == repairs
    assert [call.raw for call in result.calls] == [F, G][: len(repairs)]


@check_rows(
    ("raw", "args", "repairs"),
    [
        ('{"name": "f", "parameters": {}}', {}, ()),
        ('{"parameters": {"a": 1}, "name": "f"}', {"a": 1}, ()),
        ('{\n  "name" : "f",\n  "parameters" : {"a" : 1}\n}', {"a": 1}, ()),
        ('{"name": "f", "parameters": null}', {}, ("empty_arguments",)),
        ('{"name": "f", "parameters": [1]}', [1], ()),
        ('{"name": "f", "parameters": "words"}', "words", ()),
        ('{"tool": "f", "parameters": {}}', {}, ("name_key",)),
        ('{"tool_name": "f", "parameters": {}}', {}, ("name_key",)),
        ('{"function": "f", "parameters": {}}', {}, ("name_key",)),
        ('{"name": "functions.f", "parameters": {}}', {}, ("name_prefix",)),
        ('{"name": " f ", "parameters": {}}', {}, ()),
        (
            '{"recipient_name": "functions.f", "parameters": {"a": 1}}',
            {"a": 1},
            ("name_key", "name_prefix"),
        ),
        (
            '{"tool_uses": [{"recipient_name": "functions.f", "parameters": {"a": 1}}]}',
            {"a": 1},
            ("in_object", "name_key", "name_prefix"),
        ),
        ('{"name": "f", "arguments": {"a": 1}}', {"a": 1}, ("arguments_key",)),
        ('{"name": "f", "args": {"a": 1}}', {"a": 1}, ("arguments_key",)),
        ('{"name": "f"}', {}, ("no_parameters",)),
        ('{"name": "f", "a": 1}', {"a": 1}, ("flat_parameters",)),
        ('{"name": "f", "id": 3, "parameters": {"a": 1}}', {"a": 1}, ("extra_keys",)),
        ('{"name": "f", "parameters": "{\\"a\\": 1}"}', {"a": 1}, ("string_parameters",)),
        ('{"function": {"name": "f", "arguments": {}}}', {}, ("nested_function", "arguments_key")),
        ('{"name": "f", "parameters": {"a": 0, "a": 1}}', {"a": 1}, ("duplicate_key",)),
        ('{"name": "f", "parameters": {"a": "x\ny"}}', {"a": "x\ny"}, ("control_character",)),
        ('{"name": "f", "parameters": {"a": 1,},}', {"a": 1}, ("trailing_comma",)),
        (r'{"name": "f", "parameters": {"a": "it\'s"}}', {"a": "it's"}, ("bad_escape",)),
        (r'{"name": "f", "parameters": {"a": "\빠"}}', {"a": "\\빠"}, ("bad_escape",)),
        (
            "{'name': 'f', 'parameters': {'a': 'x', 'b': True, 'c': None, 'd': [1.5]}}",
            {"a": "x", "b": True, "c": None, "d": [1.5]},
            ("python_literal",),
        ),
        (
            """{'name': 'f', 'parameters': {'a': "it's", 'b': 'say "hi"', 'c': 'it\\'s }'}}""",
            {"a": "it's", "b": 'say "hi"', "c": "it's }"},
            ("python_literal", "bad_escape"),
        ),
        (
            """{'name': 'f', "parameters": {'a': true, "b": False}}""",
            {"a": True, "b": False},
            ("python_literal",),
        ),
        (
            r"{'name': 'f', 'parameters': {'a': '010', 'b': '한\n\uae00'}}",
            {"a": "010", "b": "한\n글"},
            ("python_literal",),
        ),
    ],
)
def test_parse_lists_repairs(raw: str, args: Any, repairs: tuple[str, ...]) -> None:
    [call] = DIALECT.parse(raw, TOOLS).calls
    assert (call.name, call.args, call.repairs, call.raw) == ("f", args, repairs, raw)


@pytest.mark.longer
@check_rows(
    "raw",
    [
        '{"name": "f", "parameters": {a: 1}}',
        '{"name": "f", "parameters": {"a": NaN}}',
        '{"name": "f", "parameters": {"a": 1e999}}',
        '{"name": "f", "parameters": {"a": ' + "9" * 5000 + "}}",
        '{"name": "f", "parameters": {"a": ' + "[" * 200 + "]" * 200 + "}}",
        '{"name": "f", "parameters": {"a": ' + "[" * 100_000 + "]" * 100_000 + "}}",
        '{"name": "f", a: 1}',
    ],
    ids=["bare key", "NaN", "infinite", "huge", "deep", "very deep", "no parameters"],
)
def test_parse_keeps_the_raw_text_of_a_malformed_call(raw: str) -> None:
    [call] = DIALECT.parse(raw, TOOLS).calls
    assert (call.name, call.args, call.repairs) == ("f", raw, ("malformed",))


@check_rows(
    "raw",
    [
        '{"a": 1}',
        '예: {"name": "철수", "age": 3} 처럼요',
        '{"name": "철수"}',
        '{"name": "철수", age: 3}',
        '{"name": 3, "parameters": {}}',
        '{"name": " ", "parameters": {}}',
        '{"parameters": {"name": "f"}}',
        '{"parameters": {"a": 1}}',
        '```json\n{"a": {"b": [1]}}\n```',
        '```json\n{"name": "철수", "age": 3}\n```',
        "집합 {1, 2}와 {a",
        "{",
        "{ } {{ }} {'",
        "} ] ```",
        "`{x}` <b>굵게</b> <tool",
        "[1, 2] [링크](a)",
        "문장 안의 [대괄호 그리고\n\n```python\nprint({})\n```",
        "",
        '{"name":"list_habits","description":"all","parameters":{"type":"object","properties":{}}}',
    ],
)
def test_parse_keeps_other_text(raw: str) -> None:
    assert DIALECT.parse(raw, TOOLS) == ParseResult(text=raw)


def test_parse_continues_after_an_open_brace_in_text() -> None:
    result = DIALECT.parse(f"괄호 {{ 하나, 인용 {{'여기 {F} 끝", TOOLS)
    assert (result.text, names(result)) == ("괄호 { 하나, 인용 {'여기\n끝", ["f"])
