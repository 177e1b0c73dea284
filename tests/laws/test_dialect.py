"""What every dialect promises, whatever its format."""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lhkit.base.errors import UsageError
from lhkit.base.json_values import MAX_DEPTH, NotJsonError
from lhkit.conversation.messages import (
    Message,
    ModelMessage,
    SystemMessage,
    ToolCallMessage,
    UserMessage,
)
from lhkit.conversation.responses import TextDelta, ThinkingDelta, ToolCallParsed
from lhkit.conversation.tool_results import ToolCancelled, ToolErr, ToolOk
from lhkit.models.dialects import DIALECTS, Dialect
from lhkit.models.dialects.parser import ParsedEvent, ParseResult
from lhkit.tools.registration import NAME_PATTERN
from tests.hostile import json_values
from tests.rows import check_rows

TOOLS: list[dict[str, Any]] = [
    {"name": name, "description": "", "parameters": {"type": "object"}} for name in ("f", "g")
]
BEGUN = {
    "json": '{"name":',
    "pythonic": "[f(",
    "functiongemma": "<start_function_call>",
    "gemma4": "<|tool_call>",
}
"""From here on a call has begun."""

SORTED = ("functiongemma", "gemma4")
"""The templates of these families sort the keys of arguments and results."""

SHARED_TOKENS = [
    *("<bos>", "<eos>", "<pad>", "<unused7>", "<audio_soft_token>"),
    *("<start_of_turn>", "<end_of_turn>"),
]
GEMMA4_TOKENS = ["<|channel>", "<channel|>", "<|think|>", "<|image|>", "<audio|>"]
STRUCTURE = {
    "json": ["<start_of_turn>", "<end_of_turn>"],
    "pythonic": ["<start_of_turn>", "<end_of_turn>"],
    "functiongemma": [
        "<start_of_turn>",
        "<end_of_turn>",
        "<start_function_declaration>",
        "<end_function_declaration>",
        "<start_function_call>",
        "<end_function_call>",
        "<start_function_response>",
        "<end_function_response>",
        "<escape>",
    ],
    "gemma4": [
        "<|turn>",
        "<turn|>",
        "<|tool>",
        "<tool|>",
        "<|tool_call>",
        "<tool_call|>",
        "<|tool_response>",
        "<tool_response|>",
        '<|"|>',
    ],
}
TOKENS = sorted(
    {*SHARED_TOKENS, *GEMMA4_TOKENS, *(token for row in STRUCTURE.values() for token in row)}
)
PIECES = [
    *TOKENS,
    "<|channel>thought\n",
    "<start_function_call>call:f{a:",
    "<|tool_call>call:f{a:",
    "[f(a=",
    "f(a=1)",
    '[g(b="',
    '{"name": "f", "parameters": {"a": ',
    '{"name": "f", "parameters": {"a": 1}}',
    "{'name': 'f', 'parameters': {'a': True}}",
    '{"tool": "f"',
    '{"name": "철수", "age": 3}',
    '{"data":',
    "call:f{}",
    "<think>",
    "</think>",
    "<tool_code>",
    "</tool_code>",
    "```tool_code\n",
    "```",
    "``",
    "<end_function",
    "<|",
    "|>",
    "<esc",
    "**{",
    "한",
    "\u1112\u1161\u11ab",
    "null",
    "True",
    "010",
    "00\\",
    "1.5",
    *"{}[]()\"'\\:,=<> \n_",
]
FRAGMENTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=14).map("".join)
STRINGS = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=4).map("".join)
VALUES = json_values(STRINGS)
ARGS = st.dictionaries(STRINGS | st.sampled_from("ab"), VALUES, max_size=3)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,10}", fullmatch=True)
TOOL_NAMES = st.from_regex(NAME_PATTERN, fullmatch=True)
SIZES = st.lists(st.integers(1, 6), max_size=200)

each_dialect = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)


