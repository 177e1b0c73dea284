"""A toolset whose tools are those of an MCP server, and the references that name one.

    mcp:npx -y @modelcontextprotocol/server-memory      a command line
    mcp:https://example.org/mcp                         an address (streamable HTTP)
    mcp:mcp.json#memory                                 an entry of a file as other clients read it
    mcp:notes.toml                                      a server, and what you say of it

What a user says of a server (its reads, its state, its words) is said once: in such a TOML file, or
in Python with the same names, `McpToolset(server=…, reads=…)`. Every tool asks first that nobody
called a read. Hints of the server count only where the user says so.
"""

import asyncio
import json
import re
import shlex
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import date
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import ConfigDict, Field, StrictBool, TypeAdapter, ValidationError

from lhkit.chat.controller import Assistant
from lhkit.confirm.form import DECLINED, FormAnswer, UnsupportedFormError, form_of
from lhkit.confirm.gate import ConfirmRequest, asked_in_the_midst
from lhkit.confirm.summary import Summarizer, pretty
from lhkit.errors import McpServerError, MissingPackageError, RegistrationError, UsageError
from lhkit.json_values import JSON, NotJsonError, compact, plain_json
from lhkit.locales import Catalog, available_locales, load_catalog
from lhkit.mcp.promise import BAD_RESULT, ResultPromise, without_patterns
from lhkit.redaction import LEAST_CHARS
from lhkit.settings import variable
from lhkit.tool_results import MAX_RESULT_BYTES, ToolErr, ToolOk, ToolResult
from lhkit.tools.definition import Handler, ToolDefinition
from lhkit.tools.registry import NAME_PATTERN, ToolRegistry
from lhkit.toolset import day_of, isolation_fault

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock, Tool

    from lhkit.mcp.connection import Address, McpConnection, Process

_log = getLogger(__name__)

PREFIX = "mcp:"
HOW = "write mcp:COMMAND LINE, mcp:https://…, mcp:FILE.json#NAME or mcp:FILE.toml, see docs/mcp.md"

FILES = "files"
"""The table of what lies in the folder of a session."""

_FOLDER = "{folder}"
_CALLS = "calls"
_MOST_TEXT_BYTES = 2**20
_MOST_DESCRIPTION = 2_000
_MOST_ASKED = 4_000

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
class Launch:
    """How a process is started, as in the `mcp.json` of other clients; `isolated` as below."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    isolated: StrictBool = False
    written: str = field(default="", init=False, compare=False)

    def __repr__(self) -> str:
        """Show what was written, not what variables contain."""
        env = ", ".join(self.env)
        told = f"Launch({' '.join([self.command, *self.args])!r}, env: {env or 'none'})"
        return self.written or told


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """Where a server runs that others have started; `isolated` as in `McpToolset`."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    isolated: StrictBool = False
    written: str = field(default="", init=False, compare=False)

    def __repr__(self) -> str:
        """Show what was written, not what variables contain."""
        headers = ", ".join(self.headers)
        return self.written or f"Remote({self.url!r}, headers: {headers or 'none'})"


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
            object.__setattr__(self, "name", _label(server))
        _filled(server)  # whatever is not set is told now
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
        return _filled(self._written)

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
        return _server(self.server, self.base) if isinstance(self.server, str) else self.server

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


# -------------------------------------------------------------------------------------- references
def from_reference(reference: str) -> McpToolset:
    """Return the toolset that follows `mcp:`; nothing is started.

    Raises:
        UsageError: there is no such file or entry, it is wrong, or it cannot be read as a command.
    """
    told = reference.removeprefix(PREFIX).strip()
    if not told:
        raise UsageError(f"toolset {reference} names no server: {HOW}")
    if told.endswith(".toml") and " " not in told.replace("\\ ", ""):
        return _declared(Path(told))
    try:
        return McpToolset(server=told)
    except UsageError as error:
        raise UsageError(f"toolset {reference}: {error}") from error


