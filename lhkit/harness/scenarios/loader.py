"""Loading of scenario files, with every issue by file, line and field."""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path as FilePath
from typing import Any

from lhkit.base.errors import ScenarioError
from lhkit.base.notices import NOTICE
from lhkit.harness.scenarios.documents import Document, read_document
from lhkit.harness.scenarios.issues import Issue, Path
from lhkit.harness.scenarios.scenario import Scenario, format_entry_path, validate_entry

_log = logging.getLogger(__name__)

DRAFTS_KEY = "lhkit_drafts"
"""The first key of each line in a file of drafts, which are run only after a person's yes."""

_DRAFTS = "has drafts, which are not run: confirm them with lhkit.notebook.DraftReview"

_YAML = frozenset({".yaml", ".yml"})
_NAMED = re.compile(r".+\.scenario\.(ya?ml|jsonl?)", re.IGNORECASE)
"""The names of files that have to be scenarios."""

_SCENARIO_LINE = re.compile(
    r"""^(?:[\s{,-]*["']?turns["']?\s*:|-\s+["']?id["']?\s*:)""", re.MULTILINE
)
_FEW_KEYS = 2
_READ_CHARS = 100_000
_SHOWN_FILES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The file of a scenario, and its place there."""

    file: FilePath
    index: int
    document: Document

    def line(self, path: Path = ()) -> int:
        """Return the line of one of its fields, counted from 1."""
        return self.document.line((self.index, *path))


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceIssue:
    """An issue of a scenario file; `place` begins with the scenario's id, if any."""

    file: FilePath
    line: int
    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.place}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The valid scenarios of files, their origins by id, and all issues."""

    scenarios: tuple[Scenario, ...]
    origins: Mapping[str, Origin]
    issues: tuple[SourceIssue, ...]


def load_scenarios(
    paths: FilePath | str | Iterable[FilePath | str], *, limit: int | None = None
) -> tuple[Scenario, ...]:
    """Load the scenarios of files and folders, in the given order, folders by name.

    Args:
        paths: one or more files in YAML, JSON (`*.json`: a list) or JSONL (`*.jsonl`: a scenario a
            line), or folders, in which lists of scenarios are taken from `*.yaml` and `*.yml`, and
            all `*.scenario.*`. Other YAML files of a folder are skipped, with a notice. A pattern
            such as `tests/*.yaml` stands for the files and folders that match it.
        limit: the most scenarios to return; no file is read once there are so many.

    Raises:
        ScenarioError: a file does not exist or is invalid. One line per issue, over all files:
            `file:line: scenario.field: message`.
    """
    sources = read_sources([paths] if isinstance(paths, FilePath | str) else paths, limit=limit)
    if sources.issues:
        raise ScenarioError("\n".join(map(str, sources.issues)))
    return sources.scenarios[:limit]


def read_sources(paths: Iterable[FilePath | str], *, limit: int | None = None) -> Sources:
    """Load scenarios with their origins; issues are returned, not raised.

    Once there are `limit` scenarios, no further file is read.

    Raises:
        ScenarioError: a file does not exist or cannot be read.
    """
    scenarios: dict[str, tuple[Scenario, Origin]] = {}
    issues: list[SourceIssue] = []
    for file, document in _documents(paths):
        for origin, scenario in _parse_document(file, document, issues):
            if scenario.id in scenarios:
                first = scenarios[scenario.id][1]
                message = f"the id is taken by {first.file}:{first.line()}"
                issue = SourceIssue(
                    file=file, line=origin.line(), place=scenario.id, message=message
                )
                issues.append(issue)
            else:
                scenarios[scenario.id] = (scenario, origin)
        if limit is not None and len(scenarios) >= limit:
            break
    return Sources(
        scenarios=tuple(scenario for scenario, _ in scenarios.values()),
        origins={name: origin for name, (_, origin) in scenarios.items()},
        issues=tuple(issues),
    )


def _documents(paths: Iterable[FilePath | str]) -> Iterator[tuple[FilePath, Document]]:
    """Yield each scenario file once, read; a notice counts the other files of folders."""
    seen: set[FilePath] = set()
    skipped: dict[FilePath, FilePath] = {}
    for path in map(FilePath, paths):
        is_empty = True
        for file in _files_at(path):
            real = file.resolve()
            if real in seen:
                is_empty = False
            elif document := _read_suite(file, must_be_one=file == path):
                is_empty = False
                seen.add(real)
                yield file, document
            else:
                skipped[real] = file
        if is_empty:
            raise ScenarioError(f"{path}: no scenario file there: give a *.yaml file or a folder")
    if names := [file.name for real, file in skipped.items() if real not in seen]:
        more = ["…"] if len(names) > _SHOWN_FILES else []
        values = {"count": len(names), "files": ", ".join([*names[:_SHOWN_FILES], *more])}
        text = "skipped %(count)s files that are no lists of scenarios: %(files)s"
        _log.warning(text, values, extra={NOTICE: ("scenarios.skipped", values)})


def _files_at(path: FilePath) -> Iterator[FilePath]:
    """Yield a file, the files of a folder that may contain scenarios, or those of a pattern."""
    if path.is_dir():
        yield from _files_in(path)
    elif path.is_file():
        yield path
    elif has_magic(str(path)):
        found = glob(str(path), recursive=True)  # noqa: PTH207 - Path.glob takes no absolute pattern
        for match in sorted(map(FilePath, found)):
            yield from _files_at(match)


def _files_in(folder: FilePath) -> list[FilePath]:
    """Return the files of a folder that may contain scenarios, without those of hidden folders."""
    return sorted(
        file
        for file in folder.rglob("*")
        if (file.suffix.lower() in _YAML or _NAMED.fullmatch(file.name))
        and not any(part.startswith(".") for part in file.relative_to(folder).parts)
    )


def _read_suite(file: FilePath, *, must_be_one: bool) -> Document | None:
    """Return the document of a file that is meant as a list of scenarios, valid or not.

    A scenario has turns, or several of the other fields, or nothing else; a list may lack its
    dashes. A file that cannot be parsed is taken if a line of it begins with `turns:`.

    Raises:
        ScenarioError: it is meant so, and cannot be read.
    """
    must_be_one = must_be_one or _NAMED.fullmatch(file.name) is not None
    try:
        document = read_document(file)
    except ScenarioError:  # too large, or not text
        if must_be_one or _has_scenario_line(file):
            raise
        return None
    value = document.value
    if isinstance(value, list):
        is_meant = any(map(_is_entry, value))
    else:
        is_meant = _has_turns(value) or (value is None and _has_scenario_line(file))
    return document if must_be_one or is_meant else None


def _has_scenario_line(file: FilePath) -> bool:
    try:
        with file.open(encoding="utf-8", errors="replace") as text:
            return _SCENARIO_LINE.search(text.read(_READ_CHARS)) is not None
    except OSError:
        return True  # what cannot be opened is reported


def _is_entry(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    known = Scenario.model_fields.keys() & value.keys()
    return _has_turns(value) or len(known) >= _FEW_KEYS or (known == value.keys() and bool(known))


def _has_turns(value: Any) -> bool:
    return isinstance(value, dict) and "turns" in value


def _parse_document(
    file: FilePath, document: Document, issues: list[SourceIssue]
) -> Iterator[tuple[Origin, Scenario]]:
    """Yield the valid scenarios of a file, and add the issues of the others."""
    document_issues = list(document.issues)
    entries = document.value if isinstance(document.value, list) else []
    if any(isinstance(entry, dict) and DRAFTS_KEY in entry for entry in entries):
        document_issues, entries = [Issue((), _DRAFTS)], []
    if not entries and not document_issues:
        document_issues.append(Issue((), "must be a list of scenarios (`- id: …`)"))
    for index in range(len(entries)) if not document_issues else ():
        scenario = validate_entry(entries, index, document_issues)
        if scenario is not None:
            yield Origin(file=file, index=index, document=document), scenario
    for issue in sorted(document_issues, key=lambda issue: document.line(issue.path)):
        line = document.line(issue.path)
        place = format_entry_path(entries, issue.path)
        issues.append(SourceIssue(file=file, line=line, place=place, message=issue.message))
