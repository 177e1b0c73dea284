"""One connection to an MCP server: started, asked and ended, in a thread and a loop of its own.

Own, because a session is opened and looked at where nothing can be awaited, because a panel's
callbacks run in several loops, and because a server that keeps its loop busy must hold up nobody.
The protocol is the SDK's. The pipe to a process is ours, since the SDK's reads a line of any
length: here a message has a limit, the end of the errors that a process writes is kept, and it is
killed with all that it started. Not covered: a server that ignores the end of its input when we
are killed ourselves.
"""

import asyncio
import json
import logging
import os
import signal
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from typing import IO, Any, TypeAlias

import anyio
from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp.client.stdio import get_default_environment
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import (
    METHOD_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    CallToolResult,
    ContentBlock,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    Implementation,
    TextContent,
    Tool,
    jsonrpc_message_adapter,
)
from pydantic import TypeAdapter, ValidationError

from lhkit.confirm.form import DECLINED, FormAction, FormAnswer
from lhkit.errors import McpServerError
from lhkit.mcp.http import (
    BROKEN_HTTP,
    MAX_MESSAGE_BYTES,
    Streams,
    http_hint,
    http_status,
    http_streams,
)
from lhkit.mcp.launch import Launch, Remote
from lhkit.redaction import Mask
from lhkit.text import printable

_log = logging.getLogger(__name__)
for _name in ("mcp", "client"):  # of the SDK: what servers do wrong, we tell
    logging.getLogger(_name).addHandler(logging.NullHandler())

_TOO_NEW = {UNSUPPORTED_PROTOCOL_VERSION, METHOD_NOT_FOUND}

MOST_TOOLS = 1_000
_MOST_PAGES = 100

CLOSE_S = 5.0
_LEAVE_S = 2.0
_PROBE_S = 5.0
_CHUNK_BYTES = 2**16
_SHOWN_ERRORS = 300
_READ_ERRORS = 64 * 2**10
_SHOWN_NOISE = 100

Elicit: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[FormAnswer]]
"""Asks a person (message, schema of the answer)."""


