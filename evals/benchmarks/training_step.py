"""What the shared prefix and the packed rows save in a training step, beside whole rows.

Both sides learn the same rows of life-helper's training data on the embedded Gemma with the same
adapter, forward and backward: ours by `adapter.loss_of`, once as it is and once with the norms
compiled as in a training of ten minutes and more, the other as trainers usually do, each row
whole, padded to the longest of the batch, in transformers' own attention. They take turns; the
ratios are of the medians in one run.

    python evals/benchmarks/training_step.py [--tokens 3000] [--rounds 3]
"""

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from evals.lessons.conversations import conversations
from lhkit.errors import SetupError
from lhkit.lifehelper import toolset as life_helper
from lhkit.models.weights import ensure_weights
from lhkit.settings import load_settings
from lhkit.tuning import adapter
from lhkit.tuning.data import IGNORED, Batch, make_batches, tokenised
from lhkit.tuning.recipe import FROM_NOTHING
from lhkit.tuning.teacher import simulate

RESULTS = Path(__file__).with_suffix(".md")
CONVERSATIONS = 80
DATA_SEED = 1


async def drawn(tokens: int, base: Path) -> Batch:
    """Return one batch of played conversations, of the language with more of them."""
    told = list(conversations(CONVERSATIONS, seed=DATA_SEED))
    played = await simulate(told, life_helper.LifeHelperToolset(), progress=False)
    encode = adapter.encoder(base)
    rows = [tokenised(each, encode) for each in played]
    order = random.Random(0)  # noqa: S311 - the order of training data
    batches = make_batches(rows, batch_tokens=tokens, rng=order)
    return max(batches, key=lambda batch: sum(map(len, batch.rows)))


def ours(base: Path, batch: Batch, *, fused: bool) -> Callable[[], float]:
    """Return our step.

    Raises:
        SetupError: torch finds no compiler for the norms.
    """
    model = adapter.with_adapter(adapter.load_model(base), FROM_NOTHING.adapter, seed=0)
    if fused and not adapter.fuse_norms(model, batch):
        raise SetupError("torch could not compile the norms: install a C++ compiler (g++)")

    def step() -> float:
        loss, count = adapter.loss_of(model, batch)
        (loss / count).backward()
        return float(loss.detach()) / count

    return step


def whole_rows(base: Path, batch: Batch) -> Callable[[], float]:
    """Return the step of rows that are whole and padded."""
    import torch

    loaded = adapter.load_model(base)
    loaded.set_attn_implementation("sdpa")
    model = adapter.with_adapter(loaded, FROM_NOTHING.adapter, seed=0)
    longest = len(batch.prefix) + max(map(len, batch.rows))

    def padded(row: tuple[int, ...], own: tuple[int, ...], filler: int) -> list[int]:
        return [*own, *row, *[filler] * (longest - len(own) - len(row))]

    tokens = torch.tensor([padded(row, batch.prefix, 0) for row in batch.rows])
    hidden = (IGNORED,) * len(batch.prefix)
    labels = torch.tensor([padded(row, hidden, IGNORED) for row in batch.labels])
    seen = torch.tensor([padded((1,) * len(row), (1,) * len(hidden), 0) for row in batch.rows])
    learnt = labels[:, 1:] != IGNORED

    def step() -> float:
        decoder: Any = model.base_model.model
        with torch.autocast("cpu", torch.bfloat16):
            states = decoder.model(tokens, attention_mask=seen, use_cache=False).last_hidden_state
            logits = decoder.lm_head(states[:, :-1][learnt])
        loss = torch.nn.functional.cross_entropy(logits.float(), labels[:, 1:][learnt])
        loss.backward()
        return float(loss.detach())

    return step


def timed(step: Callable[[], float]) -> tuple[float, float]:
    """Return seconds and loss of a step."""
    begun = time.perf_counter()
    loss = step()
    return time.perf_counter() - begun, loss


def report(base: Path, batch: Batch, rounds: int) -> str:
    """Return the page."""
    steps = (
        ours(base, batch, fused=True),
        ours(base, batch, fused=False),
        whole_rows(base, batch),
    )
    for step in steps:
        step()  # the first fills caches
    measured = [tuple(timed(step) for step in steps) for _ in range(rounds)]
    (fused_s, fused), (mine_s, mine), (other_s, other) = (
        (statistics.median(each[i][0] for each in measured), measured[0][i][1])
        for i in range(len(steps))
    )
    behind = sum(map(len, batch.rows))
    return f"""# Training step: shared prefix and packed rows beside whole rows

`python evals/benchmarks/training_step.py` · torch {version("torch")}, transformers \
{version("transformers")}, peft {version("peft")} · medians of {rounds} rounds. One batch of \
life-helper's data on the embedded Gemma: {len(batch.rows)} rows, {behind:,} tokens behind a \
prefix of {len(batch.prefix)}; forward and backward, adapter of rank {FROM_NOTHING.adapter.rank}.

| | tokens computed | seconds | loss |
|---|---|---|---|
| lhkit: prefix once, rows packed, norms compiled | {len(batch.prefix) + behind:,} | \
{fused_s:.1f} | {fused:.3f} |
| the same, norms as they are | {len(batch.prefix) + behind:,} | {mine_s:.1f} | {mine:.3f} |
| whole rows, padded | {_computed(batch):,} | {other_s:.1f} | {other:.3f} |

**{other_s / fused_s:.1f} times as fast**, of which the norms bring \
{mine_s / fused_s:.2f}. The losses differ by the rounding of bf16.
"""


def _computed(batch: Batch) -> int:
    return len(batch.rows) * (len(batch.prefix) + max(map(len, batch.rows)))


async def main() -> None:
    """Measure, print and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=FROM_NOTHING.batch_tokens)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    base = await ensure_weights(load_settings().cache_dir)
    batch = await drawn(options.tokens, base)
    text = report(base, batch, options.rounds)
    print(text)
    RESULTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
