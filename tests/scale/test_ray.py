"""Runs on real Ray nodes on this machine, also when nodes die."""

import asyncio
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from aiohttp import web

from lhkit.harness.records.record import SampleRecord, Verdict
from lhkit.harness.records.store import read_records
from lhkit.scale import LOG
from tests.children import search_paths
from tests.models.fake_vllm import FakeVllm, completion, streams

# A busy machine takes minutes to start four nodes.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
TOOLSET = f"{HERE / 'killing_tools.py'}:TOOLS"
COUNT = 24
CANARY = f"canary-{os.getpid()}"
OWN = f"magpie-{os.getpid()}"
"""Keys: of the nodes, and of who gives the command."""

LIMIT_S = 240
SCENARIO = """
- id: work-{n}
  ac: AC-1
  locale: en
  turns:
    - user: "do {n}"
      expect: {{calls: [{{tool: work, args: {{n: {n}, folder: "{folder}"}}, result: ok}}]}}
"""


class Nodes:
    """The cluster's process, and how `lhkit` is run against it."""

    def __init__(self, process: "subprocess.Popen[str]", logs: Path) -> None:
        self._process = process
        self.logs = logs
        self.address = self._line()

    def add(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("add\n")
        self._process.stdin.flush()
        assert self._line() == "added"

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, (self.logs / "nodes.log").read_text()
        return line


def environment(home: Path) -> dict[str, str]:
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0", "LHKIT_LOCALE": "en"}
    return {**search_paths(), "HOME": str(home), "LHKIT_CACHE_DIR": str(home), **quiet}


@contextmanager
def started(count: int, *version: str, **more: str) -> Iterator[Nodes]:
    """Start a head and `count` nodes beside it; `more` is in their environment."""
    logs = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # a socket's path is short
    with (
        (logs / "nodes.log").open("w") as log,
        subprocess.Popen(
            [sys.executable, str(HERE / "nodes.py"), str(logs), str(count), *version],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment(logs) | more,
        ) as process,
    ):
        try:
            yield Nodes(process, logs)
        finally:
            children = psutil.Process(process.pid).children(recursive=True)
            process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(60)
            for each in (process, *filter(psutil.Process.is_running, children)):
                with suppress(psutil.NoSuchProcess):
                    each.kill()
    shutil.rmtree(logs)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with started(2, LHKIT_API_KEY=CANARY) as nodes:
        yield nodes


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "kills").mkdir()
    file = tmp_path / "work.yaml"
    lines = (SCENARIO.format(n=n, folder=tmp_path / "kills") for n in range(1, COUNT + 1))
    file.write_text("".join(lines), encoding="utf-8")
    return file


def words(suite: Path, *more: str, name: str = "run", toolset: str = TOOLSET) -> list[str]:
    return [
        *("eval", str(suite), "--toolset", toolset),
        *("--model", "gold", "--name", name, "--runs-dir", str(suite.parent / "runs"), *more),
    ]


def run(suite: Path, *words: str, **more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *words],
        env=environment(suite.parent) | more,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )


def lhkit(
    suite: Path, *more: str, name: str = "run", toolset: str = TOOLSET, **variables: str
) -> "subprocess.CompletedProcess[str]":
    asked = words(suite, *more, name=name, toolset=toolset)
    return run(suite, "-m", "lhkit", *asked, **variables)


def on(nodes: Nodes, replicas: int = 2) -> tuple[str, ...]:
    return ("--ray", nodes.address, "--replicas", str(replicas), "--concurrency", "4")


def kill_in_call(suite: Path, n: int, victim: str) -> None:
    (suite.parent / "kills" / str(n)).write_text(victim)


def records(suite: Path, name: str = "run") -> tuple[SampleRecord, ...]:
    return read_records(suite.parent / "runs" / name)


def verdicts(sample_records: tuple[SampleRecord, ...]) -> dict[str, Verdict]:
    return {each.sample_id.scenario: each.score.verdict for each in sample_records}


