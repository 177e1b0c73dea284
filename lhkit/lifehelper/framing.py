"""Detect negations and prohibitions in a sentence, by word lists in Korean and English.

Implements R7: a habit sentence must state an action. Refused are negation (안/못 before a verb,
-지 않다, 아니다, not, never, n't), absence (없이, without), prohibition (금지, -지 마, no …) and
verbs of abstaining (끊다, 그만, 피하다, 삼가다, 참다; stop …ing, quit, avoid), and also double
negation. Accepted are bounds and reductions (까지만, 줄이다, 덜; only until, less), contrast
without negation (대신, 말고; instead of), putting things away (내려놓다, 멀리 두다, 없애다), and a
negated attribute, purpose or time (안 쓰는 물건을 정리한다; what I do not use). Not covered: irony
and paraphrased prohibitions. The cases are in `tests/lifehelper/framing_sentences.yaml`.
"""

import re
import unicodedata
from itertools import pairwise

_ACTS = (
    "먹|마시|마셔|마신|마실|마심|보기|보는|보고|봐|본다|볼|피우|피워|피운|하기|하는|하고|하지|해|했"
    "|한다|할|함|쓰기|쓰는|쓴다|써|사기|사는|산다|자기|자는|잔다|가기|가는|간다|켜|켠|들고|들어|들기"
    "|늦|눕|거르|걸러|굶|미루|미뤄|미룬|만지|만져|만진|씻|비비|걷기|걷는|읽|되|돼|된|됨|될|나가|나간|놓"
)
"""Verb stems that often follow 안, with or without a space."""

_KOREAN = (
    r"\w*않\w*",
    r"\w*지(?:는|도|를)?\s*(?:말(?:기|자|고|아|라|며|도록|것|\s것)|못)\w*",
    r"\w*지\s*맙시다",
    r"\w*지\s*마(?:라|요|세요|시오|십시오)?(?!\w)",
    r"(?<!\w)못(?:하|해|한|할|함|했|합|먹|마시|자|보|가|쓰)\w*",
    rf"(?<!\w)안(?:{_ACTS})\w*",
    r"\w*안(?:먹|마시|마셔|마신|피우|피워|피운)\w*",  # also after a noun without a space
    r"\w*아니(?:다|야|며|고|라|에요|었)\w*|\w*아닌|\w*아닙니다",
    r"\w*금지(?!출|불|급|원|된\s)|\w*(?<!지)금연|금식|금주(?:하|한|합|해|\s*$)|금하\w+|금한다|엄금",
    r"(?<!\w)불가(?!\w)",
    r"(?<!권을 )(?<!표를 )(?<!권 )(?<!표 )끊(?!임|김|기지|이지)\w*",  # 표를 끊다: buy a ticket
    r"(?<![조자])그만(?!큼|치|의|(?:둔|뒀던|두었던)\s+\w+[을를])\w*",
    r"(?:중단|중지|자제|포기)(?:하|한|할|함|했|합|해|\s*$)\w*",
    r"(?<!\w)삼[가간갈감]\w*",
    r"(?<![창대])피(?:하기|하는|하고|하며|하자|하려|한다|했|할|함|해요|해서|합니다)\w*",
    r"멀리[하한할했합해]\w*",
    r"(?<!\w)참(?:는다|는|기|기로|을|아야)(?!\w)",
)
_ENGLISH = (
    r"\w+n't\b",
    r"\b(?:don|won|can|doesn|didn|isn|aren|shouldn|wouldn|couldn|mustn)t\b",
    r"\b(?:not(?!\s+far\b)|cannot|neither|nor|none|nobody|nowhere)\b",
    r"\bnever\b(?!-)",
    r"\bnothing\b(?!\s+but\b)",
    r"(?<![a-z'])no(?![a-z']|-[a-z]|\.?\s?\d)",  # "no. 1" is a number, no-sugar tea a thing
    r"\bwithout\b(?!\s+(?:fail|hurry|rush|rushing|worry|stress)\b)",
    r"\b(?:avoid(?:s|ed|ing|ance)?|quit(?:s|ting)?(?!\s+(?:work|the\s+office|my\s+desk)\b)|ceas(?:e|es|ed|ing))\b",
    r"\b(?:refrain|abstain|resist|ban)(?:s|ned|ed|ning|ing)?\b",
    r"\b(?:refus(?:e|es|ed|ing)|forbid(?:s|den|ding)?|forbade|prohibit(?:s|ed|ing|ion)?)\b",
    r"\b(?:giv(?:e|es|ing)|gave)\s+(?:\w+\s+)?up\b",
    r"\bcut(?:s|ting)?\s+(?:\w+\s+)?out\b",
    r"\b(?:stay|keep)(?:s|ing)?\s+away\b",
    (
        r"(?<!bus )(?<!one )(?<!next )(?<!subway )(?<!train )(?<!-)(?<!non )\bstop(?:s|ped|ping)?\b"
        r"(?!-)(?!\s*(?:$|[.,;!?]|(?:to|and|at|for|by|in|on|early|earlier|before|away)\b))"
    ),  # "stop snacking", but not "one bus stop" or "I stop to breathe"
)
_NEGATIONS = tuple(map(re.compile, (*_KOREAN, *_ENGLISH)))

