"""How many conversations a server answers at once, as far as it reports that."""

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeAlias

from lhkit.base.errors import ModelError
from lhkit.conversation.responses import ModelIdentity
from lhkit.models.base import ChatModel
from lhkit.models.client.client import HttpModel

MAX_NUM_SEQS = 16
"""The batch size of a vLLM that lhkit starts on a CPU, and the default for any other vLLM."""

UNKNOWN_CONCURRENCY = 8
"""Default concurrency for scripts and servers other than vLLM."""

_MOST_FOREIGN = 64
"""A vLLM batches 128 requests or more by default: with fewer, none waits in its queue."""
_CONVERSATION_TOKENS = 8192
"""The most that one conversation of lhkit may fill of the server's cache."""

_CACHE_INFO = re.compile(r"^vllm:cache_config_info\{(.*)\}", re.MULTILINE)
_GIVEN_BYTES = re.compile(r'kv_cache_memory_bytes="\d')
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

CapacitySource: TypeAlias = Literal["batch", "cache", "vllm", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Conversations to run at once with a model by default.

    Attributes:
        conversations: their number.
        source: `batch` (the server reports its batch size), `cache` (the size of its cache), `vllm`
            (a vLLM that reports neither), or `unknown` (another server, or a script).
        cache_tokens: the size of its cache; 0 if unknown.
    """

    conversations: int
    source: CapacitySource
    cache_tokens: int = 0


def default_capacity(identity: ModelIdentity) -> Capacity:
    """Return the capacity of a model whose server was not asked."""
    if identity.server.startswith("vllm "):
        return Capacity(conversations=MAX_NUM_SEQS, source="vllm")
    return Capacity(conversations=UNKNOWN_CONCURRENCY, source="unknown")


async def read_capacity(model: ChatModel) -> Capacity:
    """Ask a model's server how many conversations it answers at once.

    A server of lhkit reports its batch size: fewer conversations leave it idle, more wait in its
    queue, which distorts their timings. Another vLLM reports at `/metrics` how many tokens its
    cache holds, but not its batch size, nor whether it runs on a card: as many conversations as
    fit, at least 16 and at most 64. A cache whose size was given in bytes, as CPU builds are
    started, and a vLLM without metrics get 16, any other server 8.
    """
    capacity = default_capacity(model.identity)
    if not isinstance(model, HttpModel) or capacity.source != "vllm":
        return capacity
    if model.max_num_seqs:
        return Capacity(conversations=model.max_num_seqs, source="batch")
    metrics = ""
    with suppress(ModelError):
        metrics = await model.read_metrics()
    tokens = parse_cache_tokens(metrics)
    if not tokens:
        return capacity
    most = MAX_NUM_SEQS if _GIVEN_BYTES.search(metrics) else _MOST_FOREIGN
    fitting = min(most, max(MAX_NUM_SEQS, tokens // _CONVERSATION_TOKENS))
    return Capacity(conversations=fitting, source="cache", cache_tokens=tokens)


def parse_cache_tokens(metrics: str) -> int:
    """Return how many tokens the cache of a vLLM holds, by its metrics; 0 if they do not say.

    The engines of one server, each with a cache, are added up. Versions before 0.30 report only
    the number of blocks and their size.
    """
    total = 0
    for line in _CACHE_INFO.findall(metrics):
        labels = dict(_LABEL.findall(line))
        tokens = _number(labels.get("kv_cache_size_tokens"))
        blocks = _number(labels.get("num_gpu_blocks"))
        total += tokens or blocks * _number(labels.get("block_size"))
    return total


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() else 0