def assert_each_is_answered_once(suite: Path) -> None:
    valid = [each for each in records(suite) if each.score.verdict is not Verdict.INVALID]
    counted = Counter(each.sample_id.scenario for each in valid)
    assert counted == {f"work-{n}": 1 for n in range(1, COUNT + 1)}


def results(sample_records: tuple[SampleRecord, ...], key: str) -> set[Any]:
    calls = [
        call for each in sample_records for turn in each.trajectory.turns for call in turn.calls
    ]
    payloads = (call.result.get("data", {}) for call in calls)
    return {payload[key] for payload in payloads if key in payload}


def test_a_node_gives_same_verdicts_as_one_process_with_logs_in_a_file(suite: Path) -> None:
    """Two replicas on it; on two nodes at night."""
    with started(0) as node:
        assert_same_verdicts(node, suite, count=1)


@pytest.mark.nightly
def test_two_nodes_give_same_verdicts_as_one_process(nodes: Nodes, suite: Path) -> None:
    assert_same_verdicts(nodes, suite, count=2)


def assert_same_verdicts(nodes: Nodes, suite: Path, *, count: int) -> None:
    here = lhkit(suite, name="here")
    os.mkfifo(suite.parent / "kills" / "1")
    (suite.parent / "kills" / str(COUNT)).hardlink_to(suite.parent / "kills" / "1")
    there = lhkit(suite, *on(nodes), name="there")
    assert (here.returncode, there.returncode) == (0, 0), there.stderr
    asked = verdicts(records(suite, "here"))
    assert verdicts(records(suite, "there")) == asked
    assert set(asked.values()) == {Verdict.PASS, Verdict.FAIL}
    assert len(results(records(suite, "there"), "node")) == count
    assert "2 of 2 replicas" in there.stderr
    assert "sample/s" in there.stderr
    output = there.stdout + there.stderr
    assert [word for word in ("tool says", "raylet", "INFO", "WARNING") if word in output] == []
    log = (suite.parent / "runs" / "there" / LOG).read_text()
    assert f"a replica runs on node {platform.node()}" in log
    (file,) = {Path(each) for each in results(records(suite, "there"), "file")}
    assert file.name == "killing_tools.py"
    assert file.is_relative_to(nodes.logs)  # Ray's folder, where it unpacks
    assert (file.parent / "sibling.py").exists()


@pytest.mark.nightly
def test_toolset_with_missing_module_is_refused(nodes: Nodes, suite: Path) -> None:
    (suite.parent / "here").mkdir()
    (suite.parent / "here" / "only_here.py").write_text("from killing_tools import TOOLS\n")
    (suite.parent / "tools").mkdir()
    (suite.parent / "tools" / "own.py").write_text("from only_here import TOOLS\n")
    paths = [suite.parent / "here", HERE, search_paths().get("PYTHONPATH", "")]
    done = lhkit(
        suite,
        *on(nodes),
        toolset=f"{suite.parent / 'tools' / 'own.py'}:TOOLS",
        PYTHONPATH=os.pathsep.join(map(str, paths)),
    )
    assert done.returncode == 2, done.stdout + done.stderr
    stderr = " ".join(done.stderr.split())
    assert f"on node {platform.node()}: " in stderr
    assert "No module named 'only_here'" in stderr
    assert "Install other modules that it imports on every node" in stderr
    assert records(suite) == ()


@pytest.mark.nightly
def test_too_large_toolset_folder_is_refused(nodes: Nodes, suite: Path) -> None:
    own = suite.parent / "tools"
    shutil.copytree(HERE, own)
    (own / "film").write_bytes(os.urandom(2**20))
    small = {"RAY_max_grpc_message_size": str(2**19)}  # instead of 500 MiB
    done = lhkit(suite, *on(nodes), toolset=f"{own / 'killing_tools.py'}:TOOLS", **small)
    assert done.returncode == 3, done.stdout + done.stderr
    stderr = " ".join(done.stderr.split())
    assert f"the folder {own} is too large to upload" in stderr
    assert ".gitignore" in stderr


