"""Near-duplicate texts, by overlap of their letter groups; words only, no meaning.

The measure is the Jaccard index of the sets of neighbouring letters: two of Hangul, where a
letter is a syllable and a pair about a morpheme, three of other scripts. Case, spaces and
punctuation do not count.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import combinations

NEAR = 0.4
"""From here on two texts are near-duplicates.

Measured on the shipped scenarios and on templates: a sentence with one noun swapped lies between
0.45 and 0.75 in both languages, two that ask the same thing in words of their own below 0.3.
"""

_HANGUL_FIRST, _HANGUL_LAST = "가", "힣"


def similarity(first: str, second: str) -> float:
    """Return a number from 0 (nothing in common) to 1 (the same letters in the same places)."""
    return _jaccard(_groups(first), _groups(second))


def near_duplicates(
    texts: Sequence[str], *, least: float = NEAR
) -> Iterator[tuple[int, int, float]]:
    """Yield (i, j, similarity) of every two texts, i before j, that are at least so similar."""
    groups = [_groups(text) for text in texts]
    for i, j in combinations(range(len(texts)), 2):
        likeness = _jaccard(groups[i], groups[j])
        if likeness >= least:
            yield i, j, likeness


@lru_cache(maxsize=8_192)
def _groups(text: str) -> frozenset[str]:
    letters = "".join(c for c in unicodedata.normalize("NFC", text).casefold() if c.isalnum())
    sizes = [2 if _HANGUL_FIRST <= letter <= _HANGUL_LAST else 3 for letter in letters]
    groups = (letters[i : i + n] for i, n in enumerate(sizes) if i + n <= len(letters))
    return frozenset(groups) or frozenset({letters})


def _jaccard(first: frozenset[str], second: frozenset[str]) -> float:
    shared = len(first & second)
    return shared / (len(first) + len(second) - shared)


_EDIT_NEAR = 0.75
"""From this ratio of difflib on, two messages differ in a few letters only."""

_WORTH_COMPARING = 0.2
"""Below this share of common letter groups the slower comparison is skipped."""


def _is_near(message: str, other: str) -> bool:
    """Return True if two user messages are near-duplicates."""
    likeness = similarity(message, other)
    if likeness >= NEAR:
        return True
    if likeness < _WORTH_COMPARING:
        return False
    matcher = SequenceMatcher(None, _bare(message), _bare(other), autojunk=False)
    return matcher.ratio() >= _EDIT_NEAR


def _bare(text: str) -> str:
    """Return a message without case and without the marks around it."""
    return text.casefold().strip(" .!?~…ㅎㅋ")


class HeldOut:
    """User messages of held-out scenarios.

    Args:
        messages: the user messages to compare with.
    """

    def __init__(self, messages: Iterable[str] = ()) -> None:
        self._messages = tuple(dict.fromkeys(messages))
        self._known: dict[str, bool] = {}

    def has_near(self, messages: Iterable[str]) -> bool:
        """Return True if any of the messages is a near-duplicate of a held-out one."""
        return any(map(self._is_held_out, messages))

    def _is_held_out(self, message: str) -> bool:
        if message not in self._known:
            self._known[message] = any(_is_near(message, other) for other in self._messages)
        return self._known[message]
