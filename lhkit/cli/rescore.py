"""`lhkit rescore`: score the records of a run again."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from lhkit.base.errors import RunError
from lhkit.base.locales import Catalog, load_catalog
from lhkit.base.options import DEFAULT_TOOLSET
from lhkit.cli.frame.command import command
from lhkit.cli.frame.console import print_lines, wide_console
from lhkit.cli.frame.exit_codes import ExitCode
from lhkit.cli.frame.options import Details, Paths, RunFolder, SelectOptions, Toolset
from lhkit.harness.records.store import SCORES, read_scores, write_rescored
from lhkit.harness.report.terminal import run_view
from lhkit.harness.results.results import Run
from lhkit.harness.running.rescore import rescore
from lhkit.harness.running.score_run import rebuilt_states, score_run
from lhkit.harness.running.scores import load_scores
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.lifehelper.shipped import scenarios_at
from lhkit.settings import Settings
from lhkit.toolset import load


class RescoreOptions(SelectOptions):
    """Options of `lhkit rescore`; `paths` are by default the shipped scenarios."""

    run: RunFolder
    paths: Paths = ()
    toolset: Toolset = DEFAULT_TOOLSET
    into: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="Folder of the new run. Default: RUN-rescored."),
    ] = None
    scores: tuple[str, ...] = ()
    """Those of the project, for a run that is judged again."""
    score: Annotated[
        tuple[str, ...],
        typer.Option(
            metavar="FILE.py:NAME",
            help="Add your own score to RUN itself, without judging again; repeatable. With --into "
            "the run is judged again, and has this score too.",
        ),
    ] = ()
    details: Details = False


@command(
    "lhkit rescore runs/gemma-json --into runs/gemma-today",
    "lhkit rescore runs/gemma-json --score scores.py:polite",
)
async def rescore_run(options: RescoreOptions, settings: Settings) -> int:
    """Score a run again into a new folder and print the changed verdicts; return the exit code.

    With scores and without `into`, the scores are added to the run itself.

    Raises:
        UsageError: the toolset is invalid, or is given without paths.
        RunError: the run cannot be read or scored, or the result cannot be written.
        ScenarioError: a scenario is invalid.
    """
    if options.score and options.into is None:
        old = Run.load(options.run).select(**options.values())
        return await _add_scores(options, old, settings)
    paths = scenarios_at(options.paths, options.toolset)
    old = Run.load(options.run).select(**options.values())
    toolset = load(options.toolset)
    given = (*options.scores, *options.score)
    scores = load_scores(given, toolset)  # before the records are judged
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
    if scores:
        written = replace(new, folder=target)
        states = rebuilt_states(scenarios, toolset)
        scored = await score_run(
            written, scores, states=states, known=tuple(read_scores(options.run)), progress=True
        )
        new = replace(scored, folder=None)
    catalog, console = load_catalog(settings.locale), wide_console()
    dropped = [name for name in old.manifest.scores if name not in new.manifest.scores]
    console.print(run_view(new, catalog, details=options.details), soft_wrap=True)
    print_lines(_changed_verdicts(old, new, catalog), console)
    if new.skipped:
        print_lines([catalog.text("rescore.skipped", count=len(new.skipped))], console)
        skipped = ((sample, catalog.translate(why)) for sample, why in new.skipped.items())
        print_lines((f"  {sample}: {why}" for sample, why in skipped), console)
    if dropped:
        print_lines(
            [catalog.text("rescore.dropped", source=old.name, names=", ".join(dropped))], console
        )
    counts = {"count": len(new.records), "source": old.name}
    print_lines([catalog.text("rescore.written", path=target, **counts)], console)
    return ExitCode.OK


async def _add_scores(options: RescoreOptions, run: Run, settings: Settings) -> int:
    """Add scores to a run itself, and print its table."""
    states = None
    if options.paths or run.toolset == DEFAULT_TOOLSET == options.toolset:
        scenarios = load_scenarios(scenarios_at(options.paths, options.toolset))
        states = rebuilt_states(scenarios, load(options.toolset))
    scores = load_scores(options.score)
    # also those of an interrupted command, which the run does not count yet
    before = {result.key for result in read_scores(options.run) if not result.error}
    new = await score_run(run, scores, states=states, adds=True, progress=True)
    catalog, console = load_catalog(settings.locale), wide_console()
    console.print(run_view(new, catalog, details=options.details), soft_wrap=True)
    print_lines(_changed_verdicts(run, new, catalog), console)
    names = {score.name for score in scores}
    results = [result for result in new.score_records if result.score in names]
    kept = sum(result.key in before for result in results)
    counts = {"computed": len(results) - kept, "kept": kept, "path": options.run / SCORES}
    print_lines([catalog.text("rescore.added", **counts)], console)
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
