"""The real Gemma behind a vLLM that parses calls itself: calls arrive as it read them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from lhkit.conversation.messages import Message, ModelMessage, ToolCallMessage, UserMessage
from lhkit.conversation.responses import Finished, Sampling
from lhkit.conversation.tool_results import ToolOk
from lhkit.harness.records.record import Verdict
from lhkit.harness.running.run import replay
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.lifehelper import toolset as life_helper
from lhkit.lifehelper.prompts import instructions
from lhkit.lifehelper.shipped import scenario_paths
from lhkit.models.base import ChatModel, ModelRequest
from lhkit.models.client.openai_chat import OpenAiHttp
from lhkit.models.client.served import connect
from lhkit.models.client.transport import Endpoint
from lhkit.models.client.vllm import VllmHttp
from lhkit.models.decoding import Constraint
from lhkit.models.dialects import DIALECTS

pytestmark = [pytest.mark.anyio, pytest.mark.model, pytest.mark.timeout(1200)]

HABITS = ToolOk({"habits": ["물 <end_of_turn>", "산책"]})
CONVERSATION: tuple[Message, ...] = (
    UserMessage(text="안녕", context="[오늘: 2026-06-15 월요일 09:00]"),
    ToolCallMessage.of(
        name="query_tracker", args={"days": 7, "done": True}, result=HABITS, text="볼게요."
    ),
    ToolCallMessage.of(name="query_tracker", args={"name": '"물"'}, result=HABITS, index=1),
    ModelMessage(text="두 개가 있어요 <bos>."),
    UserMessage(text="카페인 줄이는 법 찾아줘"),
)


@asynccontextmanager
async def spoken_to(base_url: str, constraint: Constraint) -> AsyncIterator[OpenAiHttp]:
    endpoint = Endpoint(base_url=base_url, dialect="openai", constraint=constraint)
    model = await connect(endpoint)
    assert isinstance(model, OpenAiHttp)
    try:
        yield model
    finally:
        await model.aclose()


async def answer(model: ChatModel, request: ModelRequest) -> Finished:
    *_, last = [event async for event in model.stream(request)]
    assert isinstance(last, Finished)
    return last


async def test_server_parser_reads_a_required_call_after_the_prompt_of_the_dialect(
    parsing_gemma: ChatModel,
) -> None:
    tools, assistant = life_helper.registry_of("ko").definitions, instructions("ko")
    request = ModelRequest(
        messages=CONVERSATION,
        tools=tools,
        instructions=assistant,
        sampling=Sampling(max_tokens=120),
    )
    async with spoken_to(parsing_gemma.identity.base_url, "required") as model:
        last = await answer(model, request)
    assert last.calls, last.raw_text
    assert {call.name for call in last.calls} <= {tool.name for tool in tools}
    assert last.usage.completion_tokens == len(last.token_ids)
    assert last.server_metrics is not None
    timing = last.timing
    assert timing.first_token_s is not None
    assert timing.call_ready_s is not None
    assert 0 < timing.first_token_s < timing.call_ready_s
    assert last.reason in {"tool_calls", "length"}
    reader = await connect(Endpoint(base_url=parsing_gemma.identity.base_url))
    assert isinstance(reader, VllmHttp)
    prompt = await reader.detokenize(last.prompt_token_ids)
    await reader.aclose()
    assert prompt == DIALECTS["pythonic"].encode(CONVERSATION, tools, assistant)


@pytest.mark.nightly
async def test_server_parser_run_is_valid(parsing_gemma: ChatModel, tmp_path: Path) -> None:
    scenarios = load_scenarios(scenario_paths("dev"), limit=1)
    async with spoken_to(parsing_gemma.identity.base_url, "required") as model:
        run = await replay(
            scenarios,
            model,
            toolset=life_helper.LifeHelperToolset(sampling=Sampling(max_tokens=80)),
            run_dir=tmp_path,
            progress=False,
        )
    assert all(record.score.verdict is not Verdict.INVALID for record in run.records)
    turns = [turn for record in run.records for turn in record.trajectory.turns]
    assert any(model_call.response.calls for turn in turns for model_call in turn.model_calls)
