"""What JSON can carry, and the one strict way from a Python value to it.

Not a serialiser of objects: whatever JSON has no word for is refused, not guessed.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"

MAX_DEPTH = 100
"""Deeper nesting than this is refused: no tool result is that deep on purpose."""

CLOCK_YEARS = range(1000, 9001)
"""The years that a clock told as text may show: what is counted from it stays in the calendar."""

_MOST_DIGITS = 4_300
"""Of an integer: Python makes no text of a longer one, unless it is told to."""

_ALWAYS_PRINTED = 10**640
"""Python makes a text of an integer below, however it was configured."""

_BEYOND = 10**_MOST_DIGITS
_TOO_LONG = f"a number of more than {_MOST_DIGITS:,} digits"
_ATOMS = frozenset({str, bool, type(None)})
_KEYS = frozenset({str})
_TIGHT = (",", ":")
_ENCODERS = {
    is_sorted: json.JSONEncoder(
        ensure_ascii=False, allow_nan=False, separators=_TIGHT, sort_keys=is_sorted
    )
    for is_sorted in (False, True)
}


class NotJsonError(ValueError):
    """A value that JSON cannot carry (NaN, a set, an object, a key that is no string, a cycle)."""


def plain_json(value: Any, *, depth: int = 0) -> Any:
    """Return `value` as plain dicts, lists and scalars.

    Args:
        value: anything.
        depth: current nesting, for the limit `MAX_DEPTH`.

    Raises:
        NotJsonError: if JSON cannot carry the value; the message names the Python type.
    """
    kind = type(value)
    if kind in _ATOMS or (kind is int and -_BEYOND < value < _BEYOND):
        return value  # most values: the end is for subclasses
    if depth > MAX_DEPTH:
        raise NotJsonError(f"nested deeper than {MAX_DEPTH} levels")
    if kind is dict and _KEYS.issuperset(map(type, value)):
        plain = value.copy()  # the quickest way to a row, most of whose values stay as they are
        for key, item in value.items():
            if type(item) not in _ATOMS and not (type(item) is int and -_BEYOND < item < _BEYOND):
                plain[key] = plain_json(item, depth=depth + 1)
        return plain
    if isinstance(value, list | tuple):
        return [
            item
            if type(item) in _ATOMS or (type(item) is int and -_BEYOND < item < _BEYOND)
            else plain_json(item, depth=depth + 1)
            for item in value
        ]
    if isinstance(value, Mapping):
        return {_key(key): plain_json(item, depth=depth + 1) for key, item in value.items()}
    return _plain_scalar(value)


def _plain_scalar(value: Any) -> Any:
    """Return a float that is finite, or a scalar of a subclass as one of its own class."""
    if isinstance(value, float):
        return _finite(float(value))
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return _printable(int(value))
    raise NotJsonError(f"a {type(value).__name__} is not a JSON value")


def read_only_json(value: Any) -> Any:
    """Return `value` as plain JSON that nobody can change: for records, which several people hold.

    Mappings and lists are `dict` and `list` still, so that everything that reads them works;
    changing one raises a TypeError. A copy (`dict(…)`, `copy.deepcopy(…)`, a pickle) is an ordinary
    one. A value that is read-only already is returned as it is.

    Raises:
        NotJsonError: as `compact`: what can be kept can be printed.
    """
    return _read_only(value, 0)


def _read_only(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind in _READ_ONLY or kind in _ATOMS:
        return value
    if kind is int and -_ALWAYS_PRINTED < value < _ALWAYS_PRINTED:
        return value
    if depth > MAX_DEPTH:
        raise NotJsonError(f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, list | tuple):
        return _ReadOnlyList(_read_only(item, depth + 1) for item in value)
    if isinstance(value, Mapping):
        return _ReadOnlyDict(
            {_key(key): _read_only(item, depth + 1) for key, item in value.items()}
        )
    plain = _plain_scalar(value)
    if isinstance(plain, int):
        _dump(plain, sort_keys=False)
    return plain


def _refuse(*_args: Any, **_more: Any) -> NoReturn:
    raise TypeError("a record cannot be changed: change a copy of it, such as copy.deepcopy(…)")


class _ReadOnlyDict(dict[str, Any]):
    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce_ex__(self, _protocol: Any) -> Any:
        return dict, (dict(self),)

    def copy(self) -> dict[str, Any]:
        return dict(self)


class _ReadOnlyList(list[Any]):
    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __reduce_ex__(self, _protocol: Any) -> Any:
        return list, (list(self),)


_READ_ONLY = frozenset({_ReadOnlyDict, _ReadOnlyList})


def _printable(number: int) -> int:
    if not -_BEYOND < number < _BEYOND:
        raise NotJsonError(_TOO_LONG)
    return number


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise NotJsonError(f"{number} is not a JSON number")
    return number


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise NotJsonError(f"a key of type {type(key).__name__} is not a JSON key")
    return str.__str__(key)


def compact(value: Any) -> str:
    """Return compact JSON text with Korean left readable.

    A lone surrogate, which UTF-8 cannot carry, is escaped instead.

    Raises:
        NotJsonError: as `plain_json`.
    """
    return _dump(_plain(value), sort_keys=False)


def json_or_repr(value: Any, *, sort_keys: bool = False) -> str:
    """Return `value` as compact JSON; what JSON cannot carry in Python's own words."""
    try:
        return canonical(value) if sort_keys else compact(value)
    except NotJsonError:
        return repr_of(value)


def plain_or_repr(value: Any) -> Any:
    """Return `value` as plain JSON; what JSON cannot carry is kept as its `repr`."""
    try:
        plain = plain_json(value)
        _dump(plain, sort_keys=False)
    except NotJsonError:
        return repr_of(value)
    return plain


def repr_of(value: Any) -> str:
    """Return a value in Python's own words; what has none, as a number too long, by its type."""
    try:
        return repr(value)
    except ValueError as error:
        is_long = "integer string conversion" in str(error)
        return f"<{type(value).__name__}: {_TOO_LONG if is_long else error}>"


def shown(value: Any, max_chars: int = 80) -> str:
    """Return `value` as short JSON, for a sentence."""
    text = json_or_repr(value)
    return text if len(text) <= max_chars else text[:max_chars] + "…"


def canonical(value: Any) -> str:
    """Return compact JSON text with sorted keys: equal values give equal texts.

    Raises:
        NotJsonError: as `compact`.
    """
    return _dump(_plain(value), sort_keys=True)


def _plain(value: Any) -> Any:
    """Return `value` as plain JSON to be read: what is read-only is plain, and needs no copy."""
    return value if type(value) in _READ_ONLY else plain_json(value)


def _dump(plain: Any, *, sort_keys: bool) -> str:
    try:
        text = _ENCODERS[sort_keys].encode(plain)
    except ValueError as error:  # where Python is told to make no text of less long integers
        raise NotJsonError(str(error)) from error
    if text.isascii() or _encodes(text):
        return text
    return json.dumps(plain, allow_nan=False, separators=_TIGHT, sort_keys=sort_keys)


def _encodes(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
