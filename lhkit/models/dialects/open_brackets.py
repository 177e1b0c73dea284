"""Follows one object or call of a model's text to its last bracket, however it is cut."""

import re

BRACES = "{}"
ALL_BRACKETS = "()[]{}"

_OPENING = frozenset("([{")
_IN_STRING = {'"': re.compile(r'["\\]'), "'": re.compile(r"['\\]")}


class OpenBrackets:
    """A text of `brackets` that has begun. Each character is looked at once.

    Brackets inside strings do not count. Single quotes delimit strings too: valid JSON has none
    outside of strings, and models write Python.
    """

    def __init__(self, brackets: str = ALL_BRACKETS) -> None:
        self._outside = re.compile(f"[\"'{re.escape(brackets)}]")
        self._parts: list[str] = []
        self._depth = 0
        self._quote = ""
        self._is_escaped = False

    @property
    def raw(self) -> str:
        """The text so far."""
        return "".join(self._parts)

    def feed(self, text: str, start: int) -> int | None:
        """Take in `text` from `start`; return the index after the last bracket, or None."""
        end = self._end(text, start)
        self._parts.append(text[start:end])
        return end

    def _end(self, text: str, start: int) -> int | None:
        at = start
        if self._is_escaped and at < len(text):
            self._is_escaped = False
            at += 1
        while match := self._next(text, at):
            at = match.end()
            if match.group() == "\\":
                self._is_escaped = at == len(text)
                at += 1
            elif self._takes(match.group()) == 0:
                return at
        return None

    def _next(self, text: str, at: int) -> re.Match[str] | None:
        pattern = _IN_STRING[self._quote] if self._quote else self._outside
        return pattern.search(text, at)

    def _takes(self, mark: str) -> int | None:
        """Take in a mark; return the depth after a bracket, None after a quote."""
        if mark in {'"', "'"}:
            self._quote = "" if self._quote else mark
            return None
        self._depth += 1 if mark in _OPENING else -1
        return self._depth
