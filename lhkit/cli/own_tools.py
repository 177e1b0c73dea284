"""`lhkit tune init`: the phrase file for tools of one's own."""

from pathlib import Path
from typing import Annotated

import typer

from lhkit.cli.finish import Run, finish
from lhkit.cli.options import LOCALES

_SHAPE = "FILE.py:NAME"

ToolEnvironment = Annotated[
    str | None,
    typer.Option(metavar=_SHAPE, help="Tools of your own; package.module:NAME works too."),
]


def add_init(tune: typer.Typer, run: Run) -> None:
    """Add `lhkit tune init`."""

    @tune.command("init")
    def init_(
        environment: Annotated[
            str, typer.Option(metavar=_SHAPE, help="Your tools; package.module:NAME works too.")
        ],
        out: Annotated[
            Path, typer.Option(dir_okay=False, help="File to write, such as phrases.yaml.")
        ],
        locale: Annotated[
            str | None,
            typer.Option(help=f"{LOCALES}. Default: each that your tools open in."),
        ] = None,
    ) -> None:
        """Write a phrase file for tools of your own: fill in its TODOs."""
        from lhkit.commands.tune_own import InitOptions, write_skeleton  # noqa: PLC0415 - scipy

        options = InitOptions(environment=environment, out=out, locale=locale)
        finish(run, lambda settings: write_skeleton(options, settings))
