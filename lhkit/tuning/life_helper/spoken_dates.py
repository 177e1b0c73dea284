"""How people name days and spans, and which days they mean. Pure.

Worked out on its own, without the rules of `lifehelper.dates`: a test holds one against the other.

Only wordings with one meaning are here. "Last Tuesday" is said when this week's Tuesday is still to
come or today, so that it can only be the one of the week before; "the last 3 days" end today.
"""

import calendar
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from lhkit.lifehelper.dates.said import SaidDates

_WEEKDAYS = {
    "ko": ("월요일", "화요일", "수요일", "목요일", "금요일", "토요일", "일요일"),
    "en": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
}
_KO_AGO = {2: "이틀 전", 3: "사흘 전", 4: "나흘 전", 7: "일주일 전"}
_EN_AGO = {2: "two days ago", 3: "three days ago", 4: "four days ago", 7: "a week ago"}
_DATED_BACK = (2, 3, 5, 8)
_LONG_BACK = (12, 19, 33, 47)
_SATURDAY = 5
_DAYS = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidDay:
    """A day in words: as an adverb ("on June 3") and as a noun ("June 3")."""

    text: str
    noun: str
    day: date


def plain_day(day: date, locale: str) -> str:
    """Return a date without its year, as a person would read it."""
    if locale == "ko":
        return f"{day.month}월 {day.day}일"
    return f"{calendar.month_name[day.month]} {day.day}"


def short_day(day: date) -> str:
    """Return a date as digits, for enumerations."""
    return f"{day.month}/{day.day}"


def past_days(today: date, locale: str) -> tuple[SaidDay, ...]:
    """Return the days before today that have a name; the common ones more than once."""
    return tuple(_korean_days(today) if locale == "ko" else _english_days(today))


def ranges(today: date, locale: str) -> tuple[SaidDates, ...]:
    """Return the spans that end today or before."""
    spans = _korean_ranges(today) if locale == "ko" else _english_ranges(today)
    return tuple(SaidDates(text=text, first=first, last=last) for text, first, last in spans)


def _korean_days(today: date) -> Iterator[SaidDay]:
    def said(text: str, day: date) -> SaidDay:
        return SaidDay(text=text, noun=text, day=day)

    near = (("어제", 1),) * 5 + (("그저께", 2), ("그제", 2)) * 2 + (("그끄저께", 3),)
    ago = tuple((text, back) for back, text in _KO_AGO.items())
    counted = tuple((f"{back}일 전", back) for back in (2, 3, 4, 5, 6))
    for text, back in (*near, *ago, *counted):
        yield said(text, today - back * _DAYS)
    for weekday, name in enumerate(_WEEKDAYS["ko"]):
        before, this = _weekday(today, weekday)
        yield said(f"지난주 {name}", before)
        if weekday == today.weekday():
            yield said(f"한 주 전인 지난주 {name}", before)
        yield said(f"이번 주 {name}", this) if this < today else said(f"지난 {name}", before)
    yield from (said(text, day) for text, day in _korean_dates(today))


def _korean_dates(today: date) -> Iterator[tuple[str, date]]:
    for back in _DATED_BACK:
        day = today - back * _DAYS
        yield plain_day(day, "ko"), day
        yield short_day(day), day
        if day.month == today.month:
            yield f"{day.day}일", day
    for back in _LONG_BACK:
        day = today - back * _DAYS
        year = "올해 " if day.year == today.year else ""
        yield year + plain_day(day, "ko"), day


def _english_days(today: date) -> Iterator[SaidDay]:
    near = (("yesterday", 1),) * 5 + (("the day before yesterday", 2),) * 4
    ago = tuple((text, back) for back, text in _EN_AGO.items())
    for text, back in (*near, *ago):
        yield SaidDay(text=text, noun=text, day=today - back * _DAYS)
    for weekday, name in enumerate(_WEEKDAYS["en"]):
        before, this = _weekday(today, weekday)
        yield _on(f"{name} of last week", before)
        if this < today:
            yield _on(f"{name} this week", this)
        else:
            yield SaidDay(text=f"last {name}", noun=f"last {name}", day=before)
    for back in _DATED_BACK:
        day = today - back * _DAYS
        yield _on(plain_day(day, "en"), day)
        if day.month == today.month:
            yield _on(f"the {_ordinal(day.day)}", day)
    for back in _LONG_BACK:
        day = today - back * _DAYS
        year = " this year" if day.year == today.year else ""
        yield _on(f"{calendar.month_name[day.month]} {_ordinal(day.day)}{year}", day)