def cut(raw: str, sizes: Sequence[int]) -> list[str]:
    """Cut `raw` into chunks of these sizes, the rest into single characters."""
    ends = [0, *accumulate(sizes)]
    ends = [end for end in ends if end < len(raw)]
    ends += range(ends[-1] + 1 if ends else 0, len(raw) + 1)
    return [raw[start:end] for start, end in pairwise(ends)]


def streamed(dialect: Dialect, chunks: Sequence[str]) -> tuple[list[ParsedEvent], ParseResult]:
    parser = dialect.incremental(TOOLS)
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    return events, parser.close()


def places(raw: str, result: ParseResult) -> list[str | None]:
    """Return the text at the place of each call."""
    return [None if span is None else raw[slice(*span)] for span in result.spans]


def merged(events: Sequence[ParsedEvent]) -> list[Any]:
    """Join neighbours of one kind: how words are cut is no part of the meaning."""
    out: list[Any] = []
    for event in events:
        if isinstance(event, ToolCallParsed):
            out.append(event.call)
        elif out and isinstance(out[-1], list) and out[-1][0] is type(event):
            out[-1][1] += event.text
        else:
            out.append([type(event), event.text])
    return out


def exact(dialect: Dialect, args: Any) -> str:
    """Return arguments with their types (1 is not 1.0 is not true) and, but for sorting, order."""
    return json.dumps(args, sort_keys=dialect.name in SORTED)


@each_dialect
@given(name=NAMES, args=ARGS)
@example(name="f", args={})
@example(name="f", args={"phone": "010", "n": "1", "b": "true", "z": "null", "e": ""})
@example(name="f", args={"n": 1, "x": 1.0, "b": True, "z": None, "l": [], "o": {}})
@example(name="f", args={"from": 1, "class": 2, "a b": 3, "": 4, "한글": 5, "a": {"": {"b c": []}}})
@example(name="f", args={"nfc": "한글", "nfd": "\u1112\u1161\u11ab\u1100\u1173\u11af"})
@example(name="f", args={"a": "".join(PIECES), "b": '<escape><|"|>\\"\'\\'})
@example(name="f", args={"lone": "\ud800", "emoji": "😀", "lines": "\r\n\t\x00\u2028"})
@example(name="f", args={"big": 10**4000, "small": 5e-324, "minus": -0.0})
def test_parse_inverts_render_call(dialect: Dialect, name: str, args: dict[str, Any]) -> None:
    raw = dialect.render_call(name, args)
    result = dialect.parse(raw)
    assert (result.text, result.fragment, result.thinking) == ("", "", "")
    [call] = result.calls
    assert (call.name, call.repairs) == (name, ())
    assert call.raw in raw
    assert exact(dialect, call.args) == exact(dialect, args)


@each_dialect
def test_parse_reads_deeply_nested_arguments(dialect: Dialect) -> None:
    deep: Any = 1
    for _ in range(MAX_DEPTH - 1):
        deep = [deep]
    [call] = dialect.parse(dialect.render_call("f", {"a": deep})).calls
    assert (call.args, call.repairs) == ({"a": deep}, ())


@each_dialect
@check_rows("value", [float("nan"), float("inf"), {1}, object(), {1: 2}])
def test_render_call_refuses_values_that_are_not_json(dialect: Dialect, value: Any) -> None:
    with pytest.raises(NotJsonError):
        dialect.render_call("f", {"a": value})


@each_dialect
@given(name=TOOL_NAMES, args=ARGS)
@example(name="startEngine", args={"a": 1})
@example(name="get-item", args={})
@example(name="3d-print", args={"a": "x"})
@example(name="-", args={"a": 1})
def test_parse_reads_any_valid_tool_name(dialect: Dialect, name: str, args: dict[str, Any]) -> None:
    tools = [*TOOLS, {"name": name, "description": "Do it.", "parameters": {"type": "object"}}]
    assert name in dialect.encode([UserMessage(text="go")], tools)
    raw = dialect.render_call(name, args)
    parser = dialect.incremental(tools)
    for chunk in cut(raw, [1] * 20):
        parser.feed(chunk)
    [call] = parser.close().calls
    assert (call.name, call.repairs) == (name, ())
    assert exact(dialect, call.args) == exact(dialect, args)


