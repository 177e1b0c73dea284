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
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from aiohttp import web

from lhkit.models.base import ModelRequest
from lhkit.models.vllm_http import Endpoint, VllmHttp
from lhkit.vocab.generation import Finished, Sampling
from lhkit.vocab.messages import UserMessage

TOKENS = 128
PACE_S = 0.02
STREAMS = (1, 64, 256)
ROUNDS = 3
RESULTS = Path(__file__).parent / "client_streaming.md"
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


async def compare(base_url: str) -> list[str]:
    """Return the rows of the table."""
    model = await VllmHttp.connect(Endpoint(base_url=base_url))
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    rows = []
    async with aiohttp.ClientSession(connector=connector) as session:
        for streams in STREAMS:
            rounds = [
                (
                    await measure(lambda: read_bare(session, base_url), streams),
                    await measure(lambda: read_ours(model), streams),
                )
                for _ in range(ROUNDS)
            ]
            rows.append(row(streams, rounds))
    await model.aclose()
    return rows


def row(streams: int, rounds: list[tuple[Measured, Measured]]) -> str:
    """Return one line of the table: medians, and the median of the ratios round by round."""
    bare = statistics.median(one.tokens_per_s for one, _ in rounds)
    ours = statistics.median(two.tokens_per_s for _, two in rounds)
    ratio = statistics.median(two.tokens_per_s / one.tokens_per_s for one, two in rounds)
    bare_cpu = statistics.median(one.cpu_us_per_chunk for one, _ in rounds)
    our_cpu = statistics.median(two.cpu_us_per_chunk for _, two in rounds)
    return (
        f"| {streams} | {bare:,.0f} | {ours:,.0f} | {ratio:.1%} | {bare_cpu:.0f} | {our_cpu:.0f} |"
    )


async def main() -> None:
    """Measure, print and write the table."""
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, __file__, "--serve"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    if server.stdin is None or server.stdout is None:
        raise AssertionError("pipes were asked for")
    try:
        port = int(await server.stdout.readline())
        rows = await compare(f"http://127.0.0.1:{port}")
    finally:
        server.stdin.close()
        await server.wait()
    text = report(rows)
    print(text)
    await asyncio.to_thread(RESULTS.write_text, text, encoding="utf-8")


def report(rows: list[str]) -> str:
    """Return the page."""
    setting = (
        f"`make bench` · Python {platform.python_version()} · aiohttp {aiohttp.__version__} · "
        f"{TOKENS} tokens a stream, one each {PACE_S * 1000:.0f} ms · median of {ROUNDS} rounds"
    )
    heading = "| streams | bare tok/s | lhkit tok/s | ratio | bare CPU µs | lhkit CPU µs |"
    return "\n".join(
        [
            "# Client cost: lhkit's client beside a bare aiohttp reader",
            "",
            f"{setting}. CPU is per chunk, in the client process.",
            "",
            heading,
            "|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", action="store_true", help="be the fake server")
    asyncio.run(serve() if parser.parse_args().serve else main())
