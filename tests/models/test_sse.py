"""Decode server-sent events."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
