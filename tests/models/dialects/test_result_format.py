"""How the model reads tool results: with their status, or only the data."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from lhkit.chat.assistant import Assistant
from lhkit.chat.controller import ChatController
from lhkit.conversation.messages import ToolCallMessage, UserMessage
from lhkit.conversation.responses import ModelIdentity
from lhkit.conversation.tool_results import (
    ResultFormat,
    ToolCancelled,
    ToolErr,
    ToolOk,
    ToolResult,
    encode_tool_result,
    plain_result,
)
from lhkit.lifehelper.toolset import LifeHelperToolset
from lhkit.mcp.toolset import McpToolset
from lhkit.models.client.request import chat_messages, request_body
from lhkit.models.dialects import DIALECTS
from lhkit.models.recorded.scripted import ScriptedModel, call, say
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import opened
from tests.rows import check_rows

PLAIN: list[tuple[ToolResult, dict[str, Any]]] = [
    (ToolOk({}), {}),
    (ToolOk({"status": "ok", "data": {}}), {"status": "ok", "data": {}}),
    (ToolOk({"메모": [1, None]}), {"메모": [1, None]}),
    (ToolOk({"n": 1}, edited={"ml": 300}), {"n": 1, "edited_by_user": {"ml": 300}}),
    (ToolErr("not_found", "없어요"), {"error": "not_found: 없어요"}),
    (ToolErr("c", "r", edited={"a": 1}), {"error": "c: r", "edited_by_user": {"a": 1}}),
    (ToolCancelled(), {"cancelled": "user did not confirm"}),
    (ToolCancelled("나중에"), {"cancelled": "user did not confirm", "user_message": "나중에"}),
]


@check_rows(("result", "plain"), PLAIN)
def test_plain_result_has_only_the_data(result: ToolResult, plain: Mapping[str, Any]) -> None:
    assert json.loads(plain_result(encode_tool_result(result))) == plain


def test_plain_result_is_within_the_limit() -> None:
    long = ToolOk({"notes": ["x" * 99] * 99})
    message = ToolCallMessage.of(
        name="f", args={}, result=long, max_bytes=300, hint="{bytes} bytes", result_format="plain"
    )
    content = chat_messages([UserMessage(text="?"), message])[-1]["content"]
    size = len(encode_tool_result(long, 10**6))
    assert json.loads(content) == {"_truncated": True, "_hint": f"{size} bytes"}


DEFAULTS = {
    "json": "envelope",
    "pythonic": "envelope",
    "functiongemma": "plain",
    "gemma4": "plain",
    "openai": "envelope",
}


@pytest.mark.anyio
@check_rows("form", [None, "envelope", "plain"])
@check_rows("dialect", DEFAULTS)
async def test_assistant_decides_how_results_are_read(
    dialect: str, form: ResultFormat | None
) -> None:
    tool = ToolDefinition(
        name="find",
        description="Finds.",
        parameters={"type": "object", "properties": {}},
        handler=lambda _args, _deps: ToolOk({"n": 17}),
    )
    model = ScriptedModel([call("find"), say("Found.")])
    controller = ChatController(
        model=model,
        dispatcher=ToolDispatcher(ToolRegistry([tool])),
        assistant=Assistant(result_format=form),
    )
    await controller.user_turn("Find it")
    identity = ModelIdentity(model="m", server="s", dialect=dialect)
    sent = json.dumps(request_body(model.requests[-1], identity))
    assert "17" in sent
    assert ("status" in sent) == ((form or DEFAULTS[dialect]) == "envelope")


def test_assistant_refuses_an_unknown_result_format() -> None:
    with pytest.raises(ValueError, match="result_format='flat' of the Assistant is invalid"):
        Assistant(result_format="flat")  # type: ignore[arg-type]


@pytest.mark.parametrize("locale", ["ko", "en"])
def test_life_helper_has_the_envelope_in_every_dialect(locale: str) -> None:
    with opened(LifeHelperToolset(), {"now": "2026-06-15T09:00:00+09:00"}, locale) as session:
        form = session.assistant.result_format
    message = ToolCallMessage.of(name="f", args={}, result=ToolOk({"n": 1}), result_format=form)
    for dialect in DIALECTS.values():
        assert "status" in dialect.encode([UserMessage(text="?"), message], ())


def test_mcp_toolset_passes_its_result_format_on() -> None:
    assert McpToolset(server="x").assistant("en").result_format is None
    toolset = McpToolset(server="x", result_format="envelope")
    assert toolset.assistant("en").result_format == "envelope"
