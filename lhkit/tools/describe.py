"""Describe what a JSON Schema accepts, for messages to the model: `integer 1..10`."""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, TypeAlias

from lhkit.base.json_values import json_or_repr
from lhkit.base.schema import SchemaNode, in_place
from lhkit.tools.json_schema import FORMS, ValidationError


def describe(schema: Any, root: Any = None) -> str:
    """Return a short description of what a schema accepts, such as `integer 1..10`.

    Args:
        schema: the schema.
        root: the schema that its references are resolved in.
    """
    if not isinstance(schema, Mapping):
        return "left out" if schema is False else "any value"
    if root is not None and ("$ref" in schema or "allOf" in schema):
        schema = SchemaNode(schema, root).branches()[0]
    for keyword in ("const", "enum", "anyOf", "oneOf"):
        if keyword in schema:
            return _phrase(keyword, schema, root)
    # the type that the keywords of a schema without `type` apply to
    implied = (kind for kind, words in _KEYWORD_TYPES.items() if not words.isdisjoint(schema))
    types = schema.get("type", next(implied, "" if "not" in schema else "any value"))
    words = [types] if isinstance(types, str) else [" or ".join(types)]
    words += dict.fromkeys(
        _phrase(keyword, schema, root) for keyword in _DESCRIBED if keyword in schema
    )
    return " ".join(filter(None, words))


_DESCRIBED = (
    "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "multipleOf", "minItems", "maxItems", "uniqueItems", "contains", "minProperties",
    "maxProperties", "required", "dependentRequired", "pattern", "format", "not",
)  # fmt: skip
"""The keywords in every description; others appear only where they are violated."""

_KEYWORD_TYPES: Mapping[str, AbstractSet[str]] = {
    "string": {"minLength", "maxLength", "pattern", "format"},
    "number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
    "array": {"minItems", "maxItems", "uniqueItems", "contains", "items", "prefixItems"},
    "object": {
        "additionalProperties", "dependentRequired", "maxProperties", "minProperties",
        "properties", "propertyNames", "required",
    },
}  # fmt: skip


def _phrase(keyword: str, schema: Mapping[str, Any], root: Any) -> str:
    """Return the description of one keyword; empty if there is none."""
    describe_keyword = _PHRASES.get(keyword)
    return "" if describe_keyword is None else describe_keyword(schema, root)


def _alternatives(branches: Iterable[Any], root: Any) -> str:
    return " or ".join(describe(branch, root) for branch in branches)


def _contained(schema: Mapping[str, Any], root: Any) -> str:
    number = f"{schema.get('minContains', 1)}..{schema.get('maxContains', '')}"
    return f"with {number} items that are {describe(schema.get('contains'), root)}"


def _dependent(schema: Mapping[str, Any], _root: Any) -> str:
    pairs = schema["dependentRequired"].items()
    return ", ".join(f"with {_listed(needs)} if with {name!r}" for name, needs in pairs)


def _format(schema: Mapping[str, Any], _root: Any) -> str:
    name = schema["format"]
    return f"that is a {name} ({FORMS[name]})" if name in FORMS else ""


def _known_keys(schema: Mapping[str, Any], root: Any) -> str:
    parts = list(in_place(schema, root))
    names = dict.fromkeys(name for part in parts for name in part.get("properties", ()))
    patterns = [pattern for part in parts for pattern in part.get("patternProperties", ())]
    known = [_listed(names)] if names else []
    known += [f"keys matching {pattern}" for pattern in patterns]
    return f"with no other keys than {' and '.join(known)}" if known else "without keys"


def _listed(names: Iterable[Any]) -> str:
    return ", ".join(map(repr, names))


def _range(schema: Mapping[str, Any], low: str, high: str) -> str:
    return f"{schema.get(low, '')}..{schema.get(high, '')}"


_Phrase: TypeAlias = Callable[[Mapping[str, Any], Any], str]


def _lengths(low: str, high: str, unit: str) -> dict[str, _Phrase]:
    def phrase(schema: Mapping[str, Any], _root: Any) -> str:
        return f"of {_range(schema, low, high)} {unit}"

    return {low: phrase, high: phrase}


def _number_range(schema: Mapping[str, Any], _root: Any) -> str:
    return _range(schema, "minimum", "maximum")


def _number_of_items(schema: Mapping[str, Any], _root: Any) -> str:
    return f"of at most {len(schema.get('prefixItems', ()))} items"


_PHRASES: Mapping[str, _Phrase] = {
    "const": lambda schema, _root: json_or_repr(schema["const"]),
    "enum": lambda schema, _root: "one of " + ", ".join(map(json_or_repr, schema["enum"])),
    "anyOf": lambda schema, root: _alternatives(schema["anyOf"], root),
    "oneOf": lambda schema, root: _alternatives(schema["oneOf"], root),
    **_lengths("minLength", "maxLength", "characters"),
    **_lengths("minItems", "maxItems", "items"),
    **_lengths("minProperties", "maxProperties", "keys"),
    "minimum": _number_range,
    "maximum": _number_range,
    "exclusiveMinimum": lambda schema, _root: f"above {schema['exclusiveMinimum']}",
    "exclusiveMaximum": lambda schema, _root: f"below {schema['exclusiveMaximum']}",
    "multipleOf": lambda schema, _root: f"that is a multiple of {schema['multipleOf']}",
    "uniqueItems": lambda schema, _root: "with no item twice" if schema["uniqueItems"] else "",
    "contains": _contained,
    "minContains": _contained,
    "maxContains": _contained,
    "items": _number_of_items,
    "unevaluatedItems": _number_of_items,
    "required": lambda schema, _root: (
        f"with {_listed(schema['required'])}" if schema["required"] else ""
    ),
    "dependentRequired": _dependent,
    "additionalProperties": _known_keys,
    "unevaluatedProperties": _known_keys,
    "pattern": lambda schema, _root: f"matching {schema['pattern']}",
    "format": _format,
    "not": lambda schema, root: f"that is not {describe(schema['not'], root)}",
}


def expected_value(error: ValidationError, root: Any) -> str:
    """Return a description of what the violated schema accepts, with the violated keyword.

    Args:
        error: the error of jsonschema.
        root: the schema that references are resolved in.
    """
    schema: Any = error.schema
    expected = describe(schema, root)
    if not isinstance(schema, Mapping):
        return expected
    keyword = str(error.validator)
    if keyword == "oneOf" and not error.context:
        return f"exactly one of {expected}"
    phrase = _phrase(keyword, schema, root)
    if phrase not in expected:
        expected = f"{expected} {phrase}"
    return f"named as {expected}" if "propertyNames" in error.relative_schema_path else expected
