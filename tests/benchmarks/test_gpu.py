"""The script for the graphics card, run on a server that answers at once."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.benchmarks.conftest import BENCHMARKS
from tests.models.fake_vllm import FakeVllm, completion, streams

pytestmark = [pytest.mark.anyio, pytest.mark.nightly]

BROKEN_BENCH = "raise RuntimeError('this vLLM has no benchmark')"


async def answers_lhkit_only(request: web.Request) -> web.StreamResponse:
    """Answer what lhkit sends; the bare client, which ignores the end, waits for ever."""
    is_bare = "ignore_eos" in await request.json()
    events = [] if is_bare else completion(["Hello", " there."])
    return await streams(events, "stall" if is_bare else "end")(request)


async def test_gpu_reports_failed_and_late_steps_beside_the_rest(tmp_path: Path) -> None:
    package = tmp_path / "packages" / "vllm"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(BROKEN_BENCH, encoding="utf-8")
    out = tmp_path / "out"
    async with FakeVllm(routes={"/v1/completions": answers_lhkit_only}) as server:
        options = {
            "--base-url": f"{server.base_url}/v1",
            "--cpu-run": str(tmp_path / "no-such-run"),
            "--concurrency": "2",
            "--per-stream": "1",
            "--processes": "2",
            "--limit": "3",
            "--step-limit-s": "bare=1",
            "--out": str(out),
            "--work": str(tmp_path / "work"),
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(BENCHMARKS / "gpu.py"),
            *(word for option in options.items() for word in option),
            env={
                "PYTHONPATH": f"{tmp_path / 'packages'}:{BENCHMARKS.parents[1]}",
                "PATH": "/usr/bin",
            },
        )
        assert await process.wait() == 0
    figures: dict[str, Any] = json.loads((out / "gpu.json").read_text(encoding="utf-8"))
    outcomes = {step["name"]: step["outcome"] for step in figures["steps"]}
    assert outcomes.pop("compare").startswith("failed: lhkit compare ended with 2")
    assert "this vLLM has no benchmark" in outcomes.pop("vllm-bench, 2 at once")
    assert outcomes.pop("bare, 2 at once") == "failed: not done after 1 s"
    assert set(outcomes.values()) == {"done"}
    assert [(row["title"], row["loads"][0]["failed"]) for row in figures["rows"]] == [
        ("lhkit", 0),
        ("lhkit, 2 processes", 0),
    ]
    assert all(row["output_tokens_per_s"] > 0 for row in figures["rows"])
    page = (out / "gpu.md").read_text(encoding="utf-8")
    assert "| total " in page.replace("│", "|")
    assert "- 2 at once: not known" in page
