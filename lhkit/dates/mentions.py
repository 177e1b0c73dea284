"""The days and spans that a message names. Pure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache
from itertools import islice, zip_longest
from types import ModuleType

from lhkit.dates import english, korean
from lhkit.dates.words import LONGEST_PLAN, MOST_SAID, Reader, Span, Wording, lowered, read_part

_LANGUAGES: dict[str, ModuleType] = {"ko": korean, "en": english}


@dataclass(frozen=True, slots=True, kw_only=True)
class DateMention:
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
    is_told: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Last:
    """How a span ends: where its words do, and on which day.

    It is `shifted` if words after it make it another day. `alone` is the day without a beginning.
    """

    end: int
    day: date
    alone: date | None
    is_weekday: bool
    is_anchor: bool
    is_shifted: bool


def find_dates(
    text: str, today: date, locale: str, *, ahead: bool = False
) -> tuple[DateMention, ...]:
    r"""Return what a message says about days, in its order; a bare "today" is left out.

    Two days with a word like "to" between them are one span, "June 20 to 25" too; where people plan
    it begins at the first to come, ends at the first after that, and is not told if it may be
    another ("Friday to Friday"). To "move it from Monday to Tuesday" are two days.

    A small model copies a date more surely than it works one out: tell it these in the context of
    its assistant, `"\n".join([f"[Today: {today}]", *map(str, find_dates(message, today, "en"))])`.

    Only the first 1,000 letters are read, and at most six wordings returned.

    Args:
        text: what the user wrote.
        today: in the user's time zone.
        locale: `ko` or `en`; any other has no wordings.
        ahead: whether people plan: a day that may be several ("Friday", "3 May") is then today or
            the first to come; without it, the latest up to today, or the nearest to it.
    """
    return _said(read_part(text), today, locale, ahead)


@lru_cache(maxsize=1024)
def _said(read: str, today: date, locale: str, ahead: bool) -> tuple[DateMention, ...]:
    """Return what a text says. A run reads each line when it plans, and again when it plays."""
    language = _LANGUAGES.get(locale)
    if language is None:
        return ()
    text = lowered(read)
    if ahead:
        text = re.sub(r"\s", " ", text).replace("’", "'")
    spans = [*_joined(text, Reader(today=today, ahead=ahead), language)]
    spans = [*_unshifted(spans, text)] if ahead else spans
    told = [each for each in spans if each.is_told]
    kept = [each for each in told if not (each.is_day and each.days == (today, today))]
    said: dict[str, Span] = {}
    for each in kept:
        said.setdefault(read[each.begin : each.end], each.days)
    return tuple(
        DateMention(text=words, first=first, last=last)
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
    """Return the span from a day to another one that is said right after it.

    Where people plan, it is one that is not told if it cannot be decided which days are meant.
    """
    between = language.BETWEEN.match(text, found.end)
    if not between or (between["part"] and not by.ahead):
        return None
    if between["to"] == "and" and not text[: found.begin].endswith("between "):
        return None
    start = found.days[0]
    lasts = _lasts(text, between.end(), replace(by, start=start), language)
    last = max(lasts, key=lambda each: (each.end, each.day), default=None)
    if last is None or (by.ahead and language.is_move(text, found.begin, between, last.end)):
        return None
    whole = replace(
        found,
        end=last.end,
        days=(start, last.day),
        is_day=False,
        is_anchor=found.is_anchor or last.is_anchor,
    )
    if not by.ahead:
        return whole if start <= last.day else None
    if _is_two_days(found, last, has_part=bool(between["part"])):
        return None
    is_plan = start <= last.day <= start + LONGEST_PLAN and not last.is_shifted
    is_clear = start < last.day or not last.is_weekday  # Friday to Friday may be a week
    is_on = found.is_anchor and _is_on(text, whole, by, language)
    return replace(whole, is_told=is_plan and is_clear and not is_on)


def _lasts(text: str, at: int, by: Reader, language: ModuleType) -> Iterator[_Last]:
    """Yield the days that can end a span, said at this place, with a weekday before them or not."""
    named = language.NAMED.match(text, at)
    for begin in (at, named.end()) if named else (at,):
        for wording in (*language.WORDINGS, *language.LASTS):
            is_weekday = "weekday" in wording.pattern.groupindex
            if not (wording.is_day and wording.is_read(by)) or (begin != at and is_weekday):
                continue
            match = wording.pattern.match(text, begin)
            days = _meant(wording, match, by) if match else None
            if match and days and (wording.fits(match) or (by.ahead and is_weekday)):
                alone = _meant(wording, match, replace(by, start=None))
                yield _Last(
                    end=match.end(),
                    day=days[1],
                    alone=alone and alone[1],
                    is_weekday=is_weekday,
                    is_anchor=wording.is_anchor,
                    is_shifted=not wording.fits(match),
                )


def _is_two_days(found: _Found, last: _Last, *, has_part: bool) -> bool:
    """Return True if each of two days of a plan is surely meant, and no span that is told."""
    start = found.days[0]
    if last.is_shifted:
        return not found.is_bare
    if last.day < start:  # yesterday - the day before
        return not (found.is_bare or found.is_anchor)
    if last.day == start:  # Friday morning to Friday evening
        return has_part
    return last.day > start + LONGEST_PLAN and last.day == last.alone


def _is_on(text: str, whole: _Found, by: Reader, language: ModuleType) -> bool:
    """Return True if a span may have begun before today: "June 20 to 25", on the 22nd."""
    start, last = whole.days
    begun = _next(text, whole.begin, replace(by, ahead=False), language)
    if begun is None or begun.begin != whole.begin:
        return False
    return begun.days[0] < by.today <= last - (start - begun.days[0])


def _since(text: str, found: _Found, today: date, language: ModuleType) -> _Found | None:
    """Return the span from a day until today, if a word like "since" stands before the day."""
    before = language.BEFORE.search(text, 0, found.begin)
    if not before or not found.is_day or found.days[0] > today:
        return None
    return _Found(begin=before.start(), end=found.end, days=(found.days[0], today), is_day=False)
