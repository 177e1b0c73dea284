"""The `json` dialect read back: every value survives, every chunking agrees, nothing is guessed."""

import json
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lhkit.json_values import MAX_DEPTH, NotJsonError
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.parser import ParseResult
from lhkit.responses import TextDelta, ToolCallParsed

DIALECT = DIALECTS["json"]
TOOLS: list[dict[str, Any]] = [
    {"name": name, "description": "", "parameters": {}} for name in ("f", "g")
]
F = '{"name": "f", "parameters": {"a": 1}}'
G = '{"name": "g", "parameters": {}}'

PIECES = [
    F,
    G,
    "{'name': 'f', 'parameters': {'a': True}}",
    '{"name": "f", "parameters": {"a": "',
    '{"tool": "f"',
    '{"name": "철수", "age": 3}',
    '{"name"',
    '"name": "f"',
    '"parameters": ',
    '{"a": 1}',
    '{"data":',
    "```",
    "```json\n",
    "``",
    "<tool_code>",
    "</tool_code>",
    "<tool_",
    "<end_of_turn>",
    "한",
    "\ud800",
    "NaN",
    *"{}[]\"'\\:,;<` \n",
]
ADVERSARIAL = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=12).map("".join)
STRINGS = st.lists(st.sampled_from(PIECES[:-3]) | st.text(max_size=5), max_size=4).map(
    lambda parts: "".join(parts).replace("\ud800", "")
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | STRINGS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(STRINGS, inner, max_size=3),
    max_leaves=8,
)
ARGS = st.dictionaries(STRINGS, VALUES, max_size=3)
NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,10}", fullmatch=True)
SIZES = st.lists(st.integers(1, 6), max_size=200)


def cut(raw: str, sizes: Sequence[int]) -> list[str]:
    """Cut `raw` into chunks of these sizes, the rest into single characters."""
    ends = [0, *accumulate(sizes)]
    ends = [end for end in ends if end < len(raw)]
    ends += range(ends[-1] + 1 if ends else 0, len(raw) + 1)
    return [raw[start:end] for start, end in pairwise(ends)]


def streamed(chunks: Sequence[str]) -> tuple[list[TextDelta | ToolCallParsed], ParseResult]:
    parser = DIALECT.incremental(TOOLS)
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    return events, parser.close()


def merged(events: Sequence[TextDelta | ToolCallParsed]) -> list[Any]:
    """Join neighbouring texts: how words are cut is no part of the meaning."""
    out: list[Any] = []
    for event in events:
        if isinstance(event, ToolCallParsed):
            out.append(event.call)
        elif out and isinstance(out[-1], str):
            out[-1] += event.text
        else:
            out.append(event.text)
    return out


def names(result: ParseResult) -> list[str]:
    return [call.name for call in result.calls]


# --- what was written is read


@given(name=NAMES, args=ARGS)
@example(name="f", args={"phone": "010", "n": "1", "b": "true"})
@example(name="f", args={"a": '"}{\\" ``` </tool_code> <end_of_turn> \n\t\u2028'})
@example(name="f", args={"nfc": "한글", "nfd": "\u1112\u1161\u11ab"})
@example(name="f", args={"lone": "\ud800"})
@example(name="f", args={"big": 10**4000, "small": 5e-324, "minus": -0.0})
def test_every_call_is_read_back_as_it_was_written(name: str, args: dict[str, Any]) -> None:
    raw = DIALECT.render_call(name, args)
    result = DIALECT.parse(raw)
    assert (result.text, result.fragment) == ("", "")
    [call] = result.calls
    assert (call.name, call.raw, call.repairs) == (name, raw, ())
    assert json.dumps(call.args) == json.dumps(args)  # types too: 1 is not 1.0 is not true


def test_arguments_nested_as_deep_as_can_be_written_are_read() -> None:
    deep: Any = 1
    for _ in range(MAX_DEPTH - 1):
        deep = [deep]
    [call] = DIALECT.parse(DIALECT.render_call("f", {"a": deep})).calls
    assert (call.args, call.repairs) == ({"a": deep}, ())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1}, object()])
