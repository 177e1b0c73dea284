"""The interval of a rate, by what the data are. Pure."""

from collections.abc import Iterable, Sequence

from lhkit.harness.shares import Interval, wilson


def rate_interval(clusters: Iterable[Sequence[bool]], level: float = 0.95) -> Interval | None:
    """Return the interval of a share, by what the data are; None where nothing was counted.

    Wilson's where every cluster holds one result; with repeats `statistics.clustered_interval`.
    """
    kept = [each for each in clusters if each]
    return counted_interval([sum(each) for each in kept], [len(each) for each in kept], level)


def counted_interval(
    successes: Sequence[int], sizes: Sequence[int], level: float = 0.95
) -> Interval | None:
    """Return what `rate_interval` does, of clusters that are counted already.

    Args:
        successes: in each cluster.
        sizes: results in each cluster, at least 1.
        level: the confidence level.
    """
    if not sizes:
        return None
    n = sum(sizes)
    if n == len(sizes):
        return wilson(sum(successes), n, level)
    from lhkit.harness.statistics import clustered_interval

    return clustered_interval(successes, sizes, level)
