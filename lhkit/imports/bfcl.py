"""Import BFCL's conversations, and run the classes of its multi-turn ones from the user's own copy.

Single-turn categories are in `bfcl_single`.

The classes are live objects whose attributes are the state. BFCL's reference calls, run directly on
its own objects, define the state after each turn and the required results. As in BFCL, any calls
may lead to them and a result may come in an earlier turn, but a turn with reference calls needs a
call, and a turn without them is not scored.
"""

import ast
import importlib
import inspect
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import date
from functools import cache, partial
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from lhkit.base.errors import UsageError
from lhkit.base.json_values import JSON, compact
from lhkit.chat.assistant import Assistant
from lhkit.conversation.messages import ToolCall
from lhkit.conversation.tool_results import ToolErr, ToolOk, ToolResult
from lhkit.harness.authoring.scenario_yaml import expected_changes, literals
from lhkit.imports.bfcl_single import SUITE, convert_single_turn
from lhkit.imports.functions import guess_read_tools
from lhkit.imports.importers import (
    Imported,
    ImportedFile,
    Loss,
    import_from,
    reference_calls,
)
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import user_code

TODAY = date(2024, 9, 1)
MAX_TURNS = 40
"""BFCL allows 20 steps a turn, each of several calls; its longest turn has 34 calls."""

State: TypeAlias = Mapping[str, tuple[dict[str, Any], ...]]
"""Rows by class: `name` and `value` of each public attribute."""

_PACKAGE = "bfcl_eval"
_STATELESS = {"MathAPI"}
_TOOLSET_CODE = '''\
"""Written by `lhkit import bfcl`: the classes of BFCL, run in place."""

from lhkit.imports.bfcl import BfclToolset
from lhkit.imports.functions import EVERY_NAME, function_toolset

'''
_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A copy of BFCL's package. `documents` are the files that describe the classes' methods."""

    folder: Path
    documents: Mapping[str, str]

    def read_lines(self, *path: str) -> list[dict[str, Any]]:
        """Return the objects of a data file, one a line; none if the file does not exist."""
        file = self.folder.joinpath("data", *path)
        if not file.is_file():
            return []
        lines = file.read_text(encoding="utf-8").split("\n")  # a text may contain U+2028
        return [json.loads(line) for line in lines if line.strip()]

    def new_functions_message(self) -> str:
        """Return the user message of a turn in which a missing function becomes available."""
        module = importlib.import_module(f"{_PACKAGE}.constants.default_prompts")
        return str(module.DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC)

    def create_objects(self, world: Mapping[str, Any]) -> dict[str, Any]:
        """Return live objects in the initial state `world`, by class name.

        BFCL keeps the objects that it creates by entry id, so each caller gets a copy of them.
        """
        rows = world["classes"]
        module = importlib.import_module(
            f"{_PACKAGE}.eval_checker.multi_turn_eval.multi_turn_utils"
        )
        _results, objects = module.execute_multi_turn_func_call(
            func_call_list=[],
            initial_config={row["name"]: row["config"] for row in rows},
            involved_classes=[row["name"] for row in rows],
            model_name="lhkit",
            test_entry_id=sha256(compact(rows).encode()).hexdigest(),
            long_context=any(row.get("long_context", False) for row in rows),
        )
        return dict(deepcopy(objects))


@cache
def read_package(path: str) -> Package:
    """Import BFCL's package.

    Args:
        path: its folder, or the folder that contains it, such as `site-packages`.

    Raises:
        UsageError: the package is missing, or its code fails.
    """
    folders = [
        folder for folder in (Path(path) / _PACKAGE, Path(path)) if (folder / "data").is_dir()
    ]
    if not folders or folders[0].name != _PACKAGE:
        raise UsageError(f"{path} does not contain {_PACKAGE}: give the folder of BFCL's package.")
    folder = folders[0].resolve()
    with user_code(f"BFCL in {folder}: importing it"):
        config = import_from(folder.parent, f"{_PACKAGE}.constants.executable_backend_config")
        return Package(folder=folder, documents=config.MULTI_TURN_FUNC_DOC_FILE_MAPPING)


def _object_state(objects: Mapping[str, Any]) -> State:
    """Return the state as BFCL compares it: one table per class, one row per public attribute."""
    return {
        class_name: tuple(
            {"name": name, "value": _plain(value)}
            for name, value in vars(instance).items()
            if not name.startswith("_")
        )
        for class_name, instance in objects.items()
        if class_name not in _STATELESS
    }


def _plain(value: Any) -> Any:
    """Convert an attribute or result to JSON; folders and files to their contents.

    Other objects become their `repr`, as in BFCL: a shorter form could hide a difference.
    """
    if hasattr(value, "contents"):
        return {name: _plain(item) for name, item in value.contents.items()}
    if hasattr(value, "content"):
        return value.content
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)


@cache
def _build_registry(path: str, classes: tuple[str, ...]) -> ToolRegistry:
    """Return the methods of the classes as tools, with the descriptions of BFCL's documents."""
    package = read_package(path)
    functions = [
        (class_name, function)
        for class_name in classes
        for function in package.read_lines("multi_turn_func_doc", package.documents[class_name])
    ]
    reads = guess_read_tools(function["name"] for _, function in functions)
    return ToolRegistry(
        ToolDefinition(
            name=function["name"],
            description=function["description"].partition("Tool description: ")[2]
            or function["description"],
            parameters=_to_json_schema(function["parameters"]),
            handler=partial(_call_method, class_name, function["name"]),
            is_destructive=class_name not in _STATELESS and function["name"] not in reads,
        )
        for class_name, function in functions
    )


