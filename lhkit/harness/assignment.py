"""Optimal assignment of actual to expected items, by cost. Pure numbers.

Never greedy: exact dynamic programming over the actual items in time, with or without an order,
and SciPy's `linear_sum_assignment` for many items in any order.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from lhkit.errors import ScenarioError, importing

Pairs: TypeAlias = tuple[tuple[int, int], ...]

FEW = 6
"""Most expected items that need no SciPy, whose import takes half a second."""

MAX_PARTIALLY_ORDERED = 16
"""Most expected items under a partial order: the states grow with their subsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The costs of an assignment, in whole numbers, so that sums are exact.

    Attributes:
        costs: `costs[i][j]` of pairing expected `i` with actual `j`, None if they cannot be paired.
        left_expected: the cost of leaving each expected item unpaired.
        left_actual: the cost of leaving each actual item unpaired.
    """

    costs: Sequence[Sequence[int | None]]
    left_expected: Sequence[int]
    left_actual: Sequence[int]


def assign(problem: Problem) -> Pairs:
    """Return the cheapest pairs, sorted; among equally cheap ones, the least crossed."""
    scale = (len(problem.costs) + len(problem.left_actual)) ** 2 + 1
    uncrossed = replace(
        problem,
        costs=[
            [None if cost is None else scale * cost + abs(i - j) for j, cost in enumerate(row)]
            for i, row in enumerate(problem.costs)
        ],
        left_expected=[scale * cost for cost in problem.left_expected],
        left_actual=[scale * cost for cost in problem.left_actual],
    )
    is_few = len(problem.costs) <= FEW
    return assign_ordered(uncrossed, ()) if is_few else _hungarian(uncrossed)


def assign_ordered(problem: Problem, before: Iterable[tuple[int, int]]) -> Pairs:
    """Return the cheapest pairs in which, for (a, b) of `before`, a precedes b.

    The order is transitive, also through an item that stays unpaired.

    Raises:
        ScenarioError: `before` has a cycle or an index out of range, or it is a partial order of
            more than `MAX_PARTIALLY_ORDERED` calls.
    """
    blocked = _ancestors(len(problem.costs), frozenset(before))  # no longer free once i is taken
    best: dict[int, tuple[int, Pairs]] = {(1 << len(blocked)) - 1: (0, ())}
    for j, left in enumerate(problem.left_actual):
        following: dict[int, tuple[int, Pairs]] = {}
        for free, (cost, pairs) in best.items():
            _keep(following, free, cost + left, pairs)
            for i, row in enumerate(problem.costs):
                paired = row[j]
                if paired is not None and free >> i & 1:
                    rest = cost + paired - problem.left_expected[i]
                    _keep(following, free & ~blocked[i], rest, (*pairs, (i, j)))
        best = following
    return tuple(sorted(min(best.values(), key=lambda item: item[0])[1]))


def strictly_ordered(n: int) -> Pairs:
    """Return the total order of `n` items, as pairs of neighbours."""
    return tuple((i, i + 1) for i in range(n - 1))


def transitive(n: int, before: Iterable[tuple[int, int]]) -> Pairs:
    """Return every pair that an order of `n` items implies.

    Raises:
        ScenarioError: as `assign_ordered`.
    """
    ancestors = _ancestors(n, frozenset(before))
    return tuple((a, b) for b in range(n) for a in range(n) if a != b and ancestors[b] >> a & 1)


def _keep(best: dict[int, tuple[int, Pairs]], free: int, cost: int, pairs: Pairs) -> None:
    if free not in best or cost < best[free][0]:
        best[free] = (cost, pairs)


def _ancestors(n: int, before: frozenset[tuple[int, int]]) -> list[int]:
    """Return, for each item, a bit mask of itself and of those that come before it."""
    ancestors = [1 << i for i in range(n)]
    for first, second in before:
        if not (0 <= first < n and 0 <= second < n):
            raise ScenarioError(
                f"order: ({first}, {second}) is out of range: {n} calls are listed, counted from 0"
            )
    for _ in range(n):
        for first, second in before:
            ancestors[second] |= ancestors[first]
    if any(ancestors[first] >> second & 1 for first, second in before):
        raise ScenarioError("order: a call cannot come before itself (cycle): leave out a pair")
    followers = [sum(mask >> i & 1 for mask in ancestors) - 1 for i in range(n)]
    is_total = all(ancestors[i].bit_count() + followers[i] == n for i in range(n))
    if n > MAX_PARTIALLY_ORDERED and before and not is_total:
        raise ScenarioError(
            f"order: {n} calls in a partial order are too many to check: split the turn"
        )
    return ancestors


def load_solver() -> Any:
    """Import and return SciPy's solver.

    The import takes half a second: call this before measuring time with more than `FEW` calls.
    """
    with importing("eval"):
        from scipy.optimize import linear_sum_assignment

    return linear_sum_assignment


def _hungarian(problem: Problem) -> Pairs:
    rows, columns = len(problem.costs), len(problem.left_actual)
    matrix = _square(problem)
    chosen_rows, chosen_columns = load_solver()(matrix)
    return tuple(
        (int(i), int(j))
        for i, j in zip(chosen_rows, chosen_columns, strict=True)
        if i < rows and j < columns
    )


def _square(problem: Problem) -> list[list[int]]:
    """Return the square cost matrix, with a dummy partner for every unpaired item."""
    rows, columns = len(problem.costs), len(problem.left_actual)
    size = rows + columns
    total = sum(problem.left_expected) + sum(problem.left_actual)
    total += sum(abs(cost) for row in problem.costs for cost in row if cost is not None)
    impossible = total + 2
    matrix = [[impossible] * size for _ in range(rows)] + [
        [impossible] * columns + [0] * rows for _ in range(columns)
    ]
    for i, row in enumerate(problem.costs):
        matrix[i][columns + i] = problem.left_expected[i]
        for j, cost in enumerate(row):
            if cost is not None:
                matrix[i][j] = cost
    for j, left in enumerate(problem.left_actual):
        matrix[rows + j][j] = left
    return matrix
