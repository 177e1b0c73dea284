"""Import tau2-bench: tasks of the user's checkout become scenarios, with its own environments.

The package is imported in place, so its own dependencies must be installed. As in tau2, the final
data, its assertions and the texts that must be named decide, not the calls. Where tau2's user acts
with tools of their own (telecom), its solo mode is used: the assistant gets these tools, and the
message is the task's ticket.
"""

import importlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from pydantic_core import to_jsonable_python

from lhkit.base.errors import UsageError
from lhkit.base.json_values import JSON, compact, plain_json
from lhkit.chat.assistant import Assistant
from lhkit.conversation.messages import ToolCall
from lhkit.conversation.tool_results import ToolErr, ToolResult
from lhkit.harness.authoring.scenario_yaml import expected_changes, literals
from lhkit.imports.functions import KEY, build_registry, to_rows, to_tool_result
from lhkit.imports.importers import (
    NOT_EMPTY,
    Imported,
    ImportedFile,
    Loss,
    import_from,
    reference_calls,
)
from lhkit.imports.tool_shapes import parse_tools
from lhkit.tools.definition import Handler
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import read_state, user_code

DOMAINS = ("airline", "retail", "telecom")
SPLIT = "base"
"""The split that tau2 reports."""
TODAY = date(2024, 5, 15)
"""The date in the airline's policy."""
MAX_TURNS = 100
"""tau2 allows 200 messages, each call and each result being one."""

_PACKAGE = "tau2"
_TASK = "task"
_ASSERTIONS = "assertions"

Environment: TypeAlias = Any
Task: TypeAlias = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """One domain of a checkout.

    Attributes:
        name: the domain.
        create: returns an environment.
        is_solo: the assistant has the user's tools, too.
        start: an environment in its initial state, not to be changed.
        registry: the tools.
        instructions: tau2's policy.
        tasks: all tasks, by id.
        splits: ids of tasks, by split.
    """

    name: str
    create: Callable[..., Environment]
    is_solo: bool
    start: Environment
    registry: ToolRegistry
    instructions: str
    tasks: Mapping[str, Task]
    splits: Mapping[str, Collection[str]]

    def create_environment(self, task: Task | None = None) -> Environment:
        """Return a new environment in the initial state of a task."""
        environment = self.create(solo_mode=self.is_solo)
        initial = task.initial_state if task else None
        if initial is not None:
            environment.set_state(
                initialization_data=initial.initialization_data,
                initialization_actions=initial.initialization_actions,
                message_history=[],
            )
        return environment

    def open(self, task: Task | None = None) -> "Tau2Session":
        """Return a session in the initial state of a task."""
        has_state = task is not None and task.initial_state is not None
        return Tau2Session(
            domain=self,
            task=task,
            environment=self.create_environment(task),
            start=self.create_environment(task) if has_state else self.start,
        )


@cache
def read_domain(path: str, name: str) -> Domain:
    """Import a domain of a tau2-bench checkout.

    Args:
        path: the checkout.
        name: one of `DOMAINS`.

    Raises:
        UsageError: the package or one of its dependencies is missing, or its code fails.
    """
    folder = Path(path)
    source = next((f for f in (folder / "src", folder) if (f / _PACKAGE).is_dir()), None)
    if source is None:
        raise UsageError(f"{path} does not contain tau2-bench: give the folder of its clone.")
    with user_code(f"tau2-bench in {path}: importing {name}"):
        try:
            if find_spec("loguru"):  # tau2 logs each call there
                importlib.import_module("loguru").logger.disable(_PACKAGE)
            package = import_from(source, f"{_PACKAGE}.registry").registry
        except ModuleNotFoundError as error:
            raise UsageError(
                f"tau2-bench requires {error.name}: install it with `pip install -e {path}`."
            ) from error
        create = package.get_env_constructor(name)
        environment = create()
        is_solo = environment.user_tools is not None
        if is_solo:
            environment = create(solo_mode=True)
        kits = [kit for kit in (environment.tools, environment.user_tools) if kit is not None]
        tools = [tool.openai_schema for kit in kits for tool in kit.get_tools().values()]
        reads = {
            tool for kit in kits for tool in kit.get_tools() if not kit.tool_mutates_state(tool)
        }
        return Domain(
            name=name,
            create=create,
            tasks={task.id: task for task in package.get_tasks_loader(name)(None)},
            splits=package.get_task_splits_loader(name)(),
            is_solo=is_solo,
            start=environment,
            registry=build_registry(parse_tools(tools), _handler, reads),
            instructions=environment.get_policy(),
        )


