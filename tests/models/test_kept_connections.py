"""Connections that are used again: closed by the server, or left in the middle of an answer."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager, nullcontext, suppress
from typing import Any, TypeAlias

import pytest

from lhkit.base.errors import StreamBrokenError
from lhkit.conversation.messages import UserMessage
from lhkit.conversation.responses import Finished, ModelIdentity
from lhkit.models.base import ModelRequest
from lhkit.models.client import transport
from lhkit.models.client.client import HttpModel
from lhkit.models.client.openai_chat import OpenAiHttp
from lhkit.models.client.transport import Connection, Endpoint, StreamLimits, open_session
from lhkit.models.client.vllm import VllmHttp
from tests.models.fake_vllm import chat_completion, completion

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

Answer: TypeAlias = Callable[[asyncio.StreamWriter], Coroutine[Any, Any, None]]

REQUEST = ModelRequest(messages=(UserMessage(text="안녕"),))
HELLO = completion(["안", "녕", "!"])
HEADERS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep connections and wait for ends so long that the load of a machine does not matter."""
    monkeypatch.setattr(transport, "_KEEP_ALIVE_S", 1_000)
    monkeypatch.setattr(transport, "_END_S", 100)


class SocketServer:
    """Answers the requests of all connections in order, byte by byte.

    `requests` and `arrived` have the connection of each request, by number; `ended` has those that
    are closed.
    """

    def __init__(self, answers: Sequence[Answer]) -> None:
        self._answers = list(answers)
        self._opened = 0
        self.requests: list[int] = []
        self.arrived: asyncio.Queue[int] = asyncio.Queue()
        self.ended: asyncio.Queue[int] = asyncio.Queue()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until either side closes it."""
        self._opened += 1
        number = self._opened
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while not writer.is_closing():
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length or 0))
                self.requests.append(number)
                self.arrived.put_nowait(number)
                await self._answers.pop(0)(writer)
        writer.close()
        self.ended.put_nowait(number)


def sends(*pieces: bytes, then: str = "") -> Answer:
    """Send bytes; `then` close or abort the connection."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        if then == "close":
            writer.close()
        elif then == "abort":
            writer.transport.abort()

    return answer


async def ends_later(writer: asyncio.StreamWriter) -> None:
    """Send a whole answer, and the end of its body once the client has read that."""
    await begins(HELLO)(writer)
    for _ in range(100):
        await asyncio.sleep(0)
    writer.write(chunk(b""))


def streams(events: Sequence[bytes], *, headers: bytes = b"", then: str = "") -> Answer:
    """Send a complete answer with its length."""
    body = b"".join(events)
    length = b"content-length: %d\r\n" % len(body)
    return sends(HEADERS + headers + length + b"\r\n" + body, then=then)


def begins(events: Sequence[bytes], then: str = "") -> Answer:
    """Send a part of an answer."""
    return sends(HEADERS + b"transfer-encoding: chunked\r\n\r\n", *map(chunk, events), then=then)


