"""The JSON Schema of a scenario file, for editors."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter

from lhkit.harness.matchers import ANY_OF, MATCHER_KEYS
from lhkit.harness.scenario import Scenario
from lhkit.harness.turn import ARGS_MARK, ROW_MARK


def scenario_json_schema() -> dict[str, Any]:
    """Return the JSON Schema (Draft 2020-12) of a scenario file, for editors."""
    schema = TypeAdapter(tuple[Scenario, ...]).json_schema()
    described: dict[str, Any] = _with_grammar(schema)
    described["$defs"] |= _GRAMMAR
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **described}


def _with_grammar(node: Any) -> Any:
    """Replace each mark by a reference: pydantic has no word for a recursive grammar."""
    if isinstance(node, dict):
        for mark, name in ((ARGS_MARK, "Args"), (ROW_MARK, "Row")):
            if node.items() >= mark.items():
                rest = {key: value for key, value in node.items() if key not in mark}
                return {"$ref": f"#/$defs/{name}", **rest}
        return {key: _with_grammar(value) for key, value in node.items()}
    return [_with_grammar(value) for value in node] if isinstance(node, list) else node


def _matcher_schema(
    key: str, value: Mapping[str, Any], about: str, example: Any, **modifiers: Any
) -> dict[str, Any]:
    optional = {"type": "boolean", "description": "The argument may be left out."}
    return {
        "title": key,
        "description": about,
        "examples": [example],
        "type": "object",
        "properties": {key: {**value, "description": about}, **modifiers, "optional": optional},
        "required": [key],
        "additionalProperties": False,
    }


def _modifier(about: str, **schema: Any) -> dict[str, Any]:
    return {**schema, "description": about}


_NESTED = {"$ref": "#/$defs/Matcher"}
_FIELDS = {"type": "object", "additionalProperties": _NESTED}

_MATCHERS: Sequence[Mapping[str, Any]] = (
    _matcher_schema(
        "equals",
        {},
        "Exactly this value, also if it looks like a matcher.",
        {"equals": {"date": "today"}},
    ),
    _matcher_schema(
        "one_of",
        {"type": "array", "items": _NESTED, "minItems": 1},
        "One of these values or matchers.",
        {"one_of": ["morning", {"text": "in the morning"}]},
    ),
    _matcher_schema("any", {"const": True}, "Any value, but there must be one.", {"any": True}),
    _matcher_schema(
        "matches",
        {"type": "string", "format": "regex"},
        "A text in which this regular expression is found.",
        {"matches": "^010-[0-9]{4}"},
    ),
    _matcher_schema(
        "approx",
        {"type": "number"},
        "A number as near as this; without `abs` and `rel` only rounding is forgiven.",
        {"approx": 37.5, "abs": 0.1},
        abs=_modifier("The largest difference.", type="number", minimum=0),
        rel=_modifier("The largest difference, as a share of it.", type="number", minimum=0),
    ),
    _matcher_schema(
        "date",
        {"type": "string"},
        "A day: YYYY-MM-DD, or told from the scenario's day. today, yesterday, tomorrow, weekstart "
        "(this week's Monday), weekendstart (its Saturday, on a Sunday that day), "
        "monthstart, monthend; friday (today or the first to come), next "
        "friday (the first after today), last friday (the last before it); each with +Nd, -Nw, +Nm "
        "(days, weeks, months).",
        {"date": "last friday"},
    ),
    _matcher_schema(
        "text",
        {"type": "string"},
        "This text, in any case, Unicode form and width of white space.",
        {"text": "I drink water", "ignore": "spaces"},
        ignore=_modifier("White space does not count at all.", const="spaces"),
    ),
    _matcher_schema(
        "fields",
        _FIELDS,
        "An object with these fields and no others.",
        {"fields": {"lat": {"approx": 37.5, "abs": 0.1}}, "extra": True},
        extra=_modifier("Others do not matter.", type="boolean"),
    ),
    _matcher_schema(
        "items",
        {"type": "array", "items": _NESTED},
        "A list of just these, in this order.",
        {"items": ["milk", {"matches": "^egg"}], "unordered": True},
        unordered=_modifier("In any order.", type="boolean"),
    ),
)

_GRAMMAR: Mapping[str, Any] = {
    "Matcher": {
        "description": "A value, which stands for itself, or one of the matchers.",
        "anyOf": [
            *_MATCHERS,
            {"not": {"type": "object", "anyOf": [{"required": [key]} for key in MATCHER_KEYS]}},
        ],
    },
    "Args": {
        "description": "A matcher for each argument, or several sets of which one must fit.",
        "anyOf": [
            {
                "description": "Several sets of arguments that are right.",
                "examples": [{ANY_OF: [{"day": "monday"}, {"from": "monday", "to": "monday"}]}],
                "type": "object",
                "properties": {ANY_OF: {"type": "array", "items": _FIELDS, "minItems": 1}},
                "required": [ANY_OF],
                "additionalProperties": False,
            },
            _FIELDS,
        ],
    },
    "Row": {
        "description": "Matchers for some fields of a row (of a table, or of the data that a call "
        "came to), others do not matter; or `equals` with "
        "the whole row, or `fields` with all of its fields.",
        "examples": [{"title": "tea"}, {"equals": {"id": 1, "title": "tea"}}],
        **_FIELDS,
    },
}
