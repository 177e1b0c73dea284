"""Attention over conversations that lie end to end behind one prefix, without padding.

A packed text is prefix, row, row, …: each row sees the prefix and itself, as if it stood alone.
Rows of any length cost what they hold, and the prefix is computed once; what that saves beside
whole padded rows is in `evals/benchmarks/training_step.md`. Blocks of plain matrix products, since
the fused CPU kernel also computes what a mask then hides. Grouped-query attention: Ainslie et al.
2023; the sliding window of Gemma 3: a token sees itself and the `window - 1` before it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

NAME = "lhkit_packed"
"""The name in transformers' `AttentionInterface`."""

_BLOCK = 256
"""Queries a block: the smaller, the less is computed that a window or causality hides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """How a packed text is cut: tokens of the prefix (may be 0) and of each row, in order."""

    prefix: int
    rows: tuple[int, ...]

    @property
    def positions(self) -> list[int]:
        """The place of each token in its own conversation, from 0."""
        behind = [place for row in self.rows for place in range(self.prefix, self.prefix + row)]
        return [*range(self.prefix), *behind]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Some queries of a row, as a half-open span, and the first of the keys that they may see.

    Places are in the conversation, from 0; the keys end with the last query.
    """

    queries: tuple[int, int]
    first_key: int


def blocks(begin: int, end: int, window: int | None) -> Iterator[Block]:
    """Yield blocks that cover the queries from `begin` to before `end` once, in order.

    Args:
        begin: the place of the row's first token.
        end: the place after its last.
        window: of the layer; None: a token sees everything before it.
    """
    for first in range(begin, end, _BLOCK):
        first_key = 0 if window is None else max(0, first - window + 1)
        yield Block(queries=(first, min(first + _BLOCK, end)), first_key=first_key)


def packed_attention(
    _module: Any,
    query: Any,
    key: Any,
    value: Any,
    _attention_mask: Any,
    *,
    scaling: float,
    packing: Packing | None = None,
    sliding_window: int | None = None,
    **_: Any,
) -> tuple[Any, None]:
    """Return the attention's output, (1, tokens, heads, width), in transformers' interface.

    Args:
        query: (1, heads, tokens, width).
        key: like `query`, of fewer heads; each is shared by as many query heads.
        value: like `key`.
        scaling: of the scores.
        packing: handed through the decoder's keyword arguments; None: one conversation.
        sliding_window: of the layer; None: full attention.
    """
    import torch

    cut = packing or Packing(prefix=query.shape[2], rows=())
    segments = zip(
        *(each[0].split([cut.prefix, *cut.rows], dim=1) for each in (query, key, value)),
        strict=True,
    )
    (first_query, *prefix), *rows = segments
    parts = [_of_row(first_query, *prefix, begin=0, scaling=scaling, window=sliding_window)]
    for row_query, *own in rows:
        keys, values = (torch.cat(pair, dim=1) for pair in zip(prefix, own, strict=True))
        parts.append(
            _of_row(
                row_query, keys, values, begin=cut.prefix, scaling=scaling, window=sliding_window
            )
        )
    return torch.cat(parts, dim=1).transpose(0, 1)[None], None


def _of_row(
    query: Any, key: Any, value: Any, *, begin: int, scaling: float, window: int | None
) -> Any:
    """Return (heads, queries, width) of one row, whose first token has the place `begin`."""
    import torch

    if not query.shape[1]:
        return query
    parts = []
    for block in blocks(begin, begin + query.shape[1], window):
        first, last = block.queries
        seen = slice(block.first_key, last)
        parts.append(
            _attended(
                query[:, first - begin : last - begin] * scaling,
                key[:, seen],
                value[:, seen],
                window=window,
            )
        )
    return torch.cat(parts, dim=1)


@lru_cache(maxsize=64)
def _hidden(queries: int, keys: int, window: int | None) -> Any:
    """Return what the last `queries` of so many places may not see, (queries, keys), True: hidden.

    All layers of a kind ask for the same.
    """
    import torch

    at = torch.arange(keys - queries, keys)[:, None]
    places = torch.arange(keys)[None]
    later = places > at
    return later if window is None else later | (places <= at - window)


def _attended(query: Any, key: Any, value: Any, *, window: int | None) -> Any:
    """Return (heads, queries, width): the query heads that share a key head are one matrix."""
    import torch

    heads, count, width = query.shape
    hidden = _hidden(count, key.shape[1], window)
    scores = query.reshape(key.shape[0], -1, width) @ key.transpose(1, 2)
    scores = scores.view(heads, count, -1).masked_fill_(hidden, float("-inf"))
    weights = torch.softmax(scores, dim=-1)  # sums in fp32, whatever the type
    return (weights.view(key.shape[0], -1, key.shape[1]) @ value).view(heads, count, width)
