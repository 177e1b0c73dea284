"""Rules that resolve mentions of days and date ranges, shared by the languages. Pure.

Weeks begin on Monday (ISO 8601). An ambiguous mention resolves to the latest day up to today when
looking back, or to the first one to come when planning (`DateContext.ahead`).
"""

import re
import unicodedata
from calendar import monthrange
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, date, time, timedelta
from typing import TypeAlias

MAX_CHARS = 1_000
"""How many characters of a message are read."""
MAX_MENTIONS = 6
"""How many mentions are returned."""


def normalize_text(text: str) -> str:
    """Return the part of a message that is read, in NFC like the patterns."""
    return unicodedata.normalize("NFC", text[: 3 * MAX_CHARS])[:MAX_CHARS]


def lower_ascii(text: str) -> str:
    """Lower ASCII letters only, so that the length and all offsets stay the same."""
    return "".join(letter.lower() if letter.isascii() else letter for letter in text)


def any_of(patterns: str) -> str:
    """Return a group that matches any of some patterns, written with spaces between them."""
    return rf"(?:{'|'.join(patterns.split())})"


DAY = timedelta(days=1)
WEEK = 7 * DAY
MAX_PLAN = 92 * DAY
"""Longest range of a plan; a longer one is probably a misread."""
_MAX_DAYS = 3_660
"""Largest distance from today (ten years); a larger number does not mention a day."""

_NEAR = 200
"""How many characters before a match are searched for words that change its meaning."""

NIGHT_HOURS = (18, 19, 20, 21, 22, 23, 0, 1, 2, 3, 4)
TONIGHT_HOURS = (17, 18, 19, 20, 21, 22, 23, 0)
"""The hours that "night" and "tonight" may mean."""

