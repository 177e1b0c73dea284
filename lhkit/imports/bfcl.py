"""BFCL's classes, run where the user's own copy of its package lies, as a toolset.

The classes are live objects whose attributes are the state.
"""

import importlib
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from lhkit.imports.functions import reads_by_name
from lhkit.json_values import JSON
from lhkit.tool_results import ToolErr, ToolOk, ToolResult
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import their_code

TODAY = date(2024, 9, 1)
MAX_TURNS = 40
"""BFCL gives a model 20 steps a turn, each of several calls; its longest turn has 34."""

Attributes: TypeAlias = Mapping[str, list[dict[str, Any]]]
"""Rows by class: `name` and `value` of each public attribute."""

_PACKAGE = "bfcl_eval"
_STATELESS = {"MathAPI"}
_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": None}


# ------------------------------------------------------------------------- the package where it is
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
        told: ModuleType = importlib.import_module(
            f"{_PACKAGE}.constants.executable_backend_config"
        )
        if not Path(str(told.__file__)).is_relative_to(folder):
            raise UsageError(
                f"another {_PACKAGE} comes first here ({told.__file__}): give that, or remove it"
            )
        return Package(
            folder=folder,
            classes=told.CLASS_FILE_PATH_MAPPING,
            documents=told.MULTI_TURN_FUNC_DOC_FILE_MAPPING,
        )


def attributes(objects: Mapping[str, Any]) -> Attributes:
    """Return the state as rows: one table a class, one row a public attribute, as BFCL compares."""
    return {
        owner: [
            {"name": name, "value": _plain(value)}
            for name, value in vars(thing).items()
            if not name.startswith("_")
        ]
        for owner, thing in objects.items()
        if owner not in _STATELESS
    }


def _plain(value: Any) -> Any:
    """Return what an attribute or a result holds as JSON: folders and files by their contents.

    What JSON has no word for is told exactly, as BFCL does: a short form could hide a difference.
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


# ------------------------------------------------------------------------------- methods as tools
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


def _schema(told: Any) -> Any:
    """Return BFCL's way of writing a schema as JSON Schema."""
    if isinstance(told, list):
        return [_schema(each) for each in told]
    if not isinstance(told, Mapping):
        return told
    kept = {key: _schema(value) for key, value in told.items() if key != "default"}
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
