"""Calls and values that other harnesses judge wrongly, decided as a careful person would.

One test a row of the edge-case table of the research, named after who fails it: read each name as
"<peer> does that, we do not".
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from lhkit.harness.matching import MatchResult, match_calls, values_equal

INTEGER = {"type": "integer"}
NUMBER = {"type": "number"}
STRING = {"type": "string"}
ARGUMENTS = {
    "type": "object",
    "properties": {
        "count": INTEGER,
        "share": NUMBER,
        "city": STRING,
        "urgent": {"type": "boolean"},
        "unit": {"type": "string", "default": "metric"},
        "grid": {"type": "array", "items": {"type": "array", "items": NUMBER}},
        "who": {
            "type": "object",
            "properties": {"age": {"type": "integer", "default": 30}, "name": STRING},
            "required": ["name"],
        },
        "labels": {"type": "array", "items": STRING},
        "note": STRING,
    },
    "required": ["count"],
}
SCHEMAS: Mapping[str, Mapping[str, Any]] = {"book": ARGUMENTS, "look": {"type": "object"}}
MAY_BE_LEFT_OUT = {"any": True, "optional": True}


def book(**args: Any) -> dict[str, Any]:
    return {"tool": "book", "args": args}


def judge(
    expected: Sequence[Mapping[str, Any]], actual: Sequence[Mapping[str, Any]], **options: Any
) -> MatchResult:
    return match_calls(expected, actual, schemas=SCHEMAS, **options)


def reason_of(result: MatchResult, name: str) -> str:
    """Return what is said about one argument, and that it is said once."""
    (verdict,) = [each for each in result.arguments if each.name == name and not each.ok]
    return verdict.reason


def test_bfcl_refuses_the_float_1_0_where_the_integer_1_is_meant() -> None:
    assert judge([book(count=1)], [book(count=1.0)]).matched
    assert values_equal(1, 1.0, INTEGER)
    assert not judge([book(count=1)], [book(count=1.5)]).matched


def test_the_integer_1_where_the_float_1_0_is_meant_is_right_as_all_peers_say() -> None:
    assert judge([book(count=1, share=1.0)], [book(count=1, share=1)]).matched
    assert values_equal(1.0, 1, NUMBER)


def test_only_toolsandbox_lets_an_author_allow_for_binary_fractions() -> None:
    summed = [book(count=1, share=0.1 + 0.2)]
    assert not judge([book(count=1, share=0.3)], summed).matched
    assert judge([book(count=1, share={"approx": 0.3})], summed).matched


@pytest.mark.parametrize(("meant", "given"), [(1, True), (0, False), (True, 1), (False, 0)])
def test_tau2_deepeval_pydantic_evals_and_toolsandbox_take_true_for_1(
    meant: Any, given: Any
) -> None:
    name = "urgent" if isinstance(meant, bool) else "count"
    base = {"count": 7}
    assert not judge([book(**(base | {name: meant}))], [book(**(base | {name: given}))]).matched
    assert not values_equal(meant, given, {})


@pytest.mark.parametrize(("meant", "given"), [(1, "1"), ("1", 1), (True, "true"), (None, "null")])
def test_the_gemma_parsers_of_servers_turn_values_into_text_which_stays_wrong(
    meant: Any, given: Any
) -> None:
    assert not values_equal(meant, given, {})
    assert not judge([book(count={"equals": meant})], [book(count=given)]).matched


def test_bfcl_ignores_case_where_nobody_allowed_it() -> None:
    wanted, given = book(count=1, city="New York"), book(count=1, city="new york")
    assert not judge([wanted], [given]).matched
    assert judge([book(count=1, city={"text": "New York"})], [given]).matched


@pytest.mark.parametrize(
    ("meant", "given"),
    [
        ("-5", "5"),
        ("1.5", "15"),
        ("a/b", "ab"),
        ("2024-1-12", "2024-11-2"),
        ("Seoul", "-Seoul"),
    ],
)
def test_bfcl_strips_punctuation_so_that_minus_5_is_5(meant: str, given: str) -> None:
    assert not judge([book(count=1, city=meant)], [book(count=1, city=given)]).matched
    assert not values_equal(meant, given, STRING)


def test_bfcl_refuses_whole_numbers_inside_an_array_of_floats() -> None:
    assert judge([book(count=1, grid=[[1.0, 2.0]])], [book(count=1, grid=[[1, 2]])]).matched
    assert not judge([book(count=1, grid=[[1.0, 2.0]])], [book(count=1, grid=[[1, 3]])]).matched
    assert not judge([book(count=1, grid=[[1.0, 2.0]])], [book(count=1, grid=[[2, 1]])]).matched


def test_bfcl_refuses_a_nested_object_even_when_it_is_equal() -> None:
    who = {"name": "Ada", "age": 3}
    assert judge([book(count=1, who=who)], [book(count=1, who=dict(who))]).matched
    assert not judge([book(count=1, who=who)], [book(count=1, who={**who, "age": 4})]).matched


def test_pydantic_evals_compares_the_top_level_only_where_a_default_is_nested() -> None:
    plain, spelled = {"name": "Ada"}, {"name": "Ada", "age": 30}
    assert judge([book(count=1, who=plain)], [book(count=1, who=spelled)]).matched
    assert judge([book(count=1, who=spelled)], [book(count=1, who=plain)]).matched
    assert not judge([book(count=1, who=plain)], [book(count=1, who={"name": "A"})]).matched


@pytest.mark.parametrize("given", [{"count": 1}, {}])
def test_tau2_and_deepeval_accept_a_call_without_its_arguments(given: dict[str, Any]) -> None:
    result = judge([book(count=1, city="Seoul")], [book(**given)])
    assert not result.matched
    assert reason_of(result, "city") == 'missing: expected "Seoul"'


def test_pydantic_evals_refuses_an_optional_argument_that_is_left_out() -> None:
    wanted = book(count=1, city=MAY_BE_LEFT_OUT)
    assert judge([wanted], [book(count=1)]).matched
    assert judge([wanted], [book(count=1, city="Seoul")]).matched
    only_seoul = book(count=1, city={"equals": "Seoul", "optional": True})
    assert not judge([only_seoul], [book(count=1, city="Busan")]).matched


def test_bfcl_refuses_a_default_that_is_spelled_out() -> None:
    assert judge([book(count=1)], [book(count=1, unit="metric")]).matched
    assert judge([book(count=1, unit="metric")], [book(count=1)]).matched
    assert not judge([book(count=1)], [book(count=1, unit="imperial")]).matched
    assert not judge([book(count=1, unit="imperial")], [book(count=1)]).matched


def test_deepeval_and_toolsandbox_accept_an_argument_that_does_not_exist() -> None:
    result = judge([book(count=1)], [book(count=1, colour="red")])
    assert not result.matched
    assert reason_of(result, "colour") == 'unexpected: got "red"'


@pytest.mark.parametrize("given", [{"labels": []}, {"note": ""}, {"note": "---"}])
def test_bfcl_takes_an_empty_list_or_dashes_for_an_optional_argument(given: Any) -> None:
    named = {name: {"equals": "x", "optional": True} for name in given}
    assert judge([book(count=1, **named)], [book(count=1)]).matched
    assert not judge([book(count=1, **named)], [book(count=1, **given)]).matched
    assert not judge([book(count=1)], [book(count=1, **given)]).matched


@pytest.mark.parametrize("args", [None, [], [1], "count=1", 5])
def test_deepeval_and_agentevals_crash_on_arguments_that_are_no_object(args: Any) -> None:
    result = judge([book()], [{"tool": "book", "args": args}])
    assert not result.matched
    assert reason_of(result, "(all)").startswith("expected an object, got ")


@pytest.mark.parametrize("unexpected", [1, 2, 3])
def test_tau2_and_deepeval_give_full_marks_to_extra_calls(unexpected: int) -> None:
    extra = [book(count=100 + n) for n in range(unexpected)]
    result = judge([book(count=1)], [*extra, book(count=1)])
    assert not result.matched
    assert (result.pairs, result.unexpected) == (((0, unexpected),), tuple(range(unexpected)))


def test_an_extra_read_is_tolerated_where_the_author_says_so_and_a_write_is_not() -> None:
    calls = [{"tool": "look", "args": {}}, book(count=1)]
    assert judge([book(count=1)], calls, extra="reads", reads=["look"]).matched
    assert not judge([book(count=1)], calls, reads=["look"]).matched
    twice = [*calls, book(count=2)]
    assert not judge([book(count=1)], twice, extra="reads", reads=["look"]).matched


def test_tau2_lets_one_call_satisfy_two_identical_expectations() -> None:
    result = judge([book(count=1), book(count=1)], [book(count=1)])
    assert (result.matched, result.missing) == (False, (1,))


def test_deepeval_gives_half_marks_to_a_correct_pair_of_identical_calls() -> None:
    pair = [book(count=1), book(count=1)]
    assert judge(pair, pair).right == ((0, 0), (1, 1))
    assert judge(pair, pair).matched


@pytest.mark.parametrize("given", [(1, 2), (2, 1)])
def test_bfcl_and_deepeval_pair_greedily_and_refuse_what_fits(given: tuple[int, int]) -> None:
    wanted = [book(count={"one_of": [1, 2]}), book(count=1)]
    calls = [book(count=n) for n in given]
    assert judge(wanted, calls).matched
    assert judge(wanted[::-1], calls).matched
    assert not judge(wanted, [book(count=2), book(count=2)]).matched


def test_bfcl_and_tau2_ignore_the_order_where_it_matters() -> None:
    wanted, turned = [book(count=1), book(count=2)], [book(count=2), book(count=1)]
    assert judge(wanted, turned).matched
    assert judge(wanted, turned, order="strict").disorder == ((0, 1),)
    assert not judge(wanted, turned, order=[(0, 1)]).matched
    assert judge(wanted, wanted, order="strict").matched


def test_promptfoo_throws_where_no_call_is_expected() -> None:
    assert judge([], []).matched
    result = judge([], [book(count=1)])
    assert (result.matched, result.unexpected) == (False, (0,))


def test_bfcl_passes_undecodable_text_where_no_call_is_expected() -> None:
    """A call that was written and could not be read reaches the matcher without a name."""
    assert not judge([], [{"tool": "", "args": None}]).matched


@pytest.mark.parametrize("outcome", ["cancelled", "r3_quota", "handler_error"])
def test_pydantic_evals_never_counts_calls_that_were_denied_or_failed(outcome: str) -> None:
    happened = [{**book(count=1), "result": outcome}]
    assert judge([{**book(count=1), "result": outcome}], happened).matched
    assert not judge([{**book(count=1), "result": "ok"}], happened).matched
    assert not judge([], happened).matched


def test_bfcl_raises_for_a_tool_whose_name_has_a_dot() -> None:
    dotted = [{"tool": "geo.book", "args": {"count": 1}}]
    assert match_calls(dotted, dotted, schemas={"geo.book": ARGUMENTS}).matched
    assert not match_calls(dotted, [book(count=1)], schemas={"geo.book": ARGUMENTS}).matched


def test_bfcl_gives_no_account_of_what_is_right_in_a_wrong_call() -> None:
    result = judge([book(count=1, city="Seoul", share=2)], [book(count=1, city="Busan", share=2)])
    assert [(v.name, v.ok) for v in result.arguments] == [
        ("count", True),
        ("city", False),
        ("share", True),
    ]
    assert reason_of(result, "city") == 'expected "Seoul", got "Busan"'
