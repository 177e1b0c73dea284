"""A tool's JSON Schema as EBNF for compact JSON, in which nothing can grow without end.

The grammar never says more than the schema, and at times less: keys come in the schema's order,
undeclared keys not at all, numbers without exponents, Korean never escaped. Where the schema
leaves a length or a size open, the bounds below close it, or a weak model would write digits and
letters until its tokens run out. A keyword that is not understood is refused.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NoReturn

from jsonschema import Draft202012Validator

from lhkit.errors import UsageError
from lhkit.models.dialects import digit_ranges
from lhkit.models.dialects.grammar_text import literal
from lhkit.models.dialects.json_pattern import PatternError, shape_of
from lhkit.vocab.json_values import compact

MAX_CHARS = 200
"""Longest string where the schema has no `maxLength`."""
MAX_DECLARED_CHARS = 2_000
"""Longest string, whatever `maxLength` says."""
MAX_ITEMS = 16
"""Longest array where the schema has no `maxItems`."""
MAX_NUMBER = 999_999_999
"""Largest distance from zero (or from the one bound that is given) of an open number."""
MAX_DEPTH = 20

_CHARACTER_RULES = (
    r'char ::= [^"\\\x00-\x1f] | "\\" ["\\bfnrt] | "\\u00" [01] [0-9a-f]'  # as compact() writes
)
_NOTES = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"}
    | {"$schema", "$id", "$comment", "$defs", "definitions", "format"}
)
_RANGE = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_KEYWORDS: Mapping[str, Collection[str]] = {
    "null": frozenset(),
    "boolean": frozenset(),
    "string": frozenset({"minLength", "maxLength", "pattern"}),
    "integer": _RANGE,
    "number": _RANGE,
    "array": frozenset({"items", "minItems", "maxItems"}),
    "object": frozenset({"properties", "required", "additionalProperties"}),
}
_REFERENCE = re.compile(r"#/(\$defs|definitions)/([^/~%]+)")


class SchemaGrammar:
    """Gathers the rules of one grammar: the arguments of several tools."""

    def __init__(self) -> None:
        self._rules: list[str] = [_CHARACTER_RULES]

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules that what `arguments` returned refers to."""
        return tuple(self._rules)

    def arguments(self, tool: str, schema: Mapping[str, Any]) -> str:
        """Return the expression for the arguments of `tool`.

        Raises:
            UsageError: the schema says something that cannot be constrained.
        """
        return _Tool(tool, schema, self._rules).arguments()


