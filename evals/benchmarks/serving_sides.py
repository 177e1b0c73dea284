"""The two sides of `throughput.py`: lhkit's client path and vLLM's serving benchmark.

Both send the same prompts to the same server, in the same order and with the same concurrency.
Outputs have equal lengths: vLLM's benchmark requests as many tokens as lhkit received.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp

from lhkit.base.json_values import JSON
from lhkit.conversation.responses import Sampling
from lhkit.harness.records.record import SampleRecord, Verdict
from lhkit.harness.running.plan import plan_run
from lhkit.harness.running.run import replay
from lhkit.harness.running.sample import SampleContext, warm_up
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.lifehelper import toolset as life_helper
from lhkit.models.base import ChatModel
from lhkit.models.serving.vllm_server import ServerSettings
from lhkit.toolset import Toolset, WrappedToolset

BENCH = Path(__file__).parent / "vllm_bench.py"
MAX_TOKENS = 128
_TRIES, _PAUSE_S = 50, 0.1
_GRACE_S = 10.0
_LOG, _SHOWN = "bench.log", 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The result of one side: requests, tokens as counted by the server, wall time, TTFT."""

    requests: int
    prompt_tokens: int
    output_tokens: int
    seconds: float
    first_token_s: float

    @property
    def tokens_per_s(self) -> float:
        """Output tokens per second."""
        return self.output_tokens / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A request of lhkit: the prompt and the number of output tokens.

    The field names are those of vLLM's dataset files.
    """

    prompt: str
    output_tokens: int


def toolset() -> Toolset:
    """Return life-helper limited to one request per user turn."""
    return WrappedToolset(
        inner=life_helper.LifeHelperToolset(sampling=Sampling(max_tokens=MAX_TOKENS)),
        assistant=lambda session, _locale: replace(session.assistant, max_turns=1),
    )


def openings(scenarios: Sequence[Scenario], count: int) -> tuple[Scenario, ...]:
    """Return the first user turn of `count` scenarios, spread over the list."""
    chosen = (scenarios[n * len(scenarios) // count] for n in range(count))
    return tuple(each.model_copy(update={"turns": each.turns[:1]}) for each in chosen)


async def prepare_cache(model: ChatModel, scenarios: Sequence[Scenario]) -> None:
    """Reset the server's prefix cache, then warm it up with the common prefixes."""
    async with aiohttp.ClientSession() as session:
        await reset_cache(session, f"{model.identity.base_url}/reset_prefix_cache")
    plan = plan_run(scenarios, model, toolset(), repeats=1)
    stage = SampleContext(model=model, toolset=toolset(), clock=time.perf_counter)
    for job in plan.warm_up_samples(plan.samples()):
        await warm_up(job, stage)


async def reset_cache(session: aiohttp.ClientSession, url: str) -> None:
    """Reset a server's prefix cache.

    Raises:
        AssertionError: it does not.
    """
    for _ in range(_TRIES):
        async with session.post(url) as answer:
            answer.raise_for_status()
            result: Mapping[str, JSON] = await answer.json()
        if result.get("success"):
            return
        await asyncio.sleep(_PAUSE_S)  # the blocks of the last request are still in use
    raise AssertionError("the server does not reset its prefix cache")


async def run_lhkit(
    model: ChatModel, scenarios: Sequence[Scenario], at_once: int, folder: Path
) -> tuple[Side, tuple[Sent, ...]]:
    """Replay the scenarios as `lhkit eval` does; return the result and the requests.

    The time covers the whole replay: planning, sessions, calls, scoring, records on disk.
    """
    began_s = time.perf_counter()
    run = await replay(
        scenarios,
        model,
        toolset=toolset(),
        run_dir=folder,
        concurrency=at_once,
        keep_prompts=True,
        progress=False,
    )
    seconds = time.perf_counter() - began_s
    sent = tuple(sent_request(record) for record in run.records)
    summary = run.summary()
    side = Side(
        requests=len(sent),
        prompt_tokens=summary.tokens.prompt,
        output_tokens=summary.tokens.completion,
        seconds=seconds,
        first_token_s=summary.times["first_token"].p50_s or 0.0,
    )
    return side, sent


