"""How texts and numbers are written for people: in a terminal, a report, a notebook.

Untrusted text is made safe for a terminal (`printable`): no escape sequences, no direction tricks.
Where a person decides by what they read, it is `visible`: no character without a look of its own.
Not an HTML escape: that is the business of who writes HTML.
"""

import re
import unicodedata
from itertools import chain

NOTHING = "–"
"""What stands where there is no number."""

SMALLEST_P = 0.001
"""A p-value below this is only said to be below it."""

_UNSAFE_CATEGORIES = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_JOINERS = {"\u200c", "\u200d"}  # needed inside words and emoji


def printable(text: str) -> str:
    """Return `text` with control, format and direction characters shown as escapes."""
    return "\n".join(map(_printable_line, text.split("\n")))


def _printable_line(line: str) -> str:
    if line.isprintable():  # the short way, for most lines
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


_INVISIBLE_CATEGORIES = _UNSAFE_CATEGORIES | {"Co", "Zs"}  # private use looks as its font likes
_BLANK = frozenset(
    map(
        chr,
        chain(
            # Default_Ignorable_Code_Point of Unicode 16, beyond the categories above
            *((0x034F,), (0x115F, 0x1160), (0x17B4, 0x17B5), range(0x180B, 0x1810), (0x2065,)),
            *((0x3164,), range(0xFE00, 0xFE10), (0xFFA0,), range(0xFFF0, 0xFFF9)),
            range(0xE0000, 0xE1000),
            # drawn as nothing by most fonts, though Unicode does not call them ignorable
            (0x2800, 0xFFFC, 0x16FE4, 0x1D159),
            # noncharacters
            range(0xFDD0, 0xFDF0),
            *((plane + 0xFFFE, plane + 0xFFFF) for plane in range(0, 0x110000, 0x10000)),
        ),
    )
)
_PICTURE = (
    "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u27bf\u2900-\u297f\u2b00-\u2bff"
    "\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
)
_IN_EMOJI = (
    f"(?<={_PICTURE})\ufe0f|(?<=[0-9#*])\ufe0f(?=\u20e3)"
    f"|(?<={_PICTURE})\u200d(?={_PICTURE})|(?<={_PICTURE}\ufe0f)\u200d(?={_PICTURE})"
)
_SUSPECT = "[^\n\x20-\x7e\uac00-\ud7a3]"
_SUSPECTS = re.compile(_SUSPECT)
_SUSPECTS_BUT_EMOJI = re.compile(f"(?P<emoji>{_IN_EMOJI})|{_SUSPECT}")


def visible(text: str, *, keep_emoji: bool = False) -> str:
    """Return `text` with every character that cannot be seen drawn as an escape.

    Escaped are control and direction characters, all spaces but the ASCII one, zero-width and
    filler characters, variation selectors, tags and private use. Line feeds stay.

    Args:
        text: what is shown.
        keep_emoji: leave the joiners and selectors inside of an emoji as they are. For prose: of
            an argument every letter counts.
    """
    if keep_emoji:
        return _SUSPECTS_BUT_EMOJI.sub(
            lambda found: found[0] if found["emoji"] else _seen(found[0]), text
        )
    return _SUSPECTS.sub(lambda found: _seen(found[0]), text)


def _seen(char: str) -> str:
    is_invisible = char in _BLANK or unicodedata.category(char) in _INVISIBLE_CATEGORIES
    return _escaped(char) if is_invisible else char


def whole_unicode(text: str) -> str:
    """Return text that UTF-8 can carry: half a surrogate pair, as JSON can hold, becomes U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def one_line(text: str, *, max_chars: int) -> str:
    """Return text on one line, safe for a terminal, cut if it is long."""
    line = " ".join(printable(text).split())
    return line if len(line) <= max_chars else f"{line[: max_chars - 1]}…"


def percent(share: float | None) -> str:
    """Return a share in percent, and a dash where there is none."""
    return NOTHING if share is None else f"{share:.0%}"


def part_of(part: int, whole: int) -> str:
    """Return a count and its share, such as `3/4 75%`; a dash where the whole is nothing."""
    return f"{part}/{whole} {percent(part / whole)}" if whole else NOTHING


def percents(low: float, high: float) -> str:
    """Return the ends of an interval of shares in percent, such as `41–78`."""
    return f"{100 * low:.0f}–{100 * high:.0f}"


def points(difference: float, digits: int = 1) -> str:
    """Return a difference of two shares in percentage points, with its sign."""
    return f"{100 * difference:+.{digits}f}"


def p_value(p: float) -> str:
    """Return a p-value with three digits and what it stands to it, such as `= 0.032`."""
    return f"< {SMALLEST_P}" if p < SMALLEST_P else f"= {p:.3f}"


def number_of_seconds(value: float | None) -> str:
    """Return a duration with three figures, without its unit: for a column of them."""
    return NOTHING if value is None else f"{value:.3f}" if value < 1 else f"{value:.2f}"


def seconds(value: float | None) -> str:
    """Return a duration with three figures, and a dash where none was measured."""
    return NOTHING if value is None else f"{number_of_seconds(value)} s"
