"""The console of the commands that show runs."""

from collections.abc import Iterable

from rich.console import Console

from lhkit.harness.html import criterion_words
from lhkit.harness.report.terminal import WIDTH
from lhkit.locales import Catalog
from lhkit.settings import DEFAULT_TOOLSET


def wide_console() -> Console:
    """Return a console that does not cut the table where nobody sees the width."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH)


def shown_words(toolset: str, names: Iterable[str], catalog: Catalog) -> dict[str, str]:
    """Return a few words for each acceptance criterion; none for those that are not ours."""
    return criterion_words(names, catalog) if toolset == DEFAULT_TOOLSET else {}
