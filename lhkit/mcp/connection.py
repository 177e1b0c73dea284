"""One connection to an MCP server: started, asked and ended, in a thread and a loop of its own.

Own, because a session is opened and looked at where nothing can be awaited, because a panel's
callbacks run in several loops, and because a server that keeps its loop busy must hold up nobody.
The protocol is the SDK's. The pipe to a process is ours, since the SDK's reads a line of any
length: here a message has a limit, the end of the errors that a process writes is kept, and it is
killed with all that it started. Not covered: a server that ignores the end of its input when we
are killed ourselves.
"""

import asyncio
import logging
import os
import signal
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, TypeAlias

import anyio
import httpx2
from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import (
    METHOD_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    CallToolResult,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    Implementation,
    Tool,
    jsonrpc_message_adapter,
)

from lhkit.confirm.form import DECLINED, FormAction, FormAnswer
from lhkit.errors import McpServerError

_log = logging.getLogger(__name__)
for _name in ("mcp", "client"):  # of the SDK: what servers do wrong, we tell
    logging.getLogger(_name).addHandler(logging.NullHandler())

MAX_MESSAGE_BYTES = 16 * 2**20
"""A server that says more in one message is cut off: no result is that large on purpose."""

_TOO_NEW = {UNSUPPORTED_PROTOCOL_VERSION, METHOD_NOT_FOUND}

MOST_TOOLS = 1_000
_MOST_PAGES = 100

CLOSE_S = 5.0
_LEAVE_S = 2.0
_PROBE_S = 5.0
_SHOWN_ERRORS = 300

Elicit: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[FormAnswer]]
"""Asks a person (message, schema of the answer)."""