@pytest.mark.nightly
def test_cluster_with_other_version_or_token_is_refused(suite: Path) -> None:
    token = "t" * 64
    asked = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}
    with started(0, "2.1.0", **asked) as nodes:
        stranger = lhkit(suite, *on(nodes))
        other = lhkit(suite, *on(nodes), **asked)
    assert (stranger.returncode, other.returncode) == (3, 3), stranger.stdout + other.stdout
    assert "requires a token" in " ".join(stranger.stderr.split())
    stderr = " ".join(other.stderr.split())
    assert f"the cluster has Ray 2.1.0 on Python {platform.python_version()}" in stderr
    assert "Install the same versions here and on all nodes" in stderr
    assert token not in stranger.stderr + other.stderr


@pytest.mark.nightly
def test_samples_of_killed_replica_are_run_again(nodes: Nodes, suite: Path) -> None:
    kill_in_call(suite, 7, "replica")
    done = lhkit(suite, *on(nodes))
    assert done.returncode == 0, done.stdout + done.stderr
    assert_each_is_answered_once(suite)
    assert len(records(suite)) == COUNT
    assert "1 replica was lost" in done.stdout


@pytest.mark.nightly
def test_samples_of_killed_node_are_run_again(nodes: Nodes, suite: Path) -> None:
    kill_in_call(suite, 9, "node")
    done = lhkit(suite, *on(nodes))
    nodes.add()
    assert done.returncode == 0, done.stdout + done.stderr
    assert_each_is_answered_once(suite)
    assert len(records(suite)) == COUNT


@pytest.mark.nightly
def test_resume_after_killed_driver(nodes: Nodes, suite: Path) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-m", "lhkit", *words(suite, *on(nodes))],
        env=environment(suite.parent),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    kill_in_call(suite, 20, str(driver.pid))
    assert driver.wait(LIMIT_S) == -9
    before = verdicts(records(suite))
    assert "work-20" not in before
    done = lhkit(suite, *on(nodes))
    assert done.returncode == 0, done.stdout + done.stderr
    assert_each_is_answered_once(suite)
    assert f"{len(before)} of {COUNT} samples" in done.stdout or not before


@pytest.mark.anyio
@pytest.mark.nightly
async def test_api_key_of_nodes_reaches_server_and_is_not_written(
    nodes: Nodes, suite: Path
) -> None:
    keys: set[str] = set()
    lines: set[str] = set()

    async def speak(request: web.Request) -> web.StreamResponse:
        keys.add(request.headers.get("Authorization", ""))
        lines.update(_command_lines())
        return await streams(completion(["there is nothing to do"]))(request)

    server = FakeVllm(routes={"/v1/completions": speak})
    async with server:
        asked = ["--base-url", server.base_url, "--model", "gemma", *on(nodes)]
        done = await asyncio.to_thread(lhkit, suite, *asked, LHKIT_API_KEY=OWN)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(records(suite)) == COUNT
    assert keys == {f"Bearer {CANARY}"}
    assert any("ray::Replica" in line for line in lines)
    assert [line for line in lines if _has_key(line)] == []
    files = _files(suite.parent, nodes.logs)
    assert suite.parent / "runs" / "run" / LOG in files
    assert [each for each in files if _has_key(each.read_bytes().decode("latin1"))] == []
    assert not _has_key(done.stdout + done.stderr)
    jobs = run(suite, "-c", JOBS, nodes.address).stdout
    assert f"{suite.parent}" in jobs  # Ray stores the command and the uploaded folder
    assert not _has_key(jobs)


JOBS = """
import sys
import ray
from ray._private.state import jobs
ray.init(address=sys.argv[1], log_to_driver=False)
print(jobs())
"""
"""Prints what Ray keeps of the commands that were given to the cluster."""


def _command_lines() -> set[str]:
    command_lines: set[str] = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            command_lines.add(" ".join(process.cmdline()))
    return command_lines


def _files(*folders: Path) -> list[Path]:
    return [each for folder in folders for each in folder.rglob("*") if each.is_file()]


def _has_key(text: str) -> bool:
    return CANARY in text or OWN in text
