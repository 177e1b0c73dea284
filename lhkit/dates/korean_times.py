"""The Korean wordings of a time of day."""

import re
from datetime import time

from lhkit.dates.words import NIGHT, TONIGHT, time_in_part

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
KO_TIME = re.compile(
    rf"(?:{_KO_PART}(?:에|의)?\s*)?(?<![\d.:]){_KO_HOUR}"
    rf"(?:\s*시(?!간|작|험|절)(?:{_KO_MINUTE})?|:(?P<minutes>\d{{2}})(?!\d))"
)
_KO_OTHERWISE = re.compile(
    r"\s*(?:전|뒤|후|동안|간(?![가-힣]*다)|짜리|이내|일찍|늦|당|앞|만?\s*미|마다|씩|걸|거리|의|카레)"
)
"""After minutes: five minutes before is another time, and half an hour long is none."""


def ko_time(match: re.Match[str]) -> time | None:
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


KO_SHIFT = re.compile(rf"\s*(?:{_KO_NUMBER})\s*(?:분|시간)\s*(?:전|뒤|후)")
KO_NAMED = re.compile(r"(?<![가-힣])(?:(?P<noon>정오)|자정(?!향))")
