"""The client of llama.cpp against a fake server."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from aiohttp import web

from lhkit.base.errors import ContextTooLongError, LhkitError, StreamBrokenError, UsageError
from lhkit.conversation.messages import UserMessage
from lhkit.conversation.responses import Finished, ModelEvent, Sampling, TextDelta, Usage
from lhkit.models.base import ModelRequest
from lhkit.models.client.identity import BUILD_ALIAS, weights_alias
from lhkit.models.client.llama_cpp import LlamaCppHttp
from lhkit.models.client.served import connect
from lhkit.models.client.transport import Endpoint
from lhkit.models.decoding import Constraint
from lhkit.models.serving import gguf_serving
from tests.models.fake_llama_cpp import PROMPT_IDS, PROPS, TIMINGS, FakeLlamaCpp, native
from tests.models.fake_vllm import (
    NOT_FOUND,
    Behaviour,
    FakeVllm,
    answers,
    connected,
    event,
    streams,
)
from tests.rows import check_rows

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

TOO_LONG = (
    '{"error":{"code":400,"message":"request (26000 tokens) exceeds the available context size '
    '(8192 tokens), try increasing it","type":"exceed_context_size_error"}}'
)
REQUEST = ModelRequest(messages=(UserMessage(text="안녕"),), instructions="비서")


async def answer_of(
    *behaviours: Behaviour, sampling: Sampling | None = None
) -> tuple[list[ModelEvent], FakeVllm]:
    request = ModelRequest(
        messages=REQUEST.messages,
        instructions=REQUEST.instructions,
        sampling=sampling or Sampling(),
    )
    async with FakeLlamaCpp(*behaviours) as server, connected(server) as model:
        return [each async for each in model.stream(request)], server


def last_of(events: Sequence[ModelEvent]) -> Finished:
    last = events[-1]
    assert isinstance(last, Finished)
    return last


FILE, HASH, SHA256 = "tuned-Q8_0.gguf", weights_alias("a" * 64), "a" * 64
BUILD = f"{BUILD_ALIAS}xllamacpp-2026.10-0123456789ab"
REAL = json.loads(PROPS)
UNKNOWN_BUILD = {**REAL, "build_info": "b0-unknown"}
PLAIN = {"model": "gemma", "server": "llama.cpp b11549-abc", "weights": FILE, "dtype": "Q8_0"}
BUILT = "llama.cpp b11549-abc xllamacpp-2026.10-0123456789ab"
IDENTITIES: dict[str, tuple[list[str], Any, str | None, dict[str, str]]] = {
    "no alias": (["gemma"], REAL, None, {**PLAIN, "weights_sha256": ""}),
    "the id is the hash": ([HASH, FILE], {}, None, {"model": FILE, "weights_sha256": SHA256}),
    "an alias is the hash": ([FILE, HASH], {}, None, {"model": FILE, "weights_sha256": SHA256}),
    "build": ([BUILD, FILE], REAL, None, {"model": FILE, "server": BUILT}),
    "build of an unknown one": (
        [BUILD, FILE],
        UNKNOWN_BUILD,
        None,
        {"server": "llama.cpp xllamacpp-2026.10-0123456789ab"},
    ),
    "a given name comes first": (
        [HASH, "mine", FILE],
        REAL,
        None,
        {"model": "mine", "weights": FILE, "weights_sha256": SHA256},
    ),
    "relative path": (["gemma"], {"model_path": f"models/{FILE}"}, None, {"weights": FILE}),
    "path from the root": (["gemma"], {"model_path": f"/{FILE}"}, None, {"weights": FILE}),
    "empty path": (["gemma"], {"model_path": ""}, None, {"weights": "", "dtype": ""}),
    "named by its file": ([f"/home/ann/{FILE}"], REAL, None, {"model": FILE, "weights": ""}),
    "asked by its file": ([f"/home/ann/{FILE}"], REAL, FILE, {"model": FILE}),
}


@check_rows(("names", "props", "wanted", "expected"), IDENTITIES.values(), ids=IDENTITIES)
async def test_llama_cpp_identity_without_paths(
    names: list[str], props: Any, wanted: str | None, expected: dict[str, str]
) -> None:
    """llama.cpp sorts its names: which of them it calls the id says nothing."""
    listed = {"id": names[0], **({"aliases": sorted(names)} if names[1:] else {})}
    routes = {
        "/v1/models": answers(200, json.dumps({"data": [listed]})),
        "/props": answers(200, json.dumps({"build_info": "b1", **props})),
    }
    async with FakeLlamaCpp(**routes) as server, connected(server, model=wanted) as model:
        assert isinstance(model, LlamaCppHttp)
        identity = model.identity
    assert {key: getattr(identity, key) for key in expected} == expected
    assert "ann" not in repr(identity)


async def test_llama_cpp_sends_token_ids_and_stop_texts() -> None:
    _, server = await answer_of(streams(native(["hi"])), sampling=Sampling(max_tokens=7, seed=3))
    assert server.bodies == [
        {
            "prompt": PROMPT_IDS,
            "n_predict": 7,
            "temperature": 0.0,
            "seed": 3,
            "top_k": 0,
            "top_p": 1.0,
            "min_p": 0.0,
            "repeat_penalty": 1.0,
            "stop": ["<start_of_turn>", "<end_of_turn>"],
            "preserved_tokens": ["<start_of_turn>", "<end_of_turn>"],
            "return_tokens": True,
            "stream": True,
        }
    ]


async def test_llama_cpp_streams_text_and_keeps_the_data() -> None:
    events, _ = await answer_of(streams(native(["안", "녕 ", "😀"])))
    texts = [each.text for each in events if isinstance(each, TextDelta)]
    assert (len(texts), "".join(texts)) == (3, "안녕 😀")
    last = last_of(events)
    assert (last.text, last.raw_text, last.reason) == ("안녕 😀", "안녕 😀", "stop")
    assert last.token_ids == (1000, 1001, 1002, 106)
    assert last.prompt_token_ids == tuple(PROMPT_IDS)
    assert last.usage == Usage(prompt_tokens=4, completion_tokens=4, cached_tokens=3)
    assert last.server_metrics == TIMINGS
    assert last.prompt_text.startswith("<bos>")
    assert last.timing.first_token_s is not None


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ({"stop_type": "limit"}, "length"),
        ({"truncated": True}, "length"),
        ({"stop_type": "word"}, "stop"),
    ],
)
async def test_llama_cpp_detects_truncation(end: dict[str, Any], reason: str) -> None:
    last = last_of((await answer_of(streams(native(["one", "two"], **end))))[0])
    assert (last.reason, last.truncated) == (reason, reason == "length")


async def test_llama_cpp_requests_stop_texts_once() -> None:
    async with (
        FakeLlamaCpp(streams(native(["a"])), streams(native(["b"]))) as server,
        connected(server) as model,
    ):
        before = len(server.headers)
        for _ in range(2):
            [_ async for _ in model.stream(REQUEST)]
        assert len(server.headers) - before == 2 + 2 + 2  # /tokenize, /completion, two marks


@check_rows(
    ("behaviour", "failure"),
    [
        (answers(400, TOO_LONG), ContextTooLongError),
        (streams(native(["half"])[:-1]), StreamBrokenError),
        (streams([event({"content": 3, "tokens": [1], "stop": False})]), StreamBrokenError),
        (streams([event({"content": "a", "tokens": ["x"], "stop": False})]), StreamBrokenError),
    ],
)
async def test_llama_cpp_raises_typed_errors_and_stays_usable(
    behaviour: Behaviour, failure: type[LhkitError]
) -> None:
    async with (
        FakeLlamaCpp(behaviour, streams(native(["ok"]))) as server,
        connected(server) as model,
    ):
        with pytest.raises(failure):
            [_ async for _ in model.stream(REQUEST)]
        assert last_of([each async for each in model.stream(REQUEST)]).text == "ok"


@pytest.mark.parametrize("constraint", ["auto", "required"])
async def test_llama_cpp_refuses_a_constraint(constraint: Constraint) -> None:
    async with FakeLlamaCpp() as server:
        endpoint = Endpoint(base_url=server.base_url, constraint=constraint)
        with pytest.raises(UsageError, match="Give --constrain off"):
            await connect(endpoint)
    assert server.bodies == []


@check_rows(
    ("counted", "sent"),
    [
        ({"usage": {"prompt_tokens": 2}}, "<start_of_turn>"),
        ({"usage": {"prompt_tokens": 1}}, "<bos><start_of_turn>"),
        ({"usage": {"prompt_tokens": 5}}, "<bos><start_of_turn>"),  # it reads marks as letters
        ({}, "<bos><start_of_turn>"),
        (None, "<bos><start_of_turn>"),
    ],
)
async def test_connect_detects_a_server_that_adds_bos(
    counted: dict[str, Any] | None, sent: str
) -> None:
    """It is asked once, with a prompt that is nothing else."""
    bodies: list[Any] = []

    async def complete(request: web.Request) -> web.StreamResponse:
        bodies.append(await request.json())
        if bodies[-1].get("stream"):
            chunk = {"choices": [{"text": "hi", "finish_reason": "stop"}]}
            return await streams([event(chunk), b"data: [DONE]\n\n"])(request)
        if counted is None:
            return web.Response(status=400, text="no")
        return web.json_response({"choices": [{"text": ""}], **counted})

    routes = {"/props": answers(404, NOT_FOUND), "/v1/completions": complete}
    async with FakeLlamaCpp(**routes) as server, connected(server) as model:
        last = last_of([each async for each in model.stream(REQUEST)])
    asked, request = bodies
    assert (asked["prompt"], asked["max_tokens"]) == ("<bos>", 1)
    assert request["prompt"].startswith(sent)
    assert last.prompt_text.startswith("<bos><start_of_turn>")  # what the model has read


async def test_llama_cpp_detokenizes() -> None:
    async with FakeLlamaCpp() as server, connected(server) as model:
        assert await model.detokenize((105, 106)) == "<start_of_turn><end_of_turn>"


def test_served_build_alias_is_the_one_that_clients_read() -> None:
    assert gguf_serving.BUILD_ALIAS == BUILD_ALIAS
