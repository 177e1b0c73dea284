"""What a driver costs: one process of lhkit that plays over several servers.

The servers are processes of their own that answer at once, a token an event, so what is measured is
the driver: CPU a sample (its journal included), samples/s, and the peak of its memory.
Run it with `python evals/benchmarks/scale.py`; it writes `scale.md`.
"""

import argparse
import asyncio
import json
import math
import os
import re
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import scripted_sample
from aiohttp import web
from figures import HERE

from lhkit.harness.record import Verdict
from lhkit.harness.run import replay
from lhkit.models.http import Endpoint
from lhkit.models.pool import connected_pool

SERVERS = 4
SIZES = ((1, 1_000), (4, 1_000), (4, 10_000))
SCENARIOS = 100
CONCURRENCY = 64
GOAL_MS = 1.0
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Driven:
    """One run: CPU milliseconds a sample, samples a second of wall time, the peak so far."""

    servers: int
    samples: int
    cpu_ms: float
    samples_per_s: float
    peak_mib: float


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


def page(found: list[Driven]) -> str:
    """Return the page for people."""
    cores, load = os.cpu_count(), os.getloadavg()[0]
    worst = max(each.cpu_ms for each in found)
    drivers = GPUS * SAMPLES_A_GPU_S * worst / 1000
    rows = "\n".join(
        f"| {each.servers} | {each.samples:,} | {each.cpu_ms:.2f} ms | {each.samples_per_s:.0f} | "
        f"{1000 / each.cpu_ms:.0f} | {each.peak_mib:.0f} MiB |"
        for each in found
    )
    verdict = "met" if worst <= GOAL_MS else "**not met**"
    played = GPUS * SAMPLES_A_GPU_S
    return f"""# Scale: what one driver costs

`python evals/benchmarks/scale.py` · a sample is one user turn with two requests and one tool call
over HTTP, {CONCURRENCY} at once, on {cores} cores at a load of {load:.1f}.
The servers are {SERVERS} scripted processes on the same machine
that answer at once, so samples/s here are of driver and servers together on its cores. CPU is the
driver's own: client, tools, judge, journal. Memory is the peak of the driver's process so far.

| servers | samples | driver's CPU a sample | samples/s here | at most, a core | memory |
|---|---|---|---|---|---|
{rows}

The goals of 1 ms a sample and 1,000 samples/s for one driver are {verdict} over HTTP.

## What follows for {GPUS:,} GPUs

Arithmetic, no measurement; no GPU was asked. If a GPU finishes {SAMPLES_A_GPU_S:.0f} such sample
a second, {GPUS:,} GPUs finish {played:,.0f} samples/s, which takes
{played:,.0f} × {worst:.2f} ms = {drivers:.1f} s of driver's CPU a second. One process uses one
core, so it takes {math.ceil(drivers)} drivers,
each with its part of the scenarios, its own servers and
its own `--name`; their runs stay apart. Where a sample takes a GPU ten seconds, it is a tenth of
that. A run has at most 4,096 conversations at once and 100,000 samples:
beyond that, too, there have to be several.
"""


def main() -> None:
    """Measure, or serve."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--serve", action="store_true")
    if options.parse_args().serve:
        asyncio.run(serve())
        return
    text = page(asyncio.run(measure()))
    (HERE / "scale.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
