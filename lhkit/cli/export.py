"""`lhkit export`: write a run as messages, Inspect log, traces or training data."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import typer

from lhkit.base.errors import RunError, UsageError
from lhkit.base.files import write_atomically
from lhkit.base.locales import Catalog, load_catalog
from lhkit.base.redaction import masked
from lhkit.cli.frame.command import Options, command
from lhkit.cli.frame.console import print_lines
from lhkit.cli.frame.exit_codes import ExitCode
from lhkit.cli.frame.options import Locale
from lhkit.harness.chats.corrections import read_conversations
from lhkit.harness.exports.inspect_log import write_inspect
from lhkit.harness.exports.openai_messages import write_openai_messages
from lhkit.harness.exports.otel import trace_lines, trace_requests
from lhkit.harness.exports.sft import (
    SftConversation,
    reference_conversations,
    reviewed_conversations,
    run_conversations,
    write_sft,
)
from lhkit.harness.exports.sft_formats import FORMATS, formatted
from lhkit.harness.results.results import Run
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.settings import Settings
from lhkit.toolset import DEFAULT, load

_TRACES_PATH = "/v1/traces"
_TIMEOUT_S = 30.0
_MAX_ERROR_CHARS = 200
_MAX_ERROR_BYTES = 64 << 10


class ExportOptions(Options):
    """Options of `lhkit export`: each format that is given a file is written.

    `scenarios`, `reviewed`, `held_out`, `format`, `dialect` and `toolset` are for `sft`, which
    needs no run.
    """

    folder: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="Folder such as runs/NAME.")
    ] = None
    openai_messages: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False, help="JSON Lines file of conversations in OpenAI's message format."
        ),
    ] = None
    sft: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            help="JSON Lines file of training conversations: passed samples of RUN, or reference "
            "calls of --scenarios.",
        ),
    ] = None
    scenarios: Annotated[
        tuple[Path, ...],
        typer.Option("--scenarios", help="For --sft: scenario files; with RUN, those of the run."),
    ] = ()
    reviewed: Annotated[
        tuple[Path, ...],
        typer.Option("--reviewed", dir_okay=False, help="For --sft: file of Review.to_training."),
    ] = ()
    held_out: Annotated[
        tuple[Path, ...],
        typer.Option(
            "--held-out",
            help="For --sft: scenario files whose near-duplicates are left out.",
        ),
    ] = ()
    format: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(FORMATS),
            help="For --sft: format of the rows. Default: messages.",
        ),
    ] = None
    dialect: Annotated[
        str | None,
        typer.Option(
            help="For --format prompt-completion: the format of calls, as for `lhkit eval`.",
        ),
    ] = None
    inspect: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="Log file for `inspect view`, such as run.eval."),
    ] = None
    otel: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|URL",
            help="OpenTelemetry traces: a file, or a receiver such as http://127.0.0.1:4318.",
        ),
    ] = None
    toolset: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py:NAME",
            help="For --sft: your own toolset, or package.module:NAME. Default: life-helper.",
        ),
    ] = None
    locale: Locale = None


@command(
    "lhkit export runs/gemma-json --inspect gemma.eval",
    "lhkit export runs/gemma-json --openai-messages chats.jsonl",
    "lhkit export runs/chats --otel http://127.0.0.1:4318",
    "lhkit export --sft train.jsonl --scenarios mine --held-out datasets/ac",
    "lhkit export --sft rows.jsonl --scenarios mine --format mobile-actions",
)
async def export_run(options: ExportOptions, settings: Settings) -> int:
    """Write a run in each requested format; return the exit code.

    Raises:
        UsageError: the run or a format is missing, the name of the Inspect log is invalid, or there
            is nothing to train on.
        RunError: the run is invalid, a file cannot be written, or a receiver refuses the traces.
        MissingPackageError: a package of the extra `eval` is not installed.
    """
    only_sft = (options.scenarios, options.reviewed, options.held_out, options.format)
    if options.sft is None and any((*only_sft, options.dialect)):
        raise UsageError(
            "--scenarios, --reviewed, --held-out, --format and --dialect belong to --sft: give "
            "--sft FILE"
        )
    catalog = load_catalog(settings.locale)
    if options.sft is not None:
        await _export_sft(options, options.sft, catalog)
    if options.folder is None:
        if options.sft is not None:
            return ExitCode.OK
        raise UsageError("RUN: name the folder of a run")
    files = list(_requested_files(options))
    if not files and options.otel is None:
        if options.sft is not None:
            return ExitCode.OK
        raise UsageError("nothing to write: give --openai-messages, --sft, --inspect or --otel")
    if options.inspect is not None and options.inspect.suffix != ".eval":
        raise UsageError(f"{options.inspect} is not a valid name of an Inspect log: give .eval")
    run = Run.load(options.folder, keep_records=False)
    count = len(run.records)
    for path, write in files:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write(run, path)
        except OSError as error:
            raise RunError(f"{path} cannot be written ({error}): choose another place") from error
        print_lines([catalog.text("export.written", path=path, count=count)])
    if options.otel is not None and _is_url(options.otel):
        url = await _send_traces(run, options.otel)
        print_lines([catalog.text("export.written", path=url, count=count)])
    return ExitCode.OK


def _requested_files(
    options: ExportOptions,
) -> Iterator[tuple[Path, Callable[[Run, Path], object]]]:
    """Yield the path of each file and the function that writes it."""

    def write_traces(run: Run, file: Path) -> None:
        write_atomically(file, (request + b"\n" for request in trace_lines(run)))

    if options.openai_messages is not None:
        yield options.openai_messages, write_openai_messages
    if options.inspect is not None:
        yield options.inspect, write_inspect
    if options.otel is not None and not _is_url(options.otel):
        yield Path(options.otel), write_traces


async def _export_sft(options: ExportOptions, file: Path, catalog: Catalog) -> None:
    """Write training conversations and print how many were left out."""
    if options.folder is None and not (options.scenarios or options.reviewed):
        raise UsageError("--sft: give the folder of a RUN, --scenarios or --reviewed")
    form = options.format or "messages"
    formatted((), form, options.dialect)  # refused before anything runs
    toolset = load(options.toolset or DEFAULT)
    held_out = load_scenarios(options.held_out) if options.held_out else ()
    scenarios = load_scenarios(options.scenarios) if options.scenarios else ()
    corrected = [talk for path in options.reviewed for talk in read_conversations(path)]
    sources: list[Iterable[SftConversation]] = []
    if options.folder is not None:
        run = Run.load(options.folder, keep_records=False)
        sources.append(run_conversations(run, toolset, scenarios))
    elif scenarios:
        sources.append(await reference_conversations(scenarios, toolset))
    if corrected:
        sources.append(await reviewed_conversations(corrected, toolset))
    messages = (text for scenario in held_out for turn in scenario.turns for text in turn.texts)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        rows = formatted(chain.from_iterable(sources), form, options.dialect)
        counts = write_sft(rows, file, messages)
    except OSError as error:
        raise RunError(f"{file} cannot be written ({error}): choose another place") from error
    text = catalog.text(
        "export.sft" if form != "prompt-completion" else "export.sft_rows",
        path=file,
        count=counts.written,
        held_out=counts.held_out,
        repeated=counts.repeated,
    )
    print_lines([text])


def _is_url(place: str) -> bool:
    return place.startswith(("http://", "https://"))


async def _send_traces(run: Run, address: str) -> str:
    """Send the traces to a receiver of OTLP over HTTP; return its URL."""
    parts = urlsplit(address)
    path = parts.path if parts.path.strip("/") else _TRACES_PATH
    url = urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))
    headers = {"Content-Type": "application/x-protobuf"}
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
    try:
        async with aiohttp.ClientSession(
            timeout=timeout, headers=headers, auto_decompress=False
        ) as session:
            for request in trace_requests(run):
                async with session.post(url, data=request, allow_redirects=False) as response:
                    await _require_accepted(response, url)
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise RunError(
            f"{url} cannot be reached ({type(error).__name__}): start the receiver, or write a file"
        ) from error
    return url


async def _require_accepted(response: aiohttp.ClientResponse, url: str) -> None:
    if location := response.headers.get("Location"):
        raise RunError(
            f"{url} redirects to {masked(location)[:_MAX_ERROR_CHARS]}, and traces are sent only "
            "to the given address: give that one if you trust it"
        )
    if not response.ok:
        body = await response.content.read(_MAX_ERROR_BYTES)
        text = masked(body.decode("utf-8", "replace"))[:_MAX_ERROR_CHARS]
        raise RunError(
            f"{url} refuses the traces ({response.status} {text}): give the address of a receiver "
            "of OTLP over HTTP, such as http://127.0.0.1:4318"
        )
