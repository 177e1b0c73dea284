"""The tuned Gemma as a GGUF file behind a real llama.cpp: what each runtime has to do."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
from tokenizers import Tokenizer

from lhkit.commands.export_model import ExportModelOptions, export_model
from lhkit.errors import ContextTooLongError
from lhkit.lifehelper.toolset import LIFE_HELPER
from lhkit.messages import Finished, ModelIdentity, Sampling, TextDelta, UserMessage
from lhkit.models import gguf_serving
from lhkit.models.base import ChatModel, ModelRequest
from lhkit.models.dialects.base import END_OF_TURN_ID, START_OF_TURN_ID
from lhkit.models.served import connect
from lhkit.models.serving import alias_of
from lhkit.models.weights import ensure_tuned, file_sha256
from lhkit.settings import Settings
from lhkit.toolset import registry_of

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.gemma,
    pytest.mark.timeout(600),
    pytest.mark.promise("runtimes.llama_cpp"),
]

BOS_ID = 2
SAID = (
    "안녕! 카페인 줄이는 습관 찾아줘",
    "What habits do I have? 😀👩‍👩‍👧 café",
    "  두  칸   띄고\t\t탭\n\n\n줄바꿈 뷁 ㅋㅋㅋ 日本語",
)


@pytest.fixture(scope="module")
async def served(
    settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ChatModel]:
    file = tmp_path_factory.mktemp("gguf") / "tuned-Q8_0.gguf"
    await export_model(ExportModelOptions(source="gemma", to="gguf:Q8_0", into=file), settings)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, gguf_serving.__file__, str(file), "0", "1", alias_of(file_sha256(file))),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        model = await connect(line.split()[-1])
        async with aclosing(model):
            yield model
    finally:
        process.terminate()
        await process.wait()


def asked(text: str, max_tokens: int = 40) -> ModelRequest:
    registry = registry_of(LIFE_HELPER, {"now": "2026-06-15T09:00:00+09:00"}, "ko")
    return ModelRequest(
        messages=(UserMessage(text=text),),
        tools=registry.definitions,
        instructions="비서",
        sampling=Sampling(max_tokens=max_tokens),
    )


async def answered(model: ChatModel, request: ModelRequest) -> tuple[list[str], Finished]:
    events = [each async for each in model.stream(request)]
    last = events[-1]
    assert isinstance(last, Finished)
    return [each.text for each in events if isinstance(each, TextDelta)], last


async def test_it_says_who_it_is(served: ChatModel) -> None:
    told: ModelIdentity = served.identity
    assert told.server.startswith("llama.cpp ")
    assert (told.model, told.dtype) == ("tuned-Q8_0.gguf", "Q8_0")
    assert told.is_sure  # the hash of the file travels as an alias


@pytest.mark.parametrize("text", SAID)
async def test_the_prompt_is_read_token_by_token_as_vllm_reads_it_with_one_bos(
    served: ChatModel, settings: Settings, text: str
) -> None:
    _, last = await answered(served, asked(text, max_tokens=1))
    folder = await ensure_tuned(settings.cache_dir)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = tokenizer.encode(last.prompt_text, add_special_tokens=False).ids
    assert list(last.prompt_token_ids) == ids
    assert ids[:2] == [BOS_ID, START_OF_TURN_ID]
    assert ids.count(BOS_ID) == 1
    assert last.usage.prompt_tokens == len(ids)


async def test_it_stops_at_the_end_of_its_turn_and_shows_no_mark(served: ChatModel) -> None:
    words, last = await answered(served, asked("안녕!"))
    assert (last.reason, last.truncated) == ("stop", False)
    assert last.token_ids[-1] == END_OF_TURN_ID
    assert len(last.token_ids) == last.usage.completion_tokens
    assert "<" not in last.raw_text
    assert "".join(words).strip() == last.text.strip()


async def test_the_limit_of_tokens_cuts(served: ChatModel) -> None:
    _, last = await answered(served, asked("안녕!", max_tokens=3))
    assert (last.reason, last.truncated, len(last.token_ids)) == ("length", True, 3)


async def test_greedy_twice_is_the_same_and_the_prompt_is_not_read_again(
    served: ChatModel,
) -> None:
    request = asked("카페인 줄이는 법 찾아줘")
    first, second = [(await answered(served, request))[1] for _ in range(2)]
    assert first.token_ids == second.token_ids
    assert (second.usage.cached_tokens or 0) > second.usage.prompt_tokens // 2
    assert second.server_metrics


async def test_emoji_and_korean_come_whole(served: ChatModel) -> None:
    """Letters of several tokens: what is streamed is no half of one."""
    words, last = await answered(served, asked("그대로 따라 해: 뷁👩‍👩‍👧😀 쀍", max_tokens=60))
    assert "\ufffd" not in "".join(words)
    assert last.token_ids


async def test_a_prompt_that_is_too_long_is_a_typed_fault(served: ChatModel) -> None:
    with pytest.raises(ContextTooLongError):
        await answered(served, asked("아주 길다. " * 6000))
    assert (await answered(served, asked("안녕!", max_tokens=2)))[1].token_ids
