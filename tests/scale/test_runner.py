"""RaySampleRunner on a simulated cluster: sample distribution and lost replicas."""

import asyncio
import logging
import platform
import re
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lhkit import scale
from lhkit.__main__ import main
from lhkit.app import ModelChoice
from lhkit.base.errors import ServerUnreachableError, SetupError, UsageError
from lhkit.cli.matrix import MatrixOptions, run_matrix
from lhkit.conversation.responses import ModelIdentity
from lhkit.harness.authoring.reference import REFERENCE_MODELS
from lhkit.harness.records.manifest import versions
from lhkit.harness.records.record import Verdict
from lhkit.harness.records.store import read_manifest, read_records
from lhkit.harness.results.results import Run
from lhkit.harness.running.run import EncodedRecord, replay
from lhkit.harness.running.run_options import RunOptions
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.lifehelper.shipped import scenario_paths
from lhkit.scale.cluster import Cluster, ReplicaLostError, _logging_to
from lhkit.scale.placement import (
    Placement,
    ReplicaConfig,
    ReplicaInfo,
    Resources,
    SampleRequest,
    require_model,
)
from lhkit.scale.replica import Replica
from lhkit.scale.runner import RaySampleRunner
from lhkit.settings import Settings
from lhkit.toolset import load

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

FEW = 12
CONFIG = ReplicaConfig(options=RunOptions(model="silent"), concurrency=2)
TOOLSET = load()


class Method:
    """A method of an actor: `remote` calls it, unless the actor is dead by then."""

    def __init__(self, actor: "Actor", call: Callable[..., Coroutine[Any, Any, Any]]) -> None:
        self._actor = actor
        self._call = call

    def remote(self, *args: Any) -> "asyncio.Task[Any]":
        return self._actor.run(self._call(*args))


