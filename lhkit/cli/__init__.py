"""The command line: parses options, calls `commands`, sets the exit code.

Exit codes: 0 all well · 1 a threshold was missed or a violation escaped · 2 wrong use ·
3 the world failed (set-up, server, invalid samples) · 130 interrupted.
"""

from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Console

from lhkit import __version__
from lhkit.cli.authoring import add_accept, add_data_check, add_lint, add_mutate
from lhkit.cli.comparing import add_compare, add_rescore
from lhkit.cli.examples import show_examples
from lhkit.cli.finish import EXIT_MISUSE, Run
from lhkit.cli.late_help import finish_commands
from lhkit.cli.matrix import add_matrix
from lhkit.cli.reporting import add_report
from lhkit.cli.scoring import add_audit, add_eval
from lhkit.cli.talking import add_chat, add_doctor, add_serve
from lhkit.cli.tuning import add_tune

_HELP = "A small local Gemma in front of tools that change real data."


def build_cli(run: Run) -> Callable[[], int]:
    """Return the command line as a function that gives the exit code."""
    cli = build_parser(run)
    return lambda: _exit_code(cli)


def build_parser(run: Run) -> typer.Typer:
    """Return all commands with their options, their help and the examples beneath it."""
    cli = typer.Typer(help=_HELP, no_args_is_help=True, add_completion=False)

    @cli.callback()
    def root(
        _version: Annotated[
            bool,
            typer.Option("--version", help="Show the version.", callback=_show, is_eager=True),
        ] = False,
    ) -> None:
        pass

    add_eval(cli, run)
    add_chat(cli, run)
    add_serve(cli, run)
    add_doctor(cli, run)
    add_audit(cli, run)
    add_matrix(cli, run)
    add_compare(cli, run)
    add_rescore(cli, run)
    add_report(cli, run)
    add_lint(cli, run)
    add_mutate(cli, run)
    add_accept(cli, run)
    add_data_check(cli, run)
    add_tune(cli, run)
    show_examples(cli)
    finish_commands(cli)
    return cli


def _show(is_wanted: bool) -> None:
    if is_wanted:
        Console().print(f"lhkit {__version__}")
        raise typer.Exit


def _exit_code(cli: typer.Typer) -> int:
    try:
        cli()
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else EXIT_MISUSE
    return 0
