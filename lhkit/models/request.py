"""What a server is sent for a request: the one place that says it, for whoever sends or hashes it.

The body holds all that reaches the model: the prompt as the dialect renders it (or messages and
tools, where the server renders), what decoding is constrained to, where it stops, sampling.
"""

from collections.abc import Mapping
from typing import Any, cast

from lhkit.errors import UsageError
from lhkit.models.base import ModelRequest
from lhkit.models.chat_messages import chat_messages, choice_of
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.base import Constraint
from lhkit.models.families import family_of
from lhkit.responses import ModelIdentity, Sampling

OPENAI = "openai"
"""The dialect of servers that render and parse themselves."""

_EOS_ID = 1
_FALLBACK = "json"


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


def stop_token_ids(model: str) -> tuple[int, ...]:
    """Return the token ids at which a model of this name ends, its end of sequence first.

    The server's parser decides what a model of one family is told to write: `pythonic` for Gemma 3,
    JSON wherever a call is required (vLLM 0.32), a family's own markup otherwise.
    """
    family = family_of(model)
    dialect = DIALECTS[family.server_dialect if family else _FALLBACK]
    return (_EOS_ID, *dialect.stop_token_ids)


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
