"""`lhkit report`: a run folder as an HTML file, as Markdown, as JUnit XML."""

import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from lhkit.errors import RunError
from lhkit.harness.results.run import Run
from lhkit.locales import load_catalog
from lhkit.settings import Settings
from lhkit.vocab.printable import printable

STDOUT = Path("-")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """What the user asked for; without any file, the HTML report goes into the run's folder."""

    folder: Path
    html: Path | None = None
    markdown: Path | None = None
    junit: Path | None = None
    baseline: Path | None = None


async def report_run(options: ReportOptions, settings: Settings) -> int:
    """Write what was asked for; return the exit code.

    Raises:
        RunError: there is no run in a folder, or a file cannot be written.
        MissingPackageError: the packages of the extra `report` are not there.
    """
    from lhkit.harness.report.junit import junit_xml  # noqa: PLC0415 - only what is asked for
    from lhkit.harness.report.markdown import markdown  # noqa: PLC0415 - only what is asked for
    from lhkit.harness.report.page import html_page  # noqa: PLC0415 - only what is asked for

    run = Run.load(options.folder)
    baseline = None if options.baseline is None else Run.load(options.baseline)
    catalog = load_catalog(settings.locale)
    name = run.name or options.folder.name
    html = options.html
    if html is None and options.markdown is None and options.junit is None:
        html = options.folder / "report.html"
    console = Console(stderr=options.markdown == STDOUT)
    if html is not None:
        _write(html, html_page(run, catalog, name=name, baseline=baseline))
    if options.markdown is not None:
        _write(options.markdown, markdown(run, catalog, name=name, baseline=baseline))
    if options.junit is not None:
        _write(options.junit, junit_xml(run, catalog, name=name))
    for path in (html, options.markdown, options.junit):
        if path is not None and path != STDOUT:
            words = printable(catalog.text("report.written", path=path))
            console.print(Text(words), soft_wrap=True)
    return 0


def _write(path: Path, content: str) -> None:
    if path == STDOUT:
        sys.stdout.write(content)
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise RunError(f"{path} cannot be written ({error}): choose another place") from error
