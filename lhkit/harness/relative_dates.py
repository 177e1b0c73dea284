"""Dates relative to the day of a scenario's clock, such as `last friday` or `monthstart-1m`."""

import re
from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from difflib import get_close_matches
from typing import Any

from lhkit.dates.rules import month_span
from lhkit.errors import ScenarioError
from lhkit.harness.faults import Fault, Path, did_you_mean

MOST_DAYS = 36_525
"""How far from today a relative date may be: a hundred years."""

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

_BASES = ["today", "yesterday", "tomorrow", "weekstart", "weekendstart", "monthstart", "monthend"]
_RELATIVE_DATE = re.compile(
    rf"(?P<base>{'|'.join(_BASES)}"
    rf"|(?:(?P<which>last|next) )?(?P<weekday>{'|'.join(WEEKDAYS)}))"
    r"(?:(?P<by>[+-]\d{1,5})(?P<unit>[dwm]))?"
)
_DAYS_OF = {"d": 1, "w": 7, "m": 31}
_DATES = "today, tomorrow-1w, last friday, monthstart-1m or YYYY-MM-DD"
_DAY_WORDS = (
    *_BASES,
    *(f"{which}{weekday}" for which in ("", "next ", "last ") for weekday in WEEKDAYS),
)


def day_fault(expression: str) -> str | None:
    """Return why a text is neither an ISO date nor one relative to today, or None."""
    relative = _RELATIVE_DATE.fullmatch(expression)
    if relative is None:
        return None if _is_iso_date(expression) else f"must be {_DATES}"
    if abs(int(relative["by"] or 0)) * _DAYS_OF[relative["unit"] or "d"] > MOST_DAYS:
        return f"must be within {MOST_DAYS} days of today"
    return None


def _is_iso_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def resolved_day(expression: str, today: date | None) -> str:
    """Return the ISO date that is meant by one, or by a day that is told from today.

    A relative one is `today`, `yesterday`, `tomorrow`; `weekstart` (this week's Monday),
    `weekendstart` (its Saturday, on a Sunday that day), `monthstart`, `monthend`;
    or a weekday: `friday` is today or the first one to come,
    `next friday` the first one after today, `last friday` the last one before it. Each may be
    moved by days, weeks or months (`today-1d`, `monday+2w`, `monthstart-1m`); a month without that
    day ends with its last one, and `monthend-1m` is the last day of the month before.

    Raises:
        ScenarioError: the expression is relative and `today` is None, or the calendar ends
            before that day.
    """
    relative = _RELATIVE_DATE.fullmatch(expression)
    if relative is None:
        return expression
    if today is None:
        raise ScenarioError(f"date {expression!r} needs a clock: write world.now, or pass today=")
    try:
        by, unit = int(relative["by"] or 0), relative["unit"]
        if relative["base"] == "monthend" and unit == "m":
            return month_span(today, by)[1].isoformat()
        return _moved(_base(relative, today), by, unit).isoformat()
    except (OverflowError, ValueError) as error:
        raise ScenarioError(
            f"date {expression!r}: from {today} on it is beyond the calendar"
        ) from error


def _base(relative: re.Match[str], today: date) -> date:
    """Return the day that an expression names before it is moved."""
    if relative["weekday"]:
        ahead = (WEEKDAYS.index(relative["weekday"]) - today.weekday()) % 7
        if relative["which"] == "last":
            ahead -= 7
        elif relative["which"] == "next":
            ahead = ahead or 7
        return today + timedelta(days=ahead)
    match relative["base"]:
        case "weekstart":
            return today - timedelta(days=today.weekday())
        case "weekendstart":
            return today + timedelta(days=max(0, WEEKDAYS.index("saturday") - today.weekday()))
        case "monthstart":
            return today.replace(day=1)
        case "monthend":
            return month_span(today, 0)[1]
        case word:
            return today + timedelta(days={"yesterday": -1, "tomorrow": 1}.get(word, 0))


def _moved(day: date, by: int, unit: str | None) -> date:
    if unit != "m":
        return day + timedelta(days=by * _DAYS_OF[unit or "d"])
    first, last = month_span(day, by)
    return min(first + timedelta(days=day.day - 1), last)


def dates_resolved(value: Any, today: date | None) -> Any:
    """Return plain data with the day in place of each `{date: …}` that is told from today.

    Raises:
        ScenarioError: as `resolved_day`.
    """
    if isinstance(value, Mapping):
        expression = value.get("date") if len(value) == 1 else None
        if isinstance(expression, str) and _RELATIVE_DATE.fullmatch(expression):
            return resolved_day(expression, today)
        return {name: dates_resolved(each, today) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [dates_resolved(each, today) for each in value]
    return value


def misspelt_days(value: Any, path: Path = ()) -> Iterator[Fault]:
    """Yield each `{date: …}` of plain data that `dates_resolved` does not know.

    A text that is near no word for a day, such as `TBD`, was not meant for one.
    """
    if isinstance(value, Mapping):
        word = value.get("date") if len(value) == 1 else None
        if isinstance(word, str) and not _RELATIVE_DATE.fullmatch(word):
            if get_close_matches(word.lower(), _DAY_WORDS, n=1):
                yield Fault(
                    path,
                    f"date: {word!r} is no day: write today, tomorrow-1w, last friday or "
                    "monthstart-1m, or YYYY-MM-DD without `date`"
                    f"{did_you_mean(word, _DAY_WORDS)}",
                )
            return
        for name, each in value.items():
            yield from misspelt_days(each, (*path, name))
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            yield from misspelt_days(each, (*path, number))
