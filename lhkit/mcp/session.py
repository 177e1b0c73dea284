"""One conversation with an MCP server: its calls, its state, its folder, its questions."""

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

from lhkit.chat.controller import Assistant
from lhkit.confirm.form import DECLINED, FormAnswer, UnsupportedFormError, parse_form
from lhkit.confirm.gate import ConfirmRequest, current_questions
from lhkit.errors import McpServerError, UsageError
from lhkit.json_values import JSON, compact, plain_json
from lhkit.locales import load_catalog
from lhkit.mcp.results import BAD_RESULT, output_fault, result_of
from lhkit.tool_results import ToolErr, ToolOk, ToolResult
from lhkit.tools.definition import Handler
from lhkit.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from mcp_types import CallToolResult

    from lhkit.mcp.connection import McpConnection

_log = getLogger(__name__)

FILES = "files"
"""The table of what lies in the folder of a session."""

_MOST_ASKED = 4_000


class Questions:
    """Who is asked what a server asks: the person of the call that runs now, else nobody."""

    def __init__(self, *, name: str, locale: str) -> None:
        self._present: tuple[Any, asyncio.AbstractEventLoop, str] | None = None
        self.name, self.locale = name, locale

    async def during(self, tool: str, work: Any) -> Any:
        """Return what a call gives; what the server asks meanwhile is asked of its person."""
        self._present = (current_questions(), asyncio.get_running_loop(), tool)
        try:
            return await work
        finally:
            self._present = None

    async def elicited(self, message: str, schema: Mapping[str, Any]) -> FormAnswer:
        """Return the answer of a person to a question of the server; a no where nobody is asked."""
        present, catalog = self._present, load_catalog(self.locale)
        if present is None or present[0] is None:
            return DECLINED
        try:
            form = parse_form(schema, message, catalog)
        except UnsupportedFormError as error:
            _log.warning("%s: the form that it asked with is declined: %s", self.name, error)
            return DECLINED
        questions, loop, tool = present
        shown = message if len(message) <= _MOST_ASKED else f"{message[:_MOST_ASKED]}…"
        request = ConfirmRequest(
            tool=tool,
            description=catalog.text("mcp.asks", server=self.name),
            args=plain_json(form.given),
            summary="\n".join(filter(None, [shown, form.words])),
        )
        asked = asyncio.run_coroutine_threadsafe(questions.fill_in(request, form), loop)
        return await asyncio.wrap_future(asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRead:
    """A call of a read whose result is a table of the state.

    `rows` is where in the result the rows are, such as `entities` or `graph.nodes`; the whole
    result without it. `key` are the fields that tell rows apart.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    tool: str
    args: Mapping[str, Any] = field(default_factory=dict)
    rows: str = ""
    key: tuple[str, ...] = ()


class McpSession:
    """One conversation with a server of its own."""

    registry: ToolRegistry

    def __init__(
        self,
        *,
        connection: "McpConnection",
        asking: Questions,
        assistant: Callable[[str], Assistant],
        state: Mapping[str, StateRead],
        timeout_s: float,
        folder: tuple[Path | None, str],
        today: date,
        locale: str,
    ) -> None:
        self.today, self.assistant = today, assistant(locale)
        self._connection, self._asking, self._assistant = connection, asking, assistant
        self._state, self._timeout_s = state, timeout_s
        self._place, self._folder = folder
        self._tools = {tool.name: tool for tool in connection.tools}
        self.ending = ExitStack()
        self._unchecked: Mapping[str, Any] = {}  # tables of the world, until the state is read
        asking.name = connection.name or asking.name

    def begin(
        self, calls: Sequence[Mapping[str, Any]], tables: Mapping[str, Any], *, is_checked: bool
    ) -> None:
        """Make the calls of a world, and check its tables, now or when the state is first read."""
        for number, each in enumerate(calls):
            answer = self._asked_now(
                f"world.calls[{number}]", str(each["tool"]), each.get("args") or {}
            )
            if isinstance(answer, ToolErr):
                raise UsageError(f"world.calls[{number}]: {each['tool']} refuses: {answer.reason}")
        self._unchecked = dict(tables)
        if tables and is_checked:
            self.state()

    def runs_on(self) -> Mapping[str, str]:
        """Return what the server says it is."""
        return {"server": self._connection.name, "version": self._connection.version}

    def in_locale(self, locale: str) -> "McpSession":
        """Go on in another language, with the same server."""
        self.assistant = self._assistant(locale)
        self._asking.locale = locale
        return self

    def state(self) -> Mapping[str, JSON]:
        """Return what the reads of the state tell now, and what lies in the folder.

        Raises:
            McpServerError: the server is gone.
            UsageError: a read is refused, or tells no rows.
        """
        self._connection.require_alive()
        tables: dict[str, JSON] = {}
        for table, read in self._state.items():
            answer = self._asked_now(f"state.{table}", read.tool, read.args)
            if isinstance(answer, ToolErr):
                raise UsageError(f"state.{table}: {read.tool} refuses: {answer.reason}")
            tables[table] = _rows_in(answer.data, read, table)
        if self._place is not None:
            tables[FILES] = list(
                files_in(self._place, lambda text: self._connection.masked(self._masked(text)))
            )
        for table, rows in self._unchecked.items():
            if rows != tables[table]:
                raise UsageError(
                    f"world.{table}: the server begins with {compact(tables[table])[:200]}: "
                    "bring it there with calls"
                )
        self._unchecked = {}
        return tables

    def row_keys(self) -> Mapping[str, Sequence[str]]:
        """Return the fields that tell rows apart, where the user says so."""
        keys = {table: read.key for table, read in self._state.items() if read.key}
        return keys | ({FILES: ("path",)} if self._place is not None else {})

    def close(self) -> None:
        """End the server, and take its folder away."""
        self.ending.close()

    def handler(self, tool: str) -> Handler:
        """Return what calls a tool of the server."""

        async def handle(args: Mapping[str, JSON], _deps: Any) -> ToolResult:
            sent = self._sendable(args)
            try:
                answer = await self._asking.during(tool, self._connection.call(tool, sent))
            except asyncio.CancelledError:
                self._connection.doubt(f"{tool} did not answer in time")
                raise
            return await asyncio.to_thread(self._result, tool, answer)

        return handle

    def _asked_now(self, what: str, tool: str, args: Mapping[str, Any]) -> ToolOk | ToolErr:
        try:
            answer = self._connection.call_now(tool, self._sendable(args), self._timeout_s)
        except McpServerError as error:
            self._connection.require_alive()
            raise UsageError(f"{what}: {error}") from error
        return self._result(tool, answer)

    def _sendable(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments for the server, in which the folder has its true name.

        Raises:
            UnicodeEncodeError: half a character, which no message can carry.
        """
        sent: dict[str, Any] = self._renamed(plain_json(args), self._folder, str(self._place))
        json.dumps(sent, ensure_ascii=False).encode()  # as it would be sent, else no call ends well
        return sent

    def _result(self, tool: str, answer: "CallToolResult") -> ToolOk | ToolErr:
        """Return the result of a call; `answer` is masked."""
        broken = output_fault(self._tools[tool], answer) if tool in self._tools else ""
        result = ToolErr(code=BAD_RESULT, reason=broken) if broken else result_of(answer)
        if isinstance(result, ToolErr):
            return ToolErr(code=result.code, reason=self._masked(result.reason))
        return ToolOk(self._masked(result.data))

    def _masked(self, value: Any) -> Any:
        return self._renamed(value, str(self._place), self._folder)

    def _renamed(self, value: Any, old: str, new: str) -> Any:
        return value if self._place is None else _replaced(value, old, new)


def _replaced(value: Any, old: str, new: str) -> Any:
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, Mapping):
        return {_replaced(key, old, new): _replaced(each, old, new) for key, each in value.items()}
    if isinstance(value, list):
        return [_replaced(each, old, new) for each in value]
    return value


def _rows_in(data: Mapping[str, Any], read: StateRead, table: str) -> list[JSON]:
    """Return the rows that a result tells; texts that are JSON are read."""
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


_MOST_TEXT_BYTES = 2**20


def write_files(folder: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Put files into the folder of a session, and nothing anywhere else."""
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


def files_in(folder: Path, masked: Any) -> Iterator[Mapping[str, JSON]]:
    """Yield a row for each file in a folder, and for each folder in it that is empty."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            yield {"path": name, "link": masked(str(path.readlink()))}
        elif path.is_dir():
            if not any(path.iterdir()):
                yield {"path": f"{name}/"}
        else:
            yield {"path": name, **_content(path, masked)}


def _content(path: Path, masked: Any) -> dict[str, JSON]:
    size = path.stat().st_size
    if size <= _MOST_TEXT_BYTES:
        with suppress(UnicodeDecodeError):
            return {"text": masked(path.read_text(encoding="utf-8"))}
    return {"bytes": size}
