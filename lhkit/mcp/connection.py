"""A connection to an MCP server, in a thread with its own event loop.

The own loop lets sessions open where nothing can be awaited, and serves callbacks of several loops;
a server that keeps it busy blocks no other. The protocol is the SDK's.
"""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from typing import Any, TypeAlias

from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    METHOD_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    CallToolResult,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    Implementation,
    TextContent,
    Tool,
)
from pydantic import ValidationError

from lhkit.base.errors import McpServerError
from lhkit.base.redaction import Mask
from lhkit.confirm.form import DECLINED, FormAction, FormAnswer
from lhkit.mcp.launch import Launch, Remote
from lhkit.mcp.transport import (
    INVALID_HTTP_RESPONSES,
    ServerProcess,
    Streams,
    connection_failure,
    cut,
    http_hint,
    http_status,
    http_streams,
    lenient_streams,
)

_log = logging.getLogger(__name__)
for _name in ("mcp", "client"):  # the SDK's loggers: server errors are reported here
    logging.getLogger(_name).addHandler(logging.NullHandler())

_TOO_NEW = {UNSUPPORTED_PROTOCOL_VERSION, METHOD_NOT_FOUND}

MAX_TOOLS = 1_000
_MAX_PAGES = 100

CLOSE_S = 5.0
_PROBE_S = 5.0
_MAX_SHOWN_ERROR = 300

Elicit: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[FormAnswer]]
"""Asks the user; takes the message and the JSON Schema of the answer."""


