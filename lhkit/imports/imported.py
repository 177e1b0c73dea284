"""What an import comes to: scenarios, the file of their toolset, and what could not be taken."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter

from lhkit.harness.scenario import Scenario
from lhkit.json_values import compact
from lhkit.messages import ToolCall

SILENCE_FAILS = {"matches": r"\S"}
"""The least that is required of a reply whose words cannot be judged: that there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What was not taken over as it was.

    `code` has its sentence in the locales (`import.loss`), `where` is a scenario or a place in a
    file, empty for what is true of all; `detail` are words of the source.
    """

    code: str
    where: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedFile:
    """Scenarios of one file, without its ending, and the name of their toolset in its file."""

    name: str
    scenarios: tuple[Mapping[str, Any], ...]
    file: str = "scenarios"


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """An import, before anything is written. `files` are texts to lie beside the toolset."""

    toolset: str
    suites: tuple[ImportedFile, ...]
    losses: tuple[Loss, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)


def reference_calls(calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
    """Return calls as they stand under `gold`."""
    return [{"tool": call.name, "args": call.args} for call in calls]


def to_scenario(written: Mapping[str, Any]) -> Scenario:
    """Return a scenario from plain data that is known to be one."""
    return _SCENARIO.validate_json(compact(written), strict=True)


_SCENARIO = TypeAdapter(Scenario)
