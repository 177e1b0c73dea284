"""A script: write one GGUF file for llama.cpp from a folder of a Gemma 3 text model.

Or from another GGUF file of the same model; an adapter of LoRA is merged into either. Run in a
process of its own, for its memory. It uses no other part of lhkit, and needs the packages `gguf`
and NumPy, no torch. What `gguf` cannot quantise llama.cpp itself does, out of `xllamacpp`.
"""

import ctypes
import json
import math
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

BY_LLAMA_CPP = ("Q4_K_M", "Q2_0")
"""Quantisations that only llama.cpp itself can make: they need the package `xllamacpp`."""
QUANTISATIONS = ("F16", "BF16", "Q8_0", "Q4_0", *BY_LLAMA_CPP)
_NORMAL, _CONTROL, _USER_DEFINED, _BYTE = 1, 3, 4, 6
_NO_SCORE = -1000.0
_SPACE = "\u2581"


def export(folder: Path, file: Path, quantisation: str, adapter: Path | None = None) -> None:
    """Write `file`: with an adapter the same numbers as from the folder of `lhkit tune merge`.

    Args:
        folder: config.json, tokenizer.json and model.safetensors of a `Gemma3ForCausalLM`.
        file: the GGUF to write.
        quantisation: one of `QUANTISATIONS`, for the matrices; norms stay in 32 bits.
        adapter: as of `requantise`.
    """
    import gguf

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if config.get("architectures") != ["Gemma3ForCausalLM"]:
        raise SystemExit(f"{folder} holds {config.get('architectures')}, no Gemma3ForCausalLM")
    writer = gguf.GGUFWriter(file, "gemma3")
    writer.add_name(folder.name)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_file_type(_file_type(quantisation))
    _add_shape(writer, config)
    _add_tokenizer(writer, folder, config)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GEMMA3, config["num_hidden_layers"])
    changes = _Changes(adapter)
    for name, stored in _tensors(folder / "model.safetensors"):
        target = names.get_name(name, try_suffixes=(".weight",))
        values = stored if adapter is None else _rounded(changes.added_to(target, stored))
        if name.endswith("norm.weight"):
            writer.add_tensor(target, values + 1)  # llama.cpp's norm multiplies by the sum
        elif name != "lm_head.weight":  # the same as the embedding
            kind = _kind(quantisation, target, values.shape[-1], config["num_hidden_layers"])
            _add_matrix(writer, target, values, kind)
    changes.require_none_left(folder)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def requantise(base: Path, file: Path, quantisation: str, adapter: Path | None = None) -> None:
    """Write `file` from a GGUF file: the same numbers as from the folder that is made of it.

    The base is rounded to bfloat16, so is the sum with the adapter, as `lhkit tune merge` rounds
    them: what vLLM serves and what is quantised here are one model.

    Args:
        base: a GGUF file of the model, quantised or not.
        file: the GGUF to write.
        quantisation: one that the package `gguf` can make, for all matrices; norms stay as they
            are.
        adapter: folder with `adapter_config.json` and `adapter_model.safetensors`; None: the base.
    """
    import gguf

    kind = gguf.GGMLQuantizationType[quantisation]
    fields, tensors = _read(base)
    writer = gguf.GGUFWriter(file, fields["general.architecture"].value)
    for name, each in _told_alike(fields).items():
        writer.add_key_value(name, each.value, *each.kinds)
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{quantisation}"])
    writer.add_chat_template(_TEMPLATE.read_text(encoding="utf-8"))
    changes = _Changes(adapter)
    for name, found, stored in tensors:
        change = changes.take(name)
        if change is None and found in (kind, gguf.GGMLQuantizationType.F32):  # F32: a norm
            writer.add_tensor(name, stored, raw_dtype=found)
            continue
        values = _rounded(gguf.quants.dequantize(stored, found))
        values = values if change is None else _rounded(values + change)
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    changes.require_none_left(base)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


