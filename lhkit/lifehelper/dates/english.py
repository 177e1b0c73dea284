"""English rules for mentions of days and date ranges."""

import calendar
import re
from dataclasses import replace
from typing import Any

from lhkit.lifehelper.dates.rules import (
    DateContext,
    DateRule,
    DayNames,
    Resolver,
    Span,
    any_of,
    date_of_year,
    date_without_year,
    day_in_month,
    month_span,
    named_month,
    resolve_coming_weekend,
    resolve_day_number,
    resolve_last_two_days,
    resolve_month_and_day,
    resolve_nothing,
    shift_months,
    single_day,
    span_in_month,
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
_UNITS = {"day": 1, "week": 7, "fortnight": 14}


def _count(text: str) -> int:
    if text.isdigit():
        return int(text)
    return 1 if text in {"a", "an"} else _NUMBERS.index(text)


def _days(match: re.Match[str]) -> int:
    unit = match["unit"].removesuffix("s")
    return _UNITS[unit] * _count(match["count"] or "one")


_NAMES = DayNames(
    _WEEKDAYS,
    {"this": 0, "last": -1, "next": 1, "the week before last": -2},
    _NEAR | {f"the {name}": away for name, away in _NEAR.items()},
    _days,
)

_COUNT = rf"(?P<count>\d{{1,4}}|an?|{'|'.join(_NUMBERS[1:])})"
_NAMED = rf"(?:,? (?:{'|'.join(_WEEKDAYS)})(?! of))?"
_OFTEN = re.compile(r"\b(?:once|twice|times|\w*day) $")
_HOW_LONG = re.compile(rf"{_OFTEN.pattern}|\bfor (?:the )?$")
"""Precedes a frequency or duration: "for a week from today"."""
_MODIFIERS = any_of(r"""
    good black easter ash cyber palm shrove maundy holy giving whit super fat casual
    first second third fourth fifth last penultimate final \d(?:st|nd|rd|th)
    coming upcoming following next previous preceding prior past other another alternate
    taco freaky ruby manic bowl tgi nxt
    every each any some a that which same certain random nearest closest typical usual
""")
_SHIFTED_BEFORE = re.compile(
    rf"\b{_MODIFIERS} $|(?:^|[^\w\s] ?|\b(?:on|but) )one $"
    r"|\b(?:weeks?|days?) (?:from (?:now|today)|time),?(?: on)? $|\bweeks? ago $"
    r"|\b(?:following|same|that|every|each|other) week,? (?:on )?$"
)
"""Precedes a weekday of another week, or of every week."""
_SHIFTED = re.compile(
    r"-ish|,? (?:after (?:next|this|that)\b|before last|(?:last|next|gone|coming|of|week)\b"
    r"|the following|in (?:an?|one|two|three|four|\d+) weeks?\b|fortnight\b"
    r"|the week (?:after|before|of)|every (?:other |second )?(?:week|month)\b"
    r"|(?:morning|afternoon|evening|night)s\b)"
)
_CLAUSE_ENDS = (
    r"(?=\s*(?:$|[,.;:!?)–-]|(?:at|on|to|and|or|by|from|for|with|in|is|until|till|through)\b))"
)
"""Follows "the 3rd" as a date, but not "the 3rd drawer"."""
_SPAN_ENDS = (
    rf"(?:{_CLAUSE_ENDS}|(?= (?:please|inclusive|the|we|i|if|because|but|so|while|too)\b))"
    r"(?!(?:[:.,/–-]| or )?\d)"
)
"""Follows "to the 25th", but not "to 25 km" or "to 6:30"."""
_FUNCTION_WORDS = any_of("""
    i you he she we they it that this my the as was were did does has had have should would could
    can will too also please pls ty thanks? already so but because while when if though then again
    since only not yet shows? says? looks? whether are am just instead now no anyway be been got
    gets is isn't wasn't didn't doesn't still both all even really maybe actually here there me into
""")
_AFTER_NUMBER = rf"(?:{_CLAUSE_ENDS}|(?=\s*[^\w\s]| {_FUNCTION_WORDS}\b))"
"""Follows "the 3rd" as a date when looking back."""
_COUNTABLE = any_of("""
    times? miles? kms? k minutes? mins? hours? hrs? days? weeks? months? years? steps reps sets
    pages people percent dollars pounds kilos? kg ml cups glasses bottles points laps more
""")
_NOT_A_DATE = rf"(?!\s?(?:%|x\b|{_COUNTABLE}\b))"
"""Follows the number after a month, but not "you can march 10 miles"."""
_NAMED_DAY = rf"(?P<near>(?:the )?(?:{'|'.join(_NEAR)})){_NAMED}"
_UNIT = r"(?P<unit>days?|weeks?|fortnights?|months?)"
_WEEKDAY = rf"(?P<weekday>{'|'.join(_WEEKDAYS)})"
_MONTH_NAMES = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sep(?:t(?:ember)?)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)(?![a-z])\.?"
)
_MONTH = rf"(?P<month>{_MONTH_NAMES})"
_TO = r"\s*(?:to|until|till|through|thru|up to|-|–|~)\s*"
_NUMBER = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_ORDINAL = r"(?P<day>\d{1,2})(?:st|nd|rd|th)"
_YEAR = (
    r",?\s+(?:of )?(?P<year>this year|last year|next year|\d{4}(?!\s*(?:steps?|k?cal|ml|g\b|mg|kg"
    r"|won|words?|min|times|reps?|met|m\b|km|pages?|points?)))"
)
_A_YEAR = re.compile(rf"(?:{_TO}(?:[a-z]{{3,9}}\.? )?(?:the )?\d{{1,2}}(?:st|nd|rd|th)?)?{_YEAR}")
"""The year after a date, as in "June 20 to 25, 2027"."""
_ITS_MONTH = re.compile(
    rf"(?:(?:{_TO}|,? and |,? or |, )(?:the )?\d{{1,2}}(?:st|nd|rd|th)?)+"
    rf" (?:of )?(?:{_MONTH_NAMES}|(?:the )?\w+ month\b)"
)
_EVERY_MONTH = re.compile(r"\b(?:(?:every|each) month|monthly),? (?:on )?$")
_MONTH_BEFORE = re.compile(
    rf"\b(?:{_MONTH_NAMES})\s+(?:the )?\d{{1,2}}(?:st|nd|rd|th)?"
    r"\s*(?P<to>[a-z]+|\W)\s*(?:on )?(?:the )?$"
)
_HOURS = 24
_MOVES = (
    r"\b(?<!a )(?<!my )(?<!the )(?:mov(?:e|es|ed|ing)(?! (?:house|home|in|out|away)\b)"
    r"|(?:chang|postpon|rearrang|exchang)(?:e|es|ed|ing)|resched\w+|re-?book(?:s|ed|ing)?"
    r"|(?:push|switch)(?:es|ed|ing)?|(?:shift|extend|shorten|delay|transfer|correct)(?:s|ed|ing)?"
    r"|swap(?:s|ped|ping)?|put (?:it )?(?:back|off)|bring|brought|pull(?:ed)?|bump(?:ed)?"
    r"|amend|edit|(?:updat|replac)(?:e|es|ed|ing)|adjust(?:s|ed|ing)?|modif(?:y|ies|ied|ying)"
    r"|set back|carr(?:y|ied))\b"
)
_IN_SENTENCE = r"[^.!?;]*"
_MOVES_BEFORE = re.compile(
    rf"{_MOVES}.*$|\b(?:add|cop(?:y|ied)|prefer|compar(?:e|ed|ing))(?: the)? $"
)
_MOVES_AFTER = re.compile(rf"'s\b|.*{_MOVES}")
_PAST = (
    r"\b(?:was|were|did|didn't|had|been|went|came|ate|drank|bought|brought|made|took|used|got|gave"
    r"|met|told|said|wrote|sent|paid|sold|slept|felt|heard|built|drove|flew|rode|spoke|won|wore"
    r"|(?:i|we|he|she|they) (?:read|cut|put|hurt)|caught|left|saw|ran|found|spent|lost|broke"
    r"|forgot|kept|put away"
    r"|(?!need|indeed|feed|speed)[a-z]{2,}ed)\b"
)
_PERIODS = {"the": 0, "this": 0, "last": -1, "next": 1}
_ANOTHER_YEAR = r"\b(?:(?:next|last|following|previous|same) year|the year (?:after|before))\b"
_OTHER_YEAR = re.compile(
    r"\b(?:(?:every|each) year,? (?:on )?(?:the )?|lunar (?:calendar )?"
    r"|(?:i|we|you|they|he|she|last|next|past|previous|following) )$"
    rf"|(?:{_ANOTHER_YEAR}|\bin \d{{4}}\b){_IN_SENTENCE}$"
)
"""Precedes a date of a year that the rules do not resolve."""
_EVERY_YEAR = re.compile(
    rf"{_A_YEAR.pattern}|,? ['’]\d\d(?!\w)|,? (?:every|each) year\b|{_IN_SENTENCE}{_ANOTHER_YEAR}"
)


