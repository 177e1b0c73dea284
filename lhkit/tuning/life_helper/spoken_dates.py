"""How people name days and spans, and which days they mean. Pure.

Only wordings with one meaning are here. "Last Tuesday" is said when this week's Tuesday is still to
come or today, so that it can only be the one of the week before; "the last 3 days" end today.
"""

import calendar
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta

WEEKDAYS = {
    "ko": ("월요일", "화요일", "수요일", "목요일", "금요일", "토요일", "일요일"),
    "en": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
}
_KO_AGO = {2: "이틀 전", 3: "사흘 전", 4: "나흘 전", 7: "일주일 전"}
_EN_AGO = {2: "two days ago", 3: "three days ago", 4: "four days ago", 7: "a week ago"}
_DATED_BACK = (2, 3, 5, 8)
_SATURDAY = 5
_DAYS = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidDay:
    """A day in words: as an adverb ("on June 3") and as a noun ("June 3")."""

    text: str
    noun: str
    day: date


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidRange:
    """A span of days in words, both ends included."""

    text: str
    first: date
    last: date


def plain_day(day: date, locale: str) -> str:
    """Return a date without its year, as a person would read it."""
    if locale == "ko":
        return f"{day.month}월 {day.day}일"
    return f"{calendar.month_name[day.month]} {day.day}"


def past_days(today: date, locale: str) -> tuple[SaidDay, ...]:
    """Return the days before today that have a name."""
    return tuple(_korean_days(today) if locale == "ko" else _english_days(today))


def ranges(today: date, locale: str) -> tuple[SaidRange, ...]:
    """Return the spans that end today or before."""
    spans = _korean_ranges(today) if locale == "ko" else _english_ranges(today)
    return tuple(SaidRange(text=text, first=first, last=last) for text, first, last in spans)


def _korean_days(today: date) -> Iterator[SaidDay]:
    def said(text: str, day: date) -> SaidDay:
        return SaidDay(text=text, noun=text, day=day)

    for text, back in (("어제", 1), ("어제", 1), ("그저께", 2), ("그제", 2), ("그끄저께", 3)):
        yield said(text, today - back * _DAYS)
    for back, text in _KO_AGO.items():
        yield said(text, today - back * _DAYS)
    for back in (2, 3, 4, 5, 6):
        yield said(f"{back}일 전", today - back * _DAYS)
    for weekday, name in enumerate(WEEKDAYS["ko"]):
        before, this = _weekday(today, weekday)
        yield said(f"지난주 {name}", before)
        yield said(f"이번 주 {name}", this) if this < today else said(f"지난 {name}", before)
    for back in _DATED_BACK:
        day = today - back * _DAYS
        yield said(plain_day(day, "ko"), day)
        yield said(f"{day.month}/{day.day}", day)
        if day.month == today.month:
            yield said(f"{day.day}일", day)


def _english_days(today: date) -> Iterator[SaidDay]:
    def said(text: str, day: date, noun: str = "") -> SaidDay:
        return SaidDay(text=text, noun=noun or text, day=day)

    for text, back in (("yesterday", 1), ("yesterday", 1), ("the day before yesterday", 2)):
        yield said(text, today - back * _DAYS)
    for back, text in _EN_AGO.items():
        yield said(text, today - back * _DAYS)
    for weekday, name in enumerate(WEEKDAYS["en"]):
        before, this = _weekday(today, weekday)
        yield said(f"on {name} of last week", before, f"{name} of last week")
        if this < today:
            yield said(f"on {name} this week", this, f"{name} this week")
        else:
            yield said(f"last {name}", before)
    for back in _DATED_BACK:
        day = today - back * _DAYS
        yield said(f"on {plain_day(day, 'en')}", day, plain_day(day, "en"))
        if day.month == today.month:
            yield said(f"on the {_ordinal(day.day)}", day, f"the {_ordinal(day.day)}")


def _korean_ranges(today: date) -> Iterator[tuple[str, date, date]]:
    monday, before = _monday(today), _monday(today) - 7 * _DAYS
    yield "이번 주", monday, today
    yield "이번 주 월요일부터 오늘까지", monday, today
    yield "지난주", before, before + 6 * _DAYS
    yield "저번 주", before, before + 6 * _DAYS
    yield "지난주 월요일부터 일요일까지", before, before + 6 * _DAYS
    yield "지난주 월요일부터 금요일까지", before, before + 4 * _DAYS
    yield "지난주 월요일부터 오늘까지", before, today
    for count in (3, 5, 7, 10):
        yield f"최근 {count}일", today - (count - 1) * _DAYS, today
        yield f"오늘까지 {count}일간", today - (count - 1) * _DAYS, today
    yield "지난 3일", today - 2 * _DAYS, today
    yield "어제와 그저께", today - 2 * _DAYS, today - _DAYS
    yield "그저께부터 오늘까지", today - 2 * _DAYS, today
    yield "이번 달", today.replace(day=1), today
    yield "지난달", *_month_before(today)
    first, last = today - 9 * _DAYS, today - 2 * _DAYS
    yield f"{plain_day(first, 'ko')}부터 {plain_day(last, 'ko')}까지", first, last
    yield f"{plain_day(first, 'ko')}부터 오늘까지", first, today
    if today.weekday() > 1:
        yield "월요일부터 어제까지", monday, today - _DAYS
    if today.weekday() < _SATURDAY:
        yield "지난 주말", before + 5 * _DAYS, before + 6 * _DAYS


def _english_ranges(today: date) -> Iterator[tuple[str, date, date]]:
    monday, before = _monday(today), _monday(today) - 7 * _DAYS
    yield "this week", monday, today
    yield "last week", before, before + 6 * _DAYS
    yield "from Monday to Sunday last week", before, before + 6 * _DAYS
    yield "from Monday to Friday of last week", before, before + 4 * _DAYS
    yield "since Monday last week", before, today
    for count in (3, 5, 7, 10):
        yield f"in the past {count} days including today", today - (count - 1) * _DAYS, today
        yield f"over the last {count} days", today - (count - 1) * _DAYS, today
    yield "yesterday and the day before", today - 2 * _DAYS, today - _DAYS
    yield "this month", today.replace(day=1), today
    yield "last month", *_month_before(today)
    first, last = today - 9 * _DAYS, today - 2 * _DAYS
    yield f"from {plain_day(first, 'en')} to {plain_day(last, 'en')}", first, last
    yield f"since {plain_day(first, 'en')}", first, today
    if today.weekday() > 1:
        yield "from Monday to yesterday", monday, today - _DAYS
    if today.weekday() < _SATURDAY:
        yield "last weekend", before + 5 * _DAYS, before + 6 * _DAYS


def _monday(day: date) -> date:
    return day - day.weekday() * _DAYS


def _weekday(today: date, weekday: int) -> tuple[date, date]:
    """Return that weekday of the week before and of this week."""
    this = _monday(today) + weekday * _DAYS
    return this - 7 * _DAYS, this


def _month_before(day: date) -> tuple[date, date]:
    last = day.replace(day=1) - _DAYS
    return last.replace(day=1), last


def _ordinal(number: int) -> str:
    teens = range(11, 14)
    ending = "th" if number in teens else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
