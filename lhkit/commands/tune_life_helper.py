"""`lhkit tune life-helper` (`make tune`): an adapter for life-helper, from nothing to the end."""

from collections.abc import Sequence
from pathlib import Path

from lhkit.commands.tune import DataOptions, TrainOptions, make_data, train_adapter
from lhkit.settings import Settings
from lhkit.tuning.recipe import RECIPE, Round


async def tune_life_helper(
    into: Path,
    settings: Settings,
    *,
    recipe: Sequence[Round] = RECIPE,
    base: Path | None = None,
    progress: bool = True,
) -> int:
    """Make the data unless they are there, then train or go on; return the exit code.

    Args:
        into: gets a folder `round-1`, `round-2`, … of data, checkpoints and adapter each; the
            last adapter is the result.
        settings: of this process.
        recipe: rounds; each but the first goes on from the adapter of the one before.
        base: folder of the base model; None is the embedded Gemma.
        progress: show bars.

    Raises:
        TuningError: memory or disk are too small, or a folder holds another training.
        SetupError: packages or weights are missing.
    """
    start = None
    for number, each in enumerate(recipe, start=1):
        folder = into / f"round-{number}"
        await _train_round(
            each,
            TrainOptions(
                data=folder / f"train-{each.count}-{each.data_seed}.jsonl",
                into=folder,
                base=base,
                start=start,
                tuning=each.tuning,
            ),
            settings,
            progress=progress,
        )
        start = folder / "adapter"
    return 0


async def _train_round(
    drawn: Round, options: TrainOptions, settings: Settings, *, progress: bool
) -> None:
    if not options.data.exists():
        data = DataOptions(
            out=options.data,
            count=drawn.count,
            seed=drawn.data_seed,
            dev_share=drawn.dev_share,
            openings=drawn.openings,
        )
        await make_data(data, settings, progress=progress)
    await train_adapter(options, settings, progress=progress)
