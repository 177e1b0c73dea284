"""Validate a call's raw arguments against the tool's JSON Schema (Draft 2020-12).

jsonschema validates the declared keys, then the tool's own `check` runs. Any subschema may declare
a key (`$ref`, `allOf`, branches, `then`, …), or `additionalProperties` allows it. Other top-level
keys are dropped and logged, not refused. Names compare in Unicode NFC; if both spellings of a name
are passed, the schema's spelling counts and the other is dropped. Patterns are ECMAScript; one that
Python cannot compile is not checked. References stay within the schema; nothing is fetched.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from lhkit.json_values import JSON, NotJsonError, read_only_json, shown
from lhkit.schema import (
    KnownKeys,
    SchemaNode,
    in_place,
    item_schemas,
    property_schema,
    property_schemas,
    resolve,
    spelling,
)
from lhkit.tools.describe import describe, expected_value
from lhkit.tools.json_schema import (
    EMPTY_REGISTRY,
    FORMATS,
    SchemaValidator,
    ValidationError,
    best_match,
)

SHOWN_CHARS = 60
"""How many characters of an invalid value the model reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """Valid arguments, read-only.

    Attributes:
        args: the arguments by name.
        extra: the undeclared keys that were dropped.
        prepared: the call with converted arguments, if the tool's check returned one.
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
    """A required field is missing."""

    field: str
    expected: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Invalid:
    """The value of a field is invalid."""

    field: str
    expected: str
    actual: str


ArgumentsVerdict: TypeAlias = Accepted | NotAnObject | Missing | Invalid


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCall:
    """A call of `handler` with converted arguments; `run` takes the dependencies."""

    handler: Any
    run: Callable[[Any], Awaitable[Any]]


Check: TypeAlias = Callable[[Mapping[str, JSON]], Invalid | PreparedCall | None]
"""Validates arguments beyond their schema; returns None or a `PreparedCall` if they are valid. Pure
and quick. See `invalid`."""


class ArgumentValidator:
    """Validates arguments for one schema, compiled once and safe to share.

    Args:
        schema: JSON Schema of an object.
        check: the tool's own check, called with arguments that the schema accepts.
    """

    def __init__(self, schema: Mapping[str, Any], check: Check | None = None) -> None:
        self._schema = schema
        self._validator = SchemaValidator(schema, registry=EMPTY_REGISTRY, format_checker=FORMATS)
        self._declared = KnownKeys.of(schema)
        self._check = check

    def check(self, raw_args: Any) -> ArgumentsVerdict:
        """Return the verdict on `raw_args`, which may be any value."""
        try:
            args = read_only_json(raw_args)
        except NotJsonError as error:
            return NotAnObject(actual=str(error))
        if not isinstance(args, dict):
            return NotAnObject(actual=shown(args, SHOWN_CHARS))
        if _has_non_ascii_key(args):
            args = _respell(args, [self._schema], self._schema)
        declared = {key: value for key, value in args.items() if self._declared.has(key)}
        fault = best_match(self._validator.iter_errors(declared))
        if fault is not None:
            return _explain(fault, self._schema)
        if _has_integral_float(declared):
            declared = _IntegerConverter(self._schema, self._validator).convert(
                declared, [self._schema]
            )
        accepted = read_only_json(declared)  # copies only what was converted
        checked = None if self._check is None else self._check(accepted)
        if isinstance(checked, Invalid):
            return checked
        extra = tuple(key for key in args if key not in accepted)
        return Accepted(args=accepted, extra=extra, prepared=checked)


def _has_non_ascii_key(value: Any) -> bool:
    if isinstance(value, dict):
        return any(not key.isascii() or _has_non_ascii_key(item) for key, item in value.items())
    return isinstance(value, list) and any(map(_has_non_ascii_key, value))


def _respell(value: Any, schemas: Sequence[Any], root: Any) -> Any:
    """Return `value` with its names spelled as in the schema, where they are equal in NFC.

    A name is left alone if the schema's spelling is present as well.
    """
    parts = [part for schema in schemas for part in in_place(schema, root)]
    if isinstance(value, list):
        return [
            _respell(item, [inner for part in parts for inner in item_schemas(part, i)], root)
            for i, item in enumerate(value)
        ]
    if not isinstance(value, dict):
        return value
    declared = {name for part in parts for name in part.get("properties", {})}
    respelled: dict[str, Any] = {}
    for key, item in value.items():
        name = spelling(key, declared)
        name = key if name in value or name in respelled else name
        inner = [schema for part in parts for schema in property_schemas(part, name)]
        respelled[name] = _respell(item, inner, root)
    return respelled


def _has_integral_float(value: Any) -> bool:
    if isinstance(value, float):
        return value.is_integer()
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(map(_has_integral_float, inner))


def value_fault(schema: Mapping[str, Any], argument: str, value: Any) -> str | None:
    """Return why the value of one argument is invalid; None if any branch of the schema takes it.

    Whether the arguments are valid together is not checked.
    """
    validator = SchemaValidator(schema, registry=EMPTY_REGISTRY, format_checker=FORMATS)
    messages: list[str] = []
    for branch in SchemaNode.of(schema).branches():
        argument_validator = validator.evolve(schema=property_schema(branch, argument))
        error = next(argument_validator.iter_errors(value), None)
        if error is None:
            return None
        messages.append(error.message)
    return messages[0]


@dataclass(frozen=True, slots=True)
class _IntegerConverter:
    """Converts floats such as `3.0` in valid arguments to integers, where the schema wants one."""

    root: Any
    validator: Any

    def convert(self, value: Any, schemas: Sequence[Any]) -> Any:
        """Return `value`, which is valid for all of `schemas`, with its integers converted."""
        if isinstance(value, float) and value.is_integer():
            is_integer = any(self._wants_integer(schema, value) for schema in schemas)
            return int(value) if is_integer else value
        if not isinstance(value, dict | list):
            return value
        parts = [part for schema in schemas for part in self._applying(schema, value)]
        if isinstance(value, list):
            return [
                self.convert(item, [inner for part in parts for inner in item_schemas(part, i)])
                for i, item in enumerate(value)
            ]
        return {
            key: self.convert(
                item, [inner for part in parts for inner in property_schemas(part, key)]
            )
            for key, item in value.items()
        }

    def _wants_integer(self, schema: Any, value: float) -> bool:
        if not isinstance(schema, Mapping):
            return False
        types = schema.get("type", ())
        types = {types} if isinstance(types, str) else set(types)
        if "integer" in types and "number" not in types:
            return True
        if any(self._wants_integer(inner, value) for inner in self._always_applied(schema, value)):
            return True
        groups = [self._valid_choices(schema, key, value) for key in ("anyOf", "oneOf")]
        return any(
            bool(group) and all(self._wants_integer(choice, value) for choice in group)
            for group in groups
        )

    def _applying(self, schema: Any, value: Any) -> Iterator[Mapping[str, Any]]:
        """Yield the schema and every subschema that applies to `value`."""
        if not isinstance(schema, Mapping):
            return
        yield schema
        for inner in self._always_applied(schema, value):
            yield from self._applying(inner, value)
        for key in ("anyOf", "oneOf"):
            for choice in self._valid_choices(schema, key, value):
                yield from self._applying(choice, value)

    def _always_applied(self, schema: Mapping[str, Any], value: Any) -> Iterator[Any]:
        """Yield the direct subschemas that apply to `value`, without `anyOf` and `oneOf`."""
        if "$ref" in schema:
            yield resolve(schema["$ref"], self.root)
        yield from schema.get("allOf", ())
        if "if" in schema:
            if self._is_valid(schema["if"], value):
                yield from (schema["if"], schema.get("then"))
            else:
                yield schema.get("else")
        for name, inner in schema.get("dependentSchemas", {}).items():
            if isinstance(value, dict) and name in value:
                yield inner

    def _valid_choices(self, schema: Mapping[str, Any], key: str, value: Any) -> list[Any]:
        return [choice for choice in schema.get(key, ()) if self._is_valid(choice, value)]

    def _is_valid(self, schema: Any, value: Any) -> bool:
        return bool(self.validator.evolve(schema=schema).is_valid(value))


def _explain(error: ValidationError, root: Any) -> Missing | Invalid:
    path = ".".join(str(part) for part in error.absolute_path)
    schema: Any = error.schema
    if error.validator == "required":
        required: Any = error.validator_value
        instance: Any = error.instance
        field = next(name for name in required if name not in instance)
        parts = (schema,) if path else (schema, *in_place(root, root))
        declared: Any = next(
            (part["properties"][field] for part in parts if field in part.get("properties", {})), {}
        )
        name = f"{path}.{field}" if path else field
        return Missing(field=name, expected=describe(declared, root))
    return Invalid(
        field=path or "(all)",
        expected=expected_value(error, root),
        actual=shown(error.instance, SHOWN_CHARS),
    )


def invalid(field: str, expected: str, value: Any) -> Invalid:
    """Return the verdict that the `value` of `field` is invalid, for a tool's own `check`.

    Args:
        field: the argument, dotted for an inner field, or `(all)`.
        expected: what would be valid, such as `a time after start`.
        value: the value that was passed.
    """
    return Invalid(field=field, expected=expected, actual=shown(value, SHOWN_CHARS))
