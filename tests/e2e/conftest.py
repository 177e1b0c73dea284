"""The real Gemma behind a real vLLM: one server for all tests here, found running or started."""

from collections.abc import AsyncIterator

import pytest

from lhkit import app
from lhkit.commands.progress import opened_model
from lhkit.models.base import ChatModel
from lhkit.settings import Settings, load_settings


@pytest.fixture(scope="session")
def settings() -> Settings:
    return load_settings()


@pytest.fixture(scope="session")
async def gemma(settings: Settings) -> AsyncIterator[ChatModel]:
    async with opened_model(app.ModelChoice(), settings) as model:
        yield model