class McpConnection:
    """A server that has answered and told its tools.

    Args:
        server: where it is, with its variables filled in.
        shown: how messages name it.
        secrets: what messages show for values that nobody may read there.
        start_s: how long it may take until it has told its tools, in seconds.
        elicit: who answers what the server asks while a tool of its runs.

    Raises:
        McpServerError: it did not start or answer, or what answers is no MCP server.
    """

    def __init__(
        self,
        server: Launch | Remote,
        *,
        shown: str,
        secrets: Mapping[str, str],
        start_s: float,
        elicit: Elicit,
    ) -> None:
        self._server, self._shown, self._elicit = server, shown, elicit
        self._ready: Future[tuple[Tool, ...]] = Future()
        self._loop = asyncio.new_event_loop()
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self._process: asyncio.subprocess.Process | None = None
        self._client: Client | None = None
        self._info: Implementation | None = None
        self._closing = asyncio.Event()
        self._life: asyncio.Task[None] | None = None
        self._doubt = self._ended = ""
        self._mask = Mask(secrets)
        self._noise = bytearray()  # what is on its standard output and no message
        self._line_so_far = bytearray()
        self._thread = threading.Thread(target=self._serve, name="lhkit-mcp", daemon=True)
        self._thread.start()
        try:
            self.tools = self._ready.result(start_s)
        except TimeoutError:
            self._give_up(f"it told no tools within {start_s:g} s{self._noise_words()}")
        except Exception as error:  # noqa: BLE001 - boundary: whatever a stranger's server makes us raise
            self._give_up(self._told(error))
        except BaseException:  # Ctrl-C
            self.close()
            raise

    def _give_up(self, why: str) -> None:
        said = self._last_words()
        self.close()
        raise McpServerError(
            f"the MCP server `{self._shown}` did not start: "
            f"{self._mask.message(why)}{said}: try it by hand, and see docs/mcp.md"
        ) from None  # what it comes from may contain a key

    @property
    def name(self) -> str:
        """What the server calls itself; empty if it does not say."""
        return self._mask.message(self._info.name) if self._info else ""

    @property
    def version(self) -> str:
        """The version that the server says it has; empty if it does not say."""
        return self._mask.message(self._info.version) if self._info else ""

    def masked(self, value: Any) -> Any:
        """Return a value of the server without the secrets that it was given."""
        return self._mask.answer(value)

    async def call(self, tool: str, args: Mapping[str, Any]) -> CallToolResult:
        """Return what a tool answers; of any loop. Cancelling it tells the server.

        A JSON-RPC error of the server is an answer, too: a result with `is_error` and its message.

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
            why = f"{tool} told nothing within {timeout_s:g} s{self._noise_words()}"
            raise self._gone(why) from error

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
        except Exception:  # noqa: BLE001 - boundary: whatever a stranger's server makes us raise
            probe.cancel()
            raise self._gone(self._doubt) from None  # what it comes from may contain a key
        self._doubt = ""

    def doubt(self, why: str) -> None:
        """Note that something went wrong, so that `require_alive` looks."""
        self._doubt = f"{why}{self._noise_words()}"

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

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._life = self._loop.create_task(self._live())
        try:
            self._loop.run_until_complete(self._life)
        except asyncio.CancelledError:
            self._ended = self._ended or "it was closed"
        except Exception as error:  # noqa: BLE001 - boundary: whatever a stranger's server makes us raise
            self._ended = self._ended or self._told(error)
            _log.debug("the connection to %s ended: %s", self._shown, self._ended)
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
            self._pipe(server) if isinstance(server, Launch) else http_streams(server),
            elicitation_callback=self._elicited,
            client_info=Implementation(name="lhkit", version=version("lhkit")),
            cache=None,
            mode=mode,
        ) as client:
            self._client, self._info = client, client.server_info
            # `output_fault` checks what was promised of a result later: the SDK would make
            # an error of the connection of it, without an end where a schema has none.
            client.session.validate_tool_result = _any_shape  # type: ignore[method-assign, assignment]
            self._read_leniently(client)
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
        context: ClientRequestContext,
        params: ElicitRequestParams,
    ) -> ElicitResult:
        answer = DECLINED  # an address to open: not from a stranger
        if isinstance(params, ElicitRequestFormParams):
            answer = await self._elicit(
                self._mask.answer(params.message), self._mask.answer(params.requested_schema)
            )
        content: Any = dict(answer.content) if answer.action is FormAction.ACCEPT else None
        return ElicitResult(action=answer.action.value, content=content)

    @asynccontextmanager
    async def _pipe(self, server: Launch) -> AsyncIterator[Streams]:
        """Start a process and yield the two streams of its messages."""
        self._process = process = await asyncio.create_subprocess_exec(
            server.command,
            *server.args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._errors,
            env={**get_default_environment(), **server.env},
            cwd=server.cwd,
            start_new_session=True,
        )
        to_us, heard = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        spoken, to_it = anyio.create_memory_object_stream[SessionMessage](0)
        try:
            async with to_us, heard, spoken, to_it, anyio.create_task_group() as group:
                assert process.stdout is not None  # noqa: S101 - it was asked for
                assert process.stdin is not None  # noqa: S101 - it was asked for
                group.start_soon(self._hear, process.stdout, to_us)
                group.start_soon(self._speak, process.stdin, to_it, to_us)
                yield heard, spoken
                group.cancel_scope.cancel()
        finally:
            await self._end(process)

    async def _hear(self, source: asyncio.StreamReader, to_us: Any) -> None:
        """Pass on each line that is a message; keep the start of what is none."""
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            async with to_us:
                while chunk := await source.read(_CHUNK_BYTES):
                    *lines, rest = chunk.split(b"\n")
                    for line in lines:
                        await self._take(bytes(self._line_so_far + line), to_us)
                        self._line_so_far.clear()
                    self._line_so_far += rest
                    if len(self._line_so_far) > MAX_MESSAGE_BYTES:
                        limit = MAX_MESSAGE_BYTES // 2**20
                        self._ended = f"it said more than {limit} MiB in one message"
                        self._kill()
                        break
                if self._line_so_far and not self._ended:
                    await self._take(bytes(self._line_so_far), to_us)
                self._ended = self._ended or "it ended"

    async def _speak(self, sink: asyncio.StreamWriter, to_it: Any, to_us: Any) -> None:
        try:
            async for each in to_it:
                text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                sink.write(text.encode() + b"\n")
                await sink.drain()
        except OSError:  # whatever waits for an answer gets none
            self._ended = self._ended or "it reads no more"
            await to_us.aclose()

    async def _take(self, line: bytes, to_us: Any) -> None:
        if not line.strip():
            return
        message = _message(line)
        if isinstance(message, Exception) and len(self._noise) < _READ_ERRORS:
            self._noise += line[:_READ_ERRORS] + b"\n"
        await to_us.send(message)

    def _noise_words(self) -> str:
        """Return what came on the standard output that is no message, for a time-out's sentence."""
        noise = bytes(self._noise + self._line_so_far[:_READ_ERRORS]).decode(errors="replace")
        shown = " ".join(printable(self._mask.message(noise)).split())
        if not shown:
            return ""
        return f", and its standard output had what is no message: {_cut(shown, _SHOWN_NOISE)!r}"

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

    def _asked(self, tool: str, args: Mapping[str, Any]) -> "Future[CallToolResult]":
        if self._ended or not self._thread.is_alive():
            raise self._gone(self._ended or "it ended")
        return self._run(self._called(tool, args))

    async def _called(self, tool: str, args: Mapping[str, Any]) -> CallToolResult:
        assert self._client is not None  # noqa: S101 - `tools` are there only if it is
        try:
            return await self._client.call_tool(tool, dict(args))
        except Exception as error:  # noqa: BLE001 - boundary: whatever a stranger's server makes us raise
            cause = _first(error)
            if isinstance(cause, MCPError) and not self._is_no_answer(cause):
                return self._refusal(cause)
            self._doubt = self._told(error)
            raise self._gone(self._ended or self._doubt) from None  # it may contain a key

    def _is_no_answer(self, error: MCPError) -> bool:
        """Return whether an error was made here, since the server sent no message."""
        if self._ended or self._closing.is_set():
            return True
        if isinstance(self._server, Launch):
            return False
        return http_status(error) > 0 or error.message.startswith(BROKEN_HTTP)

    def _refusal(self, error: MCPError) -> CallToolResult:
        """Return the JSON-RPC error of a server as the result of the call that it answers."""
        message = self._mask.answer(error.message) or f"JSON-RPC error {error.code}"
        return CallToolResult(
            content=[TextContent(type="text", text=message)],
            structured_content=self._mask.answer(error.data),
            is_error=True,
        )

    def _read_leniently(self, client: Client) -> None:
        """Have results masked and repaired before the SDK looks at them.

        A result that lacks its `content` would be an error of the connection, after the tool ran.
        """
        dispatcher: Any = client.session._dispatcher
        send = dispatcher.send_raw_request

        async def masked(method: str, *args: Any, **options: Any) -> Any:
            raw = await send(method, *args, **options)
            cursor = raw.get("nextCursor")
            answer = self._mask.answer(_repaired(raw) if method == "tools/call" else raw)
            return answer if cursor is None else {**answer, "nextCursor": cursor}

        dispatcher.send_raw_request = masked

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
        told = f"{self._mask.message(why)}{self._last_words()}"
        return McpServerError(
            f"the MCP server `{self._shown}`: {told}: start anew, and look at what it says "
            "by itself"
        )

    def _told(self, error: BaseException) -> str:
        """Return what went wrong first, in a line, masked before it is cut."""
        error = _first(error)
        if isinstance(error, ValidationError):
            fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
            where = ".".join(map(str, fault["loc"]))
            said = f"what it answered is not as the protocol says: {where}: {fault['msg']}"
            return _cut(self._mask.message(said), _SHOWN_ERRORS)
        words = str(error).partition(" [type=")[0]  # of pydantic, whose rest is cut in its midst
        said = _cut(" ".join(self._mask.message(words).split()), _SHOWN_ERRORS)
        if isinstance(error, MCPError) and (status := http_status(error)):
            hint = http_hint(status)
            return f"{said}: {hint}" if hint else said
        return f"{type(error).__name__}: {said}" if said else type(error).__name__

    def _last_words(self) -> str:
        with suppress(OSError, ValueError):
            size = self._errors.seek(0, os.SEEK_END)
            begin = max(0, size - _READ_ERRORS)
            self._errors.seek(begin)
            text = self._errors.read().decode(errors="replace")
            self._errors.seek(0, os.SEEK_END)
            text = self._mask.message(self._mask.tail(text) if begin else text)
            lines = text.split("\n")
            said = " / ".join(" ".join(line.split()) for line in lines if line.strip())
            return f" ({said[-_SHOWN_ERRORS:]})" if said else ""
        return ""

    def _kill(self) -> None:
        """Kill the process, if it is one, and all of its group."""
        if self._process is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _repaired(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result of a tool with what the protocol requires, as far as it can be read."""
    result = {key: value for key, value in raw.items() if (key, value) != ("isError", None)}
    blocks = result.get("content") or []
    if not isinstance(blocks, list):
        blocks = [blocks]
    result["content"] = [each if _is_block(each) else _as_text(each) for each in blocks]
    structured = result.get("structuredContent")
    if structured is not None and not isinstance(structured, dict):
        result["structuredContent"] = {"value": structured}
    return result


def _is_block(block: Any) -> bool:
    try:
        _BLOCK.validate_python(block, by_name=False)
    except ValidationError:
        return False
    return True


def _as_text(block: Any) -> dict[str, str]:
    return {"type": "text", "text": block if isinstance(block, str) else json.dumps(block)}


_BLOCK: TypeAdapter[Any] = TypeAdapter(ContentBlock)


async def _any_shape(_name: str, _result: CallToolResult) -> None:
    """Take a result as it is."""


def _message(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


def _closed_transport(process: asyncio.subprocess.Process) -> None:
    """Close what a grandchild may still hold open; nothing public of asyncio gives it."""
    transport = getattr(process, "_transport", None)
    if transport is not None:
        with suppress(ProcessLookupError, PermissionError):
            transport.close()


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
