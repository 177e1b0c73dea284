"""Grammars for constrained decoding: calls that are valid by the tools' schemas."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from lhkit.base.errors import UsageError
from lhkit.base.json_values import compact
from lhkit.base.schema import NOTED_FORMAT, resolve
from lhkit.models.decoding import Constraint
from lhkit.models.dialects.base import ToolSpec, tool_spec

CALL_END = "}"

MAX_CHARS = 200
"""Limit of strings without `maxLength`."""
MAX_DECLARED_CHARS = 2_000
"""Limit of strings with any `maxLength`."""
MAX_ITEMS = 16
"""Limit of arrays without `maxItems`."""
MAX_NUMBER = 999_999_999
"""Limit of numbers: distance from zero, or from the one bound in the schema."""
SMALLEST_STEP = 1e-9
"""The `multipleOf` of numbers that are not integers."""
MAX_DEPTH = 20

_END = "(<start_of_turn> | <end_of_turn>)?"
"""The end of a Gemma turn. The guidance backend ignores `stop_token_ids` and ends a text only at
`<eos>` or at tokens in the grammar. xgrammar cannot resolve their names, so vLLM's backend `auto`
selects guidance."""
_AS_COMPACT = {"whitespace_flexible": False, "json_allowed_escapes": r"nrbtfu\"" + "\\"}
_ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"}
    | {"$schema", "$id", "$comment", "$defs", "definitions", "format", NOTED_FORMAT}
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
"""Each bound's counterpart for the negated number."""
_NOT_REGULAR = re.compile(r"(?:[^\\]|^)(?:\\\\)*(\(\?(?!:)|\\[bBAZz1-9])")
"""Look-around, flags, back-references: not supported by the server's regular expressions."""


def call_start(name: str) -> str:
    """Return the text of a call before its arguments."""
    return f'{{"name": {compact(name)}, "parameters": '


