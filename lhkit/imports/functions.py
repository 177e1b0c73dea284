"""Tools as OpenAI's API describes them, done by functions `(data, **args)`: a toolset of both.

So tools are often brought: a list of JSON objects for the model, and functions over one nest of
plain data. `FunctionToolset` gives every conversation a copy of that data, and shows it as rows.
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

from lhkit.chat.controller import Assistant
from lhkit.errors import UsageError
from lhkit.harness.comparison import hashable_form
from lhkit.json_values import JSON, compact, plain_json
from lhkit.locales import available_locales
from lhkit.tool_results import ToolCancelled, ToolErr, ToolOk, ToolResult, result_in
from lhkit.tools.definition import Handler, ToolDefinition
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import day_of, load_named

Function: TypeAlias = Callable[..., Any]

KEY = "_key"
"""The field of a row that tells what it was called, where a table was a mapping."""

INSTRUCTIONS = "instructions"
"""The table of a scenario's world with the instructions of its conversation, if it has its own."""

RECORDED = "recorded"
"""The table of a scenario's world that holds what tools without a function gave back."""

_REPLAYED = "_played"  # how often each recorded call was made: no part of the state

_READS = re.compile(
    r"(get|list|find|search|read|show|fetch|lookup|look_up|view|query|check|count|calculate|think)"
    r"(_|$)"
)


def guess_read_tools(names: Iterable[str]) -> frozenset[str]:
    """Return the tools that change nothing, going by their names: `get_order`, `search_flights`.

    All others ask first: a card too many is better than an unseen write.
    """
    return frozenset(name for name in names if _READS.match(_snake_case(name)))


def _snake_case(name: str) -> str:
    """Return a name in lower case with underscores: `startEngine` is `start_engine`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_").lower()


def parse_tools(tools: Any) -> tuple[dict[str, Any], ...]:
    """Return the functions that a `tools` array describes: name, description, parameters.

    Args:
        tools: the array, with or without `{"type": "function", "function": …}` around each; or an
            object that has it under `tools` or `functions`.

    Raises:
        UsageError: it is something else; the sentence says where.
    """
    listed = tools
    if isinstance(tools, Mapping):
        listed = tools.get("tools", tools.get("functions"))
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        raise UsageError('tools: give a list such as [{"type": "function", "function": {…}}]')
    found = []
    for number, entry in enumerate(listed):
        function = entry.get("function", entry) if isinstance(entry, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise UsageError(f"tools[{number}] has no function with a name: give OpenAI's form")
        found.append(dict(function))
    return tuple(found)


def build_registry(
    tools: Iterable[Mapping[str, Any]],
    handler: Callable[[str], Handler],
    reads: Collection[str] | None = None,
) -> ToolRegistry:
    """Return tools for the functions of `parse_tools`.

    Args:
        tools: as `parse_tools` gives them.
        handler: what does the work of a tool.
        reads: the tools that change nothing; by their names (`guess_read_tools`) if left out.

    Raises:
        RegistrationError: a name or schema that no tool may have.
    """
    listed = list(tools)
    asked_nothing = guess_read_tools(each["name"] for each in listed) if reads is None else reads
    return ToolRegistry(
        ToolDefinition(
            name=each["name"],
            description=str(each.get("description") or each["name"]),
            parameters=each.get("parameters") or {"type": "object", "properties": {}},
            handler=handler(each["name"]),
            is_destructive=each["name"] not in asked_nothing,
        )
        for each in listed
    )


def to_tool_result(returned: Any) -> ToolResult:
    """Return what a function gave back as a result.

    A text that is a JSON object is that object, one that begins with `Error` is an error; any
    other value stands under `result`.
    """
    if isinstance(returned, ToolOk | ToolErr | ToolCancelled):
        return returned
    if isinstance(returned, str):
        if returned.startswith("Error"):
            return ToolErr("error", returned)
        returned = decode_json(returned)
    return ToolOk(returned if isinstance(returned, Mapping) else {"result": returned})


def to_utf8_json(value: Any) -> Any:
    """Return plain JSON that a UTF-8 file can carry.

    Raises:
        ValueError: it contains half a surrogate pair, or what JSON cannot carry (NotJsonError).
    """
    plain = plain_json(value)
    json.dumps(plain, ensure_ascii=False).encode()
    return plain


def decode_json(text: Any) -> Any:
    """Return the JSON object or list that a text is; any other text, and any other value, as it is.

    What JSON cannot carry stays text: NaN, half a surrogate pair, nesting that is too deep.
    """
    if not isinstance(text, str):
        return text
    try:
        value = to_utf8_json(json.loads(text))
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict | list) else text


def function_handler(function: Function) -> Handler:
    """Return a handler that calls `function(data, **args)`; the session's data are its `deps`."""

    async def handle(args: Mapping[str, JSON], data: Any) -> ToolResult:
        returned = function(data, **plain_json(args))
        if inspect.isawaitable(returned):
            returned = await returned
        return to_tool_result(returned)

    return handle


