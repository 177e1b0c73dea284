"""Untrusted forms: their fields, and the accepted values."""

from collections.abc import Mapping
from typing import Any

import pytest

from lhkit.base.locales import load_catalog
from lhkit.confirm.form import (
    MOST_CHOICES,
    MOST_FIELDS,
    FieldKind,
    Form,
    UnsupportedFormError,
    argument_form,
    edited_arguments,
    filled,
    parse_form,
)
from tests.rows import check_rows

EN, KO = load_catalog("en"), load_catalog("ko")
CITY = {"type": "string", "oneOf": [{"const": "se", "title": "Seoul"}, {"const": "bu"}]}


def schema(*required: str, **properties: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def form(*required: str, **properties: Mapping[str, Any]) -> Form:
    return parse_form(schema(*required, **properties), "", EN)


def values(made: Form, **typed: str) -> Any:
    """Return the values of a form, or its errors if they are invalid."""
    done = filled(made, {**made.typed, **typed}, EN)
    return done.errors or done.values


def test_form_has_a_field_of_each_mcp_type() -> None:
    made = form(
        "name",
        name={"type": "string", "title": "Your name", "description": "as in the passport"},
        people={"type": "integer", "minimum": 1, "maximum": 4, "default": 2},
        budget={"type": "number"},
        window={"type": "boolean", "default": False},
        city=CITY,
        room={"type": "string", "enum": ["a", "b"], "enumNames": ["Small", "Large"]},
    )
    assert [each.kind.value for each in made.fields] == [
        *("text", "integer", "number", "yes_no", "choice", "choice")
    ]
    assert [each.label for each in made.fields][::4] == ["Your name", "city"]
    assert [each.is_required for each in made.fields] == [True] + [False] * 5
    assert made.fields[0].about == "as in the passport"
    assert [each.title for each in made.fields[5].choices] == ["Small", "Large"]
    assert values(made) == {"name": "This field is required."}
    assert values(made, name="Kim", city="se", budget="1.5", room="b") == {
        "name": "Kim",
        "people": 2,
        "budget": 1.5,
        "window": False,
        "city": "se",
        "room": "b",
    }


@check_rows(
    ("field", "right", "wrong"),
    [
        ({"type": "string", "minLength": 2, "maxLength": 3}, "abc", ["a", "abcd"]),
        ({"type": "string", "format": "email"}, "a@b.kr", ["a", "a b@c", "a@b@c"]),
        ({"type": "string", "format": "uri"}, "https://x.org/a", ["x.org", "https://", "a: b"]),
        ({"type": "string", "format": "date"}, "2026-11-25", ["2026-13-01", "25.11.2026", "now"]),
        (
            {"type": "string", "format": "date-time"},
            "2026-11-25T09:30:00+09:00",
            ["2026-11-25", "2026-11-25T09:30:00", "2026-11-25T25:00:00Z"],
        ),
        ({"type": "string", "enum": ["a", "b"]}, "a", ["c", "A"]),
        (CITY, "bu", ["Seoul", "xx"]),
    ],
)
def test_form_validates_text(field: Mapping[str, Any], right: str, wrong: list[str]) -> None:
    made = form("it", it=field)
    assert values(made, it=right) == {"it": right}
    for each in wrong:
        assert values(made, it=each)["it"].startswith("Invalid value. Expected: "), each


@check_rows(
    ("field", "typed", "value"),
    [
        ({"type": "integer"}, " 3 ", 3),
        ({"type": "integer"}, "3.0", 3),
        ({"type": "number", "minimum": 0}, "1e-3", 0.001),
        ({"type": "boolean"}, "false", False),
        *[
            ({"type": "integer"}, each, None)
            for each in ("3.5", "three", "true", "[1]", "1" * 9999)
        ],
        *[({"type": "number"}, each, None) for each in ("NaN", "Infinity", "1e999", '"1"', "1,5")],
        ({"type": "number", "minimum": 0}, "-1", None),
        ({"type": "integer", "minimum": 1, "maximum": 4}, "0", None),
        ({"type": "integer", "minimum": 1, "maximum": 4}, "5", None),
        ({"type": "boolean"}, "maybe", None),
    ],
)
def test_form_parses_numbers_and_booleans_as_json(
    field: Mapping[str, Any], typed: str, value: Any
) -> None:
    made = form("it", "other", it=field, other={"type": "string", "default": "x"})
    done = values(made, it=typed)
    assert done.get("it") == value if value is not None else "Invalid value" in done["it"]


def test_form_omits_empty_fields() -> None:
    made = form(a={"type": "string"}, b={"type": "string", "default": "x"})
    assert values(made, b="") == {}


@check_rows("default", ["no", 5, None, ["x"], {}, float("nan"), "x" * 5000, [[]], 10**400])
def test_form_ignores_an_invalid_default(default: Any) -> None:
    made = form(
        a={"type": "integer", "maximum": 3, "default": default},
        c={"type": "string", "enum": ["a"], "default": default},
        d={"type": "string", "maxLength": 1, "default": default},
    )
    assert made.typed == {"a": "", "c": "", "d": ""}


@check_rows("default", ["ann\u202eelpmaxe@", "a\u2066b", "a\x00b", "a\u200bb"])
def test_form_ignores_a_default_that_is_not_fully_visible(default: str) -> None:
    assert form(to={"type": "string", "default": default}).typed == {"to": ""}
    lines = form(to={"type": "string", "default": "one\n\ttwo"})
    assert lines.typed == {"to": "one\n\ttwo"}


def test_form_of_one_boolean_is_a_question() -> None:
    asked = {"type": "boolean", "title": "Sell my data", "description": "to anybody"}
    made = form("ok", ok=asked)
    assert (made.fields, made.given, made.words) == (
        *((), {"ok": True}),
        "Sell my data: Yes\nto anybody",
    )
    assert form().fields == ()
    assert [each.kind for each in form(ok={**asked, "default": False}).fields] == [FieldKind.YES_NO]


@check_rows(
    ("wrong", "reason"),
    [
        ({}, "`properties` is not an object"),
        ({"properties": []}, "`properties` is not an object"),
        ({"properties": {}, "required": "a"}, "`required` is not a list"),
        ({"properties": {}, "required": [[]]}, "`required` is not a list"),
        (schema("nowhere", a={"type": "string"}), "`required` is not a list"),
        (schema(a={"type": "object", "properties": {}}), "field 'a': type \"object\""),
        (schema(a={"type": "array", "items": {"type": "string"}}), "field 'a': type \"array\""),
        (schema(a={"type": "array", "items": {"enum": ["x"]}}), "field 'a': type \"array\""),
        (schema(a={"anyOf": [{"type": "string"}, {"type": "null"}]}), "field 'a': `anyOf`"),
        (schema(a={"type": "string", "allOf": []}), "field 'a': `allOf`"),
        (schema(a={"oneOf": [{"type": "string"}]}), "field 'a': its choices are not strings"),
        (schema(a={"oneOf": 5}), "field 'a': its choices are not strings"),
        (schema(a={"enum": [1, 2]}), "field 'a': its choices are not strings"),
        (schema(a={"type": "string", "enum": []}), "field 'a': its choices are not strings"),
        (schema(a={"type": "integer", "enum": ["x"]}), "field 'a': type \"integer\""),
        (schema(a={"type": ["string"]}), "field 'a': type [\"string\"]"),
        (schema(b={"type": "string"}, a={}), "field 'a': type null"),
        (schema(a={"$ref": "#/x"}), "field 'a': `$ref`"),
        ({"properties": {"a": 5}}, "field 'a': its schema is not an object"),
        (schema(**{f"a{n}": {"type": "string"} for n in range(MOST_FIELDS + 1)}), "51 fields"),
        (
            schema(a={"type": "string", "enum": [str(n) for n in range(MOST_CHOICES + 1)]}),
            "field 'a': more than 200 choices",
        ),
    ],
)
def test_form_refuses_unsupported_schemas_with_a_reason(
    wrong: Mapping[str, Any], reason: str
) -> None:
    with pytest.raises(UnsupportedFormError) as caught:
        parse_form(wrong, "", EN)
    assert str(caught.value).startswith(reason)


def test_form_ignores_invalid_limits_and_unknown_keywords() -> None:
    made = form(
        "a",
        a={"type": "string", "minLength": "x", "maxLength": None, "pattern": "(a+)+$", "title": 5},
        b={"type": "integer", "minimum": float("inf"), "maximum": True, "format": ["date"]},
    )
    assert values(made, a="a" * 60 + "!", b="7") == {"a": "a" * 60 + "!", "b": 7}
    assert made.fields[0].label == "a"


@check_rows(
    ("text", "is_secret"),
    [
        ("Your password?", True),
        ("apiKey", True),
        ("user_token", True),
        ("Enter the PIN", True),
        ("카드 번호를 알려 주세요", True),
        ("비밀번호", True),
        ("Pinterest board", False),
        ("Which opinion?", False),
        ("Ihr Name", False),
    ],
)
def test_form_detects_questions_for_secrets(text: str, is_secret: bool) -> None:
    asked = {"type": "string"}
    texts = (schema(a={**asked, "title": text}), schema(a={**asked, "description": text}))
    forms = [parse_form(each, "", EN) for each in (*texts, schema(**{text: asked}))]
    forms.append(parse_form(schema(a=asked), text, EN))
    assert [each.is_secret for each in forms] == [is_secret] * 4


ARGUMENTS = {
    "title": "Tea",
    "day": "2026-06-15",
    "count": 2,
    "is_done": False,
    "note": None,
    "blank": "a\u3164",
    "tags": ["a\u202e", {}],
    "extra": 1,
}
ARGUMENT_SCHEMA = schema(
    "title",
    title={"type": "string", "title": "A title", "default": "Coffee"},
    day={"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$", "maxLength": 10},
    count={"type": "integer"},
    is_done={"type": "boolean"},
    note={"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
    blank={"type": "string"},
    tags={"type": "array"},
    left={"anyOf": [{"type": "number"}, {"type": "null"}]},
)


def test_argument_form_shows_every_argument_exactly() -> None:
    form = argument_form(ARGUMENT_SCHEMA, ARGUMENTS, EN)
    assert {field.name: (str(field.kind), field.format, field.typed) for field in form.fields} == {
        "title": ("text", "", "Tea"),
        "day": ("text", "date", "2026-06-15"),
        "count": ("integer", "", "2"),
        "is_done": ("yes_no", "", "false"),
        "note": ("text", "", None),
        "blank": ("json", "", r'"a\u3164"'),
        "tags": ("json", "", r'["a\u202e",{}]'),
        "left": ("number", "", ""),
        "extra": ("json", "", "1"),
    }
    same = edited_arguments(form, form.typed, ARGUMENTS, EN)
    assert (list(same.values.items()), same.errors) == (list(ARGUMENTS.items()), {})


@check_rows(
    ("typed", "changed"),
    [
        ({"day": "2026-06-16"}, {"day": "2026-06-16"}),
        ({"count": "3", "left": "0.5"}, {"count": 3, "left": 0.5}),
        ({"blank": r'"a\u2800"', "tags": "[]"}, {"blank": "a\u2800", "tags": []}),
        ({"note": "x", "is_done": "true"}, {"note": "x", "is_done": True}),
        ({"left": None}, {"left": None}),
    ],
)
def test_edited_arguments_changes_only_what_was_typed(
    typed: Mapping[str, str | None], changed: Mapping[str, Any]
) -> None:
    catalog = EN
    form = argument_form(ARGUMENT_SCHEMA, ARGUMENTS, catalog)
    done = edited_arguments(form, typed, ARGUMENTS, catalog)
    assert done.values == {**ARGUMENTS, **changed}
    without = edited_arguments(form, dict.fromkeys(typed, ""), ARGUMENTS, catalog)
    assert without.values == {k: v for k, v in ARGUMENTS.items() if k not in typed}
    wrong = edited_arguments(form, {"title": "", "day": "soon", "tags": "["}, ARGUMENTS, catalog)
    assert wrong.errors.keys() == {"title", "day", "tags"}
