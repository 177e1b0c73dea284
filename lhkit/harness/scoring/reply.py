"""Score of a reply: the phrases and patterns that it must (not) contain. Pure.

Texts compare in NFC, case-folded, with white space collapsed, without emphasis marks, in plain
characters (straight quotes, ASCII digits and hyphens, nothing invisible).

A phrase consists of whole words: "no" is not in "know", nor "sent" in "presented". `cancel*` with
an asterisk is the beginning of a word, and "n't" the end of one. Scripts without spaces between
words have no such edges, nor has Korean, where particles follow: "회의" is in "회의를".

A phrase that begins or ends with a digit is never found inside a longer number: "10" is not in
"1,100", nor "5" in "-5". A minus follows neither a word nor a number, so "-5" is not in "3-5".
Numbers compare by value: with or without thousands marks (a comma, an apostrophe, a no-break or
thin space; dots, where there are several or a decimal comma follows), with a decimal point or
comma, with or without zeros at the end: "1000" is in "$1,000.00", "1.5" in "1,50". "1.000" may be
one or a thousand and equals only itself. An ordinary space marks no thousands: "1 000" may be two
numbers.

With `ignore: spaces` white space does not count: "물 마시기" is "물마시기".
"""

from collections.abc import Iterator
from functools import lru_cache

import regex

from lhkit.base.text import LETTER
from lhkit.harness.scenarios.scenario import ExpectedReply, ReplyPart
from lhkit.harness.scenarios.values import (
    AS_WRITTEN_MARK,
    MINUS_MARK,
    decimals_by_value,
    is_found,
    normalize_reply,
    remove_spaces,
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
        self._text = normalize_reply(reply)
        self._by_value = decimals_by_value(self._text)

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
        wanted, is_stem = _wanted(phrase)
        return any(
            (self._is_spaceless or text in searched)  # most phrases do not occur: no expression
            and _expression(text, is_stem=is_stem, is_spaceless=self._is_spaceless).search(searched)
            for text, searched in (
                (wanted, self._text),
                (decimals_by_value(wanted), self._by_value),
            )
        )


_NO_DIGIT_BEFORE = (
    rf"(?<!\d)(?<!\d[.,])(?<![{MINUS_MARK}{AS_WRITTEN_MARK}])(?<!{MINUS_MARK}[$€£¥₩])"
)
_NO_DIGIT_AFTER = r"(?!\d|[.,]\d)"
_NO_LETTER_BEFORE = f"(?<!{LETTER})"
_NO_LETTER_AFTER = f"(?!{LETTER})"
_NOT_CONTRACTED = rf"(?!'t{_NO_LETTER_AFTER})"  # "can" is not in "can't"
_ANY_LETTER = regex.compile(r"\p{L}")


def without_asterisk(phrase: str) -> str:
    """Return the beginning of a word that a phrase such as `cancel*` stands for; else the phrase.

    `*now*` is an emphasised word, and `5*` a footnote.
    """
    stem = phrase.rstrip().removesuffix("*")
    is_stem = stem != phrase.rstrip() and "*" not in stem and _ANY_LETTER.match(stem[-1:])
    return stem if is_stem else phrase


@lru_cache(maxsize=4096)
def _wanted(phrase: str) -> tuple[str, bool]:
    """Return a phrase as it is written in a normalised reply, and whether it begins a word."""
    stem = without_asterisk(phrase)
    return normalize_reply(stem), stem != phrase


@lru_cache(maxsize=4096)
def _expression(text: str, *, is_stem: bool, is_spaceless: bool) -> "regex.Pattern[str]":
    """Return the expression that finds a normalised phrase."""
    spelled = _before(text) + _spelled(text, is_spaceless) + _after(text, is_stem)
    return regex.compile(spelled, regex.V1, cache_pattern=False)


def _before(phrase: str) -> str:
    if regex.match(r"[.,]?\d", phrase):
        return _NO_DIGIT_BEFORE
    if phrase.startswith("n't") or not regex.match(LETTER, phrase):
        return ""
    return _NO_LETTER_BEFORE


def _after(phrase: str, is_stem: bool) -> str:
    if is_stem:
        return ""
    if phrase[-1:].isdigit():
        return _NO_DIGIT_AFTER
    if regex.search(r"\d[.,]\Z", phrase):
        return r"(?!\d)"
    if not regex.match(LETTER, phrase[-1:]):
        return ""
    return _NO_LETTER_AFTER + (_NOT_CONTRACTED if phrase.endswith("n") else "")


def _spelled(phrase: str, is_spaceless: bool) -> str:
    if is_spaceless:
        return " *".join(map(regex.escape, remove_spaces(phrase)))
    return str(regex.escape(phrase))


def _straight(text: str) -> str:
    return text.replace("\u2019", "'")