@pytest.mark.longer
@each_dialect
@given(
    separator=st.sampled_from(["", "\n"]),
    calls=st.lists(st.tuples(NAMES, ARGS), min_size=2, max_size=4),
)
def test_parse_keeps_the_order_of_parallel_calls(
    dialect: Dialect, separator: str, calls: list[tuple[str, dict[str, Any]]]
) -> None:
    result = dialect.parse(separator.join(dialect.render_call(*call) for call in calls))
    assert [call.name for call in result.calls] == [name for name, _ in calls]
    assert [call.args for call in result.calls] == [args for _, args in calls]
    assert (result.text, result.fragment) == ("", "")


@each_dialect
def test_parse_keeps_text_around_calls(dialect: Dialect) -> None:
    call = dialect.render_call("f", {"a": "x"})
    result = dialect.parse(f"\n네, [적을게요] {{지금}}.\n{call}\n사이 {call} 끝 (f)\n", TOOLS)
    assert result.text == "네, [적을게요] {지금}.\n사이\n끝 (f)"
    assert [each.args for each in result.calls] == [{"a": "x"}] * 2


@each_dialect
@given(raw=FRAGMENTS, sizes=SIZES)
@example(raw='{"name": "f", "parameters": {"a": 0\\{"name":', sizes=[])
@example(raw="[f(a=0\\}]) [g(", sizes=[])
def test_incremental_result_does_not_depend_on_chunks(
    dialect: Dialect, raw: str, sizes: list[int]
) -> None:
    whole_events, whole = streamed(dialect, [raw])
    events, result = streamed(dialect, cut(raw, sizes))
    assert result == whole == dialect.parse(raw, TOOLS)
    assert result.spans == whole.spans
    assert merged(events) == merged(whole_events)
    shown = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert result.text.startswith(shown)  # what was shown is never taken back
    thought = "".join(event.text for event in events if isinstance(event, ThinkingDelta))
    assert result.thinking.startswith(thought)
    made = tuple(e.call for e in events if isinstance(e, ToolCallParsed))
    assert made == result.calls[: len(made)]  # those after a damaged call may come at the end


@each_dialect
@given(args=ARGS, sizes=SIZES)
@example(args={"a": 'x<escape>"\\', "b": '<|"|>\\"\\\\"', "c": "}])"}, sizes=[])
def test_incremental_emits_the_rendered_call(
    dialect: Dialect, args: dict[str, Any], sizes: list[int]
) -> None:
    raw = f"네.\n{dialect.render_call('f', args)}\n끝"
    events, result = streamed(dialect, cut(raw, sizes))
    assert result == dialect.parse(raw, TOOLS)
    assert exact(dialect, result.calls[0].args) == exact(dialect, args)
    assert merged(events)[:1] == [[TextDelta, "네."]]


@pytest.mark.longer
@each_dialect
@given(raw=FRAGMENTS | st.text())
@example(raw="{" * 20_000)
@example(raw="[f(" * 20_000)
@example(
    raw="<start_function_call>call:f{a:" + "[" * 20_000 + "]" * 20_000 + "}<end_function_call>"
)
@example(raw="<|tool_call>call:f{a:" + "9" * 5000 + "}<tool_call|>")
@example(raw="[f(a=1e999)]")
def test_parse_never_raises(dialect: Dialect, raw: str) -> None:
    result = dialect.parse(raw, TOOLS)
    if (
        not result.calls
        and not result.fragment
        and not result.thinking
        and not re.search(r"<\|ch|<thi", raw)
    ):
        assert result.text == raw.strip()
    assert places(raw, result) == [call.raw for call in result.calls]


