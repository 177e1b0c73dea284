"""The embedded Gemma as a `.litertlm` file by the real LiteRT-LM: what each runtime has to do.

Collected only where `--litertlm FILE` names such a file (see `conftest.py`): making one takes a
converter of gigabytes. `evals/baselines/runtimes.md` has the commands.
"""

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from lhkit.errors import ContextTooLongError
from lhkit.messages import ModelMessage, UserMessage
from lhkit.models.base import ChatModel
from lhkit.models.http import Endpoint
from lhkit.models.litert import LiteRtServer, LiteRtSettings
from lhkit.models.served import connect
from lhkit.models.weights import ensure_tuned, file_sha256
from lhkit.settings import Settings
from tests.e2e.test_llama_cpp import BOS_ID, SAID, answered, asked

pytestmark = [pytest.mark.anyio, pytest.mark.gemma, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def file(request: pytest.FixtureRequest) -> Path:
    return Path(request.config.getoption("--litertlm"))


@pytest.fixture(scope="module")
async def served(file: Path, settings: Settings) -> AsyncIterator[ChatModel]:
    plan = LiteRtSettings(
        model=file,
        served_name="gemma",
        log_path=settings.cache_dir / "logs" / "litert-test.log",
        weights_sha256=file_sha256(file),
    )
    async with LiteRtServer(plan) as server:
        model = await connect(Endpoint(base_url=server.base_url))
        async with aclosing(model):
            yield model


async def test_who_serves_is_told_with_the_hash_of_the_file(served: ChatModel, file: Path) -> None:
    told = served.identity
    assert told.server.startswith("litert-lm ")
    assert told.weights_sha256 == file_sha256(file)


@pytest.mark.parametrize("text", SAID)
async def test_the_prompt_is_read_token_by_token_as_vllm_reads_it_with_one_bos(
    served: ChatModel, settings: Settings, text: str
) -> None:
    """Its ids are told only where the engine itself counts as many tokens as they are."""
    _, last = await answered(served, asked(text, max_tokens=1))
    folder = await ensure_tuned(settings.cache_dir)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = tokenizer.encode(last.prompt_text, add_special_tokens=False).ids
    assert list(last.prompt_token_ids) == ids
    assert ids.count(BOS_ID) == 1


async def test_it_stops_at_the_end_of_its_turn_and_shows_no_mark(served: ChatModel) -> None:
    words, last = await answered(served, asked("안녕!"))
    assert (last.reason, last.truncated) == ("stop", False)
    assert "<" not in last.raw_text
    assert len(words) > 1
    assert "".join(words).strip() == last.text.strip()


async def test_the_limit_of_tokens_cuts(served: ChatModel) -> None:
    _, last = await answered(served, asked("안녕!", max_tokens=3, is_bare=True))
    assert (last.reason, last.truncated, last.usage.completion_tokens) == ("length", True, 3)


async def test_greedy_is_the_same_whether_the_prompt_was_known_or_is_read_anew(
    served: ChatModel,
) -> None:
    request, other = asked("카페인 줄이는 법 찾아줘"), asked("안녕!", max_tokens=5)
    fresh, known = [(await answered(served, request))[1] for _ in range(2)]
    await answered(served, other)  # another limit: the session is a new one
    again = (await answered(served, request))[1]
    assert fresh.raw_text == known.raw_text == again.raw_text != ""
    assert known.usage.cached_tokens == known.usage.prompt_tokens - 1
    assert again.usage.cached_tokens == 0


async def test_a_reply_that_is_read_as_part_of_the_next_prompt_is_not_lost(
    served: ChatModel,
) -> None:
    """The engine itself would take it for known after a rewind, and read nothing of it."""
    first, other = asked("안녕!"), asked("안녕!", max_tokens=5)
    _, last = await answered(served, first)
    messages = (*first.messages, ModelMessage(text=last.text), UserMessage(text="고마워!"))
    second = replace(first, messages=messages)
    _, known = await answered(served, second)
    await answered(served, other)
    _, fresh = await answered(served, second)
    assert known.raw_text == fresh.raw_text
    assert (known.usage.cached_tokens or 0) > (fresh.usage.cached_tokens or 0) == 0


async def test_emoji_and_korean_come_whole(served: ChatModel) -> None:
    words, _ = await answered(
        served, asked("그대로 따라 해: 뷁👩‍👩‍👧😀 쀍", max_tokens=60, is_bare=True)
    )
    assert "\ufffd" not in "".join(words)[:-1]  # the limit may cut a letter in two


async def test_leaving_early_frees_the_engine(served: ChatModel) -> None:
    request = asked("카페인이 뭐야? 아주 길게 설명해 줘.", max_tokens=400, is_bare=True)
    for _ in range(3):
        async with aclosing(served.stream(request)) as events:  # type: ignore[type-var] # a generator
            await anext(events)
    _, last = await answered(served, asked("안녕!", max_tokens=2, is_bare=True))
    assert last.raw_text


async def test_a_prompt_that_is_too_long_is_a_typed_fault(served: ChatModel) -> None:
    with pytest.raises(ContextTooLongError):
        await answered(served, asked("아주 길다. " * 6000))
    assert (await answered(served, asked("안녕!", max_tokens=2, is_bare=True)))[1].raw_text
