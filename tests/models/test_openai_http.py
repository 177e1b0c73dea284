"""The client of OpenAI-compatible servers against a fake server."""

import hashlib
import json
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from lhkit.base.errors import (
    LhkitError,
    ModelError,
    RequestRefusedError,
    StreamBrokenError,
    StreamStalledError,
    UsageError,
)
from lhkit.conversation.messages import UserMessage
from lhkit.conversation.responses import Finished, ModelEvent, Sampling, ToolCallParsed, Usage
from lhkit.conversation.tool_results import ToolOk
from lhkit.models.base import ModelRequest
from lhkit.models.client.openai_chat import OpenAiHttp
from lhkit.models.client.served import require_constraint
from lhkit.testing import object_schema
from lhkit.tools.definition import ToolDefinition
from tests.models import fake_vllm
from tests.models.fake_vllm import (
    END_OF_TURN,
    NOT_FOUND,
    PROMPT_IDS,
    Behaviour,
    FakeVllm,
    answers,
    chat_call,
    chat_completion,
    event,
    repeats,
    streams,
)

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

TOOL = ToolDefinition(
    name="log_water",
    description="물 기록",
    parameters=object_schema("ml", ml={"type": "integer"}),
    handler=lambda _args, _deps: ToolOk({}),
)
REQUEST = ModelRequest(
    messages=(UserMessage(text="물 마셨어"),), instructions="비서", tools=(TOOL,)
)
FUNCTION = {"name": "log_water", "description": "물 기록", "parameters": dict(TOOL.parameters)}
ASKED = {
    "messages": [{"role": "system", "content": "비서"}, {"role": "user", "content": "물 마셨어"}],
    "tools": [{"type": "function", "function": FUNCTION}],
    "tool_choice": "auto",
}
DELTAS = [
    {"content": "네"},
    {"tool_calls": [chat_call(0, "log_water", "", id="a", type="function")]},
    {"tool_calls": [chat_call(0, None, '{"ml": ')]},
    {"tool_calls": [chat_call(0, None, "200}")]},
]
PLAIN = chat_completion(DELTAS, reason="tool_calls", tokens=9, token_ids=False)
ELSEWHERE = {"/version": answers(404, NOT_FOUND)}
NO_PARSER = json.dumps(
    {
        "error": {
            "message": '"auto" tool choice requires --enable-auto-tool-choice and '
            "--tool-call-parser to be set",
            "type": "BadRequestError",
            "code": 400,
        }
    }
)


connected = partial(fake_vllm.connected, dialect="openai")


async def events_of(model: OpenAiHttp, request: ModelRequest = REQUEST) -> list[ModelEvent]:
    return [event async for event in model.stream(request)]


def last_of(events: list[ModelEvent]) -> Finished:
    assert isinstance(events[-1], Finished)
    return events[-1]


async def test_openai_sends_no_extensions_to_other_servers() -> None:
    async with FakeVllm(streams(PLAIN), routes=ELSEWHERE) as server, connected(server) as model:
        assert isinstance(model, OpenAiHttp)
        events = await events_of(model)
    assert server.bodies == [
        {
            "model": "gemma",
            "max_tokens": 256,
            "max_completion_tokens": 256,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **ASKED,
        }
    ]
    *_, call, last = events
    assert isinstance(call, ToolCallParsed)
    assert (call.call.name, call.call.args, call.call.repairs) == ("log_water", {"ml": 200}, ())
    assert isinstance(last, Finished)
    assert (last.text, last.calls) == ("네", (call.call,))
    assert (last.token_ids, last.server_metrics) == ((), None)
    assert (last.reason, last.truncated, last.strict) == ("tool_calls", False, True)
    assert last.usage == Usage(prompt_tokens=4, completion_tokens=9)
    assert last.identity == model.identity
    assert (model.identity.dialect, model.identity.server) == ("openai", "unknown server")
    assert json.loads(last.prompt_text) == ASKED
    assert last.prompt_sha256 == hashlib.sha256(last.prompt_text.encode()).hexdigest()


