"""Raw arguments to validated ones, by a tool's JSON Schema (Draft 2020-12, jsonschema).

The verdict is jsonschema's own, on the declared keys, and then the tool's own check, if it has one.
A key is declared that any part of the schema names (`$ref`, `allOf`, branches, `then`, …), or that
`additionalProperties` lets in; other top-level keys are dropped, not refused (seed: redundant
arguments are tolerated and logged). Names compare in Unicode NFC; if both spellings of one name
come, the one that the schema has counts and the other one is dropped.

`format` is asserted for what the standard library can check: `date` (YYYY-MM-DD), `date-time` and
`time` (ISO 8601; seconds and offset may be left out, since models write local time), `uuid`,
`ipv4`, `ipv6`. Other formats (`email`, `uri`, `duration`, …) tell the model something and are
checked by nobody: use a pattern, the tool's `check`, or check in the handler.

References stay inside the schema; nothing is ever fetched.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from ipaddress import IPv4Address, IPv6Address
from typing import Any, TypeAlias

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import ValidationError, best_match
from referencing.jsonschema import EMPTY_REGISTRY

from lhkit.tools.schema import (
    Declared,
    SchemaNode,
    in_place,
    items_of,
    property_of,
    resolved,
    spelling,
    values_of,
)
from lhkit.vocab.json_values import JSON, NotJsonError, compact, plain_json

_SHOWN_CHARS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """Arguments that fit; `extra` names the keys that were dropped."""

    args: Mapping[str, JSON]
    extra: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NotAnObject:
    """The arguments are not a JSON object."""

    actual: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A required field is not there."""

    field: str
    expected: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Invalid:
    """A field holds the wrong thing."""

    field: str
    expected: str
    actual: str


Verdict: TypeAlias = Accepted | NotAnObject | Missing | Invalid


Check: TypeAlias = Callable[[Mapping[str, JSON]], Invalid | None]
"""What a tool asks of its arguments beyond its schema; None if they are fine. Pure and quick."""


class ArgumentValidator:
    """Validates arguments for one schema, compiled once and safe to share.

    Args:
        schema: JSON Schema of an object.
        check: is asked about arguments that the schema accepts.
    """

    def __init__(self, schema: Mapping[str, Any], check: Check | None = None) -> None:
        self._schema = schema
        self._validator = Draft202012Validator(
            schema, registry=EMPTY_REGISTRY, format_checker=_FORMATS
        )
        self._declared = Declared.of(schema)
        self._check = check

    def check(self, raw_args: Any) -> Verdict:
        """Return what the schema says of `raw_args`, which may be anything."""
        try:
            args = plain_json(raw_args)
        except NotJsonError as error:
            return NotAnObject(actual=str(error))
        if not isinstance(args, dict):
            return NotAnObject(actual=shown(args))
        if _has_foreign_name(args):
            args = _respelled(args, [self._schema], self._schema)
        declared = {key: value for key, value in args.items() if self._declared.has(key)}
        fault = best_match(self._validator.iter_errors(declared))
        if fault is not None:
            return _explained(fault, self._schema)
        if _has_integral_float(declared):
            declared = _Wholes(self._schema, self._validator).of(declared, [self._schema])
        refused = None if self._check is None else self._check(declared)
        if refused is not None:
            return refused
        return Accepted(args=declared, extra=tuple(key for key in args if key not in declared))


def _has_foreign_name(value: Any) -> bool:
    if isinstance(value, dict):
        return any(not key.isascii() or _has_foreign_name(item) for key, item in value.items())
    return isinstance(value, list) and any(map(_has_foreign_name, value))


def _respelled(value: Any, places: Sequence[Any], root: Any) -> Any:
    """Return `value` with its names spelled as the schema spells them, where they are one in NFC.

    A name whose right spelling is there as well stays as it is.
    """
    parts = [part for place in places for part in in_place(place, root)]
    if isinstance(value, list):
        return [
            _respelled(item, [each for part in parts for each in items_of(part, i)], root)
            for i, item in enumerate(value)
        ]
    if not isinstance(value, dict):
        return value
    declared = {name for part in parts for name in part.get("properties", {})}
    made: dict[str, Any] = {}
    for key, item in value.items():
        name = spelling(key, declared)
        name = key if name in value or name in made else name
        inner = [each for part in parts for each in values_of(part, name)]
        made[name] = _respelled(item, inner, root)
    return made


def _has_integral_float(value: Any) -> bool:
    if isinstance(value, float):
        return value.is_integer()
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(map(_has_integral_float, inner))


def value_fault(schema: Mapping[str, Any], argument: str, value: Any) -> str | None:
    """Return what a tool's schema has against the value of one argument; None if nothing.

    Whether the arguments fit together is another question: a value is fine that any branch takes.
    """
    validator = Draft202012Validator(schema, registry=EMPTY_REGISTRY, format_checker=_FORMATS)
    told: list[str] = []
    for branch in SchemaNode.of(schema).branches():
        place = property_of(branch, argument)
        fault = next(validator.evolve(schema=place).iter_errors(value), None)
        if fault is None:
            return None
        told.append(fault.message)
    return told[0]