def _handler(name: str) -> Handler:
    def handle(args: Mapping[str, JSON], environment: Environment) -> ToolResult:
        return _call(environment, ToolCall(name=name, args=plain_json(args)))

    return handle


def _call(environment: Environment, call: ToolCall) -> ToolResult:
    module = importlib.import_module(f"{_PACKAGE}.data_model.message")
    message = environment.get_response(module.ToolCall(name=call.name, arguments=dict(call.args)))
    if message.error:
        return ToolErr("error", message.content)
    return to_tool_result(message.content)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tau2Session:
    """An environment of tau2, and one that stays as it is at the start.

    Its state is the data of the task's reward.
    """

    domain: Domain
    task: Task | None
    environment: Environment
    start: Environment
    today: date = TODAY

    @property
    def registry(self) -> ToolRegistry:
        """The tools of the domain."""
        return self.domain.registry

    @property
    def assistant(self) -> Assistant:
        """An assistant with the domain's policy."""
        return Assistant(
            instructions=self.domain.instructions, deps=self.environment, max_turns=MAX_TURNS
        )

    def state(self) -> Mapping[str, JSON]:
        """Return the rows that differ from the initial data, and which assertions are met.

        The data of a domain have megabytes, of which a task changes a few rows.
        """
        rows: dict[str, Any] = {}
        basis = _basis(self.task)
        if "DB" in basis:
            for name, before, after in self._tables():
                rows[name] = [] if before == after else _changed_rows(before, after)
        if self.task is not None and "ENV_ASSERTION" in basis:
            environment = deepcopy(self.environment)  # a check may change it
            rows[_ASSERTIONS] = [
                {
                    "name": f"{check.func_name} {compact(check.arguments)}",
                    "met": environment.run_env_assertion(check, raise_assertion_error=False),
                }
                for check in self.task.evaluation_criteria.env_assertions or ()
            ]
        return rows

    def row_keys(self) -> Mapping[str, Sequence[str]]:
        """Return `_key` as the key of each table that is a mapping, `name` for assertions."""
        keys = {name: [KEY] for name, before, _ in self._tables() if not isinstance(before, list)}
        return {**keys, _ASSERTIONS: ["name"]}

    def _tables(self) -> Iterator[tuple[str, Any, Any]]:
        """Yield the name of each table, its initial and its present data."""
        for prefix, kit in (("", "tools"), ("user_", "user_tools")):
            before, after = (getattr(e, kit) for e in (self.start, self.environment))
            if after is not None and after.db is not None:
                for name in type(after.db).model_fields:
                    yield f"{prefix}{name}", getattr(before.db, name), getattr(after.db, name)

    def close(self) -> None:
        """Do nothing: the environment holds no resources."""


def _changed_rows(before: Any, after: Any) -> list[dict[str, Any]]:
    """Return the rows of a table that differ; a list or a single value as a whole."""
    if isinstance(after, Mapping):
        rows = {key: row for key, row in after.items() if key not in before or before[key] != row}
        deleted = [{KEY: key, "deleted": True} for key in before if key not in after]
        return to_rows({"": to_jsonable_python(rows)})[""] + deleted
    return to_rows({"": to_jsonable_python(after)})[""]


def _basis(task: Task | None) -> frozenset[str]:
    """Return what a task's reward depends on; the data if there is no task."""
    if task is None or task.evaluation_criteria is None:
        return frozenset({"DB"})
    return frozenset(kind.value for kind in task.evaluation_criteria.reward_basis)


@dataclass(frozen=True, slots=True)
class Tau2Toolset:
    """A domain of a tau2-bench checkout; the initial state is `{task: [{id: …}]}`."""

    path: str
    domain: str
    locales: tuple[str, ...] = ("en",)

    @property
    def name(self) -> str:
        """The name in reports."""
        return f"tau2-{self.domain}"

    def open(self, world: Mapping[str, Any], locale: str) -> Tau2Session:
        """Return a session in the initial state of a task.

        Raises:
            UsageError: the task does not exist, or as `read_domain`.
        """
        domain = read_domain(self.path, self.domain)
        task = None
        for row in world.get(_TASK, ()):
            if (task := domain.tasks.get(row["id"])) is None:
                raise UsageError(f"tau2 has no task {row['id']!r} in {self.domain}: import again.")
        return domain.open(task)


