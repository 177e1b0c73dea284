"""What every runtime of the embedded Gemma has to do: one suite, the same for all of them.

vLLM is the one that the other tests here share. A new runtime gets a row in `SERVED`, with what
it can tell beside text and numbers of tokens: that must be right, and all else be left empty.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from enum import Flag, auto
from typing import TYPE_CHECKING

import aiohttp
import pytest

from lhkit.base.errors import ContextTooLongError
from lhkit.conversation.messages import ModelMessage, UserMessage
from lhkit.models.base import ChatModel
from lhkit.models.dialects.turns import END_OF_TURN_ID, START_OF_TURN_ID
from lhkit.models.runtimes import LLAMA_CPP, VLLM
from lhkit.models.serving.llama_cpp_server import PARALLEL
from lhkit.models.weights.weights import ensure_tuned
from lhkit.settings import Settings
from tests.e2e.test_gemma import running_requests
from tests.e2e.test_llama_cpp import BOS_ID, MIXED, SPACED, answered, request_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.model,
    pytest.mark.timeout(1200),
]


class Tells(Flag):
    """What a server may report besides text and token counts."""

    PROMPT_IDS = auto()
    REPLY_IDS = auto()
    CACHED = auto()
    METRICS = auto()


async def processing_slots(base_url: str) -> int:
    async with aiohttp.ClientSession() as session, session.get(f"{base_url}/slots") as response:
        return sum(each["is_processing"] for each in await response.json())


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A fixture that serves the embedded Gemma.

    `busy` counts what its server works on; `closed` is the number of streams to leave early.
    """

    fixture: str
    tells: Tells = Tells.PROMPT_IDS | Tells.REPLY_IDS | Tells.CACHED | Tells.METRICS
    busy: Callable[[str], Awaitable[int]] | None = None
    closed: int = PARALLEL + 1


SERVED = {
    VLLM: Row(fixture="gemma", busy=running_requests, closed=2),
    LLAMA_CPP: Row(fixture="light_gemma", busy=processing_slots),
    "v1": Row(fixture="plain_gemma", tells=Tells.CACHED),
}
"""Each runtime; `v1` is a server of which nothing but `/v1` can be seen."""

BESIDE = 3


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test all rows; at night those whose answers take long, or share others' code."""
    at_night = {"v1", VLLM} if metafunc.function in MANY_TOKENS else {"v1"}
    rows = [
        pytest.param(row, id=name, marks=pytest.mark.nightly if name in at_night else ())
        for name, row in SERVED.items()
    ]
    metafunc.parametrize("row", rows, scope="module")


@pytest.fixture(scope="module")
def served(row: Row, request: pytest.FixtureRequest) -> ChatModel:
    model: ChatModel = request.getfixturevalue(row.fixture)
    return model


@pytest.fixture(scope="module")
async def tokenizer(settings: Settings) -> "Tokenizer":
    from tokenizers import Tokenizer

    folder = await ensure_tuned(settings.cache_dir)
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


async def until_idle(model: ChatModel, row: Row) -> None:
    """Wait until a server that reports its load is idle."""
    async with asyncio.timeout(300):  # against a hang only
        while row.busy is not None and await row.busy(model.identity.base_url):
            pass  # asking takes its time


@pytest.mark.parametrize(
    "is_bare", [True, pytest.param(False, marks=pytest.mark.nightly)], ids=["bare", "tools"]
)
async def test_runtime_prompt_tokens_match_with_one_bos(
    served: ChatModel, row: Row, tokenizer: "Tokenizer", *, is_bare: bool
) -> None:
    """Of all runtimes: so each reads it as vLLM does."""
    _, last = await answered(served, request_of(MIXED, max_tokens=1, is_bare=is_bare))
    ids = tokenizer.encode(last.prompt_text, add_special_tokens=False).ids
    assert ids[:2] == [BOS_ID, START_OF_TURN_ID]
    assert ids.count(BOS_ID) == 1
    assert last.usage.prompt_tokens == len(ids)
    assert list(last.prompt_token_ids) == (ids if Tells.PROMPT_IDS in row.tells else [])


