"""The client of vLLM against a fake server."""

import asyncio
import hashlib
import json
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from lhkit.base.errors import (
    ContextTooLongError,
    LhkitError,
    ModelError,
    RequestRefusedError,
    ServerFailedError,
    ServerOverloadedError,
    ServerUnreachableError,
    StreamBrokenError,
    StreamStalledError,
    UnknownModelError,
    UsageError,
)
from lhkit.conversation.messages import UserMessage
from lhkit.conversation.responses import (
    Finished,
    ModelEvent,
    ModelIdentity,
    TextDelta,
    ToolCallParsed,
    Usage,
)
from lhkit.conversation.tool_results import ToolOk
from lhkit.models.base import ModelRequest
from lhkit.models.client import transport
from lhkit.models.client.response import CompletionContent
from lhkit.models.client.served import connect
from lhkit.models.client.transport import Endpoint
from lhkit.models.client.vllm import VllmHttp
from lhkit.models.decoding import Constraint
from lhkit.models.dialects import DIALECTS
from lhkit.models.names import DIALECT_NAMES
from lhkit.tools.definition import ToolDefinition
from tests.models.fake_vllm import (
    METRICS,
    NO_SUCH_MODEL,
    NOT_FOUND,
    PROMPT_IDS,
    SILENT_S,
    TOO_LONG,
    Behaviour,
    FakeVllm,
    answers,
    completion,
    connected,
    event,
    hangs_up,
    informs_for_ever,
    models,
    repeats,
    streams,
)
from tests.rows import check_rows

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

REQUEST = ModelRequest(messages=(UserMessage(text="안녕"),), instructions="비서")
PROMPT = "<bos><start_of_turn>user\n비서\n\n안녕<end_of_turn>\n<start_of_turn>model\n"
HELLO = completion(["안", "녕", "!"], cached_tokens=2)
BODY = b"".join(HELLO)


async def collect(model: VllmHttp, request: ModelRequest = REQUEST) -> list[ModelEvent]:
    return [event async for event in model.stream(request)]


async def collect_until_error(model: VllmHttp, into: list[ModelEvent]) -> None:
    async for each in model.stream(REQUEST):
        into.append(each)


async def answer_of(*behaviours: Behaviour, **endpoint: Any) -> tuple[list[ModelEvent], FakeVllm]:
    async with FakeVllm(*behaviours) as server, connected(server, **endpoint) as model:
        return await collect(model), server


async def error_of(behaviour: Behaviour, **endpoint: Any) -> LhkitError:
    """Return the failure of one response, having seen that the model works on after it."""
    async with (
        FakeVllm(behaviour, streams(HELLO)) as server,
        connected(server, **endpoint) as model,
    ):
        events: list[ModelEvent] = []
        with pytest.raises(LhkitError) as caught:
            await collect_until_error(model, events)
        assert not any(isinstance(each, Finished) for each in events)
        assert isinstance((await collect(model))[-1], Finished)
    return caught.value


async def test_vllm_sends_exactly_this_request() -> None:
    async with FakeVllm(streams(HELLO)) as server, connected(server) as model:
        assert isinstance(model, VllmHttp)
        await collect(model)
    assert server.bodies == [
        {
            "model": "gemma",
            "prompt": PROMPT,
            "add_special_tokens": False,
            "skip_special_tokens": False,
            "stop_token_ids": [105, 106],
            "stop": [],
            "max_tokens": 256,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
        }
    ]


EMPTY_TOOL = ToolDefinition(
    name="f",
    description="",
    parameters={"type": "object", "properties": {}},
    handler=lambda _args, _deps: ToolOk({}),
)


@pytest.mark.parametrize("constraint", ["auto", "required"])
async def test_vllm_sends_and_records_the_constraint(constraint: Constraint) -> None:
    async with (
        FakeVllm(streams(HELLO)) as server,
        connected(server, constraint=constraint) as model,
    ):
        request = replace(REQUEST, tools=(EMPTY_TOOL,))
        last = (await collect(model, request))[-1]
    [sent] = server.bodies
    fields = DIALECTS["json"].constrain([EMPTY_TOOL], constraint)
    assert sent["structured_outputs"] == fields["structured_outputs"]
    assert isinstance(last, Finished)
    assert last.identity is not None
    assert last.identity.constraint == constraint


