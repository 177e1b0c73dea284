"""`lhkit import`: create scenarios and a toolset from recorded chats or a benchmark."""

import asyncio
import shutil
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from inspect import cleandoc, isawaitable, signature
from pathlib import Path
from typing import Annotated, Any, get_origin, get_type_hints

import typer
from pydantic import create_model
from tqdm import tqdm

from lhkit.base.errors import UsageError
from lhkit.base.json_values import compact
from lhkit.base.locales import Catalog, load_catalog
from lhkit.base.text import printable
from lhkit.cli.frame.command import Options, command
from lhkit.cli.frame.console import print_lines
from lhkit.cli.frame.exit_codes import ExitCode
from lhkit.cli.frame.options import AsJsonl, NewFolder
from lhkit.harness.authoring.checks import NO_GOLD, Finding, Level
from lhkit.harness.authoring.lint import lint
from lhkit.harness.authoring.scenario_yaml import yaml_text
from lhkit.harness.scenarios.documents import MAX_FILE_BYTES
from lhkit.harness.scenarios.loader import read_sources
from lhkit.imports.importers import (
    LEFT_OUT,
    MAX_LISTED,
    SHIPPED,
    Imported,
    ImportedFile,
    Importer,
    Loss,
    cut_list,
    find_importers,
    load_importer,
)
from lhkit.settings import Settings
from lhkit.toolset import load, user_code

TOOLSET_FILE = "toolset.py"
NOTES_FILE = "NOTES.md"

_EXIT_CODES = (
    f"Exit code: 0 if all came in, 1 if some is left out ({NOTES_FILE}), 2 if none came in."
)
_MAX_REASONS = 3
_MAX_PLACES = 1_000
_MAX_QUOTED_CHARS = 300

_WRITERS: Mapping[str, Callable[[Sequence[Mapping[str, Any]]], str]] = {
    "yaml": yaml_text,
    "jsonl": lambda scenarios: "".join(f"{compact(scenario)}\n" for scenario in scenarios),
}
"""Functions that write scenarios, by file extension."""


class ImportOptions(Options):
    """Options of every `lhkit import NAME`, besides the parameters of the importer."""

    into: NewFolder
    as_jsonl: AsJsonl = False


def find_commands() -> Iterator[Callable[..., Coroutine[Any, Any, int]]]:
    """Yield a command for each importer; one that cannot be loaded is named on standard error."""
    for name in find_importers():
        try:
            yield _import_command(name, load_importer(name))
        except UsageError as error:
            typer.echo(f"lhkit: {printable(str(error))}", err=True)


async def import_with(
    name: str, settings: Settings, *, into: Path, as_jsonl: bool = False, **arguments: Any
) -> int:
    """Write what an importer finds as a folder of scenarios; `FAILED` if any is left out.

    Args:
        name: the name of the importer.
        settings: the locale of notes and messages.
        into: the folder to create.
        as_jsonl: write JSON Lines instead of YAML.
        arguments: the parameters of the importer.

    Raises:
        UsageError: the source is missing or invalid, nothing of it can be imported, or the folder
            is not empty.
    """
    _require_empty(into)
    with nullcontext() if name in SHIPPED else user_code(f"importer {name}"):
        result = load_importer(name)(**arguments)
        imported = await result if isawaitable(result) else result
        if not isinstance(imported, Imported):
            raise TypeError(f"it returned {type(imported).__name__}, not an Imported")
    return await _write_scenarios(imported, into, settings, as_jsonl=as_jsonl)


def _require_empty(into: Path) -> None:
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise UsageError(f"{into} exists already: name a new folder with --into")


def _import_command(name: str, importer: Importer) -> Callable[..., Coroutine[Any, Any, int]]:
    """Return the command whose options are the parameters of `importer`."""

    async def run(options: ImportOptions, settings: Settings) -> int:
        return await import_with(name, settings, **dict(options))

    run.__annotations__["options"] = _options_type(name, importer)
    summary = cleandoc(importer.__doc__ or f"Import with {name}.").partition("\n\n")[0]
    run.__doc__ = f"{summary}\n{_EXIT_CODES}"
    source = next(iter(signature(importer).parameters), "").upper()
    return command(f"lhkit import {name} {source} --into mine", name=name)(run)


