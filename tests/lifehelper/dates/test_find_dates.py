"""`find_dates`: the expected days were worked out by hand on a calendar."""

import calendar
import unicodedata
from collections.abc import Iterator
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.lifehelper.catalog import CATALOG_LOCALES
from lhkit.lifehelper.dates import mentions
from lhkit.lifehelper.dates.mentions import find_dates
from tests.rows import check_rows

WEDNESDAY = date(2026, 6, 17)
LOCALES = ("ko", "en")
KOREAN_DAYS = [f"{name}요일" for name in "월화수목금토일"]


def walk(day: date) -> Iterator[date]:
    """Yield seven days from a day on."""
    return (day + timedelta(days=number) for number in range(7))


def read(text: str, locale: str, today: date = WEDNESDAY, *, ahead: bool = False) -> list[str]:
    """Return the mentions of a message as `words: days`."""
    return [
        f"{mention.text}: {mention.first:%m-%d}"
        + ("" if mention.first == mention.last else f"..{mention.last:%m-%d}")
        for mention in find_dates(text, today, locale, ahead=ahead)
    ]


@check_rows(
    ("text", "expected"),
    [
        ("어제 걸었어", ["어제: 06-16"]),
        ("그제랑 그끄저께", ["그제: 06-15", "그끄저께: 06-14"]),
        ("내일 목요일 거", ["내일 목요일: 06-18"]),
        ("어제 화요일 밤", ["어제 화요일: 06-16"]),
        ("월요일인 15일부터 어제까지", ["월요일인 15일부터 어제: 06-15..06-16"]),
        ("사흘 전에 했던가", ["사흘 전: 06-14"]),
        ("2주 전에", ["2주 전: 06-03"]),
        ("내일 할 거야", ["내일: 06-18"]),
        ("수요일에 했어", []),  # today
        ("목요일에 했어", ["목요일: 06-11"]),
        ("이번 주 목요일", ["이번 주 목요일: 06-18"]),
        ("지난주 목요일", ["지난주 목요일: 06-11"]),
        ("지난 화요일", ["지난 화요일: 06-16"]),
        ("지난 수요일", ["지난 수요일: 06-10"]),
        ("12월 30일 거", ["12월 30일: 12-30"]),
        ("작년 6월 20일", ["작년 6월 20일: 06-20"]),
        ("6/3 기록", ["6/3: 06-03"]),
        ("15일 거", ["15일: 06-15"]),
        ("20일 거", ["20일: 05-20"]),
        ("이번 주 며칠", ["이번 주: 06-15..06-17"]),
        ("저번 주 며칠", ["저번 주: 06-08..06-14"]),
        ("지지난주 며칠", ["지지난주: 06-01..06-07"]),
        ("지난 주말에", ["지난 주말: 06-13..06-14"]),
        ("이번 달 기록", ["이번 달: 06-01..06-17"]),
        ("지난달 기록", ["지난달: 05-01..05-31"]),
        ("최근 7일", ["최근 7일: 06-11..06-17"]),
        ("오늘까지 3일간", ["오늘까지 3일간: 06-15..06-17"]),
        ("지난 일주일", ["지난 일주일: 06-11..06-17"]),
        ("월요일부터 어제까지", ["월요일부터 어제: 06-15..06-16"]),
        ("지난주 월요일부터 금요일까지", ["지난주 월요일부터 금요일: 06-08..06-12"]),
        ("5월 1일부터 3일까지", ["5월 1일부터 3일: 05-01..05-03"]),
        ("5월 30일부터 2일까지", ["5월 30일부터 2일: 05-30..06-02"]),
        ("어제와 그저께", ["어제와 그저께: 06-15..06-16"]),
        ("이번 주 말고 지난주", ["이번 주: 06-15..06-17", "지난주: 06-08..06-14"]),
        ("어제 걸은 거, 어제 칸에", ["어제: 06-16"]),
        ("어제 말고 그제, 아니 어제", ["어제: 06-16", "그제: 06-15"]),
    ],
)
def test_find_dates_korean(text: str, expected: list[str]) -> None:
    assert read(text, "ko") == expected


