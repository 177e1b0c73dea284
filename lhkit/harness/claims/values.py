"""Does a reply tell of another thing than was written: another number, time, day, choice or name?

The user said one value, the reply says it too, and what was written holds another of its sort,
which the reply does not name ("a table for four", and `party` is 2). Pure; Korean and English.

When in doubt nothing is wrong: values of a sort that no argument holds, and names in another script
than the arguments', are not judged.
"""

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache, partial
from typing import Any

Value = tuple[str, float]
"""A sort, as "clock" or "day", and which one of it."""


def _listed(words: str) -> list[str]:
    return words.split()


def other_value(said: str, reply: str, args: Collection[Any], names: Collection[str]) -> str | None:
    """Return the value of a reply that the user asked for and that was not written, in words.

    Args:
        said: what the user asked for.
        reply: the sentences that tell of it.
        args: the arguments of all writes that ran.
        names: their tools and titles: words that may be theirs, too.
    """
    surely, maybe = held(args), near(args, names)
    told, asked = values_of(reply), values_of(said)
    for sort, value in sorted((told & asked) - maybe):
        if sort == "number" and ("clock", value % 12 * 60) in told | asked:
            continue
        rivals = {each for each in surely if each[0] == _sort(sort, value, reply, surely)}
        if rivals and not rivals & told:
            return f"{sort} {value:g}"
    return _other_half(reply, args)


def other_measure(said: str, clauses: Collection[str], reply: str, args: Collection[Any]) -> bool:
    """Return True if a number that was asked for and written is told as another of its unit.

    A clause that may tell a sum, or what is left, is not judged: results hold such numbers.

    Args:
        said: what the user asked for, as "I rowed for 25 minutes".
        clauses: those that tell of a deed, as "Logged 35 minutes".
        reply: all sentences of the reply: who tells the number, too, may tell a sum beside it.
        args: the arguments of all writes that ran.
    """
    surely = {value for sort, value in held(args) if sort == "number"}
    asked = {each for each in _measures(said) if each[1] in surely}
    told = {each for clause in clauses if not _SUM.search(clause) for each in _measures(clause)}
    named, known = numbers(reply), surely | numbers(said)
    return any(
        value not in named
        and number not in known
        and (unit == other if unit not in _NO_UNITS else other in _SIGNS)
        for unit, value in asked
        for other, number in told
    )


_SUM = re.compile(
    r"\b(?:totals?|totall?ing|sum|altogether|all|so\s+far|balance|left|remain\w*|makes?|now|streak"
    r"|goal|of\s+(?:your|the|\d+)|per|average|(?:this|the)\s+(?:week|month|year)|today|daily|weekly)\b"
    r"|총|모두|전부|합|누적|잔액|남|까지|이제|현재|오늘|이번|매일|매주|연속|목표|평균|째"
)
_SIGNS = frozenset("$€£₩원")
_NO_UNITS = frozenset({"", *_listed("for to on by and the of in at now")})
_MEASURE = re.compile(
    r"(?P<sign>[$€£₩])?(?<![\w.:])(?P<digits>\d{1,3}(?:,\d{3})+|\d+)(?P<rest>\.\d+)?(?![:\d])"
    r"\s?(?P<scale>k\b|만|천)?\s?(?P<unit>[€%]|[a-z]+|시간|[가-힣])?"
)


def _measures(text: str) -> frozenset[tuple[str, float]]:
    """Return the numbers of a text with the first letters of their units; "" where it has none."""
    found = set()
    for each in _MEASURE.finditer(text.casefold()):
        number = float(each["digits"].replace(",", "") + (each["rest"] or ""))
        unit = each["sign"] or (each["unit"] or "")[:3]
        found.add((unit, number * _UNITS.get(each["scale"] or "", 1)))
    return frozenset(found)


def held(args: Collection[Any]) -> frozenset[Value]:
    """Return what the arguments of some writes surely hold."""
    return frozenset(value for each in args for value in _held(each))


