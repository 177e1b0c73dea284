"""Loading of scenario files, with every issue by file, line and field."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath

from lhkit.base.errors import ScenarioError
from lhkit.harness.scenarios.documents import Document, read_document
from lhkit.harness.scenarios.issues import Issue, Path
from lhkit.harness.scenarios.scenario import Scenario, format_entry_path, validate_entry


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
            line), or folders, which are searched for `*.yaml` and `*.yml`.
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
    for file in _scenario_files(paths):
        if limit is not None and len(scenarios) >= limit:
            break
        document = read_document(file)
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
    return Sources(
        scenarios=tuple(scenario for scenario, _ in scenarios.values()),
        origins={name: origin for name, (_, origin) in scenarios.items()},
        issues=tuple(issues),
    )


def _scenario_files(paths: Iterable[FilePath | str]) -> list[FilePath]:
    files: dict[FilePath, FilePath] = {}
    for path in map(FilePath, paths):
        listed = [path]
        if path.is_dir():
            listed = sorted(
                file
                for file in path.rglob("*")
                if file.suffix.lower() in {".yaml", ".yml"}
                and not any(part.startswith(".") for part in file.relative_to(path).parts)
            )
        if not listed or not all(file.is_file() for file in listed):
            raise ScenarioError(f"{path}: no scenario file there: give a *.yaml file or a folder")
        for file in listed:
            files.setdefault(file.resolve(), file)
    return list(files.values())


def _parse_document(
    file: FilePath, document: Document, issues: list[SourceIssue]
) -> Iterator[tuple[Origin, Scenario]]:
    """Yield the valid scenarios of a file, and add the issues of the others."""
    document_issues = list(document.issues)
    entries = document.value if isinstance(document.value, list) else []
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