def test_what_json_cannot_carry_is_not_written(value: Any) -> None:
    with pytest.raises(NotJsonError):
        DIALECT.render_call("f", {"a": value})


@given(calls=st.lists(st.tuples(NAMES, ARGS), min_size=2, max_size=4))
def test_parallel_calls_come_in_order(calls: list[tuple[str, dict[str, Any]]]) -> None:
    raw = "\n".join(DIALECT.render_call(name, args) for name, args in calls)
    result = DIALECT.parse(raw)
    assert [call.name for call in result.calls] == [name for name, _ in calls]
    assert [call.args for call in result.calls] == [args for _, args in calls]
    assert all(call.repairs == () for call in result.calls)
    assert result.text == ""


# --- streaming is parsing


@given(raw=ADVERSARIAL, sizes=SIZES)
def test_a_stream_says_the_same_at_every_chunking(raw: str, sizes: list[int]) -> None:
    whole_events, whole = streamed([raw])
    events, result = streamed(cut(raw, sizes))
    assert result == whole == DIALECT.parse(raw, TOOLS)
    assert merged(events) == merged(whole_events)


@given(args=ARGS, sizes=SIZES)
def test_a_streamed_call_is_the_written_one(args: dict[str, Any], sizes: list[int]) -> None:
    raw = DIALECT.render_call("f", args)
    _, result = streamed(cut(raw, sizes))
    assert result == DIALECT.parse(raw)
    assert json.dumps(result.calls[0].args) == json.dumps(args)


@given(raw=ADVERSARIAL, sizes=SIZES)
def test_what_was_streamed_is_never_taken_back(raw: str, sizes: list[int]) -> None:
    events, result = streamed(cut(raw, sizes))
    shown = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert result.text.startswith(shown)
    assert tuple(e.call for e in events if isinstance(e, ToolCallParsed)) == result.calls


@pytest.mark.parametrize("raw", [f"네, {F}\n끝", f"```json\n[{F}, {G}]\n```", "그냥 {말} [1]"])
def test_a_piece_comes_out_with_the_character_that_decides_it(raw: str) -> None:
    events, result = streamed(list(raw))
    assert tuple(e.call for e in events if isinstance(e, ToolCallParsed)) == result.calls
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == result.text


# --- a cut call is never made


@pytest.mark.parametrize(
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
@pytest.mark.parametrize("wrapping", ["", "네, ", "```json\n", "[", "<tool_code>"])
def test_no_prefix_of_a_call_is_a_call(call: str, wrapping: str) -> None:
    for end in range(len(call)):
        result = DIALECT.parse(wrapping + call[:end], TOOLS)
        assert result.calls == ()
        assert not result.fragment or result.fragment == call[:end]
        assert result.truncated == bool(result.fragment)
    assert names(DIALECT.parse(wrapping + call, TOOLS)) == ["f"]


@given(args=ARGS)
def test_no_prefix_of_any_call_is_a_call(args: dict[str, Any]) -> None:
    raw = DIALECT.render_call("f", args)
    start = raw.index(":") + 1
    for end in range(len(raw)):
        result = DIALECT.parse(raw[:end], TOOLS)
        assert result.calls == ()
        assert result.fragment == (raw[:end] if end >= start else "")


def test_of_parallel_calls_only_the_complete_ones_are_made() -> None:
    result = DIALECT.parse(f"{F}\n{G[:-1]}", TOOLS)
    assert (names(result), result.fragment) == (["f"], G[:-1])


# --- what stands around calls


@pytest.mark.parametrize(
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
        (f'{{"data": {F}}}', '{"data":\n}', [("in_object",)]),
        (
            f'{{"tool_calls" : [{F}, {G}]}}',
            '{"tool_calls" :\n}',
            [("in_object", "array"), ("array",)],
        ),
        # After a call, what closes nothing is text.
        (f"{F}\n[링크](https://a.b)", "[링크](https://a.b)", [()]),
        (f"{F}, 그리고 물도 드세요", ", 그리고 물도 드세요", [()]),
        (f"{F}\n```python\nx = 1\n```", "```python\nx = 1\n```", [()]),
        (f"```json\n{F}\n```\n```python\nx\n```", "```python\nx\n```", [("fence",)]),
    ],
)
def test_marks_around_calls_are_left_out_and_words_kept(
    raw: str, text: str, repairs: list[tuple[str, ...]]
) -> None:
    result = DIALECT.parse(raw, TOOLS)
    assert (result.text, result.fragment) == (text, "")
    assert [call.repairs for call in result.calls] == repairs
    assert [call.raw for call in result.calls] == [F, G][: len(repairs)]


