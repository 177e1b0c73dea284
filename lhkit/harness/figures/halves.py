"""Choose an arm on one half of the scenarios and compare it on the other half. Pure.

The best of several equal arms looks better than the others on the samples that chose it. On samples
that had no part in the choice, one paired test of the chosen arm is as good as if it were the only
one.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from lhkit.harness.figures.rates import ALPHA, Interval
from lhkit.harness.records.record import SampleRecord
from lhkit.harness.scenarios.sample_id import SampleId
from lhkit.harness.scenarios.scenario_filter import random_key

ChoiceOutcome: TypeAlias = Literal[
    "first_stays", "better", "worse", "no_difference", "cannot_tell", "no_samples"
]

Counts: TypeAlias = Sequence[Sequence[int]]
"""Passed samples of each group of scenarios (row) in each arm (column)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Halves:
    """The ids of the scenarios in both halves."""

    seed: int
    choosing: tuple[str, ...]
    reporting: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmCounts:
    """The passed samples of one arm in both halves."""

    name: str
    choosing: int
    reporting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The arm that was chosen on one half, and its comparison with the first arm on the other.

    Attributes:
        halves: the scenarios of both halves.
        arms: the counts of each arm, the first one first.
        chosen: the name of the arm with the most passed samples of the half that chooses; of equal
            ones the first.
        choosing: the samples of that half that are valid in every arm: only these count.
        reporting: those of the other half.
        left_out: samples that are invalid or missing in an arm.
        difference: the pass rate of the chosen arm minus that of the first on the other half, from
            -1 to 1; None if the first is chosen, or without samples.
        interval: the 95 % interval of `difference`.
        p_value: of the paired test on the other half, corrected (Holm) for all choices that are
            reported together; None as `difference`.
        can_be_better: whether the test could have found the chosen arm better, if it had passed
            everything.
    """

    halves: Halves
    arms: tuple[ArmCounts, ...]
    chosen: str
    choosing: int
    reporting: int
    left_out: int = 0
    difference: float | None = None
    interval: Interval | None = None
    p_value: float | None = None
    can_be_better: bool = True

    @property
    def first(self) -> str:
        """The name of the first arm."""
        return self.arms[0].name

    @property
    def outcome(self) -> ChoiceOutcome:
        """What the other half says of the chosen arm: `better` only with a p-value below 5 %."""
        if not self.choosing or not self.reporting:
            return "no_samples"
        if self.p_value is None or self.difference is None:
            return "first_stays"
        if self.p_value < ALPHA:
            return "better" if self.difference > 0 else "worse"
        return "no_difference" if self.can_be_better else "cannot_tell"

    def __repr__(self) -> str:
        return f"<Choice of {self.chosen}: {self.outcome.replace('_', ' ')}>"


def group_of(scenario: str, locale: str) -> str:
    """Return the name that a scenario shares with its translations: its id without the language.

    `greet-ko-01` and `greet-en-01` are both `greet-01`.
    """
    return re.sub(rf"(?:^|[-_.]){re.escape(locale)}(?=[-_.]|$)", "", scenario, count=1)


def split_in_halves(groups: Mapping[str, str], seed: int) -> Halves:
    """Return the scenarios in two random halves; each group is in one of them.

    Args:
        groups: the group of each scenario, by its id.
        seed: of the random order; the first half of the groups in it chooses.
    """
    order = sorted(set(groups.values()), key=lambda group: random_key(seed, f"half {group}"))
    first = set(order[: len(order) // 2])
    return Halves(
        seed=seed,
        choosing=tuple(scenario for scenario, group in groups.items() if group in first),
        reporting=tuple(scenario for scenario, group in groups.items() if group not in first),
    )


def decide(choosing: Counts, reporting: Counts) -> tuple[int, float | None]:
    """Return the chosen arm, and the p-value of its difference from the first on the other half.

    The p-value is that of `statistics.sign_flip` over groups; None if the first arm is chosen.
    """
    from lhkit.harness.figures.statistics import sign_flip

    totals = [sum(column) for column in zip(*choosing, strict=True)]
    chosen = totals.index(max(totals)) if totals else 0
    if not chosen:
        return 0, None
    return chosen, sign_flip(row[chosen] - row[0] for row in reporting)


def choose_on_halves(
    settings: Sequence[Sequence[tuple[str, Sequence[SampleRecord]]]], seed: int
) -> tuple[Choice, ...]:
    """Return one choice for each setting, with p-values corrected (Holm) for those that are tested.

    Args:
        settings: for each setting, such as a model, the records of its arms by name; the first arm
            is the one that stays if nothing is better.
        seed: of the halves, which all settings share.
    """
    from lhkit.harness.figures.statistics import holm

    records = [record for arms in settings for _, arm in arms for record in arm]
    ids = {record.sample_id.scenario: record.locale for record in records}
    groups = {scenario: group_of(scenario, locale) for scenario, locale in ids.items()}
    halves = split_in_halves(groups, seed)
    choices = [_choose(arms, halves, groups) for arms in settings]
    tested = [number for number, (choice, _) in enumerate(choices) if choice.p_value is not None]
    p_values = [choices[number][0].p_value or 0.0 for number in tested]
    corrected = holm(p_values)
    result = [choice for choice, _ in choices]
    for at, number in enumerate(tested):
        best = [*p_values[:at], choices[number][1], *p_values[at + 1 :]]
        result[number] = replace(
            result[number], p_value=corrected[at], can_be_better=holm(best)[at] < ALPHA
        )
    return tuple(result)


def _choose(
    arms: Sequence[tuple[str, Sequence[SampleRecord]]], halves: Halves, groups: Mapping[str, str]
) -> tuple[Choice, float]:
    """Return the choice of one setting, not corrected, and the least possible p-value."""
    from lhkit.harness.figures.statistics import difference_interval, sign_flip

    verdicts = [
        {record.sample_id: record.is_passed for record in records if record.is_valid}
        for _, records in arms
    ]
    shared = [sample for sample in verdicts[0] if all(sample in arm for arm in verdicts)]
    every = {record.sample_id for _, records in arms for record in records}
    is_choosing = set(halves.choosing)
    clusters: tuple[dict[str, list[SampleId]], ...] = ({}, {})
    for sample in shared:
        half = clusters[sample.scenario not in is_choosing]
        half.setdefault(groups[sample.scenario], []).append(sample)
    choosing, reporting = (_counts(half.values(), verdicts) for half in clusters)
    samples = [sum(map(len, half.values())) for half in clusters]
    chosen, p_value = decide(choosing, reporting)
    choice = Choice(
        halves=halves,
        arms=tuple(
            ArmCounts(
                name=name,
                choosing=sum(row[number] for row in choosing),
                reporting=sum(row[number] for row in reporting),
            )
            for number, (name, _) in enumerate(arms)
        ),
        chosen=arms[chosen][0],
        choosing=samples[0],
        reporting=samples[1],
        left_out=len(every) - len(shared),
    )
    if not chosen or not reporting:
        return choice, 1.0
    gains = [
        [verdicts[chosen][sample] - verdicts[0][sample] for sample in group]
        for group in clusters[1].values()
    ]
    best = sign_flip(sum(not verdicts[0][each] for each in group) for group in clusters[1].values())
    return (
        replace(
            choice,
            difference=sum(map(sum, gains)) / samples[1],
            interval=difference_interval(gains),
            p_value=p_value,
        ),
        best,
    )


def _counts(
    groups: Iterable[Sequence[SampleId]], verdicts: Sequence[Mapping[SampleId, bool]]
) -> Counts:
    return [[sum(arm[sample] for sample in group) for arm in verdicts] for group in groups]


def halves_data(choices: Sequence[Choice]) -> dict[str, Any]:
    """Return halves and choices as plain data, to be stored with the runs."""
    halves = choices[0].halves
    return {
        "seed": halves.seed,
        "choosing": list(halves.choosing),
        "reporting": list(halves.reporting),
        "choices": [
            {
                "chosen": choice.chosen,
                "outcome": choice.outcome,
                "difference": choice.difference,
                "interval": choice.interval and [choice.interval.low, choice.interval.high],
                "p_value": choice.p_value,
                "samples": {"choosing": choice.choosing, "reporting": choice.reporting},
                "left_out": choice.left_out,
                "passed": {
                    arm.name: {"choosing": arm.choosing, "reporting": arm.reporting}
                    for arm in choice.arms
                },
            }
            for choice in choices
        ],
    }
