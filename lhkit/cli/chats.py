"""`lhkit chats`: list, show or forget kept chats."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from lhkit.cli.command import command
from lhkit.cli.console import wide_console
from lhkit.cli.options import USUAL_CHATS, ChatsFolder
from lhkit.errors import UsageError
from lhkit.harness.chats import forget_chats, load_chats
from lhkit.harness.record import SampleRecord
from lhkit.harness.transcript import transcript
from lhkit.locales import Catalog, load_catalog
from lhkit.settings import Settings
from lhkit.text import one_line, printable

_SHOWN_CHARS = 60
_MOST_CHARS = 1_000_000


@command("lhkit chats list runs/chats", name="list")
async def list_chats(
    folder: Annotated[Path, typer.Argument(file_okay=False)] = USUAL_CHATS, *, settings: Settings
) -> int:
    """Show a line for each chat that is kept in FOLDER, oldest first.

    Raises:
        RunError: there are no chats in the folder, or a line is no record.
        UsageError: it holds a run that was played.
    """
    catalog = load_catalog(settings.locale)
    records = load_chats(folder).records
    _say([_told(record, catalog) for record in records])
    _say([catalog.text("chats.count", count=len(records), folder=folder)])
    return 0


@command("lhkit chats show chat-20260615-120000", name="show")
async def show_chat(
    name: Annotated[str, typer.Argument(metavar="CHAT", help="As `lhkit chats list` names it.")],
    folder: ChatsFolder = USUAL_CHATS,
    *,
    settings: Settings,
) -> int:
    """Show a chat: its messages, calls, questions and answers.

    Raises:
        RunError: there are no chats in the folder, or a line is no record.
        UsageError: there is no such chat, or the folder holds a run that was played.
    """
    record = load_chats(folder).sample(name).record
    catalog = load_catalog(settings.locale)
    _say([_told(record, catalog), transcript(record, catalog, max_chars=_MOST_CHARS)])
    return 0


@command(
    "lhkit chats forget chat-20260615-120000",
    "lhkit chats forget --all --in runs/chats",
    name="forget",
)
async def remove_chats(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[CHAT]...", help="Names of chats.")
    ] = None,
    folder: ChatsFolder = USUAL_CHATS,
    *,
    is_all: Annotated[bool, typer.Option("--all", help="All that are kept in the folder.")] = False,
    settings: Settings,
) -> int:
    """Remove chats from the disk; there is no way back.

    Raises:
        UsageError: it is not clear which, there is no such chat, or it is a run that was played.
        RunError: there are no chats in the folder, it is in use, or cannot be written.
    """
    if bool(names) is is_all:
        raise UsageError("name the chats to forget, as `lhkit chats list` shows them, or --all")
    catalog = load_catalog(settings.locale)
    gone = forget_chats(folder, None if is_all else names)
    _say([*gone, catalog.text("chats.forgotten", count=len(gone), folder=folder)])
    return 0


def _told(record: SampleRecord, catalog: Catalog) -> str:
    turns = record.evidence.turns
    began = one_line(turns[0].user, max_chars=_SHOWN_CHARS) if turns else ""
    counted = catalog.text("chats.turns", count=len(turns))
    return f"{record.sample_id} · {record.locale} · {counted} · {began}"


def _say(lines: Sequence[str]) -> None:
    console = wide_console()
    for line in lines:
        console.print(Text(printable(line)), soft_wrap=True)