_TEMPLATE = Path(__file__).parent / "templates" / "gemma3.jinja"
_STRING, _ARRAY = 8, 9
_NUMBERS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
"""How the file stores a value, by the number of its kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    """What a GGUF file tells under one name, and by which kinds of value: an array has two."""

    value: Any
    kinds: tuple[Any, ...]


def _told_alike(fields: dict[str, _Field]) -> dict[str, _Field]:
    """Return what is told of shape and vocabulary, the vocabulary in the words of a folder.

    There runs of blanks are words as all others, and scores are ids: `_add_tokenizer` says why.
    """
    told = dict(fields)
    del told["general.architecture"], told["general.file_type"]  # the writer tells them
    tokens, kinds, scores = (
        list(told[f"tokenizer.ggml.{each}"].value) for each in ("tokens", "token_type", "scores")
    )
    for number, (token, kind) in enumerate(zip(tokens, kinds, strict=True)):
        if kind == _USER_DEFINED and not token.strip(" "):
            tokens[number], kinds[number] = token.replace(" ", _SPACE), _NORMAL
        if kinds[number] == _NORMAL:
            scores[number] = -float(number)
    vocabulary = {"tokens": tokens, "token_type": kinds, "scores": scores}
    for each, values in vocabulary.items():
        name = f"tokenizer.ggml.{each}"
        told[name] = _Field(value=values, kinds=told[name].kinds)
    return told


def _read(base: Path) -> tuple[dict[str, _Field], Iterator[tuple[str, Any, Any]]]:
    """Return the fields and the tensors: name, kind and stored values, straight from the disk.

    The reader of the package `gguf` takes eight seconds for a vocabulary of this size.
    """
    import gguf
    import numpy as np

    with base.open("rb") as opened:
        magic, version, tensors, fields = struct.unpack("<4sIQQ", opened.read(24))
        if (magic, version) != (b"GGUF", gguf.GGUF_VERSION):
            raise SystemExit(f"{base} is no GGUF file of version {gguf.GGUF_VERSION}")
        told = {_text(opened): _field(opened) for _ in range(fields)}
        heads = [(_text(opened), *_head(opened)) for _ in range(tensors)]
        aligned = gguf.GGUF_DEFAULT_ALIGNMENT
        begin = -(-opened.tell() // aligned) * aligned
    data = np.memmap(base, mode="r", offset=begin)

    def stored() -> Iterator[tuple[str, Any, Any]]:
        for name, shape, kind, offset in heads:
            block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind)]
            row = shape[0] // block * size
            raw = data[offset : offset + row * math.prod(shape[1:])].reshape(*shape[:0:-1], row)
            is_norm = kind == gguf.GGMLQuantizationType.F32
            yield name, gguf.GGMLQuantizationType(kind), raw.view(np.float32) if is_norm else raw

    return told, stored()


def _head(opened: BinaryIO) -> tuple[tuple[int, ...], int, int]:
    """Read shape, kind and offset of a tensor."""
    (dimensions,) = struct.unpack("<I", opened.read(4))
    shape = struct.unpack(f"<{dimensions}Q", opened.read(8 * dimensions))
    return shape, *struct.unpack("<IQ", opened.read(12))


def _text(opened: BinaryIO) -> str:
    (size,) = struct.unpack("<Q", opened.read(8))
    return opened.read(size).decode()


def _field(opened: BinaryIO) -> _Field:
    import gguf

    (kind,) = struct.unpack("<I", opened.read(4))
    if kind != _ARRAY:
        return _Field(value=_values(opened, kind, 1)[0], kinds=(gguf.GGUFValueType(kind),))
    inner, count = struct.unpack("<IQ", opened.read(12))
    kinds = (gguf.GGUFValueType.ARRAY, gguf.GGUFValueType(inner))
    return _Field(value=_values(opened, inner, count), kinds=kinds)


def _values(opened: BinaryIO, kind: int, count: int) -> list[Any]:
    if kind == _STRING:
        return [_text(opened) for _ in range(count)]
    layout = f"<{count}{_NUMBERS[kind]}"
    return list(struct.unpack(layout, opened.read(struct.calcsize(layout))))


def _rounded(values: Any) -> Any:
    """Return numbers of 32 bits rounded to those that bfloat16 has, half to even."""
    import numpy as np

    bits = values.view(np.uint32)
    return ((bits + (0x7FFF + ((bits >> 16) & 1))) & np.uint32(0xFFFF0000)).view(np.float32)


_LORA = "base_model.model.{layer}.lora_{side}.weight"
_LAYERS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""llama.cpp's names and those of transformers, of the layers that an adapter may change."""


class _Changes:
    """What an adapter adds to the matrices, by llama.cpp's names; each is taken once."""

    def __init__(self, adapter: Path | None) -> None:
        self._adapter = adapter
        self._halves: dict[str, Any] = {}
        self._scale = 0.0
        if adapter is not None:
            card = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))
            _require_plain(card, adapter)
            self._scale = card["lora_alpha"] / card["r"]
            self._halves = dict(_tensors(adapter / "adapter_model.safetensors"))

    def take(self, name: str) -> Any:
        """Return what is added to a matrix, None if nothing is."""
        _, number, layer, *_ = f"{name}..".split(".")
        told = f"model.layers.{number}.{_LAYERS.get(layer, layer)}"
        narrow, wide = (self._halves.pop(_LORA.format(layer=told, side=s), None) for s in "AB")
        return None if narrow is None or wide is None else (wide @ narrow) * self._scale

    def added_to(self, name: str, values: Any) -> Any:
        """Return a matrix with what is added to it, or as it is."""
        change = self.take(name)
        return values if change is None else values + change

    def require_none_left(self, base: Path) -> None:
        """Refuse an adapter that changes what nobody asked for."""
        if self._halves:
            left = next(iter(self._halves))
            raise SystemExit(f"{self._adapter} changes {left}, which {base.name} does not have")


