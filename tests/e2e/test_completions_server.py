"""A server of which only `/v1` is there: llama.cpp's, behind a door that hides the rest.

It tells no token ids and puts a `<bos>` before every prompt; what each runtime has to do it does.
"""

from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from http import HTTPStatus

import aiohttp
import pytest
from aiohttp import web
from tokenizers import Tokenizer

from lhkit.errors import ContextTooLongError
from lhkit.models.base import ChatModel
from lhkit.models.http import Endpoint
from lhkit.models.light import AT_ONCE, LlamaCppServer, ensure_light, light_plan
from lhkit.models.served import connect
from lhkit.models.vllm import VllmHttp
from lhkit.models.weights import ensure_tuned
from lhkit.settings import Settings
from tests.e2e.test_llama_cpp import SAID, answered, asked

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.gemma,
    pytest.mark.timeout(600),
    pytest.mark.promise("runtimes.completions"),
]


@pytest.fixture(scope="module")
async def behind(settings: Settings) -> AsyncIterator[str]:
    """The address of llama.cpp's own server."""
    file = await ensure_light(settings.cache_dir)
    plan = await light_plan("gemma", file, settings.cache_dir, settings.now())
    async with LlamaCppServer(plan) as server:
        yield server.base_url.removesuffix("/v1")


@pytest.fixture(scope="module")
async def served(behind: str) -> AsyncIterator[ChatModel]:
    """It, seen through a door that knows only `/v1`."""

    async def passed(request: web.Request) -> web.StreamResponse:
        if not request.path.startswith("/v1/"):
            return web.Response(status=HTTPStatus.NOT_FOUND)
        body = await request.read()
        headers = {"Content-Type": "application/json"}
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                request.method, behind + request.path, data=body or None, headers=headers
            ) as answer,
        ):
            response = web.StreamResponse(status=answer.status)
            response.content_type = answer.content_type
            await response.prepare(request)
            with suppress(ConnectionError):  # who asked has gone: so do we
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
            return response

    application = web.Application(client_max_size=2**24)
    application.router.add_route("*", "/{path:.*}", passed)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    model = await connect(Endpoint(base_url=f"http://127.0.0.1:{port}", model="gemma"))
    try:
        yield model
    finally:
        await model.aclose()
        await runner.cleanup()


async def test_it_is_no_server_that_lhkit_knows_and_its_answers_are_told_under_its_name(
    served: ChatModel,
) -> None:
    assert isinstance(served, VllmHttp)
    assert served.identity.server == "unknown server"
    _, last = await answered(served, asked("안녕!"))
    assert last.identity == served.identity
    assert (last.token_ids, last.prompt_token_ids) == ((), ())  # left empty, never guessed


@pytest.mark.parametrize("text", SAID)
async def test_the_prompt_has_as_many_tokens_as_vllm_reads_with_one_bos(
    served: ChatModel, settings: Settings, text: str
) -> None:
    _, last = await answered(served, asked(text, max_tokens=1))
    folder = await ensure_tuned(settings.cache_dir)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = tokenizer.encode(last.prompt_text, add_special_tokens=False).ids
    assert last.usage.prompt_tokens == len(ids)
    assert last.prompt_text.startswith("<bos><start_of_turn>")


async def test_it_says_the_same_as_through_llama_cpps_own_protocol(
    served: ChatModel, behind: str
) -> None:
    native = await connect(Endpoint(base_url=behind, model="gemma"))
    try:
        for text in SAID:
            ours, theirs = [
                (await answered(model, asked(text, is_bare=True)))[1] for model in (served, native)
            ]
            assert (ours.raw_text, ours.reason) == (theirs.raw_text, theirs.reason)
            assert ours.usage.prompt_tokens == theirs.usage.prompt_tokens
    finally:
        await native.aclose()


async def test_it_stops_at_the_end_of_its_turn_and_streams_in_order(served: ChatModel) -> None:
    words, last = await answered(served, asked("안녕!"))
    assert (last.reason, last.truncated) == ("stop", False)
    assert "<" not in last.raw_text
    assert len(words) > 1
    assert "".join(words).strip() == last.text.strip()


async def test_times_are_of_the_first_and_the_last_piece(served: ChatModel) -> None:
    _, last = await answered(served, asked("안녕!", is_bare=True))
    first_s, last_s = last.timing.first_token_s, last.timing.last_token_s
    assert first_s is not None
    assert last_s is not None
    assert 0 < first_s <= last_s


async def test_the_limit_of_tokens_cuts(served: ChatModel) -> None:
    _, last = await answered(served, asked("안녕!", max_tokens=3, is_bare=True))
    assert (last.reason, last.truncated, last.usage.completion_tokens) == ("length", True, 3)


async def test_greedy_twice_is_the_same(served: ChatModel) -> None:
    request = asked("카페인 줄이는 법 찾아줘")
    first, second = [(await answered(served, request))[1] for _ in range(2)]
    assert first.raw_text == second.raw_text != ""


async def test_leaving_early_frees_the_slot(served: ChatModel) -> None:
    """More are left than the server has slots: else the last would wait for the first to end."""
    request = asked("카페인이 뭐야? 아주 길게 설명해 줘.", max_tokens=400, is_bare=True)
    for _ in range(AT_ONCE + 1):
        async with aclosing(served.stream(request)) as events:  # type: ignore[type-var] # a generator
            await anext(events)
    _, last = await answered(served, asked("안녕!", max_tokens=2, is_bare=True))
    assert last.raw_text


async def test_a_prompt_that_is_too_long_is_a_typed_fault(served: ChatModel) -> None:
    with pytest.raises(ContextTooLongError):
        await answered(served, asked("아주 길다. " * 6000))
    assert (await answered(served, asked("안녕!", max_tokens=2, is_bare=True)))[1].raw_text
