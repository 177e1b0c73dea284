"""Shapes of schemas that real servers list, tried as the benchmark of tool lists does."""

from pathlib import Path
from typing import Any

import pytest
from tool_lists import table, try_list
from typer.testing import CliRunner

from tests.rows import check_rows

WORD = {"type": "string"}
MAYBE = {"anyOf": [WORD, {"type": "null"}], "default": None, "title": "Maybe"}
DRAFT_7 = "http://json-schema.org/draft-07/schema#"

SHAPES: dict[str, dict[str, Any]] = {
    "no_arguments": {"type": "object"},
    "all_optional": {"type": "object", "properties": {"a": MAYBE, "b": {"type": "boolean"}}},
    "closed": {
        "$schema": DRAFT_7,
        "type": "object",
        "properties": {"n": {"type": "number", "exclusiveMinimum": 0}, "all": {"type": "boolean"}},
        "required": ["n"],
        "additionalProperties": False,
    },
    "another_argument": {  # what zod writes for a schema that is used twice
        "type": "object",
        "properties": {"a": {"type": "boolean"}, "b": {"$ref": "#/properties/a"}},
        "required": ["a", "b"],
    },
    "items_of_an_argument": {
        "type": "object",
        "properties": {
            "add": {"type": "array", "items": {"type": "object", "properties": {"t": WORD}}},
            "drop": {"$ref": "#/properties/add"},
        },
        "required": ["add", "drop"],
    },
    "tagged_union": {
        "type": "object",
        "properties": {
            "steps": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "anyOf": [
                        {
                            "type": "object",
                            "properties": {"kind": {"const": "wait"}, "ms": {"type": "integer"}},
                            "required": ["kind"],
                        },
                        {
                            "type": "object",
                            "properties": {"kind": {"const": "press"}, "key": WORD},
                            "required": ["kind", "key"],
                        },
                    ]
                },
            }
        },
        "required": ["steps"],
    },
    "one_of_ids": {
        "type": "object",
        "properties": {
            "parent": {
                "oneOf": [
                    {"type": "object", "properties": {"page": WORD}, "required": ["page"]},
                    {"type": "object", "properties": {"base": WORD}, "required": ["base"]},
                ]
            }
        },
        "required": ["parent"],
    },
    "uuid": {
        "type": "object",
        "properties": {"id": {"type": "string", "format": "uuid"}},
        "required": ["id"],
    },
    "definition_with_default": {
        "type": "object",
        "properties": {"order": {"allOf": [{"$ref": "#/$defs/Order"}], "default": "new"}},
        "$defs": {
            "Order": {"enum": ["new", "old"], "type": "string"},
            "Unused": {"$ref": "#/$defs/Lost"},
        },
    },
    "nullable": {
        "type": "object",
        "properties": {"cursor": {"type": "string", "nullable": True}},
        "required": ["cursor"],
    },
    "open_map": {
        "type": "object",
        "properties": {"heights": {"type": "object", "additionalProperties": {"type": "number"}}},
        "required": ["heights"],
    },
    "map_of_names": {
        "type": "object",
        "properties": {
            "rows": {
                "type": "array",
                "items": {
                    "type": "object",
                    "propertyNames": {"type": "string"},
                    "additionalProperties": {"type": ["string", "number"]},
                },
            }
        },
        "required": ["rows"],
    },
    "untyped": {"type": "object", "properties": {"value": {"description": "Anything."}}},
    "blocks_in_blocks": {
        "type": "object",
        "properties": {"block": {"$ref": "#/$defs/Block"}},
        "required": ["block"],
        "$defs": {
            "Block": {
                "type": "object",
                "properties": {
                    "text": WORD,
                    "children": {"type": "array", "items": {"$ref": "#/$defs/Block"}},
                },
                "required": ["text"],
            }
        },
    },
    "API-get.self/now": {"type": "object", "properties": {"page-size": {"type": "integer"}}},
}
UNCONSTRAINED = {"one_of_ids", "open_map", "map_of_names", "untyped", "blocks_in_blocks"}


def listed(name: str) -> dict[str, Any]:
    tool = {"name": name, "description": "Do it. " * 500, "inputSchema": SHAPES[name]}
    return {"package": "p", "version": "1", "tools": [tool]}


@pytest.mark.longer
@check_rows("name", SHAPES)
def test_tool_of_a_listed_shape_works_in_every_step(name: str) -> None:
    row = try_list(listed(name))
    names = ("registered", "rendered", "read back", "example", "form", "linted")
    assert {step: row.counts[step] for step in names} == dict.fromkeys(names, 1), row.issues
    assert row.counts["constrained"] == (name not in UNCONSTRAINED), row.issues
    assert row.counts["mistakes"] == row.counts["noticed"] > 0


def test_tool_list_names_what_does_not_work(tmp_path: Path) -> None:
    from json import dumps

    from tool_lists import app

    broken = {"name": "odd", "inputSchema": {"type": "object", "properties": {"a": {"type": "no"}}}}
    two = {"package": "p", "version": "1", "tools": [broken, listed("open_map")["tools"][0]]}
    (tmp_path / "p.json").write_text(dumps(two), encoding="utf-8")
    printed = CliRunner().invoke(app, ["try", str(tmp_path)]).output
    assert "| p | 1 | 2 | 1 | 1 |" in printed
    assert "- p: odd: " in printed
    assert "- p: open_map: not constrained: " in printed
    assert list(table([]))[2].startswith("| **all** |")