def _on(noun: str, day: date) -> SaidDay:
    return SaidDay(text=f"on {noun}", noun=noun, day=day)


def _korean_ranges(today: date) -> Iterator[tuple[str, date, date]]:
    monday, before = _monday(today), _monday(today) - 7 * _DAYS
    this_week = ("이번 주", "이번 주 월요일부터 오늘까지", "이번 주 오늘까지")
    yield from _alike(this_week, monday, today)
    yield f"{monday.day}일 월요일부터 오늘까지", monday, today
    last_week = ("지난주", "저번 주", "지난주 전체", "지난주 월요일부터 일요일까지")
    yield from _alike(last_week, before, before + 6 * _DAYS)
    yield "지난주 월요일부터 금요일까지", before, before + 4 * _DAYS
    yield "지난주 월요일부터 오늘까지", before, today
    yield "지지난주", before - 7 * _DAYS, before - _DAYS
    for count in (3, 5, 7, 10):
        both = (f"최근 {count}일", f"오늘까지 {count}일간")
        yield from _alike(both, today - (count - 1) * _DAYS, today)
    yield from _alike(("최근 일주일", "오늘까지 일주일"), today - 6 * _DAYS, today)
    yield "지난 3일", today - 2 * _DAYS, today
    yield "어제와 그저께", today - 2 * _DAYS, today - _DAYS
    yield "그저께부터 오늘까지", today - 2 * _DAYS, today
    this_month = ("이번 달", "이달", "이번 달 1일부터 오늘까지")
    yield from _alike(this_month, today.replace(day=1), today)
    yield "지난달", *_month_before(today)
    first, last = today - 9 * _DAYS, today - 2 * _DAYS
    yield f"{plain_day(first, 'ko')}부터 {plain_day(last, 'ko')}까지", first, last
    yield f"{plain_day(first, 'ko')}부터 오늘까지", first, today
    if today.weekday():
        yield "월요일부터 오늘까지", monday, today
    if today.weekday() > 1:
        yield "월요일부터 어제까지", monday, today - _DAYS
    if today.weekday() < _SATURDAY:
        yield "지난 주말", before + 5 * _DAYS, before + 6 * _DAYS


def _english_ranges(today: date) -> Iterator[tuple[str, date, date]]:
    monday, before = _monday(today), _monday(today) - 7 * _DAYS
    this_week = ("this week", "so far this week", "this week up to today")
    yield from _alike(this_week, monday, today)
    last_week = ("last week", "in the whole of last week", "from Monday to Sunday last week")
    yield from _alike(last_week, before, before + 6 * _DAYS)
    yield "from Monday to Friday of last week", before, before + 4 * _DAYS
    yield "since Monday last week", before, today
    yield "the week before last", before - 7 * _DAYS, before - _DAYS
    for count in (3, 5, 7, 10):
        both = (f"in the past {count} days including today", f"over the last {count} days")
        yield from _alike(both, today - (count - 1) * _DAYS, today)
    seven = ("over the last seven days counting today", "over the past week including today")
    yield from _alike(seven, today - 6 * _DAYS, today)
    yield "yesterday and the day before", today - 2 * _DAYS, today - _DAYS
    this_month = ("this month", "so far this month", "since the 1st of this month")
    yield from _alike(this_month, today.replace(day=1), today)
    yield "last month", *_month_before(today)
    first, last = today - 9 * _DAYS, today - 2 * _DAYS
    yield f"from {plain_day(first, 'en')} to {plain_day(last, 'en')}", first, last
    yield f"since {plain_day(first, 'en')}", first, today
    if today.weekday():
        yield from _alike(("since Monday", "from Monday until today"), monday, today)
    if today.weekday() > 1:
        yield "from Monday to yesterday", monday, today - _DAYS
    if today.weekday() < _SATURDAY:
        yield "last weekend", before + 5 * _DAYS, before + 6 * _DAYS


def _alike(texts: Sequence[str], first: date, last: date) -> Iterator[tuple[str, date, date]]:
    """Yield wordings of one span."""
    return ((text, first, last) for text in texts)


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
