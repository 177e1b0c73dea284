"""A toolset whose tools are those of an MCP server, and the references that name one.

    mcp:npx -y @modelcontextprotocol/server-memory      a command line
    mcp:https://example.org/mcp                         an address (streamable HTTP)
    mcp:mcp.json#memory                                 an entry of a file as other clients read it
    mcp:notes.toml                                      a server, and what you say of it

What a user says of a server (its reads, its state, its words) is said once: in such a TOML file, or
in Python with the same names, `McpToolset(server=…, reads=…)`. Every tool that the user has not
declared a read asks first; hints of the server count only where the user says so.
"""

import re
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import ConfigDict, Field, StrictBool, TypeAdapter, ValidationError

from lhkit.chat.controller import Assistant
from lhkit.confirm.summary import Summarizer, pretty
from lhkit.errors import MissingPackageError, RegistrationError, UsageError
from lhkit.json_values import JSON
from lhkit.locales import Catalog, available_locales
from lhkit.mcp.launch import ENTRY, HOW, Launch, Remote, fill_in, label, secrets_of, server_of
from lhkit.mcp.results import without_patterns
from lhkit.mcp.session import FILES, McpSession, Questions, StateRead, write_files
from lhkit.tool_results import MAX_RESULT_BYTES
from lhkit.tools.definition import Handler, ToolDefinition
from lhkit.tools.registration import NAME_PATTERN
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import day_of, isolation_fault

if TYPE_CHECKING:
    from mcp_types import Tool

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
        claims: the words of a successful write, by tool and language (see `ToolDefinition`).
        instructions: the instructions of the model: a text, or one for each language.
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
        fill_in(server)  # refuses a variable that is not set
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
        try:
            from lhkit.mcp.connection import McpConnection
        except ImportError as error:
            raise MissingPackageError(
                "MCP servers need the package mcp: install lhkit[mcp], or in a clone run make venv"
            ) from error

        tables = dict(world)
        now, files, calls = tables.pop("now", None), tables.pop(FILES, None), tables.pop(_CALLS, ())
        _require_world(self, tables, files, calls)
        with ExitStack() as undone:
            place = None
            if self.folder:
                held = undone.enter_context(tempfile.TemporaryDirectory(prefix="lhkit-mcp-"))
                place = Path(held).resolve()
                write_files(place, files or ())
            asking = Questions(name=self.name, locale=locale)
            connection = McpConnection(
                self._placed(place),
                shown=self.shown,
                secrets=secrets_of(self._written),
                start_s=self.start_s,
                elicit=asking.elicited,
            )
            undone.callback(connection.close)
            session = McpSession(
                connection=connection,
                asking=asking,
                assistant=self.assistant,
                state=self.state,
                timeout_s=self.timeout_s,
                folder=(place, self.folder),
                today=day_of(now),
                locale=locale,
            )
            session.registry = self.registry(connection.tools, session.handler)
            session.begin(calls, tables, is_checked=self.is_isolated)
            session.ending = undone.pop_all()
        return session

    def _placed(self, place: Path | None) -> Launch | Remote:
        """Return the server of a session whose folder is at `place`."""
        server = self.launched
        if isinstance(server, Remote):
            return server

        def put(word: str) -> str:
            return word if place is None else word.replace(_FOLDER, str(place))

        placed = replace(
            server,
            args=tuple(map(put, server.args)),
            env={key: put(value) for key, value in server.env.items()},
            cwd=(self.base or Path()) / (server.cwd or ""),
        )
        object.__setattr__(placed, "written", repr(server))
        return placed

    def assistant(self, locale: str) -> Assistant:
        """Return the assistant of a session in a language."""
        own = self.instructions
        text = own if isinstance(own, str) else own.get(locale, "")
        return Assistant(
            instructions=text or _INSTRUCTIONS.get(locale, _INSTRUCTIONS["en"]),
            max_turns=self.max_turns,
            max_result_bytes=self.max_result_bytes,
            truncation_hint=_TRUNCATED.get(locale, _TRUNCATED["en"]),
        )

    def registry(self, served: Sequence["Tool"], handler: Callable[[str], Handler]) -> ToolRegistry:
        """Return those of a server's tools that can be offered; the others are logged."""
        by_name = {tool.name: tool for tool in reversed(served)}  # of two with one name, the first
        by_name = dict(reversed(by_name.items()))
        named = [*self.reads, *self.tools, *self.claims]
        named += [read.tool for read in self.state.values()]
        for name in named:
            if name not in by_name:
                raise UsageError(
                    f"the MCP server has no tool {name!r}: it has {', '.join(by_name)[:400]}"
                )
        chosen = [by_name[name] for name in self.tools] if self.tools else list(by_name.values())
        registry = ToolRegistry()
        for tool in chosen:
            try:
                registry.register(_definition(self, tool, handler(tool.name)))
            except (RegistrationError, RecursionError) as error:
                if self.tools:
                    raise
                _log.warning("%s: left out: %s", self.name, error)
                registry.left_out[tool.name] = str(error) or type(error).__name__
        if not registry:
            raise UsageError(f"the MCP server {self.name} has no tool that can be called")
        return registry


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


PREFIX = "mcp:"


def from_reference(reference: str) -> McpToolset:
    """Return the toolset that follows `mcp:`; nothing is started.

    Raises:
        UsageError: there is no such file or entry, it is wrong, or it cannot be read as a command.
    """
    server = reference.removeprefix(PREFIX).strip()
    if not server:
        raise UsageError(f"toolset {reference} names no server: {HOW}")
    if server.endswith(".toml") and " " not in server.replace("\\ ", ""):
        return _declared(Path(server))
    try:
        return McpToolset(server=server)
    except UsageError as error:
        raise UsageError(f"toolset {reference}: {error}") from error


def reference_from(folder: Path, reference: str) -> str:
    """Return a reference whose file is looked for in `folder`."""
    server = reference.removeprefix(PREFIX).strip()
    is_file = server.endswith(".toml") or ENTRY.fullmatch(server)
    return f"{PREFIX}{folder / server}" if is_file else reference


def label_of(reference: str) -> str:
    """Return one word for a reference."""
    server = reference.removeprefix(PREFIX).strip()
    if server.endswith(".toml"):
        return Path(server).stem
    if found := ENTRY.fullmatch(server):
        return found["name"]
    return label(server_of(server, None))


def _declared(file: Path) -> McpToolset:
    try:
        declared = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{file} cannot be read ({error.strerror}): {HOW}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is no TOML: {error}") from error
    declared = {"name": file.stem, "base": file.parent, **declared}
    try:
        return _DECLARATION.validate_python(declared)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(
            str(part) for part in fault["loc"] if part not in {"Launch", "Remote", "str"}
        )
        raise UsageError(f"{file}: {where or 'top'}: {fault['msg']}: see docs/mcp.md") from error
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from error


_DECLARATION = TypeAdapter(McpToolset)
