"""What a wording of a day or a span is: a pattern, and the days it means. Pure.

Weeks begin on Monday (ISO 8601). A wording that could mean several days is read as the latest that
is not yet to come, since people mostly speak of what they did.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TypeAlias

DAY = timedelta(days=1)
WEEK = 7 * DAY
MOST_DAYS = 3_660
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


def on(day: date) -> Span:
    """Return the span of one day."""
    return day, day


def monday(day: date) -> date:
    """Return the Monday of a day's week."""
    return day - day.weekday() * DAY


def week(today: date, weeks: int) -> Span:
    """Return a whole week, `weeks` away from the present one."""
    first = monday(today) + weeks * WEEK
    return first, first + 6 * DAY


def weekend(today: date, weeks: int) -> Span:
    """Return the weekend of a week."""
    first, last = week(today, weeks)
    return first + 5 * DAY, last


def month_before(today: date) -> Span:
    """Return the whole month before the present one."""
    last = today.replace(day=1) - DAY
    return last.replace(day=1), last


def last_days(today: date, count: int) -> Span | None:
    """Return so many days, the last of them today."""
    return (today - (count - 1) * DAY, today) if 0 < count <= MOST_DAYS else None


def days_from(today: date, count: int) -> Span | None:
    """Return the day so many days away, to come if positive."""
    return on(today + count * DAY) if abs(count) <= MOST_DAYS else None


def latest_weekday(today: date, weekday: int, start: date | None) -> date:
    """Return the latest such day up to today, or the first one in a span that begins at `start`."""
    if start:
        return start + (weekday - start.weekday()) % 7 * DAY
    return today - (today.weekday() - weekday) % 7 * DAY


def weekday_before(today: date, weekday: int) -> date:
    """Return the latest such day before today."""
    return latest_weekday(today - DAY, weekday, None)


def day_of_month(today: date, number: int, start: date | None) -> date | None:
    """Return the latest such day up to today, or the first one in a span from `start`."""
    month = (start or today).replace(day=1)
    for _ in range(3):  # at most every other month lacks a day
        found = calendar_day(month.year, month.month, number)
        if found and (found >= start if start else found <= today):
            return found
        month = _next_month(month) if start else (month - DAY).replace(day=1)
    return None


def nearest_date(today: date, month: int, number: int) -> date | None:
    """Return that day of the year before, the present or the next one: the nearest to today."""
    years = (today.year - 1, today.year, today.year + 1)
    days = [day for year in years if (day := calendar_day(year, month, number))]
    return min(days, key=lambda day: abs(day - today), default=None)


def calendar_day(year: int, month: int, number: int) -> date | None:
    """Return a date, or None if the calendar has no such day."""
    try:
        return date(year, month, number)
    except ValueError:
        return None


def _next_month(first: date) -> date:
    return (first + 32 * DAY).replace(day=1)
