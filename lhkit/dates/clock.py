"""The times of day that a message names. Pure.

Only what says which half of the day is meant ("half past four in the afternoon", "밤 아홉 시"), or
can be in one only ("noon", "14시"). "At four" may be either and is left out, as is what may be no
time at all ("table for two tonight"): a wrong time is worse than none.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import time
from functools import lru_cache
from itertools import islice
from typing import TypeAlias

from lhkit.dates.english_times import (
    EN_CLOCK,
    EN_NAMED,
    EN_PART_FIRST,
    EN_STEP,
    en_clock,
    en_part_first,
    en_step,
)
from lhkit.dates.korean_times import KO_NAMED, KO_SHIFT, KO_TIME, ko_time
from lhkit.dates.words import MOST_SAID, lowered, read_part


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
    return _said(read_part(text), locale)


@lru_cache(maxsize=1024)
def _said(text: str, locale: str) -> tuple[SaidTime, ...]:
    said: dict[str, time] = {}
    end = 0
    for match, moment in sorted(
        _found(text, locale), key=lambda each: (each[0].start(), -each[0].end())
    ):
        if match.start() >= end:
            said.setdefault(text[match.start() : match.end()], moment)
            end = match.end()
    return tuple(SaidTime(text=words, time=at) for words, at in islice(said.items(), MOST_SAID))


def _found(text: str, locale: str) -> Iterator[tuple[re.Match[str], time]]:
    for pattern, meaning in _WORDINGS.get(locale, ()):
        for match in pattern.finditer(lowered(text)):
            moment = meaning(match)
            if moment is not None:
                yield match, moment


def _named(match: re.Match[str]) -> time | None:
    before, rest = match.string[: match.start()], match.string[match.end() :]
    if re.search(r"\b(?:past|to|after|minutes)\s+$", before) or KO_SHIFT.match(rest):
        return None  # "half past noon", "정오 10분 전"
    return time(12 if match["noon"] else 0)


_Meaning: TypeAlias = Callable[[re.Match[str]], time | None]
_WORDINGS: dict[str, tuple[tuple[re.Pattern[str], _Meaning], ...]] = {
    "ko": ((KO_TIME, ko_time), (KO_NAMED, _named)),
    "en": (
        (EN_CLOCK, en_clock),
        (EN_STEP, en_step),
        (EN_PART_FIRST, en_part_first),
        (EN_NAMED, _named),
    ),
}
