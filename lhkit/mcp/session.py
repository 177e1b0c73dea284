"""A session with an MCP server: its tool calls, state, folder and questions to the user."""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import date
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import ConfigDict

from lhkit.base.errors import McpServerError, UsageError
from lhkit.base.json_values import JSON, compact, plain_json
from lhkit.base.locales import load_catalog
from lhkit.chat.assistant import Assistant
from lhkit.confirm.form import DECLINED, FormAnswer, UnsupportedFormError, parse_form
from lhkit.confirm.gate import ConfirmRequest, current_questions
from lhkit.conversation.tool_results import ToolErr, ToolOk, ToolResult
from lhkit.mcp.names import ToolNames
from lhkit.mcp.results import BAD_RESULT, convert_result, output_error
from lhkit.tools.definition import Handler
from lhkit.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from mcp_types import CallToolResult

    from lhkit.mcp.connection import McpConnection

_log = getLogger(__name__)

FILES = "files"
"""The state table of the files in the session's folder."""

_MAX_QUESTION = 4_000
_MAX_TEXT_BYTES = 2**20


class Elicitations:
    """Forwards a server's elicitation requests to the user of the running call."""

    def __init__(self, *, server_name: str, locale: str) -> None:
        self._running: tuple[Any, asyncio.AbstractEventLoop, str] | None = None
        self.server_name, self.locale = server_name, locale

    async def during(self, tool: str, work: Any) -> Any:
        """Await a call; requests of the server meanwhile go to the call's user."""
        self._running = (current_questions(), asyncio.get_running_loop(), tool)
        try:
            return await work
        finally:
            self._running = None

    async def elicit(self, message: str, schema: Mapping[str, Any]) -> FormAnswer:
        """Return the user's answer; declined where there is no user to ask."""
        running, catalog = self._running, load_catalog(self.locale)
        if running is None or running[0] is None:
            return DECLINED
        try:
            form = parse_form(schema, message, catalog)
        except UnsupportedFormError as error:
            _log.warning("%s: its form is declined: %s", self.server_name, error)
            return DECLINED
        questions, loop, tool = running
        shown = message if len(message) <= _MAX_QUESTION else f"{message[:_MAX_QUESTION]}…"
        request = ConfirmRequest(
            tool=tool,
            description=catalog.text("mcp.asks", server=self.server_name),
            args=plain_json(form.given),
            summary="\n".join(filter(None, [shown, form.words])),
        )
        answer = asyncio.run_coroutine_threadsafe(questions.fill_in(request, form), loop)
        return await asyncio.wrap_future(answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRead:
    """A call of a read tool that returns a table of the state.

    Args:
        tool: the read tool.
        args: its arguments.
        rows: the path to the rows in the result, such as `entities` or `graph.nodes`; the whole
            result without it.
        key: the fields that identify a row.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    tool: str
    args: Mapping[str, Any] = field(default_factory=dict)
    rows: str = ""
    key: tuple[str, ...] = ()


class McpSession:
    """A session with its own server process or connection."""

    registry: ToolRegistry
    waits: ClassVar[bool] = True  # for the server, also when its state is read
    names: ToolNames

    def __init__(
        self,
        *,
        connection: "McpConnection",
        elicitations: Elicitations,
        assistant: Callable[[str], Assistant],
        state: Mapping[str, StateRead],
        timeout_s: float,
        folder: tuple[Path | None, str],
        today: date,
        locale: str,
    ) -> None:
        self.today, self.assistant = today, assistant(locale)
        self._connection, self._elicitations = connection, elicitations
        self._assistant_for = assistant
        self._state, self._timeout_s = state, timeout_s
        self._folder, self._folder_name = folder
        self._tools = {tool.name: tool for tool in reversed(connection.tools)}  # the first counts
        self.resources = ExitStack()
        self._unchecked_tables: Mapping[str, Any] = {}  # of `world`, until the state is read
        elicitations.server_name = connection.name or elicitations.server_name

    def prepare(
        self, calls: Sequence[Mapping[str, Any]], tables: Mapping[str, Any], *, check_now: bool
    ) -> None:
        """Make the calls of a `world`, and compare its tables now or at the first state read."""
        for number, call in enumerate(calls):
            where, tool = f"world.calls[{number}]", str(call["tool"])
            result = self._call_sync(where, tool, call.get("args") or {})
            if isinstance(result, ToolErr):
                raise UsageError(f"{where}: {tool} failed: {result.reason}")
        self._unchecked_tables = dict(tables)
        if tables and check_now:
            self.state()

    def runs_on(self) -> Mapping[str, str]:
        """Return the server's name and version."""
        return {"server": self._connection.name, "version": self._connection.version}

    def in_locale(self, locale: str) -> "McpSession":
        """Switch the language, and keep the server."""
        self.assistant = self._assistant_for(locale)
        self._elicitations.locale = locale
        return self

    def state(self) -> Mapping[str, JSON]:
        """Return the results of the state reads, and the files in the folder.

        Raises:
            McpServerError: the server is gone.
            UsageError: a read fails, or its result has no rows.
        """
        self._connection.require_alive()
        tables: dict[str, JSON] = {}
        for table, read in self._state.items():
            result = self._call_sync(f"state.{table}", read.tool, read.args)
            if isinstance(result, ToolErr):
                raise UsageError(f"state.{table}: {read.tool} failed: {result.reason}")
            tables[table] = _rows_in(result.data, read, table)
        if self._folder is not None:
            tables[FILES] = list(
                _read_files(
                    self._folder, lambda text: self._connection.masked(self._with_folder_name(text))
                )
            )
        for table, rows in self._unchecked_tables.items():
            if rows != tables[table]:
                raise UsageError(
                    f"world.{table}: the server begins with {compact(tables[table])[:200]}: "
                    "create these rows with calls"
                )
        self._unchecked_tables = {}
        return tables

    def row_keys(self) -> Mapping[str, Sequence[str]]:
        """Return the fields that identify a row, by table."""
        keys = {table: read.key for table, read in self._state.items() if read.key}
        return keys | ({FILES: ("path",)} if self._folder is not None else {})

    def close(self) -> None:
        """End the server, and delete the session's folder."""
        self.resources.close()

    def handler(self, tool: str) -> Handler:
        """Return a handler that calls a tool of the server."""

        async def handle(args: Mapping[str, JSON], _deps: Any) -> ToolResult:
            sent = self._with_folder_path(args)
            try:
                result = await self._elicitations.during(tool, self._connection.call(tool, sent))
            except asyncio.CancelledError:
                self._connection.suspect(f"{tool} did not respond in time")
                raise
            return await asyncio.to_thread(self._convert, tool, result)

        return handle

    def _call_sync(self, where: str, tool: str, args: Mapping[str, Any]) -> ToolOk | ToolErr:
        tool = self.names.served(tool) or tool
        try:
            result = self._connection.call_sync(tool, self._with_folder_path(args), self._timeout_s)
        except McpServerError as error:
            self._connection.require_alive()
            raise UsageError(f"{where}: {error}") from error
        return self._convert(tool, result)

    def _convert(self, tool: str, result: "CallToolResult") -> ToolOk | ToolErr:
        error = output_error(self._tools[tool], result) if tool in self._tools else ""
        converted = ToolErr(code=BAD_RESULT, reason=error) if error else convert_result(result)
        if isinstance(converted, ToolErr):
            return ToolErr(code=converted.code, reason=self._with_folder_name(converted.reason))
        return ToolOk(self._with_folder_name(converted.data))

    def _with_folder_path(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments for the server, with the folder's path in place of its name.

        Raises:
            UnicodeEncodeError: a lone surrogate, which no message can encode.
        """
        sent: dict[str, Any] = plain_json(args)
        if self._folder is not None:
            sent = _replace_in(sent, self._folder_name, str(self._folder))
        json.dumps(sent, ensure_ascii=False).encode()  # fails here, not in the connection
        return sent

    def _with_folder_name(self, value: Any) -> Any:
        if self._folder is None:
            return value
        return _replace_in(value, str(self._folder), self._folder_name)


def _replace_in(value: Any, old: str, new: str) -> Any:
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, Mapping):
        return {
            _replace_in(key, old, new): _replace_in(item, old, new) for key, item in value.items()
        }
    if isinstance(value, list):
        return [_replace_in(item, old, new) for item in value]
    return value


def _rows_in(data: Mapping[str, Any], read: StateRead, table: str) -> list[JSON]:
    """Return the rows in a result; a text that is JSON is parsed."""
    content: Any = data
    if data.keys() == {"text"}:
        with suppress(ValueError, RecursionError):
            content = json.loads(str(data["text"]))
    for part in filter(None, read.rows.split(".")):
        if not isinstance(content, Mapping) or part not in content:
            raise UsageError(
                f"state.{table}.rows: the result of {read.tool} has no {read.rows!r}: "
                f"it is {compact(plain_json(content))[:200]}"
            )
        content = content[part]
    rows = content if isinstance(content, list) else [content]
    return [row if isinstance(row, Mapping) else {"value": row} for row in rows]


def write_files(folder: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the files of a `world` into the session's folder, and nowhere else."""
    for row in rows:
        path = str(row["path"])
        target = (folder / path).resolve()
        if not target.is_relative_to(folder) or target == folder:
            raise UsageError(
                f"world.files: {path!r} is not inside the folder: write a path like a/b.txt"
            )
        if path.endswith("/"):
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(str(row.get("text", "")), encoding="utf-8")


def _read_files(folder: Path, mask: Callable[[str], Any]) -> Iterator[Mapping[str, JSON]]:
    """Yield a row for each file and each empty folder."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            yield {"path": name, "link": mask(str(path.readlink()))}
        elif path.is_dir():
            if not any(path.iterdir()):
                yield {"path": f"{name}/"}
        else:
            content: dict[str, JSON] = {"bytes": path.stat().st_size}
            if path.stat().st_size <= _MAX_TEXT_BYTES:
                with suppress(UnicodeDecodeError):
                    content = {"text": mask(path.read_text(encoding="utf-8"))}
            yield {"path": name, **content}
