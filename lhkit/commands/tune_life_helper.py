"""`lhkit tune life-helper` (`make tune`): the shipped adapter again, from nothing to the end."""

from pathlib import Path

from lhkit.commands.tune import DataOptions, TrainOptions, make_data, train_adapter
from lhkit.settings import Settings
from lhkit.tuning.recipe import RECIPE, Recipe


async def tune_life_helper(
    into: Path,
    settings: Settings,
    *,
    recipe: Recipe = RECIPE,
    base: Path | None = None,
    progress: bool = True,
) -> int:
    """Make the data unless it is there, then train or go on; return the exit code.

    Args:
        into: folder of data, checkpoints and adapter.
        settings: of this process.
        recipe: what to draw and how to learn it.
        base: folder of the base model; None is the embedded Gemma.
        progress: show bars.

    Raises:
        TuningError: memory or disk are too small, or the folder holds another training.
        SetupError: packages or weights are missing.
    """
    data = into / f"train-{recipe.count}-{recipe.data_seed}.jsonl"
    if not data.exists():
        drawn = DataOptions(
            out=data, count=recipe.count, seed=recipe.data_seed, dev_share=recipe.dev_share
        )
        await make_data(drawn, settings, progress=progress)
    learning = TrainOptions(data=data, into=into, base=base, tuning=recipe.tuning)
    return await train_adapter(learning, settings, progress=progress)
