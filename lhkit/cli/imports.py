"""`lhkit import`: make scenarios and a toolset of recorded chats, or of a benchmark."""

import asyncio
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text
from tqdm import tqdm

from lhkit.cli.command import command
from lhkit.cli.console import wide_console
from lhkit.cli.options import SHAPE, AsJsonl, NewFolder
from lhkit.errors import UsageError
from lhkit.harness.author.checks import NO_GOLD, Finding, Level
from lhkit.harness.author.lint import lint
from lhkit.harness.author.written import yaml_text
from lhkit.harness.loader import read_sources
from lhkit.imports.bfcl import import_bfcl
from lhkit.imports.imported import Imported, ImportedFile, Loss
from lhkit.imports.openai_messages import import_messages
from lhkit.imports.tau import import_tau
from lhkit.json_values import compact
from lhkit.locales import Catalog, load_catalog
from lhkit.settings import Settings
from lhkit.text import printable
from lhkit.toolset import load

EXIT_LEFT_OUT = 1
TOOLSET_FILE = "toolset.py"
NOTES_FILE = "NOTES.md"

_SHOWN_REASONS = 3
_MOST_WORDS = 300
"""Characters of the source that a note quotes."""


_TEXTS: Mapping[str, Callable[[Sequence[Mapping[str, Any]]], str]] = {
    "yaml": yaml_text,
    "jsonl": lambda scenarios: "".join(f"{compact(each)}\n" for each in scenarios),
}
"""How scenarios are written, by the ending of their file."""


@command(
    "lhkit import openai-messages chats.jsonl --tools tools.json --into mine",
    "lhkit import openai-messages chats.json --handlers mine.py:own --into mine",
    name="openai-messages",
)
async def import_chats(
    file: Annotated[
        Path, typer.Argument(dir_okay=False, help="Recorded chats: JSON, or one a line.")
    ],
    *,
    into: NewFolder,
    tools: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="JSON of the tools, as OpenAI's API takes it."),
    ] = None,
    handlers: Annotated[
        str | None,
        typer.Option(
            metavar=SHAPE,
            help="Functions (data, **args) that do the work; else results are played back.",
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(dir_okay=False, help="JSON that the functions begin with.")
    ] = None,
    as_jsonl: AsJsonl = False,
    settings: Settings,
) -> int:
    """Recorded chats with tool calls: each becomes a scenario that can be played at once.

    Returns 1 if a chat had to be left out.

    Raises:
        UsageError: a file is not there or is wrong, data have no functions, or something is in the
            folder already.
    """
    if data is not None and handlers is None:
        raise UsageError("--data is what --handlers begin with: give both")
    _require_free(into)
    imported = await import_messages(file, tools=tools, functions=handlers, data=data)
    return await _settle(imported, into, settings, as_jsonl=as_jsonl)


@command("lhkit import bfcl .venv/lib/python3.11/site-packages --into bfcl", name="bfcl")
async def import_bfcl_tasks(
    path: Annotated[Path, typer.Argument(file_okay=False, help="Folder of the package bfcl_eval.")],
    *,
    into: NewFolder,
    as_jsonl: AsJsonl = False,
    settings: Settings,
) -> int:
    """BFCL's multi-turn conversations, played with its own classes.

    Returns 1 if a task had to be left out.

    Raises:
        UsageError: the benchmark is not there, or something is in the folder already.
    """
    _require_free(into)
    return await _settle(import_bfcl(path), into, settings, as_jsonl=as_jsonl)


@command("lhkit import tau ~/tau-bench --into tau", name="tau")
async def import_tau_tasks(
    path: Annotated[
        Path, typer.Argument(file_okay=False, help="Your clone of sierra-research/tau-bench.")
    ],
    *,
    into: NewFolder,
    split: Annotated[
        str, typer.Option(help="test (what tau-bench reports), dev, train (retail's), or all.")
    ] = "test",
    as_jsonl: AsJsonl = False,
    settings: Settings,
) -> int:
    """tau-bench's airline and retail tasks, played with its own tools on its own data.

    Returns 1 if a task had to be left out.

    Raises:
        UsageError: the benchmark is not there, or something is in the folder already.
    """
    _require_free(into)
    return await _settle(import_tau(path, split), into, settings, as_jsonl=as_jsonl)


