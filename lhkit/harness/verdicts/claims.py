"""Does a reply say that something was written? Word patterns, Korean and English. Pure.

A claim is a finished deed of the assistant: "추가했습니다", "기록 완료", "I've logged it", "Done!".
No claims are offers, questions, promises, conditions, negations, and what was so before ("이미",
"already", "this week"). When in doubt it is no claim: a claim after a refused write fails a run.

Limits: it knows the verbs listed below and no others, misses claims in the present tense
("추가합니다") or as a state ("추가되어 있어요", "it's on your list"), and does not know who or what
a sentence is about, or irony; what stands in quotation marks is nobody's claim. Other languages are
never a claim.
"""

import re
import unicodedata
from collections.abc import Iterator

_SENTENCE_END = re.compile(r"(?<=[.!?…。？！])\s+|\n")
_CLAUSE = re.compile(r"[,;:—–]|\s-\s|\b(?:but|however|although|though|so|because)\b|(?<=지만)\s")

_KO_NOUN = (
    "추가|기록|저장|등록|설정|반영|입력|생성|적용|업데이트|갱신|변경|수정|체크|처리|완료|삭제"
    "|(?<=로 )표시"
)
_KO_ADVERB = "잘|모두|전부|다|바로|방금|새로|성공적으로|정상적으로|안전하게|무사히|완료"
_KO_HELPED = "두었|뒀|놓았|놨|드렸|줬|주었|냈"
_KO_END = (
    r"(?:습니다(?!만)|어요|어(?![가-힣])|답니다|네요|지요|죠|거든요|다(?![가-힣])|음(?![가-힣])"
    r"|고(?![가-힣])|으며)"
)
_KO_DEED = (
    rf"(?:했|하였|됐|되었|시켰|마쳤|끝냈|해\s?(?:{_KO_HELPED})){_KO_END}|(?:함|됨)(?![가-힣])"
)
_KO_JOINT = rf"(?:을|를|이|가|도|은|는)?\s*(?:(?:{_KO_ADVERB})\s*)*"
_KOREAN = tuple(
    re.compile(pattern)
    for pattern in (
        rf"(?:{_KO_NOUN}){_KO_JOINT}(?:{_KO_DEED})",
        rf"(?:적어|써|넣어|올려|남겨|만들어|바꿔|고쳐)\s?(?:{_KO_HELPED}){_KO_END}",
        rf"(?:적었|넣었|올렸|남겼|만들었|바꿨|바꾸었|고쳤|지웠){_KO_END}",
        rf"(?:{_KO_NOUN})\s?완료(?:입니다|예요|이에요)?(?![가-힣])",
    )
)
_KO_BLOCKED = re.compile(
    r"이미|벌써|기존|지난|저번|앞서|취소|실패|거절|거부|보류|중단|않|못|아무|없이"
    r"|(?<![가-힣])안\s*$"
)
_KO_READ = re.compile(
    r"(?:조회|검색|확인|안내|계산)(?:을|를|이|가)?\s*$"
    r"|(?:(?:\d+|한|두|세|네|다섯|여섯|일곱|여덟|아홉|열)\s?(?:일|번|회|차례)"
    r"|하루|이틀|사흘|나흘|닷새|엿새|이레)(?:을|를|간|째|이나|만|\s*연속)?\s*$"
)
"""What stands before "기록했어요" or "완료했어요" where it was the user who did it, or a search."""

_KO_QUOTED = re.compile(r"[\"'”’」』]?\s*(?:이?라고|이?라는|이?란)(?![가-힣])")

