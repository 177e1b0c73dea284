"""`find_dates` returns nothing where the day is not certain. Today is Wednesday 2026-03-04."""

from datetime import date

import pytest

from lhkit import find_dates
from tests.rows import check_rows

TODAY = date(2026, 3, 4)


def find_days(text: str, *, ahead: bool, today: date = TODAY) -> list[str]:
    """Return the found days of a Korean or English text, ranges as `first..last`."""
    locale = "en" if text.isascii() else "ko"
    return [
        f"{day.first}" if day.first == day.last else f"{day.first}..{day.last}"
        for day in find_dates(text, today, locale, ahead=ahead)
    ]


NUMBERS_OF_DAYS = """
    100일 챌린지 | 30일 스쿼트 시작할래 | 20일 걷기에 도전 | 7일 단식 해볼까 | 3일치 반찬
    10일 안으로 갚을게 | 하루 2번 7일분 처방 | 14일 이내 반품 | 5일 내로 답장 | 3일 걸러 한 번
    이틀에 한 번 | 사흘 연속 | 사흘간 | 열흘 만에 | 나흘째 | 2주 동안 | 2주마다 | 일주일에 세 번
    3일에 한 번 운동 | 휴가 5일 썼어 | 연차 3일 냈어 | 출장 3일 다녀왔어 | 금식 3일차 | D-3일
    생후 30일 | 입원 7일 | 주 5일 근무 | 주5일 출근 | 5일장에 갔어 | 일주일 중 3일은 쉬어
    3일이면 충분해 | 30일권 끊었어 | 15일간격 | 한 달에 10일 | 평균 3일 | 3~4일 걸려 | 3일만 쉬자
    3일 쉬고 싶어 | 1일1식 도전 | 1일 1만보 | 1일 권장량 | 2일 1회 | 이 약 하루 두 번 7일 먹으래
    무료 반품은 7일까지만 된대 | 제5일 | 5월 5일간 | 다음 15일 | 매달 첫 5일 | 10일 이후에
    7일 다이어트 | 21일의 기적 | 14일 격리 | 10일 금식 | 7일 평균 | 작심 3일 | 영업일 3일
    만기까지 15일 | 10일 남음 | 앞으로 10일 | 2일 굶었어 | 3일 밤낮
    finished in 3 days flat | in 3 days of rain | half a day ago
    the 5th day | the 5th time | my 5th day | his 21st birthday | the 21st century | the 3rd one
    we may 2 times | can you march 10 miles | june 3 hours | take 2 of 3 days | day 5 of 30
    7/10 would recommend | I rate it 8/10 | my mood was 7/10 | 3/4 done | 1/2 day | 24/7
"""
UNKNOWN_WEEKS = """
    차차주 금요일 | 담담주 금요일 | 다담주 금요일 | 익주 월요일 | 명주 금요일 | 전주 금요일
    전전주 금요일 | 지난번 금요일 | 금번 금요일 | 다음번 월요일 | 그다음주 금요일 | 그 금요일
    매 금요일 | 격주 금요일 | 금요일마다 | 다음 월요일 | 바로 다음 금요일 | 휴일 다음 금요일
    추석 전 금요일 | 크리스마스 다음 월요일 | 생일 전날 금요일 | 4월의 금요일 | 돌아올 주의 금요일
    일요일 아침마다 | nxt monday | a week ago Monday | Monday every week | Taco Tuesday
    쉬는 금요일 | 올 금요일 | 갔던 금요일 | 금주 챌린지 | 내주세요 | 차주에게 전화
    the following Friday | the previous Friday | every Friday | each Friday | alternate Fridays
    Friday mornings | the Friday before Easter | the Thursday following | next-but-one Friday
    last but one Friday | the next Friday | Friday next | Friday fortnight | two Fridays ago
    Friday of the following week | a Friday in May | casual Friday | Friday 13th | on a Friday
"""
RANGES_AND_LISTS_OF_THEM = """
    매주 월요일부터 금요일까지 | 매주 월요일과 금요일 | 격주 월요일, 수요일
    둘째 주 월요일~금요일 | 다음 다음 주 월요일부터 수요일까지 | 매달 5일부터 10일까지
    매달 5일, 15일 | 1일 3회, 7일 복용 | 2월 30일부터 3일까지 | 음력 5월 5일부터 10일까지
    every Monday to Friday | every Monday and Friday | the following Monday to Wednesday
    the first Monday and Tuesday | the 30th of February to the 5th
"""
OTHER_MONTHS_AND_YEARS = """
    내년 가족 여행은 5월 5일 | 내후년 5월 5일 | 재내년 5월 5일 | 27년 5월 5일 | 그해 5월 5일
    다음 해 5월 5일 | 해마다 5월 5일 | 차월 5일 | 익월 5일 | 전월 5일 | 당월 5일 | 윤달 5일에
    매월 15일 | 5월 중에 5일에 | 4월에 회의가 10일에 있어 | 1월 1일 음력 | 음력 15일
    음력 5월 5일과 6일 | 음력설 다음 날 | in April we fly on the 5th | next year in May on the 5th
    May 5th the year after next | May 5 the following year | the year after next on May 5
    on May 5th, sometime next year | May 5th, every year | the 15th of each month
    every month on the 15th | in April on the 31st | lunar August 15
    the 15th of the 8th lunar month
"""
RELATIVE_DAYS = """
    추석 이틀 전 | 크리스마스 전날 | 생일 다음 날 | 수능 100일 전 | 결혼 30일 전
    출산 예정일 5일 전 | 마감일 3일 전 | 약속 하루 전에 알려 줘 | 여행 3일 후 | 퇴원 3일 뒤에 병원
    마감 이틀 전 | 만기 7일 전 | 기한 하루 전 | 개막 10일 전 | 콘서트 이틀 전
    그 다음날 | 전날 밤 | 11월 31일 전날 | 2월 30일 이틀 전 | the day before Christmas Eve
    the weekend before the exam | the evening before Friday | within two days of Friday
    the second day after Monday | a week next Friday | the day after the day after Friday
    on the eve of April 10
"""
IMPOSSIBLE_DAYS = """
    2월 29~31일 | 4월 30~31일 | 2월 28, 29일 | 9월 31일 | 2월 30일 금요일 | 4월 29·30·31일
    Feb 30 | 31 April | 31st of June | the 29th, 30th and 31st of April
"""
VAGUE_DAYS = """
    낼 봐 | 힘낼게 | 시작일 | 설명일 뿐이야 | 엊그저께 | 그글피 | 익일까지 | 월초 | 연말까지
    돌아오는 주말 | this coming weekend | some day | the other day
"""


