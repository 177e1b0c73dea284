"""`lhkit rescore`: score the records of a run again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from pydantic import model_validator

from lhkit.base.errors import RunError
from lhkit.base.locales import Catalog, load_catalog
from lhkit.base.options import DEFAULT_TOOLSET
from lhkit.cli.frame.command import command
from lhkit.cli.frame.console import print_lines, wide_console
from lhkit.cli.frame.exit_codes import ExitCode
from lhkit.cli.frame.options import Details, Paths, RunFolder, SelectOptions, Toolset
from lhkit.cli.frame.project_toolset import find_project_toolset
from lhkit.harness.records.store import write_rescored
from lhkit.harness.report.terminal import run_view
from lhkit.harness.results.results import Run
from lhkit.harness.running.rescore import rescore
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.lifehelper.shipped import scenarios_at
from lhkit.settings import Settings
from lhkit.toolset import load


class RescoreOptions(SelectOptions):
    """Options of `lhkit rescore`; `paths` are by default the shipped scenarios."""

    run: RunFolder
    paths: Paths = ()
    toolset: Toolset = DEFAULT_TOOLSET
    _project = model_validator(mode="before")(find_project_toolset)
    into: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="Folder of the new run. Default: RUN-rescored."),
    ] = None
    details: Details = False


@command("lhkit rescore runs/gemma-json --into runs/gemma-today")
async def rescore_run(options: RescoreOptions, settings: Settings) -> int:
    """Score a run again into a new folder and print the changed verdicts; return the exit code.

    Raises:
        UsageError: the toolset is invalid, or is given without paths.
        RunError: the run cannot be read or scored, or the result cannot be written.
        ScenarioError: a scenario is invalid.
    """
    paths = scenarios_at(options.paths, options.toolset)
    toolset = load(options.toolset)
    old = Run.load(options.run).select(**options.values())
    scenarios = load_scenarios(paths)
    new = rescore(old, scenarios, toolset)
    if old.records and not new.records:
        reason = next(iter(new.skipped.values()))
        raise RunError(
            f"no record of {options.run} can be scored again ({reason}): give its scenarios as "
            "PATHS, and its --toolset"
        )
    folder = options.run.resolve() if options.run.name in {"", ".."} else options.run
    end = "rescored-part" if options.words else "rescored"
    target = options.into or folder.with_name(f"{folder.name}-{end}")
    if options.into is None and target.is_symlink():  # it may be part of a downloaded run
        raise RunError(f"{target} is a symbolic link: give the folder with --into")
    write_rescored(target, new.records, new.manifest)
    catalog, console = load_catalog(settings.locale), wide_console()
    console.print(run_view(new, catalog, details=options.details), soft_wrap=True)
    print_lines(_changed_verdicts(old, new, catalog), console)
    if new.skipped:
        print_lines([catalog.text("rescore.skipped", count=len(new.skipped))], console)
        skipped = ((sample, catalog.translate(why)) for sample, why in new.skipped.items())
        print_lines((f"  {sample}: {why}" for sample, why in skipped), console)
    counts = {"count": len(new.records), "source": old.name}
    print_lines([catalog.text("rescore.written", path=target, **counts)], console)
    return ExitCode.OK


def _changed_verdicts(old: Run, new: Run, catalog: Catalog) -> Iterator[str]:
    before = {record.sample_id: record.score.verdict for record in old.records}
    changed = [
        record for record in new.records if record.score.verdict is not before[record.sample_id]
    ]
    if not changed:
        yield catalog.text("rescore.unchanged")
        return
    yield catalog.text("rescore.changed", count=len(changed))
    for record in changed:
        reasons = [catalog.translate(reason) for reason in record.score.reasons[:1]]
        earlier, verdict = (
            catalog.text(f"report.verdict.{verdict}")
            for verdict in (before[record.sample_id], record.score.verdict)
        )
        line = f"{record.sample_id}: {earlier} → {verdict}"
        yield "  " + " · ".join([line, *reasons])
