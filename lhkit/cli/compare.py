"""`lhkit compare`: compare runs pair by pair."""

from pathlib import Path
from typing import Annotated

import typer

from lhkit.base.errors import UsageError
from lhkit.base.locales import load_catalog
from lhkit.cli.frame.command import Options, command
from lhkit.cli.frame.console import is_interactive, print_lines, wide_console
from lhkit.cli.frame.exit_codes import ExitCode
from lhkit.cli.frame.options import Locale, MaxRegressions, ThresholdOptions, require_percent
from lhkit.cli.frame.thresholds import check_baseline
from lhkit.harness.report.terminal import comparison_view, matrix_view
from lhkit.harness.results.compare import compare
from lhkit.harness.results.results import Run
from lhkit.harness.views.tables import comparison_sentence
from lhkit.settings import Settings


class CompareOptions(Options):
    """Options of `lhkit compare`."""

    run_a: Annotated[Path, typer.Argument(metavar="RUN_A", help="Baseline run.")]
    run_b: Annotated[Path, typer.Argument(metavar="RUN_B", help="Run to compare with it.")]
    more: Annotated[tuple[Path, ...], typer.Argument(metavar="RUN_C", help="Further runs.")] = ()
    margin: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=100,
            metavar="POINTS",
            help="Exit with 1 if run B is worse by more than these points, and with 4 if that "
            "cannot be decided.",
        ),
    ] = None
    max_regressions: MaxRegressions = None
    locale: Locale = None


@command(
    "lhkit compare runs/before runs/after --locale en",
    "lhkit compare runs/before runs/after --max-regressions 0",
    "lhkit compare runs/full runs/quantised --margin 3",
    "lhkit compare runs/a runs/b runs/c",
)
async def compare_runs(options: CompareOptions, settings: Settings) -> int:
    """Show the comparison of run B with run A, or of several runs; return the exit code.

    Raises:
        RunError: a folder has no run, or an invalid one.
        UsageError: the locale does not exist, or a margin is invalid or given for several runs.
    """
    catalog, console = load_catalog(options.locale or settings.locale), wide_console()
    require_percent(options.margin, "--margin")
    limits = ThresholdOptions(margin=options.margin, max_regressions=options.max_regressions)
    if options.more:
        if limits.has_limits:
            name = "margin" if options.margin is not None else "max-regressions"
            raise UsageError(f"--{name} compares two runs: give RUN_A and RUN_B only")
        folders = (options.run_a, options.run_b, *options.more)
        runs = [Run.load(folder) for folder in folders]
        is_unique = len({run.name for run in runs}) == len(runs)
        names = [run.name if is_unique else str(run.folder) for run in runs]
        console.print(matrix_view(list(zip(names, runs, strict=True)), catalog))
        return ExitCode.OK
    run_a, run_b = Run.load(options.run_a), Run.load(options.run_b)
    comparison = compare(run_a, run_b, margin=options.margin)
    # regressions decide even where the paired test could not
    has_outcome = limits.max_regressions is None or not comparison.is_powerless
    is_whole = not is_interactive(console)  # a log keeps every reason
    view = comparison_view(comparison, catalog, has_outcome=has_outcome, is_whole=is_whole)
    console.print(view, soft_wrap=True)
    if not limits.has_limits:
        return ExitCode.OK
    result = check_baseline(run_b, run_a, limits, catalog)
    shown = comparison_sentence(comparison, catalog)
    lines = (*result.remarks, *result.findings)
    print_lines((line for line in lines if line != shown or not has_outcome), console)
    return result.exit_code
