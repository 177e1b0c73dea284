"""The ECMAScript regular expressions of JSON Schema, searched within a time limit."""

import re
from functools import lru_cache

import regex

from lhkit.base.errors import UsageError

SEARCH_CPU_S = 2.0
"""Limit of a search, since schemas may be untrusted and `re` cannot be interrupted."""

_ECMA_SPACE = r"\t-\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"

_OUTSIDE = {
    "$": r"\Z",  # Python's `$` also matches before a final line break
    ".": r"[^\n\r\u2028\u2029]",
    "[]": "(?!)",
    "[^]": r"[\s\S]",
    "(?<": "(?P<",
    r"\s": f"[{_ECMA_SPACE}]",
    r"\S": f"[^{_ECMA_SPACE}]",
}
_IN_CLASS = {r"\s": _ECMA_SPACE, "[": r"\["}

_PIECE = re.compile(r"\\k<(?P<group>\w+)>|\\[\s\S]|\[\^?\]|\[|\]|\$|\.|\(\?<(?![=!])")
_PROPERTY = re.compile(r"\\[pP]\{")


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> regex.Pattern[str] | None:
    r"""Return the compiled pattern of a schema; None if Python does not support it.

    As in ECMA-262, `$` matches only at the end, and `\d`, `\w` and `\b` are ASCII (Unicode in a
    pattern with `\p{…}`).
    """
    is_in_class = False

    def translate(match: re.Match[str]) -> str:
        nonlocal is_in_class
        piece = match[0]
        if is_in_class and piece in {"[]", "[^]"}:  # a bracket, then the end of the class
            is_in_class = False
            return rf"\{piece}"
        if is_in_class:
            is_in_class = piece != "]"
            return _IN_CLASS.get(piece, piece)
        if match["group"]:
            return f"(?P={match['group']})"
        is_in_class = piece == "["
        return _OUTSIDE.get(piece, piece)

    try:
        flags = 0 if _PROPERTY.search(pattern) else regex.ASCII  # ASCII would empty \p{Han}
        return regex.compile(_PIECE.sub(translate, pattern), flags)
    except (regex.error, OverflowError, RecursionError, ValueError):
        return None


def matches(pattern: str, text: str) -> bool:
    """Return True if a schema's pattern matches anywhere in a text.

    A pattern that Python does not support matches everything, like an unknown format.

    Raises:
        UsageError: the search takes too long.
    """
    expression = compiled(pattern)
    if expression is None:
        return True
    try:
        return expression.search(text, timeout=SEARCH_CPU_S) is not None
    except TimeoutError as error:
        raise UsageError(
            f"pattern {pattern[:200]!r} takes longer than {SEARCH_CPU_S:g} s in a text of "
            f"{len(text)} characters: write it without nested repeats"
        ) from error