def _to_json_schema(schema: Any) -> Any:
    """Convert a schema in BFCL's format to JSON Schema."""
    if isinstance(schema, list):
        return [_to_json_schema(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    result = {key: _to_json_schema(value) for key, value in schema.items() if key != "default"}
    if isinstance(result.get("type"), str):
        result["type"] = _TYPES.get(result["type"], result["type"])
    return {key: value for key, value in result.items() if value is not None}


def _call_method(
    class_name: str, method: str, args: Mapping[str, JSON], objects: Mapping[str, Any]
) -> ToolResult:
    return _run(getattr(objects[class_name], method), args)


def _run(method: Callable[..., Any], args: Mapping[str, Any]) -> ToolOk | ToolErr:
    try:
        returned = method(**deepcopy(dict(args)))
    except Exception as error:  # noqa: BLE001 - boundary: the model reads the error
        return ToolErr("raised", str(error) or type(error).__name__)
    return ToolOk(_plain(returned) if isinstance(returned, Mapping) else {"result": str(returned)})


@dataclass(frozen=True, slots=True, kw_only=True)
class BfclSession:
    """The objects of one conversation. `arriving` are the tools that a later turn adds."""

    objects: Mapping[str, Any]
    registry: ToolRegistry
    arriving: Mapping[int, Sequence[ToolDefinition]] = field(default_factory=dict)
    turns: Iterator[int] = field(default_factory=count)
    today: date = TODAY

    @property
    def assistant(self) -> Assistant:
        """An assistant with BFCL's limit of steps."""
        return Assistant(deps=self.objects, max_turns=MAX_TURNS, context=self._start_turn)

    def _start_turn(self, _message: str) -> str:
        """Register the tools of the turn; BFCL adds no context line."""
        for tool in self.arriving.get(next(self.turns), ()):
            self.registry.register(tool)
        return ""

    def state(self) -> Mapping[str, JSON]:
        """Return the public attributes of all objects."""
        return _object_state(self.objects)

    def row_keys(self) -> Mapping[str, Sequence[str]]:
        """Return `name` as the key of each table."""
        return {name: ["name"] for name in self.objects if name not in _STATELESS}

    def close(self) -> None:
        """Do nothing: the objects hold no resources."""


@dataclass(frozen=True, slots=True)
class BfclToolset:
    """BFCL's classes as a toolset. `path` as in `read_package`.

    An initial state is `{classes: [{name, config}], arriving: [{turn, tool}]}`, where `arriving`
    lists the tools that a later turn adds.
    """

    path: str
    name: str = "bfcl"
    locales: tuple[str, ...] = ("en",)

    def open(self, world: Mapping[str, Any], locale: str) -> BfclSession:
        """Return a session with new objects.

        Raises:
            UsageError: as `read_package`.
        """
        objects = read_package(self.path).create_objects(world)
        registry = _build_registry(self.path, tuple(sorted(objects)))
        arriving: defaultdict[int, list[ToolDefinition]] = defaultdict(list)
        for row in world.get("arriving", ()):
            arriving[row["turn"]].append(registry[row["tool"]])
        if arriving:
            late = {tool.name for tools in arriving.values() for tool in tools}
            registry = ToolRegistry(tool for tool in registry.definitions if tool.name not in late)
        return BfclSession(objects=objects, registry=registry, arriving=arriving)


CATEGORIES = (
    "multi_turn_base",
    "multi_turn_miss_param",
    "multi_turn_miss_func",
    "multi_turn_long_context",
)


def import_bfcl(
    path: Annotated[Path, typer.Argument(file_okay=False, help="Folder of the package bfcl_eval.")],
) -> Imported:
    """Import BFCL's single-turn questions, and its multi-turn conversations with its own classes.

    Raises:
        UsageError: the package is missing, or its code fails.
    """
    folder = str(path.resolve())
    package = read_package(folder)
    losses = [Loss(code="categories")]
    single_turn = tuple(convert_single_turn(package.read_lines, losses))
    return Imported(
        toolset=f"{_TOOLSET_CODE}toolset = BfclToolset({compact(folder)})\n"
        f"{SUITE} = function_toolset([], reads=EVERY_NAME)\n",
        suites=(
            *single_turn,
            *(
                ImportedFile(
                    name="toolset",
                    file=category,
                    scenarios=tuple(_convert_category(folder, category)),
                )
                for category in CATEGORIES
                if package.read_lines(f"BFCL_v4_{category}.json")
            ),
        ),
        losses=tuple(losses),
    )


def _convert_category(folder: str, category: str) -> Iterator[dict[str, Any]]:
    package = read_package(folder)
    references = {
        row["id"]: row["ground_truth"]
        for row in package.read_lines("possible_answer", f"BFCL_v4_{category}.json")
    }
    for entry in package.read_lines(f"BFCL_v4_{category}.json"):
        yield _convert_entry(folder, category, entry, references[entry["id"]])


def _convert_entry(
    folder: str, category: str, entry: Mapping[str, Any], references: Sequence[Sequence[str]]
) -> dict[str, Any]:
    """Return one entry as a scenario; BFCL's own objects define the state after each turn."""
    names = tuple(sorted(entry["involved_classes"]))
    rows = [{"name": name, "config": entry["initial_config"].get(name, {})} for name in names]
    if category.endswith("long_context"):
        rows = [{**row, "long_context": True} for row in rows]
    late = [
        {"turn": int(turn), "tool": name}
        for turn, tools in entry.get("missed_function", {}).items()
        for name in tools
    ]
    world = {"classes": rows} | ({"arriving": late} if late else {})
    package, registry = read_package(folder), _build_registry(folder, names)
    gold = [[_parse_call(source, registry) for source in turn] for turn in references]
    results, states = _run_reference(package.create_objects(world), gold)
    messages = [
        " ".join(message["content"] for message in turn) or package.new_functions_message()
        for turn in entry["question"]
    ]
    return {
        "id": entry["id"],
        "ac": category,
        "locale": "en",
        "tags": ["bfcl"],
        "world": world,
        "turns": [
            _convert_turn(message, calls, turn_results, registry) | change
            for message, calls, turn_results, change in zip(
                messages, gold, results, _turn_changes(gold, states), strict=True
            )
        ],
    } | _changed(states[0], states[-1])


def _convert_turn(
    user: str,
    calls: Sequence[ToolCall],
    results: Sequence[ToolOk | ToolErr],
    registry: ToolRegistry,
) -> dict[str, Any]:
    """Return a turn that requires the results of the reference calls, from any calls.

    The reference writes are listed as optional, so that a simulated user can check the
    confirmation card. A reference call that raised has no result, so the call itself is required.
    """
    turn: dict[str, Any] = {"user": user, "confirm": "accept", "expect": {"extra": "any"}}
    if not calls:
        return turn
    expected_calls = [
        {"tool": call.name, "args": literals(call.args)}
        | ({"result": result.code} if isinstance(result, ToolErr) else {"optional": True})
        for call, result in zip(calls, results, strict=True)
        if call.name in registry.destructive or isinstance(result, ToolErr)
    ]
    expected_results = [
        {"equals": dict(result.data)} for result in results if isinstance(result, ToolOk)
    ]
    expect = {"calls": expected_calls, "results": expected_results, "least": 1}
    turn["expect"] |= {name: value for name, value in expect.items() if value}
    return turn | {"gold": {"calls": reference_calls(calls)}}


def _turn_changes(
    gold: Sequence[Sequence[ToolCall]], states: Sequence[State]
) -> Iterator[dict[str, Any]]:
    """Yield the change of state of each turn.

    BFCL does not score a turn without reference calls, so the state before the next turn is
    unknown: that one gets its complete state.
    """
    for i, calls in enumerate(gold):
        if not calls:
            yield {}
        elif i > 0 and not gold[i - 1]:
            complete = {
                table: [literals(row) for row in rows] for table, rows in states[i + 1].items()
            }
            yield {"final": complete}
        else:
            yield {"final": {}} | _changed(states[i], states[i + 1])


def _changed(before: State, after: State) -> dict[str, Any]:
    return expected_changes(before, after, dict.fromkeys(before, ("name",)))


def _parse_call(source: str, registry: ToolRegistry) -> ToolCall:
    """Parse a reference call, which BFCL writes in Python."""
    node = ast.parse(source, mode="eval").body
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise UsageError(f"BFCL: {source!r} is not a function call: the package must be BFCL v4.")
    name = node.func.id
    tool = registry.get(name)
    order = list(tool.parameters["properties"]) if tool else []
    args = dict(zip(order, map(ast.literal_eval, node.args), strict=False))
    args |= {keyword.arg or "": ast.literal_eval(keyword.value) for keyword in node.keywords}
    return ToolCall(name=name, args=args)


def _missing_method(**_args: Any) -> None:
    raise KeyError("BFCL's classes have no such method")


def _run_reference(
    objects: Mapping[str, Any], turns: Iterable[Iterable[ToolCall]]
) -> tuple[list[list[ToolOk | ToolErr]], list[State]]:
    """Run reference calls directly on BFCL's objects, without lhkit's runtime.

    Returns:
        The results of each turn, and the state at the start and after each turn.
    """
    methods: dict[str, Callable[..., Any]] = {
        name: method
        for instance in objects.values()
        for name, method in inspect.getmembers(instance, inspect.ismethod)
    }
    results: list[list[ToolOk | ToolErr]] = []
    states = [_object_state(objects)]
    for calls in turns:
        results.append([_run(methods.get(call.name, _missing_method), call.args) for call in calls])
        states.append(_object_state(objects))
    return results, states
