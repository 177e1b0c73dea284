"""Measure one client process against a local server that streams recorded answers.

    python evals/benchmarks/client.py runs/dev --against ../before

The server sends the answers of a run folder as fast as an H200 does: four tokens an event, as
`lhkit serve` asks on a card, or with `--interval 1` each by itself, as vLLM does. `--against`
names another checkout, whose client takes turns with this one's. Compare rates only on an idle
machine, where the server has a core of its own: the column `server late` shows whether it had one.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from gpu_load import Job, Load

from lhkit.harness.records.store import read_records

HERE = Path(__file__).parent
LEVELS = {1: 42, 16: 224, 64: 504, 256: 1_008}
"""Number of conversations by concurrency."""

PACES = {1: (0.020, 0.0025), 16: (0.035, 0.0045), 64: (0.110, 0.009), 256: (0.830, 0.014)}
"""Seconds until the first token and between tokens, of vLLM on an H200, by concurrency."""

_END_OF_TURN = 106
_PROMPT_IDS = [2, 105, *range(236_000, 237_176)]
_TURN = "<start_of_turn>model"


@dataclass(kw_only=True)
class StreamServer:
    """A fake of vLLM's completions.

    Attributes:
        answers: the texts of each user message, in order.
        interval: tokens an event after the first, as `vllm serve --stream-interval`.
        pace: seconds until the first token and between tokens.
        connections: those that requests came by.
        sent: the events of each request's answer, with their numbers of tokens.
        late_s: by how much each answer ended later than the pace asks.
    """

    answers: Mapping[str, Sequence[str]]
    interval: int
    pace: tuple[float, float] = PACES[1]
    connections: set[Any] = field(default_factory=set)
    sent: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)
    late_s: list[float] = field(default_factory=list)

    def app(self) -> web.Application:
        """Return the application."""
        app = web.Application(client_max_size=1 << 24)
        models = {"object": "list", "data": [{"id": "gemma", "object": "model"}]}
        app.router.add_get("/v1/models", lambda _: _json(models))
        app.router.add_get("/version", lambda _: _json({"version": "0.32.0"}))
        app.router.add_post("/v1/completions", self.complete)
        return app

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """Stream the next answer of the conversation in the prompt."""
        self.connections.add(request.transport)
        body = await request.json()
        prompt, max_tokens = body["prompt"], body["max_tokens"]
        key = hash((prompt, max_tokens))
        if key not in self.sent:
            self.sent[key] = list(_events(self._text(prompt), self.interval, max_tokens))
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        first_s, gap_s = self.pace
        due_s = asyncio.get_running_loop().time() + first_s - gap_s
        for tokens, event in self.sent[key]:
            due_s += tokens * gap_s
            await asyncio.sleep(max(0.0, due_s - asyncio.get_running_loop().time()))
            await response.write(event)
        self.late_s.append(asyncio.get_running_loop().time() - due_s)
        return response

    def _text(self, prompt: str) -> str:
        last = max(self.answers, key=lambda user: (prompt.rfind(user), len(user)))
        texts = self.answers[last]
        number = prompt[prompt.rfind(last) :].count(_TURN) - 1
        return texts[number] if number < len(texts) else "네."


async def _json(payload: Any) -> web.Response:
    return web.json_response(payload)


def _events(text: str, interval: int, max_tokens: int) -> Iterator[tuple[int, bytes]]:
    """Yield the events of an answer as vLLM writes them, four characters a token.

    Each comes with its number of tokens: one in the first event, then `interval`.
    """
    pieces = [text[at : at + 4] for at in range(0, len(text), 4)] + [""]
    ids = [*range(1_001, 1_000 + len(pieces)), _END_OF_TURN]
    reason = "stop" if len(ids) <= max_tokens else "length"
    pieces, ids = pieces[:max_tokens], ids[:max_tokens]
    head = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "gemma"}
    usage = {"prompt_tokens": len(_PROMPT_IDS), "completion_tokens": 0}
    begin = 0
    while begin < len(pieces):
        end = min(begin + interval if begin else 1, len(pieces))
        usage["completion_tokens"] = end
        choice = {
            "index": 0,
            "text": "".join(pieces[begin:end]),
            "finish_reason": reason if end == len(pieces) else None,
            "prompt_token_ids": None if begin else _PROMPT_IDS,
            "token_ids": ids[begin:end],
        }
        yield end - begin, _event({**head, "choices": [choice], "usage": usage})
        begin = end
    yield 0, _event({**head, "choices": [], "usage": usage}) + b"data: [DONE]\n\n"


def _event(payload: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(payload, ensure_ascii=False)}\n\n".encode()


def recorded_answers(run: Path) -> dict[str, list[str]]:
    """Return the outputs of the model in a run folder, by user message."""
    return {
        turn.user: [call.response.raw_text for call in turn.model_calls]
        for record in read_records(run)
        for turn in record.trajectory.turns
    }


async def measure(jobs: Sequence[Job], tree: Path) -> list[Load]:
    """Run jobs with the client of a checkout, each in a process of its own, all at the same time.

    Raises:
        AssertionError: a process failed.
    """
    processes = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, str(tree / "evals/benchmarks/gpu_load.py")),
            env={**os.environ, "PYTHONPATH": str(tree)},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        for _ in jobs
    ]
    for process, job in zip(processes, jobs, strict=True):
        process.stdin.write(f"{json.dumps(asdict(job))}\n".encode())  # type: ignore[union-attr]
    for process in processes:
        ready = await process.stdout.readline()  # type: ignore[union-attr]
        if ready != b"ready\n":
            raise AssertionError(f"a process of {jobs[0].side} did not start: {ready!r}")
    outputs = await asyncio.gather(*(process.communicate(b"\n") for process in processes))
    if any(process.returncode for process in processes):
        raise AssertionError(f"a process of {jobs[0].side} failed")
    return [Load(**json.loads(output.splitlines()[-1])) for output, _ in outputs]


@dataclass(frozen=True, kw_only=True)
class Side:
    """A client: which one, of which checkout, in how many processes."""

    client: str
    tree: Path
    processes: int = 1

    def jobs(self, address: str, at_once: int, prompts: str, folder: str) -> list[Job]:
        """Return the job of each process; the bare client reads the prompts that lhkit wrote."""
        return [
            Job(
                side=self.client,
                base_url=address,
                model="gemma",
                count=LEVELS[at_once],
                at_once=at_once // self.processes,
                prompts=prompts if self.client == "bare" or part == 0 else f"{prompts}.{part}",
                folder=f"{folder}-{part}",
                part=part,
                parts=self.processes,
            )
            for part in range(self.processes)
        ]


@dataclass(kw_only=True)
class Measured:
    """What the rounds of one side came to."""

    cpu_ms: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    late_ms: list[float] = field(default_factory=list)
    used: str = ""

    def add(self, loads: Sequence[Load], server: StreamServer) -> None:
        """Keep a round."""
        count = sum(load.conversations for load in loads)
        wall_s = max(load.ended_s for load in loads) - min(load.began_s for load in loads)
        self.cpu_ms.append(1_000 * sum(load.cpu_s for load in loads) / count)
        self.rates.append(count / wall_s)
        self.late_ms.append(1_000 * statistics.median(server.late_s))
        self.used = f"{len(server.connections)} | {sum(load.requests for load in loads)}"

    def row(self, bare: "Measured") -> str:
        """Return the cells of its row."""
        rate = statistics.median(self.rates)
        share = 100 * rate / statistics.median(bare.rates)
        late = statistics.median(self.late_ms)
        return f"{rate:.2f} | {share:.0f} % | {_spread(self.cpu_ms)} | {late:.1f} | {self.used}"


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.1f}, {min(values):.1f}, {max(values):.1f}"


async def main() -> None:
    """Print the rate and the CPU milliseconds a conversation, of each side at each concurrency."""
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--interval", type=int, default=4, help="tokens an event")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    server = StreamServer(answers=recorded_answers(options.run), interval=options.interval)
    runner = web.AppRunner(server.app())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    address = f"http://127.0.0.1:{runner.addresses[0][1]}"
    here = HERE.parents[1]
    sides = {
        "lhkit": Side(client="lhkit", tree=here),
        "bare": Side(client="bare", tree=here),
        "lhkit, 2 processes": Side(client="lhkit", tree=here, processes=2),
    }
    if options.against is not None:
        sides["before"] = Side(client="lhkit", tree=options.against.resolve())
    print(
        "| at once | side | conversations/s | of bare | CPU ms a conversation: median, least, most "
        "| server late, ms | connections | requests |"
    )
    print("|--:|---|--:|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as name:
        for at_once in LEVELS:
            server.pace = PACES[at_once]
            measured = {label: Measured() for label in sides if sides[label].processes <= at_once}
            for number in range(options.rounds):
                for label, each in measured.items():
                    server.connections.clear()
                    server.late_s.clear()
                    side = sides[label]
                    prompts = f"{name}/{at_once}-{'lhkit' if side.client == 'bare' else label}"
                    folder = f"{name}/{at_once}-{number}-{label}"
                    jobs = side.jobs(address, at_once, prompts, folder)
                    each.add(await measure(jobs, side.tree), server)
            for label, each in measured.items():
                print(f"| {at_once} | {label} | {each.row(measured['bare'])} |", flush=True)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main())
