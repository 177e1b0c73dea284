"""`lhkit eval --watch`: a run in the terminal while it plays."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lhkit.harness.record import SampleRecord
from lhkit.harness.report.terminal import WIDTH
from lhkit.harness.watch import Ended, Rate, Watched
from lhkit.locales import Catalog
from lhkit.text import one_line, percent, percents, printable, seconds

_REASON_CHARS = 80
_FRAMES_A_SECOND = 4

Watch = Callable[[SampleRecord], object]


@contextmanager
def watching(asked: int, folder: Path, catalog: Catalog) -> Iterator[Watch]:
    """Yield what is told of each sample that ended; it draws a screen, or a line each elsewhere.

    Args:
        asked: how many samples there are.
        folder: of the run, where failures can be opened.
        catalog: the texts.
    """
    console = Console(stderr=True)
    state = Watched(asked=asked)
    if not console.is_terminal:
        plain = Console(stderr=True, width=WIDTH)

        def line(record: SampleRecord) -> None:
            nonlocal state
            state = state.after(record)
            plain.print(Text(_line(state, catalog)), soft_wrap=True)

        yield line
        return
    with Live(
        get_renderable=lambda: screen(state, folder, catalog),
        console=console,
        refresh_per_second=_FRAMES_A_SECOND,
    ):

        def take(record: SampleRecord) -> None:
            nonlocal state
            state = state.after(record)

        yield take


def screen(state: Watched, folder: Path, catalog: Catalog) -> Group:
    """Return rates by criterion, the slowest samples, and the failures with how to open them."""
    table = Table(title=_title(state, catalog), title_justify="left")
    table.add_column("AC")
    table.add_column(catalog.text("watch.rate"), justify="right")
    for ac, rate in sorted(state.by_ac.items()):
        table.add_row(Text(printable(ac)), _rate(rate))
    parts: list[Table | Text] = [table]
    for key, samples in (("slowest", state.slowest), ("failures", state.failures)):
        if samples:
            parts.append(Text(catalog.text(f"watch.{key}"), style="bold"))
            parts += [Text(f"  {_told(each)}") for each in samples]
    if state.failures:
        shown = catalog.text("watch.open", folder=folder)
        parts.append(Text(printable(shown)))
    return Group(*parts)


def _title(state: Watched, catalog: Catalog) -> str:
    counts = catalog.text("watch.ended", ended=state.ended, asked=state.asked)
    invalid = catalog.text("matrix.invalid", count=state.invalid) if state.invalid else ""
    return " · ".join(filter(None, (counts, _rate(state.total), invalid)))


def _line(state: Watched, catalog: Catalog) -> str:
    last = "" if state.last is None else f"{_told(state.last)} · "
    return f"{last}{_title(state, catalog)}"


def _rate(rate: Rate) -> str:
    if not rate.valid:
        return "–"
    interval = rate.interval
    ends = f" [{percents(interval.low, interval.high)}]" if interval else ""
    return f"{rate.passed}/{rate.valid} {percent(rate.passed / rate.valid)}{ends}"


def _told(ended: Ended) -> str:
    reason = f" · {one_line(ended.reason, max_chars=_REASON_CHARS)}" if ended.reason else ""
    return printable(f"{ended.sample} · {ended.verdict} · {seconds(ended.turns_s)}{reason}")
