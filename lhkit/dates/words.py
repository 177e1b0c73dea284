"""What the wordings of days, spans and times share: a pattern, and what it means. Pure.

Weeks begin on Monday (ISO 8601). A wording that could mean several days is read as the latest that
is not yet to come, where people speak of what they did, or as the first to come, where they plan.
"""

import re
import unicodedata
from calendar import monthrange
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, date, time, timedelta
from typing import TypeAlias

MOST_LETTERS = 1_000
"""So much of a message is read."""
MOST_SAID = 6
"""So many wordings of it are told."""


def read_part(text: str) -> str:
    """Return the part of a message that is read, in NFC as the wordings are written."""
    return unicodedata.normalize("NFC", text[: 3 * MOST_LETTERS])[:MOST_LETTERS]


def lowered(text: str) -> str:
    """Return a text without ASCII capitals, of the same length: places stay what they are."""
    return "".join(letter.lower() if letter.isascii() else letter for letter in text)


DAY = timedelta(days=1)
WEEK = 7 * DAY
LONGEST_PLAN = 92 * DAY
"""Nobody plans a longer span; one that looks so may be another."""
_MOST_DAYS = 3_660
"""Further back than ten years nobody looks: a larger number is no wording of a day."""

NIGHT = (18, 19, 20, 21, 22, 23, 0, 1, 2, 3, 4)
TONIGHT = (17, 18, 19, 20, 21, 22, 23, 0)
"""The hours that may be called night, and tonight."""

Span: TypeAlias = tuple[date, date]
"""First and last day, both included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Who reads a wording: on which day, and whether people plan (`ahead`) or look back.

    `start` is the first day of the span that the wording ends.
    """

    today: date
    ahead: bool
    start: date | None = None

    @property
    def earliest(self) -> date | None:
        """The day from which on the first that fits is meant; None: the latest up to today is."""
        return self.start or (self.today if self.ahead else None)


Meaning: TypeAlias = Callable[[re.Match[str], Reader], Span | None]
"""Who reads a match, to the days; None: not a day."""


@dataclass(frozen=True, slots=True)
class Wording:
    """A pattern and what it means. A day (no span) can begin or end a span.

    `ahead` is True for what is read only where people plan, since "in two days" may be how long
    something took, and False for what is read only where they look back. `is_bare` is a weekday or
    a number alone, which a week or a month that was named before it may shift. It is not read
    after `not_after` (which ends in `$`) and before `not_before`.
    """

    pattern: re.Pattern[str]
    meaning: Meaning
    is_day: bool = True
    ahead: bool | None = None
    is_bare: bool = False
    not_after: re.Pattern[str] | None = None
    not_before: re.Pattern[str] | None = None

    @property
    def is_anchor(self) -> bool:
        """True if it names a week or a month, by which a bare day after it may be meant."""
        return not {"which", "month"}.isdisjoint(self.pattern.groupindex)

    def is_read(self, by: Reader) -> bool:
        """Return True if it is read by who plans, or looks back."""
        return self.ahead in {None, by.ahead}

    def fits(self, match: re.Match[str]) -> bool:
        """Return False if what stands around a match makes it another day, or none."""
        text = match.string
        is_after = self.not_after and self.not_after.search(text, 0, match.start())
        is_before = self.not_before and self.not_before.match(text, match.end())
        return not (is_after or is_before)


