"""The training loop: seeded, resumable after a kill, honest about what it did.

Blocking on purpose: run it in a thread or a process of its own. The model side is `lora`, the
order of the data `batches`, what is on disk `checkpoint`.
"""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from lhkit.errors import TuningError
from lhkit.tuning import lora
from lhkit.tuning.batches import Batch, TokenSequence, fitting, make_batches, tokenised
from lhkit.tuning.checkpoint import Checkpoint, Progress, load_checkpoint, save_checkpoint
from lhkit.tuning.sequence import TrainingSequence, data_sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneSettings:
    """How to train. All of it is in the manifest; a resumed training must have the same.

    The learning rate warms up linearly over `warmup` of the steps and then falls to zero along a
    cosine. `batch_tokens` counts padded tokens after the common prefix.
    """

    steps: int = 300
    batch_tokens: int = 3_000
    learning_rate: float = 2e-4
    warmup: float = 0.05
    weight_decay: float = 0.0
    clip_norm: float = 1.0
    adapter: lora.AdapterShape = field(default_factory=lora.AdapterShape)
    max_sequence_tokens: int = 2_048
    checkpoint_every_steps: int = 25
    dev_every_steps: int = 25
    seed: int = 0

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        rising = max(1, round(self.steps * self.warmup))
        if step < rising:
            return self.learning_rate * (step + 1) / rising
        share = (step - rising) / max(1, self.steps - rising)
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * share))


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One row of the training log. Losses are nats per learnt token; None where not measured."""

    step: int
    loss: float
    learning_rate: float
    learnt_tokens: int
    seconds: float
    dev_loss: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """What to train on. `dev` measures only; `base` is a folder with model and tokenizer."""

    train: Sequence[TrainingSequence]
    dev: Sequence[TrainingSequence]
    base: Path


def train(
    material: Material,
    settings: TuneSettings,
    folder: Path,
    *,
    clock: Callable[[], float],
    progress: bool = True,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[Point, ...]:
    """Train an adapter into `folder`, or go on where an earlier call was stopped.

    Returns the whole log. The adapter lies in `folder/adapter` when all steps are done.

    Args:
        material: data and base model.
        settings: how to train.
        folder: checkpoints, log and adapter; made if it is not there.
        clock: monotonic seconds.
        progress: show a bar.
        stop: asked after each step; True saves a checkpoint and returns.

    Raises:
        TuningError: data or base cannot be used, or the folder holds another training.
        MissingPackageError: torch, transformers or peft is not installed.
    """
    lora.require_packages()
    encode = lora.encoder(material.base)
    rows = _usable(material.train, encode, settings)
    dev_rows = _usable(material.dev, encode, settings) if material.dev else []
    model = lora.with_adapter(lora.load_model(material.base), settings.adapter, seed=settings.seed)
    recipe = {
        "settings": asdict(settings),
        "data_sha256": data_sha256(material.train),
        "dev_sha256": data_sha256(material.dev),
        "base_sha256": lora.base_sha256(material.base),
    }
    work = _Work(
        model=model,
        settings=settings,
        clock=clock,
        dev=make_batches(dev_rows, batch_tokens=settings.batch_tokens, rng=_order("dev")),
        checkpoint=Checkpoint(folder=folder, recipe=recipe),
    )
    return work.run(rows, progress=progress, stop=stop)


def _usable(
    sequences: Sequence[TrainingSequence], encode: Any, settings: TuneSettings
) -> list[TokenSequence]:
    rows, too_long = fitting(
        (tokenised(each, encode) for each in sequences), settings.max_sequence_tokens
    )
    if not rows:
        raise TuningError(
            f"all {len(too_long)} conversations are longer than {settings.max_sequence_tokens} "
            "tokens: shorten them, or raise max_sequence_tokens"
        )
    return rows


def _epochs(rows: Sequence[TokenSequence], settings: TuneSettings) -> Iterator[Batch]:
    """Yield batches for ever; each epoch has its own order, the same in every run."""
    epoch = 0
    while True:
        rng = _order(f"{settings.seed}/{epoch}")
        yield from make_batches(rows, batch_tokens=settings.batch_tokens, rng=rng)
        epoch += 1


def _order(seed: str) -> random.Random:
    return random.Random(seed)  # noqa: S311 - the order of training data, no secret


@dataclass(slots=True, kw_only=True)
class _Work:
    model: Any
    settings: TuneSettings
    clock: Callable[[], float]
    dev: Sequence[Batch]
    checkpoint: Checkpoint
    log: list[Point] = field(default_factory=list)

    def run(
        self, rows: Sequence[TokenSequence], *, progress: bool, stop: Callable[[], bool]
    ) -> tuple[Point, ...]:
        optimizer = self._optimizer()
        begun = load_checkpoint(self.checkpoint, self.model, optimizer)
        self.log = [Point(**point) for point in begun.log]
        batches = _epochs(rows, self.settings)
        for _ in range(begun.step):
            next(batches)
        steps = self.settings.steps
        with tqdm(total=steps, initial=begun.step, unit="step", disable=not progress) as bar:
            for step in range(begun.step, steps):
                point = self._step(step, next(batches), optimizer)
                self.log.append(point)
                bar.set_postfix(loss=f"{point.loss:.3f}", dev=_shown(self.log))
                bar.update()
                is_last = stop() or step + 1 == steps
                if is_last or (step + 1) % self.settings.checkpoint_every_steps == 0:
                    self._save(step + 1, optimizer)
                if is_last and step + 1 < steps:
                    return tuple(self.log)
        self.model.save_pretrained(self.checkpoint.adapter)
        return tuple(self.log)

    def _optimizer(self) -> Any:
        import torch

        return torch.optim.AdamW(
            lora.trainable(self.model),
            lr=self.settings.learning_rate,
            weight_decay=self.settings.weight_decay,
        )

    def _step(self, step: int, batch: Batch, optimizer: Any) -> Point:
        import torch

        begun_s = self.clock()
        rate = self.settings.rate(step)
        for group in optimizer.param_groups:
            group["lr"] = rate
        self.model.train()
        total, count = lora.loss_of(self.model, batch)
        (total / count).backward()
        torch.nn.utils.clip_grad_norm_(lora.trainable(self.model), self.settings.clip_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return Point(
            step=step + 1,
            loss=float(total.detach()) / count,
            learning_rate=rate,
            learnt_tokens=count,
            seconds=self.clock() - begun_s,
            dev_loss=self._dev_loss(step + 1),
        )

    def _dev_loss(self, step: int) -> float | None:
        import torch

        is_due = step % self.settings.dev_every_steps == 0 or step == self.settings.steps
        if not self.dev or not is_due:
            return None
        self.model.eval()
        with torch.no_grad():
            measured = [lora.loss_of(self.model, batch) for batch in self.dev]
        return sum(float(total) for total, _ in measured) / sum(count for _, count in measured)

    def _save(self, step: int, optimizer: Any) -> None:
        progress = Progress(step=step, log=[asdict(point) for point in self.log])
        save_checkpoint(self.checkpoint, self.model, optimizer, progress)


def _shown(log: Sequence[Point]) -> str:
    measured = [point.dev_loss for point in log if point.dev_loss is not None]
    return f"{measured[-1]:.3f}" if measured else "–"
