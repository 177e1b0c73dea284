"""English wordings of days and spans."""

import calendar
import re
from datetime import date

from lhkit.lifehelper.dates.words import (
    Meaning,
    Names,
    Span,
    Wording,
    date_in,
    days_from,
    last_days,
    last_month,
    last_two,
    nearest_date,
    numbered,
    slashed,
    this_month,
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
_NAMES = Names(_WEEKDAYS, {"this": 0, "last": -1, "next": 1, "the week before last": -2})

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


def _date(match: re.Match[str], today: date, _start: date | None) -> Span | None:
    month = next(i for i, name in enumerate(_MONTHS) if i and name.startswith(match["month"]))
    number = int(match["day"])
    if match["year"]:
        return date_in(today.year - (match["year"] == "last year"), month, number)
    return nearest_date(today, month, number)


def _lately(match: re.Match[str], today: date, _start: date | None) -> Span | None:
    each = 7 if match["unit"].startswith("week") else 1
    return last_days(today, each * _count(match["count"] or "one"))


def _word(pattern: str, meaning: Meaning, *, is_day: bool = True) -> Wording:
    return Wording(re.compile(rf"\b(?:{pattern})(?!\w)"), meaning, is_day)


WORDINGS = (
    _word(rf"(?P<near>(?:the )?(?:{'|'.join(_NEAR)}))(?:,? (?:{'|'.join(_WEEKDAYS)}))?", _near),
    _word(rf"{_COUNT} (?P<unit>days?|weeks?) ago", _ago),
    _word(rf"{_WEEKDAY} (?:of )?(?P<which>this|last|next) week", _NAMES.weekday_of_week),
    _word(rf"(?P<which>this|last|next) week(?:'s)? (?:on )?{_WEEKDAY}", _NAMES.weekday_of_week),
    _word(rf"(?P<which>this|next) {_WEEKDAY}", _NAMES.weekday_of_week),
    _word(rf"(?:last|past) {_WEEKDAY}", _NAMES.weekday_before),
    _word(_WEEKDAY, _NAMES.weekday),
    _word(rf"{_MONTH}\s+(?:the )?{_NUMBER}{_YEAR}", _date),
    _word(rf"{_NUMBER} (?:of )?{_MONTH}{_YEAR}", _date),
    _word(r"(?<![\d/.])(?P<month>\d{1,2})/(?P<day>\d{1,2})(?![\d/.])", slashed),
    _word(r"the (?P<day>\d{1,2})(?:st|nd|rd|th)(?: of this month)?", numbered),
    _word(
        rf"{_WEEKDAY} (?:to|until|till|through) (?P<until>{'|'.join(_WEEKDAYS)})"
        r" (?:of )?(?P<which>this|last|next) week",
        _NAMES.weekdays_of_week,
        is_day=False,
    ),
    _word(r"(?P<which>this|last|next) week(?!'s)", _NAMES.week, is_day=False),
    _word(r"yesterday and the day before(?! yesterday)", last_two, is_day=False),
    _word(r"(?P<which>the week before last)", _NAMES.week, is_day=False),
    _word(r"(?P<which>this|last|next) weekend", _NAMES.weekend, is_day=False),
    _word(r"this month", this_month, is_day=False),
    _word(r"last month", last_month, is_day=False),
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
