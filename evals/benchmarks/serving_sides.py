"""The two sides of `throughput.py`: lhkit's whole client path, and vLLM's own serving benchmark.

Both put the same prompts to the same server, as many at once, in the same order. Answers are as
long on both sides: the benchmark asks for as many tokens as lhkit got, and ignores the end of text.
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

from lhkit.harness.plan import plan_run
from lhkit.harness.record import SampleRecord, Verdict
from lhkit.harness.run import replay
from lhkit.harness.sample import SampleContext, warm_up
from lhkit.harness.scenario import Scenario
from lhkit.json_values import JSON
from lhkit.lifehelper import toolset as life_helper
from lhkit.models.base import ChatModel
from lhkit.models.vllm_server import ServerSettings
from lhkit.responses import Sampling
from lhkit.toolset import Toolset, ToolsetAround

BENCH = Path(__file__).parent / "vllm_bench.py"
MAX_TOKENS = 128
_TRIES, _PAUSE_S = 50, 0.1
_GRACE_S = 10.0
_LOG, _SHOWN = "bench.log", 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What one side did: requests, tokens as the server counts them, wall time, first token."""

    requests: int
    prompt_tokens: int
    output_tokens: int
    seconds: float
    first_token_s: float

    @property
    def tokens_per_s(self) -> float:
        """Output tokens a second."""
        return self.output_tokens / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One request that lhkit made: the prompt, and the tokens of its answer.

    As vLLM's benchmark names them in a file of requests.
    """

    prompt: str
    output_tokens: int


def toolset() -> Toolset:
    """Return life-helper with one answer to a user turn: the model is not asked after its calls."""
    return ToolsetAround(
        inner=life_helper.LifeHelperToolset(sampling=Sampling(max_tokens=MAX_TOKENS)),
        assistant=lambda session, _locale: replace(session.assistant, max_turns=1),
    )


def openings(scenarios: Sequence[Scenario], count: int) -> tuple[Scenario, ...]:
    """Return the first user turn of `count` scenarios, from all over the list."""
    chosen = (scenarios[n * len(scenarios) // count] for n in range(count))
    return tuple(replace(each, turns=each.turns[:1]) for each in chosen)


async def level_ground(model: ChatModel, scenarios: Sequence[Scenario]) -> None:
    """Empty the server's prefix cache, then have it read what all conversations begin with."""
    async with aiohttp.ClientSession() as session:
        await _emptied(session, f"{model.identity.base_url}/reset_prefix_cache")
    plan = plan_run(scenarios, model, toolset(), repeats=1)
    stage = SampleContext(model=model, toolset=toolset(), clock=time.perf_counter)
    for job in plan.warm_up_samples(plan.samples()):
        await warm_up(job, stage)


async def _emptied(session: aiohttp.ClientSession, url: str) -> None:
    for _ in range(_TRIES):
        async with session.post(url) as answer:
            answer.raise_for_status()
            told: Mapping[str, JSON] = await answer.json()
        if told.get("success"):
            return
        await asyncio.sleep(_PAUSE_S)  # the last request's blocks are still held
    raise AssertionError("the server does not empty its prefix cache")


async def ours(
    model: ChatModel, scenarios: Sequence[Scenario], at_once: int, folder: Path
) -> tuple[Side, tuple[Sent, ...]]:
    """Play the scenarios as `lhkit eval` does; return what came of it, and what was sent.

    The time is that of the whole replay: planning, worlds, calls, verdicts, records on disk.
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
    sent = tuple(sent_by(record) for record in run.records)
    summary = run.summary()
    side = Side(
        requests=len(sent),
        prompt_tokens=summary.tokens.prompt,
        output_tokens=summary.tokens.completion,
        seconds=seconds,
        first_token_s=summary.times["first_token"].p50_s or 0.0,
    )
    return side, sent


def sent_by(record: SampleRecord) -> Sent:
    """Return the one request of a conversation.

    Raises:
        AssertionError: there was another number of requests, or the world failed.
    """
    calls = [call for turn in record.evidence.turns for call in turn.model_calls]
    if (
        record.judgement.verdict is Verdict.INVALID
        or len(calls) != 1
        or not calls[0].response.prompt_text
    ):
        raise AssertionError(
            f"{record.sample_id}: {record.judgement.verdict} after {len(calls)} requests, not 1"
        )
    (call,) = calls
    return Sent(
        prompt=call.response.prompt_text or "", output_tokens=call.response.usage.completion_tokens
    )


class Bench:
    """vLLM's serving benchmark in a process of its own, at work on one request at a time."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path) -> None:
        self._process = process
        self.folder = folder

    async def answer(self) -> dict[str, Any]:
        """Return the next line that it prints.

        Raises:
            AssertionError: it has ended; the message holds the end of what it said.
        """
        if self._process.stdout is None:
            raise AssertionError("a pipe was asked for")
        line = await self._process.stdout.readline()
        if not line:
            log = self.folder / _LOG
            said = await asyncio.to_thread(log.read_text, encoding="utf-8", errors="replace")
            raise AssertionError(f"vLLM's benchmark ended:\n{said[-_SHOWN:]}")
        found: dict[str, Any] = json.loads(line)
        return found

    async def ask(self, arguments: Sequence[str]) -> dict[str, Any]:
        """Return what it finds with these arguments of `vllm bench serve`.

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
    """Yield vLLM's benchmark; its first answer, once it is ready, is its version.

    `folder` is for what it says and for what it is to send.
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


async def theirs(
    peer: Bench, plan: ServerSettings, address: str, sent: Sequence[Sent], at_once: int
) -> Side:
    """Have vLLM's benchmark send the same, and return its own account."""
    dataset = peer.folder / "sent.jsonl"
    lines = "".join(json.dumps(asdict(each)) + "\n" for each in sent)
    await asyncio.to_thread(dataset.write_text, lines, encoding="utf-8")
    found = await peer.ask(arguments(plan, address, dataset, len(sent), at_once))
    return Side(
        requests=int(found["completed"]),
        prompt_tokens=int(found["total_input_tokens"]),
        output_tokens=int(found["total_output_tokens"]),
        seconds=found["duration"],
        first_token_s=found["median_ttft_ms"] / 1000,
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
