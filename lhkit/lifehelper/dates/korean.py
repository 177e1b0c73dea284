"""Korean rules for mentions of days and date ranges."""

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
    resolve_day_range,
    resolve_last_two_days,
    resolve_month_and_day,
    resolve_month_range,
    resolve_nothing,
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
    "그끄제": -3,
    "그끄저께": -3,
    "내일": 1,
    "모레": 2,
    "내일모레": 2,
    "내일 모레": 2,
    "글피": 3,
}
"""Not "엊그제", which may be some days ago."""
_FORMAL = {"작일": -1, "명일": 1, "낼": 1}
"""Also parts of other words ("시작일", "돈을 낼")."""
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
        "요번": 0,
        "금": 0,
        "지난": -1,
        "저번": -1,
        "지지난": -2,
        "저저번": -2,
        "다음": 1,
        "담": 1,
        "차": 1,
        "내": 1,
        "다다음": 2,
    },
    _NEAR | _FORMAL,
    _count,
)
_YEARS = {"올해": 0, "올": 0, "작년": -1, "재작년": -2, "지난해": -1, "내년": 1, "후년": 2}
_MONTHS = {
    "이번": 0,
    "이": 0,
    "지난": -1,
    "저번": -1,
    "지지난": -2,
    "저저번": -2,
    "다음": 1,
    "담": 1,
    "내": 1,
    "다다음": 2,
}