def seen_from(folder: Path, reference: str) -> str:
    """Return a reference whose file is looked for in `folder`."""
    told = reference.removeprefix(PREFIX).strip()
    is_file = told.endswith(".toml") or _ENTRY.fullmatch(told)
    return f"{PREFIX}{folder / told}" if is_file else reference


def label_of(reference: str) -> str:
    """Return one word for a reference."""
    told = reference.removeprefix(PREFIX).strip()
    if told.endswith(".toml"):
        return Path(told).stem
    if found := _ENTRY.fullmatch(told):
        return found["name"]
    return _label(_server(told, None))


_ENTRY = re.compile(r"(?P<file>\S+\.json)#(?P<name>.+)")


def _declared(file: Path) -> McpToolset:
    try:
        told = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{file} cannot be read ({error.strerror}): {HOW}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is no TOML: {error}") from error
    told = {"name": file.stem, "base": file.parent, **told}
    try:
        return _DECLARATION.validate_python(told)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(
            str(part) for part in fault["loc"] if part not in {"Launch", "Remote", "str"}
        )
        raise UsageError(f"{file}: {where or 'top'}: {fault['msg']}: see docs/mcp.md") from error
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from error


_DECLARATION = TypeAdapter(McpToolset)


def _server(told: str, base: Path | None) -> Launch | Remote:
    if told.startswith(("http://", "https://")):
        return Remote(url=told)
    if found := _ENTRY.fullmatch(told):
        return _entry((base or Path()) / found["file"], found["name"])
    try:
        command, *args = shlex.split(told)
    except ValueError as error:
        raise UsageError(f"{told!r} is no command line ({error}): {HOW}") from error
    return Launch(command=command, args=tuple(args))


def _entry(file: Path, name: str) -> Launch | Remote:
    """Return an entry of a file that other clients read: `mcpServers`, or `servers`."""
    try:
        told = _json_with_comments(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{file} cannot be read ({error.strerror}): {HOW}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is no JSON: {error}") from error
    tables = [told.get(key) for key in ("mcpServers", "servers")] if isinstance(told, dict) else []
    entries = next((each for each in tables if isinstance(each, dict)), {})
    if name not in entries:
        known = ", ".join(map(str, entries)) or "none"
        raise UsageError(f"{file} has no server {name!r} under mcpServers: it has {known}")
    entry = entries[name]
    if not isinstance(entry, dict):
        raise UsageError(f"{file}: {name} is no object with a command or a url")
    transport = str(entry.get("type", entry.get("transport", ""))).lower()
    if transport in _OTHER_TRANSPORTS:
        raise UsageError(
            f"{file}: {name}: the transport {transport!r} is not supported: give the server's "
            'address for streamable HTTP, often …/mcp, with "type": "http"'
        )
    kind = Remote if "url" in entry else Launch
    known_keys = kind.__dataclass_fields__.keys() - {"written"}
    mine = {key: value for key, value in entry.items() if key in known_keys}
    try:
        read: Launch | Remote = _ENTRIES[kind].validate_python(mine)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(map(str, fault["loc"]))
        raise UsageError(f"{file}: {name}.{where}: {fault['msg']}") from error
    return read


_OTHER_TRANSPORTS = {"sse", "ws", "websocket"}

_IN_JSONC = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMA = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])', re.DOTALL)


def _json_with_comments(text: str) -> Any:
    """Return what a file of VS Code contains: JSON, perhaps with comments and last commas."""
    try:
        return json.loads(text)
    except ValueError:
        for gone in (_IN_JSONC, _LAST_COMMA):  # blanks, so that a fault keeps its line and column
            text = gone.sub(lambda found: found[1] or re.sub(r"[^\n]", " ", found[0]), text)
        return json.loads(text)


_ENTRIES: Mapping[type, TypeAdapter[Any]] = {kind: TypeAdapter(kind) for kind in (Launch, Remote)}


