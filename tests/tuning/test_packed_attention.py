import random
from pathlib import Path
from typing import Any

import pytest

from lhkit.tuning import adapter
from lhkit.tuning.adapter import Packing, blocks


def states_and_gradient(model: Any, tokens: list[int], **how: Any) -> tuple[Any, Any]:
    """The decoder's last hidden states, and the gradient of the embeddings by their squares."""
    import torch

    model.zero_grad()
    states = model.model(torch.tensor([tokens]), use_cache=False, **how).last_hidden_state[0]
    (states**2).sum().backward()
    return states.detach(), model.model.embed_tokens.weight.grad.clone()


@pytest.mark.parametrize("prefix_length", [0, 1, 40, 600])
def test_packed_rows_get_the_states_and_gradients_that_transformers_gives_them_alone(
    tiny_gemma: Path, prefix_length: int
) -> None:
    """In a window of 16 tokens, over more than one block of queries, with four heads on one key."""
    import torch
    from transformers import AutoModelForCausalLM

    packed = adapter.load_model(tiny_gemma).float()
    plain = AutoModelForCausalLM.from_pretrained(
        tiny_gemma, dtype=torch.bfloat16, attn_implementation="eager"
    ).float()
    rng = random.Random(3)
    prefix, *rows = ([rng.randrange(4, 19) for _ in range(n)] for n in (prefix_length, 7, 300, 1))
    packing = Packing(prefix=prefix_length, rows=tuple(map(len, rows)))
    states, gradient = states_and_gradient(
        packed,
        [*prefix, *rows[0], *rows[1], *rows[2]],
        position_ids=torch.tensor([packing.positions]),
        attention_mask=dict.fromkeys(packed.config.layer_types),
        packing=packing,
    )
    alone = [states_and_gradient(plain, [*prefix, *row]) for row in rows]
    expected = torch.cat([each[prefix_length:] for each, _ in alone])
    assert torch.allclose(states[prefix_length:], expected, atol=1e-3)
    if not prefix_length:  # else the prefix counts once in ours and three times in theirs
        together = sum(each for _, each in alone)
        assert torch.allclose(gradient, together, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("window", [None, 1, 16, 5_000])
@pytest.mark.parametrize("cut", [Packing(prefix=0, rows=(7, 300, 1)), Packing(prefix=40, rows=())])
@pytest.mark.parametrize("prefix_length", [0, 600])
def test_a_graphics_card_gets_the_attention_and_the_gradients_of_a_processor(
    monkeypatch: pytest.MonkeyPatch, prefix_length: int, cut: Packing, window: int | None
) -> None:
    """By its way on the processor, four heads on two keys: no test machine has its kernels."""
    import torch

    cut = Packing(prefix=cut.prefix + prefix_length, rows=cut.rows)
    dice = torch.Generator().manual_seed(3)
    tokens = cut.prefix + sum(cut.rows)

    def drawn(heads: int) -> Any:
        return torch.randn(1, heads, tokens, 8, generator=dice, dtype=torch.float64)

    given = [drawn(heads).requires_grad_() for heads in (4, 2, 2)]
    weights = drawn(4).transpose(1, 2)

    def attended_and_gradients() -> list[Any]:
        how = {"scaling": 0.3, "packing": cut, "sliding_window": window}
        attended, _ = adapter.packed_attention(None, *given, None, **how)
        return [attended, *torch.autograd.grad(attended, given, weights)]

    expected = attended_and_gradients()
    asked: list[object] = []
    whole = torch.nn.functional.scaled_dot_product_attention

    def seen(*states: Any, **how: Any) -> Any:
        asked.append(states)
        return whole(*states, **how)

    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", seen)
    got = attended_and_gradients()
    assert len(asked) == bool(cut.prefix) + bool(cut.rows)
    assert all(torch.allclose(*pair) for pair in zip(got, expected, strict=True))


@pytest.mark.parametrize("window", [None, 1, 16, 512])
def test_blocks_cover_each_query_once_and_hold_every_key_it_may_see(window: int | None) -> None:
    covered: list[int] = []
    for block in blocks(900, 1700, window):
        covered += range(*block.queries)
        farthest = 0 if window is None else max(0, block.queries[0] - window + 1)
        assert block.first_key == farthest
    assert covered == list(range(900, 1700))
