"""What every runtime of the embedded Gemma has to do: one suite, the same for all of them.

vLLM is the one that the other tests here share. A new runtime gets a row in `SERVED`.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import aiohttp
import pytest
from tokenizers import Tokenizer

from lhkit import app
from lhkit.errors import ContextTooLongError
from lhkit.messages import UserMessage
from lhkit.models.base import ChatModel
from lhkit.models.dialects.base import END_OF_TURN_ID, START_OF_TURN_ID
from lhkit.models.weights import ensure_tuned
from lhkit.runtimes import LLAMA_CPP, VLLM
from lhkit.settings import Settings
from tests.e2e.test_gemma import running_requests
from tests.e2e.test_llama_cpp import BOS_ID, SAID, answered, asked

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.gemma,
    pytest.mark.timeout(1200),
    pytest.mark.promise("runtimes.contract"),
]

SERVED = {VLLM: "gemma", LLAMA_CPP: "light_gemma"}
"""The fixture that serves the embedded Gemma by each runtime."""
BESIDE = 4


@pytest.fixture(scope="module")
async def light_gemma(settings: Settings) -> AsyncIterator[ChatModel]:
    by_llama_cpp = settings.model_copy(update={"runtime": LLAMA_CPP, "base_url": None})
    async with app.open_model(app.ModelChoice(), by_llama_cpp) as model:
        yield model


@pytest.fixture(params=SERVED.values(), ids=SERVED.keys())
def served(request: pytest.FixtureRequest) -> ChatModel:
    model: ChatModel = request.getfixturevalue(request.param)
    return model


async def busy(model: ChatModel) -> int:
    """Return how many requests the server works on, by its own account."""
    address = model.identity.base_url
    if model.identity.server.startswith("vllm "):
        return await running_requests(address)
    async with aiohttp.ClientSession() as session, session.get(f"{address}/slots") as response:
        return sum(each["is_processing"] for each in await response.json())


async def until_idle(model: ChatModel) -> None:
    async with asyncio.timeout(30):
        while await busy(model):
            pass  # asking takes its time


@pytest.mark.parametrize("text", SAID)
async def test_the_prompt_is_read_token_by_token_as_the_tokenizer_reads_it_with_one_bos(
    served: ChatModel, settings: Settings, text: str
) -> None:
    """Of all runtimes: so each reads it as vLLM does."""
    _, last = await answered(served, asked(text, max_tokens=1))
    folder = await ensure_tuned(settings.cache_dir)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = tokenizer.encode(last.prompt_text, add_special_tokens=False).ids
    assert list(last.prompt_token_ids) == ids
    assert ids[:2] == [BOS_ID, START_OF_TURN_ID]
    assert ids.count(BOS_ID) == 1
    assert last.usage.prompt_tokens == len(ids)


async def test_it_stops_at_the_end_of_its_turn_and_not_before_and_shows_no_mark(
    served: ChatModel,
) -> None:
    _, last = await answered(served, asked("안녕!", max_tokens=60))
    assert (last.reason, last.truncated) == ("stop", False)
    assert last.token_ids.index(END_OF_TURN_ID) == len(last.token_ids) - 1
    assert len(last.token_ids) == last.usage.completion_tokens
    assert "<" not in last.raw_text


async def test_what_is_streamed_is_in_its_order_what_was_said(served: ChatModel) -> None:
    """To a question that gets words: of the others some get a call, which is not streamed."""
    words, last = await answered(served, asked(SAID[-1], max_tokens=24, is_bare=True))
    assert len(words) > 1
    assert "".join(words).strip() == last.text.strip()


async def test_the_limit_of_tokens_cuts(served: ChatModel) -> None:
    _, last = await answered(served, asked("안녕!", max_tokens=3, is_bare=True))
    assert (last.reason, last.truncated, len(last.token_ids)) == ("length", True, 3)


async def test_greedy_twice_is_the_same_and_the_prompt_is_not_read_again(
    served: ChatModel,
) -> None:
    """Behind a first time that fills the cache: one that reads all sums in another order."""
    request = asked("카페인 줄이는 법 찾아줘")
    _, second, third = [(await answered(served, request))[1] for _ in range(3)]
    assert second.token_ids == third.token_ids
    assert (third.usage.cached_tokens or 0) > third.usage.prompt_tokens // 2
    assert third.server_metrics


async def test_emoji_and_korean_come_whole(served: ChatModel) -> None:
    """Letters of several tokens: what is streamed is no half of one."""
    words, last = await answered(
        served, asked("그대로 따라 해: 뷁👩‍👩‍👧😀 쀍", max_tokens=60, is_bare=True)
    )
    assert "\ufffd" not in "".join(words)
    assert last.token_ids


async def test_leaving_early_frees_the_slot(served: ChatModel) -> None:
    request = asked("카페인이 뭐야? 아주 길게 설명해 줘.", max_tokens=4000, is_bare=True)
    await until_idle(served)
    async with aclosing(served.stream(request)) as events:  # type: ignore[type-var] # a generator
        await anext(events)
    await until_idle(served)


async def test_those_that_are_answered_beside_each_other_are_answered_as_if_alone(
    served: ChatModel,
) -> None:
    """What one says does not get into another."""
    requests = [asked(f"습관 {number}개 보여줘", 12, is_bare=True) for number in range(BESIDE)]
    beside = await asyncio.gather(*(answered(served, each) for each in requests))
    for (words, last), request in zip(beside, requests, strict=True):
        (said,) = request.messages
        assert isinstance(said, UserMessage)
        assert last.prompt_text.count(said.text) == 1
        assert "".join(words).strip() == last.text.strip()


async def test_a_prompt_that_is_too_long_is_a_typed_fault_and_the_next_is_answered(
    served: ChatModel,
) -> None:
    with pytest.raises(ContextTooLongError):
        await answered(served, asked("아주 길다. " * 6000))
    assert (await answered(served, asked("안녕!", max_tokens=2, is_bare=True)))[1].token_ids
