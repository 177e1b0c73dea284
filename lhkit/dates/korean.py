"""Korean rules for mentions of days and date ranges."""

import re
from typing import Any

from lhkit.dates.rules import (
    DateContext,
    DateRule,
    DayNames,
    Resolver,
    Span,
    date_of_year,
    date_without_year,
    day_in_month,
    month_span,
    resolve_coming_weekend,
    resolve_day_number,
    resolve_day_range,
    resolve_last_month,
    resolve_last_two_days,
    resolve_month_and_day,
    resolve_month_range,
    resolve_next_month,
    resolve_this_month,
    shift_days,
    shift_months,
    single_day,
)

_WEEKDAYS = "월화수목금토일"
_NEAR = {
    "오늘": 0,
    "금일": 0,
    "어제": -1,
    "어저께": -1,
    "어젯밤": -1,
    "그제": -2,
    "그저께": -2,
    "엊그제": -2,
    "엊그저께": -2,
    "그끄제": -3,
    "그끄저께": -3,
    "내일": 1,
    "모레": 2,
    "내일모레": 2,
    "글피": 3,
}
_DAYS = {
    "하루": 1,
    "이틀": 2,
    "사흘": 3,
    "나흘": 4,
    "닷새": 5,
    "엿새": 6,
    "이레": 7,
    "여드레": 8,
    "아흐레": 9,
    "열흘": 10,
    "보름": 15,
}
_FEW = {"일": 1, "한": 1, "이": 2, "두": 2, "삼": 3, "세": 3, "석": 3}


def _count(match: re.Match[str]) -> int:
    if match["days"]:
        return int(match["days"])
    if match["word"]:
        return _DAYS[match["word"]]
    weeks = match["weeks"]
    return 7 * (int(weeks) if weeks.isdigit() else _FEW[weeks])


_NAMES = DayNames(
    _WEEKDAYS,
    {
        "이번": 0,
        "금": 0,
        "지난": -1,
        "저번": -1,
        "지지난": -2,
        "저저번": -2,
        "다음": 1,
        "담": 1,
        "다다음": 2,
    },
    _NEAR,
    _count,
)
_YEARS = {"올해": 0, "올": 0, "작년": -1, "재작년": -2, "지난해": -1, "내년": 1, "후년": 2}
_MONTHS = {"이번": 0, "이": 0, "지난": -1, "다음": 1, "담": 1, "내": 1, "다다음": 2}

_COUNT = (
    rf"(?:(?P<days>\d{{1,4}})\s*일|(?P<word>{'|'.join(_DAYS)})"
    r"|(?<!\d)(?P<weeks>\d|[일한이두삼세])\s*주일?)"
)
_WHICH = r"(?P<which>이번|금|지지난|저저번|지난|저번|다다음|(?<!다)(?<!다음)다음|(?<![가-힣])담)"
_OF_MONTH = (
    r"(?P<which>이번|(?<![가-힣])이|지난|다다음|(?<!다)(?<!다음)다음|(?<![가-힣])(?:담|내)(?=달))"
    r"\s*달"
)
_BEGINS = r"(?<![^\s,.!?]\s)(?<![^\s,.!?])"
_WHOLE = r"(?<![가-힣\d.~,-])(?<![년월주달]\s)"
_FROM_NOW = re.compile(r"(?:요일|욜|\d일|일에서|모레|부터|기한|생일|생신|그로| 지|날|고)\s*$")
"""Precedes a count that starts from another day: "금요일 이틀 뒤"."""
_AGO = r"\s*전(?!\s*(?:그|같은|동일)|체|부(?!터)|화|달|혀|망|문|자|시)"
_REMINDS = re.compile(r"까지|에?\s*(?:미리\s*)?(?:알|리마|깨|말해|끝)")
_LATER = rf"\s*(?:뒤|후)(?![반식보기회배]|\s*(?:로|에서)|\s*[{_WEEKDAYS}](?:요일|욜))"
"""Not "이틀 뒤로 미뤄 줘", which may count from the original day."""
_FROM_ANOTHER = re.compile(r"(?<!오늘)(?<!내일)(?<!모레)(?<!뒤)(?<!후)부터\s*$")
"""A day that the following count may start from."""
_NTH = r"(?:째|마지막|(?<![가-힣])첫)\s*(?:주\s*)?(?:의\s*)?$|(?:성|재의|블랙)\s*$"
_SHIFTED = re.compile(
    rf"{_NTH}|(?:다음|담|그다음|일)\s*주\s*$|[주일]\s*(?:뒤|후)\s*$|(?:매주|그다음)\s*$"
    rf"|(?<![가-힣\d])[{_WEEKDAYS}]\s*[~–-]\s*$"
)
"""Precedes a weekday of a week that the rules do not resolve."""
_OF_ANOTHER_WEEK = re.compile(rf"{_NTH}|[주일달]\s*(?:뒤|후)\s*$")
"""Precedes a weekday that is not the latest one when looking back."""
_WEEKDAY = rf"(?P<weekday>[{_WEEKDAYS}])요일"
_SHORT_WEEKDAY = rf"(?P<weekday>[{_WEEKDAYS}])욜"
_NAMED = rf"(?:\s*[{_WEEKDAYS}]요일)?"
_NO_WEEK = re.compile(r"스|문|제|방|차|류|식|먹|인|민|유|머|걱|전자|택")
_NOT_A_DATE = r"(?!\s*(?:간|동안|전|째|치|만|정도|이나|씩|짜리|연속|내내|분|뒤|후|이상|이하|했|한))"


