"""Success phrases of tools in replies: the words by which a reply reports a write. Pure."""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, takewhile

import regex

from lhkit.base.errors import UsageError
from lhkit.base.locales import written_locale
from lhkit.base.text import LETTER_OR_DIGIT

MOST_READ = 4000
"""Most characters of a reply that are read: half from its start, half from its end."""

SENTENCE = re.compile(r"(?<=[.!?…])\s+|\n+")

_PATTERN_CPU_S = 2.0

_QUOTED = re.compile(
    r"""(["“])[^"“”\n]*["”]|「[^」\n]*」|『[^』\n]*』"""
    r"""|(?<!\w)['‘](?=\S)[^'‘’\n]{2,200}(?<=\S)['’](?![A-Za-z0-9])"""
)
"""Words of somebody else, or of a row."""

_CLAUSE_END = re.compile(
    r"(?P<and>,|\b(?:and|or)\b)|[;:()—–]|\s-\s|\b(?:but|so|because|while)\b|(?<=[가-힣][고만데서래니])\s"
)
_ANYWHERE = {
    "en": re.compile(
        r"\?|\b(?:if|unless|once|until|yesterday|earlier|already|last|ago)\b|"
        r"\bon (?:mon|tues|wednes|thurs|fri|satur|sun)day\b"
    ),
    "ko": re.compile(
        r"\?|(?<![가-힣])(?:만약|혹시|이미|벌써|아까|지난[주달번해밤]?에?|언제)(?![가-힣])|려면|다면|라면"
    ),
}
"""A question, a condition, an earlier time: nothing in the sentence is a claim of now."""

_BEFORE = {
    "en": re.compile(
        r"n't\b|'(?:ll|d)\b|\byou\b|"
        r"\b(?:not|no|never|nothing|none|neither|nor|cannot|unable|without|when|should|shall|will|"
        r"would|could|can|may|might|must|to|be|being|let|you've|yet|only|ever|failed|how|gets?)\b"
    ),
    "ko": re.compile(
        r"(?<![가-힣])(?:안|못|덜|아직|먼저|전에)(?![가-힣])|않|아니|못|으면|하면|면\s|까요|실패"
    ),
}
"""Before the phrase, in its clause: it is denied, planned, or done by the user."""

_AFTER = {
    "en": re.compile(
        r"^[^.!]*?\b(?:yet|when you|after you|before|failed|never|not)\b|n't\b|^ by\b"
    ),
    "ko": re.compile(
        r"^(?:을|던|다면|더라면|다고|다는|다던|냐|는지|나요|을까|더니)|"
        r"^[가-힣]*\s?(?:못|않|안 |아니)|^[가-힣]*(?:는데|지만)[^.!?]*(?:않|없|아니|못|안 |실패)"
    ),
}
_NEGATION = {
    "en": re.compile(r"\b(?:not|never|nothing|cannot|unable)\b|n't\b"),
    "ko": re.compile(r"않|못|(?<![가-힣])안(?![가-힣])|없"),
}
_MODAL = re.compile(r"\b(?:can|could|will|would|may|might|must|should|shall|be|let|to)\b")

