"""The embedded Gemma as a `.litertlm` file by the real LiteRT-LM: what is its own.

Collected only where `--litertlm FILE` names such a file (see `conftest.py`): making one takes a
converter of gigabytes. What each runtime has to do is in `test_runtime_contract`, which has
LiteRT-LM, too, where a file is named. `evals/baselines/runtimes.md` has the commands.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from lhkit.messages import ModelMessage, UserMessage
from lhkit.models.base import ChatModel
from lhkit.models.weights import file_sha256
from tests.e2e.test_llama_cpp import answered, asked

pytestmark = [pytest.mark.anyio, pytest.mark.gemma, pytest.mark.timeout(600)]


async def test_who_serves_is_told_with_the_hash_of_the_file(
    phone_gemma: ChatModel, litertlm_file: Path
) -> None:
    told = phone_gemma.identity
    assert told.server.startswith("litert-lm ")
    assert told.weights_sha256 == file_sha256(litertlm_file)


async def test_greedy_is_the_same_whether_the_prompt_was_known_or_is_read_anew(
    phone_gemma: ChatModel,
) -> None:
    request, other = asked("카페인 줄이는 법 찾아줘"), asked("안녕!", max_tokens=5)
    fresh, known = [(await answered(phone_gemma, request))[1] for _ in range(2)]
    await answered(phone_gemma, other)  # another limit: the session is a new one
    again = (await answered(phone_gemma, request))[1]
    assert fresh.raw_text == known.raw_text == again.raw_text != ""
    assert known.usage.cached_tokens == known.usage.prompt_tokens - 1
    assert again.usage.cached_tokens == 0


async def test_a_reply_that_is_read_as_part_of_the_next_prompt_is_not_lost(
    phone_gemma: ChatModel,
) -> None:
    """The engine itself would take it for known after a rewind, and read nothing of it."""
    first, other = asked("안녕!"), asked("안녕!", max_tokens=5)
    _, last = await answered(phone_gemma, first)
    messages = (*first.messages, ModelMessage(text=last.text), UserMessage(text="고마워!"))
    second = replace(first, messages=messages)
    _, known = await answered(phone_gemma, second)
    await answered(phone_gemma, other)
    _, fresh = await answered(phone_gemma, second)
    assert known.raw_text == fresh.raw_text
    assert (known.usage.cached_tokens or 0) > (fresh.usage.cached_tokens or 0) == 0