_NUMBERED = (
    rf"(?<![\d.월])(?:[{_WEEKDAYS}]요일인\s*)?(?<!\d)(?P<day>\d{{1,2}})일{_NAMED}{_NOT_A_DATE}"
)


_AS_A_DATE = (
    r"(?=\s*(?:[,.!?)]|$|에(?!\s*한)|까지|날|이[고에야]|은|는|도|의|자|오전|오후|아침|저녁|밤|낮|새벽|점심"
    r"|\d{1,2}(?:시|:)|[가-힣]{2}))(?!\s*(?:남|지[나난]|안에|이내|마다|미뤄|연장|당겨|더|걸|휴가|여행|챌|로|소요|배송|숙성|발효))"
)
_HOW_MANY = re.compile(r"(?:박|주|총|휴가|후|연차|하루|냉장|냉동|부터|지난|\d일?\s*[~–-])\s*$")
"""Precedes a duration in days, not a date: "2박 3일"."""
_TO_WEEKDAY = rf"(?P<weekday>[{_WEEKDAYS}])\s*[~–-]\s*(?P<until>[{_WEEKDAYS}])(?:요일|욜)"
_SOME_WEEKEND = "그|매|첫|째|막|달|월|음|난|번|느|전|뒤|후|주|긴|황금|평일[가-힣]*"
_PAST = re.sub(r"[있겠]", "", "".join(map(chr, range(ord("갔"), ord("힣") + 1, 28))))
"""Syllables that end in ㅆ, the past tense marker."""
_NOT_TO_COME = rf"(?:[{_PAST}]|보통|항상|늘|매번|마다)"
_IN_SENTENCE = r"[^.!?]*"
_LASTING = (
    rf"(?!하루|\d+\s*일(?!\s*(?:간|동안))|[일한이두삼세\d]\s*주(?!일|\s*(?:간|동안))){_COUNT}(?!일)"
    r"(?:\s*(?:간|동안))?"
    r"(?!\s*(?:뒤|후|전|마다|에|안|이내|이상|이하|내|단위|쯤|정도|치|째|씩|남|까지|걸|로|앞|지|이나|넘"
    r"|미[뤄루룰]|밀|연장|연기|당[겨기]|늦|더(?![가-힣])|됐|되|[두세네] 번|\d+\s*번))"
)
"""A duration from a day on, but not "일주일에 두 번"."""


def _lasting(match: re.Match[str], context: DateContext) -> Span | None:
    return shift_days(context.start, _count(match) - 1) if context.start else None


def _months_to_come(match: re.Match[str], context: DateContext) -> Span | None:
    months = match["months"]
    return shift_months(context.today, int(months) if months.isdigit() else _FEW[months])


def _date(match: re.Match[str], context: DateContext) -> Span | None:
    month, number = int(match["month"]), int(match["day"])
    year_text = match["year"]
    if year_text is None:
        return date_without_year(context, month, number)
    year = match["digits"] or context.today.year + _YEARS[year_text.removesuffix("에")]
    return date_of_year(context.today, int(year), month, number)


def _numbered(match: re.Match[str], context: DateContext) -> Span | None:
    """A `day` number alone; None after a month that does not contain the resolved day."""
    text = match.string[: match.start()]
    if re.search(r"월\s*(?:의\s*)?$", text):
        return None
    days = resolve_day_number(match, context)
    named = _MONTH_BEFORE.search(text)
    if days is None or named is None:
        return days
    first, last = month_span(context.today, _MONTHS[named["which"].replace("저번", "지난")])
    return days if first <= days[0] <= last else None


