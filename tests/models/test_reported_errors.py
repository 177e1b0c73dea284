"""What a server says when it fails is shown, wherever it says it, and without a wrong hint."""

import json
from functools import partial
from typing import Any

import pytest
from aiohttp import web

from lhkit.base.errors import (
    ContextTooLongError,
    LhkitError,
    ModelError,
    RequestRefusedError,
    ServerFailedError,
    ServerOverloadedError,
    StreamBrokenError,
)
from lhkit.conversation.messages import UserMessage
from lhkit.models.base import ModelRequest
from lhkit.models.client.errors import error_message, http_error
from tests.models import fake_vllm
from tests.models.fake_vllm import NOT_FOUND, Behaviour, FakeVllm, answers, chat_chunk, streams
from tests.rows import check_rows

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

REQUEST = ModelRequest(messages=(UserMessage(text="물"),))
connected = partial(fake_vllm.connected, dialect="openai", retries=0)

BODIES: dict[str, Any] = {
    "message": {"error": {"message": "no tokens left", "code": 500}},
    "text": {"error": "no tokens left"},
    "nested": {"error": {"error": {"message": "no tokens left"}}},
    "encoded": {"error": {"message": json.dumps({"error": {"message": "no tokens left"}})}},
    "encoded twice": {"error": json.dumps({"message": json.dumps({"detail": "no tokens left"})})},
    "list": [{"error": {"message": "no tokens left", "status": "INTERNAL"}}],
    "errors": {"errors": [{"message": "no tokens left"}]},
    "detail": {"detail": "no tokens left"},
    "list of details": {"detail": [{"loc": ["body", 0], "msg": "no tokens left", "type": "x"}]},
    "only a message": {"message": "no tokens left"},
    "msg": {"code": 1, "msg": "no tokens left"},
    "an object": {"object": "error", "message": "no tokens left", "code": 40001},
    "a type": {"type": "error", "error": {"type": "api_error", "message": "no tokens left"}},
    "true": {"error": True, "message": "no tokens left"},
    "a title": {"error": "Bad", "message": "no tokens left"},
    "a status": {
        "base_resp": {"status_code": 1008, "status_msg": "no tokens left"},
        "choices": None,
    },
    "of another server": {
        "error": {
            "message": "Provider returned error",
            "metadata": {"raw": '{"error":{"message":"no tokens left"}}'},
        }
    },
    "korean": {"error": {"message": "no tokens left: 잔액이 없습니다"}},
}


async def error_of(behaviour: Behaviour) -> LhkitError:
    routes = {"/version": answers(404, NOT_FOUND)}
    async with FakeVllm(behaviour, routes=routes) as server, connected(server) as model:
        with pytest.raises(ModelError) as caught:
            async for _ in model.stream(REQUEST):
                pass
    return caught.value


def as_event(body: Any, end: str = "\n\n", begin: str = "data: ") -> bytes:
    return (begin + json.dumps(body, ensure_ascii=False) + end).encode()


BEFORE = as_event(chat_chunk({"content": "네"}))
PLACES = {
    "instead of a stream": lambda body: answers(200, json.dumps(body)),
    "as text": lambda body: answers(200, json.dumps(body), "text/plain"),
    "first event": lambda body: streams([as_event(body)]),
    "later event": lambda body: streams([BEFORE, as_event(body)]),
    "named event": lambda body: streams([BEFORE, as_event(body, begin="event: error\ndata: ")]),
    "without blank line": lambda body: streams([as_event(body, "\n")]),
    "without line end": lambda body: streams([BEFORE, as_event(body, "")]),
    "without data:": lambda body: streams([as_event(body, "\n", "")]),
    "in several lines": lambda body: streams([json.dumps(body, indent=1).encode()]),
    "another status": lambda body: answers(418, json.dumps(body)),
}


@pytest.mark.longer
@check_rows("place", PLACES.values(), ids=PLACES)
@check_rows("body", BODIES.values(), ids=BODIES)
async def test_client_shows_the_message_of_the_server(body: Any, place: Any) -> None:
    error = await error_of(place(body))
    assert "no tokens left" in str(error)
    assert "--base-url" not in str(error)
    assert "{" not in str(error)


@pytest.mark.longer
@check_rows("place", list(PLACES.values())[:-1], ids=list(PLACES)[:-1])
@check_rows(
    ("body", "kind", "advice"),
    [
        (
            {"error": {"message": "model overloaded", "code": 503}},
            ServerOverloadedError,
            "try later",
        ),
        ({"error": {"message": "slow", "code": "429"}}, ServerOverloadedError, "try later"),
        (
            {"error": {"message": "x", "type": "overloaded_error"}},
            ServerOverloadedError,
            "try later",
        ),
        (
            [{"error": {"message": "x", "status": "UNAVAILABLE"}}],
            ServerOverloadedError,
            "try later",
        ),
        ({"error": {"message": "bad key", "code": 401}}, RequestRefusedError, "LHKIT_API_KEY"),
        ({"error": {"message": "no credits"}}, ServerFailedError, "check your plan and credits"),
        ({"error": {"message": "pay", "code": 402}}, ServerFailedError, "check your plan"),
        ({"error": {"message": "it broke"}}, ServerFailedError, "it broke; look into its log"),
        ({"error": "maximum context length is 9"}, ContextTooLongError, "clear it"),
    ],
)
async def test_client_advises_by_what_the_server_reports(
    body: Any, kind: type[LhkitError], advice: str, place: Any
) -> None:
    error = await error_of(place(body))
    assert type(error) is kind
    assert advice in str(error)


