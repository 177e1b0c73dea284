"""Toolsets of MCP servers, and the references that name them.

    mcp:npx -y @modelcontextprotocol/server-memory      a command line
    mcp:https://example.org/mcp                         an address (streamable HTTP)
    mcp:mcp.json#memory                                 an entry of another client's file
    mcp:notes.toml                                      a server with its declaration

The declaration of a server (reads, state, success phrases) is such a TOML file, or Python with the
same names, `McpToolset(server=…, reads=…)`. Every tool that is not declared a read asks first.
"""

import re
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import ConfigDict, Field, StrictBool, TypeAdapter, ValidationError

from lhkit.base.errors import UsageError, importing
from lhkit.base.files import read_text_file
from lhkit.base.json_values import JSON
from lhkit.base.locales import Catalog, available_locales
from lhkit.base.redaction import hide, masked_repr, without_secrets
from lhkit.chat.assistant import Assistant
from lhkit.confirm.summary import pretty
from lhkit.conversation.tool_results import MAX_RESULT_BYTES, ResultFormat
from lhkit.mcp.launch import (
    FOLDER_PLACEHOLDER,
    USAGE,
    Launch,
    Remote,
    parse_server,
    resolve_server,
    server_label,
    server_secrets,
    server_text,
    split_entry,
    written_secrets,
)
from lhkit.mcp.names import ToolNames, shortened_names
from lhkit.mcp.results import usable_schema
from lhkit.mcp.session import FILES, Elicitations, McpSession, StateRead, write_files
from lhkit.tools.definition import Handler, ToolDefinition
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import day_of, isolation_issue

if TYPE_CHECKING:
    from mcp_types import Tool

_CALLS = "calls"
_TITLE_CHARS = 100

MAX_DESCRIPTION = 16_000
"""The most characters of a tool's description in a prompt; servers in use need less than half."""

# Default instructions of the model.
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

