"""Read the arguments of a call, as models, servers and recordings write them.

Repairs: `empty_arguments` (null, nothing or white space for `{}`), `encoded_arguments` (JSON text
within JSON text), `malformed` (not JSON).
"""

from collections.abc import Callable, Mapping
from typing import Any

from lhkit.base.json_values import NotJsonError, parse_json, plain_json, safe_repr

MAX_ENCODINGS = 4
"""Limit of JSON texts within each other."""

_NOTHING = frozenset({"", "null", "None", "undefined"})


def read_arguments(
    value: Any, *, parse: Callable[[str], Any] = parse_json
) -> tuple[Any, tuple[str, ...]]:
    """Return (arguments, repairs) of a call; the arguments are valid only if they are a `dict`.

    An object is read as it is, JSON text as the object that it encodes, null and blank text as
    `{}`. Anything else stays invalid: a list or number as it is, what is not JSON as text, which is
    `malformed`. Never raises.

    Args:
        value: the arguments as they were written.
        parse: parses JSON text; raises ValueError or RecursionError for other text.
    """
    parsed, inner = value, value
    repairs: tuple[str, ...] = ()
    for encodings in range(MAX_ENCODINGS + 1):
        if inner is None or (isinstance(inner, str) and inner.strip() in _NOTHING):
            return {}, (*repairs, "empty_arguments")
        if isinstance(inner, Mapping):
            try:
                return plain_json(inner), repairs
            except NotJsonError:  # NaN, or nested too deeply
                return value if isinstance(value, str) else safe_repr(value), ("malformed",)
        if not isinstance(inner, str):
            break
        try:
            inner = parse(inner)
        except (ValueError, RecursionError):
            if encodings == 0:
                return value, ("malformed",)
            break
        if encodings == 0:
            parsed = inner
        else:
            repairs = ("encoded_arguments",)
    return parsed, ()
