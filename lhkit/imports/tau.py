"""tau-bench's domains: tools, data and tasks of the user's own checkout, as scenarios.

Of the package only what a domain is made of is imported (tools, data, tasks, wiki): the rest wants
a model's client. A task says which calls are right, and tau-bench judges the data at the end and
the outputs that the agent has to name, nothing else; so do these scenarios.
"""

import importlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from lhkit.chat.controller import Assistant
from lhkit.errors import UsageError
from lhkit.harness.author.scenario_yaml import expected_changes, literals
from lhkit.imports.functions import (
    KEY,
    Function,
    FunctionToolset,
    calling,
    reads_by_name,
    registry_of_tools,
    result_of,
    rows_of,
    tools_in,
)
from lhkit.imports.imported import SILENCE_FAILS, Imported, ImportedFile, Loss, reference_calls
from lhkit.json_values import compact
from lhkit.messages import ToolCall
from lhkit.tool_results import ToolErr, ToolResult
from lhkit.toolset import their_code

DOMAINS = ("airline", "retail")
SPLITS = ("test", "dev", "train")
"""Tasks of a domain; `test` is what tau-bench reports, and what every domain has."""
TODAY = date(2024, 5, 15)
"""The day that the airline's policy names."""
MAX_TURNS = 30
"""As many steps as tau-bench gives an agent for a whole task, which is one turn here."""

Rows: TypeAlias = Mapping[str, tuple[dict[str, Any], ...]]

_PACKAGE = "tau_bench"
_ASKING_NOBODY = {"transfer_to_human_agents"}
"""Changes no data, whatever its name says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """One domain of a checkout: tools by name, instructions, data, tasks by split."""

    name: str
    tools: tuple[dict[str, Any], ...]
    functions: Mapping[str, Function]
    instructions: str
    start: str
    tasks: Mapping[str, tuple[Any, ...]]

    def played(self, calls: Sequence[ToolCall]) -> tuple[Rows, list[ToolResult]]:
        """Return the rows after calls of the functions themselves, and what each came to.

        Nothing of lhkit's runtime stands between: this is what its verdicts are held against.
        """
        data = json.loads(self.start)
        results = [
            result_of(self.functions[call.name](data, **deepcopy(call.args))) for call in calls
        ]
        return {table: tuple(rows) for table, rows in rows_of(data).items()}, results


def read_domain(folder: Path, name: str) -> Domain:
    """Return a domain of a checkout of tau-bench.

    Args:
        folder: the checkout, or the folder `tau_bench` in it.
        name: `airline` or `retail`.

    Raises:
        UsageError: the domain is not there, or its code fails.
    """
    root = _root(folder)
    with their_code(f"tau-bench in {folder}: importing {name}"):
        _reserve(root, name)
        parts = {part: _module(name, part) for part in ("tools", "data", "wiki")}
        classes = {each.get_info()["function"]["name"]: each for each in parts["tools"].ALL_TOOLS}
        return Domain(
            name=name,
            tools=tools_in([each.get_info() for each in classes.values()]),
            functions={key: _reporting(each.invoke) for key, each in classes.items()},
            instructions=parts["wiki"].WIKI,
            start=compact(parts["data"].load_data()),
            tasks={
                split: _tasks(_module(name, f"tasks_{split}"))
                for split in SPLITS
                if split == "test" or (root / "envs" / name / f"tasks_{split}.py").is_file()
            },
        )


def _tasks(module: ModuleType) -> tuple[Any, ...]:
    return tuple(next(value for key, value in vars(module).items() if key.startswith("TASKS")))


def _root(folder: Path) -> Path:
    for root in (folder / _PACKAGE, folder):
        if (root / "envs").is_dir():
            return root.resolve()
    raise UsageError(f"{folder} holds no tau-bench: give the folder of a clone of it")


def _reserve(root: Path, domain: str) -> None:
    """Let `tau_bench.envs.DOMAIN` be found without running the packages' own first lines.

    These import a user simulator and with it a model's client.
    """
    known = sys.modules.get(_PACKAGE)
    if known is not None and list(getattr(known, "__path__", ())) != [str(root)]:
        for name in [each for each in sys.modules if each.split(".")[0] == _PACKAGE]:
            del sys.modules[name]
    for parts in ((), ("envs",), ("envs", domain)):
        name = ".".join((_PACKAGE, *parts))
        if name not in sys.modules:
            package = ModuleType(name)
            package.__path__ = [str(root.joinpath(*parts))]
            sys.modules[name] = package


def _module(domain: str, part: str) -> ModuleType:
    return importlib.import_module(f"{_PACKAGE}.envs.{domain}.{part}")


def _reporting(invoke: Function) -> Function:
    """Return a function that returns what it raises as text, as tau-bench does."""

    def reporting(data: Any, **args: Any) -> Any:
        try:
            return invoke(data=data, **args)
        except Exception as error:  # noqa: BLE001 - boundary: what it raises is the model's to read
            return f"Error: {error}"

    return reporting


def tau_toolset(folder: str, domain: str) -> FunctionToolset:
    """Return a domain of a checkout as a toolset.

    Raises:
        UsageError: as `read_domain`.
    """
    return _toolset_of(read_domain(Path(folder), domain))


def _toolset_of(domain: Domain) -> FunctionToolset:
    reads = reads_by_name(domain.functions) | _ASKING_NOBODY
    return FunctionToolset(
        name=f"tau-{domain.name}",
        registry=registry_of_tools(
            domain.tools, lambda name: calling(domain.functions[name]), reads
        ),
        start=domain.start,
        assistant=Assistant(instructions=domain.instructions, max_turns=MAX_TURNS),
        today=TODAY,
        locales=("en",),
    )


def import_tau(folder: Path, split: str = "test") -> Imported:
    """Return the tasks of all domains of a checkout as scenarios.

    Args:
        folder: the checkout.
        split: one of `SPLITS`, or `all`; only retail has tasks to develop and to train with.

    Raises:
        UsageError: there is no checkout or no such split, or its code fails.
    """
    if split not in {*SPLITS, "all"}:
        raise UsageError(f"no split {split!r}: choose one of {', '.join(SPLITS)}, all")
    domains = [
        read_domain(folder, name) for name in DOMAINS if (_root(folder) / "envs" / name).is_dir()
    ]
    lines = [
        '"""Written by `lhkit import tau`: tau-bench\'s own tools, run where they lie."""',
        "",
        "from lhkit.imports.tau import tau_toolset",
        "",
        f"FOLDER = {compact(str(folder.resolve()))}",
        "",
        *(f'{each.name} = tau_toolset(FOLDER, "{each.name}")' for each in domains),
    ]
    wanted = SPLITS if split == "all" else (split,)
    losses = [Loss(code=code) for code in ("simulated_user", "state_only")]
    suites = tuple(
        ImportedFile(
            name=each.name,
            file=each.name if part == "test" else f"{each.name}_{part}",
            scenarios=tuple(_scenarios(each, part, losses)),
        )
        for each in domains
        for part in wanted
        if part in each.tasks
    )
    if not suites:
        raise UsageError(f"{folder} has no tasks of the split {split}: take --split test")
    return Imported(toolset="\n".join(lines) + "\n", suites=suites, losses=tuple(losses))


