"""Intervals and tests, compared with reference implementations and simulations."""

from collections.abc import Sequence
from itertools import combinations, combinations_with_replacement, product
from statistics import median_low
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lhkit.harness.figures.metrics import rate_interval
from lhkit.harness.figures.rates import Interval, pass_at_k, pass_hat_k, wilson
from lhkit.harness.figures.statistics import (
    cluster_bootstrap,
    clustered_interval,
    difference_interval,
    holm,
    median_interval,
    sign_flip,
)

pytestmark = pytest.mark.slow


@settings(max_examples=10)  # statsmodels collects garbage in each call
@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_holm_equals_statsmodels(p_values: list[float]) -> None:
    from statsmodels.stats.multitest import multipletests

    assert holm(p_values) == pytest.approx(multipletests(p_values, method="holm")[1].tolist())


@pytest.mark.parametrize("level", [0.9, 0.95])
@pytest.mark.parametrize(("successes", "n"), [(0, 5), (5, 5), (3, 22), (21, 22), (500, 1000)])
def test_wilson_equals_statsmodels(successes: int, n: int, level: float) -> None:
    from statsmodels.stats.proportion import proportion_confint

    low, high = proportion_confint(successes, n, 1 - level, method="wilson")
    interval = wilson(successes, n, level)
    assert (interval.low, interval.high) == pytest.approx((low, high))
    assert successes / n in interval


def test_wilson_without_results_is_0_to_1() -> None:
    assert wilson(0, 0) == Interval(low=0.0, high=1.0)


@pytest.mark.parametrize(
    ("estimate", "args", "message"),
    [
        (wilson, (6, 5), "6 successes of 5"),
        *((clustered_interval, args, "successes of") for args in (([], []), ([0], [0]))),
        *((clustered_interval, args, "successes of") for args in (([3], [2]), ([-1], [2]))),
        *((pass_at_k, args, "trials") for args in ((3, 4, 1), (3, 1, 4), (3, -1, 1), (3, 1, 0))),
        *((pass_hat_k, args, "trials") for args in ((3, 4, 1), (3, 1, 4), (3, -1, 1), (3, 1, 0))),
        *(
            (interval, ([[], []],), "no values")
            for interval in (cluster_bootstrap, median_interval)
        ),
    ],
)
def test_estimates_reject_invalid_counts(estimate: Any, args: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        estimate(*args)


def test_wilson_coverage_is_95_percent() -> None:
    rng = np.random.default_rng(11)
    truths = rng.uniform(0.05, 0.95, size=4000)
    covered = [t in wilson(int(rng.binomial(22, t)), 22) for t in truths]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.012)


def clustered(rng: np.random.Generator, clusters: int, repeats: int) -> list[list[float]]:
    """Return results whose clusters differ a lot: their rates are Beta(1, 1), the mean is 0.5."""
    rates = rng.beta(1, 1, size=clusters)
    return [list(rng.binomial(1, rate, size=repeats).astype(float)) for rate in rates]


@pytest.mark.parametrize(
    ("clusters", "repeats"),
    [(12, 4), (30, 3), pytest.param(200, 2, marks=pytest.mark.nightly)],
)
def test_cluster_bootstrap_coverage_is_95_percent(clusters: int, repeats: int) -> None:
    rng = np.random.default_rng(12)
    covered = [
        0.5 in cluster_bootstrap(clustered(rng, clusters, repeats), resamples=1000, rng=rng)
        for _ in range(1000)
    ]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.02)


def test_cluster_bootstrap_resamples_whole_clusters() -> None:
    clusters = [[1.0, 1.0, 0.0], [0.0], [1.0, 0.0], [1.0]]
    means = [sum(map(sum, drawn)) / sum(map(len, drawn)) for drawn in product(clusters, repeat=4)]
    interval = cluster_bootstrap(clusters, 0.5, resamples=100_000)
    tail = 0.18808  # of Student's t with 3 degrees of freedom, times sqrt(4 / 3), as a normal z
    assert (interval.low, interval.high) == pytest.approx(
        tuple(np.quantile(means, [tail, 1 - tail])), abs=0.01
    )


def test_cluster_bootstrap_is_deterministic() -> None:
    clusters = [[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]]
    assert cluster_bootstrap(clusters) == cluster_bootstrap(clusters)
    assert cluster_bootstrap([*clusters, []]) == cluster_bootstrap(clusters)