@check_rows(
    ("text", "expected"),
    [
        ("did I walk Yesterday?", ["Yesterday: 06-16"]),
        ("yesterday, Tuesday", ["yesterday, Tuesday: 06-16"]),
        ("the day before yesterday", ["the day before yesterday: 06-15"]),
        ("three days ago", ["three days ago: 06-14"]),
        ("a week ago", ["a week ago: 06-10"]),
        ("tomorrow", ["tomorrow: 06-18"]),
        ("on Wednesday", []),  # today
        ("on Thursday", ["Thursday: 06-11"]),
        ("last Tuesday", ["last Tuesday: 06-16"]),
        ("last Wednesday", ["last Wednesday: 06-10"]),
        ("Thursday of last week", ["Thursday of last week: 06-11"]),
        ("this Thursday", ["this Thursday: 06-18"]),
        ("June 3rd", ["June 3rd: 06-03"]),
        ("3 June", ["3 June: 06-03"]),
        ("Dec 30", ["Dec 30: 12-30"]),
        ("June 20 last year", ["June 20 last year: 06-20"]),
        ("the 15th", ["the 15th: 06-15"]),
        ("this week", ["this week: 06-15..06-17"]),
        ("last week", ["last week: 06-08..06-14"]),
        ("the week before last", ["the week before last: 06-01..06-07"]),
        ("last weekend", ["last weekend: 06-13..06-14"]),
        ("this month", ["this month: 06-01..06-17"]),
        ("last month", ["last month: 05-01..05-31"]),
        ("in the past 5 days", ["the past 5 days: 06-13..06-17"]),
        ("over the last week", ["over the last week: 06-11..06-17"]),
        ("since Monday", ["since Monday: 06-15..06-17"]),
        ("from Monday to yesterday", ["Monday to yesterday: 06-15..06-16"]),
        ("between June 1 and June 5", ["June 1 and June 5: 06-01..06-05"]),
        ("Friday and Saturday", ["Friday: 06-12", "Saturday: 06-13"]),
        (
            "from Monday to Friday of last week",
            ["Monday to Friday of last week: 06-08..06-12"],
        ),
    ],
)
def test_find_dates_english(text: str, expected: list[str]) -> None:
    assert read(text, "en") == expected


