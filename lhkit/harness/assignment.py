"""The cheapest way to pair what was expected with what happened. Numbers only, no tools.

Optimal, never greedy: exact dynamic programming over the calls in time, with an order or
without, and SciPy's `linear_sum_assignment` where many calls come in any order.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from lhkit.errors import ScenarioError

Pairs: TypeAlias = tuple[tuple[int, int], ...]

FEW = 6
"""Expected calls that are paired here. For more it is SciPy, whose import takes half a second."""

MAX_PARTIALLY_ORDERED = 16
"""Expected calls under a partial order: the states grow with their subsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What pairing costs, in whole numbers, so that sums are exact.

    `costs[i][j]` pairs expected `i` with actual `j`, None where they cannot be paired.
    `left_expected[i]` and `left_actual[j]` are the costs of leaving one unpaired.
    """

    costs: Sequence[Sequence[int | None]]
    left_expected: Sequence[int]
    left_actual: Sequence[int]


def assign(problem: Problem) -> Pairs:
    """Return the cheapest pairs, sorted; among equally cheap ones, the least crossed."""
    uncrossed = _uncrossed(problem)
    is_few = len(problem.costs) <= FEW
    return assign_ordered(uncrossed, ()) if is_few else _hungarian(uncrossed)


def assign_ordered(problem: Problem, before: Iterable[tuple[int, int]]) -> Pairs:
    """Return the cheapest pairs in which, for each (a, b) of `before`, a happens before b.

    The order is transitive, also through a call that stays unpaired.

    Raises:
        ScenarioError: `before` is a cycle, names a call that is not there, or binds only some of
            more than `MAX_PARTIALLY_ORDERED` calls.
    """
    blocked = _ancestors(len(problem.costs), frozenset(before))  # once i is taken, these are late
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
    return tuple(sorted(min(best.values(), key=lambda each: each[0])[1]))


def strictly_ordered(n: int) -> Pairs:
    """Return the order in which each of `n` comes before the next."""
    return tuple((i, i + 1) for i in range(n - 1))


def transitive(n: int, before: Iterable[tuple[int, int]]) -> Pairs:
    """Return every pair that an order of `n` calls implies.

    Raises:
        ScenarioError: as `assign_ordered`.
    """
    ancestors = _ancestors(n, frozenset(before))
    return tuple((a, b) for b in range(n) for a in range(n) if a != b and ancestors[b] >> a & 1)


def _keep(best: dict[int, tuple[int, Pairs]], free: int, cost: int, pairs: Pairs) -> None:
    if free not in best or cost < best[free][0]:
        best[free] = (cost, pairs)


def _ancestors(n: int, before: frozenset[tuple[int, int]]) -> list[int]:
    """Return, for each expected call, the bits of itself and of those that come before it."""
    ancestors = [1 << i for i in range(n)]
    for first, second in before:
        if not (0 <= first < n and 0 <= second < n):
            raise ScenarioError(
                f"order: ({first}, {second}) names a call that is not there: {n} stand here, "
                "counted from 0"
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


def _uncrossed(problem: Problem) -> Problem:
    """Return the problem with a small price on crossing pairs, for which costs are scaled up."""
    scale = (len(problem.costs) + len(problem.left_actual)) ** 2 + 1
    return replace(
        problem,
        costs=[
            [None if cost is None else scale * cost + abs(i - j) for j, cost in enumerate(row)]
            for i, row in enumerate(problem.costs)
        ],
        left_expected=[scale * cost for cost in problem.left_expected],
        left_actual=[scale * cost for cost in problem.left_actual],
    )


def load_solver() -> Any:
    """Import SciPy's solver and return it.

    It takes half a second: whoever measures time, and has more than `FEW` calls, calls this before.
    """
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
    """Return the assignment matrix with a place for everyone who stays alone."""
    rows, columns = len(problem.costs), len(problem.left_actual)
    size = rows + columns
    everything = [*problem.left_expected, *problem.left_actual, 1]
    everything += [abs(cost) for row in problem.costs for cost in row if cost is not None]
    impossible = sum(everything) + 1
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
