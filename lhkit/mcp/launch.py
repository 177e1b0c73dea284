"""MCP server references: a command line, an address, or an entry of `mcp.json`."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict, StrictBool, TypeAdapter, ValidationError

from lhkit.base.errors import UsageError
from lhkit.base.redaction import (
    MASK,
    MIN_SECRET_CHARS,
    Mask,
    is_secret_name,
    may_be_data,
    secrets_in,
    without_secrets,
)
from lhkit.mcp.client_files import read_entry, require_name
from lhkit.settings import read_variable

USAGE = (
    "write mcp:COMMAND LINE, mcp:https://…, mcp:FILE.json#NAME or mcp:FILE.toml, see the page MCP "
    "of the documentation"
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
        """Show the command as written, without secrets and the values of variables."""
        env = ", ".join(self.env)
        return self.repr_text or f"Launch({server_text(self)!r}, env: {env or 'none'})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """A running server at an address; `isolated` as in `McpToolset`."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    isolated: StrictBool = False
    repr_text: str = field(default="", init=False, compare=False)

    def __repr__(self) -> str:
        """Show the address as written, without secrets and the values of variables."""
        headers = ", ".join(self.headers)
        return self.repr_text or f"Remote({server_text(self)!r}, headers: {headers or 'none'})"


def server_text(server: Launch | Remote) -> str:
    """Return the command line or the address as written, without variables and secrets."""
    if isinstance(server, Remote):
        return without_secrets(server.url)
    values = [value for value in server.env.values() if not may_be_data(value)]
    values = [value for value in values if not _PLACEHOLDER.search(value)]
    words = [server.command, *server.args]
    return Mask(dict.fromkeys(values, MASK)).message(without_secrets(words))


_FILE = re.compile(r"(?P<file>.+\.jsonc?)(?:#(?P<name>.*))?", re.DOTALL)


def split_entry(reference: str, base: Path | None = None) -> tuple[Path, str] | None:
    """Return file and name of a `FILE.json#NAME`; None for another reference.

    The name is empty if the reference has none. A file with blanks in its path must exist, since
    a command line may end in one, too.
    """
    match = _FILE.fullmatch(reference)
    if match is None:
        return None
    file = (base or Path()) / Path(match["file"]).expanduser()
    has_blank = re.search(r"\s", match["file"]) is not None
    return (file, match["name"] or "") if not has_blank or file.is_file() else None


def parse_server(reference: str, base: Path | None) -> Launch | Remote:
    """Parse an address, a `FILE.json#NAME` or a command line.

    Raises:
        UsageError: the command line or the file's entry is invalid.
    """
    if reference.startswith(("http://", "https://")):
        return Remote(url=reference)
    if entry := split_entry(reference, base):
        file, name = entry
        return _read_entry(file, name) if name else require_name(file)
    try:
        command, *args = shlex.split(reference)
    except ValueError as error:
        shown = without_secrets(reference)
        raise UsageError(f"{shown!r} is not a valid command line ({error}): {USAGE}") from error
    return Launch(command=command, args=tuple(args))


def _read_entry(file: Path, name: str) -> Launch | Remote:
    """Return the server of an entry in another client's file."""
    values = read_entry(file, name)
    server_type = Remote if "url" in values else Launch
    try:
        server: Launch | Remote = _ENTRIES[server_type].validate_python(values)
    except ValidationError as error:
        issue = error.errors(include_url=False)[0]
        where = ".".join(map(str, issue["loc"]))
        raise UsageError(f"{file}: {name}.{where}: {issue['msg']}") from error
    return server


_ENTRIES: Mapping[type, TypeAdapter[Any]] = {kind: TypeAdapter(kind) for kind in (Launch, Remote)}

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
    """Return replacement texts for secret values: of variables, of headers, and written ones.

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
    return dict.fromkeys(written_secrets(server), MASK) | headers | variables


def written_secrets(server: Launch | Remote) -> list[str]:
    """Return the secrets that a server's command, environment or address has as text.

    Values that look like ordinary words are no secrets here, since texts may have them, too.
    """
    if isinstance(server, Remote):
        values = secrets_in([server.url])
    else:
        values = secrets_in([server.command, *server.args])
        values += [
            value
            for name, value in server.env.items()
            if is_secret_name(name) and not _PLACEHOLDER.search(value)
        ]
    return [value for value in values if not may_be_data(value)]


_RUNNERS = {"npx", "uvx", "node", "python", "python3", "uv", "run", "docker"}


def server_label(server: Launch | Remote) -> str:
    """Return a one-word label: the program that the command runs, or the host."""
    if isinstance(server, Remote):
        host = re.sub(r"^https?://(?:[^/?#]*@)?|[/?#].*$", "", _VARIABLE.sub(r"\1", server.url))
        return host or "server"
    words = [_VARIABLE.sub(r"\1", word) for word in (server.command, *server.args)]
    plain = [word for word in words if not word.startswith("-") and "=" not in word]
    kept = [word for word in plain if word in without_secrets(words).split(" ")]
    names = (Path(word).stem if "@" not in word else word for word in kept)
    name = next((name for name in names if name not in _RUNNERS), server.command)
    return re.sub(r"@[\w.]+$", "", name).rpartition("/")[2].removeprefix("server-") or "server"
