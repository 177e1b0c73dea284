"""Consoles and printing for commands."""

import json
from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from lhkit.base.text import printable
from lhkit.harness.report.terminal import WIDTH


def wide_console(width: int = WIDTH) -> Console:
    """Return a console that does not cut tables when the output is not a terminal."""
    console = Console()
    return console if is_interactive(console) else Console(width=width)


def is_interactive(console: Console) -> bool:
    """Return whether a person reads the console: colours may be forced in a pipe, too."""
    return console.is_terminal and console.file.isatty()


def print_lines(lines: Iterable[str], console: Console | None = None) -> None:
    """Print lines unwrapped, with control characters escaped."""
    console = console or wide_console()
    for line in lines:
        console.print(Text(printable(line)), soft_wrap=True)


def print_json(console: Console, value: object) -> None:
    """Print a value as JSON, escaping what the console cannot encode."""
    is_unicode = console.encoding.startswith("utf")
    console.out(json.dumps(value, ensure_ascii=not is_unicode, indent=1), highlight=False)
