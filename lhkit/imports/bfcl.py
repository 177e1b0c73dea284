"""BFCL's multi-turn conversations, and its classes, run where the user's own copy lies.

The classes are live objects whose attributes are the state. BFCL's calls, run on its own objects
directly, say what each turn must end in and what results must have come. As there, it does not
matter which calls led to either, and a result may have come in an earlier turn; but a turn with
reference calls needs a call. In a turn without them BFCL judges nothing.
"""

import ast
import importlib
import inspect
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import date
from functools import cache, partial
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from lhkit.chat.controller import Assistant
from lhkit.errors import UsageError
from lhkit.harness.author.scenario_yaml import expected_changes, literals
from lhkit.imports.functions import reads_by_name
from lhkit.imports.imported import Imported, ImportedFile, Loss, reference_calls
from lhkit.json_values import JSON, compact
from lhkit.messages import ToolCall
from lhkit.tool_results import ToolErr, ToolOk, ToolResult
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import their_code

TODAY = date(2024, 9, 1)
MAX_TURNS = 40
"""BFCL gives a model 20 steps a turn, each of several calls; its longest turn has 34."""

Attributes: TypeAlias = Mapping[str, tuple[dict[str, Any], ...]]
"""Rows by class: `name` and `value` of each public attribute."""

_PACKAGE = "bfcl_eval"
_STATELESS = {"MathAPI"}
_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A copy of BFCL's package: its folder, where its classes are, what describes their methods."""

    folder: Path
    classes: Mapping[str, str]
    documents: Mapping[str, str]

    def lines(self, *path: str) -> list[dict[str, Any]]:
        """Return the objects of one of its data files; none if there is no such file."""
        file = self.folder.joinpath("data", *path)
        if not file.is_file():
            return []
        lines = file.read_text(encoding="utf-8").split("\n")  # a text may contain U+2028
        return [json.loads(line) for line in lines if line.strip()]

    def more_tools(self) -> str:
        """Return what BFCL's user says where a function that was missing is there at last."""
        module = importlib.import_module(f"{_PACKAGE}.constants.default_prompts")
        return str(module.DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC)

    def built(self, world: Mapping[str, Any]) -> dict[str, Any]:
        """Return live objects in the state of a world: one row a class, with its configuration."""
        objects = {}
        for row in world["classes"]:
            made = getattr(importlib.import_module(self.classes[row["name"]]), row["name"])()
            if row["name"] not in _STATELESS:
                config, is_long = deepcopy(row["config"]), row.get("long_context", False)
                made._load_scenario(config, long_context=is_long)
            objects[row["name"]] = made
        return objects


@cache
def read_package(path: str) -> Package:
    """Return BFCL's package.

    Args:
        path: its folder, or the one that it lies in, such as `site-packages`.

    Raises:
        UsageError: it is not there, or its code fails.
    """
    found = [each for each in (Path(path) / _PACKAGE, Path(path)) if (each / "data").is_dir()]
    if not found or found[0].name != _PACKAGE:
        raise UsageError(f"{path} holds no {_PACKAGE}: give the folder of BFCL's package")
    folder = found[0].resolve()
    if str(folder.parent) not in sys.path:
        sys.path.append(str(folder.parent))
    with their_code(f"BFCL in {folder}: importing it"):
        config: ModuleType = importlib.import_module(
            f"{_PACKAGE}.constants.executable_backend_config"
        )
        if not Path(str(config.__file__)).is_relative_to(folder):
            raise UsageError(
                f"another {_PACKAGE} comes first here ({config.__file__}): give that, or remove it"
            )
        return Package(
            folder=folder,
            classes=config.CLASS_FILE_PATH_MAPPING,
            documents=config.MULTI_TURN_FUNC_DOC_FILE_MAPPING,
        )


def attributes(objects: Mapping[str, Any]) -> Attributes:
    """Return the state as rows: one table a class, one row a public attribute, as BFCL compares."""
    return {
        owner: tuple(
            {"name": name, "value": _plain(value)}
            for name, value in vars(thing).items()
            if not name.startswith("_")
        )
        for owner, thing in objects.items()
        if owner not in _STATELESS
    }


def _plain(value: Any) -> Any:
    """Return what an attribute or a result holds as JSON: folders and files by their contents.

    What JSON cannot carry is written exactly, as BFCL does: a short form could hide a difference.
    """
    if hasattr(value, "contents"):
        return {name: _plain(each) for name, each in value.contents.items()}
    if hasattr(value, "content"):
        return value.content
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)