_VARIABLE = re.compile(r"\$\{(?:env:)?(\w+)(?::-([^}]*))?\}")
"""`${NAME}`, as other clients write it: also `${env:NAME}`, and `${NAME:-what to take else}`."""


def _filled(server: Launch | Remote) -> Launch | Remote:
    """Return where a server is with the variables that it names filled in.

    Raises:
        UsageError: one of them is not set.
    """
    filled: Launch | Remote
    if isinstance(server, Remote):
        headers = {name: _put_in(value) for name, value in server.headers.items()}
        filled = replace(server, url=_put_in(server.url), headers=headers)
    else:
        filled = replace(
            server,
            command=_put_in(server.command),
            args=tuple(map(_put_in, server.args)),
            env={name: _put_in(value) for name, value in server.env.items()},
            cwd=None if server.cwd is None else Path(_put_in(str(server.cwd))),
        )
    object.__setattr__(filled, "written", repr(server))
    return filled


def _put_in(text: str) -> str:
    for other in _PLACEHOLDER.finditer(text):
        if not _VARIABLE.fullmatch(other[0]):
            name = re.sub(r"\W+", "_", other[0][2:-1].rpartition(":")[2]).upper() or "NAME"
            raise UsageError(
                f"{other[0]} cannot be filled in: lhkit asks for no inputs, and takes values from "
                f"the environment only. Write ${{{name}}}, and set that variable"
            )
    return _VARIABLE.sub(lambda found: variable(found[1], found[2]), text)


_PLACEHOLDER = re.compile(r"\$\{[^{}]*\}")


def _secrets_of(server: Launch | Remote) -> dict[str, str]:
    """Return what messages show for the values of the variables that a server names.

    A value that the file itself gives (`${NAME:-value}`) is no secret.
    """
    texts: list[str]
    if isinstance(server, Remote):
        texts = [server.url, *server.headers.values()]
    else:
        texts = [server.command, *server.args, *server.env.values(), str(server.cwd)]
    found = (each for text in texts for each in _VARIABLE.finditer(text))
    values = ((variable(each[1], each[2]), each) for each in found)
    named = {value: f"${{{each[1]}}}" for value, each in values if value not in {"", each[2]}}
    in_headers = {
        word: f"(header {name})"
        for name, value in (server.headers.items() if isinstance(server, Remote) else ())
        for word in value.split()
        if len(word) >= LEAST_CHARS and not _PLACEHOLDER.search(word)
    }
    return in_headers | named


_RUNNERS = {"npx", "uvx", "node", "python", "python3", "uv", "run", "docker"}


def _label(server: Launch | Remote) -> str:
    """Return one word for a server: what its command runs, or its host."""
    if isinstance(server, Remote):
        host = re.sub(r"^https?://|[/?#].*$", "", _VARIABLE.sub(r"\1", server.url))
        return host or "server"
    words = [_VARIABLE.sub(r"\1", each) for each in (server.command, *server.args)]
    said = (
        Path(each).stem if "@" not in each else each for each in words if not each.startswith("-")
    )
    found = next((each for each in said if each not in _RUNNERS), server.command)
    return re.sub(r"@[\w.]+$", "", found).rpartition("/")[2].removeprefix("server-") or "server"


# ------------------------------------------------------------------------------------------ opening
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
            _write(place, files or ())
        asking = _Asking()
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
    from lhkit.mcp.connection import Address, Process

    server = toolset.launched
    secrets = _secrets_of(toolset._written)
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


def _write(folder: Path, rows: Sequence[Mapping[str, Any]]) -> None:
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