Span: TypeAlias = tuple[date, date]
"""First and last day, both included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DateContext:
    """The current date, and whether the message plans (`ahead`) or looks back.

    `start` is the first day of the range whose last day is resolved. `after` is the day of a named
    month that a list of day numbers goes on from: "3 May, the 5th".
    """

    today: date
    ahead: bool
    start: date | None = None
    after: date | None = None

    @property
    def earliest(self) -> date | None:
        """The day to search forwards from; None to search backwards from today."""
        return self.start or (self.today if self.ahead else None)


Resolver: TypeAlias = Callable[[re.Match[str], DateContext], Span | None]
"""Resolves a match to days; None if it does not mention a day."""


@dataclass(frozen=True, slots=True)
class DateRule:
    """A pattern and its resolver. A day (`is_day`) can start or end a range.

    `ahead` is True for rules that apply only when planning ("in two days" may also be a duration),
    and False for rules that apply only when looking back. `is_bare` marks a weekday or number
    alone, which a week or month mentioned before it may shift. A match is dropped after
    `not_after` (which ends in `$`) and before `not_before`. The words of a rule that `blocks`
    mention no other day, even if it resolves to none ("30 February"). A rule that is not reported
    only limits the bare days after it ("in May").
    """

    pattern: re.Pattern[str]
    resolve: Resolver
    is_day: bool = True
    ahead: bool | None = None
    is_bare: bool = False
    blocks: bool = False
    is_reported: bool = True
    not_after: re.Pattern[str] | None = None
    not_before: re.Pattern[str] | None = None

    @property
    def is_number(self) -> bool:
        """Whether it is a day number without a month."""
        return self.pattern.groupindex.keys() - {"on"} == {"day"}

    def scope(self, days: Span | None) -> Span | None:
        """Return the week or month that it names, to which a bare day after it may belong."""
        groups = self.pattern.groupindex
        if "month" in groups or ("which" in groups and "day" in groups):
            return month_span(days[0], 0) if days else (date.max, date.max)
        if "which" not in groups or not days:
            return None
        monday = _monday(days[0])
        return monday, monday + min(6 * DAY, date.max - monday)

    def applies_to(self, context: DateContext) -> bool:
        """Return whether the rule applies when planning or looking back."""
        return self.ahead in {None, context.ahead}

    def fits(self, match: re.Match[str]) -> bool:
        """Return False if the surrounding text turns the match into another day, or none."""
        text = match.string
        begin = match.start()
        is_after = self.not_after and self.not_after.search(text, max(begin - _NEAR, 0), begin)
        is_before = self.not_before and self.not_before.match(text, match.end())
        return not (is_after or is_before)


@dataclass(frozen=True, slots=True)
class DayNames:
    """A language's names of weekdays (from Monday), weeks and days, with their distances.

    `days` returns the number of days in a match. The methods resolve patterns with the groups
    `weekday`, `which` and `near`.
    """

    weekdays: Sequence[str]
    weeks: Mapping[str, int]
    named_days: Mapping[str, int]
    days: Callable[[re.Match[str]], int]

    def named_day(self, match: re.Match[str], context: DateContext) -> Span | None:
        """A named day, such as "yesterday"."""
        return shift_days(context.today, self.named_days[match["near"]])

    def days_ago(self, match: re.Match[str], context: DateContext) -> Span | None:
        """The day a number of days before today."""
        return shift_days(context.today, -self.days(match))

    def days_ahead(self, match: re.Match[str], context: DateContext) -> Span | None:
        """The day a number of days after today."""
        return shift_days(context.today, self.days(match))

    def recent_days(self, match: re.Match[str], context: DateContext) -> Span | None:
        """A number of days that end today."""
        return recent_days(context.today, self.days(match))

    def weekday(self, match: re.Match[str], context: DateContext) -> Span:
        """A weekday alone: the latest up to today, or the first to come or in a range."""
        return single_day(
            _latest_weekday(context.today, self._number(match["weekday"]), context.earliest)
        )

    def previous_weekday(self, match: re.Match[str], context: DateContext) -> Span:
        """The latest such weekday before today."""
        return single_day(
            _latest_weekday(context.today - DAY, self._number(match["weekday"]), None)
        )

    def coming_weekday(self, match: re.Match[str], context: DateContext) -> Span | None:
        """The first such weekday to come; None on such a day, which may be meant or not."""
        number = self._number(match["weekday"])
        if context.today.weekday() == number:
            return None
        return single_day(_latest_weekday(context.today, number, context.today))

    def this_weekday(self, match: re.Match[str], context: DateContext) -> Span:
        """A weekday with "this": of this week, or when planning the first to come."""
        return (
            self.weekday(match, context) if context.ahead else self.weekday_of_week(match, context)
        )

    def weekday_of_week(self, match: re.Match[str], context: DateContext) -> Span:
        """A weekday of a named week."""
        return single_day(self._monday(match, context.today) + self._number(match["weekday"]) * DAY)

    def weekdays_of_week(self, match: re.Match[str], context: DateContext) -> Span | None:
        """From a weekday to another one (`until`) of a named week."""
        monday = self._monday(match, context.today)
        first = monday + self._number(match["weekday"]) * DAY
        last = monday + self._number(match["until"]) * DAY
        return (first, last) if first <= last else None

    def week(self, match: re.Match[str], context: DateContext) -> Span:
        """A named week; of the current one only the past or the coming part."""
        first = self._monday(match, context.today)
        if self.weeks[match["which"]] != 0:
            return first, first + 6 * DAY
        return (context.today, first + 6 * DAY) if context.ahead else (first, context.today)

    def weekend(self, match: re.Match[str], context: DateContext) -> Span:
        """The weekend of a named week; of the current one only the coming part when planning."""
        first = self._monday(match, context.today)
        if context.ahead and self.weeks[match["which"]] == 0:
            return max(first + 5 * DAY, context.today), first + 6 * DAY
        return first + 5 * DAY, first + 6 * DAY

    def weekday_span(self, match: re.Match[str], context: DateContext) -> Span | None:
        """From a weekday to another one (`until`); the first one resolves like one alone."""
        first = self.weekday(match, context)[0]
        last = _latest_weekday(first, self._number(match["until"]), first)
        return (first, last) if first < last else None

    def _number(self, weekday: str) -> int:
        return self.weekdays.index(weekday)

    def _monday(self, match: re.Match[str], today: date) -> date:
        return _monday(today) + self.weeks[match["which"]] * WEEK


def resolve_month_and_day(match: re.Match[str], context: DateContext) -> Span | None:
    """`month/day` as numbers, but not a fraction ("1/2 cup") or a score ("8/10")."""
    if _MEASURE.match(match.string, match.end()):
        return None
    if match["day"] in {"5", "10"} and _SCORES.search(match.string, 0, match.start()):
        return None
    is_part = match["month"] in _FRACTIONS.get(match["day"], ())
    if context.ahead and is_part and not _ON.search(match.string, 0, match.start()):
        return None
    return date_without_year(context, int(match["month"]), int(match["day"]))


_FRACTIONS = {"2": ("1",), "3": ("1", "2"), "4": ("1", "3")}
_ON = re.compile(r"\b(?:on|by|until) $")
_SCORES = re.compile(
    r"\b(?:rat|scor|mood|pain|energy|sleep|was|is|it|an?|점수|기분)[a-z]*(?:는|은)? $"
)
_MEASURE = re.compile(
    r"\s*(?:(?:days?|hours?|points?|would|done|점|정도|쯤|이상|분기|박자)\b|cups?\b|of\b|t(?:ea)?sp|t(?:able|b)sp|pints?\b|lit(?:er|re)s?\b|kg\b|lbs?\b"
    r"|(?:컵|개|모|큰술|작은술|스푼|병|봉지?|통|팩|쪽|마리|포기)(?![가-힣]))"
)


def resolve_day_number(match: re.Match[str], context: DateContext) -> Span | None:
    """A `day` number without a month: the latest up to today, or the first to come.

    None if a month that lacks the day would be skipped.
    """
    number = int(match["day"])
    if context.after:
        day = _calendar_day(context.after.year, context.after.month, number)
        return single_day(day) if day and day > context.after else None
    earliest = context.earliest
    month = (earliest or context.today).replace(day=1)
    day = _calendar_day(month.year, month.month, number)
    if day is None and earliest:
        return None
    if day is None or (day < earliest if earliest else day > context.today):
        month = (month + 32 * DAY if earliest else month - DAY).replace(day=1)
        day = _calendar_day(month.year, month.month, number)
    return single_day(day) if day else None


def resolve_coming_weekend(_match: re.Match[str], context: DateContext) -> Span | None:
    """The current or coming weekend; None on a Sunday, where it is ambiguous."""
    saturday = _monday(context.today) + 5 * DAY
    return (saturday, saturday + DAY) if context.today <= saturday else None


def resolve_month_range(match: re.Match[str], context: DateContext) -> Span | None:
    """From a `day` to another one (`until`) of a `month`; see `span_in_month`."""
    month, number = int(match["month"]), int(match["day"])
    return span_in_month(context, month, number, int(match["until"]))


def resolve_day_range(match: re.Match[str], context: DateContext) -> Span | None:
    """From a `day` number to a later one (`until`) without a month."""
    first = resolve_day_number(match, context)
    return first and span_in_month(context, first[0].month, first[0].day, int(match["until"]))


def resolve_nothing(_match: re.Match[str], _context: DateContext) -> Span | None:
    """No day, for words that a rule blocks."""
    return None


def named_month(context: DateContext, count: int) -> Span:
    """Return the month `count` months away; of this one only the past or the coming part."""
    first, last = month_span(context.today, count)
    if count == 0:
        return (context.today, last) if context.ahead else (first, context.today)
    return first, last


def resolve_last_two_days(_match: re.Match[str], context: DateContext) -> Span:
    """Yesterday and the day before."""
    return context.today - 2 * DAY, context.today - DAY


def single_day(day: date) -> Span:
    """Return the span of one day."""
    return day, day


def _monday(day: date) -> date:
    """Return the Monday of a day's week."""
    return day - day.weekday() * DAY


