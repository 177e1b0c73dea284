"""The times of day that a message names. Pure.

Only what says which half of the day is meant ("half past four in the afternoon", "밤 아홉 시"), or
can be in one only ("noon", "14시"). "At four" may be either and is left out, as is what may be no
time at all ("table for two tonight"): a wrong time is worse than none.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import time
from functools import lru_cache
from itertools import islice
from typing import TypeAlias

from lhkit.dates.words import MOST_SAID, NIGHT, TONIGHT, lowered, read_part, time_in_part


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeMention:
    """Words that name a time of day, and the time.

    As a text it is what a model may copy: `quarter to six tomorrow morning = 05:45`.
    """

    text: str
    time: time

    def __str__(self) -> str:
        return f"{' '.join(self.text.split())} = {self.time:%H:%M}"


def find_times(text: str, locale: str) -> tuple[TimeMention, ...]:
    """Return the times of day that a message names, in its order; `16:30` is left out as it is.

    Only the first 1,000 letters are read, and at most six wordings returned.

    Args:
        text: what the user wrote.
        locale: `ko` or `en`; any other has no wordings.

    Example:
        >>> str(*find_times("alarm for quarter to six tomorrow morning", "en"))
        'quarter to six tomorrow morning = 05:45'
    """
    return _said(read_part(text), locale)


@lru_cache(maxsize=1024)
def _said(text: str, locale: str) -> tuple[TimeMention, ...]:
    said: dict[str, time] = {}
    end = 0
    for match, moment in sorted(
        _found(text, locale), key=lambda each: (each[0].start(), -each[0].end())
    ):
        if match.start() >= end:
            said.setdefault(text[match.start() : match.end()], moment)
            end = match.end()
    return tuple(TimeMention(text=words, time=at) for words, at in islice(said.items(), MOST_SAID))


def _found(text: str, locale: str) -> Iterator[tuple[re.Match[str], time]]:
    for pattern, meaning in _WORDINGS.get(locale, ()):
        for match in pattern.finditer(lowered(text)):
            moment = meaning(match)
            if moment is not None:
                yield match, moment


def _named(match: re.Match[str]) -> time | None:
    before, rest = match.string[: match.start()], match.string[match.end() :]
    if re.search(r"\b(?:past|to|after|minutes)\s+$", before) or _KO_SHIFT.match(rest):
        return None  # "half past noon", "정오 10분 전"
    return time(12 if match["noon"] else 0)


_KO_HOURS = {
    "한": 1,
    "두": 2,
    "세": 3,
    "네": 4,
    "다섯": 5,
    "여섯": 6,
    "일곱": 7,
    "여덟": 8,
    "아홉": 9,
    "열한": 11,
    "열두": 12,
    "열": 10,
}
_KO_DIGITS = {word: number for number, word in enumerate("일이삼사오육칠팔구", 1)}
_KO_PARTS: dict[str, range | tuple[int, ...]] = {
    "오전": range(12),
    "오후": range(12, 24),
    "새벽": range(7),
    "아침": range(5, 12),
    "저녁": range(16, 23),
}
"""Also behind another word without a space: "내일오후"."""
_KO_SHORT_PARTS: dict[str, range | tuple[int, ...]] = {
    "낮": range(10, 18),
    "대낮": range(10, 18),
    "점심": range(11, 16),
    "밤": NIGHT,
    "한밤": NIGHT,
    "오늘밤": TONIGHT,
}
_KO_PART = (
    rf"(?:(?P<part>{'|'.join(_KO_PARTS)})|(?<![가-힣])(?P<short>{'|'.join(_KO_SHORT_PARTS)}))"
)
_KO_HOUR = rf"(?P<hour>\d{{1,2}}|(?<![가-힣])(?:{'|'.join(_KO_HOURS)}))"
_KO_NUMBER = r"\d{1,2}|[이삼사오]?십[일이삼사오육칠팔구]?|[일삼사오육칠팔구]"
_KO_HALF = r"반(?=[^가-힣]|에|으로|까지|부터|쯤|이[에요야고]?(?![가-힣])|은|도|정도|경|인데|입|$)"
_KO_MINUTE = rf"\s*(?:(?P<minute>{_KO_NUMBER})\s*분(?!기|이랑|과|께|들)|(?P<half>{_KO_HALF}))"
_KO_TIME = re.compile(
    rf"(?:{_KO_PART}(?:에|의)?\s*)?(?<![\d.:]){_KO_HOUR}"
    rf"(?:\s*시(?!간|작|험|절)(?:{_KO_MINUTE})?|:(?P<minutes>\d{{2}})(?!\d))"
)
_KO_OTHERWISE = re.compile(
    r"\s*(?:전|뒤|후|동안|간(?![가-힣]*다)|짜리|이내|일찍|늦|당|앞|만?\s*미|마다|씩|걸|거리|의|카레)"
)
"""After minutes: five minutes before is another time, and half an hour long is none."""


def _ko_time(match: re.Match[str]) -> time | None:
    rest = match.string[match.end() :]
    is_cut = not match["half"] and rest.lstrip().startswith("반") and not _KO_NOUN.match(rest)
    if is_cut or (match["minute"] and _KO_OTHERWISE.match(rest)):
        return None
    hour = int(match["hour"]) if match["hour"].isdigit() else _KO_HOURS[match["hour"]]
    minute = 30 if match["half"] else _ko_number(match["minute"] or match["minutes"] or "0")
    part = _KO_PARTS.get(match["part"]) or _KO_SHORT_PARTS.get(match["short"])
    if part is None:
        is_plain = match["minutes"] is not None or 0 < hour <= 12
        part = () if is_plain else (hour,)
    return time_in_part(part, hour, minute)


_KO_NOUN = re.compile(r"\s*반(?:찬|려|신|납|장|지|죽|상)")
"""Not half past: "오후 3시 반찬 가게"."""


def _ko_number(said: str) -> int:
    if said.isdigit():
        return int(said)
    tens, ten, ones = said.rpartition("십")
    return (10 * _KO_DIGITS.get(tens, 1) if ten else 0) + _KO_DIGITS.get(ones, 0)


_KO_SHIFT = re.compile(rf"\s*(?:{_KO_NUMBER})\s*(?:분|시간)\s*(?:전|뒤|후)")
_KO_NAMED = re.compile(r"(?<![가-힣])(?:(?P<noon>정오)|자정(?!향))")


_EN_ONES = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_EN_HOURS = {word: n for n, word in enumerate((*_EN_ONES, "ten", "eleven", "twelve"), 1)}
_EN_TEENS = (
    *("ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen"),
    *("eighteen", "nineteen"),
)
_EN_MINUTES = {
    **{f"oh {one}": number for number, one in enumerate(_EN_ONES, 1)},
    **{word: number for number, word in enumerate(_EN_TEENS, 10)},
    **{
        f"{ten}{joint}{one}": tens + ones
        for tens, ten in ((20, "twenty"), (30, "thirty"), (40, "forty"), (50, "fifty"))
        for ones, one in enumerate(("", *_EN_ONES))
        for joint in (("-", " ") if one else ("",))
    },
}
_EN_STEPS = {
    "five": 5,
    "ten": 10,
    "quarter": 15,
    "a quarter": 15,
    "twenty": 20,
    "twenty-five": 25,
    "twenty five": 25,
    "half": 30,
}
_EN_PARTS: dict[str, range | tuple[int, ...]] = {
    "am": range(12),
    "pm": range(12, 24),
    "morning": range(1, 12),
    "afternoon": range(12, 19),
    "evening": range(16, 24),
    "night": NIGHT,
    "tonight": TONIGHT,
}


def _longest(words: Iterable[str]) -> str:
    return "|".join(sorted(words, key=len, reverse=True))


_EN_HOUR = rf"(?P<hour>1[0-2]|0?[1-9]|{_longest(_EN_HOURS)})(?!\d)"
_EN_DAY = r"(?:today|tomorrow|this|that|(?:on )?(?:mon|tues|wednes|thurs|fri|satur|sun)day)"
_EN_HALF = r"\s?(?P<half>[ap])\.?m(?!\w)\.?"
_EN_PART = (
    rf"(?:{_EN_HALF}|(?:\s+o'clock)?(?:,?\s+(?:{_EN_DAY}\s+|(?:{_EN_DAY}\s+)?in\s+the\s+)"
    r"(?P<part>morning|afternoon|evening|night)|\s+at\s+(?P<night>night)|,?\s+(?P<tonight>tonight))"
    r"(?!\w))"
)
_EN_FREE = r"(?<![\w.:/$€£-])"
_EN_BOUND = re.compile(
    rf"(?:\b(?:{_longest(_EN_MINUTES)}|{_longest(_EN_HOURS)}|half|past|to|after|of|hundred)|\d)\s+$"
)
"""Before an hour that is a part of something longer: "six [forty five pm]"."""
_EN_TIED = re.compile(
    r"(?:^|[,.;:!?(]|\b(?:at|by|from|until|till|around|about|before|after|past|make (?:it|that)"
    r"|it's|is|be|starts?|starting|for|to|today|tomorrow|[a-z]{3,6}day))\s*$"
)
"""Before an hour without "pm", minutes or "o'clock" that is one, and no number of things."""
_EN_FROM = re.compile(r"\b(?:from|between)\s+$")
_EN_CLOCK = re.compile(
    rf"{_EN_FREE}{_EN_HOUR}(?:[:.](?P<minutes>[0-5]\d)|\s+(?P<words>{_longest(_EN_MINUTES)})"
    rf"|\s+(?P<spoken>[0-5]\d))?{_EN_PART}"
)
_EN_STEP = re.compile(
    rf"{_EN_FREE}(?:(?P<step>{_longest(_EN_STEPS)})(?:\s+minutes)?|(?P<count>[1-5]?\d)\s+minutes"
    rf"|(?P<tens>5|10|20|25)(?=\s+(?:past|after)))\s+(?P<side>past|after|to)\s+{_EN_HOUR}(?:\s+o'clock)?{_EN_PART}"
)
_EN_PART_FIRST = re.compile(
    rf"(?<!\w)(?P<part>morning|afternoon|evening|night|tonight)\s+at\s+"
    rf"(?:(?P<step>{_longest(_EN_STEPS)})\s+(?P<side>past|to)\s+)?{_EN_HOUR}"
    rf"(?:[:.](?P<minutes>[0-5]\d)|\s+(?P<words>{_longest(_EN_MINUTES)}))?(?![\w:/%-]|\s?[ap]\.?m|\s+(?:minutes|past|to|after|of)\b|\s\d)"
)
_EN_NAMED = re.compile(
    r"(?<!\w)(?:(?:12\s+|twelve\s+)?(?P<noon>noon|midday)|(?:12\s+)?midnight)(?!\w)"
)


def _en_clock(match: re.Match[str]) -> time | None:
    said, before = match.groupdict(), match.string[: match.start()]
    is_bare = not (said["half"] or said["minutes"] or said["words"] or "o'clock" in match[0])
    if said["spoken"] and not said["half"]:  # "8 05 pm", and not "room 8 20 in the evening"
        return None
    if _EN_BOUND.search(before) and not re.search(r"\b(?:to|after)\s+$", before):
        return None
    if is_bare and not _EN_TIED.search(before):
        return None
    if is_bare and said["hour"] in {"one", "two"} and not re.search(r"\b(?:at|to|by)\s+$", before):
        return None  # "vitamins: one in the morning"
    if is_bare and (said["tonight"] or " the " not in match[0]) and re.search(r"\bfor\s+$", before):
        return None  # "table for two tonight"
    minute = _EN_MINUTES[said["words"]] if said["words"] else said["minutes"] or said["spoken"] or 0
    return time_in_part(_en_part(said), _en_hour(said["hour"]), int(minute))


def _en_step(match: re.Match[str]) -> time | None:
    said, before = match.groupdict(), match.string[: match.start()]
    is_span = said["side"] == "to" and "minutes" not in match[0]
    if is_span and _EN_FROM.search(before):  # "from ten to five in the afternoon"
        return None
    if re.search(r"\b(?:past|by)\s+$", before):  # "half past [five to six pm]"
        return None
    minute = _EN_STEPS.get(said["step"]) or int(said["count"] or said["tens"])
    hour = time_in_part(_en_part(said), _en_hour(said["hour"]), 0)
    return _stepped(hour, match["side"], minute)


def _en_part_first(match: re.Match[str]) -> time | None:
    part, hour = _EN_PARTS[match["part"]], _en_hour(match["hour"])
    if match["step"]:
        return _stepped(time_in_part(part, hour, 0), match["side"], _EN_STEPS[match["step"]])
    minute = _EN_MINUTES[match["words"]] if match["words"] else int(match["minutes"] or 0)
    return time_in_part(part, hour, minute)


def _stepped(hour: time | None, side: str, minute: int) -> time | None:
    """Return the time so many minutes past an hour, or to it."""
    if hour is None or not 0 < minute < 60:
        return None
    return time((hour.hour - 1) % 24, 60 - minute) if side == "to" else time(hour.hour, minute)


def _en_part(said: dict[str, str | None]) -> range | tuple[int, ...]:
    half = said["half"]
    return _EN_PARTS[f"{half}m" if half else said["part"] or said["night"] or said["tonight"] or ""]


def _en_hour(said: str) -> int:
    return int(said) if said.isdigit() else _EN_HOURS[said]


_Meaning: TypeAlias = Callable[[re.Match[str]], time | None]
_WORDINGS: dict[str, tuple[tuple[re.Pattern[str], _Meaning], ...]] = {
    "ko": ((_KO_TIME, _ko_time), (_KO_NAMED, _named)),
    "en": (
        (_EN_CLOCK, _en_clock),
        (_EN_STEP, _en_step),
        (_EN_PART_FIRST, _en_part_first),
        (_EN_NAMED, _named),
    ),
}