def replay_handler(name: str) -> Handler:
    """Return a handler that gives the recorded result of a call; the last one again and again."""

    def handle(args: Mapping[str, JSON], data: Any) -> ToolResult:
        rows = data.get(RECORDED, [])
        asked = hashable_form(plain_json(args))
        same = [
            row
            for row in rows
            if row["tool"] == name and hashable_form(row.get("args", {})) == asked
        ]
        if not same:
            return ToolErr("not_recorded", f"{name} was never called so when this was recorded.")
        played = data.setdefault(_REPLAYED, Counter())
        number = played[name, asked]
        played[name, asked] += 1
        recorded = same[min(number, len(same) - 1)].get("result")
        return result_in(recorded) or to_tool_result(recorded)

    return handle


def find_functions(found: Any, names: Iterable[str], what: str) -> dict[str, Function]:
    """Return the function of each tool.

    Args:
        found: a mapping by name, a list of functions with these names, or an object (a class, a
            module) that has them; what has `invoke` is called by that.
        names: the tools.
        what: how a message calls `found`.

    Raises:
        UsageError: a tool has none.
    """
    if isinstance(found, Sequence):
        found = {getattr(each, "__name__", ""): each for each in found}
    functions = {}
    for name in names:
        one = found.get(name) if isinstance(found, Mapping) else getattr(found, name, None)
        one = getattr(one, "invoke", one)
        if not callable(one):
            raise UsageError(f"{what} has no function {name!r}: give one, called as (data, **args)")
        functions[name] = one
    return functions


def to_rows(data: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return a nest of data as rows by table.

    A mapping of objects is a table whose rows tell their name in `_key`; a list of objects is one
    as it is. Of anything else each value is a row `{_key, value}`.
    """
    return {str(name): _rows(value) for name, value in data.items()}


def _rows(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, list) and all(isinstance(each, Mapping) for each in value):
        return value
    named = value if isinstance(value, Mapping) else {"": value}
    return [
        {KEY: str(key), **each} if isinstance(each, Mapping) else {KEY: str(key), "value": each}
        for key, each in named.items()
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSession:
    """One conversation with data of its own, which its functions change."""

    registry: ToolRegistry
    assistant: Assistant
    today: date
    data: dict[str, Any]

    def state(self) -> Mapping[str, JSON]:
        """Return the data as rows."""
        return to_rows({name: each for name, each in self.data.items() if name != _REPLAYED})

    def row_keys(self) -> Mapping[str, Sequence[str]]:
        """Return that the rows of a mapping are distinguished by their names."""
        return {
            name: [KEY]
            for name, each in self.data.items()
            if not isinstance(each, list) and name != _REPLAYED
        }

    def close(self) -> None:
        """Leave everything as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionToolset:
    """Tools that are functions over data; every session begins with the same.

    `start` is the data at the start, as JSON text. A table that a scenario's `world` names takes
    the place of that in `start`; `instructions: [{text: …}]` there takes the place of those of the
    `assistant`, which gives the limits, too.
    """

    registry: ToolRegistry
    start: str = "{}"
    assistant: Assistant = field(default_factory=Assistant)
    today: date | None = None
    name: str = "functions"
    locales: tuple[str, ...] = field(default_factory=available_locales)

    def open(self, world: Mapping[str, Any], locale: str) -> FunctionSession:
        """Return a session with a copy of the data."""
        own = {"now": None, INSTRUCTIONS: [], **world}
        now, texts = own.pop("now"), own.pop(INSTRUCTIONS)
        data = json.loads(self.start) | own
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
    """Return a toolset of files.

    Args:
        tools: what OpenAI's API takes under `tools`, or a JSON file of it.
        functions: `FILE.py:NAME` of the functions (`find_functions`); without any, recorded results
            are played back (`world.recorded`).
        data: JSON: the data that every conversation begins with; none by default.
        reads: the tools that change nothing; by their names if left out.
        assistant: instructions and limits.

    Raises:
        UsageError: a file is not there or is wrong, or a tool has no function.
    """
    described = parse_tools(read_json(tools) if isinstance(tools, Path) else tools)
    handler = replay_handler
    if functions is not None:
        names = (each["name"] for each in described)
        found = find_functions(load_named("functions", functions), names, functions)
        handler = lambda name: function_handler(found[name])  # noqa: E731 - one of two
    start = {} if data is None else read_json(data)
    if not isinstance(start, Mapping):
        raise UsageError(f"{data}: the data have to be a JSON object of tables")
    return FunctionToolset(
        registry=build_registry(described, handler, reads),
        start=compact(start),
        assistant=assistant or Assistant(),
    )


def read_json(file: Path) -> Any:
    """Return what a JSON file says.

    Raises:
        UsageError: it cannot be read, or is no JSON.
    """
    try:
        return json.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{file}: no JSON: {error}") from error
