"""`lhkit import`: create scenarios and a toolset from recorded chats or a benchmark."""

import asyncio
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from tqdm import tqdm

from lhkit.cli.command import Options, command
from lhkit.cli.console import print_lines
from lhkit.cli.exit_codes import ExitCode
from lhkit.cli.options import AsJsonl, NewFolder
from lhkit.errors import UsageError
from lhkit.harness.author.checks import NO_GOLD, Finding, Level
from lhkit.harness.author.lint import lint
from lhkit.harness.author.scenario_yaml import yaml_text
from lhkit.harness.loader import read_sources
from lhkit.imports.bfcl import import_bfcl
from lhkit.imports.functionchat import import_functionchat
from lhkit.imports.imported import Imported, ImportedFile, Loss
from lhkit.imports.openai_messages import import_messages
from lhkit.imports.tau2 import SPLIT, import_tau2
from lhkit.json_values import compact
from lhkit.locales import Catalog, load_catalog
from lhkit.settings import Settings
from lhkit.text import printable
from lhkit.toolset import load

TOOLSET_FILE = "toolset.py"
NOTES_FILE = "NOTES.md"

_MAX_REASONS = 3
_MAX_QUOTED_CHARS = 300

_WRITERS: Mapping[str, Callable[[Sequence[Mapping[str, Any]]], str]] = {
    "yaml": yaml_text,
    "jsonl": lambda scenarios: "".join(f"{compact(scenario)}\n" for scenario in scenarios),
}
"""Functions that write scenarios, by file extension."""


class MessagesOptions(Options):
    """Options of `lhkit import openai-messages`."""

    file: Annotated[
        Path, typer.Argument(dir_okay=False, help="Recorded chats as JSON or JSON Lines.")
    ]
    into: NewFolder
    tools: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="JSON file of the tools, in OpenAI's format."),
    ] = None
    handlers: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py:NAME",
            help="Functions (data, **args) that implement the tools; without them, recorded "
            "results are replayed.",
        ),
    ] = None
    data: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="JSON file with the initial data of --handlers."),
    ] = None
    as_jsonl: AsJsonl = False


@command(
    "lhkit import openai-messages chats.jsonl --tools tools.json --into mine",
    "lhkit import openai-messages chats.json --handlers mine.py:own --into mine",
    name="openai-messages",
)
async def import_chats(options: MessagesOptions, settings: Settings) -> int:
    """Import recorded chats with tool calls, one scenario each.

    Returns `FAILED` if a chat is left out.

    Raises:
        UsageError: a file is missing or invalid, `--data` is given without `--handlers`, or the
            folder is not empty.
    """
    if options.data is not None and options.handlers is None:
        raise UsageError("--data is what --handlers begin with: give both")
    _require_empty(options.into)
    imported = await import_messages(
        options.file, tools=options.tools, functions=options.handlers, data=options.data
    )
    return await _write_scenarios(imported, options.into, settings, as_jsonl=options.as_jsonl)


class BfclOptions(Options):
    """Options of `lhkit import bfcl`."""

    path: Annotated[Path, typer.Argument(file_okay=False, help="Folder of the package bfcl_eval.")]
    into: NewFolder
    as_jsonl: AsJsonl = False


@command("lhkit import bfcl .venv/lib/python3.11/site-packages --into bfcl", name="bfcl")
async def import_bfcl_tasks(options: BfclOptions, settings: Settings) -> int:
    """Import BFCL's multi-turn conversations, with its own classes as tools.

    Returns `FAILED` if a task is left out.

    Raises:
        UsageError: the benchmark is missing, or the folder is not empty.
    """
    _require_empty(options.into)
    imported = import_bfcl(options.path)
    return await _write_scenarios(imported, options.into, settings, as_jsonl=options.as_jsonl)


class FunctionChatOptions(Options):
    """Options of `lhkit import functionchat`."""

    path: Annotated[
        Path, typer.Argument(file_okay=False, help="Your clone of kakao/FunctionChat-Bench.")
    ]
    into: NewFolder
    as_jsonl: AsJsonl = False


@command("lhkit import functionchat ~/FunctionChat-Bench --into functionchat", name="functionchat")
async def import_functionchat_items(options: FunctionChatOptions, settings: Settings) -> int:
    """Import FunctionChat-Bench's Korean questions; their tools do nothing.

    Returns `FAILED` if a question is left out.

    Raises:
        UsageError: the benchmark is missing, or the folder is not empty.
    """
    _require_empty(options.into)
    imported = import_functionchat(options.path)
    return await _write_scenarios(imported, options.into, settings, as_jsonl=options.as_jsonl)


class Tau2Options(Options):
    """Options of `lhkit import tau2`."""

    path: Annotated[
        Path, typer.Argument(file_okay=False, help="Your clone of sierra-research/tau2-bench.")
    ]
    into: NewFolder
    split: Annotated[
        str, typer.Option(help="base (what tau2 reports), train, test, or another of a domain.")
    ] = SPLIT
    as_jsonl: AsJsonl = False


@command("lhkit import tau2 ~/tau2-bench --into tau2", name="tau2")
async def import_tau2_tasks(options: Tau2Options, settings: Settings) -> int:
    """Import tau2-bench's airline, retail and telecom tasks, with its own tools and data.

    Returns `FAILED` if a task is left out.

    Raises:
        UsageError: the benchmark is missing, or the folder is not empty.
    """
    _require_empty(options.into)
    imported = import_tau2(options.path, options.split)
    return await _write_scenarios(imported, options.into, settings, as_jsonl=options.as_jsonl)


