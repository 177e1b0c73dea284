"""The command line: one command for each module of this package that names one.

A module is loaded when its command is called; the list of all is made from their first lines.
"""

import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from lhkit import __version__
from lhkit.cli.command import shown_examples, typer_of
from lhkit.cli.finish import EXIT_MISUSE, Run

_HELP = """A small local Gemma in front of tools that change real data.

Exit codes: 0 all well, 1 a threshold was missed or a violation happened, 2 wrong use,
3 infrastructure error, 70 an unforeseen exception, 130 interrupted.
"""

EXAMPLES = (
    "lhkit eval --model gold",
    "lhkit chat --base-url http://127.0.0.1:8000",
    "lhkit eval --help",
)

_FIRST_LINE = re.compile(r'"""`lhkit ([a-z]+)`: (.+?)(?:""")?\n')


def build_cli(run: Run) -> Callable[[], int]:
    """Return the command line as a function that gives the exit code."""
    cli = build_parser(run)

    def called() -> int:
        try:
            cli()
        except SystemExit as left:
            return left.code if isinstance(left.code, int) else EXIT_MISUSE
        return 0

    return called


def build_parser(run: Run) -> typer.Typer:
    """Return all commands with their options, their help and the examples beneath it."""

    class Commands(TyperGroup):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.commands.update({each.name or "": each for each in _commands(run)})

    cli = typer.Typer(
        cls=Commands,
        help=_HELP,
        epilog=shown_examples(EXAMPLES),
        no_args_is_help=True,
        add_completion=False,
    )

    @cli.callback()
    def root(
        _version: Annotated[
            bool,
            typer.Option("--version", help="Show the version.", callback=_show, is_eager=True),
        ] = False,
    ) -> None:
        pass

    return cli


class LazyCommand(TyperCommand):
    """A command whose module is loaded when it is called."""

    def __init__(self, name: str, summary: str, module: str, run: Run) -> None:
        super().__init__(name, help=summary)
        self._module, self._run = module, run

    def loaded(self) -> Any:
        """Return the command itself."""
        module = import_module(f"lhkit.cli.{self._module}")
        return get_command(typer_of(module, str(self.name), str(self.help), self._run))

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **more: Any) -> Any:
        """Read the words of the command."""
        return self.loaded().make_context(info_name, args, parent, **more)


def _commands(run: Run) -> Iterator[LazyCommand]:
    for file in sorted(Path(__file__).parent.glob("*.py")):
        with file.open(encoding="utf-8") as lines:
            found = _FIRST_LINE.match(next(lines, ""))
        if found:
            name, summary = found.groups()
            yield LazyCommand(name, f"{summary[0].upper()}{summary[1:]}", file.stem, run)


def _show(is_wanted: bool) -> None:
    if is_wanted:
        Console().print(f"lhkit {__version__}")
        raise typer.Exit
