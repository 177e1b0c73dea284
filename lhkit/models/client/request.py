"""Build the body of a request to a server.

The body contains everything that reaches the model, so that it can be sent or hashed.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, assert_never, cast

from lhkit.base.errors import UsageError
from lhkit.base.json_values import NotJsonError, compact
from lhkit.base.notices import NOTICE
from lhkit.conversation.messages import Message, ModelMessage, ToolCallMessage, UserMessage
from lhkit.conversation.responses import ModelIdentity, Sampling
from lhkit.models.base import ModelRequest
from lhkit.models.decoding import Constraint
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.base import (
    ToolSpec,
    group_messages,
    is_renderable,
    replace_lone_surrogates,
    result_text,
    tool_spec,
    user_text,
)
from lhkit.models.families import family_of
from lhkit.models.runtimes import LLAMA_CPP

OPENAI = "openai"
"""The dialect of servers that render prompts and parse calls themselves."""

_log = logging.getLogger(__name__)

_EOS_ID = 1
_FALLBACK_DIALECT = "json"


def request_body(request: ModelRequest, identity: ModelIdentity) -> dict[str, Any]:
    """Return the body of a request to a server; empty for a model in memory.

    Raises:
        UsageError: the constraint is not available for these tools.
    """
    if identity.dialect == OPENAI:
        return chat_body(request, identity)
    if identity.dialect in DIALECTS:
        return completion_body(request, identity)
    return {}


def completion_body(
    request: ModelRequest, identity: ModelIdentity, prompt: str | None = None
) -> dict[str, Any]:
    """Return the body for `/v1/completions`, with a prompt in the dialect.

    Args:
        request: the request.
        identity: the model, with the dialect.
        prompt: the prompt as the model's chat template renders it; by default the dialect's.

    Raises:
        UsageError: the constraint is not available for these tools.
    """
    dialect = DIALECTS[identity.dialect]
    return {
        "model": identity.model,
        "prompt": dialect.encode(request.messages, request.tools, request.instructions)
        if prompt is None
        else prompt,
        "add_special_tokens": False,  # the prompt has its own <bos>, exactly one
        "skip_special_tokens": False,  # a leaked token must be visible
        "stop_token_ids": list(dialect.stop_token_ids),
        "stop": list(dialect.stop_texts),
        **_sampling_fields(request.sampling),
        "return_token_ids": True,
        **({"logprobs": 1} if request.logprobs else {}),
        **dialect.constrain(request.tools, cast("Constraint", identity.constraint)),
        **choice_fields(request.choices, identity),
    }


def chat_body(request: ModelRequest, identity: ModelIdentity) -> dict[str, Any]:
    """Return the body for `/v1/chat/completions`, where the server renders the prompt.

    Raises:
        UsageError: a call is required, but there are no tools.
    """
    is_required = identity.constraint == "required" and not request.choices
    if is_required and not request.tools:
        raise UsageError("a call is required but there is no tool: give --constrain off")
    extensions: dict[str, Any] = {}
    if identity.server.startswith("vllm "):  # other servers may refuse unknown fields
        extensions["return_token_ids"] = True
        if family_of(identity.model) is not None:
            extensions["stop_token_ids"] = list(stop_token_ids(identity.model))
    return {
        "model": identity.model,
        **_sampling_fields(request.sampling),
        # some servers read only this name, others only `max_tokens`
        "max_completion_tokens": request.sampling.max_tokens,
        **({"logprobs": True} if request.logprobs else {}),
        **extensions,
        "messages": chat_messages(request.messages, request.instructions),
        **tool_fields(request.tools, required=is_required),
        **choice_fields(request.choices, identity),
    }


def choice_fields(choices: Sequence[str], identity: ModelIdentity) -> dict[str, Any]:
    """Return the fields that constrain an answer to choices; none where the server cannot."""
    if not choices:
        return {}
    if identity.server.startswith("vllm "):
        return {"structured_outputs": {"choice": list(choices)}}
    if identity.server.startswith(f"{LLAMA_CPP} "):
        return {"grammar": f"root ::= {' | '.join(map(compact, choices))}"}
    return {}


def warn_undeclared(dialect: str, tools: Sequence[ToolSpec]) -> None:
    """Log the parameters of tools that the template of a native dialect leaves out."""
    if dialect not in DIALECTS:
        return
    for tool, names in DIALECTS[dialect].undeclared_parameters(tools).items():
        values = {"tool": tool, "names": ", ".join(names), "dialect": dialect}
        text = "%(tool)s: the template of %(dialect)s does not declare %(names)s: rename them"
        _log.warning(text, values, extra={NOTICE: ("tools.undeclared", values)})


def rendered_fields(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a chat body from which the server renders the prompt."""
    return {key: body[key] for key in ("messages", "tools", "tool_choice") if key in body}


