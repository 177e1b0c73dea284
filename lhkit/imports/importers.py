"""Importers of chats and benchmarks, and what they return: scenarios, a toolset, losses."""

import importlib
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from pydantic import TypeAdapter

from lhkit.base.errors import UsageError
from lhkit.base.json_values import compact
from lhkit.conversation.messages import ToolCall
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.toolset import load_named

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
class Remark:
    """A line for the user about an import: `code` selects the text (`import.remark`)."""

    code: str
    values: Mapping[str, Any] = field(default_factory=dict)


LEFT_OUT = frozenset({"invalid", "no_user", "unscored"})
"""Codes of losses that leave out a whole conversation: one loss a conversation."""

MAX_LISTED = 10
"""How many conversations that are left out are listed on the terminal."""


def cut_list(lines: Sequence[str], limit: int) -> list[str]:
    """Return the first lines, and how many more there are."""
    more = len(lines) - limit
    return [*lines[:limit], f"… +{more:,}"] if more > 0 else list(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedFile:
    """Scenarios of one file.

    Attributes:
        name: the toolset's variable.
        scenarios: the scenarios, as data.
        file: the name of the file, without suffix.
        needs_judge: only a judge of prose can score the replies, so the file is not for a rate.
        accepted_findings: codes of lint errors that do not leave a scenario out.
        places: where a scenario stands in the source, by its id, for one that is left out.
    """

    name: str
    scenarios: tuple[Mapping[str, Any], ...]
    file: str = "scenarios"
    needs_judge: bool = False
    accepted_findings: frozenset[str] = frozenset()
    places: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """An import before it is written: toolset's code, scenarios, losses, further files, remarks."""

    toolset: str
    suites: tuple[ImportedFile, ...]
    losses: tuple[Loss, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[Remark, ...] = ()


def reference_calls(calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
    """Return calls in the form of a scenario's `gold`."""
    return [{"tool": call.name, "args": call.args} for call in calls]


def to_scenario(data: Mapping[str, Any]) -> Scenario:
    """Parse a scenario from plain data."""
    return _SCENARIO.validate_json(compact(data), strict=True)


_SCENARIO = TypeAdapter(Scenario)


def import_from(folder: Path, name: str) -> ModuleType:
    """Return a module of a package that the user has in `folder`.

    Raises:
        UsageError: another copy of the package is imported first.
    """
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    module = importlib.import_module(name)
    if not Path(str(module.__file__)).is_relative_to(folder.resolve()):
        raise UsageError(
            f"Another copy of {name.partition('.')[0]} is imported first ({module.__file__}): give "
            "that one or remove it."
        )
    return module


GROUP = "lhkit.importers"

Importer: TypeAlias = Callable[..., Imported | Awaitable[Imported]]
"""A function from a source to scenarios, sync or async.

Its positional parameters become arguments of `lhkit import NAME`, keyword-only ones options, by
typer's rules. The first paragraph of its docstring is the help. `into` and `as_jsonl` are reserved.
"""

SHIPPED: Mapping[str, str] = {
    "calls": "lhkit.imports.calls:import_calls",
    "openai-messages": "lhkit.imports.openai_messages:import_messages",
    "bfcl": "lhkit.imports.bfcl:import_bfcl",
    "functionchat": "lhkit.imports.functionchat:import_functionchat",
    "tau2": "lhkit.imports.tau2:import_tau2",
}
"""References to lhkit's own importers, by name."""


def find_importers() -> dict[str, str]:
    """Return references to all importers by name; those of lhkit come first and win."""
    return {**SHIPPED, **{p.name: p.value for p in entry_points(group=GROUP)}, **SHIPPED}


def load_importer(name: str) -> Importer:
    """Return the importer of a name of `find_importers`.

    Raises:
        UsageError: its module or function does not exist, or importing it fails.
    """
    reference = SHIPPED.get(name) or find_importers()[name]
    importer: Importer = load_named(f"importer {name}", reference)
    return importer
