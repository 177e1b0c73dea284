"""References that name an MCP server.

    mcp:npx -y @modelcontextprotocol/server-memory      a command line
    mcp:https://example.org/mcp                         an address (streamable HTTP)
    mcp:mcp.json#memory                                 an entry of a file as other clients read it
    mcp:notes.toml                                      a server, and what you say of it

What a user says of a server (its reads, its state, its words) is said once: in such a TOML file, or
in Python with the same names, `McpToolset(server=…, reads=…)`.
"""

import tomllib
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from lhkit.errors import UsageError
from lhkit.mcp.launch import ENTRY, HOW, label, server_of
from lhkit.mcp.toolset import McpToolset

PREFIX = "mcp:"


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
    is_file = told.endswith(".toml") or ENTRY.fullmatch(told)
    return f"{PREFIX}{folder / told}" if is_file else reference


def label_of(reference: str) -> str:
    """Return one word for a reference."""
    told = reference.removeprefix(PREFIX).strip()
    if told.endswith(".toml"):
        return Path(told).stem
    if found := ENTRY.fullmatch(told):
        return found["name"]
    return label(server_of(told, None))


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