@pytest.mark.parametrize(
    ("clusters", "repeats", "slack"),
    [(22, 1, 0.03), pytest.param(60, 2, 0.02, marks=pytest.mark.nightly)],
)
def test_median_interval_coverage(clusters: int, repeats: int, slack: float) -> None:
    rng = np.random.default_rng(15)
    effects = rng.normal(size=(800, clusters, 1))
    samples = effects + rng.normal(scale=0.5, size=(800, clusters, repeats))
    covered = [0.0 in median_interval(each.tolist()) for each in samples]
    assert np.mean(covered) == pytest.approx(0.955, abs=slack)


@given(st.lists(st.lists(st.sampled_from([1.0, 2.0, 3.0]), max_size=3), min_size=1, max_size=9))
def test_median_interval_contains_the_median_with_ties(clusters: list[list[float]]) -> None:
    values = [value for each in clusters for value in each]
    if values:
        assert median_low(values) in median_interval(clusters)


@pytest.mark.parametrize(
    ("clusters", "expected"),
    [
        ([], None),
        ([[]], None),
        ([[True], [False], [True]], wilson(2, 3)),
        ([[True, True], [True, True, True]], clustered_interval([2, 3], [2, 3])),
        ([[False] * 9], clustered_interval([0], [9])),
        ([[True, False], [True, True], [True]], clustered_interval([1, 2, 1], [2, 2, 1])),
    ],
)
def test_rate_interval_depends_on_repeats(
    clusters: list[list[bool]], expected: Interval | None
) -> None:
    assert rate_interval(clusters) == expected


@pytest.mark.parametrize(("clusters", "repeats"), [(10, 2), (168, 5)])
def test_clustered_interval_of_equal_repeats_equals_clopper_pearson(
    clusters: int, repeats: int
) -> None:
    """The interval is the exact one of Clopper and Pearson for the number of clusters."""
    from statsmodels.stats.proportion import proportion_confint

    for hit in (0, 1, clusters // 2, clusters):
        passed = [repeats] * hit + [0] * (clusters - hit)
        interval = clustered_interval(passed, [repeats] * clusters)
        low, high = proportion_confint(hit, clusters, method="beta")
        assert (interval.low, interval.high) == (pytest.approx(low), pytest.approx(high))


@pytest.mark.parametrize(("clusters", "repeats"), [(6, 5), (14, 3)])
def test_clustered_interval_contains_the_estimate(clusters: int, repeats: int) -> None:
    tries = [repeats] * clusters
    for each in combinations_with_replacement(range(repeats + 1), clusters):
        assert sum(each) / sum(tries) in clustered_interval(each, tries)


def test_clustered_interval_of_one_pass_is_not_below_that_of_none() -> None:
    none = clustered_interval([0] * 14, [3] * 14)
    one = clustered_interval([1] + [0] * 13, [3] * 14)
    assert none.high <= one.high
    assert none.high == pytest.approx(wilson(0, 14).high, abs=0.02)


def chances_of_clusters(
    rng: np.random.Generator, rates: tuple[float, ...], alike: float, shape: tuple[int, int]
) -> np.ndarray:
    """Return the chances of each cluster, of mean `rates`; `alike` is their ICC.

    It is 0 for independent trials, 1 for repeats that always agree.
    """
    if alike == 0:
        return np.broadcast_to(rates, (*shape, len(rates)))
    if alike == 1:
        return np.eye(len(rates))[rng.choice(len(rates), size=shape, p=rates)]
    return rng.dirichlet(np.maximum(np.array(rates) * (1 - alike) / alike, 1e-9), size=shape)


@pytest.mark.parametrize("rate", [0.02, 0.1, 0.5, 0.95])
@pytest.mark.parametrize("alike", [0.0, 0.5, 1.0])
def test_clustered_interval_coverage_near_0_and_1(rate: float, alike: float) -> None:
    for clusters, repeats in ((14, 3), (40, 2)):
        rng = np.random.default_rng(clusters * 100 + repeats)
        chances = chances_of_clusters(rng, (rate, 1 - rate), alike, (400, clusters))[..., 0]
        sizes = [repeats] * clusters
        rows = rng.binomial(repeats, chances)
        covered = [rate in clustered_interval(row.tolist(), sizes) for row in rows]
        assert np.mean(covered) >= 0.93


@pytest.mark.parametrize(("gain", "loss"), [(0.02, 0.0), (0.1, 0.1), (0.02, 0.9), (0.45, 0.45)])
@pytest.mark.parametrize("repeats", [1, 3])
def test_difference_interval_coverage(gain: float, loss: float, repeats: int) -> None:
    rng = np.random.default_rng(1400 + repeats)
    chances = chances_of_clusters(rng, (gain, loss, 1 - gain - loss), 0.5, (400, 14))
    covered = []
    for row in rng.multinomial(repeats, chances):
        interval = difference_interval(
            [[1] * up + [-1] * down + [0] * same for up, down, same in row.tolist()]
        )
        assert interval is not None
        covered.append(interval.low - 1e-12 <= gain - loss <= interval.high + 1e-12)
    assert np.mean(covered) >= 0.93


tries = st.integers(1, 9).flatmap(
    lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))
)


