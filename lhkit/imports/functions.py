"""A toolset of tools in OpenAI's format and functions `(data, **args)` over plain data.

`FunctionToolset` gives every conversation a copy of the data and exposes it as rows.
"""

import inspect
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any, TypeAlias

from lhkit.base.errors import UsageError
from lhkit.base.json_values import JSON, compact, plain_json
from lhkit.base.locales import available_locales
from lhkit.base.schema import ABSENT, SchemaNode
from lhkit.chat.assistant import Assistant
from lhkit.conversation.tool_results import ToolCancelled, ToolErr, ToolOk, ToolResult, parse_result
from lhkit.harness.scenarios.values import hashable_form
from lhkit.imports.decoding import decode_json, read_json
from lhkit.imports.tool_shapes import parse_tools
from lhkit.tools.definition import Handler, ToolDefinition
from lhkit.tools.registry import ToolRegistry
from lhkit.tools.validation import value_issue
from lhkit.toolset import day_of, load_named

Function: TypeAlias = Callable[..., Any]

KEY = "_key"
"""The row field with the key of an object in a table that was a mapping."""

INSTRUCTIONS = "instructions"
"""The table of the initial state with a conversation's own instructions."""

RECORDED = "recorded"
"""The table of the initial state with the recorded results of tools without a function."""

_REPLAYED = "_played"  # counts the replayed calls: not part of the state

_READS = re.compile(
    r"(get|list|find|search|read|show|fetch|lookup|look_up|view|query|check|count|calculate|think)"
    r"(_|$)"
)


def guess_read_tools(names: Iterable[str]) -> frozenset[str]:
    """Return the tools whose names suggest that they only read: `get_order`, `searchFlights`.

    All others require confirmation: a needless card is better than an unseen write.
    """

    def snake_case(name: str) -> str:
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_").lower()

    return frozenset(name for name in names if _READS.match(snake_case(name)))


def build_registry(
    functions: Sequence[Mapping[str, Any]],
    handler: Callable[[str], Handler],
    reads: Collection[str] | None = None,
) -> ToolRegistry:
    """Return a registry with a tool for each function.

    Args:
        functions: as `parse_tools` returns them.
        handler: returns the handler of a tool by name.
        reads: the tools that only read; guessed from their names by default.

    Raises:
        RegistrationError: a name or schema is invalid.
    """
    if reads is None:
        reads = guess_read_tools(function["name"] for function in functions)
    return ToolRegistry(
        ToolDefinition(
            name=function["name"],
            description=str(function.get("description") or function["name"]),
            title=_title(function),
            parameters=function.get("parameters") or {"type": "object", "properties": {}},
            handler=handler(function["name"]),
            is_destructive=function["name"] not in reads,
        )
        for function in functions
    )


def _title(function: Mapping[str, Any]) -> str:
    """Return the name for people, as MCP's lists of tools have it; empty if there is none."""
    hints = function.get("annotations")
    titles = [function.get("title"), hints.get("title") if isinstance(hints, Mapping) else None]
    return " ".join(next((title for title in titles if isinstance(title, str)), "").split())


def _with_null_arguments(tool: ToolDefinition) -> ToolDefinition:
    """Return a tool whose optional arguments may be null instead of left out, as in a replay."""
    schema = tool.parameters
    required = {name for b in SchemaNode.of(schema).branches() for name in b.get("required", ())}
    optional = (item for item in schema.get("properties", {}).items() if item[0] not in required)
    implied = {
        name: None
        for name, inner in optional
        if SchemaNode(inner, schema).default() is ABSENT and value_issue(schema, name, None) is None
    }
    return replace(tool, implied=implied)


def to_tool_result(value: Any) -> ToolResult:
    """Convert the return value of a function to a tool result.

    A string that is a JSON object becomes that object, a string that starts with `Error` an error;
    any other value is wrapped as `{"result": value}`.
    """
    if isinstance(value, ToolOk | ToolErr | ToolCancelled):
        return value
    if isinstance(value, str):
        if value.startswith("Error"):
            return ToolErr("error", value)
        value = decode_json(value)
    return ToolOk(value if isinstance(value, Mapping) else {"result": value})


def function_handler(function: Function) -> Handler:
    """Return a handler that calls `function(data, **args)` with the session's data."""

    async def handle(args: Mapping[str, JSON], data: Any) -> ToolResult:
        returned = function(data, **plain_json(args))
        if inspect.isawaitable(returned):
            returned = await returned
        return to_tool_result(returned)

    return handle


