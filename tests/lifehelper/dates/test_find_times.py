"""`find_times`: the expected times were worked out by hand."""

import unicodedata
from datetime import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit import find_times
from tests.rows import check_rows

LOCALES = ("ko", "en")
_HOURS = ["한", "두", "세", "네", "다섯", "여섯", "일곱", "여덟", "아홉", "열", "열한", "열두"]
_PIECES = ["오후", " ", "세", "시", "반", "3", ":", "30", "분", "to", "pm"]


def read(text: str, locale: str) -> list[str]:
    """What a message says, as a model reads it."""
    return [str(mention) for mention in find_times(text, locale)]


@check_rows(
    ("text", "expected"),
    [
        ("저녁 여덟 시 십오 분에 깨워 줘", ["저녁 여덟 시 십오 분 = 20:15"]),
        ("내일 아침 여섯 시 오십 분", ["아침 여섯 시 오십 분 = 06:50"]),
        ("밤 아홉 시 이십 분.", ["밤 아홉 시 이십 분 = 21:20"]),
        ("오전 열한 시에 등산", ["오전 열한 시 = 11:00"]),
        ("오후 다섯 시 오 분", ["오후 다섯 시 오 분 = 17:05"]),
        ("저녁 7시반에", ["저녁 7시반 = 19:30"]),
        ("낮 열두 시 반, 낮 11시", ["낮 열두 시 반 = 12:30", "낮 11시 = 11:00"]),
        ("점심 12시에", ["점심 12시 = 12:00"]),
        ("밤 12시, 밤 1시, 새벽 5시", ["밤 12시 = 00:00", "밤 1시 = 01:00", "새벽 5시 = 05:00"]),
        ("오후 3:30", ["오후 3:30 = 15:30"]),
        ("오후 3시 반찬, 저녁 6시 반신욕", ["오후 3시 = 15:00", "저녁 6시 = 18:00"]),
        ("저녁 7시 반이야, 오후 3시랑 5시", ["저녁 7시 반 = 19:30", "오후 3시 = 15:00"]),
        ("14시 30분 아니면 정오", ["14시 30분 = 14:30", "정오 = 12:00"]),
        ("오후 세 시에서 세 시 반으로", ["오후 세 시 = 15:00"]),
        ("내일오후 3시예요, 이번엔새벽 5시야", ["오후 3시 = 15:00", "새벽 5시 = 05:00"]),
    ],
)
def test_find_times_korean(text: str, expected: list[str]) -> None:
    assert read(text, "ko") == expected


@check_rows(
    ("text", "expected"),
    [
        ("alarm for quarter to six tomorrow morning", ["quarter to six tomorrow morning = 05:45"]),
        ("half past four in the afternoon", ["half past four in the afternoon = 16:30"]),
        ("twenty-five past 5 in the evening", ["twenty-five past 5 in the evening = 17:25"]),
        ("five minutes to one in the afternoon", ["five minutes to one in the afternoon = 12:55"]),
        ("Wake me at 6:30 am", ["6:30 am = 06:30"]),
        ("8.05 p.m. sharp", ["8.05 p.m. = 20:05"]),
        ("10PM, 11 at night", ["10PM = 22:00", "11 at night = 23:00"]),
        ("12 am, 12 pm, 12:30 pm", ["12 am = 00:00", "12 pm = 12:00", "12:30 pm = 12:30"]),
        ("tomorrow morning at seven thirty", ["morning at seven thirty = 07:30"]),
        ("at eight o'clock tonight", ["eight o'clock tonight = 20:00"]),
        ("tonight at half past 9", ["tonight at half past 9 = 21:30"]),
        ("alarm at six twenty five pm", ["six twenty five pm = 18:25"]),
        ("eleven oh seven pm, 8 05 pm", ["eleven oh seven pm = 23:07", "8 05 pm = 20:05"]),
        ("tomorrow, three in the afternoon", ["three in the afternoon = 15:00"]),
        ("move it from 2 to 4 pm, work 10 to 6 pm", ["4 pm = 16:00", "6 pm = 18:00"]),
        ("from ten to five in the afternoon", ["five in the afternoon = 17:00"]),
        ("not in the morning, at 6 pm", ["6 pm = 18:00"]),
        ("noon or midnight", ["noon = 12:00", "midnight = 00:00"]),
    ],
)
def test_find_times_english(text: str, expected: list[str]) -> None:
    assert read(text, "en") == expected