_COUNT = (
    rf"(?:(?P<days>\d{{1,4}})\s*일|(?P<word>{'|'.join(_DAYS)})"
    r"|(?<!\d)(?P<weeks>\d|[일한이두삼세])\s*주일?)"
)
_NEXT = r"(?<![다그])(?<!다음)(?<!다음 )다음"
_WHICH = (
    rf"(?P<which>[이요]번|(?<![가-힣])금|지지난|저저번|지난|(?<!저번)(?<!저번 )저번|다다음|{_NEXT}"
    r"|(?<![가-힣])(?:담|[차내](?=주)))"
)
_MONTH = (
    r"(?P<month>이번|(?<![가-힣])이|지지난|저저번|지난|저번|다다음"
    rf"|{_NEXT}|(?<![가-힣])(?:담|내)(?=달))\s*달"
)
_BEGINS = r"(?<![^\s,.!?]\s)(?<![^\s,.!?])"
_WHOLE = r"(?<![가-힣\d.~,-])(?<![년월주달]\s)"
_EVENTS = any_of(r"""
    [가-힣][일날] [혼업학]식 시험 회의 여행 출발 수술 약속 추석 설 수능 결혼 출산 입학 졸업 입원
    퇴원 출시 오픈 디데이 크리스마스 성탄절 행사 발표 면접 이사 개강 방학 공연 휴가 명절 대회 출근
    유통기한 그로부터 마감 만기 기한 개막 개봉 콘서트 파티 모임
""")
_EVENT = rf"{_EVENTS}\s*(?:의\s*)?$"
"""Precedes a count from the day of an event: "회의 이틀 전"."""
_FROM_NOW = re.compile(rf"(?:욜|\d일|일에서|모레|부터|기한|생신|그로| 지|날|고)\s*$|{_EVENT}")
"""Precedes a count that starts from another day: "금요일 이틀 뒤"."""
_AGO = r"\s*전(?!\s*(?:그|같은|동일)|체|날|부(?!터)|화|달|혀|망|문|자|시)"
_REMINDS = re.compile(r"까지|에?\s*(?:미리\s*)?(?:알|리마|깨|말해|끝)")
_REMINDS_OF = re.compile(
    r"에\s*(?:미리\s*)?(?:알려(?!\s?줬)|알람|리마인|깨워|말해)|에?\s*(?:예약|신청|준비)(?![했한])|까지\s*(?:끝|마|내|제출|해야)"
)
_LATER = rf"\s*(?:뒤|후)(?![반식보기회배]|\s*(?:로|에서)|\s*[{_WEEKDAYS}](?:요일|욜))"
"""Not "이틀 뒤로 미뤄 줘", which may count from the original day."""
_FROM_ANOTHER = re.compile(r"(?<!오늘)(?<!내일)(?<!모레)(?<!뒤)(?<!후)부터\s*$")
"""A day that the following count may start from."""
_FINAL_N = "".join(map(chr, range(ord("간"), ord("힣") + 1, 28))).replace("번", "")
"""Syllables that end in ㄴ, like a verb before "다음" (after): "확인한 다음 월요일에"."""
_MODIFIERS = any_of(rf"""
    [째번매격] 마지막 (?<![{_FINAL_N}]\s)다음 담 지난 재의 블랙 던 지나[고서]
    (?:전|다음\s?|이튿)날
    (?<![가-힣])(?:첫|막|그|저|다른|어느|어떤|무슨|아무|성|[올갈할될온간]|[이직]?[전후]|뒤)
    (?:[오쉬하되없]|[^가-힣]있|끝나|지나)는 [아다]올 [연월주년달]\s?[초말] [초중하]순
""")
_UNKNOWN_WEEKS = any_of(r"다음 담 그 [이저]번 [차내익전후명\d일이삼두세몇]")
_MODIFIED = re.compile(
    rf"{_MODIFIERS}\s*(?:주\s*)?(?:의\s*)?$|{_UNKNOWN_WEEKS}\s*주\s*(?:의\s*)?$|[주일달]\s*[뒤후]\s*$"
    rf"|[월년]\s*(?:에|의)?\s*$|(?<![가-힣\d])[{_WEEKDAYS}]\s*[~–-]\s*$"
)
"""Precedes a weekday of a week that the rules do not resolve."""
_REPEATED = r"(?!\s*(?:(?:아침|점심|저녁|오전|오후|새벽|낮|밤)?\s*마다|[별들](?![가-힣])))"
_WEEKDAY = rf"(?P<weekday>[{_WEEKDAYS}])요일{_REPEATED}"
_SHORT_WEEKDAY = rf"(?P<weekday>[{_WEEKDAYS}])욜{_REPEATED}"
_NAMED = rf"(?:\s*[{_WEEKDAYS}]요일)?"
_ON = rf"(?:\s*(?P<on>[{_WEEKDAYS}])요일)?"
"""The weekday of a date, which must be the right one."""
_NO_WEEK = re.compile(r"스|문|제|방|차|류|식|먹|인|민|유|머|걱|전자|택")
_CHALLENGES = any_of("""
    챌 습관 도전 프로[젝그] 플랜 코스 캠프 미션 완성 트레이닝 무료 체험 단식 계획 목표 루틴 과정
    여행 휴가 적금 할부 패키지 분량 간격 주기 소요 배송 숙성 발효 복용 투약 구독 이용권 정기권
    다이어트 금식 격리 기적 법칙 평균
""")
"""Nouns after a number of days: "30일 챌린지"."""
_COUNTED = any_of(r"""
    간 동안 전(?!날) 째 치 만 정도 이나 씩 짜리 연속 내내 내[로에] 내(?![가-힣]) 분 뒤 후
    이[상하내후전] 했 한 마다 쯤 가량 남짓 안[에으] 중에 중(?![가-힣]) 남[았은을기음] 밤낮 굶
    지[나난났] 걸[려리린릴렸러] 더(?![가-힣]) 이면 이라도 넘[게었] 까지만 (?:[은을]\s*)?쉬
    을\s*(?:못|했|안|더|보|채|꼬) 은\s*(?:해야|걸[려리]) 에\s*(?:[한두세네]|\d+)\s*(?:번|회|차례)
    [가-힣]+량 \d+\s*(?:[회번포끼알정식컵잔개장쪽]|캡슐|세트|문제) 1[가-힣]
""")
_NOT_A_DATE = rf"(?!\s*{_COUNTED}|[차권장]|\s+차(?![가-힣를])|\s+차[인라입])"
"""Does not follow a number of days: "3일 동안", "21일차"."""
_PLANNED = any_of(r"시작할 시작하[자고려] 도전 해\s?볼 챌린지 프로젝트 캠프")
_NUMBERED = (
    rf"(?<![\d.월제])(?:[{_WEEKDAYS}]요일인\s*)?(?<!\d)(?P<day>\d{{1,2}})일{_ON}{_NOT_A_DATE}"
    rf"(?!\s*(?:의\s*)?{_CHALLENGES}|\s+[가-힣][^.!?]*{_PLANNED})"
)
_MARKS = any_of(r"""
    [,.!?)] $ 에(?!\s*한) 까지 부터 이?랑 하고 [와과인] 날 이[고에야] 은 는 도 의 자 오전 오후
    아침 저녁 밤 낮 새벽 점심 \d{1,2}(?:시|:) 전날 다음\s?날 이튿날
    (?:하루|이틀|사흘|나흘)\s*[전뒤후]
""")
_NO_PLAN = rf"(?!\s*(?:미뤄|연장|당겨|걸|로|(?:의\s*)?{_CHALLENGES}))"
_MARKED = rf"(?=\s*{_MARKS}){_NO_PLAN}"
"""Follows a date when planning."""
_AS_A_DATE = rf"(?=\s*(?:{_MARKS}|[가-힣]{{2}})){_NO_PLAN}"
_BEFORE_COUNTS = any_of(rf"""
    박 주 [이요저]번 (?<!그)(?<![{_FINAL_N}]\s)다음 담 휴가 후 연차 하루 냉장 냉동 부터 지난 출장
    작심 병가 숙성 발효 영업일 앞으로 까지
    입원 생후 평균 \bd- [씩당] \d\s*[회번포알정] [한두세네]\s?번
    (?:하루|일주일|한\s?달|한\s?주|\d\s*(?:주|달|개월))\s*(?:에|중|동안) [\d-]일?\s*[~–-]
    (?<![가-힣])(?:지|총|약|딱|벌써|겨우|고작|무려|꼬박|매[달월년주]|최[대소]|적어도|무조건|첫|처음|마지막)
""")
_HOW_MANY = re.compile(rf"{_BEFORE_COUNTS}\s*$")
"""Precedes a number of days, not a date: "2박 3일"."""
_NUMBER_OF_DAYS = re.compile(rf"{_HOW_MANY.pattern}|월\s*$")
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
    return date_without_year(context, int(match["month"]), int(match["day"]))


