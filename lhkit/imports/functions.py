"""A toolset of tools in OpenAI's format and functions `(data, **args)` over plain data.

`FunctionToolset` gives every conversation a copy of the data and exposes it as rows.
"""

import inspect
import json
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any, TypeAlias

from lhkit.base.errors import UsageError
from lhkit.base.json_values import JSON, compact, plain_json
from lhkit.base.locales import available_locales
from lhkit.base.schema import ABSENT, SchemaNode
from lhkit.chat.assistant import Assistant
from lhkit.conversation.messages import Message, ModelMessage, ToolCallMessage, UserMessage
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
"""The table of the initial state with the recorded results of tools without a function.

A row `{tool, args, result}` without `result` is a call whose result is not known.
"""

TOOLS = "tools"
"""The table of the initial state with the tools of a conversation, if it has not all of them.

A row is `{name}` of a tool of the toolset, or a whole description.
"""

HISTORY = "history"
"""The table of the initial state with the messages before the first one of the user.

A row is `{user}`, `{assistant}` or `{tool, args, result}`.
"""

_REPLAYED = "_played"  # counts the replayed calls: not part of the state

_READS = re.compile(
    r"(get|list|find|search|read|show|fetch|lookup|look_up|view|query|check|count|calculate|think)"
    r"(_|$)"
)


class _EveryName(Container[str]):
    def __contains__(self, _name: object) -> bool:
        return True


EVERY_NAME: Container[str] = _EveryName()
"""Contains every name: the `reads` of tools that do nothing."""


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
    reads: Container[str] | None = None,
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


def is_one_response(recorded: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a conversation lacks the result of a call, so that nothing can be replayed.

    Then one response is scored: a turn ends after a message with a call without a recorded result,
    whichever it is, and no tool returns an error that nobody recorded.
    """
    return not recorded or any("result" not in row for row in recorded)


def ends_response(calls: Sequence[ToolCallMessage]) -> bool:
    """Return whether one of the calls of a turn has no result that the model could go on with."""
    results = (call.outcome.result for call in calls if call.outcome is not None)
    return any(not isinstance(result, ToolOk) or not result.data for result in results)


def replay_handler(name: str) -> Handler:
    """Return a handler that replays the recorded results of equal calls; the last one repeats.

    Any other call returns the error `not_recorded`, or nothing where one response is scored.
    """

    def handle(args: Mapping[str, JSON], data: Any) -> ToolResult:
        key = name, _call_key(plain_json(args))
        recorded_rows = data.get(RECORDED, [])
        rows = [
            row
            for row in recorded_rows
            if "result" in row and (row["tool"], _call_key(row.get("args", {}))) == key
        ]
        if not rows and is_one_response(recorded_rows):
            return ToolOk({})
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

    Attributes:
        registry: the tools of conversations that list none (`world.tools`).
        build: returns a registry for descriptions of tools that only one conversation has; None if
            there are none.
        replays: the tools have no functions: recorded results are replayed (`world.recorded`).
        start: the initial data as JSON text; a table in a scenario's `world` replaces its table.
        assistant: instructions and limits; `world.instructions` replaces its instructions, and
            `world.history` is its history.
        today: the day of conversations without `world.now`.
        name: the name in reports.
        locales: the supported languages.
    """

    registry: ToolRegistry
    build: Callable[[Sequence[Mapping[str, Any]]], ToolRegistry] | None = None
    replays: bool = False
    start: str = "{}"
    assistant: Assistant = field(default_factory=Assistant)
    today: date | None = None
    name: str = "functions"
    locales: tuple[str, ...] = field(default_factory=available_locales)
    _listed: dict[str, ToolRegistry] = field(default_factory=dict, repr=False, compare=False)

    def open(self, world: Mapping[str, Any], locale: str) -> FunctionSession:
        """Return a session with its own copy of the data.

        Raises:
            UsageError: a listed tool does not exist.
        """
        data = json.loads(self.start)
        tables = dict(world)
        now, texts = tables.pop("now", None), tables.pop(INSTRUCTIONS, None)
        # with functions, a table of that name may be the user's own
        listed, history = (
            tables.pop(name, None) if name not in data else None for name in (TOOLS, HISTORY)
        )
        data |= tables
        assistant = replace(self.assistant, deps=data)
        if texts is not None:
            instructions = "\n\n".join(str(row.get("text", "")) for row in texts)
            assistant = replace(assistant, instructions=instructions)
        if history:
            data[HISTORY] = history  # part of the state, so that its ids are known
            assistant = replace(assistant, history=tuple(map(_message, history)))
        if self.replays and is_one_response(data.get(RECORDED, ())):
            assistant = replace(assistant, stops_after_calls=ends_response)
        return FunctionSession(
            registry=self.registry if listed is None else self._listed_tools(listed),
            assistant=assistant,
            today=self.today if self.today is not None and now is None else day_of(now),
            data=data,
        )

    def _listed_tools(self, rows: Sequence[Mapping[str, Any]]) -> ToolRegistry:
        """Return the listed tools; equal lists share a registry, whose schemas are compiled once.

        Raises:
            UsageError: a tool does not exist.
        """
        key = compact(rows)
        if key not in self._listed:
            whole = [row for row in rows if row.keys() != {"name"}]
            own = {} if self.build is None or not whole else self.build(parse_tools(whole))
            tools = {**self.registry, **own}
            if missing := [row["name"] for row in rows if row["name"] not in tools]:
                raise UsageError(f"world.tools: {missing[0]} is not a tool of {self.name}.")
            self._listed[key] = ToolRegistry(tools[row["name"]] for row in rows)
        return self._listed[key]


def _message(row: Mapping[str, Any]) -> Message:
    if "user" in row:
        return UserMessage(text=row["user"])
    if "assistant" in row:
        return ModelMessage(text=row["assistant"])
    result = to_tool_result(decode_json(row["result"]))
    return ToolCallMessage.of(name=row["tool"], args=row["args"], result=result)


def function_toolset(
    tools: Path | Sequence[Mapping[str, Any]],
    functions: str | None = None,
    *,
    data: Path | None = None,
    reads: Container[str] | None = None,
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
    replays = functions is None

    def build(tools: Sequence[Mapping[str, Any]]) -> ToolRegistry:
        registry = build_registry(tools, handler, reads)
        return registry.mapped(_with_null_arguments) if replays else registry

    return FunctionToolset(
        registry=build(described),
        build=build if replays else None,
        replays=replays,
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