def chunk(data: bytes) -> bytes:
    """Return bytes as one chunk of a body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


CLOSES, RESETS = sends(then="close"), sends(then="abort")
JSON = sends(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}")


@asynccontextmanager
async def model_of(
    *answers: Answer, dialect: str = "json"
) -> AsyncIterator[tuple[HttpModel, SocketServer]]:
    """Open a model that never retries, of a server with these answers."""
    server = SocketServer(answers)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    endpoint = Endpoint(
        base_url=f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", retries=0
    )
    identity = ModelIdentity(
        model="gemma", server="vllm 0.32.0", base_url=endpoint.root, dialect=dialect
    )
    connection = Connection(endpoint, open_session(endpoint))
    kind = OpenAiHttp if dialect == "openai" else VllmHttp
    try:
        async with aclosing(kind(identity, connection)) as model:
            yield model, server
    finally:
        listening.close()


async def answer(model: HttpModel) -> Finished:
    """Return the last event of a response."""
    *_, last = [event async for event in model.stream(REQUEST)]
    assert isinstance(last, Finished)
    return last


@pytest.mark.parametrize(
    "whole",
    [
        streams(HELLO),
        begins([*HELLO, b""]),
        ends_later,
    ],
    ids=["with its length", "in chunks", "with a late end"],
)
async def test_client_uses_a_connection_again(whole: Answer) -> None:
    async with model_of(*[whole] * 3) as (model, server):
        for _ in range(3):
            assert (await answer(model)).text == "안녕!"
    assert server.requests == [1, 1, 1]


async def test_client_opens_a_connection_per_concurrent_request() -> None:
    async with model_of(*[streams(HELLO)] * 4) as (model, server):
        for _ in range(2):
            await asyncio.gather(answer(model), answer(model))
    assert sorted(server.requests) == [1, 1, 2, 2]


@pytest.mark.parametrize("closing", [CLOSES, RESETS], ids=["closed", "reset"])
@pytest.mark.parametrize("dialect", ["json", "openai"])
async def test_client_sends_again_if_a_used_connection_closes(
    closing: Answer, dialect: str
) -> None:
    hello = streams(HELLO if dialect == "json" else chat_completion([{"content": "안녕!"}]))
    async with model_of(hello, closing, hello, dialect=dialect) as (model, server):
        for _ in range(2):
            finished = await answer(model)
            assert (finished.text, finished.timing.retries) == ("안녕!", 0)
    assert server.requests == [1, 1, 2]


async def test_client_sends_again_a_request_without_a_stream() -> None:
    async with model_of(JSON, CLOSES, JSON) as (model, server):
        connection = model._connection
        assert [await connection.post("/tokenize", {}) for _ in range(2)] == [{}, {}]
    assert server.requests == [1, 1, 2]


async def test_client_sends_again_only_once() -> None:
    async with model_of(streams(HELLO), streams(HELLO), CLOSES, CLOSES) as (model, server):
        await asyncio.gather(answer(model), answer(model))
        with pytest.raises(StreamBrokenError):
            await answer(model)
    assert sorted(server.requests) == [1, 1, 2, 2]


@pytest.mark.parametrize("closing", [CLOSES, RESETS], ids=["closed", "reset"])
async def test_client_does_not_send_again_if_a_new_connection_closes(closing: Answer) -> None:
    async with model_of(closing, streams(HELLO)) as (model, server):
        with pytest.raises(StreamBrokenError):
            await answer(model)
    assert server.requests == [1]


@pytest.mark.parametrize(
    "begun",
    [
        sends(b"HTTP/1.1 200 OK\r\n", then="close"),
        begins([], then="close"),
        begins(HELLO[:2], then="close"),
        begins(HELLO[:2], then="abort"),
    ],
    ids=["in the headers", "after the headers", "in the answer", "reset in the answer"],
)
async def test_client_does_not_send_again_once_an_answer_has_begun(begun: Answer) -> None:
    async with model_of(streams(HELLO), begun, streams(HELLO)) as (model, server):
        await answer(model)
        with pytest.raises(StreamBrokenError):
            await answer(model)
        assert server.requests == [1, 1]
        assert (await answer(model)).text == "안녕!"
    assert server.requests == [1, 1, 2]


@pytest.mark.parametrize(
    "last",
    [streams(HELLO, then="close"), streams(HELLO, headers=b"connection: close\r\n", then="close")],
    ids=["silently", "announced"],
)
async def test_client_replaces_connections_that_the_server_closes(last: Answer) -> None:
    async with model_of(streams(HELLO), last, streams(HELLO)) as (model, server):
        for _ in range(2):
            await answer(model)
        assert await asyncio.wait_for(server.ended.get(), 120) == 1
        await answer(model)
    assert server.requests == [1, 1, 2]


async def test_client_closes_idle_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "_KEEP_ALIVE_S", 0.01)
    async with model_of(streams(HELLO), streams(HELLO)) as (model, server):
        await answer(model)
        assert await asyncio.wait_for(server.ended.get(), 120) == 1
        await answer(model)
    assert server.requests == [1, 2]


async def test_client_closes_a_connection_whose_answer_it_leaves() -> None:
    async with model_of(begins(HELLO[:2]), streams(HELLO)) as (model, server):
        async with aclosing(model.stream(REQUEST)) as events:
            async for _ in events:
                break
        assert await asyncio.wait_for(server.ended.get(), 120) == 1
        await answer(model)
    assert server.requests == [1, 2]


@pytest.mark.parametrize("sent", [begins(HELLO[:2]), sends()], ids=["answered", "before a byte"])
async def test_client_closes_the_connection_when_cancelled(sent: Answer) -> None:
    async with model_of(streams(HELLO), sent, streams(HELLO)) as (model, server):
        await answer(model)
        task = asyncio.create_task(answer(model))
        assert [await asyncio.wait_for(server.arrived.get(), 120) for _ in range(2)] == [1, 1]
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.wait_for(server.ended.get(), 120) == 1
        await answer(model)
    assert server.requests == [1, 1, 2]


async def test_client_closes_a_connection_with_too_long_a_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "MAX_LINE_BYTES", 5)
    async with model_of(begins(HELLO[:2]), JSON) as (model, server):
        with pytest.raises(StreamBrokenError, match="a line of more than"):
            await answer(model)
        assert await asyncio.wait_for(server.ended.get(), 120) == 1
        await model._connection.post("/tokenize", {})
    assert server.requests == [1, 2]


@pytest.mark.parametrize(
    ("chunks", "is_too_long"),
    [
        ([b"12345\n12345\n"], False),
        ([b"12345", b"\n12345\n1234", b"5"], False),
        ([b"\n", b"", b"12345", b"\n"], False),
        ([b"123456"], True),
        ([b"1\n123456\n1"], True),
        ([b"1\n123456"], True),
        ([b"123", b"456\n"], True),
        ([b"1\n123", b"45", b"6"], True),
    ],
)
async def test_stream_limits_the_length_of_a_line(
    monkeypatch: pytest.MonkeyPatch, chunks: list[bytes], *, is_too_long: bool
) -> None:
    monkeypatch.setattr(transport, "MAX_LINE_BYTES", 5)
    limits = StreamLimits("http://localhost", max_tokens=1)
    with pytest.raises(StreamBrokenError) if is_too_long else nullcontext():
        for each in chunks:
            limits.count(each)


async def test_client_does_not_wait_for_the_end_of_a_stream_that_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "_END_S", 0.01)
    async with model_of(begins(HELLO), streams(HELLO)) as (model, server):
        assert (await answer(model)).text == "안녕!"
        assert await asyncio.wait_for(server.ended.get(), 120) == 1
        await answer(model)
    assert server.requests == [1, 2]
