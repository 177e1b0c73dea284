"""A fake of llama.cpp's server, for the tests of the client.

The format was compared by hand with the real one (xllamacpp 2026.10, Gemma 3 270M as Q8_0).
"""

from collections.abc import Sequence

from aiohttp import web

from tests.models.fake_vllm import NOT_FOUND, Behaviour, FakeVllm, answers, event

PROMPT_IDS = [2, 105, 2364, 107]
MARKS = {105: "<start_of_turn>", 106: "<end_of_turn>"}
TIMINGS = {"cache_n": 3, "prompt_n": 1, "prompt_ms": 68.2, "predicted_ms": 295.2}
PROPS = (
    '{"build_info":"b11549-abc","model_path":"/home/ann/tuned-Q8_0.gguf",'
    '"model_ftype":"Q8_0","total_slots":1}'
)


def native(
    pieces: Sequence[str], *, stop_type: str = "eos", truncated: bool = False
) -> list[bytes]:
    """Return the events of `/completion`: a token a piece, the one that ends, the account."""
    texts = [*pieces, ""] if stop_type == "eos" else list(pieces)
    ids = [1000 + place for place in range(len(pieces))] + [106] * (stop_type == "eos")
    events = [
        event({"index": 0, "content": text, "tokens": [token], "stop": False})
        for text, token in zip(texts, ids, strict=True)
    ]
    last = {
        "index": 0,
        "content": "",
        "tokens": [],
        "stop": True,
        "stop_type": stop_type,
        "truncated": truncated,
        "tokens_evaluated": len(PROMPT_IDS),
        "tokens_predicted": len(texts),
        "timings": TIMINGS,
    }
    return [*events, event(last)]


async def tokenized(request: web.Request) -> web.StreamResponse:
    asked = await request.json()
    begins = asked["content"].startswith("<bos><start_of_turn>")
    assert (begins, asked["add_special"], asked["parse_special"]) == (True, False, True)
    return web.json_response({"tokens": PROMPT_IDS})


async def detokenized(request: web.Request) -> web.StreamResponse:
    ids = (await request.json())["tokens"]
    return web.json_response({"content": "".join(MARKS[each] for each in ids)})


class FakeLlamaCpp(FakeVllm):
    """The behaviours answer `/completion`, in order."""

    def __init__(self, *behaviours: Behaviour, **routes: Behaviour) -> None:
        plain = {
            "/version": answers(404, NOT_FOUND),
            "/props": answers(200, PROPS),
            "/completion": self._complete,
            "/tokenize": tokenized,
            "/detokenize": detokenized,
        }
        super().__init__(*behaviours, routes={**plain, **routes})
