"""Validate a call's raw arguments by the tool's JSON Schema (Draft 2020-12).

The verdict is jsonschema's own, on the declared keys, and then the tool's own check, if it has
one. A key is declared that any part of the schema names (`$ref`, `allOf`, branches, `then`, …),
or that `additionalProperties` lets in; other top-level keys are dropped, not refused (seed:
redundant arguments are tolerated and logged). Names compare in Unicode NFC; if both spellings of
one name come, the one that the schema has counts and the other one is dropped. A pattern is read
as ECMAScript reads it; one that Python cannot run is not asserted.

References stay inside the schema; nothing is ever fetched.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from lhkit.json_values import JSON, NotJsonError, read_only_json, shown
from lhkit.tools.describe import describe, expected_by
from lhkit.tools.formats import FORMATS
from lhkit.tools.json_schema import EMPTY_REGISTRY, SchemaValidator, ValidationError, best_match
from lhkit.tools.schema import (
    KnownKeys,
    SchemaNode,
    in_place,
    items_of,
    property_of,
    resolved,
    spelling,
    values_of,
)

SHOWN_CHARS = 60
"""So much of a wrong value is shown to the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """Arguments that fit, read-only; `extra` names the keys that were dropped.

    `prepared` is the call as the tool's check has read it; None if it reads nothing.
    """

    args: Mapping[str, JSON]
    extra: tuple[str, ...] = ()
    prepared: "PreparedCall | None" = None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCall:
    """A call of `handler` whose arguments have been read: `run` takes only the dependencies."""

    handler: Any
    run: Callable[[Any], Awaitable[Any]]


Check: TypeAlias = Callable[[Mapping[str, JSON]], Invalid | PreparedCall | None]
"""What a tool asks of its arguments beyond its schema; None if they are fine. Pure and quick."""


class ArgumentValidator:
    """Validates arguments for one schema, compiled once and safe to share.

    Args:
        schema: JSON Schema of an object.
        check: is asked about arguments that the schema accepts.
    """

    def __init__(self, schema: Mapping[str, Any], check: Check | None = None) -> None:
        self._schema = schema
        self._validator = SchemaValidator(schema, registry=EMPTY_REGISTRY, format_checker=FORMATS)
        self._declared = KnownKeys.of(schema)
        self._check = check

    def check(self, raw_args: Any) -> ArgumentsVerdict:
        """Return what the schema says of `raw_args`, which may be anything."""
        try:
            args = read_only_json(raw_args)
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
        accepted = read_only_json(declared)  # what did not change is not copied again
        checked = None if self._check is None else self._check(accepted)
        if isinstance(checked, Invalid):
            return checked
        extra = tuple(key for key in args if key not in accepted)
        return Accepted(args=accepted, extra=extra, prepared=checked)


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
    validator = SchemaValidator(schema, registry=EMPTY_REGISTRY, format_checker=FORMATS)
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
        expected=expected_by(error, root),
        actual=shown(error.instance, SHOWN_CHARS),
    )


def _named(place: Mapping[str, Any], field: str) -> tuple[Any, ...]:
    properties = place.get("properties", {})
    return (properties[field],) if field in properties else ()


def invalid(field: str, expected: str, value: Any) -> Invalid:
    """Return that `field` holds the wrong `value`, for a tool's own check."""
    return Invalid(field=field, expected=expected, actual=shown(value, SHOWN_CHARS))
