"""A grammar that lets a server only say calls that fit the tools' schemas."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from lhkit.errors import UsageError
from lhkit.json_values import compact
from lhkit.models.dialects.base import Constraint, ToolSpec, spec_of

CALL_END = "}"

MAX_CHARS = 200
"""Longest string where the schema has no `maxLength`."""
MAX_DECLARED_CHARS = 2_000
"""Longest string, whatever `maxLength` says."""
MAX_ITEMS = 16
"""Longest array where the schema has no `maxItems`."""
MAX_NUMBER = 999_999_999
"""Largest distance from zero (or from the one bound that is given) of an open number."""
SMALLEST_STEP = 1e-9
"""Of a number that is not an integer."""
MAX_DEPTH = 20

_END = "(<start_of_turn> | <end_of_turn>)?"
"""What ends a Gemma's turn. The guidance backend lets nothing but `<eos>` end a text unless the
grammar names it, whatever a request gives as `stop_token_ids`. xgrammar cannot resolve the names,
so a vLLM that is free to choose (`auto`) takes guidance."""
_AS_COMPACT = {"whitespace_flexible": False, "json_allowed_escapes": r"nrbtfu\"" + "\\"}
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
_MIRRORED = {
    "minimum": "maximum",
    "maximum": "minimum",
    "exclusiveMinimum": "exclusiveMaximum",
    "exclusiveMaximum": "exclusiveMinimum",
}
"""What a bound is for the number without its minus."""
_REFERENCE = re.compile(r"#/(\$defs|definitions)/([^/~%]+)")
_NOT_REGULAR = re.compile(r"(?:[^\\]|^)(?:\\\\)*(\(\?(?!:)|\\[bBAZz1-9])")
"""Look-around and its like, flags, references back: what the server's regexes cannot say."""


def call_start(name: str) -> str:
    """Return what stands before the arguments of a call."""
    return f'{{"name": {compact(name)}, "parameters": '


def constrained(tools: Sequence[ToolSpec], constraint: Constraint) -> Mapping[str, Any]:
    """Return the request fields that constrain decoding; none where nothing is to be constrained.

    Raises:
        UsageError: no such constraint, a call is required and there is no tool, or a schema cannot
            be constrained.
    """
    match constraint:
        case "off":
            return {}
        case "auto":
            return _fields("prose? call?", tools) if tools else {}
        case "required":
            if not tools:
                raise UsageError(
                    "a call is required but there is no tool: give --constrain off or auto"
                )
            return _fields("call", tools)
        case _:  # a notebook is not type-checked
            raise UsageError(f"no constraint {constraint!r}: choose one of off, auto, required")


def _fields(answer: str, tools: Sequence[ToolSpec]) -> Mapping[str, Any]:
    rules: list[str] = []
    calls = [_call(spec_of(tool), rules) for tool in tools]
    rules = [f"start: {answer} {_END}", "prose: /[^{]+/", f"call: {' | '.join(calls)}", *rules]
    return {"structured_outputs": {"grammar": "\n".join(rules)}}


def _call(spec: Mapping[str, Any], rules: list[str]) -> str:
    name, schema = str(spec.get("name")), spec.get("parameters", {})
    arguments = _Tool(name, schema, rules).arguments()
    return f"{compact(call_start(name))} {arguments} {compact(CALL_END)}"


