"""Assemble text and tool calls from streamed chat deltas."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.base.errors import StreamBrokenError
from lhkit.conversation.messages import ToolCall
from lhkit.conversation.responses import TextDelta, ThinkingDelta, ToolCallParsed
from lhkit.models.client.openai_chat import ChatContent
from lhkit.models.dialects.parser import ParsedEvent, ParseResult
from tests.hostile import json_values
from tests.models.fake_vllm import chat_call
from tests.rows import check_rows

KNOWN = ("get_weather", "add")
WEATHER = {"city": "서울", "days": 3}
TEXT = json.dumps(WEATHER, ensure_ascii=False)

JSON_VALUES = json_values(st.text())
ARGUMENTS = st.dictionaries(st.text(), JSON_VALUES, max_size=4)


def calls(*pieces: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"tool_calls": [piece]} for piece in pieces]


def events_of(
    deltas: Sequence[Mapping[str, Any]], *, truncated: bool = False
) -> tuple[list[ParsedEvent], ParseResult]:
    return parsed([{"delta": delta} for delta in deltas], truncated=truncated)


def parsed(
    choices: Sequence[Mapping[str, Any]], *, truncated: bool = False
) -> tuple[list[ParsedEvent], ParseResult]:
    content = ChatContent(KNOWN, server="http://here")
    events = [event for choice in choices for event in content.feed(choice)]
    events += content.end()
    events += content.close(truncated=truncated)
    assert content.result is not None
    return events, content.result


def parse_calls(deltas: Sequence[Mapping[str, Any]]) -> list[tuple[str, Any, tuple[str, ...]]]:
    _, result = events_of(deltas)
    return [(call.name, call.args, call.repairs) for call in result.calls]


ASSEMBLED: dict[str, tuple[list[dict[str, Any]], list[Any]]] = {
    "name in two pieces": (
        [chat_call(0, "get_", ""), chat_call(0, "weather", ""), chat_call(0, None, TEXT)],
        [("get_weather", WEATHER, ())],
    ),
    "pieces of two calls mixed, index 1 left out": (
        [
            chat_call(0, "add", '{"a"', id="x"),
            chat_call(2, "get_weather", '{"b"', id="y"),
            chat_call(0, None, ":1}"),
            chat_call(2, None, ":2}"),
        ],
        [("add", {"a": 1}, ()), ("get_weather", {"b": 2}, ())],
    ),
    "the index orders, not the arrival": (
        [chat_call(1, "get_weather", TEXT), chat_call(0, "add", '{"a":1}')],
        [("add", {"a": 1}, ()), ("get_weather", WEATHER, ())],
    ),
    "all calls have the index 0 and ids of their own": (
        [chat_call(0, "add", '{"a":1}', id="x"), chat_call(0, "add", '{"a":2}', id="y")],
        [("add", {"a": 1}, ()), ("add", {"a": 2}, ())],
    ),
    "no index at all": (
        [
            chat_call(None, "add", '{"a":', id="x"),
            chat_call(None, None, "1}"),
            chat_call(None, "add", '{"a":2}'),
        ],
        [("add", {"a": 1}, ()), ("add", {"a": 2}, ())],
    ),
    "ids instead of indices": (
        [
            chat_call(None, "add", '{"a":', id="x"),
            chat_call(None, "get_weather", '{"b":', id="y"),
            chat_call(None, None, "1}", id="x"),
            chat_call(None, None, "2}", id="y"),
        ],
        [("add", {"a": 1}, ()), ("get_weather", {"b": 2}, ())],
    ),
    "a call without a name": ([chat_call(0, None, TEXT)], [("", WEATHER, ())]),
}


@check_rows(("pieces", "expected"), ASSEMBLED.values(), ids=ASSEMBLED)
def test_chat_content_assembles_calls_from_deltas(
    pieces: list[dict[str, Any]], expected: list[Any]
) -> None:
    assert parse_calls(calls(*pieces)) == expected


@check_rows(
    ("arguments", "args", "repairs"),
    [
        ("{}", {}, ()),
        ("", {}, ("empty_arguments",)),
        (None, {}, ("empty_arguments",)),
        ({"a": "1"}, {"a": "1"}, ("object_arguments",)),
        ('{"a": 1', '{"a": 1', ("malformed",)),
        ('{"a": NaN}', '{"a": NaN}', ("malformed",)),
        ('"{}"', {}, ("encoded_arguments",)),
        ('"x"', "x", ()),
        ('{"a":"0101","b":"true"}', {"a": "0101", "b": "true"}, ()),
    ],
)
def test_chat_content_reads_arguments(arguments: Any, args: Any, repairs: tuple[str, ...]) -> None:
    assert parse_calls(calls(chat_call(0, "add", arguments))) == [("add", args, repairs)]


@given(args=ARGUMENTS, cuts=st.lists(st.integers(0, 200), max_size=6), ascii_only=st.booleans())
def test_chat_content_assembles_arguments_cut_anywhere(
    args: dict[str, Any], cuts: list[int], *, ascii_only: bool
) -> None:
    text = json.dumps(args, ensure_ascii=ascii_only)
    ends = [*sorted(cuts), len(text)]
    pieces = [text[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    named = [chat_call(0, "add", pieces[0], id="a"), *(chat_call(0, None, p) for p in pieces[1:])]
    assert parse_calls(calls(*named)) == [("add", args, ())]


def test_chat_content_yields_calls_only_at_the_close() -> None:
    content = ChatContent(KNOWN)
    for delta in calls(chat_call(0, "add", TEXT), chat_call(1, "add", TEXT)):
        assert list(content.feed({"delta": delta})) == []
    assert list(content.end()) == []
    assert content.result is None


def test_chat_content_returns_a_cut_call_as_fragment() -> None:
    for end in range(len(TEXT) + 1):
        whole, last = chat_call(0, "add", TEXT), chat_call(1, "add", TEXT[:end])
        events, result = events_of(calls(whole, last), truncated=True)
        assert events == [ToolCallParsed(call=result.calls[0])]
        assert [call.args for call in result.calls] == [WEATHER]
        assert result.fragment == f"add {TEXT[:end]}".strip()


def test_chat_content_fragment_is_never_empty() -> None:
    _, result = events_of(calls({"index": 0, "function": {}}), truncated=True)
    assert (result.calls, bool(result.fragment)) == ((), True)


def test_chat_content_streams_text_and_thinking() -> None:
    deltas = [
        {"role": "assistant", "content": ""},
        {"reasoning": "음"},
        {"reasoning_content": "…"},
        {"content": "찾아"},
        {"content": "볼게요.", "tool_calls": None},
        *calls(chat_call(0, "add", "{}")),
    ]
    events, result = events_of(deltas)
    made = ToolCall(name="add", args={}, raw="add {}")
    assert events == [
        ThinkingDelta(text="음"),
        ThinkingDelta(text="…"),
        TextDelta(text="찾아"),
        TextDelta(text="볼게요."),
        ToolCallParsed(call=made),
    ]
    assert result == ParseResult(text="찾아볼게요.", calls=(made,), thinking="음…")


def test_chat_content_drops_white_space_next_to_calls() -> None:
    _, result = events_of([{"content": "\n"}, *calls(chat_call(0, "add", "{}"))])
    assert result.text == ""


@check_rows(
    "choice",
    [
        {"delta": 3},
        {"delta": {"content": 3}},
        {"delta": {"tool_calls": [3]}},
        {"delta": {"tool_calls": [{"index": "first"}]}},
        {"delta": {"tool_calls": [{"index": 0.5}]}},
        {"delta": {"tool_calls": [{"index": 0, "id": ["a"]}]}},
        {"delta": {"content": [3]}},
        {"delta": {"content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}},
        {"delta": {"content": [{"type": "text"}]}},
        {"delta": {"content": json.loads("[" * 500 + "]" * 500)}},
        {"delta": {"tool_calls": [{"index": 0, "function": {"name": 3}}]}},
    ],
)
def test_chat_content_refuses_an_invalid_delta(choice: dict[str, Any]) -> None:
    with pytest.raises(StreamBrokenError, match="an invalid event"):
        list(ChatContent(KNOWN).feed(choice))


@pytest.mark.parametrize(
    ("nothing", "content"),
    [({}, "네"), ({"content": [{"type": "text", "text": ""}]}, [{"type": "text", "text": "네"}])],
)
def test_chat_content_refuses_content_after_the_end(nothing: Any, content: Any) -> None:
    reader = ChatContent(KNOWN)
    list(reader.end())
    assert list(reader.feed({"delta": nothing})) == []
    with pytest.raises(StreamBrokenError, match="went on after the end"):
        list(reader.feed({"delta": {"content": content}}))


@check_rows("reason", ["tool_calls", "tool_use"])
@check_rows("deltas", [[], [{"content": "네"}], [{"tool_calls": [{"index": 0}]}]])
def test_chat_content_refuses_announced_calls_that_are_missing(
    reason: str, deltas: list[dict[str, Any]]
) -> None:
    choices = [*({"delta": delta} for delta in deltas), {"delta": {}, "finish_reason": reason}]
    with pytest.raises(StreamBrokenError) as caught:
        parsed(choices)
    assert str(caught.value).startswith(
        f"The answer of http://here is invalid: its finish_reason is {reason!r}, but it has no "
        "tool calls. "
    )
    assert "--dialect json" in str(caught.value)


@pytest.mark.parametrize("reason", ["tool_calls", "stop"])
def test_chat_content_refuses_an_empty_call(reason: str) -> None:
    deltas = calls(chat_call(0, "add", TEXT), {"index": 1, "id": "b", "function": {}})
    choices = [*({"delta": delta} for delta in deltas), {"delta": {}, "finish_reason": reason}]
    with pytest.raises(StreamBrokenError, match="a tool call with neither a name nor arguments"):
        parsed(choices)


def test_chat_content_accepts_announced_calls_that_were_cut() -> None:
    _, result = parsed([{"delta": {}, "finish_reason": "tool_calls"}], truncated=True)
    assert (result.calls, result.text) == ((), "")


CALL = {"name": "add", "arguments": TEXT}


@check_rows("reason", ["tool_calls", None])
@check_rows(
    ("choice", "place"),
    [
        ({"message": {"tool_calls": [{"id": "a", "function": CALL}]}}, "message"),
        ({"message": {"content": "네"}}, "message"),
        ({"text": "네"}, "text"),
        ({"delta": {"function_call": CALL}}, "function_call"),
        ({"delta": {"content": "네", "function_call": {"name": "add"}}}, "function_call"),
        ({"delta": {"content": "네"}, "message": {"tool_calls": [CALL]}}, "message"),
    ],
)
def test_chat_content_refuses_an_answer_in_a_wrong_field(
    choice: dict[str, Any], place: str, reason: str | None
) -> None:
    with pytest.raises(StreamBrokenError) as caught:
        parsed([{**choice, "finish_reason": reason}])
    assert str(caught.value).startswith("The answer of http://here is invalid: ")
    assert f"'{place}'" in str(caught.value)


@pytest.mark.parametrize(
    "more",
    [
        {"message": {"content": None, "tool_calls": [], "function_call": None}},
        {"message": None},
        {"message": {"content": "네", "tool_calls": [CALL], "function_call": CALL}},
    ],
)
def test_chat_content_ignores_a_message_that_repeats_the_deltas(more: dict[str, Any]) -> None:
    whole = {"content": "네", "tool_calls": [chat_call(0, "add", TEXT)]}
    end = {"delta": {"function_call": None}, "finish_reason": "tool_calls", **more}
    _, result = parsed([{"delta": whole}, end])
    assert (result.text, [call.args for call in result.calls]) == ("네", [WEATHER])


@check_rows(
    "texts",
    [
        ["{}", TEXT],
        ["{}" + TEXT],
        ["", "{", "}", " \n", TEXT],
        [TEXT, TEXT],
        [TEXT, "{}"],
        ["null", TEXT],
        [*TEXT, json.dumps(WEATHER, ensure_ascii=True, indent=1, sort_keys=True)],
        [{}, TEXT],
        [TEXT, WEATHER],
        [TEXT, {}],
    ],
)
def test_chat_content_reads_repeated_arguments(texts: list[Any]) -> None:
    deltas = calls(chat_call(0, "add"), *(chat_call(0, None, text) for text in texts))
    [(name, args, repairs)] = parse_calls(deltas)
    assert (name, args) == ("add", WEATHER)
    assert repairs in {("repeated_arguments",), ("object_arguments",)}


@check_rows(
    "texts",
    [
        ['{"a": 1}', '{"a": 2}'],
        ['{"a": 1}', '{"a": true}'],
        ['{"a": 1}', '{"a": 1.0}'],
        ["{}", '{"a": 1'],
        ['{"a": 1}', {"a": 2}],
        ["{}" + '{"a": NaN}'],
        ["{}" + "[" * 100_000],
    ],
)
def test_chat_content_keeps_contradicting_arguments_malformed(texts: list[Any]) -> None:
    deltas = calls(chat_call(0, "add"), *(chat_call(0, None, text) for text in texts))
    [(_, args, repairs)] = parse_calls(deltas)
    assert (isinstance(args, str), repairs) == (True, ("malformed",))


@given(
    args=ARGUMENTS.filter(bool),
    before=st.integers(0, 2),
    after=st.integers(0, 2),
    cuts=st.lists(st.integers(0, 400), max_size=6),
)
def test_chat_content_reads_repeated_arguments_cut_anywhere(
    args: dict[str, Any], before: int, after: int, cuts: list[int]
) -> None:
    text = "{}" * before + json.dumps(args) * (after + 1)
    ends = [*sorted(cuts), len(text)]
    pieces = [text[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    [(_, got, _)] = parse_calls(calls(*(chat_call(0, "add", piece, id="a") for piece in pieces)))
    assert got == args


THINKS = {"type": "thinking", "thinking": [{"type": "text", "text": "음"}]}


@check_rows(
    ("content", "text", "thinking"),
    [
        ([{"type": "text", "text": "네"}, {"type": "text", "text": "!"}], "네!", ""),
        ({"type": "text", "text": "네"}, "네", ""),
        (["네", "!"], "네!", ""),
        ([THINKS, {"type": "text", "text": "네"}], "네", "음"),
        ([{"type": "thinking", "thinking": "음", "signature": "x"}], "", "음"),
        ([{"type": "reasoning", "text": "음"}], "", "음"),
        ([{"type": "reasoning", "summary": [{"type": "summary_text", "text": "음"}]}], "", "음"),
        ([{"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "네"}], "네", ""),
        ([{"type": "refusal", "refusal": "아니요"}], "아니요", ""),
        ([], "", ""),
    ],
)
def test_chat_content_reads_a_list_of_parts(content: Any, text: str, thinking: str) -> None:
    events, result = events_of([{"content": content}])
    assert (result.text, result.thinking) == (text, thinking)
    assert events_of([{"reasoning_content": content}])[1].thinking == thinking + text
    assert "".join(each.text for each in events if isinstance(each, TextDelta)) == text
    assert "".join(each.text for each in events if isinstance(each, ThinkingDelta)) == thinking


@check_rows("first", [0, 0.0, " 0 "])
@check_rows("second", [1, "1.0"])
def test_chat_content_accepts_an_index_as_float_or_text(first: Any, second: Any) -> None:
    deltas = calls(
        {"index": first, "id": 0, "function": {"name": "add", "arguments": '{"a"'}},
        {"index": second, "id": 7, "function": {"name": "get_weather", "arguments": "{}"}},
        {"index": first, "id": 0, "function": {"arguments": ":1}"}},
    )
    assert parse_calls(deltas) == [("add", {"a": 1}, ()), ("get_weather", {}, ())]
