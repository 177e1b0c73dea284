"""What models put around calls: fences, tags, arrays, separators. Neither text nor call.

Marks are followed only while they stand directly before, between or after calls; elsewhere they
are text.
"""

import re
from collections import deque

_FENCE = r"```[A-Za-z_]{0,20}"
_BEFORE_FIRST = re.compile(rf"\s+|{_FENCE}|<tool_(?:code|call)>|\[")
_MARK = re.compile(rf"\s+|{_FENCE}|</?tool_(?:code|call)>|[\[\],;]")

_LONG_MARKS = ("```", "<tool_code>", "<tool_call>", "</tool_code>", "</tool_call>")
_LONGEST_MARK = max(map(len, _LONG_MARKS))

_CLOSERS = {"```": "fence", "</tool_code>": "tag", "</tool_call>": "tag", "]": "array"}
_OPENERS = (("```", "fence"), ("<tool_", "tag"), ("[", "array"))


def run_end(text: str, start: int, *, after_call: bool) -> tuple[int, int]:
    """Return (end of the run of marks at `start`, up to where more input cannot change it)."""
    pattern = _MARK if after_call else _BEFORE_FIRST
    end = settled = start
    while match := pattern.match(text, end):
        settled = match.start() if match.group().startswith("`") else match.end()
        end = match.end()
    return end, settled


def could_grow(text: str, end: int) -> bool:
    """Return True if more input could lengthen the run of marks that ends at `end`."""
    if len(text) - end > _LONGEST_MARK:
        return False
    rest = text[end:]
    return any(mark.startswith(rest) for mark in _LONG_MARKS)


class Wrapping:
    """The fences, tags and arrays that are open around the present place."""

    def __init__(self) -> None:
        self._open: dict[str, deque[int]] = {}  # by kind, the marks still open, oldest first
        self._opened = 0

    def close_in(self, run: str) -> str:
        """Close what the front of `run`, marks after a call, closes; return the rest of it."""
        end = 0
        for mark in _MARK.finditer(run):
            if not self._closes(mark.group()):
                break
            end = mark.end()
        return run[end:]

    def enter(self, run: str) -> tuple[str, ...]:
        """Take in `run`, marks before a call; return what is mended by leaving them out."""
        repairs = [
            "separator"
            for mark in _MARK.finditer(run)
            if not self._closes(mark.group()) and not self._opens(mark.group())
        ]
        oldest_first = sorted(self._open, key=lambda kind: self._open[kind][0])
        return tuple(dict.fromkeys([*oldest_first, *repairs]))

    def _closes(self, mark: str) -> bool:
        if mark.isspace():
            return True
        if mark == ",":
            return "array" in self._open
        kind = _CLOSERS.get(mark)
        if kind not in self._open:
            return False
        self._open[kind].popleft()
        if not self._open[kind]:
            del self._open[kind]
        return True

    def _opens(self, mark: str) -> bool:
        kind = next((kind for start, kind in _OPENERS if mark.startswith(start)), None)
        if kind is not None:
            self._open.setdefault(kind, deque()).append(self._opened)
            self._opened += 1
        return kind is not None
