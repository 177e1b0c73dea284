"""`lhkit agreement`: compare a judge with labels of a person."""

import csv
import io
from pathlib import Path
from typing import Annotated

import typer

from lhkit.base.errors import UsageError
from lhkit.base.locales import load_catalog
from lhkit.cli.frame.command import Options, command
from lhkit.cli.frame.console import print_lines, wide_console
from lhkit.cli.frame.exit_codes import ExitCode
from lhkit.cli.frame.options import RunFolder
from lhkit.harness.records.judge_labels import (
    in_random_order,
    new_labels,
    read_label_file,
    write_labels,
)
from lhkit.harness.results.results import Run
from lhkit.harness.views.agreement import agreement_lines
from lhkit.harness.views.sample import Sample
from lhkit.settings import Settings


class AgreementOptions(Options):
    """Options of `lhkit agreement`."""

    run: RunFolder
    score: Annotated[str, typer.Option(metavar="NAME", help="Name of the judge.")]
    labels: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            help="CSV or JSONL with sample and label (yes or no); stored in RUN. With --draw, the "
            "file to write.",
        ),
    ] = None
    draw: Annotated[
        int | None,
        typer.Option(
            min=1, help="Write so many samples, drawn at random, to --labels for a person to label."
        ),
    ] = None


@command(
    "lhkit agreement runs/gemma-json --score polite --labels labels.csv --draw 50",
    "lhkit agreement runs/gemma-json --score polite --labels labels.csv",
)
async def agreement(options: AgreementOptions, settings: Settings) -> int:
    """Print how far a judge agrees with a person, and the corrected rate; return the exit code.

    Raises:
        RunError: the run cannot be read, or the labels cannot be stored.
        UsageError: the run has no such judge, or the labels are invalid.
    """
    run = Run.load(options.run)
    run.agreement(options.score)  # before anything is written: is there such a judge?
    catalog, console = load_catalog(settings.locale), wide_console()
    if options.draw is not None:
        count = _draw(options, run, options.draw)
        print_lines([catalog.text("judges.drawn", count=count, path=str(options.labels))], console)
        return ExitCode.OK
    if options.labels is not None:
        labels = new_labels(options.score, read_label_file(options.labels), run.records)
        write_labels(options.run, labels)
        run = Run.load(options.run)
    print_lines(agreement_lines(run.agreement(options.score), catalog), console)
    return ExitCode.OK


def _draw(options: AgreementOptions, run: Run, count: int) -> int:
    """Write samples for a person to label, without the judge's answers; return their number.

    More samples are drawn in the same order, so that they include those of a smaller number.
    """
    if options.labels is None:
        raise UsageError("--draw needs the file to write: give --labels FILE.csv")
    samples = [Sample.of(record) for record in in_random_order(run.records)[:count]]
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow(["sample", "label", "user", "reply"])
    for sample in samples:
        rows.writerow([sample.id, "", "\n".join(sample.user_messages), sample.reply])
    try:
        with options.labels.open("x", encoding="utf-8-sig", newline="") as file:
            file.write(text.getvalue())
    except OSError as error:
        raise UsageError(f"{options.labels} cannot be written: {error}. Give a new file") from error
    return len(samples)
