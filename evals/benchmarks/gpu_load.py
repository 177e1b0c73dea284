"""Load a server with conversations of lhkit, or with the same requests by bare aiohttp.

A process of `gpu.py`. It reads a job as a line of JSON, prints `ready` once everything is loaded,
starts at the next line, and prints `stopped` and then the result as JSON.
"""

import asyncio
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp
import psutil

from lhkit.harness.figures.metrics import summarise
from lhkit.harness.figures.timings import Latency, latency
from lhkit.harness.records.record import SampleRecord
from lhkit.harness.running.run import replay
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.lifehelper.shipped import scenario_paths
from lhkit.models.client.served import connect
from lhkit.models.client.transport import Endpoint
from lhkit.toolset import load

Request: TypeAlias = Mapping[str, Any]
"""`prompt` and `output_tokens`, as in the dataset files of `vllm bench serve`."""

_TAIL_BYTES = 16_384
"""The last events of a stream, among them the one with the usage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a process sends.

    Args:
        side: `lhkit` or `bare`.
        base_url: address of the server, without `/v1`.
        model: served name.
        count: number of conversations; scenarios are repeated to reach it.
        at_once: conversations at a time.
        prompts: file of the conversations' requests, a JSON list per line: written by `lhkit`,
            read by `bare`.
        folder: run folder of `lhkit`.
        part: this process runs every `parts`-th conversation, from number `part`.
        parts: number of processes.
    """

    side: str
    base_url: str
    model: str
    count: int
    at_once: int
    prompts: str
    folder: str = ""
    part: int = 0
    parts: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The result of a job; `began_s` and `ended_s` are of the machine's monotonic clock."""

    began_s: float
    ended_s: float
    cpu_s: float
    conversations: int
    requests: int
    prompt_tokens: int
    output_tokens: int
    failed: int
    ttft: Mapping[str, float | None]
    turn: Mapping[str, float | None]


class Stopwatch:
    """Wall and CPU time of this process, between a line of standard input and `stop`."""

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)  # whatever else is printed goes to the log
        self._cpu_s = self._began_s = 0.0

    def start(self) -> None:
        """Wait for the line."""
        self.answer("ready")
        sys.stdin.readline()
        self._cpu_s, self._began_s = _cpu_s(), time.perf_counter()

    def stop(self) -> dict[str, float]:
        """Return the fields of `Load`."""
        ended_s, cpu_s = time.perf_counter(), _cpu_s() - self._cpu_s
        self.answer("stopped")
        return {"began_s": self._began_s, "ended_s": ended_s, "cpu_s": cpu_s}

    def answer(self, line: str) -> None:
        """Print a line for `gpu.py`."""
        print(line, file=self._answers, flush=True)


def _cpu_s() -> float:
    used = psutil.Process().cpu_times()
    return float(used.user + used.system)


