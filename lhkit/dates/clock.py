"""The times of day that a message names. Pure.

Only those that say which half of the day is meant, or need not ("half past four in the afternoon",
"밤 아홉 시 이십 분", "14시 반", "noon"): "at four" may be either, and is left out.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import time
from functools import lru_cache
from itertools import islice

_MOST_LETTERS = 1_000
_MOST_SAID = 6
_NOON = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidTime:
    """Words that name a time of day, and the time.

    As a text it is what a model may copy: `quarter to six tomorrow morning = 05:45`.
    """

    text: str
    time: time

    def __str__(self) -> str:
        return f"{' '.join(self.text.split())} = {self.time:%H:%M}"


def said_times(text: str, locale: str) -> tuple[SaidTime, ...]:
    """Return the times of day that a message names, in its order; `16:30` is left out as it is.

    Only the first 1,000 letters are read, and at most six wordings returned.

    Args:
        text: what the user wrote.
        locale: `ko` or `en`; any other has no wordings.

    Example:
        >>> str(*said_times("alarm for quarter to six tomorrow morning", "en"))
        'quarter to six tomorrow morning = 05:45'
    """
    return _said(text[:_MOST_LETTERS], locale)


@lru_cache(maxsize=1024)
def _said(text: str, locale: str) -> tuple[SaidTime, ...]:
    found: dict[str, time] = {}
    for match, moment in _found(text, locale):
        if match[0] != f"{moment:%H:%M}":
            found.setdefault(match[0], moment)
    return tuple(SaidTime(text=words, time=at) for words, at in islice(found.items(), _MOST_SAID))


def _found(text: str, locale: str) -> Iterator[tuple[re.Match[str], time]]:
    """Yield each wording that means a time; of those that begin at one place the longest."""
    wordings = _WORDINGS.get(locale, ())
    at = 0
    while at < len(text):
        firsts = [
            next(
                (
                    (match, moment)
                    for match in pattern.finditer(text, at)
                    if (moment := meaning(match)) is not None
                ),
                None,
            )
            for pattern, meaning in wordings
        ]
        begun = [each for each in firsts if each is not None]
        if not begun:
            return
        first = min(begun, key=lambda each: (each[0].start(), -each[0].end()))
        yield first
        at = first[0].end()


def _moment(hour: int | None, minute: int | None) -> time | None:
    """Return a time, or None if there is no such one."""
    if hour is None or minute is None or not (0 <= hour < 24 and 0 <= minute < 60):  # noqa: PLR2004
        return None
    return time(hour, minute)


def _hour_of(part: str, hour: int) -> int | None:
    """Return the hour of 24 that one of 12 means in a part of the day; None: it is not in that."""
    latest_am, earliest_pm = _HALVES[part]
    if hour > _NOON:
        return hour if earliest_pm is not None else None
    of_twelve = hour % _NOON
    if earliest_pm is not None and of_twelve >= earliest_pm:
        return of_twelve + _NOON
    return of_twelve if of_twelve <= latest_am else None


_HALVES: dict[str, tuple[int, int | None]] = {
    "am": (11, None),
    "pm": (-1, 0),
    "evening": (-1, 4),
    "night": (4, 6),
}
"""Of 0 to 11 o'clock in a part of the day: the last hour before noon, the first one after it."""


def _in_part(part: str | None, hour: int) -> int | None:
    """Return the hour of 24; without a part of the day only one that can be no other."""
    if part is None:
        return hour if hour > _NOON or hour == 0 else None
    if part == "noon":
        return hour if hour in {10, 11} else _hour_of("pm", hour)
    return _hour_of(part, hour)


# ------------------------------------------------------------------------------------- Korean
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
_KO_PARTS = {
    "오전": "am",
    "아침": "am",
    "새벽": "am",
    "오후": "pm",
    "저녁": "evening",
}
"""Also behind another word without a space: "내일오후"."""
_KO_SHORT_PARTS = {
    "낮": "noon",
    "대낮": "noon",
    "점심": "noon",
    "밤": "night",
    "한밤": "night",
    "오늘밤": "night",
}
_KO_PART = (
    rf"(?:(?P<part>{'|'.join(_KO_PARTS)})|(?<![가-힣])(?P<short>{'|'.join(_KO_SHORT_PARTS)}))"
)
_KO_NUMBER = r"\d{1,2}|[이삼사오]?십[일이삼사오육칠팔구]?|[일이삼사오육칠팔구]"
_KO_MINUTE = rf"(?:\s*(?P<minute>{_KO_NUMBER})\s*분|\s*(?P<half>반))"
_KO_HOUR = rf"(?P<hour>\d{{1,2}}|(?<![가-힣])(?:{'|'.join(_KO_HOURS)}))"
_KO_ON_THE_HOUR = r"\s*시(?=[^가-힣]|[에로반까부쯤이은는도정경께면거예야인였라고임]|$)"
"""Not "세 시간", which is how long, nor "한 시작"."""
_KO_TIME = re.compile(
    rf"(?:{_KO_PART}(?:에|의)?\s*)?(?<![\d.:]){_KO_HOUR}"
    rf"(?:{_KO_ON_THE_HOUR}{_KO_MINUTE}?|:(?P<minutes>\d{{2}})(?!\d))"
)


