"""Schemas of older drafts: read by their own, and the same for jsonschema's validator of it."""

from typing import Any

import pytest
from jsonschema.validators import validator_for

from lhkit.base.errors import RegistrationError
from lhkit.mcp.results import usable_schema
from lhkit.testing import echo_tool
from lhkit.tools.registry import ToolRegistry
from lhkit.tools.validation import Accepted
from tests.rows import check_rows

URIS = {
    "04": "http://json-schema.org/draft-04/schema#",
    "06": "http://json-schema.org/draft-06/schema#",
    "07": "http://json-schema.org/draft-07/schema#",
    "2019-09": "https://json-schema.org/draft/2019-09/schema",
}
STRING, INTEGER = {"type": "string"}, {"type": "integer"}
PAIR = {"type": "array", "items": [STRING, INTEGER]}


def of(draft: str, **value: Any) -> dict[str, Any]:
    return {"$schema": URIS[draft], "type": "object", "properties": {"v": value}}


def bare(**value: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"v": value}}


def pointing(to: str, **value: Any) -> dict[str, Any]:
    schema = of("07", **value)
    return {**schema, "properties": {**schema["properties"], "w": {"$ref": to}}}


CASES: list[tuple[dict[str, Any], list[Any], list[Any]]] = [
    (of("07", **PAIR), [["a", 1], ["a", 1, 2], []], [[1, "a"], ["a", "b"]]),
    (of("07", **PAIR, additionalItems=False), [["a", 1]], [["a", 1, 2]]),
    (of("04", **PAIR, additionalItems=STRING), [["a", 1, "b"]], [["a", 1, 2]]),
    (of("2019-09", **PAIR, additionalItems=INTEGER), [["a", 1, 2]], [["a", 1, "b"]]),
    (of("07", type="array", items=STRING, additionalItems=False), [["a", "b"]], [[1]]),
    (of("04", minimum=0, exclusiveMinimum=True), [1], [0, -1]),
    (of("04", minimum=0, exclusiveMinimum=False), [0, 1], [-1]),
    (of("04", maximum=9, exclusiveMaximum=True), [8], [9]),
    (of("07", exclusiveMinimum=0), [1], [0]),
    (of("07", dependencies={"a": ["b"]}), [{"a": 1, "b": 1}, {"b": 1}], [{"a": 1}]),
    (of("07", dependencies={"a": {"required": ["b"]}}), [{"a": 1, "b": 1}], [{"a": 1}]),
    (of("07", dependencies={"a": ["b"], "c": {"maxProperties": 1}}), [{"c": 1}], [{"a": 1}]),
    (
        {**of("07", **{"$ref": "#/definitions/N", "maximum": 3}), "definitions": {"N": INTEGER}},
        [9],
        ["a"],
    ),
    (
        {**of("2019-09", **{"$ref": "#/$defs/N", "maximum": 3}), "$defs": {"N": INTEGER}},
        [3],
        [9, "a"],
    ),
    (of("07", properties={"p": PAIR, "items": STRING}), [{"items": "a"}], [{"p": [1]}]),
    (of("07", const=1), [1], [2]),
    (of("06", contains=STRING, type="array"), [["a"]], [[1]]),
]


@check_rows(("schema", "fitting", "others"), CASES)
def test_registry_upgrades_a_schema_of_an_older_draft(
    schema: dict[str, Any], fitting: list[Any], others: list[Any]
) -> None:
    registry = ToolRegistry([echo_tool(parameters=schema)])
    by_draft = validator_for(schema)(schema)
    for value in [*fitting, *others]:
        is_valid = by_draft.is_valid({"v": value})
        assert is_valid == (value in fitting)
        verdict = registry.validator("echo").check({"v": value})
        assert isinstance(verdict, Accepted) == is_valid, verdict


NULLABLE: list[tuple[dict[str, Any], list[Any], list[Any]]] = [
    (STRING, ["a", None], [1]),
    ({"type": ["string", "integer"]}, ["a", 1, None], [1.5]),
    ({"type": ["string", "null"]}, ["a", None], [1]),
    ({"enum": ["a"]}, ["a", None], ["b"]),
    ({"type": "string", "enum": ["a", None]}, ["a", None], ["b"]),
    ({"const": "a"}, ["a", None], ["b"]),
    ({"const": "a", "enum": ["a", "b"]}, ["a"], ["b", None]),
    ({"anyOf": [STRING, INTEGER]}, ["a", 1, None], [1.5]),
    ({"oneOf": [STRING, INTEGER]}, ["a", 1, None], [1.5]),
    ({"anyOf": [STRING, INTEGER], "not": {"const": "b"}}, ["a", 1, None], [1.5, "b"]),
    ({"$ref": "#/$defs/N"}, [1, None], ["a"]),
]


