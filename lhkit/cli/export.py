"""`lhkit export`: write a run for OpenAI's messages, Parquet, Inspect, OpenTelemetry, TRL."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import typer
from rich.text import Text

from lhkit.cli.command import Options, command
from lhkit.cli.console import wide_console
from lhkit.cli.options import SHAPE, Locale
from lhkit.errors import RunError, UsageError
from lhkit.files import write_atomically
from lhkit.harness.corrections import read_conversations
from lhkit.harness.export.inspect_log import write_inspect
from lhkit.harness.export.openai_messages import write_openai_messages
from lhkit.harness.export.parquet import write_parquet
from lhkit.harness.loader import load_scenarios
from lhkit.harness.otel import trace_lines, trace_requests
from lhkit.harness.results import Run
from lhkit.harness.sft import (
    SftConversation,
    reference_conversations,
    reviewed_conversations,
    run_conversations,
    write_sft,
)
from lhkit.locales import load_catalog
from lhkit.redaction import masked
from lhkit.settings import Settings
from lhkit.text import printable
from lhkit.toolset import DEFAULT, load

_TRACES = "/v1/traces"
_SEND_S = 30.0
_SHOWN_CHARS = 200
_SHOWN_BYTES = 64 << 10


class ExportOptions(Options):
    """What `lhkit export` writes: a run, in each format that has a place.

    `scenarios`, `reviewed`, `held_out` and `toolset` are for `sft`, which needs no run.
    """

    folder: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="Folder such as runs/NAME.")
    ] = None
    openai_messages: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False, help="JSON lines: a conversation each, as OpenAI's API has them."
        ),
    ] = None
    sft: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            help="Training conversations: passed samples of RUN, or references of --scenarios.",
        ),
    ] = None
    scenarios: Annotated[
        tuple[Path, ...],
        typer.Option("--scenarios", help="For --sft: scenario files, with RUN those of the run."),
    ] = ()
    reviewed: Annotated[
        tuple[Path, ...],
        typer.Option("--reviewed", dir_okay=False, help="For --sft: a file of Review.to_training."),
    ] = ()
    held_out: Annotated[
        tuple[Path, ...],
        typer.Option(
            "--held-out",
            help="For --sft: scenario files whose near-duplicates are left out.",
        ),
    ] = ()
    parquet: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", file_okay=False, help="Tables: samples, turns, calls and more."
        ),
    ] = None
    inspect: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="A log for `inspect view`, such as run.eval."),
    ] = None
    otel: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|URL",
            help="Traces of OpenTelemetry: a file, or a receiver such as http://127.0.0.1:4318.",
        ),
    ] = None
    toolset: Annotated[
        str | None,
        typer.Option(
            metavar=SHAPE,
            help="Tools of your own; package.module:NAME works too. Default: life-helper.",
        ),
    ] = None
    locale: Locale = None


@command(
    "lhkit export runs/gemma-json --inspect gemma.eval",
    "lhkit export runs/gemma-json --openai-messages chats.jsonl --parquet tables",
    "lhkit export runs/chats --otel http://127.0.0.1:4318",
    "lhkit export --sft train.jsonl --scenarios mine --held-out datasets/ac",
)
async def export_run(options: ExportOptions, settings: Settings) -> int:
    """Write a run in each format that was asked for; return the exit code.

    Raises:
        UsageError: no run or nothing was asked for, Inspect would not know the file by its name,
            or there is nothing to train on.
        RunError: there is no run, a line of it is broken, a file cannot be written, or a receiver
            of traces does not take them.
        MissingPackageError: a package of the extra `export` is not there.
    """
    if options.sft is None and (options.scenarios or options.reviewed or options.held_out):
        raise UsageError("--scenarios, --reviewed and --held-out belong to --sft: give --sft FILE")
    if options.sft is not None:
        await _export_sft(options, options.sft, settings)
    if options.folder is None:
        if options.sft is not None:
            return 0
        raise UsageError("RUN: name the folder of a run")
    wanted = list(_wanted(options))
    if not wanted and options.otel is None:
        if options.sft is not None:
            return 0
        raise UsageError(
            "nothing to write: give --openai-messages, --sft, --parquet, --inspect or --otel"
        )
    if options.inspect is not None and options.inspect.suffix != ".eval":
        raise UsageError(f"{options.inspect}: Inspect knows its logs by their ending: give .eval")
    run = Run.load(options.folder, keep_records=False)
    catalog, console = load_catalog(settings.locale), wide_console()

    def tell(place: Path | str) -> None:
        words = catalog.text("export.written", path=place, count=len(run.records))
        console.print(Text(printable(words)), soft_wrap=True)

    for path, folder, write in wanted:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write(run, path)
        except OSError as error:
            raise RunError(f"{path} cannot be written ({error}): choose another place") from error
        tell(path)
    if options.otel is not None and _is_address(options.otel):
        tell(await _send(run, options.otel))
    return 0


def _wanted(options: ExportOptions) -> Iterator[tuple[Path, Path, Callable[[Run, Path], object]]]:
    """Yield each place, the folder that it needs, and what writes there."""
    if options.openai_messages is not None:
        yield options.openai_messages, options.openai_messages.parent, write_openai_messages
    if options.parquet is not None:
        yield options.parquet, options.parquet, write_parquet
    if options.inspect is not None:
        yield options.inspect, options.inspect.parent, write_inspect
    if options.otel is not None and not _is_address(options.otel):
        yield Path(options.otel), Path(options.otel).parent, _write_traces


async def _export_sft(options: ExportOptions, file: Path, settings: Settings) -> None:
    """Write training conversations and print how many were left out.

    Raises:
        UsageError: there is no source, a source is not valid, or no conversation remains.
        RunError: the run or the file cannot be read or written.
    """
    if options.folder is None and not (options.scenarios or options.reviewed):
        raise UsageError("--sft: give the folder of a RUN, --scenarios or --reviewed")
    toolset = load(options.toolset or DEFAULT)
    held_out = load_scenarios(options.held_out) if options.held_out else ()
    scenarios = load_scenarios(options.scenarios) if options.scenarios else ()
    talks = [talk for path in options.reviewed for talk in read_conversations(path)]
    sources: list[Iterable[SftConversation]] = []
    if options.folder is not None:
        run = Run.load(options.folder, keep_records=False)
        sources.append(run_conversations(run, toolset, scenarios))
    elif scenarios:
        sources.append(await reference_conversations(scenarios, toolset))
    if talks:
        sources.append(await reviewed_conversations(talks, toolset))
    messages = (turn.user for scenario in held_out for turn in scenario.turns)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        counts = write_sft(chain.from_iterable(sources), file, messages)
    except OSError as error:
        raise RunError(f"{file} cannot be written ({error}): choose another place") from error
    words = load_catalog(settings.locale).text(
        "export.sft",
        path=file,
        count=counts.written,
        held_out=counts.held_out,
        repeated=counts.repeated,
    )
    wide_console().print(Text(printable(words)), soft_wrap=True)


def _is_address(place: str) -> bool:
    return place.startswith(("http://", "https://"))


def _write_traces(run: Run, file: Path) -> None:
    write_atomically(file, (request + b"\n" for request in trace_lines(run)))


async def _send(run: Run, address: str) -> str:
    """Send the traces to a receiver of OTLP over HTTP; return where they went.

    Raises:
        RunError: it cannot be reached, or refuses them.
    """
    parts = urlsplit(address)
    path = parts.path if parts.path.strip("/") else _TRACES
    url = urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))
    headers = {"Content-Type": "application/x-protobuf"}
    timeout = aiohttp.ClientTimeout(total=_SEND_S)
    try:
        async with aiohttp.ClientSession(
            timeout=timeout, headers=headers, auto_decompress=False
        ) as session:
            for request in trace_requests(run):
                async with session.post(url, data=request, allow_redirects=False) as answer:
                    if location := answer.headers.get("Location"):
                        raise RunError(
                            f"{url} redirects to {masked(location)[:_SHOWN_CHARS]}, and traces go "
                            "only to the address that was given: give that one if you trust it"
                        )
                    if not answer.ok:
                        piece = await answer.content.read(_SHOWN_BYTES)
                        said = masked(piece.decode("utf-8", "replace"))[:_SHOWN_CHARS]
                        raise RunError(
                            f"{url} refuses the traces ({answer.status} {said}): give the address "
                            "of a receiver of OTLP over HTTP, such as http://127.0.0.1:4318"
                        )
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise RunError(
            f"{url} cannot be reached ({type(error).__name__}): start the receiver, or write a file"
        ) from error
    return url
