"""The real Gemma on every runtime; one vLLM server for all tests, running or started.

It parses calls itself besides, which only requests by the dialect `openai` notice.
"""

from collections.abc import AsyncIterator
from contextlib import suppress
from http import HTTPStatus

import aiohttp
import pytest
from aiohttp import web

from lhkit import app
from lhkit.cli.frame.progress import open_model
from lhkit.models.base import ChatModel
from lhkit.models.client.served import connect
from lhkit.models.client.transport import Endpoint
from lhkit.models.runtimes import LLAMA_CPP
from lhkit.settings import Settings, load_settings


@pytest.fixture(scope="session")
def settings() -> Settings:
    return load_settings()


@pytest.fixture(scope="session")
async def parsing_gemma(settings: Settings) -> AsyncIterator[ChatModel]:
    """By vLLM, whose own parser reads the calls."""
    async with open_model(app.ModelChoice(dialect="openai"), settings) as model:
        yield model


@pytest.fixture(scope="session")
async def gemma(parsing_gemma: ChatModel, settings: Settings) -> AsyncIterator[ChatModel]:
    """By the same vLLM; the dialect reads the calls."""
    base_url = parsing_gemma.identity.base_url
    async with app.open_model(app.ModelChoice(base_url=base_url), settings) as model:
        yield model


@pytest.fixture(scope="session")
def light(settings: Settings) -> Settings:
    """The same settings, by llama.cpp."""
    return settings.model_copy(update={"runtime": LLAMA_CPP, "base_url": None})


@pytest.fixture(scope="session")
async def light_gemma(light: Settings) -> AsyncIterator[ChatModel]:
    """By llama.cpp, started by lhkit as eval and chat start it."""
    async with app.open_model(app.ModelChoice(), light) as model:
        yield model


@pytest.fixture(scope="session")
async def plain_gemma(light_gemma: ChatModel) -> AsyncIterator[ChatModel]:
    """By llama.cpp through a door that knows only `/v1`."""
    behind = light_gemma.identity.base_url

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