@given(tries)
def test_pass_at_k_and_pass_hat_k_equal_enumeration(numbers: tuple[int, int, int]) -> None:
    n, c, k = numbers
    draws = list(combinations([True] * c + [False] * (n - c), k))
    assert pass_at_k(n, c, k) == pytest.approx(np.mean([any(draw) for draw in draws]))
    assert pass_hat_k(n, c, k) == pytest.approx(np.mean([all(draw) for draw in draws]))


def pairs(b: int, c: int) -> list[int]:
    """Return discordant pairs of two kinds."""
    return [1] * b + [-1] * c


@pytest.mark.parametrize(("b", "c"), [(1, 0), (6, 0), (3, 3), (10, 2), (40, 60), (400, 300)])
def test_sign_flip_equals_mcnemar_of_statsmodels(b: int, c: int) -> None:
    from statsmodels.stats.contingency_tables import mcnemar

    reference = mcnemar([[0, b], [c, 0]], exact=True).pvalue
    assert sign_flip(pairs(b, c)) == pytest.approx(reference, rel=1e-9)
    assert sign_flip(pairs(c, b)) == pytest.approx(reference, rel=1e-9)
    assert sign_flip(pairs(b, c), mid_p=True) < sign_flip(pairs(b, c))


def test_sign_flip_mid_p_equals_fagerland_2013() -> None:
    """Table III: 1 and 7 discordant pairs, exact p 0.070, mid-p 0.039."""
    assert sign_flip(pairs(1, 7)) == pytest.approx(0.0703, abs=5e-5)
    assert sign_flip(pairs(1, 7), mid_p=True) == pytest.approx(0.0391, abs=5e-5)


def test_sign_flip_without_discordant_pairs_is_1() -> None:
    assert (sign_flip([]), sign_flip([], mid_p=True)) == (1.0, 1.0)


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=9))
def test_sign_flip_equals_enumeration(differences: Sequence[int]) -> None:
    seen = abs(sum(differences))
    sums = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
        for signs in product([-1, 1], repeat=len(differences))
    ]
    assert sign_flip(differences) == pytest.approx(np.mean([each >= seen for each in sums]))


def null_differences(rng: np.random.Generator, clusters: int, repeats: int) -> list[int]:
    """Return differences of two equal systems over scenarios of very different difficulty."""
    rates = rng.beta(0.5, 0.5, size=clusters)
    a, b = (rng.binomial(repeats, rates) for _ in range(2))
    return [int(each) for each in b - a]


@pytest.mark.parametrize("repeats", [1, 4])
def test_sign_flip_is_uniform_under_the_null(repeats: int) -> None:
    """Counts are discrete: the observed count weighs a random part of its probability."""
    from scipy.stats import kstest

    rng = np.random.default_rng(16)
    p_values = []
    for _ in range(1500):
        moved = null_differences(rng, 150, repeats)
        exact, mid = sign_flip(moved), sign_flip(moved, mid_p=True)
        p_values.append(exact - rng.random() * 2 * (exact - mid))
    assert kstest(p_values, "uniform").pvalue > 0.05


@pytest.mark.parametrize(
    ("clusters", "repeats"),
    [(22, 1), (22, 4), pytest.param(200, 1, marks=pytest.mark.nightly)],
)
def test_sign_flip_false_alarms_are_at_most_alpha(clusters: int, repeats: int) -> None:
    rng = np.random.default_rng(17)
    p_values = np.array([sign_flip(null_differences(rng, clusters, repeats)) for _ in range(3000)])
    for alpha in (0.01, 0.05, 0.2):
        assert np.mean(p_values <= alpha) <= alpha + 2 * (alpha / 3000) ** 0.5
