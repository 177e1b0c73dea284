"""`lhkit lint`: check scenarios against tools and data."""

from collections import Counter
from dataclasses import asdict, replace

from rich.console import Console
from rich.text import Text

from lhkit.base.errors import MissingPackageError
from lhkit.base.locales import Catalog, load_catalog
from lhkit.base.options import DEFAULT_TOOLSET
from lhkit.base.text import printable
from lhkit.cli.frame.command import command
from lhkit.cli.frame.console import print_json, print_lines
from lhkit.cli.frame.exit_codes import ExitCode
from lhkit.cli.frame.options import AsJson, Paths, SelectOptions, Toolset
from lhkit.cli.frame.project import shipped_lines
from lhkit.harness.authoring.checks import Level
from lhkit.harness.authoring.lint import lint
from lhkit.harness.records.store import select_scenarios
from lhkit.harness.scenarios.loader import read_sources
from lhkit.harness.views.tables import selection_line
from lhkit.lifehelper.shipped import scenarios_at
from lhkit.settings import Settings
from lhkit.toolset import DEFAULT, load

_STYLES = {Level.ERROR: "red", Level.WARNING: "yellow"}


class LintOptions(SelectOptions):
    """Options of `lhkit lint`; without paths, all shipped scenarios are checked."""

    paths: Paths = ()
    toolset: Toolset = DEFAULT_TOOLSET
    as_json: AsJson = False


@command("lhkit lint datasets/ac/dev", "lhkit lint shop.yaml --toolset shop.py:toolset --json")
async def lint_paths(options: LintOptions, settings: Settings) -> int:
    """Print the findings; return `FAILED` if one is an error.

    Raises:
        UsageError: a file cannot be read, or the toolset is invalid.
    """
    paths = scenarios_at(options.paths, options.toolset)
    toolset = load(options.toolset)
    sources = read_sources(paths)
    taken, selection = select_scenarios(options, sources.scenarios)
    sources = replace(sources, scenarios=taken)
    findings = await lint(sources, toolset)
    counts = Counter(finding.level for finding in findings)
    exit_code = ExitCode.FAILED if counts[Level.ERROR] else ExitCode.OK
    console = Console()
    if options.as_json:
        print_json(console, [asdict(finding) for finding in findings])
        return exit_code
    catalog = load_catalog(settings.locale)
    print_lines(shipped_lines(options.paths, options.toolset, catalog), console)
    if selection is not None:
        console.print(selection_line(selection, catalog), soft_wrap=True, markup=False)
    for finding in findings:
        text = Text(printable(finding.text(catalog)), style=_STYLES[finding.level])
        console.print(text, soft_wrap=True)
    if not sources.issues and (note := _gate_note(options, len(sources.scenarios), catalog)):
        console.print(note, soft_wrap=True)
    refused = len({issue.file for issue in sources.issues})
    console.print(
        catalog.text(
            "lint.counts",
            scenarios=len(sources.scenarios),
            refused=catalog.text("lint.refused", files=refused) if refused else "",
            errors=counts[Level.ERROR],
            warnings=counts[Level.WARNING],
        ),
        soft_wrap=True,
    )
    if options.toolset == DEFAULT and any(f.code == "unknown_tool" for f in findings):
        console.print(catalog.text("lint.other_tools"), soft_wrap=True)
    return exit_code


def _gate_note(options: LintOptions, scenarios: int, catalog: Catalog) -> str:
    """Return that a folder has too few scenarios for a paired test; empty if it has enough.

    Single files and selected scenarios may be a part of a suite, of which nothing is said.
    """
    is_folder = any(path.is_dir() for path in options.paths)
    if not is_folder or not scenarios or options.words:
        return ""
    try:
        from lhkit.harness.figures.statistics import least_passing
    except MissingPackageError:  # lint needs no statistics
        return ""
    least = least_passing()
    if scenarios >= least:
        return ""
    return catalog.text("lint.powerless", count=scenarios, least=least)
