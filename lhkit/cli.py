"""How commands are spelt: names, help, exit codes. Their options are in `commands.options`."""

import logging
import sys
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields
from functools import wraps
from inspect import Parameter, Signature, signature
from itertools import pairwise
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import GenericAlias, MappingProxyType
from typing import Annotated, Any, TypeAlias, get_args, get_origin, get_type_hints

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperCommand, TyperOption
from typer.models import CommandInfo

from lhkit import __version__
from lhkit.commands.options import (
    DIALECTS,
    AcceptOptions,
    AsJsonl,
    ChatOptions,
    DoctorOptions,
    EvalOptions,
    ExportOptions,
    ImportChatsOptions,
    LintOptions,
    Locale,
    MatrixOptions,
    MutateOptions,
    NewFolder,
    PromptOptions,
    ReportOptions,
    RescoreOptions,
    ServeOptions,
    ServeToolsOptions,
)
from lhkit.errors import LhkitError, UsageError
from lhkit.redaction import hide, masked
from lhkit.settings import Settings, load_settings, process_age_s
from lhkit.text import one_line, printable

# Runs a command to its end: settings, log file, one sentence for a fault, the exit code.


Run: TypeAlias = Callable[[Coroutine[Any, Any, int]], int]
"""Runs a coroutine to its end; `asyncio.run`, given by `__main__`."""

EXIT_MISUSE = 2
EXIT_WORLD = 3
EXIT_UNFORESEEN = 70  # EX_SOFTWARE of sysexits.h; 1 would read as a worse model
EXIT_INTERRUPTED = 130

LOG_BYTES = 1_000_000
_SHOWN_CHARS = 300

_log = logging.getLogger(__name__)


