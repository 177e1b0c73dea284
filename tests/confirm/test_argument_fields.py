"""The fields of a tool's arguments: schemas, null, messages, edits."""

import json
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, Field, create_model

from lhkit.base.locales import load_catalog
from lhkit.confirm.form import argument_fields, argument_form, edited_arguments, expected
from tests.rows import check_rows

EN, KO = load_catalog("en"), load_catalog("ko")

DEFS: Mapping[str, Any] = {
    "Status": {"type": "string", "enum": ["open", "closed"], "title": "Status", "description": "s"},
    "Alias": {"$ref": "#/$defs/Status"},
    "Loop": {"$ref": "#/$defs/Loop"},
    "a/b": {"type": "boolean"},
    "Tree": {
        "type": "object",
        "properties": {
            "v": {"type": "integer"},
            "kids": {"type": "array", "items": {"$ref": "#/$defs/Tree"}},
        },
        "required": ["v"],
    },
}
STATUS = {"$ref": "#/$defs/Status"}
NULL = {"type": "null"}


class Share(Enum):
    """Who can see it."""

    TEAM = "team"
    PUBLIC = "public"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Mixed(Enum):
    A = "a"
    ONE = 1
    NOTHING = None


class Person(BaseModel):
    name: str
    age: int | None = None


TREE_EN = (
    "a JSON object (v: a whole number; kids?: a JSON list (each item: "
    "a JSON object (v: a whole number; kids?: a JSON list (each item: anything))))"
)
TREE_KO = (
    "JSON 객체 (v: 정수; kids?: JSON 목록 (항목마다 "
    "JSON 객체 (v: 정수; kids?: JSON 목록 (항목마다 아무 JSON))))"
)


def whole(part: Any, **others: Any) -> Mapping[str, Any]:
    return {"type": "object", "properties": {"x": part, **others}, "$defs": DEFS}


def field(part: Any, **others: Any) -> Any:
    return argument_fields(whole(part, **others), EN)[0]


def seen(part: Any, **others: Any) -> tuple[str, list[str], bool]:
    """Return the kind, the choices and whether null is a value."""
    made = field(part, **others)
    return str(made.kind), [choice.value for choice in made.choices], made.is_nullable


def of_type(annotation: Any, **more: Any) -> Mapping[str, Any]:
    """Return the schema of an object with one property `x`, as pydantic writes it."""
    return create_model("Args", x=(annotation, ...), **more).model_json_schema()