def import_tau2(
    path: Annotated[
        Path, typer.Argument(file_okay=False, help="Your clone of sierra-research/tau2-bench.")
    ],
    *,
    split: Annotated[
        str, typer.Option(help="base (what tau2 reports), train, test, or another of a domain.")
    ] = SPLIT,
) -> Imported:
    """Import tau2-bench's airline, retail and telecom tasks, with its own tools and data.

    Args:
        path: the checkout.
        split: the tasks of each domain that has this split.

    Raises:
        UsageError: the checkout or the split is missing, or tau2's code fails.
    """
    folder = str(path.resolve())
    domains = [read_domain(folder, name) for name in DOMAINS]
    lines = [
        '"""Written by `lhkit import tau2`: the environments of tau2-bench, run in place."""',
        "",
        "from lhkit.imports.tau2 import Tau2Toolset",
        "",
        *(f'{d.name} = Tau2Toolset({compact(folder)}, "{d.name}")' for d in domains),
    ]
    losses = [Loss(code="simulated_user")]
    suites = tuple(
        ImportedFile(
            name=domain.name,
            file=domain.name,
            scenarios=tuple(
                _convert_task(domain, domain.tasks[name], losses) for name in domain.splits[split]
            ),
            # some tasks need no call or one without arguments; references leave out reads of ids
            accepted_findings=frozenset({"always_call", "violation"}),
        )
        for domain in domains
        if split in domain.splits
    )
    if not suites:
        splits = ", ".join(dict.fromkeys(name for domain in domains for name in domain.splits))
        raise UsageError(f"Unknown split {split!r}: choose one of {splits}.")
    return Imported(toolset="\n".join(lines) + "\n", suites=suites, losses=tuple(losses))


def _convert_task(domain: Domain, task: Task, losses: list[Loss]) -> dict[str, Any]:
    slug = re.sub(r"[^a-z0-9]+", "_", task.id.lower()).strip("_")
    name, basis, criteria = f"tau2-{domain.name}-{slug}", _basis(task), task.evaluation_criteria
    session = domain.open(task)
    before, keys = read_state(session), session.row_keys()
    calls, expected = [], []
    for action in criteria.actions or ():
        call = ToolCall(name=action.name, args=dict(action.arguments))
        result = _call(session.environment, call)
        if isinstance(result, ToolErr):
            detail = f"{call.name} {compact(call.args)}: {result.reason}"
            losses.append(Loss(code="spoiled_gold", where=name, detail=detail))
            continue
        calls.append(call)
        if "ACTION" in basis or call.name in domain.registry.destructive:
            optional = {} if "ACTION" in basis else {"optional": True}
            expected.append({"tool": call.name, "args": _arguments(action)} | optional)
    judged = criteria.nl_assertions or () if "NL_ASSERTION" in basis else ()
    if judged:
        losses.append(Loss(code="nl_assertion", where=name, detail=" ".join(judged)))
    named = criteria.communicate_info or () if "COMMUNICATE" in basis else ()
    parts = [{"contains_any": [text]} for text in named]
    return {
        "id": name,
        "ac": domain.name,
        "locale": "en",
        "tags": ["tau2", *(["nl_assertion"] if judged else [])],
        "world": {_TASK: [{"id": task.id}]},
        "turns": [
            {
                "user": task.ticket if domain.is_solo else str(task.user_scenario.instructions),
                "confirm": "accept",
                "expect": {"calls": expected, "extra": "any"},  # the state is compared instead
                "reply": NOT_EMPTY,
                "gold": {"calls": reference_calls(calls)},
            }
        ],
        **({"reply": {"all_of": parts}} if parts else {}),  # in any message
    } | expected_changes(before, read_state(session), keys)


def _arguments(action: Any) -> dict[str, Any]:
    """Return matchers for the arguments that tau2 compares; any value for the others."""
    compared = action.arguments if action.compare_args is None else action.compare_args
    free = {"any": True, "optional": True}
    matchers = literals(action.arguments)
    return {name: matchers[name] if name in compared else free for name in matchers}
