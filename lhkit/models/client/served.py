"""Connect to a served model with the client that fits its dialect and server."""

import logging
from collections.abc import Sequence

from lhkit.base.errors import UsageError
from lhkit.base.notices import NOTICE
from lhkit.conversation.responses import ModelIdentity
from lhkit.models.client.identity import connecting
from lhkit.models.client.llama_cpp import LlamaCppHttp, is_llama_cpp
from lhkit.models.client.openai_chat import OpenAiHttp
from lhkit.models.client.request import OPENAI, warn_undeclared
from lhkit.models.client.transport import Clock, Endpoint
from lhkit.models.client.vllm import VllmHttp, always_adds_bos
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.base import Constraint, ToolSpec

_log = logging.getLogger(__name__)

DIALECT_NAMES = (*DIALECTS, OPENAI)
"""The values of `--dialect`."""

MAX_NUM_SEQS = 16
"""The batch size of a vLLM that lhkit starts on a CPU."""

UNKNOWN_CONCURRENCY = 8
"""Default concurrency for scripts and servers other than vLLM."""


async def connect(
    endpoint: Endpoint | str, *, clock: Clock | None = None
) -> VllmHttp | LlamaCppHttp | OpenAiHttp:
    """Identify a server and return a model that uses it in the endpoint's dialect.

    Args:
        endpoint: where the model is served; a string is its address, with defaults for the rest.
        clock: clock, sleep and random numbers; by default the real ones.

    Raises:
        UsageError: the dialect, the address or the constraint is invalid.
        UnknownModelError: the server does not serve that model.
        ModelError: the server does not answer, or refuses.
    """
    endpoint = Endpoint(base_url=endpoint) if isinstance(endpoint, str) else endpoint
    _require_dialect(endpoint.dialect)
    if endpoint.dialect == OPENAI:
        _require_chat_constraint(endpoint.constraint)
    async with connecting(endpoint, clock) as (connection, identity):
        if endpoint.dialect == OPENAI:
            return OpenAiHttp(identity, connection)
        if is_llama_cpp(identity):
            return LlamaCppHttp(identity, connection)
        is_vllm = identity.server.startswith("vllm ")
        adds_bos = not is_vllm and await always_adds_bos(connection, identity.model)
        return VllmHttp(identity, connection, adds_bos=adds_bos)


def default_concurrency(identity: ModelIdentity) -> int:
    """Return how many conversations to run concurrently with a model by default.

    This is the batch size of a vLLM that lhkit starts: fewer leave it idle, more wait in its
    queue, which distorts their timings. Other vLLM servers run 128 or more by default.
    """
    return MAX_NUM_SEQS if identity.server.startswith("vllm ") else UNKNOWN_CONCURRENCY


def require_constraint(dialect: str, constraint: Constraint, tools: Sequence[ToolSpec]) -> None:
    """Check that a dialect supports a constraint for these tools; log those that it leaves out.

    Raises:
        UsageError: the dialect is invalid, or does not support the constraint, or any tool with it.
    """
    _require_dialect(dialect)
    warn_undeclared(dialect, tools)
    if dialect == OPENAI:
        _require_chat_constraint(constraint)
    else:
        DIALECTS[dialect].constrain(tools, constraint)
        for values in unconstrained(dialect, constraint, tools):
            text = "%(tool)s: decoding cannot be constrained by %(reason)s, so it cannot be called"
            _log.warning(text, values, extra={NOTICE: ("tools.unconstrained", values)})


def unconstrained(dialect: str, constraint: str, tools: Sequence[ToolSpec]) -> list[dict[str, str]]:
    """Return `tool` and `reason` of the tools that cannot be called under a constraint."""
    if constraint == "off" or dialect not in DIALECTS:
        return []
    faults = DIALECTS[dialect].unconstrained_tools(tools)
    return [{"tool": name, "reason": reason} for name, reason in faults.items()]


def _require_dialect(dialect: str) -> None:
    if dialect not in DIALECT_NAMES:
        known = ", ".join(sorted(DIALECT_NAMES))
        raise UsageError(f"Invalid dialect {dialect!r}: choose one of {known}.")


def _require_chat_constraint(constraint: Constraint) -> None:
    """Check that the chat protocol supports a constraint.

    `required` is its `tool_choice`. Its `auto` guarantees nothing about a call's arguments, so the
    constraint `auto` is not supported.
    """
    if constraint not in ("off", "required"):
        raise UsageError(
            f"Invalid constraint {constraint!r} for the dialect {OPENAI}: give off, required, or "
            "another dialect."
        )