@cache
def registry_of(path: str, classes: tuple[str, ...]) -> ToolRegistry:
    """Return the methods of some classes as tools, as BFCL's documents describe them."""
    package = read_package(path)
    described = [
        (owner, function)
        for owner in classes
        for function in package.lines("multi_turn_func_doc", package.documents[owner])
    ]
    reads = reads_by_name(function["name"] for _, function in described)
    return ToolRegistry(
        ToolDefinition(
            name=function["name"],
            description=function["description"].partition("Tool description: ")[2]
            or function["description"],
            parameters=_schema(function["parameters"]),
            handler=partial(_called, owner, function["name"]),
            is_destructive=owner not in _STATELESS and function["name"] not in reads,
        )
        for owner, function in described
    )


def _schema(written: Any) -> Any:
    """Return BFCL's way of writing a schema as JSON Schema."""
    if isinstance(written, list):
        return [_schema(each) for each in written]
    if not isinstance(written, Mapping):
        return written
    kept = {key: _schema(value) for key, value in written.items() if key != "default"}
    if isinstance(kept.get("type"), str):
        kept["type"] = _TYPES.get(kept["type"], kept["type"])
    return {key: value for key, value in kept.items() if value is not None}


def _called(
    owner: str, method: str, args: Mapping[str, JSON], objects: Mapping[str, Any]
) -> ToolResult:
    """Call the method of the live object, and give what it returns as it is."""
    return call_result(getattr(objects[owner], method), args)


def call_result(method: Callable[..., Any], args: Mapping[str, Any]) -> ToolOk | ToolErr:
    try:
        returned = method(**deepcopy(dict(args)))
    except Exception as error:  # noqa: BLE001 - boundary: what it raises is the model's to read
        return ToolErr("raised", str(error) or type(error).__name__)
    return ToolOk(_plain(returned) if isinstance(returned, Mapping) else {"result": str(returned)})


@dataclass(frozen=True, slots=True, kw_only=True)
class BfclSession:
    """One conversation's own objects. `arriving` are tools by the turn that they come with."""

    objects: Mapping[str, Any]
    registry: ToolRegistry
    arriving: Mapping[int, Sequence[ToolDefinition]] = field(default_factory=dict)
    turns: Iterator[int] = field(default_factory=count)
    today: date = TODAY

    @property
    def assistant(self) -> Assistant:
        """An assistant with as many steps as BFCL gives."""
        return Assistant(deps=self.objects, max_turns=MAX_TURNS, context=self._turn_begins)

    def _turn_begins(self, _message: str) -> str:
        """Bring the tools of the turn; BFCL says nothing more to the model."""
        for tool in self.arriving.get(next(self.turns), ()):
            self.registry.register(tool)
        return ""

    def state(self) -> Mapping[str, JSON]:
        """Return the attributes of all objects."""
        return attributes(self.objects)

    def row_keys(self) -> Mapping[str, Sequence[str]]:
        """Return that an attribute is known by its name."""
        return {owner: ["name"] for owner in self.objects if owner not in _STATELESS}

    def close(self) -> None:
        """Leave everything as it is."""


@dataclass(frozen=True, slots=True)
class BfclToolset:
    """Opens BFCL's classes. `path` as `read_package`.

    A world is `{classes: [{name, config}], arriving: [{turn, tool}]}`; the latter are tools that
    the model gets in a later turn.
    """

    path: str
    name: str = "bfcl"
    locales: tuple[str, ...] = ("en",)

    def open(self, world: Mapping[str, Any], locale: str) -> BfclSession:
        """Return a session with objects of its own.

        Raises:
            UsageError: as `read_package`.
        """
        objects = read_package(self.path).built(world)
        registry = registry_of(self.path, tuple(sorted(objects)))
        arriving: defaultdict[int, list[ToolDefinition]] = defaultdict(list)
        for row in world.get("arriving", ()):
            arriving[row["turn"]].append(registry[row["tool"]])
        if arriving:
            late = {tool.name for tools in arriving.values() for tool in tools}
            registry = ToolRegistry(each for each in registry.definitions if each.name not in late)
        return BfclSession(objects=objects, registry=registry, arriving=arriving)


CATEGORIES = (
    "multi_turn_base",
    "multi_turn_miss_param",
    "multi_turn_miss_func",
    "multi_turn_long_context",
)


def import_bfcl(path: Path) -> Imported:
    """Return BFCL's multi-turn conversations as scenarios.

    Raises:
        UsageError: the package is not there, or its code fails.
    """
    folder = str(path.resolve())
    package = read_package(folder)
    losses = [Loss(code="categories")]
    return Imported(
        toolset="\n".join(
            (
                '"""Written by `lhkit import bfcl`: the classes of BFCL, run where they lie."""',
                "",
                "from lhkit.imports.bfcl import BfclToolset",
                "",
                f"toolset = BfclToolset({compact(folder)})",
                "",
            )
        ),
        suites=tuple(
            ImportedFile(
                name="toolset", file=category, scenarios=tuple(_scenarios(folder, category))
            )
            for category in CATEGORIES
            if package.lines(f"BFCL_v4_{category}.json")
        ),
        losses=tuple(losses),
    )