def _options_type(name: str, importer: Importer) -> type[ImportOptions]:
    """Return a type of options with one field a parameter of the importer."""
    hints = get_type_hints(importer, include_extras=True)
    fields: dict[str, Any] = {}
    for key, parameter in signature(importer).parameters.items():
        hint = hints.get(key, str)
        if get_origin(hint) is not Annotated:
            is_option = parameter.kind is parameter.KEYWORD_ONLY
            hint = Annotated[hint, typer.Option() if is_option else typer.Argument()]
        fields[key] = (hint, ... if parameter.default is parameter.empty else parameter.default)
    return create_model(f"Options of {name}", __base__=ImportOptions, **fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class _CheckedSuite:
    """A written suite.

    `findings` are the lint errors of the scenarios that were left out, by id; `easy` are the
    scenarios that a model passes by calling every tool.
    """

    suite: ImportedFile
    file: Path
    findings: Mapping[str, Sequence[Finding]]
    easy: Sequence[str] = ()

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
    """Empty a folder that was new or empty if an exception is raised."""
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
        unit = load_catalog(settings.locale).text("import.unit")
        with tqdm(total=total, unit=unit, disable=None) as bar:
            unwritten: list[Loss] = []
            suites = [
                await _check_suite(part, text, into, extension, bar.update)
                for suite in imported.suites
                for part, text in _split(suite, extension, unwritten)
            ]
        catalog = load_catalog(settings.locale)
        imported = replace(imported, losses=(*imported.losses, *unwritten))
        left_out = list(_left_out_lines(imported, suites, catalog))
        kept = sum(checked.kept for checked in suites)
        count = catalog.text("import.count", kept=kept, total=kept + len(left_out))
        if not kept:
            raise UsageError("\n".join([count, *cut_list(left_out, MAX_LISTED)]))
        summary = list(_summary_lines(suites, into, catalog))
        summary += [
            catalog.text(f"import.remark.{remark.code}", **remark.values)
            for remark in imported.remarks
        ]
        easy = [Loss(code="easy", where=name) for checked in suites for name in checked.easy]
        losses = [loss for loss in (*imported.losses, *easy) if loss.code not in LEFT_OUT]
        notes = "\n".join((*_note_lines([*summary, count], left_out, losses, catalog), ""))
        _write_files(into, {NOTES_FILE: notes})
    if left_out:
        reasons = "; ".join(cut_list(left_out, _MAX_REASONS))
        count = catalog.text("import.count_left_out", count=count, n=len(left_out), reasons=reasons)
    print_lines([*summary, catalog.text("import.notes", file=into / NOTES_FILE), count])
    return ExitCode.FAILED if left_out else ExitCode.OK


def _write_files(folder: Path, files: Mapping[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def _split(
    suite: ImportedFile, extension: str, unwritten: list[Loss]
) -> Iterator[tuple[ImportedFile, str]]:
    """Yield the files of a suite with their texts; each is small enough to be read again.

    Scenarios that no file can contain are added to `unwritten`.
    """
    parts = _written(suite.scenarios, extension, suite.places, unwritten)
    for number, (scenarios, text) in enumerate(parts, start=1):
        name = suite.file if number == 1 else f"{suite.file}-{number}"
        yield replace(suite, scenarios=tuple(scenarios), file=name), text


def _written(
    scenarios: Sequence[Mapping[str, Any]],
    extension: str,
    places: Mapping[str, str],
    unwritten: list[Loss],
) -> Iterator[tuple[Sequence[Mapping[str, Any]], str]]:
    """Yield groups of scenarios and their text: all of them, or halves of those that do not fit."""
    size = sum(len(compact(scenario).encode(errors="replace")) for scenario in scenarios)
    issue = f"larger than {MAX_FILE_BYTES:,} bytes"
    try:
        text = _WRITERS[extension](scenarios) if size <= MAX_FILE_BYTES else None
    except UsageError as error:
        text, issue = None, str(error)
    if text is not None and len(text.encode()) <= MAX_FILE_BYTES:
        yield scenarios, text
    elif len(scenarios) > 1:
        middle = len(scenarios) // 2
        for part in (scenarios[:middle], scenarios[middle:]):
            yield from _written(part, extension, places, unwritten)
    else:
        (name,) = (scenario["id"] for scenario in scenarios)
        unwritten.append(Loss(code="invalid", where=places.get(name, name), detail=issue))


async def _check_suite(
    suite: ImportedFile, text: str, into: Path, extension: str, tick: Callable[[], object]
) -> _CheckedSuite:
    """Write a suite, lint it, and write it again without the scenarios that have errors."""
    name, write = f"{suite.file}.{extension}", _WRITERS[extension]
    file = into / name
    _write_files(into, {name: text})
    errors: dict[str, list[Finding]] = defaultdict(list)
    easy = []
    toolset = load(f"{into / TOOLSET_FILE}:{suite.name}")
    sources = read_sources([file])
    for finding in await lint(sources, toolset, tick=tick) if suite.scenarios else ():
        if finding.level is Level.ERROR and finding.code not in suite.accepted_findings:
            errors[finding.scenario].append(finding)
        elif finding.code == "easy":
            easy.append(finding.scenario)
    valid = [scenario for scenario in suite.scenarios if scenario["id"] not in errors]
    if not valid:
        await asyncio.to_thread(file.unlink)
    elif errors:
        _write_files(into, {name: write(valid)})
    kept_easy = [name for name in easy if name not in errors]
    return _CheckedSuite(suite=suite, file=file, findings=errors, easy=kept_easy)


def _summary_lines(suites: Sequence[_CheckedSuite], into: Path, catalog: Catalog) -> Iterator[str]:
    for checked in suites:
        total = len(checked.suite.scenarios)
        yield catalog.text("import.scenarios", file=checked.file, count=checked.kept)
        yield catalog.text("import.golds", golds=checked.golds, total=total)
        if checked.suite.needs_judge:
            yield catalog.text("import.needs_judge", file=checked.file)
        elif checked.kept:
            reference = f"{into / TOOLSET_FILE}:{checked.suite.name}"
            yield f"lhkit eval {checked.file} --toolset {reference} --model gold"


def _left_out_lines(
    imported: Imported, suites: Sequence[_CheckedSuite], catalog: Catalog
) -> Iterator[str]:
    """Yield the place and the reason of everything that was left out."""
    for loss in imported.losses:
        if loss.code in LEFT_OUT:
            reason = catalog.translate(loss.detail) or catalog.text(f"import.loss.{loss.code}")
            yield _place(Loss(code=loss.code, where=loss.where, detail=reason), catalog)
    for checked in suites:
        for name, findings in checked.findings.items():
            messages = list(
                dict.fromkeys(catalog.translate(finding.message) for finding in findings)
            )
            reason = "; ".join(cut_list(messages, _MAX_REASONS))
            loss = Loss(code="", where=checked.suite.places.get(name, name), detail=reason)
            yield _place(loss, catalog)


def _note_lines(
    summary: Sequence[str], left_out: Sequence[str], losses: Sequence[Loss], catalog: Catalog
) -> Iterator[str]:
    """Yield the lines of the notes, in Markdown."""
    yield f"# {catalog.text('import.title')}"
    yield ""
    yield from (f"- {line}" for line in summary)
    if left_out:
        yield from ("", f"## {catalog.text('import.left_out')}", "")
        yield from (f"- {line}" for line in left_out)
    by_code: dict[str, list[Loss]] = defaultdict(list)
    for loss in losses:
        by_code[loss.code].append(loss)
    yield from ("", f"## {catalog.text('import.losses')}", "")
    for code, same in by_code.items():
        places = [loss for loss in same if loss.where]
        count = f" ({len(places)})" if places else ""
        yield f"- {catalog.text(f'import.loss.{code}')}{count}"
        lines = cut_list([_place(loss, catalog) for loss in places], _MAX_PLACES)
        yield from (f"  - {line}" for line in lines)
    if not by_code:
        yield catalog.text("import.nothing_lost")


def _place(loss: Loss, catalog: Catalog) -> str:
    detail = catalog.translate(" ".join(loss.detail.split()))
    if len(detail) > _MAX_QUOTED_CHARS:
        detail = f"{detail[:_MAX_QUOTED_CHARS]}…"
    return printable(f"{loss.where}: {detail}" if detail else loss.where)
