"""What a model reads of a tool's result: the JSON, byte for byte."""

import asyncio
import json
from typing import Any

import pytest

import lhkit
from lhkit import parse_result
from lhkit.scripted import call, say
from lhkit.testing import echo_tool
from tests.rows import check_rows

RESULTS: list[tuple[lhkit.ToolResult, str]] = [
    (lhkit.ToolOk({"n": 1}), '{"status":"ok","data":{"n":1}}'),
    (lhkit.ToolOk({}), '{"status":"ok","data":{}}'),
    (
        lhkit.ToolOk({"이름": "물 마시기", "list": [1, 2.5, True, None]}),
        '{"status":"ok","data":{"이름":"물 마시기","list":[1,2.5,true,null]}}',
    ),
    (
        lhkit.ToolErr("r3_quota", "one a week"),
        '{"status":"error","code":"r3_quota","reason":"one a week"}',
    ),
    (lhkit.ToolCancelled(), '{"status":"cancelled","reason":"user did not confirm"}'),
    (
        lhkit.ToolCancelled("오늘은 말고"),
        '{"status":"cancelled","reason":"user did not confirm","user_message":"오늘은 말고"}',
    ),
]
EDITED: list[tuple[lhkit.ToolResult, str]] = [
    (
        lhkit.ToolOk({"n": 1}, {"day": "2026-06-16"}),
        '{"status":"ok","data":{"n":1},"edited":{"day":"2026-06-16"}}',
    ),
    (
        lhkit.ToolErr("r3_quota", "one a week", {"day": None}),
        '{"status":"error","code":"r3_quota","reason":"one a week","edited":{"day":null}}',
    ),
]


async def read_by_model(result: lhkit.ToolResult, **assistant: Any) -> str:
    """Return the text in which the model gets this result, as the wire format shows it."""
    model = lhkit.ScriptedModel([call("echo"), say("done")])
    controller = lhkit.ChatController(
        model=model,
        dispatcher=lhkit.ToolDispatcher(
            lhkit.ToolRegistry([echo_tool(handler=lambda _args, _deps: result)])
        ),
        assistant=lhkit.Assistant(**assistant),
    )
    await controller.user_turn("go")
    message = model.requests[-1].messages[-1]
    return lhkit.encode_tool_result(message.result, message.max_bytes)


@check_rows(("result", "text"), RESULTS)
def test_tool_result_is_this_json(result: lhkit.ToolResult, text: str) -> None:
    assert lhkit.encode_tool_result(result) == text
    assert asyncio.run(read_by_model(result)) == text


@pytest.mark.parametrize(("result", "text"), EDITED)
def test_tool_result_of_an_edited_call_is_this_json(result: lhkit.ToolResult, text: str) -> None:
    assert lhkit.encode_tool_result(result) == text
    assert parse_result(json.loads(text)) == result


LONG = '물\ud800"' * 4000


@check_rows("limit", [256, 300, 2048])
@check_rows(
    ("result", "keys"),
    [
        (lhkit.ToolCancelled(LONG), ["status", "reason", "user_message"]),
        (lhkit.ToolOk({"a": LONG}, {"day": "x"}), ["status", "data", "edited"]),
        (lhkit.ToolOk({"a": 1}, {"day": LONG}), ["status", "data", "edited"]),
        (lhkit.ToolOk({"a": LONG}, {LONG: LONG}), ["status", "data", "edited"]),
        (lhkit.ToolErr("c", LONG, {"day": LONG}), ["status", "code", "reason", "edited"]),
        (lhkit.ToolErr(LONG, LONG, {LONG: 1}), ["status", "code", "reason", "edited"]),
    ],
)
def test_tool_result_with_long_words_of_a_person_stays_valid_json_within_its_limit(
    result: lhkit.ToolResult, keys: list[str], limit: int
) -> None:
    text = lhkit.encode_tool_result(result, limit)
    assert len(text.encode()) <= limit
    assert list(json.loads(text)) == keys


def test_large_tool_result_is_replaced_by_a_hint_with_its_size() -> None:
    text = asyncio.run(read_by_model(lhkit.ToolOk({"text": "물" * 4000})))
    assert text.startswith('{"status":"ok","data":{"_truncated":true,"_hint":"')
    assert len(text.encode()) <= 4096
    assert str(len('{"status":"ok","data":{"text":""}}') + 12000) in text


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, object()])
def test_tool_result_that_json_cannot_carry_is_a_handler_error(value: Any) -> None:
    result = lhkit.encode_tool_result(lhkit.ToolOk({"value": value}))
    assert result.startswith('{"status":"error","code":"handler_error","reason":"')
