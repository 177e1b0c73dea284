"""Optimal assignment of actual to expected items, by cost. Pure numbers.

Never greedy: exact dynamic programming over the actual items in time, with or without an order,
and SciPy's `linear_sum_assignment` for many items in any order.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from operator import itemgetter
from typing import Any, TypeAlias

from lhkit.base.errors import ScenarioError, importing

Pairs: TypeAlias = tuple[tuple[int, int], ...]
_Linked: TypeAlias = tuple[Any, tuple[int, int]] | None
"""Pairs as a linked list, of which a step copies none."""

FEW = 6
"""Most expected items that need no SciPy, whose import takes half a second."""

MAX_PAIRS = 250_000
"""Most pairs of items of which each may be compared with each: 500 x 500."""

_SMALL = 200
"""Most items that are assigned at once although few fit each other."""

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


class TooManyPairsError(Exception):
    """More pairs than `max_pairs` are possible."""


def max_pairs(items: int) -> int:
    """Return the most pairs that are compared for so many items: `MAX_PAIRS`, or 16 an item."""
    return max(MAX_PAIRS, 16 * items)


def require_few_pairs(where: str, first: int, second: int) -> None:
    """Check that each of the first items may be compared with each of the second.

    Raises:
        ScenarioError: that takes too long.
    """
    if first * second > max_pairs(first + second):
        raise ScenarioError(
            f"{where}: {first} expected and {second} actual ones are too many to compare each with "
            "each: expect fewer"
        )


def assign(problem: Problem) -> Pairs:
    """Return the cheapest pairs, sorted; among equally cheap ones, the least crossed."""
    rows, columns = range(len(problem.costs)), range(len(problem.left_actual))
    return _assign_uncrossed(problem, rows, columns, _scale(len(rows) + len(columns)))


def assign_sparse(edges: Sequence[Sequence[int]], left_actual: Sequence[int]) -> Pairs:
    """Return what `assign` does for costs of 0 and 1, item by item where few fit each other.

    Args:
        edges: for each expected item, the actual ones that it may be paired with, at a cost of 0;
            left alone, it costs 1.
        left_actual: the cost of leaving each actual item unpaired.

    Raises:
        TooManyPairsError: too many items may be paired with each other.
    """
    size = len(edges) + len(left_actual)
    if sum(map(len, edges)) > max_pairs(size):
        raise TooManyPairsError
    whole = [([*range(len(edges))], [*range(len(left_actual))])]  # as `assign`, also in ties
    pairs: list[tuple[int, int]] = []
    for rows, columns in whole if size <= _SMALL else _components(edges):
        if len(rows) == len(columns) == 1:
            pairs.append((rows[0], columns[0]))
            continue
        if (len(rows) + len(columns)) ** 2 > 4 * MAX_PAIRS:  # the size of the solver's matrix
            raise TooManyPairsError
        fitting = [set(edges[i]) for i in rows]
        problem = Problem(
            costs=[[0 if j in row else None for j in columns] for row in fitting],
            left_expected=[1] * len(rows),
            left_actual=[left_actual[j] for j in columns],
        )
        found = _assign_uncrossed(problem, rows, columns, _scale(size))
        pairs += ((rows[i], columns[j]) for i, j in found)
    return tuple(sorted(pairs))


def _components(edges: Sequence[Sequence[int]]) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the expected and actual items that edges connect, each sorted."""
    rows_of: dict[int, list[int]] = {}
    for i, row in enumerate(edges):
        for j in row:
            rows_of.setdefault(j, []).append(i)
    seen: set[int] = set()
    for start, row in enumerate(edges):
        if start in seen or not row:
            continue
        seen.add(start)
        rows, columns, waiting = [start], set[int](), [start]
        while waiting:
            for j in edges[waiting.pop()]:
                if j not in columns:
                    columns.add(j)
                    new = [i for i in rows_of[j] if i not in seen]
                    seen.update(new)
                    rows += new
                    waiting += new
        yield sorted(rows), sorted(columns)


def _scale(items: int) -> int:
    """Return a factor of costs beside which no sum of distances counts."""
    return items**2 + 1


def _assign_uncrossed(
    problem: Problem, rows: Sequence[int], columns: Sequence[int], scale: int
) -> Pairs:
    """Return the cheapest pairs; rows and columns are the places of the items."""
    uncrossed = replace(
        problem,
        costs=[
            [
                None if cost is None else scale * cost + abs(i - j)
                for j, cost in zip(columns, row, strict=True)
            ]
            for i, row in zip(rows, problem.costs, strict=True)
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
    if blocked and _is_total(blocked):
        sequence = sorted(range(len(blocked)), key=lambda i: blocked[i].bit_count())
        return _assign_in_sequence(problem, sequence)
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


def _assign_in_sequence(problem: Problem, sequence: Sequence[int]) -> Pairs:
    """Return what `assign_ordered` does for a total order, in expected x actual steps.

    A state is how many items of the sequence are passed. The states keep the order in which the
    general search finds them, so that the same of equally cheap pairs are chosen.
    """
    best: dict[int, tuple[int, _Linked]] = {0: (0, None)}
    for j, left in enumerate(problem.left_actual):
        ranks = {passed: rank for rank, passed in enumerate(best)}
        following: list[tuple[tuple[int, int], int, tuple[int, _Linked]]] = []
        cheapest: tuple[int, int, _Linked] | None = None  # state that passed fewer items
        first = len(best)  # rank of the first such state
        for passed in range(len(sequence) + 1):
            options: list[tuple[int, int, _Linked]] = []
            places: list[tuple[int, int]] = []
            if passed and cheapest is not None:
                i = sequence[passed - 1]
                if (paired := problem.costs[i][j]) is not None:
                    cost, rank, pairs = cheapest
                    rest = cost + paired - problem.left_expected[i]
                    options.append((rest, rank, (pairs, (i, j))))
                    places.append((first, i + 1))
            if passed in best:
                cost, pairs = best[passed]
                rank = ranks[passed]
                options.append((cost + left, rank, pairs))
                places.append((rank, 0))
                cheapest = min(cheapest or (cost, rank, pairs), (cost, rank, pairs), key=_rank)
                first = min(first, rank)
            if options:
                cost, _, pairs = min(options, key=_rank)
                following.append((min(places), passed, (cost, pairs)))
        following.sort(key=itemgetter(0))
        best = {passed: state for _, passed, state in following}
    linked = min(best.values(), key=itemgetter(0))[1]
    pairs_found = []
    while linked is not None:
        linked, pair = linked
        pairs_found.append(pair)
    return tuple(sorted(pairs_found))


def _rank(option: tuple[int, int, Any]) -> tuple[int, int]:
    return option[:2]


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
    predecessors: dict[int, set[int]] = {i: set() for i in range(n)}
    for first, second in before:
        predecessors[second].add(first)
    try:
        for i in TopologicalSorter(predecessors).static_order():
            for first in predecessors[i]:
                ancestors[i] |= ancestors[first]
    except CycleError:
        raise ScenarioError(
            "order: a call cannot come before itself (cycle): leave out a pair"
        ) from None
    if n > MAX_PARTIALLY_ORDERED and before and not _is_total(ancestors):
        raise ScenarioError(
            f"order: {n} calls in a partial order are too many to check: split the turn"
        )
    return ancestors


def _is_total(ancestors: Sequence[int]) -> bool:
    """Return whether an order without a cycle is total: no two items have as many before them."""
    return len({mask.bit_count() for mask in ancestors}) == len(ancestors)


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
