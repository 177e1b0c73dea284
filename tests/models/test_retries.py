"""Retries and backoff after transient errors."""

import random
from contextlib import aclosing
from typing import Any

import aiohttp
import pytest

from lhkit.base.errors import (
    LhkitError,
    RequestRefusedError,
    ServerFailedError,
    ServerOverloadedError,
    ServerUnreachableError,
    StreamBrokenError,
    StreamStalledError,
)
from lhkit.conversation.messages import UserMessage
from lhkit.conversation.responses import Finished, ModelEvent
from lhkit.models.base import ModelRequest
from lhkit.models.client.served import connect
from lhkit.models.client.transport import Backoff, Clock, Endpoint
from tests.models.fake_vllm import (
    NOT_FOUND,
    SILENT_S,
    TOO_LONG,
    Behaviour,
    FakeVllm,
    answers,
    chat_completion,
    completion,
    connected,
    event,
    hangs_up,
    streams,
)
from tests.rows import check_rows

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

REQUEST = ModelRequest(messages=(UserMessage(text="안녕"),))
STREAMS = {"json": streams(completion(["네"])), "openai": streams(chat_completion([]))}
BUSY = answers(503, "")


class FakeTime:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept_s: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.now_s += seconds

    @property
    def clock(self) -> Clock:
        rng = random.Random(1)
        return Clock(now=lambda: self.now_s, sleep=self.sleep, rng=rng)


async def outcome_of(
    *behaviours: Behaviour, dialect: str = "json", retries: int = 2
) -> tuple[Finished | LhkitError, FakeVllm, FakeTime]:
    """Return the outcome of one request."""
    time = FakeTime()
    async with FakeVllm(*behaviours) as server:
        endpoint = Endpoint(base_url=server.base_url, dialect=dialect, retries=retries)
        model = await connect(endpoint, clock=time.clock)
        async with aclosing(model):
            events: list[ModelEvent] = []
            try:
                async for each in model.stream(REQUEST):
                    events.append(each)
            except LhkitError as error:
                assert not any(isinstance(each, Finished) for each in events)
                return error, server, time
    assert isinstance(events[-1], Finished)
    return events[-1], server, time


@check_rows("dialect", ["json", "openai"])
@check_rows(
    "failure",
    [hangs_up(), answers(429, ""), BUSY, answers(502, "")],
    ids=["reset", "429", "503", "502"],
)
async def test_client_retries_transient_errors(failure: Behaviour, dialect: str) -> None:
    came, server, time = await outcome_of(failure, failure, STREAMS[dialect], dialect=dialect)
    assert isinstance(came, Finished)
    assert server.bodies == [server.bodies[0]] * 3
    assert len(time.slept_s) == 2


@check_rows(
    ("failure", "error"),
    [
        (answers(400, TOO_LONG), LhkitError),
        (answers(401, ""), RequestRefusedError),
        (answers(404, NOT_FOUND), RequestRefusedError),
        (answers(500, ""), ServerFailedError),
        (answers(200, "<html>", "text/html"), StreamBrokenError),
        (streams([], "drop"), StreamBrokenError),
        (streams(completion(["네"])[:1], "drop"), StreamBrokenError),
        (streams([event({"error": {"message": "busy", "code": 503}})]), ServerOverloadedError),
    ],
)
async def test_client_does_not_retry_other_errors(
    failure: Behaviour, error: type[LhkitError]
) -> None:
    came, server, time = await outcome_of(failure, STREAMS["json"])
    assert isinstance(came, error)
    assert (len(server.bodies), time.slept_s) == (1, [])


@pytest.mark.longer
async def test_client_does_not_retry_after_silence() -> None:
    async with FakeVllm(streams([], "stall"), STREAMS["json"]) as server:
        async with connected(server, retries=2, idle_timeout_s=SILENT_S) as model:
            with pytest.raises(StreamStalledError):
                [each async for each in model.stream(REQUEST)]
        assert len(server.bodies) == 1


@pytest.mark.parametrize("retries", [0, 2])
async def test_client_raises_the_error_of_the_last_retry(retries: int) -> None:
    came, server, _ = await outcome_of(*[BUSY] * (retries + 1), STREAMS["json"], retries=retries)
    assert isinstance(came, ServerOverloadedError)
    assert "HTTP 503" in str(came)
    assert len(server.bodies) == retries + 1


