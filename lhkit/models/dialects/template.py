"""A conversation as the variables of a model's own chat template. Pure.

The template renders the prompt in place of a native dialect's `encode`; its calls are parsed by the
dialect. Where no template can express a conversation, the dialect's extensions apply as far as a
template allows: control tokens in texts, names and data are escaped (`< turn|>`), because a
template writes every text as it is, and a malformed call is shown as the model wrote it.
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

_TURN = re.compile(r"<start_of_turn>(?P<role>\w+)\n(?P<text>.*?)<end_of_turn>", re.DOTALL)


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
    """
    escape = markup.escape_control_tokens
    system = instructions.strip()
    if markup.sentence and tools and markup.sentence not in system:
        system = "\n".join(filter(None, (system, markup.sentence)))
    converted = [_text(markup.system_role, escape(system))] if system else []
    for group in group_messages(messages):
        match group:
            case UserMessage():
                converted.append(_text("user", escape(user_text(group))))
            case ModelMessage(text=text):
                converted.append(_text("assistant", escape(text)))
            case list():
                converted += _call_messages(markup, group)
            case _:
                assert_never(group)
    functions = [{"type": "function", "function": tool_spec(tool)} for tool in tools]
    return {"messages": _joined(converted), "tools": _escaped(markup, functions) or None}


def _text(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def _call_messages(markup: Markup, group: Sequence[ToolCallMessage]) -> list[dict[str, Any]]:
    """Return the text before calls, the calls, and their results.

    The text is a message of its own, because templates write the content after the calls.
    """
    text = "".join(call.text for call in group)
    calls: list[dict[str, Any]] = []
    responses: list[dict[str, Any]] = []
    for call in group:
        arguments = _arguments(call)
        name = markup.escape_control_tokens(call.name)
        responses.append({"name": name, "response": _response(markup, call)})
        if arguments is None:
            text += call.raw
        else:
            function = {"name": name, "arguments": _escaped(markup, arguments)}
            calls.append({"type": "function", "function": function})
    converted = [_text("assistant", markup.escape_control_tokens(text))] if text else []
    if markup.system_role == "developer":  # FunctionGemma reads results of a message with the role
        if calls:
            converted.append({"role": "assistant", "content": "", "tool_calls": calls})
        return [*converted, {"role": "tool", "content": responses}]
    message = {"role": "assistant", "content": "", "tool_responses": responses}
    return [*converted, {**message, "tool_calls": calls} if calls else message]


def _arguments(call: ToolCallMessage) -> Any:
    """Return the arguments of a call as plain JSON; None for a malformed call."""
    if not is_renderable(call):
        return None
    try:
        return plain_json(call.args)
    except NotJsonError:
        return None


def _response(markup: Markup, call: ToolCallMessage) -> Any:
    value = json.loads(result_text(call, "plain"))
    return _escaped(markup, value if isinstance(value, dict) else {"value": value})


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


def _joined(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages with adjacent texts of the user or the system joined."""
    joined: list[dict[str, Any]] = []
    for message in messages:
        last = joined[-1] if joined else {}
        if message["role"] == last.get("role") != "assistant" and message["role"] != "tool":
            content = f"{last['content']}\n\n{message['content']}"
            joined[-1] = {**message, "content": content}
        else:
            joined.append(message)
    return joined


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
