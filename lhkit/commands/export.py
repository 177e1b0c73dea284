"""`lhkit export`: a run in the formats of others."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from lhkit.commands.console import wide_console
from lhkit.errors import RunError, UsageError
from lhkit.harness.export import write_inspect, write_openai_messages, write_parquet
from lhkit.harness.results import Run
from lhkit.locales import load_catalog
from lhkit.settings import Settings
from lhkit.text import printable


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """What the user asked for: a place for each format that is wanted."""

    folder: Path
    openai_messages: Path | None = None
    parquet: Path | None = None
    inspect: Path | None = None


async def export_run(options: ExportOptions, settings: Settings) -> int:
    """Write a run in each format that was asked for; return the exit code.

    Raises:
        UsageError: nothing was asked for, or Inspect would not know the file by its name.
        RunError: there is no run, a line of it is broken, or a file cannot be written.
        MissingPackageError: a package of the extra `export` is not there.
    """
    wanted = list(_wanted(options))
    if not wanted:
        raise UsageError("nothing to write: give --openai-messages, --parquet or --inspect")
    if options.inspect is not None and options.inspect.suffix != ".eval":
        raise UsageError(f"{options.inspect}: Inspect knows its logs by their ending: give .eval")
    run = Run.load(options.folder, keep_records=False)
    catalog, console = load_catalog(settings.locale), wide_console()
    for path, folder, write in wanted:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write(run, path)
        except OSError as error:
            raise RunError(f"{path} cannot be written ({error}): choose another place") from error
        words = catalog.text("export.written", path=path, count=len(run.records))
        console.print(Text(printable(words)), soft_wrap=True)
    return 0


def _wanted(options: ExportOptions) -> Iterator[tuple[Path, Path, Callable[[Run, Path], object]]]:
    """Yield each place, the folder that it needs, and what writes there."""
    if options.openai_messages is not None:
        yield options.openai_messages, options.openai_messages.parent, write_openai_messages
    if options.parquet is not None:
        yield options.parquet, options.parquet, write_parquet
    if options.inspect is not None:
        yield options.inspect, options.inspect.parent, write_inspect
