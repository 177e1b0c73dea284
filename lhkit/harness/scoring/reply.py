"""Score of a reply: the phrases and patterns that it must (not) contain. Pure.

Texts compare in NFC, case-folded, with white space collapsed, without emphasis marks, in plain
characters (straight quotes, ASCII digits and hyphens, nothing invisible). A phrase that begins or
ends with a digit is never found inside a longer number: "10" is not in "1,100", nor "5" in "-5".
A minus follows neither a word nor a number, so "-5" is not in "3-5". A number is the same with or
without thousands separators (a comma, a no-break or thin space) and with or without zero cents:
"1000" is in "$1,000.00"; an amount of money also without the last zero: "4.5" is in "$4.50". An
ordinary space does not separate thousands: "1 000" may be two numbers. With `ignore: spaces` white
space does not count: "물 마시기" is "물마시기".
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from lhkit.harness.scenario import ExpectedReply, ReplyPart
from lhkit.harness.values import (
    MINUS_MARK,
    is_found,
    normalize_reply,
    remove_spaces,
    shorten_cents,
)

REPLY_BORDER = "\n\ue001\n"
"""Separator of the replies of a conversation that are searched together; no phrase crosses it."""


@lru_cache(maxsize=1024)
def reply_reasons(expected: ExpectedReply, reply: str) -> tuple[str, ...]:
    """Return why `reply` differs from the expected one; empty if it fits.

    Cached, because repeats and mutations give many equal replies.
    """
    searched = _SearchedReply(reply, is_spaceless=expected.ignore == "spaces")
    return tuple(
        reason for part in (expected, *expected.all_of) for reason in searched.reasons(part)
    )


class _SearchedReply:
    """A normalised reply, in which phrases and patterns are searched."""

    def __init__(self, reply: str, *, is_spaceless: bool) -> None:
        self._is_spaceless = is_spaceless
        straight = _straight(reply.replace(REPLY_BORDER, "\n"))
        self._straight = remove_spaces(straight) if is_spaceless else straight
        text = self._normalize(reply)
        self._texts = dict.fromkeys((text, shorten_cents(text)))

    def reasons(self, part: ReplyPart) -> Iterator[str]:
        """Yield why the reply does not fit a part of the expectation."""
        for phrase in part.contains_all:
            if phrase not in self:
                yield f"the reply lacks {phrase!r}"
        if part.contains_any and not any(phrase in self for phrase in part.contains_any):
            yield f"the reply has none of {', '.join(map(repr, part.contains_any))}"
        for phrase in part.excludes:
            if phrase in self:
                yield f"the reply says {phrase!r}"
        pattern = part.matches
        if pattern is not None and not is_found(_straight(pattern), self._straight):
            yield f"the reply does not match /{part.matches}/"

    def __contains__(self, phrase: str) -> bool:
        wanted = self._normalize(phrase)
        if not (wanted[:1].isdigit() or wanted[-1:].isdigit()):
            return any(wanted in text for text in self._texts)
        before = _NOT_IN_NUMBER if wanted[:1].isdigit() else ""
        after = r"(?!\d|[.,]\d)" if wanted[-1:].isdigit() else ""
        expression = re.compile(before + re.escape(wanted) + after)
        return any(expression.search(text) for text in self._texts)

    def _normalize(self, text: str) -> str:
        normalized = normalize_reply(text)
        return remove_spaces(normalized) if self._is_spaceless else normalized


_NOT_IN_NUMBER = rf"(?<!\d)(?<!\d[.,])(?<!{MINUS_MARK})(?<!{MINUS_MARK}[$€£¥₩])"


def _straight(text: str) -> str:
    return text.replace("\u2019", "'")
