"""One reading of a call's arguments, for all dialects, servers and recordings."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lhkit.conversation.messages import ToolCall
from lhkit.models.client.openai_chat import ChatContent
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.arguments import MAX_ENCODINGS, read_arguments
from tests.rows import check_rows

ARGS = {"도시": "서울", "n": [1, {"a": None}]}


def encoded(value: Any, times: int) -> Any:
    for _ in range(times):
        value = json.dumps(value, ensure_ascii=False)
    return value


READ = {
    "object": (ARGS, ARGS, ()),
    "text": (encoded(ARGS, 1), ARGS, ()),
    "text with white space": (f"\n{encoded(ARGS, 1)} ", ARGS, ()),
    "twice": (encoded(ARGS, 2), ARGS, ("encoded_arguments",)),
    "thrice": (encoded(ARGS, 3), ARGS, ("encoded_arguments",)),
    "empty object, twice": (encoded({}, 2), {}, ("encoded_arguments",)),
    "nothing": (None, {}, ("empty_arguments",)),
    "empty text": ("", {}, ("empty_arguments",)),
    "white space": (" \n\t\u3000", {}, ("empty_arguments",)),
    "null as text": ("null", {}, ("empty_arguments",)),
    "null within white space": (" null\n", {}, ("empty_arguments",)),
    "null of Python": ("None", {}, ("empty_arguments",)),
    "empty text, encoded": ('""', {}, ("empty_arguments",)),
    "null, encoded twice": ('"null"', {}, ("empty_arguments",)),
    "repeated keys": ('{"a": 1, "a": 2}', {"a": 2}, ()),
    "half a character": ('{"a": "\\ud83d"}', {"a": "\ud83d"}, ()),
}
INVALID = {
    "list": ([ARGS], [ARGS], ()),
    "empty list": ("[]", [], ()),
    "number": ("3", 3, ()),
    "boolean": (False, False, ()),
    "string": ('"hello"', "hello", ()),
    "list, encoded twice": ('"[1]"', "[1]", ()),
    "damaged, encoded twice": (encoded('{"a": 1', 1), '{"a": 1', ()),
    "damaged": ('{"a": 1', '{"a": 1', ("malformed",)),
    "words": ("hello", "hello", ("malformed",)),
    "two objects": ('{"a": 1}{"a": 1}', '{"a": 1}{"a": 1}', ("malformed",)),
    "NaN": ('{"a": NaN}', '{"a": NaN}', ("malformed",)),
    "NaN in an object": ({"a": float("nan")}, "{'a': nan}", ("malformed",)),
    "infinite": ('{"a": 1e999}', '{"a": 1e999}', ("malformed",)),
    "too deep": ("[" * 100_000, "[" * 100_000, ("malformed",)),
}


@check_rows(("value", "args", "repairs"), [*READ.values(), *INVALID.values()])
def test_read_arguments(value: Any, args: Any, repairs: tuple[str, ...]) -> None:
    assert read_arguments(value) == (args, repairs)
    assert isinstance(args, dict) == any(row[1] is args for row in READ.values())


def test_read_arguments_does_not_read_text_encoded_endlessly() -> None:
    args, repairs = read_arguments(encoded({"a": 1}, MAX_ENCODINGS))
    assert (args, repairs) == ({"a": 1}, ("encoded_arguments",))
    assert not isinstance(read_arguments(encoded({"a": 1}, MAX_ENCODINGS + 1))[0], dict)


@given(value=st.text() | st.from_regex(r'\s*["{\[]*\\*["}\]]*', fullmatch=True))
def test_read_arguments_accepts_any_text(value: str) -> None:
    args, repairs = read_arguments(value)
    assert isinstance(args, dict) or args == value or "malformed" not in repairs


def from_server(arguments: Any) -> ToolCall:
    content = ChatContent(["f"])
    piece = {"index": 0, "id": "a", "function": {"name": "f", "arguments": arguments}}
    list(content.feed({"delta": {"tool_calls": [piece]}}))
    [*content.end(), *content.close(truncated=False)]
    assert content.result is not None
    return content.result.calls[0]


def from_text(parameters: Any) -> ToolCall:
    raw = json.dumps({"name": "f", "parameters": parameters})
    return DIALECTS["json"].parse(raw).calls[0]


@check_rows(("value", "args", "repairs"), READ.values(), ids=READ)
def test_every_reader_of_calls_reads_the_same_arguments(
    value: Any, args: Any, repairs: tuple[str, ...]
) -> None:
    for call in (from_server(value), from_text(value)):
        assert call.args == args
        assert set(repairs) <= set(call.repairs)
