"""Stopping a run as soon as its comparison with a baseline, or with other arms, is decided.

The scenarios are run in a random order. The test (`figures.sequential`) looks at a scenario when
all its samples are recorded and so are those of every scenario before it in that order: how fast
samples are does not matter. A scenario that has begun is completed.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from lhkit.base.errors import UsageError
from lhkit.harness.figures.sequential import LOG_LIMIT, SequentialTest, in_random_order
from lhkit.harness.records.manifest import Manifest
from lhkit.harness.records.record import Verdict
from lhkit.harness.records.resume import Resumption
from lhkit.harness.results.arms import WorseArms
from lhkit.harness.results.results import Run
from lhkit.harness.running.plan import Plan, PlannedSample, PlannedScenario
from lhkit.harness.scenarios.sample_id import SampleId
from lhkit.harness.scenarios.scenario_filter import (
    ScenarioFilter,
    ScenarioSelection,
    StoppedRun,
)


class Rule(Protocol):
    """Says when a run stops."""

    @property
    def runs(self) -> Sequence[Run]:
        """The runs that it is compared with; without one it never stops."""

    @property
    def margin(self) -> float | None:
        """The points by which it may be worse; None to test only for a difference."""

    @property
    def seed(self) -> int:
        """The seed of the random order of the scenarios."""

    @property
    def log_limit(self) -> float:
        """The logarithm of the e-value that decides a comparison."""

    @property
    def directions(self) -> Collection[int]:
        """The directions of a comparison that end the run."""

    @property
    def arms(self) -> int:
        """The number of arms of the matrix; 0 for a run with a baseline."""


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

    @property
    def runs(self) -> Sequence[Run]:
        """The baseline."""
        return (self.baseline,)

    @property
    def log_limit(self) -> float:
        """The logarithm of the e-value that decides."""
        return LOG_LIMIT

    @property
    def directions(self) -> Collection[int]:
        """Both: a better run stops, too."""
        return (1, -1)

    @property
    def arms(self) -> int:
        """0: it is no arm of a matrix."""
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DropRule:
    """Stop an arm of a matrix when it is worse than an arm before it that was run to the end.

    Attributes:
        runs: of the arms before it that were not dropped; the first arm of a matrix has none, and
            is run to the end.
        seed: of the random order of the scenarios, the same for all arms.
        log_limit: as in `Rule`, corrected for all arms (see `results.arms`).
        arms: their number.
    """

    runs: Sequence[Run]
    seed: int
    log_limit: float
    arms: int
    margin: None = None
    directions: Collection[int] = (-1,)

    @classmethod
    def after(cls, runs: Sequence[Run], *, arms: int, seed: int) -> "DropRule":
        """Return the rule of the next arm.

        Args:
            runs: of all arms before it.
            arms: the number of all arms.
            seed: of the random order.
        """
        return cls(
            runs=[run for run in runs if not is_dropped(run)],
            seed=seed,
            log_limit=WorseArms(runs, seed=seed, arms=arms).log_limit,
            arms=arms,
        )


def is_dropped(run: Run) -> bool:
    """Return whether a run has stopped early."""
    selection = run.manifest.selection
    return selection is not None and selection.stopped is not None


def require_startable(folder: Path, before: Manifest, resumed: Resumption) -> None:
    """Refuse a run that may stop in the folder of a whole run, which it would replace.

    Raises:
        UsageError: the folder has a run of all scenarios, and not all of their records are usable.
    """
    if before.content_hashes and before.selection is None and (resumed.new or resumed.changed):
        raise UsageError(
            f"{folder} has a run of all {len(before.scenarios)} scenarios, which a run that may "
            "stop early would replace. Give another name or folder, or finish it without "
            "--stop-when-decided."
        )


class InterimAnalysis:
    """The tests of one run, while it is running.

    Args:
        rule: when to stop.
        samples: all samples of the run.

    Attributes:
        order: the samples of each scenario, in the random order.
    """

    def __init__(self, rule: Rule, samples: Collection[SampleId]) -> None:
        self._rule = rule
        self._comparisons = [_Comparison(run, rule, samples) for run in rule.runs]
        paired = {sample.scenario for each in self._comparisons for sample in each.before}
        planned = in_random_order(samples, rule.seed)
        # a scenario without a pair tells nothing, so those are last
        self.order = {
            name: planned[name] for name in sorted(planned, key=lambda n: n not in paired)
        }
        self._passed: dict[SampleId, bool | None] = {}
        self._decisive: _Comparison | None = None
        self._next = iter(self.order.items())
        self._waiting = next(self._next, None)

    @property
    def is_decided(self) -> bool:
        """Whether no further scenario needs to begin."""
        return self._decisive is not None

    @property
    def direction(self) -> int:
        """The direction of the decision, as in `SequentialTest`; 0 without one."""
        return 0 if self._decisive is None else self._decisive.test.direction

    @property
    def looked(self) -> int:
        """The scenarios looked at until the decision, else all."""
        if self._decisive is not None:
            return self._decisive.test.looked
        return max((each.test.looked for each in self._comparisons), default=0)

    def record(self, sample: SampleId, verdict: Verdict) -> None:
        """Take the verdict of a recorded sample, and look at the scenarios that are complete."""
        is_valid = verdict is not Verdict.INVALID
        self._passed[sample] = verdict is Verdict.PASS if is_valid else None
        while self._waiting is not None and not self.is_decided:
            _, samples = self._waiting
            if not all(each in self._passed for each in samples):
                return
            for comparison in self._comparisons:
                comparison.look(samples, self._passed)
            self._decisive = next(
                (c for c in self._comparisons if c.test.direction in self._rule.directions), None
            )
            self._waiting = next(self._next, None)

    def selection(self, selected: ScenarioSelection | None) -> ScenarioSelection | None:
        """Return which scenarios the run has; `selected` if it has all that were selected.

        Args:
            selected: how the scenarios of the plan were selected; None if they are all.
        """
        unplayed = [
            name
            for name, samples in self.order.items()
            if not all(each in self._passed for each in samples)
        ]
        if not unplayed:
            return selected
        compared = (self._decisive.run,) if self._decisive else self._rule.runs
        stopped = StoppedRun(
            seed=self._rule.seed,
            baseline=", ".join(run.name for run in compared),
            margin=self._rule.margin,
            planned=len(self.order),
            looked=self.looked,
            decision=self.direction,
            arms=self._rule.arms,
        )
        total = len(self.order) if selected is None else selected.total
        return ScenarioSelection(
            taken=len(self.order) - len(unplayed),
            total=total,
            filter=ScenarioFilter() if selected is None else selected.filter,
            stopped=stopped,
        )


class Stopping(InterimAnalysis):
    """The tests of a planned run, and the samples that it runs until they decide."""

    def __init__(self, rule: Rule, plan: Plan) -> None:
        super().__init__(rule, plan.hashes)
        self._planned: dict[str, list[PlannedScenario]] = {}
        for scenario in plan.scenarios:
            self._planned.setdefault(scenario.scenario.id, []).append(scenario)
        self._repeats = plan.repeats

    def samples(self, kept: Collection[SampleId]) -> Iterator[PlannedSample]:
        """Yield the samples to run, in the random order, until the decision.

        Args:
            kept: samples whose records are reused.
        """
        for scenario in self.order:
            if self.is_decided:
                return
            for planned in self._planned[scenario]:
                samples = map(planned.sample, range(self._repeats))
                yield from (each for each in samples if each.sample_id not in kept)


class _Comparison:
    """The test of a run with one earlier run."""

    def __init__(self, run: Run, rule: Rule, planned: Collection[SampleId]) -> None:
        self.run = run
        self.before = {
            record.sample_id: record.is_passed
            for record in run.records
            if record.is_valid and record.sample_id in planned
        }
        pairs = Counter(sample.scenario for sample in self.before)
        self.test = SequentialTest(
            margin=(rule.margin or 0.0) / 100,
            largest=max(pairs.values(), default=1),
            limit=rule.log_limit,
        )

    def look(self, samples: Sequence[SampleId], passed: Mapping[SampleId, bool | None]) -> None:
        """Look at the next scenario."""
        pairs = ((self.before.get(each), passed[each]) for each in samples)
        self.test.add([b - a for a, b in pairs if a is not None and b is not None])
