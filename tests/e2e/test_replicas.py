"""A Ray replica with its own vLLM, compared with one process and its server."""

import asyncio
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from lhkit.harness.records.record import SampleRecord, Verdict
from lhkit.harness.records.store import read_records
from lhkit.models.base import ChatModel
from lhkit.scale import LOG
from lhkit.settings import Settings
from tests.children import search_paths

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.model,
    pytest.mark.nightly,
    pytest.mark.timeout(1200),
]

ASKED = ("--limit", "2", "--max-tokens", "32", "--concurrency", "1", "--exit-zero")


async def test_replica_matches_one_process(
    gemma: ChatModel, settings: Settings, tmp_path: Path
) -> None:
    def lhkit(name: str, *more: str) -> tuple[SampleRecord, ...]:
        words = ("eval", *ASKED, "--name", name, "--runs-dir", str(tmp_path), *more)
        done = subprocess.run(
            [sys.executable, "-m", "lhkit", *words],
            env={
                **search_paths(),
                "HOME": str(tmp_path),
                "LHKIT_CACHE_DIR": str(settings.cache_dir),
                "LHKIT_LOCALE": "en",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return read_records(tmp_path / name)

    alone = await asyncio.to_thread(lhkit, "alone", "--base-url", gemma.identity.base_url)
    placed = await asyncio.to_thread(lhkit, "placed", "--ray", "local")
    assert verdicts(placed) == verdicts(alone)
    assert Verdict.INVALID not in verdicts(placed).values()
    (address,) = addresses(placed)
    assert address not in addresses(alone)
    log = (tmp_path / "placed" / LOG).read_text(encoding="utf-8")
    assert "(server) " in log  # what vLLM said, before it was ended
    async with asyncio.timeout(120):
        while await answers(address):
            pass  # asking takes its time


def verdicts(records: tuple[SampleRecord, ...]) -> dict[str, Verdict]:
    return {each.sample_id.scenario: each.score.verdict for each in records}


def addresses(records: tuple[SampleRecord, ...]) -> set[str]:
    calls = [
        call for each in records for turn in each.trajectory.turns for call in turn.model_calls
    ]
    return {each.response.identity.base_url for each in calls if each.response.identity}


async def answers(address: str) -> bool:
    try:
        async with aiohttp.ClientSession() as session, session.get(f"{address}/models"):
            return True
    except aiohttp.ClientError:
        return False
