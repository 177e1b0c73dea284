"""How an MCP server is started or reached: a command line, an address, an entry of `mcp.json`."""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict, StrictBool, TypeAdapter, ValidationError

from lhkit.errors import UsageError
from lhkit.redaction import MIN_SECRET_CHARS
from lhkit.settings import read_variable

HOW = "write mcp:COMMAND LINE, mcp:https://…, mcp:FILE.json#NAME or mcp:FILE.toml, see docs/mcp.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a process is started, as in `mcp.json`; `isolated` as in `McpToolset`."""

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
        shown = f"Launch({' '.join([self.command, *self.args])!r}, env: {env or 'none'})"
        return self.written or shown


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


ENTRY = re.compile(r"(?P<file>\S+\.json)#(?P<name>.+)")


def server_of(reference: str, base: Path | None) -> Launch | Remote:
    """Return the server of an address, of `FILE.json#NAME`, or of a command line."""
    if reference.startswith(("http://", "https://")):
        return Remote(url=reference)
    if found := ENTRY.fullmatch(reference):
        return _entry((base or Path()) / found["file"], found["name"])
    try:
        command, *args = shlex.split(reference)
    except ValueError as error:
        raise UsageError(f"{reference!r} is no command line ({error}): {HOW}") from error
    return Launch(command=command, args=tuple(args))


def _entry(file: Path, name: str) -> Launch | Remote:
    """Return an entry of a file that other clients read: `mcpServers`, or `servers`."""
    try:
        content = _json_with_comments(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{file} cannot be read ({error.strerror}): {HOW}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is no JSON: {error}") from error
    tables = (
        [content.get(key) for key in ("mcpServers", "servers")] if isinstance(content, dict) else []
    )
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


def fill_in(server: Launch | Remote) -> Launch | Remote:
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
    return _VARIABLE.sub(lambda found: read_variable(found[1], found[2]), text)


_PLACEHOLDER = re.compile(r"\$\{[^{}]*\}")


def secrets_of(server: Launch | Remote) -> dict[str, str]:
    """Return what messages show for the values of the variables that a server names.

    A value that the file itself gives (`${NAME:-value}`) is no secret.
    """
    texts: list[str]
    if isinstance(server, Remote):
        texts = [server.url, *server.headers.values()]
    else:
        texts = [server.command, *server.args, *server.env.values(), str(server.cwd)]
    found = (each for text in texts for each in _VARIABLE.finditer(text))
    values = ((read_variable(each[1], each[2]), each) for each in found)
    named = {value: f"${{{each[1]}}}" for value, each in values if value not in {"", each[2]}}
    in_headers = {
        word: f"(header {name})"
        for name, value in (server.headers.items() if isinstance(server, Remote) else ())
        for word in value.split()
        if len(word) >= MIN_SECRET_CHARS and not _PLACEHOLDER.search(word)
    }
    return in_headers | named


_RUNNERS = {"npx", "uvx", "node", "python", "python3", "uv", "run", "docker"}


def label(server: Launch | Remote) -> str:
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
