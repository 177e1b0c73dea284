"""The real Gemma behind a real vLLM: one server for all tests here, found running or started."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lhkit import app
from lhkit.commands.progress import opened_model
from lhkit.models.base import ChatModel
from lhkit.settings import Settings, load_settings


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What needs a file that no test can make is no test at all, but for who names one."""
    needs_file = collection_path.name == "test_litert.py"
    return True if needs_file and config.getoption("--litertlm") is None else None


@pytest.fixture(scope="session")
def settings() -> Settings:
    return load_settings()


@pytest.fixture(scope="session")
async def gemma(settings: Settings) -> AsyncIterator[ChatModel]:
    async with opened_model(app.ModelChoice(), settings) as model:
        yield model