def chosen(scenarios: Sequence[Scenario], job: Job) -> tuple[tuple[Scenario, ...], int]:
    """Return scenarios spread over the list, and how often to run each, for `job.count`."""
    own = scenarios[job.part :: job.parts]
    count = math.ceil(job.count / job.parts)
    repeats = math.ceil(count / len(own))
    size = math.ceil(count / repeats)
    return tuple(own[number * len(own) // size] for number in range(size)), repeats


async def run_lhkit(job: Job, watch: Stopwatch) -> Load:
    """Replay conversations as `lhkit eval` does: prompts, streaming, tools, scores, records."""
    scenarios, repeats = chosen(load_scenarios(scenario_paths("dev")), job)
    toolset = load()  # imports life-helper, before the time counts
    model = await connect(Endpoint(base_url=job.base_url, model=job.model))
    try:
        watch.start()
        run = await replay(
            scenarios,
            model,
            toolset=toolset,
            run_dir=Path(job.folder),
            repeats=repeats,
            concurrency=job.at_once,
            keep_prompts=True,
            keep_records=False,
            progress=False,
        )
        spent = watch.stop()
    finally:
        await model.aclose()
    records = tuple(run.records)
    summary = summarise(records)
    conversations = [list(sent_requests(record)) for record in records]
    lines = (json.dumps(requests) + "\n" for requests in conversations)
    Path(job.prompts).write_text("".join(lines), encoding="utf-8")
    return Load(
        **spent,
        conversations=len(conversations),
        requests=sum(map(len, conversations)),
        prompt_tokens=summary.tokens.prompt,
        output_tokens=summary.tokens.completion,
        failed=sum(record.score.verdict == "invalid" for record in records),
        ttft=percentiles(summary.times["first_token"]),
        turn=percentiles(summary.times["turn_time"]),
    )


def sent_requests(record: SampleRecord) -> Iterator[Request]:
    """Yield the requests of a conversation that were answered."""
    for turn in record.trajectory.turns:
        for call in turn.model_calls:
            tokens = call.response.usage.completion_tokens
            if call.response.prompt_text and tokens:
                yield {"prompt": call.response.prompt_text, "output_tokens": tokens}


async def run_bare(job: Job, watch: Stopwatch) -> Load:
    """Stream the requests of each conversation in order, and do nothing with the text."""
    lines = Path(job.prompts).read_text(encoding="utf-8").splitlines()
    conversations: list[list[Request]] = list(filter(None, map(json.loads, lines)))
    client = _BareClient(job)
    pending = iter(conversations)

    async def work(session: aiohttp.ClientSession) -> None:
        for requests in pending:
            for request in requests:
                await client.send(session, request)

    connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        watch.start()
        await asyncio.gather(*(work(session) for _ in range(job.at_once)))
        spent = watch.stop()
    return Load(
        **spent,
        conversations=len(conversations),
        requests=len(client.first_s),
        prompt_tokens=client.prompt_tokens,
        output_tokens=client.output_tokens,
        failed=client.failed,
        ttft=percentiles(latency(client.first_s)),
        turn={},
    )


class _BareClient:
    """Sends the fields that lhkit sends, but for the stops: outputs are as long as lhkit's."""

    def __init__(self, job: Job) -> None:
        self._url = f"{job.base_url}/v1/completions"
        self._fields = {
            "model": job.model,
            "add_special_tokens": False,
            "skip_special_tokens": False,
            "ignore_eos": True,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
        }
        self.first_s: list[float] = []
        self.prompt_tokens = self.output_tokens = self.failed = 0

    async def send(self, session: aiohttp.ClientSession, request: Request) -> None:
        body = {
            **self._fields,
            "prompt": request["prompt"],
            "max_tokens": request["output_tokens"],
        }
        sent_s, tail, first_s = time.perf_counter(), b"", None
        try:
            async with session.post(self._url, json=body) as response:
                response.raise_for_status()
                async for chunk in response.content.iter_any():
                    if first_s is None:
                        first_s = time.perf_counter() - sent_s
                    tail = (tail + chunk)[-_TAIL_BYTES:]
            usage = _last_usage(tail)
        except (aiohttp.ClientError, ValueError):
            self.failed += 1
            return
        self.first_s.append(first_s or 0.0)
        self.prompt_tokens += usage["prompt_tokens"]
        self.output_tokens += usage["completion_tokens"]


def _last_usage(tail: bytes) -> Mapping[str, int]:
    """Return the usage in the last events of a stream.

    Raises:
        ValueError: there is none.
    """
    for line in reversed(tail.splitlines()):
        if line.startswith(b"data: {") and (usage := json.loads(line[6:]).get("usage")):
            return {name: int(usage[name]) for name in ("prompt_tokens", "completion_tokens")}
    raise ValueError("the stream ended without a usage")


def percentiles(measured: Latency) -> dict[str, float | None]:
    """Return the percentiles that the page shows."""
    return {"p50": measured.p50_s, "p95": measured.p95_s, "p99": measured.p99_s}


def main() -> None:
    """Run the job of standard input."""
    watch = Stopwatch()
    job = Job(**json.loads(sys.stdin.readline()))
    side = {"lhkit": run_lhkit, "bare": run_bare}[job.side]
    watch.answer(json.dumps(asdict(asyncio.run(side(job, watch)))))


if __name__ == "__main__":
    main()
