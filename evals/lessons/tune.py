"""An adapter for life-helper, from nothing to the end: the lessons, then the training, in rounds.

    python -m evals.lessons.tune [--into runs/tune]

What is called is what anybody calls for tools of their own: `lhkit tune data --conversations`, then
`lhkit tune train`, each round from the adapter of the one before. Where it was stopped it goes on.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from lhkit.cli import finish
from lhkit.commands.tune import make_data, train_adapter
from lhkit.commands.tune_options import DataOptions, TrainOptions
from lhkit.settings import Settings
from lhkit.tuning.recipe import AdapterShape, TuneSettings

AUTHOR = "evals.lessons.conversations:conversations"


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

ROUNDS = (
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


async def tune(
    into: Path,
    settings: Settings,
    *,
    rounds: Sequence[Round] = ROUNDS,
    base: Path | None = None,
    progress: bool = True,
) -> int:
    """Make the data unless they are there, then train or go on; return the exit code.

    Args:
        into: gets a folder `round-1`, `round-2`, … of data, checkpoints and adapter each; the
            last adapter is the result.
        settings: of this process.
        rounds: each but the first goes on from the adapter of the one before.
        base: folder of the base model; None is the embedded Gemma.
        progress: show bars.

    Raises:
        TuningError: memory or disk are too small, or a folder holds another training.
        SetupError: packages or weights are missing.
    """
    start = None
    for number, each in enumerate(rounds, start=1):
        folder = into / f"round-{number}"
        options = TrainOptions(
            data=folder / f"train-{each.count}-{each.data_seed}.jsonl",
            into=folder,
            base=base,
            start=start,
            tuning=each.tuning,
        )
        if not options.data.exists():
            await write_lessons(each, options.data, settings, progress=progress)
        await train_adapter(options, settings, progress=progress)
        start = folder / "adapter"
    return 0


async def write_lessons(
    drawn: Round, out: Path, settings: Settings, *, progress: bool = True
) -> None:
    """Play the conversations of a round and write them to `out` and its dev file."""
    options = DataOptions(
        out=out,
        count=drawn.count,
        seed=drawn.data_seed,
        dev_share=drawn.dev_share,
        openings=drawn.openings,
        conversations=AUTHOR,
    )
    await make_data(options, settings, progress=progress)


def main(
    into: Annotated[
        Path, typer.Option(file_okay=False, help="Folder of data, checkpoints and adapter.")
    ] = Path("runs/tune"),
) -> None:
    """Train an adapter for life-helper from nothing: data, then training, round by round."""
    finish(asyncio.run, lambda settings: tune(into, settings))  # noqa: TID251 - a script's own loop


if __name__ == "__main__":
    typer.run(main)
