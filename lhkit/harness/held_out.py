"""Near-duplicates of held-out user messages, which training data must not contain."""

from collections.abc import Iterable
from difflib import SequenceMatcher
from typing import Final

from lhkit.harness.similarity import NEAR, similarity

EDIT_NEAR: Final = 0.75
"""From this ratio of difflib on, two messages differ in a few letters only."""

_WORTH_COMPARING: Final = 0.2
"""Below this share of common letter groups the slower comparison is skipped."""


def is_near(message: str, other: str) -> bool:
    """Return True if two user messages are near-duplicates."""
    likeness = similarity(message, other)
    if likeness >= NEAR:
        return True
    if likeness < _WORTH_COMPARING:
        return False
    matcher = SequenceMatcher(None, _bare(message), _bare(other), autojunk=False)
    return matcher.ratio() >= EDIT_NEAR


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
        return any(self._is_held_out(message) for message in messages)

    def _is_held_out(self, message: str) -> bool:
        if message not in self._known:
            self._known[message] = any(is_near(message, other) for other in self._messages)
        return self._known[message]