@check_rows(("value", "fitting", "others"), NULLABLE)
def test_nullable_value_may_be_null(
    value: dict[str, Any], fitting: list[Any], others: list[Any]
) -> None:
    schema = {**bare(**value, nullable=True), "$defs": {"N": INTEGER}}
    validator = ToolRegistry([echo_tool(parameters=schema)]).validator("echo")
    for each in [*fitting, *others]:
        assert isinstance(validator.check({"v": each}), Accepted) == (each in fitting), each


def test_nullable_choices_name_null_once() -> None:
    registry = ToolRegistry([echo_tool(parameters=bare(enum=["a", None], nullable=True))])
    assert registry["echo"].parameters["properties"]["v"] == {"enum": ["a", None]}


def test_value_that_is_not_nullable_may_not_be_null() -> None:
    schema = bare(**STRING, nullable=False)
    validator = ToolRegistry([echo_tool(parameters=schema)]).validator("echo")
    assert not isinstance(validator.check({"v": None}), Accepted)


def test_nullable_arguments_are_an_object_in_any_case() -> None:
    for is_nullable in (True, False):
        registry = ToolRegistry([echo_tool(parameters={**bare(**STRING), "nullable": is_nullable})])
        assert registry["echo"].parameters == bare(**STRING)
        assert not isinstance(registry.validator("echo").check(None), Accepted)


@check_rows(
    ("schema", "fitting", "other"),
    [
        (pointing("#/properties/v/items/1", **PAIR), 1, "a"),
        (pointing("#/properties/v/additionalItems", **PAIR, additionalItems=INTEGER), 1, "a"),
        (
            pointing("#/properties/v/dependencies/a", dependencies={"a": {"minProperties": 1}}),
            {"b": 1},
            {},
        ),
        (pointing("#/properties/v/properties/items", properties={"items": INTEGER}), 1, "a"),
    ],
)
def test_registry_updates_references_of_an_older_draft(
    schema: dict[str, Any], fitting: Any, other: Any
) -> None:
    validator = ToolRegistry([echo_tool(parameters=schema)]).validator("echo")
    assert isinstance(validator.check({"w": fitting}), Accepted)
    assert not isinstance(validator.check({"w": other}), Accepted)


@check_rows(
    ("draft", "value"),
    [
        ("2019-09", PAIR),
        ("2019-09", {"type": "array", "items": {**PAIR, "additionalItems": False}}),
        ("2019-09", {"anyOf": [{"$ref": "#/properties/v/anyOf/1/items/0"}, PAIR]}),
        ("04", {"type": "number", "minimum": 0, "exclusiveMinimum": True}),
        ("04", {"items": [{"type": "number", "maximum": 9, "exclusiveMaximum": True}]}),
    ],
)
def test_registry_finds_the_draft_of_a_schema_that_names_none(
    draft: str, value: dict[str, Any]
) -> None:
    upgraded = [
        ToolRegistry([echo_tool(parameters=schema)])["echo"].parameters
        for schema in (bare(**value), of(draft, **value))
    ]
    assert upgraded[0] == upgraded[1] != bare(**value)


def test_registry_keeps_a_schema_that_is_the_same_in_both_drafts() -> None:
    schema = of("07", type="string", maxLength=3)
    assert ToolRegistry([echo_tool(parameters=schema)])["echo"].parameters is schema


@check_rows(
    ("schema", "issue"),
    [
        (of("07", minimum=0, exclusiveMinimum=True), "properties/v/exclusiveMinimum"),
        (of("04", exclusiveMinimum=3), "properties/v/exclusiveMinimum"),
        ({**of("07"), "$schema": "http://json-schema.org/draft-03/schema#"}, "draft 03 is not"),
        (bare(type="array", items=[STRING, 3]), "properties/v/items"),
    ],
)
def test_registry_refuses_a_schema_that_is_invalid_in_its_draft(
    schema: dict[str, Any], issue: str
) -> None:
    with pytest.raises(RegistrationError, match=f"'echo'.*{issue}"):
        ToolRegistry([echo_tool(parameters=schema)])


def test_promise_drops_patterns_in_places_of_older_drafts() -> None:
    text = {"type": "string", "pattern": "(a+)+$"}
    schema = of("07", items=[text], additionalItems=text, dependencies={"a": {"not": text}})
    assert "(a+)+$" not in str(usable_schema(schema))


def test_served_schema_loses_keywords_that_are_null() -> None:
    text = {"type": "string", "default": None, "const": None, "enum": [None], "format": None}
    schema = {**bare(**text, items=None), "required": None, "additionalProperties": None}
    keywords = {"type": "string", "default": None, "const": None, "enum": [None]}
    assert usable_schema(schema) == bare(**keywords)