async def test_vllm_refuses_required_without_tools_before_sending() -> None:
    async with FakeVllm() as server, connected(server, constraint="required") as model:
        with pytest.raises(UsageError, match="there is no tool"):
            await collect(model)
    assert server.bodies == []


@check_rows(
    ("api_key", "header"),
    [("secret", "Bearer secret"), (" secret\n", "Bearer secret"), ("", None), (None, None)],
)
async def test_client_sends_the_api_key_with_every_request(
    api_key: str | None, header: str | None
) -> None:
    _, server = await answer_of(streams(HELLO), api_key=api_key)
    assert [sent.get("Authorization") for sent in server.headers] == [header] * 3


async def test_client_streams_text_and_keeps_the_data() -> None:
    events, server = await answer_of(streams(HELLO))
    *deltas, last = events
    assert deltas == [TextDelta(text="안"), TextDelta(text="녕"), TextDelta(text="!")]
    assert isinstance(last, Finished)
    assert (last.text, last.raw_text, last.reason) == ("안녕!", "안녕!", "stop")
    assert last.token_ids == (1000, 1001, 1002, 106)
    assert last.prompt_token_ids == PROMPT_IDS
    assert last.usage == Usage(prompt_tokens=4, completion_tokens=4, cached_tokens=2)
    assert last.server_metrics == METRICS
    assert last.prompt_text == PROMPT
    assert last.prompt_sha256 == hashlib.sha256(PROMPT.encode()).hexdigest()
    ids = b"".join(token_id.to_bytes(8, "little") for token_id in PROMPT_IDS)
    assert last.prompt_ids_sha256 == hashlib.sha256(ids).hexdigest()
    assert last.identity == ModelIdentity(
        model="gemma", server="vllm 0.32.0", base_url=server.base_url, dialect="json"
    )


@pytest.mark.parametrize(("token_id", "is_valid"), [(-(2**63), True), (2**63, False)])
async def test_client_refuses_prompt_ids_of_more_than_64_bits(
    token_id: int, *, is_valid: bool
) -> None:
    events = [chunk.replace(b"2364", b"%d" % token_id) for chunk in HELLO]
    if is_valid:
        assert isinstance((await answer_of(streams(events)))[0][-1], Finished)
    else:
        failure = await error_of(streams(events))
        assert isinstance(failure, StreamBrokenError)
        assert "an invalid event" in str(failure)


async def test_client_does_not_wait_for_a_connection_that_stays_open() -> None:
    events, _ = await answer_of(streams(HELLO, "stall"))
    assert isinstance(events[-1], Finished)


async def test_client_separates_concurrent_conversations() -> None:
    words = [f"답{i}" for i in range(40)]
    behaviours = [streams(completion(list(word))) for word in words]
    async with FakeVllm(*behaviours) as server, connected(server) as model:
        answers_ = await asyncio.gather(*(collect(model) for _ in words))
    texts = [events[-1].text for events in answers_ if isinstance(events[-1], Finished)]
    assert sorted(texts) == sorted(words)


