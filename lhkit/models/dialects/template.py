"""A conversation as the variables of a model's own chat template. Pure.

The template renders the prompt in place of a native dialect's `encode`; its calls are parsed by the
dialect. The newest template renders the text of `encode`, except where no template can: it writes
every text and key as it is, so control tokens in texts, names and data are escaped (`< turn|>`),
and a malformed call is shown as the model wrote it before the other calls of its message.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from lhkit.base.json_values import NotJsonError, plain_json
from lhkit.conversation.messages import Message, ModelMessage, ToolCallMessage, UserMessage
from lhkit.models.dialects.base import (
    ToolSpec,
    group_messages,
    is_renderable,
    result_text,
    tool_spec,
    user_text,
)
from lhkit.models.dialects.markup import Markup
from lhkit.models.dialects.native_prompt import joined_groups

_TURN = re.compile(r"<start_of_turn>(?P<role>\w+)\n(?P<text>.*?)<end_of_turn>", re.DOTALL)
_RESPONSES = "tool_responses"


def template_variables(
    markup: Markup,
    messages: Sequence[Message],
    tools: Sequence[ToolSpec],
    instructions: str = "",
) -> dict[str, Any]:
    """Return `messages` and `tools` of a chat template, as plain JSON.

    Args:
        markup: the tokens of the model's family.
        messages: the conversation so far.
        tools: the tools that the model may call.
        instructions: the system text.

    Raises:
        NotJsonError: the schema of a tool is not JSON.
    """
    escape = markup.escape_control_tokens
    system = markup.system_text(instructions, has_tools=bool(tools))
    converted = [_text(markup.system_role, system)] if system else []
    groups = list(joined_groups(group_messages(messages)))
    for number, group in enumerate(groups):
        is_after_calls = number > 0 and isinstance(groups[number - 1], list)
        match group:
            case UserMessage():
                if is_after_calls:  # an empty message closes the model's turn
                    converted.append(_text("assistant", ""))
                converted.append(_text("user", escape(user_text(group))))
            case ModelMessage(text=text):
                is_last = number == len(groups) - 1
                if is_after_calls and text.strip() and not is_last and _RESPONSES in converted[-1]:
                    converted[-1]["content"] = escape(text)
                else:
                    converted.append(_text("assistant", escape(text)))
            case list():
                converted += _call_messages(markup, group)
            case _:
                assert_never(group)
    functions = [{"type": "function", "function": _function(markup, tool)} for tool in tools]
    return {"messages": converted, "tools": functions or None}


def _text(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def _function(markup: Markup, tool: ToolSpec) -> dict[str, Any]:
    spec = tool_spec(tool)
    function = {"name": str(spec.get("name")), "description": str(spec.get("description", ""))}
    schemas: dict[str, Any] = {}
    parameters = spec.get("parameters")
    if isinstance(parameters, Mapping) and parameters:
        schemas["parameters"] = plain_json(parameters)
    if markup.declares_responses and isinstance(tool, Mapping) and "response" in tool:
        schemas["response"] = plain_json(tool["response"])
    escaped: dict[str, Any] = _escaped(markup, {**function, **schemas})
    return escaped


def _call_messages(markup: Markup, group: Sequence[ToolCallMessage]) -> list[dict[str, Any]]:
    """Return the text before calls, the calls, and the results of completed ones.

    For Gemma 4 the text is a message of its own, because its template writes `content` at the end.
    """
    text = "".join(call.text for call in group)
    calls: list[dict[str, Any]] = []
    for call in group:
        arguments = _arguments(call)
        if arguments is None:
            text += call.raw
        else:
            name = markup.escape_control_tokens(call.name)
            function = {"name": name, "arguments": _escaped(markup, arguments)}
            calls.append({"type": "function", "function": function})
    text = markup.escape_control_tokens(text)
    responses = [_response(markup, call) for call in group if call.outcome is not None]
    called = {"tool_calls": calls} if calls else {}
    if markup.has_tool_role:
        converted = [{**_text("assistant", text), **called}] if text or calls else []
        return [*converted, {"role": "tool", "content": responses}] if responses else converted
    if responses:
        called[_RESPONSES] = responses
    converted = [_text("assistant", text)] if text else []
    return [*converted, {**_text("assistant", ""), **called}] if called else converted


def _arguments(call: ToolCallMessage) -> Any:
    """Return the arguments of a call as plain JSON; None for a malformed call."""
    if not is_renderable(call):
        return None
    try:
        return plain_json(call.args)
    except NotJsonError:
        return None


def _response(markup: Markup, call: ToolCallMessage) -> dict[str, Any]:
    name = markup.escape_control_tokens(call.name) or "unknown"
    return {"name": name, "response": _escaped(markup, json.loads(result_text(call, "plain")))}


def _escaped(markup: Markup, value: Any) -> Any:
    """Return a value without control tokens in its strings and keys."""
    if isinstance(value, str):
        return markup.escape_control_tokens(value)
    if isinstance(value, Mapping):
        return {
            markup.escape_control_tokens(str(key)): _escaped(markup, item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_escaped(markup, item) for item in value]
    return value


def turn_messages(prompt: str) -> list[dict[str, Any]]:
    """Return the turns of a prompt in Gemma 3's format as chat messages, without the open one.

    The formats that lhkit describes in the prompt (`json`, `pythonic`) are unknown to a template,
    which can only render their turns. Texts contain no control tokens, so the turns are exact.
    """
    roles = {"model": "assistant"}
    return [
        _text(roles.get(match["role"], match["role"]), match["text"])
        for match in _TURN.finditer(prompt)
    ]