async def test_runtime_stops_at_end_of_turn(served: ChatModel, row: Row) -> None:
    _, last = await answered(served, request_of("안녕!", max_tokens=60, is_bare=True))
    assert (last.reason, last.truncated) == ("stop", False)
    assert "<" not in last.raw_text
    assert 1 < last.usage.completion_tokens < 60
    if Tells.REPLY_IDS in row.tells:
        assert last.token_ids.index(END_OF_TURN_ID) == len(last.token_ids) - 1
        assert len(last.token_ids) == last.usage.completion_tokens
    else:
        assert last.token_ids == ()


async def test_runtime_stream_matches_the_text(served: ChatModel) -> None:
    """To a question that gets words: of the others some get a call, which is not streamed."""
    words, last = await answered(served, request_of(SPACED, max_tokens=24, is_bare=True))
    assert len(words) > 1
    assert "".join(words).strip() == last.text.strip()


async def test_runtime_limits_tokens(served: ChatModel) -> None:
    _, last = await answered(served, request_of("안녕!", max_tokens=3, is_bare=True))
    assert (last.reason, last.truncated, last.usage.completion_tokens) == ("length", True, 3)


async def test_runtime_greedy_is_reproducible_and_cached(served: ChatModel, row: Row) -> None:
    """Behind a first time that fills the cache: one that reads all sums in another order."""
    request = request_of("카페인 줄이는 법을 알려 줘. " * 12, max_tokens=8, is_bare=True)
    first = replace(request, sampling=replace(request.sampling, max_tokens=1))
    _, second, third = [(await answered(served, each))[1] for each in (first, request, request)]
    assert second.raw_text == third.raw_text != ""
    assert second.token_ids == third.token_ids
    if Tells.CACHED in row.tells:
        assert (third.usage.cached_tokens or 0) > third.usage.prompt_tokens // 2
    else:
        assert third.usage.cached_tokens is None
    assert bool(third.server_metrics) == (Tells.METRICS in row.tells)


async def test_runtime_timings(served: ChatModel) -> None:
    _, last = await answered(served, request_of("안녕!", max_tokens=4, is_bare=True))
    first_s, last_s = last.timing.first_token_s, last.timing.last_token_s
    assert first_s is not None
    assert last_s is not None
    assert 0 < first_s <= last_s


async def test_runtime_multi_token_characters(served: ChatModel) -> None:
    """What is streamed is no half of one. Many emoji are such, too; this model writes none."""
    characters = "👩‍👩‍👧😀 쀍뷁"
    shown = (UserMessage(text=characters), ModelMessage(text=characters)) * 3
    request = request_of(characters, max_tokens=60, is_bare=True)
    words, last = await answered(served, replace(request, messages=(*shown, *request.messages)))
    assert "쀍" in last.raw_text  # the tokenizer has three bytes for it
    assert "".join(words).strip() == last.text.strip()
    assert "\ufffd" not in "".join(words)


async def test_runtime_early_close_frees_the_slot(served: ChatModel, row: Row) -> None:
    """By llama.cpp, more are left than it has slots: else the last would wait for the first."""
    request = request_of("카페인이 뭐야? 아주 길게 설명해 줘.", max_tokens=4000, is_bare=True)
    await until_idle(served, row)
    for _ in range(row.closed):
        async with aclosing(served.stream(request)) as events:  # type: ignore[type-var] # a generator
            await anext(events)
    await until_idle(served, row)
    _, last = await answered(served, request_of("안녕!", max_tokens=2, is_bare=True))
    assert last.raw_text


async def test_runtime_concurrent_requests_match_single_ones(
    served: ChatModel,
) -> None:
    """What one says does not get into another."""
    requests = [request_of(f"습관 {number}개 보여줘", 8, is_bare=True) for number in range(BESIDE)]
    beside = await asyncio.gather(*(answered(served, each) for each in requests))
    for (words, last), request in zip(beside, requests, strict=True):
        (message,) = request.messages
        assert isinstance(message, UserMessage)
        assert last.prompt_text.count(message.text) == 1
        assert "".join(words).strip() == last.text.strip()


async def test_runtime_rejects_long_prompts(
    served: ChatModel,
) -> None:
    with pytest.raises(ContextTooLongError):
        await answered(served, request_of("아주 길다. " * 6000))
    assert (await answered(served, request_of("안녕!", max_tokens=2, is_bare=True)))[1].raw_text


MANY_TOKENS = (
    test_runtime_multi_token_characters,
    test_runtime_concurrent_requests_match_single_ones,
)
"""Slow by vLLM on a CPU; by day llama.cpp shows the same."""