@check_rows(
    ("text", "locale", "expected"),
    [
        ("금요일에 뭐 있어?", "ko", ["금요일: 06-19"]),
        ("수요일에", "ko", []),  # today
        ("이번 주 토요일", "ko", ["이번 주 토요일: 06-20"]),
        ("담주 월요일, 다다음 주 화요일", "ko", ["담주 월요일: 06-22", "다다음 주 화요일: 06-30"]),
        ("금욜 저녁에", "ko", ["금욜: 06-19"]),
        ("다음 주 목욜", "ko", ["다음 주 목욜: 06-25"]),
        ("열흘 뒤, 이 주 뒤, 3일 후", "ko", ["열흘 뒤: 06-27", "이 주 뒤: 07-01", "3일 후: 06-20"]),
        ("한 달 뒤에, 2개월 후", "ko", ["한 달 뒤: 07-17", "2개월 후: 08-17"]),
        ("5월 1일에, 6/20", "ko", ["5월 1일: 05-01", "6/20: 06-20"]),
        ("15일까지", "ko", ["15일: 07-15"]),
        ("다음 달 3일", "ko", ["다음 달 3일: 07-03"]),
        ("이번 달 말에, 다음 달 말", "ko", ["이번 달 말: 06-30", "다음 달 말: 07-31"]),
        ("이번 주, 이번 달", "ko", ["이번 주: 06-17..06-21", "이번 달: 06-17..06-30"]),
        ("금요일에서 토요일로", "ko", ["금요일: 06-19", "토요일: 06-20"]),
        ("금요일부터 토요일까지", "ko", ["금요일부터 토요일: 06-19..06-20"]),
        ("이번 월요일", "ko", ["이번 월요일: 06-22"]),
        ("다다음 달 3일, 내달 25일", "ko", ["다다음 달 3일: 08-03", "내달 25일: 07-25"]),
        ("다다음달 말, 지난달 25일", "ko", ["다다음달 말: 08-31", "지난달 25일: 05-25"]),
        ("금요일 이틀 뒤, 생일 이틀 뒤, 이틀 뒤로 미뤄 줘", "ko", ["금요일 이틀 뒤: 06-21"]),
        ("유통기한 3일 전에, 하루 전체, 이틀 전부", "ko", []),
        ("다음다음 주 월요일, 3일 동안, 일주일치, 이 주 후반", "ko", []),
        (
            "다음 달 말레이시아, 이번 달 말복",
            "ko",
            ["다음 달: 07-01..07-31", "이번 달: 06-17..06-30"],
        ),
        ("우유 1/2컵, 6월말, 그글피", "ko", []),
        ("on Friday", "en", ["Friday: 06-19"]),
        ("this Monday, since Monday", "en", ["this Monday: 06-22", "since Monday: 06-15..06-17"]),
        ("the 5th of November", "en", ["the 5th of November: 11-05"]),
        ("the 25th of next month", "en", ["the 25th of next month: 07-25"]),
        ("a week from Friday, two weeks on Monday", "en", []),
        ("the Friday after next, Friday week, the first Monday of July", "en", []),
        ("Monday of the week after next", "en", []),
        ("the 31st of this month, 0/0", "en", ["this month: 06-17..06-30"]),
        ("다음 주 목요일 회의를 금요일로", "ko", ["다음 주 목요일: 06-25"]),
        ("8월 3일 회의 10일로 옮겨 줘", "ko", ["8월 3일: 08-03"]),
        ("금요일 6월 26일, 2박 3일, 3일 남았어", "ko", ["6월 26일: 06-26"]),
        ("오늘부터 3일 휴가, 한두 달 뒤, 1~2주 뒤, 일주일 뒤 금요일", "ko", []),
        ("금요일 회의, 하루 전에 알려 줘", "ko", ["금요일: 06-19"]),
        ("6/20 병원, 7/1 모임, 3일 전부터", "ko", ["6/20: 06-20", "7/1: 07-01", "3일 전: 06-14"]),
        ("회사에서 사흘 뒤 회의", "ko", ["사흘 뒤: 06-20"]),
        ("광주 토요일, 오후 금요일", "ko", ["토요일: 06-20", "금요일: 06-19"]),
        ("my birthday on Saturday, all day on Friday", "en", ["Saturday: 06-20", "Friday: 06-19"]),
        ("Friday, July 3 at 7 pm", "en", ["July 3: 07-03"]),
        ("next week’s Friday", "en", ["next week’s Friday: 06-26"]),
        ("born June 20, 1990; Feb 29 2027", "en", []),
        ("the last Friday of June, Thursday in two weeks, a week tomorrow", "en", []),
        ("the 2nd alarm, the 3rd drawer, 1/2 cup of milk", "en", []),
        ("2 apricots, mayo 2 jars, 3 margarine, maybe 3, decided 2 things", "en", []),
        ("move it from Monday to Friday", "en", ["Monday: 06-22", "Friday: 06-19"]),
        ("next Monday", "en", ["next Monday: 06-22"]),
        ("three days from now", "en", ["three days from now: 06-20"]),
        ("in two weeks' time", "en", ["in two weeks' time: 07-01"]),
        ("a month from today", "en", ["a month from today: 07-17"]),
        ("May 1st", "en", ["May 1st: 05-01"]),
        ("the 15th", "en", ["the 15th: 07-15"]),
        ("the end of the month", "en", ["the end of the month: 06-30"]),
        ("move Thursday to Friday", "en", ["Thursday: 06-18", "Friday: 06-19"]),
        ("from Thursday until Friday", "en", ["Thursday until Friday: 06-18..06-19"]),
        ("today, Tuesday of next week", "en", ["Tuesday of next week: 06-23"]),
    ],
)
def test_find_dates_ahead_resolves_to_coming_days(
    text: str, locale: str, expected: list[str]
) -> None:
    assert read(text, locale, ahead=True) == expected


