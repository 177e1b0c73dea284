"""What `lhkit eval` prints: the table, failed samples, and what it found in the run's folder."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

from rich.console import Console
from rich.text import Text

from lhkit.cli.console import EXIT_MISSED, wide_console
from lhkit.cli.thresholds import Judged
from lhkit.harness.record import Verdict
from lhkit.harness.report.terminal import summary_view
from lhkit.harness.results import Run
from lhkit.harness.resume import Resumption
from lhkit.harness.tables import change_text, shortened_list
from lhkit.locales import Catalog
from lhkit.text import printable

_SHOWN_FAILURES = 10


def show_run(
    run: Run,
    run_dir: Path,
    words: Mapping[str, str],
    last: Iterable[str],
    catalog: Catalog,
) -> None:
    """Print the table of a run, its first failures, where its records are, and the last lines."""
    console = wide_console()
    console.print(summary_view(run.summary(), catalog, words))
    _show_failures(run, run_dir, console, catalog)
    played = len(run.records) - run.kept
    records = catalog.text("eval.records", path=run_dir, played=played, kept=run.kept)
    console.print(Text(printable(records)), soft_wrap=True)
    print_lines(last)


def exit_code_lines(run: Run, found: Judged, catalog: Catalog) -> Iterator[str]:
    """Yield which exit code a CI job would get and why; nothing where it is this command's own."""
    total = run.summary().total
    counts = {"passed": total.passed, "valid": total.valid}
    if found.exit_code == 0:
        yield catalog.text("eval.would_pass", **counts)
    elif found.exit_code == EXIT_MISSED:
        yield catalog.text("eval.would_stop", **counts, why=" ".join(found.missed))


def _show_failures(run: Run, run_dir: Path, console: Console, catalog: Catalog) -> None:
    failed = (each for each in run.records if each.judgement.verdict is not Verdict.PASS)
    shown = list(islice(failed, _SHOWN_FAILURES))
    if not shown:
        return
    console.print(Text(catalog.text("eval.failed"), style="bold"))
    for record in shown:
        reason = record.judgement.reasons[0] if record.judgement.reasons else ""
        line = f"  {record.sample_id} · {record.judgement.verdict} · {reason}"
        console.print(Text(printable(line)), no_wrap=True, overflow="ellipsis")
    if left := sum(1 for _ in failed):
        more = catalog.text("eval.more", count=left, path=run_dir)
        console.print(Text(printable(f"  {more}")), soft_wrap=True)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines without cutting them."""
    for line in lines:
        wide_console().print(Text(printable(line)), soft_wrap=True)


def resumed(found: Resumption, catalog: Catalog) -> Iterator[str]:
    """Yield what a run found in its folder; nothing where it found nothing."""
    if found.changed:
        why = list(_why(found, catalog)) or [catalog.text("eval.unknown_change")]
        yield catalog.text(
            "eval.new_questions", count=found.changed, asked=found.total, why="; ".join(why)
        )
    if found.retried:
        yield catalog.text("eval.retried", count=found.retried, asked=found.total)
    if found.kept:
        yield catalog.text("eval.kept", count=found.kept, asked=found.total)
    if found.unverified:
        yield catalog.text("eval.unsure", models=", ".join(found.unverified))


def _why(found: Resumption, catalog: Catalog) -> Iterator[str]:
    scenarios = tuple(each.where for each in found.changes if each.what == "scenario")
    if scenarios:
        yield f"{catalog.text('change.scenario')} {shortened_list(scenarios)}"
    yield from (change_text(each, catalog) for each in found.changes if each.what != "scenario")
