"""`lhkit compare`: compare two runs pair by pair."""

from pathlib import Path
from typing import Annotated

import typer

from lhkit.cli.command import Options, command
from lhkit.cli.console import wide_console
from lhkit.cli.exit_codes import ExitCode
from lhkit.cli.options import Locale
from lhkit.harness.compare import compare
from lhkit.harness.report.terminal import comparison_view
from lhkit.harness.results import Run
from lhkit.locales import load_catalog
from lhkit.settings import Settings


class CompareOptions(Options):
    """Options of `lhkit compare`."""

    run_a: Annotated[Path, typer.Argument(metavar="RUN_A", help="Baseline run.")]
    run_b: Annotated[Path, typer.Argument(metavar="RUN_B", help="Run to compare with it.")]
    locale: Locale = None


@command("lhkit compare runs/before runs/after --locale en")
async def compare_runs(options: CompareOptions, settings: Settings) -> int:
    """Show the comparison of run B with run A; return the exit code.

    Raises:
        RunError: a folder has no run, or an invalid one.
        UsageError: the locale does not exist.
    """
    catalog = load_catalog(options.locale or settings.locale)
    comparison = compare(Run.load(options.run_a), Run.load(options.run_b))
    wide_console().print(comparison_view(comparison, catalog), soft_wrap=True)
    return ExitCode.OK