def replay_handler(name: str) -> Handler:
    """Return a handler that replays the recorded results of equal calls; the last one repeats."""

    def handle(args: Mapping[str, JSON], data: Any) -> ToolResult:
        key = name, _call_key(plain_json(args))
        rows = [
            row
            for row in data.get(RECORDED, [])
            if (row["tool"], _call_key(row.get("args", {}))) == key
        ]
        if not rows:
            return ToolErr("not_recorded", f"{name} was never called so when this was recorded.")
        counts = data.setdefault(_REPLAYED, Counter())
        number = counts[key]
        counts[key] += 1
        recorded = rows[min(number, len(rows) - 1)].get("result")
        return parse_result(recorded) or to_tool_result(recorded)

    return handle


def _call_key(args: Mapping[str, Any]) -> Any:
    """Return a hashable form of arguments, in which null is an omission."""
    return hashable_form({name: value for name, value in args.items() if value is not None})


def to_rows(data: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Convert nested data to rows by table.

    A mapping of objects becomes rows with their keys in `_key`, a list of objects stays as it is.
    Other values become rows `{_key, value}`.
    """
    return {str(name): _table_rows(value) for name, value in data.items()}


def _table_rows(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, list) and all(isinstance(item, Mapping) for item in value):
        return value
    items = value if isinstance(value, Mapping) else {"": value}
    return [
        {KEY: str(key), **item} if isinstance(item, Mapping) else {KEY: str(key), "value": item}
        for key, item in items.items()
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSession:
    """A conversation with its own copy of the data, which the functions change."""

    registry: ToolRegistry
    assistant: Assistant
    today: date
    data: dict[str, Any]

    def state(self) -> Mapping[str, JSON]:
        """Return the data as rows."""
        return to_rows({name: table for name, table in self.data.items() if name != _REPLAYED})

    def row_keys(self) -> Mapping[str, Sequence[str]]:
        """Return `_key` as the key of each table that is a mapping."""
        return {
            name: [KEY]
            for name, table in self.data.items()
            if not isinstance(table, list) and name != _REPLAYED
        }

    def close(self) -> None:
        """Do nothing: the data hold no resources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionToolset:
    """Tools that are functions over data; every session starts with a copy of the same data.

    `start` is the initial data as JSON text; a table in a scenario's `world` replaces the one in
    `start`. `assistant` has instructions and limits; `instructions: [{text: …}]` in `world`
    replaces its instructions.
    """

    registry: ToolRegistry
    start: str = "{}"
    assistant: Assistant = field(default_factory=Assistant)
    today: date | None = None
    name: str = "functions"
    locales: tuple[str, ...] = field(default_factory=available_locales)

    def open(self, world: Mapping[str, Any], locale: str) -> FunctionSession:
        """Return a session with its own copy of the data."""
        tables = {"now": None, INSTRUCTIONS: [], **world}
        now, texts = tables.pop("now"), tables.pop(INSTRUCTIONS)
        data = json.loads(self.start) | tables
        instructions = "\n\n".join(str(row.get("text", "")) for row in texts)
        return FunctionSession(
            registry=self.registry,
            assistant=replace(
                self.assistant,
                deps=data,
                instructions=instructions or self.assistant.instructions,
            ),
            today=self.today if self.today is not None and now is None else day_of(now),
            data=data,
        )


def function_toolset(
    tools: Path | Sequence[Mapping[str, Any]],
    functions: str | None = None,
    *,
    data: Path | None = None,
    reads: Collection[str] | None = None,
    assistant: Assistant | None = None,
) -> FunctionToolset:
    """Return a toolset from files.

    Args:
        tools: the value of `tools` in OpenAI's API, or a JSON file with it.
        functions: `FILE.py:NAME` of a mapping by name, a list of functions, or a class or module
            with the functions; an object with `invoke` is called through it. By default recorded
            results are replayed (`world.recorded`).
        data: JSON file with the initial data.
        reads: the tools that only read; guessed from their names by default.
        assistant: instructions and limits.

    Raises:
        UsageError: a file is missing or invalid, or a tool has no function.
    """
    described = parse_tools(read_json(tools) if isinstance(tools, Path) else tools)
    handler: Callable[[str], Handler] = replay_handler
    if functions is not None:
        source = load_named("functions", functions)
        handlers = {
            tool["name"]: function_handler(_find_function(source, tool["name"], functions))
            for tool in described
        }
        handler = handlers.__getitem__
    start = {} if data is None else read_json(data)
    if not isinstance(start, Mapping):
        raise UsageError(f"{data} must be a JSON object of tables.")
    registry = build_registry(described, handler, reads)
    return FunctionToolset(
        registry=registry if functions is not None else registry.mapped(_with_null_arguments),
        start=compact(start),
        assistant=assistant or Assistant(),
    )


def _find_function(source: Any, name: str, reference: str) -> Function:
    if isinstance(source, Sequence):
        source = {getattr(function, "__name__", ""): function for function in source}
    member = source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)
    function = getattr(member, "invoke", member)
    if not callable(function):
        raise UsageError(f"{reference} has no function {name!r}: add one with (data, **args).")
    return function  # type: ignore[no-any-return]
