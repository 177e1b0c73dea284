"""Which scenarios to take: by id, tag, criterion, language, earlier failures, or at random. Pure.

One type for the command line, suites, `replay` and `Run.select`.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeAlias, TypedDict, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from lhkit.base.errors import UsageError

_SHOWN_NEAR = 3

Count = Annotated[int, Field(strict=True)]


def _as_tuple(value: Any) -> Any:
    """Return one value, or a list of JSON or TOML, as a tuple."""
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


_Values: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]
_Folder: TypeAlias = Annotated[
    str, BeforeValidator(lambda value: str(Path(value)) if isinstance(value, str | Path) else value)
]


class FilterOverrides(TypedDict, total=False):
    """The fields of `ScenarioFilter` as keywords, for type checkers."""

    only: str | Sequence[str]
    tag: str | Sequence[str]
    ac: str | Sequence[str]
    locale: str | Sequence[str]
    failed: Path | str | None
    sample: int | None
    seed: int
    limit: int | None


class Described(Protocol):
    """What a filter reads of a scenario or of a sample."""

    @property
    def id(self) -> str:
        """The scenario's id."""

    @property
    def ac(self) -> str | None:
        """The acceptance criterion, if it has one."""

    @property
    def locale(self) -> str:
        """The language."""

    @property
    def tags(self) -> Sequence[str]:
        """The labels."""


_Item = TypeVar("_Item", bound=Described)


class ScenarioFilter(BaseModel):
    """Which scenarios to take. All conditions apply; of several values of one, any is enough.

    Attributes:
        only: ids, or patterns with `*` and `?`.
        tag: labels.
        ac: acceptance criteria.
        locale: languages.
        failed: a run folder: the scenarios with a failed sample there.
        sample: so many of the remaining ones, drawn at random.
        seed: of the random draw, and of the random order of a run that stops when it is decided.
        limit: the first ones of the remaining, at most so many.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    only: _Values = ()
    tag: _Values = ()
    ac: _Values = ()
    locale: _Values = ()
    failed: _Folder | None = None
    sample: Count | None = Field(default=None, ge=1)
    seed: Count = Field(default=0, ge=0)
    limit: Count | None = Field(default=None, ge=1)

    @property
    def words(self) -> tuple[str, ...]:
        """The filter as words of a command line; empty without a condition."""
        words: list[str] = []
        for name, value in self.values().items():
            for each in value if isinstance(value, tuple) else (value,):
                words += [f"--{name}", str(each)]
        return tuple(words)

    def values(self) -> Mapping[str, Any]:
        """Return the values that are not the defaults."""
        fields = ScenarioFilter.model_fields
        given = {name: getattr(self, name) for name in fields}
        return {name: value for name, value in given.items() if value != fields[name].default}

    def select(
        self, items: Sequence[_Item], failed: Collection[str] | None = None
    ) -> tuple[_Item, ...]:
        """Return the selected scenarios, in their order.

        Args:
            items: the scenarios.
            failed: the ids of `self.failed`.

        Raises:
            UsageError: a value fits no scenario, or no scenario is left.
        """
        self._require_known(items)
        taken = [item for item in items if self._takes(item, failed)]
        if self.sample is not None:
            drawn = sorted(taken, key=lambda item: random_key(self.seed, item.id))[: self.sample]
            ids = {item.id for item in drawn}
            taken = [item for item in taken if item.id in ids]
        taken = taken[: self.limit]
        if items and not taken:
            raise UsageError(
                f"{' '.join(self.words)} selects none of {len(items)} scenarios. Use fewer or "
                "other conditions."
            )
        return tuple(taken)

    def _takes(self, item: Described, failed: Collection[str] | None) -> bool:
        for name, known in _described(item).items():
            wanted: tuple[str, ...] = getattr(self, name)
            if wanted and not any(_fits(name, value, each) for value in known for each in wanted):
                return False
        return failed is None or item.id in failed

    def _require_known(self, items: Iterable[Described]) -> None:
        described = [_described(item) for item in items]
        for name in ("only", "tag", "ac", "locale"):
            known = list(dict.fromkeys(value for values in described for value in values[name]))
            for value in getattr(self, name):
                if not any(_fits(name, each, value) for each in known):
                    near = get_close_matches(value, known, n=_SHOWN_NEAR, cutoff=0.5)
                    listed = ", ".join(near or known[:_SHOWN_NEAR]) or "none"
                    what = "no scenario" if name == "only" else f"no scenario's {name}"
                    raise UsageError(f"--{name} {value} fits {what}. Nearest: {listed}.")


def random_key(seed: int, scenario: str) -> str:
    """Return a sort key at random, which stays the same when scenarios are added."""
    return hashlib.sha256(f"{seed} {scenario}".encode()).hexdigest()


def _described(item: Described) -> Mapping[str, Sequence[str]]:
    """Return what each condition compares of a scenario."""
    ac = () if item.ac is None else (item.ac,)
    return {"only": (item.id,), "tag": item.tags, "ac": ac, "locale": (item.locale,)}


def _fits(name: str, known: str, value: str) -> bool:
    if name == "only":
        return fnmatchcase(known, value)
    return known.casefold() == value.casefold() if name == "ac" else known == value


class StoppedRun(BaseModel):
    """Why a run has not all of its scenarios: it stops when a comparison is decided.

    Attributes:
        seed: of the random order of the scenarios.
        baseline: the name of the run that it is compared with; of an arm, the one that is better.
        margin: the points of the margin; None if only a difference is tested.
        planned: the scenarios of the whole run.
        looked: the scenarios that the decision is about, in the random order.
        decision: 1 (better, or no worse than the margin), -1 (worse); 0 if the run was interrupted.
        arms: the number of arms of the matrix that dropped the run; 0 if it has a baseline.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    seed: Annotated[int, Field(ge=0)]
    baseline: str = ""
    margin: Annotated[float, Field(ge=0, le=100)] | None = None
    planned: Annotated[int, Field(ge=0)] = 0
    looked: Annotated[int, Field(ge=0)] = 0
    decision: Annotated[int, Field(ge=-1, le=1)] = 0
    arms: Annotated[int, Field(ge=0)] = 0


class ScenarioSelection(BaseModel):
    """What a run has: `taken` of `total` scenarios. Stored in the manifest of a partial run."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    taken: Annotated[int, Field(ge=0)]
    total: Annotated[int, Field(ge=0)]
    filter: ScenarioFilter = ScenarioFilter()
    stopped: StoppedRun | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """The filter, and whether the run stopped, as words of a command line."""
        return (*self.filter.words, *(["--stop-when-decided"] if self.stopped else []))
