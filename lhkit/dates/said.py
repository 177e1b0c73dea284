"""The days and spans that a message names. Pure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import lru_cache
from itertools import islice, zip_longest
from types import ModuleType

from lhkit.dates import english, korean
from lhkit.dates.words import MOST_LETTERS, MOST_SAID, Reader, Span, Wording, lowered

_LONGEST_PLAN = timedelta(days=92)
_LANGUAGES: dict[str, ModuleType] = {"ko": korean, "en": english}


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidDates:
    """Words that name a day or a span, and which days those are, both ends included.

    As a text it is what a model may copy: `friday = 2026-06-19`, `this week = 2026-06-15 ..
    2026-06-21`.
    """

    text: str
    first: date
    last: date

    def __str__(self) -> str:
        days = f"{self.first}" if self.first == self.last else f"{self.first} .. {self.last}"
        return f"{' '.join(self.text.split())} = {days}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    begin: int
    end: int
    days: Span
    is_day: bool
    is_bare: bool = False
    is_anchor: bool = False


def said_dates(
    text: str, today: date, locale: str, *, ahead: bool = False
) -> tuple[SaidDates, ...]:
    r"""Return what a message says about days, in its order; a bare "today" is left out.

    A small model copies a date more surely than it works one out: tell it these in the context of
    its assistant, `"\n".join([f"[Today: {today}]", *map(str, said_dates(message, today, "en"))])`.

    Only the first 1,000 letters are read, and at most six wordings returned.

    Args:
        text: what the user wrote.
        today: in the user's time zone.
        locale: `ko` or `en`; any other has no wordings.
        ahead: whether people plan: a day that may be several ("Friday", "3 May") is then today or
            the first to come; without it, the latest up to today, or the nearest to it.
    """
    return _said(text[:MOST_LETTERS], today, locale, ahead)


@lru_cache(maxsize=1024)
def _said(read: str, today: date, locale: str, ahead: bool) -> tuple[SaidDates, ...]:
    """Return what a text says. A run reads each line when it plans, and again when it plays."""
    language = _LANGUAGES.get(locale)
    if language is None:
        return ()
    text = lowered(read)
    if ahead:
        text = re.sub(r"\s", " ", text).replace("’", "'")
    spans = [*_joined(text, Reader(today=today, ahead=ahead), language)]
    spans = [*_unshifted(spans, text)] if ahead else spans
    kept = [each for each in spans if not (each.is_day and each.days == (today, today))]
    said: dict[str, Span] = {}
    for each in kept:
        said.setdefault(read[each.begin : each.end], each.days)
    return tuple(
        SaidDates(text=words, first=first, last=last)
        for words, (first, last) in islice(said.items(), MOST_SAID)
    )


def _unshifted(spans: Sequence[_Found], text: str) -> Iterator[_Found]:
    """Yield what is no weekday or number alone that other words about days may shift.

    Those are a week or a month that was named before ("다음 주 목요일을 금요일로"), and a date
    right beside it ("Friday, July 3").
    """
    named = False
    for found, after in zip_longest(spans, spans[1:]):
        is_beside = after is not None and _BESIDE.fullmatch(text, found.end, after.begin)
        if not (found.is_bare and (named or (is_beside and not after.is_bare))):
            yield found
        named = named or found.is_anchor


_BESIDE = re.compile(r"[ ,(]*(?:the )?")


def _joined(text: str, by: Reader, language: ModuleType) -> Iterator[_Found]:
    """Yield days and spans; two days with a word like "to" between them are one span."""
    at = 0
    while found := _next(text, at, by, language):
        if by.ahead and language.BEFORE.search(text, 0, found.begin):  # since Monday
            found = _next(text, found.begin, replace(by, ahead=False), language) or found
        whole = _until(text, found, by, language) if found.is_day else None
        whole = whole or _since(text, found, by.today, language) or found
        yield whole
        at = whole.end


def _next(text: str, at: int, by: Reader, language: ModuleType) -> _Found | None:
    """Return the first wording from `at` on, the longest of those that begin there."""
    begun = _all_from(text, at, by, language)
    return min(begun, key=lambda each: (each.begin, -each.end), default=None)


def _all_from(text: str, at: int, by: Reader, language: ModuleType) -> Iterator[_Found]:
    """Yield the first place of each wording from `at` on."""
    for wording in language.WORDINGS:
        if not wording.is_read(by):
            continue
        for match in wording.pattern.finditer(text, at):
            days = _meant(wording, match, by) if wording.fits(match) else None
            if days:
                yield _Found(
                    begin=match.start(),
                    end=match.end(),
                    days=days,
                    is_day=wording.is_day,
                    is_bare=wording.is_bare,
                    is_anchor=wording.is_anchor,
                )
                break


def _meant(wording: Wording, match: re.Match[str], by: Reader) -> Span | None:
    try:
        return wording.meaning(match, by)
    except OverflowError:  # before the first or after the last day of the calendar
        return None


def _until(text: str, found: _Found, by: Reader, language: ModuleType) -> _Found | None:
    """Return the span from a day to another one that is said right after it."""
    between = language.BETWEEN.match(text, found.end)
    if not between:
        return None
    if between[0].strip() == "and" and not text[: found.begin].endswith("between "):
        return None
    if by.ahead and language.MOVED.fullmatch(between[0]):
        return None
    start = found.days[0]
    ends = [
        (match.end(), days[1])
        for wording in language.WORDINGS
        if wording.is_day and wording.is_read(by)
        if (match := wording.pattern.match(text, between.end())) and wording.fits(match)
        if (days := _meant(wording, match, replace(by, start=start)))
    ]
    if not ends:
        return None
    end, last = max(ends)
    if last < start or (by.ahead and last - start > _LONGEST_PLAN):
        return None
    return _Found(begin=found.begin, end=end, days=(start, last), is_day=False)


def _since(text: str, found: _Found, today: date, language: ModuleType) -> _Found | None:
    """Return the span from a day until today, if a word like "since" stands before the day."""
    before = language.BEFORE.search(text, 0, found.begin)
    if not before or not found.is_day or found.days[0] > today:
        return None
    return _Found(begin=before.start(), end=found.end, days=(found.days[0], today), is_day=False)
