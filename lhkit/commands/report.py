"""`lhkit report`, `compare` and `audit`: what is read from runs that are there."""

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lhkit.commands.console import wide_console
from lhkit.commands.options import ReportOptions
from lhkit.errors import RunError
from lhkit.files import write_whole
from lhkit.harness.audit import Audit, Difference, Disagreement, ResponseFault, audit
from lhkit.harness.compare import compare
from lhkit.harness.record import SampleId
from lhkit.harness.report.terminal import comparison_table
from lhkit.harness.results import Run
from lhkit.json_values import compact
from lhkit.locales import Catalog, load_catalog
from lhkit.messages import ToolCall
from lhkit.settings import Settings
from lhkit.text import printable, whole_unicode

# `lhkit report`: a run folder as an HTML file, as Markdown, as JUnit XML.


STDOUT = Path("-")


async def report_run(options: ReportOptions, settings: Settings) -> int:
    """Write what was asked for; return the exit code.

    Raises:
        RunError: there is no run in a folder, or a file cannot be written.
        MissingPackageError: the packages of the extra `report` are not there.
    """
    from lhkit.harness.report.page import html_page
    from lhkit.harness.report.text import junit_xml, markdown

    run = Run.load(options.folder)
    baseline = None if options.baseline is None else Run.load(options.baseline)
    catalog = load_catalog(settings.locale)
    name = run.name or options.folder.name
    html = options.html
    if html is None and options.markdown is None and options.junit is None:
        html = options.folder / "report.html"
    console = Console(stderr=options.markdown == STDOUT)
    if html is not None:
        write_report(html, html_page(run, catalog, name=name, baseline=baseline))
    if options.markdown is not None:
        write_report(options.markdown, markdown(run, catalog, name=name, baseline=baseline))
    if options.junit is not None:
        write_report(options.junit, junit_xml(run, catalog, name=name))
    for path in (html, options.markdown, options.junit):
        if path is not None and path != STDOUT:
            words = printable(catalog.text("report.written", path=path))
            console.print(Text(words), soft_wrap=True)
    return 0


def write_report(path: Path, content: str) -> None:
    """Write a file, or to standard output where `path` is a dash; replace a symbolic link.

    Raises:
        RunError: the disk does not take it.
    """
    if path in {STDOUT, Path("/dev/stdout")}:
        sys.stdout.write(content)
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, whole_unicode(content).encode())
    except OSError as error:
        raise RunError(f"{path} cannot be written ({error}): choose another place") from error


# `lhkit compare`: two runs as pairs, in one table and one sentence.


async def compare_runs(
    folder_a: Path, folder_b: Path, settings: Settings, locale: str | None = None
) -> int:
    """Show what run b is against run a; return the exit code.

    Raises:
        RunError: one of the folders holds no run, or a broken one.
        UsageError: there is no such locale.
    """
    catalog = load_catalog(locale or settings.locale)
    comparison = compare(Run.load(folder_a), Run.load(folder_b))
    console: Console = wide_console()
    console.print(comparison_table(comparison, catalog), soft_wrap=True)
    return 0


# `lhkit audit`: what the models of a run really wrote, and what had to be mended.


_WIDTH = 100
_SHOWN_CHARS = 60
_SHOWN_DISAGREEMENTS = 10


async def audit_run(folder: Path, settings: Settings) -> int:
    """Show the audit of a run folder; return the exit code.

    Raises:
        RunError: there is no run in `folder`, or it is broken.
    """
    run = Run.load(folder)
    found = audit(run.records)
    console = Console()
    console = console if console.is_terminal else Console(width=_WIDTH)
    catalog = load_catalog(settings.locale)
    console.print(audit_table(found, catalog))
    if found.asked:
        console.print(render_server(found, catalog))
    return 0


def audit_table(found: Audit, catalog: Catalog) -> Table:
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
    for fault in (*ResponseFault, *Difference):
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


def _calls(calls: Sequence[ToolCall], catalog: Catalog) -> str:
    if not calls:
        return catalog.text("audit.no_calls")
    told = (f"{call.name} {compact(call.args)}" for call in calls)
    return printable("\n".join(line[:_SHOWN_CHARS] for line in told))
