"""Success phrases of tools in replies: the words by which a reply reports a write. Pure."""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import regex

from lhkit.base.errors import UsageError
from lhkit.base.locales import written_locale
from lhkit.base.text import LETTER_OR_DIGIT

MOST_READ = 4000
"""Most characters of a reply that are read: half from its start, half from its end."""

SENTENCE = re.compile(r"(?<=[.!?…])\s+|\n+")

_PATTERN_CPU_S = 2.0

_NOT_AFFIRMATIVE = {
    "en": re.compile(
        r"\?|n't\b|'(?:ll|d)\b|(?<!for )(?<!thank )you\b|"
        r"\bon (?:mon|tues|wednes|thurs|fri|satur|sun)day\b|"
        r"\b(?:not|no|never|nothing|none|neither|nor|cannot|unable|without|if|"
        r"once|when|until|unless|before|after|should|shall|will|would|could|can|may|might|must|to|"
        r"be|being|let|already|you've|yet|only|ever|last|earlier|yesterday|failed|how)\b"
    ),
    "ko": re.compile(
        r"\?|(?<![가-힣])(?:안|못|덜|이미|벌써|아까|지난|전에|만약|혹시|아직|언제|먼저)(?![가-힣])|않|없|아니|못|"
        r"려면|다면|라면|으면|하면|면\s|까요|[었았했]던|[었았했]을|시[었었]|셨|더니|는데|지만|실패"
    ),
}


def success_phrases(
    reply: str, claims: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, list[str]]]:
    """Yield the success phrases in a reply, each with the tools that have it.

    They count in affirmative sentences: without negation, question or condition.

    Args:
        reply: text of the reply.
        claims: phrases or patterns, by writing tool.

    Raises:
        UsageError: a pattern takes too long.
    """
    for sentence in SENTENCE.split(plain_text(read_part(reply))):
        if _NOT_AFFIRMATIVE[written_locale([sentence])].search(sentence):
            continue
        owners: dict[str, list[str]] = {}
        for tool, patterns in claims.items():
            for phrase in filter(None, (_find_phrase(pattern, sentence) for pattern in patterns)):
                owners.setdefault(phrase, []).append(tool)
        yield from owners.items()


def plain_text(text: str) -> str:
    """Return a text in NFC, case-folded, with straight apostrophes."""
    return unicodedata.normalize("NFC", text).replace("’", "'").casefold()


def read_part(reply: str) -> str:
    """Return a reply cut to `MOST_READ` characters: its start and its end."""
    half = MOST_READ // 2
    return reply if len(reply) <= MOST_READ else f"{reply[:half]}\n{reply[-half:]}"


def _find_phrase(pattern: str, sentence: str) -> str | None:
    """Return the text that a success phrase matches: whole words, except in Korean."""
    try:
        match = _whole_words(pattern).search(sentence, timeout=_PATTERN_CPU_S)
    except regex.error:  # from a recorded run; a registry rejects such a pattern
        return None
    except TimeoutError as error:
        raise UsageError(
            f"claims {pattern[:200]!r} takes longer than {_PATTERN_CPU_S:g} s in a sentence of "
            f"{len(sentence)} characters: avoid nested repeats"
        ) from error
    return match[0] if match else None


@lru_cache(maxsize=1024)
def _whole_words(pattern: str) -> "regex.Pattern[str]":
    edges = f"(?<!{LETTER_OR_DIGIT})(?:{pattern})(?!{LETTER_OR_DIGIT})"
    return regex.compile(edges, regex.IGNORECASE)
