"""What the commands of `lhkit tune` are asked for, as `options` has it for the others."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from lhkit.commands.options import LOCALES, MOST, SHAPE, Dtype, OtherToolset
from lhkit.tuning.recipe import (
    FROM_NOTHING,
    KOREAN_SHARE,
    AdapterShape,
    TrainingDevice,
    TuneSettings,
)

MOST_SEED = 2**32
MOST_RANK = 1_024  # beyond the width of the embedded model an adapter is no smaller than it


def _adapter(named: str) -> Path:
    from lhkit.models.weights import SHIPPED_ADAPTER

    return SHIPPED_ADAPTER if named == "life-helper" else Path(named)


OwnToolset = Annotated[
    str, typer.Option(metavar=SHAPE, help="Your tools; package.module:NAME works too.")
]
ApartFrom = Annotated[
    tuple[Path, ...],
    typer.Option(
        metavar="SCENARIOS",
        help="File or folder of scenarios: conversations with a line that is nearly one of theirs "
        "are left out.",
    ),
]
Base = Annotated[
    Path | None,
    typer.Option(file_okay=False, help="Folder of the base model. Default: the embedded Gemma."),
]
BatchTokens = Annotated[
    int, typer.Option(min=1, max=MOST, help="Tokens of a step after the common prefix.")
]
DecisiveWeight = Annotated[
    float,
    typer.Option(
        min=0,
        max=MOST,
        help="How much tools, arguments and the kind of an answer count in the loss.",
    ),
]
Openings = Annotated[
    float,
    typer.Option(
        min=0,
        max=1,
        help="Share of conversations that end at their first calls: many short ones.",
    ),
]
MadeUpNames = Annotated[
    float,
    typer.Option(
        min=0,
        max=1,
        help="Share of the conversations of a phrase file in which names are made up, so that what "
        "is said gets copied and not remembered.",
    ),
]
Minutes = Annotated[
    float | None,
    typer.Option(
        min=0.01,
        max=MOST,
        help="Minutes of work, in one go or in several; the learning rate falls with them.",
    ),
]
Patience = Annotated[
    int,
    typer.Option(
        min=0,
        max=MOST,
        help="End after so many measurements on FILE.dev.jsonl without a better one; keep the "
        "best. 0: never.",
    ),
]
KeepEvery = Annotated[
    float | None,
    typer.Option(
        "--keep-every",
        min=0.01,
        max=MOST,
        help="Keep the adapter every so many minutes of work, in FOLDER/kept: to score it later.",
    ),
]
Rank = Annotated[int, typer.Option(min=1, max=MOST_RANK, help="Rank of the adapter.")]
TrainOn = Annotated[
    TrainingDevice,
    typer.Option("--device", help="cpu, or cuda: a graphics card, where torch finds one."),
]
Start = Annotated[
    Path | None,
    typer.Option(
        "--from",
        parser=_adapter,
        metavar="<str>",
        help="Adapter to go on from: a folder, or life-helper.",
    ),
]


_DEV_SHARE = 0.05
_MEASURED_WITH = 60
"""Conversations of `tune run` at most: with 300 a fifth of its minutes went to measuring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InitOptions:
    """Where `lhkit tune init` writes phrases to fill in, and for which tools.

    `locale` None means every language that the toolset opens.
    """

    toolset: OwnToolset
    out: Annotated[Path, typer.Option(dir_okay=False, help="File to write, such as phrases.yaml.")]
    locale: Annotated[
        str | None, typer.Option(help=f"{LOCALES}. Default: each that your tools open in.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOptions:
    """What `lhkit tune data` writes. Beside `out` lies its dev file (`dev_path`).

    The conversations are of `phrases`, of `conversations` (`FILE.py:NAME` or `package.module:NAME`
    of a `teacher.Author`), or `reviewed`: a file of `Review.to_training`, of which all are played,
    whatever `count` says. `openings` is the share (0..1) of the conversations to learn from that
    are cut before the model first puts results into words (`sequence.opening`): shorter, so that a
    step holds more of them. `apart` are files or folders of scenarios: what is said nearly as there
    is left out.
    """

    out: Annotated[
        Path, typer.Option(dir_okay=False, help="File to write, such as data/train.jsonl.")
    ]
    count: Annotated[int, typer.Option(min=1, max=MOST, help="Number of conversations.")] = 6_000
    seed: Annotated[
        int, typer.Option(min=0, max=MOST_SEED, help="Decides everything that is drawn.")
    ] = 0
    dev_share: Annotated[
        float, typer.Option(min=0, max=1, help="Share kept for measuring, in FILE.dev.jsonl.")
    ] = _DEV_SHARE
    korean_share: Annotated[
        float, typer.Option(min=0, max=1, help="Share of Korean conversations.")
    ] = KOREAN_SHARE
    openings: Openings = 0
    made_up_names: MadeUpNames = 0
    toolset: OtherToolset = None
    phrases: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="Phrase file for tools of your own, of `tune init`."),
    ] = None
    conversations: Annotated[
        str | None,
        typer.Option(
            metavar=SHAPE, help="Function that writes conversations, instead of a phrase file."
        ),
    ] = None
    reviewed: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="Conversations that were reviewed, all of them."),
    ] = None
    apart: ApartFrom = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowOptions:
    """Which conversations of `data` are shown: `count` of the chosen ones, from number `begin` on.

    `kind` and `locale` None mean all of them.
    """

    data: Annotated[Path, typer.Argument(dir_okay=False, help="File of `lhkit tune data`.")]
    kind: Annotated[
        str | None, typer.Option(help="Only those of one kind, such as follow_ups.")
    ] = None
    locale: Annotated[str | None, typer.Option(help=f"Only those in one language: {LOCALES}.")] = (
        None
    )
    begin: Annotated[
        int, typer.Option("--from", min=1, max=MOST, help="Number of the first to show.")
    ] = 1
    count: Annotated[int, typer.Option(min=1, max=MOST, help="How many to show.")] = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """What `lhkit tune train` trains on, where to, and how.

    `base` None is the embedded Gemma, `start` None afresh. `keep_every_minutes` of work an adapter
    is kept in `into/kept`. What is no option: `tuning`, which says all of how to train in place of
    the options about it, and `is_whole` where what comes afterwards is done by the same command,
    and need not be told.
    """

    data: Annotated[Path, typer.Argument(dir_okay=False, help="File of `lhkit tune data`.")]
    into: Annotated[
        Path, typer.Option(file_okay=False, help="Folder of checkpoints, log and adapter.")
    ]
    base: Base = None
    steps: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST,
            help=f"Training steps. Default: {FROM_NOTHING.steps}, or as --minutes allow.",
        ),
    ] = None
    batch_tokens: BatchTokens = FROM_NOTHING.batch_tokens
    learning_rate: Annotated[float, typer.Option(min=0, max=1, help="Highest rate.")] = (
        FROM_NOTHING.learning_rate
    )
    rank: Rank = FROM_NOTHING.adapter.rank
    decisive_weight: DecisiveWeight = FROM_NOTHING.decisive_weight
    seed: Annotated[
        int, typer.Option(min=0, max=MOST_SEED, help="Decides the order of the data.")
    ] = FROM_NOTHING.seed
    start: Start = None
    minutes: Minutes = None
    patience: Patience = 0
    keep_every_minutes: KeepEvery = None
    dtype: Dtype = None
    device: TrainOn = "cpu"
    tuning: TuneSettings | None = None
    is_whole: bool = False

    @property
    def recipe(self) -> TuneSettings:
        """How to train."""
        return self.tuning or replace(
            FROM_NOTHING,
            steps=self.steps or (FROM_NOTHING.steps if self.minutes is None else MOST),
            batch_tokens=self.batch_tokens,
            learning_rate=self.learning_rate,
            decisive_weight=self.decisive_weight,
            adapter=AdapterShape(rank=self.rank, alpha=2 * self.rank),
            seed=self.seed,
            minutes=self.minutes,
            patience=self.patience,
            device=self.device,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What `lhkit tune run` makes of phrases. Data, training and model lie in `into`.

    `scored_on` are scenarios that score the training while it goes on.
    `tuning` is as in `TrainOptions`.
    """

    toolset: OwnToolset
    phrases: Annotated[
        Path, typer.Option(dir_okay=False, help="Phrase file, of `lhkit tune init`.")
    ]
    into: Annotated[Path, typer.Option(file_okay=False, help="Folder of data, training and model.")]
    minutes: Minutes = 60
    count: Annotated[int, typer.Option(min=1, max=MOST, help="Number of conversations.")] = 4_000
    openings: Openings = 0
    made_up_names: MadeUpNames = 0
    batch_tokens: BatchTokens = FROM_NOTHING.batch_tokens
    rank: Rank = FROM_NOTHING.adapter.rank
    decisive_weight: DecisiveWeight = FROM_NOTHING.decisive_weight
    patience: Patience = 0
    seed: Annotated[
        int, typer.Option(min=0, max=MOST_SEED, help="Decides data and their order.")
    ] = FROM_NOTHING.seed
    base: Base = None
    start: Start = None
    apart: ApartFrom = ()
    keep_every_minutes: KeepEvery = None
    scored_on: Annotated[
        tuple[Path, ...],
        typer.Option(
            "--eval",
            metavar="SCENARIOS",
            help="File or folder of scenarios to score it on, by llama.cpp: at each --keep-every, "
            "at the end, and what it began from. Left out of the data as by --apart.",
        ),
    ] = ()
    dtype: Dtype = None
    device: TrainOn = "cpu"
    tuning: TuneSettings | None = None

    @property
    def recipe(self) -> TuneSettings:
        """How to train."""
        return self.tuning or replace(
            FROM_NOTHING,
            steps=MOST,
            minutes=self.minutes,
            batch_tokens=self.batch_tokens,
            decisive_weight=self.decisive_weight,
            adapter=AdapterShape(rank=self.rank, alpha=2 * self.rank),
            patience=self.patience,
            device=self.device,
            seed=self.seed,
        )

    @property
    def dev_share(self) -> float:
        """Share of the conversations that are kept for measuring, which takes from the minutes."""
        return min(_DEV_SHARE, _MEASURED_WITH / self.count)

    @property
    def data(self) -> Path:
        """The conversations to learn from."""
        return self.into / "data.jsonl"

    @property
    def model(self) -> Path:
        """The folder of the whole model."""
        return self.into / "model"
