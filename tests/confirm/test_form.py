"""Forms of strangers: which fields they make, and what is taken for a value."""

from collections.abc import Mapping
from typing import Any

import pytest

from lhkit.confirm.form import (
    MOST_CHOICES,
    MOST_FIELDS,
    FieldKind,
    Form,
    expected,
    filled,
    form_of,
)
from lhkit.locales import load_catalog

EN, KO = load_catalog("en"), load_catalog("ko")
CITY = {"type": "string", "oneOf": [{"const": "se", "title": "Seoul"}, {"const": "bu"}]}


def schema(*required: str, **properties: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def form(*required: str, **properties: Mapping[str, Any]) -> Form:
    made = form_of(schema(*required, **properties), "", EN)
    assert made is not None
    return made


def values(made: Form, **typed: str | list[str]) -> Any:
    """Return what a form comes to; its faults where it comes to none."""
    told = {name: [each] if isinstance(each, str) else each for name, each in typed.items()}
    done = filled(made, {**made.typed, **told}, EN)
    return done.faults or done.values


def test_every_kind_that_mcp_knows_is_a_field() -> None:
    made = form(
        "name",
        name={"type": "string", "title": "Your name", "description": "as in the passport"},
        people={"type": "integer", "minimum": 1, "maximum": 4, "default": 2},
        budget={"type": "number"},
        window={"type": "boolean", "default": False},
        city=CITY,
        room={"type": "string", "enum": ["a", "b"], "enumNames": ["Small", "Large"]},
        meals={"type": "array", "items": {"enum": ["lunch", "dinner"]}, "default": ["dinner"]},
        days={"type": "array", "items": {"anyOf": [{"const": "sa", "title": "Saturday"}]}},
        note={"anyOf": [{"type": "string"}, {"type": "null"}], "title": "Note"},
    )
    assert [each.kind.value for each in made.fields] == [
        *("text", "integer", "number", "yes_no", "choice", "choice", "choices", "choices", "text")
    ]
    assert [each.label for each in made.fields][::4] == ["Your name", "city", "Note"]
    assert [each.is_needed for each in made.fields] == [True] + [False] * 8
    assert made.fields[0].about == "as in the passport"
    assert [each.title for each in made.fields[5].choices] == ["Small", "Large"]
    assert values(made) == {"name": "Something has to stand here."}
    assert values(made, name="Kim", city="se", budget="1.5", room="b", meals=[], days=["sa"]) == {
        "name": "Kim",
        "people": 2,
        "budget": 1.5,
        "window": False,
        "city": "se",
        "room": "b",
        "days": ["sa"],
    }


@pytest.mark.parametrize(
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
def test_a_text_is_checked_before_it_is_sent(
    field: Mapping[str, Any], right: str, wrong: list[str]
) -> None:
    made = form("it", it=field)
    assert values(made, it=right) == {"it": right}
    for each in wrong:
        assert values(made, it=each)["it"].startswith("This does not fit. Expected: "), each


@pytest.mark.parametrize(
    ("field", "typed", "value"),
    [
        ({"type": "integer"}, " 3 ", 3),
        ({"type": "integer"}, "3.0", 3),
        ({"type": "number", "exclusiveMinimum": 0}, "1e-3", 0.001),
        ({"type": "boolean"}, "false", False),
        *[
            ({"type": "integer"}, each, None)
            for each in ("3.5", "three", "true", "[1]", "1" * 9999)
        ],
        *[({"type": "number"}, each, None) for each in ("NaN", "Infinity", "1e999", '"1"', "1,5")],
        ({"type": "number", "exclusiveMinimum": 0}, "0", None),
        ({"type": "integer", "minimum": 1, "maximum": 4}, "0", None),
        ({"type": "integer", "minimum": 1, "maximum": 4}, "5", None),
        ({"type": "boolean"}, "maybe", None),
    ],
)
def test_numbers_and_yes_or_no_are_what_json_calls_so(
    field: Mapping[str, Any], typed: str, value: Any
) -> None:
    made = form("it", "other", it=field, other={"type": "string", "default": "x"})
    done = values(made, it=typed)
    assert done.get("it") == value if value is not None else "does not fit" in done["it"]


def test_several_choices_are_counted_and_a_choice_that_is_none_is_refused() -> None:
    items = {"enum": ["a", "b", "c"]}
    made = form("it", it={"type": "array", "items": items, "minItems": 1, "maxItems": 2})
    assert values(made, it=["c", "a"]) == {"it": ["c", "a"]}
    assert values(made, it=[]) == {"it": "Something has to stand here."}
    for wrong in (["a", "b", "c"], ["a", "a"], ["x"]):
        assert values(made, it=wrong)["it"] == (
            "This does not fit. Expected: some of the choices, at least 1, at most 2."
        )
    free = form("it", it={"type": "array", "items": items})
    assert values(free, it=[]) == {"it": []}


def test_what_is_empty_is_left_out_unless_nothing_is_what_stood_there() -> None:
    made = form("a", a={"type": "string", "default": ""}, b={"type": "string", "default": "x"})
    assert values(made, b="") == {"a": ""}


@pytest.mark.parametrize(
    "default", ["no", 5, None, ["x"], {}, float("nan"), "x" * 5000, [[]], 10**400]
)
def test_a_default_that_does_not_fit_is_none(default: Any) -> None:
    made = form(
        a={"type": "integer", "maximum": 3, "default": default},
        b={"type": "array", "items": {"enum": ["a"]}, "default": default},
        c={"type": "string", "enum": ["a"], "default": default},
        d={"type": "string", "maxLength": 1, "default": default},
    )
    assert {name: tuple(typed) for name, typed in made.typed.items()} == dict.fromkeys("abcd", ())


@pytest.mark.parametrize("default", ["ann\u202eelpmaxe@", "a\u2066b", "a\x00b", "a\u200bb"])
def test_a_default_that_reads_otherwise_than_it_is_sent_is_none(default: str) -> None:
    assert form(to={"type": "string", "default": default}).typed == {"to": ()}
    lines = form(to={"type": "string", "default": "one\n\ttwo"})
    assert lines.typed == {"to": ("one\n\ttwo",)}


def test_a_form_of_one_yes_or_no_is_a_question_that_tells_what_a_yes_says() -> None:
    asked = {"type": "boolean", "title": "Sell my data", "description": "to anybody"}
    made = form("ok", ok=asked)
    assert (made.fields, made.given, made.words) == (
        *((), {"ok": True}),
        "Sell my data: Yes\nto anybody",
    )
    assert form().fields == ()
    assert [each.kind for each in form(ok={**asked, "default": False}).fields] == [FieldKind.YES_NO]


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"properties": []},
        {"properties": {}, "required": "a"},
        {"properties": {}, "required": [[]]},
        schema("nowhere", a={"type": "string"}),
        schema(a={"type": "object", "properties": {}}),
        schema(a={"type": "array", "items": {"type": "string"}}),
        schema(a={"type": "array", "items": {"enum": [1]}}),
        schema(a={"enum": [1, 2]}),
        schema(a={"enum": [float("nan")]}),
        schema(a={"type": ["string"]}),
        schema(a={"$ref": "#/x"}),
        {"properties": {"a": 5}},
        schema(**{f"a{n}": {"type": "string"} for n in range(MOST_FIELDS + 1)}),
        schema(a={"type": "string", "enum": [str(n) for n in range(MOST_CHOICES + 1)]}),
    ],
)
def test_what_mcp_does_not_allow_in_a_form_makes_none(wrong: Mapping[str, Any]) -> None:
    assert form_of(wrong, "", EN) is None


