"""Decode server-sent events."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lhkit.base.json_values import parse_lenient
from lhkit.models.client.sse import EventStreamDecoder
from tests.rows import check_rows


def decoded(*chunks: bytes) -> list[str]:
    decoder = EventStreamDecoder()
    return [data for chunk in chunks for data in decoder.feed(chunk)]


@check_rows(
    ("body", "data"),
    [
        ("data: a\n\ndata: b\n\n", ["a", "b"]),
        ("data:a\n\n", ["a"]),
        ("data: a\r\n\r\n", ["a"]),
        (": keep-alive\n\ndata: a\n\n", ["a"]),
        ("event: ping\nid: 3\nretry: 5\ndata: a\n\n", ["a"]),
        ("data: 안녕\u2028\u0085하세요\n\n", ["안녕\u2028\u0085하세요"]),
        ("data: a\n\ndata: b", ["a"]),
        (" data: a\n\n", []),
        ("data: a\ndata: b\n\n", ["a\nb"]),
        ("data: a\nid: 1\n: hi\ndata: b\n\n", ["a\nb"]),
        ("data: a\r\rdata: b\r\r", ["a", "b"]),
        ("data: a\rdata: b\n\r\n", ["a\nb"]),
        ("data: a\n\r\ndata: b\r\n\n", ["a", "b"]),
        ("\ufeffdata: a\n\n", ["a"]),
        ("\ufeff: hi\n\ndata: a\n\n", ["a"]),
        ("\ufeff\ufeffdata: a\n\n", []),
        ("data: a\n\n\ufeffdata: b\n\n", ["a"]),
        ("data\n\n", [""]),
        ("data:\ndata:\n\n", ["\n"]),
        ("data:  a \n\n", [" a "]),
        ("data: a\n", []),
        ("database: a\n\n", []),
        ("event: error\n\ndata: a\n\n", ["a"]),
        ("event: error\nevent: ping\ndata: a\n\n", ["a"]),
        ("event: error\ndata: overloaded\n\ndata: a\n\n", ['{"error":"overloaded"}', "a"]),
        ('data: {"message": "과부하"}\nevent: error\n\n', ['{"error":{"message":"과부하"}}']),
        ('event: error\ndata: {"error": "x"}\n\n', ['{"error": "x"}']),
        ("event:error\r\ndata: [1\r\n\r\n", ['{"error":"[1"}']),
        ("", []),
    ],
)
def test_decoder_returns_data_lines_only(body: str, data: list[str]) -> None:
    assert decoded(body.encode()) == data


def reference(body: str) -> list[str]:
    """The standard's algorithm over the whole text (HTML, section 9.2.6), without error events."""
    text = body.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    data_of_events: list[str] = []
    data: list[str] = []
    for line in text.split("\n")[:-1]:
        name, _, value = line.partition(":")
        if name == "data":
            data.append(value.removeprefix(" "))
        if not line:
            data_of_events += ["\n".join(data)] if data else []
            data = []
    return data_of_events


LINES = st.sampled_from(
    [
        "data: a",
        'data: {"text": "\u2028 \u0085"}',
        "data:가나다",
        "data",
        "data:  b ",
        " data: c",
        ": data: d",
        "id: 1",
        "event: ping",
        "\ufeffdata: e",
        "",
        "",
        "",
    ]
)


@given(
    lines=st.lists(st.tuples(LINES, st.sampled_from(["\n", "\r", "\r\n"]))),
    rest=st.sampled_from(["", "data: cut"]),
    has_bom=st.booleans(),
    sizes=st.lists(st.integers(0, 5)),
)
def test_decoder_follows_the_standard_in_any_chunks(
    lines: list[tuple[str, str]], rest: str, sizes: list[int], *, has_bom: bool
) -> None:
    body = "\ufeff" * has_bom + "".join(line + end for line, end in lines) + rest
    chunks, left = [], body.encode()
    for size in sizes:
        chunks.append(left[:size])
        left = left[size:]
    assert decoded(*chunks, left) == reference(body)


def test_decoder_refuses_invalid_utf_8() -> None:
    with pytest.raises(UnicodeDecodeError):
        decoded(b"data: \xff\n")


JSON_TEXTS = st.recursive(
    st.sampled_from(["null", "true", "-0", "-0.0", "1e400", "NaN", "-Infinity", "01", "1.", "tru"])
    | st.integers().map(str)
    | st.integers(4_290, 4_310).map("7".__mul__)
    | st.floats(allow_nan=False, allow_infinity=False).map(repr)
    | st.text().map(lambda text: f'"{text}"')
    | st.text(alphabet=st.characters(), max_size=5).map(json.dumps)
    | st.sampled_from(['"\\ud83d"', '"\\ud83d\\ude00"', '"\\u00"', '"\\x"', '"\x00"', '"\ud800"']),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]")
        | st.lists(st.tuples(st.sampled_from("ab"), inner), max_size=3).map(
            lambda pairs: f"{{{', '.join(f'{json.dumps(key)}: {item}' for key, item in pairs)}}}"
        )
    ),
)


def outcome(parse: Callable[[str], Any], text: str) -> str:
    try:
        return f"{parse(text)!r}"
    except (ValueError, RecursionError) as error:
        return f"{type(error).__name__}: {error}"


@given(st.one_of(JSON_TEXTS, st.text(), JSON_TEXTS.map(" \ufeff".__add__)))
@example("[" * 300 + "]" * 300)
@example("[" * 100_000)
@example('{"a": 1, "b": 2, "a": 3}')
@example("\x0b1")
def test_lenient_json_is_that_of_the_standard_library(text: str) -> None:
    assert outcome(parse_lenient, text) == outcome(json.loads, text)
