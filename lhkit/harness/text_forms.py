"""Texts as they are compared: case, white space, emphasis and the spelling of numbers.

A chain of digits with two or more of one separator is a list or a date, whose parts are numbers;
any other chain is one number.
"""

import re

from lhkit.tools.schema import nfc


def spaceless(text: str) -> str:
    """Return `text` without white space."""
    return "".join(text.split())


def folded(text: str) -> str:
    """Return `text` in NFC, case-folded, with white space collapsed."""
    return " ".join(nfc(nfc(text).casefold()).split())


_PLAIN_CHARACTERS = {
    **{code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)},  # full-width
    **dict.fromkeys(map(ord, "\u2010\u2011\u2212\ufe63"), "-"),
    **dict.fromkeys(map(ord, "\u2018\u2019\u201a\u201b"), "'"),
    **dict.fromkeys(map(ord, "\u201c\u201d\u201e\u201f"), '"'),
    **dict.fromkeys(map(ord, "\u00ad\u200b\u2060\ufeff"), None),  # nobody sees them
}
_EMPHASIS = re.compile(
    r"(?<!\d)(?P<mark>\*{1,3})(?=\S)(?P<starred>[^*\n]+)(?<=\S)(?P=mark)(?!\d)"
    r"|(?<!\w)(?P<line>_{1,2})(?=\S)(?P<lined>[^_\n]+)(?<=\S)(?P=line)(?!\w)"
    r"|(?P<ticks>`+)(?P<code>[^`\n]+)(?P=ticks)"
)


def words_shown(text: str) -> str:
    """Return a reply as a person reads it: without emphasis marks, in plain characters."""
    plain = text.translate(_PLAIN_CHARACTERS)
    return _EMPHASIS.sub(
        lambda found: found["starred"] or found["lined"] or found["code"] or "", plain
    )


_SEPARATOR = re.compile("[,\u00a0\u202f\u2009]")
_THOUSANDS = re.compile(
    rf"(?<!\d)(?<!\d[.,])[1-9]\d{{0,2}}(?P<by>{_SEPARATOR.pattern})\d{{3}}"
    r"(?:(?P=by)\d{3})*(?!\d|(?P=by)\d)"
)
_NO_CENTS = re.compile(r"(?<=\d)\.00(?!\.?\d)")
_MONEY = r"[$€£¥₩]"
_ROUND_CENTS = re.compile(
    rf"(?<={_MONEY})(\d+\.\d)0(?![.,]?\d)"
    rf"|\b(\d+\.\d)0(?=\s?(?:{_MONEY}|(?:dollar|euro|usd|eur)s?\b|달러|유로))",
    re.IGNORECASE,
)
_CHAIN = re.compile(r"\d+(?:[.,]\d+){2,}")
_MINUS = re.compile(r"(?<![\w.,)\]%-])-(?=[$€£¥₩]?\d)")  # no hyphen: no word or number before it
# Characters of private use: in no text, and no white space.
_PART_BORDER = "\ue000"
MINUS_MARK = "\ue002"


def plain_numbers(text: str) -> str:
    """Return a text with one spelling of a number: `1,000.00` is `1000`."""
    text = _MINUS.sub(MINUS_MARK, text)
    plain = _THOUSANDS.sub(lambda number: _SEPARATOR.sub("", number[0]), text)
    plain = _NO_CENTS.sub("", plain)
    return _CHAIN.sub(lambda chain: _parted(chain[0]), plain)


def _parted(chain: str) -> str:
    commas, dots = chain.count(","), chain.count(".")
    if not commas or (dots > 1 and commas > 1) or not dots:
        border = "," if commas else "."
        return chain.replace(border, border + _PART_BORDER)
    return chain


def comparable(text: str) -> str:
    """Return a text of a reply, or a phrase that it is searched for, as both are compared."""
    return folded(plain_numbers(words_shown(text)))


def with_short_cents(text: str) -> str:
    """Return a comparable text in which an amount of money is `4.5` for `4.50`."""
    return _ROUND_CENTS.sub(lambda amount: amount[1] or amount[2], text)
