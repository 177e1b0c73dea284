"""vLLM's own text for token ids: how it read a prompt, and what a model wrote before any parser."""

from collections.abc import Sequence

from lhkit.models.connection import Connection
from lhkit.models.http_faults import not_a_server


async def detokenized(connection: Connection, model: str, token_ids: Sequence[int]) -> str:
    """Return the text of token ids, control tokens included.

    Raises:
        ModelError: the server has no `/detokenize`, or failed.
    """
    payload = await connection.post("/detokenize", {"model": model, "tokens": list(token_ids)})
    if not isinstance(prompt := payload.get("prompt"), str):
        raise not_a_server(connection.address, "no prompt at /detokenize")
    return prompt