_Texts: TypeAlias = str | Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class McpToolset:
    """The tools of an MCP server; each session has its own process or connection.

        notes = lhkit.McpToolset(
            server="npx -y @modelcontextprotocol/server-filesystem {folder}",
            folder="/notes",
            reads=["read_text_file", "list_directory"],
        )

    Args:
        server: a command line, an http(s) address, or `FILE.json#NAME`; or `Launch`, `Remote`.
        reads: the tools that change nothing; every other tool asks the user first.
        always_ask: the tools that no policy of approvals may let run without a question.
        trust: `annotations` also trusts the server's own `readOnlyHint`.
        tools: only these tools, in this order; by default all. Small models do better with few.
        folder: the name of the session's folder in prompts, scenarios and records, such as
            `/notes`; each session has its own, which replaces `{folder}` in the command line.
        isolated: whether a session changes nothing outside itself; by default only with a `folder`.
            Without it `lint`, `mutate`, reviews, baselines and `calls` of a world call no tool.
        state: the reads that return the state, by table.
        claims: success phrases of writes, by tool and language (see `ToolDefinition`).
        instructions: the instructions of the model: a text, or one per language.
        name: a label for reports; by default derived from `server`.
        timeout_s: the time limit of a call in seconds, without the time that the user takes.
        start_s: the time limit for starting the server in seconds: `npx` may download first.
        max_turns: as in `Assistant`.
        max_result_bytes: as in `Assistant`.
        result_format: as in `Assistant`.
        base: the folder that files and commands are relative to; by default the working folder.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    server: str | Launch | Remote
    reads: Sequence[str] = ()
    always_ask: Sequence[str] = ()
    trust: Literal["nothing", "annotations"] = "nothing"
    tools: Sequence[str] = ()
    folder: str = ""
    isolated: StrictBool | None = None
    state: Mapping[str, StateRead] = field(default_factory=dict)
    claims: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    instructions: _Texts = ""
    name: str = ""
    timeout_s: Annotated[float, Field(gt=0, le=3600)] = 30.0
    start_s: Annotated[float, Field(gt=0, le=3600)] = 60.0
    max_turns: Annotated[int, Field(ge=1)] = 4
    max_result_bytes: Annotated[int, Field(ge=256)] = 2 * MAX_RESULT_BYTES
    result_format: ResultFormat | None = None
    base: Path | None = None

    waits: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Set the default name, and validate the declaration."""
        if any(isinstance(names, str) for names in (self.reads, self.tools, self.always_ask)):
            raise UsageError(
                "McpToolset: reads, always_ask and tools are lists of names, such as ['read_graph']"
            )
        if both := [name for name in self.always_ask if name in self.reads]:
            raise UsageError(f"McpToolset: {both[0]!r} is in reads and in always_ask: remove one")
        server = self._written
        for secret in written_secrets(server):
            hide(secret)
        if not self.name:
            object.__setattr__(self, "name", server_label(server))
        resolve_server(server)  # raises if a variable is not set
        if self.folder and not re.fullmatch(r"/[\w.-]+(/[\w.-]+)*", self.folder):
            raise UsageError(f"folder: {self.folder!r} is not a valid name: write one like /notes")
        uses_folder = isinstance(server, Launch) and FOLDER_PLACEHOLDER in " ".join(
            [*server.args, *server.env.values()]
        )
        if bool(self.folder) != uses_folder:
            raise UsageError(
                "folder is the name of {folder} in the command line: give both or neither, and "
                "neither for a server at an address"
            )
        if FILES in self.state:
            raise UsageError(
                f"state.{FILES} is the table of the session's folder: choose another name"
            )

    @property
    def launched(self) -> Launch | Remote:
        """The server, with `${NAME}` filled in from the environment.

        Raises:
            UsageError: the command line is invalid, or a file, entry or variable is missing.
        """
        return resolve_server(self._written)

    @property
    def is_isolated(self) -> bool:
        """Whether sessions share no data: as declared, by default whether each has a folder."""
        if self.isolated is not None:
            return self.isolated
        return bool(self.folder) or self._written.isolated

    @property
    def shown(self) -> str:
        """The command line or the address as written, without variables and secrets."""
        return server_text(self._written)

    def __repr__(self) -> str:
        """Show the declaration without secrets."""
        return masked_repr(self, "server")

    @property
    def _written(self) -> Launch | Remote:
        return parse_server(self.server, self.base) if isinstance(self.server, str) else self.server

    @property
    def locales(self) -> tuple[str, ...]:
        """All languages: a server's texts are not translated."""
        return available_locales()

    def open(self, world: Mapping[str, Any], locale: str) -> "McpSession":
        """Start the server, and return a session with it.

        Args:
            world: the initial state. `now`; `files`, rows with `path` and `text` for the session's
                folder; `calls`, rows with `tool` and `args`, made before the conversation. Rows of
                a `state` table are not created but compared with the server's: for a server that is
                not isolated when the state is first read, and without `calls`.
            locale: the language of instructions and questions.

        Raises:
            McpServerError: the server does not start.
            UsageError: `world` is invalid, or the declaration does not match the server.
        """
        with importing("mcp"):
            from lhkit.mcp.connection import McpConnection

        tables = dict(world)
        now, files, calls = tables.pop("now", None), tables.pop(FILES, None), tables.pop(_CALLS, ())
        _validate_world(self, tables, files, calls)
        with ExitStack() as resources:
            folder = None
            if self.folder:
                path = resources.enter_context(tempfile.TemporaryDirectory(prefix="lhkit-mcp-"))
                folder = Path(path).resolve()
                write_files(folder, files or ())
            elicitations = Elicitations(server_name=self.name, locale=locale)
            connection = McpConnection(
                resolve_server(self._written, folder=folder, base=self.base or Path()),
                shown=self.shown,
                secrets=server_secrets(self._written),
                start_s=self.start_s,
                elicit=elicitations.elicit,
            )
            resources.callback(connection.close)
            session = McpSession(
                connection=connection,
                elicitations=elicitations,
                assistant=self.assistant,
                state=self.state,
                timeout_s=self.timeout_s,
                folder=(folder, self.folder),
                today=day_of(now),
                locale=locale,
            )
            session.names = ToolNames(tool.name for tool in connection.tools)
            session.registry = self.registry(
                connection.tools, session.handler, invalid=connection.left_out
            )
            session.prepare(calls, tables, check_now=self.is_isolated)
            session.resources = resources.pop_all()
        return session

    def assistant(self, locale: str) -> Assistant:
        """Return the assistant of a session in a language."""
        texts = self.instructions
        text = texts if isinstance(texts, str) else texts.get(locale, "")
        return Assistant(
            instructions=text or _INSTRUCTIONS.get(locale, _INSTRUCTIONS["en"]),
            max_turns=self.max_turns,
            max_result_bytes=self.max_result_bytes,
            truncation_hint=_TRUNCATED.get(locale, _TRUNCATED["en"]),
            result_format=self.result_format,
        )

    def registry(
        self,
        served: Sequence["Tool"],
        handler: Callable[[str], Handler],
        *,
        invalid: Mapping[str, str] | None = None,
    ) -> ToolRegistry:
        """Register the server's tools; `left_out` has those that cannot be offered.

        Args:
            served: the tools that the server lists.
            handler: returns the handler of a tool.
            invalid: the tools that it lists in an invalid form, with the reason.

        Raises:
            UsageError: a declared tool is missing or invalid, or none is left.
            RegistrationError: a tool that `tools` selects cannot be offered.
        """
        issues = dict(invalid or {})
        by_name: dict[str, Tool] = {}
        for tool in served:
            if by_name.setdefault(tool.name, tool) is not tool:
                issues[tool.name] = "the server lists several tools of this name: the first is used"
        names = ToolNames(by_name)
        declared = _Declared(
            reads=[self._served_name(name, names, issues) for name in self.reads],
            always_ask=[self._served_name(name, names, issues) for name in self.always_ask],
            claims={
                self._served_name(name, names, issues): texts for name, texts in self.claims.items()
            },
        )
        for read in self.state.values():
            self._served_name(read.tool, names, issues)
        selected = [self._served_name(name, names, issues) for name in self.tools]
        registry = ToolRegistry()
        for served_name in selected or by_name:
            tool, name = by_name[served_name], names.shown(served_name)
            try:
                definition = _definition(self, tool, name, declared, handler(tool.name))
                registry.register(definition)
            except Exception as error:  # boundary: a server's schema may be anything
                if self.tools:
                    raise
                issues[tool.name] = str(error) or type(error).__name__
                continue
            if len(_description(tool)) > MAX_DESCRIPTION:
                registry.cut_descriptions[name] = len(_description(tool))
        registry.left_out = {
            name: why for name, why in issues.items() if not selected or name in selected
        }
        if not registry:
            why = "".join(f": {name}: {reason}" for name, reason in list(issues.items())[:1])
            raise UsageError(f"the MCP server {self.name} has no tool that can be called{why}")
        return registry

    def _served_name(self, name: str, names: "ToolNames", issues: Mapping[str, str]) -> str:
        """Return the server's name of a declared tool, which may be written as models see it.

        Raises:
            UsageError: the server has no such tool, or lists an invalid one.
        """
        served = names.served(name)
        if served is not None:
            return served
        if name in issues:
            raise UsageError(f"the MCP server's tool {name!r} is invalid: {issues[name]}")
        raise UsageError(f"the MCP server has no tool {name!r}: it has {shortened_names(names)}")


