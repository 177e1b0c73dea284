"""The mutation report: which mistakes of a model would a scenario not notice?

Every reference trace is spoilt in one place at a time and played through the real controller, gate,
tools and judge; it must not pass. `mistakes` has the kinds. A survivor that is right has its reason
in a list, which is checked both ways: an entry whose mistake is noticed by now, or does not exist
any more, is out of date.
"""

import tomllib
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lhkit.errors import ScenarioError
from lhkit.harness.author.mistakes import KINDS, Mistake, Untried
from lhkit.harness.author.reference import trace_model
from lhkit.harness.author.reference_run import Played, play_reference
from lhkit.harness.comparison import hashable_form
from lhkit.harness.record import Evidence, Verdict
from lhkit.harness.sample import tried
from lhkit.harness.scenario import Scenario
from lhkit.harness.scoring.verdict import judge
from lhkit.harness.state_diff import state_diff
from lhkit.toolset import Toolset, require_isolated


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedMutant:
    """One mistake in one scenario, and the verdict on it. `key` is unique in the scenario."""

    scenario: str
    ac: str
    kind: str
    key: str
    change: str
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Mistakes that were tried, and that were noticed."""

    tried: int = 0
    noticed: int = 0

    @property
    def share(self) -> float:
        """The share that was noticed, in percent; 100 if there was none."""
        return 100.0 * self.noticed / self.tried if self.tried else 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Survivors:
    """Known survivors: (scenario, key) to the reason."""

    reasons: Mapping[tuple[str, str], str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationReport:
    """All outcomes, and the mistakes that could not be made (`untried`)."""

    outcomes: tuple[TriedMutant, ...]
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
        """Counts of each acceptance criterion, in order of appearance."""
        return self._by("ac")

    @property
    def survivors(self) -> tuple[TriedMutant, ...]:
        """The mistakes that pass."""
        return tuple(each for each in self.outcomes if each.verdict is Verdict.PASS)

    @property
    def broken(self) -> tuple[TriedMutant, ...]:
        """The mistakes that could not be played: a bug of ours."""
        return tuple(each for each in self.outcomes if each.verdict is Verdict.INVALID)

    def unlisted(self, known: Survivors) -> tuple[TriedMutant, ...]:
        """Return the survivors without a reason."""
        return tuple(
            each for each in self.survivors if (each.scenario, each.key) not in known.reasons
        )

    def outdated(self, known: Survivors) -> tuple[tuple[str, str], ...]:
        """Return the known survivors of these scenarios that did not survive."""
        alive = {(each.scenario, each.key) for each in self.survivors}
        seen = {each.scenario for each in self.outcomes}
        return tuple(key for key in known.reasons if key[0] in seen and key not in alive)

    def _by(self, name: str) -> dict[str, Counts]:
        groups: dict[str, list[TriedMutant]] = {}
        for each in self.outcomes:
            groups.setdefault(getattr(each, name), []).append(each)
        return {group: _counts(some) for group, some in groups.items()}


def _counts(outcomes: Sequence[TriedMutant]) -> Counts:
    noticed = sum(each.verdict is Verdict.FAIL for each in outcomes)
    return Counts(tried=len(outcomes), noticed=noticed)


async def mutate(scenarios: Sequence[Scenario], toolset: Toolset) -> MutationReport:
    """Return which mistakes each scenario notices.

    Raises:
        NotIsolatedError: sessions of the toolset share real data.
        ScenarioError: a scenario whose gold trace does not pass: `lint` says why.
    """
    require_isolated(toolset, "run mutate")
    outcomes: list[TriedMutant] = []
    untried: list[Untried] = []
    for scenario in scenarios:
        played = await play_reference(scenario, toolset)
        if played.record.judgement.verdict is not Verdict.PASS:
            raise ScenarioError(f"{scenario.id}: the gold trace does not pass: run lhkit lint")
        for mistake in mistakes_of(played):
            if isinstance(mistake, Untried):
                untried.append(mistake)
            elif (verdict := await _verdict(played, mistake, toolset)) is not None:
                outcomes.append(
                    TriedMutant(
                        scenario=scenario.id,
                        ac=scenario.ac,
                        kind=mistake.kind,
                        key=mistake.key,
                        change=mistake.change,
                        verdict=verdict,
                    )
                )
    return MutationReport(outcomes=tuple(outcomes), untried=tuple(untried))


def mistakes_of(played: Played) -> Iterator[Mistake | Untried]:
    """Yield every mistake in one scenario that matters."""
    for kind in KINDS:
        yield from kind(played)


async def _verdict(played: Played, mistake: Mistake, toolset: Toolset) -> Verdict | None:
    """Return the verdict on a mistake; None if it turns out to be none."""
    if mistake.evidence is not None:
        judgement = judge(
            played.scenario,
            mistake.evidence,
            played.tools,
            today=played.today,
            row_keys=played.row_keys,
        )
        return judgement.verdict
    record = await tried(played.scenario, trace_model(mistake.trace, name="mutant"), toolset)
    if mistake.needs_effect and not _has_effect(record.evidence, played.record.evidence):
        return None
    return record.judgement.verdict


def _has_effect(evidence: Evidence, reference: Evidence) -> bool:
    """Return whether another state was left behind, or a result of the reference is missing."""
    if state_diff(evidence.final_state, reference.final_state):
        return True
    return bool(_results(reference) - _results(evidence))


def _results(evidence: Evidence) -> Counter[Hashable]:
    return Counter(hashable_form(call.result) for turn in evidence.turns for call in turn.calls)


def read_survivors(file: Path) -> Survivors:
    """Return the known survivors of a TOML file; none if there is no file.

    Each is a table `[[survivor]]` with `scenario`, `mistake` (one or a list) and `reason`.

    Raises:
        ScenarioError: the file is not like that; the message names the entry.
    """
    try:
        entries = tomllib.loads(file.read_text(encoding="utf-8")).get("survivor", [])
    except FileNotFoundError:
        return Survivors()
    except (ValueError, RecursionError) as error:  # no UTF-8, or a number beyond Python, too
        raise ScenarioError(f"{file}: not TOML: {error}") from error
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise ScenarioError(f"{file}: survivor must be tables: write [[survivor]] above each")
    reasons: dict[tuple[str, str], str] = {}
    for number, entry in enumerate(entries):
        for key in _mistakes(entry, f"{file}: survivor {number}"):
            if (entry["scenario"], key) in reasons:
                raise ScenarioError(f"{file}: survivor {number}: {key} stands there twice")
            reasons[entry["scenario"], key] = entry["reason"]
    return Survivors(reasons=reasons)


def _mistakes(entry: Mapping[str, Any], where: str) -> list[str]:
    for name in ("scenario", "reason"):
        if not isinstance(entry.get(name), str) or not entry[name].strip():
            raise ScenarioError(f"{where}: {name} must be a text")
    mistakes = entry.get("mistake")
    found = [mistakes] if isinstance(mistakes, str) else mistakes
    if not isinstance(found, list) or not found or not all(isinstance(m, str) for m in found):
        raise ScenarioError(f"{where}: mistake must be a text or a list of texts")
    return found
