"""Limits and tests of a risk: the mean over scenarios of a share in [0, 1]. Pure.

Scenarios are independent draws; the results within one (its wordings and repeats) may be
correlated in any way, because only their share counts.

- If every share is 0 or 1, the tests and limits are the exact binomial ones of Clopper and Pearson
  (1934), The use of confidence or fiducial limits illustrated in the case of the binomial.
- Otherwise they are by betting, for means of bounded variables: Waudby-Smith and Ramdas (2024),
  Estimating means of bounded random variables by betting, JRSS B 86(1). If the mean is at least
  `risk`, the wealth prod_i (1 - b (x_i - risk)) of a gambler who bets a fixed part b of it, with
  0 <= b <= 1 / (1 - risk), has an expected value of at most 1, and so has the average over a fixed
  set of bets (their diversified Kelly betting). By Markov's inequality 1 / wealth is a p-value. The
  wealth does not depend on the order of the scenarios, and may be looked at after each of them.

Which of the two applies depends on the data; `evals/benchmarks/approvals.py` simulates both
together. Hoeffding-Bentkus limits (Bates et al. 2021, Distribution-free, risk-controlling
prediction sets) are wider for the few small shares that matter here.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias

from lhkit.base.errors import importing
from lhkit.harness.figures.statistics import smallest

with importing("eval"):
    import numpy as np
    from numpy.typing import NDArray
    from scipy.special import bdtr, betaincinv

_Numbers: TypeAlias = NDArray[np.float64]

MAX_FURTHER = 100_000
"""The most further scenarios that `further_scenarios` proposes."""

_BETS = 1 - 0.75 ** np.arange(1, 13)
"""The bets, as parts of the largest one: denser towards it, where few results are wrong."""

_STEPS = 40
_MOST_LEVELS = 50
_LEAST_LOG = -1e6


def risk_p_values(counts: _Numbers, shares: _Numbers, risk: float) -> _Numbers:
    """Return the p-values of "the risk is at least `risk`" for many sets of scenarios at once.

    Args:
        counts: for each set (row), the number of scenarios with each share (column).
        shares: the shares of wrong results, 0 to 1.
        risk: the risk that is tested, above 0 and below 1.
    """
    totals = counts.sum(axis=1)
    is_whole = counts[:, (shares > 0) & (shares < 1)].sum(axis=1) == 0
    wrong = np.rint(counts @ (shares >= 1)).astype(int)
    exact = bdtr(wrong, np.maximum(wrong, np.rint(totals).astype(int)), risk)
    betting = np.exp(np.minimum(0.0, -log_wealth(counts, shares, risk)))
    return np.where(is_whole, exact, betting)


def log_wealth(counts: _Numbers, shares: _Numbers, mean: float) -> _Numbers:
    """Return the logarithm of the wealth against "the mean is at least `mean`" (see above).

    Args:
        counts: for each set (row), the number of values of each kind (column).
        shares: the values, 0 to 1.
        mean: the mean that is tested, above 0 and below 1.
    """
    bets = _BETS / (1 - mean)
    factors = 1 - np.outer(shares - mean, bets)
    logs = counts @ np.maximum(np.log(np.maximum(factors, 1e-300)), _LEAST_LOG)
    best = logs.max(axis=1, keepdims=True)
    return np.asarray(best[:, 0] + np.log(np.exp(logs - best).mean(axis=1)), dtype=float)


def risk_p_value(shares: Sequence[float], risk: float) -> float:
    """Return the p-value of "the risk is at least `risk`"; 1 without scenarios.

    Args:
        shares: the share of wrong results of each scenario.
        risk: the risk that is tested, above 0 and below 1.
    """
    return _p_value(*_kinds(shares), risk) if shares else 1.0


def upper_limit(shares: Sequence[float], confidence: float) -> float:
    """Return the one-sided upper confidence limit of the risk; 1 without scenarios.

    Args:
        shares: the share of wrong results of each scenario.
        confidence: the confidence level, such as 0.95.
    """
    if not shares:
        return 1.0
    counts, values = _kinds(shares)
    n, wrong = int(counts.sum()), float(counts[0] @ values)
    if _is_whole(values):
        return float(betaincinv(wrong + 1, n - wrong, confidence)) if wrong < n else 1.0
    return _bisect(lambda risk: _p_value(counts, values, risk) <= 1 - confidence, wrong / n, 1.0)


def lower_limit(shares: Sequence[float], confidence: float) -> float:
    """Return the one-sided lower confidence limit of the risk; 0 without scenarios."""
    return 1 - upper_limit([1 - share for share in shares], confidence) if shares else 0.0


def least_p_value(scenarios: int, risk: float) -> float:
    """Return the smallest p-value that so many scenarios can have: with none of them wrong."""
    return float((1 - risk) ** scenarios)


def further_scenarios(shares: Sequence[float], risk: float, alpha: float) -> int | None:
    """Return how many further scenarios, none of them wrong, bring the p-value down to `alpha`.

    Returns:
        The number, rounded up to two digits; None for more than `MAX_FURTHER`.
    """
    counts, values = _kinds((0.0, *shares))

    def is_enough(further: int) -> bool:
        more = counts.copy()
        more[0, values == 0] += further - 1
        return _p_value(more, values, risk) <= alpha

    enough = smallest(is_enough, most=MAX_FURTHER)
    if enough is None or enough > MAX_FURTHER:
        return None
    step = int(10 ** max(0, len(str(enough)) - 2))
    return -(-enough // step) * step


def clearest_threshold(
    clusters: Sequence[str], wrong: Sequence[bool], values: Sequence[float], risk: float
) -> float:
    """Return the value above which "the risk is at least `risk`" has the smallest p-value.

    Of equal ones the lowest. At most `_MOST_LEVELS` of the values are tried.

    Args:
        clusters: the scenario of each result.
        wrong: whether each result is wrong.
        values: a value of each result, such as its log-probability.
        risk: the risk that is tested.
    """
    _, scenario = np.unique(np.asarray(clusters), return_inverse=True)
    is_wrong, value = np.asarray(wrong, dtype=float), np.asarray(values, dtype=float)
    levels = np.unique(value)
    levels = levels[:: -(-len(levels) // _MOST_LEVELS)]

    def p_value(level: float) -> float:
        above = value > level
        sizes = np.bincount(scenario[above])
        totals = np.bincount(scenario[above], weights=is_wrong[above])
        shares, counts = np.unique(totals[sizes > 0] / sizes[sizes > 0], return_counts=True)
        return _p_value(counts[np.newaxis].astype(float), shares, risk) if len(shares) else 1.0

    return float(min(levels.tolist(), key=p_value))


def _kinds(shares: Sequence[float]) -> tuple[_Numbers, _Numbers]:
    kinds = Counter(shares)
    return np.array([list(kinds.values())], dtype=float), np.array(list(kinds), dtype=float)


def _is_whole(values: _Numbers) -> bool:
    return bool(((values == 0) | (values == 1)).all())


def _p_value(counts: _Numbers, values: _Numbers, risk: float) -> float:
    return float(risk_p_values(counts, values, risk)[0])


def _bisect(is_rejected: Callable[[float], bool], low: float, high: float) -> float:
    """Return the smallest rejected risk, from above; the p-value decreases in the risk."""
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if is_rejected(middle) else (middle, high)
    return high