@check_rows(
    ("text", "locale"),
    [
        ("then at four", "en"),
        ("half past seven", "en"),
        ("15:30", "en"),
        ("I have 3 cans, room 201, 3 eggs this morning", "en"),
        ("buy 20 eggs, Sprint 14, 14 May, it costs 13.50, from 16 to 18", "en"),
        ("delete the one in the morning, the first one tonight", "en"),
        ("table for two tonight, room 5 this afternoon, June 5 in the afternoon", "en"),
        ("at 4 tonight, half seven in the evening, quarter of six in the morning", "en"),
        ("10 minutes before 3 pm, an hour after 3 pm, an hour before noon", "en"),
        ("오후 3시 한 시간 전, 오후 3시 두 시간 뒤, 정오 한 시간 전", "ko"),
        ("half past noon, ten minutes to midnight, ten after midnight", "en"),
        ("vitamins: one in the morning, two in the evening", "en"),
        ("tomorrow morning at six-thirty, tonight at 9 15, at five minutes past", "en"),
        ("nıne pm, nİne pm, 25:99 pm, 13 am", "en"),
        ("세 시", "ko"),
        ("15:30", "ko"),
        ("저녁 두 시간 동안, 한 시작", "ko"),
        ("오후 3시 5분 전에, 오후 3시 30분 동안, 오후 3시 30분간 회의", "ko"),
        ("저녁 7시 10분 당겨 줘, 아침 7시 10분마다, 정오 10분 전", "ko"),
        ("오후 3시 반이랑, 오후 3시 반엔", "ko"),
        ("낮 9시, 점심 9시, 아침 12시, 새벽 11시, 5시", "ko"),
        ("오전 13시, 오후 3시 99분", "ko"),
        ("오후 세 시", "de"),
        ("", "en"),
    ],
)
def test_find_times_ignores_ambiguous_and_other_texts(text: str, locale: str) -> None:
    assert read(text, locale) == []


@given(at=st.times(), word=st.booleans())
def test_find_times_reads_every_minute(at: time, word: bool) -> None:
    twelve, minute = at.hour % 12 or 12, at.minute
    hour = _HOURS[twelve - 1] + " " if word else str(twelve)
    half = "am" if at.hour < 12 else "pm"
    assert read(f"call me at {twelve}:{minute:02} {half}", "en") == (
        [f"{twelve}:{minute:02} {half} = {at:%H:%M}"]
    )
    words = f"{'오전' if at.hour < 12 else '오후'} {hour}시 {minute}분"
    assert read(f"내일 {words}에", "ko") == [f"{words} = {at:%H:%M}"]


@pytest.mark.longer
@given(text=st.text(max_size=60), locale=st.sampled_from(LOCALES))
def test_find_times_never_raises(text: str, locale: str) -> None:
    assert all(mention.text in text for mention in find_times(text, locale))


@given(text=st.lists(st.sampled_from(_PIECES)))
def test_find_times_never_raises_on_joined_mentions(text: list[str]) -> None:
    for locale in LOCALES:
        assert len(find_times("".join(text), locale)) <= 6


def test_find_times_reads_the_start_of_a_long_message() -> None:
    assert read("a" * 1_000 + " 3 pm", "en") == []
    assert read("3 pm " * 100_000, "en") == ["3 pm = 15:00"]


def test_find_times_reads_decomposed_hangul() -> None:
    text = "오후 3시에 깨워 줘"
    assert find_times(unicodedata.normalize("NFD", text), "ko") == find_times(text, "ko") != ()