def near(args: Collection[Any], names: Collection[str]) -> frozenset[Value]:
    """Return all that some writes may hold, in their arguments, tools and titles."""
    found = held(args) | {value for each in args for value in _near(each)}
    found |= {value for name in names for value in values_of(name)}
    found |= {
        ("number", part) for sort, value in found if sort == "clock" for part in _parts(value)
    }
    found |= {("number", value / 60) for sort, value in found if sort == "number"}  # hours
    return found | {("number", value) for sort, value in found if sort == "day"}


def _sort(sort: str, value: float, reply: str, held: Collection[Value]) -> str:
    """Return the sort of a value; "at 7" is a time where no number was written."""
    is_hour = re.search(rf"\b(?:at|by|for|to|from)\s{value:g}\b", reply.casefold())
    if sort == "number" and is_hour and not any(each == "number" for each, _ in held):
        return "clock"
    return sort


def _other_half(reply: str, args: Collection[Any]) -> str | None:
    """Return "6:50 am" of a reply where 18:50 was written."""
    told = {_of_day(each) for each in _HALVES.finditer(reply.casefold())}
    held = {
        minutes
        for each in args
        for _, text in leaves(each)
        if isinstance(text, str)
        for minutes in _times_of_day(text.casefold())
    }
    for minutes in sorted(told - held):
        other = (minutes + _NOON) % (2 * _NOON)
        if other in held and other not in told:
            return f"clock {minutes}"
    return None


def _times_of_day(text: str) -> Iterator[int]:
    """Yield the minutes after midnight of each time: "10:30 pm", "밤 10:30", and a bare "22:30"."""
    yield from (_of_day(each) for each in _HALVES.finditer(text))
    for found in re.finditer(r"(?<!\d)([01]\d|2[0-3]):([0-5]\d)", _HALVES.sub(" ", text)):
        yield int(found[1]) * 60 + int(found[2])


_NOON = 720
_HALVES = re.compile(
    r"(?P<ko>오전|새벽|아침|낮|오후|저녁|밤)\s?(?P<hour>1[0-2]|0?[1-9])"
    r"(?::(?P<colon>[0-5]\d)|시(?!간)(?:\s?(?P<minute>[0-5]?\d)분|\s?(?P<half>반))?)"
    r"|(?<![\d:.])(?P<en_hour>1[0-2]|0?[1-9])(?:[:.](?P<en_minute>[0-5]\d))?\s?(?P<en>[ap])\.?m\b"
)
_AFTER_NOON: Mapping[str, range] = {
    "오후": range(12),
    "저녁": range(1, 12),
    "p": range(12),
    "낮": range(6),
    "밤": range(6, 12),
}
"""Which hours of a half of the day lie after noon; its twelfth is 0."""


def _of_day(found: re.Match[str]) -> int:
    hour = int(found["hour"] or found["en_hour"]) % 12
    told = found["minute"] or found["colon"] or found["en_minute"] or 0
    minute = 30 if found["half"] else int(told)
    is_after_noon = hour in _AFTER_NOON.get(found["ko"] or found["en"], ())
    return hour * 60 + minute + _NOON * is_after_noon


def _parts(minutes: float) -> tuple[float, ...]:
    hour, minute = divmod(minutes, 60)
    return hour, hour + 12, minute


_NO_VALUES = frozenset(
    _listed("phone text note framed_text body message title content path file url")
)


def _held(args: Any) -> Iterator[Value]:
    """Yield what the arguments surely hold: of ids and texts nobody can tell."""
    for key, value in leaves(args):
        if key not in _NO_VALUES and key != "id" and not key.endswith("_id"):
            found = _value(value)
            yield from (each for each in found if each[0] != "weekday" or not _has_date(value))


def _has_date(value: Any) -> bool:
    return isinstance(value, str) and _DATE.search(value) is not None


def _near(args: Any) -> Iterator[Value]:
    """Yield all that the arguments may hold, digits of ids and texts, too."""
    for _, value in leaves(args):
        yield from _value(value)
        if isinstance(value, str):
            yield from (("number", float(each)) for each in re.findall(r"\d+(?:\.\d+)?", value))


def _value(value: Any) -> frozenset[Value]:
    if not isinstance(value, str):
        return _number(value)
    found = values_of(value[:_MOST].replace("_", " "))
    return found if len(value) <= _LONG else frozenset(each for each in found if each[0] in _SORTS)


