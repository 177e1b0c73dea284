"""MCP server references: a command line, an address, or an entry of `mcp.json`."""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict, StrictBool, TypeAdapter, ValidationError

from lhkit.errors import UsageError
from lhkit.files import read_text_file
from lhkit.redaction import MIN_SECRET_CHARS
from lhkit.settings import read_variable

USAGE = (
    "write mcp:COMMAND LINE, mcp:https://…, mcp:FILE.json#NAME or mcp:FILE.toml, see docs/mcp.md"
)

FOLDER_PLACEHOLDER = "{folder}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A server process to start, as in `mcp.json`; `isolated` as in `McpToolset`."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    isolated: StrictBool = False
    repr_text: str = field(default="", init=False, compare=False)

    def __repr__(self) -> str:
        """Show the command as written, without the values of variables."""
        env = ", ".join(self.env)
        text = f"Launch({' '.join([self.command, *self.args])!r}, env: {env or 'none'})"
        return self.repr_text or text


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """A running server at an address; `isolated` as in `McpToolset`."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    isolated: StrictBool = False
    repr_text: str = field(default="", init=False, compare=False)

    def __repr__(self) -> str:
        """Show the address as written, without the values of variables."""
        headers = ", ".join(self.headers)
        return self.repr_text or f"Remote({self.url!r}, headers: {headers or 'none'})"


ENTRY = re.compile(r"(?P<file>\S+\.json)#(?P<name>.+)")


def parse_server(reference: str, base: Path | None) -> Launch | Remote:
    """Parse an address, a `FILE.json#NAME` or a command line.

    Raises:
        UsageError: the command line or the file's entry is invalid.
    """
    if reference.startswith(("http://", "https://")):
        return Remote(url=reference)
    if match := ENTRY.fullmatch(reference):
        return _read_entry((base or Path()) / match["file"], match["name"])
    try:
        command, *args = shlex.split(reference)
    except ValueError as error:
        raise UsageError(f"{reference!r} is not a valid command line ({error}): {USAGE}") from error
    return Launch(command=command, args=tuple(args))


def _read_entry(file: Path, name: str) -> Launch | Remote:
    """Read an entry under `mcpServers` (Claude, Cursor) or `servers` (VS Code)."""
    try:
        content = _parse_jsonc(read_text_file(file, "utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{file} cannot be read ({error.strerror}): {USAGE}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is not valid JSON: {error}") from error
    keys = ("mcpServers", "servers")
    tables = [content.get(key) for key in keys] if isinstance(content, dict) else []
    entries = next((table for table in tables if isinstance(table, dict)), {})
    if name not in entries:
        known = ", ".join(map(str, entries)) or "none"
        raise UsageError(f"{file} has no server {name!r} under mcpServers: it has {known}")
    entry = entries[name]
    if not isinstance(entry, dict):
        raise UsageError(f"{file}: {name} is invalid: expected an object with a command or a url")
    transport = str(entry.get("type", entry.get("transport", ""))).lower()
    if transport in {"sse", "ws", "websocket"}:
        raise UsageError(
            f"{file}: {name}: the transport {transport!r} is not supported: give the server's "
            'address for streamable HTTP, often …/mcp, with "type": "http"'
        )
    for key in _EXTERNAL_KEYS & entry.keys():
        raise UsageError(
            f"{file}: {name}.{key} is not supported: write its values as env or headers with "
            "${NAME}, and set these variables"
        )
    server_type = Remote if "url" in entry else Launch
    known_keys = server_type.__dataclass_fields__.keys() - {"repr_text"}
    values = {key: value for key, value in entry.items() if key in known_keys}
    try:
        server: Launch | Remote = _ENTRIES[server_type].validate_python(values)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(map(str, fault["loc"]))
        raise UsageError(f"{file}: {name}.{where}: {fault['msg']}") from error
    return server


_EXTERNAL_KEYS = frozenset({"envFile", "headersHelper"})
"""Keys of other clients that get keys from elsewhere: without them a server would lack its key."""

_ENTRIES: Mapping[type, TypeAdapter[Any]] = {kind: TypeAdapter(kind) for kind in (Launch, Remote)}

_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING_COMMA = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])', re.DOTALL)


def _parse_jsonc(text: str) -> Any:
    """Parse JSON that may have comments and trailing commas, as VS Code's files do."""
    try:
        return json.loads(text)
    except ValueError:
        for pattern in (_COMMENT, _TRAILING_COMMA):  # blanks keep the line and column of errors
            text = pattern.sub(lambda match: match[1] or re.sub(r"[^\n]", " ", match[0]), text)
        return json.loads(text)


