"""One plain value for a schema: what a gold trace puts where anything will do."""

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from lhkit.harness.author.examples import example, texts_of
from lhkit.tools.schema import SchemaNode


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"const": 3},
        {"enum": ["b", "a"]},
        {"default": 7, "type": "integer"},
        {"examples": ["x@y"]},
        {"type": "string", "maxLength": 3},
        {"type": "string", "minLength": 20},
        {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"},
        {"type": "string", "pattern": r"^[A-Z]{2}-(?:red|blue)\d+\.$"},
        {"type": "string", "pattern": r"^((a|b)c){3}[^x]?\w$"},
        {"type": "integer"},
        {"type": "integer", "minimum": 5, "maximum": 9},
        {"type": "integer", "maximum": -3},
        {"type": "integer", "exclusiveMinimum": 4},
        {"type": "number", "maximum": 0.5},
        {"type": "boolean"},
        {"type": "null"},
        {"type": ["integer", "null"]},
        {"type": "array", "items": {"type": "boolean"}, "minItems": 2},
        {"type": "object", "properties": {"a": {"type": "null"}, "b": {}}, "required": ["a"]},
        {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        {"$ref": "#/$defs/N", "$defs": {"N": {"type": "integer", "minimum": 2}}},
    ],
)
def test_example_matches_schema(schema: dict[str, Any]) -> None:
    Draft202012Validator(schema).validate(example(SchemaNode.of(schema)))


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("taken", ["taken"]),
        ("(?:moved|pushed) it", ["moved it", "pushed it"]),
        (r"\d{2}:[0-5]", ["00:0", "11:5"]),
        ("no (?=way)", []),
        ("(", []),
        ("a{99}", []),
    ],
)
def test_texts_of_match_pattern(pattern: str, texts: list[str]) -> None:
    assert list(texts_of(pattern)) == texts
