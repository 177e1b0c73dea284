"""The commands of `lhkit`: their names, help, and the modules that are loaded when they run."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from lhkit import __version__
from lhkit.base.errors import UsageError
from lhkit.base.locales.messages import translate
from lhkit.base.user_locale import FALLBACK, user_locale
from lhkit.cli.frame.exit_codes import ExitCode
from lhkit.cli.frame.finish import Runner
from lhkit.cli.frame.spoken import Spoken, set_up_wide_letters

_HELP = """Put a small local model in front of tools that change data, and evaluate it.

Exit codes: 0 success, 1 missed threshold or violation, 2 invalid usage,
3 infrastructure error, 4 cannot tell, 70 unforeseen exception,
130 interrupted.
"""

_EXAMPLES = """$ lhkit eval --model gold
$ lhkit chat --base-url http://127.0.0.1:8000
$ lhkit eval --help"""

COMMANDS: Mapping[str, tuple[str, str]] = {
    "accept": ("accept", "Accept an observed argument or phrase in a scenario file."),
    "agreement": ("agreement", "Compare a judge with labels of a person, and correct its rate."),
    "approvals": (
        "approvals",
        "Show which tools need their confirmation card, at a budget of risk.",
    ),
    "chat": ("chat.chat", "Chat in the terminal; each write asks y/N first."),
    "chats": ("chat.chats", "List, show or delete recorded chats, and draft scenarios from them."),
    "compare": ("compare", "Compare runs sample by sample."),
    "demo": ("demo.demo", "Play scripted conversations and show what the gate stops."),
    "doctor": ("doctor", "Check this machine and a server, and say what to do next."),
    "eval": ("eval.evaluate", "Run scenarios against a model and score them; run again to resume."),
    "export": ("export", "Write a run as messages, Inspect log, traces or SFT data."),
    "import": ("imports", "Create scenarios and a toolset from recorded chats or a benchmark."),
    "init": (
        "init.init",
        "Write a toolset, scenarios, a notebook and a CI workflow to start from.",
    ),
    "lint": ("lint", "Check scenarios against tools and data."),
    "matrix": ("matrix", "Run the missing arms of a suite and show one table."),
    "mcp": ("mcp", "Serve tools to MCP clients."),
    "mutate": ("mutate", "Test whether scenarios detect mistakes in reference calls."),
    "prompt": ("prompt", "Show the prompt of the first turn, with tokens per part."),
    "report": ("report", "Write a run as HTML, Markdown or JUnit XML."),
    "rescore": ("rescore", "Score a run again with current scorers and scenarios."),
    "serve": ("serve.serve", "Serve a model until Ctrl-C; chat and eval find an embedded one."),
}
"""Module of `lhkit.cli` and help, by command."""


def build_cli(run: Runner) -> Callable[[], int]:
    """Return a function that parses `sys.argv`, runs the command and returns its exit code."""
    app = build_parser(run)

    def call() -> int:
        try:
            app()
        except SystemExit as error:
            return error.code if isinstance(error.code, int) else ExitCode.USAGE
        return ExitCode.OK

    return call


def build_parser(run: Runner, locale: str | None = None) -> typer.Typer:
    """Return the typer application.

    Args:
        run: runs a command's coroutine to its end.
        locale: language of help and errors; that of the user by default.
    """
    spoken = locale or _spoken_locale()
    set_up_wide_letters()
    commands = {name: LazyCommand(name, run, spoken) for name in COMMANDS}

    class Commands(Spoken, TyperGroup):
        locale = spoken

        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.commands.update(commands)

    app = typer.Typer(
        cls=Commands,
        help=translate(_HELP, spoken),
        epilog=_EXAMPLES,
        no_args_is_help=True,
        add_completion=False,
    )

    @app.callback()
    def root(
        _version: Annotated[
            bool,
            typer.Option(
                "--version",
                help=translate("Show the version.", spoken),
                callback=_show_version,
                is_eager=True,
            ),
        ] = False,
    ) -> None:
        pass

    return app


def _spoken_locale() -> str:
    """Return the language of the user; English for an invalid one, which the command reports."""
    try:
        return user_locale()
    except UsageError:
        return FALLBACK


class LazyCommand(TyperCommand):
    """A command that imports its module only when it is called."""

    def __init__(self, name: str, run: Runner, locale: str) -> None:
        self._module, self._summary = COMMANDS[name]
        self._run, self._locale = run, locale
        self._loaded: Any = None
        super().__init__(name, help=translate(self._summary, locale))

    def load(self) -> Any:
        """Import the module, once, and return the command or group that it defines."""
        if self._loaded is None:
            from lhkit.cli.frame.command import build_command

            module = import_module(f"lhkit.cli.{self._module}")
            app = build_command(module, str(self.name), self._summary, self._run, self._locale)
            self._loaded = get_command(app)
        return self._loaded

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **more: Any) -> Any:
        """Parse the arguments with the loaded command."""
        return self.load().make_context(info_name, args, parent, **more)


def _show_version(is_requested: bool) -> None:
    if is_requested:
        Console().print(f"lhkit {__version__}")
        raise typer.Exit