def _require_plain(card: dict[str, Any], adapter: Path) -> None:
    """Refuse what is more than a product of two matrices."""
    beyond = ("use_dora", "use_rslora", "rank_pattern", "alpha_pattern", "modules_to_save")
    if found := [each for each in beyond if card.get(each)]:
        raise SystemExit(f"{adapter} has {', '.join(found)}: merge it with `lhkit tune merge`")


# Which matrix gets which type of number. Where rows are no multiple of a type's block, llama.cpp
# takes another type, of more bits, and so do we.

_Q2_0, _MOSTLY_Q2_0 = 42, 41
"""What the package `gguf` has no names for yet: two bits and a scale for 64 numbers."""
_WIDE = 256
"""Numbers in a block of the K-quantisations."""


def _file_type(quantisation: str) -> int:
    """Return the number by which a file tells its quantisation."""
    import gguf

    if quantisation == "Q2_0":
        return _MOSTLY_Q2_0
    return int(gguf.LlamaFileType[f"MOSTLY_{quantisation}"])


def _kind(quantisation: str, name: str, columns: int, layers: int) -> int:
    """Return the type of number of a matrix: of what llama.cpp makes, the one it would choose.

    Source: `llama_tensor_get_type` of llama.cpp's `llama-quant.cpp`, for a model whose embedding is
    its output, too.
    """
    import gguf

    kinds = gguf.GGMLQuantizationType
    if quantisation not in BY_LLAMA_CPP:
        return int(kinds[quantisation])
    _, number, layer, *_ = f"{name}..".split(".")
    is_finer = name.startswith("token_embd") or (
        quantisation == "Q4_K_M"
        and layer in {"attn_v", "ffn_down"}
        and _gets_more_bits(int(number), layers)
    )
    if is_finer:
        return int(kinds.Q8_0 if columns % _WIDE else kinds.Q6_K)
    if quantisation == "Q2_0":
        return _Q2_0
    return int(kinds.Q5_0 if columns % _WIDE else kinds.Q4_K)


def _gets_more_bits(layer: int, layers: int) -> bool:
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2


def _add_matrix(writer: Any, name: str, values: Any, kind: int) -> None:
    """Add a matrix in a type of number, made by `gguf` where that can, else by llama.cpp."""
    import gguf
    import numpy as np

    if kind in set(gguf.GGMLQuantizationType):
        known = gguf.GGMLQuantizationType(kind)
        with suppress(NotImplementedError):  # gguf only reads this type: llama.cpp writes it, below
            made = gguf.quants.quantize(values, known)
            writer.add_tensor(name, made, raw_dtype=known)
            return
    library = _ggml()
    rows, columns = values.shape
    block, size = library.ggml_blck_size(kind), library.ggml_type_size(kind)
    if columns % block:
        raise SystemExit(f"{name} has rows of {columns} numbers, and a block has {block}")
    made = np.empty((rows, columns // block * size), np.int8)  # uint8 would be told as a shape
    values = np.ascontiguousarray(values)
    library.ggml_quantize_chunk(kind, values.ctypes.data, made.ctypes.data, 0, rows, columns, None)
    writer.add_tensor(name, made, raw_shape=values.shape, raw_dtype=kind)


@cache
def _ggml() -> Any:
    """Return llama.cpp's own library, which the package `xllamacpp` holds, by its C functions."""
    from xllamacpp import xllamacpp

    library = ctypes.CDLL(xllamacpp.__file__)
    library.ggml_blck_size.restype = ctypes.c_int64
    library.ggml_type_size.restype = ctypes.c_size_t
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    library.ggml_quantize_chunk.argtypes = [
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_void_p,
        *[ctypes.c_int64] * 3,
        ctypes.c_void_p,
    ]
    return library


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


def main(arguments: Sequence[str]) -> None:
    """Write what the arguments say: from where, the file, its quantisation, an adapter if any."""
    source, file, quantisation, *adapter = arguments
    write = export if Path(source).is_dir() else requantise
    write(Path(source), Path(file), quantisation, *map(Path, adapter))


if __name__ == "__main__":
    main(sys.argv[1:])
