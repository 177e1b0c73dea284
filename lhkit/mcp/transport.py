"""Transports to MCP servers: the pipes of a process, and streamable HTTP.

Both limit the size of a message. Results are masked and repaired before the SDK validates them.
The SDK's own stdio client is not used: it reads lines of any length, and kills no process group.
"""

import asyncio
import codecs
import json
import os
import secrets
import signal
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import IO, Any, TypeAlias

import anyio
import httpx2
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    ContentBlock,
    JSONRPCError,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from mcp_types.methods import parse_server_result
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import TypeAdapter, ValidationError

from lhkit.base.redaction import Mask
from lhkit.base.text import printable
from lhkit.mcp.launch import Launch, Remote

MAX_MESSAGE_BYTES = 16 * 2**20
"""A server that sends more in one message is disconnected."""

Streams: TypeAlias = tuple[Any, Any]
"""The read and the write stream of a transport."""

_EXIT_S = 2.0
_CHUNK_BYTES = 2**16
_MAX_SHOWN_STDERR = 300
_MAX_SHOWN_NOISE = 100
_MAX_KEPT_BYTES = 64 * 2**10


class ServerProcess:
    """A server process, and its two message streams.

    Not covered: a server that ignores the end of its input when lhkit itself is killed.

    Args:
        server: the command, with its variables filled in.
        mask: replaces secrets in the process's output.
    """

    def __init__(self, server: Launch, mask: Mask) -> None:
        self._server, self._mask = server, mask
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self._pid: int | None = None
        self._noise = bytearray()  # invalid lines of the standard output
        self._partial_line = bytearray()
        self.ended = ""
        """Why no more messages come; empty while the process runs."""

    @asynccontextmanager
    async def streams(self) -> AsyncIterator[Streams]:
        """Start the process, and yield its streams."""
        server, loop = self._server, asyncio.get_running_loop()
        output_fd, child_output_fd = os.pipe()
        output = asyncio.StreamReader()
        # An own pipe: a grandchild may keep it open, and asyncio's cannot be closed by us.
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(output), os.fdopen(output_fd, "rb")
        )
        try:
            try:
                process = await asyncio.create_subprocess_exec(
                    server.command,
                    *server.args,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=child_output_fd,
                    stderr=self._stderr,
                    env={**get_default_environment(), **server.env},
                    cwd=server.cwd,
                    start_new_session=True,
                )
            finally:
                os.close(child_output_fd)
            self._pid = process.pid
            try:
                async with self._pumped(process.stdin, output) as streams:
                    yield streams
            finally:
                await self._stop(process)
        finally:
            transport.close()

    @asynccontextmanager
    async def _pumped(
        self, stdin: asyncio.StreamWriter | None, stdout: asyncio.StreamReader
    ) -> AsyncIterator[Streams]:
        assert stdin is not None  # noqa: S101 - requested with PIPE
        incoming, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write_stream, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        async with (
            incoming,
            read_stream,
            write_stream,
            outgoing,
            anyio.create_task_group() as group,
        ):
            group.start_soon(self._read, stdout, incoming)
            group.start_soon(self._write, stdin, outgoing, incoming)
            yield read_stream, write_stream
            group.cancel_scope.cancel()

    async def _read(self, stdout: asyncio.StreamReader, incoming: Any) -> None:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            async with incoming:
                while chunk := await stdout.read(_CHUNK_BYTES):
                    *lines, rest = chunk.split(b"\n")
                    for line in lines:
                        await self._read_line(bytes(self._partial_line + line), incoming)
                        self._partial_line.clear()
                    self._partial_line += rest
                    if len(self._partial_line) > MAX_MESSAGE_BYTES:
                        self.ended = (
                            f"it sent more than {MAX_MESSAGE_BYTES // 2**20} MiB in one message"
                        )
                        self.kill()
                        break
                if self._partial_line and not self.ended:
                    await self._read_line(bytes(self._partial_line), incoming)
                self.ended = self.ended or "it ended"

    async def _read_line(self, line: bytes, incoming: Any) -> None:
        if not line.strip():
            return
        line = line.removeprefix(codecs.BOM_UTF8)  # before the first message of some servers
        message: SessionMessage | Exception
        try:
            message = SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError as error:
            message = error
            if len(self._noise) < _MAX_KEPT_BYTES:
                self._noise += line[:_MAX_KEPT_BYTES] + b"\n"
        await incoming.send(message)

    async def _write(self, stdin: asyncio.StreamWriter, outgoing: Any, incoming: Any) -> None:
        try:
            async for message in outgoing:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                stdin.write(text.encode() + b"\n")
                await stdin.drain()
        except OSError:  # pending requests get no response
            self.ended = self.ended or "it reads no more"
            await incoming.aclose()

    async def _stop(self, process: asyncio.subprocess.Process) -> None:
        """Close the process's input, as the protocol asks, and kill it if it does not exit."""
        if process.stdin is not None:
            process.stdin.close()
        with anyio.CancelScope(shield=True):
            with suppress(TimeoutError, asyncio.CancelledError):
                await asyncio.wait_for(process.wait(), _EXIT_S)
            self.kill()  # also its children
            with suppress(TimeoutError, asyncio.CancelledError):
                await asyncio.wait_for(process.wait(), _EXIT_S)

    def kill(self) -> None:
        """Kill the process and its process group."""
        if self._pid is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill the process and delete its error output."""
        self.kill()
        self._stderr.close()

    def noise_text(self) -> str:
        """Return the standard output that is not a valid message, for an error message."""
        noise = bytes(self._noise + self._partial_line[:_MAX_KEPT_BYTES]).decode(errors="replace")
        text = " ".join(printable(self._mask.message(noise)).split())
        if not text:
            return ""
        return f", and its standard output is not a valid message: {cut(text, _MAX_SHOWN_NOISE)!r}"

    def stderr_text(self) -> str:
        """Return the end of the error output in one line, for an error message."""
        with suppress(OSError, ValueError):
            size = self._stderr.seek(0, os.SEEK_END)
            start = max(0, size - _MAX_KEPT_BYTES)
            self._stderr.seek(start)
            text = self._stderr.read().decode(errors="replace")
            self._stderr.seek(0, os.SEEK_END)
            text = self._mask.message(self._mask.tail(text) if start else text)
            lines = (" ".join(line.split()) for line in text.split("\n"))
            shown = " / ".join(filter(None, lines))
            return f" ({shown[-_MAX_SHOWN_STDERR:]})" if shown else ""
        return ""


def cut(text: str, length: int) -> str:
    """Return a text of at most `length` characters, with an ellipsis where it is cut."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def lenient_streams(streams: Streams, mask: Mask, left_out: dict[str, str]) -> Streams:
    """Return streams whose results are masked and repaired before the SDK validates them.

    To the SDK, a tool result without its `content` is an error of the connection, after the tool
    has run, and so is a list with an invalid tool.

    Args:
        streams: the streams of a transport.
        mask: replaces secrets.
        left_out: to add the tools that are no valid ones to, with the reason.
    """
    read_stream, write_stream = streams
    methods: dict[str, str] = {}
    reader = _ResultReader(read_stream, methods, mask, left_out)
    return reader, _RequestWriter(write_stream, methods)