SATURDAY = date(2026, 6, 20)
SUNDAY = date(2026, 6, 21)
PLANNED = [
    ("from Monday to Wednesday", date(2026, 6, 23), ["Monday to Wednesday: 06-29..07-01"]),
    ("Friday to Monday", SATURDAY, ["Friday to Monday: 06-26..06-29"]),
    ("from Saturday to Tuesday", SUNDAY, ["Saturday to Tuesday: 06-27..06-30"]),
    ("from the 20th to the 25th", SUNDAY, ["the 20th to the 25th: 07-20..07-25"]),
    ("the 28th through the 3rd", WEDNESDAY, ["the 28th through the 3rd: 06-28..07-03"]),
    ("from Wednesday to Friday", WEDNESDAY, ["Wednesday to Friday: 06-17..06-19"]),
    ("today to Friday", WEDNESDAY, ["today to Friday: 06-17..06-19"]),
    ("tomorrow till the 25th please", WEDNESDAY, ["tomorrow till the 25th: 06-18..06-25"]),
    ("June 20 to 25", WEDNESDAY, ["June 20 to 25: 06-20..06-25"]),
    ("June 20–25, the drill", WEDNESDAY, ["June 20–25: 06-20..06-25"]),
    ("June 20 to July 2", WEDNESDAY, ["June 20 to July 2: 06-20..07-02"]),
    ("20 to 25 June", WEDNESDAY, ["20 to 25 June: 06-20..06-25"]),
    ("the 3rd to the 5th of July", WEDNESDAY, ["the 3rd to the 5th of July: 07-03..07-05"]),
    ("between the 20th and the 25th", WEDNESDAY, ["the 20th and the 25th: 06-20..06-25"]),
    ("July 1 to Friday, July 17", WEDNESDAY, ["July 1 to Friday, July 17: 07-01..07-17"]),
    ("Friday evening to Monday", SATURDAY, ["Friday evening to Monday: 06-26..06-29"]),
    ("Monday through next Friday", WEDNESDAY, ["Monday through next Friday: 06-22..06-26"]),
    ("December 30 to January 2", WEDNESDAY, ["December 30 to January 2: 12-30..01-02"]),
    (
        "from tomorrow to a week from tomorrow",
        WEDNESDAY,
        ["tomorrow to a week from tomorrow: 06-18..06-25"],
    ),
    ("20일부터 25일까지", WEDNESDAY, ["20일부터 25일: 06-20..06-25"]),
    ("6월 20일부터 25일까지", WEDNESDAY, ["6월 20일부터 25일: 06-20..06-25"]),
    ("20일 오후부터 25일까지", WEDNESDAY, ["20일 오후부터 25일: 06-20..06-25"]),
    ("20일에서 25일까지", WEDNESDAY, ["20일에서 25일: 06-20..06-25"]),
    ("20일~25일 예약", WEDNESDAY, ["20일~25일: 06-20..06-25"]),
    ("6월 20~25일", WEDNESDAY, ["6월 20~25일: 06-20..06-25"]),
    ("금-월요일", WEDNESDAY, ["금-월요일: 06-19..06-22"]),
    ("다음 주 월~수요일", WEDNESDAY, ["다음 주 월~수요일: 06-22..06-24"]),
    ("내일부터 일주일 뒤까지", WEDNESDAY, ["내일부터 일주일 뒤: 06-18..06-24"]),
    ("오늘부터 일주일 뒤까지", WEDNESDAY, ["오늘부터 일주일 뒤: 06-17..06-24"]),
    ("오늘부터 한 달 뒤까지", WEDNESDAY, ["오늘부터 한 달 뒤: 06-17..07-17"]),
    ("내일부터 일주일 빌릴게", WEDNESDAY, ["내일부터 일주일: 06-18..06-24"]),
    ("금요일부터 3일간", WEDNESDAY, ["금요일부터 3일간: 06-19..06-21"]),
]
AMBIGUOUS = [
    ("from Friday to Friday", WEDNESDAY),  # a day or a week
    ("Monday to next Monday", WEDNESDAY),
    ("today to Wednesday", WEDNESDAY),
    ("from Friday to yesterday", WEDNESDAY),
    ("June 25 to June 20", WEDNESDAY),
    ("June 20 to 25", date(2026, 6, 22)),  # it is on
    ("June 20 to July 2", date(2026, 6, 22)),
    ("from Monday to Wednesday of the week after next", WEDNESDAY),
    ("June 20 to 25, 2027", WEDNESDAY),
    ("for a week from tomorrow, once a week from tomorrow", WEDNESDAY),
    ("내일부터 목요일까지", WEDNESDAY),
    ("6월 20일부터 25일까지", date(2026, 6, 22)),
]


