"""`matrix`: options of the command that plays a suite."""

from pathlib import Path
from typing import Annotated

import typer

from lhkit.cli.finish import Run, finish
from lhkit.cli.options import RunsDir


def add_matrix(cli: typer.Typer, run: Run) -> None:
    """Add `lhkit matrix`."""

    @cli.command("matrix")
    def matrix_(
        suite: Annotated[Path, typer.Argument(help="A suite such as evals/constraints.toml.")],
        runs_dir: RunsDir = Path("runs"),
    ) -> None:
        """Play what is missing of a suite's arms and draw one table."""
        from lhkit.commands.matrix import MatrixOptions, run_matrix  # noqa: PLC0415 - scipy

        options = MatrixOptions(suite=suite, runs_dir=runs_dir)
        finish(run, lambda settings: run_matrix(options, settings))