@pytest.mark.longer
@check_rows(
    ("behaviour", "error", "sentence"),
    [
        (answers(400, TOO_LONG), ContextTooLongError, "clear it"),
        (
            answers(400, '{"error":{"message":"max_tokens=9000 cannot be greater","code":400}}'),
            RequestRefusedError,
            "max_tokens=9000 cannot be greater; change what it names",
        ),
        (answers(401, '{"error":"Unauthorized"}'), RequestRefusedError, "correct LHKIT_API_KEY"),
        (answers(404, NO_SUCH_MODEL), UnknownModelError, "Valid aliases: gemma"),
        (answers(404, NOT_FOUND), RequestRefusedError, "Not Found.*--base-url"),
        (answers(429, "slow down", "text/plain"), ServerOverloadedError, "slow down; try later"),
        (answers(503, ""), ServerOverloadedError, r"HTTP 503\); try later"),
        (answers(500, "<b>oops", "text/html"), ServerFailedError, "<b>oops; look"),
        (
            answers(404, "<!DOCTYPE HTML>\n<p>a", "text/html"),
            RequestRefusedError,
            "correct",
        ),
        (answers(500, b"oops \xff\xfe"), ServerFailedError, "oops .*; look into its log"),
        (answers(200, "<html>hello</html>", "text/html"), StreamBrokenError, "text/html.*base-url"),
        (answers(200, '{"choices": []}'), StreamBrokenError, "application/json, no event stream"),
        (hangs_up(), StreamBrokenError, "broke off .* check that the server is alive"),
        (streams(HELLO[:2], "drop"), StreamBrokenError, "broke off .* check that the server"),
        (streams([]), StreamBrokenError, "ended early after 0 tokens: check"),
        (streams(HELLO[:-1]), StreamBrokenError, "ended early after 4 tokens: check"),
        (streams([b"data: \xff\xfe\n\n"]), StreamBrokenError, "utf-8.*--base-url"),
        (
            streams([chunk.replace(b"105, ", b"236820, 236751, ") for chunk in HELLO]),
            ServerFailedError,
            "does not know the control tokens .* its own tokenizer",
        ),
    ],
)
async def test_client_raises_typed_errors_with_advice(
    behaviour: Behaviour, error: type[LhkitError], sentence: str
) -> None:
    failure = await error_of(behaviour)
    assert type(failure) is error
    with pytest.raises(error, match=sentence):
        raise failure
    assert len(str(failure)) < 500
    assert "\n" not in str(failure)


@pytest.mark.longer
@check_rows(
    "behaviour",
    [
        repeats(b": keep-alive\n\n"),
        repeats(b": keep-alive\n\n", HELLO[:2]),
        repeats(b"event: ping\n\n"),
        repeats(b"id: 1\nretry: 5\n\n", HELLO[:1]),
        repeats(b"x", [b"data: {"]),
        repeats(event({})),
        repeats(event({"choices": []})),
        repeats(event({"choices": [{"index": 0, "text": "", "finish_reason": None}]}), HELLO[:2]),
        repeats(event({"choices": [], "usage": {"completion_tokens": 1}})),
    ],
    ids=[
        "nothing but comments",
        "comments in the middle",
        "event names",
        "ids",
        "a line that never ends",
        "empty events",
        "no choices",
        "empty texts",
        "one usage",
    ],
)
async def test_client_stops_at_the_idle_timeout(behaviour: Behaviour) -> None:
    async with FakeVllm(behaviour) as server, connected(server) as model:
        model._connection._idle_timeout_s = 0.05  # not the limit of one read, which load exceeds
        with pytest.raises(StreamStalledError, match="sent nothing for too long: see in its log"):
            await collect(model)
        await asyncio.wait_for(server.was_left.wait(), 120)


@pytest.mark.longer
@check_rows("sent", [[], HELLO[:2]], ids=["no token", "in the middle"])
async def test_client_stops_when_a_server_sends_nothing_more(sent: list[bytes]) -> None:
    behaviour = streams(sent, "stall")
    async with FakeVllm(behaviour) as server, connected(server, idle_timeout_s=SILENT_S) as model:
        with pytest.raises(StreamStalledError, match="sent nothing for too long: see in its log"):
            await collect(model)
        await asyncio.wait_for(server.was_left.wait(), 120)


@pytest.mark.longer
async def test_client_limits_the_time_until_the_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "_CONNECT_TIMEOUT_S", 0.2)
    async with FakeVllm(informs_for_ever()) as server, connected(server) as model:
        model._connection._idle_timeout_s = 0.05
        with pytest.raises(StreamStalledError, match="sent nothing for too long"):
            await collect(model)
        await asyncio.wait_for(server.was_left.wait(), 120)


async def test_client_reports_a_dead_server_and_uses_it_after_a_restart() -> None:
    async with FakeVllm(streams(HELLO)) as server:
        model = await connect(Endpoint(base_url=server.base_url, retries=0))
        await collect(model)
    async with aclosing(model):
        with pytest.raises(ServerUnreachableError, match="start a server"):
            await collect(model)
        async with FakeVllm(streams(HELLO), port=server.port):
            assert isinstance((await collect(model))[-1], Finished)


async def test_client_closes_the_request_with_the_stream() -> None:
    async with FakeVllm(streams(HELLO[:2], "stall")) as server, connected(server) as model:
        async with aclosing(model.stream(REQUEST)) as events:  # type: ignore[type-var]
            async for _ in events:
                break
        await asyncio.wait_for(server.was_left.wait(), 120)