def recent_days(today: date, count: int) -> Span | None:
    """Return a number of days that end today."""
    return (today - (count - 1) * DAY, today) if 0 < count <= _MAX_DAYS else None


def shift_days(today: date, count: int) -> Span | None:
    """Return the day a number of days after today, or before it if negative."""
    return single_day(today + count * DAY) if abs(count) <= _MAX_DAYS else None


def month_span(today: date, count: int) -> Span:
    """Return the whole month a number of months after today's month.

    Raises:
        OverflowError: the month is outside the calendar.
    """
    year, month = divmod(today.year * 12 + today.month - 1 + count, 12)
    if not MINYEAR <= year <= MAXYEAR:
        raise OverflowError(f"The month {count} months from {today} is outside the calendar.")
    return date(year, month + 1, 1), date(year, month + 1, monthrange(year, month + 1)[1])


def day_in_month(month: Span, number: int) -> Span | None:
    """Return a day of a month, or None if the month is too short."""
    first, last = month
    return single_day(first.replace(day=number)) if 0 < number <= last.day else None


def shift_months(today: date, count: int) -> Span | None:
    """Return the day a number of months from today, capped at the month's last day."""
    if abs(count) > _MAX_DAYS // 30:
        return None
    first, last = month_span(today, count)
    return single_day(min(first + (today.day - 1) * DAY, last))


