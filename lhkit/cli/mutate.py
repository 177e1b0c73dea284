"""`lhkit mutate`: spoil every reference in many ways; list what no scenario notices."""

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
from lhkit.cli.command import Options, command
from lhkit.cli.console import EXIT_MISSED, print_json
from lhkit.cli.options import Paths
from lhkit.harness.author.mistakes import ADVICE
from lhkit.harness.author.mutate import (
    MutationReport,
    Survivors,
    TriedMutant,
    mutate,
    read_survivors,
)
from lhkit.harness.loader import load_scenarios
from lhkit.harness.run_options import ToolsetReference
from lhkit.lifehelper.shipped import scenario_folder, scenarios_at
from lhkit.locales import Catalog, load_catalog
from lhkit.settings import DEFAULT_TOOLSET, Settings
from lhkit.text import printable
from lhkit.toolset import DEFAULT, load

SURVIVORS = "survivors.toml"


class MutateOptions(Options):
    """Which gold traces `lhkit mutate` spoils.

    `survivors` is the list of known ones; the shipped by default.
    """

    paths: Paths = ()
    toolset: ToolsetReference = DEFAULT_TOOLSET
    fail_under: Annotated[
        float | None,
        typer.Option(min=0, max=100, help="Lowest share of noticed mistakes in percent."),
    ] = None
    survivors: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False, exists=True, help="TOML list of known survivors with reasons."
        ),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="The report as JSON.")] = False


@command(
    "lhkit mutate datasets/ac/dev --fail-under 97", "lhkit mutate mine.yaml --toolset mine.py:own"
)
async def mutate_paths(options: MutateOptions, settings: Settings) -> int:
    """Spoil every gold trace, show what was not noticed, return the exit code.

    Raises:
        ScenarioError: a scenario or the list of survivors is wrong, or a gold trace fails.
    """
    where = scenarios_at(options.paths, options.toolset)
    toolset = load(options.toolset)
    scenarios = load_scenarios(where)
    app.require_toolset(scenarios, options.toolset)
    known = _known_survivors(options)
    report = await mutate(scenarios, toolset)
    console = Console()
    if options.as_json:
        print_json(console, _plain(report, known))
    else:
        _show_mutations(report, known, console, load_catalog(settings.locale))
    return _exit_code(report, known, options.fail_under)


def _known_survivors(options: MutateOptions) -> Survivors:
    """Return the list asked for; by default the shipped one, of the shipped scenarios."""
    if options.survivors is None and options.toolset != DEFAULT:
        return Survivors()
    return read_survivors(options.survivors or scenario_folder() / SURVIVORS)


def _exit_code(report: MutationReport, known: Survivors, fail_under: float | None) -> int:
    is_low = fail_under is not None and report.total.share < fail_under
    return EXIT_MISSED if is_low or report.outdated(known) or report.broken else 0


def _plain(report: MutationReport, known: Survivors) -> Mapping[str, object]:
    return {
        "tried": report.total.tried,
        "noticed": report.total.noticed,
        "share": report.total.share,
        "kinds": {kind: asdict(counts) for kind, counts in report.by_kind.items()},
        "acs": {ac: asdict(counts) for ac, counts in report.by_ac.items()},
        "survivors": [
            {**asdict(each), "reason": known.reasons.get((each.scenario, each.key))}
            for each in report.survivors
        ],
        "outdated": [list(key) for key in report.outdated(known)],
        "untried": [asdict(each) for each in report.untried],
    }


def _show_mutations(
    report: MutationReport, known: Survivors, console: Console, catalog: Catalog
) -> None:
    console.print(_table(report, catalog))
    for outcome in report.survivors:
        console.print(_survivor(outcome, known), soft_wrap=True)
    if report.untried:
        console.print(catalog.text("mutate.untried", count=len(report.untried)), soft_wrap=True)
    for why, count in Counter(each.why for each in report.untried).items():
        console.print(Text(printable(f"  {count} × {why}"), style="yellow"), soft_wrap=True)
    for scenario, key in report.outdated(known):
        text = catalog.text("mutate.outdated", scenario=scenario, mistake=key)
        console.print(Text(text, style="red"), soft_wrap=True)
    for outcome in report.broken:
        console.print(
            Text(f"{outcome.scenario} {outcome.key}: invalid", style="red"), soft_wrap=True
        )


def _table(report: MutationReport, catalog: Catalog) -> Table:
    table = Table(title=catalog.text("mutate.title"), title_justify="left")
    table.add_column(catalog.text("mutate.kind"))
    for name in ("tried", "noticed", "share"):
        table.add_column(catalog.text(f"mutate.{name}"), justify="right")
    rows = [*report.by_kind.items(), (catalog.text("table.total"), report.total)]
    for name, counts in rows:
        table.add_row(name, str(counts.tried), str(counts.noticed), f"{counts.share:.1f}%")
    return table


def _survivor(outcome: TriedMutant, known: Survivors) -> Text:
    reason = known.reasons.get((outcome.scenario, outcome.key))
    told = f"# {reason}" if reason else f"→ {ADVICE[outcome.kind]}"
    line = f"{outcome.scenario} {outcome.key}: {outcome.change} {told}"
    return Text(printable(line), style="dim" if reason else "yellow")