def _to_come(match: re.Match[str], context: DateContext) -> Span | None:
    if match["unit"].startswith("month"):
        return shift_months(context.today, _count(match["count"]))
    return _NAMES.days_ahead(match, context)


def _from_near(match: re.Match[str], context: DateContext) -> Span | None:
    near = _NAMES.named_day(match, context)
    return near and _to_come(match, replace(context, today=near[0]))


def _month(match: re.Match[str]) -> int:
    return next(i for i, name in enumerate(_MONTHS) if i and name[:3] == match["month"][:3])


def _month_alone(match: re.Match[str], context: DateContext) -> Span | None:
    return date_without_year(context, _month(match), 28)


def _date(match: re.Match[str], context: DateContext) -> Span | None:
    return date_without_year(context, _month(match), int(match["day"]))


def _date_of_year(match: re.Match[str], context: DateContext) -> Span | None:
    text = match["year"]
    year = int(text) if text.isdigit() else context.today.year + _PERIODS[text.split()[0]]
    return date_of_year(context.today, year, _month(match), int(match["day"]))


def _days_of_month(match: re.Match[str], context: DateContext) -> Span | None:
    return span_in_month(context, _month(match), int(match["day"]), int(match["until"]))


def _number_after_month(match: re.Match[str], context: DateContext) -> Span | None:
    """The 25 of "June 20 to 25"; None if it may be a time of day: "June 20 until 6"."""
    before = _MONTH_BEFORE.search(match.string, 0, match.start())
    number = int(match["day"])
    if not before or not context.start or (before["to"] in {"until", "till"} and number <= _HOURS):
        return None
    days = date_of_year(context.today, context.start.year, context.start.month, number)
    return days if days and days[0] > context.start else None


