"""LoRA adapters that vLLM serves beside their base, such as `SFTTrainer.save_model` writes them."""

import asyncio
import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from lhkit.errors import UsageError
from lhkit.models.adapter import ADAPTER_CARD, ADAPTER_WEIGHTS
from lhkit.models.aliases import alias_of
from lhkit.models.vllm_server import ServerSettings
from lhkit.models.weights_hash import weights_sha256

_RANKS: Final = (8, 16, 32, 64, 128, 256, 320, 512)
"""The values of vLLM's `--max-lora-rank`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraAdapter:
    """A LoRA adapter, served as the model `name`.

    `sha256` is the hash of base and adapter together. The server lists it as another name of the
    same adapter, so that clients can ask which weights answer; empty to leave it out.
    """

    name: str
    folder: Path
    rank: int
    sha256: str = ""

    @property
    def options(self) -> tuple[str, ...]:
        """The options of vLLM that serve it."""
        return (
            *("--enable-lora", "--max-lora-rank", str(self.rank), "--lora-modules"),
            *self.modules,
        )

    @property
    def modules(self) -> tuple[str, ...]:
        """The values of `--lora-modules`; the hash first, so that the name is loaded last."""
        names = (*((alias_of(self.sha256),) if self.sha256 else ()), self.name)
        return tuple(f"{name}={self.folder}" for name in names)


async def read_lora(
    folder: Path, cache_dir: Path, *, base: str, base_sha256: str | None = None
) -> LoraAdapter:
    """Return the adapter of a folder.

    Args:
        folder: with `adapter_config.json` and `adapter_model.safetensors`.
        cache_dir: where lhkit keeps hashes of large files.
        base: the name of the base model.
        base_sha256: hash of the base's weights, empty if unknown; None leaves out all hashes.

    Raises:
        UsageError: the folder has no LoRA adapter that vLLM serves, or the name of its base.
        WeightsError: the folder cannot be read.
    """
    whole = await asyncio.to_thread(folder.resolve)
    config = await asyncio.to_thread(_read_config, whole)
    if whole.name == base:
        raise UsageError(f"Invalid adapter folder {folder}: {base} is its base. Rename the folder.")
    sha256 = ""
    if base_sha256 is not None:
        adapter = await weights_sha256(whole, cache_dir)
        sha256 = hashlib.sha256(f"{base_sha256 or base} {adapter}".encode()).hexdigest()
    rank = next(each for each in _RANKS if each >= _rank_of(config, folder))
    return LoraAdapter(name=whole.name, folder=whole, rank=rank, sha256=sha256)


def _read_config(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder / ADAPTER_CARD).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{folder} has no LoRA adapter: {ADAPTER_CARD} cannot be read ({error}). Give the "
            "folder that `save_model` or `save_pretrained` wrote."
        ) from error
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise UsageError(f"{folder / ADAPTER_CARD} is invalid: its peft_type is not LORA.")
    if not (folder / ADAPTER_WEIGHTS).is_file():
        raise UsageError(f"{folder} has no {ADAPTER_WEIGHTS}: save the adapter as safetensors.")
    return config


def _rank_of(config: dict[str, Any], folder: Path) -> int:
    ranks: list[Any] = [config.get("r"), *(config.get("rank_pattern") or {}).values()]
    if not all(isinstance(rank, int) and 1 <= rank <= _RANKS[-1] for rank in ranks):
        raise UsageError(
            f"{folder / ADAPTER_CARD} is invalid: its rank is not 1 to {_RANKS[-1]}, which is what "
            "vLLM serves. Merge the adapter and serve the merged folder with --weights."
        )
    return int(max(ranks))


def with_lora(plan: ServerSettings, lora: LoraAdapter) -> ServerSettings:
    """Return how to serve a base with an adapter beside it.

    Raises:
        UsageError: the installed vLLM serves no adapters.
    """
    served = replace(
        plan,
        served_name=lora.name,
        base_name=plan.served_name,
        extra_args=(*plan.extra_args, *lora.options),
    )
    if "--lora-modules" in served.left_out:
        raise UsageError("The installed vLLM serves no adapters: merge it and give --weights.")
    return served
