"""`lhkit lint`: check scenarios against tools and data: faults with file, line and field."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from lhkit.cli.command import Options, command
from lhkit.cli.console import print_json
from lhkit.cli.options import Paths
from lhkit.harness.author.checks import Finding, Level
from lhkit.harness.author.lint import lint
from lhkit.harness.loader import read_sources
from lhkit.harness.run_options import ToolsetReference
from lhkit.lifehelper.shipped import scenarios_at
from lhkit.locales import Catalog, load_catalog
from lhkit.settings import DEFAULT_TOOLSET, Settings
from lhkit.text import printable
from lhkit.toolset import DEFAULT, load

EXIT_UNFIT = 1


class LintOptions(Options):
    """Which scenarios `lhkit lint` checks: all shipped ones where there are no `paths`."""

    paths: Paths = ()
    toolset: ToolsetReference = DEFAULT_TOOLSET
    as_json: Annotated[bool, typer.Option("--json", help="Findings as JSON.")] = False


@command("lhkit lint datasets/ac/dev", "lhkit lint mine.yaml --toolset mine.py:own --json")
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
