"""`values_equal`: typed equality of JSON values under a schema."""

from typing import Any

import pytest

from lhkit.harness.matching import values_equal

INTEGER = {"type": "integer"}
STRING = {"type": "string"}
PERSON = {
    "type": "object",
    "properties": {"name": STRING, "age": {"type": "integer", "default": 30}, "tags": {}},
    "required": ["name"],
}
REFERRING = {
    "$ref": "#/$defs/Node",
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {
                "depth": {"type": "integer", "default": 0},
                "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]},
            },
        }
    },
}


@pytest.mark.parametrize(
    ("expected", "actual", "schema", "is_equal"),
    [
        (1, 1.0, INTEGER, True),
        (1.0, 1, {"type": "number"}, True),
        (1, True, INTEGER, False),
        (True, 1, {"type": "boolean"}, False),
        (0, False, {}, False),
        (1, "1", INTEGER, False),
        ("1", 1, STRING, False),
        (10**400, 1e308, {}, False),
        (None, "null", {}, False),
        (None, 0, {}, False),
        ("", None, STRING, False),
        ("-5", "5", STRING, False),
        ("New York", "new york", STRING, False),
        ("각", "\u1100\u1161\u11a8", STRING, True),
        ([1, 2], [2, 1], {"type": "array"}, False),
        ([1], [1, 1], {"type": "array"}, False),
        ([], {}, {}, False),
        ({"name": "a"}, {"name": "a", "age": 30.0}, PERSON, True),
        ({"name": "a", "age": 30}, {"name": "a"}, PERSON, True),
        ({"name": "a"}, {"name": "a", "age": 31}, PERSON, False),
        ({"name": "a"}, {"name": "a", "more": 1}, PERSON, False),
        ({}, {"name": "a"}, {**PERSON, "properties": {"name": {"default": "a"}}}, False),
        ({"next": {"depth": 0}}, {"depth": 0, "next": {}}, REFERRING, True),
        ({"next": {"depth": 1}}, {"next": {}}, REFERRING, False),
        ({"next": None}, {"next": None}, REFERRING, True),
        ([{}], [{"n": 1}], {"items": {"properties": {"n": {"default": 1}}}}, True),
        ([{}], [{"n": 1}], {"prefixItems": [{"properties": {"n": {"default": 1}}}]}, True),
        ({}, {"n": 1}, {"allOf": [{"properties": {"n": {"default": 1}}}]}, True),
        ({"x": {}}, {"x": {"n": 1}}, {"additionalProperties": PERSON}, False),
    ],
)
def test_values_equal_follows_the_schema(
    expected: Any, actual: Any, schema: dict[str, Any], *, is_equal: bool
) -> None:
    assert values_equal(expected, actual, schema) is is_equal
    assert values_equal(actual, expected, schema) is is_equal


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/$defs/Missing"},
        {"$ref": 3},
        {"$ref": "other.json"},
        {"anyOf": [{"$ref": "#"}]},
        {"properties": True and {"a": True}},
    ],
)
def test_values_equal_ignores_an_unresolvable_schema(schema: dict[str, Any]) -> None:
    assert values_equal({"a": 1}, {"a": 1.0}, schema)
    assert not values_equal({"a": 1}, {}, schema)