def _weekday(match: re.Match[str], context: DateContext) -> Span | None:
    """A weekday alone; None before a day number that is another day: "Friday the 13th"."""
    days = _NAMES.weekday(match, context)
    after = _NUMBER_AFTER.match(match.string, match.end())
    return days if after is None or resolve_day_number(after, context) == days else None


def _numbered(match: re.Match[str], context: DateContext) -> Span | None:
    """A day number alone; None if a month follows, or after a weekday of another day."""
    text = match.string
    days = resolve_day_number(match, context)
    if days is None or _OF_A_MONTH.match(text, match.end()):
        return None
    if "of this month" in match.group():
        return (
            days
            if (days[0].year, days[0].month) == (context.today.year, context.today.month)
            else None
        )
    before = _WEEKDAY_BEFORE.search(text, 0, match.start())
    return days if before is None or _NAMES.weekday(before, context) == days else None


_NUMBER_AFTER = re.compile(rf",? (?:the )?{_ORDINAL}(?! (?:of )?(?:{_MONTH_NAMES}))")
_WEEKDAY_BEFORE = re.compile(rf"(?<!last )(?<!next )\b{_WEEKDAY},? $")
_OF_A_MONTH = re.compile(
    r",? (?:(?:of|in|during) )?"
    rf"(?:(?:the )?(?:next|last|following|previous) month\b|{_MONTH_NAMES})"
    rf"| (?:{'|'.join(_WEEKDAYS)})\b"
)


