"""How far two reviewers of the same conversations agree, and where they do not."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

from lhkit.errors import UsageError
from lhkit.harness.record import SampleRecord
from lhkit.harness.reviews import CallPlace, Label, ReviewFile, places_of, reviewers_of
from lhkit.harness.shares import Interval, wilson

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispute:
    """A place that two people judged differently."""

    first: Label
    second: Label

    @property
    def place(self) -> CallPlace:
        """Which."""
        return self.first.place


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewed:
    """Two reviewers: agreement on calls and on replies (None if neither), and every difference."""

    first: str
    second: str
    calls: Agreement | None
    replies: Agreement | None
    disputes: tuple[Dispute, ...]


def compare_reviews(records: Sequence[SampleRecord], folder: Path, *names: str) -> Reviewed:
    """Return how two reviewers of a folder agree, on what both have judged.

    Raises:
        UsageError: there are not two reviewers to compare.
        RunError: a file of labels is broken.
    """
    told = names or reviewers_of(folder)
    if len(told) != 2:
        raise UsageError(
            f"{folder} was reviewed by {', '.join(told) or 'nobody'}: name the two reviewers to "
            "compare"
        )
    files = [ReviewFile(folder, name) for name in told]
    both = [
        (first[place], second[place])
        for record in records
        for first, second in [[file.of(record) for file in files]]
        for place in places_of(record)
        if place in first and place in second
    ]
    calls = [(a.held, b.held) for a, b in both if a.place.call is not None]
    replies = [(a.held, b.held) for a, b in both if a.place.call is None]
    return Reviewed(
        first=told[0],
        second=told[1],
        calls=cohens_kappa(calls),
        replies=cohens_kappa(replies),
        disputes=tuple(Dispute(first=a, second=b) for a, b in both if _differ(a, b)),
    )


def _differ(a: Label, b: Label) -> bool:
    """Return whether two labels say different things; the same kind may ask for other calls."""
    return (a.held, a.tool, a.args, a.say) != (b.held, b.tool, b.args, b.say)