@check_rows(
    ("text", "today", "expected"), [*PLANNED, *((text, today, []) for text, today in AMBIGUOUS)]
)
def test_find_dates_ahead_joins_ranges(text: str, today: date, expected: list[str]) -> None:
    assert (
        read(text, "en" if text.isascii() or "–" in text else "ko", today, ahead=True) == expected
    )


@check_rows(
    ("text", "expected"),
    [
        ("from the 10th to the 12th", ["the 10th to the 12th: 06-10..06-12"]),
        ("from the 20th to the 25th", ["the 20th to the 25th: 05-20..05-25"]),
        ("June 3 to 5", ["June 3 to 5: 06-03..06-05"]),
        ("June 3 through the 5th", ["June 3 through the 5th: 06-03..06-05"]),
        ("3 to 5 June", ["3 to 5 June: 06-03..06-05"]),
        ("the 3rd to the 5th of May", ["the 3rd to the 5th of May: 05-03..05-05"]),
        ("January 1 to December 31", ["January 1 to December 31: 01-01..12-31"]),
        ("how did it change from Monday to today", ["Monday to today: 06-15..06-17"]),
        ("at the weekend", []),
        ("6월 3~5일", ["6월 3~5일: 06-03..06-05"]),
        ("작년 6월 20일부터 6월 25일까지", ["작년 6월 20일부터 6월 25일: 06-20..06-25"]),
        ("작년 6월 20일부터 6월 3일까지", ["작년 6월 20일부터 6월 3일: 06-20..06-03"]),
        ("주말에", []),
    ],
)
def test_find_dates_joins_past_ranges(text: str, expected: list[str]) -> None:
    assert read(text, "en" if text.isascii() else "ko") == expected


@check_rows(
    ("text", "expected"),
    [
        ("move it from Monday to Tuesday", ["Monday: 06-22", "Tuesday: 06-23"]),
        ("from Monday to Tuesday, can you push the yoga?", ["Monday: 06-22", "Tuesday: 06-23"]),
        ("postpone Thursday until Friday", ["Thursday: 06-18", "Friday: 06-19"]),
        ("move it from the 3rd to the 5th of July", ["the 5th of July: 07-05"]),
        ("move it from June 20 to 25", ["June 20: 06-20"]),
        ("add Monday to Friday's list", ["Monday: 06-22", "Friday: 06-19"]),
        ("I prefer Thursday to Friday", ["Thursday: 06-18", "Friday: 06-19"]),
        (
            "we are moving house, the trailer from Friday to Monday",
            ["Friday to Monday: 06-19..06-22"],
        ),
        ("Monday morning and Tuesday", ["Monday: 06-22", "Tuesday: 06-23"]),
        ("Friday morning to Friday evening", ["Friday: 06-19"]),
        ("Friday five to six, Friday 5 to 6", ["Friday: 06-19"]),
        ("June 20 until 6, June 20 to 6:30", ["June 20: 06-20"]),
        ("June 20 - 25 km, June 20 to 25 eggs", ["June 20: 06-20"]),
        ("금요일에서 월요일로", ["금요일: 06-19", "월요일: 06-22"]),
        ("2~3일 걸릴 거야, 2~3일 빌릴게, 월~금", []),
        ("매주 월~금요일", []),
        ("오늘부터 3일 쉬어, 오늘부터 일주일에 두 번", []),
        ("금요일부터 일주일 뒤까지", ["금요일: 06-19"]),
    ],
)
def test_find_dates_does_not_join_separate_days(text: str, expected: list[str]) -> None:
    assert read(text, "en" if text.isascii() else "ko", ahead=True) == expected


