"""LoRA adapters served by vLLM: their options, names and hashes."""

import json
from pathlib import Path
from typing import Any

import pytest

from lhkit.base.errors import UsageError
from lhkit.models.client.identity import parse_weights_alias
from lhkit.models.serving.vllm_server import ServerSettings, with_lora
from lhkit.models.weights.adapter import read_lora

pytestmark = pytest.mark.anyio


def adapter_in(folder: Path, **config: Any) -> Path:
    folder.mkdir()
    content = {"peft_type": "LORA", "r": 16, **config}
    (folder / "adapter_config.json").write_text(json.dumps(content), encoding="utf-8")
    (folder / "adapter_model.safetensors").write_bytes(b"weights")
    return folder


def plan(folder: Path, **more: Any) -> ServerSettings:
    return ServerSettings(
        model=folder / "base", served_name="gemma-base", log_path=folder / "log", **more
    )


async def test_lora_is_served_beside_its_base_with_a_name_that_has_its_hash(tmp_path: Path) -> None:
    folder = adapter_in(tmp_path / "mine")
    lora = await read_lora(folder, tmp_path, base="gemma-base", base_sha256="a")
    served = with_lora(plan(tmp_path), lora)
    words = served.arguments(8000)
    assert served.registered_name == "mine"
    assert words[words.index("--served-model-name") + 1] == "gemma-base"
    at = words.index("--lora-modules")
    hashed, named = words[at + 1 :]
    assert named == f"mine={folder}"
    assert parse_weights_alias(hashed.removesuffix(f"={folder}")) == lora.sha256 != ""
    assert words[words.index("--max-lora-rank") + 1] == "16"
    assert "--enable-lora" in words


async def test_lora_hash_changes_with_adapter_and_base(tmp_path: Path) -> None:
    folder = adapter_in(tmp_path / "mine")

    async def sha256(base_sha256: str) -> str:
        lora = await read_lora(folder, tmp_path, base="gemma-base", base_sha256=base_sha256)
        return lora.sha256

    first = await sha256("a")
    assert await sha256("a") == first
    assert await sha256("b") != first
    (folder / "adapter_model.safetensors").write_bytes(b"other weights")
    assert await sha256("a") != first


async def test_lora_without_hashes_has_its_name_only(tmp_path: Path) -> None:
    folder = adapter_in(tmp_path / "mine")
    lora = await read_lora(folder, tmp_path, base="gemma-base")
    assert lora.modules == (f"mine={folder}",)


@pytest.mark.parametrize(
    ("config", "rank"),
    [({"r": 4}, 8), ({"r": 16}, 16), ({"r": 8, "rank_pattern": {"q_proj": 33}}, 64)],
)
async def test_lora_rank_is_one_that_vllm_takes(
    config: dict[str, Any], rank: int, tmp_path: Path
) -> None:
    folder = adapter_in(tmp_path / "mine", **config)
    assert (await read_lora(folder, tmp_path, base="gemma-base")).rank == rank


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"peft_type": "IA3"}, "its peft_type is not LORA"),
        ({"r": 1024}, "its rank is not 1 to 512"),
        ({"r": None}, "its rank is not 1 to 512"),
    ],
)
async def test_lora_that_vllm_does_not_serve_is_refused(
    config: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    folder = adapter_in(tmp_path / "mine", **config)
    with pytest.raises(UsageError, match=sentence):
        await read_lora(folder, tmp_path, base="gemma-base")


async def test_lora_folder_without_adapter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no LoRA adapter: adapter_config\.json"):
        await read_lora(tmp_path, tmp_path, base="gemma-base")
    folder = adapter_in(tmp_path / "mine")
    (folder / "adapter_model.safetensors").unlink()
    with pytest.raises(UsageError, match=r"has no adapter_model\.safetensors"):
        await read_lora(folder, tmp_path, base="gemma-base")


async def test_lora_named_as_its_base_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="gemma-base is its base"):
        await read_lora(adapter_in(tmp_path / "gemma-base"), tmp_path, base="gemma-base")


async def test_lora_needs_a_vllm_that_serves_adapters(tmp_path: Path) -> None:
    lora = await read_lora(adapter_in(tmp_path / "mine"), tmp_path, base="gemma-base")
    old = plan(tmp_path, known_options=frozenset({"--model", "--dtype"}))
    with pytest.raises(UsageError, match="serves no adapters"):
        with_lora(old, lora)