def sent_request(record: SampleRecord) -> Sent:
    """Return the only request of a conversation.

    Raises:
        AssertionError: the number of requests is not one, or the sample is invalid.
    """
    calls = [call for turn in record.trajectory.turns for call in turn.model_calls]
    if (
        record.score.verdict is Verdict.INVALID
        or len(calls) != 1
        or not calls[0].response.prompt_text
    ):
        raise AssertionError(
            f"{record.sample_id}: {record.score.verdict} after {len(calls)} requests, not 1"
        )
    (call,) = calls
    return Sent(
        prompt=call.response.prompt_text or "", output_tokens=call.response.usage.completion_tokens
    )


class Bench:
    """vLLM's serving benchmark in a subprocess that runs one measurement at a time."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path) -> None:
        self._process = process
        self.folder = folder

    async def answer(self) -> dict[str, Any]:
        """Return the next result.

        Raises:
            AssertionError: the process has exited; the message contains the end of its log.
        """
        if self._process.stdout is None:
            raise AssertionError("a pipe was asked for")
        line = await self._process.stdout.readline()
        if not line:
            log = self.folder / _LOG
            text = await asyncio.to_thread(log.read_text, encoding="utf-8", errors="replace")
            raise AssertionError(f"vLLM's benchmark exited:\n{text[-_SHOWN:]}")
        result: dict[str, Any] = json.loads(line)
        return result

    async def ask(self, arguments: Sequence[str]) -> dict[str, Any]:
        """Run `vllm bench serve` with these arguments and return the result.

        Raises:
            AssertionError: as `answer`.
        """
        if self._process.stdin is None:
            raise AssertionError("a pipe was asked for")
        self._process.stdin.write(json.dumps(list(arguments)).encode() + b"\n")
        await self._process.stdin.drain()
        return await self.answer()


@asynccontextmanager
async def bench(plan: ServerSettings, folder: Path) -> AsyncIterator[Bench]:
    """Start vLLM's benchmark; its first answer, once it is ready, is its version.

    `folder` is for its log and its dataset.
    """
    with (folder / _LOG).open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(BENCH)),
            env={**os.environ, **plan.environment()},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=file,
        )
    try:
        yield Bench(process, folder)
    finally:
        if process.stdin is not None:
            process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), _GRACE_S)
        except TimeoutError:
            process.kill()
            await process.wait()


async def run_vllm_bench(
    peer: Bench, plan: ServerSettings, address: str, sent: Sequence[Sent], at_once: int
) -> Side:
    """Send the same requests with vLLM's benchmark, and return its result."""
    dataset = peer.folder / "sent.jsonl"
    lines = "".join(json.dumps(asdict(request)) + "\n" for request in sent)
    await asyncio.to_thread(dataset.write_text, lines, encoding="utf-8")
    result = await peer.ask(arguments(plan, address, dataset, len(sent), at_once))
    return Side(
        requests=int(result["completed"]),
        prompt_tokens=int(result["total_input_tokens"]),
        output_tokens=int(result["total_output_tokens"]),
        seconds=result["duration"],
        first_token_s=result["median_ttft_ms"] / 1000,
    )


def arguments(
    plan: ServerSettings, address: str, dataset: Path, count: int, at_once: int
) -> tuple[str, ...]:
    """Return the arguments of `vllm bench serve` for the prompts and lengths of a file."""
    return (
        *("--backend", "vllm", "--base-url", address, "--endpoint", "/v1/completions"),
        *("--model", plan.served_name, "--tokenizer", str(plan.model)),
        *("--dataset-name", "custom", "--dataset-path", str(dataset), "--disable-shuffle"),
        *("--skip-chat-template", "--custom-output-len=-1", "--ignore-eos"),
        *("--num-prompts", str(count), "--max-concurrency", str(at_once)),
        *("--temperature", "0", "--extra-body", '{"add_special_tokens": false}'),
        "--disable-tqdm",
    )
