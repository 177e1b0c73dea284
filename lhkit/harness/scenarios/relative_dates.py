"""Dates relative to a scenario's day, such as `last friday`, `monthstart-1m`."""

import re
from calendar import monthrange
from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from difflib import get_close_matches
from typing import Any

from lhkit.base.errors import ScenarioError
from lhkit.harness.scenarios.issues import Issue, Path, did_you_mean

MAX_DAYS = 36_525
"""The largest distance of a relative date from today: a hundred years."""

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

_BASES = ["today", "yesterday", "tomorrow", "weekstart", "weekendstart", "monthstart", "monthend"]
_RELATIVE_DATE = re.compile(
    rf"(?P<base>{'|'.join(_BASES)}"
    rf"|(?:(?P<which>last|next) )?(?P<weekday>{'|'.join(WEEKDAYS)}))"
    r"(?:(?P<by>[+-]\d{1,5})(?P<unit>[dwm]))?"
)
_UNIT_DAYS = {"d": 1, "w": 7, "m": 31}
_EXAMPLES = "today, tomorrow-1w, last friday, monthstart-1m or YYYY-MM-DD"
_DATE_WORDS = (
    *_BASES,
    *(f"{which}{weekday}" for which in ("", "next ", "last ") for weekday in WEEKDAYS),
)


def date_error(expression: str) -> str | None:
    """Return why a text is neither an ISO nor a relative date, or None."""
    relative = _RELATIVE_DATE.fullmatch(expression)
    if relative is None:
        return None if _is_iso_date(expression) else f"must be {_EXAMPLES}"
    if abs(int(relative["by"] or 0)) * _UNIT_DAYS[relative["unit"] or "d"] > MAX_DAYS:
        return f"must be within {MAX_DAYS} days of today"
    return None


def _is_iso_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def resolve_date(expression: str, today: date | None) -> str:
    """Return the ISO date of an expression, an ISO or relative date as in `matchers.DateIs`.

    A shift by months into a shorter one gives its last day; `monthend-1m` is the last day of the
    month before.

    Raises:
        ScenarioError: the expression is relative and `today` is None, or the calendar ends
            before that date.
    """
    relative = _RELATIVE_DATE.fullmatch(expression)
    if relative is None:
        return expression
    if today is None:
        raise ScenarioError(f"date {expression!r} needs a clock: write world.now, or pass today=")
    try:
        by, unit = int(relative["by"] or 0), relative["unit"]
        if relative["base"] == "monthend" and unit == "m":
            return _last_day(_month_start(today, by)).isoformat()
        return _shift(_base_date(relative, today), by, unit).isoformat()
    except (OverflowError, ValueError) as error:
        raise ScenarioError(
            f"date {expression!r} is outside of the calendar when today is {today}"
        ) from error


def _base_date(relative: re.Match[str], today: date) -> date:
    """Return the date that an expression names before it is shifted."""
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
            return _last_day(today)
        case word:
            return today + timedelta(days={"yesterday": -1, "tomorrow": 1}.get(word, 0))


def _shift(day: date, by: int, unit: str | None) -> date:
    if unit != "m":
        return day + timedelta(days=by * _UNIT_DAYS[unit or "d"])
    last = _last_day(_month_start(day, by))
    return last.replace(day=min(day.day, last.day))


def _month_start(day: date, by: int) -> date:
    """Return the first day of the month a number of months after that of `day`."""
    year, month = divmod(day.year * 12 + day.month - 1 + by, 12)
    return date(year, month + 1, 1)


def _last_day(day: date) -> date:
    """Return the last day of the month of `day`."""
    return day.replace(day=monthrange(day.year, day.month)[1])


def resolve_dates(value: Any, today: date | None) -> Any:
    """Replace each relative `{date: …}` in plain data by its ISO date.

    Raises:
        ScenarioError: as `resolve_date`.
    """
    if isinstance(value, Mapping):
        expression = value.get("date") if len(value) == 1 else None
        if isinstance(expression, str) and _RELATIVE_DATE.fullmatch(expression):
            return resolve_date(expression, today)
        return {name: resolve_dates(item, today) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [resolve_dates(item, today) for item in value]
    return value


def misspelt_dates(value: Any, path: Path = ()) -> Iterator[Issue]:
    """Yield each `{date: …}` of plain data that looks like a misspelt relative date.

    A text that resembles no relative date, such as `TBD`, is an ordinary value.
    """
    if isinstance(value, Mapping):
        word = value.get("date") if len(value) == 1 else None
        if isinstance(word, str) and not _RELATIVE_DATE.fullmatch(word):
            if get_close_matches(word.lower(), _DATE_WORDS, n=1):
                yield Issue(
                    path,
                    f"date: {word!r} is not a relative date: write today, tomorrow-1w, last friday "
                    "or monthstart-1m, or YYYY-MM-DD without `date`"
                    f"{did_you_mean(word, _DATE_WORDS)}",
                )
            return
        for name, item in value.items():
            yield from misspelt_dates(item, (*path, name))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from misspelt_dates(item, (*path, index))