@each_dialect
def test_parse_returns_where_each_call_is(dialect: Dialect) -> None:
    one, two = (dialect.render_call("f", {"a": text}) for text in ("가 나", "b"))
    [alone] = dialect.parse(one, TOOLS).calls
    raws = [alone.raw, *(call.raw for call in dialect.parse(two, TOOLS).calls)]
    for raw, expected in {
        f"네, {one}\n{two} 끝": raws,
        f"{one}\n{one}": [raws[0]] * 2,
        f"<think>f {one} g</think>\n{two}": raws[1:],  # the first one is only mentioned
        f"<think>f {one}": raws[:1],
    }.items():
        result = dialect.parse(raw, TOOLS)
        assert places(raw, result) == expected == [call.raw for call in result.calls]
        starts = [span[0] for span in result.spans if span is not None]
        assert starts == sorted({*starts})
        assert streamed(dialect, list(raw))[1].spans == result.spans


@pytest.mark.longer
@each_dialect
@given(args=ARGS)
@example(args={})
@example(args={"a": ")]}", "b": "<end_function_call>", "c": "<tool_call|>"})
def test_parse_makes_no_call_of_a_prefix(dialect: Dialect, args: dict[str, Any]) -> None:
    raw = dialect.render_call("f", args)
    begun = len(BEGUN[dialect.name])
    assert raw.startswith(BEGUN[dialect.name])
    for end in range(len(raw)):
        result = dialect.parse(raw[:end], TOOLS)
        assert result.calls == ()
        if end >= begun:
            assert (result.fragment, result.text, result.truncated) == (raw[:end], "", True)
        else:
            assert not result.truncated
    assert dialect.parse(raw, TOOLS).calls


@each_dialect
def test_parse_makes_only_complete_calls(dialect: Dialect) -> None:
    whole, half = dialect.render_call("f", {"a": 1}), dialect.render_call("g", {"b": "x"})[:-1]
    result = dialect.parse(f"{whole}\n{half}", TOOLS)
    assert ([call.name for call in result.calls], result.fragment) == (["f"], half)


DELIMITERS = {
    "json": r'["{}\[\],:]',
    "pythonic": r'["{}\[\](),=:]',
    "functiongemma": r"<escape>|<start_function_call>|<end_function_call>|[{}\[\],:]",
    "gemma4": r'<\|"\|>|<\|tool_call>|<tool_call\|>|[{}\[\],:]',
}
SEPARATORS = {
    "json": ["", "\n", ", ", "\n```\n```json\n", " 그리고 "],
    "pythonic": ["", "\n", "\n\n"],
    "functiongemma": ["", "\n", " 그리고 "],
    "gemma4": ["", "\n", " 그리고 "],
}
PLAIN_STRINGS = st.sampled_from(
    ["", "x", "weather in Oslo", "don't", "rock 'n' roll", "물 200", "1, 2: 3", "true"]
)
PLAIN_ARGS = st.dictionaries(
    st.sampled_from("ab"),
    st.recursive(
        PLAIN_STRINGS | st.integers() | st.booleans() | st.none(),
        lambda inner: (
            st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("cd"), inner, max_size=2)
        ),
        max_leaves=4,
    ),
    max_size=2,
)
"""Strings without brackets, delimiters, and quotes that are no apostrophes: the structure of a
damaged call is recognisable."""


@pytest.mark.longer
@each_dialect
@given(data=st.data(), args=PLAIN_ARGS, other=ARGS, sizes=SIZES)
def test_parse_ends_a_damaged_call_at_the_next(
    dialect: Dialect, data: st.DataObject, args: dict[str, Any], other: dict[str, Any], sizes: Any
) -> None:
    whole, following = dialect.render_call("f", args), dialect.render_call("g", other)
    places = [match.span() for match in re.finditer(DELIMITERS[dialect.name], whole)]
    start, end = data.draw(st.sampled_from(places))
    separator = data.draw(st.sampled_from(SEPARATORS[dialect.name]))
    raw = whole[:start] + whole[end:] + separator + following
    events, result = streamed(dialect, cut(raw, sizes))
    [expected] = dialect.parse(following, TOOLS).calls
    last = result.calls[-1]
    assert (last.name, last.args, last.raw) == (expected.name, expected.args, expected.raw)
    assert len(result.calls) <= 2
    assert result.fragment == ""
    assert result == dialect.parse(raw, TOOLS)
    made = tuple(e.call for e in events if isinstance(e, ToolCallParsed))
    assert made == result.calls[: len(made)]


