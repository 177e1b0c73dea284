"""How texts and numbers are written for people: in a terminal, a report, a notebook.

Untrusted text is made safe for a terminal (`printable`): no escape sequences, no direction tricks.
Not an HTML escape: that is the business of who writes HTML.
"""

import unicodedata

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
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"  # noqa: PLR2004 - one byte


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


def megabytes(value: int | None) -> str:
    """Return a size of so many bytes, and a dash where none was told."""
    return NOTHING if value is None else f"{value / 1e6:,.0f} MB"


def seconds(value: float | None) -> str:
    """Return a duration with three figures, and a dash where none was measured."""
    return NOTHING if value is None else f"{number_of_seconds(value)} s"
