"""`lhkit report`: write a run as HTML, Markdown or JUnit XML."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from lhkit.cli.command import command
from lhkit.cli.console import print_lines, wide_console
from lhkit.cli.exit_codes import ExitCode
from lhkit.cli.options import SelectOptions, ThresholdOptions
from lhkit.cli.thresholds import check_thresholds
from lhkit.errors import RunError, UsageError
from lhkit.files import write_atomically
from lhkit.harness.results import Run
from lhkit.locales import Catalog, load_catalog
from lhkit.settings import Settings
from lhkit.text import whole_unicode

STDOUT = Path("-")


class ReportOptions(SelectOptions, ThresholdOptions):
    """Options of `lhkit report`; without any file, HTML is written into the run folder."""

    folder: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="Folder such as runs/NAME.")
    ] = None
    history: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            file_okay=False,
            help="Show the runs of one suite in this folder over time: of RUN's, else the newest. "
            "Default of --html: FOLDER/history.html.",
        ),
    ] = None
    html: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="HTML file. Default: RUN/report.html."),
    ] = None
    markdown: Annotated[
        Path | None,
        typer.Option(dir_okay=False, allow_dash=True, help="Markdown file; - is the terminal."),
    ] = None
    junit: Annotated[Path | None, typer.Option(dir_okay=False, help="JUnit XML file.")] = None
    baseline: Annotated[
        Path | None, typer.Option(metavar="BASELINE", help="Earlier run to compare with.")
    ] = None


@command(
    "lhkit report runs/gemma-json",
    "lhkit report runs/gemma-json --junit junit.xml --markdown -",
    "lhkit report --history runs",
)
async def report_run(options: ReportOptions, settings: Settings) -> int:
    """Write the requested files; return the exit code: with thresholds that of `lhkit eval`.

    Raises:
        UsageError: an option is invalid or missing.
        RunError: a run cannot be read, or a file cannot be written.
        MissingPackageError: the packages of the extra `report` are not installed.
    """
    from lhkit.harness.compare import compare
    from lhkit.harness.report.junit import junit_xml
    from lhkit.harness.report.markdown import markdown
    from lhkit.harness.report.page import html_page

    catalog = load_catalog(settings.locale)
    if options.history is not None:
        return _report_history(options, options.history, catalog)
    if options.folder is None:
        raise UsageError("RUN is missing: give a run folder such as runs/NAME, or --history runs")
    selector = options.scenario_filter()
    run = Run.load(options.folder).select(**selector.values())
    baseline = None if options.baseline is None else Run.load(options.baseline)
    options.require_valid()
    result = None
    if options.has_limits:
        result = check_thresholds(run, options, catalog, baseline=baseline)
    findings = None if result is None else result.findings
    name = run.name or options.folder.name
    html = options.html
    if html is None and options.markdown is None and options.junit is None:
        html = options.folder / ("report-part.html" if selector.words else "report.html")
    shown: dict[str, Any] = {"name": name, "findings": findings}
    if baseline is not None:
        shown["comparison"] = compare(baseline, run, margin=options.margin)
    console = Console(stderr=options.markdown == STDOUT)
    if html is not None:
        write_report(html, html_page(run, catalog, **shown))
    if options.markdown is not None:
        write_report(options.markdown, markdown(run, catalog, **shown))
    if options.junit is not None:
        write_report(options.junit, junit_xml(run, catalog, name=name, findings=findings))
    written = [p for p in (html, options.markdown, options.junit) if p not in {None, STDOUT}]
    print_lines((catalog.text("report.written", path=path) for path in written), console)
    if result is None:
        return ExitCode.OK
    print_lines((*result.remarks, *result.findings), console)
    return result.exit_code


def _report_history(options: ReportOptions, folder: Path, catalog: Catalog) -> int:
    """Write the history of a suite as HTML and print it as a table."""
    from lhkit.harness.history import History
    from lhkit.harness.report.page import history_page
    from lhkit.harness.report.terminal import table_view

    if options.markdown or options.junit or options.baseline or options.has_limits:
        raise UsageError("--history takes RUN and --html only: leave the other options out")
    like = None if options.folder is None else Run.load(options.folder)
    history = History.load(folder, like=like)
    path = options.html or folder / "history.html"
    write_report(path, history_page(history, catalog))
    wide_console().print(table_view(history.table(catalog)))
    print_lines([catalog.text("report.written", path=path)])
    return ExitCode.OK


def write_report(path: Path, content: str) -> None:
    """Write a file, or standard output if `path` is a dash; a symbolic link is replaced.

    Raises:
        RunError: the file cannot be written.
    """
    if path in {STDOUT, Path("/dev/stdout")}:
        sys.stdout.write(content)
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, whole_unicode(content).encode())
    except OSError as error:
        raise RunError(f"{path} cannot be written ({error}): choose another place") from error
