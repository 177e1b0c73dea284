"""What lint has to say: the codes with their level, and one remark or finding as a value."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from lhkit.harness.faults import Path, shown_path
from lhkit.harness.loader import Origin


class Level(StrEnum):
    """An error makes a scenario unfit; a warning asks for a second look."""

    ERROR = "error"
    WARNING = "warning"


LEVELS: Mapping[str, Level] = {
    "file": Level.ERROR,  # the reader refuses it: no YAML, unknown field, id taken, bad matcher
    "world": Level.ERROR,  # the initial state cannot be
    "unknown_tool": Level.ERROR,
    "unknown_argument": Level.ERROR,
    "unknown_id": Level.ERROR,  # names a thing that is neither in the data nor comes to be
    "missing_argument": Level.ERROR,  # the tool requires it, so every valid call would be wrong
    "refused_value": Level.ERROR,  # the tool's own schema refuses what is expected
    "empty_pattern": Level.ERROR,  # a regular expression that an empty text matches
    "locale": Level.ERROR,  # the words are in another language than the scenario says
    "underivable": Level.ERROR,  # no gold trace
    "gold": Level.ERROR,  # the gold trace fails
    "final_state": Level.ERROR,  # the gold trace does not reach `final`
    "violation": Level.ERROR,  # the gold trace breaks a rule
    "broken_tool": Level.ERROR,  # a tool fails in the gold trace, and nothing says that it should
    "silent": Level.ERROR,  # the no-op baseline passes
    "always_call": Level.ERROR,  # the always-call baseline passes
    "not_isolated": Level.WARNING,  # so no tool was called, and what needs calls is unchecked
    "unused_fault": Level.WARNING,  # a tool breaks that the gold trace never calls
    "ambiguous_reply": Level.WARNING,  # words that a done call and a refused one share
    "unchecked_reply": Level.WARNING,  # a turn that may end in silence
    "echo": Level.WARNING,  # the user's own words pass as a reply
}

NO_GOLD = frozenset(
    {
        "file",
        "world",
        "unknown_tool",
        "unknown_argument",
        "missing_argument",
        "refused_value",
        "underivable",
        "gold",
        "final_state",
        "violation",
    }
)
"""Codes of what keeps the gold trace of a scenario from being played, or from passing."""


@dataclass(frozen=True, slots=True)
class Remark:
    """What is wrong within one scenario, by path."""

    code: str
    path: Path
    message: str

    def at(self, scenario_id: str, origin: Origin) -> "Finding":
        """Return the finding, with its place in the file."""
        return Finding(
            level=LEVELS[self.code],
            code=self.code,
            file=str(origin.file),
            line=origin.line(self.path),
            scenario=scenario_id,
            field=shown_path(self.path) if self.path else "",
            message=self.message,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is wrong, and where. `line` counts from 1; `field` is empty for a whole scenario."""

    level: Level
    code: str
    file: str
    line: int
    scenario: str
    field: str
    message: str

    def __str__(self) -> str:
        place = f"{self.scenario}.{self.field}" if self.field else self.scenario
        return f"{self.file}:{self.line}: {self.level}: {place}: {self.message} [{self.code}]"