@dataclass(frozen=True, slots=True)
class Names:
    """How a language names weekdays, from Monday, weeks and days, by how far away they are.

    `days` reads how many days a match counts. The methods are meanings of patterns with the groups
    `weekday`, `which` and `near`.
    """

    weekdays: Sequence[str]
    weeks: Mapping[str, int]
    nearby: Mapping[str, int]
    days: Callable[[re.Match[str]], int]

    def near(self, match: re.Match[str], by: Reader) -> Span | None:
        """A day with a name of its own, such as yesterday."""
        return days_from(by.today, self.nearby[match["near"]])

    def ago(self, match: re.Match[str], by: Reader) -> Span | None:
        """So many days before today."""
        return days_from(by.today, -self.days(match))

    def to_come(self, match: re.Match[str], by: Reader) -> Span | None:
        """So many days after today."""
        return days_from(by.today, self.days(match))

    def lately(self, match: re.Match[str], by: Reader) -> Span | None:
        """So many days, the last of them today."""
        return last_days(by.today, self.days(match))

    def weekday(self, match: re.Match[str], by: Reader) -> Span:
        """A weekday alone: the latest up to today, or the first to come or in a span."""
        return on(_latest_weekday(by.today, self._number(match["weekday"]), by.earliest))

    def weekday_before(self, match: re.Match[str], by: Reader) -> Span:
        """The latest such weekday before today."""
        return on(_latest_weekday(by.today - DAY, self._number(match["weekday"]), None))

    def weekday_to_come(self, match: re.Match[str], by: Reader) -> Span:
        """A weekday that is called "this": of the week, or for who plans the first to come."""
        return self.weekday(match, by) if by.ahead else self.weekday_of_week(match, by)

    def weekday_of_week(self, match: re.Match[str], by: Reader) -> Span:
        """A weekday of a week that is named."""
        return on(self._monday(match, by.today) + self._number(match["weekday"]) * DAY)

    def weekdays_of_week(self, match: re.Match[str], by: Reader) -> Span | None:
        """From a weekday to another one (`until`) of a week that is named."""
        days = [self._number(match[group]) * DAY for group in ("weekday", "until")]
        first, last = (self._monday(match, by.today) + each for each in days)
        return (first, last) if first <= last else None

    def week(self, match: re.Match[str], by: Reader) -> Span:
        """A week that is named; of the present one, what is over of it, or what is to come."""
        first = self._monday(match, by.today)
        if self.weeks[match["which"]] != 0:
            return first, first + 6 * DAY
        return (by.today, first + 6 * DAY) if by.ahead else (first, by.today)

    def weekend(self, match: re.Match[str], by: Reader) -> Span:
        """The weekend of a week that is named; of the present one, what is to come of it."""
        first = self._monday(match, by.today)
        if by.ahead and self.weeks[match["which"]] == 0:
            return max(first + 5 * DAY, by.today), first + 6 * DAY
        return first + 5 * DAY, first + 6 * DAY

    def weekday_span(self, match: re.Match[str], by: Reader) -> Span | None:
        """From a weekday to another one (`until`), of which the first is read like one alone."""
        first = self.weekday(match, by)[0]
        last = _latest_weekday(first, self._number(match["until"]), first)
        return (first, last) if first < last else None

    def _number(self, weekday: str) -> int:
        return self.weekdays.index(weekday)

    def _monday(self, match: re.Match[str], today: date) -> date:
        return _monday(today) + self.weeks[match["which"]] * WEEK


def slashed(match: re.Match[str], by: Reader) -> Span | None:
    """`month` and `day` as numbers; no part of a cup."""
    if _MEASURE.match(match.string, match.end()):
        return None
    is_part = match["month"] in _FRACTIONS.get(match["day"], ())
    if by.ahead and is_part and not _ON.search(match.string, 0, match.start()):
        return None
    return date_without_year(by, int(match["month"]), int(match["day"]))


_FRACTIONS = {"2": ("1",), "3": ("1", "2"), "4": ("1", "3")}
_ON = re.compile(r"\b(?:on|by|until) $")
_MEASURE = re.compile(
    r"\s*(?:cups?\b|of\b|t(?:ea)?sp|t(?:able|b)sp|pints?\b|lit(?:er|re)s?\b|kg\b|lbs?\b"
    r"|(?:컵|개|모|큰술|작은술|스푼|병|봉지?|통|팩|쪽|마리|포기)(?![가-힣]))"
)


def numbered(match: re.Match[str], by: Reader) -> Span | None:
    """A `day` of a month that is not said: the latest up to today, or the first to come."""
    month = (by.earliest or by.today).replace(day=1)
    for _ in range(3):  # at most every other month lacks a day
        found = _calendar_day(month.year, month.month, int(match["day"]))
        if found and (found >= by.earliest if by.earliest else found <= by.today):
            is_skipped = by.start and found.day > by.start.day and found.month != by.start.month
            return None if is_skipped else on(found)  # June 30 to "the 31st"
        month = (month + 32 * DAY if by.earliest else month - DAY).replace(day=1)
    return None


def the_weekend(_match: re.Match[str], by: Reader) -> Span | None:
    """The weekend to come or begun; on a Sunday it may be this one or the next."""
    saturday = _monday(by.today) + 5 * DAY
    return (saturday, saturday + DAY) if by.today <= saturday else None


def days_of_month(match: re.Match[str], by: Reader) -> Span | None:
    """From a `day` to another one (`until`) of a `month`; where people plan, not one that is on."""
    month, number = int(match["month"]), int(match["day"])
    return span_of_month(by, month, number, int(match["until"]))