def _month(match: re.Match[str], context: DateContext) -> Span | None:
    return date_without_year(context, int(match["month"]), 28)


def _date_of_year(match: re.Match[str], context: DateContext) -> Span | None:
    year = match["digits"] or context.today.year + _YEARS[match["year"]]
    return date_of_year(context.today, int(year), int(match["month"]), int(match["day"]))


def _month_list(match: re.Match[str], context: DateContext) -> Span | None:
    """Two days of a month in a row: "3월 5·6일"."""
    is_in_a_row = int(match["until"]) == int(match["day"]) + 1
    return resolve_month_range(match, context) if is_in_a_row else None


def _numbered(match: re.Match[str], context: DateContext) -> Span | None:
    """A `day` number alone, in a month mentioned right before it."""
    days = resolve_day_number(match, context)
    if named := _MONTH_BEFORE.search(match.string, 0, match.start()):
        first, last = month_span(context.today, _MONTHS[named["month"]])
        return days if days and first <= days[0] <= last else None
    if of_year := _MONTH_OF_YEAR.search(match.string, 0, match.start()):
        is_marked = re.compile(_MARKED).match(match.string, match.end())
        number = int(match["day"])
        return date_without_year(context, int(of_year["of"]), number) if is_marked else None
    return days


def _coming_number(match: re.Match[str], context: DateContext) -> Span | None:
    return resolve_day_number(match, replace(context, ahead=True))