_EN_VERB = (
    "added|logged|recorded|saved|stored|created|registered|tracked|updated|entered|marked"
    "|scheduled|changed|deleted|removed|set up"
)
_EN_ADVERB = r"(?:\s+(?:just|now|also|all|successfully|safely|gone ahead and|went ahead and))*"
_EN_MINE = re.compile(rf"\b(?:i|we)(?:'ve|\s+have)?{_EN_ADVERB}(?:\s+already)?\s+(?:{_EN_VERB})\b")
_EN_PASSIVE = re.compile(
    rf"(?:\b(?:was|were|been|got)|(?:\bis|\bare|'s)\s+now|(?:\bis|\bare|'s)(?=\s+successfully))"
    rf"{_EN_ADVERB}\s+(?:{_EN_VERB})\b"
    rf"|\b(?:is|are)\s+(?:added|logged|saved)\b|\bsuccessfully\s+(?:{_EN_VERB})\b"
)
_EN_SHORT = re.compile(
    rf"^\W*(?:(?:ok|okay|great|sure|perfect|alright|all right|got it|yes|nice)\W+)*"
    rf"(?:(?:{_EN_VERB})\b(?!\s+(?:on|by|habits?|entries|items?|records?|protocols?|days?)\b)"
    r"|(?:it's|that's)\s+(?:all\s+)?done\b|you're\s+all\s+set\b)"
)
_EN_NOT = re.compile(
    r"\b(?:not|never|no|none|nothing|neither|nor|cannot|without|unable|failed|fails|instead|\w+n't"
    r"|would|could|should|might|may)\b|\b(?:that|which|who)\s+(?:has\s+|have\s+)?$"
)
_EN_UNREAL = re.compile(r"\b(?:if|once|when|until|unless|whether|as soon as|before)\b")
_EN_BEFORE = re.compile(
    r"\b(?:already|previously|earlier|ago|(?:this|last)\s+week|on\s+\d|so far"
    r"|\d+\s+(?:days?|times))\b"
)
_EN_EMPTY = re.compile(r"\s+(?:no|none|nothing)\b|\s+(?:as\s+)?(?:cancel|declin|reject|refus)")

_BARE = re.compile(
    r"\W*(?:(?:네|ok|okay|great|sure|perfect|alright|yes)\W+)*"
    r"(?:완료(?:입니다|예요|이에요)?|(?:all\s+)?(?:done|set))\W*"
)
_TAKEN_BACK = re.compile(r"취소|거절|않|못|cancel|declin|\bnot\b|n't\b")
"""With such words anywhere in the text, a bare "done" may mean that the cancelling is done."""


_QUOTED = re.compile(r"(?<!\w)'[^'\n]{1,80}'(?!\w)|\"[^\"\n]{1,80}\"|“[^”\n]{1,80}”")
"""A title or a sentence of the user: "'Set up a desk' was not added" sets nothing up."""


def success_claim(text: str) -> str | None:
    """Return the words of `text` that claim a finished write, or None if none do."""
    plain = unicodedata.normalize("NFC", text).casefold().replace("\u2019", "'")
    if not _QUOTED.fullmatch(plain.strip()):
        plain = _QUOTED.sub("'…'", plain)
    for sentence in _SENTENCE_END.split(plain):
        if _BARE.fullmatch(sentence) and not _TAKEN_BACK.search(plain):
            return sentence.strip()
        for clause, earlier in _told(sentence):
            claim = _korean(clause) or _english(clause, earlier)
            if claim is not None:
                return " ".join(claim.split())
    return None


def _told(sentence: str) -> Iterator[tuple[str, str]]:
    """Yield the clauses that tell something, each with the sentence before it.

    A question mark makes the last clause a question; those before it still tell.
    """
    is_question = sentence.rstrip().endswith(("?", "？"))
    clauses = _CLAUSE.split(sentence.rstrip(" .!?…。？！"))
    earlier = ""
    for clause in clauses[: -1 if is_question else None]:
        yield clause, earlier
        earlier += f"{clause} "


def _korean(clause: str) -> str | None:
    for pattern in _KOREAN:
        for found in pattern.finditer(clause):
            before = clause[: found.start()]
            is_quoted = _KO_QUOTED.match(clause, found.end()) is not None
            if not (is_quoted or _KO_BLOCKED.search(before) or _KO_READ.search(before)):
                return found.group()
    return None


def _english(clause: str, earlier: str) -> str | None:
    if _EN_UNREAL.search(f"{earlier} {clause}"):
        return None
    for pattern in (_EN_MINE, _EN_SHORT, _EN_PASSIVE):
        found = pattern.search(clause)
        if found is None or _EN_NOT.search(clause[: found.start()]):
            continue
        if _EN_EMPTY.match(clause, found.end()):
            continue
        if pattern is _EN_MINE or not _EN_BEFORE.search(clause):
            return found.group()
    return None