def test_limits_that_are_no_numbers_and_unknown_words_are_left_to_the_server() -> None:
    made = form(
        "a",
        a={"type": "string", "minLength": "x", "maxLength": None, "pattern": "(a+)+$", "title": 5},
        b={"type": "integer", "minimum": float("inf"), "maximum": True, "format": ["date"]},
    )
    assert values(made, a="a" * 60 + "!", b="7") == {"a": "a" * 60 + "!", "b": 7}
    assert made.fields[0].label == "a"


@pytest.mark.parametrize(
    ("told", "is_secret"),
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
def test_a_form_that_seems_to_be_after_a_secret_is_known(told: str, is_secret: bool) -> None:
    asked = {"type": "string"}
    texts = (schema(a={**asked, "title": told}), schema(a={**asked, "description": told}))
    forms = [form_of(each, "", EN) for each in (*texts, schema(**{told: asked}))]
    forms.append(form_of(schema(a=asked), told, EN))
    assert [each.is_secret for each in forms if each] == [is_secret] * 4


def test_what_a_field_takes_is_told_in_both_languages() -> None:
    made = form(
        "n",
        "d",
        n={"type": "integer", "minimum": 1, "maximum": 4},
        d={"type": "string", "format": "date"},
    )
    assert [expected(each, EN) for each in made.fields] == [
        "a whole number, at least 1, at most 4",
        "a day such as 2026-11-25",
    ]
    assert [expected(each, KO) for each in made.fields] == [
        "정수, 1 이상, 4 이하",
        "2026-11-25 같은 날짜",
    ]
