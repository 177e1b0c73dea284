"""`lhkit compare`: two runs as pairs, in one table and one sentence."""

from pathlib import Path

from rich.console import Console

from lhkit.cli.console import wide_console
from lhkit.harness.compare import compare
from lhkit.harness.report.terminal import comparison_view
from lhkit.harness.results import Run
from lhkit.locales import load_catalog
from lhkit.settings import Settings


async def compare_runs(
    folder_a: Path, folder_b: Path, settings: Settings, locale: str | None = None
) -> int:
    """Show what run b is against run a; return the exit code.

    Raises:
        RunError: one of the folders holds no run, or a broken one.
        UsageError: there is no such locale.
    """
    catalog = load_catalog(locale or settings.locale)
    comparison = compare(Run.load(folder_a), Run.load(folder_b))
    console: Console = wide_console()
    console.print(comparison_view(comparison, catalog), soft_wrap=True)
    return 0
