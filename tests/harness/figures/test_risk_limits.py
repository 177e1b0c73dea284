"""Limits and tests of a tool's risk, against arithmetic with exact fractions."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.harness.figures.risk_limits import (
    further_scenarios,
    least_p_value,
    lower_limit,
    risk_p_value,
    risk_p_values,
    upper_limit,
)
from tests.rows import check_rows

TWENTIETH = Fraction(1, 20)


def at_most(wrong: int, n: int, risk: Fraction) -> Fraction:
    """Return the exact probability of at most so many wrong ones."""
    return sum(
        (comb(n, k) * risk**k * (1 - risk) ** (n - k) for k in range(wrong + 1)), Fraction(0)
    )


def exact_limit(wrong: int, n: int) -> float:
    """Return the risk at which so few wrong ones have a probability of a twentieth."""
    low, high = Fraction(0), Fraction(1)
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if at_most(wrong, n, middle) <= TWENTIETH else (middle, high)
    return float(high)


def exact_wealth_p_value(shares: list[Fraction], risk: Fraction) -> float:
    """Return the p-value by betting, as the docstring of `risk_limits` has it."""
    wealths = []
    for j in range(1, 13):
        bet = (1 - Fraction(3, 4) ** j) / (1 - risk)
        wealth = Fraction(1)
        for share in shares:
            wealth *= 1 - bet * (share - risk)
        wealths.append(wealth)
    mean = sum(wealths, Fraction(0)) / 12
    return float(min(Fraction(1), 1 / mean))


@check_rows(
    ("wrong", "n", "in_percent"),
    [
        (0, 9, 28.3),  # 1 - 0.05 ** (1/9)
        (0, 10, 25.9),
        (0, 59, 5.0),
        (0, 149, 2.0),
        (0, 212, 1.4),
        (1, 100, 4.7),
        (3, 57, 13.0),
        (5, 200, 5.2),
        (9, 10, 99.5),
        (1, 1, 100.0),
    ],
)
def test_upper_limit_is_the_exact_binomial_one_by_hand(
    wrong: int, n: int, in_percent: float
) -> None:
    shares = [1.0] * wrong + [0.0] * (n - wrong)
    limit = upper_limit(shares, 0.95)
    assert round(100 * limit, 1) == in_percent
    assert limit == pytest.approx(exact_limit(wrong, n) if wrong < n else 1.0, abs=1e-6)
    risk = Fraction(1, 50)
    assert risk_p_value(shares, 0.02) == pytest.approx(float(at_most(wrong, n, risk)))
    # the lower limit of the wrong ones is what the upper limit of the right ones leaves
    rights = [1 - share for share in shares]
    assert lower_limit(rights, 0.95) == pytest.approx(1 - limit)


@check_rows(
    ("shares", "risk"),
    [
        ([Fraction(1, 3)], Fraction(1, 2)),
        ([Fraction(1, 3)] + [Fraction(0)] * 199, Fraction(1, 50)),
        ([Fraction(1, 2)] * 2 + [Fraction(1)] + [Fraction(0)] * 60, Fraction(1, 10)),
        ([Fraction(1, 3), Fraction(2, 3)] * 10, Fraction(9, 10)),
        ([Fraction(1, 5)] * 30, Fraction(1, 5)),
    ],
)
def test_p_value_of_shares_in_between_is_one_over_the_mean_wealth(
    shares: list[Fraction], risk: Fraction
) -> None:
    p_value = risk_p_value([float(share) for share in shares], float(risk))
    assert p_value == pytest.approx(exact_wealth_p_value(shares, risk), rel=1e-9)


SHARES = st.lists(st.sampled_from([0.0, 0.25, 1 / 3, 0.5, 2 / 3, 1.0]), min_size=1, max_size=40)


@given(SHARES, st.sampled_from([0.8, 0.95, 0.99]))
def test_limits_surround_the_mean_and_decide_as_the_p_value(
    shares: list[float], confidence: float
) -> None:
    upper, lower = upper_limit(shares, confidence), lower_limit(shares, confidence)
    assert 0 <= lower <= sum(shares) / len(shares) + 1e-9 <= upper + 2e-9 <= 1 + 2e-9
    if upper < 0.999:
        assert risk_p_value(shares, upper + 1e-6) <= 1 - confidence + 1e-9
        assert risk_p_value(shares, max(1e-9, upper - 1e-6)) >= 1 - confidence - 1e-4


@given(SHARES, st.floats(0.01, 0.9), st.floats(0.01, 0.09))
def test_p_value_decreases_in_the_risk_and_with_each_right_scenario(
    shares: list[float], risk: float, more: float
) -> None:
    p_value = risk_p_value(shares, risk)
    assert risk_p_value(shares, risk + more) <= p_value + 1e-12
    assert risk_p_value([*shares, 0.0], risk) <= p_value + 1e-12
    assert risk_p_value(shares[::-1], risk) == pytest.approx(p_value)
    assert least_p_value(len(shares), risk) <= p_value + 1e-12


@given(SHARES, st.sampled_from([0.02, 0.1, 0.3]))
def test_further_scenarios_are_just_enough(shares: list[float], risk: float) -> None:
    further = further_scenarios(shares, risk, 0.05)
    assert further is not None
    assert risk_p_value(shares + [0.0] * further, risk) <= 0.05 or further == 1
    if 1 < further < 100:  # not rounded
        assert risk_p_value(shares + [0.0] * (further - 1), risk) > 0.05


def test_further_scenarios_are_none_beyond_the_most() -> None:
    assert further_scenarios([1.0] * 5_000, 0.02, 0.05) is None
    assert further_scenarios([], 0.02, 0.05) == 150  # 149, rounded up


def test_p_values_of_many_sets_are_those_of_each() -> None:
    values = np.array([0.0, 1 / 3, 1.0])
    counts = np.array([[20, 0, 2], [18, 3, 1], [0, 0, 5]], dtype=float)
    each = [risk_p_value([*np.repeat(values, row.astype(int))], 0.3) for row in counts]
    assert risk_p_values(counts, values, 0.3) == pytest.approx(each)
