"""How many conversations run at once by default, by what the server reports."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lhkit.conversation.responses import ModelIdentity
from lhkit.models.client.capacity import (
    Capacity,
    default_capacity,
    parse_cache_tokens,
    read_capacity,
)
from lhkit.models.client.identity import server_aliases
from lhkit.models.recorded.scripted import ScriptedModel, say
from lhkit.models.serving.vllm_server import GPU, ServerSettings
from tests.models.fake_vllm import FakeVllm, answers, connected

pytestmark = pytest.mark.anyio

INFO = "vllm:cache_config_info{%s} 1.0\n"
HEAD = "# TYPE vllm:cache_config_info gauge\n"
OLD = HEAD + INFO % 'block_size="16",cache_dtype="auto",engine="0",num_gpu_blocks="4096"'
NEW = HEAD + INFO % (
    'block_size="32",engine="0",kv_cache_max_concurrency="56.9",kv_cache_size_tokens="466000",'
    'num_gpu_blocks="9",prefix="a \\"quoted\\" value"'
)


CPU = HEAD + INFO % (  # of vLLM 0.32, shortened
    'block_size="32",engine="0",kv_cache_max_concurrency="33.04841149773071",'
    'kv_cache_memory_bytes="2147483648",kv_cache_size_tokens="270732",num_gpu_blocks="21845"'
)
CARD = INFO % 'kv_cache_size_tokens="7400000"'


async def capacity_of(metrics: str | None, *aliases: str) -> Capacity:
    """Return the capacity of a server that lists these aliases and has these metrics."""
    names = ",".join(f'{{"id": "{name}", "root": "/weights"}}' for name in ("gemma", *aliases))
    routes = {"/v1/models": answers(200, f'{{"object": "list", "data": [{names}]}}')}
    if metrics is not None:
        routes["/metrics"] = answers(200, metrics)
    async with FakeVllm(routes=routes) as server, connected(server) as model:
        return await read_capacity(model)


@pytest.mark.parametrize(("fields", "batch"), [({}, 16), (GPU, 256)])
async def test_capacity_is_the_batch_size_of_our_server(
    fields: dict[str, Any], batch: int, tmp_path: Path
) -> None:
    ours = ServerSettings(model=tmp_path, served_name="gemma", log_path=tmp_path / "log")
    words = replace(ours, **fields).arguments(8000)
    aliases = [word for word in words if word.startswith("lhkit-max-num-seqs-")]
    assert await capacity_of(NEW, *aliases) == Capacity(conversations=batch, source="batch")


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        (NEW, Capacity(conversations=56, source="cache", cache_tokens=466_000)),
        (OLD, Capacity(conversations=16, source="cache", cache_tokens=65_536)),
        (OLD * 2, Capacity(conversations=16, source="cache", cache_tokens=131_072)),
        (CPU, Capacity(conversations=16, source="cache", cache_tokens=270_732)),
        (CARD, Capacity(conversations=64, source="cache", cache_tokens=7_400_000)),
        (INFO % 'kv_cache_size_tokens="None"', Capacity(conversations=16, source="vllm")),
        ("no metrics here", Capacity(conversations=16, source="vllm")),
        (None, Capacity(conversations=16, source="vllm")),
    ],
)
async def test_capacity_of_another_vllm_fits_its_cache(
    metrics: str | None, expected: Capacity
) -> None:
    assert await capacity_of(metrics) == expected


def test_parse_cache_tokens_adds_up_engines() -> None:
    assert parse_cache_tokens(NEW + OLD) == 466_000 + 4096 * 16
    assert parse_cache_tokens(INFO % 'num_gpu_blocks="x",block_size="16"') == 0


async def test_capacity_of_scripts_and_unknown_servers_is_eight() -> None:
    expected = Capacity(conversations=8, source="unknown")
    assert await read_capacity(ScriptedModel([say("hi")])) == expected
    assert default_capacity(ModelIdentity(model="m", server="unknown server")) == expected


async def test_aliases_of_batch_and_card_are_no_models() -> None:
    aliases = server_aliases(
        weights_sha256="", dtype="bfloat16", device="NVIDIA A100 80GB", max_num_seqs=256
    )
    names = ",".join(f'{{"id": "{name}", "root": "/weights"}}' for name in ("gemma", *aliases))
    listed = answers(200, f'{{"object": "list", "data": [{names}]}}')
    async with FakeVllm(routes={"/v1/models": listed}) as server, connected(server) as model:
        identity = model.identity
        assert (identity.model, identity.dtype) == ("gemma", "bfloat16")
        assert identity.device == "NVIDIA A100 80GB"