_MONTH_BEFORE = re.compile(rf"{_MONTH}\s*(?:의\s*)?$")
_MONTH_OF_YEAR = re.compile(r"(?<!\d)(?P<of>\d{1,2})\s*월(?:에는|에|엔|은|의|,)\s*$")


def _day_of_month(match: re.Match[str], context: DateContext) -> Span | None:
    return day_in_month(month_span(context.today, _MONTHS[match["month"]]), int(match["day"]))


def _later_this_month(match: re.Match[str], context: DateContext) -> Span | None:
    days = _day_of_month(match, context)
    return days if days and days[0] > context.today else None


def _named_month(match: re.Match[str], context: DateContext) -> Span:
    return named_month(context, _MONTHS[match["month"]])


def _month_end(match: re.Match[str], context: DateContext) -> Span:
    return single_day(month_span(context.today, _MONTHS[match["month"] or "이"])[1])


def _rule(pattern: str, resolve: Resolver, **more: Any) -> DateRule:
    return DateRule(pattern=re.compile(pattern), resolve=resolve, **more)


_DATE = r"(?P<month>\d{1,2})\s*월\s*(?P<day>\d{1,2})"
_DAY = rf"(?P<day>\d{{1,2}})\s*일{_ON}"
_COMING = r"(?:돌아오는|다가[오올]는?|(?<![가-힣])오는)"
_IN = r"(?:에는|에|엔|은|의|,)\s*"
_A_YEAR = r"내년|후년|작년|지난해|(?<!\d)\d{4}\s*년"
_PARTS = any_of(rf"아침 점심 저녁 밤 오전 오후 새벽 낮 까지 부터 \d{{1,2}}시 [{_WEEKDAYS}]요일")
_OTHER_YEAR = re.compile(
    rf"(?:매년|해마다|(?:그|이듬|다음|새)\s?해|\d\s*년도?)(?:에는|에|엔|의|은|도|,)?\s*$"
    rf"|(?:{_A_YEAR})[^.!?월]*$|음력[^.!?]*$"
)
"""Precedes a date of a year that the rules do not resolve."""


