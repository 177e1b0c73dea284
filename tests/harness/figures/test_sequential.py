"""The always-valid paired test: exact on small cases, and whatever the order of looking."""

from collections.abc import Sequence
from itertools import accumulate, pairwise, product

import numpy as np
import pytest
from scipy.special import betainc, betaln

from lhkit.harness.figures.sequential import (
    BETS,
    LOG_LIMIT,
    SequentialTest,
    least_losses,
    log_factors,
    sequential_result,
)
from tests.rows import check_rows

CLUSTERS = [[1], [0], [-1], [1, 1], [1, -1], [-1, -1], [0, -1], [1, 0, 0], []]


@check_rows("margin", [0.0, 0.03, 0.5])
@check_rows(
    ("values", "odds"),
    [
        ((-1.0, 0.0, 1.0), (0.2, 0.5, 0.3)),
        ((-1.0, 1.0), (0.5, 0.5)),
        ((-1.0, -1 / 3, 0.5), (0.3, 0.4, 0.3)),  # shares of repeats
        ((-0.1, 1.0), (0.9, 0.1)),  # skewed
        ((-1.0, 0.02), (0.05, 0.95)),
    ],
)
def test_e_value_of_a_true_null_has_the_mean_1_after_every_scenario(
    values: tuple[float, ...], odds: tuple[float, ...], margin: float
) -> None:
    """All sequences of three scenarios: the mean over all next ones is the present e-value."""
    excess = np.array(values) - np.dot(values, odds)
    excess *= min(1.0, (1 - margin) / -excess.min(), (1 + margin) / excess.max())  # differences
    factors = log_factors(excess, -margin)
    assert np.isfinite(factors).all()
    for length in range(3):
        for past in product(range(len(odds)), repeat=length):
            wealth = factors[:, :, list(past)].sum(axis=2, keepdims=True)
            before, after = np.exp(wealth).mean(axis=1), np.exp(wealth + factors).mean(axis=1)
            assert after @ np.array(odds) == pytest.approx(before[:, 0])


def test_e_value_shrinks_on_average_where_the_difference_is_on_the_other_side() -> None:
    factors = np.exp(log_factors(np.array([-1.0, 0.0, 1.0]), 0.0))
    assert (factors[0] @ np.array([0.3, 0.5, 0.2]) < 1).all()
    assert (factors[1] @ np.array([0.2, 0.5, 0.3]) < 1).all()


@pytest.mark.longer
@pytest.mark.parametrize("odds", [(0.5, 0.0, 0.5), (0.3, 0.4, 0.3), (0.05, 0.9, 0.05)])
def test_sequential_test_is_wrong_in_at_most_5_percent_at_any_time(
    odds: tuple[float, float, float],
) -> None:
    """All sequences of 100 scenarios, exactly: by the numbers of improvements and regressions."""
    factors = log_factors(np.array([1.0, -1.0]), 0.0)
    alive = {(0, 0): 1.0}
    wrong = 0.0
    for _ in range(100):
        following: dict[tuple[int, int], float] = {}
        for (up, down), chance in alive.items():
            for step, share in zip(((0, 1), (0, 0), (1, 0)), odds, strict=True):
                place = (up + step[0], down + step[1])
                following[place] = following.get(place, 0.0) + chance * share
        places = np.array(list(following), dtype=float)
        logs = factors @ places.T
        log_e = np.logaddexp.reduce(logs, axis=1) - np.log(len(BETS))
        is_decided = (log_e >= LOG_LIMIT).any(axis=0)
        chances = np.array(list(following.values()))
        wrong += float(chances[is_decided].sum())
        alive = {
            place: chance
            for place, chance, decided in zip(following, chances, is_decided, strict=True)
            if not decided and chance > 1e-12
        }
    assert wrong <= 0.05