class _Asking:
    """Who is asked what a server asks: the person of the call that runs now, else nobody."""

    def __init__(self) -> None:
        self._present: tuple[Any, asyncio.AbstractEventLoop, str] | None = None
        self.locale = "ko"
        self.name = ""

    async def during(self, tool: str, work: Any) -> Any:
        """Return what a call gives; what the server asks meanwhile is asked of its person."""
        self._present = (asked_in_the_midst(), asyncio.get_running_loop(), tool)
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
            form = form_of(schema, message, catalog)
        except UnsupportedFormError as error:
            _log.warning("%s: the form that it asked with is declined: %s", self.name, error)
            return DECLINED
        questions, loop, tool = present
        told = message if len(message) <= _MOST_ASKED else f"{message[:_MOST_ASKED]}…"
        request = ConfirmRequest(
            tool=tool,
            description=catalog.text("mcp.asks", server=self.name),
            args=plain_json(form.given),
            summary="\n".join(filter(None, [told, form.words])),
        )
        asked = asyncio.run_coroutine_threadsafe(questions.fill_in(request, form), loop)
        return await asyncio.wrap_future(asked)


# ----------------------------------------------------------------------------------------- sessions
class McpSession:
    """One conversation with a server of its own."""

    def __init__(
        self,
        *,
        toolset: McpToolset,
        connection: "McpConnection",
        asking: _Asking,
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
                _files(self._place, lambda text: self._connection.masked(self._masked(text)))
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


# ------------------------------------------------------------------------------------------ results
def result_of(answer: "CallToolResult") -> ToolOk | ToolErr:
    """Return the envelope of what a tool of a server answered."""
    texts: list[str] = []
    notes: list[str] = []
    for block in answer.content:
        text, is_note = _said(block)
        (notes if is_note else texts).append(text)
    structured = answer.structured_content
    if answer.is_error:
        if structured not in ({}, [], "", None) and not _is_repeated(texts, structured):
            notes.append(json.dumps(structured, ensure_ascii=False, default=str))
        return ToolErr(
            code="tool_error", reason="\n".join([*texts, *notes]) or "no reason was given"
        )
    data: dict[str, Any] = {}
    try:
        plain = plain_json(structured)
    except NotJsonError as error:
        if not any(texts):
            return ToolErr(code=BAD_RESULT, reason=_NO_JSON.format(error))
        plain = None
        notes.append(f"structured content ({error})")
    if plain is not None:
        data = plain if isinstance(plain, dict) else {"value": plain}
    if plain is None and not texts and not notes:
        texts.append("")
    if (any(texts) or (texts and plain is None)) and not _is_repeated(texts, plain):
        key = "text"
        while key in data:  # a field of the server's own
            key = f"{key}_content"
        data = {**data, key: "\n".join(texts)}
    return ToolOk({**data, "not_shown": notes} if notes else data)


_NO_JSON = (
    "the tool ran, but its structured content is no JSON: {}. Whatever it did is done: look before "
    "you call it again."
)


def _is_repeated(texts: Sequence[str], structured: Any) -> bool:
    """Return whether texts say only what the structured content, or one field of it, says.

    MCP asks servers to give structured content as text, too: as JSON, one value or a block an item.
    """
    if structured is None:
        return False
    try:
        fields = [*structured.values()] if isinstance(structured, dict) else []
        known = {_ordered(each) for each in (structured, *fields)}
        joined = "\n".join(texts)
        read = [_read(each) for each in texts]
        return not known.isdisjoint(map(_ordered, (joined, _read(joined), texts, read)))
    except (ValueError, RecursionError, TypeError):
        return False


def _ordered(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _read(text: str) -> Any:
    """Return the JSON in a text; the text itself if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _said(block: "ContentBlock") -> tuple[str, bool]:
    """Return a block as text, and whether it is only a note that something was there."""
    match block.type:
        case "text":
            return block.text, False
        case "image" | "audio":
            return f"{block.type} ({block.mime_type}, {len(block.data) * 3 // 4} bytes)", True
        case "resource_link":
            return f"{block.name} <{block.uri}>", False
        case "resource":
            inner = block.resource
            text = getattr(inner, "text", None)
            if isinstance(text, str):
                return text, False
            kind = inner.mime_type or "unknown type"
            return f"blob ({kind}) <{inner.uri}>", True


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


def _files(folder: Path, masked: Any) -> Iterator[Mapping[str, JSON]]:
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
