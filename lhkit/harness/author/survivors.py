"""What became of the mistakes: counts, survivors, and the list of survivors that are known.

A known survivor has a reason that a reader can judge. The list is checked both ways: an entry
whose mistake is noticed by now, or does not exist any more, is out of date.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lhkit.errors import ScenarioError
from lhkit.harness.author.mutants import Untried
from lhkit.harness.record import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedMutant:
    """One mistake in one scenario, and the verdict on it. `key` is unique in the scenario."""

    scenario: str
    ac: str
    kind: str
    key: str
    change: str
    verdict: Verdict

    @property
    def is_noticed(self) -> bool:
        """True if the verdict is a fail."""
        return self.verdict is Verdict.FAIL


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
    """All outcomes. A mistake that could not be played (`invalid`) is nobody's success.

    `untried` are those that could not even be made.
    """

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
        """Return the survivors that nobody gave a reason for."""
        return tuple(
            each for each in self.survivors if (each.scenario, each.key) not in known.reasons
        )

    def outdated(self, known: Survivors) -> tuple[tuple[str, str], ...]:
        """Return the known survivors that are none, of the scenarios that were looked at."""
        alive = {(each.scenario, each.key) for each in self.survivors}
        seen = {each.scenario for each in self.outcomes}
        return tuple(key for key in known.reasons if key[0] in seen and key not in alive)

    def _by(self, name: str) -> dict[str, Counts]:
        groups: dict[str, list[TriedMutant]] = {}
        for each in self.outcomes:
            groups.setdefault(getattr(each, name), []).append(each)
        return {group: _counts(tuple(some)) for group, some in groups.items()}


def _counts(outcomes: tuple[TriedMutant, ...]) -> Counts:
    return Counts(tried=len(outcomes), noticed=sum(each.is_noticed for each in outcomes))


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