@check_rows(
    ("text", "days"),
    [
        ("move my 3 p.m. meeting from Friday to Monday", "19 22"),
        ("move my 3.30 meeting from Friday to Monday", "19 22"),
        ("move Dr. Kim from the 20th to the 25th", "20 25"),
        ("Can you move my dentist? From Friday to Monday.", "19 22"),
        ("Friday to Monday. Please move it.", "19 22"),
        ("update the reminder from Friday to Monday", "19 22"),
        ("adjust my booking from the 20th to the 25th", "20 25"),
        ("금요일부터 월요일로 바꿔 줘", "19 22"),
    ],
)
def test_find_dates_ahead_returns_two_days_for_a_move(text: str, days: str) -> None:
    dates = find_dates(text, WEDNESDAY, "en" if text.isascii() else "ko", ahead=True)
    assert [mention.first.day for mention in dates] == [*map(int, days.split())]
    assert [mention.last for mention in dates] == [mention.first for mention in dates]


@check_rows(
    "text",
    [
        "20일부터 일주일 연장해 줘",
        "금요일부터 이틀 미뤄 줘",
        "월요일부터 이틀 밀렸어",
        "금요일부터 일주일 늦춰 줘",
        "15일부터 열흘 됐어",
        "10-15일 소요",
        "20~30일 숙성",
        "from the 30th to the 31st",
        "in two weeks from Friday",
    ],
)
def test_find_dates_ahead_ignores_other_durations(text: str) -> None:
    dates = find_dates(text, WEDNESDAY, "en" if text.isascii() else "ko", ahead=True)
    assert [str(mention) for mention in dates if mention.first != mention.last] == []
    assert "in two weeks" not in [mention.text for mention in dates]


@pytest.mark.parametrize("text", ["from {} to {}", "{} through {}", "{}-{}", "{}부터 {}까지"])
@given(today=st.dates(date(2020, 1, 1), date(2035, 12, 31)), days=st.permutations(range(7)))
def test_find_dates_ahead_weekday_ranges_start_at_the_first_to_come(
    text: str, today: date, days: list[int]
) -> None:
    locale, names = ("en", calendar.day_name) if text.isascii() else ("ko", KOREAN_DAYS)
    (dates,) = find_dates(text.format(*(names[day] for day in days[:2])), today, locale, ahead=True)
    first = next(day for day in walk(today) if day.weekday() == days[0])
    last = next(day for day in walk(first) if day.weekday() == days[1])
    assert (dates.first, dates.last) == (first, last)


@check_rows(
    ("text", "locale", "today", "expected"),
    [
        ("this weekend", "en", SATURDAY, ["this weekend: 06-20..06-21"]),
        ("this weekend", "en", SUNDAY, ["this weekend: 06-21"]),
        ("이번 주말", "ko", SUNDAY, ["이번 주말: 06-21"]),
        ("next weekend", "en", SUNDAY, ["next weekend: 06-27..06-28"]),
        ("is it free at the weekend?", "en", WEDNESDAY, ["at the weekend: 06-20..06-21"]),
        ("over the weekend please", "en", SATURDAY, ["over the weekend: 06-20..06-21"]),
        ("주말에 비어 있어?", "ko", WEDNESDAY, ["주말: 06-20..06-21"]),
        ("at the weekend", "en", SUNDAY, []),  # this one or the next
        ("주말에", "ko", SUNDAY, []),
        ("over the weekend after, every day at the weekend", "en", WEDNESDAY, []),
        ("we ate the cheese over the weekend", "en", WEDNESDAY, []),
        ("주말에 다 먹었어. 그 주말에, 주말마다", "ko", WEDNESDAY, []),
        ("in a week from tomorrow", "en", WEDNESDAY, ["a week from tomorrow: 06-25"]),
        ("drinks on the list for the weekend", "en", WEDNESDAY, ["for the weekend: 06-20..06-21"]),
        ("주말에 산에 가", "ko", WEDNESDAY, ["주말: 06-20..06-21"]),
        ("I met Kim over the weekend, note that", "en", WEDNESDAY, []),
        ("she paid at the weekend", "en", WEDNESDAY, []),
        ("we read it over the weekend", "en", WEDNESDAY, []),
        ("주말에 산 우유 어디 있어", "ko", WEDNESDAY, []),
        ("주말에 먹은 거", "ko", WEDNESDAY, []),
        ("주말에 만난 사람", "ko", WEDNESDAY, []),
        ("주말에 빌린 거 반납", "ko", WEDNESDAY, []),
        ("주말에 쓰던 텐트", "ko", WEDNESDAY, []),
    ],
)
def test_find_dates_ahead_resolves_clear_weeks_and_weekends(
    text: str, locale: str, today: date, expected: list[str]
) -> None:
    assert read(text, locale, today, ahead=True) == expected


