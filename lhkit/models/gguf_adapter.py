"""A LoRA adapter as the GGUF file that llama.cpp applies to a base when it loads it.

Needs the packages `gguf` and NumPy, no torch.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lhkit.errors import WeightsError

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


def write_adapter(folder: Path, file: Path) -> None:
    """Write `file` from a folder of `adapter_config.json` and `adapter_model.safetensors`.

    Raises:
        WeightsError: the adapter is more than a product of two matrices for each layer, or of
            another model than Gemma 3.
    """
    import gguf

    config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    beyond = ("use_dora", "use_rslora", "rank_pattern", "alpha_pattern", "modules_to_save")
    if found := [each for each in beyond if config.get(each)]:
        raise WeightsError(f"{folder} has {', '.join(found)}: llama.cpp takes a plain LoRA only")
    writer = gguf.GGUFWriter(file, "gemma3")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", config["lora_alpha"])
    for name, values in _tensors(folder / "adapter_model.safetensors"):
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
