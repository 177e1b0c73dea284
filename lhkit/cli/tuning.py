"""`lhkit tune …`: data to learn a toolset from, training, merging."""

from pathlib import Path
from typing import Annotated

import typer

from lhkit.cli.finish import Run, finish
from lhkit.cli.options import MOST, MOST_SEED
from lhkit.cli.own_tools import ToolEnvironment, add_init
from lhkit.tuning.recipe import FROM_NOTHING, AdapterShape, TuneSettings

MOST_RANK = 1_024  # beyond the width of the embedded model an adapter is no smaller than it


def add_tune(cli: typer.Typer, run: Run) -> None:
    """Add `lhkit tune` with its commands."""
    tune = typer.Typer(help="Teach a small model the tools.", no_args_is_help=True)
    cli.add_typer(tune, name="tune")
    add_init(tune, run)
    _add_data(tune, run)
    _add_train(tune, run)
    _add_merge(tune, run)
    _add_life_helper(tune, run)


def _add_data(tune: typer.Typer, run: Run) -> None:
    @tune.command("data")
    def data_(
        out: Annotated[
            Path, typer.Option(dir_okay=False, help="File to write, such as data/train.jsonl.")
        ],
        count: Annotated[
            int, typer.Option(min=1, max=MOST, help="Number of conversations.")
        ] = 6_000,
        seed: Annotated[
            int, typer.Option(min=0, max=MOST_SEED, help="Decides everything that is drawn.")
        ] = 0,
        dev_share: Annotated[
            float, typer.Option(min=0, max=1, help="Share kept for measuring, in FILE.dev.jsonl.")
        ] = 0.05,
        korean_share: Annotated[
            float, typer.Option(min=0, max=1, help="Share of Korean conversations.")
        ] = 0.6,
        openings: Annotated[
            float,
            typer.Option(
                min=0,
                max=1,
                help="Share of conversations that end at their first calls: many short ones.",
            ),
        ] = 0,
        environment: ToolEnvironment = None,
        phrases: Annotated[
            Path | None,
            typer.Option(dir_okay=False, help="Phrase file for tools of your own, of `tune init`."),
        ] = None,
    ) -> None:
        """Play training conversations with real tools, by default life-helper's; write them."""
        from lhkit.commands.tune import DataOptions, make_data  # noqa: PLC0415 - scipy
        from lhkit.commands.tune_own import make_own_data  # noqa: PLC0415 - scipy

        options = DataOptions(
            out=out,
            count=count,
            seed=seed,
            dev_share=dev_share,
            korean_share=korean_share,
            openings=openings,
        )
        if environment is None and phrases is None:
            finish(run, lambda settings: make_data(options, settings))
        finish(run, lambda settings: make_own_data(options, environment, phrases, settings))


Base = Annotated[
    Path | None,
    typer.Option(file_okay=False, help="Folder of the base model. Default: the embedded Gemma."),
]


def _add_train(tune: typer.Typer, run: Run) -> None:
    @tune.command("train")
    def train_(
        data: Annotated[Path, typer.Argument(dir_okay=False, help="File of `lhkit tune data`.")],
        into: Annotated[
            Path, typer.Option(file_okay=False, help="Folder of checkpoints, log and adapter.")
        ],
        base: Base = None,
        steps: Annotated[
            int, typer.Option(min=1, max=MOST, help="Training steps.")
        ] = FROM_NOTHING.steps,
        batch_tokens: Annotated[
            int, typer.Option(min=1, max=MOST, help="Tokens of a step after the common prefix.")
        ] = FROM_NOTHING.batch_tokens,
        learning_rate: Annotated[
            float, typer.Option(min=0, max=1, help="Highest rate.")
        ] = FROM_NOTHING.learning_rate,
        rank: Annotated[
            int, typer.Option(min=1, max=MOST_RANK, help="Rank of the adapter.")
        ] = FROM_NOTHING.adapter.rank,
        decisive_weight: Annotated[
            float,
            typer.Option(
                min=0,
                max=MOST,
                help="How much tools, arguments and the kind of an answer count in the loss.",
            ),
        ] = FROM_NOTHING.decisive_weight,
        seed: Annotated[
            int, typer.Option(min=0, max=MOST_SEED, help="Decides the order of the data.")
        ] = FROM_NOTHING.seed,
        start: Annotated[
            str | None,
            typer.Option("--from", help="Adapter to go on from: a folder, or life-helper."),
        ] = None,
    ) -> None:
        """Train an adapter on the CPU. The same command again goes on where it was stopped."""
        from lhkit.commands.tune import TrainOptions, train_adapter  # noqa: PLC0415 - scipy
        from lhkit.tuning.tuned_weights import SHIPPED  # noqa: PLC0415 - aiohttp

        tuning = TuneSettings(
            steps=steps,
            batch_tokens=batch_tokens,
            learning_rate=learning_rate,
            decisive_weight=decisive_weight,
            adapter=AdapterShape(rank=rank, alpha=2 * rank),
            seed=seed,
        )
        begin = SHIPPED if start == "life-helper" else Path(start) if start else None
        options = TrainOptions(data=data, into=into, base=base, start=begin, tuning=tuning)
        finish(run, lambda settings: train_adapter(options, settings))


def _add_merge(tune: typer.Typer, run: Run) -> None:
    @tune.command("merge")
    def merge_(
        adapter: Annotated[
            Path, typer.Argument(file_okay=False, help="Folder such as FOLDER/adapter.")
        ],
        into: Annotated[
            Path, typer.Option(file_okay=False, help="Folder to write the whole model to.")
        ],
        base: Base = None,
    ) -> None:
        """Merge an adapter into its base model: a folder that any vLLM serves."""
        from lhkit.commands.tune import merge_adapter  # noqa: PLC0415 - scipy

        finish(run, lambda settings: merge_adapter(adapter, into, base, settings))


def _add_life_helper(tune: typer.Typer, run: Run) -> None:
    @tune.command("life-helper")
    def life_helper_(
        into: Annotated[
            Path, typer.Option(file_okay=False, help="Folder of data, checkpoints and adapter.")
        ] = Path("runs/tune"),
    ) -> None:
        """Train an adapter for life-helper from nothing: data, then training, by the recipe."""
        from lhkit.commands.tune_life_helper import tune_life_helper  # noqa: PLC0415 - scipy

        finish(run, lambda settings: tune_life_helper(into, settings))