_VARIABLE = re.compile(r"\$\{(?:env:)?(\w+)(?::-([^}]*))?\}")
"""`${NAME}`, `${env:NAME}` or `${NAME:-default}`, as other clients write it."""

_PLACEHOLDER = re.compile(r"\$\{[^{}]*\}")


def resolve_server(
    server: Launch | Remote, *, folder: Path | None = None, base: Path | None = None
) -> Launch | Remote:
    """Return a server with variables from the environment and `{folder}` filled in.

    Args:
        server: the server as written.
        folder: the session's folder, in place of `{folder}`.
        base: the folder that `cwd` is relative to.

    Raises:
        UsageError: a variable is not set.
    """
    resolved: Launch | Remote
    if isinstance(server, Remote):
        headers = {name: _expand_variables(value) for name, value in server.headers.items()}
        resolved = replace(server, url=_expand_variables(server.url), headers=headers)
    else:

        def expand(text: str) -> str:
            text = _expand_variables(text)
            return text if folder is None else text.replace(FOLDER_PLACEHOLDER, str(folder))

        cwd = None if server.cwd is None else Path(_expand_variables(str(server.cwd)))
        resolved = replace(
            server,
            command=_expand_variables(server.command),
            args=tuple(map(expand, server.args)),
            env={name: expand(value) for name, value in server.env.items()},
            cwd=cwd if base is None else base / (cwd or ""),
        )
    object.__setattr__(resolved, "repr_text", repr(server))
    return resolved


def _expand_variables(text: str) -> str:
    for placeholder in _PLACEHOLDER.findall(text):
        if not _VARIABLE.fullmatch(placeholder):
            name = re.sub(r"\W+", "_", placeholder[2:-1].rpartition(":")[2]).upper() or "NAME"
            raise UsageError(
                f"{placeholder} cannot be filled in: only environment variables are supported. "
                f"Write ${{{name}}}, and set that variable"
            )
    return _VARIABLE.sub(lambda match: read_variable(match[1], match[2]), text)


def server_secrets(server: Launch | Remote) -> dict[str, str]:
    """Return replacement texts for secret values: of variables, and of headers.

    A default written in the file (`${NAME:-value}`) is not a secret.
    """
    texts: list[str]
    if isinstance(server, Remote):
        texts = [server.url, *server.headers.values()]
    else:
        texts = [server.command, *server.args, *server.env.values(), str(server.cwd)]
    matches = (match for text in texts for match in _VARIABLE.finditer(text))
    values = ((read_variable(match[1], match[2]), match) for match in matches)
    variables = {
        value: f"${{{match[1]}}}" for value, match in values if value not in {"", match[2]}
    }
    headers = {
        word: f"(header {name})"
        for name, value in (server.headers.items() if isinstance(server, Remote) else ())
        for word in value.split()
        if len(word) >= MIN_SECRET_CHARS and not _PLACEHOLDER.search(word)
    }
    return headers | variables


_RUNNERS = {"npx", "uvx", "node", "python", "python3", "uv", "run", "docker"}


def server_label(server: Launch | Remote) -> str:
    """Return a one-word label: the program that the command runs, or the host."""
    if isinstance(server, Remote):
        host = re.sub(r"^https?://|[/?#].*$", "", _VARIABLE.sub(r"\1", server.url))
        return host or "server"
    words = [_VARIABLE.sub(r"\1", word) for word in (server.command, *server.args)]
    names = (
        Path(word).stem if "@" not in word else word for word in words if not word.startswith("-")
    )
    name = next((name for name in names if name not in _RUNNERS), server.command)
    return re.sub(r"@[\w.]+$", "", name).rpartition("/")[2].removeprefix("server-") or "server"
