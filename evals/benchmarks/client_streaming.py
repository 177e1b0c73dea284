"""What lhkit's client costs: streaming from a local fake vLLM, beside a bare aiohttp reader.

Both read the same paced streams from the same server process, in turns within one run, so that the
ratio holds on a busy machine. The bare reader only takes bytes off the socket; ours decodes events,
parses JSON, looks for calls and keeps timestamps. Run it with `make bench`.
"""

import argparse
import asyncio
import json
import platform
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import aiohttp
import figures
from aiohttp import web
from figures import Figure, Machine, Measurement

from lhkit.messages import Finished, Sampling, UserMessage
from lhkit.models.base import ModelRequest
from lhkit.models.vllm import Endpoint, VllmHttp

TOKENS = 128
PACE_S = 0.02
STREAMS = (1, 64, 256)
ROUNDS = 3
GOAL_PERCENT = 95.0
PIECES = ("안녕", "하세요", " 물", "을 ", "마셔", "요", ". ", "Hello")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One round of one reader: tokens per second of wall time, CPU microseconds per chunk."""

    tokens_per_s: float
    cpu_us_per_chunk: float


def chunk(i: int) -> bytes:
    """Return one event as vLLM writes it, with a token id."""
    is_last = i == TOKENS - 1
    choice = {
        "index": 0,
        "text": PIECES[i % len(PIECES)],
        "logprobs": None,
        "finish_reason": "length" if is_last else None,
        "stop_reason": None,
        "token_ids": [1000 + i],
    }
    event = {"id": "cmpl", "object": "text_completion", "model": "gemma", "choices": [choice]}
    return f"data: {json.dumps(event, ensure_ascii=False)}\n\n".encode()


CHUNKS = [chunk(i) for i in range(TOKENS)]
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":128}}\n\n'


async def complete(request: web.Request) -> web.StreamResponse:
    """Stream the tokens at their pace, as a server with one step each 20 ms would."""
    await request.read()
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    for i, data in enumerate(CHUNKS):
        await asyncio.sleep(max(0.0, started_s + i * PACE_S - loop.time()))
        await response.write(data)
    await response.write(USAGE + b"data: [DONE]\n\n")
    return response


async def models(_request: web.Request) -> web.Response:
    """List one model."""
    return web.json_response({"data": [{"id": "gemma"}]})


async def serve() -> None:
    """Serve until standard input closes; the first line printed is the port."""
    application = web.Application()
    application.router.add_post("/v1/completions", complete)
    application.router.add_get("/v1/models", models)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


async def read_bare(session: aiohttp.ClientSession, base_url: str) -> None:
    """Take a whole stream off the socket and look at nothing."""
    async with session.post(f"{base_url}/v1/completions", json={"prompt": "x"}) as response:
        async for _ in response.content.iter_any():
            pass


async def read_ours(model: VllmHttp) -> None:
    """Take a whole stream as a chat does."""
    request = ModelRequest(
        messages=(UserMessage(text="안녕"),), sampling=Sampling(max_tokens=TOKENS)
    )
    async for event in model.stream(request):
        if isinstance(event, Finished) and len(event.token_ids) != TOKENS:
            raise AssertionError(f"{len(event.token_ids)} of {TOKENS} tokens came")


async def measure(read: Callable[[], Awaitable[None]], streams: int) -> Measured:
    """Return what `streams` readers at once achieve and cost."""
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    await asyncio.gather(*(read() for _ in range(streams)))
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    tokens = streams * TOKENS
    return Measured(tokens_per_s=tokens / wall_s, cpu_us_per_chunk=cpu_s / tokens * 1e6)


async def compare(base_url: str) -> dict[int, list[tuple[Measured, Measured]]]:
    """Return the rounds, bare and ours, by how many streams are read at once."""
    model = await VllmHttp.connect(Endpoint(base_url=base_url))
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session:
        measured = {
            streams: [
                (
                    await measure(lambda: read_bare(session, base_url), streams),
                    await measure(lambda: read_ours(model), streams),
                )
                for _ in range(ROUNDS)
            ]
            for streams in STREAMS
        }
    await model.aclose()
    return measured


def percent(rounds: Sequence[tuple[Measured, Measured]]) -> float:
    """Return our tokens per second as a share of the bare reader's, the median of the rounds."""
    return 100 * statistics.median(two.tokens_per_s / one.tokens_per_s for one, two in rounds)


def row(streams: int, rounds: Sequence[tuple[Measured, Measured]]) -> str:
    """Return one line of the table: medians, and the median of the ratios round by round."""
    bare = statistics.median(one.tokens_per_s for one, _ in rounds)
    ours = statistics.median(two.tokens_per_s for _, two in rounds)
    bare_cpu = statistics.median(one.cpu_us_per_chunk for one, _ in rounds)
    our_cpu = statistics.median(two.cpu_us_per_chunk for _, two in rounds)
    shares = f"{bare:,.0f} | {ours:,.0f} | {percent(rounds):.1f} %"
    return f"| {streams} | {shares} | {bare_cpu:.0f} | {our_cpu:.0f} |"


def found(
    measured: Mapping[int, Sequence[tuple[Measured, Measured]]], machine: Machine
) -> Measurement:
    """Return the figures."""
    return Measurement(
        title="Client cost: lhkit's client beside a bare aiohttp reader",
        command="python evals/benchmarks/client_streaming.py",
        versions={"Python": platform.python_version(), "aiohttp": aiohttp.__version__},
        figures=tuple(
            Figure(
                what=f"tokens per second of a bare aiohttp reader, kept at {streams} streams",
                value=percent(rounds),
                unit="%",
                at_least=GOAL_PERCENT,
            )
            for streams, rounds in measured.items()
        ),
        machine=machine,
    )


def page(
    measured: Mapping[int, Sequence[tuple[Measured, Measured]]], measurement: Measurement
) -> str:
    """Return the page."""
    pace = f"{TOKENS} tokens a stream, one each {PACE_S * 1000:.0f} ms"
    setting = f"{pace} · median of {ROUNDS} rounds"
    lines = [
        *figures.heading(measurement, setting),
        "CPU is per chunk, in the client process.",
        "",
        "| streams | bare tok/s | lhkit tok/s | ratio | bare CPU µs | lhkit CPU µs |",
        "|---|---|---|---|---|---|",
        *(row(streams, rounds) for streams, rounds in measured.items()),
        "",
        *figures.goals(measurement.figures),
        "",
    ]
    return "\n".join(lines)


async def served() -> dict[int, list[tuple[Measured, Measured]]]:
    """Compare over a fake server in a process of its own."""
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, __file__, "--serve"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    if server.stdin is None or server.stdout is None:
        raise AssertionError("pipes were asked for")
    try:
        port = int(await server.stdout.readline())
        return await compare(f"http://127.0.0.1:{port}")
    finally:
        server.stdin.close()
        await server.wait()


def main() -> None:
    """Measure, print and write the page; or be the fake server."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", action="store_true", help="be the fake server")
    if parser.parse_args().serve:
        asyncio.run(serve())
        return
    machine = figures.this_machine()
    measured = asyncio.run(served())
    measurement = found(measured, machine)
    figures.write("client_streaming", page(measured, measurement), measurement)


if __name__ == "__main__":
    main()
