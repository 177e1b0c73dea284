"""Shares of independent results: intervals, what k tries would come to, agreement. Pure.

Plain arithmetic: what needs NumPy and SciPy, which take half a second to import, is in `statistics`
and imported by those who have repeats or two runs.
"""

from collections import Counter
from collections.abc import Sequence
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


# How far two people agree beyond chance.

_NO_SPREAD = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Cohen's kappa of `n` things that two people judged; None where chance alone explains all.

    `observed` is the share that they judged alike. `interval` is the 95 % interval of `kappa`.
    """

    n: int
    observed: float
    kappa: float | None
    interval: Interval | None


def cohens_kappa(pairs: Sequence[tuple[str, str]], level: float = 0.95) -> Agreement | None:
    """Return how far two people agree on what they both judged; None if that is nothing.

    Cohen (1960), A coefficient of agreement for nominal scales, with the standard error of Fleiss,
    Cohen and Everitt (1969). That error is 0 where they agree on everything, or one of them always
    says the same, as if a few things told all; there it is Wilson's interval of the share that they
    judged alike, measured from chance.
    """
    n = len(pairs)
    if not n:
        return None
    kinds = sorted({kind for pair in pairs for kind in pair})
    joint = {pair: count / n for pair, count in Counter(pairs).items()}
    first = {kind: sum(p for (a, _), p in joint.items() if a == kind) for kind in kinds}
    second = {kind: sum(p for (_, b), p in joint.items() if b == kind) for kind in kinds}
    observed = sum(p for (a, b), p in joint.items() if a == b)
    chance = sum(first[kind] * second[kind] for kind in kinds)
    if chance >= 1.0:  # both always said the same one thing
        return Agreement(n=n, observed=observed, kappa=None, interval=None)
    kappa = (observed - chance) / (1 - chance)
    rest = 1 - kappa
    on, off = ([each for each in joint if (each[0] == each[1]) is same] for same in (True, False))
    alike = sum(joint[a, b] * (1 - (first[a] + second[a]) * rest) ** 2 for a, b in on)
    apart = sum(joint[a, b] * (second[a] + first[b]) ** 2 for a, b in off)
    spread = alike + rest**2 * apart - (kappa - chance * rest) ** 2
    if spread < _NO_SPREAD:
        of_share = wilson(round(observed * n), n, level)
        low, high = ((end - chance) / (1 - chance) for end in (of_share.low, of_share.high))
    else:
        reach = NormalDist().inv_cdf((1 + level) / 2) * (spread / n) ** 0.5 / (1 - chance)
        low, high = kappa - reach, kappa + reach
    interval = Interval(low=max(-1.0, low), high=min(1.0, high))
    return Agreement(n=n, observed=observed, kappa=kappa, interval=interval)