def _number(value: float) -> frozenset[Value]:
    try:
        return frozenset({("number", float(value))})
    except OverflowError:  # an integer beyond the range of floats
        return frozenset({("number", math.inf if value > 0 else -math.inf)})


_MOST, _LONG = 200, 40
_SORTS = frozenset({"clock", "day", "weekday", "number"})


def leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each text and number of the arguments of a write, with its name."""
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        yield key, value
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from leaves(each, str(name))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from leaves(each, key)


# ------------------------------------------------------------------------------ values of a text

_EN_COUNTS: Mapping[str, int] = {
    **{
        word: number
        for number, word in enumerate(
            _listed(
                "zero one two three four five six seven eight nine ten eleven twelve thirteen"
                " fourteen fifteen sixteen seventeen eighteen nineteen twenty"
            )
        )
    },
    "thirty": 30,
    "forty": 40,
    "fifty": 50,
    "sixty": 60,
    "ninety": 90,
    "dozen": 12,
    "twice": 2,
}
_KO_COUNTS: Mapping[str, int] = {
    **{
        word: number
        for number, word in enumerate(
            _listed("한 두 세 네 다섯 여섯 일곱 여덟 아홉 열 열한 열두"), start=1
        )
    },
    "스무": 20,
    "서른": 30,
    "마흔": 40,
    "쉰": 50,
}
_COUNTS = {**_EN_COUNTS, **_KO_COUNTS}


def _longest_first(words: Collection[str]) -> str:
    return "|".join(sorted(words, key=len, reverse=True))


_MONTH = "(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
_KO_HOUR = "열한|열두|한|두|세|네|다섯|여섯|일곱|여덟|아홉|열"
_DATE = re.compile(r"\b\d{4}-\d\d-(\d\d)(?:t(\d\d):(\d\d)\S*)?")
_CLOCK = re.compile(
    r"(?<![\d.:])(?P<hour>[01]?\d|2[0-4])[:](?P<minute>[0-5]\d)(?!\d)(?:\s?[ap]\.?m\b)?"
    r"|(?<![\d.:])(?P<en_hour>1[0-2]|0?[1-9])(?:\.(?P<en_minute>[0-5]\d))?\s?[ap]\.?m\b"
    rf"|(?<![\d가-힣])(?P<ko_hour>[01]?\d|2[0-4]|{_KO_HOUR})\s?시(?!간)"
    r"(?:\s?(?P<ko_minute>[0-5]?\d)분|\s?(?P<ko_half>반))?"
    r"|\b(?P<part>half|quarter)\s(?:past\s)?(?P<past>\w+)\b|\b(?P<oclock>\w+)\so'?clock"
    r"|\b(?:noon|midday|midnight)\b|정오|자정"
)
_DAY = re.compile(
    rf"\b(?:{_MONTH}\.?\s(?:the\s)?(\d{{1,2}})(?:st|nd|rd|th)?\b(?!:)|(\d{{1,2}})(?:st|nd|rd|th)\b"
    rf"|(\d{{1,2}})\s(?:of\s)?{_MONTH}\b)"
    r"|(?<!\d)(\d{1,2})일(?!\s?(?:간|동안|째|차|치|연속|만|씩|부터))|\b\d{1,2}-(\d\d)\b"
)
_WEEKDAYS = tuple(
    re.compile(rf"\b{english}(?:s|nes|rs|ur|urs)?(?:days?)?\b|{korean}요일")
    for english, korean in zip(
        _listed("mon tue wed thu fri sat sun"), "월화수목금토일", strict=True
    )
)
_KO_COUNTED = (
    "개|잔|장|명|번|병|권|봉|분|시간|판|마리|인|사람|달|주|대|통|캔|박|송이|켤레|벌|줄|컵|알|세트"
    "|박스|상자|그릇|접시|곡|편|쪽|자리"
)
_NUMBER = re.compile(
    r"(?<![\w.])[-$€£₩]*(?P<digits>\d{1,3}(?:,\d{3})+|\d+)(?P<rest>\.\d+)?\s?(?P<unit>k\b|만|천)?"
    rf"|\b(?P<english>{_longest_first(_EN_COUNTS)})\b"
    rf"|(?<![가-힣])(?P<korean>{_longest_first(_KO_COUNTS)})\s?(?={_KO_COUNTED})"
)
_UNITS = {"k": 1_000, "천": 1_000, "만": 10_000}

_CHOICES = r"""
daily|every\sday|매일; weekly|every\sweek|매주; monthly|every\smonth|매달|매월
; yearly|annually|매년; weekdays|평일; weekends?|주말
living\sroom|lounge|거실; bedroom|침실|안방; kitchen|주방|부엌; bath(?:room)?|욕실|화장실
; hall(?:way)?|corridor|복도; garage|차고; office|study|서재|사무실; basement|지하실; attic|다락
; balcony|terrace|patio|베란다|발코니; garden|yard|정원|마당; nursery|아이\s?방
work|업무|회사|직장; personal|private|개인; family|가족
editor|edit|편집; viewer|view(?:\sonly)?|보기|뷰어|읽기\s전용; commenter|comment|댓글
pdf|피디에프; docx?|워드; xlsx?|excel|엑셀; csv; png; jpe?g; txt; pptx?
small|소형|스몰; medium|중형|미디움; large|대형|라지
red|빨간색?|빨강; blue|파란색?|파랑; green|초록색?|녹색; yellow|노란색?|노랑; black|검은색?|검정
; white|흰색?|하얀색?; pink|분홍색?|핑크; purple|보라색?; orange|주황색?
breakfast|아침; lunch|점심; dinner|저녁
today|오늘; tomorrow|내일; yesterday|어제
savings?|적금|저축; checking|current|입출금
public|공개; private|비공개
english|영어; korean|한국어; japanese|일본어; spanish|스페인어; french|프랑스어
; german|독일어; chinese|중국어
one\sway|편도; return|round\strip|왕복
standard|일반; express|특급|빠른
hot|뜨거운; iced?|아이스|차가운
"""
"""Words that exclude each other: a line is a group, or goes on with one where it begins with
`;`, which stands between what may be chosen."""


@cache
def _chosen() -> tuple[tuple[str, float, re.Pattern[str]], ...]:
    """Return group and place of each choice with what finds it: compiled when first asked for."""
    return tuple(
        (
            f"choice {group}",
            float(place),
            re.compile(rf"(?<![a-z가-힣])(?:{words.strip()})(?![a-z])"),
        )
        for group, choices in enumerate(_CHOICES.strip().replace("\n;", ";").splitlines())
        for place, words in enumerate(choices.split(";"))
    )


def numbers(text: str) -> frozenset[float]:
    """Return the plain numbers of a text: no times, no days."""
    return frozenset(value for sort, value in values_of(text) if sort == "number")


def values_of(text: str) -> frozenset[Value]:
    """Return what a text names: times within half a day, days, weekdays, numbers and choices."""
    text = text.casefold()
    found = {(sort, value) for sort, value, words in _chosen() if words.search(text)}
    rest = text
    for pattern, read in _READERS:
        rest = pattern.sub(partial(_eaten, read=read, into=found), rest)
    found |= {("weekday", place) for place, day in enumerate(_WEEKDAYS) if day.search(rest)}
    return frozenset(found)


def _eaten(
    found: re.Match[str], read: Callable[[re.Match[str]], Iterator[Value]], into: set[Value]
) -> str:
    values = list(read(found))
    into.update(values)
    return " # " if values else found.group()


def _read_date(found: re.Match[str]) -> Iterator[Value]:
    yield "day", int(found[1])
    if found[2]:
        yield "clock", (int(found[2]) * 60 + int(found[3])) % _NOON


def _read_clock(found: re.Match[str]) -> Iterator[Value]:
    hour = found["hour"] or found["en_hour"] or found["ko_hour"] or found["past"] or found["oclock"]
    if hour is None:
        yield "clock", 0
        return
    count = int(hour) if hour.isdecimal() else _COUNTS.get(hour)
    if count is None:
        return
    part = {"half": 30, "quarter": 15}.get(found["part"] or "", 30 if found["ko_half"] else 0)
    minute = found["minute"] or found["en_minute"] or found["ko_minute"]
    yield "clock", (count * 60 + (int(minute) if minute else part)) % _NOON


def _read_day(found: re.Match[str]) -> Iterator[Value]:
    yield "day", int(next(each for each in found.groups() if each))


def _read_number(found: re.Match[str]) -> Iterator[Value]:
    if found["digits"]:
        number = float(found["digits"].replace(",", "") + (found["rest"] or ""))
        yield "number", number * _UNITS.get(found["unit"] or "", 1)
    else:
        count = found["english"] or found["korean"]
        yield "number", float(_COUNTS[count])


_READERS = (
    (_DATE, _read_date),
    (_CLOCK, _read_clock),
    (_DAY, _read_day),
    (_NUMBER, _read_number),
)

# ------------------------------------------------------------------------------- names of a text


def other_name(said: str, told: str, args: Collection[Any], names: Collection[str]) -> str | None:
    """Return a name that the user said and a claim tells of, where another one was written.

    Args:
        said: what the user asked for.
        told: the sentences that claim it.
        args: the arguments of all writes that ran.
        names: their tools and titles.
    """
    texts = [
        (key, stems(value))
        for each in args
        for key, value in leaves(each)
        if isinstance(value, str) and value
    ]
    known = {word for _, words in texts for word in words}
    other = (*names, *(key for each in args for key in keys(each)))
    known |= {word for each in other for word in stems(each)}
    new = {
        word
        for word in content(said) & content(told)
        if not any(same(word, each) for each in known)
    }
    here = {*stems(said), *stems(told)}
    named = [words for each in args for words in _unnamed(each, here)]
    for word in sorted(new):
        if _is_near(word, texts, {*stems(told)}) or any(_alike(word, each) for each in named):
            return word
    return None


def _unnamed(args: Any, here: Collection[str]) -> list[list[str]]:
    """Return the names in the arguments of a write, if no word of any is said."""
    named = [
        words
        for key, value in leaves(args)
        if key in _NAMING and isinstance(value, str)
        for words in [stems(value)]
        if words and len(words) <= _FEW
    ]
    is_said = any(
        same(word, each) for words in named for word in words if len(word) > 1 for each in here
    )
    return [] if is_said else named


def keys(args: Any) -> Iterator[str]:
    """Yield the names of the arguments of a write."""
    if isinstance(args, Mapping):
        yield from map(str, args)


def _alike(word: str, words: Collection[str]) -> bool:
    """Return True if a word stands in the script of some others."""
    return any((each[0] >= _HANGUL) == (word[0] >= _HANGUL) for each in words)


def _is_near(word: str, texts: Collection[tuple[str, list[str]]], told: Collection[str]) -> bool:
    """Return True if an argument holds a word that is spelled much like another: Marta, Martin."""
    return any(
        len(each) >= _LEAST
        and len(word) >= _LEAST
        and each[0] < _HANGUL
        and each[:2] == word[:2]
        and abs(len(each) - len(word)) <= _LEAST
        and not any(same(each, other) for other in told)
        for key, words in texts
        if key in _NAMING
        for each in words
    )


_HANGUL = "가"
_LEAST, _FEW = 3, 5
_NAMING = frozenset(
    _listed(
        "to with recipient recipients contact person who attendee attendees guest guests room"
        " door device folder calendar playlist list location place city from album channel account"
        " payee name title item habit task event product thing label subject query song dest"
        " destination assignee user member group team store zone light dst new_name project course"
        " service payer friend receiver address email artist restaurant doctor clinic hotel movie"
        " book"
    )
)
_MAY_NAME = _NAMING | {"tracker", "file", "genre"}
_TEXTS = frozenset(
    _listed(
        "text note framed_text body message msg content url path description memo frame_level"
        " anchor_after_what anchor_when"
    )
)
_CHOSEN = frozenset(_listed("place category kind type zone unit mode state status level"))
_TIMES = re.compile(r"time|date|day|when|until|start|end|due|hour|minute|at$")


def is_naming(key: str) -> bool:
    """Return True if an argument of this name may name what a write is about."""
    return key in _MAY_NAME


def is_text(key: str) -> bool:
    """Return True if an argument of this name is a text of the user's own."""
    return key in _TEXTS