class McpConnection:
    """A connection to a server that has started and listed its tools.

    Args:
        server: the server, with its variables filled in.
        shown: the server's name in error messages.
        secrets: replacement texts in messages, by secret value.
        start_s: the time limit for starting and listing tools, in seconds.
        elicit: answers the server's elicitation requests.

    Raises:
        McpServerError: the server did not start or respond, or is not an MCP server.
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
        self._shown, self._elicit = shown, elicit
        self._mask = Mask(secrets)
        self.left_out: dict[str, str] = {}
        """Listed tools that are invalid: name to reason."""
        self._process = ServerProcess(server, self._mask) if isinstance(server, Launch) else None
        self._remote = server if isinstance(server, Remote) else None
        self._ready: Future[tuple[Tool, ...]] = Future()
        self._loop = asyncio.new_event_loop()
        self._client: Client | None = None
        self._info: Implementation | None = None
        self._closing = asyncio.Event()
        self._main_task: asyncio.Task[None] | None = None
        self._suspicion = self._thread_ended = ""
        self._thread = threading.Thread(target=self._run_loop, name="lhkit-mcp", daemon=True)
        self._thread.start()
        try:
            self.tools = self._ready.result(start_s)
        except TimeoutError:
            self._fail_start(f"it listed no tools within {start_s:g} s{self._noise_text()}")
        except Exception as error:  # noqa: BLE001 - boundary: servers may cause any exception
            self._fail_start(self._reason(error))
        except BaseException:  # Ctrl-C
            self.close()
            raise

    def _fail_start(self, why: str) -> None:
        stderr = self._stderr_text()
        self.close()
        raise McpServerError(
            f"the MCP server `{self._shown}` did not start: "
            f"{self._mask.message(why)}{stderr}: try it by hand, and see the page MCP of the "
            "documentation"
        ) from None  # the cause may contain a key

    @property
    def name(self) -> str:
        """The server's name for itself; empty if it sends none."""
        return self._mask.message(self._info.name) if self._info else ""

    @property
    def version(self) -> str:
        """The server's version; empty if it sends none."""
        return self._mask.message(self._info.version) if self._info else ""

    def masked(self, value: Any) -> Any:
        """Return a value of the server without secrets."""
        return self._mask.answer(value)

    async def call(self, tool: str, args: Mapping[str, Any]) -> CallToolResult:
        """Call a tool, from any event loop. Cancelling sends a cancellation to the server.

        A JSON-RPC error of the server is returned as a result with `is_error` and its message.

        Raises:
            McpServerError: the server is gone, or its response is invalid.
        """
        return await asyncio.wrap_future(self._start_call(tool, args))

    def call_sync(self, tool: str, args: Mapping[str, Any], timeout_s: float) -> CallToolResult:
        """Call a tool and block until it returns.

        Raises:
            McpServerError: as `call`, or there was no response in time.
        """
        future = self._start_call(tool, args)
        try:
            return future.result(timeout_s)
        except TimeoutError as error:
            future.cancel()
            why = f"{tool} returned nothing within {timeout_s:g} s{self._noise_text()}"
            raise self._gone(why) from error

    def require_alive(self) -> None:
        """Return if the server is alive. A server that has failed before is asked for its tools.

        Raises:
            McpServerError: the server is gone.
        """
        self._require_running()
        if not self._suspicion:
            return
        probe = self._submit(self._list_tools())
        try:
            probe.result(_PROBE_S)
        except Exception:  # noqa: BLE001 - boundary: servers may cause any exception
            probe.cancel()
            raise self._gone(self._suspicion) from None  # the cause may contain a key
        self._suspicion = ""

    def suspect(self, why: str) -> None:
        """Make the next `require_alive` ask the server, since something went wrong."""
        self._suspicion = f"{why}{self._noise_text()}"

    def close(self) -> None:
        """End the connection, and the process if there is one, within a time limit."""
        if self._ready.done() and self._ready.exception() is None:
            self._call_in_loop(self._closing.set)
            self._thread.join(CLOSE_S)
        if self._main_task is not None:
            self._call_in_loop(self._main_task.cancel)
        if self._process is not None:
            self._process.kill()
        self._thread.join(CLOSE_S)
        if self._process is not None:
            self._process.close()

    @property
    def _ended(self) -> str:
        return (self._process.ended if self._process else "") or self._thread_ended

    def _require_running(self) -> None:
        if self._ended or not self._thread.is_alive():
            raise self._gone(self._ended or "it ended")

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._main_task = self._loop.create_task(self._main())
        try:
            self._loop.run_until_complete(self._main_task)
        except asyncio.CancelledError:
            self._thread_ended = "it was closed"
        except Exception as error:  # noqa: BLE001 - boundary: servers may cause any exception
            self._thread_ended = self._reason(error)
            _log.debug("the connection to %s ended: %s", self._shown, self._ended)
            if not self._ready.done():
                self._ready.set_exception(error)
        finally:
            if not self._ready.done():
                self._ready.set_exception(McpServerError(self._ended or "it ended"))
            with suppress(Exception):
                self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    async def _main(self) -> None:
        try:
            await self._connect("legacy")  # known to all servers; lets a tool send a request
        except Exception as error:
            cause = _first_error(error)
            if not isinstance(cause, MCPError) or cause.code not in _TOO_NEW:
                raise
            await self._connect("auto")

    async def _connect(self, mode: str) -> None:
        async with Client(
            self._transport(),
            elicitation_callback=self._answer_elicitation,
            client_info=Implementation(name="lhkit", version=version("lhkit")),
            cache=None,
            mode=mode,
        ) as client:
            self._client, self._info = client, client.server_info
            # `output_error` validates later: the SDK would fail the connection, or loop for ever.
            client.session.validate_tool_result = _skip_validation  # type: ignore[method-assign, assignment]
            self._ready.set_result(await self._list_tools())
            await self._closing.wait()

    @asynccontextmanager
    async def _transport(self) -> AsyncIterator[Streams]:
        if self._remote is not None:
            transport = http_streams(self._remote)
        else:
            assert self._process is not None  # noqa: S101 - a server is one or the other
            transport = self._process.streams()
        async with transport as streams:
            yield lenient_streams(streams, self._mask, self.left_out)

    async def _list_tools(self) -> tuple[Tool, ...]:
        assert self._client is not None  # noqa: S101 - called only after the handshake
        tools: list[Tool] = []
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            page = await self._client.list_tools(cursor=cursor)
            tools += page.tools
            cursor = page.next_cursor
            if cursor is None or len(tools) > MAX_TOOLS:
                break
        if cursor is not None or len(tools) > MAX_TOOLS:
            self.left_out["…"] = f"tools after the first {min(len(tools), MAX_TOOLS)} are not read"
        return tuple(tools[:MAX_TOOLS])

    async def _answer_elicitation(
        self, context: ClientRequestContext, params: ElicitRequestParams
    ) -> ElicitResult:
        answer = DECLINED  # also for a request to open an address
        if isinstance(params, ElicitRequestFormParams):
            answer = await self._elicit(
                self._mask.answer(params.message), self._mask.answer(params.requested_schema)
            )
        content: Any = dict(answer.content) if answer.action is FormAction.ACCEPT else None
        return ElicitResult(action=answer.action.value, content=content)

    def _start_call(self, tool: str, args: Mapping[str, Any]) -> "Future[CallToolResult]":
        self._require_running()
        return self._submit(self._call_tool(tool, args))

    async def _call_tool(self, tool: str, args: Mapping[str, Any]) -> CallToolResult:
        assert self._client is not None  # noqa: S101 - `tools` exist only after the handshake
        try:
            return await self._client.call_tool(tool, dict(args))
        except Exception as error:  # noqa: BLE001 - boundary: servers may cause any exception
            cause = _first_error(error)
            if isinstance(cause, MCPError) and self._is_from_server(cause):
                message = self._mask.answer(cause.message) or f"JSON-RPC error {cause.code}"
                return CallToolResult(
                    content=[TextContent(type="text", text=message)],
                    structured_content=self._mask.answer(cause.data),
                    is_error=True,
                )
            self._suspicion = self._reason(error)
            raise self._gone(self._ended or self._suspicion) from None  # it may contain a key

    def _is_from_server(self, error: MCPError) -> bool:
        """Return whether the server sent the error; else it was made on this side."""
        if self._ended or self._closing.is_set():
            return False
        if self._process is not None:
            return True
        return not http_status(error) and not error.message.startswith(INVALID_HTTP_RESPONSES)

    def _submit(self, work: Any) -> "Future[Any]":
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError as error:  # the loop has just ended
            work.close()
            raise self._gone(self._ended or "it ended") from error

    def _call_in_loop(self, callback: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(callback)

    def _gone(self, why: str) -> McpServerError:
        reason = f"{self._mask.message(why)}{self._stderr_text()}"
        return McpServerError(
            f"the MCP server `{self._shown}`: {reason}: open a new session, and check the server's "
            "own output"
        )

    def _noise_text(self) -> str:
        return self._process.noise_text() if self._process else ""

    def _stderr_text(self) -> str:
        return self._process.stderr_text() if self._process else ""

    def _reason(self, error: BaseException) -> str:
        """Return the first cause in one line, masked before it is cut."""
        error = _first_error(error)
        if isinstance(error, ValidationError):
            issue = error.errors(include_url=False, include_context=False, include_input=False)[0]
            where = ".".join(map(str, issue["loc"]))
            text = f"its response is not valid MCP: {where}: {issue['msg']}"
            return cut(self._mask.message(text), _MAX_SHOWN_ERROR)
        if own := connection_failure(error):
            return own
        text = str(error).partition(" [type=")[0]  # pydantic's details are cut in the middle
        text = cut(" ".join(self._mask.message(text).split()), _MAX_SHOWN_ERROR)
        if isinstance(error, MCPError) and (status := http_status(error)):
            hint = http_hint(status)
            return f"{text}: {hint}" if hint else text
        return f"{type(error).__name__}: {text}" if text else type(error).__name__


async def _skip_validation(_name: str, _result: CallToolResult) -> None:
    """Accept any result."""


def _first_error(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
