"""Bytes to events: whatever the network does to the chunks, the same data comes out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.models.http import EventStreamDecoder


def decoded(*chunks: bytes) -> list[str]:
    decoder = EventStreamDecoder()
    return [data for chunk in chunks for data in decoder.feed(chunk)]


@pytest.mark.parametrize(
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
        ("", []),
    ],
)
def test_data_lines_come_out_and_nothing_else(body: str, data: list[str]) -> None:
    assert decoded(body.encode()) == data


@given(
    lines=st.lists(
        st.sampled_from(
            ["data: 가나다", 'data: {"text": "\u2028 \\n"}', ": hi", "", "data:", "id: 1"]
        )
    ),
    sizes=st.lists(st.integers(1, 4)),
)
def test_the_place_of_the_cuts_does_not_matter(lines: list[str], sizes: list[int]) -> None:
    body = "".join(f"{line}\n" for line in lines).encode()
    chunks = []
    rest = body
    for size in sizes:
        chunks.append(rest[:size])
        rest = rest[size:]
    assert decoded(*chunks, rest) == decoded(body)


def test_a_line_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(UnicodeDecodeError):
        decoded(b"data: \xff\n")