SHAPES: list[tuple[Any, str, list[str], bool]] = [
    # references
    (STATUS, "choice", ["open", "closed"], False),
    ({"$ref": "#/$defs/Alias"}, "choice", ["open", "closed"], False),
    ({"$ref": "#/$defs/a~1b"}, "yes_no", ["true", "false"], False),
    ({"$ref": "#/properties/y"}, "integer", [], False),
    ({"$ref": "#/$defs/Loop"}, "json", [], False),
    ({"$ref": "#/properties/x"}, "json", [], False),
    ({"$ref": "#/$defs/Nowhere"}, "json", [], False),
    ({"$ref": "https://example.org/x.json"}, "json", [], False),
    # allOf
    ({"allOf": [STATUS]}, "choice", ["open", "closed"], False),
    (
        {"allOf": [STATUS], "default": "open", "description": "d"},
        "choice",
        ["open", "closed"],
        False,
    ),
    ({"allOf": [{"type": "number"}, {"minimum": 1}]}, "number", [], False),
    ({"allOf": [STATUS, {"enum": ["open", "new"]}]}, "choice", ["open"], False),
    ({"allOf": [{"type": ["string", "null"]}, {"type": "string"}]}, "text", [], False),
    ({"type": "number", "allOf": [{"type": "integer"}]}, "integer", [], False),
    # single alternatives and null, anywhere
    ({"anyOf": [{"type": "integer"}, NULL]}, "integer", [], True),
    ({"anyOf": [NULL, {"type": "integer"}]}, "integer", [], True),
    ({"anyOf": [NULL, {"type": "integer"}, NULL]}, "integer", [], True),
    ({"anyOf": [{"type": "integer"}, {**NULL, "description": "no limit"}]}, "integer", [], True),
    ({"oneOf": [{"type": "string"}, NULL]}, "text", [], True),
    ({"oneOf": [STATUS, NULL]}, "choice", ["open", "closed"], True),
    ({"anyOf": [{"allOf": [STATUS]}, {"const": None}]}, "choice", ["open", "closed"], True),
    ({"anyOf": [{"anyOf": [STATUS, NULL]}, NULL]}, "choice", ["open", "closed"], True),
    ({"anyOf": [{"type": "boolean"}]}, "yes_no", ["true", "false"], False),
    ({"anyOf": [{"type": "array"}, NULL]}, "json", [], True),
    ({"type": ["string", "null"]}, "text", [], True),
    ({"type": ["null", "boolean"]}, "yes_no", ["true", "false"], True),
    ({"type": ["number"]}, "number", [], False),
    ({"type": ["string", "null"], "enum": ["a", "b", None]}, "choice", ["a", "b"], True),
    ({"type": "string", "enum": ["a", None]}, "choice", ["a"], False),
    ({"type": "string", "nullable": True}, "text", [], True),
    ({"allOf": [STATUS], "nullable": True}, "choice", ["open", "closed"], False),
    (NULL, "choice", [], True),
    # values
    ({"const": "a"}, "choice", ["a"], False),
    ({"const": 3}, "choice", ["3"], False),
    ({"enum": ["a"]}, "choice", ["a"], False),
    ({"enum": [1, 2]}, "choice", ["1", "2"], False),
    ({"type": "integer", "enum": [1, 2]}, "choice", ["1", "2"], False),
    ({"type": "number", "enum": [0.5, 1]}, "choice", ["0.5", "1"], False),
    ({"enum": [True, False]}, "yes_no", ["true", "false"], False),
    ({"type": "boolean", "enum": [True]}, "choice", ["true"], False),
    ({"enum": ["a", 1, True, None]}, "choice", ["a", "1", "true"], True),
    ({"enum": ["1", 1, "true", True]}, "choice", ['"1"', "1", '"true"', "true"], False),
    ({"enum": ["1", "2"]}, "choice", ["1", "2"], False),
    ({"enum": ["null", None]}, "choice", ["null"], True),
    ({"enum": [[1], {"a": 1}]}, "choice", ["[1]", '{"a":1}'], False),
    ({"anyOf": [{"const": "a"}, {"const": "b"}, NULL]}, "choice", ["a", "b"], True),
    ({"anyOf": [{"enum": ["a"]}, {"enum": ["b", "a"]}]}, "choice", ["a", "b"], False),
    ({"oneOf": [{"const": n} for n in range(150)]}, "choice", [str(n) for n in range(150)], False),
    ({"enum": [str(n) for n in range(500)]}, "json", [], False),
    (
        {"anyOf": [{"type": "boolean"}, {"const": "auto"}]},
        "choice",
        ["true", "false", "auto"],
        False,
    ),
    # unions
    ({"type": ["string", "integer"]}, "text", [], False),
    ({"type": ["integer", "number"]}, "number", [], False),
    ({"type": ["number", "boolean", "null"]}, "number", [], True),
    (
        {"anyOf": [{"type": "number"}, {"type": "string", "pattern": r"^\d+(\.\d+)?$"}]},
        "number",
        [],
        False,
    ),
    (
        {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
        "json",
        [],
        False,
    ),
    ({"anyOf": [{"enum": ["a"]}, {"type": "string"}]}, "text", [], False),
    # no type
    ({"pattern": "^a"}, "text", [], False),
    ({"minimum": 1}, "number", [], False),
    ({"properties": {}}, "json", [], False),
    ({}, "json", [], False),
    (True, "json", [], False),
    # invalid
    ({"type": 7}, "json", [], False),
    ({"enum": 5}, "json", [], False),
    ({"anyOf": 5}, "json", [], False),
    ({"type": "string", "minLength": "x", "pattern": 3, "format": ["date"]}, "text", [], False),
    (5, "json", [], False),
]


@check_rows(("part", "kind", "choices", "is_nullable"), SHAPES)
def test_argument_field_has_the_kind_that_its_schema_means(
    part: Any, kind: str, choices: list[str], is_nullable: bool
) -> None:
    assert seen(part, y={"type": "integer"}) == (kind, choices, is_nullable)


@check_rows(
    ("annotation", "kind", "choices", "is_nullable"),
    [
        (Share, "choice", ["team", "public"], False),
        (Share | None, "choice", ["team", "public"], True),
        (Level, "choice", ["1", "2"], False),
        (Mixed, "choice", ["a", "1"], True),
        (Literal[1, 2], "choice", ["1", "2"], False),
        (Literal["a", 1, True, None], "choice", ["a", "1", "true"], True),
        (date | None, "text", [], True),
        (datetime, "text", [], False),
        (time, "text", [], False),
        (UUID, "text", [], False),
        # a number or any text; older releases of pydantic ask of the text that it is a number
        (Decimal, "number" if "pattern" in str(of_type(Decimal)) else "text", [], False),
        (int | float, "number", [], False),
        (list[list[datetime]], "json", [], False),
        (list[Person] | None, "json", [], True),
        (Person, "json", [], False),
    ],
)
def test_argument_field_of_a_python_type(
    annotation: Any, kind: str, choices: list[str], is_nullable: bool
) -> None:
    (made,) = argument_fields(of_type(annotation))
    assert (str(made.kind), [choice.value for choice in made.choices]) == (kind, choices)
    assert made.is_nullable == is_nullable


@check_rows(
    ("part", "title", "about", "label"),
    [
        (STATUS, "Status", "s", "x (Status)"),
        ({**STATUS, "description": "outer"}, "Status", "outer", "x (Status)"),
        ({"allOf": [STATUS], "title": "X"}, "X", "s", "x"),
        ({"anyOf": [STATUS, NULL], "title": "State of it"}, "State of it", "s", "x (State of it)"),
        ({"anyOf": [{"type": "string", "description": "in"}, NULL]}, "", "in", "x"),
        (
            {"anyOf": [{"type": "string", "description": "a"}, {"type": "integer"}]},
            *("", "", "x"),
        ),
        ({"type": "string", "title": 5, "description": None}, "", "", "x"),
    ],
)
def test_argument_field_keeps_title_and_description(
    part: Any, title: str, about: str, label: str
) -> None:
    made = field(part)
    assert (made.title, made.about, made.label) == (title, about, label)


@pytest.mark.parametrize(
    "part",
    [
        {"title": "Size", "oneOf": [{"const": 1, "title": "S"}, {"const": 2, "title": "L"}]},
        {"enum": [1, 2], "enumNames": ["S", "L"]},
        {"enum": [1, 2], "x-enum-varnames": ["S", "L"]},
    ],
)
def test_argument_field_shows_titles_of_choices_with_their_values(part: Any) -> None:
    assert [choice.label for choice in field(part).choices] == ["S (1)", "L (2)"]


def test_argument_field_shows_descriptions_of_choices() -> None:
    part = {"oneOf": [{"const": "s", "description": "small"}, {"enum": ["l"], "description": "x"}]}
    assert [choice.label for choice in field(part).choices] == ["s: small", "l: x"]


def edit(schema: Mapping[str, Any], args: Mapping[str, Any], typed: str | None) -> Any:
    """Return the argument `x` after an edit; its message if the text is invalid."""
    form = argument_form(schema, args, EN)
    done = edited_arguments(form, {"x": typed}, args, EN)
    return done.errors.get("x") or done.values.get("x", "(left out)")


@check_rows(
    ("part", "typed", "value"),
    [
        (STATUS, "closed", "closed"),
        ({"enum": [1, 2]}, "2", 2),
        ({"enum": ["1", 1]}, "1", 1),
        ({"enum": ["1", 1]}, '"1"', "1"),
        ({"anyOf": [STATUS, NULL]}, None, None),
        ({"anyOf": [STATUS, NULL]}, "null", None),
        ({"enum": ["null", None]}, "null", "null"),
        ({"enum": ["null", None]}, None, None),
        ({"type": ["string", "null"]}, None, None),
        ({"type": ["string", "null"]}, "null", "null"),  # a text like any other
        ({"type": ["string", "null"], "format": "date"}, "null", None),
        ({"type": ["integer", "null"]}, "null", None),
        ({"type": ["integer", "null"]}, "7", 7),
        ({"type": "integer", "exclusiveMinimum": 0, "maximum": 9}, "9", 9),
        ({"type": ["integer", "null"]}, "", "(left out)"),
        ({"type": ["array", "null"]}, "null", None),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, '{"a": 1}', {"a": 1}),
        ({"$ref": "#/$defs/Tree"}, '{"v": 1, "kids": [{"v": 2}]}', {"v": 1, "kids": [{"v": 2}]}),
        ({"type": ["string", "integer"]}, "7", 7),
        ({"type": ["string", "integer"]}, '"7"', "7"),
        ({"type": ["string", "integer"]}, "seven", "seven"),
        ({"type": ["string", "integer", "null"]}, "null", None),
        ({"type": ["string", "integer", "null"]}, '"null"', "null"),
        ({"type": ["boolean", "string"]}, "true", True),
        ({"type": ["boolean", "string"]}, '"true"', "true"),
        ({"anyOf": [{"type": "integer"}, {"const": "auto"}]}, "auto", "auto"),
        (of_type(Decimal)["properties"]["x"], "12.5", 12.5),
        ({"anyOf": [{"type": "string"}, {"type": "array"}]}, '["a"]', ["a"]),
        ({"type": "number", "multipleOf": 0.01}, "19.99", 19.99),
        ({"type": "string", "format": "date-time"}, "2026-11-25T09:30", "2026-11-25T09:30"),
    ],
)
def test_edited_argument_is_the_value_that_the_schema_means(
    part: Any, typed: str | None, value: Any
) -> None:
    for args in ({}, {"y": 1}):
        edited = edit(whole(part), args, typed)
        assert (type(edited), edited) == (type(value), value)