_MONTH_BEFORE = re.compile(
    r"(?<![가-힣])(?P<which>이번|이|지난|저번|다다음|다음|담|내)\s*달\s*(?:의\s*)?$"
)


def _of_month(match: re.Match[str], context: DateContext) -> Span | None:
    return day_in_month(month_span(context.today, _MONTHS[match["which"]]), int(match["day"]))


def _month_end(match: re.Match[str], context: DateContext) -> Span:
    return single_day(month_span(context.today, _MONTHS[match["which"] or "이"])[1])


def _rule(pattern: str, resolve: Resolver, **more: Any) -> DateRule:
    return DateRule(pattern=re.compile(pattern), resolve=resolve, **more)


RULES = (
    _rule(
        rf"(?<!그)(?P<near>{'|'.join(sorted(_NEAR, key=len, reverse=True))}){_NAMED}",
        _NAMES.named_day,
    ),
    _rule(rf"(?<!그 )(?<!그보다 ){_COUNT}{_AGO}", _NAMES.days_ago, ahead=False),
    _rule(rf"{_BEGINS}{_WHOLE}{_COUNT}{_AGO}", _NAMES.days_ago, ahead=True, not_before=_REMINDS),
    _rule(rf"{_WHOLE}{_COUNT}{_LATER}", _NAMES.days_ahead, ahead=True, not_after=_FROM_NOW),
    _rule(
        rf"{_WHOLE}(?P<months>\d{{1,2}}|[{''.join(_FEW)}])\s*(?:개월|달){_LATER}",
        _months_to_come,
        ahead=True,
        not_after=_FROM_NOW,
    ),
    _rule(rf"{_WHICH}\s*주\s*(?:의\s*)?{_WEEKDAY}", _NAMES.weekday_of_week),
    _rule(rf"(?:지난|저번)\s*{_WEEKDAY}", _NAMES.previous_weekday),
    _rule(rf"(?P<which>이번)\s*{_WEEKDAY}", _NAMES.this_weekday),
    _rule(_WEEKDAY, _NAMES.weekday, ahead=False, not_after=_OF_ANOTHER_WEEK),
    _rule(_WEEKDAY, _NAMES.weekday, ahead=True, is_bare=True, not_after=_SHIFTED),
    _rule(rf"{_WHICH}\s*주\s*{_SHORT_WEEKDAY}", _NAMES.weekday_of_week, ahead=True),
    _rule(_SHORT_WEEKDAY, _NAMES.weekday, ahead=True, is_bare=True, not_after=_SHIFTED),
    _rule(
        rf"(?:(?P<year>(?<!재)(?:{'|'.join(_YEARS)})(?:에)?|(?<!\d)(?P<digits>\d{{4}})\s*년)\s*)?"
        rf"(?P<month>\d{{1,2}})\s*월\s*(?P<day>\d{{1,2}})\s*일{_NAMED}",
        _date,
    ),
    _rule(
        r"(?P<month>\d{1,2})\s*월\s*(?P<day>\d{1,2})\s*[~–-]\s*(?P<until>\d{1,2})\s*일"
        rf"{_NAMED}{_NOT_A_DATE}",
        resolve_month_range,
        is_day=False,
        not_after=re.compile(r"[년해올]에?\s*$"),
    ),
    _rule(
        r"(?<![\d.월~–-])(?<!월 )(?=[1-3]\d|\d일?\s*[~–-]\s*\d+일\s*(?:까지|에))"
        rf"(?P<day>\d{{1,2}})일?\s*[~–-]\s*(?P<until>\d{{1,2}})일{_NAMED}{_NOT_A_DATE}{_AS_A_DATE}",
        resolve_day_range,
        is_day=False,
        ahead=True,
        is_bare=True,
        not_after=_HOW_MANY,
    ),
    _rule(rf"{_WHICH}\s*주\s*{_TO_WEEKDAY}", _NAMES.weekdays_of_week, is_day=False),
    _rule(
        rf"(?<![가-힣]){_TO_WEEKDAY}",
        _NAMES.weekday_span,
        is_day=False,
        is_bare=True,
        not_after=_SHIFTED,
    ),
    _rule(rf"{_OF_MONTH}\s*(?P<day>\d{{1,2}})\s*일{_NAMED}{_NOT_A_DATE}", _of_month, ahead=True),
    _rule(
        rf"(?:{_OF_MONTH}\s*|(?<![\d가-힣])월)말(?:일)?(?=[^가-힣]|에|까지|쯤|로|이[에야]|은|$)",
        _month_end,
        ahead=True,
    ),
    _rule(r"(?<![\d/.])(?P<month>\d{1,2})/(?P<day>\d{1,2})(?!\d|[/.]\d)", resolve_month_and_day),
    _rule(_NUMBERED, _numbered, ahead=False),
    _rule(
        rf"(?<!월 ){_NUMBERED}{_AS_A_DATE}",
        _numbered,
        ahead=True,
        is_bare=True,
        not_after=_HOW_MANY,
    ),
    _rule(
        r"어제(?:와|랑|하고)\s*(?:그저께|그제)|(?:그저께|그제)(?:와|랑|하고)\s*어제",
        resolve_last_two_days,
        is_day=False,
    ),
    _rule(rf"{_WHICH}\s*주(?!\s*말(?!고))", _NAMES.week, is_day=False, not_before=_NO_WEEK),
    _rule(rf"{_WHICH}\s*주\s*말(?!고)", _NAMES.weekend, is_day=False),
    _rule(
        r"주말(?=에(?:는|도)?(?![가-힣]))",
        resolve_coming_weekend,
        is_day=False,
        ahead=True,
        not_after=re.compile(rf"(?:{_SOME_WEEKEND})\s*$|{_NOT_TO_COME}{_IN_SENTENCE}$"),
        not_before=re.compile(
            rf"{_IN_SENTENCE}{_NOT_TO_COME}"
            r"|에(?:는|도)?\s*(?:[가-힣]+ ){0,2}?(?:[산간본쓴]|[가-힣]+던"
            r"|[가-힣]*(?:먹은|빌린|만난|만든|다녀온|넣은|받은|찍은))\s"
        ),
    ),
    _rule(
        r"이번\s*달(?!리)|(?<![가-힣])이\s?달(?=[은의에도\s,]|$)", resolve_this_month, is_day=False
    ),
    _rule(r"(?:지난|저번)\s*달(?!리|걀|콤|래|력)", resolve_last_month, is_day=False),
    _rule(
        r"(?<!다)(?<!다음)다음\s*달(?!리|걀|콤|래|력)", resolve_next_month, is_day=False, ahead=True
    ),
    _rule(
        rf"(?:최근|지난|오늘까지)\s*{_COUNT}(?:\s*(?:간|동안))?(?!\s*전)",
        _NAMES.recent_days,
        is_day=False,
    ),
    _rule(rf"{_COUNT}\s*(?:간|동안|치)(?!\s*전)", _NAMES.recent_days, is_day=False, ahead=False),
)

