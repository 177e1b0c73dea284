"""Replicas as a run sees them, on a cluster that is played here: who plays, who is lost."""

import asyncio
import logging
import platform
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lhkit import scale
from lhkit.app import ModelChoice
from lhkit.cli.matrix import MatrixOptions, run_matrix
from lhkit.errors import ServerUnreachableError, SetupError, UsageError
from lhkit.harness.loader import load_scenarios
from lhkit.harness.manifest import versions
from lhkit.harness.record import Verdict
from lhkit.harness.results import Run
from lhkit.harness.run import Played, replay
from lhkit.harness.run_options import RunOptions
from lhkit.harness.scenario import Scenario
from lhkit.harness.store import read_manifest, read_records
from lhkit.lifehelper.shipped import scenario_paths
from lhkit.responses import ModelIdentity
from lhkit.scale import logs
from lhkit.scale.cluster import Cluster, LostError
from lhkit.scale.placement import (
    SCRIPTED,
    Asked,
    Introduction,
    Part,
    Placement,
    Room,
    require_model,
)
from lhkit.scale.replica import Replica
from lhkit.scale.runner import RaySampleRunner
from lhkit.settings import Settings
from lhkit.toolset import limit_tokens, load
from tests.children import search_paths

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

FEW = 12
PART = Part(options=RunOptions(model="silent"), at_once=2)
TOOLSET = limit_tokens(load(), PART.options.max_tokens)


class Method:
    """A method of an actor: `remote` calls it, unless the actor is dead by then."""

    def __init__(self, actor: "Actor", call: Callable[..., Coroutine[Any, Any, Any]]) -> None:
        self._actor = actor
        self._call = call

    def remote(self, *args: Any) -> "asyncio.Task[Any]":
        return self._actor.run(self._call(*args))