@check_rows(
    ("part", "typed", "en", "ko"),
    [
        (STATUS, "new", "one of open, closed", "open, closed 중 하나"),
        (
            {"anyOf": [STATUS, NULL]},
            "x",
            "one of open, closed or null",
            "open, closed 중 하나 또는 null",
        ),
        ({"enum": [1, 2]}, "3", "one of 1, 2", "1, 2 중 하나"),
        (STATUS, None, "one of open, closed", "open, closed 중 하나"),
        ({"const": "a"}, "b", "a", "a"),
        (
            {"type": "integer", "minimum": 1, "maximum": 4},
            "0",
            "a whole number, at least 1, at most 4",
            "정수, 1 이상, 4 이하",
        ),
        (
            of_type(Annotated[int, Field(gt=0, le=9)])["properties"]["x"],
            "0",
            "a whole number, above 0, at most 9",
            "정수, 0 초과, 9 이하",
        ),
        (
            {"type": "string", "format": "date"},
            "soon",
            "a day such as 2026-11-25",
            "2026-11-25 같은 날짜",
        ),
        (
            {"type": "string", "format": "date-time"},
            "2026-11-25",
            "a time such as 2026-11-25T09:30:00",
            "2026-11-25T09:30:00 같은 시각",
        ),
        ({"type": "number", "exclusiveMaximum": 5}, "5", "a number, below 5", "숫자, 5 미만"),
        (
            {"type": "number", "multipleOf": 0.5},
            "0.7",
            "a number, a multiple of 0.5",
            "숫자, 0.5의 배수",
        ),
        ({"type": "string", "pattern": "^a+$"}, "b", "a text, matching ^a+$", "글, ^a+$ 형식"),
        (
            {"type": ["number", "boolean"]},
            "x",
            "a number or one of true, false",
            "숫자 또는 true, false 중 하나",
        ),
        (
            {"type": "array", "items": STATUS},
            "open",
            'a JSON list (each item: one of "open", "closed")',
            'JSON 목록 (항목마다 "open", "closed" 중 하나)',
        ),
        (
            {"type": "array", "items": STATUS},
            '["open", "new"]',
            'a JSON list (each item: one of "open", "closed")',
            'JSON 목록 (항목마다 "open", "closed" 중 하나)',
        ),
        (
            {"type": "array", "items": {"enum": ["a", 1]}},
            "a",
            'a JSON list (each item: one of "a", 1)',
            'JSON 목록 (항목마다 "a", 1 중 하나)',
        ),
        (
            {"type": "array", "items": {"type": "integer"}, "minItems": 1},
            "[]",
            "a JSON list (each item: a whole number), at least 1 item",
            "JSON 목록 (항목마다 정수), 1개 이상",
        ),
        ({"type": "array"}, "{}", "a JSON list", "JSON 목록"),
        (
            {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "boolean"}]},
            "[true]",
            "a JSON list (a whole number; one of true, false)",
            "JSON 목록 (정수; true, false 중 하나)",
        ),
        (
            {"type": "object", "additionalProperties": {"type": "integer"}},
            '{"a": "b"}',
            "a JSON object (each value: a whole number)",
            "JSON 객체 (값마다 정수)",
        ),
        ({"$ref": "#/$defs/Tree"}, '{"kids": []}', TREE_EN, TREE_KO),
        (
            {"anyOf": [{"type": "string"}, {"type": "array"}]},
            "a",
            "a text, in quotes or a JSON list",
            "따옴표 안에 글 또는 JSON 목록",
        ),
        ({}, "a", EN.text("form.json"), KO.text("form.json")),
    ],
)
def test_argument_error_names_what_is_expected(
    part: Any, typed: str | None, en: str, ko: str
) -> None:
    assert edit(whole(part), {}, typed) == f"Invalid value. Expected: {en}."
    assert expected(field(part), EN) == en
    assert expected(argument_fields(whole(part))[0], KO) == ko