def stop_token_ids(model: str) -> tuple[int, ...]:
    """Return the stop token ids of a model, its end of sequence first.

    They depend on what the server's parser has the model write: `pythonic` for Gemma 3, JSON
    where a call is required (vLLM 0.32), a family's own markup otherwise.
    """
    family = family_of(model)
    dialect = DIALECTS[family.server_dialect if family else _FALLBACK_DIALECT]
    return (_EOS_ID, *dialect.stop_token_ids)


def _sampling_fields(sampling: Sampling) -> dict[str, Any]:
    return {
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
        **({} if sampling.seed is None else {"seed": sampling.seed}),
    }


def tool_fields(tools: Sequence[ToolSpec], *, required: bool) -> Mapping[str, Any]:
    """Return the chat fields for tools; none without (servers refuse `[]`)."""
    if not tools:
        return {}
    return {"tools": chat_tools(tools), "tool_choice": "required" if required else "auto"}


def chat_tools(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """Return tools as OpenAI function definitions."""
    return [{"type": "function", "function": tool_spec(tool)} for tool in tools]


def chat_messages(messages: Iterable[Message], instructions: str = "") -> list[dict[str, Any]]:
    """Return a conversation as OpenAI chat messages.

    Instructions become the system message. Adjacent messages of one role are joined, as the
    dialects do: a turn that failed, or ended with calls that cannot be encoded, leaves two user
    messages, which stock chat templates refuse.
    """
    converted: list[dict[str, Any]] = []
    if instructions.strip():
        converted.append(_text_message("system", instructions.strip()))
    call_count = 0
    for group in group_messages(messages):
        match group:
            case UserMessage():
                converted.append(_text_message("user", user_text(group)))
            case ModelMessage(text=text):
                converted.append(_text_message("assistant", text))
            case list():
                converted += _call_messages(group, call_count)
                call_count += len(group)
            case _:
                assert_never(group)
    joined: list[dict[str, Any]] = []
    for message in converted:
        last = joined[-1] if joined else {}
        if message["role"] == last.get("role") and message["role"] != "tool":
            texts = [last["content"], message["content"]]
            content = "\n\n".join(text for text in texts if text is not None)
            joined[-1] = {**message, "content": content}
        else:
            joined.append(message)
    return joined


def _call_messages(calls: Sequence[ToolCallMessage], first: int) -> list[dict[str, Any]]:
    """Return one model message's calls and their results; call ids count from `first`.

    A call whose arguments are not an object becomes text, and its result a user message: vLLM
    would silently turn such arguments into `{}`.
    """
    tool_calls: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    texts = [call.text for call in calls if call.text]
    text_results: list[str] = []
    for number, call in enumerate(calls, start=first):
        arguments = _arguments_json(call)
        result = replace_lone_surrogates(result_text(call))
        if arguments is None:
            texts.append(call.raw)
            text_results.append(f"Result of {call.name or 'the call'}: {result}")
            continue
        call_id = f"call{number:05d}"  # nine letters and digits: the strictest servers' form
        echo = call.call.echo or {}
        function = {**echo.get("function", {}), "name": call.name, "arguments": arguments}
        tool_calls.append(
            {**echo.get("call", {}), "id": call_id, "type": "function", "function": function}
        )
        results.append(
            {"role": "tool", "tool_call_id": call_id, "name": call.name, "content": result}
        )
    text = replace_lone_surrogates("\n".join(filter(None, texts)))
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if tool_calls:
        message["tool_calls"] = tool_calls
        for call in calls:
            message = {**(call.call.echo or {}).get("message", {}), **message}
    else:
        message["content"] = text
    converted = [message, *results]
    if text_results:
        converted.append(_text_message("user", "\n".join(text_results)))
    return converted


def _arguments_json(call: ToolCallMessage) -> str | None:
    """Return a call's arguments as JSON; None if the chat format cannot carry them."""
    if not is_renderable(call):
        return None
    try:
        return compact(call.args)
    except NotJsonError:
        return None


def _text_message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": replace_lone_surrogates(text)}
