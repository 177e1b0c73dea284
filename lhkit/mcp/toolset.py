"""A toolset whose tools are those of an MCP server, and its sessions.

Every tool that the user has not declared a read asks first. Hints of the server count only where
the user says so.
"""

import asyncio
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import date
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import ConfigDict, Field, StrictBool

from lhkit.chat.controller import Assistant
from lhkit.confirm.summary import Summarizer, pretty
from lhkit.errors import McpServerError, MissingPackageError, RegistrationError, UsageError
from lhkit.json_values import JSON, compact, plain_json
from lhkit.locales import Catalog, available_locales
from lhkit.mcp.folder import FILES, files_in, write_files
from lhkit.mcp.launch import Launch, Remote, fill_in, label, secrets_of, server_of
from lhkit.mcp.promise import BAD_RESULT, ResultPromise, without_patterns
from lhkit.mcp.questions import Questions
from lhkit.mcp.results import result_of
from lhkit.tool_results import MAX_RESULT_BYTES, ToolErr, ToolOk, ToolResult
from lhkit.tools.definition import Handler, ToolDefinition
from lhkit.tools.registry import NAME_PATTERN, ToolRegistry
from lhkit.toolset import day_of, isolation_fault

if TYPE_CHECKING:
    from mcp_types import CallToolResult, Tool

    from lhkit.mcp.connection import McpConnection, Process
    from lhkit.mcp.http import Address

_log = getLogger(__name__)

_FOLDER = "{folder}"
_CALLS = "calls"
_MOST_DESCRIPTION = 2_000

# What the model reads, where the user says nothing better.
_INSTRUCTIONS = {
    "ko": "도구로 사용자를 돕는 도우미입니다. 필요한 것은 도구로 확인하고, 실제로 한 일만 했다고 "
    "말하세요. 짧게 한국어로 답하세요.",
    "en": "You help the user with tools. Look things up with them, and say that something is done "
    "only if it really was. Answer briefly, in English.",
}
_TRUNCATED = {
    "ko": "결과가 {bytes}바이트라 전부 보일 수 없습니다. 더 적은 것을 요청하세요.",
    "en": "The result has {bytes} bytes, too many to show. Ask for less.",
}