@each_dialect
@check_rows("separator", ["", "\n"])
def test_parse_marks_damaged_calls_as_malformed(dialect: Dialect, separator: str) -> None:
    whole, last = dialect.render_call("f", {"a": "x"}), dialect.render_call("g", {"b": "y"})
    damaged = {
        "json": whole[:-1],
        "pythonic": whole.replace('")]', ")]"),
        "functiongemma": whole.replace("x<escape>", "x"),
        "gemma4": whole.replace('x<|"|>', "x"),
    }[dialect.name]
    raw = separator.join([damaged, last] * 12)
    result = dialect.parse(raw, TOOLS)
    assert [call.name for call in result.calls] == ["f", "g"] * 12
    assert [call.args for call in result.calls] == [damaged, {"b": "y"}] * 12
    assert [call.repairs for call in result.calls] == [("malformed",), ()] * 12
    assert (result.text, result.fragment) == ("", "")
    assert streamed(dialect, list(raw))[1] == result


@check_rows("name", ["functiongemma", "gemma4"])
@check_rows("rest", ["", "\n", "네."])
def test_parse_ends_a_call_at_an_end_token_in_an_open_string(name: str, rest: str) -> None:
    dialect = DIALECTS[name]
    whole = dialect.render_call("f", {"a": "x"})
    quote = {"functiongemma": "<escape>", "gemma4": '<|"|>'}[name]
    for damaged in (whole.replace(quote + "x", "x"), whole.replace("x" + quote, "x")):
        result = dialect.parse(damaged + rest, TOOLS)
        [call] = result.calls
        assert (call.name, call.args, call.repairs) == ("f", damaged, ("malformed",))
        assert (result.text, result.fragment) == (rest.strip(), "")


@each_dialect
def test_parse_does_not_cut_at_calls_in_strings(dialect: Dialect) -> None:
    calls = "".join(DIALECTS[name].render_call("g", {}) for name in DIALECTS)
    args: dict[str, Any] = {"a": f"x)]\n{calls}\n", "b": [{"name": "g", "parameters": {}}, calls]}
    raw = dialect.render_call("f", args)
    result = streamed(dialect, list(raw))[1]
    assert [(call.name, call.args) for call in result.calls] == [("f", args)]


def call(name: str = "log_water", *, index: int = 0, text: str = "", **args: Any) -> Message:
    result = ToolOk({"saved": True, "ml": 200, "note": "물"})
    return ToolCallMessage.of(name=name, args=args, result=result, index=index, text=text)


