"""The client of llama.cpp against a fake server."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from lhkit.errors import (
    ContextTooLongError,
    LhkitError,
    StreamBrokenError,
    UsageError,
)
from lhkit.messages import UserMessage
from lhkit.models.base import ModelRequest
from lhkit.models.dialects.base import Constraint
from lhkit.models.gguf_serving import BUILD_ALIAS
from lhkit.models.identity import weights_alias
from lhkit.models.llama_cpp import LlamaCppHttp
from lhkit.models.served import connect
from lhkit.models.transport import Endpoint
from lhkit.responses import Finished, ModelEvent, Sampling, TextDelta, Usage
from tests.models.fake_llama_cpp import PROMPT_IDS, PROPS, TIMINGS, FakeLlamaCpp, native
from tests.models.fake_vllm import NOT_FOUND, Behaviour, FakeVllm, answers, event, models, streams

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

TOO_LONG = (
    '{"error":{"code":400,"message":"request (26000 tokens) exceeds the available context size '
    '(8192 tokens), try increasing it","type":"exceed_context_size_error"}}'
)
REQUEST = ModelRequest(messages=(UserMessage(text="안녕"),), instructions="비서")


@asynccontextmanager
async def connected(server: FakeVllm, **endpoint: Any) -> AsyncIterator[LlamaCppHttp]:
    model = await connect(Endpoint(base_url=server.base_url, retries=0, **endpoint))
    assert isinstance(model, LlamaCppHttp)
    try:
        yield model
    finally:
        await model.aclose()


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


async def test_llama_cpp_is_identified_without_paths() -> None:
    async with FakeLlamaCpp() as server, connected(server) as model:
        identity = model.identity
    assert (identity.model, identity.server) == ("gemma", "llama.cpp b11549-abc")
    assert (identity.weights, identity.dtype, identity.weights_sha256) == (
        "tuned-Q8_0.gguf",
        "Q8_0",
        "",
    )
    assert "ann" not in repr(identity)


async def test_llama_cpp_identity_reads_the_hash_from_the_alias() -> None:
    """llama.cpp sorts its names: which of them it calls the id says nothing."""
    alias = weights_alias("a" * 64)
    for names in ((alias, "tuned-Q8_0.gguf"), ("tuned-Q8_0.gguf", alias)):
        listed = {"data": [{"id": names[0], "aliases": sorted(names)}]}
        routes = {"/v1/models": answers(200, json.dumps(listed))}
        async with FakeLlamaCpp(**routes) as server, connected(server) as model:
            identity = model.identity
        assert (identity.model, identity.weights_sha256) == ("tuned-Q8_0.gguf", "a" * 64)


@pytest.mark.parametrize(
    ("build_info", "server"),
    [
        ("b0-unknown", "llama.cpp xllamacpp-2026.10-0123456789ab"),
        ("b11549-abc", "llama.cpp b11549-abc xllamacpp-2026.10-0123456789ab"),
    ],
)
async def test_llama_cpp_identity_reads_the_build_from_the_alias(
    build_info: str, server: str
) -> None:
    alias = f"{BUILD_ALIAS}xllamacpp-2026.10-0123456789ab"
    listed = {"data": [{"id": alias, "aliases": [alias, "tuned-Q8_0.gguf"]}]}
    props = {**json.loads(PROPS), "build_info": build_info}
    routes = {
        "/v1/models": answers(200, json.dumps(listed)),
        "/props": answers(200, json.dumps(props)),
    }
    async with FakeLlamaCpp(**routes) as fake, connected(fake) as model:
        assert model.identity.server == server
        assert model.identity.model == "tuned-Q8_0.gguf"


async def test_llama_cpp_identity_prefers_a_given_name() -> None:
    """So that the address alone is enough, as with a vLLM."""
    alias = weights_alias("a" * 64)
    names = sorted(("mine", "tuned-Q8_0.gguf", alias))
    listed = {"data": [{"id": names[-1], "aliases": names}]}
    routes = {"/v1/models": answers(200, json.dumps(listed))}
    async with FakeLlamaCpp(**routes) as server, connected(server, model=None) as model:
        identity = model.identity
    assert (identity.model, identity.weights) == ("mine", "tuned-Q8_0.gguf")
    assert identity.weights_sha256 == "a" * 64


@pytest.mark.parametrize("path", ["models/tuned-Q8_0.gguf", "/tuned-Q8_0.gguf", ""])
async def test_llama_cpp_identity_reduces_a_path_to_the_file_name(path: str) -> None:
    props = answers(200, json.dumps({"build_info": "b1", "model_path": path}))
    async with FakeLlamaCpp(**{"/props": props}) as server, connected(server) as model:
        assert model.identity.weights == ("tuned-Q8_0.gguf" if path else "")
        assert (model.identity.dtype, model.identity.model) == ("", "gemma")


@pytest.mark.parametrize("wanted", [None, "tuned-Q8_0.gguf"])
async def test_llama_cpp_model_without_alias_is_named_by_its_file(
    wanted: str | None,
) -> None:
    named = {"/v1/models": models("/home/ann/tuned-Q8_0.gguf")}
    async with FakeLlamaCpp(**named) as server, connected(server, model=wanted) as model:
        identity = model.identity
    assert (identity.model, identity.weights) == ("tuned-Q8_0.gguf", "")
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


@pytest.mark.parametrize("cut", [{"stop_type": "limit"}, {"truncated": True}])
async def test_llama_cpp_detects_truncation(cut: dict[str, Any]) -> None:
    last = last_of((await answer_of(streams(native(["one", "two"], **cut))))[0])
    assert (last.reason, last.truncated) == ("length", True)


async def test_llama_cpp_stop_text_is_a_normal_end() -> None:
    last = last_of((await answer_of(streams(native(["one"], stop_type="word"))))[0])
    assert (last.reason, last.truncated) == ("stop", False)


async def test_llama_cpp_requests_stop_texts_once() -> None:
    async with (
        FakeLlamaCpp(streams(native(["a"])), streams(native(["b"]))) as server,
        connected(server) as model,
    ):
        before = len(server.headers)
        for _ in range(2):
            [_ async for _ in model.stream(REQUEST)]
        assert len(server.headers) - before == 2 + 2 + 2  # /tokenize, /completion, two marks


@pytest.mark.parametrize(
    ("behaviour", "fault"),
    [
        (answers(400, TOO_LONG), ContextTooLongError),
        (streams(native(["half"])[:-1]), StreamBrokenError),
        (streams([event({"content": 3, "tokens": [1], "stop": False})]), StreamBrokenError),
        (streams([event({"content": "a", "tokens": ["x"], "stop": False})]), StreamBrokenError),
    ],
)
async def test_llama_cpp_raises_typed_errors_and_stays_usable(
    behaviour: Behaviour, fault: type[LhkitError]
) -> None:
    async with (
        FakeLlamaCpp(behaviour, streams(native(["ok"]))) as server,
        connected(server) as model,
    ):
        with pytest.raises(fault):
            [_ async for _ in model.stream(REQUEST)]
        assert last_of([each async for each in model.stream(REQUEST)]).text == "ok"


@pytest.mark.parametrize("constraint", ["auto", "required"])
async def test_llama_cpp_refuses_a_constraint(constraint: Constraint) -> None:
    async with FakeLlamaCpp() as server:
        endpoint = Endpoint(base_url=server.base_url, constraint=constraint)
        with pytest.raises(UsageError, match="Give --constrain off"):
            await connect(endpoint)
    assert server.bodies == []


@pytest.mark.parametrize(
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
    async with FakeLlamaCpp(**routes) as server:
        model = await connect(Endpoint(base_url=server.base_url, retries=0))
        last = last_of([each async for each in model.stream(REQUEST)])
        await model.aclose()
    asked, request = bodies
    assert (asked["prompt"], asked["max_tokens"]) == ("<bos>", 1)
    assert request["prompt"].startswith(sent)
    assert last.prompt_text.startswith("<bos><start_of_turn>")  # what the model has read


async def test_llama_cpp_detokenizes() -> None:
    async with FakeLlamaCpp() as server, connected(server) as model:
        assert await model.detokenize((105, 106)) == "<start_of_turn><end_of_turn>"