_Words: TypeAlias = str | Mapping[str, str]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class McpToolset:
    """The tools of an MCP server; each session has a process or a connection of its own.

        notes = lhkit.McpToolset(
            server="npx -y @modelcontextprotocol/server-filesystem {folder}",
            folder="/notes",
            reads=["read_text_file", "list_directory"],
        )

    Args:
        server: a command line, an http(s) address, or `FILE.json#NAME`; or `Launch`, `Remote`.
        reads: the tools that change nothing; every other one asks a person first.
        trust: `annotations` believes the server's own `readOnlyHint`, too.
        tools: only these, in this order; all of them without it. A small model is better with few.
        folder: each session has a folder of its own, which the command line calls `{folder}`; the
            model, the scenarios and the records call it by this name, such as `/notes`.
        isolated: whether a session changes nothing outside itself; by default only with a `folder`.
            Without it `lint`, `mutate`, reviews, baselines and `calls` of a world call no tool.
        state: which reads tell the state, by the name of the table.
        claims: how the success of a write is told, by tool and language (see `ToolDefinition`).
        instructions: what the model is told of its task: a text, or one for each language.
        name: a word for reports; by default made of `server`.
        timeout_s: how long a call may take, in seconds, without the time that a person thinks.
        start_s: how long the server may take to start, in seconds: `npx` may download first.
        max_turns: as in `Assistant`.
        max_result_bytes: as in `Assistant`.
        base: the folder that files and commands are seen from; the working folder without it.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    server: str | Launch | Remote
    reads: Sequence[str] = ()
    trust: Literal["nothing", "annotations"] = "nothing"
    tools: Sequence[str] = ()
    folder: str = ""
    isolated: StrictBool | None = None
    state: Mapping[str, StateRead] = field(default_factory=dict)
    claims: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    instructions: _Words = ""
    name: str = ""
    timeout_s: Annotated[float, Field(gt=0, le=3600)] = 30.0
    start_s: Annotated[float, Field(gt=0, le=3600)] = 60.0
    max_turns: Annotated[int, Field(ge=1)] = 4
    max_result_bytes: Annotated[int, Field(ge=256)] = 2 * MAX_RESULT_BYTES
    base: Path | None = None

    waits: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Give it a name, and refuse what cannot be."""
        if isinstance(self.reads, str) or isinstance(self.tools, str):
            raise UsageError(
                "McpToolset: reads and tools are lists of names, such as ['read_graph']"
            )
        server = self._written
        if not self.name:
            object.__setattr__(self, "name", label(server))
        fill_in(server)  # whatever is not set is told now
        if self.folder and not re.fullmatch(r"/[\w.-]+(/[\w.-]+)*", self.folder):
            raise UsageError(
                f"folder: {self.folder!r} is no name for a folder: write one like /notes"
            )
        uses = isinstance(server, Launch) and _FOLDER in " ".join(
            [*server.args, *server.env.values()]
        )
        if bool(self.folder) != uses:
            raise UsageError(
                "folder names what the command line calls {folder}: give both, or neither, and "
                "none for a server at an address"
            )
        if FILES in self.state:
            raise UsageError(
                f"state.{FILES}: the folder of the session is called so: take another name"
            )

    @property
    def launched(self) -> Launch | Remote:
        """How the server is reached, `${NAME}` filled in from the environment.

        Raises:
            UsageError: a command line that cannot be read, no such file, entry or variable.
        """
        return fill_in(self._written)

    @property
    def is_isolated(self) -> bool:
        """Whether sessions share no data: as declared, else whether each has a folder."""
        if self.isolated is not None:
            return self.isolated
        return bool(self.folder) or self._written.isolated

    @property
    def shown(self) -> str:
        """The command line or the address as it was written: what it names is not filled in."""
        written = self._written
        if isinstance(written, Remote):
            return written.url
        return " ".join([written.command, *written.args])

    @property
    def _written(self) -> Launch | Remote:
        return server_of(self.server, self.base) if isinstance(self.server, str) else self.server

    @property
    def locales(self) -> tuple[str, ...]:
        """All languages: a server's words are as they are."""
        return available_locales()

    def open(self, world: Mapping[str, Any], locale: str) -> "McpSession":
        """Start the server, and return a session with it.

        `world` may have `now`, `files` (rows with `path` and `text`, for the folder of the session)
        and `calls` (`{tool, args}`, made before the conversation, to bring the server there).
        Rows of a table of `state` are not made, but have to be what the server then tells: of a
        server that is not isolated this is checked when the state is read, and `calls` are refused.

        Raises:
            McpServerError: the server does not start.
            UsageError: `world` cannot be, or what this says of the server is not so.
        """
        return _opened(self, dict(world), locale)


def _opened(toolset: McpToolset, world: dict[str, Any], locale: str) -> "McpSession":
    try:
        from lhkit.mcp.connection import McpConnection
    except ImportError as error:
        raise MissingPackageError(
            "MCP servers need the package mcp: install lhkit[mcp], or in a clone run make venv"
        ) from error

    now = world.pop("now", None)
    files, calls = world.pop(FILES, None), world.pop(_CALLS, ())
    _require_world(toolset, world, files, calls)
    with ExitStack() as undone:
        place = None
        if toolset.folder:
            held = undone.enter_context(tempfile.TemporaryDirectory(prefix="lhkit-mcp-"))
            place = Path(held).resolve()
            write_files(place, files or ())
        asking = Questions()
        connection = McpConnection(
            _spoken(toolset, place), start_s=toolset.start_s, elicit=asking.elicited
        )
        undone.callback(connection.close)
        session = McpSession(
            toolset=toolset,
            connection=connection,
            asking=asking,
            place=place,
            today=day_of(now),
            locale=locale,
        )
        session.begin(calls, world)
        session.ending = undone.pop_all()
    return session


