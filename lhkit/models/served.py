"""From an endpoint to the model that talks to it: the one place that knows all dialects by name."""

from collections.abc import Mapping, Sequence

from lhkit.errors import UsageError
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.base import Constraint, ToolSpec
from lhkit.models.identity import connecting
from lhkit.models.llama_cpp import LlamaCppHttp, is_llama_cpp
from lhkit.models.openai_chat import OpenAiHttp, require_promised
from lhkit.models.request import OPENAI
from lhkit.models.transport import Endpoint, Pace
from lhkit.models.vllm import VllmHttp, adding_start
from lhkit.models.vllm_server import MAX_NUM_SEQS
from lhkit.responses import ModelIdentity

DIALECT_NAMES = (*DIALECTS, OPENAI)
"""Every dialect that `--dialect` takes."""

UNKNOWN_CONCURRENCY = 8
"""Conversations at once with who does not say what it can take: a script, a server unlike vLLM."""

CONSTRAINTS: Mapping[str, Constraint] = {"off": "off", "auto": "auto", "required": "required"}


async def connect(
    endpoint: Endpoint | str, *, pace: Pace | None = None
) -> VllmHttp | LlamaCppHttp | OpenAiHttp:
    """Ask the server who it is and return a model that speaks the endpoint's dialect with it.

    A string is the address of an endpoint, with all else as it is by default.

    Raises:
        UsageError: unknown dialect, an address that is none, a constraint nobody promises.
        UnknownModelError: the server does not serve that model.
        ModelError: nothing answers, or it refuses.
    """
    endpoint = Endpoint(base_url=endpoint) if isinstance(endpoint, str) else endpoint
    _require_dialect(endpoint.dialect)
    if endpoint.dialect == OPENAI:
        return await OpenAiHttp.connect(endpoint, pace=pace)
    async with connecting(endpoint, pace) as (connection, identity):
        if is_llama_cpp(identity):
            return LlamaCppHttp(identity, connection)
        is_known = identity.server.startswith("vllm ")
        adds_start = not is_known and await adding_start(connection, identity.model)
        return VllmHttp(identity, connection, adds_start=adds_start)


def fitting_concurrency(identity: ModelIdentity) -> int:
    """Return how many conversations to have at once with a model where nobody says.

    As many as a vLLM that lhkit starts runs at once: fewer leave it idle, of more some wait in its
    queue, and their times with them. A vLLM of somebody else runs 128 or more by default.
    """
    return MAX_NUM_SEQS if identity.server.startswith("vllm ") else UNKNOWN_CONCURRENCY


def require_constraint(dialect: str, constraint: Constraint, tools: Sequence[ToolSpec]) -> None:
    """Refuse a constraint that the first request would stumble over.

    Raises:
        UsageError: there is no such dialect, it has no such constraint, or not for these tools.
    """
    _require_dialect(dialect)
    if dialect == OPENAI:
        require_promised(constraint)
    else:
        DIALECTS[dialect].constrain(tools, constraint)


def _require_dialect(dialect: str) -> None:
    if dialect not in DIALECT_NAMES:
        known = ", ".join(sorted(DIALECT_NAMES))
        raise UsageError(f"no dialect {dialect!r}: choose one of {known}")
