"""Scenarios that a baseline passed and that fail now, counted once each. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from lhkit.harness.records.record import SampleRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Regressions:
    """The scenarios of a baseline that pass less often now, by id, in the baseline's order.

    A scenario counts once: if one of its wordings passes in a smaller share of its valid repeats
    than in the baseline. So one failed repeat of a scenario that always passed is a regression, and
    so is a scenario that passed twice in three repeats and passes once now.

    Attributes:
        regressed: the scenarios that pass less often now.
        compared: the scenarios that passed at least once in the baseline and were scored now: those
            that could regress.
        invalid: samples' names (a scenario, or one wording of it) that passed in the baseline and
            have no valid sample now.
        unknown: names that have no valid sample in the baseline.
        missing: names that are in the baseline and not in the run.
    """

    regressed: tuple[str, ...] = ()
    compared: tuple[str, ...] = ()
    invalid: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def count_regressions(
    baseline: Iterable[SampleRecord], records: Iterable[SampleRecord]
) -> Regressions:
    """Return the scenarios whose records pass less often than those of the baseline."""
    before, now = _by_name(baseline), _by_name(records)
    regressed: dict[str, None] = {}
    compared: dict[str, None] = {}
    invalid, unknown = [], []
    for name, old in before.items():
        if name not in now:
            continue
        share, share_now = _pass_share(old), _pass_share(now[name])
        if share is None:
            unknown.append(name)
        elif share and share_now is None:
            invalid.append(name)
        elif share and share_now is not None:
            scenario = old[0].sample_id.scenario
            compared[scenario] = None
            if share_now < share:
                regressed[scenario] = None
    return Regressions(
        regressed=tuple(regressed),
        compared=tuple(compared),
        invalid=tuple(invalid),
        unknown=tuple(unknown),
        missing=tuple(name for name in before if name not in now),
    )


def _by_name(records: Iterable[SampleRecord]) -> dict[str, list[SampleRecord]]:
    """Return the repeats of each scenario in each wording."""
    grouped: dict[str, list[SampleRecord]] = {}
    for record in records:
        grouped.setdefault(record.sample_id.name, []).append(record)
    return grouped


def _pass_share(repeats: Iterable[SampleRecord]) -> Fraction | None:
    """Return the share of valid repeats that passed; None if none is valid."""
    passed = [record.is_passed for record in repeats if record.is_valid]
    return Fraction(sum(passed), len(passed)) if passed else None
