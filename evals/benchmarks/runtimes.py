"""The tuned Gemma by each runtime and quantisation: verdicts, speed, start and memory beside vLLM.

All sides play one small sample in turns, one conversation at a time and eight at once, for times
and memory: that part wants a machine with nothing else to do. Then each plays all of `dev`, eight
conversations at once, in a server of its own; the runs are kept under `--runs`, where `lhkit
parity` sets two against each other. What is done is kept: the same command goes on where it was
stopped, and `--minutes` ends it by itself, with exit code 3 while something is left.

    python evals/benchmarks/runtimes.py [--minutes 9] [--only vllm-bfloat16,llama.cpp-Q8_0]

LiteRT-LM has one conversation at a time, and needs a converter in an environment of its own:

    python evals/benchmarks/runtimes.py --only vllm-bfloat16,litert-lm-int8 --converter PYTHON

At the end it prints the table that stands in `evals/baselines/runtimes.md`.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from lhkit import app
from lhkit.files import write_whole
from lhkit.harness.parity import CallKind, Parity, parity
from lhkit.harness.record import SampleRecord, Verdict
from lhkit.harness.results import Run
from lhkit.harness.run import replay
from lhkit.harness.scenario import Scenario, load_scenarios
from lhkit.harness.timings import latency
from lhkit.lifehelper.shipped import scenario_paths
from lhkit.lifehelper.toolset import LifeHelperToolset
from lhkit.messages import Sampling
from lhkit.models.base import ChatModel
from lhkit.models.footprint import FootprintSource, watched
from lhkit.models.http import LITERT_LM, Endpoint
from lhkit.models.light import LlamaCppServer, LlamaCppSettings
from lhkit.models.litert import LiteRtServer, LiteRtSettings
from lhkit.models.served import connect
from lhkit.models.serving import LocalServer, ServerPlan, VllmServer
from lhkit.models.weights import file_sha256
from lhkit.runtimes import LLAMA_CPP, VLLM
from lhkit.settings import Settings, load_settings

AT_ONCE = 8
SAMPLE = 8
ROUNDS = 2
MAX_TOKENS = 128
LEFT = 3
"""The exit code while something is left to play."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One runtime with one type of number; `again` is the same once more, to see what chance is."""

    runtime: str
    kind: str
    again: bool = False

    @property
    def name(self) -> str:
        """What its folder is called."""
        return f"{self.runtime}-{self.kind}{'-again' * self.again}"

    @property
    def at_once(self) -> int:
        """How many conversations it has at most."""
        return 1 if self.runtime == LITERT_LM else AT_ONCE


SIDES = (
    Side(runtime=VLLM, kind="bfloat16"),
    Side(runtime=VLLM, kind="bfloat16", again=True),
    *(Side(runtime=LLAMA_CPP, kind=each) for each in ("BF16", "Q8_0", "Q4_0", "Q4_K_M")),
    Side(runtime=VLLM, kind="float32"),
    Side(runtime=LLAMA_CPP, kind="Q2_0"),
    *(Side(runtime=LITERT_LM, kind=each) for each in ("int8", "weight_only_wi8_afp32", "none")),
)
REFERENCE = SIDES[0]
_EXPORTED = {LLAMA_CPP: "gguf", LITERT_LM: "litertlm"}
"""What `lhkit export-model --to` calls the file of a runtime, and how its name ends."""


def _tree(pid: int) -> list[psutil.Process]:
    top = psutil.Process(pid)
    return [top, *top.children(recursive=True)]