def _day_of_month(match: re.Match[str], context: DateContext) -> Span | None:
    month = month_span(context.today, _PERIODS[match["month"]])
    return day_in_month(month, int(match["day"]))


def _later_this_month(match: re.Match[str], context: DateContext) -> Span | None:
    days = _day_of_month(match, context)
    return days if days and days[0] > context.today else None


def _named_month(match: re.Match[str], context: DateContext) -> Span:
    return named_month(context, _PERIODS[match["month"]])


def _month_end(match: re.Match[str], context: DateContext) -> Span:
    return single_day(month_span(context.today, _PERIODS[match["month"]])[1])


def _rule(pattern: str, resolve: Resolver, **more: Any) -> DateRule:
    return DateRule(pattern=re.compile(rf"\b(?:{pattern})(?!\w)"), resolve=resolve, **more)


RULES = (
    _rule(_NAMED_DAY, _NAMES.named_day, not_before=re.compile(r" week\b")),
    _rule(
        rf"{_COUNT} (?P<unit>days?|weeks?) ago",
        _NAMES.days_ago,
        not_after=re.compile(r"\bhalf $"),
        not_before=re.compile(rf"(?:(?<=week ago)|(?<=weeks ago)) (?:{'|'.join(_WEEKDAYS)})\b"),
    ),
    _rule(
        rf"{_COUNT} {_UNIT} (?:from (?:now|today)|hence)(?!,? on \w+day)",
        _to_come,
        ahead=True,
        not_after=_HOW_LONG,
    ),
    _rule(
        rf"{_COUNT} {_UNIT} (?:from|after) (?P<near>(?:the )?(?:day after )?tomorrow)",
        _from_near,
        ahead=True,
        not_after=_HOW_LONG,
    ),
    _rule(
        rf"in {_COUNT} {_UNIT}(?:'s?)?(?: time)?",
        _to_come,
        ahead=True,
        not_after=_OFTEN,
        not_before=re.compile(r" (?:or|from|after|before|of|flat|straight)\b|,? on \w+day"),
    ),
    _rule(rf"{_WEEKDAY} (?:of )?(?P<which>this|last|next) week", _NAMES.weekday_of_week),
    _rule(rf"(?P<which>this|last|next) week(?:'s)? (?:on )?{_WEEKDAY}", _NAMES.weekday_of_week),
    _rule(rf"(?P<which>last|next) week, on {_WEEKDAY}", _NAMES.weekday_of_week),
    _rule(
        rf"(?P<which>next) {_WEEKDAY}",
        _NAMES.weekday_of_week,
        not_after=re.compile(r"\b(?:the|this|next|after|every|each) $"),
    ),
    _rule(rf"(?:(?:this|the) )?(?:up)?coming {_WEEKDAY}", _NAMES.coming_weekday, blocks=True),
    _rule(rf"(?P<which>this) {_WEEKDAY}", _NAMES.this_weekday),
    _rule(rf"(?:last|past) {_WEEKDAY}(?! (?:of|in)\b)", _NAMES.previous_weekday),
    _rule(
        rf"(?:(?<!the )|(?!\w+ (?:before|after|following|prior|when|we|that|i)\b)){_WEEKDAY}",
        _weekday,
        is_bare=True,
        not_after=_SHIFTED_BEFORE,
        not_before=_SHIFTED,
    ),
    *(
        _rule(
            pattern,
            _date,
            ahead=ahead,
            blocks=True,
            not_after=_OTHER_YEAR,
            not_before=_EVERY_YEAR,
        )
        for pattern, ahead in (
            (rf"{_MONTH}\s+(?:the )?{_NUMBER}{_NOT_A_DATE}", None),
            (rf"(?:in |(?!ma[ry])){_MONTH},? (?:on )?the {_ORDINAL}", None),
            (rf"the {_ORDINAL},? in {_MONTH}", None),
            (rf"{_NUMBER} (?:of )?{_MONTH}", False),
            (rf"(?:the )?{_NUMBER} (?:of )?{_MONTH}", True),
        )
    ),
    _rule(
        rf"(?:the )?{_NUMBER}{_TO}(?:the )?(?P<until>\d{{1,2}})(?:st|nd|rd|th)? (?:of )?{_MONTH}"
        rf"(?:(?<!\bmay)(?<!\bmarch)|{_CLAUSE_ENDS})(?!\s*\d)",
        _days_of_month,
        is_day=False,
        blocks=True,
        not_after=_MOVES_BEFORE,
        not_before=re.compile(rf"{_YEAR}|{_MOVES_AFTER.pattern}"),
    ),
    _rule(rf"{_MONTH}\s+(?:the )?{_NUMBER}{_YEAR}", _date_of_year, blocks=True),
    _rule(rf"(?:the )?{_NUMBER} (?:of )?{_MONTH}{_YEAR}", _date_of_year, blocks=True),
    *(
        _rule(rf"{year},? (?:on )?(?:the )?{day}", _date_of_year, blocks=True)
        for year in (r"(?P<year>last year|next year)", r"in (?P<year>\d{4})")
        for day in (rf"{_MONTH} (?:the )?{_NUMBER}", rf"{_NUMBER} (?:of )?{_MONTH}")
    ),
    _rule(r"(?:the )?end of (?P<month>this|next|the) month", _month_end, ahead=True),
    *(
        _rule(pattern, _day_of_month, ahead=ahead, blocks=ahead is None)
        for month, ahead in (("this", True), ("last|next", None))
        for pattern in (
            rf"the {_NUMBER} (?:of )?(?P<month>{month}) month",
            rf"(?P<month>{month}) month,? (?:on )?the {_ORDINAL}",
        )
    ),
    _rule(
        rf"(?P<month>this) month,? (?:on )?the {_ORDINAL}",
        _later_this_month,
        ahead=False,
    ),
    _rule(r"(?<![\d/.])(?P<month>\d{1,2})/(?P<day>\d{1,2})(?!\d|[/.]\d)", resolve_month_and_day),
    _rule(
        rf"the {_ORDINAL}(?:(?: of this month)|{_AFTER_NUMBER})",
        _numbered,
        ahead=False,
        is_bare=True,
        blocks=True,
        not_after=_EVERY_MONTH,
        not_before=_ITS_MONTH,
    ),
    _rule(
        rf"the {_ORDINAL}(?! of\b){_CLAUSE_ENDS}",
        _numbered,
        ahead=True,
        is_bare=True,
        blocks=True,
        not_after=_EVERY_MONTH,
        not_before=_ITS_MONTH,
    ),
    _rule(
        rf"{_WEEKDAY} (?:to|until|till|through) (?P<until>{'|'.join(_WEEKDAYS)})"
        r" (?:of )?(?P<which>this|last|next) week",
        _NAMES.weekdays_of_week,
        is_day=False,
    ),
    _rule(r"(?P<which>this|last|next) week(?!'s)", _NAMES.week, is_day=False),
    _rule(r"yesterday and the day before(?! yesterday)", resolve_last_two_days, is_day=False),
    _rule(r"(?P<which>the week before last)", _NAMES.week, is_day=False),
    _rule(r"(?P<which>this|last|next) weekend", _NAMES.weekend, is_day=False),
    _rule(
        r"(?:at|over|on|during|for) the weekend",
        resolve_coming_weekend,
        is_day=False,
        ahead=True,
        not_after=re.compile(rf"(?:{_PAST}|\b(?:always|usually|often|every)\b){_IN_SENTENCE}$"),
        not_before=re.compile(rf",? (?:after|before|of|in|from|next|or)\b|{_IN_SENTENCE}{_PAST}"),
    ),
    _rule(r"(?P<month>this|last) month", _named_month, is_day=False),
    _rule(r"(?P<month>next) month", _named_month, is_day=False, ahead=True),
    _rule(r"(?P<month>next|following|previous) month", resolve_nothing, blocks=True, ahead=False),
    _rule(
        rf"(?:(?:in|of|during) |(?!ma[ry])){_MONTH}(?!\s+(?:the )?\d)",
        _month_alone,
        is_day=False,
        is_reported=False,
    ),
    _rule(
        rf"(?:(?:the |these )?(?:past|last) (?:{_COUNT} )(?P<unit>days|weeks)"
        r"(?: (?:including|counting) today)?)",
        _NAMES.recent_days,
        is_day=False,
        not_before=re.compile(r" (?:of|before|after)\b"),
    ),
    _rule(
        r"(?P<count>)(?:the past|(?:over|in|for|during) the last) (?P<unit>week)"
        r"(?: (?:including|counting) today)?",
        _NAMES.recent_days,
        is_day=False,
    ),
)

