"""What a server promises of its results, and what becomes of results that break it."""

from typing import Any

import pytest
from mcp_types import CallToolResult, Tool

from lhkit.mcp.results import MAX_STEPS, output_error
from tests.rows import check_rows

KEPT = ""


def broken(schema: Any, content: Any, *, is_error: bool = False) -> str:
    tool = Tool(name="look", input_schema={"type": "object"}, output_schema=schema)
    answer = CallToolResult(content=[], structured_content=content, is_error=is_error)
    return output_error(tool, answer)


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@check_rows(
    ("schema", "content", "why"),
    [
        (of(a={"type": "integer"}), {"a": "x"}, 'a is "x" and should be integer'),
        (of(a={"type": "array", "items": {"type": "integer"}}), {"a": [1, None]}, "a.1 is null"),
        ({**of(), "required": ["a", "b"]}, {"a": 1}, "the whole lacks 'b'"),
        (of(a={"enum": ["x"]}), {"a": "y"}, 'one of "x"'),
        ({"type": "object"}, [1], "the whole is [1] and should be object"),
        ({"type": "object"}, None, "it has no structured content"),
        ({"$defs": {"n": {"type": "null"}}, **of(a={"$ref": "#/$defs/n"})}, {"a": 1}, "a is 1"),
    ],
)
def test_output_error_names_the_field(schema: Any, content: Any, why: str) -> None:
    message = broken(schema, content)
    assert why in message
    assert message.startswith("look ran, but its answer is not what its server promises")


@pytest.mark.parametrize(
    ("schema", "content"),
    [(None, None), (None, {"a": 1}), (of(a={"type": "integer"}), {"a": 1, "b": "more"})],
)
def test_output_error_is_empty_for_valid_results(schema: Any, content: Any) -> None:
    assert broken(schema, content) == KEPT


def test_output_error_is_empty_for_tool_errors() -> None:
    assert broken(of(a={"type": "integer"}), None, is_error=True) == KEPT


DEFINITIONS = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)}
DEEP: Any = []
for _ in range(200):
    DEEP = [DEEP]


@pytest.mark.longer
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("schema", "content"),
    [
        (of(a={"type": 5}), {"a": 1}),
        (of(a={"$ref": "http://127.0.0.1:9/x"}), {"a": 1}),
        (of(a={"$ref": "#/nowhere"}), {"a": 1}),
        (of(a={"$ref": "#/properties/a"}), {"a": 1}),
        (of(a={"pattern": "^(a+)+$"}), {"a": "a" * 60 + "!"}),
        ({"type": "object", "patternProperties": {"^(a+)+$": False}}, {"a" * 60 + "!": 1}),
        (of(a={"uniqueItems": True}), {"a": [{"n": n % 2} for n in range(9_000)]}),
        (of(a={"items": {"type": "integer"}}), {"a": ["x"] * (MAX_STEPS * 2)}),
        (
            {"$defs": {**DEFINITIONS, "d60": {"type": "null"}}, **of(a={"$ref": "#/$defs/d0"})},
            {"a": 1},
        ),
        ({**of(), "additionalProperties": {"$ref": "#/properties"}}, {"a": DEEP}),
    ],
)
def test_output_error_is_empty_for_hostile_schemas(schema: Any, content: Any) -> None:
    assert broken(schema, content) == KEPT


def test_output_error_supports_older_drafts() -> None:
    pair = {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}
    schema = {**of(a=pair), "$schema": "http://json-schema.org/draft-07/schema#"}
    assert broken(schema, {"a": ["x", 1]}) == KEPT
    assert "a.1 is" in broken(schema, {"a": ["x", "y"]})


class Counted(str):
    """A text that counts its comparisons."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        type(self).compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_output_error_limits_enum_comparisons() -> None:
    Counted.compared = 0
    choices = [Counted(f"c{n}") for n in range(MAX_STEPS // 10)]
    schema = of(a={"type": "array", "items": {"enum": choices}})
    assert broken(schema, {"a": ["none"] * 10_000}) == KEPT, "what cannot be checked is kept"
    assert Counted.compared <= 2 * MAX_STEPS
    assert "one of" in broken(of(a={"enum": choices}), {"a": "none"})
