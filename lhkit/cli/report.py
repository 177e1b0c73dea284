"""`lhkit report`: write a run as HTML, Markdown or JUnit XML."""

import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from lhkit.base.errors import RunError, UsageError, importing
from lhkit.base.files import write_atomically
from lhkit.base.locales import Catalog, load_catalog
from lhkit.base.text import whole_unicode
from lhkit.cli.frame.command import STDOUT, command
from lhkit.cli.frame.console import print_lines, wide_console
from lhkit.cli.frame.exit_codes import ExitCode
from lhkit.cli.frame.options import SelectOptions, ThresholdOptions
from lhkit.cli.frame.thresholds import ThresholdResult, check_thresholds
from lhkit.harness.figures.pairs import Comparison
from lhkit.harness.results.compare import compare
from lhkit.harness.results.results import Run
from lhkit.settings import Settings


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
    is_whole: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Put every sample of a large run on the HTML page, which may become too large for "
            "a browser.",
        ),
    ] = False


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
    catalog = load_catalog(settings.locale)
    if options.history is not None:
        return _report_history(options, options.history, catalog)
    if options.folder is None:
        raise UsageError("RUN is missing: give a run folder such as runs/NAME, or --history runs")
    if options.is_whole and options.html is None and (options.markdown or options.junit):
        raise UsageError("--all is for the HTML page: give --html FILE, or leave --all out")
    selector = options
    run = Run.load(options.folder).select(**selector.values())
    baseline = None if options.baseline is None else Run.load(options.baseline)
    options.require_valid()
    result = None
    if options.has_limits:
        result = check_thresholds(run, options, catalog, baseline=baseline)
    name = run.name or options.folder.name
    html = options.html
    if html is None and options.markdown is None and options.junit is None:
        html = options.folder / ("report-part.html" if selector.words else "report.html")
    files = ReportFiles(
        html=html, markdown=options.markdown, junit=options.junit, is_whole=options.is_whole
    )
    console = Console(stderr=options.markdown == STDOUT)
    comparison = None if baseline is None else compare(baseline, run, margin=options.margin)
    written = write_reports(run, files, catalog, name=name, comparison=comparison, result=result)
    print_lines(written, console)
    if result is None:
        return ExitCode.OK
    print_lines((*result.remarks, *result.findings), console)
    return result.exit_code


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFiles:
    """The files to write, None for those that are not requested; the HTML page may be whole."""

    html: Path | None = None
    markdown: Path | None = None
    junit: Path | None = None
    is_whole: bool = False


def require_page_packages() -> None:
    """Check that an HTML page can be written.

    Raises:
        MissingPackageError: a package of the extra `eval` is not installed.
    """
    with importing("eval"):
        for package in ("jinja2", "altair", "vl_convert"):
            if find_spec(package) is None:
                raise ModuleNotFoundError(name=package)


def write_reports(
    run: Run,
    files: ReportFiles,
    catalog: Catalog,
    *,
    name: str,
    comparison: Comparison | None = None,
    result: ThresholdResult | None = None,
    exit_code: int | None = None,
) -> list[str]:
    """Write the requested files; return a line for each.

    Args:
        run: the run to report.
        files: the reports to write.
        catalog: the locale's texts.
        name: the name of the run.
        comparison: with the baseline.
        result: the result of the thresholds; None without thresholds.
        exit_code: that of the command, where it is another one than that of the result.

    Raises:
        RunError: a file cannot be written.
        MissingPackageError: HTML is requested, and the packages of the extra `eval` are missing.
    """
    from lhkit.harness.report.junit import junit_xml
    from lhkit.harness.report.markdown import markdown
    from lhkit.harness.report.page import html_page

    findings = None if result is None else result.reasons
    remarks = () if result is None else result.remarks
    if result is not None and exit_code is None:
        exit_code = int(result.exit_code)
    if files.html is not None:
        page = html_page(
            run,
            catalog,
            name=name,
            findings=findings,
            comparison=comparison,
            is_whole=files.is_whole,
        )
        write_report(files.html, page)
    shown: dict[str, Any] = {"name": name, "findings": findings, "exit_code": exit_code}
    if files.junit is not None:
        write_report(files.junit, junit_xml(run, catalog, **shown))
    if files.markdown is not None:  # last, so that a pull request shows no verdict that failed
        text = markdown(run, catalog, comparison=comparison, remarks=remarks, **shown)
        write_report(files.markdown, text)
    paths = (files.html, files.markdown, files.junit)
    return [catalog.text("report.written", path=p) for p in paths if p not in {None, STDOUT}]


def _report_history(options: ReportOptions, folder: Path, catalog: Catalog) -> int:
    """Write the history of a suite as HTML and print it as a table."""
    from lhkit.harness.report.page import history_page
    from lhkit.harness.report.terminal import table_view
    from lhkit.harness.results.history import History

    others = (options.markdown, options.junit, options.baseline, options.is_whole)
    if any(others) or options.has_limits:
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
