"""A Gemma behind vLLM's HTTP server, spoken to in its own dialect.

The prompt is rendered and the answer parsed here (see `dialects`), through `/v1/completions`:
the server's own tool parsers lose data for Gemma. Raw text, token ids, the client's timestamps
and the server's own account are kept of every response.
"""

from lhkit.errors import ModelError, UsageError
from lhkit.models.base import ModelRequest
from lhkit.models.client import Exchange, HttpModel
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.turns import BOS
from lhkit.models.errors import not_a_server
from lhkit.models.identity import connecting
from lhkit.models.request import completion_body
from lhkit.models.response import CompletionContent, ResponseReader
from lhkit.models.sse import typed
from lhkit.models.transport import Connection, Endpoint, Pace
from lhkit.responses import ModelIdentity


async def adding_start(connection: Connection, model: str) -> bool:
    """Return whether a server puts a `<bos>` before a prompt that has one, asked not to.

    vLLM does as it is asked. Others (llama.cpp's `/v1/completions` among them) always add one: it
    shows in how many tokens they count for a prompt that is nothing else. A server that does not
    count is spoken to as if it were a vLLM.
    """
    asked = {"model": model, "prompt": BOS, "max_tokens": 1, "add_special_tokens": False}
    try:
        told = await connection.post("/v1/completions", {**asked, "temperature": 0.0})
    except ModelError:
        return False  # whatever it is, the first request will tell
    counted = (typed(told, "usage", dict) or {}).get("prompt_tokens")
    return bool(counted == 2)


class VllmHttp(HttpModel):
    """A served model. Make one with `connect`; close it with `aclose`.

    Safe for many conversations at once. It holds a connection and no other state. A server that
    puts a `<bos>` before every prompt (`adds_start`, see `adding_start`) gets prompts without.
    """

    def __init__(
        self, identity: ModelIdentity, connection: Connection, *, adds_start: bool = False
    ) -> None:
        super().__init__(identity, connection)
        self._dialect = DIALECTS[identity.dialect]
        self._adds_start = adds_start

    @classmethod
    async def connect(cls, endpoint: Endpoint, *, pace: Pace | None = None) -> "VllmHttp":
        """Ask the server who it is and return a model that talks to it.

        Without `endpoint.model`, the only served model is taken.

        Raises:
            UsageError: unknown dialect, or an address that is none.
            UnknownModelError: the server does not serve that model; the message lists what it does.
            ModelError: nothing answers, or it refuses.
        """
        if endpoint.dialect not in DIALECTS:
            known = ", ".join(sorted(DIALECTS))
            raise UsageError(f"no dialect {endpoint.dialect!r}: choose one of {known}")
        async with connecting(endpoint, pace) as (connection, identity):
            return cls(identity, connection)

    async def detokenize(self, token_ids: tuple[int, ...]) -> str:
        """Return the server's own text for token ids: how it read our prompt.

        Raises:
            ModelError: as `stream`.
        """
        asked = {"model": self._identity.model, "tokens": list(token_ids)}
        answer = await self._connection.post("/detokenize", asked)
        if not isinstance(prompt := answer.get("prompt"), str):
            raise not_a_server(self._connection.address, "no prompt at /detokenize")
        return prompt

    async def _exchange(self, request: ModelRequest) -> Exchange:
        body = completion_body(request, self._identity)
        prompt: str = body["prompt"]
        if self._adds_start:
            body["prompt"] = prompt.removeprefix(BOS)
        reader = ResponseReader(
            content=CompletionContent(self._dialect.incremental(request.tools)),
            max_tokens=request.sampling.max_tokens,
            clock=self._connection.pace.clock,
        )
        return Exchange(path="/v1/completions", body=body, prompt=prompt, reader=reader)
