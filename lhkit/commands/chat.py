"""`lhkit chat`: life-helper in a terminal, over a real database."""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from lhkit import app
from lhkit.commands.progress import opened_model
from lhkit.commands.terminal import LineReader, TerminalChat
from lhkit.confirm.gate import GuardedGate, TerminalGate
from lhkit.locales import load_catalog
from lhkit.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """What the user asked for on the command line."""

    model: str | None = None
    base_url: str | None = None
    dialect: str = "json"
    constrain: str = "off"
    locale: str | None = None
    database: Path | None = None


async def converse(options: ChatOptions, settings: Settings) -> int:
    """Chat until the user ends it; return the exit code.

    Raises:
        LhkitError: the model or the database cannot be had.
    """
    told = settings.model_copy(update={"locale": options.locale or settings.locale})
    catalog = load_catalog(told.locale)
    choice = app.ModelChoice(
        name=options.model,
        base_url=options.base_url or told.base_url,
        api_key=told.api_key,
        dialect=options.dialect,
        constraint=app.constraint_of(options.constrain),
        tools=app.registry_of(told.locale).definitions,
    )
    app.require_choice(choice)
    console = Console(highlight=False, markup=False)
    read = line_reader()
    gate = GuardedGate(TerminalGate(read, console.print, catalog))
    with app.open_store(told, options.database) as store:
        async with opened_model(choice, told) as model:
            controller = app.open_chat(model, store, gate, told)
            chat = TerminalChat(controller, read=read, console=console, catalog=catalog)
            await chat.run(model_name=model.identity.model)
    return 0


def line_reader() -> LineReader:
    """Return a reader with editing and history in a terminal, a plain one for a pipe."""
    if not sys.stdin.isatty():
        return _read_pipe
    from prompt_toolkit import PromptSession  # noqa: PLC0415 - only a terminal needs it

    session: PromptSession[str] = PromptSession()

    async def read(prompt: str) -> str:
        return str(await session.prompt_async(prompt))

    return read


async def _read_pipe(prompt: str) -> str:
    sys.stdout.write(prompt)
    sys.stdout.flush()
    line: str = await asyncio.to_thread(sys.stdin.readline)
    if not line:
        raise EOFError
    sys.stdout.write(line)
    return line.rstrip("\n")