def constrained(tools: Sequence[ToolSpec], constraint: Constraint) -> Mapping[str, Any]:
    """Return the request fields that constrain decoding; none for `off` or without tools.

    A tool whose schema is not supported is not in the grammar, so the model cannot call it; see
    `unconstrained_tools`.

    Raises:
        UsageError: the constraint is unknown, a call is required but there is no tool, or no tool's
            schema is supported.
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
        case _:  # notebooks are not type-checked
            raise UsageError(
                f"Invalid constraint {constraint!r}: choose one of off, auto, required."
            )


def unconstrained_tools(tools: Sequence[ToolSpec]) -> dict[str, str]:
    """Return the tools that decoding cannot be constrained to: name to reason."""
    _, _, failures = _calls(tools)
    return {failure.tool: failure.why for failure in failures}


class _UnsupportedSchemaError(UsageError):
    """Decoding cannot be constrained by the schema of a tool."""

    def __init__(self, tool: str, why: str) -> None:
        super().__init__(
            f"tool {tool!r}: decoding cannot be constrained by {why}; change the schema or give "
            "--constrain off"
        )
        self.tool, self.why = tool, why


def _calls(
    tools: Sequence[ToolSpec],
) -> tuple[list[str], list[str], list[_UnsupportedSchemaError]]:
    """Return the calls and rules of a grammar, and why it lacks some tools."""
    calls: list[str] = []
    rules: list[str] = []
    failures: list[_UnsupportedSchemaError] = []
    for tool in tools:
        count = len(rules)
        try:
            calls.append(_call(tool_spec(tool), rules))
        except _UnsupportedSchemaError as failure:
            failures.append(failure)
            del rules[count:]
    return calls, rules, failures


def _fields(answer: str, tools: Sequence[ToolSpec]) -> Mapping[str, Any]:
    calls, rules, failures = _calls(tools)
    if not calls:
        raise failures[0]
    rules = [f"start: {answer} {_END}", "prose: /[^{]+/", f"call: {' | '.join(calls)}", *rules]
    return {"structured_outputs": {"grammar": "\n".join(rules)}}


def _call(spec: Mapping[str, Any], rules: list[str]) -> str:
    name, schema = str(spec.get("name")), spec.get("parameters", {})
    arguments = _Tool(name, schema, rules).arguments()
    return f"{compact(call_start(name))} {arguments} {compact(CALL_END)}"


@dataclass(frozen=True, slots=True)
class _Tool:
    """Translates one tool's schema to grammar rules, in which every value has a limit.

    Objects and arrays become rules, other values `%json`. The grammar accepts a subset of the
    schema: no undeclared keys, and limits where the schema has none.
    """

    name: str
    root: Mapping[str, Any]
    rules: list[str]

    def arguments(self) -> str:
        """Return the expression for the arguments.

        Raises:
            UsageError: a keyword of the schema is not supported.
        """
        schema = {"type": "object", **self.root}
        if schema["type"] != "object":
            self._refuse("type", "the arguments", "they must be an object")
        self._require_known(schema, {"type", *_KEYWORDS["object"]}, "the arguments")
        return self._object(schema, "", 0)

    def _value(self, schema: Any, path: str, depth: int) -> str:
        if not isinstance(schema, Mapping):
            self._refuse("true/false", path, "give a type")
        if depth > MAX_DEPTH:
            self._refuse("$ref", path, "it is nested too deeply, or recursive")
        if "$ref" in schema:
            return self._reference(schema, path, depth)
        if len(schema.get("allOf", ())) == 1:  # a reference with a default or a description
            self._require_known(schema, {"type", "allOf"}, path)
            return self._value(schema["allOf"][0], path, depth + 1)
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
        target = resolve(schema["$ref"], self.root)
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
            self._refuse("enum", path, "no choice is valid by the rest of the schema")
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
                    self._refuse("object", path, "without properties it has no limit")
                return self._object(schema, path, depth)
            case _:
                return _json({"type": kind})

    def _string(self, schema: Mapping[str, Any], path: str) -> str:
        low = schema.get("minLength", 0)
        high = min(schema.get("maxLength", max(MAX_CHARS, low)), MAX_DECLARED_CHARS)
        self._require_range("minLength", low, high, path)
        bounds = {"type": "string", "minLength": low, "maxLength": high}
        if "pattern" not in schema:
            return _json(bounds)
        try:
            re.compile(schema["pattern"])
        except re.error as error:
            self._refuse("pattern", path, str(error))
        if match := _NOT_REGULAR.search(schema["pattern"]):
            self._refuse("pattern", path, f"{match[1]} is not supported")
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
        self._require_range("minimum", max(lows), min(highs), path)
        if kind == "integer":
            return _json({"type": kind, **bounds})
        step = {"type": kind, "multipleOf": SMALLEST_STEP}  # otherwise a fraction is unlimited
        signs = []
        if min(highs) > 0 or (min(highs) == 0 and bounds.get("exclusiveMaximum") != 0):
            signs.append(_json({**step, **bounds, "minimum": max([0, *lows])}))
        if max(lows) < 0:  # the server has no multipleOf below zero, so a minus precedes the number
            mirrored = {_MIRRORED[name]: -bound for name, bound in bounds.items()}
            low = max([0, *(-high for high in highs)])
            signs.append(f'"-" {_json({**step, **mirrored, "minimum": low})}')
        return _any_of(signs)

    def _array(self, schema: Mapping[str, Any], path: str, depth: int) -> str:
        low = schema.get("minItems", 0)
        high = schema.get("maxItems", max(MAX_ITEMS, low))
        self._require_range("minItems", low, high, path)
        if high == 0:
            return '"[]"'
        item = self._rule(self._value(schema.get("items", {}), f"{path}[]", depth + 1))
        items = f'{item} ("," {item}){{{max(0, low - 1)},{high - 1}}}'
        return f'"[" {items} "]"' if low else f'"[" ({items})? "]"'

    def _object(self, schema: Mapping[str, Any], path: str, depth: int) -> str:
        properties: Mapping[str, Any] = schema.get("properties", {})
        required: Sequence[str] = schema.get("required", ())
        if isinstance(schema.get("additionalProperties"), Mapping):
            self._refuse("additionalProperties", path, "declare each key in properties")
        if undeclared := [name for name in required if name not in properties]:
            self._refuse("required", path, f"{undeclared[0]!r} is not in properties")
        first = '""'  # the members if none has been written yet
        rest = '""'  # the members after another one
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

    def _require_range(self, keyword: str, low: float, high: float, path: str) -> None:
        if low > high:
            self._refuse(keyword, path, f"there is no value between {low} and {high}")

    def _require_known(self, schema: Mapping[str, Any], known: Collection[str], path: str) -> None:
        for keyword in schema:
            if keyword not in known and keyword not in _ANNOTATIONS:
                self._refuse(keyword, path, "it is not supported here")

    def _refuse(self, keyword: str, path: str, why: str) -> NoReturn:
        raise _UnsupportedSchemaError(self.name, f"{keyword!r} at {path}: {why}")


def _json(schema: Mapping[str, Any]) -> str:
    return f"%json {compact({**schema, 'x-guidance': _AS_COMPACT})}"


def _any_of(alternatives: Sequence[str]) -> str:
    return alternatives[0] if len(alternatives) == 1 else f"({' | '.join(alternatives)})"