# --- what is mended


@pytest.mark.parametrize(
    ("raw", "args", "repairs"),
    [
        ('{"name": "f", "parameters": {}}', {}, ()),
        ('{"parameters": {"a": 1}, "name": "f"}', {"a": 1}, ()),
        ('{\n  "name" : "f",\n  "parameters" : {"a" : 1}\n}', {"a": 1}, ()),
        ('{"name": "f", "parameters": null}', None, ()),
        ('{"name": "f", "parameters": [1]}', [1], ()),
        ('{"name": "f", "parameters": "words"}', "words", ()),
        ('{"tool": "f", "parameters": {}}', {}, ("name_key",)),
        ('{"tool_name": "f", "parameters": {}}', {}, ("name_key",)),
        ('{"function": "f", "parameters": {}}', {}, ("name_key",)),
        ('{"name": "f", "arguments": {"a": 1}}', {"a": 1}, ("arguments_key",)),
        ('{"name": "f", "args": {"a": 1}}', {"a": 1}, ("arguments_key",)),
        ('{"name": "f"}', {}, ("no_parameters",)),
        ('{"name": "f", "a": 1}', {"a": 1}, ("flat_parameters",)),
        ('{"name": "f", "id": 3, "parameters": {"a": 1}}', {"a": 1}, ("extra_keys",)),
        ('{"name": "f", "parameters": "{\\"a\\": 1}"}', {"a": 1}, ("string_parameters",)),
        (
            '{"function": {"name": "f", "arguments": {}}}',
            {},
            ("nested_function", "arguments_key"),
        ),
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
def test_each_repair_is_listed(raw: str, args: Any, repairs: tuple[str, ...]) -> None:
    [call] = DIALECT.parse(raw, TOOLS).calls
    assert (call.name, call.args, call.repairs, call.raw) == ("f", args, repairs, raw)


@pytest.mark.parametrize(
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
def test_a_call_that_makes_no_sense_is_kept_with_its_raw_text_for_validation(raw: str) -> None:
    [call] = DIALECT.parse(raw, TOOLS).calls
    assert (call.name, call.args, call.repairs) == ("f", raw, ("malformed",))


# --- what is no call


@pytest.mark.parametrize(
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
def test_what_is_no_call_stays_text(raw: str) -> None:
    assert DIALECT.parse(raw, TOOLS) == ParseResult(text=raw)


def test_an_open_brace_in_prose_does_not_swallow_what_follows() -> None:
    result = DIALECT.parse(f"괄호 {{ 하나, 인용 {{'여기 {F} 끝", TOOLS)
    assert (result.text, names(result)) == ("괄호 { 하나, 인용 {'여기\n끝", ["f"])


@pytest.mark.slow
@given(raw=ADVERSARIAL)
@example(raw="{" * 100_000)
@example(raw="{'name': '" + "\\" * 100_001)
@example(raw='{"name": ' + "[" * 100_000 + "]" * 100_000 + "}")
@example(raw="{'name': " + "-" * 100_000 + "1}")
def test_parsing_never_raises_and_loses_nothing_that_is_no_call(raw: str) -> None:
    result = DIALECT.parse(raw, TOOLS)
    if not result.calls and not result.fragment:
        assert result.text == raw.strip()
    if not result.calls and result.fragment:
        assert raw.startswith(result.text, len(raw) - len(raw.lstrip()))
        assert raw.endswith(result.fragment)


# --- linear time
