"""A fake of vLLM 0.32's completions server, well-behaved or not, for the tests of the client.

The format was compared by hand with a real `vllm serve` (Gemma 3 270M, --enable-prompt-tokens-
details --enable-per-request-metrics --enable-force-include-usage).
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from aiohttp import web

from lhkit.models.client.served import connect
from lhkit.models.client.transport import Endpoint

END_OF_TURN = 106
PROMPT_IDS = (2, 105, 2364, 107)
METRICS = {
    "time_to_first_token_ms": 34.5,
    "generation_time_ms": 302.8,
    "queue_time_ms": 0.01,
    "mean_itl_ms": 27.5,
    "tokens_per_second": 35.6,
}
DONE = b"data: [DONE]\n\n"
NOT_FOUND = '{"detail":"Not Found"}'
NO_SUCH_MODEL = (
    '{"error":{"message":"The model `nope` does not exist. Valid aliases: gemma.",'
    '"type":"NotFoundError","param":"model","code":404}}'
)
TOO_LONG = (
    '{"error":{"message":"This model\'s maximum context length is 8192 tokens. However, your '
    "prompt contains at least 8193 input tokens, which exceeds this limit even without any output "
    "tokens. Please reduce the length of the input prompt. (parameter=input_tokens, "
    'value=8193)","type":"BadRequestError","param":"input_tokens","code":400}}'
)

Behaviour: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
Ending: TypeAlias = Literal["end", "drop", "stall"]


def event(payload: Any) -> bytes:
    """One server-sent event, with Korean as it is, as vLLM writes it."""
    return f"data: {json.dumps(payload, ensure_ascii=False)}\n\n".encode()


def completion(
    pieces: Sequence[str], *, reason: str = "stop", cached_tokens: int | None = 0
) -> list[bytes]:
    """Return the events of one response, one piece of text a token."""
    texts = [*pieces, ""] if reason == "stop" else list(pieces)
    events = []
    for i, text in enumerate(texts):
        is_last = i == len(texts) - 1
        token_id = END_OF_TURN if is_last and reason == "stop" else 1000 + i
        choice = {
            "index": 0,
            "text": text,
            "logprobs": None,
            "finish_reason": reason if is_last else None,
            "stop_reason": END_OF_TURN if is_last and reason == "stop" else None,
            "prompt_token_ids": None if i else list(PROMPT_IDS),
            "token_ids": [token_id],
        }
        events.append(event({**_head(), "choices": [choice], "usage": _usage(i + 1)}))
    details = {} if cached_tokens is None else {"cached_tokens": cached_tokens}
    usage = {**_usage(len(texts)), **({"prompt_tokens_details": details} if details else {})}
    last = {"choices": [], "usage": usage, "system_fingerprint": "vllm-0.32.0-07a9cb6a"}
    return [*events, event({**_head(), **last, "metrics": METRICS}), DONE]


def chat_call(
    index: int | None, name: str | None = None, arguments: Any = None, **more: Any
) -> dict[str, Any]:
    """Return one piece of a tool call, as in a delta."""
    function = {"name": name, "arguments": arguments}
    fields = {key: value for key, value in function.items() if value is not None}
    return {**({} if index is None else {"index": index}), **more, "function": fields}


def chat_chunk(
    delta: Mapping[str, Any], reason: str | None = None, **choice: Any
) -> dict[str, Any]:
    """Return one event of a chat completion."""
    fields = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason, **choice}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gemma"}
    return {**head, "choices": [fields]}


def chat_completion(
    deltas: Sequence[Mapping[str, Any]],
    *,
    reason: str = "stop",
    tokens: int | None = None,
    token_ids: bool = True,
) -> list[bytes]:
    """Return the events of one chat response; `tokens` None leaves the usage out.

    With `token_ids`, as a vLLM: each delta is a token, and the prompt's ids come with the first.
    """
    role = chat_chunk({"role": "assistant", "content": ""})
    chunks = [chat_chunk(delta) for delta in deltas]
    end = chat_chunk({}, reason, stop_reason=END_OF_TURN if reason != "length" else None)
    if token_ids:
        role["prompt_token_ids"] = list(PROMPT_IDS)
        for number, chunk in enumerate(chunks):
            chunk["choices"][0]["token_ids"] = [1000 + number]
        end["choices"][0]["token_ids"] = [END_OF_TURN] if reason != "length" else []
    usage = [{"choices": [], "usage": _usage(tokens)}] if tokens is not None else []
    return [event(each) for each in [role, *chunks, end, *usage]] + [DONE]


def _head() -> dict[str, Any]:
    return {"id": "cmpl-1", "object": "text_completion", "created": 1795301277, "model": "gemma"}


def _usage(completion_tokens: int) -> dict[str, int]:
    prompt_tokens = len(PROMPT_IDS)
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "completion_tokens": completion_tokens,
    }


SILENT_S = 2.0
"""The limit of one read in tests of silence: the answers of a busy machine do not exceed it."""


def streams(
    pieces: Iterable[bytes],
    ending: Ending = "end",
    *,
    content_type: str = "text/event-stream; charset=utf-8",
) -> Behaviour:
    """Send these bytes, each piece in a write of its own, then end, drop or stall."""

    async def behave(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": content_type})
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        if ending == "drop" and request.transport is not None:
            request.transport.close()
        if ending == "stall":
            await asyncio.Event().wait()
        return response

    return behave


def repeats(piece: bytes, first: Sequence[bytes] = ()) -> Behaviour:
    """Keep the connection alive: send the same bytes again and again, after some others."""

    async def behave(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for one in first:
            await response.write(one)
        while True:
            await response.write(piece)
            await asyncio.sleep(0.005)  # the server's pace, not a wait of the test

    return behave


def informs_for_ever() -> Behaviour:
    """Send interim headers (102) again and again, and never the final ones."""

    async def behave(request: web.Request) -> web.StreamResponse:
        while request.transport is not None and not request.transport.is_closing():
            request.transport.write(b"HTTP/1.1 102 Processing\r\n\r\n")
            await asyncio.sleep(0.005)  # the server's pace, not a wait of the test
        return web.Response()

    return behave


def answers(
    status: int, body: str | bytes, content_type: str = "application/json", **headers: str
) -> Behaviour:
    """Answer at once; `retry_after="1"` is the header `Retry-After`."""
    fields = {name.replace("_", "-"): value for name, value in headers.items()}

    async def behave(_request: web.Request) -> web.StreamResponse:
        data = body.encode() if isinstance(body, str) else body
        return web.Response(
            status=status, body=data, content_type=content_type, charset="utf-8", headers=fields
        )

    return behave


def hangs_up() -> Behaviour:
    """Close the connection without an answer."""

    async def behave(request: web.Request) -> web.StreamResponse:
        if request.transport is not None:
            request.transport.close()
        return web.Response()

    return behave


def models(*names: str) -> Behaviour:
    """The list of served models."""
    data = [{"id": name, "object": "model", "owned_by": "vllm"} for name in names]
    return answers(200, json.dumps({"object": "list", "data": data}))


@asynccontextmanager
async def connected(server: "FakeVllm", **endpoint: Any) -> AsyncIterator[Any]:
    """Connect a client to the server, by default in `json` and without retries."""
    options = {"base_url": server.base_url, "retries": 0, "dialect": "json", **endpoint}
    async with aclosing(await connect(Endpoint(**options))) as model:
        yield model


class FakeVllm:
    """Serves on 127.0.0.1; the behaviours answer `/v1/completions` and the chat, in order.

    Each request has a connection of its own. The port is a free one unless it is given. `routes`
    replaces or adds other paths. `bodies` and `headers` keep what came; `was_left` is set when a
    client went away before its response was complete.
    """

    def __init__(
        self, *behaviours: Behaviour, routes: Mapping[str, Behaviour] | None = None, port: int = 0
    ) -> None:
        self._behaviours = list(behaviours)
        self._routes = {
            "/v1/models": models("gemma"),
            "/version": answers(200, '{"version":"0.32.0"}'),
            "/v1/completions": self._complete,
            "/v1/chat/completions": self._complete,
            **(routes or {}),
        }
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, shutdown_timeout=0.01, handler_cancellation=True)
        self.port = port
        self.base_url = ""
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self.was_left = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True).start()
        self.port = self._runner.addresses[0][1]
        self.base_url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        _value: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(dict(request.headers))
        behaviour = self._routes.get(request.path, answers(404, NOT_FOUND))
        try:
            response = await behaviour(request)
        except (asyncio.CancelledError, ConnectionResetError):
            self.was_left.set()
            raise
        response.force_close()
        return response

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.json())
        return await self._behaviours.pop(0)(request)