class _MaskingFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Return the line and its traceback without the keys that were sent to servers."""
        return masked(super().format(record))


class _LogFile(RotatingFileHandler):
    """A log that a full disk may cut short: it must not fill the user's terminal instead."""

    is_whole = True

    def handleError(self, _record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Note that a record is missing."""
        self.is_whole = False


def finish(run: Run, command: Callable[[Settings], Coroutine[Any, Any, int]]) -> None:
    """Run a command and leave with its exit code; faults become one sentence."""
    log: _LogFile | None = None
    try:
        settings = load_settings()
        hide(settings.api_key)
        log = log_to_file(settings)
        code = run(command(settings))
    except UsageError as error:
        code = _complain(error, EXIT_MISUSE)
    except LhkitError as error:
        code = _complain(error, EXIT_WORLD)
    except OSError as error:  # a full disk, a file in place of a folder, a closed terminal
        _log.exception("the system refused something")
        what = str(error) or type(error).__name__
        code = _complain(
            f"the system refused this ({what}): free some space, set the permissions, or name "
            "another place",
            EXIT_WORLD,
        )
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except BaseException as error:  # noqa: BLE001 - also SystemExit of a user's module, a stray cancel
        code = _report_unforeseen(error, log)
    raise typer.Exit(code)


def _report_unforeseen(error: BaseException, log: _LogFile | None) -> int:
    """Log the traceback, or print it where there is no log, and report the error in a sentence."""
    _log.critical("unforeseen error", exc_info=error)
    if log is not None and log.is_whole:
        place = f"end of {log.baseFilename}"
    else:
        place = "lines above"
        with suppress(OSError):
            sys.stderr.write(masked("".join(traceback.format_exception(error))))
    what = one_line(masked(traceback.format_exception_only(error)[-1]), max_chars=_SHOWN_CHARS)
    return _complain(
        f"unforeseen error: {what}. Report it with the traceback in the {place}.", EXIT_UNFORESEEN
    )


def log_to_file(settings: Settings) -> _LogFile | None:
    """Keep what handlers, gates and subscribers log, with tracebacks, out of the user's way."""
    folder = settings.cache_dir / "logs"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handler = _LogFile(
            folder / "lhkit.log",
            maxBytes=LOG_BYTES,
            backupCount=1,
            encoding="utf-8",
            errors="backslashreplace",
        )
    except OSError:  # what cannot be done without this folder says so itself
        return None
    handler.setFormatter(_MaskingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("lhkit")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    return handler


def _complain(error: LhkitError | str, code: int) -> int:
    told = Text(f"lhkit: {printable(masked(str(error)))}", style="red")
    with suppress(OSError):  # a full disk there too: the exit code still says it
        Console(stderr=True).print(told, soft_wrap=True)
    return code


# What a person would type: one or two lines under the help of each command.
#
# A test asks for a line of each command and reads every line with the command's own parser, so
# that a renamed option is noticed.


EXAMPLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "": (
            "lhkit eval --model gold",
            "lhkit chat --base-url http://127.0.0.1:8000",
            "lhkit eval --help",
        ),
        "eval": (
            "lhkit eval --limit 8",
            "lhkit eval mine.yaml --toolset mine.py:own --model gold",
            "lhkit eval --base-url http://127.0.0.1:8000 --fail-under 85",
            "lhkit eval --ray local --replicas 2",
        ),
        "chat": (
            "lhkit chat --locale en",
            "lhkit chat --toolset mine.py:own --record runs/chats",
            "lhkit chat --base-url http://127.0.0.1:8000 --model org/model",
        ),
        "chats": ("lhkit chats list", "lhkit chats forget --all"),
        "chats list": ("lhkit chats list runs/chats",),
        "chats show": ("lhkit chats show chat-20260615-120000",),
        "chats forget": (
            "lhkit chats forget chat-20260615-120000",
            "lhkit chats forget --all --in runs/chats",
        ),
        "serve": (
            "lhkit serve",
            "lhkit serve google/gemma-3-4b-it --dry-run",
            "lhkit serve --weights tuned/model",
            "lhkit serve --lora tuned",
        ),
        "mcp": ("lhkit mcp serve --toolset mine.py:own",),
        "mcp serve": (
            "lhkit mcp serve --toolset mine.py:own",
            "lhkit mcp serve --allow-writes --locale en",
        ),
        "doctor": (
            "lhkit doctor",
            "lhkit doctor --base-url http://127.0.0.1:8000 --dialect openai",
        ),
        "prompt": (
            "lhkit prompt --toolset mine.py:own",
            "lhkit prompt mine.yaml --scenario eggs-left --toolset mine.py:own --json",
        ),
        "matrix": ("lhkit matrix evals/smoke.toml",),
        "compare": ("lhkit compare runs/before runs/after --locale en",),
        "rescore": ("lhkit rescore runs/gemma-json --into runs/gemma-today",),
        "report": (
            "lhkit report runs/gemma-json",
            "lhkit report runs/gemma-json --junit junit.xml --markdown -",
        ),
        "export": (
            "lhkit export runs/gemma-json --inspect gemma.eval",
            "lhkit export runs/gemma-json --openai-messages chats.jsonl --parquet tables",
            "lhkit export runs/chats --otel http://127.0.0.1:4318",
            "lhkit export --sft train.jsonl --scenarios mine --held-out datasets/ac",
        ),
        "lint": (
            "lhkit lint datasets/ac/dev",
            "lhkit lint mine.yaml --toolset mine.py:own --json",
        ),
        "mutate": (
            "lhkit mutate datasets/ac/dev --fail-under 97",
            "lhkit mutate mine.yaml --toolset mine.py:own",
        ),
        "accept": (
            "lhkit accept runs/gemma-json SCENARIO#2 --turn 0 --call 0 --arg limit",
            "lhkit accept runs/gemma-json SCENARIO --phrase noted --dry-run",
        ),
        "import": ("lhkit import openai-messages chats.jsonl --into mine",),
        "import openai-messages": (
            "lhkit import openai-messages chats.jsonl --tools tools.json --into mine",
            "lhkit import openai-messages chats.json --handlers mine.py:own --into mine",
        ),
        "import bfcl": ("lhkit import bfcl .venv/lib/python3.11/site-packages --into bfcl",),
        "import tau": ("lhkit import tau ~/tau-bench --into tau",),
    }
)
"""Examples by command; "" is `lhkit` itself."""


def show_examples(cli: typer.Typer) -> None:
    """Put the examples under the help of `cli`, its groups and all of their commands."""
    cli.info.epilog = _epilog("")
    for name, command in named_commands(cli):
        command.epilog = _epilog(name)
    for group in cli.registered_groups:
        group.epilog = _epilog(str(group.name))


def named_commands(cli: typer.Typer, prefix: str = "") -> Iterator[tuple[str, CommandInfo]]:
    """Yield every command with its full name, such as `chats show`."""
    for command in cli.registered_commands:
        name = command.name or getattr(command.callback, "__name__", "")
        yield f"{prefix}{name}", command
    for group in cli.registered_groups:
        if group.typer_instance is not None:
            yield from named_commands(group.typer_instance, f"{prefix}{group.name} ")


def _epilog(name: str) -> str:
    return "\n".join(f"$ {line}" for line in EXAMPLES.get(name, ()))


# What every command has: help with names that come from slow imports, and no empty values.


_MAY_BE_EMPTY = "--stress"
"""Of all options the one that nothing is a value of: no stress."""


