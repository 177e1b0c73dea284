"""`lhkit rescore`: score the records of a run again with today's scorers and scenarios."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from lhkit.cli.command import Options, command
from lhkit.cli.console import wide_console
from lhkit.cli.options import Paths, RunFolder
from lhkit.errors import RunError
from lhkit.harness.loader import load_scenarios
from lhkit.harness.report.terminal import summary_view
from lhkit.harness.rescore import rescore
from lhkit.harness.results import Run
from lhkit.harness.run_options import ToolsetReference
from lhkit.harness.store import write_rescored
from lhkit.harness.tables import criterion_descriptions
from lhkit.lifehelper.shipped import scenarios_at
from lhkit.locales import Catalog, load_catalog
from lhkit.settings import DEFAULT_TOOLSET, Settings
from lhkit.text import printable
from lhkit.toolset import load


class RescoreOptions(Options):
    """Which run `lhkit rescore` scores again, into a folder of its own.

    Nothing in the run is changed. `paths` are today's scenarios, the shipped ones by default;
    `toolset` is what the run was played in.
    """

    run: RunFolder
    paths: Paths = ()
    toolset: ToolsetReference = DEFAULT_TOOLSET
    into: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="Folder of the result; RUN-rescored by default."),
    ] = None


@command("lhkit rescore runs/gemma-json --into runs/gemma-today")
async def rescore_run(options: RescoreOptions, settings: Settings) -> int:
    """Score a run folder again, into a folder of its own; return the exit code.

    Raises:
        UsageError: the toolset is none, or is given without paths.
        RunError: there is no run, nothing of it can be scored, or the result has no place.
        ScenarioError: the scenarios are not well-formed.
    """
    where = scenarios_at(options.paths, options.toolset)
    toolset = load(options.toolset)
    old = Run.load(options.run)
    scenarios = load_scenarios(where)
    new = rescore(old, scenarios, toolset)
    if old.records and not new.records:
        reason = next(iter(new.skipped.values()))
        raise RunError(
            f"no record of {options.run} can be scored again ({reason}): give its scenarios as "
            "PATHS, and the --toolset that it was played with"
        )
    target = options.into or _beside(options.run)
    if options.into is None and target.is_symlink():  # it may have come with the run
        raise RunError(f"{target} is a symbolic link: give the folder with --into")
    write_rescored(target, new.records, new.manifest)
    catalog = load_catalog(settings.locale)
    words = criterion_descriptions((record.ac for record in new.records), options.toolset, catalog)
    _show(old, new, target, words, catalog)
    return 0


def _beside(folder: Path) -> Path:
    whole = folder.resolve() if folder.name in {"", ".."} else folder
    return whole.with_name(f"{whole.name}-rescored")


def _show(old: Run, new: Run, target: Path, words: Mapping[str, str], catalog: Catalog) -> None:
    console = wide_console()
    console.print(summary_view(new.summary(), catalog, words))
    lines = (*_changed(old, new, catalog), *_skipped(new, catalog))
    for line in lines:
        console.print(Text(printable(line)), soft_wrap=True)
    written = catalog.text("rescore.written", path=target, count=len(new.records), source=old.name)
    console.print(Text(printable(written)), soft_wrap=True)


def _changed(old: Run, new: Run, catalog: Catalog) -> list[str]:
    before = {record.sample_id: record.judgement.verdict for record in old.records}
    lines = [
        f"  {record.sample_id}: {before[record.sample_id]} → {record.judgement.verdict}"
        + (f" · {record.judgement.reasons[0]}" if record.judgement.reasons else "")
        for record in new.records
        if record.judgement.verdict is not before[record.sample_id]
    ]
    if not lines:
        return [catalog.text("rescore.unchanged")]
    return [catalog.text("rescore.changed", count=len(lines)), *lines]


def _skipped(new: Run, catalog: Catalog) -> list[str]:
    lines = [f"  {sample}: {reason}" for sample, reason in new.skipped.items()]
    return [catalog.text("rescore.skipped", count=len(lines)), *lines] if lines else []
