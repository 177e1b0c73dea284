"""Answers `/v1/completions` with words and calls drawn at random, slowly: much is written so.

Like vLLM it has a process behind it and shared memory, which must not outlive it.
"""

import argparse
import asyncio
import json
import multiprocessing
import random
import signal
from multiprocessing.shared_memory import SharedMemory
from typing import Any

from aiohttp import web

_END_OF_TURN = 106
_PIECE_S = 0.02
_ADDING = (
    '{"name": "add_habit", "parameters": {"protocol_id": "%s", "frame_level": "identity", '
    '"framed_text": "나는 매일 한다", "anchor_when": "아침"}}'
)
_ANSWERS = (
    "네, 그렇게 해 볼게요.",
    '{"name": "list_habits", "parameters": {}}',
    _ADDING,
    '{"name": "log_tracker_entry", "parameters": {"habit_id": "%s", "value": "done"}}',
)
_IDS = ("daily-walk", "box-breathing", "clear-desk", "two-minute-stretch")


def _events(text: str) -> list[dict[str, Any]]:
    pieces = [text[start : start + 6] for start in range(0, len(text), 6)]
    chosen: list[dict[str, Any]] = [
        {"index": 0, "text": piece, "token_ids": [1000]} for piece in pieces
    ]
    chosen[0]["prompt_token_ids"] = [2]
    end = {"finish_reason": "stop", "stop_reason": _END_OF_TURN, "token_ids": [_END_OF_TURN]}
    usage = {"prompt_tokens": 1, "completion_tokens": len(pieces) + 1}
    return [
        *({"choices": [each]} for each in chosen),
        {"choices": [{"index": 0, "text": "", **end}]},
        {"choices": [], "usage": usage},
    ]


async def _complete(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    answer = random.choice(_ANSWERS)  # noqa: S311 - no secret
    for event in _events(answer.replace("%s", random.choice(_IDS))):  # noqa: S311 - no secret
        await response.write(f"data: {json.dumps(event)}\n\n".encode())
        await asyncio.sleep(_PIECE_S)
    await response.write(b"data: [DONE]\n\n")
    return response


def _wait_behind() -> None:
    signal.pause()


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser()
    for name in ("host", "port", "served-model-name"):
        parser.add_argument(f"--{name}")
    asked, _ = parser.parse_known_args()
    memory = SharedMemory(create=True, size=1024)
    behind = multiprocessing.get_context("spawn").Process(target=_wait_behind, daemon=True)
    behind.start()
    models = {"data": [{"id": asked.served_model_name}]}
    server = web.Application()
    server.router.add_get("/health", lambda _: web.Response())
    server.router.add_get("/v1/models", lambda _: web.json_response(models))
    server.router.add_get("/version", lambda _: web.json_response({"version": "stand-in"}))
    server.router.add_post("/v1/completions", _complete)
    try:
        web.run_app(server, host=asked.host, port=int(asked.port), print=None)
    finally:
        memory.close()
        memory.unlink()


if __name__ == "__main__":
    main()
