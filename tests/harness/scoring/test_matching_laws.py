"""Laws of matching for any JSON value, tool and order, compared with brute force."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lhkit.harness.scoring.matching import MatchResult, match_calls, values_equal

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
ARGS = st.dictionaries(st.sampled_from("abcd"), VALUES, min_size=1, max_size=4)
TYPES = st.sampled_from(["integer", "number", "string", "boolean", "null", "array", "object"])
SCHEMAS = st.recursive(
    TYPES.map(lambda name: {"type": name}) | st.just({}),
    lambda inner: (
        inner.map(lambda each: {"type": "array", "items": each})
        | st.lists(inner, min_size=1, max_size=2).map(lambda each: {"anyOf": each})
        | st.dictionaries(
            st.text(max_size=3),
            st.tuples(inner, VALUES).map(lambda each: {**each[0], "default": each[1]}),
            max_size=3,
        ).map(lambda each: {"type": "object", "properties": each})
    ),
    max_leaves=5,
)


def kind(value: Any) -> str:
    """Return the JSON type of a value; integers and other numbers are one type."""
    if value is None:
        return "null"
    names = {bool: "boolean", int: "number", float: "number", str: "string", list: "array"}
    return names.get(type(value), "object")


def mutants(value: Any) -> Iterator[Any]:
    """Yield everything that differs from `value` in exactly one place."""
    yield [value]
    yield {"value": value}
    match value:
        case None:
            yield from ("null", 0, False, "", [])
        case bool():
            yield from (not value, int(value), str(value).lower(), None)
        case int() | float():
            yield from (str(value), None, math.inf)
            yield value + 1 if isinstance(value, int) else math.nextafter(value, math.inf)
            yield from (bool(value),)
        case str():
            yield from (value + ".", value + " ", " " + value, "-" + value, value + "x", None)
        case list():
            yield from ([*value, None], None, {})
            for i, item in enumerate(value):
                yield value[:i] + value[i + 1 :]
                yield from ([*value[:i], each, *value[i + 1 :]] for each in mutants(item))
        case dict():
            yield from ({**value, "one more": 1}, None, list(value))
            for name, item in value.items():
                yield {key: each for key, each in value.items() if key != name}
                yield from ({**value, name: each} for each in mutants(item))


@given(VALUES)
def test_values_equal_is_true_for_itself_and_false_for_every_mutant(value: Any) -> None:
    assert values_equal(value, value, {})
    for mutant in mutants(value):
        assert not values_equal(value, mutant, {}), mutant
        assert not values_equal(mutant, value, {}), mutant


@given(VALUES, VALUES, SCHEMAS)
def test_values_equal_is_symmetric_under_any_schema(first: Any, second: Any, schema: Any) -> None:
    assert values_equal(first, second, schema) is values_equal(second, first, schema)
    assert values_equal(first, first, schema)


@given(VALUES, VALUES, SCHEMAS)
def test_values_equal_is_false_for_two_types_under_any_schema(
    first: Any, second: Any, schema: Any
) -> None:
    if kind(first) != kind(second):
        assert not values_equal(first, second, schema)


def literal(calls: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"tool": c["tool"], "args": {k: {"equals": v} for k, v in c["args"].items()}} for c in calls
    ]


def mutated(calls: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield the calls with one thing wrong: a value, a name, an argument, the number of calls."""
    for i, call in enumerate(calls):
        before, after = calls[:i], calls[i + 1 :]
        yield before + after
        yield [*before, call, call, *after]
        yield [*before, {**call, "tool": "other"}, *after]
        yield [*before, {**call, "args": {**call["args"], "more": 1}}, *after]
        for name, value in call["args"].items():
            rest = {key: each for key, each in call["args"].items() if key != name}
            yield [*before, {**call, "args": rest}, *after]
            yield [*before, {**call, "args": {**rest, f"{name}_": value}}, *after]
            for each in mutants(value):
                yield [*before, {**call, "args": {**rest, name: each}}, *after]


@pytest.mark.longer
@given(
    st.lists(ARGS.map(lambda args: {"tool": "go", "args": args}), min_size=1, max_size=2),
    st.sampled_from(["any", "strict"]),
)
@settings(max_examples=10, deadline=None)
def test_reference_calls_match_themselves_and_no_mutant(
    calls: list[dict[str, Any]], order: Any
) -> None:
    assert match_calls(literal(calls), calls, schemas={}, order=order).matched
    for wrong in mutated(calls):
        assert not match_calls(literal(calls), wrong, schemas={}, order=order).matched, wrong