END_RULES = (
    _rule(rf"(?P<day>\d{{1,2}})일{_NAMED}(?=\s*까지)", resolve_day_number, ahead=True),
    _rule(
        rf"(?P<day>\d{{1,2}})일{_NAMED}{_NOT_A_DATE}{_AS_A_DATE}",
        resolve_day_number,
        ahead=True,
        not_after=re.compile(r"(?:부터|에서)\s*$"),
    ),
    _rule(rf"{_COUNT}{_LATER}(?=\s*까지)", _NAMES.days_ahead, ahead=True, not_after=_FROM_ANOTHER),
    _rule(
        rf"(?P<months>\d{{1,2}}|[{''.join(_FEW)}])\s*(?:개월|달){_LATER}(?=\s*까지)",
        _months_to_come,
        ahead=True,
        not_after=_FROM_ANOTHER,
    ),
    _rule(_LASTING, _lasting, ahead=True, not_after=re.compile(r"(?:에서|[~–-])\s*$")),
)
"""Days that are recognized only as the end of a range."""

WEEKDAY_PREFIX = re.compile(rf"[{_WEEKDAYS}]요일\s*")
"""A weekday before the last day of a range."""

SEPARATOR = re.compile(
    r"(?P<part>\s*(?:아침|오전|점심|낮|오후|저녁|밤|새벽))?\s*(?P<to>부터|에서|~|-|–)\s*"
)
"""Separates the first and the last day of a range."""


def is_move(text: str, _begin: int, between: re.Match[str], end: int) -> bool:
    """Return whether two days of a plan move something from one to the other (no range)."""
    after = text[end:]
    if between["to"] == "부터":
        return bool(re.match(r"\s*(?:으?로)\s*(?:바꿔|바꾸|변경|옮|미[뤄루]|조정)", after))
    return between["to"] == "에서" and not re.match(r"\s*까지", after)


SINCE = re.compile(r"(?!)")
"""Precedes the first day of a range that ends today; Korean has no such word."""