def _spoken(toolset: McpToolset, place: Path | None) -> "Process | Address":
    from lhkit.mcp.connection import Process
    from lhkit.mcp.http import Address

    server = toolset.launched
    secrets = secrets_of(toolset._written)
    if isinstance(server, Remote):
        return Address(url=server.url, headers=server.headers, shown=toolset.shown, secrets=secrets)
    return Process(
        command=(server.command, *(_put(each, place) for each in server.args)),
        env={key: _put(each, place) for key, each in server.env.items()},
        cwd=(toolset.base or Path()) / (server.cwd or ""),
        shown=toolset.shown,
        secrets=secrets,
    )


def _put(word: str, place: Path | None) -> str:
    return word if place is None else word.replace(_FOLDER, str(place))


def _require_world(toolset: McpToolset, tables: Mapping[str, Any], files: Any, calls: Any) -> None:
    unknown = [table for table in tables if table not in toolset.state]
    if unknown:
        known = ", ".join(["now", FILES, _CALLS, *toolset.state])
        raise UsageError(f"world.{unknown[0]}: an MCP server has no such table: it has {known}")
    if files is not None and not toolset.folder:
        raise UsageError(
            "world.files: the server has no folder of its own: give folder and {folder}"
        )
    for name, rows, fields in ((FILES, files or (), {"path"}), (_CALLS, calls, {"tool"})):
        rows_are = isinstance(rows, Sequence) and all(isinstance(row, Mapping) for row in rows)
        if not rows_are or any(not fields <= row.keys() for row in rows):
            raise UsageError(f"world.{name}: give a list of rows with {', '.join(fields)}")
    if calls and (fault := isolation_fault(toolset)):
        raise UsageError(f"world.{_CALLS} cannot be made: {fault}")


