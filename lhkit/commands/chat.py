"""`lhkit chat`: life-helper in a terminal, over a real database."""

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from lhkit import app
from lhkit.commands.progress import opened_model
from lhkit.commands.terminal import TerminalChat, input_lines
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
    lines = input_lines()
    gate = GuardedGate(TerminalGate(lines.read, console.print, catalog, forget=lines.forget))
    with app.open_store(told, options.database) as store:
        async with opened_model(choice, told) as model:
            controller = app.open_chat(model, store, gate, told)
            chat = TerminalChat(controller, read=lines.read, console=console, catalog=catalog)
            await chat.run(model_name=model.identity.model)
    return 0
