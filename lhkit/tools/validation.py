"""Arguments are validated, and schemas that cannot be are refused at registration."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from ipaddress import IPv4Address, IPv6Address
from itertools import chain
from typing import Any, TypeAlias

from lhkit.json_values import JSON, NotJsonError, json_or_repr, plain_json, shown
from lhkit.tools.json_schema import (
    EMPTY_REGISTRY,
    Draft202012Validator,
    FormatChecker,
    SchemaValidator,
    ValidationError,
    best_match,
)
from lhkit.tools.schema import (
    KnownKeys,
    SchemaNode,
    applied,
    conjuncts,
    in_place,
    items_of,
    nfc,
    property_of,
    resolved,
    spelling,
    subschemas,
    values_of,
)

# Raw arguments to validated ones, by a tool's JSON Schema (Draft 2020-12, jsonschema).
#
# The verdict is jsonschema's own, on the declared keys, and then the tool's own check, if it has
# one. A key is declared that any part of the schema names (`$ref`, `allOf`, branches, `then`, …),
# or that `additionalProperties` lets in; other top-level keys are dropped, not refused (seed:
# redundant arguments are tolerated and logged). Names compare in Unicode NFC; if both spellings of
# one name come, the one that the schema has counts and the other one is dropped.
#
# `format` is asserted for what the standard library can check: `date` (YYYY-MM-DD), `date-time`
# and `time` (ISO 8601; seconds and offset may be left out, since models write local time), `uuid`,
# `ipv4`, `ipv6`. Other formats (`email`, `uri`, `duration`, …) tell the model something and are
# checked by nobody: use a pattern, the tool's `check`, or check in the handler.
#
# References stay inside the schema; nothing is ever fetched.


SHOWN_CHARS = 60
"""So much of a wrong value is shown to the model."""


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


ArgumentsVerdict: TypeAlias = Accepted | NotAnObject | Missing | Invalid


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
        self._validator = SchemaValidator(schema, registry=EMPTY_REGISTRY, format_checker=_FORMATS)
        self._declared = KnownKeys.of(schema)
        self._check = check

    def check(self, raw_args: Any) -> ArgumentsVerdict:
        """Return what the schema says of `raw_args`, which may be anything."""
        try:
            args = plain_json(raw_args)
        except NotJsonError as error:
            return NotAnObject(actual=str(error))
        if not isinstance(args, dict):
            return NotAnObject(actual=shown(args, SHOWN_CHARS))
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
    validator = SchemaValidator(schema, registry=EMPTY_REGISTRY, format_checker=_FORMATS)
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
        field=path or "(all)",
        expected=describe(schema, root),
        actual=shown(error.instance, SHOWN_CHARS),
    )


def _named(place: Mapping[str, Any], field: str) -> tuple[Any, ...]:
    properties = place.get("properties", {})
    return (properties[field],) if field in properties else ()


def invalid(field: str, expected: str, value: Any) -> Invalid:
    """Return that `field` holds the wrong `value`, for a tool's own check."""
    return Invalid(field=field, expected=expected, actual=shown(value, SHOWN_CHARS))


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
        return json_or_repr(schema["const"])
    if "enum" in schema:
        return "one of " + ", ".join(json_or_repr(choice) for choice in schema["enum"])
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


# Which schemas cannot be a tool's: what is refused when it is registered, and why. Pure.
#
# Asked of schemas that are valid JSON Schema; a fault here is one that every call, or every call
# that uses an argument, would run into.


_NAMING = ("properties", "patternProperties")


def schema_fault(schema: Mapping[str, Any]) -> str | None:
    """Return why a valid schema cannot be used for a tool's arguments, in words; None if it can.

    That is: a reference that leaves the schema or leads nowhere, a schema that is applied to itself
    without end, an argument that no call can give.
    """
    faults = chain(_broken_references(schema), _loops(schema))
    first = next(faults, None)
    return first or next(_unusable_names(schema), None) or _nothing_fits(schema)


def _everywhere(schema: Any) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """Yield every schema in a schema, and whether it stands inside of an `$id` of its own."""
    seen: set[int] = set()
    waiting: list[tuple[Any, bool]] = [(schema, False)]
    while waiting:
        place, is_foreign = waiting.pop()
        if not isinstance(place, Mapping) or id(place) in seen:
            continue
        seen.add(id(place))
        is_foreign = is_foreign or ("$id" in place and place is not schema)
        yield place, is_foreign
        waiting += [(each, is_foreign) for each in subschemas(place)]
        waiting.append((resolved(place.get("$ref"), schema), is_foreign))


def _broken_references(schema: Mapping[str, Any]) -> Iterator[str]:
    advice = "copy what is meant into $defs and write #/$defs/NAME"
    for place, is_foreign in _everywhere(schema):
        for key in ("$dynamicRef", "$recursiveRef"):
            if key in place:
                yield f"{key} {place[key]!r} is not supported: {advice}"
        if "$ref" not in place:
            continue
        reference = place["$ref"]
        if is_foreign:
            yield f"$ref {reference!r} stands inside of an $id of its own: {advice}"
        elif reference != "#" and not reference.startswith("#/"):
            yield f"$ref {reference!r} leaves the schema, and nothing is fetched: {advice}"
        elif not _is_schema(resolved(reference, schema)):
            yield f"$ref {reference!r} leads to no schema: {advice}"


def _is_schema(found: Any) -> bool:
    return isinstance(found, Mapping | bool) and not any(
        True for _ in Draft202012Validator(Draft202012Validator.META_SCHEMA).iter_errors(found)
    )