@check_rows(("up", "down"), [(8, 0), (20, 3), (7, 7), (40, 12), (0, 30)])
def test_log_factors_are_the_mixture_of_likelihood_ratios_of_the_sign_test(
    up: int, down: int
) -> None:
    """With uniform bets the mean is an integral that SciPy knows: a half of a beta function."""
    total = float(np.exp((up + down + 1) * np.log(2) + betaln(up + 1, down + 1)))
    exact = total * (1 - betainc(up + 1, down + 1, 0.5))
    factors = log_factors(np.array([1.0, -1.0]), 0.0)[0] @ np.array([up, down], dtype=float)
    step = np.diff(np.concatenate([[0.0], (BETS[1:] + BETS[:-1]) / 2, [1.0]]))  # uniform again
    assert float(np.exp(factors) @ step) == pytest.approx(exact, rel=0.02)


def run_test(clusters: Sequence[Sequence[int]], margin: float, largest: int) -> SequentialTest:
    test = SequentialTest(margin=margin, largest=largest)
    for gains in clusters:
        test.add(gains)
    return test


@check_rows(
    ("clusters", "margin", "direction", "looked"),
    [
        ([[1]] * 30, 0.0, 1, 7),
        ([[-1]] * 30, 0.0, -1, 7),
        ([[-1]] * 7, 0.0, -1, 7),
        ([[-1]] * 6, 0.0, 0, 6),
        ([[0]] * 168, 0.0, 0, 168),  # equal runs have no difference to find
        ([[0]] * 168, 0.03, 1, 150),
        ([[1, -1]] * 168, 0.0, 0, 168),
        ([[1, 1, 1]] * 30, 0.0, 1, 7),  # three repeats are not three scenarios
        ([[]] * 30, 0.0, 0, 0),
        ([[-1]] * 30, 1.0, 0, 30),  # nothing is worse by more than 100 points
        ([[0]], 1.0, 1, 1),
    ],
)
def test_sequential_test_decides_after(
    clusters: list[list[int]], margin: float, direction: int, looked: int
) -> None:
    largest = max(map(len, clusters)) or 1
    test = run_test(clusters, margin, largest)
    assert (test.direction, test.looked) == (direction, looked)


def test_sequential_test_keeps_its_decision() -> None:
    test = run_test([[1]] * 7 + [[-1]] * 100, 0.0, 1)
    assert (test.direction, test.looked) == (1, 7)


@pytest.mark.longer
def test_sequential_result_agrees_with_the_test_for_every_margin() -> None:
    """The interval has exactly the differences that the test of no look rejected."""
    rng = np.random.default_rng(5)
    for _ in range(3):
        places = rng.integers(0, len(CLUSTERS), size=40)
        clusters = [CLUSTERS[place] for place in places]
        for margin in (0.0, 0.03, 0.2):
            result = sequential_result(clusters, margin, largest=3)
            test = run_test(clusters, margin, 3)
            assert (result.direction, result.looked) == (test.direction, test.looked)
            assert (result.interval.low > -margin) == (test.direction == 1)
            assert (result.interval.high < -margin) == (test.direction == -1)
            assert (result.p_value <= 0.05) == bool(result.sign)


@pytest.mark.longer
def test_interval_never_widens_with_more_scenarios() -> None:
    clusters = [CLUSTERS[place] for place in np.random.default_rng(1).integers(0, 9, size=25)]
    results = [
        sequential_result(part, 0.0, largest=3)
        for part in accumulate(([each] for each in clusters), lambda done, more: [*done, *more])
    ]
    ends = [(each.interval.low, -each.interval.high) for each in results]
    assert all(np.less_equal(one, other).all() for one, other in pairwise(ends))


def test_sequential_result_without_pairs_says_nothing() -> None:
    result = sequential_result([[], []], 0.0, largest=1)
    assert (result.direction, result.looked, result.p_value) == (0, 0, 1.0)
    assert (result.interval.low, result.interval.high) == (-1.0, 1.0)


@check_rows(("margin", "least"), [(0.0, 7), (0.03, 7), (0.6, 21), (1.0, None)])
def test_least_losses_are_the_fewest_that_the_test_finds_worse(
    margin: float, least: int | None
) -> None:
    assert least_losses(margin) == least
    if least is not None:
        assert run_test([[-1]] * least, margin, 1).direction == -1
        assert run_test([[-1]] * (least - 1), margin, 1).direction == 0
