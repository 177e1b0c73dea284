"""`lhkit chat`: chat with a model and tools in the terminal."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from lhkit import app
from lhkit.base.errors import UsageError
from lhkit.base.files import read_text_file
from lhkit.base.locales import Catalog, load_catalog
from lhkit.base.options import DEFAULT_TOOLSET
from lhkit.cli.chat.terminal import TerminalChat
from lhkit.cli.frame.command import Options, command
from lhkit.cli.frame.exit_codes import ExitCode
from lhkit.cli.frame.options import (
    Approvals,
    BaseUrl,
    ChatTemplateFile,
    ConstraintOption,
    Database,
    Dialect,
    DtypeOption,
    Locale,
    LogprobsOption,
    Model,
    RuntimeOption,
    Toolset,
    World,
    apply_server_options,
)
from lhkit.cli.frame.progress import open_model
from lhkit.cli.frame.typed import InputLines, input_lines
from lhkit.confirm.gate import ConfirmGate, GuardedGate
from lhkit.confirm.policy import PolicyGate, load_policy
from lhkit.confirm.terminal import TerminalGate
from lhkit.harness.chats.chats import ChatRecorder
from lhkit.harness.running.sessions import LiveSession
from lhkit.harness.scenarios.documents import read_yaml
from lhkit.settings import Settings
from lhkit.toolset import closing_session, load, name_of


class ChatOptions(Options):
    """Options of `lhkit chat`.

    `file` is the database of a toolset that keeps its data, by default in lhkit's data folder.
    """

    model: Model = None
    base_url: BaseUrl = None
    dialect: Dialect = None
    chat_template: ChatTemplateFile = None
    constraint: ConstraintOption = "off"
    dtype: DtypeOption = None
    runtime: RuntimeOption = None
    locale: Locale = None
    toolset: Toolset = DEFAULT_TOOLSET
    world: World = None
    file: Database = None
    approvals: Approvals = None
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            file_okay=False,
            help="Record the conversation in this folder, such as runs/chats.",
        ),
    ] = None
    logprobs: LogprobsOption = False


@command(
    "lhkit chat --locale en",
    "lhkit chat --toolset shop.py:toolset --record runs/chats",
    "lhkit chat --base-url http://127.0.0.1:8000 --model org/model",
)
async def converse(options: ChatOptions, settings: Settings) -> int:
    """Chat until the user quits; return the exit code.

    Raises:
        LhkitError: the toolset, its data or the model cannot be opened.
    """
    base_url = options.base_url or settings.base_url
    settings = apply_server_options(settings, options.runtime, options.dtype, base_url)
    settings = settings.model_copy(update={"locale": options.locale or settings.locale})
    catalog = load_catalog(settings.locale)
    policy = load_policy(options.approvals)
    choice = app.ModelChoice(
        name=options.model,
        base_url=base_url,
        api_key=settings.api_key,
        dialect=options.dialect,
        chat_template=options.chat_template,
        constraint=options.constraint,
    )
    app.require_choice(choice, settings.runtime)  # before a file is created
    live = open_live_session(options.toolset, options.world, options.file, settings)
    with closing_session(live.session) as session:
        choice = replace(choice, tools=session.registry.definitions)
        app.require_choice(choice, settings.runtime)
        folder = options.record
        recorder = None if folder is None else ChatRecorder(folder, live, now=settings.now)
        console = Console(highlight=False, markup=False, emoji=False)
        lines = input_lines()
        gate: ConfirmGate = GuardedGate(terminal_gate(lines, console, catalog))
        async with open_model(choice, settings) as model:
            notices, policy_gate = [], None
            if policy is not None:
                front = live.measured(model.identity, lambda: settings.locale)
                gate = policy_gate = PolicyGate(policy, gate, front)
                notices = [policy_gate.line(catalog, file=str(options.approvals))]
            controller = app.open_chat(
                model,
                session,
                gate,
                settings.locale,
                live.watch(),
                logprobs=options.logprobs or (policy is not None and policy.reads_logprobs),
            )
            chat = TerminalChat(
                controller,
                live,
                read=lines.read,
                console=console,
                catalog=catalog,
                now=settings.now,
                recorder=recorder,
                policy_gate=policy_gate,
                notices=notices,
            )
            await chat.run(model_name=model.identity.model)
    return ExitCode.OK


def terminal_gate(lines: InputLines, console: Console, catalog: Catalog) -> TerminalGate:
    """Return a gate that asks in a console, without interpreting markup or emoji codes."""

    def write(text: str) -> None:
        console.print(Text(text), soft_wrap=True)

    return TerminalGate(lines.read, write, catalog, forget=lines.forget)


def open_live_session(
    toolset: str, world: Path | None, file: Path | None, settings: Settings
) -> LiveSession:
    """Return a session over stored data, or over an initial state of its own.

    Args:
        toolset: reference of the toolset.
        world: YAML file with the initial state.
        file: database of a toolset that keeps its data.
        settings: with the data folder, the clock and the locale.

    Raises:
        UsageError: the toolset or initial state is invalid, or the toolset has no database.
        StoreError: the database cannot be opened.
    """
    loaded = load(toolset)
    state = None if world is None else _read_world(world)
    if state is None and hasattr(loaded, "open_kept"):
        file = file or settings.data_dir / f"{name_of(loaded)}.sqlite3"
    elif file is not None:
        reason = (
            "--world starts from a state of its own" if world else f"--toolset {toolset} has none"
        )
        raise UsageError(f"--db is a database, and {reason}: leave one out")
    return LiveSession(loaded, state, file, now=settings.now, locale=settings.locale)


def _read_world(file: Path) -> dict[str, Any]:
    try:
        document = read_yaml(read_text_file(file))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--world {file} cannot be read ({error}): give a YAML file") from error
    if document.issues:
        issue = document.issues[0]
        raise UsageError(f"{file}:{document.line(issue.path)}: {issue.message}")
    if not isinstance(document.value, dict):
        raise UsageError(
            f"{file} is not a valid initial state: write what a scenario has under `world:`, such "
            "as `items: [{id: egg}]`"
        )
    return document.value