class McpSession:
    """One conversation with a server of its own."""

    def __init__(
        self,
        *,
        toolset: McpToolset,
        connection: "McpConnection",
        asking: Questions,
        place: Path | None,
        today: date,
        locale: str,
    ) -> None:
        self.today, self._toolset = today, toolset
        self._connection, self._asking, self._place = connection, asking, place
        self.ending = ExitStack()
        self._unchecked: Mapping[str, Any] = {}  # tables of the world, until the state is read
        asking.locale, asking.name = locale, connection.name or toolset.name
        self.assistant = self._assistant(locale)
        self.registry = _registry(toolset, connection.tools, self._handler)
        self._promises = {tool.name: ResultPromise(tool) for tool in connection.tools}

    def _assistant(self, locale: str) -> Assistant:
        own = self._toolset.instructions
        text = own if isinstance(own, str) else own.get(locale, "")
        told = text or _INSTRUCTIONS.get(locale, _INSTRUCTIONS["en"])
        return Assistant(
            instructions=told,
            max_turns=self._toolset.max_turns,
            max_result_bytes=self._toolset.max_result_bytes,
            truncation_hint=_TRUNCATED.get(locale, _TRUNCATED["en"]),
        )

    def begin(self, calls: Sequence[Mapping[str, Any]], tables: Mapping[str, Any]) -> None:
        """Make the calls of a world, and check its tables, now or when the state is first read."""
        for number, each in enumerate(calls):
            answer = self._asked_now(
                f"world.calls[{number}]", str(each["tool"]), each.get("args") or {}
            )
            if isinstance(answer, ToolErr):
                raise UsageError(f"world.calls[{number}]: {each['tool']} refuses: {answer.reason}")
        self._unchecked = dict(tables)
        if tables and self._toolset.is_isolated:
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
        for table, read in self._toolset.state.items():
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
        told = {table: read.key for table, read in self._toolset.state.items() if read.key}
        return told | ({FILES: ("path",)} if self._place is not None else {})

    def close(self) -> None:
        """End the server, and take its folder away."""
        self.ending.close()

    def _handler(self, tool: str) -> Handler:
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
            answer = self._connection.call_now(tool, self._sendable(args), self._toolset.timeout_s)
        except McpServerError as error:
            self._connection.require_alive()
            raise UsageError(f"{what}: {error}") from error
        return self._result(tool, answer)

    def _sendable(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments for the server, in which the folder has its true name.

        Raises:
            UnicodeEncodeError: half a character, which no message can carry.
        """
        sent: dict[str, Any] = self._renamed(
            plain_json(args), self._toolset.folder, str(self._place)
        )
        json.dumps(sent, ensure_ascii=False).encode()  # as it would be sent, else no call ends well
        return sent

    def _result(self, tool: str, answer: "CallToolResult") -> ToolOk | ToolErr:
        """Return the result of a call; `answer` is masked."""
        broken = self._promises[tool].broken_by(answer) if tool in self._promises else ""
        result = ToolErr(code=BAD_RESULT, reason=broken) if broken else result_of(answer)
        if isinstance(result, ToolErr):
            return ToolErr(code=result.code, reason=self._masked(result.reason))
        return ToolOk(self._masked(result.data))

    def _masked(self, value: Any) -> Any:
        return self._renamed(value, str(self._place), self._toolset.folder)

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


def _registry(toolset: McpToolset, told: Sequence["Tool"], handler: Any) -> ToolRegistry:
    """Return the tools that can be offered; what cannot be is left out, and said."""
    by_name = {tool.name: tool for tool in reversed(told)}  # of two with one name, the first
    by_name = dict(reversed(by_name.items()))
    named = [*toolset.reads, *toolset.tools, *toolset.claims]
    named += [read.tool for read in toolset.state.values()]
    for name in named:
        if name not in by_name:
            raise UsageError(
                f"the MCP server has no tool {name!r}: it has {', '.join(by_name)[:400]}"
            )
    chosen = [by_name[name] for name in toolset.tools] if toolset.tools else list(by_name.values())
    registry = ToolRegistry()
    for tool in chosen:
        try:
            registry.register(_definition(toolset, tool, handler(tool.name)))
        except (RegistrationError, RecursionError) as error:
            if toolset.tools:
                raise
            _log.warning("%s: left out: %s", toolset.name, error)
            registry.left_out[tool.name] = str(error) or type(error).__name__
    if not registry:
        raise UsageError(f"the MCP server {toolset.name} has no tool that can be called")
    return registry


def called_as(name: str) -> str:
    """Return what a model calls a tool: its name, or where no model could call that, a near one.

    MCP allows dots and slashes, the chat APIs do not.
    """
    if NAME_PATTERN.fullmatch(name):
        return name
    return _NO_NAME.sub("_", name)[:_LONGEST_NAME]


_NO_NAME = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME = 64


def _named(name: str) -> Summarizer:
    """Return a summary that tells the tool by the name that its server gave it."""

    def summarize(args: Mapping[str, JSON], _catalog: Catalog) -> str:
        return f"{name}\n{pretty(args)}"

    return summarize


def _definition(toolset: McpToolset, tool: "Tool", handler: Handler) -> ToolDefinition:
    hints = tool.annotations
    is_believed = toolset.trust == "annotations" and hints is not None
    is_read = tool.name in toolset.reads or (
        is_believed and hints is not None and hints.read_only_hint is True
    )
    description = " ".join((tool.description or tool.title or tool.name).split())
    called = called_as(tool.name)
    return ToolDefinition(
        name=called,
        summarize=None if called == tool.name else _named(tool.name),
        description=description[:_MOST_DESCRIPTION],
        parameters=without_patterns({"properties": {}, **tool.input_schema, "type": "object"}),
        handler=handler,
        is_destructive=not is_read,
        timeout_s=toolset.timeout_s,
        claims={} if is_read else toolset.claims.get(tool.name, {}),
    )


def _rows_in(data: Mapping[str, Any], read: StateRead, table: str) -> list[JSON]:
    """Return the rows that a result tells; texts that are JSON are read."""
    told: Any = data
    if data.keys() == {"text"}:
        with suppress(ValueError, RecursionError):
            told = json.loads(str(data["text"]))
    for part in filter(None, read.rows.split(".")):
        if not isinstance(told, Mapping) or part not in told:
            raise UsageError(
                f"state.{table}.rows: the result of {read.tool} has no {read.rows!r}: "
                f"it is {compact(plain_json(told))[:200]}"
            )
        told = told[part]
    rows = told if isinstance(told, list) else [told]
    return [row if isinstance(row, Mapping) else {"value": row} for row in rows]
