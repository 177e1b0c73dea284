"""`lhkit data-check`: everything the shipped scenarios promise, checked, in one table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lhkit import app
from lhkit.commands.mutate import SURVIVORS
from lhkit.harness.authoring.data_check import Check, Requirements, check_data
from lhkit.harness.authoring.mutate import read_survivors
from lhkit.harness.scenarios.scenario import read_sources
from lhkit.locales import Catalog, load_catalog
from lhkit.settings import Settings
from lhkit.vocab.printable import printable

EXIT_UNFIT = 1
_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class DataCheckOptions:
    """What the user asked for. `folder` holds a folder for each split; the shipped by default."""

    folder: Path | None = None
    requirements: Requirements
    warnings: bool = False


async def data_check(
    options: DataCheckOptions, settings: Settings, clock: Callable[[], float]
) -> int:
    """Check, show the table and the faults, return the exit code.

    Raises:
        ScenarioError: the folder or the list of survivors cannot be read.
    """
    started_s = clock()
    folder = options.folder or app.scenario_folder()
    checks = await check_data(
        read_sources([folder]),
        app.LifeHelperEnvironment(),
        known=read_survivors(folder / SURVIVORS),
        requirements=options.requirements,
    )
    catalog = load_catalog(settings.locale)
    console = Console()
    console.print(_table(checks, catalog))
    for check in checks:
        _tell(check.faults, "red", console, catalog)
        if options.warnings:
            _tell(check.warnings, "yellow", console, catalog)
    console.print(catalog.text("data_check.took", seconds=clock() - started_s))
    return 0 if all(check.ok for check in checks) else EXIT_UNFIT


def _table(checks: Sequence[Check], catalog: Catalog) -> Table:
    table = Table(title=catalog.text("data_check.title"), title_justify="left")
    for name in ("check", "figure", "result"):
        table.add_column(catalog.text(f"data_check.{name}"))
    for check in checks:
        key, style = ("good", "green") if check.ok else ("bad", "red")
        result = Text(catalog.text(f"data_check.{key}"), style=style)
        table.add_row(catalog.text(f"data_check.of.{check.name}"), check.figure, result)
    return table


def _tell(lines: Sequence[str], style: str, console: Console, catalog: Catalog) -> None:
    for line in lines[:_SHOWN]:
        console.print(Text(f"  {printable(line)}", style=style), soft_wrap=True)
    if len(lines) > _SHOWN:
        console.print(f"  {catalog.text('data_check.more', count=len(lines) - _SHOWN)}")
