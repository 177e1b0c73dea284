"""Wrong dates are poison: each wording is worked out here a second time, in another way."""

import re
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.lessons.scene import past_days, plain_day, ranges

DAY = timedelta(days=1)
KO_DAYS = "월화수목금토일"
EN_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
BACK = {
    "어제": 1,
    "그저께": 2,
    "그제": 2,
    "그끄저께": 3,
    "이틀 전": 2,
    "사흘 전": 3,
    "나흘 전": 4,
    "일주일 전": 7,
    "yesterday": 1,
    "the day before yesterday": 2,
    "two days ago": 2,
    "three days ago": 3,
    "four days ago": 4,
    "a week ago": 7,
}


def walked_back(today: date, weekday: int, weeks: int) -> date:
    """Walk back day by day to the Monday `weeks` weeks ago, then forward to the weekday."""
    day = today
    while day.isoweekday() != 1:
        day -= DAY
    day -= 7 * weeks * DAY
    while day.isoweekday() != weekday + 1:
        day += DAY
    return day


def weekday_in(text: str) -> int | None:
    korean = re.search(r"([월화수목금토일])요일", text)
    if korean:
        return KO_DAYS.index(korean[1])
    return next((i for i, name in enumerate(EN_DAYS) if name in text.casefold()), None)


def meant(text: str, today: date) -> date:
    """Work out a day from its words, by rules of its own."""
    if text in BACK:
        return today - BACK[text] * DAY
    if ago := re.fullmatch(r"(\d)일 전", text):
        return today - int(ago[1]) * DAY
    weekday = weekday_in(text)
    if weekday is not None:
        if "지난주" in text or "last week" in text:
            return walked_back(today, weekday, 1)
        if "이번 주" in text or "this" in text:
            return walked_back(today, weekday, 0)
        day = today - DAY  # 지난 …, last …: the most recent one
        while day.weekday() != weekday:
            day -= DAY
        return day
    return dated(text, today)


def dated(text: str, today: date) -> date:
    """Find the latest day up to today that has this month and day of the month."""
    numbers = [int(each) for each in re.findall(r"\d+", text)]
    month = next((i for i, name in enumerate(MONTHS, 1) if name in text.casefold()), None)
    number = numbers[-1]
    if len(numbers) > 1:
        month = numbers[0]
    day = today
    while day.day != number or (month is not None and day.month != month):
        day -= DAY
    return day


TODAYS = st.dates(min_value=date(2024, 2, 1), max_value=date(2028, 12, 31))


@given(today=TODAYS, locale=st.sampled_from(["ko", "en"]))
def test_every_named_day_is_the_day_that_its_words_mean(today: date, locale: str) -> None:
    for said in past_days(today, locale):
        assert said.day == meant(said.text, today), (said.text, today)
        assert said.day == meant(said.noun, today), (said.noun, today)
        assert said.day < today


@given(today=TODAYS, locale=st.sampled_from(["ko", "en"]))
def test_dated_spans_begin_and_end_on_the_days_that_they_name(today: date, locale: str) -> None:
    for said in ranges(today, locale):
        assert said.first <= said.last <= today
        dates = re.findall(r"\d+월 \d+일|(?:[A-Z][a-z]+) \d+", said.text)
        if dates:
            assert said.first == dated(dates[0], today)
        if len(dates) > 1:
            assert said.last == dated(dates[1], today)
        if count := re.search(r"(\d+)(?:일간|일$| days)", said.text):
            assert not dates
            assert (said.last - said.first).days == int(count[1]) - 1
            assert said.last == today


# A Wednesday, a Monday, a Sunday, the first of a month and of a year.
TABLE = [
    ("2026-06-17", "이번 주", "2026-06-15", "2026-06-17"),
    ("2026-06-17", "지난주", "2026-06-08", "2026-06-14"),
    ("2026-06-17", "지난주 월요일부터 일요일까지", "2026-06-08", "2026-06-14"),
    ("2026-06-17", "지난주 월요일부터 금요일까지", "2026-06-08", "2026-06-12"),
    ("2026-06-17", "지난주 월요일부터 오늘까지", "2026-06-08", "2026-06-17"),
    ("2026-06-17", "지난 3일", "2026-06-15", "2026-06-17"),
    ("2026-06-17", "최근 7일", "2026-06-11", "2026-06-17"),
    ("2026-06-17", "어제와 그저께", "2026-06-15", "2026-06-16"),
    ("2026-06-17", "그저께부터 오늘까지", "2026-06-15", "2026-06-17"),
    ("2026-06-17", "월요일부터 어제까지", "2026-06-15", "2026-06-16"),
    ("2026-06-17", "지난 주말", "2026-06-13", "2026-06-14"),
    ("2026-06-17", "지난달", "2026-05-01", "2026-05-31"),
    ("2026-06-15", "이번 주", "2026-06-15", "2026-06-15"),
    ("2026-06-14", "이번 주", "2026-06-08", "2026-06-14"),
    ("2026-06-14", "지난주", "2026-06-01", "2026-06-07"),
    ("2026-03-01", "지난달", "2026-02-01", "2026-02-28"),
    ("2026-01-01", "지난달", "2025-12-01", "2025-12-31"),
    ("2026-01-01", "이번 주", "2025-12-29", "2026-01-01"),
    ("2026-06-17", "last week", "2026-06-08", "2026-06-14"),
    ("2026-06-17", "from Monday to Sunday last week", "2026-06-08", "2026-06-14"),
    ("2026-06-17", "from Monday to Friday of last week", "2026-06-08", "2026-06-12"),
    ("2026-06-17", "since Monday last week", "2026-06-08", "2026-06-17"),
    ("2026-06-17", "over the last 7 days", "2026-06-11", "2026-06-17"),
    ("2026-06-17", "yesterday and the day before", "2026-06-15", "2026-06-16"),
    ("2026-06-17", "from Monday to yesterday", "2026-06-15", "2026-06-16"),
    ("2026-06-17", "last weekend", "2026-06-13", "2026-06-14"),
    ("2026-06-17", "this month", "2026-06-01", "2026-06-17"),
    ("2026-03-01", "last month", "2026-02-01", "2026-02-28"),
    ("2026-06-14", "this week", "2026-06-08", "2026-06-14"),
]


@pytest.mark.parametrize(("today", "text", "first", "last"), TABLE)
def test_a_span_in_words_has_the_days_of_the_table(
    today: str, text: str, first: str, last: str
) -> None:
    locale = "en" if text.isascii() else "ko"
    (said,) = [each for each in ranges(date.fromisoformat(today), locale) if each.text == text]
    assert (said.first.isoformat(), said.last.isoformat()) == (first, last)


def test_wordings_with_two_meanings_are_not_said() -> None:
    friday, sunday = date(2026, 6, 19), date(2026, 6, 21)
    assert "지난 화요일" not in [each.text for each in past_days(friday, "ko")]
    assert "last Tuesday" not in [each.text for each in past_days(friday, "en")]
    assert "지난 주말" not in [each.text for each in ranges(sunday, "ko")]


@pytest.mark.parametrize(("locale", "text"), [("ko", "6월 1일"), ("en", "June 1")])
def test_a_plain_day_has_no_year(locale: str, text: str) -> None:
    assert plain_day(date(2026, 6, 1), locale) == text
