"""Twenty runs over real nodes of Ray, in each of which something is killed at a random moment.

A replica, a node or the driver itself, by turns; then the same command is given until it has
finished. Looked at is the journal: each sample answered once, with the verdict of one process.
Run it with `python evals/benchmarks/scale_kills.py`; it writes `scale_kills.md`.
"""

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from figures import HERE, this_machine

from lhkit.harness.log import RECORDS, read_records
from lhkit.harness.record import Verdict
from lhkit.messages import ToolErr, ToolOk
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry

ROUNDS = 20
SAMPLES = 400
ODD_ONE = 7
WORK_S = 0.1
LIMIT_S = 240
TRIES = 12
KINDS = ("replica", "node", "driver")
SCENARIO = """
- id: work-{n}
  ac: AC-1
  locale: en
  turns: [{{user: "do {n}", expect: {{calls: [{{tool: work, args: {{n: {n}}}, result: ok}}]}}}}]
"""


async def work(args: Mapping[str, Any], _deps: Any) -> ToolOk | ToolErr:
    """Take a while, and fail at every seventh."""
    await asyncio.sleep(WORK_S)
    return ToolOk({}) if args["n"] % ODD_ONE else ToolErr("odd", "it fails wherever it is played")


WORK_ARGS = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TOOLS = ToolRegistry(
    [ToolDefinition(name="work", description="Work", parameters=WORK_ARGS, handler=work)]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What was killed, after how many samples, and what became of the run."""

    killed: str
    after: int
    commands: int
    lines: int
    lost: int
    twice: int
    other: int
    whole_s: float

    @property
    def is_well(self) -> bool:
        """Whether nothing is lost, twice, or judged otherwise."""
        return not (self.lost or self.twice or self.other)


def patiently(begin: Callable[[], Any]) -> Any:
    """Start something of Ray, which gives up after 30 s however busy the machine is."""
    for _ in range(TRIES - 1):
        try:
            return begin()
        except Exception as error:  # noqa: BLE001 - Ray raises nothing more special
            print(error, flush=True)
    return begin()


class Nodes:
    """A head without replicas and two nodes for them."""

    def __init__(self, folder: Path, cores: int = 2) -> None:
        from ray.cluster_utils import Cluster

        self._cores = cores
        self._small = {"object_store_memory": 80 * 2**20}
        head = {"num_cpus": 0, "include_dashboard": False, "temp_dir": str(folder), **self._small}
        self.cluster = patiently(lambda: Cluster(initialize_head=True, head_node_args=head))
        self._nodes = [self._added(), self._added()]
        self.cluster.wait_for_nodes(timeout=120)

    def kill(self, rng: random.Random) -> None:
        """Kill a node with all that is on it, and add another."""
        node = self._nodes.pop(rng.randrange(len(self._nodes)))
        self.cluster.remove_node(node, allow_graceful=False)
        self._nodes.append(self._added())

    def _added(self) -> Any:
        return patiently(
            lambda: self.cluster.add_node(num_cpus=self._cores, wait=False, **self._small)
        )


def kill_replica(rng: random.Random) -> None:
    """Kill an actor that descends from this process."""
    actors = [
        each
        for each in psutil.Process().children(recursive=True)
        if any("ray::Replica" in word for word in each.cmdline())
    ]
    if actors:
        rng.choice(actors).kill()


def lines(folder: Path) -> int:
    """Return how many records there are."""
    file = folder / RECORDS
    return file.read_bytes().count(b"\n") if file.exists() else 0


def verdicts(folder: Path) -> Counter[tuple[str, Verdict]]:
    """Return how often each sample has each valid verdict."""
    return Counter(
        (each.sample_id.scenario, each.judgement.verdict)
        for each in read_records(folder)
        if each.judgement.verdict is not Verdict.INVALID
    )


def command(folder: Path, name: str, *more: str) -> list[str]:
    """Return the command of a run."""
    return [
        *(sys.executable, "-m", "lhkit", "eval", str(folder / "work.yaml")),
        *("--toolset", f"{Path(__file__).resolve()}:TOOLS", "--model", "gold"),
        *("--runs-dir", str(folder), "--name", name, "--concurrency", "16", *more),
    ]


def start(words: list[str]) -> "subprocess.Popen[bytes]":
    """Start it, and let nobody see what it prints."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(words, **quiet)  # noqa: S603 - our own command


def play(number: int, nodes: Nodes, folder: Path, asked: Counter[tuple[str, Verdict]]) -> Round:
    """Play one run in which something is killed."""
    rng = random.Random(number)  # noqa: S311 - no secret
    kind, name = KINDS[number % len(KINDS)], f"run-{number}"
    after = rng.randrange(1, SAMPLES - 20)
    words = command(folder, name, "--ray", nodes.cluster.address, "--replicas", "2")
    begun_s = time.monotonic()
    driver, commands = start(words), 1
    while lines(folder / name) < after and driver.poll() is None:
        time.sleep(0.01)
    after = lines(folder / name)
    if kind == "replica":
        kill_replica(rng)
    elif kind == "node":
        nodes.kill(rng)
    else:
        driver.send_signal(signal.SIGKILL)
    while driver.wait(LIMIT_S) != 0 and commands < 4:  # noqa: PLR2004 - tries
        driver, commands = start(words), commands + 1
    found = verdicts(folder / name)
    counted = Counter(sample for sample, _ in found.elements())
    return Round(
        killed=kind,
        after=after,
        commands=commands,
        lines=lines(folder / name),
        lost=SAMPLES - len(counted),
        twice=sum(count > 1 for count in counted.values()),
        other=len(set(found) - set(asked)),
        whole_s=time.monotonic() - begun_s,
    )


def measure(rounds: int) -> tuple[list[Round], float]:
    """Play one run in one process, a whole one on the nodes, and all others."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as told:
        folder = Path(told)
        text = "".join(SCENARIO.format(n=n) for n in range(SAMPLES))
        (folder / "work.yaml").write_text(text, encoding="utf-8")
        start(command(folder, "alone")).wait(LIMIT_S)
        asked = verdicts(folder / "alone")
        nodes = Nodes(folder / "ray")
        try:
            begun_s = time.monotonic()
            words = command(folder, "whole", "--ray", nodes.cluster.address, "--replicas", "2")
            start(words).wait(LIMIT_S)
            whole_s = time.monotonic() - begun_s
            if verdicts(folder / "whole") != asked or len(asked) != SAMPLES:
                raise AssertionError("a run without kills has other verdicts")
            found = []
            for number in range(rounds):
                found.append(play(number, nodes, folder, asked))
                print(found[-1], flush=True)
            return found, whole_s
        finally:
            nodes.cluster.shutdown()


def page(found: list[Round], whole_s: float) -> str:
    """Return the page."""
    machine = this_machine()
    bad = [each for each in found if not each.is_well]
    rows = (
        f"| {number} | {each.killed} | {each.after} | {each.commands} | {each.lines} | {each.lost} "
        f"| {each.twice} | {each.other} | {each.whole_s:.0f} s |"
        for number, each in enumerate(found, start=1)
    )
    return "\n".join(
        [
            "# Scale: what is lost when something dies",
            "",
            (
                f"`python evals/benchmarks/scale_kills.py` · {SAMPLES} samples of a scripted "
                f"model, a tool that takes {1000 * WORK_S:.0f} ms, 16 at once on 2 replicas on 2 "
                f"nodes of Ray on loopback, {machine.cores} cores at a load of {machine.load}."
            ),
            (
                "A replica, a node or the driver is killed (SIGKILL) when the journal has a random "
                "number of records. Then the same command is given until it ends with 0."
            ),
            "",
            (
                f"**{len(found) - len(bad)} of {len(found)} runs** have each sample once, with the "
                f"verdict of one process. A run without a kill took {whole_s:.0f} s."
            ),
            "",
            (
                "| run | killed | after samples | commands | records | lost | twice | other "
                "verdict | whole time |"
            ),
            "|---|---|---|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def main() -> None:
    """Kill, look, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    found, whole_s = measure(parser.parse_args().rounds)
    text = page(found, whole_s)
    (HERE / "scale_kills.md").write_text(text, encoding="utf-8")
    print(text)
    sys.exit(any(not each.is_well for each in found))


if __name__ == "__main__":
    main()
