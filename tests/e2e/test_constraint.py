"""The real server under a grammar: every output is text or a valid call.

What the grammars let pass is in `tests/models/dialects/test_constraint_grammar.py`, for every tool.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from lhkit.conversation.messages import ToolCall, UserMessage
from lhkit.conversation.responses import Finished, Sampling
from lhkit.lifehelper import toolset as life_helper
from lhkit.lifehelper.prompts import instructions
from lhkit.models.base import ChatModel, ModelRequest
from lhkit.models.client.served import connect
from lhkit.models.client.transport import Endpoint
from lhkit.models.client.vllm import VllmHttp
from lhkit.models.decoding import Constraint
from lhkit.tools.validation import Accepted

pytestmark = [pytest.mark.anyio, pytest.mark.model, pytest.mark.timeout(1200)]

REQUESTS = (
    ("카페인 줄이는 법 찾아줘", 0.0),
    ("카페인 줄이는 법 찾아줘", 1.0),
    ("내 습관 목록 보여줘", 0.0),
    ("고마워요", 0.0),  # answered in words
)
"""Texts and temperatures."""


@asynccontextmanager
async def constrained(gemma: ChatModel, constraint: Constraint) -> AsyncIterator[VllmHttp]:
    endpoint = Endpoint(
        base_url=gemma.identity.base_url, model=gemma.identity.model, constraint=constraint
    )
    model = await connect(endpoint)
    assert isinstance(model, VllmHttp)
    try:
        yield model
    finally:
        await model.aclose()


async def answers(model: VllmHttp, max_tokens: int) -> list[Finished]:
    """Return the model's answers to all requests."""
    tools = life_helper.registry_of("ko").definitions
    finished: list[Finished] = []

    async def answer(text: str, temperature: float) -> None:
        sampling = Sampling(max_tokens=max_tokens, temperature=temperature, seed=7)
        request = ModelRequest(
            messages=(UserMessage(text=text, context="[오늘: 2026-06-15 월요일 09:00]"),),
            tools=tools,
            instructions=instructions("ko"),
            sampling=sampling,
        )
        *_, last = [event async for event in model.stream(request)]
        assert isinstance(last, Finished)
        finished.append(last)

    async with anyio.create_task_group() as tasks:
        for text, temperature in REQUESTS:
            tasks.start_soon(answer, text, temperature)
    return finished


def is_valid(call: ToolCall) -> bool:
    registry = life_helper.registry_of("ko")
    assert call.name in set(registry)
    verdict = registry.validator(call.name).check(call.args)
    return isinstance(verdict, Accepted) and not verdict.extra


async def test_constraint_required_gives_one_strict_call(gemma: ChatModel) -> None:
    async with constrained(gemma, "required") as model:
        responses = await answers(model, max_tokens=48)
    for response in responses:
        assert response.text == "", response.raw_text
        assert response.repairs == ()
        if response.truncated:  # the longest call has more characters than the tokens may hold
            assert response.calls == ()
            assert response.fragment == response.raw_text
        else:
            [call] = response.calls
            assert call.raw == response.raw_text
            assert is_valid(call), call
        assert response.identity is not None
        assert response.identity.constraint == "required"
    assert sum(len(response.calls) for response in responses) >= len(responses) // 2


@pytest.mark.nightly
async def test_constraint_auto_gives_text_or_a_valid_call(gemma: ChatModel) -> None:
    async with constrained(gemma, "auto") as model:
        responses = await answers(model, max_tokens=60)
    for response in responses:
        assert response.calls or response.fragment or response.text, response.raw_text
        assert all(is_valid(call) for call in response.calls)
        assert "{" not in response.text
    words = "".join(response.text for response in responses)
    assert any("가" <= character <= "힣" for character in words)
    assert "\\u" not in words
