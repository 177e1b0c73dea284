"""Raw arguments to validated ones, by a tool's JSON Schema (Draft 2020-12, jsonschema).

The verdict is jsonschema's own, on the declared keys. Undeclared top-level keys are dropped, not
refused (seed: redundant arguments are tolerated and logged). Formats are not asserted: use a
pattern, or check in the handler.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match

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


class ArgumentValidator:
    """Validates arguments for one schema, compiled once and safe to share."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._validator = Draft202012Validator(schema)
        self._patterns = [re.compile(pattern) for pattern in schema.get("patternProperties", {})]

    def check(self, raw_args: Any) -> Verdict:
        """Return what the schema says of `raw_args`, which may be anything."""
        try:
            args = plain_json(raw_args)
        except NotJsonError as error:
            return NotAnObject(actual=str(error))
        if not isinstance(args, dict):
            return NotAnObject(actual=_shown(args))
        declared = {key: value for key, value in args.items() if self._is_declared(key)}
        fault = best_match(self._validator.iter_errors(declared))
        if fault is not None:
            return _explained(fault)
        extra = tuple(key for key in args if key not in declared)
        return Accepted(args=_as_declared(declared, self._schema), extra=extra)

    def _is_declared(self, key: str) -> bool:
        if key in self._schema.get("properties", {}):
            return True
        if isinstance(self._schema.get("additionalProperties"), Mapping):
            return True
        return any(pattern.search(key) for pattern in self._patterns)


def _explained(error: ValidationError) -> Missing | Invalid:
    path = ".".join(str(part) for part in error.absolute_path)
    schema: Any = error.schema
    if error.validator == "required":
        required: Any = error.validator_value
        instance: Any = error.instance
        field = next(name for name in required if name not in instance)
        expected = describe(schema.get("properties", {}).get(field, {}))
        return Missing(field=f"{path}.{field}" if path else field, expected=expected)
    return Invalid(field=path or "(all)", expected=describe(schema), actual=_shown(error.instance))


def describe(schema: Any) -> str:
    """Return in a few words what a schema accepts, such as `integer 1..10`."""
    if not isinstance(schema, Mapping):
        return "nothing" if schema is False else "any value"
    if "const" in schema:
        return _json(schema["const"])
    if "enum" in schema:
        return "one of " + ", ".join(_json(choice) for choice in schema["enum"])
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            return " or ".join(describe(branch) for branch in schema[keyword])
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
    return words


def _range(schema: Mapping[str, Any], low: str, high: str) -> str:
    return f"{schema.get(low, '')}..{schema.get(high, '')}"


def _shown(value: Any) -> str:
    text = _json(value)
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…"


def _json(value: Any) -> str:
    try:
        return compact(value)
    except NotJsonError:
        return repr(value)


def _as_declared(value: Any, schema: Any) -> Any:
    """Return valid `value` with integral floats as integers where the schema wants integers."""
    if not isinstance(schema, Mapping):
        return value
    if isinstance(value, float) and value.is_integer() and _wants_integer(schema):
        return int(value)
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        return {key: _as_declared(item, properties.get(key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_declared(item, schema.get("items")) for item in value]
    return value


def _wants_integer(schema: Mapping[str, Any]) -> bool:
    types: set[str] = set()
    for branch in (schema, *schema.get("anyOf", ()), *schema.get("oneOf", ())):
        kind = branch.get("type", ()) if isinstance(branch, Mapping) else ()
        types |= {kind} if isinstance(kind, str) else set(kind)
    return "integer" in types and "number" not in types
