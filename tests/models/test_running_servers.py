import json
import os
from collections.abc import AsyncIterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
from aiohttp import web

from lhkit.models.serving.server import (
    HOST,
    RunningServer,
    after_boot_s,
    find_running_server,
    register_server,
)
from lhkit.models.serving.vllm_server import ServerSettings, VllmServer

pytestmark = pytest.mark.anyio

FAKE = Path(__file__).parent / "fakes" / "fake_vllm.py"
NAME = "google/gemma"


@pytest.fixture
async def here() -> AsyncIterator[RunningServer]:
    """A server that answers, in this very process."""
    app = web.Application()
    app.router.add_get("/health", _answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, HOST, 0)
    await site.start()
    yield RunningServer(
        served_name=NAME,
        base_url=f"http://{HOST}:{runner.addresses[0][1]}/v1",
        model="/weights",
        pid=os.getpid(),
        after_boot_s=after_boot_s(os.getpid()),
        options=("--port", "1"),
    )
    await runner.cleanup()


async def _answer(_: web.Request) -> web.Response:
    return web.Response()


def write(cache_dir: Path, text: str) -> Path:
    path = cache_dir / "servers" / "google%2Fgemma.json"
    path.parent.mkdir()
    path.write_text(text)
    return path


@pytest.mark.longer
async def test_registered_server_is_found_until_its_block_ends(tmp_path: Path) -> None:
    settings = ServerSettings(
        model=tmp_path,
        served_name=NAME,
        log_path=tmp_path / "server.log",
        entry=("-S", str(FAKE), "--pids", str(tmp_path / "pids")),
    )
    async with VllmServer(settings) as server:
        async with register_server(tmp_path, server) as running:
            running_server = await find_running_server(tmp_path, NAME)
            assert running_server == running
            assert running.base_url == server.base_url
            assert "--served-model-name" in running.options
            assert await find_running_server(tmp_path, "another") is None
        assert await find_running_server(tmp_path, NAME) is None


@pytest.mark.parametrize("seconds", [-86_400, 3_600])
async def test_find_running_server_ignores_clock_changes(
    tmp_path: Path, here: RunningServer, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    path = write(tmp_path, json.dumps(asdict(here)))
    booted = psutil.boot_time() + seconds  # the kernel reckons it back from the present clock
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: booted)
    assert await find_running_server(tmp_path, NAME) == here
    assert path.exists()


async def test_find_running_server_compares_the_folder(tmp_path: Path, here: RunningServer) -> None:
    path = write(tmp_path, json.dumps(asdict(here)))
    assert await find_running_server(tmp_path, NAME, model=Path("/weights")) == here
    assert await find_running_server(tmp_path, NAME, model=Path("/other")) is None
    assert path.exists()


async def test_register_server_keeps_the_dtype_that_vllm_chose(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(
        "(APIServer pid=1) INFO non-default args: {'dtype': 'auto'}\n"
        "(EngineCore pid=2) INFO 11-28 [core.py:114] Initializing a V1 LLM engine (v0.25.1) with "
        "config: model='m', trust_remote_code=False, dtype=torch.float16, max_seq_len=8192\n",
        encoding="utf-8",
    )
    plan = ServerSettings(model=tmp_path, served_name=NAME, log_path=log)
    assert plan.started_dtype() == "float16"
    server = VllmServer(plan)
    server._reaper = cast(Any, psutil.Process())  # of this process, which lives
    async with register_server(tmp_path, server) as running:
        assert running.dtype == "float16"
    assert replace(plan, log_path=tmp_path / "none").started_dtype() == ""


async def test_find_running_server_compares_the_dtype(tmp_path: Path, here: RunningServer) -> None:
    settings = ServerSettings(
        model=tmp_path, served_name=NAME, log_path=tmp_path / "log", dtype="float32"
    )
    served = replace(here, options=settings.arguments(1))
    path = write(tmp_path, json.dumps(asdict(served)))
    assert served.dtype == "float32"
    assert await find_running_server(tmp_path, NAME) == served
    assert await find_running_server(tmp_path, NAME, dtype="float32") == served
    assert await find_running_server(tmp_path, NAME, dtype="bfloat16") is None
    assert path.exists()


@pytest.mark.parametrize(
    "change",
    [{"pid": 2**22 + 1}, {"after_boot_s": -1.0}, "", "[]", "{}", '{"pid": 1}'],
    ids=["dead", "other process, same pid", "empty", "list", "no field", "one field"],
)
async def test_find_running_server_deletes_a_stale_or_invalid_registration(
    tmp_path: Path, here: RunningServer, change: dict[str, float] | str
) -> None:
    text = change if isinstance(change, str) else json.dumps(asdict(here) | change)
    path = write(tmp_path, text)
    assert await find_running_server(tmp_path, NAME) is None
    assert not path.exists()


async def test_find_running_server_keeps_an_unresponsive_server_registered(
    tmp_path: Path, here: RunningServer
) -> None:
    silent = replace(here, base_url=f"http://{HOST}:9/v1")
    path = write(tmp_path, json.dumps(asdict(silent)))
    assert await find_running_server(tmp_path, NAME) is None
    assert path.exists()
