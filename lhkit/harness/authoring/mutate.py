"""Mutation testing of scenarios: which mistakes of a model does a scenario not detect?

Each mutant is the reference trajectory with one mistake (see `mistakes`), run with the real tools,
gate and scoring; it must fail. Accepted survivors are listed with a reason in a file, which must
not list mutants that fail or do not exist any more.
"""

import tomllib
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from lhkit.base.errors import ScenarioError
from lhkit.base.files import read_text_file
from lhkit.harness.authoring.mistakes import KINDS, Mistake, Untried
from lhkit.harness.authoring.reference import trace_model
from lhkit.harness.authoring.reference_run import ReferenceRun, run_reference
from lhkit.harness.records.record import Trajectory, Verdict
from lhkit.harness.running.sample import run_sample
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.harness.scenarios.values import hashable_form
from lhkit.harness.scoring.state import state_diff
from lhkit.harness.scoring.verdict import judge
from lhkit.toolset import Toolset, require_isolated

Survivors: TypeAlias = Mapping[tuple[str, str], str]
"""Accepted survivors: reasons by scenario and key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MutantResult:
    """A mistake in a scenario and its verdict; `key` is unique in the scenario."""

    scenario: str
    ac: str | None
    kind: str
    key: str
    change: str
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Numbers of mistakes that were run, and that were detected."""

    tried: int = 0
    noticed: int = 0

    @property
    def share(self) -> float:
        """Detected mistakes in percent; 100 without mistakes."""
        return 100.0 * self.noticed / self.tried if self.tried else 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationReport:
    """Results of all mutants, and mistakes that could not be made (`untried`)."""

    outcomes: tuple[MutantResult, ...]
    untried: tuple[Untried, ...] = ()

    @property
    def total(self) -> Counts:
        """All mistakes together."""
        return _counts(self.outcomes)

    @property
    def by_kind(self) -> dict[str, Counts]:
        """Counts of each kind, in order of appearance."""
        return self._by("kind")

    @property
    def by_ac(self) -> dict[str, Counts]:
        """Counts of each acceptance criterion, in order of appearance; empty if there are none.

        The scenarios without a criterion are the group without a name.
        """
        groups = self._by("ac")
        return {ac or "": counts for ac, counts in groups.items()} if any(groups) else {}

    @property
    def survivors(self) -> tuple[MutantResult, ...]:
        """Mutants that pass."""
        return tuple(each for each in self.outcomes if each.verdict is Verdict.PASS)

    @property
    def broken(self) -> tuple[MutantResult, ...]:
        """Mutants that could not be run, because of a bug of lhkit."""
        return tuple(each for each in self.outcomes if each.verdict is Verdict.INVALID)

    def unlisted(self, known: Survivors) -> tuple[MutantResult, ...]:
        """Return the survivors without a reason."""
        return tuple(each for each in self.survivors if (each.scenario, each.key) not in known)

    def outdated(self, known: Survivors) -> tuple[tuple[str, str], ...]:
        """Return the accepted survivors of these scenarios that do not survive."""
        alive = {(each.scenario, each.key) for each in self.survivors}
        seen = {each.scenario for each in self.outcomes}
        return tuple(key for key in known if key[0] in seen and key not in alive)

    def _by(self, name: str) -> dict[Any, Counts]:
        groups: dict[Any, list[MutantResult]] = {}
        for mutant in self.outcomes:
            groups.setdefault(getattr(mutant, name), []).append(mutant)
        return {group: _counts(some) for group, some in groups.items()}


def _counts(outcomes: Sequence[MutantResult]) -> Counts:
    noticed = sum(each.verdict is Verdict.FAIL for each in outcomes)
    return Counts(tried=len(outcomes), noticed=noticed)


async def mutate(scenarios: Sequence[Scenario], toolset: Toolset) -> MutationReport:
    """Return which mistakes the scenarios detect.

    Raises:
        NotIsolatedError: sessions of the toolset share real data.
        ScenarioError: the reference calls of a scenario do not pass.
    """
    require_isolated(toolset, "run mutate")
    outcomes: list[MutantResult] = []
    untried: list[Untried] = []
    for scenario in scenarios:
        reference = await run_reference(scenario, toolset)
        if not reference.record.is_passed:
            raise ScenarioError(f"{scenario.id}: the reference calls do not pass: run lhkit lint")
        for mistake in all_mistakes(reference):
            if isinstance(mistake, Untried):
                untried.append(mistake)
            elif (verdict := await _run_mutant(reference, mistake, toolset)) is not None:
                outcomes.append(
                    MutantResult(
                        scenario=scenario.id,
                        ac=scenario.ac,
                        kind=mistake.kind,
                        key=mistake.key,
                        change=mistake.change,
                        verdict=verdict,
                    )
                )
    return MutationReport(outcomes=tuple(outcomes), untried=tuple(untried))


def all_mistakes(reference: ReferenceRun) -> Iterator[Mistake | Untried]:
    """Yield the mistakes of all kinds."""
    for kind in KINDS:
        yield from kind(reference)


async def _run_mutant(
    reference: ReferenceRun, mistake: Mistake, toolset: Toolset
) -> Verdict | None:
    """Return the verdict on a mutant; None if it has no effect and so is no mistake."""
    if mistake.trajectory is not None:
        score = judge(
            reference.scenario,
            mistake.trajectory,
            reference.tools,
            today=reference.today,
            row_keys=reference.row_keys,
        )
        return score.verdict
    record = await run_sample(
        reference.scenario, trace_model(mistake.trace, name="mutant"), toolset
    )
    trajectory, right = record.trajectory, reference.record.trajectory
    if (
        mistake.needs_effect
        and not state_diff(trajectory.final_state, right.final_state)
        and not _results(right) - _results(trajectory)
    ):
        return None
    return record.score.verdict


def _results(trajectory: Trajectory) -> Counter[Hashable]:
    return Counter(hashable_form(call.result) for call in trajectory.calls)


def read_survivors(file: Path) -> Survivors:
    """Return the accepted survivors of a TOML file; none if it does not exist.

    An entry is a table `[[survivor]]` with `scenario`, `mistake` (one or a list) and `reason`.

    Raises:
        ScenarioError: the file is invalid; the message names the entry.
    """
    try:
        entries = tomllib.loads(read_text_file(file)).get("survivor", [])
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ScenarioError(f"{file} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # also invalid UTF-8, or too long a number
        raise ScenarioError(f"{file} is not valid TOML: {error}") from error
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ScenarioError(
            f"{file}: survivor must be a list of tables: write [[survivor]] above each"
        )
    reasons: dict[tuple[str, str], str] = {}
    for number, entry in enumerate(entries):
        for key in _read_mistakes(entry, f"{file}: survivor {number}"):
            if (entry["scenario"], key) in reasons:
                raise ScenarioError(f"{file}: survivor {number}: {key} is listed twice")
            reasons[entry["scenario"], key] = entry["reason"]
    return reasons


def _read_mistakes(entry: Mapping[str, Any], where: str) -> list[str]:
    for name in ("scenario", "reason"):
        if not isinstance(entry.get(name), str) or not entry[name].strip():
            raise ScenarioError(f"{where}: {name} must be a string")
    mistakes = entry.get("mistake")
    keys = [mistakes] if isinstance(mistakes, str) else mistakes
    if not isinstance(keys, list) or not keys or not all(isinstance(key, str) for key in keys):
        raise ScenarioError(f"{where}: mistake must be a string or a list of strings")
    return keys
