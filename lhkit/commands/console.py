"""The console of the commands that show runs."""

from rich.console import Console

from lhkit.harness.report.terminal import WIDTH


def wide_console() -> Console:
    """Return a console that does not cut the table where nobody sees the width."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH)