def _loops(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the references by which a schema is applied to the very value it is applied to."""
    done: set[int] = set()

    def looks(place: Any, way: frozenset[int]) -> Iterator[str]:
        if not isinstance(place, Mapping) or id(place) in done:
            return
        for each in (*applied(place, schema), place.get("not")):
            if id(each) in way | {id(place)}:
                named = place.get("$ref", "#")
                yield f"$ref {named!r} is applied to itself without end: leave it out"
            else:
                yield from looks(each, way | {id(place)})
        done.add(id(place))

    for place, _ in _everywhere(schema):
        yield from looks(place, frozenset())


def _unusable_names(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield why an argument that is declared or required can never be given."""
    declared = KnownKeys.of(schema)
    for part in in_place(schema, schema):
        dependent = part.get("dependentRequired", {})
        for name in (*part.get("required", ()), *chain.from_iterable(dependent.values())):
            if not declared.has(name):
                yield f"{name!r} is required and declared nowhere: add it to properties"
    spellings = [nfc(name) for name in declared.names]
    for name in sorted(declared.names):
        if spellings.count(nfc(name)) > 1:
            yield f"{name!r} is declared in two spellings that look the same: leave one out"
    for part in conjuncts(schema, schema):
        yield from _refused_names(part, declared)


def _refused_names(part: Mapping[str, Any], declared: KnownKeys) -> Iterator[str]:
    for name, each in part.get("properties", {}).items():
        if each is False:
            yield f"{name!r} takes no value (false): leave it out of properties"
    if part.get("additionalProperties") is False:
        own = {key: each for key, each in part.items() if key in _NAMING}
        for name in sorted(declared.names):
            if not any(True for _ in values_of(own, name)):
                yield (
                    f"{name!r} is refused by an additionalProperties: false that stands beside "
                    "other properties: declare all arguments in one place"
                )


def _nothing_fits(schema: Mapping[str, Any]) -> str | None:
    reason = _Filling(schema, SchemaValidator(schema, registry=EMPTY_REGISTRY)).fault(schema)
    return None if reason is None else f"no arguments can fit the schema: {reason}"


_RANGES = (
    ("minLength", "maxLength", {"string"}),
    ("minimum", "maximum", {"integer", "number"}),
    ("minItems", "maxItems", {"array"}),
    ("minProperties", "maxProperties", {"object"}),
)
_KINDS = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})


@dataclass(frozen=True, slots=True)
class _Filling:
    """Finds what plainly no value fits: not a solver, only the slips that people make."""

    root: Any
    validator: Any

    def fault(self, place: Any, way: frozenset[int] = frozenset()) -> str | None:
        """Return why nothing fits a place; `way` are the schemas that it is required by."""
        if place is False:
            return "false takes no value"
        if not isinstance(place, Mapping):
            return None
        if id(place) in way:
            return "it requires itself without end"
        way |= {id(place)}
        parts = list(conjuncts(place, self.root))
        faults = chain(
            self._choice_faults(place, parts, way),
            _range_faults(parts),
            self._inner_faults(parts, way),
        )
        return next(faults, None)

    def _choice_faults(
        self, place: Any, parts: Sequence[Mapping[str, Any]], way: frozenset[int]
    ) -> Iterator[str]:
        for part in parts:
            listed = [*part.get("enum", ()), *([part["const"]] if "const" in part else ())]
            if ("enum" in part or "const" in part) and not any(
                self.validator.evolve(schema=place).is_valid(each) for each in listed
            ):
                yield f"none of the choices {shown(listed, SHOWN_CHARS)} is possible"
            for key in ("allOf", "anyOf", "oneOf"):
                told = [self.fault(each, way) for each in part.get(key, ()) if key != "allOf"]
                told += [self.fault(False) for each in part.get("allOf", ()) if each is False]
                if told and None not in told:
                    yield str(told[0])

    def _inner_faults(
        self, parts: Sequence[Mapping[str, Any]], way: frozenset[int]
    ) -> Iterator[str]:
        kinds = _kinds(parts)
        inner: list[tuple[str, Any]] = []
        if kinds == {"object"}:
            required = sorted({name for part in parts for name in part.get("required", ())})
            most = min((part.get("maxProperties", len(required)) for part in parts), default=0)
            if len(required) > most:
                yield f"{len(required)} are required and maxProperties is {most}"
            pairs = ((name, part) for name in required for part in parts)
            inner = [(repr(name), each) for name, part in pairs for each in values_of(part, name)]
        elif kinds == {"array"} and any(part.get("minItems", 0) > 0 for part in parts):
            inner = [("its items", each) for part in parts for each in items_of(part, 0)]
        for name, each in inner:
            reason = self.fault(each, way)
            if reason is not None:
                yield f"{name}: {reason}"


def _kinds(parts: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the types that all parts allow; an integer is a number."""
    kinds = set(_KINDS)
    for part in parts:
        given = part.get("type", list(_KINDS))
        allowed = {given} if isinstance(given, str) else set(given)
        kinds &= allowed | ({"integer"} if "number" in allowed else set())
    return kinds


def _range_faults(parts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    kinds = _kinds(parts)
    if not kinds:
        yield "its types exclude each other"
    for low, high, meant in _RANGES:
        least = [part[low] for part in parts if low in part]
        most = [part[high] for part in parts if high in part]
        if kinds and kinds <= meant and least and most and max(least) > min(most):
            yield f"{low} {max(least)} is above {high} {min(most)}"