async def test_client_retry_uses_a_restarted_server() -> None:
    async with FakeVllm() as gone:
        model = await connect(Endpoint(base_url=gone.base_url))
        port = gone.port
    back = FakeVllm(STREAMS["json"], port=port)

    async def meanwhile(_seconds: float) -> None:
        await back.__aenter__()

    model._connection.clock = Clock(sleep=meanwhile)
    async with aclosing(model):
        *_, last = [each async for each in model.stream(REQUEST)]
    await back.__aexit__(None, None, None)
    assert isinstance(last, Finished)
    assert last.timing.retries == 1


async def test_client_retries_an_unreachable_server_twice() -> None:
    time = FakeTime()
    async with FakeVllm() as gone:
        model = await connect(Endpoint(base_url=gone.base_url), clock=time.clock)
    async with aclosing(model):
        with pytest.raises(ServerUnreachableError, match="start a server"):
            [each async for each in model.stream(REQUEST)]
    assert len(time.slept_s) == 2


async def test_connect_does_not_retry() -> None:
    time = FakeTime()
    with pytest.raises(ServerUnreachableError):
        await connect(Endpoint(base_url="http://127.0.0.1:9"), clock=time.clock)
    assert time.slept_s == []


async def test_timing_separates_retries() -> None:
    asked_to_wait = answers(503, "", retry_after="7")
    came, _, time = await outcome_of(asked_to_wait, STREAMS["json"])
    assert isinstance(came, Finished)
    assert time.slept_s == [7.0]
    assert (came.timing.retries, came.timing.retried_s) == (1, 7.0)
    assert came.timing.first_token_s == came.timing.done_s == 0.0
    came, *_ = await outcome_of(STREAMS["json"])
    assert isinstance(came, Finished)
    assert (came.timing.retries, came.timing.retried_s) == (0, 0.0)


def turned_away(status: int = 503, **headers: str) -> aiohttp.ClientResponseError:
    fields: Any = {name.replace("_", "-"): value for name, value in headers.items()}
    return aiohttp.ClientResponseError(None, (), status=status, headers=fields)  # type: ignore[arg-type] # no request is looked at


def pause_s(failure: BaseException | None, failed: int, paused_s: float = 0.0) -> float | None:
    rng = random.Random(failed)
    return Backoff(retries=9).pause_s(failure, failed=failed, paused_s=paused_s, rng=rng)


def test_backoff_doubles_with_jitter_up_to_a_limit() -> None:
    for failed, ceiling_s in [(1, 0.5), (2, 1.0), (3, 2.0), (5, 8.0), (6, 10.0), (9, 10.0)]:
        pause = pause_s(turned_away(), failed)
        assert pause is not None
        assert ceiling_s / 2 <= pause <= ceiling_s
    assert pause_s(turned_away(), 1) != 0.5


@check_rows(
    ("retry_after", "expected"),
    [("0", 0.0), ("3", 3.0), (" 10 ", 10.0), ("11", None), ("86400", None)],
)
def test_backoff_respects_a_short_retry_after(retry_after: str, expected: float | None) -> None:
    assert pause_s(turned_away(429, Retry_After=retry_after), 1) == expected


@check_rows("retry_after", ["", "soon", "-1", "Wed, 21 Oct 2026 07:28:00 GMT", "٣"])
def test_backoff_ignores_an_invalid_retry_after(retry_after: str) -> None:
    pause = pause_s(turned_away(503, Retry_After=retry_after), 1)
    assert pause is not None
    assert 0.25 <= pause <= 0.5


def test_backoff_limits_the_total_pause() -> None:
    assert pause_s(turned_away(429, Retry_After="5"), 1, paused_s=15.0) == 5.0
    assert pause_s(turned_away(429, Retry_After="6"), 1, paused_s=15.0) is None


@check_rows(
    "failure",
    [
        None,
        TimeoutError(),
        aiohttp.ClientPayloadError(),
        aiohttp.ServerTimeoutError(),
        aiohttp.ClientConnectorDNSError(None, OSError()),  # type: ignore[arg-type] # no address is looked at
        turned_away(500),
        turned_away(404),
        ValueError(),
    ],
)
def test_backoff_does_not_retry_permanent_errors(failure: BaseException | None) -> None:
    assert pause_s(failure, 1) is None