_ABSENCE = re.compile(r"(?:(?P<what>\w+)\s*)?없(?![애앤앨앱앴])\w+")
_PRAISE = re.compile(
    "끊임|끊김|문제|틀림|변함|어김|아낌|거침|빠짐|쉼|틈|끝|수|상관|관계|부담|무리|걱정|막힘|후회|남김"
    "|망설임|주저|말|소리|두말|군말"
)
"""Nouns that form a positive phrase with 없이: tirelessly, without fail, free of worry."""

_TOKEN = re.compile(r"\w+")
_NOUN_ENDS = ("를", "에", "에서", "의", "까지", "부터", "으로")
_PLACE = re.compile(
    r"\w*(?:집|방|차|건물|사무실|침실|거실|교실|학교|회사|가방|냉장고|서랍|이불|마음|몸|입|눈|물|컵|병|통|상자"
    r"|지갑|주머니|화장실|욕실|부엌|주방|도서관|헬스장|공원|동네|버스|지하철|기차|품|손|시간|분|주|달)"
)
"""Nouns after which 안 may mean "inside" or "within"."""

_FINAL_N, _FINAL_L = 4, 8  # of the 28 ends that a Korean syllable can have
_FINALS, _FIRST_SYLLABLE, _LAST_SYLLABLE = 28, 0xAC00, 0xD7A3
_PARTICLE = re.compile(r"(?P<noun>\w+?)(?:을|를|의|에|에서|에게|으로|로|부터|과|와|도)")
_ONESELF = re.compile(
    r"사람|것|거|습관|하루|밤|날|저녁|아침|점심|주말|시간|생활|삶|상태|쪽|편|나|내|저|자신|원칙|약속|규칙|목표|방식"
    r"|방법|마음|몸"
)
"""Nouns for the person or the habit: a negated attribute of one negates the habit itself."""

_PURPOSE = re.compile(
    r"\w*(?:지\s*)?않(?:게|도록|으려고)\s+"
    r"(?!하|한|할|해|했|합|함|되|된|됩|만들|노력|주의|조심|신경|참|애)(?=\w)"
)
"""A negated purpose clause ("so that … not"); the action itself follows it."""

_REPORTING = r"(?:promise|swear|vow|decide|say|know|think|hope|mean|sure|remember|agree)(?:s|d|ed)?"
_WHO = r"(?:someone|somebody|person|people|one|man|woman|type|kind|those|anyone)"
_TIED = re.compile(rf"{_REPORTING}|{_WHO}|and|but|or|so|then")
"""Words after which a clause is part of the main statement, not an aside."""

_FIRST = re.compile(r"(?:when|if|while|because|until|since|after|before|as|unless|once)\b")
_TO_ITS_END = r"(?:(?!\b(?:and|but)\b)[^,;.!?])*"
_CLAUSE = re.compile(
    r"(?<=\w\s)(?:what|which|whose|whom|until|if|when|while|because|where|so\s+that|that"
    rf"|nobody\s+else)\s{_TO_ITS_END}"
    r"|(?<=[a-z]{2}\s)(?:i|you|we|they|he|she)\s+(?:\w+\s+)*?"
    r"(?:do|does|did|can|could|will|would|no|have|has|had|am|are|is|was|never|cannot)\b"
    + _TO_ITS_END
)
"""A subordinate clause in an English sentence that follows the main clause."""