_Streams: TypeAlias = tuple[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A server that is started here and spoken to through its standard input and output.

    `shown` is how messages tell it, and `secrets` what stands in them for values that nobody may
    read there.
    """

    command: tuple[str, ...] = field(repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: Path | None = field(default=None, repr=False)
    shown: str
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A server that runs already, spoken to by streamable HTTP; `shown` and `secrets` as above."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    shown: str
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


class McpConnection:
    """A server that has answered and told its tools.

    Args:
        server: where it is.
        start_s: how long it may take until it has told its tools, in seconds.
        elicit: who answers what the server asks while a tool of its runs.

    Raises:
        McpServerError: it did not start or answer, or what answers is no MCP server.
    """

    def __init__(self, server: Process | Address, *, start_s: float, elicit: Elicit) -> None:
        self._server, self._elicit = server, elicit
        self._ready: Future[tuple[Tool, ...]] = Future()
        self._loop = asyncio.new_event_loop()
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self._process: asyncio.subprocess.Process | None = None
        self._client: Client | None = None
        self._info: Implementation | None = None
        self._closing = asyncio.Event()
        self._life: asyncio.Task[None] | None = None
        self._doubt = self._ended = ""
        self._thread = threading.Thread(target=self._serve, name="lhkit-mcp", daemon=True)
        self._thread.start()
        try:
            self.tools = self._ready.result(start_s)
        except TimeoutError:
            self._give_up(f"it told no tools within {start_s:g} s")
        except Exception as error:  # noqa: BLE001 - boundary: whatever a stranger's server makes us raise
            self._give_up(_told(error))
        except BaseException:  # Ctrl-C
            self.close()
            raise

    def _give_up(self, why: str) -> None:
        said = self._last_words()
        self.close()
        raise McpServerError(
            f"the MCP server `{self._server.shown}` did not start: {self._safe(f'{why}{said}')}: "
            "try it by hand, and see docs/mcp.md"
        )

    @property
    def name(self) -> str:
        """What the server calls itself; empty if it does not say."""
        return self._info.name if self._info else ""

    @property
    def version(self) -> str:
        """The version that the server says it has; empty if it does not say."""
        return self._info.version if self._info else ""

    async def call(self, tool: str, args: Mapping[str, Any]) -> CallToolResult:
        """Return what a tool answers; of any loop. Cancelling it tells the server.

        Raises:
            McpServerError: the server is gone, or says what is no answer.
        """
        return await asyncio.wrap_future(self._asked(tool, args))

    def call_now(self, tool: str, args: Mapping[str, Any], timeout_s: float) -> CallToolResult:
        """Return what a tool answers, where nothing can be awaited.

        Raises:
            McpServerError: as `call`, or it did not answer in time.
        """
        asked = self._asked(tool, args)
        try:
            return asked.result(timeout_s)
        except TimeoutError as error:
            asked.cancel()
            raise self._gone(f"{tool} told nothing within {timeout_s:g} s") from error

    def require_alive(self) -> None:
        """Return if the server is there. One that has failed before is asked whether it is.

        Raises:
            McpServerError: it is not.
        """
        if self._ended or not self._thread.is_alive():
            raise self._gone(self._ended or "it ended")
        if not self._doubt:
            return
        probe = self._run(self._listed())
        try:
            probe.result(_PROBE_S)
        except Exception as error:
            probe.cancel()
            raise self._gone(self._doubt) from error
        self._doubt = ""

    def doubt(self, why: str) -> None:
        """Note that something went wrong, so that `require_alive` looks."""
        self._doubt = why

    def close(self) -> None:
        """End the connection, and the process if it is one. Waits only so long."""
        if self._ready.done() and self._ready.exception() is None:
            self._hand_over(self._closing.set)
            self._thread.join(CLOSE_S)
        if self._life is not None:
            self._hand_over(self._life.cancel)
        self._kill()
        self._thread.join(CLOSE_S)
        self._errors.close()

    # ------------------------------------------------------- in the thread of the connection
    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._life = self._loop.create_task(self._live())
        try:
            self._loop.run_until_complete(self._life)
        except asyncio.CancelledError:
            self._ended = self._ended or "it was closed"
        except Exception as error:  # noqa: BLE001 - boundary: whatever a stranger's server makes us raise
            self._ended = self._ended or _told(error)
            _log.debug("the connection to %s ended", self._server.shown, exc_info=True)
            if not self._ready.done():
                self._ready.set_exception(error)
        finally:
            if not self._ready.done():
                self._ready.set_exception(McpServerError(self._ended or "it ended"))
            with suppress(Exception):
                self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    async def _live(self) -> None:
        try:
            await self._talk("legacy")
        except Exception as error:
            cause = _first(error)
            if not isinstance(cause, MCPError) or cause.code not in _TOO_NEW:
                raise
            await self._talk("auto")

    async def _talk(self, mode: str) -> None:
        """Speak to the server, in the handshake that all know; it lets a tool ask in its midst.

        `auto` is for a server that knows only what came after the handshake.
        """
        server = self._server
        async with Client(
            self._pipe(server) if isinstance(server, Process) else _http(server),
            elicitation_callback=self._elicited,
            client_info=Implementation(name="lhkit", version=version("lhkit")),
            cache=None,
            mode=mode,
        ) as client:
            self._client, self._info = client, client.server_info
            # Whether a result is what was promised is asked later (promise.py): the SDK would make
            # an error of the connection of it, without an end where a schema has none.
            client.session.validate_tool_result = _any_shape  # type: ignore[method-assign, assignment]
            self._ready.set_result(await self._listed())
            await self._closing.wait()

    async def _listed(self) -> tuple[Tool, ...]:
        assert self._client is not None  # noqa: S101 - nobody asks before it is there
        found: list[Tool] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            page = await self._client.list_tools(cursor=cursor)
            found += page.tools
            cursor = page.next_cursor
            if cursor is None or len(found) > MOST_TOOLS:
                break
        return tuple(found[:MOST_TOOLS])

    async def _elicited(
        self,
        context: ClientRequestContext,  # noqa: ARG002 - the SDK's name
        params: ElicitRequestParams,
    ) -> ElicitResult:
        answer = DECLINED  # an address to open: not from a stranger
        if isinstance(params, ElicitRequestFormParams):
            answer = await self._elicit(params.message, params.requested_schema)
        content: Any = dict(answer.content) if answer.action is FormAction.ACCEPT else None
        return ElicitResult(action=answer.action.value, content=content)

    @asynccontextmanager
    async def _pipe(self, server: Process) -> AsyncIterator[_Streams]:
        """Start a process and yield the two streams of its messages."""
        self._process = process = await asyncio.create_subprocess_exec(
            *server.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._errors,
            env={**get_default_environment(), **server.env},
            cwd=server.cwd,
            limit=MAX_MESSAGE_BYTES,
            start_new_session=True,
        )
        to_us, heard = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        spoken, to_it = anyio.create_memory_object_stream[SessionMessage](0)
        try:
            async with to_us, heard, spoken, to_it, anyio.create_task_group() as group:
                assert process.stdout is not None  # noqa: S101 - it was asked for
                assert process.stdin is not None  # noqa: S101 - it was asked for
                group.start_soon(self._hear, process.stdout, to_us)
                group.start_soon(_speak, process.stdin, to_it, to_us)
                yield heard, spoken
                group.cancel_scope.cancel()
        finally:
            await self._end(process)

    async def _hear(self, source: asyncio.StreamReader, to_us: Any) -> None:
        """Pass on each line that is a message; noise on the output is told to nobody."""
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            async with to_us:
                while line := await self._line(source):
                    if line.strip():
                        await to_us.send(_message(line))
                self._ended = self._ended or "it ended"

    async def _line(self, source: asyncio.StreamReader) -> bytes:
        try:
            return await source.readline()
        except ValueError:
            self._ended = f"it said more than {MAX_MESSAGE_BYTES // 2**20} MiB in one message"
            self._kill()
            return b""

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """Close its input, as the protocol asks for, and kill it if it does not go."""
        if process.stdin is not None:
            process.stdin.close()
        with anyio.CancelScope(shield=True):
            with suppress(TimeoutError, asyncio.CancelledError):
                await asyncio.wait_for(process.wait(), _LEAVE_S)
            self._kill()  # also what it has started
            with suppress(TimeoutError, asyncio.CancelledError):
                await asyncio.wait_for(process.wait(), _LEAVE_S)
        _closed_transport(process)

    # ------------------------------------------------------------------------ from any thread
    def _asked(self, tool: str, args: Mapping[str, Any]) -> "Future[CallToolResult]":
        if self._ended or not self._thread.is_alive():
            raise self._gone(self._ended or "it ended")
        return self._run(self._called(tool, args))

    async def _called(self, tool: str, args: Mapping[str, Any]) -> CallToolResult:
        assert self._client is not None  # noqa: S101 - `tools` are there only if it is
        try:
            return await self._client.call_tool(tool, dict(args))
        except Exception as error:
            self._doubt = _told(error)
            raise self._gone(self._ended or self._doubt) from error

    def _run(self, work: Any) -> "Future[Any]":
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError as error:  # its loop has just ended
            work.close()
            raise self._gone(self._ended or "it ended") from error

    def _hand_over(self, step: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # its loop has ended
            self._loop.call_soon_threadsafe(step)

    def _gone(self, why: str) -> McpServerError:
        told = self._safe(f"{why}{self._last_words()}")
        return McpServerError(
            f"the MCP server `{self._server.shown}`: {told}: start anew, and look at what it says "
            "by itself"
        )

    def _safe(self, text: str) -> str:
        """Return text without what was filled in from the environment."""
        for value, name in self._server.secrets.items():
            text = text.replace(value, name)
        return text

    def _last_words(self) -> str:
        with suppress(OSError, ValueError):
            size = self._errors.seek(0, os.SEEK_END)
            self._errors.seek(max(0, size - 4 * _SHOWN_ERRORS))
            lines = self._errors.read().decode(errors="replace").split("\n")
            said = " / ".join(" ".join(line.split()) for line in lines if line.strip())
            said = self._safe(said)  # before it is cut
            self._errors.seek(0, os.SEEK_END)
            return f" ({said[-_SHOWN_ERRORS:]})" if said else ""
        return ""

    def _kill(self) -> None:
        """Kill the process, if it is one, and all of its group."""
        if self._process is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


async def _any_shape(_name: str, _result: CallToolResult) -> None:
    """Take a result as it is."""


def _message(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


async def _speak(sink: asyncio.StreamWriter, to_it: Any, to_us: Any) -> None:
    try:
        async for each in to_it:
            text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
            sink.write(text.encode() + b"\n")
            await sink.drain()
    except OSError:  # it reads no more: whoever waits for an answer has to know
        await to_us.aclose()


def _closed_transport(process: asyncio.subprocess.Process) -> None:
    """Close what a grandchild may still hold open; nothing public of asyncio gives it."""
    transport = getattr(process, "_transport", None)
    if transport is not None:
        with suppress(ProcessLookupError, PermissionError):
            transport.close()


@asynccontextmanager
async def _http(server: Address) -> AsyncIterator[_Streams]:
    async with create_mcp_http_client(headers=dict(server.headers)) as client:
        client._transport = _Bounded(client._transport)  # noqa: SLF001 - a client that is made takes no other
        transport: AbstractAsyncContextManager[Any] = streamable_http_client(
            server.url, http_client=client
        )
        async with transport as streams:
            yield streams


class _Bounded(httpx2.AsyncBaseTransport):
    """A transport whose answers, each, end with an error where they become too large."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        if "text/event-stream" not in response.headers.get(
            "content-type", ""
        ):  # the SDK bounds these
            response.stream = _BoundedStream(response.stream)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._inner:
            size += len(chunk)
            if size > MAX_MESSAGE_BYTES:
                raise httpx2.ReadError(f"more than {MAX_MESSAGE_BYTES // 2**20} MiB in one message")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _told(error: BaseException) -> str:
    """Return what went wrong first, in a line."""
    error = _first(error)
    said = " ".join(str(error).split())[:_SHOWN_ERRORS]
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