class _Command(TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _refuse_empty(args, ctx)
        return super().parse_args(ctx, args)

    def get_help(self, ctx: Any) -> str:
        for option in self.params:
            if isinstance(option, TyperOption) and option.help:
                option.help = _filled(option.help)
        return super().get_help(ctx)


def _refuse_empty(args: Sequence[str], ctx: Any) -> None:
    """Refuse what a script gives whose variable is not set: it would be left out in silence.

    Raises:
        typer.BadParameter: a value is empty.
    """
    for before, word in pairwise(("", *args)):
        is_joined = word.startswith("--") and word.endswith("=")  # --option=
        option = word[:-1] if is_joined else before if before.startswith("-") else "an argument"
        if (is_joined or not word) and option != _MAY_BE_EMPTY:
            raise typer.BadParameter(f"{option} is empty: give it a value or leave it out", ctx=ctx)


def finish_commands(cli: typer.Typer) -> None:
    """Let every command of `cli` fill in names when its help is shown, and refuse empty values."""
    for _, command in named_commands(cli):
        command.cls = _Command


def _filled(told: str) -> str:
    if DIALECTS not in told:
        return told
    from lhkit.models import dialects

    return told.replace(DIALECTS, ", ".join(dialects.DIALECTS))


# Options: fields of what a command takes, and parameters of what typer calls.


def _spelt_out(command: Callable[[Any], None]) -> Callable[..., None]:
    """Return a command that takes one by one the fields of the only value that `command` takes.

    They are the fields that typer is told about: of a type `Annotated[X, typer.Option(…)]`. Typer
    knows no tuples of any length, so it is told of a list.
    """
    (taken,) = signature(command).parameters.values()
    options, parameters, lists = taken.annotation, [], set[str]()
    hints = get_type_hints(options, include_extras=True)
    for field in fields(options):
        if get_origin(hints[field.name]) is not Annotated:
            continue
        told, spelling = get_args(hints[field.name])
        default = Parameter.empty if field.default is MISSING else field.default
        if get_origin(told) is tuple:
            told, default = GenericAlias(list, get_args(told)[:1]), default or None
            lists.add(field.name)
        parameters.append(
            Parameter(
                field.name,
                Parameter.KEYWORD_ONLY,
                default=default,
                annotation=Annotated[told, spelling],
            )
        )

    @wraps(command)
    def called(**given: Any) -> None:
        given |= {name: tuple(given[name] or ()) for name in lists}
        command(options(**given))

    called.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return called


# `lint`, `mutate`, `accept`: for those who write scenarios.


def add_lint(cli: typer.Typer, run: Run) -> None:
    """Add `lhkit lint`."""

    @cli.command("lint")
    @_spelt_out
    def lint_(options: LintOptions) -> None:
        """Check scenarios against tools and data: every fault with file, line and field."""
        from lhkit.commands.author import lint_paths

        finish(run, lambda settings: lint_paths(options, settings))


def add_mutate(cli: typer.Typer, run: Run) -> None:
    """Add `lhkit mutate`."""

    @cli.command("mutate")
    @_spelt_out
    def mutate_(options: MutateOptions) -> None:
        """Spoil every gold trace in many ways: which mistakes would nobody notice?"""
        from lhkit.commands.author import mutate_paths

        finish(run, lambda settings: mutate_paths(options, settings))


def add_accept(cli: typer.Typer, run: Run) -> None:
    """Add `lhkit accept`."""

    @cli.command("accept")
    @_spelt_out
    def accept_(options: AcceptOptions) -> None:
        """Take what a model did as one more right way, in the scenario's own YAML."""
        from lhkit.commands.author import accept_sample

        finish(run, lambda settings: accept_sample(options, settings))


# `prompt`: for those who write tools.


def add_prompt(cli: typer.Typer, run: Run) -> None:
    """Add `lhkit prompt`."""

    @cli.command("prompt")
    @_spelt_out
    def prompt_(options: PromptOptions) -> None:
        """Show what a model would read at the first turn, with tokens per part. No server."""
        from lhkit.commands.prompt import show_prompt

        finish(run, lambda settings: show_prompt(options, settings))


# `import`: what others have written down becomes scenarios and a toolset.


def add_import(cli: typer.Typer, run: Run) -> None:
    """Add `lhkit import` with its formats."""
    imports = typer.Typer(
        help="Make scenarios and a toolset of what is there.", no_args_is_help=True
    )
    cli.add_typer(imports, name="import")
    _add_openai_messages(imports, run)
    _add_bfcl(imports, run)
    _add_tau(imports, run)


def _add_openai_messages(imports: typer.Typer, run: Run) -> None:
    @imports.command("openai-messages")
    @_spelt_out
    def openai_messages_(options: ImportChatsOptions) -> None:
        """Recorded chats with tool calls: each becomes a scenario that can be played at once."""
        from lhkit.commands.imports import import_chats

        finish(run, lambda settings: import_chats(options, settings))


def _add_bfcl(imports: typer.Typer, run: Run) -> None:
    @imports.command("bfcl")
    def bfcl_(
        path: Annotated[
            Path, typer.Argument(file_okay=False, help="Folder of the package bfcl_eval.")
        ],
        into: NewFolder,
        jsonl: AsJsonl = False,
    ) -> None:
        """BFCL's multi-turn conversations, played with its own classes."""
        from lhkit.commands.imports import import_benchmark
        from lhkit.imports.bfcl_scenarios import import_bfcl

        finish(
            run,
            lambda settings: import_benchmark(import_bfcl, path, into, settings, as_jsonl=jsonl),
        )


def _add_tau(imports: typer.Typer, run: Run) -> None:
    @imports.command("tau")
    def tau_(
        path: Annotated[
            Path, typer.Argument(file_okay=False, help="Your clone of sierra-research/tau-bench.")
        ],
        into: NewFolder,
        split: Annotated[
            str, typer.Option(help="test (what tau-bench reports), dev, train (retail's), or all.")
        ] = "test",
        jsonl: AsJsonl = False,
    ) -> None:
        """tau-bench's airline and retail tasks, played with its own tools on its own data."""
        from lhkit.commands.imports import import_benchmark
        from lhkit.imports.tau import import_tau

        def read(folder: Path) -> Any:
            return import_tau(folder, split)

        finish(run, lambda settings: import_benchmark(read, path, into, settings, as_jsonl=jsonl))


# `compare` and `rescore`: the commands that look at runs which are over.


def add_compare(cli: typer.Typer, run: Run) -> None:
    """Add `lhkit compare`."""

    @cli.command("compare")
    def compare_(
        run_a: Annotated[Path, typer.Argument(metavar="RUN_A", help="The run to compare with.")],
        run_b: Annotated[Path, typer.Argument(metavar="RUN_B", help="The run in question.")],
        locale: Locale = None,
    ) -> None:
        """Show whether run B is better than run A, pair by pair, and what flipped."""
        from lhkit.commands.report import compare_runs

        finish(run, lambda settings: compare_runs(run_a, run_b, settings, locale))


def add_rescore(cli: typer.Typer, run: Run) -> None:
    """Add `lhkit rescore`."""

    @cli.command("rescore")
    @_spelt_out
    def rescore_(options: RescoreOptions) -> None:
        """Score the records of a run again with today's scorers and scenarios, without a model."""
        from lhkit.commands.rescore import rescore_run

        finish(run, lambda settings: rescore_run(options, settings))


# `matrix`: the command that plays a suite.


def add_matrix(cli: typer.Typer, run: Run) -> None:
    """Add `lhkit matrix`."""

    @cli.command("matrix")
    @_spelt_out
    def matrix_(options: MatrixOptions) -> None:
        """Play what is missing of a suite's arms and draw one table."""
        from lhkit.commands.evaluate import run_matrix

        finish(run, lambda settings: run_matrix(options, settings))


# `report`: the command that writes a run down.


def add_report(cli: typer.Typer, run: Run) -> None:
    """Add `lhkit report`."""

    @cli.command("report")
    @_spelt_out
    def report_(options: ReportOptions) -> None:
        """Write a run down: HTML for people, Markdown for a pull request, XML for CI."""
        from lhkit.commands.report import report_run

        finish(run, lambda settings: report_run(options, settings))


# `export`: the command that writes a run for other tools.


def add_export(cli: typer.Typer, run: Run) -> None:
    """Add `lhkit export`."""

    @cli.command("export")
    @_spelt_out
    def export_(options: ExportOptions) -> None:
        """Write a run for other tools: OpenAI's messages, Parquet, Inspect, OpenTelemetry, TRL."""
        from lhkit.commands.export import (
            export_run,
        )

        finish(run, lambda settings: export_run(options, settings))


# `eval`: the command that plays scenarios.


def add_eval(cli: typer.Typer, run: Run) -> None:
    """Add `lhkit eval`."""

    @cli.command("eval")
    @_spelt_out
    def eval_(options: EvalOptions) -> None:
        """Replay scenarios against a model and score them. The same command again resumes."""
        from lhkit.commands.evaluate import evaluate

        words = ("lhkit", *sys.argv[1:])
        begun_s = time.perf_counter() - process_age_s()
        finish(run, lambda settings: evaluate(options, settings, command=words, begun_s=begun_s))


# `chat`, `serve` and `doctor`: the commands around a served model.


def add_chat(cli: typer.Typer, run: Run) -> None:
    """Add `lhkit chat`."""

    @cli.command()
    @_spelt_out
    def chat(options: ChatOptions) -> None:
        """Talk to a model with tools in the terminal; every write asks y/N first."""
        from lhkit.commands.chat import converse

        finish(run, lambda settings: converse(options, settings))


def add_mcp(cli: typer.Typer, run: Run) -> None:
    """Add `lhkit mcp` with what it serves."""
    mcp = typer.Typer(help="Tools for other MCP clients.", no_args_is_help=True)
    cli.add_typer(mcp, name="mcp")

    @mcp.command("serve")
    @_spelt_out
    def serve_(options: ServeToolsOptions) -> None:
        """Serve tools by MCP on standard input and output; a client's person is asked to write."""
        from lhkit.commands.mcp import serve_tools

        finish(run, lambda settings: serve_tools(options, settings))


_In = Annotated[
    Path, typer.Option("--in", metavar="FOLDER", file_okay=False, help="Where chats are kept.")
]
_USUAL_CHATS = Path("runs/chats")


def add_chats(cli: typer.Typer, run: Run) -> None:
    """Add `lhkit chats` with what can be done to kept chats."""
    chats = typer.Typer(help="Kept chats: list, show or forget them.", no_args_is_help=True)
    cli.add_typer(chats, name="chats")

    @chats.command("list")
    def list_(
        folder: Annotated[Path, typer.Argument(file_okay=False)] = _USUAL_CHATS,
    ) -> None:
        """Show a line for each chat that is kept in FOLDER."""
        from lhkit.commands.chats import list_chats

        finish(run, lambda settings: list_chats(folder, settings))

    @chats.command()
    def show(
        chat: Annotated[str, typer.Argument(help="As `lhkit chats list` names it.")],
        folder: _In = _USUAL_CHATS,
    ) -> None:
        """Show a chat: what was said, called, written on the card and clicked."""
        from lhkit.commands.chats import show_chat

        finish(run, lambda settings: show_chat(folder, chat, settings))

    @chats.command()
    def forget(
        chats: Annotated[
            list[str] | None, typer.Argument(metavar="[CHAT]...", help="Names of chats.")
        ] = None,
        everything: Annotated[
            bool, typer.Option("--all", help="All that are kept in the folder.")
        ] = False,
        folder: _In = _USUAL_CHATS,
    ) -> None:
        """Remove chats from the disk; there is no way back."""
        from lhkit.commands.chats import remove_chats

        finish(run, lambda settings: remove_chats(folder, chats or (), settings, is_all=everything))


def add_serve(cli: typer.Typer, run: Run) -> None:
    """Add `lhkit serve`."""

    @cli.command()
    @_spelt_out
    def serve(options: ServeOptions) -> None:
        """Serve a model until Ctrl-C; chat and eval find the embedded one and start at once."""
        from lhkit.commands.serve import serve_model

        finish(run, lambda settings: serve_model(options, settings))


def add_doctor(cli: typer.Typer, run: Run) -> None:
    """Add `lhkit doctor`."""

    @cli.command()
    @_spelt_out
    def doctor(options: DoctorOptions) -> None:
        """Look at this machine and a server; one line for each finding, with the next step."""
        from lhkit.commands.doctor import examine

        finish(run, lambda settings: examine(options, settings))


# The command line: parses options, calls `commands`, sets the exit code.
#
# Exit codes: 0 all well · 1 a threshold was missed or a violation happened · 2 wrong use ·
# 3 the world failed (set-up, server, invalid samples) · 70 an unforeseen exception ·
# 130 interrupted.


_HELP = """A small local Gemma in front of tools that change real data.

Exit codes: 0 all well, 1 a threshold was missed or a violation happened, 2 wrong use,
3 infrastructure error, 70 an unforeseen exception, 130 interrupted.
"""


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
    add_chats(cli, run)
    add_serve(cli, run)
    add_mcp(cli, run)
    add_doctor(cli, run)
    add_matrix(cli, run)
    add_compare(cli, run)
    add_rescore(cli, run)
    add_report(cli, run)
    add_export(cli, run)
    add_lint(cli, run)
    add_mutate(cli, run)
    add_prompt(cli, run)
    add_accept(cli, run)
    add_import(cli, run)
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