def test_argument_field_names_at_most_twenty_choices() -> None:
    text = expected(field({"enum": [f"c{n}" for n in range(30)]}), EN)
    assert (text.count("c"), text.endswith(", c19, …")) == (20, True)


@check_rows(
    ("part", "value", "typed"),
    [
        (STATUS, "open", "open"),
        ({"enum": [1, 2]}, 2, "2"),
        ({"enum": [1, 2]}, 2.0, "2"),
        ({"enum": ["1", 1]}, "1", '"1"'),
        ({"type": ["string", "null"]}, None, None),
        ({"type": ["string", "null"]}, "null", "null"),
        ({"type": ["array", "null"]}, None, "null"),
        ({"type": ["string", "integer"]}, 5, "5"),
        ({"type": ["string", "integer"]}, "5", '"5"'),
        ({"type": ["string", "integer"]}, "five", "five"),
        ({"type": "string", "format": "date-time"}, "2026-11-25T09:30", "2026-11-25T09:30"),
        ({"type": "array"}, ["a" * 50], json.dumps(["a" * 50], indent=1)),
        ({"enum": ["a\u3164", "b"]}, "a\u3164", r'"a\u3164"'),
    ],
)
def test_argument_form_shows_a_value_as_it_is_typed(
    part: Any, value: Any, typed: str | None
) -> None:
    args = {"x": value}
    form = argument_form(whole(part), args, EN)
    assert form.typed == {"x": typed}
    same = edited_arguments(form, form.typed, args, EN)
    assert (same.values, same.errors) == (args, {})


