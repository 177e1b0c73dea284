"""Validate a call's raw arguments against the tool's JSON Schema (Draft 2020-12).

jsonschema validates the declared keys, then the tool's own `check` runs. Any subschema may declare
a key (`$ref`, `allOf`, branches, `then`, …), or `additionalProperties` allows it. Other top-level
keys are dropped and logged, not refused. Names compare in Unicode NFC; if both spellings of a name
are passed, the schema's spelling counts and the other is dropped. Patterns are ECMAScript; one that
Python cannot compile is not checked. References stay within the schema; nothing is fetched.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

from lhkit.base.json_values import (
    JSON,
    NotJsonError,
    added_pointers,
    escaped_key,
    json_or_repr,
    read_only_json,
    shown,
)
from lhkit.base.locales import Catalog
from lhkit.base.schema import (
    KnownKeys,
    SchemaNode,
    fill_defaults,
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

_NOT_SHOWN: Any = field(default=None, compare=False, repr=False)

SHOWN_CHARS = 60
"""How many characters of an invalid value the model reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """Valid arguments, read-only.

    Attributes:
        args: the arguments by name.
        extra: the undeclared keys that were dropped; dotted within an argument, as `person.agee`.
        prepared: the call with converted arguments, if the tool's check returned one.
        filled_in: JSON Pointers (RFC 6901) of the values in `args` that the model left out; see
            `ArgumentValidator.complete`.
        given: those arguments as they were given that were converted or completed.
    """

    args: Mapping[str, JSON]
    extra: tuple[str, ...] = ()
    prepared: "PreparedCall | None" = None
    filled_in: tuple[str, ...] = ()
    given: Mapping[str, JSON] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotAnObject:
    """The arguments are not a JSON object."""

    actual: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A required field is missing."""

    field: str
    expected: str
    described: "Described | None" = _NOT_SHOWN

    def expected_in(self, catalog: Catalog) -> str:
        """Return `expected` in a language."""
        return _expected_in(self.expected, self.described, catalog)


@dataclass(frozen=True, slots=True, kw_only=True)
class Invalid:
    """The value of a field is invalid."""

    field: str
    expected: str
    actual: str
    described: "Described | None" = _NOT_SHOWN

    def expected_in(self, catalog: Catalog) -> str:
        """Return `expected` in a language."""
        return _expected_in(self.expected, self.described, catalog)


Described: TypeAlias = Callable[[Catalog], str]
"""Describes in a language what a schema accepts."""


def _expected_in(expected: str, described: Described | None, catalog: Catalog) -> str:
    return catalog.translate(expected) if described is None else described(catalog)


ArgumentsVerdict: TypeAlias = Accepted | NotAnObject | Missing | Invalid


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCall:
    """A call of `handler` with converted arguments.

    Attributes:
        handler: the tool's handler; another one gets the arguments as JSON.
        call: takes the values and the dependencies, and returns the result.
        values: the converted arguments by name, with defaults.
        complete: returns the arguments as JSON, with each default, and the call with just these
            values; or why they cannot be shown.
    """

    handler: Any
    call: Callable[[Mapping[str, Any], Any], Awaitable[Any]]
    values: Mapping[str, Any]
    complete: "Callable[[], Invalid | tuple[Mapping[str, JSON], PreparedCall]]"

    def run(self, deps: Any) -> Awaitable[Any]:
        """Return the result of the call."""
        return self.call(self.values, deps)

    def with_values(self, values: Mapping[str, Any]) -> "PreparedCall":
        """Return the call with other values for some arguments."""
        return replace(self, values={**self.values, **values})


running_call: ContextVar[Accepted | None] = ContextVar("running_call", default=None)
"""The call whose replaced handler runs: where that passes the arguments on, its values run."""

Check: TypeAlias = Callable[[Mapping[str, JSON]], Invalid | PreparedCall | None]
"""Validates arguments beyond their schema; returns None or a `PreparedCall` if they are valid. Pure
and quick. See `invalid`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unchanged:
    """The arguments that an edit left as they were; none if the call was not edited.

    Attributes:
        args: their values before the edit.
        omitted: those of `args` that the model left out; the schema does not see them again.
        filled_in: `Accepted.filled_in` of `args`.
        given: `Accepted.given` of `args`.
        prepared: the call before the edit.
    """

    args: Mapping[str, JSON] = field(default_factory=dict)
    omitted: Mapping[str, JSON] = field(default_factory=dict)
    filled_in: tuple[str, ...] = ()
    given: Mapping[str, JSON] = field(default_factory=dict)
    prepared: PreparedCall | None = None

    @classmethod
    def of(cls, raw_args: Any, earlier: Accepted | None) -> "_Unchanged":
        """Compare edited arguments with the verdict before the edit."""
        if earlier is None or not isinstance(raw_args, Mapping):
            return cls()
        args = {
            name: value
            for name, value in earlier.args.items()
            if name in raw_args and json_or_repr(raw_args[name]) == json_or_repr(value)
        }
        tops = {f"/{escaped_key(name)}" for name in args}
        filled_in = tuple(at for at in earlier.filled_in if f"/{at.split('/')[1]}" in tops)
        return cls(
            args=args,
            omitted={n: value for n, value in args.items() if f"/{escaped_key(n)}" in filled_in},
            filled_in=filled_in,
            given={name: earlier.given[name] for name in args if name in earlier.given},
            prepared=earlier.prepared,
        )


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
        extra = tuple(key for key in args if key not in declared)
        issue = best_match(self._validator.iter_errors(declared))
        if issue is not None:
            return _explain(issue, self._schema)
        if _has_integral_float(declared):
            declared = _IntegerConverter(self._schema, self._validator).convert(
                declared, [self._schema]
            )
        accepted = read_only_json(declared)  # copies only what was converted
        checked = None if self._check is None else self._check(accepted)
        if isinstance(checked, Invalid):
            return checked
        return Accepted(args=accepted, extra=extra, prepared=checked)

    def complete(
        self, raw_args: Any, implied: Mapping[str, JSON], earlier: Accepted | None = None
    ) -> ArgumentsVerdict:
        """Return the verdict on `raw_args`, with everything that the model left out.

        These are the `implied` values, the defaults of a function's parameters (those of inner
        models and of the clock included), and without a function the defaults of the schema. What
        the verdict contains is what runs: converted, and without keys that an inner model ignores.

        Args:
            raw_args: any value.
            implied: the values of arguments that are left out.
            earlier: a verdict on the same call, before the user edited it. What is still the same
                stays that very value.
        """
        unchanged = _Unchanged.of(raw_args, earlier)
        if unchanged.omitted:
            raw_args = {n: value for n, value in raw_args.items() if n not in unchanged.omitted}
        first = self.check(raw_args)
        if not isinstance(first, Accepted):
            return first
        given = first.args
        known = {**given, **unchanged.omitted}
        more = {name: value for name, value in implied.items() if name not in known}
        verdict = self.check({**given, **more}) if more else first
        if not isinstance(verdict, Accepted):
            return verdict
        completed = self._completed(verdict, unchanged)
        if isinstance(completed, Invalid):
            return completed
        args, prepared = completed
        dropped = (pointer[1:].replace("/", ".") for pointer in added_pointers(args, given))
        filled_in = dict.fromkeys([*added_pointers(given, args), *unchanged.filled_in])
        converted = {name: value for name, value in given.items() if args.get(name) != value}
        return Accepted(
            args=args,
            extra=(*first.extra, *dropped),
            prepared=prepared,
            filled_in=tuple(filled_in),
            given={**converted, **unchanged.given},
        )

    def _completed(
        self, verdict: Accepted, unchanged: _Unchanged
    ) -> Invalid | tuple[Mapping[str, JSON], PreparedCall | None]:
        """Return the arguments with every default, and the call with just these values."""
        if verdict.prepared is None:
            defaults = self._with_schema_defaults(verdict.args)
            args = read_only_json({**defaults, **unchanged.omitted})
            checked = None if self._check is None else self._check(args)
            return checked if isinstance(checked, Invalid) else (args, None)
        completed = verdict.prepared.complete()
        if isinstance(completed, Invalid):
            return completed
        args, prepared = completed
        if unchanged.prepared is not None:
            values = unchanged.prepared.values
            prepared = prepared.with_values({name: values[name] for name in unchanged.args})
        return read_only_json({**args, **unchanged.args}), prepared

    def _with_schema_defaults(self, args: Mapping[str, JSON]) -> dict[str, JSON]:
        """Return accepted arguments with the defaults of the schema that it accepts."""

        def fits(branch: Any, value: Any) -> bool:
            return bool(self._validator.evolve(schema=branch).is_valid(value))

        filled: dict[str, JSON] = fill_defaults(args, SchemaNode.of(self._schema), fits)
        if filled == args or self._validator.is_valid(filled):
            return filled
        valid = dict(args)
        for name, value in filled.items():
            candidate = {**valid, name: value}
            valid = candidate if self._validator.is_valid(candidate) else valid
        return valid


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


def value_issue(schema: Mapping[str, Any], argument: str, value: Any) -> str | None:
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
        described = partial(describe, declared, root)
        return Missing(field=name, expected=described(), described=described)
    described = partial(expected_value, error, root)
    return Invalid(
        field=path or "(all)",
        expected=described(),
        actual=shown(error.instance, SHOWN_CHARS),
        described=described,
    )


def invalid(
    field: str, expected: str, value: Any, *, translations: Mapping[str, str] | None = None
) -> Invalid:
    """Return the verdict that the `value` of `field` is invalid, for a tool's own `check`.

    Args:
        field: the argument, dotted for an inner field, or `(all)`.
        expected: what would be valid, such as `a time after start`.
        value: the value that was passed.
        translations: `expected` in other languages, such as `{"ko": "시작보다 늦은 시각"}`.
    """
    texts = translations or {}

    def described(catalog: Catalog) -> str:
        return texts.get(catalog.locale) or catalog.translate(expected)

    actual = shown(value, SHOWN_CHARS)
    return Invalid(field=field, expected=expected, actual=actual, described=described)