def find_negation(text: str) -> str | None:
    """Return the words that make `text` a negation or prohibition, or None."""
    plain = unicodedata.normalize("NFKC", text).casefold().replace("\u2019", "'")
    line = _PURPOSE.sub("", " ".join(plain.split()))
    line = _drop_english_clause(" ".join(_drop_attributes(line.split())))
    for pattern in _NEGATIONS:
        if match := pattern.search(line):
            return match.group().strip()
    for match in _ABSENCE.finditer(line):
        if not _PRAISE.fullmatch(match["what"] or ""):
            return match.group()
    return _find_separate_negation(_TOKEN.findall(line))


def _drop_english_clause(line: str) -> str:
    clause = _CLAUSE.search(line)
    if clause is None or _FIRST.match(line):  # the main clause may follow
        return line
    before, after = line[: clause.start()].split(), line[clause.end() :]
    is_tied = bool(before) and _TIED.fullmatch(before[-1]) is not None
    return line if is_tied else " ".join([*before, after])


def _drop_attributes(words: list[str]) -> list[str]:
    """Drop the negated attributes of nouns that the sentence acts on (안 쓰는 물건을 …)."""
    remaining: list[str] = []
    index = 0
    while index < len(words):
        length = _attribute_length(words[index:])
        if length == 0:
            remaining.append(words[index])
        index += length or 1
    return remaining


def _attribute_length(words: list[str]) -> int:
    """Return how many leading words are a negated attribute of a noun with a particle, or 0."""
    first = words[0]
    if first in {"안", "못"}:
        length = 3 if words[1:2] == ["다"] else 2
    elif first.startswith(("없", "못")) or "않" in first:
        length = 1
    else:
        return 0
    verb, noun, rest = words[length - 1 : length], words[length : length + 1], words[length + 1 :]
    if not verb or not noun or not rest or not _is_attributive(verb[0]):
        return 0
    particle = _PARTICLE.fullmatch(noun[0])
    return 0 if particle is None or _ONESELF.fullmatch(particle["noun"]) else length


def _is_attributive(verb: str) -> bool:
    """Return whether a verb form modifies the next noun: it ends in ㄴ or ㄹ (쓰는, 읽은, 할)."""
    code = ord(verb[-1])
    if verb.endswith("던"):
        return True
    is_syllable = _FIRST_SYLLABLE <= code <= _LAST_SYLLABLE
    return is_syllable and (code - _FIRST_SYLLABLE) % _FINALS in {_FINAL_N, _FINAL_L}


_UNFILLED = re.compile(
    r"\W*(?:나는|난|저는|전|i(?:['’]m|(?: am)?(?: (?:one|someone|a person) who)?)?)"
    r"\s*(?:…|\.{2,}|_{2,})\s*"
    r"(?:한다|합니다|해요|하기|(?:하는\s*)?사람(?:이다|입니다|이에요))?\W*",
    re.IGNORECASE,
)
"""The template of the tool description, "나는 …한다" or "I …", with its gap not filled in."""


def is_blank(text: str) -> bool:
    """Return whether `text` has no letter or digit, or is the template with its gap unfilled."""
    return not any(char.isalnum() for char in text) or bool(_UNFILLED.fullmatch(text))


def _find_separate_negation(tokens: list[str]) -> str | None:
    """Return 안 or 못 with its verb when it is a separate word (but not 안 as "inside")."""
    for before, (word, following) in zip(("", *tokens), pairwise(tokens), strict=False):
        if word == "못" or (word == "안" and _negates(before, following)):
            return f"{word} {following}"
    return None


def _negates(before: str, following: str) -> bool:
    if following.startswith("좋"):  # 안 좋은 … describes a thing
        return False
    if _PLACE.fullmatch(before):
        return re.match(_ACTS, following) is not None
    return not following.endswith(_NOUN_ENDS)
