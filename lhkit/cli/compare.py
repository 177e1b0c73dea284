"""`lhkit compare`: show whether run B is better than run A, pair by pair, and what flipped."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lhkit.cli.command import command
from lhkit.cli.console import wide_console
from lhkit.cli.options import Locale
from lhkit.harness.compare import compare
from lhkit.harness.report.terminal import comparison_view
from lhkit.harness.results import Run
from lhkit.locales import load_catalog
from lhkit.settings import Settings


@command("lhkit compare runs/before runs/after --locale en")
async def compare_runs(
    run_a: Annotated[Path, typer.Argument(metavar="RUN_A", help="The run to compare with.")],
    run_b: Annotated[Path, typer.Argument(metavar="RUN_B", help="The run in question.")],
    *,
    locale: Locale = None,
    settings: Settings,
) -> int:
    """Show what run b is against run a; return the exit code.

    Raises:
        RunError: one of the folders holds no run, or a broken one.
        UsageError: there is no such locale.
    """
    catalog = load_catalog(locale or settings.locale)
    comparison = compare(Run.load(run_a), Run.load(run_b))
    console: Console = wide_console()
    console.print(comparison_view(comparison, catalog), soft_wrap=True)
    return 0
