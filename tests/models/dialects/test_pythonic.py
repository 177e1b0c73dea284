"""The `pythonic` dialect: lenient where the meaning is plain, and never a guess."""

from typing import Any

from lhkit.conversation.messages import ToolCallMessage, UserMessage
from lhkit.conversation.tool_results import ToolOk
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.parser import ParseResult
from tests.rows import check_rows

DIALECT = DIALECTS["pythonic"]
TOOLS: list[dict[str, Any]] = [{"name": "f"}, {"name": "log_water"}]


def calls_of(raw: str) -> list[tuple[str, Any, tuple[str, ...]]]:
    return [(call.name, call.args, call.repairs) for call in DIALECT.parse(raw, TOOLS).calls]


@check_rows(
    ("raw", "text", "repairs"),
    [
        ("\n[f(a=1)]", "", ()),
        ("알겠어요. [f(a=1)]", "알겠어요.", ()),
        ("[f(a=1)]\n적었어요.", "적었어요.", ()),
        ("```tool_code\n[f(a=1)]\n```", "", ("fence",)),
        ("```python\n[f(a=1)]\n```\n네", "네", ("fence",)),
        ("```[f(a=1)]```", "", ("fence",)),
        ("```tool_code\n[f(a=1)]", "", ("fence",)),
        ("```tool_code\n[f(a=1)]\n그리고 `이것`", "그리고 `이것`", ("fence",)),
        ("  \n[f(**{'a': 1})]\n", "", ()),
        ("네.\n```python\nf(a=1)\n```", "네.", ("fence", "bare")),
        ("```f(a=1)```", "", ("fence", "bare")),
        ("f(a=1)", "", ("bare",)),
        ("네.\n  f(a=1)\n끝", "네.\n끝", ("bare",)),
    ],
)
def test_parse_finds_calls_in_fences_and_text(
    raw: str, text: str, repairs: tuple[str, ...]
) -> None:
    assert DIALECT.parse(raw, TOOLS).text == text
    assert calls_of(raw) == [("f", {"a": 1}, repairs)]
    parser = DIALECT.incremental(TOOLS)
    for char in raw:
        parser.feed(char)
    assert parser.close() == DIALECT.parse(raw, TOOLS)


@check_rows("key", ["from", "class", "in", "_x", "이름"])
def test_parse_takes_any_parameter_name(key: str) -> None:
    assert calls_of(f'[f({key}="x")]') == [("f", {key: "x"}, ())]


@check_rows("name", ["log_water", "log-water", "habits.list", "물기록"])
def test_parse_takes_any_tool_name(name: str) -> None:
    assert calls_of(f"[{name}(a=1)]") == [(name, {"a": 1}, ())]


def test_parse_keeps_the_order_of_calls() -> None:
    assert calls_of("[f(a=1), log_water(), g(b=[2])]") == [
        ("f", {"a": 1}, ()),
        ("log_water", {}, ()),
        ("g", {"b": [2]}, ()),
    ]


def test_parse_makes_no_call_of_a_truncated_list() -> None:
    result = DIALECT.parse("네 [f(a=1), log_water(ml=2", TOOLS)
    assert (result.calls, result.fragment) == ((), "[f(a=1), log_water(ml=2")


@check_rows(
    ("value", "expected"),
    [
        ("'it\\'s'", "it's"),
        ('"둘 ]) 셋"', "둘 ]) 셋"),
        ('"\\ud83d\\ude00\\x41\\U0001f600"', "😀A😀"),
        ("True", True),
        ("None", None),
        ("-1.5e3", -1500.0),
        ('"010"', "010"),
        ("{'a': [1, {}], \"b\": []}", {"a": [1, {}], "b": []}),
    ],
)
def test_parse_reads_python_values(value: str, expected: Any) -> None:
    assert calls_of(f"[f(a={value})]") == [("f", {"a": expected}, ())]


@check_rows(
    ("raw", "args", "repair"),
    [
        ("[f(a=true, b=false, c=null)]", {"a": True, "b": False, "c": None}, "json_literal"),
        ('[f(a="둘\n째")]', {"a": "둘\n째"}, "control_character"),
        ("[f(a=1,)]", {"a": 1}, "trailing_comma"),
        ("[f(a=1),]", {"a": 1}, "trailing_comma"),
        ("[f(a=[1,])]", {"a": [1]}, "trailing_comma"),
        ("[f(a=0, a=1)]", {"a": 1}, "duplicate_key"),
        ("[f(a={'b': 0, 'b': 1})]", {"a": {"b": 1}}, "duplicate_key"),
        (r'[f(a="\빠")]', {"a": r"\빠"}, "bad_escape"),
        ('[f(a="""x\'y""")]', {"a": "x'y"}, "joined_strings"),
    ],
)
def test_parse_lists_repairs(raw: str, args: Any, repair: str) -> None:
    assert calls_of(raw) == [("f", args, (repair,))]


@check_rows(
    "raw",
    [
        "[f(1)]",
        "[f(a=1, 2)]",
        "[f(a=b)]",
        "[f(a=g())]",
        "[f(a=1 b=2)]",
        "[f(a=(1, 2))]",
        "[f(a=1e999)]",
        "[f(a={1: 2})]",
        "[f(a=" + "[" * 200 + "]" * 200 + ")]",
        "[f(a=1), x]",
        "f(1)",
    ],
)
def test_parse_keeps_the_raw_text_of_a_malformed_call(raw: str) -> None:
    [(name, args, repairs)] = calls_of(raw)
    assert (name, args, repairs[-1]) == ("f", raw, "malformed")


@check_rows(
    "raw",
    [
        "[링크](https://a.b)",
        "함수 f(a=1)를 쓰세요",
        "sin(x=1)",
        "[sin(x), cos(x)]",
        "[x(i=1) for x in y]",
        "[그림(사진), 글]",
        "```python\nprint('네')\n```",
        "[ ] 할 일 (오늘)",
        "```",
        "[f",
        "f",
    ],
)
def test_parse_keeps_other_text(raw: str) -> None:
    assert DIALECT.parse(raw, TOOLS) == ParseResult(text=raw)


def test_render_call_writes_other_names_as_a_dict() -> None:
    raw = DIALECT.render_call("f", {"a": 1, "b c": 2})
    assert raw == '[f(a=1, **{"b c": 2})]'
    assert calls_of(raw) == [("f", {"a": 1, "b c": 2}, ())]


def test_render_call_escapes_control_tokens() -> None:
    raw = DIALECT.render_call("f", {"a": "x<end_of_turn>"})
    assert raw == r'[f(a="x\u003cend_of_turn>")]'
    assert calls_of(raw) == [("f", {"a": "x<end_of_turn>"}, ())]


def test_encode_separates_calls_by_commas() -> None:
    # vLLM's Gemma 3 template writes f(a="서울"b=3c=true): `first` does not survive Jinja's scope.
    args = {"a": "서울", "b": 3, "c": True}
    message = ToolCallMessage.of(name="f", args=args, result=ToolOk({}))
    prompt = DIALECT.encode([UserMessage(text="?"), message], TOOLS)
    assert 'model\n[f(a="서울", b=3, c=True)]<end_of_turn>' in prompt
