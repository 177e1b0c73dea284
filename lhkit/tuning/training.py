"""The training loop: seeded, resumable after a kill, honest about what it did.

Blocking on purpose: run it in a thread or a process of its own. The model side is `lora`, the
order of the data `batches`, what is on disk `checkpoint`, what it takes `needs`.
"""

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from lhkit.errors import TuningError
from lhkit.tuning import curves, lora, needs
from lhkit.tuning.batches import Batch, TokenSequence, fitting, make_batches, tokenised
from lhkit.tuning.checkpoint import (
    Checkpoint,
    Progress,
    as_json,
    finished_log,
    load_checkpoint,
    save_checkpoint,
    stored,
    write_text,
)
from lhkit.tuning.manifest import MANIFEST, Origin, data_facts, manifest_of
from lhkit.tuning.marks import require_marks
from lhkit.tuning.material import Material, recipe_of, require_start
from lhkit.tuning.recipe import TuneSettings
from lhkit.tuning.surroundings import BrokenCheckpoint, LeftOut, Surroundings


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One row of the training log. Losses are nats per learnt token; None where not measured.

    Each token counts alike in them, whatever it weighed in the step.
    """

    step: int
    loss: float
    learning_rate: float
    learnt_tokens: int
    seconds: float
    dev_loss: float | None = None


def train(
    material: Material,
    settings: TuneSettings,
    folder: Path,
    *,
    clock: Callable[[], float],
    progress: bool = True,
    stop: Callable[[], bool] = lambda: False,
    surroundings: Surroundings | None = None,
) -> tuple[Point, ...]:
    """Train an adapter into `folder`, or go on where an earlier call was stopped.

    Returns the whole log. With each checkpoint come `manifest.json`, `curves.svg` and
    `curves.png`; the adapter lies in `folder/adapter` when all steps are done. A training that is
    over is not done again.

    Args:
        material: data and base model.
        settings: how to train.
        folder: checkpoints, log and adapter; made if it is not there.
        clock: monotonic seconds.
        progress: show a bar.
        stop: asked after each step; True saves a checkpoint and returns.
        surroundings: machine, language and who is told.

    Raises:
        TuningError: data or base cannot be used, memory or disk are too small, or the folder holds
            another training.
        MissingPackageError: a package of the extra `tune` is not installed.
    """
    lora.require_packages()
    curves.require_packages()
    around = surroundings or Surroundings()
    machine = around.machine or needs.this_machine(folder)
    shape = needs.base_shape(material.base)
    require_start(material)
    checkpoint = Checkpoint(folder=folder, recipe=recipe_of(material, settings))
    if done := finished_log(checkpoint, settings.steps):
        return tuple(Point(**row) for row in done)
    needs.require_room(shape, rank=settings.adapter.rank, folder=folder, machine=machine)
    rows, dev, origin = _read(material, settings, shape, checkpoint, around)
    memory_bytes = needs.require_memory(
        shape,
        make_batches(rows, batch_tokens=settings.batch_tokens, rng=_order(f"{settings.seed}/0")),
        batch_tokens=settings.batch_tokens,
        rank=settings.adapter.rank,
        machine=machine,
    )
    model = lora.with_adapter(
        lora.load_model(material.base),
        settings.adapter,
        seed=settings.seed,
        start=material.start,
    )
    work = _Work(
        model=model,
        settings=settings,
        clock=clock,
        dev=make_batches(dev, batch_tokens=settings.batch_tokens, rng=_order("dev")),
        checkpoint=checkpoint,
        origin=origin,
        around=around,
        memory_bytes=memory_bytes,
    )
    return work.run(rows, progress=progress, stop=stop)


def _read(
    material: Material,
    settings: TuneSettings,
    shape: needs.BaseShape,
    checkpoint: Checkpoint,
    around: Surroundings,
) -> tuple[list[TokenSequence], list[TokenSequence], Origin]:
    """Return the rows to learn, the rows to measure with, and where they come from."""
    encode = lora.encoder(material.base)
    require_marks((*material.train, *material.dev), encode, material.base / "tokenizer.json")
    most = settings.max_sequence_tokens
    rows, too_long = fitting((tokenised(each, encode) for each in material.train), most)
    dev, dev_too_long = fitting((tokenised(each, encode) for each in material.dev), most)
    if not rows:
        raise TuningError(
            f"all {len(too_long)} conversations are longer than {most} tokens: describe the tools "
            "in fewer words, or cut the conversations with `lhkit tune data --openings 1`"
        )
    highest = max(max(each.token_ids) for each in (*rows, *dev))
    if highest >= shape.vocabulary:
        raise TuningError(
            f"{material.base}: its tokenizer gives token {highest} and its model knows "
            f"{shape.vocabulary}: put the model's own tokenizer.json there"
        )
    if too_long or dev_too_long:
        around.notify(LeftOut(count=len(too_long) + len(dev_too_long), most_tokens=most))
    origin = Origin(
        recipe=checkpoint.recipe,
        base_name=material.base.name,
        data=data_facts(material.train, left_out=len(too_long)),
        dev=data_facts(material.dev, left_out=len(dev_too_long)),
        machine=around.facts,
    )
    return rows, dev, origin


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
    origin: Origin
    around: Surroundings
    memory_bytes: int
    log: list[Point] = field(default_factory=list)

    def run(
        self, rows: Sequence[TokenSequence], *, progress: bool, stop: Callable[[], bool]
    ) -> tuple[Point, ...]:
        optimizer = self._optimizer()
        begun = load_checkpoint(self.checkpoint, self.model, optimizer)
        self.log = [Point(**point) for point in begun.log]
        if begun.broken:
            self.around.notify(BrokenCheckpoint(path=begun.broken, step=begun.step))
        batches = _epochs(rows, self.settings)
        for _ in range(begun.step):
            next(batches)
        steps = self.settings.steps
        with tqdm(total=steps, initial=begun.step, unit="step", disable=not progress) as bar:
            for step in range(begun.step, steps):
                point = self._step(step, next(batches), optimizer)
                self.log.append(point)
                needs.give_back_memory(self.memory_bytes)
                bar.set_postfix(loss=f"{point.loss:.3f}", dev=_shown(self.log))
                bar.update()
                is_last = stop() or step + 1 == steps
                if is_last or (step + 1) % self.settings.checkpoint_every_steps == 0:
                    self._save(step + 1, optimizer)
                if is_last and step + 1 < steps:
                    return tuple(self.log)
        self._show()
        self._finish()
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
        losses = lora.token_losses(self.model, batch)
        weight = self.settings.decisive_weight
        lora.weighted_mean(losses, batch, decisive_weight=weight).backward()
        torch.nn.utils.clip_grad_norm_(lora.trainable(self.model), self.settings.clip_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return Point(
            step=step + 1,
            loss=float(losses.detach().mean()),
            learning_rate=rate,
            learnt_tokens=len(losses),
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
        if step < self.settings.steps:
            self._show()

    def _show(self) -> None:
        """Write what people look at: the manifest and the curves."""
        folder = self.checkpoint.folder
        rows = [asdict(point) for point in self.log]
        manifest = manifest_of(self.origin, rows, peak_memory_bytes=needs.peak_memory_bytes())

        def write() -> None:
            write_text(folder / MANIFEST, as_json(manifest))
            curves.save_curves(folder, rows, locale=self.around.locale)

        stored(folder, write)

    def _finish(self) -> None:
        """Put the adapter in its place, with manifest and curves: a folder that stands alone."""
        folder, target = self.checkpoint.folder, self.checkpoint.adapter
        partial = target.with_name(f".{target.name}.new")

        def write() -> None:
            for leftover in (partial, target):
                shutil.rmtree(leftover, ignore_errors=True)
            lora.save_adapter(self.model, partial, base_name=self.origin.base_name)
            for name in (MANIFEST, f"{curves.CURVES}.svg"):
                shutil.copyfile(folder / name, partial / name)
            partial.rename(target)

        stored(folder, write)


def _shown(log: Sequence[Point]) -> str:
    measured = [point.dev_loss for point in log if point.dev_loss is not None]
    return f"{measured[-1]:.3f}" if measured else "–"
