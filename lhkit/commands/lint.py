"""`lhkit lint`: are scenarios fit to be asked? A line for each fault, and an exit code."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.text import Text

from lhkit import app
from lhkit.commands.environments import load_environment, require_paths
from lhkit.harness.authoring.lint import Finding, Level, lint
from lhkit.harness.scenarios.scenario import read_sources
from lhkit.locales import Catalog, load_catalog
from lhkit.settings import Settings
from lhkit.vocab.printable import printable

EXIT_UNFIT = 1


async def lint_paths(
    paths: Sequence[Path], settings: Settings, *, as_json: bool, environment: str | None = None
) -> int:
    """Show what is wrong with the scenarios in `paths` (all shipped ones by default).

    `environment` names one of the user's own (see `load_environment`).

    Raises:
        UsageError: a file is not there or cannot be read, or the environment is none.
    """
    require_paths(environment, paths)
    loaded = load_environment(environment)
    sources = read_sources(paths or app.scenario_paths("all"))
    findings = await lint(sources, loaded)
    console = Console()
    if as_json:
        console.out(json.dumps([asdict(each) for each in findings], ensure_ascii=False, indent=1))
    else:
        _show(findings, len(sources.scenarios), console, load_catalog(settings.locale))
    return EXIT_UNFIT if any(each.level is Level.ERROR for each in findings) else 0


def _show(findings: Sequence[Finding], scenarios: int, console: Console, catalog: Catalog) -> None:
    styles = {Level.ERROR: "red", Level.WARNING: "yellow"}
    for finding in findings:
        console.print(Text(printable(str(finding)), style=styles[finding.level]), soft_wrap=True)
    counts = Counter(finding.level for finding in findings)
    console.print(
        catalog.text(
            "lint.counts",
            scenarios=scenarios,
            errors=counts[Level.ERROR],
            warnings=counts[Level.WARNING],
        )
    )
