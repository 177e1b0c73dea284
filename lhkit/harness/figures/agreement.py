"""How much two people, or a judge and a person, agree. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

from lhkit.harness.figures.rates import Corrected, Interval, Share, wilson
from lhkit.harness.scenarios.sample_id import SampleId

_MIN_VARIANCE: Final = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Cohen's kappa of `n` places that two people judged; None if both used one label only.

    `observed` is the observed agreement. `interval` is the 95 % interval of `kappa`.
    """

    n: int
    observed: float
    kappa: float | None
    interval: Interval | None


def cohens_kappa(pairs: Sequence[tuple[str, str]]) -> Agreement | None:
    """Return Cohen's kappa of pairs of labels with its 95 % interval; None without pairs.

    Cohen (1960), A coefficient of agreement for nominal scales, with the standard error of Fleiss,
    Cohen and Everitt (1969). That error is 0 for full agreement, or if one person uses one label
    only; then the interval is Wilson's for the observed agreement, rescaled by chance agreement.
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
    if chance >= 1.0:  # both used the same single label
        return Agreement(n=n, observed=observed, kappa=None, interval=None)
    kappa = (observed - chance) / (1 - chance)
    rest = 1 - kappa
    equal = [(a, b) for a, b in joint if a == b]
    different = [(a, b) for a, b in joint if a != b]
    agreed = sum(joint[a, b] * (1 - (first[a] + second[a]) * rest) ** 2 for a, b in equal)
    disagreed = sum(joint[a, b] * (second[a] + first[b]) ** 2 for a, b in different)
    variance = agreed + rest**2 * disagreed - (kappa - chance * rest) ** 2
    if variance < _MIN_VARIANCE:
        share = wilson(round(observed * n), n)
        low, high = ((end - chance) / (1 - chance) for end in (share.low, share.high))
    else:
        reach = NormalDist().inv_cdf(0.975) * (variance / n) ** 0.5 / (1 - chance)
        low, high = kappa - reach, kappa + reach
    interval = Interval(low=max(-1.0, low), high=min(1.0, high))
    return Agreement(n=n, observed=observed, kappa=kappa, interval=interval)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeAgreement:
    """A judge and a person on the same samples.

    Attributes:
        score: the name of the judge.
        labels: the samples with a label of the person and an answer of the judge.
        unanswered: labelled samples without an answer of the judge.
        answers: the judge's answers yes, of all its answers.
        kappa: Cohen's kappa with its interval; None without labels.
        false_yes: of the samples that the person calls no, those that the judge calls yes.
        false_yes_interval: its 95 % interval; None if the person calls no sample no.
        false_no: of the samples that the person calls yes, those that the judge calls no.
        false_no_interval: its 95 % interval; None if the person calls no sample yes.
        disputed: the samples that they differ on, with the label of the person.
        corrected: the corrected rate; None without labels, or if they are not a random part.
        is_selected: the labels cannot be a random part: all differ from the judge, in both
            directions, or its answers to the labelled samples differ from those to the others.
    """

    score: str
    labels: int
    unanswered: int
    answers: Share
    kappa: Agreement | None
    false_yes: Share
    false_yes_interval: Interval | None
    false_no: Share
    false_no_interval: Interval | None
    disputed: tuple[tuple[SampleId, bool], ...]
    corrected: Corrected | None
    is_selected: bool
