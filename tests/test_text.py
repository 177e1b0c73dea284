import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.text import printable


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("안녕 👨‍👩‍👧", "안녕 👨‍👩‍👧"),
        ("a\tb\nc", "a\tb\nc"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("y\rN", "y\\x0dN"),
        ("abc\u202edcba", "abc\\u202edcba"),
        ("\x9b2J", "\\x9b2J"),
    ],
)
def test_control_and_direction_characters_are_shown_not_obeyed(raw: str, shown: str) -> None:
    assert printable(raw) == shown


@given(st.text(st.characters(exclude_categories=())))
def test_no_text_can_move_the_cursor(text: str) -> None:
    assert not set(printable(text)) & {chr(code) for code in range(32)} - {"\n", "\t"}
