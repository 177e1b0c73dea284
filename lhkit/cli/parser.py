"""The command line: the name and help of every command, and the function that runs it."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from lhkit import __version__
from lhkit.cli.examples import show_examples
from lhkit.cli.finish import EXIT_MISUSE, Run, finish
from lhkit.cli.options import (
    USUAL_CHATS,
    AcceptOptions,
    AllChats,
    AsJsonl,
    BfclFolder,
    ChatName,
    ChatNames,
    ChatOptions,
    ChatsFolder,
    ComparedRun,
    DoctorOptions,
    EvalOptions,
    ExportOptions,
    ImportChatsOptions,
    InChatsFolder,
    LintOptions,
    Locale,
    MatrixOptions,
    MutateOptions,
    NewFolder,
    PromptOptions,
    ReportOptions,
    RescoreOptions,
    RunInQuestion,
    ServeOptions,
    ServeToolsOptions,
    TauFolder,
    TauSplit,
)
from lhkit.cli.typer_commands import finish_commands, spelt_out
from lhkit.settings import process_age_s

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

    _add_eval(cli, run)
    _add_chat(cli, run)
    _add_chats(cli, run)
    _add_serve(cli, run)
    _add_mcp(cli, run)
    _add_doctor(cli, run)
    _add_matrix(cli, run)
    _add_compare(cli, run)
    _add_rescore(cli, run)
    _add_report(cli, run)
    _add_export(cli, run)
    _add_lint(cli, run)
    _add_mutate(cli, run)
    _add_prompt(cli, run)
    _add_accept(cli, run)
    _add_import(cli, run)
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


def _add_eval(cli: typer.Typer, run: Run) -> None:
    @cli.command("eval")
    @spelt_out
    def eval_(options: EvalOptions) -> None:
        """Replay scenarios against a model and score them. The same command again resumes."""
        from lhkit.cli.evaluate import evaluate

        words = ("lhkit", *sys.argv[1:])
        begun_s = time.perf_counter() - process_age_s()
        finish(run, lambda settings: evaluate(options, settings, command=words, begun_s=begun_s))


def _add_chat(cli: typer.Typer, run: Run) -> None:
    @cli.command()
    @spelt_out
    def chat(options: ChatOptions) -> None:
        """Talk to a model with tools in the terminal; every write asks y/N first."""
        from lhkit.cli.chat import converse

        finish(run, lambda settings: converse(options, settings))


def _add_chats(cli: typer.Typer, run: Run) -> None:
    chats = typer.Typer(help="Kept chats: list, show or forget them.", no_args_is_help=True)
    cli.add_typer(chats, name="chats")

    @chats.command("list")
    def list_(folder: ChatsFolder = USUAL_CHATS) -> None:
        """Show a line for each chat that is kept in FOLDER."""
        from lhkit.cli.chats import list_chats

        finish(run, lambda settings: list_chats(folder, settings))

    @chats.command()
    def show(chat: ChatName, folder: InChatsFolder = USUAL_CHATS) -> None:
        """Show a chat: what was said, called, written on the card and clicked."""
        from lhkit.cli.chats import show_chat

        finish(run, lambda settings: show_chat(folder, chat, settings))

    @chats.command()
    def forget(
        chats: ChatNames = None,
        everything: AllChats = False,
        folder: InChatsFolder = USUAL_CHATS,
    ) -> None:
        """Remove chats from the disk; there is no way back."""
        from lhkit.cli.chats import remove_chats

        finish(run, lambda settings: remove_chats(folder, chats or (), settings, is_all=everything))


def _add_serve(cli: typer.Typer, run: Run) -> None:
    @cli.command()
    @spelt_out
    def serve(options: ServeOptions) -> None:
        """Serve a model until Ctrl-C; chat and eval find the embedded one and start at once."""
        from lhkit.cli.serve import serve_model

        finish(run, lambda settings: serve_model(options, settings))


def _add_mcp(cli: typer.Typer, run: Run) -> None:
    mcp = typer.Typer(help="Tools for other MCP clients.", no_args_is_help=True)
    cli.add_typer(mcp, name="mcp")

    @mcp.command("serve")
    @spelt_out
    def serve_(options: ServeToolsOptions) -> None:
        """Serve tools by MCP on standard input and output; a client's person is asked to write."""
        from lhkit.cli.mcp import serve_tools

        finish(run, lambda settings: serve_tools(options, settings))


def _add_doctor(cli: typer.Typer, run: Run) -> None:
    @cli.command()
    @spelt_out
    def doctor(options: DoctorOptions) -> None:
        """Look at this machine and a server; one line for each finding, with the next step."""
        from lhkit.cli.doctor import examine

        finish(run, lambda settings: examine(options, settings))


