"""A scored run over each deviation of OpenAI-compatible servers (`--dialect openai`)."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import web

from lhkit.errors import ModelError
from lhkit.harness.record import SampleRecord
from lhkit.harness.run import replay
from lhkit.harness.scenario import Scenario
from lhkit.models.served import connect
from lhkit.models.transport import Endpoint
from tests.models.fake_vllm import (
    DONE,
    NOT_FOUND,
    Behaviour,
    FakeVllm,
    answers,
    chat_call,
    chat_chunk,
    chat_completion,
    event,
    hangs_up,
    streams,
)

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

SCENARIO = Scenario.from_data(
    {
        "id": "list",
        "ac": "read",
        "locale": "en",
        "world": {"now": "2026-06-15T09:00:00+09:00", "habits": [{"protocol_id": "daily-walk"}]},
        "turns": [
            {
                "user": "Which habits do I have?",
                "expect": {"calls": [{"tool": "list_habits", "args": {"status": "active"}}]},
                "reply": {"contains_all": ["walk"]},
            }
        ],
    }
)
TEXT = '{"status": "active"}'
CALL = [{"tool_calls": [chat_call(0, "list_habits", TEXT, id="a")]}]
SAY = chat_completion([{"content": "A walk."}], tokens=3, token_ids=False)


def calls(*deltas: Mapping[str, Any]) -> list[bytes]:
    return chat_completion(deltas or CALL, reason="tool_calls", tokens=9, token_ids=False)


def piece(
    arguments: Any, *, index: Any = 0, name: str | None = None, **more: Any
) -> dict[str, Any]:
    return {"tool_calls": [chat_call(index, name, arguments, **more)]}


def refusing(field: str, status: int = 400) -> Behaviour:
    """Refuse requests with this field, as servers that do not know it do."""
    error = {"message": f"Unsupported parameter: '{field}'", "param": field}
    error["code"] = "unsupported_parameter"

    async def behave(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if field in body:
            return await answers(status, json.dumps({"error": error}))(request)
        has_result = any(message["role"] == "tool" for message in body["messages"])
        return await streams(SAY if has_result else calls())(request)

    return behave


def rewritten(old: str, new: str) -> list[bytes]:
    changed = [part.replace(old.encode(), new.encode()) for part in calls()]
    assert changed != calls()
    return changed


def usage(**tokens: Any) -> list[bytes]:
    *events, _done = chat_completion(CALL, reason="tool_calls", token_ids=False)
    return [*events, event({"choices": [], "usage": tokens}), DONE]


LISTS = {
    "404": answers(404, NOT_FOUND),
    "405": answers(405, "Method Not Allowed", "text/plain"),
    "an empty list": answers(200, "[]"),
    "a bare list": answers(200, '[{"id": "b"}]'),
    "names": answers(200, '{"data": ["b"]}'),
    "a prefix": answers(200, '{"data": [{"id": "models/b"}]}'),
    "a wildcard": answers(200, '{"data": [{"id": "*"}]}'),
}
ANSWERS = {
    "several data lines": rewritten('"index": 0, "delta"', '"index": 0,\ndata: "delta"'),
    "bare CR": rewritten("\n", "\r"),
    "CRLF": rewritten("\n", "\r\n"),
    "no space": rewritten("data: ", "data:"),
    "a byte-order mark": [b"\xef\xbb\xbf", *calls()],
    "comments and ids": [b": ping\n\nid: 1\nretry: 5\n", *calls()],
    "usage as floats": usage(prompt_tokens=4.0, completion_tokens=9.0, total_tokens=13.0),
    "usage as text": usage(prompt_tokens="4", completion_tokens="9", total_tokens="13"),
    "usage null": usage(prompt_tokens=None, completion_tokens=None, total_tokens=None),
    "index as text": calls(piece(TEXT, index="0", name="list_habits", id="a")),
    "index as float": calls(piece(TEXT, index=0.0, name="list_habits", id="a")),
    "no index": calls(piece(TEXT, index=None, name="list_habits", id="a")),
    "integer id": calls(piece(TEXT, name="list_habits", id=7)),
    "no id": calls(piece(TEXT, name="list_habits")),
    "object arguments": calls(piece({"status": "active"}, name="list_habits", id="a")),
    "an object before": calls(piece({}, name="list_habits", id="a"), piece(TEXT)),
    "repeated arguments": calls(piece(TEXT, name="list_habits", id="a"), piece(TEXT)),
    "null arguments first": calls(piece(None, name="list_habits", id="a"), piece(TEXT)),
    "content parts": calls({"content": [{"type": "text", "text": "Let me look."}]}, *CALL),
    "a wrong reason": chat_completion(CALL, reason="stop", token_ids=False),
}
FAULTS = {
    "announced calls": calls({"content": "I look."}),
    "calls in message": [
        event(chat_chunk({}, message=CALL[0])),
        event(chat_chunk({}, "stop")),
        DONE,
    ],
    "legacy call": calls({"function_call": {"name": "list_habits", "arguments": TEXT}}),
    "error event": [b'event: error\ndata: {"message": "overloaded"}\n\n'],
    "no finish_reason": [event(chat_chunk(CALL[0]))],
}


async def record_of(
    *behaviours: Behaviour, models: Behaviour | None = None
) -> tuple[SampleRecord, FakeVllm]:
    """Return the record of the scenario, played against a server that is not vLLM."""
    routes = {"/version": answers(404, NOT_FOUND), **({"/v1/models": models} if models else {})}
    async with FakeVllm(*behaviours, routes=routes) as server:
        endpoint = Endpoint(base_url=server.base_url, dialect="openai", model="b", retries=0)
        model = await connect(endpoint)
        try:
            run = await replay([SCENARIO], model, max_attempts=1, progress=False)
        finally:
            await model.aclose()
    return run.records[0], server


@pytest.mark.parametrize("name", LISTS)
async def test_scored_run_with_a_model_list_of(name: str) -> None:
    record, _ = await record_of(streams(calls()), streams(SAY), models=LISTS[name])
    assert (record.judgement.verdict.value, record.judgement.reasons) == ("pass", ())


@pytest.mark.parametrize("name", ANSWERS)
async def test_scored_run_with_an_answer_with(name: str) -> None:
    record, _ = await record_of(streams(ANSWERS[name]), streams(SAY), models=LISTS["a bare list"])
    assert (record.judgement.verdict.value, record.judgement.reasons) == ("pass", ())


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize("field", ["stream_options", "max_tokens", "temperature"])
async def test_scored_run_without_the_refused(field: str, status: int) -> None:
    server_answers = [refusing(field, status)] * 4
    record, server = await record_of(*server_answers, models=LISTS["404"])
    assert (record.judgement.verdict.value, record.judgement.reasons) == ("pass", ())
    asked = record.evidence.turns[0].model_calls
    assert [call.response.refused_fields for call in asked] == [(field,), (field,)]
    assert [field in body for body in server.bodies] == [True, False, False]


@pytest.mark.parametrize("name", FAULTS)
async def test_scored_run_is_invalid_after(name: str) -> None:
    record, _ = await record_of(streams(FAULTS[name]), streams(SAY), models=LISTS["404"])
    assert record.judgement.verdict.value == "invalid"


@pytest.mark.parametrize(
    ("models", "why"), [(answers(401, ""), "LHKIT_API_KEY"), (hangs_up(), "alive")]
)
async def test_no_run_starts_without_a_server(models: Behaviour, why: str) -> None:
    with pytest.raises(ModelError, match=why):
        await record_of(models=models)
