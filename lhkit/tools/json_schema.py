"""The parts of `jsonschema` that lhkit uses; every module imports them from here.

`import jsonschema` imports `rfc3987_syntax` where it is installed (JupyterLab requires it), which
compiles a grammar for seconds, only for the formats `iri` and `iri-reference`. So this module
imports jsonschema with a stand-in that loads the real one when such a format is first checked.
https://github.com/python-jsonschema/jsonschema/issues/1428
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time
from fractions import Fraction
from importlib import import_module
from importlib.util import find_spec
from ipaddress import IPv4Address, IPv6Address
from types import ModuleType
from typing import Any

from lhkit.base.patterns import matches


def _import_jsonschema() -> None:
    name = "rfc3987_syntax"
    if name in sys.modules or find_spec(name) is None:
        return

    def is_valid_syntax(rule: str, text: str) -> Any:
        return import_module(name).is_valid_syntax(rule, text)

    stand_in: Any = ModuleType(name)
    stand_in.is_valid_syntax = is_valid_syntax
    sys.modules[name] = stand_in
    try:
        import_module("jsonschema")
    finally:
        del sys.modules[name]


_import_jsonschema()

from jsonschema import (  # noqa: E402 - imported above
    Draft4Validator,
    Draft6Validator,
    Draft7Validator,
    Draft201909Validator,
    Draft202012Validator,
    FormatChecker,
)
from jsonschema.exceptions import SchemaError, ValidationError, best_match  # noqa: E402
from jsonschema.validators import extend  # noqa: E402
from referencing.jsonschema import EMPTY_REGISTRY  # noqa: E402

__all__ = [
    "EMPTY_REGISTRY",
    "FORMATS",
    "FORMS",
    "Draft4Validator",
    "Draft6Validator",
    "Draft7Validator",
    "Draft201909Validator",
    "Draft202012Validator",
    "SchemaError",
    "SchemaValidator",
    "ValidationError",
    "best_match",
    "extend",
]


def _multiple_of(validator: Any, divisor: Any, value: Any, _schema: Any) -> Iterator[Any]:
    """Check `multipleOf` in decimal: 19.99 is a multiple of 0.01."""
    if not validator.is_type(value, "number"):
        return
    if (Fraction(str(value)) / Fraction(str(divisor))).denominator != 1:
        yield ValidationError(f"{value!r} is not a multiple of {divisor}")


def _pattern(validator: Any, pattern: str, value: Any, _schema: Any) -> Iterator[Any]:
    if validator.is_type(value, "string") and not matches(pattern, value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], value: Any, _schema: Any
) -> Iterator[Any]:
    if validator.is_type(value, "object"):
        for pattern, inner in patterns.items():
            for name, item in value.items():
                if matches(pattern, name):
                    yield from validator.descend(item, inner, path=name, schema_path=pattern)


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
"""Draft 2020-12 with decimal multiples and ECMAScript's regular expressions, for arguments."""

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
"""How to write each checked `format`, for messages to the model."""

_PARSERS: Mapping[str, tuple[re.Pattern[str], Callable[[str], object]]] = {
    "date": (_DAY, date.fromisoformat),
    "date-time": (_MOMENT, lambda text: datetime.fromisoformat(text.upper())),
    "time": (_TIME, lambda text: time.fromisoformat(text.upper())),
    "uuid": (_UUID, str),
    "ipv4": (re.compile(r"[0-9.]+"), IPv4Address),
    "ipv6": (re.compile(r"[0-9a-fA-F:.]+"), IPv6Address),
}


def _format_checker() -> FormatChecker:
    checker = FormatChecker(formats=())

    def add(name: str, pattern: re.Pattern[str], parse: Callable[[str], object]) -> None:
        def is_valid(value: object) -> bool:
            return not isinstance(value, str) or (
                pattern.fullmatch(value) is not None and parse(value) is not None
            )

        checker.checks(name, raises=ValueError)(is_valid)

    for name, (pattern, parse) in _PARSERS.items():
        add(name, pattern, parse)
    return checker


FORMATS = _format_checker()
"""Checks the formats in `FORMS`; any other `format` is only a note for the model: use a pattern or
the tool's `check`. ISO 8601 times may omit seconds and offset, since models write local time."""
