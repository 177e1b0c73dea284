"""Import tau-bench: domains and tasks of the user's checkout become toolsets and scenarios.

The package is imported in place, so its own dependencies must be installed. tau-bench scores the
final data and the outputs that the agent must name, not the calls; so do these scenarios.
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
from typing import Annotated, Any, TypeAlias

import typer

from lhkit.chat.controller import Assistant
from lhkit.errors import UsageError
from lhkit.harness.author.scenario_yaml import expected_changes, literals
from lhkit.imports.functions import (
    KEY,
    Function,
    FunctionToolset,
    build_registry,
    function_handler,
    guess_read_tools,
    parse_tools,
    to_rows,
    to_tool_result,
)
from lhkit.imports.imported import NOT_EMPTY, Imported, ImportedFile, Loss, reference_calls
from lhkit.json_values import compact
from lhkit.messages import ToolCall
from lhkit.tool_results import ToolErr, ToolResult
from lhkit.toolset import user_code

DOMAINS = ("airline", "retail")
SPLITS = ("test", "dev", "train")
"""Splits of a domain's tasks; every domain has `test`, which tau-bench reports."""
TODAY = date(2024, 5, 15)
"""The date in the airline's policy."""
MAX_TURNS = 30
"""tau-bench's limit of steps for a task, which is one turn here."""

Rows: TypeAlias = Mapping[str, tuple[dict[str, Any], ...]]

_PACKAGE = "tau_bench"
_READ_ONLY = {"transfer_to_human_agents"}
"""Tools that change no data, contrary to their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """One domain of a checkout: tools by name, instructions, data, tasks by split."""

    name: str
    tools: tuple[dict[str, Any], ...]
    functions: Mapping[str, Function]
    instructions: str
    start: str
    tasks: Mapping[str, tuple[Any, ...]]

    def run_calls(self, calls: Sequence[ToolCall]) -> tuple[Rows, list[ToolResult]]:
        """Call the functions directly, without lhkit's runtime; return final rows and results."""
        data = json.loads(self.start)
        results = [
            to_tool_result(self.functions[call.name](data, **deepcopy(call.args))) for call in calls
        ]
        return {table: tuple(rows) for table, rows in to_rows(data).items()}, results


def read_domain(folder: Path, name: str) -> Domain:
    """Import a domain of a tau-bench checkout.

    Args:
        folder: the checkout, or the folder `tau_bench` in it.
        name: `airline` or `retail`.

    Raises:
        UsageError: the domain or a dependency of tau-bench is missing, or its code fails.
    """
    root = _package_folder(folder)
    if str(root.parent) not in sys.path:
        sys.path.append(str(root.parent))
    with user_code(f"tau-bench in {folder}: importing {name}"):
        modules = {part: _import(root, name, part) for part in ("tools", "data", "wiki")}
        tools = {tool.get_info()["function"]["name"]: tool for tool in modules["tools"].ALL_TOOLS}
        return Domain(
            name=name,
            tools=parse_tools([tool.get_info() for tool in tools.values()]),
            functions={key: _errors_as_text(tool.invoke) for key, tool in tools.items()},
            instructions=modules["wiki"].WIKI,
            start=compact(modules["data"].load_data()),
            tasks={
                split: _find_tasks(_import(root, name, f"tasks_{split}"))
                for split in SPLITS
                if split == "test" or (root / "envs" / name / f"tasks_{split}.py").is_file()
            },
        )


def _find_tasks(module: ModuleType) -> tuple[Any, ...]:
    return tuple(next(value for key, value in vars(module).items() if key.startswith("TASKS")))


def _package_folder(folder: Path) -> Path:
    for root in (folder / _PACKAGE, folder):
        if (root / "envs").is_dir():
            return root.resolve()
    raise UsageError(f"{folder} does not contain tau-bench: give the folder of its clone.")


def _import(root: Path, domain: str, part: str) -> ModuleType:
    name = f"{_PACKAGE}.envs.{domain}.{part}"
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith(_PACKAGE):
            raise
        raise UsageError(
            f"tau-bench requires {error.name}: install its dependencies with "
            f"`pip install -e {root.parent}`."
        ) from error
    if not Path(str(module.__file__)).is_relative_to(root):
        raise UsageError(
            f"Another copy of {_PACKAGE} is imported first ({module.__file__}): give that one or "
            "remove it."
        )
    return module