@pytest.mark.parametrize(
    "delta",
    [
        {"role": "assistant", "content": ""},
        {"content": None},
        {"tool_calls": [chat_call(0, "log_water", "", id="a")]},
    ],
)
async def test_openai_stops_at_the_idle_timeout(delta: dict[str, Any]) -> None:
    blank = event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    behaviour = repeats(blank, PLAIN[:1])
    async with FakeVllm(behaviour) as server, connected(server) as model:
        model._connection._idle_timeout_s = 0.05  # not the limit of one read, which load exceeds
        with pytest.raises(StreamStalledError, match="it only kept the connection alive"):
            await events_of(model)


async def test_openai_sends_no_tool_fields_without_tools() -> None:
    request = replace(REQUEST, tools=(), sampling=Sampling(max_tokens=5, temperature=0.5, seed=3))
    async with FakeVllm(streams(PLAIN), routes=ELSEWHERE) as server, connected(server) as model:
        await events_of(model, request)
    [sent] = server.bodies
    assert not {"tools", "tool_choice"} & sent.keys()
    assert (sent["max_tokens"], sent["temperature"], sent["seed"]) == (5, 0.5, 3)


async def test_openai_sends_required_as_tool_choice() -> None:
    async with FakeVllm(streams(PLAIN)) as server, connected(server, constraint="required") as it:
        last = last_of(await events_of(it))
        with pytest.raises(UsageError, match="there is no tool: give --constrain off"):
            await events_of(it, replace(REQUEST, tools=()))
    assert [sent["tool_choice"] for sent in server.bodies] == ["required"]
    assert last.identity is not None
    assert last.identity.constraint == "required"


async def test_openai_refuses_the_constraint_auto() -> None:
    async with FakeVllm() as server:
        with pytest.raises(UsageError, match="'auto' for the dialect openai: give off, required"):
            async with connected(server, constraint="auto"):
                pass
    with pytest.raises(UsageError, match="Invalid constraint 'auto'"):
        require_constraint("openai", "auto", (TOOL,))
    require_constraint("openai", "required", (TOOL,))
    require_constraint("json", "auto", (TOOL,))


async def test_openai_keeps_the_token_ids_of_vllm() -> None:
    chunks = chat_completion(DELTAS, reason="tool_calls", tokens=5)
    async with FakeVllm(streams(chunks)) as server, connected(server) as model:
        last = last_of(await events_of(model))
        sent = server.bodies[0]
    assert sent["return_token_ids"] is True
    assert last.token_ids == (1000, 1001, 1002, 1003, END_OF_TURN)
    assert last.prompt_token_ids == PROMPT_IDS
    assert last.raw_text == '네\nlog_water {"ml": 200}'
    assert [call.args for call in last.calls] == [{"ml": 200}]


async def test_openai_returns_a_cut_call_as_fragment() -> None:
    """Some parsers close a string that the token limit cut, and hand the call on."""
    chunks = chat_completion(DELTAS, reason="tool_calls", tokens=256)
    async with FakeVllm(streams(chunks)) as server, connected(server) as model:
        events = await events_of(model)
    last = last_of(events)
    assert not any(isinstance(each, ToolCallParsed) for each in events)
    assert (last.truncated, last.calls) == (True, ())
    assert last.fragment == 'log_water {"ml": 200}'


@pytest.mark.parametrize("end", [b"data: [DONE]\n", b"data: [DONE]\r", b"data:[DONE] \r\n"])
async def test_openai_accepts_a_last_event_without_blank_line(end: bytes) -> None:
    chunks = [*PLAIN[:-1], end]
    async with FakeVllm(streams(chunks), routes=ELSEWHERE) as server, connected(server) as model:
        last = last_of(await events_of(model))
    assert [call.args for call in last.calls] == [{"ml": 200}]


@pytest.mark.parametrize(
    ("behaviour", "error", "sentence"),
    [
        (answers(400, NO_PARSER), RequestRefusedError, "lhkit serve MODEL --server-parser"),
        (
            streams(chat_completion([{"content": "네"}], reason="tool_calls", token_ids=False)),
            StreamBrokenError,
            r"answer of http://127.0.0.1:\d+ is invalid: its finish_reason is 'tool_calls'",
        ),
    ],
)
async def test_openai_raises_typed_errors_with_advice(
    behaviour: Behaviour, error: type[LhkitError], sentence: str
) -> None:
    async with FakeVllm(behaviour, routes=ELSEWHERE) as server, connected(server) as model:
        with pytest.raises(error, match=sentence) as caught:
            await events_of(model)
    assert isinstance(caught.value, ModelError)