_FIRST_PERSON = re.compile(r"\b(?:i|we)\b")
_LEAD = re.compile(
    r"\W*(?:\b(?:ok|okay|yes|yep|sure|done|great|perfect|alright|all|right|there|just|now|then|also|"
    r"successfully|finally|have|has|had|got|it|them|that|good|news|oh|well|both|went|ahead)\b\W*)*"
)
_PASSIVE = re.compile(r"\b(?:been|is|was|are|were|got)\b|'(?:s|re)\b")
_OBJECT = re.compile(
    r"\s+(?:it|that|this|them|the|an?|your|his|her|my|our|their|us|me|you|him|some|all|everything)\b"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuccessPhrase:
    """A success phrase in a reply.

    Attributes:
        words: the words.
        tools: the writing tools that have it.
        is_state: it may as well be what a read returned: "the room is booked", in English.
    """

    words: str
    tools: tuple[str, ...]
    is_state: bool


def success_phrases(reply: str, claims: Mapping[str, Sequence[str]]) -> Iterator[SuccessPhrase]:
    """Yield the success phrases in a reply that claim a write.

    They count where their clause affirms them: without negation, question or condition, outside
    quotation marks, and in English not as an act of somebody else ("Ann booked it").

    Args:
        reply: text of the reply.
        claims: phrases or patterns, by writing tool.

    Raises:
        UsageError: a pattern takes too long.
    """
    phrases = tuple((tool, tuple(patterns)) for tool, patterns in claims.items() if patterns)
    for _, masked in sentences(reply):
        yield from _phrases_in(plain_text(masked), phrases)


@lru_cache(maxsize=1024)  # a chat reads a reply when its turn ends, and a run again to score it
def _phrases_in(
    sentence: str, claims: tuple[tuple[str, tuple[str, ...]], ...]
) -> tuple[SuccessPhrase, ...]:
    """Return the success phrases in a sentence without quotations."""
    language = written_locale([sentence])
    if _ANYWHERE[language].search(sentence):
        return ()
    owners: dict[tuple[str, bool], list[str]] = {}
    for tool, patterns in claims:
        for match in chain.from_iterable(_matches(pattern, sentence) for pattern in patterns):
            is_state = _reading(sentence, match.start(), match.end(), language)
            if is_state is not None:
                owners.setdefault((match[0], is_state), []).append(tool)
    return tuple(
        SuccessPhrase(words=words, tools=tuple(dict.fromkeys(tools)), is_state=is_state)
        for (words, is_state), tools in owners.items()
    )


def denial(reply: str, claims: Mapping[str, Sequence[str]]) -> str | None:
    """Return the first sentence of a reply that denies a write: a success phrase after a negation.

    Args:
        reply: text of the reply.
        claims: as for `success_phrases`.

    Raises:
        UsageError: a pattern takes too long.
    """
    patterns = [*chain.from_iterable(claims.values())]
    for sentence, masked in sentences(reply):
        text = plain_text(masked)
        language = written_locale([text])
        if _ANYWHERE[language].search(text) or any(True for _ in success_phrases(masked, claims)):
            continue
        found = chain.from_iterable(_matches(pattern, text) for pattern in patterns)
        if any(_NEGATION[language].search(text[: phrase.start()]) for phrase in found):
            return sentence.strip()
    return None


def sentences(reply: str) -> Iterator[tuple[str, str]]:
    """Yield each sentence of the part of a reply that is read, and the same without quotations."""
    text = read_part(reply)
    masked = _QUOTED.sub(lambda quoted: " " * len(quoted[0]), text)
    if not any(map(str.isalnum, masked)):  # nothing but a quotation: the reply itself
        masked = text
    start = 0
    for end, following in [*(m.span() for m in SENTENCE.finditer(masked)), (len(text),) * 2]:
        yield text[start:end], masked[start:end]
        start = following


def _reading(sentence: str, start: int, end: int, language: str) -> bool | None:
    """Return whether a phrase may state what a read returned; None if it claims nothing."""
    borders = [*_CLAUSE_END.finditer(sentence[:start])]
    clause, rest = sentence[borders[-1].end() if borders else 0 : start], sentence[end:]
    if _BEFORE[language].search(clause) or _AFTER[language].search(rest):
        return None
    if language == "ko" or _FIRST_PERSON.search(clause):
        return False
    if _LEAD.fullmatch(clause):  # "Okay, sent it", or another verb of the clause before
        joined = list(takewhile(lambda border: border["and"] is not None, reversed(borders)))
        before = borders[: len(borders) - len(joined)]
        earlier = sentence[before[-1].end() if before else 0 : joined[0].start()] if joined else ""
        return None if _MODAL.search(earlier) else False
    if _PASSIVE.search(clause):
        return True
    return None if _OBJECT.match(rest) else True  # "Ann booked it", "message sent"


def plain_text(text: str) -> str:
    """Return a text in NFC, case-folded, with straight apostrophes."""
    return unicodedata.normalize("NFC", text).replace("’", "'").casefold()


def read_part(reply: str) -> str:
    """Return a reply cut to `MOST_READ` characters: its start and its end."""
    half = MOST_READ // 2
    return reply if len(reply) <= MOST_READ else f"{reply[:half]}\n{reply[-half:]}"


def _matches(pattern: str, sentence: str) -> "Iterator[regex.Match[str]]":
    """Yield where a success phrase occurs: as whole words, except in Korean."""
    try:
        yield from _whole_words(pattern).finditer(sentence, timeout=_PATTERN_CPU_S)
    except regex.error:  # from a recorded run; a registry rejects such a pattern
        return
    except TimeoutError as error:
        raise UsageError(
            f"claims {pattern[:200]!r} takes longer than {_PATTERN_CPU_S:g} s in a sentence of "
            f"{len(sentence)} characters: avoid nested repeats"
        ) from error


@lru_cache(maxsize=1024)
def _whole_words(pattern: str) -> "regex.Pattern[str]":
    edges = f"(?<!{LETTER_OR_DIGIT})(?:{pattern})(?!{LETTER_OR_DIGIT})"
    return regex.compile(edges, regex.IGNORECASE)