def _require_empty(into: Path) -> None:
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise UsageError(f"{into} exists already: name a new folder with --into")


@dataclass(frozen=True, slots=True, kw_only=True)
class _CheckedSuite:
    """A written suite, with the lint errors of the scenarios that were left out, by id."""

    suite: ImportedFile
    file: Path
    findings: Mapping[str, Sequence[Finding]]

    @property
    def kept(self) -> int:
        """Number of scenarios in the file."""
        return len(self.suite.scenarios) - len(self.findings)

    @property
    def golds(self) -> int:
        """Number of scenarios whose reference calls pass."""
        failed = sum(
            any(finding.code in NO_GOLD for finding in findings)
            for findings in self.findings.values()
        )
        return len(self.suite.scenarios) - failed


@contextmanager
def _removed_on_error(folder: Path) -> Iterator[None]:
    """Remove what was written into a new or empty folder if an exception is raised."""
    exists = folder.exists()
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        if exists:
            folder.mkdir()
        raise


async def _write_scenarios(
    imported: Imported, into: Path, settings: Settings, *, as_jsonl: bool
) -> int:
    """Write the folder with the scenarios that pass lint, and print a summary."""
    extension = "jsonl" if as_jsonl else "yaml"
    with _removed_on_error(into):
        _write_files(into, {**imported.files, TOOLSET_FILE: imported.toolset})
        total = sum(len(suite.scenarios) for suite in imported.suites)
        with tqdm(total=total, unit="scenario", disable=None) as bar:
            suites = [
                await _check_suite(suite, into, extension, bar.update) for suite in imported.suites
            ]
        catalog = load_catalog(settings.locale)
        summary = list(_summary_lines(suites, into, catalog))
        notes = "\n".join((*_note_lines(summary, suites, imported.losses, catalog), ""))
        _write_files(into, {NOTES_FILE: notes})
    print_lines([*summary, catalog.text("import.notes", file=into / NOTES_FILE)])
    is_incomplete = any(suite.findings for suite in suites) or any(
        loss.code == "invalid" for loss in imported.losses
    )
    return ExitCode.FAILED if is_incomplete else ExitCode.OK


def _write_files(folder: Path, files: Mapping[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


async def _check_suite(
    suite: ImportedFile, into: Path, extension: str, tick: Callable[[], object]
) -> _CheckedSuite:
    """Write a suite, lint it, and write it again without the scenarios that have errors."""
    name, write = f"{suite.file}.{extension}", _WRITERS[extension]
    file = into / name
    _write_files(into, {name: write(suite.scenarios)})
    errors: dict[str, list[Finding]] = defaultdict(list)
    toolset = load(f"{into / TOOLSET_FILE}:{suite.name}")
    for finding in await lint(read_sources([file]), toolset, tick=tick):
        if finding.level is Level.ERROR and finding.code not in suite.accepted_findings:
            errors[finding.scenario].append(finding)
    valid = [scenario for scenario in suite.scenarios if scenario["id"] not in errors]
    if not valid:
        await asyncio.to_thread(file.unlink)
    elif errors:
        _write_files(into, {name: write(valid)})
    return _CheckedSuite(suite=suite, file=file, findings=errors)


def _summary_lines(suites: Sequence[_CheckedSuite], into: Path, catalog: Catalog) -> Iterator[str]:
    for checked in suites:
        total = len(checked.suite.scenarios)
        yield catalog.text("import.scenarios", file=checked.file, kept=checked.kept, total=total)
        yield catalog.text("import.golds", golds=checked.golds, total=total)
        if checked.suite.needs_judge:
            yield catalog.text("import.needs_judge", file=checked.file)
        elif checked.kept:
            reference = f"{into / TOOLSET_FILE}:{checked.suite.name}"
            yield f"lhkit eval {checked.file} --toolset {reference} --model gold"


def _note_lines(
    summary: Sequence[str],
    suites: Sequence[_CheckedSuite],
    losses: Sequence[Loss],
    catalog: Catalog,
) -> Iterator[str]:
    """Yield the lines of the notes, in Markdown."""
    yield f"# {catalog.text('import.title')}"
    yield ""
    yield from (f"- {line}" for line in summary)
    left_out = [(name, found) for suite in suites for name, found in suite.findings.items()]
    if left_out:
        yield from ("", f"## {catalog.text('import.left_out')}", "")
    for name, findings in left_out:
        messages = list(dict.fromkeys(finding.message for finding in findings))
        yield f"- {name}: {'; '.join(messages[:_MAX_REASONS])}"
    by_code: dict[str, list[Loss]] = defaultdict(list)
    for loss in losses:
        by_code[loss.code].append(loss)
    yield from ("", f"## {catalog.text('import.losses')}", "")
    for code, same in by_code.items():
        places = [loss for loss in same if loss.where]
        count = f" ({len(places)})" if places else ""
        yield f"- {catalog.text(f'import.loss.{code}')}{count}"
        yield from (f"  - {_place(loss)}" for loss in places)
    if not by_code:
        yield catalog.text("import.nothing_lost")


def _place(loss: Loss) -> str:
    detail = " ".join(loss.detail.split())
    if len(detail) > _MAX_QUOTED_CHARS:
        detail = f"{detail[:_MAX_QUOTED_CHARS]}…"
    return printable(f"{loss.where}: {detail}" if detail else loss.where)
