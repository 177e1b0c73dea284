"""Twenty runs over real nodes of Ray, in each of which something is killed at a random moment.

A replica, a node or the driver itself, by turns; then the same command is given until it has
finished. The moment is drawn from the time that a run without a kill takes, its start included.
Looked at is the journal: each sample answered once, with the verdict of one process.
Run it with `python evals/benchmarks/scale_kills.py`; it writes `scale_kills.md`.
"""

import argparse
import asyncio
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from figures import HERE, this_machine
from ray_nodes import Nodes

from lhkit.harness.log import RECORDS, read_records
from lhkit.harness.record import Verdict
from lhkit.messages import ToolErr, ToolOk
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry

ROUNDS = 20
SAMPLES = 400
ODD_ONE = 7
WORK_S = 0.5
LIMIT_S = 600
COMMANDS = 6
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
    """What was killed, when and after how many samples, and what became of the run.

    `killed` is empty where the run had ended before its moment came.
    """

    killed: str
    at_s: float
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


Asked = Counter[tuple[str, Verdict]]


def kill_replica(rng: random.Random) -> bool:
    """Kill an actor that descends from this process; return whether there was one."""
    actors = [
        each
        for each in psutil.Process().children(recursive=True)
        if any("ray::Replica" in word for word in each.cmdline())
    ]
    if actors:
        rng.choice(actors).kill()
    return bool(actors)


def runs_on(process: "subprocess.Popen[bytes]", for_s: float) -> bool:
    """Wait so long, or until the process has ended; return whether it goes on."""
    try:
        process.wait(for_s)
    except subprocess.TimeoutExpired:
        return True
    return False


def lines(folder: Path) -> int:
    """Return how many records there are."""
    file = folder / RECORDS
    return file.read_bytes().count(b"\n") if file.exists() else 0


def verdicts(folder: Path) -> Asked:
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


def start(words: list[str], log: Path) -> "subprocess.Popen[bytes]":
    """Start it; what it prints goes to the end of a file."""
    with log.open("ab") as told:
        return subprocess.Popen(words, stdout=told, stderr=told)  # noqa: S603 - our own command


def play(
    number: int, nodes: Nodes, folder: Path, *, rng: random.Random, asked: Asked, whole_s: float
) -> Round:
    """Play one run in which something is killed."""
    kind, name, killed = KINDS[number % len(KINDS)], f"run-{number}", ""
    log = folder / f"{name}.log"
    words = command(folder, name, "--ray", nodes.cluster.address, "--replicas", "2")
    pause_s = rng.uniform(0, whole_s)
    begun_s = time.monotonic()
    driver, commands, at_s, after = start(words, log), 1, 0.0, 0
    while not killed and runs_on(driver, pause_s):
        at_s, after = time.monotonic() - begun_s, lines(folder / name)
        if kind == "replica":
            killed = kind if kill_replica(rng) else ""
        elif kind == "node":
            nodes.kill(rng)
            killed = kind
        else:
            driver.send_signal(signal.SIGKILL)
            killed = kind
        pause_s = rng.uniform(0, whole_s / 4)  # no replica was there yet
    while driver.wait(LIMIT_S) != 0 and commands < COMMANDS:
        driver, commands = start(words, log), commands + 1
    found = verdicts(folder / name)
    counted = Counter(sample for sample, _ in found.elements())
    round_ = Round(
        killed=killed,
        at_s=at_s,
        after=after,
        commands=commands,
        lines=lines(folder / name),
        lost=SAMPLES - len(counted),
        twice=sum(count > 1 for count in counted.values()),
        other=len(set(found) - set(asked)),
        whole_s=time.monotonic() - begun_s,
    )
    if not round_.is_well:
        print(log.read_text(encoding="utf-8"), flush=True)
    return round_


def measure(rounds: int, seed: int) -> tuple[list[Round], float]:
    """Play one run in one process, a whole one on the nodes, and others until enough had a kill."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    rng = random.Random(seed)  # noqa: S311 - no secret
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as told:
        folder = Path(told)
        text = "".join(SCENARIO.format(n=n) for n in range(SAMPLES))
        (folder / "work.yaml").write_text(text, encoding="utf-8")
        start(command(folder, "alone"), folder / "alone.log").wait(LIMIT_S)
        asked = verdicts(folder / "alone")
        nodes = Nodes(folder / "ray")
        try:
            begun_s = time.monotonic()
            words = command(folder, "whole", "--ray", nodes.cluster.address, "--replicas", "2")
            start(words, folder / "whole.log").wait(LIMIT_S)
            whole_s = time.monotonic() - begun_s
            if verdicts(folder / "whole") != asked or len(asked) != SAMPLES:
                raise AssertionError((folder / "whole.log").read_text(encoding="utf-8"))
            print(f"without a kill: {whole_s:.0f} s", flush=True)
            found: list[Round] = []
            while sum(bool(each.killed) for each in found) < rounds:
                found.append(play(len(found), nodes, folder, rng=rng, asked=asked, whole_s=whole_s))
                print(found[-1], flush=True)
            return found, whole_s
        finally:
            nodes.cluster.shutdown()


def page(found: list[Round], whole_s: float, line: str) -> str:
    """Return the page."""
    machine = this_machine()
    killed = [each for each in found if each.killed]
    well = sum(each.is_well for each in killed)
    once = sum(each.commands == 1 for each in killed)
    rows = (
        f"| {number} | {each.killed or 'nothing: it had ended'} | {each.at_s:.0f} s | {each.after} "
        f"| {each.commands} | {each.lines} | {each.lost} | {each.twice} | {each.other} "
        f"| {each.whole_s:.0f} s |"
        for number, each in enumerate(found, start=1)
    )
    longer = {
        kind: statistics.median(each.whole_s - whole_s for each in killed if each.killed == kind)
        for kind in KINDS
        if any(each.killed == kind for each in killed)
    }
    told = ", ".join(f"{seconds:.0f} s for a {kind}" for kind, seconds in longer.items())
    return "\n".join(
        [
            "# Scale: what is lost when something dies",
            "",
            (
                f"`{line}` · {SAMPLES} samples of a scripted "
                f"model, a tool that takes {1000 * WORK_S:.0f} ms, 16 at once on 2 replicas on 2 "
                f"nodes of Ray on loopback, {machine.cores} cores at a load of {machine.load}."
            ),
            (
                "A replica, a node or the driver is killed (SIGKILL) at a moment drawn from the "
                "time that a run without a kill takes, its start included; a replica, once there "
                "is one. Then the same command is given until it ends with 0."
            ),
            "",
            (
                f"**{well} of {len(killed)} runs** have each sample once, with the "
                f"verdict of one process; in {once} of them the first command was enough."
            ),
            "",
            (
                f"A run without a kill took {whole_s:.0f} s; the median of what a kill adds: "
                f"{told}. Of a driver that is the start of another one, with Python, Ray and "
                "replicas; of a node, what Ray takes to notice, and a new replica."
            ),
            "",
            (
                "| run | killed | at | after samples | commands | records | lost | twice | other "
                "verdict | whole time |"
            ),
            "|---|---|---|---|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def main() -> None:
    """Kill, look, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    found, whole_s = measure(given.rounds, given.seed)
    line = f"python evals/benchmarks/scale_kills.py --rounds {given.rounds} --seed {given.seed}"
    text = page(found, whole_s, line)
    (HERE / "scale_kills.md").write_text(text, encoding="utf-8")
    print(text)
    sys.exit(any(not each.is_well for each in found))


if __name__ == "__main__":
    main()