class _Tool:
    """One tool's schema on its way into rules."""

    def __init__(self, name: str, schema: Mapping[str, Any], rules: list[str]) -> None:
        self._name = name
        self._root = schema
        self._rules = rules

    def arguments(self) -> str:
        schema = {"type": "object", **self._root}
        if schema["type"] != "object":
            self._refuse("type", "the arguments", "they must be an object")
        self._require_known(schema, _KEYWORDS["object"], "the arguments")
        return self._object(schema, "", 0)

    def _value(self, schema: Any, path: str, depth: int) -> str:
        if not isinstance(schema, Mapping):
            self._refuse("true/false", path, "say a type")
        if depth > MAX_DEPTH:
            self._refuse("$ref", path, "it goes too deep, or round in a circle")
        if "$ref" in schema:
            return self._reference(schema, path, depth)
        if "anyOf" in schema:
            self._require_known(schema, {"anyOf"}, path)
            return _any_of([self._value(branch, path, depth + 1) for branch in schema["anyOf"]])
        if "enum" in schema or "const" in schema:
            return self._choice(schema, path)
        types = schema.get("type")
        types = [types] if isinstance(types, str) else types
        if not types or not set(types) <= set(_KEYWORDS):
            self._refuse("type", path, "it is missing or unknown")
        known = frozenset[str]().union(*(_KEYWORDS[kind] for kind in types))
        self._require_known(schema, {"type", *known}, path)
        return _any_of([self._typed(kind, schema, path, depth) for kind in types])

    def _reference(self, schema: Mapping[str, Any], path: str, depth: int) -> str:
        self._require_known(schema, {"$ref"}, path)
        found = _REFERENCE.fullmatch(str(schema["$ref"]))
        target = self._root.get(found[1], {}).get(found[2]) if found else None
        if target is None:
            self._refuse("$ref", path, f"there is no {schema['$ref']!r}")
        return self._value(target, path, depth + 1)

    def _choice(self, schema: Mapping[str, Any], path: str) -> str:
        known = frozenset({"type", "enum", "const"}).union(*_KEYWORDS.values())
        self._require_known(schema, known, path)
        validator = Draft202012Validator(schema)
        choices = [schema["const"]] if "const" in schema else schema["enum"]
        fitting = [choice for choice in choices if validator.is_valid(choice)]
        if not fitting:
            self._refuse("enum", path, "no choice fits the rest of the schema")
        return _any_of([literal(compact(choice)) for choice in fitting])

    def _typed(self, kind: str, schema: Mapping[str, Any], path: str, depth: int) -> str:
        match kind:
            case "null":
                return '"null"'
            case "boolean":
                return '("true" | "false")'
            case "string":
                return self._string(schema, path)
            case "integer" | "number":
                return self._number(kind, schema, path)
            case "array":
                return self._array(schema, path, depth)
            case _:
                if not schema.get("properties"):
                    self._refuse("object", path, "without properties it could hold anything")
                return self._object(schema, path, depth)

    def _string(self, schema: Mapping[str, Any], path: str) -> str:
        least = schema.get("minLength", 0)
        most = min(schema.get("maxLength", max(MAX_CHARS, least)), MAX_DECLARED_CHARS)
        if least > most:
            self._refuse("minLength", path, f"no string has {least} to {most} characters")
        if "pattern" not in schema:
            return rf'"\"" char{{{least},{most}}} "\""'
        try:
            shape = shape_of(schema["pattern"])
        except PatternError as error:
            self._refuse("pattern", path, str(error))
        longest = schema.get("maxLength", shape.longest)
        if shape.shortest < least or shape.longest > longest:
            self._refuse("pattern", path, "minLength and maxLength do not follow from it")
        return rf'"\"" {shape.ebnf} "\""'

    def _number(self, kind: str, schema: Mapping[str, Any], path: str) -> str:
        low, low_open = self._bound(schema, "minimum", "exclusiveMinimum", path)
        high, high_open = self._bound(schema, "maximum", "exclusiveMaximum", path)
        if low is None:
            low = -MAX_NUMBER if high is None else min(0, high) - MAX_NUMBER
        if high is None:
            high = max(0, low) + MAX_NUMBER
        try:
            if kind == "integer":
                return digit_ranges.integers(low + low_open, high - high_open)
            return digit_ranges.decimals(low, high, low_open=low_open, high_open=high_open)
        except ValueError as error:
            self._refuse("minimum", path, str(error))

    def _bound(
        self, schema: Mapping[str, Any], keyword: str, exclusive: str, path: str
    ) -> tuple[int | None, bool]:
        """Return a bound, which must be a whole number, and whether it is outside of the range."""
        given = [name for name in (keyword, exclusive) if name in schema]
        if not given:
            return None, False
        if len(given) > 1:
            self._refuse(exclusive, path, f"{keyword} is there too")
        if schema[given[0]] != int(schema[given[0]]):
            self._refuse(given[0], path, "it must be a whole number")
        return int(schema[given[0]]), given == [exclusive]

    def _array(self, schema: Mapping[str, Any], path: str, depth: int) -> str:
        least = schema.get("minItems", 0)
        most = schema.get("maxItems", max(MAX_ITEMS, least))
        if least > most:
            self._refuse("minItems", path, f"no array has {least} to {most} items")
        if most == 0:
            return '"[]"'
        item = self._rule(self._value(schema.get("items", {}), f"{path}[]", depth + 1))
        items = f'{item} ("," {item}){{{max(0, least - 1)},{most - 1}}}'
        return f'"[" {items} "]"' if least else f'("[]" | "[" {items} "]")'

    def _object(self, schema: Mapping[str, Any], path: str, depth: int) -> str:
        properties: Mapping[str, Any] = schema.get("properties", {})
        required: Sequence[str] = schema.get("required", ())
        if isinstance(schema.get("additionalProperties"), Mapping):
            self._refuse("additionalProperties", path, "declare each key in properties")
        if undeclared := [name for name in required if name not in properties]:
            self._refuse("required", path, f"{undeclared[0]!r} is not in properties")
        members = []
        for name, inner in properties.items():
            value = self._value(inner, f"{path}.{name}" if path else name, depth + 1)
            members.append(
                (self._rule(f"{literal(compact(name) + ':')} {value}"), name in required)
            )
        return f'"{{" {self._members(members)} "}}"'

    def _members(self, members: Sequence[tuple[str, bool]]) -> str:
        """Return members in order, with commas between those that are there."""
        first = '""'  # what may stand when no member has been written yet
        rest = '""'  # what may follow a member
        for member, is_required in reversed(members):
            after = rest
            if is_required:
                first = f"{member} {after}"
                rest = self._rule(f'"," {member} {after}')
            else:
                first = f"({member} {after} | {first})"
                rest = self._rule(f'("," {member})? {after}')
        return first

    def _rule(self, body: str) -> str:
        name = f"r{len(self._rules)}"
        self._rules.append(f"{name} ::= {body}")
        return name

    def _require_known(self, schema: Mapping[str, Any], known: Collection[str], path: str) -> None:
        for keyword in schema:
            if keyword not in known and keyword not in _NOTES and keyword != "type":
                self._refuse(keyword, path, "it is not supported here")

    def _refuse(self, keyword: str, path: str, why: str) -> NoReturn:
        raise UsageError(
            f"tool {self._name!r}: decoding cannot be constrained by {keyword!r} at {path}: {why}; "
            "change the schema or give --constrain off"
        )


def _any_of(alternatives: Sequence[str]) -> str:
    return alternatives[0] if len(alternatives) == 1 else f"({' | '.join(alternatives)})"
