"""A script: turn one GGUF file into a bf16 safetensors folder that vLLM serves.

Run in a process of its own, so that torch's memory goes away with it. It uses no other part of
lhkit and knows nothing of where the file came from.
"""

import sys
from pathlib import Path


def convert(gguf: Path, folder: Path) -> None:
    """Write model and tokenizer of `gguf` into `folder`, weights dequantised to bfloat16."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype="bfloat16",
        quantization_config=GgufConfig(dequantize=True),
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
