"""Always-valid tests of several arms, of which some have stopped early. Pure.

For each arm and each other one there is the hypothesis that the arm is no worse, with a p-value
that is valid after any number of scenarios (`sequential.one_sided_p_values`). All n (n - 1) of
them, for n arms, are corrected by Holm (1979), A simple sequentially rejective multiple test
procedure, Scandinavian Journal of Statistics 6(2). An arm is dropped when one of its hypotheses is
rejected.

When the first of all rejections that are wrong occurs, those before it are right, so the correction
is for at least as many hypotheses as are true. By Ville's inequality and the union bound it occurs
in at most 5 % of matrices: at any time, for any number of equal arms, and however the results of
arms depend on each other. So an arm that is truly the best, or as good as it, is dropped in at most
5 %. For two arms it is the two-sided test of a run with a baseline.

All arms must meet the scenarios in one random order, which is independent of their results. It does
not matter that one arm is run after the other: the p-values are about the first scenarios of both.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import permutations
from math import log
from typing import TypeAlias

from lhkit.base.errors import UsageError
from lhkit.harness.figures.rates import ALPHA
from lhkit.harness.records.resume import SampleHashes
from lhkit.harness.results.results import Run

OrderedPair: TypeAlias = tuple[int, int]
"""The numbers of an arm that may be worse, and of the one that it is compared with."""


class WorseArms:
    """The p-values of all hypotheses that an arm is no worse than another.

    Args:
        runs: of the arms, in their order; those of the last arms may be missing.
        seed: of the random order of the scenarios.
        arms: their number; by default that of the runs.
    """

    def __init__(self, runs: Sequence[Run], *, seed: int, arms: int | None = None) -> None:
        self._runs = runs
        self._seed = seed
        pairs = permutations(range(len(runs) if arms is None else arms), 2)
        self._p_values = dict.fromkeys(pairs, 1.0)
        for earlier in range(len(runs)):
            for later in range(earlier + 1, len(runs)):
                above, below = self._test(earlier, later)
                self._p_values[later, earlier] = below
                self._p_values[earlier, later] = above
        self.corrected = corrected(self._p_values)
        """The p-values, corrected for all pairs."""

    @property
    def log_limit(self) -> float:
        """The logarithm of the e-value at which the next arm is found worse than another."""
        return log_limit(self.corrected)

    def p_value(self, arm: int) -> float:
        """Return the p-value that an arm is no worse than each other one."""
        return min(p for (worse, _), p in self.corrected.items() if worse == arm)

    def p_difference(self, one: int, other: int) -> float:
        """Return the p-value that two arms are equal."""
        return min(self.corrected[one, other], self.corrected[other, one])

    def could_be_worse(self, arm: int, other: int) -> bool:
        """Return whether an arm that fails everything would be found worse than another one."""
        from lhkit.harness.figures.sequential import in_random_order, one_sided_p_values

        passed = {
            record.sample_id: record.is_passed
            for record in self._runs[other].records
            if record.is_valid
        }
        order = in_random_order(passed, self._seed)
        losses = [[-int(passed[sample]) for sample in samples] for samples in order.values()]
        largest = max(map(len, losses), default=1)
        worst = one_sided_p_values(losses, largest=largest)[1]
        return corrected({**self._p_values, (arm, other): worst})[arm, other] < ALPHA

    def _test(self, earlier: int, later: int) -> tuple[float, float]:
        from lhkit.harness.figures.sequential import one_sided_p_values

        gains, largest = gains_in_order(self._runs[earlier], self._runs[later], self._seed)
        return one_sided_p_values(gains, largest=largest)


def corrected(p_values: Mapping[OrderedPair, float]) -> dict[OrderedPair, float]:
    """Return the p-values of all ordered pairs of arms, corrected (Holm) for their number."""
    from lhkit.harness.figures.statistics import holm

    return dict(zip(p_values, holm(list(p_values.values())), strict=True))


def log_limit(corrected_p_values: Mapping[OrderedPair, float]) -> float:
    """Return the logarithm of the e-value at which one more hypothesis is rejected."""
    rejected = sum(p < ALPHA for p in corrected_p_values.values())
    return log((len(corrected_p_values) - rejected) / ALPHA)


def gains_in_order(earlier: Run, later: Run, seed: int) -> tuple[list[list[int]], int]:
    """Return the differences of the scenarios of two arms in random order, and the most of one.

    They end before the first scenario of which one of the arms has not every sample: of the later
    ones only the fastest may have been recorded. As a running arm does, they skip scenarios without
    a valid sample of the earlier arm.
    """
    from lhkit.harness.figures.sequential import in_random_order

    a, b = ({record.sample_id: record for record in run.records} for run in (earlier, later))
    planned = SampleHashes.from_manifest(later.manifest) or b
    shared = (s for s in SampleHashes.from_manifest(earlier.manifest) or a if s in planned)
    order = in_random_order(shared, seed)
    pairs = Counter(s.scenario for s, record in a.items() if record.is_valid and s in planned)
    gains: list[list[int]] = []
    for samples in order.values():
        if any(sample not in a for sample in samples):
            break
        valid = [sample for sample in samples if a[sample].is_valid]
        if any(sample not in b for sample in valid):
            break
        gains.append([b[s].is_passed - a[s].is_passed for s in valid if b[s].is_valid])
    return gains, max(pairs.values(), default=1)


def order_seed(runs: Sequence[tuple[str, Run]]) -> int | None:
    """Return the seed of the order of runs of which some stopped when decided; None if none did.

    Raises:
        UsageError: they were run in different orders.
    """
    seeds: dict[int, str] = {}
    for name, run in runs:
        selection = run.manifest.selection
        if selection is not None and selection.stopped is not None:
            seeds.setdefault(selection.stopped.seed, name)
    if len(seeds) > 1:
        raise UsageError(
            f"{', '.join(seeds.values())} stop when decided, and their scenarios were run in "
            "different random orders (--seed), so they cannot be compared. Finish them without "
            "--stop-when-decided."
        )
    return next(iter(seeds), None)
