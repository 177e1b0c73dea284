"""How to train: the settings, and those of `lhkit tune data` and `train` where nothing is said.

The defaults of `TuneSettings` are for tests and notebooks. Numbers only: nothing heavy is imported
here, since the command line reads it.
"""

import math
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from lhkit.precision import Dtype

TrainingDevice: TypeAlias = Literal["cpu", "cuda"]
"""What `--device` takes."""


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
    as another. `dtype` is what the base model computes in; None: what this processor is quick in.
    The adapter is always learnt in fp32. `device` is where it all happens: the processor, or a
    graphics card by CUDA.

    With `minutes` a training ends after so many minutes of work, in one go or in several: the rate
    follows the time instead of the steps, of which there are at most `steps`. With `patience` it
    ends when so many measurements on the conversations kept apart were no better than the best
    one before them, and the adapter of the best one is kept.
    """

    steps: int = 300
    minutes: float | None = None
    patience: int = 0
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
    dtype: Dtype | None = None
    device: TrainingDevice = "cpu"

    def rate(self, step: int, spent_s: float = 0.0) -> float:
        """Return the learning rate of a step, counted from 0, before which work took `spent_s`."""
        if self.minutes is not None:
            return self._rate_at(self._share(step, spent_s))
        rising = max(1, round(self.steps * self.warmup))
        if step < rising:
            return self.learning_rate * (step + 1) / rising
        return self._falling((step - rising) / max(1, self.steps - rising))

    def _share(self, step: int, spent_s: float) -> float:
        """Return which part of the time is over after a step as long as those before."""
        step_s = spent_s / step if step else 0.0
        return (spent_s + step_s) / self.budget_s

    def _rate_at(self, share: float) -> float:
        if share < self.warmup:
            return self.learning_rate * max(share / self.warmup, _LEAST_RISE)
        return self._falling(min(1.0, (share - self.warmup) / (1 - self.warmup)))

    def _falling(self, share: float) -> float:
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * share))

    @property
    def budget_s(self) -> float:
        """Seconds of work after which a training ends."""
        return math.inf if self.minutes is None else 60 * self.minutes


_LEAST_RISE = 0.05
"""Share of the rate in the first step of a training by time: nobody knows yet what one takes."""

FROM_NOTHING = TuneSettings(steps=800, learning_rate=1e-3, adapter=AdapterShape(rank=32, alpha=64))
"""What `lhkit tune train` does where nothing else is said."""

KOREAN_SHARE = 0.6
"""Of the conversations of `lhkit tune data`: Korean is the harder one for a small model."""