@dataclass(frozen=True, slots=True)
class _Tool:
    """One tool's schema on its way into a grammar, in which nothing can grow without end.

    Objects and arrays are written out, what stands in them is left to `%json`. The grammar never
    says more than the schema, and at times less: no undeclared keys, bounds for what has none.
    """

    name: str
    root: Mapping[str, Any]
    rules: list[str]

    def arguments(self) -> str:
        """Return the expression for the arguments.

        Raises:
            UsageError: the schema says something that cannot be constrained.
        """
        schema = {"type": "object", **self.root}
        if schema["type"] != "object":
            self._refuse("type", "the arguments", "they must be an object")
        self._require_known(schema, {"type", *_KEYWORDS["object"]}, "the arguments")
        return self._object(schema, "", 0)

    def _value(self, schema: Any, path: str, depth: int) -> str:
        if not isinstance(schema, Mapping):
            self._refuse("true/false", path, "say a type")
        if depth > MAX_DEPTH:
            self._refuse("$ref", path, "it goes too deep, or round in a circle")
        if "$ref" in schema:
            return self._reference(schema, path, depth)
        if "anyOf" in schema:
            self._require_known(schema, {"type", "anyOf"}, path)
            return _any_of([self._value(branch, path, depth + 1) for branch in schema["anyOf"]])
        if "enum" in schema or "const" in schema:
            return self._choice(schema, path)
        types = schema.get("type")
        types = [types] if isinstance(types, str) else types
        if not types or not set(types) <= set(_KEYWORDS):
            self._refuse("type", path, "it is missing or unknown")
        self._require_known(schema, {"type"}.union(*(_KEYWORDS[kind] for kind in types)), path)
        return _any_of([self._typed(kind, schema, path, depth) for kind in types])

    def _reference(self, schema: Mapping[str, Any], path: str, depth: int) -> str:
        self._require_known(schema, {"type", "$ref"}, path)
        found = _REFERENCE.fullmatch(str(schema["$ref"]))
        target = self.root.get(found[1], {}).get(found[2]) if found else None
        if target is None:
            self._refuse("$ref", path, f"there is no {schema['$ref']!r}")
        return self._value(target, path, depth + 1)

    def _choice(self, schema: Mapping[str, Any], path: str) -> str:
        self._require_known(schema, {"type", "enum", "const"}.union(*_KEYWORDS.values()), path)
        from lhkit.tools.json_schema import SchemaValidator

        validator = SchemaValidator(schema)
        choices = [schema["const"]] if "const" in schema else schema["enum"]
        fitting = [choice for choice in choices if validator.is_valid(choice)]
        if not fitting:
            self._refuse("enum", path, "no choice fits the rest of the schema")
        return _any_of([compact(compact(choice)) for choice in fitting])

    def _typed(self, kind: str, schema: Mapping[str, Any], path: str, depth: int) -> str:
        match kind:
            case "string":
                return self._string(schema, path)
            case "integer" | "number":
                return self._number(kind, schema, path)
            case "array":
                return self._array(schema, path, depth)
            case "object":
                if not schema.get("properties"):
                    self._refuse("object", path, "without properties it could hold anything")
                return self._object(schema, path, depth)
            case _:
                return _json({"type": kind})

    def _string(self, schema: Mapping[str, Any], path: str) -> str:
        least = schema.get("minLength", 0)
        most = min(schema.get("maxLength", max(MAX_CHARS, least)), MAX_DECLARED_CHARS)
        self._require_span("minLength", least, most, path)
        bounds = {"type": "string", "minLength": least, "maxLength": most}
        if "pattern" not in schema:
            return _json(bounds)
        try:
            re.compile(schema["pattern"])
        except re.error as error:
            self._refuse("pattern", path, str(error))
        if strange := _NOT_REGULAR.search(schema["pattern"]):
            self._refuse("pattern", path, f"{strange[1]} is not understood")
        return _json({**bounds, "pattern": schema["pattern"]})

    def _number(self, kind: str, schema: Mapping[str, Any], path: str) -> str:
        bounds = {name: schema[name] for name in sorted(_RANGE) if name in schema}
        lows = [bounds[name] for name in ("minimum", "exclusiveMinimum") if name in bounds]
        highs = [bounds[name] for name in ("maximum", "exclusiveMaximum") if name in bounds]
        if not lows:
            lows = [min([0, *highs]) - MAX_NUMBER]
            bounds["minimum"] = lows[0]
        if not highs:
            highs = [max([0, *lows]) + MAX_NUMBER]
            bounds["maximum"] = highs[0]
        self._require_span("minimum", max(lows), min(highs), path)
        if kind == "integer":
            return _json({"type": kind, **bounds})
        step = {"type": kind, "multipleOf": SMALLEST_STEP}  # else a fraction has no end
        signs = []
        if min(highs) > 0 or (min(highs) == 0 and bounds.get("exclusiveMaximum") != 0):
            signs.append(_json({**step, **bounds, "minimum": max([0, *lows])}))
        if max(lows) < 0:  # the server knows no multipleOf below zero, but a minus before a number
            mirrored = {_MIRRORED[name]: -bound for name, bound in bounds.items()}
            least = max([0, *(-high for high in highs)])
            signs.append(f'"-" {_json({**step, **mirrored, "minimum": least})}')
        return _any_of(signs)

    def _array(self, schema: Mapping[str, Any], path: str, depth: int) -> str:
        least = schema.get("minItems", 0)
        most = schema.get("maxItems", max(MAX_ITEMS, least))
        self._require_span("minItems", least, most, path)
        if most == 0:
            return '"[]"'
        item = self._rule(self._value(schema.get("items", {}), f"{path}[]", depth + 1))
        items = f'{item} ("," {item}){{{max(0, least - 1)},{most - 1}}}'
        return f'"[" {items} "]"' if least else f'"[" ({items})? "]"'

    def _object(self, schema: Mapping[str, Any], path: str, depth: int) -> str:
        properties: Mapping[str, Any] = schema.get("properties", {})
        required: Sequence[str] = schema.get("required", ())
        if isinstance(schema.get("additionalProperties"), Mapping):
            self._refuse("additionalProperties", path, "declare each key in properties")
        if undeclared := [name for name in required if name not in properties]:
            self._refuse("required", path, f"{undeclared[0]!r} is not in properties")
        first = '""'  # what may stand when no member has been written yet
        rest = '""'  # what may follow a member
        for name, inner in reversed(list(properties.items())):
            value = self._value(inner, f"{path}.{name}" if path else name, depth + 1)
            member = self._rule(f"{compact(compact(name) + ':')} {value}")
            if name in required:
                first = f"{member} {rest}"
                rest = self._rule(f'"," {member} {rest}')
            else:
                first = f"({member} {rest} | {first})"
                rest = self._rule(f'("," {member})? {rest}')
        return f'"{{" {first} "}}"'

    def _rule(self, body: str) -> str:
        name = f"r{len(self.rules)}"
        self.rules.append(f"{name}: {body}")
        return name

    def _require_span(self, keyword: str, low: float, high: float, path: str) -> None:
        if low > high:
            self._refuse(keyword, path, f"nothing lies between {low} and {high}")

    def _require_known(self, schema: Mapping[str, Any], known: Collection[str], path: str) -> None:
        for keyword in schema:
            if keyword not in known and keyword not in _NOTES:
                self._refuse(keyword, path, "it is not supported here")

    def _refuse(self, keyword: str, path: str, why: str) -> NoReturn:
        raise UsageError(
            f"tool {self.name!r}: decoding cannot be constrained by {keyword!r} at {path}: {why}; "
            "change the schema or give --constrain off"
        )


def _json(schema: Mapping[str, Any]) -> str:
    return f"%json {compact({**schema, 'x-guidance': _AS_COMPACT})}"


def _any_of(alternatives: Sequence[str]) -> str:
    return alternatives[0] if len(alternatives) == 1 else f"({' | '.join(alternatives)})"