def _scenarios(folder: str, category: str) -> Iterator[dict[str, Any]]:
    package = read_package(folder)
    truths = {
        row["id"]: row["ground_truth"]
        for row in package.lines("possible_answer", f"BFCL_v4_{category}.json")
    }
    for entry in package.lines(f"BFCL_v4_{category}.json"):
        yield _scenario(folder, category, entry, truths[entry["id"]])


def _scenario(
    folder: str, category: str, entry: Mapping[str, Any], truth: Sequence[Sequence[str]]
) -> dict[str, Any]:
    """Return one entry as a scenario whose turns end in what BFCL's own objects end in."""
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
    package, registry = read_package(folder), registry_of(folder, names)
    gold = [[_call(written, registry) for written in turn] for turn in truth]
    reached = list(stages(package, world, gold))
    states = [each.state for each in reached]
    said = [
        " ".join(each["content"] for each in messages) or package.more_tools()
        for messages in entry["question"]
    ]
    return {
        "id": entry["id"],
        "ac": category,
        "locale": "en",
        "tags": ["bfcl"],
        "world": world,
        "turns": [
            _turn(words, calls, stage.results, registry) | change
            for words, calls, stage, change in zip(
                said, gold, reached[1:], _changes(gold, states), strict=True
            )
        ],
    } | _changed(states[0], states[-1])


def _turn(
    user: str,
    calls: Sequence[ToolCall],
    results: Sequence[ToolOk | ToolErr],
    registry: ToolRegistry,
) -> dict[str, Any]:
    """Return a turn that asks for the results of the gold, from whichever calls.

    The gold's writes are named, so that a user who reads the card knows them; none of them has to
    be made. What the gold raised is no result of a call that went well: that call has to be.
    """
    turn: dict[str, Any] = {"user": user, "confirm": "accept", "expect": {"extra": "any"}}
    if not calls:
        return turn
    came = list(zip(calls, results, strict=True))
    named = [
        {"tool": call.name, "args": literals(call.args)}
        | ({"result": result.code} if isinstance(result, ToolErr) else {"optional": True})
        for call, result in came
        if call.name in registry.destructive or isinstance(result, ToolErr)
    ]
    awaited = [{"equals": dict(each.data)} for each in results if isinstance(each, ToolOk)]
    asked = {"calls": named, "results": awaited, "least": 1}
    turn["expect"] |= {name: each for name, each in asked.items() if each}
    return turn | {"gold": {"calls": reference_calls(calls)}}


def _changes(
    gold: Sequence[Sequence[ToolCall]], states: Sequence[Attributes]
) -> Iterator[dict[str, Any]]:
    """Yield what each turn does to the state.

    BFCL judges none of a turn without a gold, so that what stands before the next is not known:
    of that, the whole state is given.
    """
    for i, calls in enumerate(gold):
        if not calls:
            yield {}
        elif i > 0 and not gold[i - 1]:
            every = {
                table: [literals(row) for row in rows] for table, rows in states[i + 1].items()
            }
            yield {"final": every}
        else:
            yield {"final": {}} | _changed(states[i], states[i + 1])


def _changed(before: Attributes, after: Attributes) -> dict[str, Any]:
    return expected_changes(before, after, dict.fromkeys(before, ("name",)))


def _call(written: str, registry: ToolRegistry) -> ToolCall:
    """Return a call as BFCL writes it, in Python, with named arguments."""
    made = ast.parse(written, mode="eval").body
    if not isinstance(made, ast.Call) or not isinstance(made.func, ast.Name):
        raise UsageError(f"BFCL: {written} is no call: the package has another form than v4")
    name = made.func.id
    tool = registry.get(name)
    order = list(tool.parameters["properties"]) if tool else []
    args = dict(zip(order, map(ast.literal_eval, made.args), strict=False))
    args |= {each.arg or "": ast.literal_eval(each.value) for each in made.keywords}
    return ToolCall(name=name, args=args)


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterTurn:
    """How BFCL's own objects stand after a turn, and what its calls came to; or at the start."""

    state: Attributes
    results: tuple[ToolOk | ToolErr, ...] = ()


def _no_method(**_args: Any) -> None:
    raise KeyError("BFCL's classes have no such method")


def stages(
    package: Package, world: Mapping[str, Any], turns: Iterable[Iterable[ToolCall]]
) -> Iterator[AfterTurn]:
    """Yield how BFCL's own objects stand at the start and after the calls of each turn.

    Nothing of lhkit is between them and the calls.
    """
    objects = package.built(world)
    methods: dict[str, Callable[..., Any]] = {
        name: method
        for thing in objects.values()
        for name, method in inspect.getmembers(thing, inspect.ismethod)
    }
    yield AfterTurn(state=attributes(objects))
    for calls in turns:
        results = tuple(
            call_result(methods.get(call.name, _no_method), call.args) for call in calls
        )
        yield AfterTurn(state=attributes(objects), results=results)