async def test_client_shows_the_error_of_a_choice() -> None:
    chunk = chat_chunk({}, "error", error={"code": 502, "message": "upstream died"})
    error = await error_of(streams([BEFORE, as_event(chunk)]))
    assert str(error) == "the server reported in its stream: upstream died; look into its log"


@pytest.mark.parametrize("status", [402, 429])
async def test_client_names_credits_where_they_are_missing(status: int) -> None:
    body = json.dumps({"error": {"message": "You exceeded your current quota", "code": "x"}})
    error = await error_of(answers(status, body))
    assert type(error) is ServerOverloadedError
    assert "current quota; try later, or check your plan and credits there" in str(error)


@check_rows(
    ("body", "content_type", "shown"),
    [
        ("too many requests today", "text/plain", "no event stream: too many requests today)"),
        ("<html>busy</html>", "text/html", "(text/html, no event stream)"),
        ('{"choices": []}', "application/json", "(application/json, no event stream: "),
        ("", "application/json", "(application/json, no event stream)"),
    ],
)
async def test_client_shows_an_answer_that_is_no_stream(
    body: str, content_type: str, shown: str
) -> None:
    error = await error_of(answers(200, body, content_type))
    assert type(error) is StreamBrokenError
    assert shown in str(error)
    assert "OpenAI-compatible" in str(error)


PAGE = "<!DOCTYPE HTML>\n<html><body><h1>Error response</h1></body></html>"
HEADERS = "Server: BaseHTTP/0.6 Python/3.11\r\nConnection: close\r\n\r\n"


@check_rows(
    ("status", "reason", "body", "shown"),
    [
        (404, "Model mine not found", PAGE, "know the model (HTTP 404): Model mine not found;"),
        (404, "Model mine not found", HEADERS + PAGE, "(HTTP 404): Model mine not found; give one"),
        (404, "Not Found", "", "or give --dialect openai if the server has only /v1/chat"),
        (
            404,
            "",
            '{"detail":"Not Found"}',
            "or give --dialect openai if the server has only /v1/chat",
        ),
        (405, "", "", "or give --dialect openai if the server has only /v1/chat/completions"),
        (400, "Invalid messages: no name", "", "(HTTP 400): Invalid messages: no name; change"),
        (400, "BAD REQUEST", PAGE, "the server refused the request (HTTP 400); change"),
        (500, "Internal Server Error", PAGE, "the server failed (HTTP 500); look"),
        (400, "nonsense", '{"error": "bad tools"}', "(HTTP 400): bad tools; change"),
    ],
)
def test_http_error_shows_the_status_line_where_the_body_has_no_message(
    status: int, reason: str, body: str, shown: str
) -> None:
    assert shown in str(http_error(status, body, reason))


def test_http_error_reads_a_long_body_of_header_lines_at_once() -> None:
    assert str(http_error(500, "a: b " * 100_000)).startswith("the server failed (HTTP 500): a: b")


async def test_client_shows_the_status_line_of_a_server() -> None:
    async def behave(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=400, reason="Invalid messages: x", text=PAGE)

    assert "(HTTP 400): Invalid messages: x;" in str(await error_of(behave))


async def test_client_masks_keys_in_the_message_of_a_server() -> None:
    key = "sk-abcdefgh12345678"
    body = {"error": {"message": f"Incorrect API key: {key}"}}
    routes = {"/version": answers(404, NOT_FOUND)}
    for place in PLACES.values():
        async with (
            FakeVllm(place(body), routes=routes) as server,
            connected(server, api_key=key) as model,
        ):
            with pytest.raises(ModelError) as caught:
                async for _ in model.stream(REQUEST):
                    pass
        assert "Incorrect API key: ***" in str(caught.value)
        assert key not in repr(caught.value)


@check_rows(
    "event",
    [
        {"base_resp": {"status_code": 0, "status_msg": "ok"}},
        {"choices": [], "message": "hello"},
        {"object": "chat.completion.chunk", "message": "hello"},
        {"error": None},
        {"type": "ping"},
        {},
    ],
)
async def test_client_takes_no_other_event_for_an_error(event: dict[str, Any]) -> None:
    routes = {"/version": answers(404, NOT_FOUND)}
    end = as_event(chat_chunk({}, "stop")) + b"data: [DONE]\n\n"
    pieces = [as_event(event), BEFORE, as_event(event), end]
    async with FakeVllm(streams(pieces), routes=routes) as server, connected(server) as model:
        *_, last = [each async for each in model.stream(REQUEST)]
    assert last.text == "네"


@check_rows("value", [None, 3, {}, [], {"error": {}}, {"error": [[]]}, {"a": {"b": 1}}])
def test_error_message_of_other_json_is_its_text(value: Any) -> None:
    assert error_message(json.dumps(value))


def test_error_message_does_not_follow_endless_nesting() -> None:
    body = "x"
    for _ in range(30):
        body = json.dumps({"error": body})[:100_000]
    assert len(error_message(body)) <= 300
    assert error_message('{"error":' * 2_000)