def _scenarios(domain: Domain, split: str, losses: list[Loss]) -> Iterator[dict[str, Any]]:
    writing = _toolset_of(domain).registry.destructive
    before, _ = domain.played(())
    stem = f"tau-{domain.name}" if split == "test" else f"tau-{domain.name}-{split}"
    for number, task in enumerate(domain.tasks[split]):
        name = f"{stem}-{number:03}"
        wanted = [ToolCall(name=each.name, args=dict(each.kwargs)) for each in task.actions]
        after, results = domain.played(wanted)
        calls = []
        for call, result in zip(wanted, results, strict=True):
            if isinstance(result, ToolErr):
                detail = f"{call.name} {compact(call.args)}: {result.reason}"
                losses.append(Loss(code="spoiled_gold", where=name, detail=detail))
            else:
                calls.append(call)
        writes = [call for call in calls if call.name in writing]
        turn = {
            "user": task.instruction,
            "confirm": "accept",
            "expect": {
                "calls": [
                    {"tool": call.name, "args": literals(call.args), "optional": True}
                    for call in writes
                ],
                "extra": "any",  # the data decide
            },
            "reply": SILENCE_FAILS,
            "gold": {"calls": reference_calls(calls)},
        }
        outputs = [{"contains_any": [each]} for each in task.outputs]
        yield {
            "id": name,
            "ac": domain.name,
            "locale": "en",
            "tags": ["tau-bench", split],
            "world": {},
            "turns": [turn],
            # in whichever message the agent names them
            **({"reply": {"all_of": outputs}} if outputs else {}),
        } | expected_changes(before, after, dict.fromkeys(before.keys() | after.keys(), (KEY,)))
