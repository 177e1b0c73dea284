"""`lhkit merge`: the runs of several drivers become one, which every other command reads."""

import asyncio
from pathlib import Path

from rich.text import Text

from lhkit.commands.console import wide_console
from lhkit.errors import UsageError
from lhkit.harness.html import criterion_words
from lhkit.harness.log import write_rescored
from lhkit.harness.merge import merged
from lhkit.harness.report.terminal import summary_table
from lhkit.harness.results import Run
from lhkit.locales import load_catalog
from lhkit.settings import Settings
from lhkit.text import printable
from lhkit.toolset import DEFAULT


async def merge_runs(folders: tuple[Path, ...], into: Path, settings: Settings) -> int:
    """Write one run of several; return the exit code.

    Args:
        folders: the runs; nothing in them is changed.
        into: a new folder, or one that an earlier merge wrote.
        settings: as the user set them.

    Raises:
        UsageError: they are not one run, or `into` is one of them.
        RunError: a folder holds no run, or `into` one that was played.
    """
    if await asyncio.to_thread(into.resolve) in [
        await asyncio.to_thread(each.resolve) for each in folders
    ]:
        raise UsageError(f"--into {into} is one of the runs: give another folder")
    run = merged([Run.load(each, keep_records=False) for each in folders])
    write_rescored(into, run.records, run.manifest)
    catalog, console = load_catalog(settings.locale), wide_console()
    words = criterion_words((record.ac for record in run.records), DEFAULT, catalog)
    console.print(summary_table(run.summary(), catalog, words))
    told = catalog.text("merge.written", path=into, count=len(run.records), runs=len(folders))
    console.print(Text(printable(told)), soft_wrap=True)
    return 0
