"""Does a reply say what it must, and not what it must not? Pure; words only, no meaning.

Compared in NFC, case-folded, white space collapsed, a curly apostrophe as a straight one. A phrase
that begins or ends with a digit is never found inside a longer number: "10" is not in "1,100".
A number is the same with or without separators of thousands (a comma, a no-break or thin space) and
with or without cents of zero: "1000" is in "$1,000.00". A common space is none: "1 000" may be two.
"""

import re

from lhkit.harness.expectations.equality import folded
from lhkit.harness.expectations.pattern import Pattern
from lhkit.harness.scenarios.script import ExpectedReply


def reply_reasons(expected: ExpectedReply, reply: str) -> list[str]:
    """Return what is wrong with `reply`, in words; empty if nothing is."""
    told = _straight(reply)
    text = _comparable(reply)
    reasons = [f"the reply lacks {part!r}" for part in expected.contains_all if not _in(part, text)]
    if expected.contains_any and not any(_in(part, text) for part in expected.contains_any):
        reasons.append(f"the reply has none of {', '.join(map(repr, expected.contains_any))}")
    reasons += [f"the reply says {part!r}" for part in expected.excludes if _in(part, text)]
    if expected.matches is not None and not Pattern(_straight(expected.matches)).is_in(told):
        reasons.append(f"the reply does not match /{expected.matches}/")
    return reasons


def _in(phrase: str, text: str) -> bool:
    wanted = _comparable(phrase)
    before = r"(?<!\d)(?<!\d[.,])" if wanted[0].isdigit() else ""
    after = r"(?!\d|[.,]\d)" if wanted[-1].isdigit() else ""
    return re.search(before + re.escape(wanted) + after, text) is not None


def _comparable(text: str) -> str:
    plain = _THOUSANDS.sub(lambda number: _SEPARATOR.sub("", number[0]), _straight(text))
    return folded(_NO_CENTS.sub("", plain))


_SEPARATOR = re.compile("[,\u00a0\u202f\u2009]")
_THOUSANDS = re.compile(
    rf"(?<!\d)(?<!\d[.,])[1-9]\d{{0,2}}(?P<by>{_SEPARATOR.pattern})\d{{3}}"
    r"(?:(?P=by)\d{3})*(?!\d|(?P=by)\d)"
)
_NO_CENTS = re.compile(r"(?<=\d)\.00(?!\.?\d)")


def _straight(text: str) -> str:
    return text.replace("\u2019", "'")
