"""Entries of other MCP clients' files, such as `mcp.json` of Claude, Cursor or VS Code.

Clients agree on `command`, `args` and `env`, and on little else: the table, the key of the address
and the kind of transport have several names.
"""

import json
import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from lhkit.base.errors import UsageError
from lhkit.base.files import read_text_file
from lhkit.base.notices import NOTICE

_log = logging.getLogger(__name__)

_TABLES = ("mcpServers", "servers", "context_servers", "mcp_servers", "mcp")
_ADDRESSES = ("httpUrl", "url", "serverUrl", "serverURL", "server_url", "http_url", "endpoint")
"""Keys of an address; the first one counts: where there are both, `url` is that of SSE."""
_HEADERS = ("headers", "http_headers")
_ENVIRONMENTS = ("env", "environment")
_OLD_TRANSPORTS = frozenset({"sse", "ws", "websocket"})

_EXTERNAL_KEYS = re.compile(
    r"(?i:envFile|headersHelper|auth.*|.*(?:oauth|token(?!s)|api_?key|bearer).*)"
)
"""Keys of other clients that get secrets from elsewhere: without them a server would lack them."""
_VARIABLE = re.compile(r"(?P<scheme>(?:Bearer )?)\$(?P<name>[A-Z][A-Z0-9_]*)")
"""A whole value as Gemini's files name a variable: `$TOKEN`."""
_CLIENT_KEYS = frozenset(
    {"type", "transport", "disabled", "enabled", "name", "description", "icon", "isActive"}
    | {"alwaysAllow", "autoApprove", "trust", "source"}
)
"""Keys about another client's own behaviour, which lhkit has no use for."""


def read_entry(file: Path, name: str) -> dict[str, Any]:
    """Return the entry of a server: `command`, `args`, `env`, `cwd`, or `url` and `headers`.

    Raises:
        UsageError: the file is invalid, or has no such entry, or one that cannot be used.
    """
    entries = _read_entries(file)
    if name not in entries:
        raise UsageError(f"{file} has no server {name!r}: it has {_listed(entries)}")
    entry = entries[name]
    if not isinstance(entry, Mapping):
        raise UsageError(f"{file}: {name} is invalid: expected an object with a command or a url")
    _require_supported(f"{file}: {name}", entry)
    read: dict[str, Any] = {}
    taken: set[str] = set()
    if address := next((key for key in _ADDRESSES if isinstance(entry.get(key), str)), None):
        read["url"] = entry[address]
        taken |= {*_ADDRESSES, *_HEADERS, "requestInit"}
        texts = [entry.get(key) for key in _HEADERS]
        request = entry.get("requestInit")
        texts.append(request.get("headers") if isinstance(request, Mapping) else None)
        read["headers"] = next((_texts(text) for text in texts if text is not None), {})
    elif "command" in entry:
        taken |= {"command", "args", "cwd", *_ENVIRONMENTS}
        read |= _command(entry)
        read["env"] = next(
            (_texts(entry[key]) for key in _ENVIRONMENTS if entry.get(key) is not None), {}
        )
        if entry.get("cwd") is not None:
            read["cwd"] = entry["cwd"]
    else:
        keys = ", ".join(map(str, entry)) or "nothing"
        raise UsageError(
            f"{file}: {name} has neither a command nor an address: it has {keys}. Write command, "
            f"or one of {', '.join(_ADDRESSES)}"
        )
    if isinstance(entry.get("isolated"), bool):
        read["isolated"] = entry["isolated"]
    if ignored := [key for key in entry if key not in taken | _CLIENT_KEYS | {"isolated"}]:
        values = {"server": f"{file}#{name}", "keys": ", ".join(ignored)}
        _log.warning(
            "%(server)s: %(keys)s: not read", values, extra={NOTICE: ("tools.ignored_keys", values)}
        )
    return read


def require_name(file: Path) -> NoReturn:
    """Raise, because a reference names a file and none of its servers.

    Raises:
        UsageError: always; the message has the names of the servers.
    """
    entries = _read_entries(file)
    first = next(iter(entries), "NAME")
    raise UsageError(
        f"{file} is a file of servers: name one, such as {file}#{first}: it has {_listed(entries)}"
        if entries
        else f"{file} has no servers under {' or '.join(_TABLES[:2])}"
    )


def _read_entries(file: Path) -> dict[str, Any]:
    """Return the entries of all tables of servers in a file, by name; the first one counts."""
    try:
        content = _parse_jsonc(read_text_file(file, "utf-8-sig"))
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read ({error.strerror}): write mcp:FILE.json#NAME, see the page MCP "
            "of the documentation"
        ) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is not valid JSON: {error}") from error
    entries: dict[str, Any] = {}
    for table in _tables(content):
        for name, entry in table.items():
            entries.setdefault(name, entry)
    return entries


def _tables(content: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the tables of servers, also `mcp.servers` of VS Code's settings, and lists of them."""
    for key in _TABLES if isinstance(content, Mapping) else ():
        table = content.get(key)
        if isinstance(table, list):
            named = (entry for entry in table if isinstance(entry, Mapping))
            yield {entry["name"]: entry for entry in named if isinstance(entry.get("name"), str)}
        elif isinstance(table, Mapping) and key == "mcp" and "servers" in table:
            yield from _tables(table)
        elif isinstance(table, Mapping):
            yield table


def _listed(entries: Mapping[str, Any]) -> str:
    """Return the names of servers, and which of them the other client does not use."""
    names = (
        f"{name} (disabled there)" if _is_disabled(entry) else name
        for name, entry in entries.items()
    )
    return ", ".join(names) or "none"


def _is_disabled(entry: Any) -> bool:
    return isinstance(entry, Mapping) and (
        entry.get("disabled") is True or False in (entry.get("enabled"), entry.get("isActive"))
    )


def _require_supported(place: str, entry: Mapping[str, Any]) -> None:
    transport = entry.get("type", entry.get("transport", ""))
    if isinstance(transport, Mapping):
        transport = transport.get("type", "")
    if str(transport).lower() in _OLD_TRANSPORTS:
        raise UsageError(
            f"{place}: the transport {str(transport).lower()!r} is not supported: give the "
            'server\'s address for streamable HTTP, often …/mcp, with "type": "http"'
        )
    for key in filter(_EXTERNAL_KEYS.fullmatch, map(str, entry)):
        raise UsageError(
            f"{place}.{key} is not supported: write its values as env or headers with "
            "${NAME}, and set these variables"
        )


def _command(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return command and arguments, which may be one list, or an object with a `path`."""
    command: Any = entry["command"]
    args = entry.get("args")
    if isinstance(command, Mapping):
        command, args = command.get("path"), command.get("args", args)
    if isinstance(command, list):
        command, args = next(iter(command), None), [*command[1:], *(args or ())]
    return {"command": command, "args": _plain(args) if isinstance(args, list) else args or ()}


def _texts(values: Any) -> Any:
    """Return values with numbers and booleans as text, which JSON files often have."""
    if not isinstance(values, Mapping):
        return values
    return dict(zip(values, _plain([*values.values()]), strict=True))


def _plain(values: list[Any]) -> list[Any]:
    return [_plain_text(value) for value in values]


def _plain_text(value: Any) -> Any:
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if isinstance(value, str) and (variable := _VARIABLE.fullmatch(value)):
        return f"{variable['scheme']}${{{variable['name']}}}"
    return value


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