def is_free(key: str) -> bool:
    """Return True if an argument of this name need not be said as it is: texts, ids, choices."""
    return is_text(key) or key == "id" or key.endswith("_id") or key in _CHOSEN


def is_time(key: str) -> bool:
    """Return True if an argument of this name is a time."""
    return _TIMES.search(key) is not None


def is_filler(word: str) -> bool:
    """Return True if a word names nothing."""
    return word in _EN_FILLERS or word in _KO_FILLERS


_EN_FILLERS = frozenset(
    _listed(
        "the and for with from that this you your yours please have has had was were are been not"
        " but all any can could would will just now today tomorrow yesterday tonight morning"
        " evening afternoon night week weekly day daily time back out off into onto them then"
        " there here its lets what when where who how did does done get got put set add make take"
        " new also too yes yep okay sure thanks thank again about mine let want need like last"
        " next log save send book delete remove move cancel order change update turn switch mark"
        " remind create rename note list calendar reminder alarm timer event message email mail"
        " habit entry tracker record clear tick check untick fill enter cut drop start stop pay"
        " buy text call share wake every reserve hold schedule plan post pin attach copy upload"
        " submit track close open lock monday tuesday wednesday thursday friday saturday sunday"
        " weekdays weekends one two three four five six seven eight nine ten only both everything"
        " thing things stuff right ahead way saved added sent booked deleted removed moved"
        " cancelled ordered changed updated logged marked created already really still first"
        " second"
    )
)
_KO_FILLERS = frozenset(
    _listed(
        "오늘 내일 어제 지금 이제 그거 이거 저거 그것 이것 제가 내가 네가 다시 바로 방금 해줘 줘"
        " 좀 새로 습관 기록 추가 등록 저장 삭제 예약 주문 변경 알림 알람 일정 메모 목록 완료 아침"
        " 저녁 점심 오전 오후 다음 이번 매일 매주 모두 전부 그럼 그냥 부탁 주세요 해주세요 하나"
        " 문자 메일 전화 보낸 취소 설정 체크 처리 하기 먹기 마시기 월요일 화요일 수요일 목요일"
        " 금요일 토요일 일요일 아까 이름 번호 시간 링크 사본 거 것 걸 응 네 예"
    )
)
_KO_PARTICLE = re.compile(
    r"(?:으로|에서|에게|한테|까지|부터|이랑|하고|을|를|이|가|은|는|도|로|에|의|와|과|랑|만|께|님|씨)$"
)


