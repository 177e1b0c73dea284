"""Confidence intervals of rates. Pure."""

from collections.abc import Iterable, Sequence

from lhkit.harness.shares import Interval, wilson


def rate_interval(clusters: Iterable[Sequence[bool]], level: float = 0.95) -> Interval | None:
    """Return the confidence interval of a rate; None without results.

    Wilson's if every cluster has one result, else `statistics.clustered_interval`.

    Args:
        clusters: the results of each cluster (a scenario's repeats).
        level: the confidence level.
    """
    counted = [results for results in clusters if results]
    if not counted:
        return None
    successes, sizes = [sum(results) for results in counted], [len(each) for each in counted]
    if sum(sizes) == len(sizes):
        return wilson(sum(successes), len(sizes), level)
    from lhkit.harness.statistics import clustered_interval  # NumPy and SciPy, for repeats only

    return clustered_interval(successes, sizes, level)