def test_argument_that_is_required_and_may_be_null_cannot_be_left_empty() -> None:
    schema = {**whole({"type": ["integer", "null"]}), "required": ["x"]}
    assert edit(schema, {"x": 1}, "") == "This field is required. It may be null."
    assert edit(schema, {"x": 1}, None) is None


def test_argument_form_shows_defaults_as_values_and_names_them() -> None:
    schema = whole(
        {"type": "integer", "default": 5},
        y={"anyOf": [STATUS, NULL], "default": None},
        z={"allOf": [STATUS], "default": "open"},
    )
    form = argument_form(schema, {"x": 5, "y": None, "z": "open"}, EN)
    assert form.typed == {"x": "5", "y": None, "z": "open"}
    assert [made.default for made in form.fields] == ["5", "null", "open"]
    done = edited_arguments(form, {"x": "", "z": "closed"}, {"x": 5, "y": None, "z": "open"}, EN)
    assert done.values == {"y": None, "z": "closed"}  # the tool's default applies again


def test_argument_fields_come_from_all_parts_of_the_schema() -> None:
    schema = {
        "allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}],
        "anyOf": [
            {"properties": {"b": {"const": "x"}, "c": {"type": "boolean"}}, "required": ["b"]},
            {"properties": {"b": {"const": "y"}}, "required": ["b"]},
        ],
    }
    made = {one.name: one for one in argument_fields(schema)}
    assert {name: str(one.kind) for name, one in made.items()} == {
        **{"a": "integer", "b": "choice", "c": "json"}
    }
    assert [choice.value for choice in made["b"].choices] == ["x", "y"]
    assert [name for name, one in made.items() if one.is_required] == ["b", "a"]


def test_argument_form_uses_the_schema_of_additional_properties() -> None:
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    (made,) = argument_form(schema, {"x": 1}, EN).fields
    assert (str(made.kind), made.typed) == ("integer", "1")


def test_argument_fields_of_a_schema_that_branches_without_end() -> None:
    properties = {f"p{n}": {"anyOf": [{"$ref": "#/$defs/Wide"}, NULL]} for n in range(40)}
    wide = {"type": "object", "properties": properties}
    schema = {**wide, "$defs": {"Wide": wide}}
    assert len(argument_fields(schema)) == 40
