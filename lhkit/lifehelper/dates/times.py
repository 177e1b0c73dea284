"""Find the times of day that a message mentions. Pure.

Only unambiguous times are returned: with the half of the day ("half past four in the afternoon",
"밤 아홉 시") or possible in one half only ("noon", "14시"). "At four" and texts that may not be a
time at all ("table for two tonight") are left out: a wrong time is worse than none.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import time
from functools import lru_cache
from itertools import islice
from typing import TypeAlias

from lhkit.lifehelper.dates.rules import (
    MAX_MENTIONS,
    NIGHT_HOURS,
    TONIGHT_HOURS,
    lower_ascii,
    normalize_text,
    resolve_time,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeMention:
    """Words that name a time of day, and the time.

    As a string it has the form that a model may copy: `quarter to six tomorrow morning = 05:45`.
    """

    text: str
    time: time

    def __str__(self) -> str:
        return f"{' '.join(self.text.split())} = {self.time:%H:%M}"


def find_times(text: str, locale: str) -> tuple[TimeMention, ...]:
    """Return the times of day that a message mentions, in order, without digital times (`16:30`).

    Only the first 1,000 characters are read, and at most six mentions returned.

    Args:
        text: the user's message.
        locale: `ko` or `en`; other locales have no rules and return nothing.

    Example:
        >>> str(*find_times("alarm for quarter to six tomorrow morning", "en"))
        'quarter to six tomorrow morning = 05:45'
    """
    return _find_times(normalize_text(text), locale)


@lru_cache(maxsize=1024)
def _find_times(text: str, locale: str) -> tuple[TimeMention, ...]:
    matches = [
        (match, value)
        for pattern, resolve in _RULES.get(locale, ())
        for match in pattern.finditer(lower_ascii(text))
        if (value := resolve(match)) is not None
    ]
    times: dict[str, time] = {}
    end = 0
    for match, value in sorted(matches, key=lambda pair: (pair[0].start(), -pair[0].end())):
        if match.start() >= end:
            times.setdefault(text[match.start() : match.end()], value)
            end = match.end()
    return tuple(
        TimeMention(text=words, time=at) for words, at in islice(times.items(), MAX_MENTIONS)
    )


def _resolve_named(match: re.Match[str]) -> time | None:
    before, rest = match.string[: match.start()], match.string[match.end() :]
    is_bound = re.search(r"\b(?:past|to|after|minutes)\s+$", before) or _EN_SHIFT.search(before)
    if is_bound or _KO_SHIFT.match(rest):
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
"""Also directly after another word: "내일오후"."""
_KO_SHORT_PARTS: dict[str, range | tuple[int, ...]] = {
    "낮": range(10, 18),
    "대낮": range(10, 18),
    "점심": range(11, 16),
    "밤": NIGHT_HOURS,
    "한밤": NIGHT_HOURS,
    "오늘밤": TONIGHT_HOURS,
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
"""Follows minutes that are an offset ("five minutes before") or a duration."""


def _resolve_ko_time(match: re.Match[str]) -> time | None:
    rest = match.string[match.end() :]
    is_cut = not match["half"] and rest.lstrip().startswith("반") and not _KO_NOUN.match(rest)
    if is_cut or _KO_SHIFT.match(rest) or (match["minute"] and _KO_OTHERWISE.match(rest)):
        return None
    hour = int(match["hour"]) if match["hour"].isdigit() else _KO_HOURS[match["hour"]]
    minute = 30 if match["half"] else _ko_number(match["minute"] or match["minutes"] or "0")
    part = _KO_PARTS.get(match["part"]) or _KO_SHORT_PARTS.get(match["short"])
    if part is None:
        is_plain = match["minutes"] is not None or 0 < hour <= 12
        part = () if is_plain else (hour,)
    return resolve_time(part, hour, minute)


_KO_NOUN = re.compile(r"\s*반(?:찬|려|신|납|장|지|죽|상)")
"""Nouns that start like "반" (half past): "오후 3시 반찬 가게"."""


def _ko_number(text: str) -> int:
    if text.isdigit():
        return int(text)
    tens, ten, ones = text.rpartition("십")
    return (10 * _KO_DIGITS.get(tens, 1) if ten else 0) + _KO_DIGITS.get(ones, 0)


_KO_SHIFT = re.compile(rf"\s*(?:{_KO_NUMBER}|[한두세네])\s*(?:분|시간)\s*(?:전|뒤|후)")
"""Follows a time that another one is counted from: "오후 3시 한 시간 전"."""
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
    "night": NIGHT_HOURS,
    "tonight": TONIGHT_HOURS,
}


def _alternatives(words: Iterable[str]) -> str:
    return "|".join(sorted(words, key=len, reverse=True))


_EN_HOUR = rf"(?P<hour>1[0-2]|0?[1-9]|{_alternatives(_EN_HOURS)})(?!\d)"
_EN_DAY = r"(?:today|tomorrow|this|that|(?:on )?(?:mon|tues|wednes|thurs|fri|satur|sun)day)"
_EN_HALF = r"\s?(?P<half>[ap])\.?m(?!\w)\.?"
_EN_PART = (
    rf"(?:{_EN_HALF}|(?:\s+o'clock)?(?:,?\s+(?:{_EN_DAY}\s+|(?:{_EN_DAY}\s+)?in\s+the\s+)"
    r"(?P<part>morning|afternoon|evening|night)|\s+at\s+(?P<night>night)|,?\s+(?P<tonight>tonight))"
    r"(?!\w))"
)
_EN_FREE = r"(?<![\w.:/$€£-])"
_EN_BOUND = re.compile(
    rf"(?:\b(?:{_alternatives(_EN_MINUTES)}|{_alternatives(_EN_HOURS)}|half|past|to|after|of|hundred)|\d)\s+$"
)
"""Precedes an hour that is part of a longer expression: "six [forty five pm]"."""
_EN_SHIFT = re.compile(r"\b(?:minutes?|mins?|hours?|hrs?) (?:before|after|from|past|to) $")
"""Precedes a time that another one is counted from: "an hour before 3 pm"."""
_EN_TIED = re.compile(
    r"(?:^|[,.;:!?(]|\b(?:at|by|from|until|till|around|about|before|after|past|make (?:it|that)"
    r"|it's|is|be|starts?|starting|for|to|today|tomorrow|[a-z]{3,6}day))\s*$"
)
"""Precedes an hour without "pm", minutes or "o'clock" that is not a count of things."""
_EN_FROM = re.compile(r"\b(?:from|between)\s+$")
_EN_CLOCK = re.compile(
    rf"{_EN_FREE}{_EN_HOUR}(?:[:.](?P<minutes>[0-5]\d)|\s+(?P<words>{_alternatives(_EN_MINUTES)})"
    rf"|\s+(?P<spoken>[0-5]\d))?{_EN_PART}"
)
_EN_STEP = re.compile(
    rf"{_EN_FREE}(?:(?P<step>{_alternatives(_EN_STEPS)})(?:\s+minutes)?|(?P<count>[1-5]?\d)\s+minutes"
    rf"|(?P<tens>5|10|20|25)(?=\s+(?:past|after)))\s+(?P<side>past|after|to)\s+{_EN_HOUR}(?:\s+o'clock)?{_EN_PART}"
)
_EN_PART_FIRST = re.compile(
    rf"(?<!\w)(?P<part>morning|afternoon|evening|night|tonight)\s+at\s+"
    rf"(?:(?P<step>{_alternatives(_EN_STEPS)})\s+(?P<side>past|to)\s+)?{_EN_HOUR}"
    rf"(?:[:.](?P<minutes>[0-5]\d)|\s+(?P<words>{_alternatives(_EN_MINUTES)}))?(?![\w:/%-]|\s?[ap]\.?m|\s+(?:minutes|past|to|after|of)\b|\s\d)"
)
_EN_NAMED = re.compile(
    r"(?<!\w)(?:(?:12\s+|twelve\s+)?(?P<noon>noon|midday)|(?:12\s+)?midnight)(?!\w)"
)


def _resolve_en_clock(match: re.Match[str]) -> time | None:
    groups, before = match.groupdict(), match.string[: match.start()]
    is_bare = not (groups["half"] or groups["minutes"] or groups["words"] or "o'clock" in match[0])
    if groups["spoken"] and not groups["half"]:  # "8 05 pm", and not "room 8 20 in the evening"
        return None
    if _EN_SHIFT.search(before):
        return None
    if _EN_BOUND.search(before) and not re.search(r"\b(?:to|after)\s+$", before):
        return None
    if is_bare and not _EN_TIED.search(before):
        return None
    if (
        is_bare
        and groups["hour"] in {"one", "two"}
        and not re.search(r"\b(?:at|to|by)\s+$", before)
    ):
        return None  # "vitamins: one in the morning"
    if (
        is_bare
        and (groups["tonight"] or " the " not in match[0])
        and re.search(r"\bfor\s+$", before)
    ):
        return None  # "table for two tonight"
    minute = (
        _EN_MINUTES[groups["words"]]
        if groups["words"]
        else groups["minutes"] or groups["spoken"] or 0
    )
    return resolve_time(_en_part(groups), _en_hour(groups["hour"]), int(minute))


def _resolve_en_step(match: re.Match[str]) -> time | None:
    groups, before = match.groupdict(), match.string[: match.start()]
    is_span = groups["side"] == "to" and "minutes" not in match[0]
    if is_span and _EN_FROM.search(before):  # "from ten to five in the afternoon"
        return None
    if re.search(r"\b(?:past|by)\s+$", before):  # "half past [five to six pm]"
        return None
    minute = _EN_STEPS.get(groups["step"]) or int(groups["count"] or groups["tens"])
    hour = resolve_time(_en_part(groups), _en_hour(groups["hour"]), 0)
    return _step_from_hour(hour, match["side"], minute)


def _resolve_en_part_first(match: re.Match[str]) -> time | None:
    part, hour = _EN_PARTS[match["part"]], _en_hour(match["hour"])
    if match["step"]:
        return _step_from_hour(resolve_time(part, hour, 0), match["side"], _EN_STEPS[match["step"]])
    minute = _EN_MINUTES[match["words"]] if match["words"] else int(match["minutes"] or 0)
    return resolve_time(part, hour, minute)


def _step_from_hour(hour: time | None, side: str, minute: int) -> time | None:
    """Return the time a number of minutes past or to an hour."""
    if hour is None or not 0 < minute < 60:
        return None
    return time((hour.hour - 1) % 24, 60 - minute) if side == "to" else time(hour.hour, minute)


def _en_part(groups: dict[str, str | None]) -> range | tuple[int, ...]:
    half = groups["half"]
    return _EN_PARTS[
        f"{half}m" if half else groups["part"] or groups["night"] or groups["tonight"] or ""
    ]


def _en_hour(text: str) -> int:
    return int(text) if text.isdigit() else _EN_HOURS[text]


_Resolver: TypeAlias = Callable[[re.Match[str]], time | None]
_RULES: dict[str, tuple[tuple[re.Pattern[str], _Resolver], ...]] = {
    "ko": ((_KO_TIME, _resolve_ko_time), (_KO_NAMED, _resolve_named)),
    "en": (
        (_EN_CLOCK, _resolve_en_clock),
        (_EN_STEP, _resolve_en_step),
        (_EN_PART_FIRST, _resolve_en_part_first),
        (_EN_NAMED, _resolve_named),
    ),
}
