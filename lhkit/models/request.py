"""What a server is sent: messages and settings as its endpoint wants them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, assert_never, cast

from lhkit.errors import UsageError
from lhkit.json_values import NotJsonError, compact
from lhkit.messages import (
    Message,
    ModelIdentity,
    ModelMessage,
    Sampling,
    ToolCallMessage,
    UserMessage,
)
from lhkit.models.base import ModelRequest
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.base import (
    Constraint,
    ToolSpec,
    grouped,
    is_writable,
    result_text,
    spec_of,
    words_of,
)
from lhkit.models.families import family_of

# Where a response of a server that parses calls ends. Pure.
#
# The server's parser decides what a model of one family is told to write: `pythonic` for Gemma 3,
# JSON wherever a call is required (vLLM 0.32), a family's own markup otherwise.


_EOS_ID = 1
_FALLBACK = "json"


def stop_token_ids(model: str) -> tuple[int, ...]:
    """Return the token ids at which a model of this name ends, its end of sequence first."""
    family = family_of(model)
    dialect = DIALECTS[family.server_dialect if family else _FALLBACK]
    return (_EOS_ID, *dialect.stop_token_ids)


# A conversation as OpenAI chat messages and tools: what any server with tool calls reads. Pure.
#
# A call whose arguments are no object is told as text, with its result as user text: vLLM would
# turn such arguments into `{}` without a word. Our calls have no ids; theirs are made from their
# place.


_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def chat_messages(messages: Iterable[Message], instructions: str = "") -> list[dict[str, Any]]:
    """Return the messages; instructions become the system message.

    Neighbours of one role are joined as the dialects join them: a turn that failed or ended with
    calls that cannot be written leaves two user messages, which stock chat templates refuse.
    """
    told: list[dict[str, Any]] = []
    if instructions.strip():
        told.append(_said("system", instructions.strip()))
    count = 0
    for group in grouped(messages):
        match group:
            case UserMessage():
                told.append(_said("user", words_of(group)))
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
    return [{"type": "function", "function": spec_of(tool)} for tool in tools]


def _exchange(calls: Sequence[ToolCallMessage], first: int) -> list[dict[str, Any]]:
    """Return the calls of one model message and their results."""
    written: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    words = [call.text for call in calls if call.text]
    asides: list[str] = []
    for number, call in enumerate(calls, start=first):
        arguments = _arguments(call)
        result = _clean(result_text(call))
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
    text = _clean("\n".join(word for word in words if word))
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if written:
        message["tool_calls"] = written
    else:
        message["content"] = text
    told = [message, *results]
    return [*told, _said("user", "\n".join(asides))] if asides else told


def _arguments(call: ToolCallMessage) -> str | None:
    """Return the arguments as JSON text; None for a call that cannot be told as one."""
    if not is_writable(call):
        return None
    try:
        return compact(call.args)
    except NotJsonError:
        return None


def _said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": _clean(text)}


def _clean(text: str) -> str:
    """Return `text` as Unicode: vLLM refuses a lone surrogate with HTTP 400."""
    return _LONE_SURROGATE.sub("\ufffd", text)


def names_of(tools: Sequence[ToolSpec]) -> frozenset[str]:
    """Return the names of the tools."""
    return frozenset(str(spec.get("name")) for spec in map(spec_of, tools))


def choice_of(tools: Sequence[ToolSpec], *, required: bool) -> Mapping[str, Any]:
    """Return the request fields for the tools; none where there is no tool, as servers want it."""
    if not tools:
        return {}
    return {"tools": chat_tools(tools), "tool_choice": "required" if required else "auto"}


# What a server is sent for a request: the one place that says it, for whoever sends or hashes it.
#
# Pure. The body holds all that reaches the model: the prompt as the dialect renders it (or
# messages and tools, where the server renders), what decoding is constrained to, where it stops,
# sampling.


OPENAI = "openai"
"""The dialect of servers that render and parse themselves."""


def request_body(request: ModelRequest, identity: ModelIdentity) -> dict[str, Any]:
    """Return the body of the request to the server that `identity` tells of; empty if it is none.

    Raises:
        UsageError: these tools cannot have the constraint.
    """
    if identity.dialect == OPENAI:
        return chat_body(request, identity)
    if identity.dialect in DIALECTS:
        return completion_body(request, identity)
    return {}


def chat_asked(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a chat body that the server renders."""
    return {key: body[key] for key in ("messages", "tools", "tool_choice") if key in body}


def completion_body(request: ModelRequest, identity: ModelIdentity) -> dict[str, Any]:
    """Return the body where lhkit renders the prompt, in the dialect of `identity`.

    Raises:
        UsageError: these tools cannot have the constraint.
    """
    dialect = DIALECTS[identity.dialect]
    return {
        "model": identity.model,
        "prompt": dialect.encode(request.messages, request.tools, request.instructions),
        "add_special_tokens": False,  # the prompt has its own <bos>, exactly one
        "skip_special_tokens": False,  # a leaked token must be seen
        "stop_token_ids": list(dialect.stop_token_ids),
        "stop": list(dialect.stop_texts),
        **_sampled(request.sampling),
        "return_token_ids": True,
        **dialect.constrain(request.tools, cast("Constraint", identity.constraint)),
    }


def chat_body(request: ModelRequest, identity: ModelIdentity) -> dict[str, Any]:
    """Return the body where the server renders the prompt.

    Raises:
        UsageError: a call is required and there is no tool.
    """
    is_required = identity.constraint == "required"
    if is_required and not request.tools:
        raise UsageError("a call is required but there is no tool: give --constrain off")
    return {
        "model": identity.model,
        **_sampled(request.sampling),
        **_extensions(identity),
        "messages": chat_messages(request.messages, request.instructions),
        **choice_of(request.tools, required=is_required),
    }


def _sampled(sampling: Sampling) -> dict[str, Any]:
    return {
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
        **({} if sampling.seed is None else {"seed": sampling.seed}),
    }


def _extensions(identity: ModelIdentity) -> Mapping[str, Any]:
    """Return what only a vLLM understands."""
    if not identity.server.startswith("vllm "):
        return {}
    known = family_of(identity.model) is not None
    stops = {"stop_token_ids": list(stop_token_ids(identity.model))} if known else {}
    return {"return_token_ids": True, **stops}