WATER = {
    "name": "log_water",
    "description": "물을 기록한다",
    "parameters": {
        "type": "object",
        "properties": {
            "ml": {"type": "integer", "minimum": 1},
            "type": {"type": "string", "enum": ["cold", "hot"]},
        },
        "required": ["ml"],
    },
}
CHAT: list[Message] = [
    UserMessage(text="200 마셨어", context="지금: 09:00"),
    call(ml=200, type="cold"),
    call("undo", index=1),
    ModelMessage(text="기록했어요."),
    UserMessage(text="고마워"),
]
WATER_JSON = json.dumps(WATER, ensure_ascii=False, separators=(",", ":"))
RESULTS = """\
Result of log_water: {"status":"ok","data":{"saved":true,"ml":200,"note":"물"}}
Result of undo: {"status":"ok","data":{"saved":true,"ml":200,"note":"물"}}"""
GOLDEN = {
    "json": f"""\
<bos><start_of_turn>user
너는 비서다.

To use a tool, answer with only this JSON: {{"name": "tool", "parameters": {{"argument": value}}}}
You then get its result. Otherwise answer in words.
Tools:
{WATER_JSON}

지금: 09:00
200 마셨어<end_of_turn>
<start_of_turn>model
{{"name": "log_water", "parameters": {{"ml":200,"type":"cold"}}}}
{{"name": "undo", "parameters": {{}}}}<end_of_turn>
<start_of_turn>user
{RESULTS}<end_of_turn>
<start_of_turn>model
기록했어요.<end_of_turn>
<start_of_turn>user
고마워<end_of_turn>
<start_of_turn>model
""",
    "pythonic": f"""\
<bos><start_of_turn>user
너는 비서다.

To use tools, answer with only this list: [tool(argument="value", other=1)]
You then get the results. Otherwise answer in words.
Tools:
{WATER_JSON}

지금: 09:00
200 마셨어<end_of_turn>
<start_of_turn>model
[log_water(ml=200, type="cold"), undo()]<end_of_turn>
<start_of_turn>user
{RESULTS}<end_of_turn>
<start_of_turn>model
기록했어요.<end_of_turn>
<start_of_turn>user
고마워<end_of_turn>
<start_of_turn>model
""",
    "functiongemma": (
        "<bos><start_of_turn>developer\n너는 비서다.\n"
        "You are a model that can do function calling with the following functions"
        "<start_function_declaration>declaration:log_water{"
        "description:<escape>물을 기록한다<escape>,parameters:{properties:{"
        "ml:{description:<escape><escape>,type:<escape>INTEGER<escape>}},"
        "required:[<escape>ml<escape>],type:<escape>OBJECT<escape>}}"
        "<end_function_declaration><end_of_turn>\n"
        "<start_of_turn>user\n지금: 09:00\n200 마셨어<end_of_turn>\n"
        "<start_of_turn>model\n"
        "<start_function_call>call:log_water{ml:200,type:<escape>cold<escape>}<end_function_call>"
        "<start_function_call>call:undo{}<end_function_call>"
        "<start_function_response>response:log_water{"
        "ml:200,note:<escape>물<escape>,saved:true}<end_function_response>"
        "<start_function_response>response:undo{"
        "ml:200,note:<escape>물<escape>,saved:true}<end_function_response>"
        "기록했어요.<end_of_turn>\n"
        "<start_of_turn>user\n고마워<end_of_turn>\n"
        "<start_of_turn>model\n"
    ),
    "gemma4": (
        "<bos><|turn>system\n너는 비서다."
        '<|tool>declaration:log_water{description:<|"|>물을 기록한다<|"|>,parameters:{properties:{'
        'ml:{type:<|"|>INTEGER<|"|>},'
        'type:{enum:[<|"|>cold<|"|>,<|"|>hot<|"|>],type:<|"|>STRING<|"|>}},'
        'required:[<|"|>ml<|"|>],type:<|"|>OBJECT<|"|>}}<tool|><turn|>\n'
        "<|turn>user\n지금: 09:00\n200 마셨어<turn|>\n"
        "<|turn>model\n"
        '<|tool_call>call:log_water{ml:200,type:<|"|>cold<|"|>}<tool_call|>'
        "<|tool_call>call:undo{}<tool_call|>"
        '<|tool_response>response:log_water{ml:200,note:<|"|>물<|"|>,saved:true}<tool_response|>'
        '<|tool_response>response:undo{ml:200,note:<|"|>물<|"|>,saved:true}<tool_response|>'
        "기록했어요.<turn|>\n"
        "<|turn>user\n고마워<turn|>\n"
        "<|turn>model\n"
    ),
}


@each_dialect
def test_encode_renders_this_prompt(dialect: Dialect) -> None:
    assert dialect.encode(CHAT, [WATER], " 너는 비서다.\n") == GOLDEN[dialect.name]


