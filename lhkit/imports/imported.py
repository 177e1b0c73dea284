"""The result of an import: scenarios, the code of their toolset, and losses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter

from lhkit.harness.scenario import Scenario
from lhkit.json_values import compact
from lhkit.messages import ToolCall

NOT_EMPTY = {"matches": r"\S"}
"""A `reply` that accepts every reply but an empty one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A part of the source that was changed or left out.

    `code` selects the message in the locales (`import.loss`), `where` is a scenario or a position
    in a file (empty if it applies to all), `detail` quotes the source.
    """

    code: str
    where: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedFile:
    """Scenarios of one file.

    Attributes:
        name: the toolset's variable.
        scenarios: the scenarios, as data.
        file: the name of the file, without suffix.
        needs_judge: only a judge of prose can score the replies, so the file is not for a rate.
        accepted_findings: codes of lint errors that do not leave a scenario out.
    """

    name: str
    scenarios: tuple[Mapping[str, Any], ...]
    file: str = "scenarios"
    needs_judge: bool = False
    accepted_findings: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """An import before it is written: code of the toolset, scenarios, losses, further files."""

    toolset: str
    suites: tuple[ImportedFile, ...]
    losses: tuple[Loss, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)


def reference_calls(calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
    """Return calls in the form of a scenario's `gold`."""
    return [{"tool": call.name, "args": call.args} for call in calls]


def to_scenario(data: Mapping[str, Any]) -> Scenario:
    """Parse a scenario from plain data."""
    return _SCENARIO.validate_json(compact(data), strict=True)


_SCENARIO = TypeAdapter(Scenario)