async def test_client_closes_the_request_when_cancelled() -> None:
    async with FakeVllm(streams(HELLO[:2], "stall")) as server, connected(server) as model:
        first = asyncio.Event()

        async def listen() -> None:
            async for _ in model.stream(REQUEST):
                first.set()

        task = asyncio.create_task(listen())
        await asyncio.wait_for(first.wait(), 120)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.was_left.wait(), 120)


async def connect_error(base_url: str, **endpoint: Any) -> LhkitError:
    with pytest.raises(LhkitError) as caught:
        await connect(Endpoint(base_url=base_url, **endpoint))
    return caught.value


@check_rows(
    "base_url",
    ["", "http://", "localhost:1", "ftp://localhost", "localhost", "http://a:b", "http://a:99999"],
)
async def test_connect_refuses_an_invalid_address(base_url: str) -> None:
    failure = await connect_error(base_url)
    assert type(failure) is UsageError
    assert "give --base-url http://HOST:PORT" in str(failure)


async def test_connect_reports_an_unreachable_server() -> None:
    async with FakeVllm() as server:
        address = server.base_url
    failure = await connect_error(address)
    assert type(failure) is ServerUnreachableError
    assert str(failure).startswith(f"nothing answers at {address}: start a server (`lhkit serve`)")


async def test_connect_refuses_a_password_in_the_address() -> None:
    failure = await connect_error("http://me:secret@localhost:1")
    assert type(failure) is UsageError
    assert "secret" not in str(failure)


@pytest.mark.parametrize("suffix", ["", "/v1/"])
async def test_connect_accepts_v1_and_slashes_in_the_address(suffix: str) -> None:
    async with (
        FakeVllm(streams(HELLO)) as server,
        connected(server, base_url=server.base_url + suffix) as model,
    ):
        assert model.identity.base_url == server.base_url
        assert isinstance((await collect(model))[-1], Finished)


async def test_connect_refuses_an_unknown_dialect() -> None:
    failure = await connect_error("http://unused", dialect="klingon")
    assert type(failure) is UsageError
    known = ", ".join(sorted(DIALECT_NAMES))
    assert str(failure) == f"Invalid dialect 'klingon': choose one of {known}."


@pytest.mark.parametrize("version", [answers(404, NOT_FOUND), answers(200, "{}"), hangs_up()])
async def test_connect_accepts_a_server_without_version(version: Behaviour) -> None:
    async with (
        FakeVllm(streams(HELLO), streams(HELLO), routes={"/version": version}) as server,
        connected(server) as model,
    ):
        assert model.identity.server == "unknown server"
        assert isinstance((await collect(model))[-1], Finished)


LISTS = {
    "bare": '[{"id": "a"}, {"id": "b"}]',
    "names": '["a", "b"]',
    "data of names": '{"data": ["a", "b"]}',
    "models": '{"models": [{"name": "a"}, {"model": "b"}]}',
    "prefix": '{"data": [{"id": "models/a"}, {"id": "models/b"}]}',
    "wildcard": '{"data": [{"id": "*"}]}',
    "wildcards": '{"data": [{"id": "x/*"}, {"id": "b*"}, {"id": "c"}]}',
}


@check_rows(
    "listing",
    [
        answers(404, NOT_FOUND),
        answers(405, "Method Not Allowed", "text/plain"),
        answers(200, "<html>hello</html>", "text/html"),
        answers(200, "[]"),
        answers(200, '{"data": [1]}'),
        answers(200, '{"data": [{}]}'),
        answers(200, '{"object": "list", "data": []}'),  # LiteRT-LM without imported models
        answers(200, '{"models": []}'),
        answers(200, '{"data": null}'),
        *(answers(200, each) for each in LISTS.values()),
    ],
)
async def test_connect_ignores_an_invalid_model_list_for_a_named_model(listing: Behaviour) -> None:
    async with (
        FakeVllm(streams(HELLO), routes={"/v1/models": listing}) as server,
        connected(server, model="b") as model,
    ):
        assert isinstance((await collect(model))[-1], Finished)
        assert (model.identity.model, model.identity.weights) == ("b", "")
        assert server.bodies[0]["model"] == "b"