@each_dialect
def test_encode_extends_the_previous_prompt(dialect: Dialect) -> None:
    prompts = [dialect.encode(CHAT[:seen], [WATER], "너는 비서다.") for seen in (1, 3, 5)]
    assert all(later.startswith(earlier) for earlier, later in pairwise(prompts))
    written = dialect.render_call("log_water", {"ml": 200})
    one_call = dialect.encode([CHAT[0], call(ml=200)], [WATER], "너는 비서다.")
    assert one_call.startswith(prompts[0] + written)


HOSTILE = st.lists(
    st.sampled_from([*TOKENS, "<", "|>", "turn|>", "<|", "end_of_turn>", "\nmodel\n", "\ud800"])
    | st.text(max_size=3),
    max_size=5,
).map("".join)


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    results = (
        st.builds(ToolOk, st.dictionaries(HOSTILE, HOSTILE, max_size=2))
        | st.builds(ToolErr, HOSTILE, HOSTILE)
        | st.just(ToolCancelled())
    )
    calls = st.builds(
        ToolCallMessage.of,
        name=HOSTILE,
        args=st.dictionaries(HOSTILE, HOSTILE, max_size=2) | HOSTILE | st.just({"a": {1}}),
        result=results,
        text=HOSTILE,
        raw=HOSTILE,
        index=st.integers(0, 1),
    )
    messages = (
        st.builds(UserMessage, text=HOSTILE, context=HOSTILE)
        | st.builds(ModelMessage, text=HOSTILE)
        | calls
    )
    return draw(st.lists(messages, max_size=5))


def tokens_in(dialect: Dialect, prompt: str) -> list[str]:
    own = GEMMA4_TOKENS if dialect.name == "gemma4" else []
    known = {*SHARED_TOKENS, *own, *STRUCTURE[dialect.name]}
    return re.findall("|".join(map(re.escape, sorted(known, key=len, reverse=True))), prompt)


def harmless(message: Message) -> Message:
    """Return the message with other words and the same structure."""
    match message:
        case UserMessage():
            return UserMessage(text="x")
        case ModelMessage():
            return ModelMessage(text="x")
        case ToolCallMessage(index=index):
            return ToolCallMessage.of(name="x", args={}, result=ToolCancelled(), index=index)
    raise AssertionError(message)


def malformed(raw: str, *, index: int = 0, text: str = "") -> Message:
    return ToolCallMessage.of(
        name="", args=raw, raw=raw, index=index, text=text, result=ToolCancelled()
    )


JOINED_TOKENS = [
    (token[:at], token[at:]) for token in ("<end_of_turn>", "<turn|>", "<|turn>") for at in (1, 3)
]


@each_dialect
@check_rows(("head", "tail"), JOINED_TOKENS)
def test_encode_escapes_a_control_token_in_two_texts(
    dialect: Dialect, head: str, tail: str
) -> None:
    conversations: list[list[Message]] = [
        [malformed(head), malformed(tail, index=1)],
        [malformed("x", text=head), malformed("", index=1, text=tail)],
        [malformed(tail, text=head)],
        [call(text=head), malformed(tail, index=1)],
        [call(text=head), call("undo", index=1, text=tail)],
        [ModelMessage(text=head), malformed(tail)],
        [malformed(head), ModelMessage(text=tail)],
        [UserMessage(text=tail, context=head), UserMessage(text=tail)],
    ]
    for messages in conversations:
        tokens = tokens_in(dialect, dialect.encode([CHAT[0], *messages], [], head))
        plain = dialect.encode([CHAT[0], *map(harmless, messages)], [], "a")
        turns = {"<start_of_turn>", "<end_of_turn>", "<|turn>", "<turn|>"}
        assert [t for t in tokens if t in turns] == [
            t for t in tokens_in(dialect, plain) if t in turns
        ]


