"""What a server of ours took: of one that was started, found running, named by address, or gone."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from lhkit import app
from lhkit.cli.evaluate import evaluate
from lhkit.cli.options import EvalOptions
from lhkit.harness.manifest import Provenance
from lhkit.harness.run import replay
from lhkit.harness.store import read_manifest
from lhkit.lifehelper.toolset import LIFE_HELPER
from lhkit.models.footprint import memory_bytes, watched, weights_bytes
from lhkit.models.running_servers import RunningServer, after_boot_s
from lhkit.models.vllm_server import ServerSettings, VllmServer
from lhkit.responses import Footprint
from lhkit.scale import SCRIPTED
from lhkit.settings import Settings, load_settings
from tests.models.fake_vllm import FakeVllm, completion, streams

pytestmark = pytest.mark.anyio

FAKE = Path(__file__).parent / "fakes" / "fake_vllm.py"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("LHKIT_CACHE_DIR", str(tmp_path / "cache"))
    return load_settings()


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    folder = tmp_path / "weights"
    folder.mkdir()
    for name in ("model-1.safetensors", "model-2.safetensors", "README.md"):
        (folder / name).write_bytes(b"x" * 100)
    return folder


def test_the_size_is_that_of_the_file_or_of_all_weights_of_a_folder(weights: Path) -> None:
    assert weights_bytes(weights) == 200
    assert weights_bytes(weights / "README.md") == 100
    assert weights_bytes(weights.parent) is None
    assert weights_bytes(weights / "gone") is None


async def test_a_started_server_tells_how_long_it_took_and_is_looked_at(weights: Path) -> None:
    server = VllmServer(
        ServerSettings(
            model=weights,
            served_name="fake",
            log_path=weights.parent / "server.log",
            entry=("-S", str(FAKE), "--pids", str(weights.parent / "pids")),
        )
    )
    assert server.start_s is None
    async with (
        server,
        watched(server.pid, weights=weights, start_s=server.start_s) as told,
    ):
        found = told()
    assert found.start_s is not None
    assert found.memory_bytes is not None
    assert found.weights_bytes == 200
    assert told() == found  # a server that has ended takes nothing away


async def test_of_a_process_that_is_gone_or_started_nothing_nobody_knows_the_memory() -> None:
    gone = 2**22 + 1  # above the largest id that Linux gives
    assert memory_bytes(gone) is None
    async with watched(gone, weights=Path("nowhere")) as told:
        assert told() == Footprint()


def advertise(settings: Settings, server: FakeVllm, weights: Path) -> None:
    running = RunningServer(
        served_name="gemma",
        base_url=f"{server.base_url}/v1",
        model=str(weights),
        pid=os.getpid(),
        after_boot_s=after_boot_s(os.getpid()),
        start_s=12.5,
    )
    path = settings.cache_dir / "servers" / "gemma.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(asdict(running)))


async def evaluated(settings: Settings, tmp_path: Path, weights: Path | None) -> dict[str, Any]:
    async with FakeVllm(streams(completion(["안녕하세요!"]))) as server:
        if weights is not None:
            advertise(settings, server, weights)
        options = EvalOptions(
            paths=(Path("datasets/ac/dev/ac12.yaml"),),
            limit=1,
            base_urls=(server.base_url,),
            name="mine",
            runs_dir=tmp_path,
        )
        await evaluate(options, settings)
    manifest = read_manifest(tmp_path / "mine")
    (invocation,) = manifest["invocations"]
    return invocation


async def test_a_server_of_ours_that_was_found_at_an_address_tells_what_serve_wrote_down(
    settings: Settings, tmp_path: Path, weights: Path
) -> None:
    invocation = await evaluated(settings, tmp_path, weights)
    found = invocation["footprint"]
    assert (found["start_s"], found["weights_bytes"]) == (12.5, 200)
    assert invocation["server_s"] == 0.0  # nobody waited for it now


async def test_of_a_server_of_somebody_else_nothing_is_written_down(
    settings: Settings, tmp_path: Path
) -> None:
    invocation = await evaluated(settings, tmp_path, None)
    assert invocation["footprint"] is None


async def test_a_run_keeps_what_its_server_had_taken_at_the_end() -> None:
    taken = iter((1, 2, 3))
    run = await replay(
        app.shipped_scenarios("ac12-small-talk-ko-01"),
        SCRIPTED["gold"](),
        toolset=LIFE_HELPER,
        provenance=Provenance(footprint=lambda: Footprint(memory_bytes=next(taken))),
        progress=False,
    )
    assert next(taken) == 3  # asked at the start, for who is killed, and at the end
    (invocation,) = run.manifest["invocations"]
    assert invocation["footprint"]["memory_bytes"] == 2
