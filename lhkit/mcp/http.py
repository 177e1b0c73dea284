"""A server at an address, spoken to by streamable HTTP, with a limit for its messages.

A failed response becomes a JSON-RPC error that names its status: the SDK's does not.
"""

import json
import secrets
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    JSONRPCError,
    jsonrpc_message_adapter,
)

from lhkit.mcp.launch import Remote

MAX_MESSAGE_BYTES = 16 * 2**20
"""A server that says more in one message is cut off: no result is that large on purpose."""

# What the SDK says where an HTTP server answered nothing that is a message: no words of the server.
BROKEN_HTTP = (
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
    403: f"the server does not accept the key, or it may not do this: {_CHECK_KEY}",
    404: "nothing is at this address: check its path",
    429: f"too many requests, or the quota of the key is used up: wait, or {_CHECK_KEY}",
}
_HTTP_FAILED = f"the server failed: look at its log, and {_CHECK_KEY}"

_HTTP_ERROR, _NOT_FOUND, _SERVER_FAILED = 400, 404, 500

_MARK = secrets.token_hex()
"""Is with an error that was made here of an HTTP status: no server can know it."""

Streams: TypeAlias = tuple[Any, Any]


@asynccontextmanager
async def http_streams(server: Remote) -> AsyncIterator[Streams]:
    timeout = httpx2.Timeout(_CONNECT_S, read=_READ_S)
    async with _BoundedClient(headers=dict(server.headers), timeout=timeout) as client:
        transport: AbstractAsyncContextManager[Any] = streamable_http_client(
            server.url, http_client=client
        )
        async with transport as streams:
            yield streams


_CONNECT_S, _READ_S = 30.0, 300.0
"""As the SDK's own client has them: a stream may stay open for minutes."""


class _BoundedClient(httpx2.AsyncClient):
    """A client whose answers, each, end with an error where they become too large."""

    async def send(
        self, request: httpx2.Request, *, stream: bool = False, **options: Any
    ) -> httpx2.Response:
        response = await super().send(request, stream=True, **options)
        if response.status_code >= _HTTP_ERROR and request.method == "POST":
            return await _explained(request, response)
        if "text/event-stream" not in response.headers.get("content-type", ""):
            response.stream = _BoundedStream(response.stream)  # the SDK bounds those
        if not stream:
            await response.aread()
        return response


async def _explained(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
    """Return a failed response with a JSON-RPC error that names its status; the SDK's does not."""
    response.stream = _BoundedStream(response.stream)
    body = await response.aread()
    await response.aclose()
    kind = response.headers.get("content-type", "").lower()
    if not kind.startswith("application/json") or not isinstance(_parsed(body), JSONRPCError):
        status = response.status_code
        told = f"HTTP {status} {response.reason_phrase}".strip()
        if kind.startswith(("application/json", "text/plain")) and body.strip():
            told = f"{told} ({body.decode(errors='replace').strip()})"
        code = INTERNAL_ERROR
        if status == _NOT_FOUND:  # as the SDK has it
            code = INVALID_REQUEST if "mcp-session-id" in request.headers else METHOD_NOT_FOUND
        error = {"code": code, "message": told, "data": {_MARK: status}}
        body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
    return httpx2.Response(
        response.status_code,
        headers={"content-type": "application/json"},
        content=body,
        request=request,
    )


def _parsed(body: bytes) -> Any:
    try:
        return jsonrpc_message_adapter.validate_json(body, by_name=False)
    except ValueError:
        return None


def http_status(error: MCPError) -> int:
    """Return the HTTP status that an error was made of; 0 if the server sent the error."""
    status: int = error.data.get(_MARK, 0) if isinstance(error.data, dict) else 0
    return status


def http_hint(status: int) -> str:
    """Return what to do about an HTTP status; empty where nothing is known of it."""
    return _HTTP_HINTS.get(status, _HTTP_FAILED if status >= _SERVER_FAILED else "")


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
