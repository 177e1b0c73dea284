"""The English wordings of a time of day."""

import re
from collections.abc import Iterable
from datetime import time

from lhkit.dates.words import NIGHT, TONIGHT, time_in_part

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
EN_CLOCK = re.compile(
    rf"{_EN_FREE}{_EN_HOUR}(?:[:.](?P<minutes>[0-5]\d)|\s+(?P<words>{_longest(_EN_MINUTES)})"
    rf"|\s+(?P<spoken>[0-5]\d))?{_EN_PART}"
)
EN_STEP = re.compile(
    rf"{_EN_FREE}(?:(?P<step>{_longest(_EN_STEPS)})(?:\s+minutes)?|(?P<count>[1-5]?\d)\s+minutes"
    rf"|(?P<tens>5|10|20|25)(?=\s+(?:past|after)))\s+(?P<side>past|after|to)\s+{_EN_HOUR}(?:\s+o'clock)?{_EN_PART}"
)
EN_PART_FIRST = re.compile(
    rf"(?<!\w)(?P<part>morning|afternoon|evening|night|tonight)\s+at\s+"
    rf"(?:(?P<step>{_longest(_EN_STEPS)})\s+(?P<side>past|to)\s+)?{_EN_HOUR}"
    rf"(?:[:.](?P<minutes>[0-5]\d)|\s+(?P<words>{_longest(_EN_MINUTES)}))?(?![\w:/%-]|\s?[ap]\.?m|\s+(?:minutes|past|to|after|of)\b|\s\d)"
)
EN_NAMED = re.compile(
    r"(?<!\w)(?:(?:12\s+|twelve\s+)?(?P<noon>noon|midday)|(?:12\s+)?midnight)(?!\w)"
)


def en_clock(match: re.Match[str]) -> time | None:
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


def en_step(match: re.Match[str]) -> time | None:
    said, before = match.groupdict(), match.string[: match.start()]
    is_span = said["side"] == "to" and "minutes" not in match[0]
    if is_span and _EN_FROM.search(before):  # "from ten to five in the afternoon"
        return None
    if re.search(r"\b(?:past|by)\s+$", before):  # "half past [five to six pm]"
        return None
    minute = _EN_STEPS.get(said["step"]) or int(said["count"] or said["tens"])
    hour = time_in_part(_en_part(said), _en_hour(said["hour"]), 0)
    return _stepped(hour, match["side"], minute)


def en_part_first(match: re.Match[str]) -> time | None:
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