@check_rows(
    ("text", "locale", "expected"),
    [
        ("내년 4월 1일, 2027년 9월 4일", "ko", ["2027-04-01", "2027-09-04"]),
        ("20 May 2027, May 21st, 2025", "en", ["2027-05-20", "2025-05-21"]),
        ("June 20 next year", "en", ["2027-06-20"]),
        ("June 3 2000 steps", "en", ["2026-06-03"]),
    ],
)
@check_rows("ahead", [False, True])
def test_find_dates_uses_a_given_year(
    text: str, locale: str, expected: list[str], *, ahead: bool
) -> None:
    today = date(2026, 6, 1)
    dates = [str(mention.first) for mention in find_dates(text, today, locale, ahead=ahead)]
    assert dates == expected


def test_date_mention_str() -> None:
    dates = find_dates("내년\n4월 1일, 이번 주", WEDNESDAY, "ko", ahead=True)
    assert [*map(str, dates)] == ["내년 4월 1일 = 2027-04-01", "이번 주 = 2026-06-17 .. 2026-06-21"]


@check_rows(
    ("text", "locale"),
    [
        ("in two days", "en"),  # plans, and it looks back
        ("다음 달", "ko"),
        ("금욜", "ko"),
        ("사흘 뒤", "ko"),
        ("오늘 물 마셨어", "ko"),
        ("지난 달리기는 좋았어", "ko"),
        ("많이 달려서 3일 연속 했어", "ko"),
        ("주말 자전거 타기", "ko"),
        ("99월 99일, 13/45, 31/31", "ko"),
        ("99999일 전", "ko"),
        ("I may 9999 times", "en"),
        ("the morning sun sat well today", "en"),
        ("9999 days ago", "en"),
        ("yesterday", "de"),
        ("", "ko"),
    ],
)
def test_find_dates_ignores_other_texts(text: str, locale: str) -> None:
    assert read(text, locale) == []


@given(
    text=st.text(max_size=60),
    today=st.dates(),
    locale=st.sampled_from(LOCALES),
    ahead=st.booleans(),
)
def test_find_dates_never_raises(text: str, today: date, locale: str, *, ahead: bool) -> None:
    for mention in find_dates(text, today, locale, ahead=ahead):
        assert mention.first <= mention.last
        assert mention.text in text


@given(text=st.lists(st.sampled_from(["어제", " ", "부터", "3일", "전", "월요일", "지난", "주"])))
def test_find_dates_never_raises_on_joined_mentions(text: list[str]) -> None:
    assert len(find_dates("".join(text), WEDNESDAY, "ko")) <= 6


def test_find_dates_supports_the_catalog_locales() -> None:
    assert set(mentions._LANGUAGES) == set(CATALOG_LOCALES)


def test_find_dates_reads_the_start_of_a_long_message() -> None:
    text = "a" * 995 + " yesterday " + "yesterday " * 100_000
    assert read(text, "en") == []
    assert read("last week " + text, "en") == ["last week: 06-08..06-14"]


