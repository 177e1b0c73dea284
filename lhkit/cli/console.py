"""The console of the commands that show runs, and the exit codes of those that judge them."""

import json

from rich.console import Console

from lhkit.harness.report.terminal import WIDTH

EXIT_MISSED = 1
"""Something that was asked for by an option was not reached."""
EXIT_INVALID = 3
"""Samples are left that say nothing, so nobody can tell."""


def wide_console() -> Console:
    """Return a console that does not cut the table where nobody sees the width."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH)


def print_json(console: Console, value: object) -> None:
    """Print a value as JSON; what the console cannot encode as JSON's own escapes."""
    is_unicode = console.encoding.startswith("utf")
    console.out(json.dumps(value, ensure_ascii=not is_unicode, indent=1), highlight=False)
