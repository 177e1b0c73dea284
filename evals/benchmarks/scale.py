"""What a driver costs: one process of lhkit that plays over several servers, or has others play.

The servers are processes of their own that answer at once, a token an event, and the replicas are
actors of Ray that have an answer ready, so what is measured is the driver: CPU a sample (its
journal included), samples/s, and the peak of its memory. Both are measured in new processes.
Run it with `python evals/benchmarks/scale.py`; it writes `scale.md`.
"""

import argparse
import asyncio
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import scripted_sample
from aiohttp import web
from figures import HERE
from pydantic import TypeAdapter

from lhkit.harness.plan import Job
from lhkit.harness.record import Verdict
from lhkit.harness.run import Played, SampleStage, play_sample, replay
from lhkit.harness.scenario import Scenario
from lhkit.models.http import Endpoint
from lhkit.models.pool import connected_pool
from lhkit.scale import SCRIPTED, Asked, Part, Placement, RayPlayers, Replica, connected

SERVERS = 4
SIZES = ((1, 1_000), (4, 1_000), (4, 10_000))
ALONE = (1_000, 10_000, 100_000)
PLAYED = (
    (2, 64, 1_000),
    (2, 64, 10_000),
    (2, 64, 100_000),
    (8, 64, 100_000),
    (8, 8, 5_000),
    (32, 64, 100_000),
)
"""Replicas, conversations at once of all of them, and samples."""
SCENARIOS = 100
CONCURRENCY = 64
GOAL_MS = 1.0
GOAL_PER_S = 1_000
GPUS = 1_000
SAMPLES_A_GPU_S = 1.0
"""What one GPU may well finish of such short samples; for the arithmetic only."""


def tokens_for(prompt: str) -> list[str]:
    """Return what a server says: the call, and after its result the sum in words."""
    asked = re.findall(r"what is (\d+) \+ 1", prompt)
    if '"sum"' in prompt.rpartition("what is")[2]:
        return ["the ", "sum ", "is ", "there"]
    call = {"name": "add", "parameters": {"x": int(asked[-1]) if asked else 0, "y": 1}}
    return re.findall(r"\W*\w+|\W+$", json.dumps(call))


async def complete(request: web.Request) -> web.StreamResponse:
    """Stream a completion as vLLM does."""
    body = await request.json()
    pieces = [*tokens_for(body["prompt"]), ""]
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    for i, piece in enumerate(pieces):
        is_last = i == len(pieces) - 1
        choice = {"index": 0, "text": piece, "token_ids": [1000 + i]}
        choice |= {"finish_reason": "stop" if is_last else None}
        await response.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())
    usage = {"prompt_tokens": 9, "completion_tokens": len(pieces)}
    told = json.dumps({"choices": [], "usage": usage})
    await response.write(f"data: {told}\n\ndata: [DONE]\n\n".encode())
    return response


async def serve() -> None:
    """Serve on a free port, tell it on standard output, and end with standard input."""

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "gemma"}]})

    async def version(_: web.Request) -> web.Response:
        return web.json_response({"version": "0"})

    app = web.Application(client_max_size=1 << 24)
    app.add_routes(
        [
            web.get("/v1/models", models),
            web.get("/version", version),
            web.post("/v1/completions", complete),
        ]
    )
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


class Ready(Replica):
    """A replica that plays each scenario once, and has that answer ready for all repeats."""

    async def give(self, asked: Sequence[Asked]) -> None:
        """Answer at once."""
        known: dict[int, tuple[str, str]] = vars(self).setdefault("known", {})
        for each in asked:
            if each.scenario not in known:
                played = Played.of(await play_sample(self._job(each), self._ready()))
                before, mark, after = played.line.partition(f'"repeat":{each.repeat}')
                if not mark or played.verdict is not Verdict.PASS:
                    raise AssertionError(f"{each} did not pass, or names no repeat")
                known[each.scenario] = (f'{before}"repeat":', after)
            before, after = known[each.scenario]
            answer = Played(line=f"{before}{each.repeat}{after}", verdict=Verdict.PASS)
            self._done.append((each.ticket, answer))
        self._news.set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Driven:
    """One run: CPU milliseconds a sample, samples a second of wall time, the peak so far.

    `servers` are replicas where Ray's play.
    """

    servers: int
    concurrency: int = CONCURRENCY
    samples: int
    cpu_ms: float
    samples_per_s: float
    peak_mib: float
    load: float