@pytest.mark.parametrize("locale", LOCALES)
def test_find_dates_accepts_the_limits_of_the_calendar(locale: str) -> None:
    for today in (date.min, date.min + timedelta(days=40), date.max):
        for text in (
            "어제 지난주 지난달 내일 30일 6월 1일 다음 달 말 한 달 뒤 내년 1월 1일",
            "월요일부터 운동",
            "Monday - foo, today to relax",
            "yesterday last week last month tomorrow next month in a month 1 May next year",
        ):
            find_dates(text, today, locale)
            find_dates(text, today, locale, ahead=True)


MARCH_4 = date(2026, 3, 4)


@check_rows("ahead", [False, True])
@check_rows(
    ("text", "locale"),
    [
        ("2월 30일까지 끝내", "ko"),
        ("2월  30일에", "ko"),
        ("4월 31일", "ko"),
        ("2월 29일에", "ko"),
        ("13월 3일", "ko"),
        ("0월 3일에", "ko"),
        ("2월의 30일에", "ko"),
        ("4월 31일부터", "ko"),
        ("February 30", "en"),
        ("the 30th of February", "en"),
        ("30 February", "en"),
        ("on April 31st", "en"),
        ("the 31st of April", "en"),
    ],
)
def test_find_dates_ignores_dates_that_do_not_exist(text: str, locale: str, ahead: bool) -> None:
    days = read(text, locale, MARCH_4, ahead=ahead)
    # 29 February exists in 2028: that is the first to come
    assert days == (["2월 29일: 02-29"] if ahead and "29일" in text else [])


@check_rows(
    ("text", "ahead", "expected"),
    [
        ("다음 달 31일에", True, []),
        ("지난달 30일에", False, []),
        ("지난달 28일에", False, ["28일: 02-28"]),
        ("지난달 2일에", False, []),
        ("이번 달 3일에", False, ["3일: 03-03"]),
        ("이번 달 20일에", False, ["이번 달 20일: 03-20"]),
    ],
)
def test_find_dates_day_number_after_a_month(text: str, ahead: bool, expected: list[str]) -> None:
    assert [day for day in read(text, "ko", MARCH_4, ahead=ahead) if "달:" not in day] == expected


@check_rows("ahead", [False, True])
@check_rows(
    ("text", "locale"),
    [
        ("the first Monday of April", "en"),
        ("the last Friday of the month", "en"),
        ("the 2nd Tuesday", "en"),
        ("a week on Friday", "en"),
        ("two weeks from Friday", "en"),
        ("Friday week", "en"),
        ("Good Friday", "en"),
        ("black friday deals", "en"),
        ("Easter Monday", "en"),
        ("Friday the 14th", "en"),
        ("Friday, the 14th", "en"),
        ("둘째 주 금요일", "ko"),
        ("첫 금요일", "ko"),
        ("4월 마지막 주 금요일", "ko"),
        ("세 번째 금요일", "ko"),
        ("성금요일", "ko"),
    ],
)
def test_find_dates_ignores_weekdays_of_unresolved_weeks(
    text: str, locale: str, ahead: bool
) -> None:
    assert read(text, locale, MARCH_4, ahead=ahead) == []


def test_find_dates_weekday_with_its_day_number() -> None:
    assert read("Friday the 13th", "en", date(2026, 3, 9), ahead=True) == [
        "Friday: 03-13",
        "the 13th: 03-13",
    ]


@check_rows("text", ["내일", "다음 주 월요일에", "3월 5일까지", "이번 주말에"])
@check_rows("ahead", [False, True])
def test_find_dates_reads_decomposed_hangul(text: str, ahead: bool) -> None:
    decomposed = unicodedata.normalize("NFD", text)
    assert find_dates(decomposed, MARCH_4, "ko", ahead=ahead) == find_dates(
        text, MARCH_4, "ko", ahead=ahead
    )
    long = unicodedata.normalize("NFD", "가각" * 490 + " " + text)
    assert read(long, "ko", MARCH_4, ahead=ahead) == read(text, "ko", MARCH_4, ahead=ahead)