class _Stream:
    """A stream of the SDK's `Transport`, with the other attributes of the wrapped one."""

    def __init__(self, stream: Any, methods: dict[str, str]) -> None:
        self._stream, self._methods = stream, methods

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aenter__(self) -> "_Stream":
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stream.__aexit__(*error)


class _RequestWriter(_Stream):
    """Notes the methods of requests by id, since a response does not contain its method."""

    async def send(self, item: SessionMessage) -> None:
        if isinstance(item.message, JSONRPCRequest):
            self._methods[str(item.message.id)] = item.message.method
        await self._stream.send(item)


class _ResultReader(_Stream):
    def __init__(
        self, stream: Any, methods: dict[str, str], mask: Mask, left_out: dict[str, str]
    ) -> None:
        super().__init__(stream, methods)
        self._mask, self._left_out = mask, left_out
        self._has_handshake = False  # as in all versions of the protocol before 2026-07-28

    def __aiter__(self) -> "_ResultReader":
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._masked(await self._stream.__anext__())

    async def receive(self) -> SessionMessage | Exception:
        return self._masked(await self._stream.receive())

    def _masked(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        if isinstance(item, Exception) or not isinstance(item.message, JSONRPCResponse):
            return item
        result = item.message.result
        method = self._methods.pop(str(item.message.id), "")
        cursor = result.get("nextCursor")
        if method == "tools/call":
            result = _repaired(result)
        masked = self._mask.answer(result)
        if method == "tools/list" and self._has_handshake:
            masked = _valid_tools(masked, self._left_out)
        self._has_handshake |= method == "initialize"
        if cursor is not None:  # sent back to the server as it is
            masked = {**masked, "nextCursor": cursor}
        message = item.message.model_copy(update={"result": masked})
        return SessionMessage(message, metadata=item.metadata)


def _repaired(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool result with the fields that the protocol requires, as far as possible."""
    result = {key: value for key, value in raw.items() if (key, value) != ("isError", None)}
    blocks = result.get("content") or []
    if not isinstance(blocks, list):
        blocks = [blocks]
    result["content"] = [block if _is_content_block(block) else _as_text(block) for block in blocks]
    structured = result.get("structuredContent")
    if structured is not None and not isinstance(structured, dict):
        result["structuredContent"] = {"value": structured}
    return result


def _valid_tools(raw: Mapping[str, Any], left_out: dict[str, str]) -> dict[str, Any]:
    """Return a list of tools without the invalid ones, which are added to `left_out`.

    A schema that is missing or null takes no arguments; one without a type is one of an object.
    """
    if not isinstance(raw.get("tools"), list):
        return dict(raw)
    tools: list[Any] = []
    for number, listed in enumerate(raw["tools"], 1):
        tool = _with_object_schema(listed)
        try:
            parse_server_result("tools/list", LATEST_HANDSHAKE_VERSION, {"tools": [tool]})
        except ValidationError as error:
            issue = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, issue["loc"][2:]))  # without tools.0
            name = tool.get("name") if isinstance(tool, dict) else None
            shown = name if isinstance(name, str) else f"number {number}"
            left_out[shown] = f"{where}: {issue['msg']}" if where else issue["msg"]
            continue
        tools.append(tool)
    return {**raw, "tools": tools}


def _with_object_schema(tool: Any) -> Any:
    if not isinstance(tool, dict):
        return tool
    schema = {} if tool.get("inputSchema") is None else tool["inputSchema"]
    if isinstance(schema, dict) and "object" in (schema.get("type") or ("object",)):
        return {**tool, "inputSchema": {**schema, "type": "object"}}
    return tool


_CONTENT_BLOCK: TypeAdapter[Any] = TypeAdapter(ContentBlock)


def _is_content_block(block: Any) -> bool:
    try:
        _CONTENT_BLOCK.validate_python(block, by_name=False)
    except ValidationError:
        return False
    return True


def _as_text(block: Any) -> dict[str, str]:
    return {"type": "text", "text": block if isinstance(block, str) else json.dumps(block)}


# The SDK's messages for HTTP responses without a valid message: none of the server's own text.
INVALID_HTTP_RESPONSES = (
    "Connection closed",
    "SSE stream ended without a response",
    "Session terminated",
    "Unexpected content type",
    "Failed to parse",
    "Redirect to",
    "server answered a request with 202",
)
_CHECK_KEY = "check the key in its address or headers, and the variables that they name"
_HTTP_HINTS = {
    401: f"the server does not accept the key: {_CHECK_KEY}",
    403: f"the server does not accept the key, or the key lacks permission: {_CHECK_KEY}",
    404: "nothing is at this address: check its path",
    429: f"too many requests, or the quota of the key is used up: wait, or {_CHECK_KEY}",
}
_HTTP_FAILED = f"the server failed: look at its log, and {_CHECK_KEY}"

_HTTP_ERROR, _NOT_FOUND, _SERVER_FAILED = 400, 404, 500

_STATUS_KEY = secrets.token_hex()
"""Marks the errors made here from an HTTP status; random, so that no server can send it."""

_CONNECT_S, _READ_S = 30.0, 300.0
"""The defaults of the SDK's own client: a stream may stay open for minutes."""


@asynccontextmanager
async def http_streams(server: Remote) -> AsyncIterator[Streams]:
    """Connect by streamable HTTP, and yield the streams."""
    timeout = httpx2.Timeout(_CONNECT_S, read=_READ_S)
    async with (
        _BoundedClient(headers=dict(server.headers), timeout=timeout) as client,
        streamable_http_client(server.url, http_client=client) as streams,
    ):
        yield streams


class _BoundedClient(httpx2.AsyncClient):
    """An HTTP client that limits the size of a response, and explains failed ones."""

    async def send(
        self, request: httpx2.Request, *, stream: bool = False, **options: Any
    ) -> httpx2.Response:
        response = await super().send(request, stream=True, **options)
        if response.status_code >= _HTTP_ERROR and request.method == "POST":
            return await _explained(request, response)
        if "text/event-stream" not in response.headers.get("content-type", ""):
            response.stream = _BoundedStream(response.stream)  # the SDK limits event streams
        if not stream:
            await response.aread()
        return response


async def _explained(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
    """Return a failed response as a JSON-RPC error with its status, which the SDK's lacks."""
    response.stream = _BoundedStream(response.stream)
    body = await response.aread()
    await response.aclose()
    kind = response.headers.get("content-type", "").lower()
    if not kind.startswith("application/json") or not _is_jsonrpc_error(body):
        status = response.status_code
        message = f"HTTP {status} {response.reason_phrase}".strip()
        if kind.startswith(("application/json", "text/plain")) and body.strip():
            message = f"{message} ({body.decode(errors='replace').strip()})"
        code = INTERNAL_ERROR
        if status == _NOT_FOUND:  # as in the SDK
            code = INVALID_REQUEST if "mcp-session-id" in request.headers else METHOD_NOT_FOUND
        error = {"code": code, "message": message, "data": {_STATUS_KEY: status}}
        body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
    return httpx2.Response(
        response.status_code,
        headers={"content-type": "application/json"},
        content=body,
        request=request,
    )


def _is_jsonrpc_error(body: bytes) -> bool:
    try:
        message = jsonrpc_message_adapter.validate_json(body, by_name=False)
    except ValueError:
        return False
    return isinstance(message, JSONRPCError)


def http_status(error: MCPError) -> int:
    """Return the HTTP status of an error made here; 0 for an error that the server sent."""
    status: int = error.data.get(_STATUS_KEY, 0) if isinstance(error.data, dict) else 0
    return status


def http_hint(status: int) -> str:
    """Return advice for an HTTP status; empty if there is none."""
    return _HTTP_HINTS.get(status, _HTTP_FAILED if status >= _SERVER_FAILED else "")


def connection_failure(error: BaseException) -> str:
    """Return lhkit's words for an error of the HTTP library or the SDK; empty for other errors."""
    if isinstance(error, MCPError):
        is_closed = error.code == CONNECTION_CLOSED and error.message == "Connection closed"
        return "it closed the connection" if is_closed else ""
    if isinstance(error, _MessageTooLongError):
        return str(error)
    if isinstance(error, httpx2.TimeoutException):
        return "it did not answer in time"
    if isinstance(error, httpx2.ConnectError):
        causes = list(_causes(error))
        if any(isinstance(cause, socket.gaierror) for cause in causes):
            return "no computer of that name is known: check the address"
        if tls := next((cause for cause in causes if isinstance(cause, ssl.SSLError)), None):
            reason = (getattr(tls, "reason", None) or type(tls).__name__).lower().replace("_", " ")
            return (
                f"no secure connection could be made ({reason}): check the address, and http or "
                "https"
            )
        return "nothing answers there: check the address, and that the server runs"
    if isinstance(error, httpx2.TransportError):
        return f"the connection broke off ({type(error).__name__})"
    return ""


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


class _MessageTooLongError(httpx2.ReadError):
    """The server sent more than `MAX_MESSAGE_BYTES` in one message."""


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > MAX_MESSAGE_BYTES:
                megabytes = MAX_MESSAGE_BYTES // 2**20
                raise _MessageTooLongError(f"it sent more than {megabytes} MiB in one message")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
