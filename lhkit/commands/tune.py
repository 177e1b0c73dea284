"""`lhkit tune …`: training data as files, an adapter from them, and the model with it merged in."""

import asyncio
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text
from tqdm.auto import tqdm

from lhkit import app
from lhkit.commands.progress import setup_progress
from lhkit.errors import UsageError
from lhkit.harness.replay.environment import Environment
from lhkit.locales import load_catalog
from lhkit.models.weights import ensure_weights
from lhkit.settings import Settings, hardware
from lhkit.tuning.expert import Conversation
from lhkit.tuning.life_helper.conversations import KOREAN_SHARE, conversations
from lhkit.tuning.material import Material
from lhkit.tuning.merge import merge, require_adapter, require_base, require_mergeable
from lhkit.tuning.recipe import TuneSettings
from lhkit.tuning.sequence import (
    TrainingSequence,
    data_sha256,
    opening,
    read_sequences,
    write_sequences,
)
from lhkit.tuning.simulation import simulate
from lhkit.tuning.surroundings import BrokenCheckpoint, LeftOut, Notice, Surroundings
from lhkit.tuning.training import Point, train
from lhkit.vocab.printable import printable

_AT_A_TIME = 500
"""Conversations played in one go: their records are all in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOptions:
    """What the user asked for. Beside `out` lies its dev file (`dev_path`).

    `openings` is the share (0..1) of the conversations to learn from that are cut before the model
    first puts results into words (`sequence.opening`): shorter, so that a step holds more of them.
    """

    out: Path
    count: int = 6_000
    seed: int = 0
    dev_share: float = 0.05
    korean_share: float = KOREAN_SHARE
    openings: float = 0.0


def dev_path(out: Path) -> Path:
    """Return where the conversations for measuring lie: `train.jsonl` has `train.dev.jsonl`."""
    return out.with_suffix(f".dev{out.suffix}")


async def make_data(options: DataOptions, settings: Settings, *, progress: bool = True) -> int:
    """Play life-helper's conversations and write them; return the exit code.

    Raises:
        UsageError: shares or a number that cannot be.
        TuningError: a conversation could not be played.
    """
    told = conversations(
        options.count,
        seed=options.seed,
        locale_share=options.korean_share,
    )
    await write_played(
        told, app.LifeHelperEnvironment(), options, settings, count=options.count, progress=progress
    )
    return 0


async def write_played(
    told: Iterator[Conversation],
    environment: Environment,
    options: DataOptions,
    settings: Settings,
    *,
    count: int,
    progress: bool,
) -> None:
    """Play `count` conversations, write them and say so.

    The dev file holds no text that the training file holds, too; without a text there is none.

    Raises:
        UsageError: nothing is left to learn from.
        TuningError: a conversation could not be played.
    """
    dev_count = round(count * options.dev_share)
    if not count - dev_count > 0:
        raise UsageError("nothing is left to learn from: raise --count or lower --dev-share")
    with tqdm(total=count, unit="conversation", disable=not progress) as bar:
        learnt = await _played(islice(told, count - dev_count), environment, bar)
        dev = await _played(told, environment, bar)
    known = {sequence.text for sequence in learnt}
    fresh = [sequence for sequence in dev if sequence.text not in known]
    learnt = _cut(learnt, options)
    dev_path(options.out).unlink(missing_ok=True)
    if fresh:
        write_sequences(dev_path(options.out), fresh)
    write_sequences(options.out, learnt)  # last: where it is, the dev file is too
    _show(options, learnt, fresh, settings)


def _cut(learnt: Sequence[TrainingSequence], options: DataOptions) -> list[TrainingSequence]:
    rng = random.Random(f"openings/{options.seed}")  # noqa: S311 - training data, no secret
    return [opening(each) if rng.random() < options.openings else each for each in learnt]


async def _played(
    told: Iterator[Conversation], environment: Environment, bar: Any
) -> list[TrainingSequence]:
    sequences: list[TrainingSequence] = []
    while chunk := tuple(islice(told, _AT_A_TIME)):
        sequences += await simulate(chunk, environment, progress=False)
        bar.update(len(chunk))
    return sequences


def _show(
    options: DataOptions,
    learnt: Sequence[TrainingSequence],
    dev: Sequence[TrainingSequence],
    settings: Settings,
) -> None:
    locales = Counter(sequence.group for sequence in learnt)
    text = load_catalog(settings.locale).text(
        "tune.data",
        train=len(learnt),
        dev=len(dev),
        kinds=len({sequence.kind for sequence in learnt}),
        locales=", ".join(f"{name} {count}" for name, count in sorted(locales.items())),
        out=options.out,
        dev_out=dev_path(options.out),
        sha256=data_sha256(learnt)[:12],
    )
    _tell(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """What to train on, where to, and how. `base` None is the embedded Gemma, `start` afresh."""

    data: Path
    into: Path
    base: Path | None = None
    start: Path | None = None
    tuning: TuneSettings = field(default_factory=TuneSettings)


async def train_adapter(options: TrainOptions, settings: Settings, *, progress: bool = True) -> int:
    """Train an adapter, or go on where it was stopped; return the exit code.

    Interrupting saves a checkpoint after the step at work, so that nothing is lost; that is told.
    After the last step there is nothing to go on with: then the adapter is told.

    Raises:
        TuningError: data, base model or checkpoint cannot be used.
        SetupError: packages or weights are missing.
    """
    if options.start is not None:
        require_adapter(options.start)
    if options.base is not None:
        require_base(options.base)
    learnt, dev = read_sequences(options.data), dev_path(options.data)
    measured = read_sequences(dev) if dev.exists() else ()
    base = options.base or await _embedded(settings)  # may take minutes: the data are read already
    material = Material(train=learnt, dev=measured, base=base, start=options.start)
    stop = threading.Event()
    work = asyncio.create_task(
        asyncio.to_thread(
            train,
            material,
            options.tuning,
            options.into,
            clock=time.perf_counter,
            progress=progress,
            stop=stop.is_set,
            surroundings=Surroundings(
                facts=hardware(), locale=settings.locale, notify=_teller(settings)
            ),
        )
    )
    try:
        log = await asyncio.shield(work)
    except asyncio.CancelledError:
        stop.set()
        text = load_catalog(settings.locale).text
        with tqdm.external_write_mode(file=sys.stderr):  # the bar steps aside
            _tell(text("tune.stopping"), to_stderr=True)
        log = await work
        if len(log) == options.tuning.steps:  # it was the last step: nothing is left to go on with
            _show_training(log, options, settings)
        else:
            _tell(text("tune.stopped", step=len(log)), to_stderr=True)
        raise
    _show_training(log, options, settings)
    return 0


async def merge_adapter(adapter: Path, into: Path, base: Path | None, settings: Settings) -> int:
    """Write the base model with the adapter merged into it; return the exit code.

    Raises:
        TuningError: the adapter does not fit, or the target is there already.
        SetupError: packages or weights are missing.
    """
    require_mergeable(adapter, into)
    if base is not None:
        require_base(base)
    await asyncio.to_thread(merge, base or await _embedded(settings), adapter, into)
    text = load_catalog(settings.locale).text("tune.merged", folder=into)
    _tell(text)
    return 0


async def _embedded(settings: Settings) -> Path:
    with setup_progress() as reports:
        return await ensure_weights(settings.cache_dir, report=reports.weights)


def _teller(settings: Settings) -> Callable[[Notice], None]:
    text = load_catalog(settings.locale).text

    def tell(notice: Notice) -> None:
        match notice:
            case LeftOut():
                told = text("tune.left_out", count=notice.count, most=notice.most_tokens)
            case BrokenCheckpoint():
                told = text("tune.broken", path=notice.path, step=notice.step)
        _tell(told, to_stderr=True)

    return tell


def _show_training(log: Sequence[Point], options: TrainOptions, settings: Settings) -> None:
    measured = [point.dev_loss for point in log if point.dev_loss is not None]
    adapter = options.into / "adapter"
    text = load_catalog(settings.locale).text
    trained = text(
        "tune.trained",
        steps=len(log),
        loss=f"{log[-1].loss:.3f}",
        dev=f"{measured[-1]:.3f}" if measured else "–",
        adapter=adapter,
    )
    following = text("tune.next", adapter=adapter, folder=options.into / "merged")
    for line in (trained, following):
        _tell(line)


def _tell(text: str, *, to_stderr: bool = False) -> None:
    """Print what may hold a path: no markup and no control characters of it take effect."""
    line = Text(printable(text))
    Console(stderr=to_stderr).print(line, soft_wrap=True, highlight=False)