async def drive(addresses: list[str], samples: int) -> Driven:
    """Play so many samples over these servers, and check that all passed."""
    endpoints = [Endpoint(base_url=each) for each in addresses]
    with tempfile.TemporaryDirectory() as folder:
        async with connected_pool(endpoints) as pool:
            cpu_s, wall_s = time.process_time(), time.perf_counter()
            run = await replay(
                scripted_sample.scenarios(SCENARIOS),
                pool,
                toolset=scripted_sample.Toolset(),
                run_dir=Path(folder) / "run",
                repeats=samples // SCENARIOS,
                keep_records=False,
                concurrency=CONCURRENCY,
                progress=False,
            )
            cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
        peak = scripted_sample.peak_mib()
        if any(each.judgement.verdict is not Verdict.PASS for each in run.records):
            raise AssertionError("a sample did not pass")
    return Driven(
        servers=len(addresses),
        samples=samples,
        cpu_ms=1000 * cpu_s / samples,
        samples_per_s=samples / wall_s,
        peak_mib=peak,
        load=os.getloadavg()[0],
    )


class Here:
    """Players without Ray: each scenario is played once, its record is ready for all repeats."""

    replicas = 1
    state = ""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, str]] = {}
        self._stage = SampleStage(
            model=scripted_sample.answering,
            toolset=scripted_sample.Toolset(),
            clock=time.perf_counter,
        )

    async def warm_up(self, _: Sequence[Job]) -> int:
        """Nothing is read ahead."""
        return 0

    async def play(self, job: Job, _: int) -> Played:
        """Answer at once."""
        await asyncio.sleep(0)
        if job.scenario.id not in self._known:
            line = Played.of(await play_sample(job, self._stage)).line
            before, _mark, after = line.partition(f'"repeat":{job.repeat}')
            self._known[job.scenario.id] = (f'{before}"repeat":', after)
        before, after = self._known[job.scenario.id]
        return Played(line=f"{before}{job.repeat}{after}", verdict=Verdict.PASS)


async def driven_alone() -> list[Driven]:
    """Play all sizes without a way to anybody: plan, journal and memory are what is left."""
    asked, found = scripted_sample.scenarios(SCENARIOS), []
    for samples in ALONE:
        found.append(await _driven(asked, Here(), CONCURRENCY, samples))
        print(found[-1], file=sys.stderr, flush=True)
    return found


async def driven_by_ray() -> list[Driven]:
    """Play all sizes on replicas, and check that each sample is there and passed."""
    file = f"{HERE / 'scripted_sample.py'}:Toolset"
    asked, found = scripted_sample.scenarios(SCENARIOS), []
    most = max(told[0] for told in PLAYED)
    placed = Placement(address="local", replicas=most, cpus=0.1)
    async with connected(placed, file, Path(os.devnull)) as cluster:
        for replicas, concurrency, samples in PLAYED:
            at_once = concurrency // replicas
            part = Part(toolset=file, max_tokens=None, model="gold", at_once=at_once)
            placement = replace(cluster.placement, replicas=replicas)
            here = replace(cluster, replica=Ready, placement=placement)
            async with RayPlayers(here, part, asked) as players:
                while players.up < replicas:  # noqa: ASYNC110 - nobody else wants to know
                    await asyncio.sleep(0.1)
                found.append(await _driven(asked, players, concurrency, samples))
                print(found[-1], file=sys.stderr, flush=True)
    return found


async def _driven(
    asked: list[Scenario], players: RayPlayers | Here, concurrency: int, samples: int
) -> Driven:
    with tempfile.TemporaryDirectory() as folder:
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        run = await replay(
            asked,
            SCRIPTED["gold"](),
            toolset=scripted_sample.Toolset(),
            players=players,
            run_dir=Path(folder),
            repeats=samples // SCENARIOS,
            concurrency=concurrency,
            progress=False,
        )
        cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
        peak = scripted_sample.peak_mib()
        if len(run.records) != samples:
            raise AssertionError(f"{len(run.records)} of {samples} samples are there")
    return Driven(
        servers=players.replicas,
        concurrency=concurrency,
        samples=samples,
        cpu_ms=1000 * cpu_s / samples,
        samples_per_s=samples / wall_s,
        peak_mib=peak,
        load=os.getloadavg()[0],
    )


async def measure() -> list[Driven]:
    """Start the servers, play all sizes, end the servers."""
    pipe = asyncio.subprocess.PIPE
    line = (sys.executable, __file__, "--serve")
    servers = [
        await asyncio.create_subprocess_exec(*line, stdin=pipe, stdout=pipe) for _ in range(SERVERS)
    ]
    try:
        ports = [int(await each.stdout.readline()) for each in servers if each.stdout]
        addresses = [f"http://127.0.0.1:{port}" for port in ports]
        await drive(addresses, SCENARIOS)  # imports and caches
        return [await drive(addresses[:count], samples) for count, samples in SIZES]
    finally:
        for each in servers:
            if each.stdin:
                each.stdin.close()
            await each.wait()