END_RULES = (
    _rule(rf"{_ORDINAL}{_SPAN_ENDS}", resolve_day_number),
    _rule(rf"{_NUMBER}{_SPAN_ENDS}", _number_after_month),
)
"""Days that are recognized only as the end of a range."""

WEEKDAY_PREFIX = re.compile(rf"(?:{'|'.join(_WEEKDAYS)}),? (?:the )?")
"""A weekday before the last day of a range: "to Sunday, July 5"."""

SEPARATOR = re.compile(
    r"(?P<part> (?:morning|noon|afternoon|evening|night)"
    r"| at \d{1,2}(?::\d\d)?(?: ?[ap]\.?m\b\.?)?)?"
    r"\s*(?P<to>to|until|till|through|thru|and|up to|-|–|~)\s*(?:on )?(?:the )?"
)
"""Separates the first and the last day of a range; `and` only after `between`."""


LIST = re.compile(r"\s*(?:,|&|\+)?\s*(?:and|or|then|also)?\s*(?:on )?")
"""Joins the days of a list, which share the month of the first one."""

_RELATIVE = re.compile(
    r"\b(?:(?P<one>(?:the |a )?day(?= [bap])"
    r"|(?:the|an?) (?:night|evening|eve|week|fortnight|month))"
    rf"|(?P<count>\d{{1,4}}|{'|'.join(_NUMBERS[1:])}) (?P<unit>days?|weeks?|fortnights?|months?))"
    r" (?P<side>before|prior to|after|following|from|of)(?: the)? $"
    r"|(?:\b(?:two|three|four|\d+) weeks|(?<!once )\ba week) (?:on )?$"
)
_HEDGES = any_of(r"""
    first second third \d(?:st|nd|rd|th) next other the within for every least most than to or
    until till about around last past
""")
_HEDGE = re.compile(rf"\b{_HEDGES} $")


