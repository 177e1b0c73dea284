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
from lhkit.harness.watch import Watched, Watching, name, sample_words, shown, title
from lhkit.locales import Catalog
from lhkit.text import printable

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
    state = Watched(asked)
    if not console.is_terminal:
        plain = Console(stderr=True, width=WIDTH)

        def line(record: SampleRecord) -> None:
            state.take(record)
            words = f"{name(record)} · {sample_words(record)} · {title(state, catalog)}"
            plain.print(Text(words), soft_wrap=True)

        yield line
        return
    with Live(console=console, auto_refresh=False) as live:
        watch = Watching(state, lambda s: live.update(screen(s, folder, catalog), refresh=True))
        try:
            yield watch
        finally:
            watch.draw()


def screen(state: Watched, folder: Path, catalog: Catalog) -> Group:
    """Return rates by criterion, the slowest samples, and the failures with how to open them."""
    words = shown(state, catalog)
    table = Table(title=words.title, title_justify="left")
    table.add_column("AC")
    table.add_column(catalog.text("watch.rate"), justify="right")
    for ac, rate in words.rates:
        table.add_row(Text(ac), rate)
    parts: list[Table | Text] = [table]
    for key, samples in (("slowest", words.slowest), ("failures", words.failures)):
        if samples:
            parts.append(Text(catalog.text(f"watch.{key}"), style="bold"))
            parts += [Text(f"  {sample} · {about}") for sample, about in samples]
    if words.failures:
        parts.append(Text(printable(catalog.text("watch.open", folder=folder))))
    return Group(*parts)
