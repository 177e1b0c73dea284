"""A script: turn a folder of a Gemma 3 text model into one GGUF file for llama.cpp.

Run in a process of its own, for its memory. It uses no other part of lhkit, and needs the packages
`gguf` and NumPy, no torch.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

QUANTISATIONS = ("F16", "BF16", "Q8_0", "Q4_0")
_NORMAL, _CONTROL, _USER_DEFINED, _BYTE = 1, 3, 4, 6
_NO_SCORE = -1000.0
_SPACE = "\u2581"


def export(folder: Path, file: Path, quantisation: str) -> None:
    """Write `file`.

    Args:
        folder: config.json, tokenizer.json and model.safetensors of a `Gemma3ForCausalLM`.
        file: the GGUF to write.
        quantisation: one of `QUANTISATIONS`, for all matrices; norms stay in 32 bits.
    """
    import gguf  # noqa: PLC0415 - its caller looks whether it is there

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if config.get("architectures") != ["Gemma3ForCausalLM"]:
        raise SystemExit(f"{folder} holds {config.get('architectures')}, no Gemma3ForCausalLM")
    kind = gguf.GGMLQuantizationType[quantisation]
    writer = gguf.GGUFWriter(file, "gemma3")
    writer.add_name(folder.name)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{quantisation}"])
    _add_shape(writer, config)
    _add_tokenizer(writer, folder, config)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GEMMA3, config["num_hidden_layers"])
    for name, values in _tensors(folder / "model.safetensors"):
        target = names.get_name(name, try_suffixes=(".weight",))
        if name.endswith("norm.weight"):
            writer.add_tensor(target, values + 1)  # llama.cpp's norm multiplies by the sum
        elif name != "lm_head.weight":  # the same as the embedding
            writer.add_tensor(target, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_shape(writer: Any, config: dict[str, Any]) -> None:
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_freq_base(config["rope_parameters"]["full_attention"]["rope_theta"])
    writer.add_sliding_window(config["sliding_window"])


def _add_tokenizer(writer: Any, folder: Path, config: dict[str, Any]) -> None:
    """Add the vocabulary as llama.cpp's SentencePiece wants it.

    It merges the pair with the highest score first: in Gemma's vocabulary that is the lower id.
    """
    told = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    vocab: dict[str, int] = told["model"]["vocab"]
    added = {each["id"]: each for each in told["added_tokens"]}
    tokens, scores, kinds = [], [], []
    for token in sorted(vocab, key=lambda each: vocab[each]):
        number = vocab[token]
        is_byte = len(token) == len("<0x00>") and token.startswith("<0x") and token.endswith(">")
        if number in added:
            is_special = added[number]["special"]
            kind, score = (_CONTROL if is_special else _USER_DEFINED), _NO_SCORE
            token = added[number]["content"].replace(_SPACE, " ")  # noqa: PLW2901 - as it is told
        else:
            kind, score = (_BYTE, 0.0) if is_byte else (_NORMAL, -float(number))
        tokens.append(token)
        scores.append(score)
        kinds.append(kind)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(kinds)
    _add_marks(writer, config)
    template = folder / "chat_template.jinja"
    if template.is_file():
        writer.add_chat_template(template.read_text(encoding="utf-8"))


def _add_marks(writer: Any, config: dict[str, Any]) -> None:
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_unk_token_id(config["unk_token_id"])
    writer.add_pad_token_id(config["pad_token_id"])
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(False)


def _tensors(file: Path) -> Iterator[tuple[str, Any]]:
    """Yield name and values in 32 bits, one at a time. NumPy has no bfloat16: its upper half is."""
    import numpy as np  # noqa: PLC0415 - comes with gguf

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


if __name__ == "__main__":
    export(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