RULES = (
    _rule(
        rf"(?<![그엊])(?P<near>{'|'.join(sorted(_NEAR, key=len, reverse=True))}){_NAMED}",
        _NAMES.named_day,
    ),
    _rule(rf"(?<![가-힣])(?P<near>작일|명일)(?=\s|[에의까부은도,.!?]|$){_NAMED}", _NAMES.named_day),
    _rule(rf"(?<![가-힣])(?P<near>낼)(?=\s*{_PARTS}){_NAMED}", _NAMES.named_day),
    _rule(
        rf"(?<!그 )(?<!그보다 ){_COUNT}{_AGO}",
        _NAMES.days_ago,
        ahead=False,
        not_after=re.compile(_EVENT),
        not_before=_REMINDS_OF,
    ),
    _rule(
        rf"{_BEGINS}{_WHOLE}{_COUNT}{_AGO}",
        _NAMES.days_ago,
        ahead=True,
        not_before=_REMINDS,
    ),
    _rule(rf"{_WHOLE}{_COUNT}{_LATER}", _NAMES.days_ahead, ahead=True, not_after=_FROM_NOW),
    _rule(
        rf"{_WHOLE}(?P<months>\d{{1,2}}|[{''.join(_FEW)}])\s*(?:개월|달){_LATER}",
        _months_to_come,
        ahead=True,
        not_after=_FROM_NOW,
    ),
    _rule(rf"{_WHICH}\s*주\s*(?:의\s*)?{_WEEKDAY}", _NAMES.weekday_of_week),
    _rule(rf"(?:지난|저번)\s*{_WEEKDAY}", _NAMES.previous_weekday, not_after=_MODIFIED),
    _rule(rf"(?P<which>[이요]번)\s*{_WEEKDAY}", _NAMES.this_weekday),
    _rule(
        rf"{_COMING}\s*{_WEEKDAY}",
        _NAMES.coming_weekday,
        blocks=True,
    ),
    _rule(rf"{_COMING}\s*(?P<day>\d{{1,2}})일{_NOT_A_DATE}", _coming_number, blocks=True),
    _rule(_WEEKDAY, _NAMES.weekday, is_bare=True, not_after=_MODIFIED),
    _rule(rf"{_WHICH}\s*주\s*{_SHORT_WEEKDAY}", _NAMES.weekday_of_week, ahead=True),
    _rule(_SHORT_WEEKDAY, _NAMES.weekday, ahead=True, is_bare=True, not_after=_MODIFIED),
    _rule(
        rf"{_DATE}\s*일{_ON}(?!\s*\(?음력|\s?(?:간(?![가-힣])|동안|째|마다|태생)|생(?:[^가-힣]|이|인|$))",
        _date,
        blocks=True,
        not_after=_OTHER_YEAR,
    ),
    _rule(
        rf"(?P<month>\d{{1,2}})\s*월{_IN}{_DAY}{_NOT_A_DATE}{_MARKED}",
        _date,
        ahead=True,
        blocks=True,
        not_after=_OTHER_YEAR,
    ),
    _rule(
        rf"(?P<year>(?<![재내])(?:{'|'.join(_YEARS)})|(?<!\d)(?P<digits>\d{{4}})\s*년)"
        rf"(?:도)?(?:(?<!올해)(?<!올){_IN}|에?\s*){_DATE}\s*일{_ON}",
        _date_of_year,
        blocks=True,
    ),
    _rule(
        rf"{_DATE}\s*[~–-]\s*(?P<until>\d{{1,2}})\s*일{_ON}{_NOT_A_DATE}",
        resolve_month_range,
        is_day=False,
        blocks=True,
        not_after=re.compile(r"[년해올]에?\s*$"),
    ),
    _rule(
        rf"{_DATE}(?:\s*[·,/]\s*\d{{1,2}})*?\s*[·,/]\s*(?P<until>\d{{1,2}})\s*일{_ON}",
        _month_list,
        is_day=False,
        blocks=True,
        not_after=_OTHER_YEAR,
    ),
    _rule(
        r"(?<![\d.월~–-])(?<!월 )(?=[1-3]\d|\d일?\s*[~–-]\s*\d+일\s*(?:까지|에))"
        rf"(?P<day>\d{{1,2}})일?\s*[~–-]\s*(?P<until>\d{{1,2}})일{_ON}{_NOT_A_DATE}{_AS_A_DATE}",
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
        not_after=_MODIFIED,
    ),
    *(
        _rule(pattern, _day_of_month, blocks=True, ahead=ahead)
        for month, ahead in ((rf"(?=다?다음|[담내]달){_MONTH}", None), (_MONTH, True))
        for pattern in (
            rf"{month}\s*(?:의\s*)?{_DAY}{_NOT_A_DATE}",
            rf"{month}{_IN}{_DAY}{_NOT_A_DATE}{_MARKED}",
        )
    ),
    _rule(
        rf"(?:{_MONTH}\s*말일?|(?<![\d가-힣])(?:월말일?|말일))(?=[^가-힣]|에|까지|쯤|로|이[에야]|은|$)",
        _month_end,
        ahead=True,
    ),
    _rule(
        rf"(?P<month>이번|(?<![가-힣])이)\s*달\s*(?:의\s*)?{_DAY}{_NOT_A_DATE}",
        _later_this_month,
        ahead=False,
    ),
    _rule(
        r"(?:이번|(?<![가-힣])이)\s*달\s*말일?(?=[^가-힣]|에|까지|쯤|로|이[에야]|은|$)",
        resolve_nothing,
        ahead=False,
        blocks=True,
    ),
    _rule(r"(?<![\d/.])(?P<month>\d{1,2})/(?P<day>\d{1,2})(?!\d|[/.]\d)", resolve_month_and_day),
    _rule(_NUMBERED, _numbered, ahead=False, is_bare=True, blocks=True, not_after=_NUMBER_OF_DAYS),
    _rule(
        rf"{_NUMBERED}{_MARKED}",
        _numbered,
        ahead=True,
        is_bare=True,
        blocks=True,
        not_after=_NUMBER_OF_DAYS,
    ),
    _rule(rf"{_NUMBERED}(?<=요일)", _numbered, ahead=True, is_bare=True, blocks=True),
    _rule(
        r"어제(?:와|랑|하고)\s*(?:그저께|그제)|(?:그저께|그제)(?:와|랑|하고)\s*어제",
        resolve_last_two_days,
        is_day=False,
    ),
    _rule(
        rf"(?!금\s*주){_WHICH}\s*주(?!\s*말(?!고))(?<![차내]주(?!에(?!게)|까지|부터|중))",
        _NAMES.week,
        is_day=False,
        not_before=_NO_WEEK,
    ),
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
    _rule(r"(?P<month>이번)\s*달(?!리)", _named_month, is_day=False),
    _rule(r"(?<![가-힣])(?P<month>이)\s?달(?=[은의에도\s,]|$)", _named_month, is_day=False),
    _rule(r"(?P<month>지지난|저저번|지난|저번)\s*달(?!리|걀|콤|래|력)", _named_month, is_day=False),
    _rule(rf"(?P<month>{_NEXT})\s*달(?!리|걀|콤|래|력)", _named_month, is_day=False, ahead=True),
    _rule(
        rf"(?:최근|지난(?!\s*\d+\s*일(?:에|날))|오늘까지)\s*{_COUNT}(?:\s*(?:간|동안))?(?!\s*전)",
        _NAMES.recent_days,
        is_day=False,
    ),
    _rule(
        rf"(?:(?<=today까지 )|(?<=[지여]금까지 )|(?<=이렇게 )){_COUNT}\s*(?:간|동안|치)(?!\s*전)",
        _NAMES.recent_days,
        is_day=False,
        ahead=False,
    ),
    _rule(r"(?<!\d)(?P<month>\d{1,2})\s*월(?!\d)", _month, is_day=False, is_reported=False),
    *(
        _rule(pattern, resolve_nothing, blocks=True, ahead=ahead)
        for pattern, ahead in (
            (r"음력[^.!?\d]{0,6}(?:(?P<month>\d{1,2})\s*월\s*)?(?:\d{1,2}\s*일)?", None),
            (r"(?P<month>[차익전당금윤]|다음\s*다음)\s*[월달](?![가-힣]{2})", None),
            (rf"(?=다?다음|[담내]달){_MONTH}(?!리|걀|콤|래|력)", False),
        )
    ),
)

