"""What a wording of a day or a span is: a pattern, and the days it means. Pure.

Weeks begin on Monday (ISO 8601). A wording that could mean several days is read as the latest that
is not yet to come, since people mostly speak of what they did.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TypeAlias

DAY = timedelta(days=1)
WEEK = 7 * DAY
_MOST_DAYS = 3_660
"""Further back than ten years nobody looks: a larger number is no wording of a day."""

Span: TypeAlias = tuple[date, date]
"""First and last day, both included."""

Meaning: TypeAlias = Callable[[re.Match[str], date, date | None], Span | None]
"""(match, today, first day of the span that this ends or None) to the days; None: not a day."""


@dataclass(frozen=True, slots=True)
class Wording:
    """A pattern and what it means. A day (no span) can begin or end a span."""

    pattern: re.Pattern[str]
    meaning: Meaning
    is_day: bool = True


@dataclass(frozen=True, slots=True)
class Names:
    """How a language names weekdays, from Monday, and weeks, by how far away they are.

    The methods are meanings of patterns with the groups `weekday` and `which`.
    """

    weekdays: Sequence[str]
    weeks: Mapping[str, int]

    def weekday(self, match: re.Match[str], today: date, start: date | None) -> Span:
        """A weekday alone: the latest up to today, or the first one in a span."""
        return on(_latest_weekday(today, self._number(match["weekday"]), start))

    def weekday_before(self, match: re.Match[str], today: date, _start: date | None) -> Span:
        """The latest such weekday before today."""
        return on(_latest_weekday(today - DAY, self._number(match["weekday"]), None))

    def weekday_of_week(self, match: re.Match[str], today: date, _start: date | None) -> Span:
        """A weekday of a week that is named."""
        return on(self._monday(match, today) + self._number(match["weekday"]) * DAY)

    def weekdays_of_week(
        self, match: re.Match[str], today: date, _start: date | None
    ) -> Span | None:
        """From a weekday to another one (`until`) of a week that is named."""
        days = [self._number(match[group]) * DAY for group in ("weekday", "until")]
        first, last = (self._monday(match, today) + each for each in days)
        return (first, last) if first <= last else None

    def week(self, match: re.Match[str], today: date, _start: date | None) -> Span:
        """A week that is named; of the present one, what is over of it."""
        first = self._monday(match, today)
        return first, today if self.weeks[match["which"]] == 0 else first + 6 * DAY

    def weekend(self, match: re.Match[str], today: date, _start: date | None) -> Span:
        """The weekend of a week that is named."""
        first = self._monday(match, today)
        return first + 5 * DAY, first + 6 * DAY

    def _number(self, weekday: str) -> int:
        return self.weekdays.index(weekday)

    def _monday(self, match: re.Match[str], today: date) -> date:
        return _monday(today) + self.weeks[match["which"]] * WEEK


def slashed(match: re.Match[str], today: date, _start: date | None) -> Span | None:
    """`month` and `day` as numbers: the nearest such date."""
    return nearest_date(today, int(match["month"]), int(match["day"]))


def numbered(match: re.Match[str], today: date, start: date | None) -> Span | None:
    """A `day` of a month that is not said: the latest up to today, or the first in a span."""
    month = (start or today).replace(day=1)
    for _ in range(3):  # at most every other month lacks a day
        found = _calendar_day(month.year, month.month, int(match["day"]))
        if found and (found >= start if start else found <= today):
            return on(found)
        month = (month + 32 * DAY if start else month - DAY).replace(day=1)
    return None


def this_month(_match: re.Match[str], today: date, _start: date | None) -> Span:
    """What is over of the present month."""
    return today.replace(day=1), today


def last_month(_match: re.Match[str], today: date, _start: date | None) -> Span:
    """The whole month before."""
    last = today.replace(day=1) - DAY
    return last.replace(day=1), last


def last_two(_match: re.Match[str], today: date, _start: date | None) -> Span:
    """Yesterday and the day before."""
    return today - 2 * DAY, today - DAY


def on(day: date) -> Span:
    """Return the span of one day."""
    return day, day


def _monday(day: date) -> date:
    """Return the Monday of a day's week."""
    return day - day.weekday() * DAY


def last_days(today: date, count: int) -> Span | None:
    """Return so many days, the last of them today."""
    return (today - (count - 1) * DAY, today) if 0 < count <= _MOST_DAYS else None


def days_from(today: date, count: int) -> Span | None:
    """Return the day so many days away, to come if positive."""
    return on(today + count * DAY) if abs(count) <= _MOST_DAYS else None


def _latest_weekday(today: date, weekday: int, start: date | None) -> date:
    """Return the latest such day up to today, or the first one in a span that begins at `start`."""
    if start:
        return start + (weekday - start.weekday()) % 7 * DAY
    return today - (today.weekday() - weekday) % 7 * DAY


def date_in(year: int, month: int, number: int) -> Span | None:
    """Return a date, or None if the calendar has no such day."""
    day = _calendar_day(year, month, number)
    return on(day) if day else None


def nearest_date(today: date, month: int, number: int) -> Span | None:
    """Return that day of the year before, the present or the next one: the nearest to today."""
    years = (today.year - 1, today.year, today.year + 1)
    days = [day for year in years if (day := _calendar_day(year, month, number))]
    return on(min(days, key=lambda day: abs(day - today))) if days else None


def _calendar_day(year: int, month: int, number: int) -> date | None:
    """Return a date, or None if the calendar has no such day."""
    try:
        return date(year, month, number)
    except ValueError:
        return None
