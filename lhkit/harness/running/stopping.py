"""Stopping a run as soon as its comparison with a baseline is decided.

The scenarios are run in a random order. The test (`figures.sequential`) looks at a scenario when
all its samples are recorded and so are those of every scenario before it in that order: how fast
samples are does not matter. A scenario that has begun is completed.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from lhkit.base.errors import UsageError
from lhkit.harness.figures.sequential import SequentialTest, in_random_order
from lhkit.harness.records.manifest import Manifest
from lhkit.harness.records.record import Verdict
from lhkit.harness.records.resume import Resumption
from lhkit.harness.results.results import Run
from lhkit.harness.running.plan import Plan, PlannedSample, PlannedScenario
from lhkit.harness.scenarios.sample_id import SampleId
from lhkit.harness.scenarios.scenario_filter import (
    ScenarioFilter,
    ScenarioSelection,
    StoppedRun,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """Stop a run when it is better or worse than a baseline, or no worse than a margin.

    Attributes:
        baseline: the run to compare with.
        margin: the points by which the new run may be worse, 0 to 100; None to test only for a
            difference.
        seed: of the random order of the scenarios.
    """

    baseline: Run
    margin: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.margin is not None and not 0 <= self.margin <= 100:
            raise UsageError(f"margin is invalid: {self.margin:g}. Give points from 0 to 100")
        if self.seed < 0:
            raise UsageError(f"seed is invalid: {self.seed}. Give 0 or more")


def require_startable(folder: Path, before: Manifest, resumed: Resumption) -> None:
    """Refuse a run that may stop in the folder of a whole run, which it would replace.

    Raises:
        UsageError: the folder has a run of all scenarios, and not all of their records are usable.
    """
    if before.content_hashes and before.selection is None and (resumed.new or resumed.changed):
        raise UsageError(
            f"{folder} has a run of all {len(before.scenarios)} scenarios, which a run that may "
            "stop early would replace. Give another name, or finish it without "
            "--stop-when-decided."
        )


class Stopping:
    """The test of one run, while it is running.

    Args:
        rule: when to stop.
        plan: all samples of the run.
    """

    def __init__(self, rule: StopRule, plan: Plan) -> None:
        hashes = plan.hashes
        self._rule = rule
        self._before = {
            record.sample_id: record.is_passed
            for record in rule.baseline.records
            if record.is_valid and record.sample_id in hashes
        }
        pairs = Counter(sample.scenario for sample in self._before)
        planned = in_random_order(hashes, rule.seed)
        # a scenario without a pair tells nothing, so those are last
        self._order = {
            name: planned[name] for name in sorted(planned, key=lambda n: n not in pairs)
        }
        self.test = SequentialTest(
            margin=(rule.margin or 0.0) / 100, largest=max(pairs.values(), default=1)
        )
        self._passed: dict[SampleId, bool | None] = {}
        self._next = iter(self._order.items())
        self._waiting = next(self._next, None)
        self._planned: dict[str, list[PlannedScenario]] = {}
        for scenario in plan.scenarios:
            self._planned.setdefault(scenario.scenario.id, []).append(scenario)
        self._repeats = plan.repeats

    @property
    def is_decided(self) -> bool:
        """Whether no further scenario needs to begin."""
        return bool(self.test.direction)

    def record(self, sample: SampleId, verdict: Verdict) -> None:
        """Take the verdict of a recorded sample, and look at the scenarios that are complete."""
        is_valid = verdict is not Verdict.INVALID
        self._passed[sample] = verdict is Verdict.PASS if is_valid else None
        while self._waiting is not None and not self.is_decided:
            _, samples = self._waiting
            if not all(each in self._passed for each in samples):
                return
            pairs = ((self._before.get(each), self._passed[each]) for each in samples)
            self.test.add([b - a for a, b in pairs if a is not None and b is not None])
            self._waiting = next(self._next, None)

    def samples(self, kept: Collection[SampleId]) -> Iterator[PlannedSample]:
        """Yield the samples to run, in the random order, until the decision.

        Args:
            kept: samples whose records are reused.
        """
        for scenario in self._order:
            if self.is_decided:
                return
            for planned in self._planned[scenario]:
                samples = map(planned.sample, range(self._repeats))
                yield from (each for each in samples if each.sample_id not in kept)

    def selection(self, selected: ScenarioSelection | None) -> ScenarioSelection | None:
        """Return which scenarios the run has; `selected` if it has all that were selected.

        Args:
            selected: how the scenarios of the plan were selected; None if they are all.
        """
        unplayed = [
            name
            for name, samples in self._order.items()
            if not all(each in self._passed for each in samples)
        ]
        if not unplayed:
            return selected
        stopped = StoppedRun(
            seed=self._rule.seed,
            baseline=self._rule.baseline.name,
            margin=self._rule.margin,
            planned=len(self._order),
            looked=self.test.looked,
            decision=self.test.direction,
        )
        total = len(self._order) if selected is None else selected.total
        return ScenarioSelection(
            taken=len(self._order) - len(unplayed),
            total=total,
            filter=ScenarioFilter() if selected is None else selected.filter,
            stopped=stopped,
        )
