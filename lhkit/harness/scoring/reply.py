"""Whether a reply contains what it must, and nothing that it must not: words only. Pure.

Compared in NFC, case-folded, white space collapsed, without marks of emphasis, in plain
characters (straight quotes, ASCII digits and hyphens, nothing invisible). A phrase that begins or
ends with a digit is never found inside a longer number: "10" is not in "1,100", nor "5" in "-5".
A minus has no word and no number before it, so "-5" is not in "3-5". A number is the same with or
without separators of thousands (a comma, a no-break or thin space) and with or without cents of
zero: "1000" is in "$1,000.00"; an amount of money also without the last zero: "4.5" is in
"$4.50". A common space is no separator: "1 000" may be two. With `ignore: spaces` white space
does not count: "물 마시기" is "물마시기".
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from lhkit.harness.comparison import (
    MINUS_MARK,
    is_found,
    normalize_reply,
    remove_spaces,
    shorten_cents,
)
from lhkit.harness.scenario import ExpectedReply, ReplyPart

REPLY_BORDER = "\n\ue001\n"
"""Between the replies of a conversation that are searched together: no phrase goes across it."""


@lru_cache(maxsize=1024)
def reply_reasons(expected: ExpectedReply, reply: str) -> tuple[str, ...]:
    """Return what is wrong with the words of `reply`; empty if nothing is.

    Repeats, and mistakes that are tried, have many alike: they are looked at once.
    """
    said = _Said(reply, is_spaceless=expected.ignore == "spaces")
    return tuple(reason for part in (expected, *expected.all_of) for reason in said.lacks(part))


class _Said:
    """A reply, to be searched for words; without its white space if that does not count."""

    def __init__(self, reply: str, *, is_spaceless: bool) -> None:
        self._is_spaceless = is_spaceless
        straight = _straight(reply.replace(REPLY_BORDER, "\n"))
        self._straight = remove_spaces(straight) if is_spaceless else straight
        text = self._comparable(reply)
        self._texts = dict.fromkeys((text, shorten_cents(text)))

    def lacks(self, part: ReplyPart) -> Iterator[str]:
        """Yield what is wrong, in words."""
        yield from (f"the reply lacks {each!r}" for each in part.contains_all if each not in self)
        if part.contains_any and not any(each in self for each in part.contains_any):
            yield f"the reply has none of {', '.join(map(repr, part.contains_any))}"
        yield from (f"the reply says {each!r}" for each in part.excludes if each in self)
        pattern = part.matches
        if pattern is not None and not is_found(_straight(pattern), self._straight):
            yield f"the reply does not match /{part.matches}/"

    def __contains__(self, phrase: str) -> bool:
        wanted = self._comparable(phrase)
        before = _NOT_IN_NUMBER if wanted[:1].isdigit() else ""
        after = r"(?!\d|[.,]\d)" if wanted[-1:].isdigit() else ""
        expression = re.compile(before + re.escape(wanted) + after)
        return any(expression.search(text) for text in self._texts)

    def _comparable(self, text: str) -> str:
        told = normalize_reply(text)
        return remove_spaces(told) if self._is_spaceless else told


_NOT_IN_NUMBER = rf"(?<!\d)(?<!\d[.,])(?<!{MINUS_MARK})(?<!{MINUS_MARK}[$€£¥₩])"


def _straight(text: str) -> str:
    return text.replace("\u2019", "'")
