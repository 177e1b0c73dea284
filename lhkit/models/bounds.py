"""How much is read of a server, whatever it sends: far above what any answer needs."""

import zlib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

from lhkit.models.errors import not_a_server, too_much

if TYPE_CHECKING:
    import aiohttp

MOST_BODY_BYTES = 16 << 20
MOST_ERROR_BYTES = 1 << 20
MOST_LINE_BYTES = 16 << 20
"""The first event of a vLLM has the ids of the whole prompt."""
_STREAM_BYTES = 64 << 20
_TOKEN_BYTES = 16 << 10
_STREAM_EVENTS = 10_000
_TOKEN_EVENTS = 16
_PIECE_BYTES = 1 << 20


class StreamBounds:
    """Counts what comes in one stream, against a server that never ends it."""

    def __init__(self, address: str, max_tokens: int) -> None:
        self._address = address
        self._most_bytes = _STREAM_BYTES + _TOKEN_BYTES * max_tokens
        self._most_events = _STREAM_EVENTS + _TOKEN_EVENTS * max_tokens
        self._max_tokens = max_tokens
        self._bytes = self._events = self._line_bytes = 0

    def take(self, chunk: bytes) -> None:
        """Count a chunk.

        Raises:
            StreamBrokenError: it is more than any response of so many tokens has.
        """
        first, *others = chunk.split(b"\n")
        self._line_bytes += len(first)
        longest = max([self._line_bytes, *map(len, others)])
        self._line_bytes = len(others[-1]) if others else self._line_bytes
        self._bytes += len(chunk)
        self._events += chunk.count(b"data:")
        if longest > MOST_LINE_BYTES:
            raise too_much(self._address, f"a line of more than {MOST_LINE_BYTES >> 20} MiB")
        if self._bytes > self._most_bytes or self._events > self._most_events:
            raise too_much(
                self._address,
                f"{self._events} events and {self._bytes} bytes for {self._max_tokens} tokens at "
                "most",
            )


async def plain_chunks(
    response: "aiohttp.ClientResponse", address: str
) -> AsyncGenerator[bytes, None]:
    """Yield a body as it comes; compressed ones in pieces that no bomb makes larger."""
    encoding = response.headers.get("Content-Encoding", "").strip().casefold()
    if encoding in {"", "identity"}:
        async for chunk in response.content.iter_any():
            yield chunk
        return
    if encoding not in {"gzip", "deflate"}:
        raise not_a_server(address, f"content encoding {encoding}, which was not asked for")
    inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
    async for packed in response.content.iter_any():
        rest = packed
        while rest:
            try:
                yield inflate.decompress(rest, _PIECE_BYTES)
            except zlib.error as error:
                raise not_a_server(address, f"broken {encoding}: {error}") from error
            rest = inflate.unconsumed_tail


async def first_bytes(response: "aiohttp.ClientResponse", address: str, most: int) -> bytes:
    """Return a body, cut where it is longer than `most` bytes."""
    body = bytearray()
    async with aclosing(plain_chunks(response, address)) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) >= most:
                break
    return bytes(body[:most])