def _latest_weekday(today: date, weekday: int, start: date | None) -> date:
    """Return the latest such weekday up to today, or the first one from `start` on."""
    if start:
        return start + (weekday - start.weekday()) % 7 * DAY
    return today - (today.weekday() - weekday) % 7 * DAY


def date_of_year(today: date, year: int, month: int, number: int) -> Span | None:
    """Return a date, or None if it does not exist or is too far away."""
    day = _calendar_day(year, month, number)
    return single_day(day) if day and abs(day - today) <= _MAX_DAYS * DAY else None


def date_without_year(context: DateContext, month: int, number: int) -> Span | None:
    """Return a day of a month in the year that is nearest to today, or to come when planning.

    As the end of a range it is the first one after its start, unless that is too far away.
    """
    if context.start:
        return _date_after(context.start, context, month, number)
    years = range(
        context.today.year - 1, context.today.year + (9 if context.ahead else 2)
    )  # 29 February
    days = [day for year in years if (day := _calendar_day(year, month, number))]
    days = [day for day in days if day >= context.today] if context.ahead else days
    return single_day(min(days, key=lambda day: abs(day - context.today))) if days else None


def span_in_month(context: DateContext, month: int, number: int, until: int) -> Span | None:
    """Return a range of days of a month; when planning, None if it has begun already."""
    first = date_without_year(context, month, number)
    last = _calendar_day(first[0].year, month, until) if first else None
    if not first or not last or last <= first[0]:
        return None
    is_on = number < context.today.day <= until and month == context.today.month
    return None if context.ahead and is_on else (first[0], last)


def _date_after(start: date, context: DateContext, month: int, number: int) -> Span | None:
    """Return the first such day from the start of a range on."""
    days = (_calendar_day(year, month, number) for year in range(start.year, start.year + 9))
    day = next((day for day in days if day and day >= start), None)
    is_far = day and day.year > max(start.year, context.today.year) and day - start > MAX_PLAN
    return None if day is None or (is_far and not context.ahead) else single_day(day)


def _calendar_day(year: int, month: int, number: int) -> date | None:
    """Return a date, or None if it does not exist."""
    try:
        return date(year, month, number)
    except ValueError:
        return None


def resolve_time(part: range | tuple[int, ...], hour: int, minute: int) -> time | None:
    """Return the time that a 12- or 24-hour clock shows in a part of the day, or None."""
    hours = {hour % 12, hour % 12 + 12} if hour <= 12 else {hour}
    matches = [value for value in hours if value in part and value < 24]
    return time(matches[0], minute) if len(matches) == 1 and 0 <= minute < 60 else None
