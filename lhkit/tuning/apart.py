"""Lines of a training that are nearly lines of an evaluation: to be left out of it.

What is learnt by heart says nothing about the model.
"""

from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher

from lhkit.harness.matchers import NEAR, similarity

EDIT_NEAR = 0.75
"""From here on two lines are the same but for a few letters (difflib's ratio)."""

_LOOKED_AT_CLOSELY = 0.2
"""Letter groups in common that make the slower comparison worth while."""


def near(said: str, lines: Iterable[str]) -> Iterator[tuple[str, float]]:
    """Yield each of the lines that `said` is nearly the same as, and how alike they are."""
    for line in lines:
        likeness = similarity(said, line)
        if likeness >= NEAR:
            yield line, likeness
        elif likeness >= _LOOKED_AT_CLOSELY:
            ratio = SequenceMatcher(None, bare(said), bare(line), autojunk=False).ratio()
            if ratio >= EDIT_NEAR:
                yield line, ratio


def bare(text: str) -> str:
    """Return a line without case and what stands around its words."""
    return text.casefold().strip(" .!?~…ㅎㅋ")


class Apart:
    """Says which lines are near none of the given ones."""

    def __init__(self, lines: Sequence[str]) -> None:
        """Remember the lines of an evaluation, each once."""
        self._lines = tuple(dict.fromkeys(lines))
        self._known: dict[str, bool] = {}

    def __call__(self, said: Iterable[str]) -> bool:
        """Return True if none of what is said is near a line."""
        return all(self._is_apart(each) for each in said)

    def _is_apart(self, said: str) -> bool:
        if said not in self._known:
            self._known[said] = next(near(said, self._lines), None) is None
        return self._known[said]