class Actor:
    """A replica in this process. It dies when it takes more than `takes` times."""

    def __init__(self, replica: Replica, takes: int | None) -> None:
        self._replica = replica
        self._takes = takes
        self._dead = asyncio.Event()

    def __getattr__(self, name: str) -> Method:
        return Method(self, getattr(self._replica, name))

    @property
    def take(self) -> Method:
        return Method(self, self._take)

    async def _take(self, asked: Sequence[Asked]) -> Any:
        if self._takes == 0:
            self.die()
            await asyncio.Event().wait()
        self._takes = None if self._takes is None else self._takes - 1
        return await self._replica.take(asked)

    def die(self) -> None:
        self._dead.set()

    def run(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = asyncio.create_task(self._until_dead(work))
        task.add_done_callback(lambda _: work.close())  # it may be cancelled before it began
        return task

    async def _until_dead(self, work: Coroutine[Any, Any, Any]) -> Any:
        task, death = asyncio.ensure_future(work), asyncio.ensure_future(self._dead.wait())
        try:
            await asyncio.wait({task, death}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise LostError("it was killed")
            return task.result()
        finally:
            task.cancel()
            death.cancel()
            await asyncio.gather(task, death, return_exceptions=True)


@dataclass(kw_only=True)
class Here:
    """What `scale.Cluster` is, without Ray: `lives` says of each new actor when it dies."""

    placement: Placement
    toolset: str = "life-helper"
    lives: list[int | None] = field(default_factory=list)
    replica: Callable[[Part, Sequence[Scenario]], Replica] = Replica
    started: list[Actor] = field(default_factory=list)
    has_room: bool = True

    def keep(self, value: Any) -> Any:
        return value

    def start(self, part: Part, scenarios: Sequence[Scenario]) -> Actor:
        takes = self.lives.pop(0) if self.lives else None
        self.started.append(Actor(self.replica(part, scenarios), takes))
        return self.started[-1]

    def end(self, actor: Actor) -> None:
        actor.die()

    async def answer(self, asked: "asyncio.Task[Any]") -> Any:
        return await asked

    def fits(self) -> bool:
        return self.has_room

    def free(self) -> Room:
        return Room(0, 1)

    def unfit(self) -> str:
        return "a replica takes more than any node has"


@dataclass(kw_only=True)
class LookedAt(Here):
    """One that notices when it was asked often for room, far longer than until that is told."""

    looks: int = 0
    was_looked_at_often: asyncio.Event = field(default_factory=asyncio.Event)

    def fits(self) -> bool:
        self.looks += 1
        if self.looks >= 100:
            self.was_looked_at_often.set()
        return super().fits()


@pytest.fixture(scope="module")
def scenarios() -> tuple[Scenario, ...]:
    return load_scenarios(scenario_paths("dev"), limit=FEW)


def here(*lives: int | None, replicas: int = 2, **more: Any) -> Here:
    return Here(placement=Placement(address="local", replicas=replicas), lives=[*lives], **more)


class Unplaced(Replica):
    """One for which there is no room."""

    async def where(self) -> str:
        await asyncio.Event().wait()
        raise AssertionError


async def no_pause(_: float) -> None:
    await asyncio.sleep(0)


async def played(
    scenarios: Sequence[Scenario], cluster: Here, folder: Path, part: Part = PART
) -> tuple[Run, RaySampleRunner]:
    async with RaySampleRunner(cluster, part, scenarios, sleep=no_pause) as players:  # type: ignore[arg-type]
        run = await replay(
            scenarios,
            SCRIPTED[part.options.model](),
            toolset=TOOLSET,
            players=players,
            run_dir=folder,
            concurrency=4,
            sleep=no_pause,
            progress=False,
        )
    return run, players


def verdicts(run: Run) -> dict[str, Verdict]:
    return {each.sample_id.scenario: each.judgement.verdict for each in run.records}


async def test_replicas_write_the_journal_that_one_process_writes(
    scenarios: Sequence[Scenario], tmp_path: Path
) -> None:
    alone = await replay(
        scenarios,
        SCRIPTED["silent"](),
        toolset=TOOLSET,
        run_dir=tmp_path / "alone",
        progress=False,
    )
    run, players = await played(scenarios, here(), tmp_path / "many")
    assert verdicts(run) == verdicts(alone)
    assert len(read_records(tmp_path / "many")) == FEW
    hashes = {each.content_hash for each in alone.records}
    assert {each.content_hash for each in run.records} == hashes
    manifests = [read_manifest(tmp_path / each) for each in ("alone", "many")]
    assert manifests[0]["questions"] == manifests[1]["questions"]
    assert players.deaths == 0


async def test_a_run_of_one_process_goes_on_with_replicas(
    scenarios: Sequence[Scenario], tmp_path: Path
) -> None:
    few = scenarios[:5]
    await replay(few, SCRIPTED["silent"](), toolset=TOOLSET, run_dir=tmp_path, progress=False)
    run, _ = await played(scenarios, here(), tmp_path)
    assert (run.kept, len(read_records(tmp_path))) == (5, FEW)


@pytest.mark.parametrize("takes", [0, 1, 2])
async def test_what_a_lost_replica_had_is_played_once_by_another(
    takes: int, scenarios: Sequence[Scenario], tmp_path: Path
) -> None:
    cluster = here(takes, takes)
    run, players = await played(scenarios, cluster, tmp_path)
    assert len(read_records(tmp_path)) == FEW
    assert Verdict.INVALID not in verdicts(run).values()
    assert players.deaths >= 1
    # one for each that died; the run may be over before the last one is replaced
    assert 2 <= len(cluster.started) <= 2 + players.deaths


async def test_where_replicas_die_again_and_again_the_rest_is_invalid_and_says_why(
    scenarios: Sequence[Scenario], tmp_path: Path
) -> None:
    run, players = await played(scenarios, here(*[0] * 40), tmp_path)
    assert set(verdicts(run).values()) == {Verdict.INVALID}
    assert run.records[0].evidence.fault == (
        "not tried: 6 replicas were lost in a row and nothing got finished (it was killed)"
    )
    again, _ = await played(scenarios, here(), tmp_path)
    assert Verdict.INVALID not in verdicts(again).values()
    assert 6 <= players.deaths <= 7  # the other one may die while the sixth death is counted


@pytest.mark.slow
async def test_where_no_node_can_hold_a_replica_a_sentence_says_so(
    scenarios: Sequence[Scenario], tmp_path: Path
) -> None:
    cluster = here(replica=Unplaced, has_room=False)
    with pytest.raises(ServerUnreachableError, match="more than any node has"):
        await played(scenarios, cluster, tmp_path)


async def test_what_is_free_is_told_once_where_no_replica_has_a_place_yet(
    scenarios: Sequence[Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lhkit.scale.runner._LOOK_S", 0.001)
    monkeypatch.setattr("lhkit.scale.runner._TELL_AFTER_S", 0.005)
    told: list[Room] = []
    cluster: Any = LookedAt(placement=here().placement, replica=Unplaced)

    async def begin() -> None:
        async with RaySampleRunner(cluster, PART, scenarios, waits=told.append):
            raise AssertionError

    begun = asyncio.create_task(begin())
    await cluster.was_looked_at_often.wait()
    begun.cancel()
    with suppress(asyncio.CancelledError):
        await begun
    assert told == [Room(gpus=0, cpus=1)]


@pytest.mark.parametrize(
    ("asked", "nodes", "lacking", "options"),
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
def test_the_sentence_names_what_a_replica_lacks(
    asked: dict[str, Any], nodes: list[dict[str, float]], lacking: str, options: str
) -> None:
    ray: Any = SimpleNamespace(nodes=lambda: [{"Resources": n, "Alive": True} for n in nodes])
    placement = Placement(address="auto", **asked)
    cluster = Cluster(ray=ray, placement=placement, toolset="life-helper")
    assert not cluster.fits()
    told = f"a replica takes {lacking}: give a smaller {options}, or add a node"
    assert cluster.unfit() == told


async def test_a_server_that_cannot_be_had_is_told_before_the_first_sample(
    scenarios: Sequence[Scenario], tmp_path: Path
) -> None:
    class Broken(Replica):
        async def begin(self) -> Introduction:
            raise SetupError("vLLM is not installed here")

    node = re.escape(platform.node())
    with pytest.raises(SetupError, match=f"on node {node}: vLLM is not installed here"):
        await played(scenarios, here(replica=Broken), tmp_path)
    assert not (tmp_path / "records.jsonl").exists()


async def test_a_node_with_another_version_is_refused_and_told_which(
    scenarios: Sequence[Scenario], tmp_path: Path
) -> None:
    part = replace(PART, versions={**versions(), "lhkit": "0.0.9"})
    with pytest.raises(UsageError, match=r"this node has lhkit \S+ instead of 0\.0\.9: install"):
        await played(scenarios, here(), tmp_path, part)


async def test_a_node_that_would_ask_something_else_is_refused(
    scenarios: Sequence[Scenario], tmp_path: Path
) -> None:
    others = {each.locale: "Others." for each in scenarios}
    part = replace(PART, options=RunOptions(model="silent", instructions=others))
    with pytest.raises(UsageError, match="would be asked otherwise than where the run was planned"):
        await played(scenarios, here(), tmp_path, part)
    assert read_records(tmp_path) == ()


async def test_two_replicas_of_different_models_are_refused(
    scenarios: Sequence[Scenario], tmp_path: Path
) -> None:
    names = iter(["one", "other"])

    class Named(Replica):
        async def begin(self) -> Introduction:
            await super().begin()
            return Introduction(ModelIdentity(model=next(names)), 0.0)

        async def take(self, asked: Sequence[Asked] = ()) -> list[tuple[int, Played]]:
            await asyncio.Event().wait()  # nothing is finished before both are there
            raise AssertionError

    with pytest.raises(UsageError, match="two replicas serve different models"):
        await asyncio.wait_for(played(scenarios, here(replica=Named), tmp_path), 240)


async def test_the_arms_of_a_suite_are_played_on_replicas_each_into_its_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def connected(placement: Placement, _toolset: str, _log: Path) -> AsyncIterator[Here]:
        yield Here(placement=placement)

    monkeypatch.setattr(scale, "connected", connected)
    suite = tmp_path / "suite.toml"
    suite.write_text('scenarios = "dev"\nlimit = 4\n[arms]\nmodels = ["gold", "silent"]\n')
    options = MatrixOptions(suite=suite, runs_dir=tmp_path, ray="local", replicas=2)
    assert await run_matrix(options, Settings(locale="en")) == 0
    found = [read_records(folder) for folder in sorted((tmp_path / "suite").iterdir())]
    assert [len(each) for each in found] == [4, 4]
    assert {each.judgement.verdict for each in found[0]} == {Verdict.PASS}


def without_ray(folder: Path, *more: str) -> "subprocess.CompletedProcess[str]":
    code = "import sys; sys.modules['ray'] = None; import lhkit.__main__ as it; it.main()"
    words = ["eval", "--model", "gold", "--limit", "2", "--runs-dir", str(folder), *more]
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        env={**search_paths(), "HOME": str(folder), "LHKIT_LOCALE": "en"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_ray_a_sentence_says_what_to_install(tmp_path: Path) -> None:
    done = without_ray(tmp_path, "--ray", "local")
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "Ray is not installed here: `pip install 'lhkit[ray]'`" in done.stderr


def test_without_ray_all_else_is_as_ever(tmp_path: Path) -> None:
    done = without_ray(tmp_path, "--name", "run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(read_records(tmp_path / "run")) == 2


def test_what_ray_logs_goes_to_the_runs_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "run" / "replicas.log"
    ray, own = logging.getLogger("ray"), logging.getLogger("lhkit.scale")
    before = [(each.handlers[:], each.level, each.propagate) for each in (ray, own)]
    with logs.logged(log):
        ray.warning("it warns")
        own.info("it plays")
    said = log.read_text(encoding="utf-8")
    assert "WARNING it warns\n" in said
    assert "INFO it plays\n" in said
    assert capfd.readouterr() == ("", "")
    assert [(each.handlers, each.level, each.propagate) for each in (ray, own)] == before


def test_the_address_of_rays_client_is_refused_and_told_what_to_do() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lhkit", "eval", "--model", "gold", "--ray", "ray://head:10001"],
        env={**search_paths(), "LHKIT_LOCALE": "en"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == (
        "lhkit: --ray ray://head:10001: the driver has to run on a node of the cluster: give the "
        "command there with --ray auto, for example by `ray job submit`\n"
    )


def test_replicas_of_a_runtime_that_ray_does_not_start_are_refused() -> None:
    with pytest.raises(UsageError, match=r"--ray are served by vllm: leave --runtime llama.cpp"):
        require_model(ModelChoice(name="gemma"), "llama.cpp")


def test_replicas_without_ray_are_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lhkit", "eval", "--model", "gold", "--replicas", "2"],
        env={**search_paths(), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "--replicas is for --ray: give both, or neither" in done.stderr
