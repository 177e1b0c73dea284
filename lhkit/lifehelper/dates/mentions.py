"""Find the days and date ranges that a message mentions. Pure."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache
from importlib import import_module
from types import ModuleType

from lhkit.lifehelper.dates.rules import (
    MAX_MENTIONS,
    MAX_PLAN,
    WEEK,
    DateContext,
    DateRule,
    Span,
    lower_ascii,
    normalize_text,
    shift_days,
)

_LANGUAGES = {"ko": "lhkit.lifehelper.dates.korean", "en": "lhkit.lifehelper.dates.english"}
"""Modules that are imported when needed: they compile their patterns, in 0.1 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DateMention:
    """Words that name a day or a date range; `first` and `last` are both included.

    As a string it has the form that a model may copy: `friday = 2026-06-19`, `this week =
    2026-06-15 .. 2026-06-21`.
    """

    text: str
    first: date
    last: date

    def __str__(self) -> str:
        days = f"{self.first}" if self.first == self.last else f"{self.first} .. {self.last}"
        return f"{' '.join(self.text.split())} = {days}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A match of a rule or range, from `begin` to `end` in the text; see `DateRule` for flags.

    `scope` is the week or month that it names.
    """

    begin: int
    end: int
    days: Span
    is_day: bool
    rule: DateRule | None = None
    is_bare: bool = False
    scope: Span | None = None
    is_certain: bool = True

    @property
    def is_number(self) -> bool:
        """Whether it is a day number without a month."""
        return self.rule is not None and self.rule.is_number


@dataclass(frozen=True, slots=True, kw_only=True)
class _RangeEnd:
    """The last day of a range, and where its words end.

    `alone` is the day that the words mean without a first day. It is `shifted` if the surrounding
    words refer to another day.
    """

    end: int
    day: date
    alone: date | None
    is_weekday: bool
    scope: Span | None
    is_shifted: bool


def find_dates(
    text: str, today: date, locale: str, *, ahead: bool = False
) -> tuple[DateMention, ...]:
    r"""Return the days and date ranges that a message mentions, in order, without a bare "today".

    What is not certain is left out: durations ("3 days"), days of an unknown week ("the following
    Friday") or event ("the day before the exam"), days that do not exist.

    Two days joined by a word like "to" are one range, also "June 20 to 25". With `ahead`, a range
    starts at the first day to come and ends at the first one after that; an ambiguous range
    ("Friday to Friday") is left out. "Move it from Monday to Tuesday" mentions two days.

    Small models copy a date more reliably than they compute one, so the mentions belong into the
    assistant's context:
    `"\n".join([f"[Today: {today}]", *map(str, find_dates(message, today, "en"))])`.

    Only the first 1,000 characters are read, and at most six mentions returned.

    Args:
        text: the user's message.
        today: the current date in the user's time zone.
        locale: `ko` or `en`; other locales have no rules and return nothing.
        ahead: resolve an ambiguous day ("Friday", "3 May") to today or the first one to come, for
            planning; by default to the latest one up to today, or the nearest to it.
    """
    return _find_dates(normalize_text(text), today, locale, ahead)


@lru_cache(maxsize=1024)  # a run reads each message when it plans and again when it replays
def _find_dates(original: str, today: date, locale: str, ahead: bool) -> tuple[DateMention, ...]:
    if locale not in _LANGUAGES:
        return ()
    language = import_module(_LANGUAGES[locale])
    text = lower_ascii(original)
    if ahead:
        text = re.sub(r"\s", " ", text).replace("’", "'")
    candidates = _find_candidates(text, DateContext(today=today, ahead=ahead), language)
    spans: dict[str, Span] = {}
    for candidate in _drop_shifted(candidates, text, ahead=ahead):
        is_today = candidate.is_day and candidate.days == (today, today)
        if candidate.is_certain and not is_today:
            spans.setdefault(original[candidate.begin : candidate.end], candidate.days)
        if len(spans) == MAX_MENTIONS:
            break
    return tuple(
        DateMention(text=words, first=first, last=last) for words, (first, last) in spans.items()
    )


_ADJACENT = re.compile(r"[ ,(]*(?:the )?")


def _drop_shifted(
    candidates: Iterable[_Candidate], text: str, *, ahead: bool
) -> Iterator[_Candidate]:
    """Drop bare weekdays and numbers whose day may depend on other words.

    Those are a week or month mentioned before ("다음 주 목요일을 금요일로") and an adjacent date
    ("Friday, July 3").
    """
    scope: Span | None = None
    before: _Candidate | None = None
    for candidate, after in _with_next(candidates):
        is_another = any(
            _is_another(candidate, date_, text, ahead=ahead) for date_ in (before, after) if date_
        )
        if not (candidate.is_bare and (is_another or not _agrees(candidate, scope, ahead=ahead))):
            yield candidate
        scope = candidate.scope or scope
        before = candidate


def _with_next(
    candidates: Iterable[_Candidate],
) -> Iterator[tuple[_Candidate, _Candidate | None]]:
    previous: _Candidate | None = None
    for candidate in candidates:
        if previous:
            yield previous, candidate
        previous = candidate
    if previous:
        yield previous, None


def _is_another(candidate: _Candidate, other: _Candidate, text: str, *, ahead: bool) -> bool:
    """Return whether an adjacent date is another day than a bare one."""
    if other.is_bare or other.days == candidate.days:
        return False
    if not ahead and (candidate.is_number or other.scope is None):
        return False
    first, last = sorted((candidate, other), key=lambda date_: date_.begin)
    return _ADJACENT.fullmatch(text, first.end, last.begin) is not None


def _agrees(candidate: _Candidate, scope: Span | None, *, ahead: bool) -> bool:
    """Return whether a bare day is certain after a mention of a week or month (`scope`)."""
    if scope is None or not candidate.is_number:
        return scope is None or not ahead
    return _is_month(scope) and scope[0] <= candidate.days[0] <= scope[1]


def _is_month(scope: Span) -> bool:
    return scope[1] - scope[0] > WEEK


def _find_candidates(text: str, context: DateContext, language: ModuleType) -> Iterator[_Candidate]:
    """Yield days and ranges from left to right; two days joined by a separator are a range."""
    start = 0
    previous: _Candidate | None = None
    matches = _FirstMatches(text, context, language)
    while candidate := matches.next(start):
        if context.ahead and language.SINCE.search(text, 0, candidate.begin):
            backwards = replace(context, ahead=False)
            candidate = _match_at(text, candidate.begin, backwards, language) or candidate
        if previous and candidate.is_bare:
            candidate = _continue_list(text, previous, candidate, context, language)
        candidate = _relative_day(text, candidate, context, language)
        joined = _join_range(text, candidate, context, language) if candidate.is_day else None
        result = joined or _since_range(text, candidate, context.today, language) or candidate
        yield result
        previous, start = result, result.end


def _continue_list(
    text: str,
    previous: _Candidate,
    candidate: _Candidate,
    context: DateContext,
    language: ModuleType,
) -> _Candidate:
    """Return a bare day as it is after another one in a list or range.

    A day number is one of the month before it ("3 May and the 5th"). After an uncertain day, the
    others are uncertain too ("every Monday to Friday").
    """
    between = (previous.end, candidate.begin)
    is_list = language.LIST.fullmatch(text, *between)
    if not is_list and not language.SEPARATOR.fullmatch(text, *between):
        return candidate
    if not previous.is_certain:
        return replace(candidate, is_certain=False)
    if not is_list or candidate.rule is None or not candidate.is_number:
        return candidate
    if not (previous.is_day and previous.scope and _is_month(previous.scope)):
        is_later = not previous.is_number or previous.days[1] < candidate.days[0]
        return replace(candidate, is_certain=candidate.is_certain and is_later)
    match = candidate.rule.pattern.match(text, candidate.begin)
    of_month = replace(context, after=previous.days[1])
    found = (match and _candidate(candidate.rule, match, of_month)) or candidate
    return replace(found, scope=previous.scope, is_bare=False)


def _relative_day(
    text: str, candidate: _Candidate, context: DateContext, language: ModuleType
) -> _Candidate:
    """Return the day a number of days from a day ("two days before Friday"), or the day itself."""
    ahead = context.ahead
    relative = language.find_relative(text, candidate.begin, candidate.end, ahead=ahead)
    is_today = candidate.is_day and candidate.days[0] == context.today
    if relative is None or is_today or not (candidate.is_day or not candidate.is_certain):
        return candidate
    begin, end, count = relative
    try:
        days = shift_days(candidate.days[0], count) if count else None
    except OverflowError:
        days = None
    if days is None or not candidate.is_certain:
        return replace(candidate, begin=begin, end=end, is_day=False, is_certain=False)
    is_other_side = days[0] < context.today if context.ahead else days[0] > context.today
    is_certain = not (candidate.is_bare and is_other_side)
    return replace(candidate, begin=begin, end=end, days=days, is_certain=is_certain)


class _FirstMatches:
    """The first match of each rule, searched again only when it is passed."""

    def __init__(self, text: str, context: DateContext, language: ModuleType) -> None:
        """Search from the beginning."""
        self._text = text
        self._context = context
        rules = [rule for rule in language.RULES if rule.applies_to(context)]
        self._found = {rule: _first_match(rule, text, 0, context) for rule in rules}

    def next(self, start: int) -> _Candidate | None:
        """Return the first match from `start` on; of those that begin there, the longest."""
        for rule, found in self._found.items():
            if found and found.begin < start:
                self._found[rule] = _first_match(rule, self._text, start, self._context)
        return min(
            filter(None, self._found.values()),
            key=lambda candidate: (candidate.begin, -candidate.end),
            default=None,
        )


def _first_match(rule: DateRule, text: str, start: int, context: DateContext) -> _Candidate | None:
    candidates = (_candidate(rule, match, context) for match in rule.pattern.finditer(text, start))
    return next(filter(None, candidates), None)


def _match_at(
    text: str, begin: int, context: DateContext, language: ModuleType
) -> _Candidate | None:
    """Return the longest match that begins at a place."""
    rules = [rule for rule in language.RULES if rule.applies_to(context)]
    matches = ((rule, rule.pattern.match(text, begin)) for rule in rules)
    candidates = (_candidate(rule, match, context) for rule, match in matches if match)
    return max(filter(None, candidates), key=lambda candidate: candidate.end, default=None)


def _candidate(rule: DateRule, match: re.Match[str], context: DateContext) -> _Candidate | None:
    fits = rule.fits(match)
    days = _resolve(rule, match, context) if fits else None
    if days is None and not (rule.blocks if fits else rule.is_bare):
        return None
    return _Candidate(
        begin=match.start(),
        end=match.end(),
        days=days or (context.today, context.today),
        is_day=rule.is_day and rule.is_reported and days is not None,
        rule=rule,
        is_bare=rule.is_bare,
        scope=rule.scope(days),
        is_certain=rule.is_reported and days is not None,
    )


def _resolve(rule: DateRule, match: re.Match[str], context: DateContext) -> Span | None:
    try:
        days = rule.resolve(match, context)
    except OverflowError:  # before the first or after the last day of the calendar
        return None
    weekday = match.groupdict().get("on")  # another weekday than that of the date: which is meant?
    is_right = not weekday or (days and "월화수목금토일"[days[1].weekday()] == weekday)
    return days if is_right else None


def _join_range(
    text: str, first: _Candidate, context: DateContext, language: ModuleType
) -> _Candidate | None:
    """Return the range from a day to another one right after it, or None.

    With `ahead`, an ambiguous range is returned as not certain.
    """
    separator = language.SEPARATOR.match(text, first.end)
    if not separator or (separator["part"] and not context.ahead):
        return None
    if separator["to"] == "and" and not text.endswith("between ", 0, first.begin):
        return None
    start = first.days[0]
    ends = _find_range_ends(text, separator.end(), replace(context, start=start), language)
    last = max(ends, key=lambda end: (end.end, end.day), default=None)
    if last is None:
        return None
    if context.ahead and language.is_move(text, first.begin, separator, last.end):
        return None
    joined = replace(
        first,
        end=last.end,
        days=(start, last.day),
        is_day=False,
        scope=last.scope or first.scope,
    )
    if not context.ahead:
        return joined if start <= last.day else None
    if _are_separate_days(first, last, has_part=bool(separator["part"])):
        return None
    is_plan = start <= last.day <= start + MAX_PLAN and not last.is_shifted
    is_clear = start < last.day or not last.is_weekday  # Friday to Friday may be a week
    may_have_begun = bool(first.scope) and _may_have_begun(text, joined, context, language)
    return replace(joined, is_certain=is_plan and is_clear and not may_have_begun)


def _find_range_ends(
    text: str, start: int, context: DateContext, language: ModuleType
) -> Iterator[_RangeEnd]:
    """Yield the days at this place that can end a range, with or without a weekday before them."""
    prefix = language.WEEKDAY_PREFIX.match(text, start)
    for begin in (start, prefix.end()) if prefix else (start,):
        for rule in (*language.RULES, *language.END_RULES):
            is_weekday = "weekday" in rule.pattern.groupindex
            if not (rule.is_day and rule.applies_to(context)) or (begin != start and is_weekday):
                continue
            match = rule.pattern.match(text, begin)
            days = _resolve(rule, match, context) if match else None
            if match and days and (rule.fits(match) or (context.ahead and is_weekday)):
                alone = _resolve(rule, match, replace(context, start=None))
                yield _RangeEnd(
                    end=match.end(),
                    day=days[1],
                    alone=alone and alone[1],
                    is_weekday=is_weekday,
                    scope=rule.scope(days),
                    is_shifted=not rule.fits(match),
                )


def _are_separate_days(first: _Candidate, last: _RangeEnd, *, has_part: bool) -> bool:
    """Return whether both days of a plan are unambiguous and form no range."""
    start = first.days[0]
    if last.is_shifted:
        return not first.is_bare
    if last.day < start:  # yesterday - the day before
        return not (first.is_bare or first.scope)
    if last.day == start:  # Friday morning to Friday evening
        return has_part
    return last.day > start + MAX_PLAN and last.day == last.alone


def _may_have_begun(
    text: str, joined: _Candidate, context: DateContext, language: ModuleType
) -> bool:
    """Return whether a range may have begun before today: "June 20 to 25", on the 22nd."""
    start, last = joined.days
    past = _match_at(text, joined.begin, replace(context, ahead=False), language)
    if past is None:
        return False
    return past.days[0] < context.today <= last - (start - past.days[0])


def _since_range(
    text: str, candidate: _Candidate, today: date, language: ModuleType
) -> _Candidate | None:
    """Return the range from a day until today if a word like "since" precedes the day."""
    since = language.SINCE.search(text, 0, candidate.begin)
    if not since or not candidate.is_day or candidate.days[0] > today:
        return None
    days = (candidate.days[0], today)
    return _Candidate(begin=since.start(), end=candidate.end, days=days, is_day=False)