def days_numbered(match: re.Match[str], by: Reader) -> Span | None:
    """From a `day` to a later one (`until`) of a month that is not said."""
    first = numbered(match, by)
    return first and span_of_month(by, first[0].month, first[0].day, int(match["until"]))


def this_month(_match: re.Match[str], by: Reader) -> Span:
    """What is over of the present month, or what is to come of it."""
    if by.ahead:
        return by.today, month_away(by.today, 0)[1]
    return by.today.replace(day=1), by.today


def last_month(_match: re.Match[str], by: Reader) -> Span:
    """The whole month before."""
    return month_away(by.today, -1)


def next_month(_match: re.Match[str], by: Reader) -> Span:
    """The whole month to come."""
    return month_away(by.today, 1)


def last_two(_match: re.Match[str], by: Reader) -> Span:
    """Yesterday and the day before."""
    return by.today - 2 * DAY, by.today - DAY


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


def month_away(today: date, count: int) -> Span:
    """Return a whole month, so many away.

    Raises:
        OverflowError: it is before the first or after the last month of the calendar.
    """
    year, month = divmod(today.year * 12 + today.month - 1 + count, 12)
    if not MINYEAR <= year <= MAXYEAR:
        raise OverflowError(f"no month {count} away from {today}")
    return date(year, month + 1, 1), date(year, month + 1, monthrange(year, month + 1)[1])


def day_of(month: Span, number: int) -> Span | None:
    """Return a day of a whole month, or None if it has no such day."""
    first, last = month
    return on(first.replace(day=number)) if 0 < number <= last.day else None


def months_from(today: date, count: int) -> Span | None:
    """Return the day so many months away, the last of a month that is too short for it."""
    if abs(count) > _MOST_DAYS // 30:
        return None
    first, last = month_away(today, count)
    return on(min(first + (today.day - 1) * DAY, last))


def _latest_weekday(today: date, weekday: int, start: date | None) -> date:
    """Return the latest such day up to today, or the first one in a span that begins at `start`."""
    if start:
        return start + (weekday - start.weekday()) % 7 * DAY
    return today - (today.weekday() - weekday) % 7 * DAY


def date_in(today: date, year: int, month: int, number: int) -> Span | None:
    """Return a date, or None if the calendar has no such day, or the year is far away."""
    day = _calendar_day(year, month, number)
    return on(day) if day and abs(day - today) <= _MOST_DAYS * DAY else None


def date_without_year(by: Reader, month: int, number: int) -> Span | None:
    """Return that day of a month, the nearest to today; of those to come, if people plan.

    In a span it is the first one, unless that would be most of a year.
    """
    if by.start:
        return _date_in_span(by.start, by, month, number)
    years = range(by.today.year - 1, by.today.year + (9 if by.ahead else 2))  # 29 February
    days = [day for year in years if (day := _calendar_day(year, month, number))]
    days = [day for day in days if day >= by.today] if by.ahead else days
    return on(min(days, key=lambda day: abs(day - by.today))) if days else None


def span_of_month(by: Reader, month: int, number: int, until: int) -> Span | None:
    """Return the days from one to another of a month; where people plan, None if today is one."""
    first = date_without_year(by, month, number)
    last = _calendar_day(first[0].year, month, until) if first else None
    if not first or not last or last <= first[0]:
        return None
    is_on = number < by.today.day <= until and month == by.today.month
    return None if by.ahead and is_on else (first[0], last)


def _date_in_span(start: date, by: Reader, month: int, number: int) -> Span | None:
    """Return the first such day from the start of a span on."""
    days = (_calendar_day(year, month, number) for year in range(start.year, start.year + 9))
    day = next((day for day in days if day and day >= start), None)
    is_far = day and day.year > max(start.year, by.today.year) and day - start > LONGEST_PLAN
    return None if day is None or (is_far and not by.ahead) else on(day)


def _calendar_day(year: int, month: int, number: int) -> date | None:
    """Return a date, or None if the calendar has no such day."""
    try:
        return date(year, month, number)
    except ValueError:
        return None


def time_in_part(part: range | tuple[int, ...], hour: int, minute: int) -> time | None:
    """Return the time in a part of the day that an hour means, of 12 or of 24; None: in no such."""
    hours = {hour % 12, hour % 12 + 12} if hour <= 12 else {hour}
    meant = [each for each in hours if each in part and each < 24]
    return time(meant[0], minute) if len(meant) == 1 and 0 <= minute < 60 else None
