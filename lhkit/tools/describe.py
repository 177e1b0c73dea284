"""Describe what a JSON Schema accepts, for messages to the model: `integer 1..10`."""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, TypeAlias

from lhkit.base.json_values import json_or_repr
from lhkit.base.locales import Catalog, load_catalog
from lhkit.base.schema import SchemaNode, in_place
from lhkit.tools.json_schema import FORMS, ValidationError


def describe(schema: Any, root: Any = None, catalog: Catalog | None = None) -> str:
    """Return a short description of what a schema accepts, such as `integer 1..10`.

    Args:
        schema: the schema.
        root: the schema that its references are resolved in.
        catalog: the language; English by default.
    """
    return _Describer(root, catalog or load_catalog("en")).describe(schema)


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


def expected_value(error: ValidationError, root: Any, catalog: Catalog | None = None) -> str:
    """Return a description of what the violated schema accepts, with the violated keyword.

    Args:
        error: the error of jsonschema.
        root: the schema that references are resolved in.
        catalog: the language; English by default.
    """
    describer = _Describer(root, catalog or load_catalog("en"))
    schema: Any = error.schema
    expected = describer.describe(schema)
    if not isinstance(schema, Mapping):
        return expected
    keyword = str(error.validator)
    if keyword == "oneOf" and not error.context:
        return describer.text("exactly", words=expected)
    phrase = describer.phrase(keyword, schema)
    if phrase not in expected:
        expected = f"{expected} {phrase}"
    is_name = "propertyNames" in error.relative_schema_path
    return describer.text("named", words=expected) if is_name else expected


@dataclass(frozen=True, slots=True)
class _Describer:
    root: Any
    catalog: Catalog

    def text(self, key: str, **values: object) -> str:
        return self.catalog.text(f"expected.{key}", **values)

    def describe(self, schema: Any) -> str:
        if not isinstance(schema, Mapping):
            return self.text("left_out" if schema is False else "any")
        if self.root is not None and ("$ref" in schema or "allOf" in schema):
            schema = SchemaNode(schema, self.root).branches()[0]
        for keyword in ("const", "enum", "anyOf", "oneOf"):
            if keyword in schema:
                return self.phrase(keyword, schema)
        # the type that the keywords of a schema without `type` apply to
        implied = (kind for kind, words in _KEYWORD_TYPES.items() if not words.isdisjoint(schema))
        types = schema.get("type", next(implied, "" if "not" in schema else "any"))
        words = [self._either(self._type(kind) for kind in _listed_types(types))]
        words += dict.fromkeys(
            self.phrase(keyword, schema) for keyword in _DESCRIBED if keyword in schema
        )
        return " ".join(filter(None, words))

    def phrase(self, keyword: str, schema: Mapping[str, Any]) -> str:
        """Return the description of one keyword; empty if there is none."""
        describe_keyword = _PHRASES.get(keyword)
        return "" if describe_keyword is None else describe_keyword(self, schema)

    def _type(self, name: Any) -> str:
        return self.catalog.texts.get(f"expected.{name}", str(name))

    def _either(self, words: Iterable[str]) -> str:
        return self.text("or").join(words)

    def alternatives(self, branches: Iterable[Any]) -> str:
        return self._either(map(self.describe, branches))

    def contained(self, schema: Mapping[str, Any]) -> str:
        number = f"{schema.get('minContains', 1)}..{schema.get('maxContains', '')}"
        return self.text("contains", number=number, words=self.describe(schema.get("contains")))

    def dependent(self, schema: Mapping[str, Any]) -> str:
        pairs = schema["dependentRequired"].items()
        return ", ".join(
            self.text("dependent", names=_listed(needs), name=repr(name)) for name, needs in pairs
        )

    def format(self, schema: Mapping[str, Any]) -> str:
        name = schema["format"]
        if name not in FORMS:
            return ""
        return self.text("format", name=name, form=self.catalog.translate(FORMS[name]))

    def known_keys(self, schema: Mapping[str, Any]) -> str:
        parts = list(in_place(schema, self.root))
        names = dict.fromkeys(name for part in parts for name in part.get("properties", ()))
        patterns = [pattern for part in parts for pattern in part.get("patternProperties", ())]
        known = [_listed(names)] if names else []
        known += [self.text("keys_matching", pattern=pattern) for pattern in patterns]
        return (
            self.text("only_keys", keys=self.text("and").join(known))
            if known
            else self.text("no_keys")
        )


def _listed_types(types: Any) -> list[Any]:
    return [types] if isinstance(types, str) else list(types)


def _listed(names: Iterable[Any]) -> str:
    return ", ".join(map(repr, names))


def _range(schema: Mapping[str, Any], low: str, high: str) -> str:
    return f"{schema.get(low, '')}..{schema.get(high, '')}"


_Phrase: TypeAlias = Callable[[_Describer, Mapping[str, Any]], str]


def _lengths(low: str, high: str, unit: str) -> dict[str, _Phrase]:
    def phrase(describer: _Describer, schema: Mapping[str, Any]) -> str:
        return describer.text(unit, range=_range(schema, low, high))

    return {low: phrase, high: phrase}


def _number_range(_describer: _Describer, schema: Mapping[str, Any]) -> str:
    return _range(schema, "minimum", "maximum")


def _number_of_items(describer: _Describer, schema: Mapping[str, Any]) -> str:
    return describer.text("most_items", n=len(schema.get("prefixItems", ())))


def _value(key: str, keyword: str) -> _Phrase:
    return lambda describer, schema: describer.text(key, value=schema[keyword])


_PHRASES: Mapping[str, _Phrase] = {
    "const": lambda _, schema: json_or_repr(schema["const"]),
    "enum": lambda describer, schema: describer.text(
        "one_of", choices=", ".join(map(json_or_repr, schema["enum"]))
    ),
    "anyOf": lambda describer, schema: describer.alternatives(schema["anyOf"]),
    "oneOf": lambda describer, schema: describer.alternatives(schema["oneOf"]),
    **_lengths("minLength", "maxLength", "characters"),
    **_lengths("minItems", "maxItems", "items"),
    **_lengths("minProperties", "maxProperties", "keys"),
    "minimum": _number_range,
    "maximum": _number_range,
    "exclusiveMinimum": _value("above", "exclusiveMinimum"),
    "exclusiveMaximum": _value("below", "exclusiveMaximum"),
    "multipleOf": _value("multiple", "multipleOf"),
    "uniqueItems": lambda describer, schema: (
        describer.text("unique") if schema["uniqueItems"] else ""
    ),
    "contains": _Describer.contained,
    "minContains": _Describer.contained,
    "maxContains": _Describer.contained,
    "items": _number_of_items,
    "unevaluatedItems": _number_of_items,
    "required": lambda describer, schema: (
        describer.text("with", names=_listed(schema["required"])) if schema["required"] else ""
    ),
    "dependentRequired": _Describer.dependent,
    "additionalProperties": _Describer.known_keys,
    "unevaluatedProperties": _Describer.known_keys,
    "pattern": _value("pattern", "pattern"),
    "format": _Describer.format,
    "not": lambda describer, schema: describer.text("not", words=describer.describe(schema["not"])),
}
