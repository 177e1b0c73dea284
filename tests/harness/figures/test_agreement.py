"""A judge and the labels of a person: error rates, the corrected rate, labels that are no part."""

from collections.abc import Sequence

import numpy as np
import pytest

from lhkit.harness.figures.prediction_powered import corrected_limits, corrected_rate
from lhkit.harness.figures.score_figures import compare_judge
from lhkit.harness.records.score_record import JudgeAnswer, ScoreRecord, ScoreValue
from lhkit.harness.scenarios.sample_id import SampleId
from tests.rows import check_rows

ORACLE = [
    ((20, 5, 4, 31), (180, 220), 0.44596354166666663),
    ((3, 2, 1, 24), (40, 330), 0.14817557598456477),
    ((90, 10, 20, 80), (300, 500), 0.39881976023150056),
    ((10, 2, 9, 9), (100, 170), 0.321151399786434),
]
"""Counts, and `ppi_mean_pointestimate(labels, answers, other_answers)` of ppi-python 0.2."""


def named(number: int, repeat: int = 0) -> SampleId:
    return SampleId(scenario=f"s{number}", repeat=repeat)


def result(sample: SampleId, answer: bool) -> ScoreRecord:
    return ScoreRecord(
        sample_id=sample,
        record_sha256="r",
        score="polite",
        source_sha256="s",
        values=(ScoreValue(name="polite", value=answer),),
        judge=JudgeAnswer(key="k", model="m", prompt="?", answer="yes"),
    )


@check_rows(("counts", "others", "expected"), ORACLE)
def test_corrected_rate_is_near_that_of_ppi_python(
    counts: Sequence[int], others: Sequence[int], expected: float
) -> None:
    rate, low, high, _ = corrected_limits(
        np.array([counts], dtype=float), np.array([others], dtype=float)
    )
    # the multiple differs a little: it is shrunk, which the interval allows for
    assert rate[0] == pytest.approx(expected, abs=0.01)
    assert low[0] < expected < high[0]


@pytest.mark.longer
@check_rows(
    ("rate", "false_yes", "false_no", "labels", "samples"),
    [
        (0.03, 0.1, 0.2, 30, 630),
        (0.3, 0.1, 0.2, 30, 630),
        (0.5, 0.1, 0.2, 100, 700),
        (0.95, 0.1, 0.2, 300, 900),
        (0.03, 0.05, 0.05, 30, 400),
        (0.01, 0.4, 0.4, 300, 400),  # a judge that knows nothing
        (0.99, 0.4, 0.4, 300, 400),
        (0.2, 0.0, 0.3, 30, 10_000),  # errors of one kind, of which few labels show none
        (0.9, 0.3, 0.0, 60, 1_000),
        (0.02, 0.05, 0.1, 30, 10_000),
    ],
)
def test_corrected_interval_covers(
    rate: float, false_yes: float, false_no: float, labels: int, samples: int
) -> None:
    odds = [rate * (1 - false_no), rate * false_no, (1 - rate) * false_yes]
    rng, others = np.random.default_rng(1), samples - labels
    counts = rng.multinomial(labels, [*odds, 1 - sum(odds)], size=4_000).astype(float)
    yes = rng.binomial(others, odds[0] + odds[2], size=4_000).astype(float)
    _, low, high, _ = corrected_limits(counts, np.c_[yes, others - yes])
    assert np.mean((low <= rate) & (rate <= high)) > 0.935


def test_repeats_are_not_counted_as_independent() -> None:
    once = [[(number % 3 > 0, number % 2 > 0 if number < 60 else None)] for number in range(120)]
    repeated = [cluster * 5 for cluster in once]
    alone, together = corrected_rate(once), corrected_rate(repeated)
    width = alone.interval.high - alone.interval.low
    assert together.interval.high - together.interval.low > 0.95 * width
    assert together.rate == pytest.approx(alone.rate, abs=0.01)


def test_labels_that_halve_the_interval_do() -> None:
    counts, others = np.array([[20.0, 5, 4, 31]]), np.array([[1800.0, 2200]])
    clusters = [
        [(judge, label)]
        for (label, judge), count in zip(
            ((True, True), (True, False), (False, True), (False, False)),
            (20, 5, 4, 31),
            strict=True,
        )
        for _ in range(count)
    ]
    clusters += [[(True, None)]] * 1800 + [[(False, None)]] * 2200
    needed = corrected_rate(clusters).to_halve
    assert needed is not None
    _, low, high, _ = corrected_limits(counts, others)
    more = counts * needed / 60
    _, low_more, high_more, _ = corrected_limits(more, others - (more - counts)[:, :2])
    assert (high_more - low_more)[0] / (high - low)[0] == pytest.approx(0.5, abs=0.03)


def test_judge_agreement_counts_both_errors_and_disputes() -> None:
    answers = {named(number): number % 2 == 0 for number in range(40)}
    labels = {named(number): number % 4 == 0 for number in range(20)}
    found = compare_judge("polite", [result(*each) for each in answers.items()], labels)
    assert (found.labels, found.false_yes.part, found.false_yes.whole) == (20, 5, 15)
    assert (found.false_no.part, found.false_no.whole) == (0, 5)
    assert found.disputed == tuple((named(number), False) for number in (2, 6, 10, 14, 18))
    assert found.corrected is not None
    assert 0.25 in found.corrected.interval
    assert found.corrected.rate < 0.5


@pytest.mark.parametrize("kind", ["disputed", "only yes"])
def test_judge_is_not_corrected_with_labels_that_are_no_random_part(kind: str) -> None:
    answers = {named(number): number % 2 == 0 for number in range(100)}
    if kind == "disputed":
        labels = {named(number): number % 2 > 0 for number in range(10)}
    else:
        labels = {named(number): number % 3 > 0 for number in range(0, 60, 2)}
    found = compare_judge("polite", [result(*each) for each in answers.items()], labels)
    assert found.is_selected
    assert found.corrected is None


def test_bad_judge_with_random_labels_is_corrected() -> None:
    answers = {named(number): True for number in range(40)}
    labels = {named(number): False for number in range(15)}
    found = compare_judge("polite", [result(*each) for each in answers.items()], labels)
    assert found.corrected is not None
    assert found.corrected.rate < 0.05


def test_judge_without_labels_has_no_correction() -> None:
    found = compare_judge("polite", [result(named(1), True)], {})
    assert (found.labels, found.kappa, found.corrected, found.is_selected) == (0, None, None, False)
