"""`assign` and `assign_ordered`: optimal pairs, compared with brute force."""

from collections.abc import Callable, Iterator
from itertools import combinations, permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lhkit.base.errors import ScenarioError
from lhkit.harness.scenarios import assignment
from lhkit.harness.scenarios.assignment import (
    FEW,
    MAX_PARTIALLY_ORDERED,
    Pairs,
    Problem,
    TooManyPairsError,
    assign,
    assign_ordered,
    assign_sparse,
    strictly_ordered,
)
from tests.operations import growth
from tests.rows import check_rows


@st.composite
def problems(draw: Any, most: int = 4) -> Problem:
    n, m = draw(st.integers(0, most)), draw(st.integers(0, most))
    cost = st.none() | st.integers(-1, 6)
    return Problem(
        costs=[[draw(cost) for _ in range(m)] for _ in range(n)],
        left_expected=[draw(st.integers(0, 3)) for _ in range(n)],
        left_actual=[draw(st.integers(0, 3)) for _ in range(m)],
    )


@st.composite
def ordered_problems(draw: Any) -> tuple[Problem, Pairs]:
    problem = draw(problems())
    n = len(problem.costs)
    possible = [(i, k) for i in range(n) for k in range(i + 1, n)]
    return problem, tuple(
        draw(st.lists(st.sampled_from(possible), unique=True)) if possible else ()
    )


def every_assignment(problem: Problem) -> Iterator[Pairs]:
    rows, columns = range(len(problem.costs)), range(len(problem.left_actual))
    for size in range(min(len(rows), len(columns)) + 1):
        for chosen in combinations(rows, size):
            for partners in permutations(columns, size):
                pairs = tuple(zip(chosen, partners, strict=True))
                if all(problem.costs[i][j] is not None for i, j in pairs):
                    yield pairs


def cost_of(problem: Problem, pairs: Pairs) -> int:
    paired, used = {i for i, _ in pairs}, {j for _, j in pairs}
    return (
        sum(problem.costs[i][j] or 0 for i, j in pairs)
        + sum(cost for i, cost in enumerate(problem.left_expected) if i not in paired)
        + sum(cost for j, cost in enumerate(problem.left_actual) if j not in used)
    )


def closed(before: Pairs) -> Pairs:
    """Return the transitive closure of an order."""
    while True:
        more = {(a, d) for a, b in before for c, d in before if b == c} - set(before)
        if not more:
            return before
        before = (*before, *more)


def respects(pairs: Pairs, before: Pairs) -> bool:
    place = dict(pairs)
    return all(place[i] < place[k] for i, k in before if i in place and k in place)


@given(problems())
@settings(deadline=None)
def test_assign_is_as_cheap_as_brute_force(problem: Problem) -> None:
    pairs = assign(problem)
    assert pairs in set(every_assignment(problem))
    assert cost_of(problem, pairs) == min(
        cost_of(problem, each) for each in every_assignment(problem)
    )


@pytest.mark.longer
@given(problems(most=FEW + 2))
@settings(deadline=None, max_examples=50)
def test_assign_with_scipy_is_as_cheap_as_dynamic_programming(problem: Problem) -> None:
    assert cost_of(problem, assign(problem)) == cost_of(problem, assign_ordered(problem, ()))


@given(ordered_problems())
@settings(deadline=None)
def test_assign_ordered_is_as_cheap_as_brute_force(case: tuple[Problem, Pairs]) -> None:
    problem, before = case
    pairs = assign_ordered(problem, before)
    allowed = [each for each in every_assignment(problem) if respects(each, closed(before))]
    assert pairs in allowed
    assert cost_of(problem, pairs) == min(cost_of(problem, each) for each in allowed)


def test_assign_prefers_the_least_crossed_pairs() -> None:
    same = Problem(costs=[[0] * 3] * 3, left_expected=[1] * 3, left_actual=[1] * 3)
    assert assign(same) == ((0, 0), (1, 1), (2, 2))


@check_rows(
    ("before", "message"),
    [
        ([(0, 1), (1, 0)], "cycle"),
        ([(0, 0)], "cycle"),
        ([(0, 1), (1, 2), (2, 0)], "cycle"),
        ([(0, 3)], "out of range"),
        ([(-1, 0)], "out of range"),
    ],
)
def test_assign_ordered_refuses_an_invalid_order(
    before: list[tuple[int, int]], message: str
) -> None:
    with pytest.raises(ScenarioError, match=message):
        assign_ordered(Problem(costs=[[]] * 3, left_expected=[1] * 3, left_actual=[]), before)


@pytest.mark.longer
def test_assign_ordered_handles_a_strict_order_of_many_calls() -> None:
    n = 60
    problem = Problem(costs=[[0] * n] * n, left_expected=[1] * n, left_actual=[1] * n)
    assert assign_ordered(problem, strictly_ordered(n)) == tuple((i, i) for i in range(n))


def test_assign_ordered_refuses_a_partial_order_of_too_many_calls() -> None:
    n = MAX_PARTIALLY_ORDERED + 1
    with pytest.raises(ScenarioError, match="split the turn"):
        assign_ordered(Problem(costs=[[]] * n, left_expected=[1] * n, left_actual=[]), [(0, 1)])


@pytest.mark.longer
@pytest.mark.parametrize("shape", ["every_pair", "only_the_diagonal", "half"])
def test_assign_ordered_is_quadratic_for_a_strict_order(shape: str) -> None:
    def prepare(n: int) -> Callable[[], Pairs]:
        def cost(i: int, j: int) -> int | None:
            fits = {"every_pair": True, "only_the_diagonal": i == j, "half": (i + j) % 2 == 0}
            return 3 if fits[shape] else None

        problem = Problem(
            costs=[[cost(i, j) for j in range(n)] for i in range(n)],
            left_expected=[5] * n,
            left_actual=[5] * n,
        )
        return lambda: assign_ordered(problem, strictly_ordered(n))

    assert growth(prepare, 30) < 4.6
    assert prepare(30)() == tuple((i, i) for i in range(30))


@pytest.mark.longer
@settings(max_examples=40, deadline=None)
@given(st.randoms(use_true_random=False))
def test_assign_sparse_is_as_cheap_as_assign(random: Any) -> None:
    expected, actual = 30, 25
    edges = [
        sorted(random.sample(range(actual), random.choice([0, 1, 1, 2]))) for _ in range(expected)
    ]
    left_actual = [random.choice([0, 1]) for _ in range(actual)]
    problem = Problem(
        costs=[[0 if j in row else None for j in range(actual)] for row in edges],
        left_expected=[1] * expected,
        left_actual=left_actual,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assignment, "_SMALL", 20)  # fewer than these
        pairs = assign_sparse(edges, left_actual)
    assert all(j in edges[i] for i, j in pairs)
    assert len({i for i, _ in pairs}) == len({j for _, j in pairs}) == len(pairs)
    assert cost_of(problem, pairs) == cost_of(problem, assign(problem))
    distance = sum(abs(i - j) for i, j in pairs)
    assert distance == sum(abs(i - j) for i, j in assign(problem))


def test_assign_sparse_refuses_a_part_of_too_many() -> None:
    with pytest.raises(TooManyPairsError):
        assign_sparse([range(600)] * 600, [1] * 600)
