"""A conversation as OpenAI chat messages and tools: what any server with tool calls reads.

A call whose arguments are no object is told as text, with its result as user text: vLLM would
turn such arguments into `{}` without a word. Our calls have no ids; theirs are made from their
place.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, assert_never

from lhkit.json_values import NotJsonError, compact
from lhkit.messages import Message, ModelMessage, ToolCallMessage, UserMessage
from lhkit.models.dialects.base import (
    ToolSpec,
    group_messages,
    is_renderable,
    replace_lone_surrogates,
    result_text,
    tool_spec,
    user_text,
)


def chat_messages(messages: Iterable[Message], instructions: str = "") -> list[dict[str, Any]]:
    """Return the messages; instructions become the system message.

    Neighbours of one role are joined as the dialects join them: a turn that failed or ended with
    calls that cannot be written leaves two user messages, which stock chat templates refuse.
    """
    told: list[dict[str, Any]] = []
    if instructions.strip():
        told.append(_said("system", instructions.strip()))
    count = 0
    for group in group_messages(messages):
        match group:
            case UserMessage():
                told.append(_said("user", user_text(group)))
            case ModelMessage(text=text):
                told.append(_said("assistant", text))
            case list():
                told += _exchange(group, count)
                count += len(group)
            case _:
                assert_never(group)
    joined: list[dict[str, Any]] = []
    for message in told:  # between calls and the next message are their results
        last = joined[-1] if joined else {}
        if message["role"] == last.get("role") and message["role"] != "tool":
            texts = [last["content"], message["content"]]
            content = "\n\n".join(text for text in texts if text is not None)
            joined[-1] = {**message, "content": content}
        else:
            joined.append(message)
    return joined


def chat_tools(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """Return the tools as OpenAI function definitions."""
    return [{"type": "function", "function": tool_spec(tool)} for tool in tools]


def _exchange(calls: Sequence[ToolCallMessage], first: int) -> list[dict[str, Any]]:
    """Return the calls of one model message and their results."""
    written: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    words = [call.text for call in calls if call.text]
    asides: list[str] = []
    for number, call in enumerate(calls, start=first):
        arguments = _arguments(call)
        result = replace_lone_surrogates(result_text(call))
        if arguments is None:
            words.append(call.raw)
            asides.append(f"Result of {call.name or 'the call'}: {result}")
            continue
        call_id = f"call{number:05d}"  # nine letters and digits: the strictest servers' form
        function = {"name": call.name, "arguments": arguments}
        written.append({"id": call_id, "type": "function", "function": function})
        results.append(
            {"role": "tool", "tool_call_id": call_id, "name": call.name, "content": result}
        )
    text = replace_lone_surrogates("\n".join(word for word in words if word))
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if written:
        message["tool_calls"] = written
    else:
        message["content"] = text
    told = [message, *results]
    return [*told, _said("user", "\n".join(asides))] if asides else told


def _arguments(call: ToolCallMessage) -> str | None:
    """Return the arguments as JSON text; None for a call that cannot be told as one."""
    if not is_renderable(call):
        return None
    try:
        return compact(call.args)
    except NotJsonError:
        return None


def _said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": replace_lone_surrogates(text)}


def choice_of(tools: Sequence[ToolSpec], *, required: bool) -> Mapping[str, Any]:
    """Return the request fields for the tools; none where there is no tool, as servers want it."""
    if not tools:
        return {}
    return {"tools": chat_tools(tools), "tool_choice": "required" if required else "auto"}
