"""A whole Gemma 3 of two layers with random weights, as a folder that transformers loads."""

import json
from pathlib import Path

TURN_MARKS = {105: "<start_of_turn>", 106: "<end_of_turn>"}
_LETTERS = tuple(chr(number) for number in range(ord("a"), ord("z") + 1))
_SPECIAL = ("<pad>", "<eos>", "<bos>", "<unk>")


def _vocabulary() -> list[str]:
    """Return Gemma's marks at their places, all bytes, a blank and letters."""
    unused = [f"<unused{number}>" for number in range(4, 105)]
    raw = [f"<0x{number:02X}>" for number in range(256)]
    return [*_SPECIAL, *unused, *TURN_MARKS.values(), "\n", *raw, "\u2581", *_LETTERS]


def tiny_gemma(folder: Path, *, seed: int = 0) -> None:
    """Write the model and its vocabulary into `folder`; another seed is another model."""
    import torch
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    vocabulary = _vocabulary()
    torch.manual_seed(seed)
    config = Gemma3TextConfig(
        vocab_size=len(vocabulary),
        hidden_size=256,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=64,
        max_position_embeddings=8192,
        sliding_window=512,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=2,
        unk_token_id=3,
        query_pre_attn_scalar=64,
        initializer_range=0.3,  # logits far enough apart that rounding seldom decides
    )
    model = Gemma3ForCausalLM(config)
    with torch.no_grad():  # what it says are mostly letters, no marks and no half of a letter
        model.get_input_embeddings().weight[: -len(_LETTERS)] /= 10
        for layer in model.model.layers:  # so loud that it does not repeat what it has read
            layer.post_feedforward_layernorm.weight.fill_(40)
            layer.post_attention_layernorm.weight.fill_(40)
    model.to(torch.bfloat16)
    model.save_pretrained(folder)
    marks = {*range(4), *TURN_MARKS}
    added = [{"id": n, "content": vocabulary[n], "special": True} for n in sorted(marks)]
    tokenizer = {
        "model": {"vocab": {t: n for n, t in enumerate(vocabulary)}},
        "added_tokens": added,
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
