"""Where a `[f(a=1)]` call begins in what a model writes, and where its brackets end."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, TypeAlias

from lhkit.models.dialects.pythonic_values import KEY, NAME

_FENCE = r"```(?:[A-Za-z_]{1,20}(?=[\s\[]))?\s{0,99}"
_OPEN = re.compile(rf"(?P<fence>{_FENCE})?(?P<list>\[\s{{0,99}})?(?P<name>{NAME})\s{{0,9}}\(")
_MAYBE_OPEN = re.compile(
    rf"`{{1,2}}|```[A-Za-z_]{{0,20}}|(?P<fence>{_FENCE})?(?P<list>\[\s{{0,99}})?(?:(?P<name>{NAME})\s{{0,9}})?"
)
_ARGUMENTS = re.compile(rf"\s{{0,99}}(?:\)|\*\*\s{{0,9}}\{{|{KEY}\s{{0,9}}=)")
_MAYBE_ARGUMENTS = re.compile(rf"\s{{0,99}}(?:\*{{1,2}}|\*\*\s{{0,9}}|{KEY}\s{{0,9}})?")

_OUTSIDE_STRING = re.compile(r"""["'()\[\]{}]""")
_IN_STRING = {'"': re.compile(r'"|\\.', re.DOTALL), "'": re.compile(r"'|\\.", re.DOTALL)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A call begins at `at`, after a fence if there is one."""

    at: int
    name: str
    has_fence: bool


Decision: TypeAlias = Start | Literal["no", "wait"]
"""A call, none, or more input is needed."""


def start_at(text: str, at: int, known: Collection[str], *, may_be_bare: bool) -> Decision:
    """Decide whether a call begins at `at`.

    A list of calls is one if it names a tool in `known` or has no or keyword arguments. A call
    without a list must name a tool, and stand at the start of a line or in a fence.
    """
    found = _OPEN.match(text, at)
    if found is None:
        return _maybe(text, at, known, may_be_bare=may_be_bare)
    name, has_fence = found.group("name"), found.group("fence") is not None
    start = Start(at=found.end("fence") if has_fence else at, name=name, has_fence=has_fence)
    if name in known and (found.group("list") or has_fence or may_be_bare):
        return start
    if found.group("list") is None:
        return "no"
    if _ARGUMENTS.match(text, found.end()):
        return start
    return "wait" if _MAYBE_ARGUMENTS.fullmatch(text, found.end()) else "no"


def _maybe(text: str, at: int, known: Collection[str], *, may_be_bare: bool) -> Decision:
    found = _MAYBE_OPEN.fullmatch(text, at)
    if found is None:
        return "no"
    if found.group("name") and not found.group("list"):
        could_be_known = any(name.startswith(found.group("name")) for name in known)
        return "wait" if could_be_known and (may_be_bare or found.group("fence")) else "no"
    return "wait"


class OpenBrackets:
    """A call or a list of calls that has begun. Each character is looked at once."""

    def __init__(self) -> None:
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
        if self._is_escaped:
            self._is_escaped = False
            at += 1
        while found := self._pattern().search(text, at):
            at = found.end()
            if self._takes(found.group()) == 0:
                return at
        if self._quote:
            rest = text[at:]
            self._is_escaped = (len(rest) - len(rest.rstrip("\\"))) % 2 == 1
        return None

    def _pattern(self) -> re.Pattern[str]:
        return _IN_STRING[self._quote] if self._quote else _OUTSIDE_STRING

    def _takes(self, mark: str) -> int | None:
        """Take in a mark; return the depth after a bracket outside of strings."""
        if self._quote:
            self._quote = "" if mark == self._quote else self._quote
            return None
        if mark in {'"', "'"}:
            self._quote = mark
            return None
        self._depth += 1 if mark in "([{" else -1
        return self._depth
