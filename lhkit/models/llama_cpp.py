"""llama.cpp's own server: prompts go as token ids, so that exactly one `<bos>` is a fact.

Source of the format: `/completion`, `/tokenize` and `/detokenize` of `llama-server`, which differ
from OpenAI's. Its `/v1/completions` tells no token ids and cannot be kept from adding a `<bos>`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lhkit.errors import UsageError
from lhkit.models.base import ModelRequest
from lhkit.models.client import Exchange, HttpModel
from lhkit.models.dialects import DIALECTS
from lhkit.models.errors import not_a_server
from lhkit.models.identity import LLAMA_CPP
from lhkit.models.request import completion_body
from lhkit.models.response import CompletionContent, ResponseReader
from lhkit.models.sse import integers, typed
from lhkit.models.transport import Connection
from lhkit.responses import ModelEvent, ModelIdentity

_NEUTRAL = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repeat_penalty": 1.0}
"""This server's own defaults cut unlikely tokens off, and vLLM's do not."""


def is_llama_cpp(identity: ModelIdentity) -> bool:
    """Return whether a llama.cpp server told this identity."""
    return identity.server.startswith(f"{LLAMA_CPP} ")


class _Reader(ResponseReader):
    """Reads the chunks of `/completion`, whose last one ends the stream."""

    def __init__(
        self,
        *,
        content: CompletionContent,
        max_tokens: int,
        clock: Callable[[], float],
        prompt_ids: Sequence[int],
    ) -> None:
        super().__init__(content=content, max_tokens=max_tokens, clock=clock)
        self._prompt_ids = prompt_ids

    def take(self, payload: Mapping[str, Any], now_s: float) -> Iterator[ModelEvent]:
        is_last = payload.get("stop") is True
        told = {"choices": [_choice(payload, is_last=is_last)]}
        yield from super().take({**told, **(self._account(payload) if is_last else {})}, now_s)
        if is_last:
            yield from self.end(now_s)

    def _account(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the last chunk says of the whole response, in vLLM's words."""
        timings = typed(payload, "timings", dict) or {}
        return {
            "prompt_token_ids": list(self._prompt_ids),
            "metrics": timings,
            "usage": {
                "prompt_tokens": payload.get("tokens_evaluated"),
                "completion_tokens": payload.get("tokens_predicted"),
                "prompt_tokens_details": {"cached_tokens": timings.get("cache_n")},
            },
        }


def _choice(payload: Mapping[str, Any], *, is_last: bool) -> dict[str, Any]:
    is_cut = payload.get("truncated") is True or payload.get("stop_type") == "limit"
    reason = "length" if is_cut else "stop"
    return {
        "text": payload.get("content"),
        "token_ids": payload.get("tokens"),
        "finish_reason": reason if is_last else None,
    }


class LlamaCppHttp(HttpModel):
    """A model behind llama.cpp's server. Make one with `connect`; close it with `aclose`.

    Safe for many conversations at once. Beside the connection it holds the texts of the tokens at
    which its dialect stops: the server is asked for them once.
    """

    def __init__(self, identity: ModelIdentity, connection: Connection) -> None:
        if identity.constraint != "off":
            raise UsageError(
                "lhkit does not constrain what llama.cpp's server writes: give --constrain off"
            )
        super().__init__(identity, connection)
        self._dialect = DIALECTS[identity.dialect]
        self._stops: tuple[str, ...] | None = None

    async def _exchange(self, request: ModelRequest) -> Exchange:
        prompt: str = completion_body(request, self._identity)["prompt"]
        asked = {"content": prompt, "add_special": False, "parse_special": True}
        prompt_ids = integers(await self._connection.post("/tokenize", asked), "tokens")
        reader = _Reader(
            content=CompletionContent(self._dialect.incremental(request.tools)),
            max_tokens=request.sampling.max_tokens,
            clock=self._connection.pace.clock,
            prompt_ids=prompt_ids,
        )
        stops = await self._stop_texts()
        body = {
            "prompt": prompt_ids,
            "n_predict": request.sampling.max_tokens,
            "temperature": request.sampling.temperature,
            **({} if request.sampling.seed is None else {"seed": request.sampling.seed}),
            **_NEUTRAL,
            "stop": [*self._dialect.stop_texts, *stops],
            "preserved_tokens": list(stops),  # else their texts are empty and stop nothing
            "return_tokens": True,
            "stream": True,
        }
        return Exchange(path="/completion", body=body, prompt=prompt, reader=reader)

    async def detokenize(self, token_ids: tuple[int, ...]) -> str:
        """Return the server's own text for token ids, control tokens included.

        Raises:
            ModelError: as `stream`.
        """
        told = await self._connection.post("/detokenize", {"tokens": list(token_ids)})
        if not isinstance(text := told.get("content"), str):
            raise not_a_server(self._connection.address, "no content at /detokenize")
        return text

    async def _stop_texts(self) -> tuple[str, ...]:
        if self._stops is None:
            ids = self._dialect.stop_token_ids
            self._stops = tuple([await self.detokenize((each,)) for each in ids])
        return self._stops
