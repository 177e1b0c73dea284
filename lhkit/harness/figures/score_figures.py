"""Figures of a user's scores: rates and means with intervals, and paired differences. Pure.

A score whose values are all booleans is a rate, any other a mean, where True is 1 and False 0.
Invalid samples have no scores. Clusters are scenarios.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from lhkit.harness.figures.metrics import ScoreFigure, rate_interval
from lhkit.harness.figures.rates import Interval
from lhkit.harness.records.score_record import ScoreRecord
from lhkit.harness.scenarios.sample_id import SampleId


def score_figures(
    valid: Collection[SampleId], results: Sequence[ScoreRecord]
) -> tuple[ScoreFigure, ...]:
    """Return the figures of all scores of the valid samples, in the order of the first results."""
    figures: list[ScoreFigure] = []
    for score, found in _by_score(results).items():
        own = [result for result in found if result.sample_id in valid]
        errors = [f"{result.sample_id}: {result.error}" for result in own if result.error]
        names = dict.fromkeys(value.name for result in own for value in result.values)
        for name in names or [score]:
            values = values_of(own, name)
            applying = [value for cluster in values.values() for value in cluster]
            is_rate = all(isinstance(value, bool) for value in applying)
            figures.append(
                ScoreFigure(
                    name=name,
                    is_check=any(result.fails for result in own),
                    is_rate=is_rate,
                    n=len(applying),
                    value=sum(applying) / len(applying) if applying else None,
                    interval=_interval(values.values(), is_rate=is_rate),
                    not_applicable=len(own) - len(errors) - len(applying),
                    failed=len(errors),
                    error=errors[0] if errors else "",
                    missing=len(valid) - len(own),
                )
            )
    return tuple(figures)


def _by_score(results: Iterable[ScoreRecord]) -> Mapping[str, list[ScoreRecord]]:
    groups: dict[str, list[ScoreRecord]] = {}
    for result in results:
        groups.setdefault(result.score, []).append(result)
    return groups


def values_of(results: Iterable[ScoreRecord], name: str) -> dict[str, list[bool | float]]:
    """Return the values of a name by scenario, without those that do not apply."""
    clusters: dict[str, list[bool | float]] = {}
    for sample, value in _sample_values(results, name).items():
        clusters.setdefault(sample.scenario, []).append(value)
    return clusters


def _sample_values(results: Iterable[ScoreRecord], name: str) -> dict[SampleId, bool | float]:
    values: dict[SampleId, bool | float] = {}
    for result in results:
        for each in result.values:
            if each.name == name and each.value is not None:
                values[result.sample_id] = each.value
    return values


def _interval(clusters: Iterable[Sequence[bool | float]], *, is_rate: bool) -> Interval | None:
    filled = [cluster for cluster in clusters if cluster]
    if not filled:
        return None
    if is_rate:
        return rate_interval([[bool(value) for value in cluster] for cluster in filled])
    from lhkit.harness.figures.statistics import cluster_bootstrap  # NumPy, for numbers only

    return cluster_bootstrap([[float(value) for value in cluster] for cluster in filled])
