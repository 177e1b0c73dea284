"""`compare` and `rescore`: options of the commands that look at runs which are over."""

from pathlib import Path
from typing import Annotated

import typer

from lhkit.cli.finish import Run, finish
from lhkit.cli.options import Environment, Locale, Paths


def add_compare(cli: typer.Typer, run: Run) -> None:
    """Add `lhkit compare`."""

    @cli.command("compare")
    def compare_(
        run_a: Annotated[Path, typer.Argument(metavar="RUN_A", help="The run to compare with.")],
        run_b: Annotated[Path, typer.Argument(metavar="RUN_B", help="The run in question.")],
        locale: Locale = None,
    ) -> None:
        """Show whether run B is better than run A, pair by pair, and what flipped."""
        from lhkit.commands.compare import compare_runs  # noqa: PLC0415 - scipy

        finish(run, lambda settings: compare_runs(run_a, run_b, settings, locale))


def add_rescore(cli: typer.Typer, run: Run) -> None:
    """Add `lhkit rescore`."""

    @cli.command("rescore")
    def rescore_(
        folder: Annotated[Path, typer.Argument(metavar="RUN", help="Folder such as runs/NAME.")],
        paths: Paths = None,
        environment: Environment = None,
        into: Annotated[
            Path | None,
            typer.Option(file_okay=False, help="Folder of the result; RUN-rescored by default."),
        ] = None,
    ) -> None:
        """Score the records of a run again with today's scorers and scenarios, without a model."""
        from lhkit.commands.rescore import rescore_run  # noqa: PLC0415 - scipy

        files = tuple(paths or ())
        finish(run, lambda settings: rescore_run(folder, files, into, settings, environment))
