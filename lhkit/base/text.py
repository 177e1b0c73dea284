"""Format texts and numbers for people: in terminals, reports and notebooks.

`printable` makes untrusted text safe for a terminal: no control or direction characters. `visible`
is stricter, for text that a person decides by: no invisible characters. Neither escapes HTML.
"""

import re
import unicodedata
from itertools import chain

NOTHING = "–"
"""Shown in place of a missing number."""

SMALLEST_P = 0.001
"""Smaller p-values are shown as `< 0.001`."""

_UNSAFE_CATEGORIES = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_JOINERS = {"\u200c", "\u200d"}  # needed inside words and emoji


def printable(text: str) -> str:
    """Return `text` with control, format and direction characters shown as escapes."""
    return "\n".join(map(_printable_line, text.split("\n")))


def _printable_line(line: str) -> str:
    if line.isprintable():  # most lines
        return line
    return "".join(char if _is_safe(char) else _escaped(char) for char in line)


def _is_safe(char: str) -> bool:
    if char == "\t" or char in _JOINERS:
        return True
    return unicodedata.category(char) not in _UNSAFE_CATEGORIES


def _escaped(char: str) -> str:
    code = ord(char)
    if code > 0xFFFF:
        return f"\\U{code:08x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


# fonts define private use, and draw unassigned characters as they like
_INVISIBLE_CATEGORIES = _UNSAFE_CATEGORIES | {"Cn", "Co", "Zs"}
_BLANK = frozenset(
    map(
        chr,
        chain(
            # Default_Ignorable_Code_Point of Unicode 16, beyond the categories above
            *((0x034F,), (0x115F, 0x1160), (0x17B4, 0x17B5), range(0x180B, 0x1810), (0x2065,)),
            *((0x3164,), range(0xFE00, 0xFE10), (0xFFA0,), range(0xFFF0, 0xFFF9)),
            range(0xE0000, 0xE1000),
            # drawn as nothing by most fonts, though Unicode does not call them ignorable
            (0x2800, 0x2D7F, 0xFFFC, 0x1107F, 0x16FE4, 0x1D159),
            # noncharacters
            range(0xFDD0, 0xFDF0),
            *((plane + 0xFFFE, plane + 0xFFFF) for plane in range(0, 0x110000, 0x10000)),
        ),
    )
)
_STACKERS = frozenset(  # draw nothing, but join two letters of their script: Khmer, Burmese, …
    map(
        chr,
        (
            *(0x1039, 0x17D2, 0x1A60, 0x1BAB, 0xAAF6, 0x10A3F, 0x11133, 0x113D0, 0x1193E),
            *(0x11A47, 0x11A99, 0x11D45, 0x11D97, 0x11F42),
        ),
    )
)
_BLOCK = 7  # bits of a code point within a block of scripts
_PICTURE = (
    "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u27bf\u2900-\u297f\u2b00-\u2bff"
    "\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
)
_IN_EMOJI = (
    f"(?<={_PICTURE})\ufe0f|(?<=[0-9#*])\ufe0f(?=\u20e3)"
    f"|(?<={_PICTURE})\u200d(?={_PICTURE})|(?<={_PICTURE}\ufe0f)\u200d(?={_PICTURE})"
)
_NEW_EMOJI = re.compile("[\U0001f6d8-\U0001f6ff\U0001fa70-\U0001faff]")  # of a newer Unicode
_SUSPECT = "[^\n\x20-\x7e\uac00-\ud7a3]"
_SUSPECTS = re.compile(_SUSPECT)
_SUSPECTS_BUT_EMOJI = re.compile(f"(?P<emoji>{_IN_EMOJI})|{_SUSPECT}")


_UNSPACED = (
    r"(?![\p{Hangul}\p{Han}\p{Hiragana}\p{Katakana}\u30fc\p{Bopomofo}"
    r"\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}])"
)
LETTER = rf"(?:{_UNSPACED}[\p{{L}}\p{{M}}])"
"""A letter of a script with spaces between words, for `regex`; Korean has particles instead."""
LETTER_OR_DIGIT = rf"(?:{_UNSPACED}[\p{{L}}\p{{M}}\p{{N}}])"


def visible(text: str, *, keep_emoji: bool = False) -> str:
    """Return `text` with all invisible characters as escapes.

    Escaped are control and direction characters, all spaces but the ASCII one, zero-width and
    filler characters, joiners, variation selectors, tags, private use, and what Unicode has not
    assigned. Line feeds stay, and combining marks. Joiners are escaped also in scripts that use
    them (Persian, Hindi): two arguments that look the same are to be the same.

    Args:
        text: the text to show.
        keep_emoji: keep joiners and selectors within emoji; for prose, not for arguments.
    """
    if keep_emoji:
        return _SUSPECTS_BUT_EMOJI.sub(
            lambda match: match[0] if match["emoji"] else _visible_char(match), text
        )
    return _SUSPECTS.sub(_visible_char, text)


def _visible_char(match: re.Match[str]) -> str:
    char, before = match[0], match.string[max(0, match.start() - 1) : match.start()]
    if char in _STACKERS:
        joins = before != "" and ord(before) >> _BLOCK == ord(char) >> _BLOCK and before.isalpha()
        return char if joins else _escaped(char)
    category = unicodedata.category(char)
    if category == "Cn" and _NEW_EMOJI.match(char):
        return char
    is_invisible = char in _BLANK or category in _INVISIBLE_CATEGORIES
    return _escaped(char) if is_invisible else char


def is_whole(text: str) -> bool:
    """Return whether UTF-8 can encode a text: it has no surrogates, not even in pairs."""
    if text.isascii():
        return True
    try:
        text.encode()  # quicker than a search
    except UnicodeEncodeError:
        return False
    return True


def whole_unicode(text: str) -> str:
    """Return `text` with U+FFFD for each lone surrogate, which UTF-8 cannot encode."""
    if is_whole(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def one_line(text: str, *, max_chars: int) -> str:
    """Return `text` on one line, safe for a terminal, cut to `max_chars`."""
    line = " ".join(printable(text).split())
    return line if len(line) <= max_chars else f"{line[: max_chars - 1]}…"


def percent(share: float | None) -> str:
    """Return a share in percent; a dash for None."""
    return NOTHING if share is None else f"{share:.0%}"


def part_of(part: int, whole: int) -> str:
    """Return a count and its share, such as `3/4 75%`; a dash if `whole` is 0."""
    return f"{part}/{whole} {percent(part / whole)}" if whole else NOTHING


def percents(low: float, high: float) -> str:
    """Return the ends of an interval of shares in percent, such as `41–78`."""
    return f"{100 * low:.0f}–{100 * high:.0f}"


def points(difference: float, digits: int = 1) -> str:
    """Return a difference of two shares in percentage points, with its sign: `+3.1`."""
    return f"{100 * difference:+.{digits}f}"


def p_value(p: float) -> str:
    """Return a p-value with its relation, such as `= 0.032` or `< 0.001`."""
    return f"< {SMALLEST_P}" if p < SMALLEST_P else f"= {p:.3f}"


def number_of_seconds(value: float | None) -> str:
    """Return seconds with three figures, without the unit; a dash for None."""
    return NOTHING if value is None else f"{value:.3f}" if value < 1 else f"{value:.2f}"