@check_rows(
    ("listing", "wanted", "error", "sentence"),
    [
        (models("a", "b"), "c", UnknownModelError, "a, b, not c: give one of these with --model"),
        (models("a", "b"), None, UnknownModelError, "serves a, b, not exactly one model: give one"),
        (models(), None, UnknownModelError, "lists no model: give one that it can"),
        (models("*"), None, UnknownModelError, "not exactly one model"),
        (models("x/*"), None, UnknownModelError, "not exactly one model"),
        (models("x/*", "b*", "c"), "qq", UnknownModelError, "serves x/*, b*, c, not q"),
        (models("models/a"), "qq", UnknownModelError, "serves models/a, not q"),
        (answers(200, "<html>hello</html>", "text/html"), None, StreamBrokenError, "<html>hello"),
        (answers(200, "[]"), None, StreamBrokenError, "check that --base-url leads to"),
        (answers(200, "{}"), None, StreamBrokenError, "no list of models at /v1/models"),
        (answers(200, '{"data": [1]}'), None, StreamBrokenError, "no list of models"),
        (answers(401, ""), None, RequestRefusedError, "correct LHKIT_API_KEY"),
        (answers(401, ""), "qq", RequestRefusedError, "correct LHKIT_API_KEY"),
        (
            answers(404, NOT_FOUND),
            None,
            RequestRefusedError,
            "or give --dialect openai",
        ),
        (answers(500, ""), "qq", ServerFailedError, "look into its log"),
        (answers(503, ""), None, ServerOverloadedError, "try later"),
        (hangs_up(), None, StreamBrokenError, "check that the server is alive"),
        (hangs_up(), "qq", StreamBrokenError, "check that the server is alive"),
    ],
)
async def test_connect_refuses_a_server_by_its_list_of_models(
    listing: Behaviour, wanted: str | None, error: type[ModelError], sentence: str
) -> None:
    async with FakeVllm(routes={"/v1/models": listing}) as server:
        failure = await connect_error(server.base_url, model=wanted)
    assert type(failure) is error
    assert sentence in str(failure)


@check_rows(
    ("listing", "wanted", "got"),
    [
        ('[{"id": "a"}]', None, "a"),
        ('["a"]', None, "a"),
        ('{"data": [{"id": "a"}]}', "a", "a"),
        ('{"data": [{"id": "a"}, {"id": "b"}]}', "b", "b"),
        ('{"data": [{"id": "models/a"}]}', None, "models/a"),
        ('{"data": [{"id": "models/a"}]}', "a", "a"),
        ('{"data": [{"id": "a"}]}', "models/a", "models/a"),
        ('{"data": [{"id": "x/*"}]}', "x/y", "x/y"),
        ('{"data": [{"id": "*"}, {"id": "a"}]}', None, "a"),
    ],
)
async def test_connect_finds_the_model_in_every_list_format(
    listing: str, wanted: str | None, got: str
) -> None:
    async with (
        FakeVllm(routes={"/v1/models": answers(200, listing)}) as server,
        connected(server, model=wanted) as model,
    ):
        assert model.identity.model == got


async def test_detokenize_returns_the_prompt_as_the_server_read_it() -> None:
    routes = {"/detokenize": answers(200, json.dumps({"prompt": "<bos>안"}))}
    async with FakeVllm(routes=routes) as server, connected(server) as model:
        assert await model.detokenize((2, 3)) == "<bos>안"


@pytest.mark.parametrize("body", ["{}", "[]", "?"])
async def test_detokenize_refuses_an_unexpected_answer(body: str) -> None:
    async with (
        FakeVllm(routes={"/detokenize": answers(200, body)}) as server,
        connected(server) as model,
    ):
        with pytest.raises(StreamBrokenError, match="an unexpected answer"):
            await model.detokenize((2,))


async def test_client_yields_a_call_that_is_complete_only_at_the_end() -> None:
    content = CompletionContent(DIALECTS["gemma4"].incremental())
    damaged = '<|tool_call>call:f{a:x<|"|>}<tool_call|>'
    events = [*content.feed({"text": damaged + "네."}), *content.end()]
    assert content.result is not None
    [call] = content.result.calls
    assert events == [TextDelta(text="네."), ToolCallParsed(call=call)]
