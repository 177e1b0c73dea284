"""`lhkit mutate`: put mistakes into reference calls and list those no scenario detects."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lhkit import app
from lhkit.base.locales import Catalog, load_catalog
from lhkit.base.options import DEFAULT_TOOLSET
from lhkit.base.text import printable
from lhkit.cli.frame.command import command
from lhkit.cli.frame.console import print_json, print_lines
from lhkit.cli.frame.exit_codes import ExitCode
from lhkit.cli.frame.options import AsJson, Paths, SelectOptions, Toolset
from lhkit.cli.frame.project import shipped_lines
from lhkit.harness.authoring.mistakes import ADVICE
from lhkit.harness.authoring.mutate import MutationReport, Survivors, mutate, read_survivors
from lhkit.harness.figures.rates import is_below
from lhkit.harness.records.store import select_scenarios
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.harness.views.tables import selection_line
from lhkit.lifehelper.shipped import scenario_folder, scenarios_at
from lhkit.settings import Settings
from lhkit.toolset import DEFAULT, load

SURVIVORS = "survivors.toml"


class MutateOptions(SelectOptions):
    """Options of `lhkit mutate`."""

    paths: Paths = ()
    toolset: Toolset = DEFAULT_TOOLSET
    fail_under: Annotated[
        float | None,
        typer.Option(
            min=0, max=100, help="Exit with 1 if fewer mistakes are detected, in percent."
        ),
    ] = None
    survivors: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            exists=True,
            help="TOML file of undetected mistakes that are accepted, with reasons.",
        ),
    ] = None
    as_json: AsJson = False


@command(
    "lhkit mutate datasets/ac/dev --fail-under 97",
    "lhkit mutate shop.yaml --toolset shop.py:toolset",
)
async def mutate_paths(options: MutateOptions, settings: Settings) -> int:
    """Print which mistakes are not detected; return the exit code.

    Raises:
        ScenarioError: a scenario or the file of survivors is invalid, or reference calls fail.
    """
    paths = scenarios_at(options.paths, options.toolset)
    toolset = load(options.toolset)
    scenarios, selection = select_scenarios(options, load_scenarios(paths))
    app.require_toolset(scenarios, options.toolset)
    if options.survivors is None and options.toolset != DEFAULT:
        known: Survivors = {}
    else:
        known = read_survivors(options.survivors or scenario_folder() / SURVIVORS)
    console, catalog = Console(), load_catalog(settings.locale)
    if not options.as_json:
        print_lines(shipped_lines(options.paths, options.toolset, catalog), console)
    report = await mutate(scenarios, toolset)
    if options.as_json:
        print_json(console, _report_json(report, known))
    else:
        _print_report(report, known, console, catalog, lead=selection_line(selection, catalog))
    total, least = report.total, options.fail_under
    is_low = least is not None and is_below(total.noticed, total.tried, least)
    has_failed = is_low or report.outdated(known) or report.broken
    return ExitCode.FAILED if has_failed else ExitCode.OK


def _report_json(report: MutationReport, known: Survivors) -> Mapping[str, object]:
    return {
        "tried": report.total.tried,
        "noticed": report.total.noticed,
        "share": report.total.share,
        "kinds": {kind: asdict(counts) for kind, counts in report.by_kind.items()},
        "acs": {ac: asdict(counts) for ac, counts in report.by_ac.items()},
        "survivors": [
            {**asdict(mutant), "reason": known.get((mutant.scenario, mutant.key))}
            for mutant in report.survivors
        ],
        "outdated": [list(key) for key in report.outdated(known)],
        "untried": [asdict(mistake) for mistake in report.untried],
    }


def _print_report(
    report: MutationReport, known: Survivors, console: Console, catalog: Catalog, *, lead: str
) -> None:
    def show(text: str, style: str = "") -> None:
        console.print(Text(printable(text), style=style), soft_wrap=True)

    if lead:
        show(lead)
    table = Table(title=catalog.text("mutate.title"), title_justify="left")
    table.add_column(catalog.text("mutate.kind"), overflow="fold")
    for name in ("tried", "noticed", "share"):
        table.add_column(catalog.text(f"mutate.{name}"), justify="right")
    rows = [*report.by_kind.items(), (catalog.text("table.total"), report.total)]
    for name, counts in rows:
        table.add_row(name, str(counts.tried), str(counts.noticed), f"{counts.share:.1f}%")
    console.print(table)
    for mutant in report.survivors:
        reason = known.get((mutant.scenario, mutant.key))
        note = f"# {reason}" if reason else f"→ {catalog.translate(ADVICE[mutant.kind])}"
        change = catalog.translate(mutant.change)
        line = f"{mutant.scenario} {mutant.key}: {change} {note}"
        show(line, style="dim" if reason else "yellow")
    if report.untried:
        show(catalog.text("mutate.untried", count=len(report.untried)))
    for why, count in Counter(mistake.why for mistake in report.untried).items():
        show(f"  {count} × {catalog.translate(why)}", style="yellow")
    for scenario, key in report.outdated(known):
        show(catalog.text("mutate.outdated", scenario=scenario, mistake=key), style="red")
    for mutant in report.broken:
        verdict = catalog.text("report.verdict.invalid")
        show(f"{mutant.scenario} {mutant.key}: {verdict}", style="red")
