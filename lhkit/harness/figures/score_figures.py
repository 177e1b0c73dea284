"""Figures of a user's scores: rates and means with intervals, and paired differences. Pure.

A score whose values are all booleans is a rate, any other a mean, where True is 1 and False 0.
Invalid samples have no scores. Clusters are scenarios.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from lhkit.harness.figures.agreement import JudgeAgreement, cohens_kappa
from lhkit.harness.figures.metrics import ScoreFigure, rate_interval
from lhkit.harness.figures.pairs import ScoreChange
from lhkit.harness.figures.rates import Interval, share_of
from lhkit.harness.records.score_record import ScoreRecord
from lhkit.harness.scenarios.sample_id import SampleId

_FEWEST = 5
"""Of fewer labels it is not said that they are selected."""
_RARE = 0.001


def score_figures(
    valid: Collection[SampleId],
    results: Sequence[ScoreRecord],
    labels: Mapping[str, Mapping[SampleId, bool]] = MappingProxyType({}),
) -> tuple[ScoreFigure, ...]:
    """Return the figures of all scores of the valid samples, in the order of the first results.

    Args:
        valid: the valid samples.
        results: the results of the scores.
        labels: the labels of a person for judges, by their names.
    """
    figures: list[ScoreFigure] = []
    for score, found in _by_score(results).items():
        own = [result for result in found if result.sample_id in valid]
        is_judge = any(result.judge for result in own)
        known = labels.get(score) if is_judge else None
        errors = [f"{result.sample_id}: {result.error}" for result in own if result.error]
        for name in _value_names(own) or [score]:
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
                    is_judge=is_judge,
                    agreement=compare_judge(score, own, known) if known else None,
                )
            )
    return tuple(figures)


def compare_judge(
    score: str, results: Iterable[ScoreRecord], labels: Mapping[SampleId, bool]
) -> JudgeAgreement:
    """Compare the answers of a judge with labels of a person; clusters are scenarios."""
    own = [result for result in results if result.score == score]
    answers = {sample: bool(value) for sample, value in _sample_values(own, score).items()}
    both = {sample: (answers[sample], labels[sample]) for sample in answers if sample in labels}
    is_selected = _is_selected(answers, labels)
    corrected = None
    if both and not is_selected:
        from lhkit.harness.figures.prediction_powered import corrected_rate  # NumPy and SciPy

        clusters: dict[str, list[tuple[bool, bool | None]]] = {}
        for sample, answer in answers.items():
            clusters.setdefault(sample.scenario, []).append((answer, labels.get(sample)))
        corrected = corrected_rate(list(clusters.values()))
    errors: dict[bool, dict[str, list[bool]]] = {True: {}, False: {}}
    for sample, (answer, label) in both.items():
        errors[label].setdefault(sample.scenario, []).append(answer is not label)
    shares = {label: share_of(e for c in by.values() for e in c) for label, by in errors.items()}
    return JudgeAgreement(
        score=score,
        labels=len(both),
        unanswered=sum(sample not in answers for sample in labels),
        answers=share_of(answers.values()),
        kappa=cohens_kappa([(str(answer), str(label)) for answer, label in both.values()]),
        false_yes=shares[False],
        false_yes_interval=rate_interval(errors[False].values()),
        false_no=shares[True],
        false_no_interval=rate_interval(errors[True].values()),
        disputed=tuple(
            (sample, label) for sample, (answer, label) in both.items() if answer is not label
        ),
        corrected=corrected,
        is_selected=is_selected,
    )


def _is_selected(answers: Mapping[SampleId, bool], labels: Mapping[SampleId, bool]) -> bool:
    """Return whether labels cannot be a random part of the samples.

    All differ from the judge, in both directions (one direction may be a bad judge), or the judge's
    answers to the labelled samples are as unlike those to the others as one random part in a
    thousand (hypergeometric, two-sided).
    """
    labelled = [sample for sample in answers if sample in labels]
    if len(labelled) < _FEWEST:
        return False
    if {(answers[sample], labels[sample]) for sample in labelled} == {(True, False), (False, True)}:
        return True
    if len(labelled) == len(answers):
        return False
    from scipy.stats import hypergeom

    hits = sum(answers[sample] for sample in labelled)
    chance = hypergeom(len(answers), sum(answers.values()), len(labelled))
    return bool(min(chance.cdf(hits), chance.sf(hits - 1)) < _RARE / 2)


def score_changes(
    paired: Collection[SampleId],
    results_a: Sequence[ScoreRecord],
    results_b: Sequence[ScoreRecord],
    *,
    p_value: float,
    labelled: Collection[str] = (),
) -> tuple[ScoreChange, ...]:
    """Return the paired differences of the scores that both runs have.

    Args:
        paired: the samples that are valid in both runs.
        results_a: the results of run a.
        results_b: the results of run b.
        p_value: that of the pass rates, with which those of the scores are corrected.
        labelled: the judges for which both runs have labels of a person.
    """
    from lhkit.harness.figures.statistics import holm

    scores_a, scores_b = _by_score(results_a), _by_score(results_b)
    changes = [
        replace(
            _score_change(name, paired, scores_a[score], scores_b[score]),
            is_judge=any(result.judge for result in (*scores_a[score], *scores_b[score])),
            is_labelled=score in labelled,
        )
        for score in scores_a
        if score in scores_b
        for name in _value_names([*scores_a[score], *scores_b[score]])
    ]
    if not changes:
        return ()
    _, *corrected = holm([p_value, *(change.p_value for change in changes)])
    return tuple(replace(change, p_value=p) for change, p in zip(changes, corrected, strict=True))


def _score_change(
    name: str,
    paired: Collection[SampleId],
    results_a: Sequence[ScoreRecord],
    results_b: Sequence[ScoreRecord],
) -> ScoreChange:
    from lhkit.harness.figures.statistics import (
        cluster_bootstrap,
        difference_interval,
        sign_flip,
        sign_flip_numbers,
    )

    sources = {result.source_sha256 for result in (*results_a, *results_b)}
    values_a, values_b = _sample_values(results_a, name), _sample_values(results_b, name)
    both = [sample for sample in values_a if sample in values_b and sample in paired]
    if not both:
        return ScoreChange(name=name, is_other=len(sources) > 1)
    values = [value for sample in both for value in (values_a[sample], values_b[sample])]
    clusters: dict[str, list[float]] = {}
    for sample in both:
        gain = float(values_b[sample]) - float(values_a[sample])
        clusters.setdefault(sample.scenario, []).append(gain)
    is_rate = all(isinstance(value, bool) for value in values)
    if is_rate:
        gains = [[round(gain) for gain in cluster] for cluster in clusters.values()]
        interval, p_value = difference_interval(gains), sign_flip(map(sum, gains))
    else:
        interval = cluster_bootstrap(clusters.values())
        p_value = sign_flip_numbers([sum(cluster) for cluster in clusters.values()])
    return ScoreChange(
        name=name,
        is_rate=is_rate,
        n=len(both),
        a=sum(values_a[sample] for sample in both) / len(both),
        b=sum(values_b[sample] for sample in both) / len(both),
        interval=interval,
        p_value=p_value,
        is_other=len(sources) > 1,
    )


def _value_names(results: Iterable[ScoreRecord]) -> Iterable[str]:
    return dict.fromkeys(value.name for result in results for value in result.values)


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
