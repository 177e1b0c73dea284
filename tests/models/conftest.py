"""A tiny Gemma 3 on disk: the real architecture with a sliding window of 16 tokens."""

from pathlib import Path

import pytest

WORDS = [
    *("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"),
    *("user", "model", "tools", "a", "b", "c", "d", "e", "add", "list", "yes", "no", "\n"),
]


@pytest.fixture(scope="session")
def tiny_gemma(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch = pytest.importorskip("torch", reason="vLLM is not installed")
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    folder = tmp_path_factory.mktemp("tiny-gemma")
    torch.set_num_threads(1)  # tiny matrices: more threads only wait for each other
    torch.manual_seed(7)
    config = Gemma3TextConfig(
        vocab_size=len(WORDS),
        initializer_range=0.5,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=8,
        sliding_window=16,
        max_position_embeddings=512,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=2,
    )
    Gemma3ForCausalLM(config).save_pretrained(folder)
    words = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))  # noqa: S106 - a token's name
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "generation_config.json").write_text('{"eos_token_id": [1]}')
    return folder