def rows(found: list[Driven]) -> str:
    """Return the rows of a table."""
    return "\n".join(
        f"| {each.servers} | {each.concurrency} | {each.samples:,} | {each.cpu_ms:.2f} ms | "
        f"{each.samples_per_s:,.0f} | {1000 / each.cpu_ms:,.0f} | {each.peak_mib:.0f} MiB | "
        f"{each.load:.0f} |"
        for each in found
    )


def page(found: list[Driven], played: list[Driven], alone: list[Driven]) -> str:
    """Return the page for people."""
    cores = os.cpu_count()
    http = max(each.cpu_ms for each in found)
    worst = max(each.cpu_ms for each in played)
    quickest = max(each.samples_per_s for each in played)
    first, *_, longest = sorted(alone, key=_samples)
    small, *_, large = (each for each in played if each.servers == played[0].servers)
    many = GPUS * SAMPLES_A_GPU_S
    goals = "met" if worst <= GOAL_MS and quickest >= GOAL_PER_S else "**not met**"
    grown = longest.peak_mib - first.peak_mib
    return f"""# Scale: what one driver costs

`python evals/benchmarks/scale.py` · a sample is one user turn with two requests and one tool call
over HTTP, {CONCURRENCY} at once, on {cores} cores. The load is the machine's, which others use,
too. The servers are {SERVERS} scripted processes on the same machine
that answer at once, so samples/s here are of driver and servers together on its cores. CPU is the
driver's own: client, tools, judge, journal. Memory is the peak of the driver's process so far.

| servers | at once | samples | driver's CPU each | samples/s here | most a core | memory | load |
|---|---|---|---|---|---|---|---|
{rows(found)}

The driver plays here: one process then has at most {1000 / http:,.0f} such samples a second.

## Where replicas play (`--ray`)

The same sample, played by actors of Ray on the same machine that have the record ready, so that
what is measured is what the driver does for it: the plan, the way to the replica and back, the
journal. The goals are {GOAL_MS:.0f} ms a sample and {GOAL_PER_S:,} samples/s: {goals}. Where 8
replicas have 8 conversations, each has one at a time, so that every message carries one sample:
that is how it is with slow models.

| replicas | at once | samples | driver's CPU each | samples/s here | most a core | memory | load |
|---|---|---|---|---|---|---|---|
{rows(played)}

Memory is the peak of one process that drives all rows in turn: from {small.samples:,} samples to
{large.samples:,} through {large.servers} replicas it grows by
{large.peak_mib - small.peak_mib:.0f} MiB.

## The driver's memory

The same without Ray, so that what is left is plan, retries and journal.

| players | at once | samples | driver's CPU each | samples/s here | most a core | memory | load |
|---|---|---|---|---|---|---|---|
{rows(alone)}

From {first.samples:,} to {longest.samples:,} samples the peak of memory grows by {grown:.0f} MiB,
{1024 * 1024 * grown / (longest.samples - first.samples):.0f} bytes a sample.

## What follows for {GPUS:,} GPUs

Arithmetic, no measurement; no GPU was asked. If a GPU finishes {SAMPLES_A_GPU_S:.0f} such sample
a second, {GPUS:,} GPUs finish {many:,.0f} samples/s. Over HTTP that takes
{many:,.0f} × {http:.2f} ms = {many * http / 1000:.1f} s of driver's CPU a second: one process uses
one core, so {math.ceil(many * http / 1000)} drivers. With replicas that play it takes
{many:,.0f} × {worst:.2f} ms = {many * worst / 1000:.2f} s: {math.ceil(many * worst / 1000)}. Where
a sample takes a GPU ten seconds, it is a tenth of that.

A run has at most 4,096 conversations at once and 100,000 samples: four for each of {GPUS:,} GPUs,
which is too few to keep them busy. Beyond that, split the scenarios into files, give each driver
its own with its own `--name`.
"""


_DRIVEN = TypeAdapter(list[Driven])


def _in_new_process(part: str) -> list[Driven]:
    line = [sys.executable, __file__, part]
    done = subprocess.run(line, stdout=subprocess.PIPE, check=True)  # noqa: S603 - this script
    return _DRIVEN.validate_json(done.stdout.splitlines()[-1])


def _samples(driven: Driven) -> int:
    return driven.samples


def main() -> None:
    """Measure, or serve."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--serve", action="store_true")
    options.add_argument("--play", action="store_true")
    options.add_argument("--alone", action="store_true")
    given = options.parse_args()
    if given.serve:
        asyncio.run(serve())
        return
    if given.play:
        print(_DRIVEN.dump_json(asyncio.run(driven_by_ray())).decode())
        return
    if given.alone:
        print(_DRIVEN.dump_json(asyncio.run(driven_alone())).decode())
        return
    text = page(asyncio.run(measure()), _in_new_process("--play"), _in_new_process("--alone"))
    (HERE / "scale.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
