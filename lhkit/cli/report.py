"""`lhkit report`: write a run as HTML, Markdown or JUnit XML."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from lhkit.cli.command import command
from lhkit.cli.console import print_lines
from lhkit.cli.exit_codes import ExitCode
from lhkit.cli.options import RunFolder, SelectOptions
from lhkit.cli.threshold_options import ThresholdOptions
from lhkit.cli.thresholds import check_thresholds
from lhkit.errors import RunError
from lhkit.files import write_atomically
from lhkit.harness.results import Run
from lhkit.locales import load_catalog
from lhkit.settings import Settings
from lhkit.text import whole_unicode

STDOUT = Path("-")


class ReportOptions(SelectOptions, ThresholdOptions):
    """Options of `lhkit report`; without any file, HTML is written into the run folder."""

    folder: RunFolder
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
    "lhkit report runs/gemma-json", "lhkit report runs/gemma-json --junit junit.xml --markdown -"
)
async def report_run(options: ReportOptions, settings: Settings) -> int:
    """Write the requested files; return the exit code: with thresholds that of `lhkit eval`.

    Raises:
        UsageError: a threshold is invalid.
        RunError: a run cannot be read, or a file cannot be written.
        MissingPackageError: the packages of the extra `report` are not installed.
    """
    from lhkit.harness.report.junit import junit_xml
    from lhkit.harness.report.markdown import markdown
    from lhkit.harness.report.page import html_page

    selector = options.scenario_filter()
    run = Run.load(options.folder).select(**selector.values())
    baseline = None if options.baseline is None else Run.load(options.baseline)
    catalog = load_catalog(settings.locale)
    thresholds = options.thresholds(baseline)
    result = check_thresholds(run, thresholds, catalog) if options.has_limits else None
    findings = None if result is None else result.findings
    name = run.name or options.folder.name
    html = options.html
    if html is None and options.markdown is None and options.junit is None:
        html = options.folder / ("report-part.html" if selector.words else "report.html")
    compared: dict[str, Any] = {"name": name, "findings": findings}
    compared |= {"baseline": baseline, "margin": options.margin}
    console = Console(stderr=options.markdown == STDOUT)
    if html is not None:
        write_report(html, html_page(run, catalog, **compared))
    if options.markdown is not None:
        write_report(options.markdown, markdown(run, catalog, **compared))
    if options.junit is not None:
        write_report(options.junit, junit_xml(run, catalog, name=name, findings=findings))
    written = [p for p in (html, options.markdown, options.junit) if p not in {None, STDOUT}]
    print_lines((catalog.text("report.written", path=path) for path in written), console)
    if result is None:
        return ExitCode.OK
    print_lines((*result.remarks, *result.findings), console)
    return result.exit_code


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
