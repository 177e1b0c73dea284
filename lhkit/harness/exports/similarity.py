"""Find near-duplicate texts by the overlap of their character n-grams.

Similarity is the Jaccard index of n-gram sets: bigrams for Hangul, where a character is a syllable,
and trigrams for other scripts. Case, spaces and punctuation are ignored.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import combinations

NEAR = 0.4
"""The least similarity of near-duplicates.

Measured on the shipped scenarios and on templates: sentences that differ in one noun have 0.45 to
0.75 in both languages, paraphrases less than 0.3.
"""

_HANGUL_FIRST, _HANGUL_LAST = "가", "힣"


def similarity(first: str, second: str) -> float:
    """Return the similarity of two texts, from 0 (no common n-gram) to 1 (the same n-grams)."""
    return _jaccard(_ngrams(first), _ngrams(second))


def near_duplicates(
    texts: Sequence[str], *, least: float = NEAR
) -> Iterator[tuple[int, int, float]]:
    """Yield (i, j, similarity) of all pairs of texts with at least the given similarity."""
    ngrams = [_ngrams(text) for text in texts]
    for i, j in combinations(range(len(texts)), 2):
        index = _jaccard(ngrams[i], ngrams[j])
        if index >= least:
            yield i, j, index


@lru_cache(maxsize=8_192)
def _ngrams(text: str) -> frozenset[str]:
    letters = "".join(c for c in unicodedata.normalize("NFC", text).casefold() if c.isalnum())
    sizes = [2 if _HANGUL_FIRST <= letter <= _HANGUL_LAST else 3 for letter in letters]
    ngrams = (letters[i : i + n] for i, n in enumerate(sizes) if i + n <= len(letters))
    return frozenset(ngrams) or frozenset({letters})


def _jaccard(first: frozenset[str], second: frozenset[str]) -> float:
    shared = len(first & second)
    return shared / (len(first) + len(second) - shared)


_EDIT_NEAR = 0.75  # the least difflib ratio of messages that differ in a few letters
_EDIT_WORTH_TRYING = 0.2  # the least similarity for which the slower difflib is tried


def _is_near(message: str, other: str) -> bool:
    index = similarity(message, other)
    if index >= NEAR:
        return True
    if index < _EDIT_WORTH_TRYING:
        return False
    a, b = (text.casefold().strip(" .!?~…ㅎㅋ") for text in (message, other))
    return SequenceMatcher(None, a, b, autojunk=False).ratio() >= _EDIT_NEAR


class HeldOut:
    """User messages of held-out scenarios, to find near-duplicates of them.

    Args:
        messages: the held-out user messages.
    """

    def __init__(self, messages: Iterable[str] = ()) -> None:
        self._messages = tuple(dict.fromkeys(messages))
        self._known: dict[str, bool] = {}

    def has_near(self, messages: Iterable[str]) -> bool:
        """Return True if any of the messages is a near-duplicate of a held-out one."""
        for message in messages:
            if message not in self._known:
                self._known[message] = any(_is_near(message, other) for other in self._messages)
            if self._known[message]:
                return True
        return False