# Calls of three tools, `look` only reads; expected take some values of their one argument.
CHOICES = st.sampled_from([(0,), (1,), (0, 1), (1, 2), (0, 1, 2)])
EXPECTED = st.tuples(st.sampled_from(["go", "look"]), CHOICES, st.booleans())
CALL = st.tuples(st.sampled_from(["go", "look", "drop"]), st.integers(0, 2))
ORDERS = st.lists(
    st.sampled_from([(i, k) for i in range(4) for k in range(i + 1, 4)]), unique=True, max_size=4
)


def judged(expected: Any, calls: Any, **options: Any) -> MatchResult:
    return match_calls(
        [
            {"tool": tool, "args": {"n": {"one_of": list(choices)}}, "optional": optional}
            for tool, choices, optional in expected
        ],
        [{"tool": tool, "args": {"n": n}} for tool, n in calls],
        schemas={},
        reads=["look"],
        **options,
    )


def every_pairing(expected: Any, calls: Any) -> Iterator[dict[int, int]]:
    """Yield every way to pair expected with calls that fit them exactly."""
    for size in range(min(len(expected), len(calls)) + 1):
        for chosen in combinations(range(len(expected)), size):
            for partners in permutations(range(len(calls)), size):
                pairs = dict(zip(chosen, partners, strict=True))
                if all(
                    expected[i][0] == calls[j][0] and calls[j][1] in expected[i][1]
                    for i, j in pairs.items()
                ):
                    yield pairs


def implied(before: list[tuple[int, int]], n: int) -> set[tuple[int, int]]:
    """Return the order with all that follows from it (Warshall's algorithm)."""
    reach = {(a, b) for a, b in before if b < n}
    for middle in range(n):
        reach |= {(a, d) for a, b in reach for c, d in reach if b == middle == c}
    return reach


def can_match(expected: Any, calls: Any, before: set[tuple[int, int]], extra: str) -> bool:
    required = {i for i, (_, _, optional) in enumerate(expected) if not optional}
    bad = {
        j
        for j, (tool, _) in enumerate(calls)
        if extra == "none" or (extra == "reads" and tool != "look")
    }
    return any(
        required <= pairs.keys()
        and bad <= set(pairs.values())
        and all(pairs[a] < pairs[b] for a, b in before if a in pairs and b in pairs)
        for pairs in every_pairing(expected, calls)
    )


@given(
    st.lists(EXPECTED, max_size=4),
    st.lists(CALL, max_size=4),
    ORDERS,
    st.sampled_from(["none", "reads", "any"]),
)
def test_match_calls_matches_exactly_when_brute_force_finds_a_pairing(
    expected: Any, calls: Any, before: list[tuple[int, int]], extra: str
) -> None:
    order = [(a, b) for a, b in before if b < len(expected)]
    result = judged(expected, calls, order=order, extra=extra)
    assert result.matched is can_match(expected, calls, implied(order, len(expected)), extra)
    assert judged(expected, calls, extra=extra).matched is can_match(expected, calls, set(), extra)


@given(st.lists(EXPECTED, max_size=4), st.lists(CALL, max_size=4))
def test_match_calls_pairs_as_many_right_calls_as_possible(expected: Any, calls: Any) -> None:
    expected = [(tool, choices, False) for tool, choices, _ in expected]
    most = max(len(pairs) for pairs in every_pairing(expected, calls))
    assert len(judged(expected, calls).right) == most


@given(st.lists(EXPECTED, max_size=4), st.lists(CALL, max_size=4), st.randoms())
def test_match_calls_without_order_ignores_the_order_of_both_lists(
    expected: Any, calls: Any, random: Any
) -> None:
    shuffled = judged(random.sample(expected, len(expected)), random.sample(calls, len(calls)))
    straight = judged(expected, calls)
    assert shuffled.matched is straight.matched
    assert len(shuffled.missing) == len(straight.missing)
    assert len(shuffled.unexpected) == len(straight.unexpected)


@given(st.lists(EXPECTED, max_size=4), st.lists(CALL, max_size=4), st.sampled_from(["none", "any"]))
def test_match_calls_accounts_for_every_call_once(expected: Any, calls: Any, extra: str) -> None:
    result = judged(expected, calls, extra=extra)
    assert sorted([*(j for _, j in result.pairs), *result.unexpected, *result.allowed]) == list(
        range(len(calls))
    )
    required = {i for i, (_, _, optional) in enumerate(expected) if not optional}
    assert {i for i, _ in result.pairs} | set(result.missing) >= required
    assert not {i for i, _ in result.pairs} & set(result.missing)