def content(text: str) -> frozenset[str]:
    """Return the stems of the words that may name something: no verbs of everyday, no fillers."""
    return frozenset(
        stem
        for word in _words(text)
        for stem in [_stem(word)]
        if not ({word, stem} & (_KO_FILLERS | _EN_FILLERS) or _is_verb(word))
        and len(stem) >= (2 if stem[0] >= _HANGUL else _LEAST)
    )


_KO_VERB = re.compile(
    r"(?:[았었했됐갔왔났썼꼈겠]\S*|해|줘|요|다|지|니|냐|까|죠|고|서|면|게|래|자|라)$"
)


_KO_TO_WHOM = re.compile(r"[가-힣]{2}(?:에게|한테|께서|에서)$")


def _is_verb(word: str) -> bool:
    """Return True if a Korean word ends as verbs do; "에게" ends names."""
    return _KO_VERB.search(word) is not None and _KO_TO_WHOM.search(word) is None


def _words(text: str) -> list[str]:
    plain = re.sub(r"[’']s\b", "", text.casefold())
    return re.findall(r"[a-z]+|[가-힣]+", plain)


def stems(text: str) -> list[str]:
    """Return the stems of the words of a text."""
    return [_stem(each) for each in _words(text.replace("_", " "))]


def _stem(word: str) -> str:
    if word[0] >= _HANGUL:
        return _KO_PARTICLE.sub("", word) if len(word) > 2 else word  # noqa: PLR2004
    return re.sub(r"(?:ing|ies|es|ed|s|y|e)$", "", word) if len(word) > _LEAST else word


def same(one: str, other: str) -> bool:
    """Return True if one stem is the other, or begins it."""
    least = 2 if one[0] >= _HANGUL else _LEAST
    is_begun = one.startswith(other) or other.startswith(one)
    return one == other or (min(len(one), len(other)) >= least and is_begun)
