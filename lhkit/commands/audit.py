"""`lhkit audit`: what the models of a run really wrote, and what had to be mended."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lhkit.errors import RunError
from lhkit.harness.audit import Audit, Fault, audit
from lhkit.harness.journal import RECORDS, read_manifest, read_records
from lhkit.locales import Catalog, load_catalog
from lhkit.settings import Settings
from lhkit.vocab.printable import printable

_WIDTH = 100
_SHOWN_CHARS = 60


async def audit_run(folder: Path, settings: Settings) -> int:
    """Show the audit of a run folder; return the exit code.

    Raises:
        RunError: there is no run in `folder`, or it is broken.
    """
    if not (folder / RECORDS).exists():
        raise RunError(f"{folder} holds no run: give a folder with a {RECORDS}, such as runs/NAME")
    found = audit(read_records(folder), _schemas(read_manifest(folder)))
    console = Console()
    console = console if console.is_terminal else Console(width=_WIDTH)
    console.print(render(found, load_catalog(settings.locale)))
    return 0


def _schemas(manifest: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the schemas the run was played with; they are equal in all locales but for words."""
    locales: Mapping[str, Mapping[str, Any]] = manifest.get("locales", {})
    return {
        tool["name"]: tool["parameters"]
        for told in locales.values()
        for tool in told.get("tools", ())
    }


def render(found: Audit, catalog: Catalog) -> Table:
    """Return one row per fault class that occurred, under the counts of responses."""
    counts = catalog.text(
        "audit.counts",
        responses=found.responses,
        with_calls=found.with_calls,
        strict=found.strict,
        repaired=found.repaired,
        lost=found.lost,
    )
    table = Table(title=counts, title_justify="left", width=_WIDTH)
    table.add_column(catalog.text("audit.fault"), no_wrap=True)
    table.add_column(catalog.text("audit.count"), justify="right", no_wrap=True)
    table.add_column(catalog.text("audit.example"), ratio=1, no_wrap=True, overflow="ellipsis")
    for fault in Fault:
        findings = found.of(fault)
        if findings:
            first = findings[0]
            raw = " ".join(printable(first.raw_text[:_SHOWN_CHARS]).split())
            example = Text(f"{printable(first.scenario)}: {raw}")
            table.add_row(Text(fault), str(len(findings)), example)
    if not found.findings:
        table.add_row(catalog.text("table.none"), "0", "")
    return table