def _cpu_s(pid: int) -> float:
    times = [each.cpu_times() for each in _tree(pid)]
    return sum(each.user + each.system for each in times)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A side that serves, and what its start took."""

    model: ChatModel
    pid: int
    footprint: FootprintSource
    start_cpu_s: float


class Bench:
    """What all steps need: the settings, the folders, and when to stop."""

    def __init__(
        self, *, settings: Settings, runs: Path, until_s: float, converter: Path | None = None
    ) -> None:
        self.settings = settings
        self.runs = runs
        self._converter = converter
        self._until_s = until_s
        self._measured = runs / "measured.json"

    @property
    def left_s(self) -> float:
        """Seconds until this call has to end."""
        return self._until_s - time.monotonic()

    def told(self) -> dict[str, Any]:
        """Return what was measured by now, by step."""
        if not self._measured.exists():
            return {}
        found: dict[str, Any] = json.loads(self._measured.read_text(encoding="utf-8"))
        return found

    def keep(self, step: str, values: object) -> None:
        """Keep what a step measured."""
        told = {**self.told(), step: values}
        write_whole(self._measured, json.dumps(told, indent=1).encode())

    async def plan(self, side: Side) -> LocalServer[ServerPlan]:
        """Return the server of a side, its weights in place."""
        if side.runtime == VLLM:
            asked = self.settings.model_copy(update={"dtype": side.kind})
            vllm = await app.embedded_server(asked)
            log = vllm.log_path.with_stem(f"{vllm.log_path.stem}-{side.kind}")
            return VllmServer(replace(vllm, log_path=log))
        file = await self.exported(side)
        sha256 = await asyncio.to_thread(file_sha256, file)
        log_path = file.with_suffix(".log")
        if side.runtime == LITERT_LM:
            phone = LiteRtSettings(
                model=file, served_name="gemma", log_path=log_path, weights_sha256=sha256
            )
            return LiteRtServer(phone)
        light = LlamaCppSettings(
            model=file,
            served_name="gemma",
            log_path=log_path,
            at_once=AT_ONCE,
            weights_sha256=sha256,
        )
        return LlamaCppServer(light)

    def file(self, side: Side) -> Path:
        """Return where the weights of a side are, or will be."""
        if side.runtime == VLLM:
            return app.embedded_folder("gemma", self.settings) / "model.safetensors"
        return self.runs / f"gemma-{side.kind}.{_EXPORTED[side.runtime]}"

    async def exported(self, side: Side) -> Path:
        """Return the file of a side; export it if it is not there."""
        file = self.file(side)
        if not file.exists():
            to = f"{_EXPORTED[side.runtime]}:{side.kind}"
            words = ("export-model", "gemma", "--no-check", "--to", to, "--into", str(file))
            converter = () if self._converter is None else ("--converter", str(self._converter))
            await _lhkit(*words, *(converter if side.runtime == LITERT_LM else ()))
        return file

    @asynccontextmanager
    async def serving(self, side: Side) -> AsyncIterator[Served]:
        """Serve a side until the end of the block."""
        async with await self.plan(side) as server:
            cpu_s, weights = _cpu_s(server.pid), server.settings.model
            async with watched(server.pid, weights=weights, start_s=server.start_s) as footprint:
                model = await connect(Endpoint(base_url=server.base_url, model="gemma"))
                async with aclosing(model):
                    yield Served(
                        model=model, pid=server.pid, footprint=footprint, start_cpu_s=cpu_s
                    )

    async def play_dev(self, side: Side) -> bool:
        """Play what is missing of `dev`; return whether all of it is there."""
        step = f"dev/{side.name}"
        if step in self.told():
            return True
        scenarios = load_scenarios(scenario_paths("dev"))
        async with self.serving(side) as served:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(1.0, self.left_s)):
                    run = await replay(
                        scenarios,
                        served.model,
                        toolset=_toolset(),
                        run_dir=self.runs / side.name,
                        concurrency=side.at_once,
                        keep_prompts=True,
                        progress=False,
                    )
                    self.keep(step, {"passed": _passed(run.records), "count": len(run.records)})
                    return True
        return False

    async def time_sample(self, side: Side, number: int) -> bool:
        """Time the sample by one side, in the given round; return whether it is done."""
        step = f"speed/{number}/{side.name}"
        if step in self.told():
            return True
        scenarios = load_scenarios(scenario_paths("dev"))
        sample = [scenarios[n * len(scenarios) // SAMPLE] for n in range(SAMPLE)]
        told: dict[str, Any] = {"load": os.getloadavg()[0]}
        try:
            async with asyncio.timeout(max(1.0, self.left_s)), self.serving(side) as served:
                await _timed(served, scenarios[1 : 1 + AT_ONCE], side.at_once)  # counts for nothing
                for at_once in sorted({1, side.at_once}):
                    told[f"at {at_once}"] = await _timed(served, sample, at_once)
                taken = served.footprint()
                told |= {"start_s": taken.start_s, "memory": taken.memory_bytes}
        except TimeoutError:
            return False
        self.keep(step, {**told, "start_cpu_s": served.start_cpu_s})
        return True


def _toolset() -> LifeHelperToolset:
    return LifeHelperToolset(sampling=Sampling(max_tokens=MAX_TOKENS))


def _passed(records: Sequence[SampleRecord]) -> int:
    return sum(each.judgement.verdict is Verdict.PASS for each in records)


async def _lhkit(*words: str) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "lhkit", *words)
    if code := await process.wait():
        raise SystemExit(f"lhkit {' '.join(words)} ended with {code}")


async def _timed(served: Served, sample: Sequence[Scenario], at_once: int) -> dict[str, float]:
    """Play a sample, and return what it took."""
    with tempfile.TemporaryDirectory() as folder:
        begun_s, cpu_s = time.perf_counter(), _cpu_s(served.pid)
        run = await replay(
            sample,
            served.model,
            toolset=_toolset(),
            run_dir=Path(folder) / "run",
            concurrency=at_once,
            progress=False,
        )
        wall_s, cpu_s = time.perf_counter() - begun_s, _cpu_s(served.pid) - cpu_s
        turns = [turn for record in run.records for turn in record.evidence.turns]
        calls = [call.response for turn in turns for call in turn.model_calls]
        written = sum(each.usage.completion_tokens for each in calls)
        streamed = [
            (each.usage.completion_tokens - 1, each.timing.last_token_s - each.timing.first_token_s)
            for each in calls
            if each.timing.last_token_s is not None and each.timing.first_token_s is not None
        ]
        first = latency(each.timing.first_token_s for each in calls)
        turn = latency(each.active_s for each in turns)
        return {
            "wall_s": wall_s,
            "cpu_s": cpu_s,
            "tokens": written,
            "prompt_tokens": sum(each.usage.prompt_tokens for each in calls),
            "per_reply": sum(n for n, _ in streamed) / sum(seconds for _, seconds in streamed),
            "first_p50_s": first.p50_s or 0.0,
            "turn_p50_s": turn.p50_s or 0.0,
        }


def table(bench: Bench, sides: Sequence[Side]) -> Iterator[str]:
    """Yield the lines of the table: a row a figure, a column a side."""
    told = bench.told()
    sides = [each for each in sides if f"dev/{each.name}" in told]
    reference = Run.load(bench.runs / REFERENCE.name)
    beside = {
        each: parity(reference, Run.load(bench.runs / each.name))
        for each in sides
        if each != REFERENCE
    }
    yield f"| | {' | '.join(_heading(each) for each in sides)} |"
    yield f"|---|{'---:|' * len(sides)}"
    runs = {each: Run.load(bench.runs / each.name) for each in sides}
    yield _row("passed", [_share(_passed(runs[s].records), len(runs[s].records)) for s in sides])
    rows = {
        "against the first, in points (95 %)": _points,
        "flips: lost, gained; exact test": _flips,
        "samples that are word for word the same": _same,
        "first differing replies: same calls, other arguments, no call on one side, other": _calls,
    }
    for words, told_of in rows.items():
        yield _row(words, [told_of(beside[s]) if s in beside else "" for s in sides])
    for at_once in (1, AT_ONCE):
        for words, key, unit in _FIGURES:
            values = [_figure(told, s, f"at {at_once}", key) for s in sides]
            yield _row(f"{at_once} at once: {words}", [_told(each, unit) for each in values])
    for words, key, unit, scale in _WHOLE:
        values = [_figure(told, s, key) for s in sides]
        yield _row(words, [_told([each / scale for each in v], unit) for v in values])
    yield _row("weights on disk", [_size(bench, each) for each in sides])


_FIGURES = (
    ("tokens a second, all together", "rate", ""),
    ("tokens a second after the first, of one reply", "per_reply", ""),
    ("CPU seconds of the server, the sample", "cpu_s", " s"),
    ("first token, p50", "first_p50_s", " s"),
    ("turn, p50", "turn_p50_s", " s"),
)
_WHOLE = (
    ("until it serves", "start_s", " s", 1.0),
    ("CPU until it serves", "start_cpu_s", " s", 1.0),
    ("memory, at most", "memory", " GB", 1e9),
)


def _heading(side: Side) -> str:
    return f"{side.runtime}, {side.kind}{', again' * side.again}"


def _row(words: str, cells: Sequence[str]) -> str:
    return f"| {words} | {' | '.join(cells)} |"


def _share(part: int, of: int) -> str:
    return f"{part}/{of} {100 * part / of:.0f} %"


def _points(told: Parity) -> str:
    found = told.comparison
    if found.difference is None or found.interval is None:
        return ""
    low, high = (100 * each for each in (found.interval.low, found.interval.high))
    return f"{100 * found.difference:+.1f} ({low:+.1f} … {high:+.1f})"


def _flips(told: Parity) -> str:
    found = told.comparison
    return f"{len(found.lost)}, {len(found.gained)}; p = {found.p_value or 1.0:.3f}"


def _same(told: Parity) -> str:
    pairs = len(told.comparison.pairs)
    return _share(pairs - len(told.divergences), pairs)


def _calls(told: Parity) -> str:
    kinds = (CallKind.SAME, CallKind.ARGUMENT, CallKind.NONE)
    counts = [told.calls.get(each, 0) for each in kinds]
    return ", ".join(map(str, (*counts, len(told.divergences) - sum(counts))))


def _figure(told: dict[str, Any], side: Side, *keys: str) -> list[float]:
    """Return a figure of each round."""
    found = []
    for number in range(ROUNDS):
        values = told.get(f"speed/{number}/{side.name}", {})
        for key in keys[:-1]:
            values = values.get(key, {})
        if keys[-1] == "rate" and values:
            found.append(values["tokens"] / values["wall_s"])
        elif keys[-1] in values:
            found.append(values[keys[-1]])
    return found


def _told(values: Sequence[float], unit: str) -> str:
    return " / ".join(f"{each:.3g}" for each in values) + unit if values else ""


def _size(bench: Bench, side: Side) -> str:
    return f"{bench.file(side).stat().st_size / 1e6:.0f} MB"


async def worked(bench: Bench, sides: Sequence[Side], *, rounds: int) -> bool:
    """Do what is missing in the time there is; return whether all is done."""
    timed = [each for each in sides if not each.again]
    for number in range(rounds):
        for side in timed if number % 2 == 0 else reversed(timed):
            if bench.left_s <= 0 or not await bench.time_sample(side, number):
                return False
    for side in sides:
        if bench.left_s <= 0 or not await bench.play_dev(side):
            return False
    return True


async def main() -> int:
    """Work, print the table; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=600.0)
    parser.add_argument("--runs", type=Path, default=Path("runs/runtimes"))
    parser.add_argument("--only", help="names of sides, joined by commas")
    parser.add_argument("--converter", type=Path, help="Python of LiteRT's converter")
    parser.add_argument("--no-times", action="store_true", help="play dev only")
    parser.add_argument("--table", action="store_true", help="play nothing")
    options = parser.parse_args()
    sides = [
        each
        for each in SIDES
        if (each.name in options.only.split(",") if options.only else each.runtime != LITERT_LM)
    ]
    until_s = time.monotonic() + 60 * options.minutes
    options.runs.mkdir(parents=True, exist_ok=True)
    bench = Bench(
        settings=load_settings(), runs=options.runs, until_s=until_s, converter=options.converter
    )
    rounds = 0 if options.no_times else ROUNDS
    is_done = options.table or await worked(bench, sides, rounds=rounds)
    if is_done and f"dev/{REFERENCE.name}" in bench.told():
        print("\n".join(table(bench, sides)))
    elif is_done:
        print(f"all played; the table stands beside {REFERENCE.name}, which is not played yet")
    return 0 if is_done else LEFT


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
