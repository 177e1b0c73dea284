"""Weights that change under one name: serve, score, serve others, score under the same name."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lhkit.cli.eval.eval_options import EvalOptions
from lhkit.cli.eval.evaluate import evaluate
from lhkit.cli.serve import serve, serve_line
from lhkit.cli.serve.serve_line import ServeOptions
from lhkit.harness.records.store import read_records
from lhkit.models.serving.gemma import served_dtype, serving_plan
from lhkit.models.serving.server import RunningServer, find_running_server
from lhkit.models.serving.vllm_server import ServerSettings
from lhkit.settings import Settings
from tests.models.fake_vllm import FakeVllm, answers, completion, models, streams

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

FAKE = Path(__file__).parents[1] / "models" / "fakes" / "fake_vllm.py"
PATIENCE_S = 240.0  # against a hang only
SCENARIO = """
- id: greeting
  ac: AC-12
  locale: en
  world: {now: "2026-06-15T09:00:00+09:00"}
  turns: [{user: hello, reply: {matches: right}}]
"""

Evaluate = Callable[[str], Awaitable[int]]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    def plan(*args: Any, **options: Any) -> ServerSettings:
        planned = serving_plan(*args, **options)
        return replace(planned, entry=("-S", str(FAKE), "--pids", str(tmp_path / "pids")))

    monkeypatch.setattr(serve_line, "serving_plan", plan)
    return Settings(cache_dir=tmp_path / "cache", locale="en", base_url=None)


@pytest.fixture
def run_eval(tmp_path: Path, settings: Settings) -> Evaluate:
    scenarios = tmp_path / "scenarios.yaml"
    scenarios.write_text(SCENARIO, encoding="utf-8")

    async def run(base_url: str) -> int:
        options = EvalOptions(
            name="served",  # the default name holds the port, which is another after a restart
            paths=(scenarios,),
            base_url=base_url,
            runs_dir=tmp_path / "runs",
            fail_under=100,
        )
        return await evaluate(options, settings)

    return run


def trained(folder: Path, says: str) -> Path:
    """Return a folder of weights, of a model that always says one thing."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text('{"model_type": "gemma3_text"}', encoding="utf-8")
    (folder / "model.safetensors").write_text(says, encoding="utf-8")
    return folder


@asynccontextmanager
async def served(weights: Path, settings: Settings) -> AsyncIterator[RunningServer]:
    """Run `lhkit serve --weights`; it ends with the block."""
    serving = asyncio.create_task(serve.serve_model(ServeOptions(weights=weights), settings))
    try:
        async with asyncio.timeout(PATIENCE_S):
            while (
                running_server := await find_running_server(settings.cache_dir, weights.name)
            ) is None:
                assert not serving.done(), serving.result()
                await asyncio.sleep(0.02)  # another process sets no Event
        yield running_server
    finally:
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving


async def test_eval_runs_second_adapter_again(
    tmp_path: Path, settings: Settings, run_eval: Evaluate, capsys: pytest.CaptureFixture[str]
) -> None:
    async with served(trained(tmp_path / "tuned/model", "wrong"), settings) as server:
        assert await run_eval(server.base_url) == 1
        assert await run_eval(server.base_url) == 1
        assert "Kept from the previous run: 1 of 1 samples." in capsys.readouterr().out
    async with served(trained(tmp_path / "tuned-2/model", "right"), settings) as server:
        assert await run_eval(server.base_url) == 0
        printed = capsys.readouterr().out
        assert "Changed: weights: model@" in printed
        assert "weights hash" not in printed
    async with served(tmp_path / "tuned/model", settings) as server:
        assert await run_eval(server.base_url) == 1  # the first one's answers are still there
    assert len(read_records(tmp_path / "runs/served")) == 2


async def test_eval_runs_overwritten_weights_again_after_server_restart(
    tmp_path: Path, settings: Settings, run_eval: Evaluate
) -> None:
    folder = trained(tmp_path / "tuned/model", "wrong")
    async with served(folder, settings) as server:
        assert await run_eval(server.base_url) == 1
        trained(folder, "right")
        assert await run_eval(server.base_url) == 1  # what was loaded is what answers
        assert len(read_records(tmp_path / "runs/served")) == 1
    async with served(folder, settings) as server:
        assert await run_eval(server.base_url) == 0


async def test_serve_does_not_reuse_server_of_overwritten_weights(
    tmp_path: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = trained(tmp_path / "tuned/model", "wrong")
    async with served(folder, settings):
        again = serve.serve_model(ServeOptions(weights=folder), settings)
        assert await again == 0
        assert f"model ({served_dtype(None)}) is already served" in capsys.readouterr().out
        trained(folder, "right")
        assert await serve._find_running("model", folder, settings) is None


async def test_eval_warns_if_server_does_not_report_weights(
    tmp_path: Path, run_eval: Evaluate, capsys: pytest.CaptureFixture[str]
) -> None:
    routes = {"/v1/models": models("gemma"), "/version": answers(404, "{}")}
    counted = answers(200, json.dumps({"usage": {"prompt_tokens": 1}}))  # each time it is met
    async with FakeVllm(counted, streams(completion(["right"])), counted, routes=routes) as server:
        assert await run_eval(server.base_url) == 0
        assert "weights hash" not in capsys.readouterr().out
        assert await run_eval(server.base_url) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert f"gemma ({server.base_url}) does not report" in output
    assert "give another --name, or serve with `lhkit serve --weights FOLDER`" in output
    manifest = json.loads((tmp_path / "runs/served/manifest.json").read_bytes())
    remarks = [each["remarks"] for each in manifest["invocations"]]
    assert remarks[0] == []
    assert "does not report a weights hash" in remarks[1][0]
