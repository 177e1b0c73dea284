"""Follows one object of a model's text to its closing brace, however it is cut into chunks."""

import re

_OUTSIDE_STRING = re.compile(r"""["'{}]""")
_IN_STRING = {'"': re.compile(r'["\\]'), "'": re.compile(r"['\\]")}


class OpenObject:
    """An object that has begun. Each character is looked at once.

    Braces inside strings do not count. Single quotes delimit strings too: valid JSON has none
    outside of strings, and models write Python.
    """

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._depth = 0
        self._quote = ""
        self._is_escaped = False

    @property
    def raw(self) -> str:
        """The text of the object so far."""
        return "".join(self._parts)

    def feed(self, text: str, start: int) -> int | None:
        """Take in `text` from `start`; return the index after the closing brace, or None."""
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
        pattern = _IN_STRING[self._quote] if self._quote else _OUTSIDE_STRING
        return pattern.search(text, at)

    def _takes(self, mark: str) -> int:
        """Take in a quote or a brace; return the depth."""
        if mark in {'"', "'"}:
            self._quote = "" if self._quote else mark
        else:
            self._depth += 1 if mark == "{" else -1
        return self._depth
