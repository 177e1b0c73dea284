r"""Regular expressions as EBNF for the inside of a JSON string: the part that fixes a text's shape.

Understood: literals, classes, `\d` and `\w` (ASCII), `.`, groups, `|` and repeats, anchored at
both ends. What a class or `.` lets through and JSON would escape is left out. Anything else is
refused: a pattern that is half understood would constrain to the wrong texts.
"""

import re
from dataclasses import dataclass
from typing import NoReturn

from lhkit.models.dialects.grammar_text import literal
from lhkit.vocab.json_values import compact

MAX_REPEATS = 64
"""What `*`, `+` and `{n,}` may at most repeat."""

_SHORTHANDS = {"d": "0-9", "w": "a-zA-Z0-9_"}
_QUANTIFIERS = {"?": (0, 1), "*": (0, MAX_REPEATS), "+": (1, MAX_REPEATS)}
_SPECIAL = frozenset("^$*+?{}[]|()")
_UNPRINTED = frozenset('"\\') | {chr(code) for code in range(0x20)}


class PatternError(ValueError):
    """A pattern that is none, or cannot be made a grammar; the message says why."""


@dataclass(frozen=True, slots=True)
class Shape:
    """An expression, and the shortest and longest text it stands for."""

    ebnf: str
    shortest: int
    longest: int


def shape_of(pattern: str) -> Shape:
    """Return the shape of the texts that `pattern` matches.

    Raises:
        PatternError: the pattern says something that is not understood here.
    """
    if not (pattern.startswith("^") and pattern.endswith("$")) or pattern.endswith("\\$"):
        raise PatternError("it is not anchored with ^ and $")
    reader = _Reader(pattern[1:-1])
    shape = reader.alternatives()
    reader.expect_end()
    try:
        re.compile(pattern)
    except re.error as error:
        raise PatternError(str(error)) from error
    return shape


class _Reader:
    """Reads one pattern from left to right."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._depth = 0

    def alternatives(self) -> Shape:
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        if len(branches) > 1 and not self._depth:
            self._refuse("an | outside of a group")  # ^a|b$ is anchored at one end only
        return Shape(
            f"({' | '.join(branch.ebnf for branch in branches)})",
            min(branch.shortest for branch in branches),
            max(branch.longest for branch in branches),
        )

    def expect_end(self) -> None:
        if self._at < len(self._pattern):
            self._refuse(f"{self._pattern[self._at]!r} at {self._at + 1}")

    def _sequence(self) -> Shape:
        parts: list[Shape] = []
        while self._at < len(self._pattern) and self._pattern[self._at] not in "|)":
            parts.append(self._repeated(self._atom()))
        return Shape(
            " ".join(part.ebnf for part in parts) or '""',
            sum(part.shortest for part in parts),
            sum(part.longest for part in parts),
        )

    def _atom(self) -> Shape:
        if self._take("("):
            return self._group()
        if self._take("["):
            return Shape(self._class(), 1, 1)
        if self._take("."):
            return Shape(r'[^"\\\x00-\x1f]', 1, 1)
        if self._take("\\"):
            name = self._next()
            if name in _SHORTHANDS:
                return Shape(f"[{_SHORTHANDS[name]}]", 1, 1)
            return _plain(self._escaped(name))
        character = self._next()
        if character in _SPECIAL:
            self._refuse(f"{character!r} at {self._at + 1}")
        return _plain(character)

    def _group(self) -> Shape:
        if self._take("?") and not self._take(":"):
            self._refuse("a group that begins with (?")
        self._depth += 1
        shape = self.alternatives()
        self._depth -= 1
        if not self._take(")"):
            self._refuse("a group without an end")
        return shape

    def _class(self) -> str:
        parts: list[str] = []
        if self._take("^"):
            parts.append(r'^"\\\x00-\x1f')
        while not self._take("]"):
            parts.append(self._class_item(is_negated=bool(parts) and parts[0][0] == "^"))
        return f"[{''.join(parts)}]"

    def _class_item(self, *, is_negated: bool) -> str:
        first = self._next()
        if first == "\\":
            first = self._next()
            if first in _SHORTHANDS:
                return _SHORTHANDS[first]
            first = self._escaped(first)
        if first == "[":
            self._refuse("'[' in a class")
        last = first
        if self._pattern[self._at : self._at + 1] == "-" and self._peek(1) not in "]\\":
            self._at += 1
            last = self._next()
        covered = {chr(code) for code in range(ord(first), min(ord(last), 0x7F) + 1)}
        if not is_negated and covered & _UNPRINTED:
            self._refuse("a class with a character that JSON escapes")
        return _in_class(first) if first == last else f"{_in_class(first)}-{_in_class(last)}"

    def _repeated(self, shape: Shape) -> Shape:
        character = self._peek(0)
        if character in _QUANTIFIERS:
            self._at += 1
            least, most = _QUANTIFIERS[character]
        elif self._take("{"):
            least, most = self._counts()
        else:
            return shape
        if self._peek(0) in {"?", "+", "*", "{"}:
            self._refuse("a repeat of a repeat")
        return Shape(
            f"({shape.ebnf}){{{least},{most}}}", shape.shortest * least, shape.longest * most
        )

    def _counts(self) -> tuple[int, int]:
        written, closing, rest = self._pattern[self._at :].partition("}")
        least, comma, most = written.partition(",")
        if not (closing and least.isdecimal() and (most.isdecimal() or not most)):
            self._refuse("'{' without counts")
        self._at = len(self._pattern) - len(rest)
        if not comma:
            return int(least), int(least)
        bounds = int(least), int(most) if most else int(least) + MAX_REPEATS
        if bounds[0] > bounds[1]:
            self._refuse("counts in the wrong order")
        return bounds

    def _escaped(self, character: str) -> str:
        if character.isalnum():
            self._refuse(f"\\{character}")
        return character

    def _peek(self, ahead: int) -> str:
        return self._pattern[self._at + ahead : self._at + ahead + 1] or "\0"

    def _take(self, character: str) -> bool:
        if self._peek(0) != character:
            return False
        self._at += 1
        return True

    def _next(self) -> str:
        if self._at >= len(self._pattern):
            self._refuse("an open end")
        self._at += 1
        return self._pattern[self._at - 1]

    def _refuse(self, what: str) -> NoReturn:
        raise PatternError(f"{what} is not understood")


def _plain(character: str) -> Shape:
    return Shape(literal(compact(character)[1:-1]), 1, 1)


def _in_class(character: str) -> str:
    return "\\" + character if character in "\\]^-" else character