def find_relative(text: str, begin: int, end: int, *, ahead: bool) -> tuple[int, int, int] | None:
    """Return where the words "N days before or after this day" begin and end, and the distance.

    The distance is 0 if it is not certain ("the night before Friday"), and for a number of days
    when looking back.
    """
    match = _RELATIVE.search(text, max(begin - 40, 0), begin)
    if not match or (match["side"] == "from" and SEPARATOR.match(text, end)):
        return None
    is_days = ahead and match["side"] != "of" and (match["unit"] or "").startswith("day")
    is_certain = is_days or (match["one"] or "").endswith("day")
    before = text[max(match.start() - 40, 0) : match.start()]
    if not is_certain or _HEDGE.search(before) or _RELATIVE.search(before):
        return match.start(), end, 0
    count = _count(match["count"] or "one")
    return match.start(), end, -count if match["side"] in {"before", "prior to"} else count


def is_move(text: str, begin: int, between: re.Match[str], end: int) -> bool:
    """Return whether two days of a plan move something from one to the other (no range)."""
    if between["to"] not in {"to", "until", "till"}:
        return False
    is_after = _MOVES_BEFORE.search(text, 0, begin)
    return bool(is_after or _MOVES_AFTER.match(text, end))


SINCE = re.compile(r"\bsince (?:on )?(?:the )?$")
"""Precedes the first day of a range that ends today."""
