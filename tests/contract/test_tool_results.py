"""What a model reads of a tool's result: the JSON, byte for byte."""

import asyncio
from typing import Any

import pytest

import lhkit
from lhkit.models.scripted import call, say
from lhkit.testing import echo_tool

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


@pytest.mark.parametrize(("result", "text"), RESULTS)
def test_tool_result_is_this_json(result: lhkit.ToolResult, text: str) -> None:
    assert lhkit.encode_tool_result(result) == text
    assert asyncio.run(read_by_model(result)) == text


def test_large_tool_result_is_replaced_by_a_hint_with_its_size() -> None:
    text = asyncio.run(read_by_model(lhkit.ToolOk({"text": "물" * 4000})))
    assert text.startswith('{"status":"ok","data":{"_truncated":true,"_hint":"')
    assert len(text.encode()) <= 4096
    assert str(len('{"status":"ok","data":{"text":""}}') + 12000) in text


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, object()])
def test_tool_result_that_json_cannot_carry_is_a_handler_error(value: Any) -> None:
    result = lhkit.encode_tool_result(lhkit.ToolOk({"value": value}))
    assert result.startswith('{"status":"error","code":"handler_error","reason":"')