class Actor:
    """A replica in this process. It dies after `takes` calls of `collect`."""

    def __init__(self, replica: Replica, takes: int | None) -> None:
        self._replica = replica
        self._takes = takes
        self._dead = asyncio.Event()

    def __getattr__(self, name: str) -> Method:
        return Method(self, getattr(self._replica, name))

    @property
    def collect(self) -> Method:
        return Method(self, self._collect)

    async def _collect(self, requests: Sequence[SampleRequest]) -> Any:
        if self._takes == 0:
            self.die()
            await asyncio.Event().wait()
        self._takes = None if self._takes is None else self._takes - 1
        return await self._replica.collect(requests)

    def die(self) -> None:
        self._dead.set()

    async def end(self) -> None:
        """Close what a process closes when it ends."""
        await self._replica.stop()

    def run(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = asyncio.create_task(self._until_dead(work))
        task.add_done_callback(lambda _: work.close())  # it may be cancelled before it began
        return task

    async def _until_dead(self, work: Coroutine[Any, Any, Any]) -> Any:
        task, death = asyncio.ensure_future(work), asyncio.ensure_future(self._dead.wait())
        try:
            await asyncio.wait({task, death}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise ReplicaLostError("it was killed")
            return task.result()
        finally:
            task.cancel()
            death.cancel()
            await asyncio.gather(task, death, return_exceptions=True)


@dataclass(kw_only=True)
class FakeCluster:
    """A `scale.Cluster` without Ray; `lives` limits the calls of each new actor."""

    placement: Placement
    toolset: str = "life-helper"
    lives: list[int | None] = field(default_factory=list)
    replica: Callable[[ReplicaConfig, Sequence[Scenario]], Replica] = Replica
    started: list[Actor] = field(default_factory=list)
    has_room: bool = True

    def put(self, value: Any) -> Any:
        return value

    def start(self, config: ReplicaConfig, scenarios: Sequence[Scenario]) -> Actor:
        takes = self.lives.pop(0) if self.lives else None
        self.started.append(Actor(self.replica(config, scenarios), takes))
        return self.started[-1]

    def kill(self, actor: Actor) -> None:
        actor.die()

    async def result(self, requests: "asyncio.Task[Any]") -> Any:
        return await requests

    async def end(self) -> None:
        """End the processes of all replicas."""
        for actor in self.started:
            await actor.end()

    def free_resources(self) -> Resources:
        return Resources(0, 1)

    def missing_resources(self) -> str:
        return "" if self.has_room else "a replica requires more than any node has"


@dataclass(kw_only=True)
class CheckedCluster(FakeCluster):
    """A cluster that notices many checks of its resources."""

    checks: int = 0
    was_checked_often: asyncio.Event = field(default_factory=asyncio.Event)

    def missing_resources(self) -> str:
        self.checks += 1
        if self.checks >= 100:
            self.was_checked_often.set()
        return super().missing_resources()


@pytest.fixture(scope="module")
def scenarios() -> tuple[Scenario, ...]:
    return load_scenarios(scenario_paths("dev"), limit=FEW)


def fake_cluster(*lives: int | None, replicas: int = 2, **more: Any) -> FakeCluster:
    return FakeCluster(
        placement=Placement(address="local", replicas=replicas), lives=[*lives], **more
    )


class Unplaced(Replica):
    """A replica that is never placed."""

    async def node(self) -> str:
        await asyncio.Event().wait()
        raise AssertionError


async def no_pause(_: float) -> None:
    await asyncio.sleep(0)


async def run_on(
    scenarios: Sequence[Scenario],
    cluster: FakeCluster,
    folder: Path,
    config: ReplicaConfig = CONFIG,
) -> tuple[Run, RaySampleRunner]:
    async with RaySampleRunner(cluster, config, scenarios, sleep=no_pause) as runner:  # type: ignore[arg-type]
        run = await replay(
            scenarios,
            REFERENCE_MODELS[config.options.model](),
            toolset=TOOLSET,
            runner=runner,
            run_dir=folder,
            concurrency=4,
            sleep=no_pause,
            progress=False,
        )
    return run, runner


def verdicts(run: Run) -> dict[str, Verdict]:
    return {each.sample_id.scenario: each.score.verdict for each in run.records}


async def test_replicas_produce_same_journal_as_one_process(
    scenarios: Sequence[Scenario], tmp_path: Path
) -> None:
    alone = await replay(
        scenarios,
        REFERENCE_MODELS["silent"](),
        toolset=TOOLSET,
        run_dir=tmp_path / "alone",
        progress=False,
    )
    run, runner = await run_on(scenarios, fake_cluster(), tmp_path / "many")
    assert verdicts(run) == verdicts(alone)
    assert len(read_records(tmp_path / "many")) == FEW
    hashes = {each.content_hash for each in alone.records}
    assert {each.content_hash for each in run.records} == hashes
    manifests = [read_manifest(tmp_path / each) for each in ("alone", "many")]
    assert manifests[0].content_hashes == manifests[1].content_hashes
    assert len(runner.losses) == 0


async def test_replicas_run_wordings(tmp_path: Path) -> None:
    (scenario,) = load_scenarios(scenario_paths("dev"), limit=1)
    wordings = list(scenario.wordings())
    async with RaySampleRunner(fake_cluster(), CONFIG, wordings, sleep=no_pause) as runner:  # type: ignore[arg-type]
        run = await replay(
            [scenario],
            REFERENCE_MODELS["silent"](),
            toolset=TOOLSET,
            runner=runner,
            run_dir=tmp_path,
            variants=True,
            progress=False,
        )
    users = [record.trajectory.turns[0].user for record in run.records]
    assert users == list(scenario.turns[0].texts)


async def test_replicas_resume_run_of_one_process(
    scenarios: Sequence[Scenario], tmp_path: Path
) -> None:
    few = scenarios[:5]
    await replay(
        few, REFERENCE_MODELS["silent"](), toolset=TOOLSET, run_dir=tmp_path, progress=False
    )
    run, _ = await run_on(scenarios, fake_cluster(), tmp_path)
    assert (run.kept, len(read_records(tmp_path))) == (5, FEW)


@pytest.mark.parametrize("takes", [0, 1])
async def test_samples_of_lost_replica_are_run_once_by_another(
    takes: int, scenarios: Sequence[Scenario], tmp_path: Path
) -> None:
    cluster = fake_cluster(takes, takes)
    run, runner = await run_on(scenarios, cluster, tmp_path)
    assert len(read_records(tmp_path)) == FEW
    assert Verdict.INVALID not in verdicts(run).values()
    assert len(runner.losses) >= 1
    # one for each that died; the run may be over before the last one is replaced
    assert 2 <= len(cluster.started) <= 2 + len(runner.losses)


async def test_repeated_losses_make_remaining_samples_invalid(
    scenarios: Sequence[Scenario], tmp_path: Path
) -> None:
    run, runner = await run_on(scenarios, fake_cluster(*[0] * 40), tmp_path)
    assert set(verdicts(run).values()) == {Verdict.INVALID}
    assert run.records[0].trajectory.error == (
        "not tried: 6 replicas were lost in a row without a finished sample (it was killed)"
    )
    again, _ = await run_on(scenarios, fake_cluster(), tmp_path)
    assert Verdict.INVALID not in verdicts(again).values()
    assert 6 <= len(runner.losses) <= 7  # the other one may die while the sixth death is counted


@pytest.mark.slow
async def test_runner_fails_without_large_enough_node(
    scenarios: Sequence[Scenario], tmp_path: Path
) -> None:
    cluster = fake_cluster(replica=Unplaced, has_room=False)
    with pytest.raises(ServerUnreachableError, match="more than any node has"):
        await run_on(scenarios, cluster, tmp_path)


async def test_on_wait_is_called_once_with_free_resources(
    scenarios: Sequence[Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lhkit.scale.runner._POLL_S", 0.001)
    monkeypatch.setattr("lhkit.scale.runner._REPORT_WAIT_AFTER_S", 0.005)
    reports: list[Resources] = []
    cluster: Any = CheckedCluster(placement=fake_cluster().placement, replica=Unplaced)

    async def begin() -> None:
        async with RaySampleRunner(cluster, CONFIG, scenarios, on_wait=reports.append):
            raise AssertionError

    begun = asyncio.create_task(begin())
    await cluster.was_checked_often.wait()
    begun.cancel()
    with suppress(asyncio.CancelledError):
        await begun
    assert reports == [Resources(gpus=0, cpus=1)]


@pytest.mark.parametrize(
    ("requests", "nodes", "lacking", "options"),
    [
        (
            {"gpus": 2},
            [{"GPU": 1, "CPU": 8}, {"CPU": 4}],
            "2 GPUs, which no node of the cluster has (at most 1 GPU)",
            "--gpus-per-replica",
        ),
        (
            {"cpus": 16.0},
            [{"GPU": 1, "CPU": 8}],
            "16 CPUs, which no node of the cluster has (at most 8 CPUs)",
            "--cpus-per-replica",
        ),
        (
            {"gpus": 1, "cpus": 4.0},
            [{"GPU": 1, "CPU": 2}, {"CPU": 8}],
            "1 GPU and 4 CPUs, which no node of the cluster has (at most 1 GPU and 8 CPUs)",
            "--gpus-per-replica and --cpus-per-replica",
        ),
    ],
)
def test_missing_resources_names_gpus_and_cpus(
    requests: dict[str, Any], nodes: list[dict[str, float]], lacking: str, options: str
) -> None:
    ray: Any = SimpleNamespace(nodes=lambda: [{"Resources": n, "Alive": True} for n in nodes])
    placement = Placement(address="auto", **requests)
    cluster = Cluster(ray=ray, placement=placement, toolset="life-helper")
    expected = f"A replica requires {lacking}. Give a smaller {options}, or add a node."
    assert cluster.missing_resources() == expected


async def test_server_error_ends_run_before_first_sample(
    scenarios: Sequence[Scenario], tmp_path: Path
) -> None:
    class Broken(Replica):
        async def start(self) -> ReplicaInfo:
            raise SetupError("vLLM is not installed here")

    node = re.escape(platform.node())
    with pytest.raises(SetupError, match=f"on node {node}: vLLM is not installed here"):
        await run_on(scenarios, fake_cluster(replica=Broken), tmp_path)
    assert not (tmp_path / "records.jsonl").exists()


async def test_node_with_other_version_is_refused(
    scenarios: Sequence[Scenario], tmp_path: Path
) -> None:
    config = replace(CONFIG, versions={**versions(), "lhkit": "0.0.9"})
    with pytest.raises(UsageError, match=r"This node has lhkit \S+ instead of 0\.0\.9. Install"):
        await run_on(scenarios, fake_cluster(), tmp_path, config)


async def test_node_with_other_content_hash_is_refused(
    scenarios: Sequence[Scenario], tmp_path: Path
) -> None:
    others = {each.locale: "Others." for each in scenarios}
    config = replace(CONFIG, options=RunOptions(model="silent", instructions=others))
    with pytest.raises(UsageError, match="has another content hash on this node than in the plan"):
        await run_on(scenarios, fake_cluster(), tmp_path, config)
    assert read_records(tmp_path) == ()


async def test_replicas_with_different_models_are_refused(
    scenarios: Sequence[Scenario], tmp_path: Path
) -> None:
    names = iter(["one", "other"])

    class Named(Replica):
        async def start(self) -> ReplicaInfo:
            await super().start()
            return ReplicaInfo(ModelIdentity(model=next(names)), 0.0)

        async def collect(
            self, requests: Sequence[SampleRequest] = ()
        ) -> list[tuple[int, EncodedRecord]]:
            await asyncio.Event().wait()  # nothing is finished before both are there
            raise AssertionError

    with pytest.raises(UsageError, match="Two replicas serve different models"):
        await asyncio.wait_for(run_on(scenarios, fake_cluster(replica=Named), tmp_path), 240)


async def test_matrix_runs_arms_on_replicas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def connected(
        placement: Placement, _toolset: str, _log: Path
    ) -> AsyncIterator[FakeCluster]:
        yield FakeCluster(placement=placement)

    monkeypatch.setattr(scale, "connect", connected)
    suite = tmp_path / "suite.toml"
    suite.write_text('scenarios = "dev"\nlimit = 4\n[arms]\nmodels = ["gold", "silent"]\n')
    options = MatrixOptions(suite=suite, runs_dir=tmp_path, ray="local", replicas=2)
    assert await run_matrix(options, Settings(locale="en")) == 0
    journals = [read_records(folder) for folder in sorted((tmp_path / "suite").iterdir())]
    assert [len(each) for each in journals] == [4, 4]
    assert {each.score.verdict for each in journals[0]} == {Verdict.PASS}


@pytest.fixture
def without_ray(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Return a function that runs `lhkit eval` without Ray: exit code, and output for people."""
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setenv("LHKIT_LOCALE", "en")
    monkeypatch.setenv("LHKIT_CACHE_DIR", str(tmp_path / "cache"))

    def lhkit_eval(*more: str) -> tuple[int, str]:
        words = ["eval", "--model", "gold", "--limit", "2", "--runs-dir", str(tmp_path), *more]
        monkeypatch.setattr(sys, "argv", ["lhkit", *words])
        with pytest.raises(SystemExit) as left:
            main()
        return int(left.value.code or 0), capfd.readouterr().err

    return lhkit_eval


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--ray", "local"), "Ray is not installed. Install it with `pip install 'lhkit[ray]'`"),
        (
            ("--ray", "ray://head:10001"),
            "lhkit: --ray ray://head:10001 is invalid: the driver must run on a node of the "
            "cluster. Run the command there with --ray auto, for example by `ray job submit`.",
        ),
        (("--replicas", "2"), "--replicas is for --ray: give both, or neither"),
    ],
)
def test_eval_refuses_ray_options_before_a_sample(
    without_ray: Callable[..., tuple[int, str]], words: tuple[str, ...], sentence: str
) -> None:
    code, stderr = without_ray(*words)
    assert code == 2
    assert stderr.count("\n") == 1
    assert sentence in stderr


def test_eval_works_without_ray(
    without_ray: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    code, stderr = without_ray("--name", "run")
    assert code == 0, stderr
    assert len(read_records(tmp_path / "run")) == 2


def test_connect_redirects_logs_to_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "run" / "replicas.log"
    ray, own = logging.getLogger("ray"), logging.getLogger("lhkit.scale")
    before = [(each.handlers[:], each.level, each.propagate) for each in (ray, own)]
    with _logging_to(log):
        ray.warning("it warns")
        own.info("it plays")
    text = log.read_text(encoding="utf-8")
    assert "WARNING it warns\n" in text
    assert "INFO it plays\n" in text
    assert capfd.readouterr() == ("", "")
    assert [(each.handlers, each.level, each.propagate) for each in (ray, own)] == before


def test_require_model_refuses_other_runtime() -> None:
    with pytest.raises(UsageError, match=r"--runtime llama\.cpp is not supported with --ray"):
        require_model(ModelChoice(name="gemma"), "llama.cpp")
