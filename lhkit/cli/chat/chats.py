"""`lhkit chats`: list, show or delete recorded chats, and suggest scenarios from them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from lhkit.base.errors import UsageError
from lhkit.base.locales import Catalog, load_catalog
from lhkit.base.options import DEFAULT_TOOLSET
from lhkit.base.text import one_line
from lhkit.cli.frame.command import Options, command
from lhkit.cli.frame.console import print_lines
from lhkit.cli.frame.exit_codes import ExitCode
from lhkit.cli.frame.options import DEFAULT_CHATS, ChatsFolder, Toolset
from lhkit.harness.chats.chats import forget_chats, load_chats
from lhkit.harness.chats.draft_texts import finding_lines, kind_counts, source_text
from lhkit.harness.exports.suggest import Suggestions, suggest
from lhkit.harness.records.record import SampleRecord
from lhkit.harness.records.transcript import transcript
from lhkit.settings import Settings
from lhkit.toolset import load

_MAX_LINE_CHARS = 60
_MAX_CHARS = 1_000_000


class ListOptions(Options):
    """Options of `lhkit chats list`."""

    folder: Annotated[Path, typer.Argument(file_okay=False, help="Folder of recorded chats.")] = (
        DEFAULT_CHATS
    )


@command("lhkit chats list runs/chats", name="list")
async def list_chats(options: ListOptions, settings: Settings) -> int:
    """List the chats in FOLDER, oldest first.

    Raises:
        RunError: the folder has no chats, or a record is invalid.
        UsageError: the folder is a run of scenarios.
    """
    catalog = load_catalog(settings.locale)
    records = load_chats(options.folder).records
    print_lines(_summary(record, catalog) for record in records)
    print_lines([catalog.text("chats.count", count=len(records), folder=options.folder)])
    return ExitCode.OK


class ShowOptions(Options):
    """Options of `lhkit chats show`."""

    name: Annotated[
        str, typer.Argument(metavar="CHAT", help="Name of the chat, as in `lhkit chats list`.")
    ]
    folder: ChatsFolder = DEFAULT_CHATS


@command("lhkit chats show chat-20260615-120000", name="show")
async def show_chat(options: ShowOptions, settings: Settings) -> int:
    """Show a chat: messages, tool calls, confirmations.

    Raises:
        RunError: the folder has no chats, or a record is invalid.
        UsageError: the chat does not exist, or the folder is a run of scenarios.
    """
    record = load_chats(options.folder).record(options.name)
    catalog = load_catalog(settings.locale)
    print_lines([_summary(record, catalog), transcript(record, catalog, max_chars=_MAX_CHARS)])
    return ExitCode.OK


class ForgetOptions(Options):
    """Options of `lhkit chats forget`."""

    names: Annotated[
        tuple[str, ...], typer.Argument(metavar="CHAT", help="Names of the chats to delete.")
    ] = ()
    folder: ChatsFolder = DEFAULT_CHATS
    is_all: Annotated[bool, typer.Option("--all", help="Delete all chats of the folder.")] = False


@command(
    "lhkit chats forget chat-20260615-120000",
    "lhkit chats forget --all --in runs/chats",
    name="forget",
)
async def remove_chats(options: ForgetOptions, settings: Settings) -> int:
    """Delete chats from the disk for good.

    Raises:
        UsageError: names and `--all` are both given or both missing, a chat does not exist, or the
            folder is a run of scenarios.
        RunError: the folder has no chats, is in use, or cannot be written.
    """
    if bool(options.names) is options.is_all:
        raise UsageError("name the chats to delete, as `lhkit chats list` shows them, or --all")
    catalog = load_catalog(settings.locale)
    deleted = forget_chats(options.folder, None if options.is_all else options.names)
    text = catalog.text("chats.forgotten", count=len(deleted), folder=options.folder)
    print_lines([*deleted, text])
    return ExitCode.OK


class SuggestOptions(Options):
    """Options of `lhkit chats suggest`."""

    folder: Annotated[
        Path, typer.Argument(metavar="DIR", file_okay=False, help="Folder of recorded chats.")
    ] = DEFAULT_CHATS
    into: Annotated[
        Path,
        typer.Option(
            "--into",
            metavar="FILE",
            dir_okay=False,
            help="File of drafts, such as drafts.jsonl; new ones are added to it.",
        ),
    ]
    toolset: Toolset = DEFAULT_TOOLSET


@command(
    "lhkit chats suggest runs/chats --into drafts.jsonl",
    "lhkit chats suggest runs/shop --into drafts.jsonl --toolset shop.py:toolset",
    name="suggest",
)
async def suggest_drafts(options: SuggestOptions, settings: Settings) -> int:
    """Draft scenarios from edits, rejections, false replies and repeated requests.

    Raises:
        RunError: the folder has no chats, a record or draft is invalid, or the file is in use.
        UsageError: the folder is a run of scenarios, the file is another one, or the tools are
            not those of the chats.
    """
    catalog = load_catalog(settings.locale)
    result = await suggest(options.folder, options.into, load(options.toolset))
    print_lines(_suggestion_lines(result, options.into, catalog))
    return ExitCode.OK


def _suggestion_lines(result: Suggestions, file: Path, catalog: Catalog) -> Iterator[str]:
    for draft in result.drafts:
        place = source_text(draft.source.chat, draft.source.turn, catalog)
        yield f"{place} · {'; '.join(finding_lines(draft.findings, catalog))}"
    for each in result.left_out:
        place = source_text(each.chat, each.turn, catalog)
        yield catalog.text("suggest.left_out", place=place, why=catalog.translate(each.why))
    yield catalog.text(
        "suggest.counts",
        chats=result.chats,
        drafts=len(result.drafts),
        file=file,
        near=result.near,
        known=result.known,
        left_out=len(result.left_out),
    )
    if kinds := kind_counts(result.drafts, catalog):
        yield catalog.text("suggest.kinds", kinds=kinds)
    if result.open:
        yield catalog.text("suggest.next", count=result.open, file=file)


def _summary(record: SampleRecord, catalog: Catalog) -> str:
    turns = record.trajectory.turns
    first = one_line(turns[0].user, max_chars=_MAX_LINE_CHARS) if turns else ""
    count = catalog.text("chats.turns", count=len(turns))
    return f"{record.sample_id} · {record.locale} · {count} · {first}"
