"""Client of vLLM's completions API (`/v1/completions`).

lhkit renders the prompt and parses the answer itself (see `dialects`), because the server's own
tool parsers lose data for Gemma. Raw text, token ids, client timestamps and the server's metrics
are kept of every response.
"""

from lhkit.base.errors import ModelError, UnknownModelError
from lhkit.conversation.responses import ModelIdentity
from lhkit.models.base import ModelRequest
from lhkit.models.client.chat_template import ChatTemplate
from lhkit.models.client.client import Exchange, HttpModel
from lhkit.models.client.errors import unexpected_answer
from lhkit.models.client.request import completion_body
from lhkit.models.client.response import CompletionContent, ResponseReader
from lhkit.models.client.sse import typed
from lhkit.models.client.transport import Connection
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.turns import BOS

_NO_PATH = frozenset({404, 405, 501})


async def count_bos_tokens(connection: Connection, model: str) -> int | None:
    """Return how many tokens a server makes of a prompt that is a single `<bos>`.

    One in vLLM. Two in a server that adds a `<bos>` although asked not to (llama.cpp's
    `/v1/completions` among them); more in one that puts its own chat template around a prompt
    (Ollama). Zero if it has no completions (LiteRT-LM), None if it does not say.
    """
    body = {"model": model, "prompt": BOS, "max_tokens": 1, "add_special_tokens": False}
    try:
        payload = await connection.post("/v1/completions", {**body, "temperature": 0.0})
    except UnknownModelError:
        return None
    except ModelError as error:  # any other than a missing path is reported by the first request
        return 0 if getattr(error.__cause__, "status", None) in _NO_PATH else None
    count = (typed(payload, "usage", dict) or {}).get("prompt_tokens")
    return count if isinstance(count, int) and count > 0 else None


class VllmHttp(HttpModel):
    """A model served by vLLM. Make one with `connect`; close it with `aclose`.

    Safe for concurrent conversations: the connection is its only state. A server that adds a
    `<bos>` to every prompt (`adds_bos`, see `count_bos_tokens`) is sent prompts without one.
    """

    def __init__(
        self,
        identity: ModelIdentity,
        connection: Connection,
        template: ChatTemplate | None = None,
        *,
        adds_bos: bool = False,
    ) -> None:
        super().__init__(identity, connection, template)
        self._dialect = DIALECTS[identity.dialect]
        self._adds_bos = adds_bos

    async def detokenize(self, token_ids: tuple[int, ...]) -> str:
        """Return the server's text for token ids, which shows how it read a prompt.

        Raises:
            ModelError: as `stream`.
        """
        body = {"model": self._identity.model, "tokens": list(token_ids)}
        payload = await self._connection.post("/detokenize", body)
        if not isinstance(prompt := payload.get("prompt"), str):
            raise unexpected_answer(self._connection.address, "no prompt at /detokenize")
        return prompt

    async def _exchange(self, request: ModelRequest) -> Exchange:
        body = completion_body(request, self._identity, await self._rendered(request))
        prompt: str = body["prompt"]
        if self._adds_bos:
            body["prompt"] = prompt.removeprefix(BOS)
        reader = ResponseReader(
            content=CompletionContent(self._dialect.incremental(request.tools)),
            max_tokens=request.sampling.max_tokens,
            clock=self._connection.clock.now,
            control_ids=self._dialect.stop_token_ids,
            logprobs=request.logprobs,
        )
        return Exchange(path="/v1/completions", body=body, prompt=prompt, reader=reader)
