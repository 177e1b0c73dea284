"""`lhkit lint`, `mutate` and `accept`: for who writes scenarios."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lhkit import app
from lhkit.commands.console import print_json
from lhkit.commands.options import AcceptOptions, LintOptions, MutateOptions
from lhkit.errors import MissingRunError, UsageError
from lhkit.harness.author.accept import (
    Edit,
    Observed,
    accept_argument,
    accept_phrase,
    observed_arguments,
    refuse_changed,
    schema_of,
)
from lhkit.harness.author.findings import Finding, Level
from lhkit.harness.author.lint import lint
from lhkit.harness.author.mutants import ADVICE
from lhkit.harness.author.mutate import mutate
from lhkit.harness.author.survivors import MutationReport, Survivors, TriedMutant, read_survivors
from lhkit.harness.loader import Sources, load_scenarios, read_sources
from lhkit.harness.record import SampleId, SampleRecord
from lhkit.harness.results import Run
from lhkit.lifehelper.shipped import scenario_folder, scenario_paths, scenarios_at
from lhkit.locales import Catalog, load_catalog
from lhkit.settings import Settings
from lhkit.text import printable
from lhkit.toolset import DEFAULT, load

# `lhkit lint`: are scenarios fit to be asked? A line for each fault, and an exit code.


EXIT_UNFIT = 1


async def lint_paths(options: LintOptions, settings: Settings) -> int:
    """Show what is wrong with the scenarios.

    Raises:
        UsageError: a file is not there or cannot be read, or the toolset is none.
    """
    where = scenarios_at(options.paths, options.toolset)
    toolset = load(options.toolset)
    sources = read_sources(where)
    findings = await lint(sources, toolset)
    console = Console()
    if options.as_json:
        print_json(console, [asdict(each) for each in findings])
    else:
        catalog = load_catalog(settings.locale)
        refused = len({fault.file for fault in sources.faults})
        counts = (len(sources.scenarios), refused)
        _show_findings(findings, counts, console, catalog)
        if options.toolset == DEFAULT and any(each.code == "unknown_tool" for each in findings):
            console.print(catalog.text("lint.other_tools"), soft_wrap=True)
    return EXIT_UNFIT if any(each.level is Level.ERROR for each in findings) else 0


def _show_findings(
    findings: Sequence[Finding], read: tuple[int, int], console: Console, catalog: Catalog
) -> None:
    """Show each finding, and how many scenarios were read and files refused."""
    styles = {Level.ERROR: "red", Level.WARNING: "yellow"}
    for finding in findings:
        console.print(Text(printable(str(finding)), style=styles[finding.level]), soft_wrap=True)
    counts = Counter(finding.level for finding in findings)
    scenarios, files = read
    console.print(
        catalog.text(
            "lint.counts",
            scenarios=scenarios,
            refused=catalog.text("lint.refused", files=files) if files else "",
            errors=counts[Level.ERROR],
            warnings=counts[Level.WARNING],
        )
    )


# `lhkit mutate`: which mistakes would the scenarios not notice? A table, a list, an exit code.


EXIT_MISSED = 1
SURVIVORS = "survivors.toml"


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


# `lhkit accept`: what a model did in one sample becomes an alternative in the scenario's YAML.


async def accept_sample(options: AcceptOptions, settings: Settings) -> int:
    """Show the change and write it, unless only a look is wanted.

    Raises:
        MissingRunError: there is no such run or sample.
        UsageError: nothing, or not one thing, can be accepted; or the scenario changed.
    """
    run = Run.load(options.run)
    record = _record(options, run)
    sources = read_sources(options.paths or scenario_paths("all"))
    edit = _edit(options, record, sources, run.manifest)
    console = Console()
    for line in edit.diff.splitlines():
        style = {"+": "green", "-": "red"}.get(line[:1], "")
        console.print(Text(printable(line), style=style), soft_wrap=True)
    if not options.is_dry:
        edit.file.write_bytes(edit.after.encode())
    key = "accept.dry" if options.is_dry else "accept.written"
    words = printable(load_catalog(settings.locale).text(key, file=edit.file))
    console.print(Text(words), soft_wrap=True)
    return 0


def _edit(
    options: AcceptOptions, record: SampleRecord, sources: Sources, manifest: Mapping[str, Any]
) -> Edit:
    scenario_id = record.sample_id.scenario
    origin = sources.origins.get(scenario_id)
    if origin is None:
        raise UsageError(
            f"no scenario {scenario_id} in these files: name its file with --scenarios"
        )
    scenario = next(each for each in sources.scenarios if each.id == scenario_id)
    refuse_changed(scenario, manifest)
    text = origin.file.read_bytes().decode("utf-8")
    if options.phrase is not None:
        turn = options.turn or 0
        if turn >= len(record.evidence.turns):
            last = len(record.evidence.turns) - 1
            raise UsageError(f"{scenario_id} has no turn {turn}: give --turn 0 to {last}")
        return accept_phrase(options.phrase, turn, record.evidence.turns[turn].reply, origin, text)
    chosen = _chosen(options, record)
    return accept_argument(chosen, origin, schema_of(chosen, record, manifest), text)


def _record(options: AcceptOptions, run: Run) -> SampleRecord:
    try:
        wanted = SampleId.parse(options.sample)
    except ValueError as error:
        raise UsageError(str(error)) from error
    for record in run.records:
        if record.sample_id == wanted:
            return record
    raise MissingRunError(
        f"{options.run} has no sample {options.sample}: give SCENARIO or SCENARIO#2"
    )


def _chosen(options: AcceptOptions, record: SampleRecord) -> Observed:
    wrong = observed_arguments(record)
    wanted = [
        each
        for each in wrong
        if options.turn in {None, each.turn}
        and options.call in {None, each.call}
        and options.arg in {None, each.name}
    ]
    if len(wanted) == 1:
        return wanted[0]
    choices = "\n".join(f"  {each}" for each in wanted or wrong)
    if not wrong:
        raise UsageError(
            f"{options.sample}: no call was expected with other arguments, so there is none to "
            "accept: give --phrase for words of the reply, or widen the scenario by hand"
        )
    raise UsageError(f"{options.sample}: choose one of\n{choices}")
