"""`lhkit audit`: what the models of a run really wrote, and what had to be mended."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lhkit.harness.records.record import ParsedCall, SampleId
from lhkit.harness.results.run import Run
from lhkit.harness.verdicts.audit import Audit, Disagreement, Fault, audit
from lhkit.harness.verdicts.second_opinion import Difference
from lhkit.locales import Catalog, load_catalog
from lhkit.settings import Settings
from lhkit.vocab.json_values import compact
from lhkit.vocab.printable import printable

_WIDTH = 100
_SHOWN_CHARS = 60
_SHOWN_DISAGREEMENTS = 10


async def audit_run(folder: Path, settings: Settings) -> int:
    """Show the audit of a run folder; return the exit code.

    Raises:
        RunError: there is no run in `folder`, or it is broken.
    """
    run = Run.load(folder)
    found = audit(run.records, _schemas(run.manifest))
    console = Console()
    console = console if console.is_terminal else Console(width=_WIDTH)
    catalog = load_catalog(settings.locale)
    console.print(render(found, catalog))
    if found.asked:
        console.print(render_server(found, catalog))
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
    for fault in (*Fault, *Difference):
        findings = found.of(fault)
        if findings:
            first = findings[0]
            raw = " ".join(printable(first.raw_text[:_SHOWN_CHARS]).split())
            example = Text(f"{printable(first.scenario)}: {raw}")
            table.add_row(Text(fault), str(len(findings)), example)
    if not found.findings:
        table.add_row(catalog.text("table.none"), "0", "")
    return table


def render_server(found: Audit, catalog: Catalog) -> Table:
    """Return the responses that the server read otherwise: strict, repaired and server beside."""
    counts = catalog.text(
        "audit.server_counts",
        asked=found.asked,
        server=found.server,
        differing=len(found.disagreements),
    )
    table = Table(title=counts, title_justify="left", width=_WIDTH)
    table.add_column(catalog.text("audit.response"), overflow="fold")
    for key in ("strict", "repaired", "server"):
        table.add_column(catalog.text(f"audit.{key}"), ratio=1, overflow="fold")
    table.add_column(catalog.text("audit.why"), overflow="fold")
    for each in found.disagreements[:_SHOWN_DISAGREEMENTS]:
        table.add_row(*map(Text, _cells(each, catalog)))
    if not found.disagreements:
        table.add_row(catalog.text("table.none"))
    hidden = len(found.disagreements) - _SHOWN_DISAGREEMENTS
    if hidden > 0:
        table.caption = catalog.text("audit.more", count=hidden)
    return table


def _cells(each: Disagreement, catalog: Catalog) -> tuple[str, ...]:
    said = each.said
    own, server = said.own_calls or (), said.server_calls or ()
    is_strict = not any(call.repairs for call in own)
    sample = SampleId(scenario=each.scenario, repeat=each.repeat)
    where = f"{sample} · {each.turn}.{each.response}"
    return (
        printable(where),
        _calls(own if is_strict else (), catalog),
        _calls(own, catalog),
        _calls(server, catalog),
        " ".join(each.why),
    )


def _calls(calls: Sequence[ParsedCall], catalog: Catalog) -> str:
    if not calls:
        return catalog.text("audit.no_calls")
    told = (f"{call.name} {compact(call.args)}" for call in calls)
    return printable("\n".join(line[:_SHOWN_CHARS] for line in told))