@each_dialect
@given(messages=conversations(), words=HOSTILE, has_tools=st.booleans())
@example(messages=[malformed("<"), malformed("end_of_turn>", index=1)], words="", has_tools=False)
@example(messages=[malformed("turn|>", text="<")], words="<", has_tools=True)
def test_encode_escapes_control_tokens(
    dialect: Dialect, messages: list[Message], words: str, has_tools: bool
) -> None:
    tools: list[Mapping[str, Any]] = [{**WATER, "description": words}] if has_tools else []
    prompt = dialect.encode(messages, tools, f"a{words}")
    plain_tools = [{**WATER, "description": "x"}] if has_tools else []
    plain = dialect.encode([harmless(message) for message in messages], plain_tools, "a")
    tokens, expected = tokens_in(dialect, prompt), tokens_in(dialect, plain)
    inner = {"<escape>", '<|"|>', *BEGUN.values(), "<end_function_call>", "<tool_call|>"}
    assert [t for t in tokens if t not in inner] == [t for t in expected if t not in inner]
    assert tokens.count("<bos>") == 1
    assert prompt.startswith("<bos>")
    assert set(tokens) <= {"<bos>", *STRUCTURE[dialect.name]}
    prompt.encode("utf-8")


@each_dialect
def test_encode_of_an_empty_conversation(
    dialect: Dialect,
) -> None:
    start = STRUCTURE[dialect.name][0]
    assert dialect.encode([], []) == f"<bos>{start}model\n"


@each_dialect
def test_encode_merges_adjacent_user_messages(dialect: Dialect) -> None:
    prompt = dialect.encode([UserMessage(text="하나"), UserMessage(text="둘")], [])
    assert "user\n하나\n\n둘<" in prompt


@pytest.mark.longer
@each_dialect
@given(messages=conversations(), hints=st.integers(0, 2), last=st.sampled_from(["user", "call"]))
def test_encode_alternates_roles(
    dialect: Dialect, messages: list[Message], hints: int, last: str
) -> None:
    ends = {"user": UserMessage(text="x"), "call": call(ml=200)}
    conversation = [harmless(each) for each in [*messages, ends[last]]]
    spaced = [each for one in conversation for each in (one, *[SystemMessage(text="힌트")] * hints)]
    start = re.escape(STRUCTURE[dialect.name][0])
    roles = re.findall(rf"{start}(\w+)\n", dialect.encode(spaced, [WATER], "a"))
    assert all(a != b for a, b in pairwise(roles))


@each_dialect
def test_encode_omits_notices(dialect: Dialect) -> None:
    with_hints = [each for message in CHAT for each in (SystemMessage(text="힌트"), message)]
    assert dialect.encode(with_hints, [WATER]) == dialect.encode(CHAT, [WATER])


@each_dialect
@check_rows(
    ("name", "args"), [("", {}), ("f", "raw arguments"), ("f", {"a": {1}}), ("f", {"a": 1e999})]
)
def test_encode_shows_malformed_calls_as_written(dialect: Dialect, name: str, args: Any) -> None:
    message = ToolCallMessage.of(name=name, args=args, raw="f(원문", result=ToolCancelled())
    assert "model\nf(원문<" in dialect.encode([UserMessage(text="?"), message], ())


@each_dialect
def test_encode_keeps_the_order_of_calls(dialect: Dialect) -> None:
    prompt = dialect.encode([CHAT[0], call(a=1), call("undo"), call("redo", index=1)], ())
    places = [prompt.index(name) for name in ("log_water", "undo", "redo")]
    assert places == sorted(places)
    first_result = prompt.index("saved")
    assert places[0] < first_result < places[1]


@each_dialect
def test_constrain_off_sends_nothing(dialect: Dialect) -> None:
    assert dialect.constrain(TOOLS, "off") == {}


@pytest.mark.parametrize("name", ["pythonic", "functiongemma", "gemma4"])
def test_constrain_refuses_an_unknown_constraint(name: str) -> None:
    with pytest.raises(UsageError, match=name):
        DIALECTS[name].constrain(TOOLS, "required")
