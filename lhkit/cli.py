"""The command line: parses options, calls `app`, shows results, sets the exit code.

Exit codes: 0 all well · 1 a threshold was missed or a violation escaped · 2 wrong use ·
3 the world failed (set-up, server, invalid samples) · 130 interrupted.
"""

import logging
from collections.abc import Callable, Coroutine
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from rich.console import Console
from rich.text import Text

from lhkit import __version__
from lhkit.errors import LhkitError, UsageError
from lhkit.settings import Settings, load_settings

Run: TypeAlias = Callable[[Coroutine[Any, Any, int]], int]
"""Runs a coroutine to its end; `asyncio.run`, given by `__main__`."""

EXIT_MISUSE = 2
EXIT_WORLD = 3
EXIT_INTERRUPTED = 130

LOG_BYTES = 1_000_000

_HELP = "A small local Gemma in front of tools that change real data."

BaseUrl = Annotated[
    str | None,
    typer.Option(help="A running OpenAI-compatible vLLM server, such as http://127.0.0.1:8000."),
]
Model = Annotated[
    str | None,
    typer.Option(
        help="gemma or gemma-base (embedded), gold, silent; with --base-url a served name."
    ),
]
Dialect = Annotated[str, typer.Option(help="How the model is spoken to.")]
Constrain = Annotated[
    str, typer.Option(help="Decoding: off, auto (words or a valid call), required (a valid call).")
]
Locale = Annotated[str | None, typer.Option(help="ko or en.")]
Paths = Annotated[list[Path] | None, typer.Argument(help="Scenario files or folders.")]


def build_cli(run: Run) -> Callable[[], int]:
    """Return the command line as a function that gives the exit code."""
    cli = typer.Typer(help=_HELP, no_args_is_help=True, add_completion=False)

    @cli.callback()
    def root(
        _version: Annotated[
            bool,
            typer.Option("--version", help="Show the version.", callback=_show, is_eager=True),
        ] = False,
    ) -> None:
        pass

    _add_eval(cli, run)
    _add_chat(cli, run)
    _add_serve(cli, run)
    _add_doctor(cli, run)
    _add_audit(cli, run)
    return lambda: _exit_code(cli)


def _add_eval(cli: typer.Typer, run: Run) -> None:
    @cli.command("eval")
    def eval_(
        paths: Paths = None,
        model: Model = None,
        base_url: BaseUrl = None,
        dialect: Dialect = "json",
        constrain: Constrain = "off",
        repeats: Annotated[int, typer.Option(min=1, help="Runs of each scenario.")] = 1,
        concurrency: Annotated[int, typer.Option(min=1, help="Conversations at once.")] = 8,
        limit: Annotated[int | None, typer.Option(min=1, help="Only the first N.")] = None,
        max_tokens: Annotated[int, typer.Option(min=1, help="Tokens of one model message.")] = 128,
        name: Annotated[str | None, typer.Option(help="Name of the run's folder.")] = None,
        runs_dir: Annotated[Path, typer.Option(help="Where run folders are.")] = Path("runs"),
        fail_under: Annotated[
            float | None, typer.Option(min=0, max=100, help="Lowest pass rate in percent.")
        ] = None,
        keep_prompts: Annotated[bool, typer.Option(help="Keep prompt texts in records.")] = False,
    ) -> None:
        """Replay scenarios against a model and score them. The same command again resumes."""
        from lhkit.commands.evaluate import EvalOptions, evaluate  # noqa: PLC0415 - scipy, pandas

        options = EvalOptions(
            paths=tuple(paths or ()),
            model=model,
            base_url=base_url,
            dialect=dialect,
            constrain=constrain,
            repeats=repeats,
            concurrency=concurrency,
            limit=limit,
            max_tokens=max_tokens,
            name=name,
            runs_dir=runs_dir,
            fail_under=fail_under,
            keep_prompts=keep_prompts,
        )
        _finish(run, lambda settings: evaluate(options, settings))


