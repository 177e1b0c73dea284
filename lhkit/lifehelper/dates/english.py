"""English wordings of days and spans."""

import calendar
import re
from datetime import date

from lhkit.lifehelper.dates.words import (
    DAY,
    WEEK,
    Meaning,
    Span,
    Wording,
    calendar_day,
    day_of_month,
    days_from,
    last_days,
    latest_weekday,
    monday,
    month_before,
    nearest_date,
    on,
    week,
    weekday_before,
    weekend,
)

_WEEKDAYS = tuple(name.casefold() for name in calendar.day_name)
_MONTHS = tuple(name.casefold() for name in calendar.month_name)
_NUMBERS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen"),
)
_NEAR = {
    "today": 0,
    "yesterday": -1,
    "last night": -1,
    "day before yesterday": -2,
    "tomorrow": 1,
    "day after tomorrow": 2,
}
_WEEK_OF = {"this": 0, "last": -1, "next": 1}

_COUNT = rf"(?P<count>\d{{1,4}}|an?|{'|'.join(_NUMBERS[1:])})"
_WEEKDAY = rf"(?P<weekday>{'|'.join(_WEEKDAYS)})"
_MONTH = r"(?P<month>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}\.?"
_NUMBER = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?:,?\s+(?P<year>this year|last year))?"


def _count(said: str) -> int:
    if said.isdigit():
        return int(said)
    return 1 if said in {"a", "an"} else _NUMBERS.index(said)


def _near(match: re.Match[str], today: date, _start: date | None) -> Span | None:
    return days_from(today, _NEAR[match["near"].removeprefix("the ")])


def _ago(match: re.Match[str], today: date, _start: date | None) -> Span | None:
    each = 7 if match["unit"].startswith("week") else 1
    return days_from(today, -each * _count(match["count"]))


def _weekday_of_week(match: re.Match[str], today: date, _start: date | None) -> Span:
    first = monday(today) + _WEEK_OF[match["which"]] * WEEK
    return on(first + _WEEKDAYS.index(match["weekday"]) * DAY)


def _weekdays_of_week(match: re.Match[str], today: date, _start: date | None) -> Span | None:
    first = monday(today) + _WEEK_OF[match["which"]] * WEEK
    days = [first + _WEEKDAYS.index(match[name]) * DAY for name in ("weekday", "until")]
    return (days[0], days[1]) if days[0] <= days[1] else None


def _weekday_before(match: re.Match[str], today: date, _start: date | None) -> Span:
    return on(weekday_before(today, _WEEKDAYS.index(match["weekday"])))


def _weekday(match: re.Match[str], today: date, start: date | None) -> Span:
    return on(latest_weekday(today, _WEEKDAYS.index(match["weekday"]), start))


def _date(match: re.Match[str], today: date, _start: date | None) -> Span | None:
    month = next(i for i, name in enumerate(_MONTHS) if i and name.startswith(match["month"]))
    number = int(match["day"])
    if match["year"]:
        day = calendar_day(today.year - (match["year"] == "last year"), month, number)
    else:
        day = nearest_date(today, month, number)
    return on(day) if day else None


def _slashed(match: re.Match[str], today: date, _start: date | None) -> Span | None:
    day = nearest_date(today, int(match["month"]), int(match["day"]))
    return on(day) if day else None


def _number(match: re.Match[str], today: date, start: date | None) -> Span | None:
    day = day_of_month(today, int(match["day"]), start)
    return on(day) if day else None


def _week(match: re.Match[str], today: date, _start: date | None) -> Span:
    away = _WEEK_OF[match["which"]]
    first, last = week(today, away)
    return (first, today) if away == 0 else (first, last)


def _week_before_last(_match: re.Match[str], today: date, _start: date | None) -> Span:
    return week(today, -2)


def _last_two(_match: re.Match[str], today: date, _start: date | None) -> Span:
    return today - 2 * DAY, today - DAY


def _weekend(match: re.Match[str], today: date, _start: date | None) -> Span:
    return weekend(today, _WEEK_OF[match["which"]])


def _this_month(_match: re.Match[str], today: date, _start: date | None) -> Span:
    return today.replace(day=1), today


def _last_month(_match: re.Match[str], today: date, _start: date | None) -> Span:
    return month_before(today)


def _lately(match: re.Match[str], today: date, _start: date | None) -> Span | None:
    each = 7 if match["unit"].startswith("week") else 1
    return last_days(today, each * _count(match["count"] or "one"))


def _word(pattern: str, meaning: Meaning, *, is_day: bool = True) -> Wording:
    return Wording(re.compile(rf"\b(?:{pattern})(?!\w)"), meaning, is_day)


WORDINGS = (
    _word(rf"(?P<near>(?:the )?(?:{'|'.join(_NEAR)}))(?:,? (?:{'|'.join(_WEEKDAYS)}))?", _near),
    _word(rf"{_COUNT} (?P<unit>days?|weeks?) ago", _ago),
    _word(rf"{_WEEKDAY} (?:of )?(?P<which>this|last|next) week", _weekday_of_week),
    _word(rf"(?P<which>this|last|next) week(?:'s)? (?:on )?{_WEEKDAY}", _weekday_of_week),
    _word(rf"(?P<which>this|next) {_WEEKDAY}", _weekday_of_week),
    _word(rf"(?:last|past) {_WEEKDAY}", _weekday_before),
    _word(_WEEKDAY, _weekday),
    _word(rf"{_MONTH}\s+(?:the )?{_NUMBER}{_YEAR}", _date),
    _word(rf"{_NUMBER} (?:of )?{_MONTH}{_YEAR}", _date),
    _word(r"(?<![\d/.])(?P<month>\d{1,2})/(?P<day>\d{1,2})(?![\d/.])", _slashed),
    _word(r"the (?P<day>\d{1,2})(?:st|nd|rd|th)(?: of this month)?", _number),
    _word(
        rf"{_WEEKDAY} (?:to|until|till|through) (?P<until>{'|'.join(_WEEKDAYS)})"
        r" (?:of )?(?P<which>this|last|next) week",
        _weekdays_of_week,
        is_day=False,
    ),
    _word(r"(?P<which>this|last|next) week(?!'s)", _week, is_day=False),
    _word(r"yesterday and the day before(?! yesterday)", _last_two, is_day=False),
    _word(r"the week before last", _week_before_last, is_day=False),
    _word(r"(?P<which>this|last|next) weekend", _weekend, is_day=False),
    _word(r"this month", _this_month, is_day=False),
    _word(r"last month", _last_month, is_day=False),
    _word(
        rf"(?:(?:the |these )?(?:past|last) (?:{_COUNT} )(?P<unit>days|weeks)"
        r"(?: (?:including|counting) today)?)",
        _lately,
        is_day=False,
    ),
    _word(
        r"(?P<count>)(?:the past|(?:over|in|for|during) the last) (?P<unit>week)"
        r"(?: (?:including|counting) today)?",
        _lately,
        is_day=False,
    ),
)

BETWEEN = re.compile(r"\s*(?:to|until|till|through|and|up to|-|–|~)\s*(?:on )?(?:the )?")
"""Between the first and the last day of a span; `and` only after `between`."""

BEFORE = re.compile(r"\bsince (?:on )?(?:the )?$")
"""Before the first day of a span that ends today."""
