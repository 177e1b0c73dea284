"""Rates of repeated trials: shares, their confidence intervals, pass@k and pass^k. Pure.

Plain arithmetic. Intervals of clustered results are in `statistics`, which imports NumPy and SciPy.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import comb
from statistics import NormalDist

ALPHA = 0.05
"""The significance level: a difference counts if its p-value is below this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """`part` of `whole`; `rate` is None if `whole` is 0."""

    part: int = 0
    whole: int = 0

    @property
    def rate(self) -> float | None:
        """The share, 0 to 1."""
        return rate_of(self.part, self.whole)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A confidence interval, both ends included."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrected:
    """The rate of a judge, corrected with labels of a person on a random part of the samples.

    Attributes:
        rate: the corrected rate.
        interval: its 95 % interval.
        labels: the number of labels.
        to_halve: the labels with which the interval would be half as wide; None if labels of all
            samples of the run do not suffice.
    """

    rate: float
    interval: Interval
    labels: int
    to_halve: int | None


def rate_of(part: float, whole: float) -> float | None:
    """Return `part` divided by `whole`; None if `whole` is 0."""
    return part / whole if whole else None


def is_below(part: int, whole: int, percentage: float) -> bool:
    """Return whether `part` of `whole` is less than a percentage, exactly.

    The percentage is the decimal number that was written: 57 of 100 is not below 57, 2 of 3 is
    below 66.7 and not below 66.6. Without a whole nothing is below.
    """
    return 100 * part < Fraction(str(percentage)) * whole


def below_texts(part: int, whole: int, percentage: float) -> tuple[str, str]:
    """Return a share that is below a percentage, and the percentage, as different numbers.

    One decimal, or as many as it takes to tell them apart: `0.0` and `50.0`, `66.67` and `66.70`.
    """
    limit = Decimal(str(percentage))
    exponent = limit.as_tuple().exponent
    digits = max(1, -exponent if isinstance(exponent, int) else 1)
    while True:
        share = Decimal(round(Fraction(100 * part, whole or 1) * 10**digits)).scaleb(-digits)
        if share < limit:
            return f"{share:.{digits}f}", f"{limit:.{digits}f}"
        digits += 1


def share_of(verdicts: Iterable[bool]) -> Share:
    """Return the share of true values."""
    values = list(verdicts)
    return Share(part=sum(values), whole=len(values))


def wilson(successes: int, n: int, level: float = 0.95) -> Interval:
    """Return Wilson's score interval of a share; [0, 1] if `n` is 0.

    Wilson (1927), Probable inference, the law of succession, and statistical inference. Stays
    within [0, 1] and has a width at 0 and n successes.

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
    """Return the probability that at least one of k trials passes, given c passes in n trials.

    Unbiased: Chen et al. (2021), Evaluating large language models trained on code, eq. 1.

    Raises:
        ValueError: not 0 <= c <= n and 1 <= k <= n.
    """
    _require_trials(n, c, k)
    return 1 - comb(n - c, k) / comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float:
    """Return the probability that all of k trials pass (pass^k), given c passes in n trials.

    Unbiased: Yao et al. (2024), tau-bench, section 3.

    Raises:
        ValueError: not 0 <= c <= n and 1 <= k <= n.
    """
    _require_trials(n, c, k)
    return comb(c, k) / comb(n, k)


def _require_trials(n: int, c: int, k: int) -> None:
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"{k} of {n} trials with {c} passes")
