"""A run on a fast server that two processes share without being asked."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lhkit import scale
from lhkit.base.errors import SetupError
from lhkit.cli.eval import replicas
from lhkit.cli.eval.eval_options import EvalOptions
from lhkit.cli.eval.eval_run import run_eval
from lhkit.cli.eval.replicas import SHARING_LIMITS, SharingLimits
from lhkit.harness.records.record import SampleRecord, Verdict
from lhkit.harness.records.store import read_manifest, read_records
from lhkit.scale import Placement
from lhkit.scale.placement import ReplicaInfo
from lhkit.scale.replica import Replica
from lhkit.settings import Settings
from tests.models.fake_vllm import FakeVllm, completion, models, streams
from tests.scale.test_runner import FakeCluster

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

SCENARIO = """
- id: greeting-{n}
  ac: AC-12
  locale: en
  world: {{now: "2026-06-15T09:00:00+09:00"}}
  turns: [{{user: hello {n}, reply: {{matches: {reply}}}}}]
"""
COUNT = 4
LOW = SharingLimits(conversations=64, cores=1, samples=COUNT)
STARTS = (
    "64 conversations at once, 32 in each of 2 Ray replicas on this machine, because one process "
    "of lhkit would be slower than the server. --concurrency 64 keeps one process."
)


class Run:
    """Runs `lhkit eval` on a fake server, with replicas in this process."""

    def __init__(self, folder: Path, seqs: int = 64) -> None:
        self.placements: list[Placement] = []
        self.replica: type[Replica] = Replica
        self.seqs = seqs
        self._folder = folder
        self._suite = folder / "greetings.yaml"
        replies = [SCENARIO.format(n=n, reply="right" if n % 2 else "other") for n in range(COUNT)]
        self._suite.write_text("".join(replies), encoding="utf-8")

    @asynccontextmanager
    async def connect(self, placement: Placement, toolset: str, _: Path) -> AsyncIterator[Any]:
        self.placements.append(placement)
        cluster = FakeCluster(placement=placement, toolset=toolset, replica=self.replica)
        yield cluster
        await cluster.end()

    async def __call__(self, name: str, limits: SharingLimits = LOW, **options: Any) -> None:
        server = FakeVllm(
            routes={
                "/v1/models": models("gemma", f"lhkit-max-num-seqs-{self.seqs}"),
                "/v1/completions": streams(completion(["right"])),  # also those of the warm-up
            }
        )
        async with server:
            given = EvalOptions(
                paths=(self._suite,),
                base_url=server.base_url,
                dialect="json",
                runs_dir=self._folder,
                name=name,
                **options,
            )
            settings = Settings(locale="en", cache_dir=self._folder / "cache")
            assert await run_eval(given, settings, start_s=0.0, sharing=limits) == 0

    def records(self, name: str) -> list[SampleRecord]:
        return sorted(read_records(self._folder / name), key=lambda each: each.sample_id.scenario)

    def reason(self, name: str) -> tuple[int, str]:
        last = read_manifest(self._folder / name).invocations[-1]
        return last.concurrency, last.concurrency_reason


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    run = Run(tmp_path)
    monkeypatch.setattr(scale, "connect", run.connect)
    return run


async def test_two_processes_give_verdicts_of_one(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    await run("two")
    assert run.placements == [Placement(address="local", replicas=2)]
    assert STARTS in capsys.readouterr().err
    assert run.reason("two") == (64, "replicas")
    await run("one", SHARING_LIMITS)
    assert len(run.placements) == 1
    assert "Ray" not in capsys.readouterr().err
    assert run.reason("one") == (64, "batch")
    both = [
        [(each.sample_id, each.content_hash, each.score.verdict) for each in run.records(name)]
        for name in ("two", "one")
    ]
    assert both[0] == both[1]
    assert {verdict for *_, verdict in both[0]} == {Verdict.PASS, Verdict.FAIL}


async def test_each_condition_keeps_one_process(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await run("samples", replace(LOW, samples=COUNT + 1))
    await run("asked", concurrency=64)
    run.seqs = 63
    await run("seqs")
    run.seqs = 64
    with monkeypatch.context() as patch:
        patch.setattr(replicas, "isolation_issue", lambda _: "its sessions share data")
        await run("shared")
    await run("all", SHARING_LIMITS)
    await run("stopping", stop_when_decided=True, baseline="all", exit_zero=True)
    monkeypatch.setattr(replicas, "usable_cores", lambda: 3)
    await run("cores", replace(LOW, cores=4))
    assert run.placements == []
    assert "Ray" not in capsys.readouterr().err
    monkeypatch.setattr(replicas, "usable_cores", lambda: 4)
    await run("enough", replace(LOW, cores=4))
    assert len(run.placements) == 1


async def test_recorded_samples_do_not_count(run: Run) -> None:
    await run("part", limit=1)
    assert run.placements == []
    await run("part")
    assert run.placements == []
    assert len(run.records("part")) == COUNT


async def test_missing_ray_is_named(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(replicas, "find_spec", lambda _: None)
    await run("no-ray")
    assert run.placements == []
    line = "Two processes share them if Ray is installed: `pip install 'lhkit[ray]'`."
    assert line in capsys.readouterr().err


class Broken(Replica):
    async def start(self) -> ReplicaInfo:
        raise SetupError("no room in here")


class Different(Replica):
    async def start(self) -> ReplicaInfo:
        info = await super().start()
        assert info.identity is not None
        return info._replace(identity=replace(info.identity, dtype="float32"))


@pytest.mark.parametrize(
    ("replica", "why"),
    [
        (Broken, "no room in here"),
        (Different, "the replicas identify the server differently (dtype)"),
    ],
)
async def test_one_process_runs_what_replicas_cannot(
    run: Run, replica: type[Replica], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run.replica = replica
    await run("given-up")
    assert len(run.placements) == 1
    printed = capsys.readouterr().err
    assert "No Ray replicas, so one process runs the conversations: " in printed
    assert why in printed
    assert run.reason("given-up") == (64, "batch")
    assert len(run.records("given-up")) == COUNT
