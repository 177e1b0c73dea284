"""What is refused before it can be constrained halfway."""

from typing import Any

import pytest

from lhkit.base.errors import UsageError
from lhkit.models.dialects import DIALECTS
from tests.rows import check_rows

DIALECT = DIALECTS["json"]
WORD = {"type": "string"}


def tool(name: str = "f", **properties: Any) -> dict[str, Any]:
    return {
        "name": name,
        "description": "",
        "parameters": {"type": "object", "properties": properties},
    }


def test_constrain_off_sends_nothing() -> None:
    assert DIALECT.constrain([tool(a={"type": "nonsense"})], "off") == {}


def test_constrain_without_tools() -> None:
    assert DIALECT.constrain([], "auto") == {}
    with pytest.raises(UsageError, match="there is no tool: give --constrain off or auto"):
        DIALECT.constrain([], "required")


def test_constrain_refuses_an_unknown_constraint() -> None:
    wrong: Any = "Auto"
    with pytest.raises(
        UsageError, match="Invalid constraint 'Auto': choose one of off, auto, required"
    ):
        DIALECT.constrain([tool()], wrong)


@pytest.mark.parametrize("constraint", ["auto", "required"])
def test_constrain_is_deterministic(constraint: Any) -> None:
    tools = [tool("f", a={"type": "string"}), tool("습관", b={"type": "integer"})]
    fields = DIALECT.constrain(tools, constraint)
    assert fields == DIALECT.constrain(tools, constraint)
    assert set(fields) == {"structured_outputs"}
    assert set(fields["structured_outputs"]) == {"grammar"}


@check_rows(
    ("schema", "keyword"),
    [
        ({}, "type"),
        (True, "true/false"),
        ({"type": "date"}, "type"),
        ({"type": "integer", "multipleOf": 5}, "multipleOf"),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "minimum"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "minLength"),
        ({"type": "string", "pattern": "^(?=a)a$"}, "pattern"),
        ({"type": "string", "pattern": r"^\bа$"}, "pattern"),
        ({"type": "string", "pattern": r"^(a)\1$"}, "pattern"),
        ({"type": "string", "pattern": "^a{2,1}$"}, "pattern"),
        ({"type": "array"}, "type"),
        ({"type": "array", "items": {"type": "null"}, "uniqueItems": True}, "uniqueItems"),
        ({"type": "array", "items": {"type": "null"}, "minItems": 2, "maxItems": 1}, "minItems"),
        ({"type": "object"}, "object"),
        ({"type": "object", "properties": {"b": {"not": {}}}}, "type"),
        ({"type": "object", "properties": {"b": {}}, "minProperties": 1}, "minProperties"),
        ({"type": "object", "properties": {"b": {"type": "null"}}, "required": ["c"]}, "required"),
        (
            {
                "type": "object",
                "properties": {"b": {"type": "null"}},
                "additionalProperties": {"type": "null"},
            },
            "additionalProperties",
        ),
        ({"oneOf": [{"type": "null"}]}, "type"),
        ({"type": "null", "oneOf": [{"type": "null"}]}, "oneOf"),
        ({"type": "string", "enum": [1, 2]}, "enum"),
        ({"$ref": "#/$defs/None"}, "$ref"),
        ({"$ref": "other.json"}, "$ref"),
    ],
)
def test_constrain_refuses_unsupported_keywords(schema: Any, keyword: str) -> None:
    with pytest.raises(UsageError) as refused:
        DIALECT.constrain([tool("메모", a=schema)], "auto")
    sentence = str(refused.value)
    assert sentence.startswith(f"tool '메모': decoding cannot be constrained by '{keyword}' at a")
    assert sentence.endswith("change the schema or give --constrain off")


@check_rows("constraint", ["auto", "required"])
@check_rows(
    ("schema", "why"),
    [
        ({"type": "object"}, "'object' at a: without properties"),
        ({"type": "object", "properties": {"b": WORD, "c": {"not": {}}}}, "'type' at a.c"),
        ({"type": "array", "items": {"anyOf": [WORD, {"oneOf": []}]}}, "'type' at a[]"),
    ],
)
def test_constrain_leaves_out_only_the_tool_that_it_cannot(
    schema: Any, why: str, constraint: Any
) -> None:
    first, second = tool("first", a=WORD), tool("second", a={"type": "array", "items": WORD})
    alone = DIALECT.constrain([first, second], constraint)
    odd = tool("메모", a=schema)
    for order in ([odd, first, second], [first, odd, second], [first, second, odd]):
        assert DIALECT.constrain(order, constraint) == alone
        (reason,) = DIALECT.unconstrained_tools(order).values()
        assert reason.startswith(why)
    assert DIALECT.unconstrained_tools([first, second]) == {}
    assert "메모" not in str(alone)


def test_constrain_follows_a_reference_to_an_argument() -> None:
    twice = tool("f", a={"type": "boolean"}, b={"$ref": "#/properties/a"})
    assert DIALECT.unconstrained_tools([twice]) == {}


def test_constrain_refuses_a_recursive_schema() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    recursive = tool(a={"$ref": "#/$defs/Node"})
    recursive["parameters"]["$defs"] = {"Node": node}
    with pytest.raises(UsageError, match=r"'\$ref' at a\.next.*: it is nested too deeply"):
        DIALECT.constrain([recursive], "required")
