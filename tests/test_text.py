import sys
import unicodedata
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.base.text import printable, visible
from tests.rows import check_rows


@check_rows(
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
def test_printable_escapes_control_and_direction_characters(raw: str, shown: str) -> None:
    assert printable(raw) == shown


@given(st.text(st.characters(exclude_categories=())))
def test_printable_never_moves_the_cursor(text: str) -> None:
    assert not set(printable(text)) & {chr(code) for code in range(32)} - {"\n", "\t"}


DEFAULT_IGNORABLE = (  # DerivedCoreProperties.txt of Unicode 16
    *((0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5)),
    *((0x180B, 0x180F), (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164)),
    *((0xFE00, 0xFE0F), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8)),
    *((0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF)),
)
CATEGORIES = {"Cc", "Cf", "Cn", "Cs", "Co", "Zl", "Zp", "Zs"}
NEW_EMOJI = {
    char
    for char in map(chr, chain(range(0x1F6D8, 0x1F700), range(0x1FA70, 0x1FB00)))
    if unicodedata.category(char) == "Cn"
}
STACKERS = {
    *"\u1039\u17d2\u1a60\u1bab\uaaf6",
    *map(chr, (0x10A3F, 0x11133, 0x113D0, 0x1193E, 0x11A47, 0x11A99, 0x11D45, 0x11D97, 0x11F42)),
}
"""Join letters of their script, and are drawn as nothing elsewhere."""
# Every code point up to the tags, and some of the large ranges that are all alike.
EVERY = {
    *map(chr, chain(range(0x20000), range(0xE0000, 0xE1000), range(0x20000, sys.maxunicode, 997))),
    *(
        chr(plane + last)
        for plane in range(0, sys.maxunicode, 0x10000)
        for last in (0xFFFE, 0xFFFF)
    ),
}
INVISIBLE = {
    *(char for char in EVERY if unicodedata.category(char) in CATEGORIES),
    *map(chr, chain.from_iterable(range(low, high + 1) for low, high in DEFAULT_IGNORABLE)),
    *"\u2800\ufffc\U0001d159\U00016fe4\ufffe\U0010ffff\ufdd0\u2d7f\U0001107f",
    *STACKERS,
} - {" ", "\n", *NEW_EMOJI}


@pytest.mark.longer
def test_visible_escapes_every_invisible_code_point_and_no_other() -> None:
    every = " ".join(EVERY)
    for keep_emoji in (False, True):
        assert visible("x".join(INVISIBLE), keep_emoji=keep_emoji).isascii()
    left = set(visible(every))
    assert not left & INVISIBLE
    assert set(every) - INVISIBLE <= left


@check_rows("code", [0x378, 0xE00, 0x2FE0, 0xFFFF, 0x2D7F, 0x1107F, 0xE000, 0x1FFFF])
def test_visible_escapes_unassigned_and_joining_characters(code: int) -> None:
    assert visible(f"a{chr(code)}b") == f"a{ascii(chr(code))[1:-1]}b"


@check_rows(
    "text",
    ["ខ្មែរ", "မြန်မာ၊ တက္ကသိုလ်", "ภาษาไทย", "हिन्दी क्षत्रिय", "العربية مُحَمَّد", "עִבְרִית", "தமிழ்",
     "ქართული", "e\u0301", "\U0001fae9", "🫠 ok"],
)  # fmt: skip
def test_visible_keeps_ordinary_scripts(text: str) -> None:
    assert visible(text) == text


@check_rows("text", ["a\u17d2b", "\u17d2", "ខ\u1039", "1\u1039", "می\u200cخواهم"])
def test_visible_escapes_joiners_out_of_their_script(text: str) -> None:
    assert "\\u" in visible(text)


@check_rows("text", ["bo\u200db", "a\ufe0f", "1\ufe0f", "❤\ufe0f\ufe0f", "\u200d👩"])
def test_visible_escapes_joiners_and_selectors_outside_of_an_emoji(text: str) -> None:
    assert "\\" in visible(text, keep_emoji=True)


@check_rows(
    "text", ["❤️ 좋아요", "👩🏽\u200d🚀 go!", "👨\u200d👩\u200d👧", "1️⃣", "🏳️\u200d🌈", "🙂\u200d↔️"]
)
def test_visible_keeps_emoji_only_on_request(text: str) -> None:
    assert visible(text, keep_emoji=True) == text
    assert "\\u" in visible(text)


@check_rows(
    "text",
    ["카페인 줄이기, 하루 2잔까지!", "naïve café “quoted” – 5°C €3", "👍 🇰🇷 漢字 ㅋㅋ", "a\n  b"],
)
def test_visible_leaves_ordinary_text_as_it_is(text: str) -> None:
    assert visible(text) == text


def test_visible_escapes_are_unambiguous_beyond_four_digits() -> None:
    assert visible("\U000e01000\u31640\xa00") == "\\U000e01000\\u31640\\xa00"
