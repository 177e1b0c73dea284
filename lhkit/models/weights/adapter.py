"""Check LoRA adapters, match them to a base, and serve them by vLLM.

An adapter is a folder that `SFTTrainer.save_model` or `save_pretrained` wrote.
"""

import asyncio
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lhkit.base.errors import AdapterError, UsageError
from lhkit.base.files import file_sha256
from lhkit.models.client.identity import weights_alias
from lhkit.models.weights.weights_folder import FOLDER_MANIFEST
from lhkit.models.weights.weights_hash import weights_sha256

ADAPTER_CONFIG: Final = "adapter_config.json"
ADAPTER_WEIGHTS: Final = "adapter_model.safetensors"
MANIFEST: Final = "manifest.json"
"""Metadata of the training: its data and its base model."""
_RANKS: Final = (8, 16, 32, 64, 128, 256, 320, 512)
"""The values of vLLM's `--max-lora-rank`."""


def require_adapter(adapter: Path) -> None:
    """Check that a folder contains an adapter.

    Raises:
        AdapterError: a file is missing.
    """
    if all((adapter / name).is_file() for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS)):
        return
    inner = adapter / "adapter"
    hint = f"; did you mean {inner}?" if (inner / ADAPTER_CONFIG).is_file() else ""
    raise AdapterError(
        f"Invalid adapter folder {adapter}: it needs {ADAPTER_CONFIG} and {ADAPTER_WEIGHTS}{hint}"
    )


def adapter_hashes(adapter: Path) -> dict[str, str]:
    """Return the hash of each file of an adapter.

    Raises:
        AdapterError: a file is missing.
    """
    require_adapter(adapter)
    return {name: file_sha256(adapter / name) for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS)}


def require_same_base(base: Path, adapter: Path) -> None:
    """Check that an adapter was trained on a base model.

    An adapter without `manifest.json` is not lhkit's and passes. A base that lhkit converted is
    identified by its folder's name, which contains the hash of the conversion: with another version
    of transformers its files may differ in a byte.

    Raises:
        AdapterError: it was trained on another base, or its manifest is invalid.
    """
    path = adapter / MANIFEST
    if not path.is_file() or not (base / "config.json").is_file():
        return
    try:
        metadata = json.loads(path.read_text(encoding="utf-8"))["base"]
        name, sha256 = str(metadata["name"]), str(metadata["sha256"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AdapterError(f"{path} is invalid: {error!r}. Download it again.") from error
    if base.name == name and (base / FOLDER_MANIFEST).is_file():
        return
    actual = base_sha256(base)
    if actual != sha256:
        raise AdapterError(
            f"{adapter} was trained on another base than {base}: it is for "
            f"{name} (sha256 {sha256[:12]}, not {actual[:12]})"
        )


def base_sha256(folder: Path) -> str:
    """Return the hash of a base model's configuration and weights."""
    digest = hashlib.sha256()
    for path in (folder / "config.json", *sorted(folder.glob("*.safetensors"))):
        digest.update(bytes.fromhex(file_sha256(path)))
    return digest.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraAdapter:
    """A LoRA adapter that vLLM serves next to its base, as the model `name`.

    `sha256` is the hash of base and adapter together, reported by an alias; empty to leave it out.
    """

    name: str
    folder: Path
    rank: int
    sha256: str = ""

    @property
    def options(self) -> tuple[str, ...]:
        """The options of vLLM that serve the adapter."""
        return (
            *("--enable-lora", "--max-lora-rank", str(self.rank), "--lora-modules"),
            *self.modules,
        )

    @property
    def modules(self) -> tuple[str, ...]:
        """The values of `--lora-modules`; the name is last, so it is loaded last."""
        names = (*((weights_alias(self.sha256),) if self.sha256 else ()), self.name)
        return tuple(f"{name}={self.folder}" for name in names)


async def read_lora(
    folder: Path, cache_dir: Path, *, base: str, base_sha256: str | None = None
) -> LoraAdapter:
    """Read an adapter that vLLM should serve.

    Args:
        folder: with `adapter_config.json` and `adapter_model.safetensors`.
        cache_dir: lhkit's cache, which keeps hashes of large files.
        base: the name of the base model.
        base_sha256: hash of the base's weights, empty if unknown; None computes no hashes.

    Raises:
        UsageError: vLLM cannot serve the adapter, or it has the name of its base.
        WeightsError: the folder cannot be read.
    """
    path = await asyncio.to_thread(folder.resolve)
    config = await asyncio.to_thread(_read_config, path)
    if path.name == base:
        raise UsageError(f"Invalid adapter folder {folder}: {base} is its base. Rename the folder.")
    ranks: list[Any] = [config.get("r"), *(config.get("rank_pattern") or {}).values()]
    if not all(isinstance(rank, int) and 1 <= rank <= _RANKS[-1] for rank in ranks):
        raise UsageError(
            f"{folder / ADAPTER_CONFIG} is invalid: its rank is not 1 to {_RANKS[-1]}, which is "
            "what vLLM serves. Merge the adapter and serve the merged folder with --weights."
        )
    sha256 = ""
    if base_sha256 is not None:
        adapter_sha256 = await weights_sha256(path, cache_dir)
        sha256 = hashlib.sha256(f"{base_sha256 or base} {adapter_sha256}".encode()).hexdigest()
    rank = next(rank for rank in _RANKS if rank >= max(ranks))
    return LoraAdapter(name=path.name, folder=path, rank=rank, sha256=sha256)


def _read_config(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder / ADAPTER_CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{folder} has no LoRA adapter: {ADAPTER_CONFIG} cannot be read ({error}). Give the "
            "folder that `save_model` or `save_pretrained` wrote."
        ) from error
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise UsageError(f"{folder / ADAPTER_CONFIG} is invalid: its peft_type is not LORA.")
    if not (folder / ADAPTER_WEIGHTS).is_file():
        raise UsageError(f"{folder} has no {ADAPTER_WEIGHTS}: save the adapter as safetensors.")
    return config