@check_rows("ahead", [False, True])
@check_rows(
    "text",
    [
        text.strip()
        for kind in (
            NUMBERS_OF_DAYS,
            UNKNOWN_WEEKS,
            RANGES_AND_LISTS_OF_THEM,
            OTHER_MONTHS_AND_YEARS,
            RELATIVE_DAYS,
            IMPOSSIBLE_DAYS,
            VAGUE_DAYS,
        )
        for line in kind.strip().splitlines()
        for text in line.split("|")
    ],
)
def test_find_dates_ignores_uncertain_days(text: str, *, ahead: bool) -> None:
    assert find_days(text, ahead=ahead) == []


@check_rows(
    ("text", "plan", "log"),
    [
        # a day number belongs to the month before it, or is left out
        ("on the 5th in April", ["2026-04-05"], ["2026-04-05"]),
        ("April on the 5th", ["2026-04-05"], ["2026-04-05"]),
        ("during next month on the 10th", ["2026-04-10"], ["2026-04-10"]),
        ("5월의 5일", ["2026-05-05"], ["2026-05-05"]),
        ("담달 5일", ["2026-04-05"], ["2026-04-05"]),
        ("이번 달 20일에", ["2026-03-20"], ["2026-03-20"]),
        ("this month on the 20th", ["2026-03-20"], ["2026-03-20"]),
        ("이번 달 말까지", ["2026-03-31"], []),
        ("이번 달 2일에", ["2026-03-02"], ["2026-03-01..2026-03-04", "2026-03-02"]),
        ("5월 3일 생일", ["2026-05-03"], ["2026-05-03"]),
        ("2월에 했어, 28일에", [], ["2026-02-28"]),
        ("2월이 짧아서 28일에 했어", [], ["2026-02-28"]),
        ("April 3rd, the 5th and the 7th", ["2026-04-03", "2026-04-05", "2026-04-07"], None),
        ("6월 28일, 29일, 31일", ["2026-06-28", "2026-06-29"], ["2026-06-28", "2026-06-29"]),
        ("3월 20일, 5일", ["2026-03-20"], ["2026-03-20"]),  # of which month?
        ("4월 10·11일", ["2026-04-10..2026-04-11"], ["2026-04-10..2026-04-11"]),
        # a weekday must be the one of its date
        ("20일 금요일 정오에", ["2026-03-20"], ["2026-02-20"]),
        ("21일 금요일에", [], []),
        ("3월 5일 금요일에", [], []),
        ("Friday, March 20", ["2026-03-20"], ["2026-03-20"]),
        ("Monday, February 23", ["2027-02-23"], ["2026-02-23"]),
        # days relative to another one
        ("20일 이틀 전에", ["2026-03-18"], ["2026-02-18"]),
        ("다음 주 금요일 사흘 전", ["2026-03-10"], ["2026-03-10"]),
        ("수요일 전날", [], []),  # of today or of another week
        ("3일, 5일에", ["2026-04-03"], ["2026-03-03"]),  # of which month?
        ("a day before Friday", ["2026-03-05"], ["2026-02-26"]),
        ("the day before the 10th", ["2026-03-09"], ["2026-02-09"]),
        ("금요일 회의, 이틀 전에 알려 줘", ["2026-03-06"], ["2026-02-27"]),
        # ranges and lists with days that do not exist
        ("4월 31일부터 5월 2일까지", ["2026-05-02"], ["2026-05-02"]),
        ("from April 27 to April 31", ["2026-04-27"], ["2026-04-27"]),
        ("between April 27 and April 31", ["2026-04-27"], ["2026-04-27"]),
        # a day that a month lacks is not looked for in another month
        ("31일까지", ["2026-03-31"], []),
        ("말일까지", ["2026-03-31"], []),
        ("no memory of June 25th", ["2026-06-25"], ["2026-06-25"]),
        ("20일~25일 기록", ["2026-03-20..2026-03-25"], ["2026-02-20..2026-02-25"]),
        ("다가오는 15일", ["2026-03-15"], ["2026-03-15"]),
        ("낼부터", ["2026-03-05"], ["2026-03-05"]),
        ("그제", ["2026-03-02"], ["2026-03-02"]),
        ("확인한 다음 화요일에 넣어 줘", ["2026-03-10"], ["2026-03-03"]),
    ],
)
def test_find_dates_returns_days_of_their_context(
    text: str, plan: list[str], log: list[str] | None
) -> None:
    assert find_days(text, ahead=True) == plan
    assert find_days(text, ahead=False) == (plan if log is None else log)


@check_rows("text", ["this coming Wednesday", "돌아오는 수요일에", "coming Wednesday"])
@check_rows("ahead", [False, True])
def test_find_dates_coming_weekday_on_that_day_is_ambiguous(text: str, *, ahead: bool) -> None:
    assert find_days(text, ahead=ahead) == []
    tomorrow = find_days(text, ahead=ahead, today=date(2026, 3, 10))
    assert tomorrow == ["2026-03-11"]


@pytest.mark.parametrize("text", ["31일까지", "by the 31st"])
def test_find_dates_ahead_ignores_the_31st_in_a_short_month(text: str) -> None:
    assert find_days(text, ahead=True, today=date(2026, 4, 5)) == []
    assert find_days(text, ahead=True, today=date(2026, 5, 5)) == ["2026-05-31"]


def test_find_dates_reads_hundreds_of_days_of_a_list() -> None:
    assert len(find_dates("3월 1일, " * 300, TODAY, "ko")) == 1
    assert len(find_dates("1일, 2일, 3일, 4일, " * 60, TODAY, "ko", ahead=True)) == 3
