"""Shares of independent results: intervals, and what k tries would come to. Pure.

Plain arithmetic: what needs NumPy and SciPy, which take half a second to import, is in `statistics`
and imported by those who have repeats or two runs.
"""

from dataclasses import dataclass
from math import comb
from statistics import NormalDist


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A confidence interval, both ends included."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


def wilson(successes: int, n: int, level: float = 0.95) -> Interval:
    """Return Wilson's score interval of a share; [0, 1] where nothing was counted.

    Wilson (1927), Probable inference, the law of succession, and statistical inference. Never
    leaves [0, 1] and stays honest at 0 and n successes.

    Raises:
        ValueError: `successes` is not within 0 and `n`.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n}")
    if n == 0:
        return Interval(low=0.0, high=1.0)
    z2 = NormalDist().inv_cdf((1 + level) / 2) ** 2
    share = successes / n
    centre = share + z2 / (2 * n)
    reach = (z2 * (share * (1 - share) / n + z2 / (4 * n * n))) ** 0.5
    scale = 1 + z2 / n
    low = 0.0 if successes == 0 else (centre - reach) / scale
    high = 1.0 if successes == n else (centre + reach) / scale
    return Interval(low=low, high=high)


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return the chance that at least one of k tries passes, from c passes in n tries.

    Unbiased: Chen et al. (2021), Evaluating large language models trained on code, eq. 1.

    Raises:
        ValueError: not 0 <= c <= n and 1 <= k <= n.
    """
    _check_tries(n, c, k)
    return 1 - comb(n - c, k) / comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float:
    """Return the chance that all of k tries pass (pass^k), from c passes in n tries.

    Unbiased: Yao et al. (2024), tau-bench, section 3.

    Raises:
        ValueError: not 0 <= c <= n and 1 <= k <= n.
    """
    _check_tries(n, c, k)
    return comb(c, k) / comb(n, k)


def _check_tries(n: int, c: int, k: int) -> None:
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"{k} of {n} tries with {c} passes")
