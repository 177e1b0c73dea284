"""`report`: options of the command that writes a run down."""

from pathlib import Path
from typing import Annotated

import typer

from lhkit.cli.finish import Run, finish


def add_report(cli: typer.Typer, run: Run) -> None:
    """Add `lhkit report`."""

    @cli.command("report")
    def report_(
        folder: Annotated[Path, typer.Argument(metavar="RUN", help="Folder such as runs/NAME.")],
        html: Annotated[
            Path | None,
            typer.Option(dir_okay=False, help="One self-contained file. Default: RUN/report.html."),
        ] = None,
        markdown: Annotated[
            Path | None,
            typer.Option(
                dir_okay=False,
                allow_dash=True,
                help="For a pull request; - writes to the terminal.",
            ),
        ] = None,
        junit: Annotated[
            Path | None, typer.Option(dir_okay=False, help="JUnit XML for CI.")
        ] = None,
        baseline: Annotated[
            Path | None, typer.Option(metavar="BASELINE", help="An earlier run to compare with.")
        ] = None,
    ) -> None:
        """Write a run down: HTML for people, Markdown for a pull request, XML for CI."""
        from lhkit.commands.report import ReportOptions, report_run  # noqa: PLC0415 - jinja2, scipy

        options = ReportOptions(
            folder=folder, html=html, markdown=markdown, junit=junit, baseline=baseline
        )
        finish(run, lambda settings: report_run(options, settings))
