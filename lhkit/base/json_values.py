"""JSON values: strict conversion from Python, read-only copies and compact text.

Values that are not JSON (NaN, sets, other objects) are refused, not converted.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"

MAX_DEPTH = 100
"""Limit of nesting."""

CLOCK_YEARS = range(1000, 9001)
"""The years of a clock in a file; offsets from it stay within the calendar."""

_MAX_DIGITS = 4_300
"""Python's default limit for converting an integer to text."""

_ALWAYS_PRINTED = 10**640
"""Python converts smaller integers to text with any `sys.set_int_max_str_digits`."""

_BEYOND = 10**_MAX_DIGITS
_TOO_LONG = f"a number of more than {_MAX_DIGITS:,} digits"
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
    """A value is not JSON: NaN, a set, another object, a key that is not a string, a cycle."""


def plain_json(value: Any, *, depth: int = 0) -> Any:
    """Return a copy of `value` as plain dicts, lists and scalars.

    Args:
        value: any value.
        depth: the current nesting, for the limit `MAX_DEPTH`.

    Raises:
        NotJsonError: the value is not JSON; the message names the Python type.
    """
    kind = type(value)
    if kind in _ATOMS or (kind is int and -_BEYOND < value < _BEYOND):
        return value
    if depth > MAX_DEPTH:
        raise NotJsonError(f"nested deeper than {MAX_DEPTH} levels")
    if kind is _ReadOnlyDict or (kind is dict and _KEYS.issuperset(map(type, value))):
        plain = value.copy()  # fastest, since most values of a row are scalars
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
    """Return a finite float, or the plain value of an instance of a subclass."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NotJsonError(f"{float(value)} is not a JSON number")
        return float(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        if not -_BEYOND < value < _BEYOND:
            raise NotJsonError(_TOO_LONG)
        return int(value)
    raise NotJsonError(f"a {type(value).__name__} is not a JSON value")


def read_only_json(value: Any) -> Any:
    """Return a deeply read-only copy of `value` as plain JSON.

    Mappings and lists are still `dict` and `list`, but changing one raises a TypeError. Their
    copies (`dict(…)`, `copy.deepcopy(…)`, a pickle) are ordinary. A read-only value is returned
    as it is.

    Raises:
        NotJsonError: the value is not JSON, or cannot be written by `compact`.
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
    raise TypeError("this value is read-only: change a copy of it, such as copy.deepcopy(…)")


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


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise NotJsonError(f"a key of type {type(key).__name__} is not a JSON key")
    return str.__str__(key)


def added_pointers(before: Any, after: Any, at: str = "") -> Iterator[str]:
    """Yield a JSON Pointer (RFC 6901) for each value in `after` whose key `before` lacks."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key, item in after.items():
            pointer = f"{at}/{escaped_key(key)}"
            if key in before:
                yield from added_pointers(before[key], item, pointer)
            else:
                yield pointer
    elif isinstance(before, list) and isinstance(after, list):
        for i, (old, new) in enumerate(zip(before, after, strict=False)):
            yield from added_pointers(old, new, f"{at}/{i}")


def escaped_key(key: str) -> str:
    """Return a key as a token of a JSON Pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def without_pointers(value: Any, pointers: Iterable[str]) -> Any:
    """Return `value` without the object keys at these JSON Pointers."""
    return _without_pointers(value, frozenset(pointers), "")


def _without_pointers(value: Any, pointers: frozenset[str], at: str) -> Any:
    if isinstance(value, Mapping):
        places = {key: f"{at}/{escaped_key(key)}" for key in value}
        return {
            key: _without_pointers(item, pointers, places[key])
            for key, item in value.items()
            if places[key] not in pointers
        }
    if isinstance(value, list):
        return [_without_pointers(item, pointers, f"{at}/{i}") for i, item in enumerate(value)]
    return value


def in_words_of(written: Any, args: Any) -> Any:
    """Return arguments with the texts and numbers as the model wrote them before a conversion."""
    if isinstance(args, Mapping) and isinstance(written, Mapping):
        return {
            key: in_words_of(written[key], value) if key in written else value
            for key, value in args.items()
        }
    if isinstance(args, list) and isinstance(written, list) and len(args) == len(written):
        return list(map(in_words_of, written, args))
    return written if type(written) is type(args) and isinstance(args, str | int) else args


def parse_json(
    text: str | bytes, *, to_object: Callable[[list[tuple[str, Any]]], Any] | None = None
) -> Any:
    """Parse strict JSON, without NaN and infinite numbers.

    Args:
        text: the JSON text.
        to_object: makes an object of its names and values; by default a `dict`.

    Raises:
        ValueError: not valid strict JSON.
        RecursionError: the JSON is nested too deep.
    """
    return json.loads(
        text,
        object_pairs_hook=to_object,
        parse_constant=_refuse_number,
        parse_float=_parse_finite,
    )


def parse_lenient(text: str | bytes) -> Any:
    """Return what `json.loads` returns, in about half of its time.

    Raises:
        ValueError: as `json.loads`.
        RecursionError: as `json.loads`.
    """
    from pydantic_core import from_json  # the first import takes a while

    try:
        return from_json(text, cache_strings="keys")
    except (ValueError, TypeError):  # not JSON, nested deep, or with lone surrogates
        return json.loads(text)


def _parse_finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse_number(text)  # 1e999 is infinite


def _refuse_number(text: str) -> float:
    raise ValueError(f"{text[:20]} is not a JSON number")


def compact(value: Any) -> str:
    """Return compact JSON text, with only lone surrogates escaped.

    Raises:
        NotJsonError: as `plain_json`.
    """
    return _dump(_plain(value), sort_keys=False)


def json_or_repr(value: Any, *, sort_keys: bool = False) -> str:
    """Return `value` as compact JSON, or its `repr` if it is not JSON."""
    try:
        return canonical(value) if sort_keys else compact(value)
    except NotJsonError:
        return safe_repr(value)


def plain_or_repr(value: Any) -> Any:
    """Return `value` as plain JSON, or its `repr` if it is not JSON."""
    try:
        plain = plain_json(value)
        _dump(plain, sort_keys=False)
    except NotJsonError:
        return safe_repr(value)
    return plain


def safe_repr(value: Any) -> str:
    """Return the `repr` of a value, or its type if it has none, such as an integer too long."""
    try:
        return repr(value)
    except ValueError as error:
        is_long = "integer string conversion" in str(error)
        return f"<{type(value).__name__}: {_TOO_LONG if is_long else error}>"


def shown(value: Any, max_chars: int = 80) -> str:
    """Return `value` as JSON cut to `max_chars`, for a message."""
    text = json_or_repr(value)
    return text if len(text) <= max_chars else text[:max_chars] + "…"


def canonical(value: Any) -> str:
    """Return compact JSON text with sorted keys, so that equal values have equal texts.

    Raises:
        NotJsonError: as `compact`.
    """
    return _dump(_plain(value), sort_keys=True)


def _plain(value: Any) -> Any:
    """Return `value` as plain JSON; a read-only value needs no copy."""
    return value if type(value) in _READ_ONLY else plain_json(value)


def _dump(plain: Any, *, sort_keys: bool) -> str:
    try:
        text = _ENCODERS[sort_keys].encode(plain)
    except ValueError as error:  # an integer too long by sys.set_int_max_str_digits
        raise NotJsonError(str(error)) from error
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # a lone surrogate
        return json.dumps(plain, allow_nan=False, separators=_TIGHT, sort_keys=sort_keys)
    return text