@dataclass(frozen=True, slots=True)
class _Wholes:
    """Makes integers of integral floats, in valid values, where the schema wants integers."""

    root: Any
    validator: Any

    def of(self, value: Any, places: Sequence[Any]) -> Any:
        """Return `value`, to which all of `places` apply."""
        if isinstance(value, float) and value.is_integer():
            is_whole = any(self._wants_integer(place, value) for place in places)
            return int(value) if is_whole else value
        if not isinstance(value, dict | list):
            return value
        parts = [part for place in places for part in self._applying(place, value)]
        if isinstance(value, list):
            return [
                self.of(item, [each for part in parts for each in items_of(part, i)])
                for i, item in enumerate(value)
            ]
        return {
            key: self.of(item, [each for part in parts for each in values_of(part, key)])
            for key, item in value.items()
        }

    def _wants_integer(self, place: Any, value: float) -> bool:
        if not isinstance(place, Mapping):
            return False
        kinds = place.get("type", ())
        kinds = {kinds} if isinstance(kinds, str) else set(kinds)
        if "integer" in kinds and "number" not in kinds:
            return True
        choices = [self._chosen(place, key, value) for key in ("anyOf", "oneOf")]
        return any(self._wants_integer(each, value) for each in self._always(place, value)) or any(
            bool(chosen) and all(self._wants_integer(each, value) for each in chosen)
            for chosen in choices
        )

    def _applying(self, place: Any, value: Any) -> Iterator[Mapping[str, Any]]:
        if not isinstance(place, Mapping):
            return
        yield place
        for each in self._always(place, value):
            yield from self._applying(each, value)
        for key in ("anyOf", "oneOf"):
            for each in self._chosen(place, key, value):
                yield from self._applying(each, value)

    def _always(self, place: Mapping[str, Any], value: Any) -> Iterator[Any]:
        """Yield what applies to `value` beside `place`, apart from choices."""
        if "$ref" in place:
            yield resolved(place["$ref"], self.root)
        yield from place.get("allOf", ())
        if "if" in place:
            is_so = self._is_valid(place["if"], value)
            yield from ((place["if"], place.get("then")) if is_so else (place.get("else"),))
        for name, each in place.get("dependentSchemas", {}).items():
            if isinstance(value, dict) and name in value:
                yield each

    def _chosen(self, place: Mapping[str, Any], key: str, value: Any) -> list[Any]:
        return [each for each in place.get(key, ()) if self._is_valid(each, value)]

    def _is_valid(self, schema: Any, value: Any) -> bool:
        return bool(self.validator.evolve(schema=schema).is_valid(value))


def _explained(error: ValidationError, root: Any) -> Missing | Invalid:
    path = ".".join(str(part) for part in error.absolute_path)
    schema: Any = error.schema
    if error.validator == "required":
        required: Any = error.validator_value
        instance: Any = error.instance
        field = next(name for name in required if name not in instance)
        places = (schema,) if path else (schema, *in_place(root, root))
        found = [each for place in places for each in _named(place, field)]
        expected = describe(found[0] if found else {}, root)
        return Missing(field=f"{path}.{field}" if path else field, expected=expected)
    return Invalid(
        field=path or "(all)", expected=describe(schema, root), actual=shown(error.instance)
    )


def _named(place: Mapping[str, Any], field: str) -> tuple[Any, ...]:
    properties = place.get("properties", {})
    return (properties[field],) if field in properties else ()


def invalid(field: str, expected: str, value: Any) -> Invalid:
    """Return that `field` holds the wrong `value`, for a tool's own check."""
    return Invalid(field=field, expected=expected, actual=shown(value))


def describe(schema: Any, root: Any = None) -> str:
    """Return in a few words what a schema accepts, such as `integer 1..10`.

    Args:
        schema: the schema.
        root: what its references point into.
    """
    if not isinstance(schema, Mapping):
        return "nothing" if schema is False else "any value"
    if root is not None and ("$ref" in schema or "allOf" in schema):
        schema = SchemaNode(schema, root).branches()[0]
    if "const" in schema:
        return _json(schema["const"])
    if "enum" in schema:
        return "one of " + ", ".join(_json(choice) for choice in schema["enum"])
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            return " or ".join(describe(branch, root) for branch in schema[keyword])
    kind = schema.get("type", "any value")
    words = [kind if isinstance(kind, str) else " or ".join(kind)]
    words += _bounds(schema)
    return " ".join(words)


def _bounds(schema: Mapping[str, Any]) -> list[str]:
    words = []
    if "minLength" in schema or "maxLength" in schema:
        words.append(f"of {_range(schema, 'minLength', 'maxLength')} characters")
    if "minimum" in schema or "maximum" in schema:
        words.append(_range(schema, "minimum", "maximum"))
    if "minItems" in schema or "maxItems" in schema:
        words.append(f"of {_range(schema, 'minItems', 'maxItems')} items")
    if "pattern" in schema:
        words.append(f"matching {schema['pattern']}")
    if schema.get("format") in _FORMS:
        words.append(f"that is a {schema['format']} ({_FORMS[schema['format']]})")
    return words


def _range(schema: Mapping[str, Any], low: str, high: str) -> str:
    return f"{schema.get(low, '')}..{schema.get(high, '')}"


def shown(value: Any) -> str:
    """Return `value` as short JSON."""
    text = _json(value)
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…"


def _json(value: Any) -> str:
    try:
        return compact(value)
    except NotJsonError:
        return repr(value)


_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_HOUR = r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?([Zz]|[+-][0-9]{2}:[0-9]{2})?"
_TIME = re.compile(_HOUR)
_MOMENT = re.compile(rf"{_DAY.pattern}[Tt ]{_HOUR}")
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")

_FORMS = {
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


_FORMATS = _format_checker()
