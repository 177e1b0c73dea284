"""`match_calls` and `values_equal`: matchers, orders, results, pairing; laws are elsewhere."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import date
from typing import Any

import pytest

from lhkit.base.errors import ScenarioError
from lhkit.harness.scenarios.scenario import ExpectedCall
from lhkit.harness.scoring.matching import MatchResult, match_calls, values_equal
from tests.operations import growth
from tests.rows import check_rows

SCHEMA = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "x": {"type": "number"},
        "city": {"type": "string"},
        "unit": {"type": "string", "default": "metric"},
        "grid": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
        "who": {"type": "object", "properties": {"age": {"type": "integer", "default": 30}}},
        "flag": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "note": {"type": "string"},
    },
}
SCHEMAS = {"go": SCHEMA, "look": {"type": "object"}, "drop": {"type": "object"}}
TODAY = date(2026, 6, 15)
OPTIONAL = {"any": True, "optional": True}


def go(**args: Any) -> dict[str, Any]:
    return {"tool": "go", "args": args}


def match(
    expected: Sequence[dict[str, Any]], actual: Sequence[dict[str, Any]], **options: Any
) -> MatchResult:
    return match_calls(expected, actual, schemas=SCHEMAS, reads={"look"}, today=TODAY, **options)


def test_match_calls_reads_left_out_arguments_as_none() -> None:
    assert match([{"tool": "go", "args": None}], [go()]).matched
    assert not match([{"tool": "go"}], [go(n=1)]).matched


@check_rows(
    ("matcher", "fitting", "wrong"),
    [
        ({"equals": {"any": True}}, [{"any": True}], [{"any": 1}, 1]),
        ({"one_of": [1, {"matches": "^a"}]}, [1, 1.0, "ab"], [2, "ba", True]),
        ({"any": True}, [None, 0, {}, "x"], []),
        ({"matches": "b.d"}, ["abcde"], ["b", 5, None]),
        ({"matches": "^각$"}, ["\u1100\u1161\u11a8"], ["각각"]),
        ({"approx": 10, "abs": 1}, [9, 10.9, 11], [11.01, "10", True]),
        ({"approx": 10, "rel": 0.1}, [9, 11], [8.9]),
        ({"approx": 1}, [1, 1.0, 1 + 1e-12], [1.001, 10**400]),
        ({"approx": 0.3}, [0.1 + 0.2], [0.31]),
        ({"date": "today"}, ["2026-06-15"], ["2026-06-14", "2026-06-15T00:00", 5]),
        ({"date": "today-1d"}, ["2026-06-14"], ["2026-06-15"]),
        ({"date": "2026-01-02"}, ["2026-01-02"], ["2026-1-2"]),
        ({"text": "  Hello\nWORLD "}, ["hello world", "HELLO  world"], ["helloworld", 5]),
        ({"fields": {"a": 1, "b": OPTIONAL}}, [{"a": 1}, {"a": 1.0, "b": 2}], [{"b": 2}, 5]),
        ({"fields": {"a": 1}}, [{"a": 1}], [{"a": 1, "c": 2}]),
        ({"fields": {"a": {"fields": {}}}, "extra": True}, [{"a": {}, "c": 2}], [{"a": {"x": 1}}]),
        ({"items": [1, {"any": True}]}, [[1, 5]], [[5, 1], [1], [1, 2, 3], "15"]),
        ({"items": []}, [[]], [[1]]),
        ({"items": [1, {"equals": 2, "optional": True}, 3]}, [[1, 3], [1, 2, 3]], [[1, 2], [3, 1]]),
        (
            {"items": [{"one_of": [1, 2]}, 1], "unordered": True},
            [[1, 2], [2, 1]],
            [[1, 3], [2, 2], [1]],
        ),
        ({"a": {"any": True}}, [{"a": {"any": True}}], [{"a": 5}]),
    ],
)
def test_matcher_accepts_and_rejects_values(
    matcher: Any, fitting: list[Any], wrong: list[Any]
) -> None:
    schemas = {"t": {"type": "object"}}
    expected = [{"tool": "t", "args": {"v": matcher}}]

    def fits(value: Any) -> bool:
        actual = [{"tool": "t", "args": {"v": value}}]
        return match_calls(expected, actual, schemas=schemas, today=TODAY).matched

    assert [value for value in fitting if not fits(value)] == []
    assert [value for value in wrong if fits(value)] == []


@check_rows(
    ("matcher", "reason"),
    [
        (1, "expected 1, got 9"),
        ({"one_of": [1, {"text": "a"}]}, 'expected one of 1, the text "a", got 9'),
        ({"matches": "^a"}, "expected a text matching /^a/, got 9"),
        ({"approx": 1}, "expected about 1, got 9"),
        ({"date": "today-1d"}, "expected 2026-06-14 (today-1d), got 9"),
        ({"fields": {"a": 1}}, "expected an object, got 9"),
        ({"items": [1]}, "expected an array, got 9"),
        ({"one_of": [{"fields": {"a": 1}}, {"items": []}]}, "one of an object with a, an array of"),
    ],
)
def test_reason_names_expected_and_actual_value(matcher: Any, reason: str) -> None:
    (verdict,) = match([go(n=matcher)], [go(n=9)]).arguments
    assert reason in verdict.reason


def test_reason_names_the_path_inside_a_value() -> None:
    expected = go(who={"fields": {"names": {"items": [1, 2]}}})
    (verdict,) = match([expected], [go(who={"names": [1, 3]})]).arguments
    assert verdict.reason == "names: item 1: expected 2, got 3"
    (verdict,) = match([expected], [go(who={})]).arguments
    assert verdict.reason == "names: missing: expected an array of 2"


@check_rows(
    "matcher",
    [
        {"one_of": []},
        {"one_of": 1},
        {"one_of": [{"any": True, "optional": True}]},
        {"any": False},
        {"matches": "("},
        {"approx": "1"},
        {"approx": True},
        {"approx": 1, "abs": -1},
        {"date": "someday"},
        {"date": "2026-02-30"},
        {"text": 5},
        {"fields": []},
        {"fields": {"a": {"matches": "["}}},
        {"items": {}},
        {"equals": 1, "any": True},
        {"text": "a", "extra": True},
        {"any": True, "optional": "yes"},
    ],
)
def test_match_calls_refuses_an_invalid_matcher(matcher: Any) -> None:
    with pytest.raises(ScenarioError):
        match([go(n=matcher)], [go(n=1)])


@check_rows(
    ("expected", "options"),
    [
        ([{"args": {}}], {}),
        ([{"tool": "go", "args": []}], {}),
        ([go()], {"order": "backwards"}),
        ([go()], {"order": [0]}),
        ([go(), go()], {"order": [(0, 1), (1, 0)]}),
        ([go()], {"order": [(0, 7)]}),
    ],
)
def test_match_calls_refuses_an_invalid_expectation(
    expected: list[dict[str, Any]], options: dict[str, Any]
) -> None:
    with pytest.raises(ScenarioError):
        match(expected, [], **options)


def test_relative_date_needs_a_clock() -> None:
    with pytest.raises(ScenarioError, match="clock"):
        match_calls([go(city={"date": "today"})], [go(city="2026-06-15")], schemas=SCHEMAS)


@pytest.mark.parametrize(
    ("extra", "matched", "unexpected", "allowed"),
    [("none", False, (0, 2), ()), ("reads", False, (2,), (0,)), ("any", True, (), (0, 2))],
)
def test_extra_decides_which_unexpected_calls_are_allowed(
    extra: str, *, matched: bool, unexpected: tuple[int, ...], allowed: tuple[int, ...]
) -> None:
    calls = [{"tool": "look"}, go(n=1), {"tool": "drop"}]
    result = match([go(n=1)], calls, extra=extra)
    assert (result.matched, result.unexpected, result.allowed) == (matched, unexpected, allowed)


@check_rows(
    ("order", "matched"),
    [("any", True), ("strict", False), ([(0, 1)], True), ([(1, 2)], False), ([[0, 2]], False)],
)
def test_order_is_any_strict_or_partial(order: Any, *, matched: bool) -> None:
    expected = [go(n=1), go(n=2), go(n=3)]
    result = match(expected, [go(n=3), go(n=1), go(n=2)], order=order)
    assert result.matched is matched
    assert bool(result.disorder) is not matched
    assert (result.missing, result.unexpected) == ((), ())


def test_order_decides_between_equally_good_pairings() -> None:
    expected = [go(n={"any": True}), go(n={"any": True}), go(n={"any": True})]
    result = match(expected, [go(n=1), go(n=2), go(n=3)], order=[(2, 0)])
    assert result.matched


def test_order_is_transitive_through_a_left_out_optional_call() -> None:
    expected = [go(n=1), {"tool": "look", "args": {}, "optional": True}, go(n=2)]
    for order in ("strict", [(0, 1), (1, 2)]):
        assert match(expected, [go(n=1), go(n=2)], order=order).matched
        reversed_calls = match(expected, [go(n=2), go(n=1)], order=order)
        assert (reversed_calls.matched, reversed_calls.disorder) == (False, ((0, 2),))


def test_allowed_read_is_paired_with_a_fitting_optional_call() -> None:
    result = match([{"tool": "look", "optional": True}], [{"tool": "look"}], extra="reads")
    assert (result.pairs, result.allowed) == (((0, 0),), ())


def test_expected_result_decides_the_pairing() -> None:
    expected = [{**go(n=1), "result": "ok"}, {**go(n=1), "result": "r1_blank"}]
    actual = [{**go(n=1), "result": "r1_blank"}, {**go(n=1), "result": "ok"}]
    assert match(expected, actual).pairs == ((0, 1), (1, 0))
    refused = match(expected[:1], actual[:1])
    assert refused.reasons == ("go: expected the result ok, got r1_blank",)
    assert refused.right == ((0, 0),)


def test_missing_and_unexpected_arguments_have_reasons() -> None:
    result = match([go(n=1, city="a")], [go(n=2, note="b")])
    assert {v.name: v.reason for v in result.arguments} == {
        "n": "expected 1, got 2",
        "city": 'missing: expected "a"',
        "note": 'unexpected: got "b"',
    }
    assert result.pairs == ((0, 0),)
    assert (result.missing, result.unexpected) == ((), ())


@pytest.mark.longer
def test_match_calls_of_few_calls_does_not_import_scipy() -> None:
    program = (
        "import sys; from lhkit.harness.scoring.matching import match_calls; "
        "one = [{'tool': 't', 'args': {'n': 1}}]; "
        "assert match_calls(one, one, schemas={}).matched; "
        "print('scipy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.strip() == b"False"


def test_optional_argument_may_be_left_out_but_not_wrong_or_empty() -> None:
    expected = [go(n=1, note={"equals": "x", "optional": True})]
    assert match(expected, [go(n=1)]).matched
    assert match(expected, [go(n=1, note="x")]).matched
    assert not match(expected, [go(n=1, note="")]).matched
    assert not match([go(n=1)], [go(n=1, note="")]).matched


@pytest.mark.parametrize("args", [None, [1], "n=1"])
def test_arguments_that_are_not_an_object_are_wrong_as_a_whole(args: Any) -> None:
    result = match([go()], [{"tool": "go", "args": args}])
    assert [(v.name, v.ok) for v in result.arguments] == [("(all)", False)]
    assert result.arguments[0].reason.startswith("expected an object, got ")


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


@check_rows(
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


@check_rows(
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


def test_unordered_items_compare_a_right_list_item_by_item() -> None:
    def prepare(n: int) -> Callable[[], object]:
        items = [*range(n)]
        expected = {"tool": "t", "args": {"x": {"items": items, "unordered": True}}}
        parsed = [ExpectedCall(**expected)]
        actual = [{"tool": "t", "args": {"x": items}}]
        return lambda: match_calls(parsed, actual, schemas={})

    assert growth(prepare, 40) < 2.6


def test_match_calls_refuses_more_than_can_be_compared_with_each_other() -> None:
    call = {"tool": "t", "args": {}}
    with pytest.raises(ScenarioError, match=r"calls of t: 600 expected and 601 actual"):
        match_calls([call] * 600, [call] * 601, schemas={})
    many = {"tool": "t", "args": {"x": {"items": [*range(600)]}}}
    with pytest.raises(ScenarioError, match="items: 600 expected and 601 actual"):
        match_calls([many], [{"tool": "t", "args": {"x": [*range(601)]}}], schemas={})


@pytest.mark.longer
@pytest.mark.parametrize("more", [{}, {"unordered": True}])
def test_match_calls_compares_lists_of_wrong_calls_briefly(more: dict[str, Any]) -> None:
    def prepare(size: int) -> Any:
        items = {"items": [{"matches": "tea"}] * size, **more}
        expected = [{"tool": "t", "args": {"x": {"fields": {"y": items}}}}] * 8
        actual = [{"tool": "t", "args": {"x": {"y": [f"milk {n}"] * size}}} for n in range(8)]
        return lambda: match_calls(expected, actual, schemas={})

    assert growth(prepare, 10) < 3.2  # 8 of 64 pairs need each item with each