def _require_free(into: Path) -> None:
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise UsageError(f"{into} is there already: name a new folder with --into")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """What became of a suite: `findings` are the errors of those that were left out, by id."""

    suite: ImportedFile
    file: Path
    findings: Mapping[str, Sequence[Finding]]

    @property
    def kept(self) -> int:
        """The scenarios in the file."""
        return len(self.suite.scenarios) - len(self.findings)

    @property
    def golds(self) -> int:
        """The golds that pass."""
        failed = (
            found for found in self.findings.values() if {each.code for each in found} & NO_GOLD
        )
        return len(self.suite.scenarios) - sum(1 for _ in failed)


@contextmanager
def _whole_or_nothing(into: Path) -> Iterator[None]:
    """Remove what was written into a new or empty folder if an error comes midway."""
    is_there = into.exists()
    try:
        yield
    except BaseException:
        shutil.rmtree(into, ignore_errors=True)
        if is_there:
            into.mkdir()
        raise


async def _settle(imported: Imported, into: Path, settings: Settings, *, as_jsonl: bool) -> int:
    """Write the folder, keep of the scenarios what lint accepts, and say what became of it."""
    ending = "jsonl" if as_jsonl else "yaml"
    with _whole_or_nothing(into):
        _write(into, {**imported.files, TOOLSET_FILE: imported.toolset})
        total = sum(len(suite.scenarios) for suite in imported.suites)
        with tqdm(total=total, unit="scenario", disable=None) as bar:
            outcomes = [
                await _checked(suite, into, ending, bar.update) for suite in imported.suites
            ]
        catalog = load_catalog(settings.locale)
        told = list(_summary(outcomes, into, catalog))
        notes = "\n".join((*_notes(told, outcomes, imported.losses, catalog), ""))
        _write(into, {NOTES_FILE: notes})
    last = catalog.text("import.notes", file=into / NOTES_FILE)
    for line in (*told, last):
        wide_console().print(Text(printable(line)), soft_wrap=True)
    is_left_out = any(loss.code == "invalid" for loss in imported.losses)
    return EXIT_LEFT_OUT if is_left_out or any(each.findings for each in outcomes) else 0


def _write(into: Path, files: Mapping[str, str]) -> None:
    into.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (into / name).write_text(text, encoding="utf-8")


async def _checked(
    suite: ImportedFile, into: Path, ending: str, tick: Callable[[], object]
) -> _Outcome:
    """Write a suite, and write it again without what lint refuses."""
    name, text = f"{suite.file}.{ending}", _TEXTS[ending]
    file = into / name
    _write(into, {name: text(suite.scenarios)})
    findings: dict[str, list[Finding]] = defaultdict(list)
    toolset = load(f"{into / TOOLSET_FILE}:{suite.name}")
    for finding in await lint(read_sources([file]), toolset, tick=tick):
        if finding.level is Level.ERROR:
            findings[finding.scenario].append(finding)
    kept = [each for each in suite.scenarios if each["id"] not in findings]
    if not kept:
        await asyncio.to_thread(file.unlink)
    elif findings:
        _write(into, {name: text(kept)})
    return _Outcome(suite=suite, file=file, findings=findings)


def _summary(outcomes: Sequence[_Outcome], into: Path, catalog: Catalog) -> Iterator[str]:
    for each in outcomes:
        yield catalog.text(
            "import.scenarios", file=each.file, kept=each.kept, total=len(each.suite.scenarios)
        )
        yield catalog.text("import.golds", golds=each.golds, total=len(each.suite.scenarios))
        if each.kept:
            reference = f"{into / TOOLSET_FILE}:{each.suite.name}"
            yield f"lhkit eval {each.file} --toolset {reference} --model gold"


def _notes(
    told: Sequence[str],
    outcomes: Sequence[_Outcome],
    losses: Sequence[Loss],
    catalog: Catalog,
) -> Iterator[str]:
    yield f"# {catalog.text('import.title')}"
    yield ""
    yield from (f"- {line}" for line in told)
    left_out = [(name, found) for each in outcomes for name, found in each.findings.items()]
    if left_out:
        yield from ("", f"## {catalog.text('import.left_out')}", "")
    for name, found in left_out:
        messages = list(dict.fromkeys(each.message for each in found))
        yield f"- {name}: {'; '.join(messages[:_SHOWN_REASONS])}"
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
    words = " ".join(loss.detail.split())
    words = words if len(words) <= _MOST_WORDS else f"{words[:_MOST_WORDS]}…"
    return printable(f"{loss.where}: {words}" if words else loss.where)