def _add_chat(cli: typer.Typer, run: Run) -> None:
    @cli.command()
    def chat(
        model: Model = None,
        base_url: BaseUrl = None,
        dialect: Dialect = "json",
        constrain: Constrain = "off",
        locale: Locale = None,
        db: Annotated[Path | None, typer.Option(help="The chat's SQLite file.")] = None,
    ) -> None:
        """Talk to life-helper in the terminal; every write asks y/N first."""
        from lhkit.commands.chat import ChatOptions, converse  # noqa: PLC0415 - prompt_toolkit

        options = ChatOptions(
            model=model,
            base_url=base_url,
            dialect=dialect,
            constrain=constrain,
            locale=locale,
            database=db,
        )
        _finish(run, lambda settings: converse(options, settings))


def _add_serve(cli: typer.Typer, run: Run) -> None:
    @cli.command()
    def serve(
        model: Annotated[
            str, typer.Argument(help="gemma or gemma-base (embedded), or a name such as org/model.")
        ] = "gemma",
        port: Annotated[int | None, typer.Option(help="Default: a free port.")] = None,
        dry_run: Annotated[
            bool, typer.Option("--dry-run", help="Only print the line that serves MODEL.")
        ] = False,
        device: Annotated[str, typer.Option(help="Another model's: gpu or cpu.")] = "gpu",
    ) -> None:
        """Serve a model until Ctrl-C; chat and eval find the embedded one and start at once."""
        from lhkit.commands.serve import serve_embedded, serve_line  # noqa: PLC0415 - aiohttp

        if dry_run or "/" in model:
            _finish(run, lambda _: serve_line(model, device, dry_run=dry_run))
        _finish(run, lambda settings: serve_embedded(model, port, settings))


def _add_doctor(cli: typer.Typer, run: Run) -> None:
    @cli.command()
    def doctor(base_url: BaseUrl = None, model: Model = None, dialect: Dialect = "json") -> None:
        """Look at this machine and a server; one line a finding, with the next step."""
        from lhkit.commands.doctor import DoctorOptions, examine  # noqa: PLC0415 - aiohttp

        options = DoctorOptions(base_url=base_url, model=model, dialect=dialect)
        _finish(run, lambda settings: examine(options, settings))


def _add_audit(cli: typer.Typer, run: Run) -> None:
    @cli.command("audit")
    def audit_(
        folder: Annotated[Path, typer.Argument(metavar="RUN", help="Folder such as runs/NAME.")],
    ) -> None:
        """Show what the models of a run really wrote, and what had to be mended."""
        from lhkit.commands.audit import audit_run  # noqa: PLC0415 - scipy

        _finish(run, lambda settings: audit_run(folder, settings))


def _show(is_wanted: bool) -> None:
    if is_wanted:
        Console().print(f"lhkit {__version__}")
        raise typer.Exit


def _finish(run: Run, command: Callable[[Settings], Coroutine[Any, Any, int]]) -> None:
    """Run a command and leave with its exit code; faults become one sentence."""
    try:
        settings = load_settings()
        _log_to_file(settings)
        code = run(command(settings))
    except UsageError as error:
        code = _complain(error, EXIT_MISUSE)
    except LhkitError as error:
        code = _complain(error, EXIT_WORLD)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    raise typer.Exit(code)


def _log_to_file(settings: Settings) -> None:
    """Keep what handlers, gates and subscribers log, with tracebacks, out of the user's way."""
    folder = settings.cache_dir / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    handler = RotatingFileHandler(
        folder / "lhkit.log", maxBytes=LOG_BYTES, backupCount=1, encoding="utf-8"
    )
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("lhkit")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


def _complain(error: LhkitError, code: int) -> int:
    Console(stderr=True).print(Text(f"lhkit: {error}", style="red"), soft_wrap=True)
    return code


def _exit_code(cli: typer.Typer) -> int:
    try:
        cli()
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else EXIT_MISUSE
    return 0