def _errors_as_text(invoke: Function) -> Function:
    """Wrap a function so that it returns exceptions as text, as tau-bench does."""

    def invoke_safely(data: Any, **args: Any) -> Any:
        try:
            return invoke(data=data, **args)
        except Exception as error:  # noqa: BLE001 - boundary: the model reads the error
            return f"Error: {error}"

    return invoke_safely


def tau_toolset(folder: str, domain: str) -> FunctionToolset:
    """Return a domain of a tau-bench checkout as a toolset.

    Raises:
        UsageError: as `read_domain`.
    """
    return _build_toolset(read_domain(Path(folder), domain))


def _build_toolset(domain: Domain) -> FunctionToolset:
    reads = guess_read_tools(domain.functions) | _READ_ONLY
    return FunctionToolset(
        name=f"tau-{domain.name}",
        registry=build_registry(
            domain.tools, lambda name: function_handler(domain.functions[name]), reads
        ),
        start=domain.start,
        assistant=Assistant(instructions=domain.instructions, max_turns=MAX_TURNS),
        today=TODAY,
        locales=("en",),
    )


def import_tau(
    path: Annotated[
        Path, typer.Argument(file_okay=False, help="Your clone of sierra-research/tau-bench.")
    ],
    *,
    split: Annotated[
        str, typer.Option(help="test (what tau-bench reports), dev, train (retail only), or all.")
    ] = "test",
) -> Imported:
    """Import tau-bench's airline and retail tasks, with its own tools and data.

    Args:
        path: the checkout.
        split: one of `SPLITS`, or `all`; only retail has the splits `dev` and `train`.

    Raises:
        UsageError: the checkout or the split is missing, or tau-bench's code fails.
    """
    if split not in {*SPLITS, "all"}:
        raise UsageError(f"Unknown split {split!r}: choose one of {', '.join(SPLITS)}, all.")
    envs = _package_folder(path) / "envs"
    domains = [read_domain(path, name) for name in DOMAINS if (envs / name).is_dir()]
    lines = [
        '"""Written by `lhkit import tau`: tau-bench\'s own tools, run in place."""',
        "",
        "from lhkit.imports.tau import tau_toolset",
        "",
        f"FOLDER = {compact(str(path.resolve()))}",
        "",
        *(f'{domain.name} = tau_toolset(FOLDER, "{domain.name}")' for domain in domains),
    ]
    splits = SPLITS if split == "all" else (split,)
    losses = [Loss(code=code) for code in ("simulated_user", "state_only")]
    suites = tuple(
        ImportedFile(
            name=domain.name,
            file=domain.name if part == "test" else f"{domain.name}_{part}",
            scenarios=tuple(_convert_tasks(domain, part, losses)),
        )
        for domain in domains
        for part in splits
        if part in domain.tasks
    )
    if not suites:
        raise UsageError(f"{path} has no tasks of the split {split!r}: use --split test.")
    return Imported(toolset="\n".join(lines) + "\n", suites=suites, losses=tuple(losses))


def _convert_tasks(domain: Domain, split: str, losses: list[Loss]) -> Iterator[dict[str, Any]]:
    destructive = _build_toolset(domain).registry.destructive
    before, _ = domain.run_calls(())
    stem = f"tau-{domain.name}" if split == "test" else f"tau-{domain.name}-{split}"
    for number, task in enumerate(domain.tasks[split]):
        name = f"{stem}-{number:03}"
        actions = [ToolCall(name=action.name, args=dict(action.kwargs)) for action in task.actions]
        after, results = domain.run_calls(actions)
        calls = []
        for call, result in zip(actions, results, strict=True):
            if isinstance(result, ToolErr):
                detail = f"{call.name} {compact(call.args)}: {result.reason}"
                losses.append(Loss(code="spoiled_gold", where=name, detail=detail))
            else:
                calls.append(call)
        writes = [call for call in calls if call.name in destructive]
        turn = {
            "user": task.instruction,
            "confirm": "accept",
            "expect": {
                "calls": [
                    {"tool": call.name, "args": literals(call.args), "optional": True}
                    for call in writes
                ],
                "extra": "any",  # the final data are compared instead
            },
            "reply": NOT_EMPTY,
            "gold": {"calls": reference_calls(calls)},
        }
        outputs = [{"contains_any": [output]} for output in task.outputs]
        yield {
            "id": name,
            "ac": domain.name,
            "locale": "en",
            "tags": ["tau-bench", split],
            "world": {},
            "turns": [turn],
            # the agent may name them in any message
            **({"reply": {"all_of": outputs}} if outputs else {}),
        } | expected_changes(before, after, dict.fromkeys(before.keys() | after.keys(), (KEY,)))