def _add_matrix(cli: typer.Typer, run: Run) -> None:
    @cli.command("matrix")
    @spelt_out
    def matrix_(options: MatrixOptions) -> None:
        """Play what is missing of a suite's arms and draw one table."""
        from lhkit.cli.matrix import run_matrix

        finish(run, lambda settings: run_matrix(options, settings))


def _add_compare(cli: typer.Typer, run: Run) -> None:
    @cli.command("compare")
    def compare_(run_a: ComparedRun, run_b: RunInQuestion, locale: Locale = None) -> None:
        """Show whether run B is better than run A, pair by pair, and what flipped."""
        from lhkit.cli.compare import compare_runs

        finish(run, lambda settings: compare_runs(run_a, run_b, settings, locale))


def _add_rescore(cli: typer.Typer, run: Run) -> None:
    @cli.command("rescore")
    @spelt_out
    def rescore_(options: RescoreOptions) -> None:
        """Score the records of a run again with today's scorers and scenarios, without a model."""
        from lhkit.cli.rescore import rescore_run

        finish(run, lambda settings: rescore_run(options, settings))


def _add_report(cli: typer.Typer, run: Run) -> None:
    @cli.command("report")
    @spelt_out
    def report_(options: ReportOptions) -> None:
        """Write a run down: HTML for people, Markdown for a pull request, XML for CI."""
        from lhkit.cli.report import report_run

        finish(run, lambda settings: report_run(options, settings))


def _add_export(cli: typer.Typer, run: Run) -> None:
    @cli.command("export")
    @spelt_out
    def export_(options: ExportOptions) -> None:
        """Write a run for other tools: OpenAI's messages, Parquet, Inspect, OpenTelemetry, TRL."""
        from lhkit.cli.export import export_run

        finish(run, lambda settings: export_run(options, settings))


def _add_lint(cli: typer.Typer, run: Run) -> None:
    @cli.command("lint")
    @spelt_out
    def lint_(options: LintOptions) -> None:
        """Check scenarios against tools and data: every fault with file, line and field."""
        from lhkit.cli.lint import lint_paths

        finish(run, lambda settings: lint_paths(options, settings))


def _add_mutate(cli: typer.Typer, run: Run) -> None:
    @cli.command("mutate")
    @spelt_out
    def mutate_(options: MutateOptions) -> None:
        """Spoil every gold trace in many ways: which mistakes would nobody notice?"""
        from lhkit.cli.mutate import mutate_paths

        finish(run, lambda settings: mutate_paths(options, settings))


def _add_prompt(cli: typer.Typer, run: Run) -> None:
    @cli.command("prompt")
    @spelt_out
    def prompt_(options: PromptOptions) -> None:
        """Show what a model would read at the first turn, with tokens per part. No server."""
        from lhkit.cli.prompt import show_prompt

        finish(run, lambda settings: show_prompt(options, settings))


def _add_accept(cli: typer.Typer, run: Run) -> None:
    @cli.command("accept")
    @spelt_out
    def accept_(options: AcceptOptions) -> None:
        """Take what a model did as one more right way, in the scenario's own YAML."""
        from lhkit.cli.accept import accept_sample

        finish(run, lambda settings: accept_sample(options, settings))


def _add_import(cli: typer.Typer, run: Run) -> None:
    imports = typer.Typer(
        help="Make scenarios and a toolset of what is there.", no_args_is_help=True
    )
    cli.add_typer(imports, name="import")
    _add_openai_messages(imports, run)
    _add_bfcl(imports, run)
    _add_tau(imports, run)


def _add_openai_messages(imports: typer.Typer, run: Run) -> None:
    @imports.command("openai-messages")
    @spelt_out
    def openai_messages_(options: ImportChatsOptions) -> None:
        """Recorded chats with tool calls: each becomes a scenario that can be played at once."""
        from lhkit.cli.imports import import_chats

        finish(run, lambda settings: import_chats(options, settings))


def _add_bfcl(imports: typer.Typer, run: Run) -> None:
    @imports.command("bfcl")
    def bfcl_(path: BfclFolder, into: NewFolder, jsonl: AsJsonl = False) -> None:
        """BFCL's multi-turn conversations, played with its own classes."""
        from lhkit.cli.imports import import_benchmark
        from lhkit.imports.bfcl import import_bfcl

        finish(
            run,
            lambda settings: import_benchmark(import_bfcl, path, into, settings, as_jsonl=jsonl),
        )


def _add_tau(imports: typer.Typer, run: Run) -> None:
    @imports.command("tau")
    def tau_(
        path: TauFolder, into: NewFolder, split: TauSplit = "test", jsonl: AsJsonl = False
    ) -> None:
        """tau-bench's airline and retail tasks, played with its own tools on its own data."""
        from lhkit.cli.imports import import_benchmark
        from lhkit.imports.tau import import_tau

        def read(folder: Path) -> Any:
            return import_tau(folder, split)

        finish(run, lambda settings: import_benchmark(read, path, into, settings, as_jsonl=jsonl))