def _validate_world(toolset: McpToolset, tables: Mapping[str, Any], files: Any, calls: Any) -> None:
    unknown = [table for table in tables if table not in toolset.state]
    if unknown:
        known = ", ".join(["now", FILES, _CALLS, *toolset.state])
        raise UsageError(f"world.{unknown[0]}: an MCP server has no such table: it has {known}")
    if files is not None and not toolset.folder:
        raise UsageError(
            "world.files: sessions of this server have no folder: declare folder and {folder}"
        )
    for name, rows, fields in ((FILES, files or (), {"path"}), (_CALLS, calls, {"tool"})):
        rows_are = isinstance(rows, Sequence) and all(isinstance(row, Mapping) for row in rows)
        if not rows_are or any(not fields <= row.keys() for row in rows):
            raise UsageError(f"world.{name}: give a list of rows with {', '.join(fields)}")
    if calls and (issue := isolation_issue(toolset)):
        raise UsageError(f"world.{_CALLS} is not allowed: {issue}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Declared:
    """What a toolset declares, by the server's names of tools."""

    reads: Sequence[str]
    always_ask: Sequence[str]
    claims: Mapping[str, Mapping[str, Sequence[str]]]


def _description(tool: "Tool") -> str:
    return " ".join((tool.description or tool.title or tool.name).split())


def _title(tool: "Tool") -> str:
    """Return the server's name of a tool for people, cut; empty if it has none."""
    hints = tool.annotations
    title = " ".join((tool.title or (hints and hints.title) or "").split())
    return title if len(title) <= _TITLE_CHARS else f"{title[:_TITLE_CHARS]}…"


def _definition(
    toolset: McpToolset, tool: "Tool", name: str, declared: _Declared, handler: Handler
) -> ToolDefinition:
    hints = tool.annotations
    is_read = tool.name in declared.reads or (
        toolset.trust == "annotations" and hints is not None and hints.read_only_hint is True
    )
    always_ask = tool.name in declared.always_ask

    def summarize(args: Mapping[str, JSON], _catalog: Catalog) -> str:
        return f"{tool.name}\n{pretty(args)}"  # the name on the server

    return ToolDefinition(
        name=name,
        summarize=None if name == tool.name else summarize,
        description=_description(tool)[:MAX_DESCRIPTION],
        title=_title(tool),
        parameters={"properties": {}, **usable_schema(tool.input_schema), "type": "object"},
        handler=handler,
        is_destructive=always_ask or not is_read,
        timeout_s=toolset.timeout_s,
        always_ask=always_ask,
        claims={} if is_read else declared.claims.get(tool.name, {}),
    )


PREFIX = "mcp:"


def from_reference(reference: str) -> McpToolset:
    """Return the toolset of an `mcp:` reference, without starting its server.

    Raises:
        UsageError: the file, entry or command line is missing or invalid.
    """
    server = reference.removeprefix(PREFIX).strip()
    if not server:
        raise UsageError(f"toolset {reference} is invalid: the server is missing: {USAGE}")
    if server.endswith(".toml") and " " not in server.replace("\\ ", ""):
        return _read_declaration(Path(server))
    try:
        return McpToolset(server=server)
    except UsageError as error:
        raise UsageError(f"toolset {without_secrets(reference)}: {error}") from error


def reference_from(folder: Path, reference: str) -> str:
    """Return a reference with its file relative to `folder`."""
    server = reference.removeprefix(PREFIX).strip()
    if server.endswith(".toml") or split_entry(server, folder):
        return f"{PREFIX}{folder / Path(server).expanduser()}"
    return reference


def label_of(reference: str) -> str:
    """Return a one-word label for a reference."""
    server = reference.removeprefix(PREFIX).strip()
    if server.endswith(".toml"):
        return Path(server).stem
    if entry := split_entry(server):
        file, name = entry
        return name or file.stem
    return server_label(parse_server(server, None))


def _read_declaration(file: Path) -> McpToolset:
    try:
        declared = tomllib.loads(read_text_file(file))
    except OSError as error:
        raise UsageError(f"{file} cannot be read ({error.strerror}): {USAGE}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is not valid TOML: {error}") from error
    declared = {"name": file.stem, "base": file.parent, **declared}
    try:
        return _DECLARATION.validate_python(declared)
    except ValidationError as error:
        issue = error.errors(include_url=False)[0]
        where = ".".join(
            str(part) for part in issue["loc"] if part not in {"Launch", "Remote", "str"}
        )
        raise UsageError(
            f"{file}: {where or 'top'}: {issue['msg']}: see the page MCP of the documentation"
        ) from error
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from error


_DECLARATION = TypeAdapter(McpToolset)
