"""How to train: the settings, those of `lhkit tune train`, and the recipe of `make tune`.

The defaults of `TuneSettings` are for tests and notebooks. Numbers only: nothing heavy is imported
here, since the command line reads it.
"""

import math
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterShape:
    """Rank and scale of the adapter: each linear layer W gets W + (alpha / rank) · B · A."""

    rank: int = 16
    alpha: int = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneSettings:
    """How to train. All of it is in the manifest; a resumed training must have the same.

    The learning rate warms up linearly over `warmup` of the steps and then falls to zero along a
    cosine. `batch_tokens` counts the tokens after the common prefix. In a step's loss a token that
    decides what an answer does (`sequence.decisive_spans`) counts `decisive_weight` times as much
    as another.
    """

    steps: int = 300
    batch_tokens: int = 3_000
    learning_rate: float = 2e-4
    warmup: float = 0.05
    weight_decay: float = 0.0
    clip_norm: float = 1.0
    decisive_weight: float = 1.0
    adapter: AdapterShape = field(default_factory=AdapterShape)
    max_sequence_tokens: int = 2_048
    checkpoint_every_steps: int = 25
    dev_every_steps: int = 50
    seed: int = 0

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        rising = max(1, round(self.steps * self.warmup))
        if step < rising:
            return self.learning_rate * (step + 1) / rising
        share = (step - rising) / max(1, self.steps - rising)
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * share))


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One training: conversations to draw, and how to learn from them.

    `openings` is the share (0..1) of conversations that end before the model first puts results
    into words (`sequence.opening`).
    """

    count: int
    data_seed: int
    dev_share: float
    openings: float = 0.0
    tuning: TuneSettings = field(default_factory=TuneSettings)


_SHAPE = AdapterShape(rank=32, alpha=64)

FROM_NOTHING = TuneSettings(steps=800, learning_rate=1e-3, adapter=_SHAPE)
"""What `lhkit tune train` does where nothing else is said."""

RECIPE = (
    Round(
        count=6_000,
        data_seed=11,
        dev_share=0.008,
        openings=0.25,
        tuning=TuneSettings(steps=640, learning_rate=1e-3, decisive_weight=2.0, adapter=_SHAPE),
    ),
    Round(
        count=4_000,
        data_seed=14,
        dev_share=0.012,
        openings=0.4,
        tuning=TuneSettings(steps=330, learning_rate=6e-4, decisive_weight=4.0, adapter=_SHAPE),
    ),
    Round(
        count=4_000,
        data_seed=17,
        dev_share=0.012,
        openings=0.5,
        tuning=TuneSettings(steps=280, learning_rate=5e-4, decisive_weight=4.0, adapter=_SHAPE),
    ),
)
"""From the bare model to a life-helper adapter, each round from the one before (`make tune`).

First mostly whole conversations, so that it learns to put results into words; then more that end at
their first calls, and more weight on what decides. The shipped adapter had four other rounds: its
card has them.
"""
