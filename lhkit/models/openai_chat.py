"""Any OpenAI-compatible server that parses tool calls itself, through `/v1/chat/completions`.

So that nobody is locked in: what the server parsed is handed on. Of a vLLM the token ids are
asked for too. No extension of vLLM is sent to any other server.
"""

from lhkit.errors import UsageError
from lhkit.json_values import compact
from lhkit.models.base import ModelRequest
from lhkit.models.chat_content import ChatContent
from lhkit.models.client import Exchange, HttpModel
from lhkit.models.dialects.base import Constraint, tool_names
from lhkit.models.identity import connecting
from lhkit.models.request import OPENAI, chat_asked, chat_body
from lhkit.models.response import ResponseReader
from lhkit.models.transport import Endpoint, Pace


class OpenAiHttp(HttpModel):
    """A served model whose server parses its calls. Make one with `connect`; close with `aclose`.

    Safe for many conversations at once. It holds a connection and no other state.
    """

    @classmethod
    async def connect(cls, endpoint: Endpoint, *, pace: Pace | None = None) -> "OpenAiHttp":
        """Ask the server who it is and return a model that talks to it.

        Raises:
            UsageError: a constraint that no server promises, or an address that is none.
            UnknownModelError: the server does not serve that model; the message lists what it does.
            ModelError: nothing answers, or it refuses.
        """
        require_promised(endpoint.constraint)
        async with connecting(endpoint, pace) as (connection, identity):
            return cls(identity, connection)

    async def _exchange(self, request: ModelRequest) -> Exchange:
        body = chat_body(request, self._identity)
        reader = ResponseReader(
            content=ChatContent(tool_names(request.tools), server=self._connection.address),
            max_tokens=request.sampling.max_tokens,
            clock=self._connection.pace.clock,
        )
        prompt = compact(chat_asked(body))
        return Exchange(path="/v1/chat/completions", body=body, prompt=prompt, reader=reader)


def require_promised(constraint: Constraint) -> None:
    """Refuse a constraint that the protocol has no word for.

    `required` is its `tool_choice`. Its `auto` promises nothing of a call's arguments, so that the
    constraint `auto` would only be a word.

    Raises:
        UsageError: the constraint is `auto`, or none.
    """
    if constraint not in ("off", "required"):
        raise UsageError(
            f"the dialect {OPENAI} cannot promise --constrain {constraint}: give off, required, "
            "or a dialect of lhkit's own"
        )
