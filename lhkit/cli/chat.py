"""`lhkit chat`: talk to a model with tools in the terminal; every write asks y/N first."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from lhkit import app
from lhkit.cli.command import Options, command
from lhkit.cli.options import BaseUrl, Database, Locale, OpenedToolset, World
from lhkit.cli.overrides import served_by
from lhkit.cli.progress import opened_model
from lhkit.cli.terminal import TerminalChat, TypedGate
from lhkit.cli.typed import InputLines, input_lines
from lhkit.confirm.gate import GuardedGate
from lhkit.confirm.terminal import TerminalGate
from lhkit.errors import UsageError
from lhkit.harness.chats import ChatRecorder
from lhkit.harness.documents import read_yaml
from lhkit.harness.run_options import (
    ConstraintName,
    DialectName,
    DtypeName,
    ModelName,
    RuntimeName,
)
from lhkit.harness.sessions import LiveSession
from lhkit.locales import Catalog, load_catalog
from lhkit.settings import DEFAULT_TOOLSET, Settings
from lhkit.toolset import closing_session, load, name_of


class ChatOptions(Options):
    """What a chat is about, and with whom.

    `world` is a file with the state that the chat begins in; `file` is where a toolset that keeps
    its data has it, by default in the data folder of lhkit.
    """

    model: ModelName = None
    base_url: BaseUrl = None
    dialect: DialectName = "json"
    constraint: ConstraintName = "off"
    dtype: DtypeName = None
    runtime: RuntimeName = None
    locale: Locale = None
    toolset: OpenedToolset = DEFAULT_TOOLSET
    world: World = None
    file: Database = None
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            file_okay=False,
            help="Keep the conversation there, such as runs/chats; else nothing is kept.",
        ),
    ] = None


@command(
    "lhkit chat --locale en",
    "lhkit chat --toolset mine.py:own --record runs/chats",
    "lhkit chat --base-url http://127.0.0.1:8000 --model org/model",
)
async def converse(options: ChatOptions, settings: Settings) -> int:
    """Chat until the user ends it; return the exit code.

    Raises:
        LhkitError: the toolset, its data or the model cannot be had.
    """
    base_url = options.base_url or settings.base_url
    told = served_by(settings, options.runtime, options.dtype, base_url)
    told = told.model_copy(update={"locale": options.locale or settings.locale})
    catalog = load_catalog(told.locale)
    choice = app.ModelChoice(
        name=options.model,
        base_url=base_url,
        api_key=told.api_key,
        dialect=options.dialect,
        constraint=options.constraint,
    )
    app.require_choice(choice, told.runtime)  # before a file is made
    surroundings = open_talk(options, told)
    with closing_session(surroundings.session) as session:
        choice = replace(choice, tools=session.registry.definitions)
        app.require_choice(choice, told.runtime)
        folder = options.record
        keeper = None if folder is None else ChatRecorder(folder, surroundings, now=told.now)
        console = Console(highlight=False, markup=False, emoji=False)
        lines = input_lines()
        gate = GuardedGate(TypedGate(terminal_gate(lines, console, catalog)))
        async with opened_model(choice, told) as model:
            controller = app.open_chat(model, session, gate, told.locale)
            chat = TerminalChat(
                controller,
                surroundings,
                read=lines.read,
                console=console,
                catalog=catalog,
                now=told.now,
                keeper=keeper,
            )
            await chat.run(model_name=model.identity.model)
    return 0


def terminal_gate(lines: InputLines, console: Console, catalog: Catalog) -> TerminalGate:
    """Return the gate that asks in `console`, letter for letter."""

    def write(text: str) -> None:  # a `str` would be searched for markup and for `:emoji:`
        console.print(Text(text), soft_wrap=True)

    return TerminalGate(lines.read, write, catalog, forget=lines.forget)


def open_talk(options: ChatOptions, settings: Settings) -> LiveSession:
    """Return what is talked in: kept data, or a world of its own.

    Raises:
        UsageError: there is no such toolset or world, or it keeps no data in a file.
        StoreError: its file cannot be had.
    """
    toolset = load(options.toolset)
    world = None if options.world is None else _world(options.world)
    file = options.file
    if world is None and hasattr(toolset, "open_kept"):
        file = file or settings.data_dir / f"{name_of(toolset)}.sqlite3"
    elif file is not None:
        what = "--world begins anew" if options.world else f"--toolset {options.toolset} has none"
        raise UsageError(f"--db names a file that data is kept in, and {what}: leave one out")
    return LiveSession(toolset, world, file, now=settings.now, locale=settings.locale)


def _world(file: Path) -> dict[str, Any]:
    try:
        read = read_yaml(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--world {file} cannot be read ({error}): give a YAML file") from error
    if read.faults:
        fault = read.faults[0]
        raise UsageError(f"{file}:{read.line(fault.path)}: {fault.message}")
    if not isinstance(read.value, dict):
        raise UsageError(
            f"{file} is no world: write what stands under `world:` in a scenario, such as "
            "`items: [{id: egg}]`"
        )
    return read.value
