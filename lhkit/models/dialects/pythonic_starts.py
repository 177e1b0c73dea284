"""Where a `[f(a=1)]` call begins in what a model writes."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, TypeAlias

from lhkit.models.dialects.pythonic_calls import IDENTIFIER, KEY, NAME

_FENCE = r"```(?:[A-Za-z_]{1,20}(?=[\s\[]))?\s{0,99}"
_OPEN = re.compile(rf"(?P<fence>{_FENCE})?(?P<list>\[\s{{0,99}})?(?P<name>{NAME})\s{{0,9}}\(")
_MAYBE_OPEN = re.compile(
    rf"`{{1,2}}|```[A-Za-z_]{{0,20}}|(?P<fence>{_FENCE})?(?P<list>\[\s{{0,99}})?(?:(?P<name>{NAME})\s{{0,9}})?"
)
_ARGUMENTS = re.compile(rf"\s{{0,99}}(?:\)|\*\*\s{{0,9}}\{{|{KEY}\s{{0,9}}=)")
_MAYBE_ARGUMENTS = re.compile(rf"\s{{0,99}}(?:\*{{1,2}}|\*\*\s{{0,9}}|{KEY}\s{{0,9}})?")


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
    if name not in known and not IDENTIFIER.match(name):
        return "no"
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
    begun = found.group("name")
    if begun and (not found.group("list") or not IDENTIFIER.match(begun)):
        could_be_known = any(name.startswith(begun) for name in known)
        if found.group("list"):
            return "wait" if could_be_known else "no"
        return "wait" if could_be_known and (may_be_bare or found.group("fence")) else "no"
    return "wait"
