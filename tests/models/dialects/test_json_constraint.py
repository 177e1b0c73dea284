"""What is refused before it can be constrained halfway, and number ranges digit by digit."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.errors import UsageError
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.digit_ranges import decimals, integers
from lhkit.models.dialects.json_pattern import PatternError, shape_of

DIALECT = DIALECTS["json"]


def tool(name: str = "f", **properties: Any) -> dict[str, Any]:
    return {
        "name": name,
        "description": "",
        "parameters": {"type": "object", "properties": properties},
    }


def regex(ebnf: str) -> re.Pattern[str]:
    """Read an expression without rules and without blanks in its strings as a regex."""
    quoted = re.sub(r'"([^"]*)"', lambda text: f"(?:{re.escape(text[1])})", ebnf)
    return re.compile(quoted.replace(" ", ""))


# --- the request's fields


def test_off_sends_nothing() -> None:
    assert DIALECT.constrain([tool(a={"type": "nonsense"})], "off") == {}


def test_without_tools_auto_has_nothing_to_constrain_and_required_nothing_to_call() -> None:
    assert DIALECT.constrain([], "auto") == {}
    with pytest.raises(UsageError, match="there is no tool: give --constrain off or auto"):
        DIALECT.constrain([], "required")


def test_a_word_that_is_no_constraint_is_refused() -> None:
    wrong: Any = "Auto"
    with pytest.raises(UsageError, match="no constraint 'Auto': choose one of off, auto, required"):
        DIALECT.constrain([tool()], wrong)


@pytest.mark.parametrize("constraint", ["auto", "required"])
def test_the_same_tools_give_the_same_grammar_so_that_the_server_compiles_once(
    constraint: Any,
) -> None:
    tools = [tool("f", a={"type": "string"}), tool("습관", b={"type": "integer"})]
    fields = DIALECT.constrain(tools, constraint)
    assert fields == DIALECT.constrain(tools, constraint)
    assert set(fields) == {"structured_outputs"}
    assert set(fields["structured_outputs"]) == {"grammar"}


# --- what is not understood is refused, by name


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({}, "type"),
        (True, "true/false"),
        ({"type": "date"}, "type"),
        ({"type": "integer", "multipleOf": 5}, "multipleOf"),
        ({"type": "number", "minimum": 0.5}, "minimum"),
        ({"type": "number", "minimum": 0, "exclusiveMinimum": 0}, "exclusiveMinimum"),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0}, "minimum"),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "minimum"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "minLength"),
        ({"type": "string", "pattern": "a"}, "pattern"),
        ({"type": "string", "pattern": "^a|b$"}, "pattern"),
        ({"type": "string", "pattern": r"^\d{4}$", "maxLength": 3}, "pattern"),
        ({"type": "string", "pattern": r"^\d*$", "minLength": 1}, "pattern"),
        ({"type": "array"}, "type"),
        ({"type": "array", "items": {"type": "null"}, "uniqueItems": True}, "uniqueItems"),
        ({"type": "array", "items": {"type": "null"}, "minItems": 2, "maxItems": 1}, "minItems"),
        ({"type": "object"}, "object"),
        ({"type": "object", "properties": {"b": {"not": {}}}}, "type"),
        ({"type": "object", "properties": {"b": {}}, "minProperties": 1}, "minProperties"),
        (
            {"type": "object", "properties": {"b": {"type": "null"}}, "required": ["c"]},
            "required",
        ),
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
def test_a_keyword_that_cannot_be_constrained_is_refused_with_its_tool_and_place(
    schema: Any, keyword: str
) -> None:
    with pytest.raises(UsageError) as refused:
        DIALECT.constrain([tool("good"), tool("메모", a=schema)], "auto")
    sentence = str(refused.value)
    assert sentence.startswith(f"tool '메모': decoding cannot be constrained by '{keyword}' at a")
    assert sentence.endswith("change the schema or give --constrain off")


def test_a_schema_that_holds_itself_is_refused() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    recursive = tool(a={"$ref": "#/$defs/Node"})
    recursive["parameters"]["$defs"] = {"Node": node}
    with pytest.raises(UsageError, match=r"'\$ref' at a\.next.*: it goes too deep"):
        DIALECT.constrain([recursive], "required")


# --- numbers


@given(st.integers(-5000, 5000), st.integers(0, 3000), st.integers(-9999, 9999))
def test_a_range_of_integers_is_exactly_that(low: int, width: int, number: int) -> None:
    high = low + width
    pattern = regex(integers(low, high))
    for each in (number, low - 1, low, high, high + 1):
        assert bool(pattern.fullmatch(str(each))) == (low <= each <= high)
    assert not pattern.fullmatch(f"0{max(low, 1)}")


@given(
    st.integers(-50, 50), st.integers(1, 300), st.floats(-400, 400), st.booleans(), st.booleans()
)
def test_a_range_of_numbers_is_exactly_that(
    low: int, width: int, number: float, low_open: bool, high_open: bool
) -> None:
    high = low + width
    pattern = regex(decimals(low, high, low_open=low_open, high_open=high_open))
    for each in (round(number, 3), float(low), low, low + 0.001, high, high + 0.5, low - 0.5):
        is_inside = low <= each <= high and not (
            (low_open and each == low) or (high_open and each == high)
        )
        if str(each) != "-0.0" and "e" not in str(each):
            assert bool(pattern.fullmatch(str(each))) == is_inside


def test_a_single_number_is_a_range_and_an_open_one_is_none() -> None:
    assert regex(decimals(7, 7)).fullmatch("7.0")
    with pytest.raises(ValueError, match="nothing lies between"):
        decimals(7, 7, low_open=True)


# --- patterns


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        (r"^\d{4}-\d{2}-\d{2}$", ["2026-06-15"], ["2026-6-15", "2026-06-15 ", "２026-06-15"]),
        (r"^(?:am|pm)?\w+$", ["am7", "x", "pm_9"], ["", "am 7"]),
        (r"^[가-힣]{1,3}\.?$", ["물", "물마심."], ["water", "물마시기다"]),
        (r"^[^a-c\]]{2,}$", ["de", "한글"], ["da", "d", "d]"]),
        (r"^(a|bc(d|e)){0,2}-?$", ["", "abcd-", "aa"], ["aaa", "bc"]),
        (r"^[-+]$", ["-", "+"], [","]),
    ],
)
def test_a_pattern_keeps_its_meaning(pattern: str, yes: list[str], no: list[str]) -> None:
    shape = shape_of(pattern)
    same = regex(shape.ebnf)
    assert all(same.fullmatch(text) and re.search(pattern, text) for text in yes)
    assert not any(same.fullmatch(text) for text in no)
    assert all(shape.shortest <= len(text) <= shape.longest for text in yes)


@pytest.mark.parametrize(
    "pattern",
    [
        *("a", "^a", "a$", "^a\\$", "^a|b$", "^(?=a)a$", r"^\bа$", r"^\u0041$", "^(a$", "^a)$"),
        *("^[a$", "^a**$", "^a{2$", "^a{2,1}$", "^[[:alpha:]]$", "^[!-z]$", "^{$", "^a^b$"),
        *("^[z-a]$", "^(a{1,3}){2}+$"),
    ],
)
def test_a_pattern_that_is_not_understood_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        shape_of(pattern)