def _ko_time(match: re.Match[str]) -> time | None:
    hour = int(match["hour"]) if match["hour"].isdigit() else _KO_HOURS[match["hour"]]
    minute = 30 if match["half"] else _ko_number(match["minute"] or match["minutes"] or "0")
    part = _KO_PARTS.get(match["part"]) or _KO_SHORT_PARTS.get(match["short"])
    return _moment(_in_part(part, hour), minute)


def _ko_number(said: str) -> int:
    if said.isdigit():
        return int(said)
    tens, ten, ones = said.rpartition("십")
    return (10 * _KO_DIGITS.get(tens, 1) if ten else 0) + _KO_DIGITS.get(ones, 0)


# ------------------------------------------------------------------------------------ English
_EN_NUMBERS = {
    word: number
    for number, word in enumerate(
        [
            "one",
            "two",
            "three",
            "four",
            "five",
            "six",
            "seven",
            "eight",
            "nine",
            "ten",
            "eleven",
            "twelve",
        ],
        1,
    )
}
_EN_MINUTES = {
    "five": 5,
    "ten": 10,
    "quarter": 15,
    "a quarter": 15,
    "twenty": 20,
    "twenty-five": 25,
    "twenty five": 25,
    "half": 30,
}
_EN_AFTER = {
    "oh five": 5,
    "ten": 10,
    "fifteen": 15,
    "twenty": 20,
    "twenty-five": 25,
    "thirty": 30,
    "thirty-five": 35,
    "forty": 40,
    "forty-five": 45,
    "fifty": 50,
    "fifty-five": 55,
}
_EN_PARTS = {
    "am": "am",
    "morning": "am",
    "pm": "pm",
    "afternoon": "pm",
    "evening": "evening",
    "night": "night",
    "tonight": "night",
}
_EN_HOUR = rf"(?P<hour>\d{{1,2}}|{'|'.join(_EN_NUMBERS)})"
_EN_DAY = r"(?:today|tomorrow|this|that|(?:on )?(?:mon|tues|wednes|thurs|fri|satur|sun)day)"
_EN_PART = (
    rf"(?:\s?(?P<half>[ap])\.?m\b\.?|,?\s+(?:{_EN_DAY}\s+|(?:{_EN_DAY}\s+)?in\s+the\s+)"
    r"(?P<part>morning|afternoon|evening|night)\b"
    r"|\s+at\s+(?P<night>night)\b|,?\s+(?P<tonight>tonight)\b)"
)
_EN_CLOCK = (
    rf"(?:(?P<minute>{'|'.join(sorted(_EN_MINUTES, key=len, reverse=True))}|\d{{1,2}})"
    rf"(?:\s+minutes?)?\s+(?P<side>past|after|to)\s+{_EN_HOUR.replace('<hour>', '<of>')}"
    rf"|{_EN_HOUR}(?:[:.](?P<minutes>\d{{2}})|\s+(?P<words>{'|'.join(_EN_AFTER)}))?)"
    r"(?:\s*o'clock)?"
)
_EN_TIME = re.compile(rf"(?<![\w.:/-]){_EN_CLOCK}(?:{_EN_PART}|(?![\w:/%]|\.\d))", re.IGNORECASE)
_EN_PART_FIRST = re.compile(
    rf"(?<!\w)(?P<part>morning|afternoon|evening|night|tonight),?(?:\s+at)\s+{_EN_CLOCK}(?![\w:/%])",
    re.IGNORECASE,
)
_EN_NAMED = re.compile(
    r"(?<!\w)(?:(?:12\s+|twelve\s+)?(?P<noon>noon|midday)|(?:12\s+)?midnight)(?!\w)", re.IGNORECASE
)
_KO_NAMED = re.compile(r"(?<![가-힣])(?:(?P<noon>정오)|자정)")


def _en_time(match: re.Match[str]) -> time | None:
    said = {name: each.casefold() for name, each in match.groupdict().items() if each}
    part = next((said[each] for each in ("part", "night", "tonight") if each in said), None)
    part = f"{said['half']}m" if "half" in said else part
    hour = _en_number(said.get("of") or said["hour"])
    if "side" in said:
        minute = _EN_MINUTES.get(said["minute"]) or int(said["minute"])
        if said["side"] == "to":
            hour, minute = (hour - 1) or _NOON, 60 - minute
    else:
        minute = _EN_AFTER.get(said.get("words", ""), int(said.get("minutes", "0")))
    return _moment(_in_part(part and _EN_PARTS[part], hour), minute)


def _en_number(said: str) -> int:
    return int(said) if said.isdigit() else _EN_NUMBERS[said]


def _named(match: re.Match[str]) -> time:
    return time(_NOON if match["noon"] else 0)


_WORDINGS: dict[str, tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], time | None]], ...]] = {
    "ko": ((_KO_TIME, _ko_time), (_KO_NAMED, _named)),
    "en": ((_EN_TIME, _en_time), (_EN_PART_FIRST, _en_time), (_EN_NAMED, _named)),
}
