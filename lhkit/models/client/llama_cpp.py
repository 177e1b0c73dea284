"""Client of llama.cpp's own API.

Prompts are sent as token ids, with exactly one `<bos>`. Source of the format: `/completion`,
`/tokenize` and `/detokenize` of `llama-server`, which differ from OpenAI's. Its `/v1/completions`
reports no token ids and always adds a `<bos>`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lhkit.base.errors import UsageError
from lhkit.conversation.responses import ModelIdentity
from lhkit.models.base import ModelRequest
from lhkit.models.client.chat_template import ChatTemplate
from lhkit.models.client.client import Exchange, HttpModel
from lhkit.models.client.errors import unexpected_answer
from lhkit.models.client.identity import LLAMA_CPP
from lhkit.models.client.request import choice_fields, completion_body
from lhkit.models.client.response import CompletionContent, ResponseReader
from lhkit.models.client.sse import integers, typed
from lhkit.models.client.transport import Connection
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.parser import ParsedEvent

_NEUTRAL_SAMPLING = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repeat_penalty": 1.0}
"""This server's defaults cut off unlikely tokens; vLLM's do not."""


def is_llama_cpp(identity: ModelIdentity) -> bool:
    """Return whether an identity is that of a llama.cpp server."""
    return identity.server.startswith(f"{LLAMA_CPP} ")


class _Reader(ResponseReader):
    """Reads chunks of `/completion` as chunks of vLLM; the last ends the stream."""

    def __init__(
        self,
        *,
        content: CompletionContent,
        max_tokens: int,
        clock: Callable[[], float],
        control_ids: Sequence[int],
        prompt_ids: Sequence[int],
        logprobs: bool = False,
    ) -> None:
        super().__init__(
            content=content,
            max_tokens=max_tokens,
            clock=clock,
            control_ids=control_ids,
            logprobs=logprobs,
        )
        self._prompt_ids = prompt_ids

    def feed_payload(self, payload: Mapping[str, Any], now_s: float) -> Iterator[ParsedEvent]:
        is_last = payload.get("stop") is True
        is_cut = payload.get("truncated") is True or payload.get("stop_type") == "limit"
        choice = {
            "text": payload.get("content"),
            "token_ids": payload.get("tokens"),
            "logprobs": {"content": payload.get("completion_probabilities")},
            "token_count": payload.get("tokens_predicted"),
            "finish_reason": ("length" if is_cut else "stop") if is_last else None,
        }
        totals: dict[str, Any] = {}
        if is_last:  # the last chunk has data on the whole response
            timings = typed(payload, "timings", dict) or {}
            totals = {
                "prompt_token_ids": list(self._prompt_ids),
                "metrics": timings,
                "usage": {
                    "prompt_tokens": payload.get("tokens_evaluated"),
                    "completion_tokens": payload.get("tokens_predicted"),
                    "prompt_tokens_details": {"cached_tokens": timings.get("cache_n")},
                },
            }
        yield from super().feed_payload({"choices": [choice], **totals}, now_s)
        if is_last:
            yield from self.end(now_s)


class LlamaCppHttp(HttpModel):
    """A model served by llama.cpp. Make one with `connect`; close it with `aclose`.

    Safe for concurrent conversations. The texts of the dialect's stop tokens are requested once.
    """

    def __init__(
        self,
        identity: ModelIdentity,
        connection: Connection,
        template: ChatTemplate | None = None,
    ) -> None:
        if identity.constraint != "off":
            raise UsageError(
                f"Invalid constraint {identity.constraint!r}: lhkit does not constrain decoding "
                "on llama.cpp. Give --constrain off."
            )
        super().__init__(identity, connection, template)
        self._dialect = DIALECTS[identity.dialect]
        self._stops: tuple[str, ...] | None = None

    async def _exchange(self, request: ModelRequest) -> Exchange:
        rendered = await self._rendered(request)
        prompt: str = completion_body(request, self._identity, rendered)["prompt"]
        tokenize_body = {"content": prompt, "add_special": False, "parse_special": True}
        prompt_ids = integers(await self._connection.post("/tokenize", tokenize_body), "tokens")
        reader = _Reader(
            content=CompletionContent(self._dialect.incremental(request.tools)),
            max_tokens=request.sampling.max_tokens,
            clock=self._connection.clock.now,
            control_ids=self._dialect.stop_token_ids,
            prompt_ids=prompt_ids,
            logprobs=request.logprobs,
        )
        stops = await self._stop_texts()
        body = {
            "prompt": prompt_ids,
            "n_predict": request.sampling.max_tokens,
            "temperature": request.sampling.temperature,
            **({} if request.sampling.seed is None else {"seed": request.sampling.seed}),
            **_NEUTRAL_SAMPLING,
            "stop": [*self._dialect.stop_texts, *stops],
            "preserved_tokens": list(stops),  # else their texts are empty and stop nothing
            "return_tokens": True,
            "stream": True,
            **({"n_probs": 1} if request.logprobs else {}),
            **choice_fields(request.choices, self._identity),
        }
        return Exchange(path="/completion", body=body, prompt=prompt, reader=reader)

    async def detokenize(self, token_ids: tuple[int, ...]) -> str:
        """Return the server's text for token ids, control tokens included.

        Raises:
            ModelError: as `stream`.
        """
        payload = await self._connection.post("/detokenize", {"tokens": list(token_ids)})
        if not isinstance(text := payload.get("content"), str):
            raise unexpected_answer(self._connection.address, "no content at /detokenize")
        return text

    async def _stop_texts(self) -> tuple[str, ...]:
        if self._stops is None:
            ids = self._dialect.stop_token_ids
            self._stops = tuple([await self.detokenize((token_id,)) for token_id in ids])
        return self._stops
