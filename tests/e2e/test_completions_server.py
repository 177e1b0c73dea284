"""A server with only `/v1`: its identity, and the same replies.

It returns no token ids and puts a `<bos>` before every prompt. What each runtime has to do is in
`test_runtime_contract`.
"""

import pytest

from lhkit.models.base import ChatModel
from lhkit.models.client.vllm import VllmHttp
from tests.e2e.test_llama_cpp import MIXED, answered, request_of

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.model,
    pytest.mark.timeout(600),
]


async def test_completions_server_is_reported_by_its_name(
    plain_gemma: ChatModel,
) -> None:
    assert isinstance(plain_gemma, VllmHttp)
    assert plain_gemma.identity.server == "unknown server"
    _, last = await answered(plain_gemma, request_of("안녕!", max_tokens=2, is_bare=True))
    assert last.identity == plain_gemma.identity
    assert last.prompt_text.startswith("<bos><start_of_turn>")


async def test_completions_server_matches_llama_cpp(
    plain_gemma: ChatModel, light_gemma: ChatModel
) -> None:
    ours, theirs = [
        (await answered(model, request_of(MIXED, max_tokens=12, is_bare=True)))[1]
        for model in (plain_gemma, light_gemma)
    ]
    assert (ours.raw_text, ours.reason) == (theirs.raw_text, theirs.reason)
    assert ours.usage.prompt_tokens == theirs.usage.prompt_tokens
