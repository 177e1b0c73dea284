"""The parts of `jsonschema` that lhkit uses: every module takes them from here.

By itself `import jsonschema` takes seconds where `rfc3987-syntax` is installed, which JupyterLab
asks for: the package's door imports it at once, it compiles a grammar, and all of that for the
format `iri`, which is in no schema of ours. So jsonschema gets a stand-in for it while it is
imported, which reads the real one when somebody's `iri` has to be checked: nothing else changes, in
nobody's program. https://github.com/python-jsonschema/jsonschema/issues/1428
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime, time
from fractions import Fraction
from importlib import import_module
from importlib.util import find_spec
from ipaddress import IPv4Address, IPv6Address
from types import ModuleType
from typing import Any

from lhkit.tools.patterns import matches

__all__ = [
    "EMPTY_REGISTRY",
    "FORMATS",
    "FORMS",
    "Draft4Validator",
    "Draft6Validator",
    "Draft7Validator",
    "Draft201909Validator",
    "Draft202012Validator",
    "FormatChecker",
    "SchemaError",
    "SchemaValidator",
    "ValidationError",
    "best_match",
    "extend",
]

_SLOW = "rfc3987_syntax"


@contextmanager
def _read_late(name: str) -> Iterator[None]:
    """Import a module's stand-in instead of it, within the block; without it, there is none."""
    if name in sys.modules or find_spec(name) is None:
        yield
        return
    sys.modules[name] = late = _Late(name)
    try:
        yield
    finally:
        if sys.modules.get(name) is late:
            del sys.modules[name]


class _Late(ModuleType):
    """Stands for a module: what it has is a function that imports the module and calls its own."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def called(*args: Any, **named: Any) -> Any:
            return getattr(import_module(self.__name__), name)(*args, **named)

        return called


with _read_late(_SLOW):
    from jsonschema import (
        Draft4Validator,
        Draft6Validator,
        Draft7Validator,
        Draft201909Validator,
        Draft202012Validator,
        FormatChecker,
    )
    from jsonschema.exceptions import SchemaError, ValidationError, best_match
    from jsonschema.validators import extend
    from referencing.jsonschema import EMPTY_REGISTRY


def _multiple_of(validator: Any, divisor: Any, value: Any, _schema: Any) -> Iterator[Any]:
    """Check in the decimals that were written: 19.99 is a multiple of 0.01."""
    if validator.is_type(value, "number"):
        number, unit = (
            Fraction(str(each)) if isinstance(each, float) else Fraction(each)
            for each in (value, divisor)
        )
        if (number / unit).denominator != 1:
            yield ValidationError(f"{value!r} is not a multiple of {divisor}")


def _pattern(validator: Any, pattern: str, value: Any, _schema: Any) -> Iterator[Any]:
    if validator.is_type(value, "string") and not matches(pattern, value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], value: Any, _schema: Any
) -> Iterator[Any]:
    if validator.is_type(value, "object"):
        for pattern, inner in patterns.items():
            for name, each in value.items():
                if matches(pattern, name):
                    yield from validator.descend(each, inner, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any, others: Any, value: Any, schema: Mapping[str, Any]
) -> Iterator[Any]:
    if not validator.is_type(value, "object"):
        return
    named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    extra = [
        name
        for name in value
        if name not in named and not any(matches(pattern, name) for pattern in patterns)
    ]
    if isinstance(others, Mapping):
        for name in extra:
            yield from validator.descend(value[name], others, path=name)
    elif extra and others is False:
        yield ValidationError(f"Additional properties are not allowed: {extra}")


SchemaValidator: Any = extend(
    Draft202012Validator,
    validators={
        "additionalProperties": _additional_properties,
        "multipleOf": _multiple_of,
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
    },
)  # type: ignore[no-untyped-call]
"""Draft 2020-12 with decimal multiples and ECMAScript's regular expressions."""

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_HOUR = r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?([Zz]|[+-][0-9]{2}:[0-9]{2})?"
_TIME = re.compile(_HOUR)
_MOMENT = re.compile(rf"{_DAY.pattern}[Tt ]{_HOUR}")
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")

FORMS = {
    "date": "YYYY-MM-DD",
    "date-time": "YYYY-MM-DDTHH:MM:SS",
    "time": "HH:MM:SS",
    "uuid": "8-4-4-4-12 hexadecimal digits",
    "ipv4": "such as 192.0.2.1",
    "ipv6": "such as 2001:db8::1",
}

_READERS: Mapping[str, tuple[re.Pattern[str], Callable[[str], object]]] = {
    "date": (_DAY, date.fromisoformat),
    "date-time": (_MOMENT, lambda text: datetime.fromisoformat(text.upper())),
    "time": (_TIME, lambda text: time.fromisoformat(text.upper())),
    "uuid": (_UUID, str),
    "ipv4": (re.compile(r"[0-9.]+"), IPv4Address),
    "ipv6": (re.compile(r"[0-9a-fA-F:.]+"), IPv6Address),
}


def _format_checker() -> FormatChecker:
    checker = FormatChecker(formats=())

    def add(name: str, form: re.Pattern[str], read: Callable[[str], object]) -> None:
        def is_so(value: object) -> bool:
            return not isinstance(value, str) or (
                form.fullmatch(value) is not None and read(value) is not None
            )

        checker.checks(name, raises=ValueError)(is_so)

    for name, (form, read) in _READERS.items():
        add(name, form, read)
    return checker


FORMATS = _format_checker()
"""Checks the `format`s that the standard library can check; others only tell the model something:
use a pattern, the tool's `check`, or check in the handler. ISO 8601 times may leave out seconds and
offset, since models write local time."""
