"""Follows one object or call of a model's text to its last bracket, however it is cut."""

import re
from abc import ABC, abstractmethod
from typing import Literal, TypeAlias

BRACES = "{}"
ALL_BRACKETS = "()[]{}"

NextCall: TypeAlias = Literal["no", "wait", "maybe", "yes"]
"""Whether the next call begins at a bracket: `maybe` if only in case that the open one is damaged,
`wait` if more input is needed."""

_PAIRS = {")": "(", "]": "[", "}": "{"}
_OPENING = frozenset(_PAIRS.values())
_OUTSIDE = re.compile(r"""["'()\[\]{}:,=]|[^\s"'()\[\]{}:,=]+""")
_INSIDE = {
    '"': re.compile(r'["\\\[{]|[^\s"\\\[{]+'),
    "'": re.compile(r"['\\\[{]|[^\s'\\\[{]+"),
}
_BEFORE_SINGLE_QUOTE = frozenset("([{,:=\"'")


class OpenBrackets(ABC):
    """A text of `brackets` that has begun. Each character is looked at once.

    Brackets inside strings do not count. Single quotes delimit strings too, where a value or key
    can begin: valid JSON has none outside of strings, and models write Python. If a bracket or a
    quote is missing, the text ends where the next call begins (`_next_call`).
    """

    def __init__(self, brackets: str = ALL_BRACKETS) -> None:
        self._counted = brackets
        self._parts: list[str] = []
        self._length = 0
        self._depth = 0
        self._open: list[str] = []  # every bracket that is open
        self._quote = ""
        self._last = ""  # the character before, outside of strings and white space
        self._before_string = ""  # the one before the last string
        self._last_inside = ""  # the character before in the open string, without white space
        self._is_escaped = False
        self.boundary: int | None = None
        self.is_complete = False

    @property
    def raw(self) -> str:
        """The text so far."""
        return "".join(self._parts)

    def feed(self, text: str, at: int) -> int:
        """Take in `text` from `at` up to the last bracket; return where that was."""
        end = self._end(text, at)
        self._parts.append(text[at:end])
        self._length += end - at
        return end

    @abstractmethod
    def _next_call(self, text: str, at: int) -> NextCall:
        """Return whether the bracket at `at` begins the next call, since this one is damaged."""

    def _end(self, text: str, start: int) -> int:
        at = start
        if self._is_escaped and at < len(text):
            self._is_escaped = False
            at += 1
        while match := (_INSIDE[self._quote] if self._quote else _OUTSIDE).search(text, at):
            piece = match.group()
            found = self._next_call(text, match.start()) if piece in _OPENING else "no"
            if found == "wait":
                return match.start()
            if found != "no" and self.boundary is None:
                self.boundary = self._length + match.start() - start
            if found == "yes":
                self.is_complete = True
                return match.start()
            at = match.end()
            if piece == "\\":
                self._last_inside = piece
                self._is_escaped = at == len(text)
                at += 1
            elif self._quote:
                self._take_inside(piece)
            elif self._take_outside(piece):
                self.is_complete = True
                return at
        return len(text)

    def _take_inside(self, piece: str) -> None:
        self._last_inside = piece[-1]
        if piece == self._quote:
            self._last = piece
            self._quote = ""

    def _take_outside(self, piece: str) -> bool:
        """Take in a mark or a word; return True for the last bracket."""
        before, self._last = self._last, piece[-1]
        if piece == '"' or (piece == "'" and before in _BEFORE_SINGLE_QUOTE):
            self._quote = piece
            self._before_string = before
            self._last_inside = ""
        elif piece in _OPENING:
            self._open.append(piece)
            self._depth += piece in self._counted
        elif piece in _PAIRS:
            self._close(piece)
            self._depth -= piece in self._counted
            return self._depth == 0 and piece in self._counted
        return False

    def _close(self, bracket: str) -> None:
        """Close the innermost bracket of a kind; a brace closes lists that lack their end."""
        while bracket == "}" and self._open[-1:] == ["["]:
            self._open.pop()
        if self._open[-1:] == [_PAIRS[bracket]]:
            self._open.pop()