END_RULES = (
    _rule(rf"(?P<day>\d{{1,2}})일{_ON}(?=\s*까지)", resolve_day_number),
    _rule(
        rf"(?P<day>\d{{1,2}})일{_ON}{_NOT_A_DATE}{_AS_A_DATE}",
        resolve_day_number,
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

LIST = re.compile(r"\s*(?:[,·/&]|과|와|이?랑|하고|및|그리고|또는|이나|이랑)?\s*(?:그리고)?\s*")
"""Joins the days of a list, which share the month of the first one."""

_RELATIVE = re.compile(
    rf"(?<=[일욜\d])(?:\s*의|에서)?\s*(?:바로\s*)?(?:(?P<eve>전날)|(?P<next>다음\s?날|이튿날|담날)"
    rf"|(?<=[\s의서]){_COUNT}(?:(?P<ago>{_AGO})|{_LATER}))"
)


def find_relative(text: str, begin: int, end: int, *, ahead: bool) -> tuple[int, int, int] | None:
    """Return where the words "N days before or after this day" begin and end, and the distance."""
    del ahead
    match = (
        None if text[begin:end].endswith(tuple(_NAMES.named_days)) else _RELATIVE.match(text, end)
    )
    if not match:
        return None
    if match["eve"] or match["next"]:
        return begin, match.end(), -1 if match["eve"] else 1
    return begin, match.end(), -_count(match) if match["ago"] else _count(match)


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
