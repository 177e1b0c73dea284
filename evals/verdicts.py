"""Keep the verdicts of a run as a small file, and compare them in pairs with any other run.

    python evals/verdicts.py write runs/dev evals/baselines/gemma-dev.tsv
    python evals/verdicts.py compare evals/baselines/gemma-dev.tsv runs/dev

A file has the model in its first line, then a sample and its verdict in each. It is 5 kB for 168
samples, and a later schema of records reads it as well. `compare` takes files and run folders; as
`lhkit compare`, it ends with 0, but with 1 for another verdict under `--same`.
"""

from pathlib import Path
from typing import Annotated

import typer

from lhkit.base.errors import RunError
from lhkit.base.locales import load_catalog
from lhkit.cli.frame.console import wide_console
from lhkit.harness.records.record import SampleRecord, SampleScore, Verdict
from lhkit.harness.report.terminal import comparison_view
from lhkit.harness.results.compare import compare as compare_runs
from lhkit.harness.results.results import Run
from lhkit.harness.scenarios.sample_id import SampleId

app = typer.Typer(add_completion=False)


@app.command()
def write(run: Path, file: Path) -> None:
    """Write the verdicts of the run in a folder."""
    loaded = Run.load(run)
    model = ", ".join(
        " ".join(filter(None, (m.title, m.server, m.dtype or "number type not reported", m.device)))
        for m in loaded.summary().models
    )
    rows = sorted(f"{r.sample_id}\t{r.score.verdict}" for r in loaded.records)
    file.write_text("\n".join((f"# {model}", *rows)) + "\n", encoding="utf-8")
    print(f"{file}: {len(rows)} verdicts")


@app.command()
def compare(
    first: Path,
    second: Path,
    same: Annotated[
        bool, typer.Option("--same", help="End with 1 if any verdict differs.")
    ] = False,
) -> None:
    """Compare two runs, each a folder or a file of verdicts, pair by pair."""
    runs = [read(first), read(second)]
    comparison = compare_runs(*runs)
    wide_console().print(comparison_view(comparison, load_catalog("en")), soft_wrap=True)
    differing = [pair for pair in comparison.pairs if pair.a.is_passed != pair.b.is_passed]
    equal = len(comparison.pairs) - len(differing)
    print(f"The same verdict in {equal} of {len(comparison.pairs)} samples.")
    raise typer.Exit(int(same and bool(differing or not comparison.pairs)))


def read(path: Path) -> Run:
    """Return the run in a folder, or one with nothing but the verdicts of a file.

    Raises:
        RunError: a line of the file has no sample and verdict.
    """
    if path.is_dir():
        return Run.load(path)
    records = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("#"):
            continue
        sample, _, verdict = line.partition("\t")
        try:
            sample_id, score = SampleId.parse(sample), SampleScore(verdict=Verdict(verdict))
        except ValueError as error:
            raise RunError(f"{path}:{number}: expected SAMPLE, a tab, and a verdict.") from error
        records.append(SampleRecord(sample_id=sample_id, content_hash="", locale="", score=score))
    return Run(records=records, name=path.stem)


if __name__ == "__main__":
    app()