@pytest.mark.parametrize("is_first_optional", [True, False])
def test_wrong_call_is_paired_with_a_required_expectation(*, is_first_optional: bool) -> None:
    expected = [("go", (1,), is_first_optional), ("go", (1,), not is_first_optional)]
    result = judged(expected, [("go", 0)])
    assert (result.matched, result.missing) == (False, ())
    assert result.reasons == ("go.n: expected one of 1, got 0",)


WITH_DEFAULTS = {
    "type": "object",
    "properties": {
        "own": {"type": "integer", "default": 1},
        "referred": {"$ref": "#/$defs/Unit"},
        "joined": {"allOf": [{"$ref": "#/$defs/Unit"}, {"maxLength": 9}]},
        "listed": {"items": {"properties": {"n": {"$ref": "#/$defs/N"}}}},
    },
    "allOf": [{"properties": {"elsewhere": {"default": [1]}}}, {"$ref": "#/$defs/More"}],
    "$defs": {
        "Unit": {"type": "string", "default": "kg"},
        "N": {"allOf": [{"type": "integer", "default": 0}]},
        "More": {"properties": {"more": {"default": None}, "own": {"maximum": 9}}},
    },
}
DEFAULTS = {
    "own": 1, "referred": "kg", "joined": "kg", "elsewhere": [1], "more": None,
}  # fmt: skip
GIVEN = st.fixed_dictionaries(
    {},
    optional={
        "own": st.sampled_from([1, 1.0, 2]),
        "referred": st.sampled_from(["kg", "g"]),
        "joined": st.sampled_from(["kg", "g"]),
        "listed": st.lists(st.sampled_from([{}, {"n": 0}, {"n": 1}]), max_size=2),
        "elsewhere": st.sampled_from([[1], [1.0], []]),
        "more": st.none() | st.just("x"),
    },
)


def spelled_out(args: Mapping[str, Any]) -> dict[str, Any]:
    listed = {"listed": [{"n": 0, **each} for each in args["listed"]]} if "listed" in args else {}
    return {**DEFAULTS, **args, **listed}


@given(GIVEN, GIVEN)
@settings(deadline=None)
def test_match_calls_is_unaffected_by_spelling_out_defaults(
    wanted: dict[str, Any], given_args: dict[str, Any]
) -> None:
    verdicts = {
        match_calls(
            [{"tool": "t", "args": expected}],
            [{"tool": "t", "args": actual}],
            schemas={"t": WITH_DEFAULTS},
        ).matched
        for expected in (wanted, spelled_out(wanted))
        for actual in (given_args, spelled_out(given_args))
    }
    meant = values_equal(spelled_out(wanted), spelled_out(given_args), WITH_DEFAULTS)
    assert verdicts == {meant}
    assert values_equal(wanted, given_args, WITH_DEFAULTS) is meant


@pytest.mark.parametrize("names", [("메모", "\u1106\u1166\u1106\u1169")])
def test_argument_names_compare_in_nfc(names: tuple[str, str]) -> None:
    for expected_name, given_name, declared in permutations(names * 2, 3):
        schema = {"type": "object", "properties": {declared: {"default": 1}}}
        called = [{"tool": "t", "args": {given_name: 2}}]
        expected = [{"tool": "t", "args": {expected_name: 2}}]
        assert match_calls(expected, called, schemas={"t": schema}).matched
        left_out = [{"tool": "t", "args": {}}]
        expected_default = [{"tool": "t", "args": {expected_name: 1}}]
        assert match_calls(expected_default, left_out, schemas={"t": schema}).matched
        both = [{"tool": "t", "args": dict.fromkeys(names, 2)}]
        assert not match_calls(expected, both, schemas={"t": {}}).matched  # one is unexpected


def test_arguments_compare_under_the_schema_branch_that_fits_best() -> None:
    schema = {
        "type": "object",
        "properties": {"kind": {}},
        "oneOf": [
            {"properties": {"kind": {"const": "a"}, "n": {"default": 1}}},
            {"properties": {"kind": {"const": "b"}, "n": {"default": 2}}},
        ],
    }
    expected = [{"tool": "t", "args": {"kind": "b", "n": 2}}]
    assert match_calls(
        expected, [{"tool": "t", "args": {"kind": "b"}}], schemas={"t": schema}
    ).matched
