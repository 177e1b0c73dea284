"""Scenario files to scenarios, with every fault by file, line and field."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath

from lhkit.errors import ScenarioError
from lhkit.harness.documents import Document, read_document
from lhkit.harness.faults import Fault, Path
from lhkit.harness.scenario import Scenario, format_entry_path, validate_entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a scenario stands."""

    file: FilePath
    index: int
    document: Document

    def line(self, path: Path = ()) -> int:
        """Return the line of one of its fields, counted from 1."""
        return self.document.line((self.index, *path))


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFault:
    """What is wrong in a file; `place` begins with the scenario's id where there is one."""

    file: FilePath
    line: int
    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.place}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The well-formed scenarios of some files, where each stands, and what is wrong in the rest."""

    scenarios: tuple[Scenario, ...]
    origins: Mapping[str, Origin]
    faults: tuple[SourceFault, ...]


def load_scenarios(
    paths: Iterable[FilePath | str], *, limit: int | None = None
) -> tuple[Scenario, ...]:
    """Return the scenarios of files and folders, in the order given, folders by name.

    Args:
        paths: files in YAML, JSON (`*.json`: a list) or JSONL (`*.jsonl`: a scenario a line), or
            folders, which are searched for `*.yaml` and `*.yml`.
        limit: the most to return; files after those that hold so many are not read.

    Raises:
        ScenarioError: a file is not there or is wrong. One line per fault, over all files:
            `file:line: scenario.field: what is wrong`.
    """
    sources = read_sources(paths, limit=limit)
    if sources.faults:
        raise ScenarioError("\n".join(map(str, sources.faults)))
    return sources.scenarios[:limit]


def read_sources(paths: Iterable[FilePath | str], *, limit: int | None = None) -> Sources:
    """Return all of the files with the place of each scenario, and the faults as values.

    Once `limit` scenarios are found, no further file is read.

    Raises:
        ScenarioError: a file is not there or cannot be read.
    """
    found: dict[str, tuple[Scenario, Origin]] = {}
    faults: list[SourceFault] = []
    for file in _files(paths):
        if limit is not None and len(found) >= limit:
            break
        document = read_document(file)
        for origin, scenario in _scenarios(file, document, faults):
            if scenario.id in found:
                first = found[scenario.id][1]
                message = f"the id is taken by {first.file}:{first.line()}"
                fault = SourceFault(
                    file=file, line=origin.line(), place=scenario.id, message=message
                )
                faults.append(fault)
            else:
                found[scenario.id] = (scenario, origin)
    return Sources(
        scenarios=tuple(scenario for scenario, _ in found.values()),
        origins={name: origin for name, (_, origin) in found.items()},
        faults=tuple(faults),
    )


def _files(paths: Iterable[FilePath | str]) -> list[FilePath]:
    files: dict[FilePath, FilePath] = {}
    for path in map(FilePath, paths):
        inside = [path]
        if path.is_dir():
            inside = sorted(each for each in path.rglob("*") if each.suffix in {".yaml", ".yml"})
        if not inside or not all(each.is_file() for each in inside):
            raise ScenarioError(f"{path}: no scenario file there: give a *.yaml file or a folder")
        files |= {each.resolve(): each for each in inside if each.resolve() not in files}
    return list(files.values())


def _scenarios(
    file: FilePath, document: Document, faults: list[SourceFault]
) -> Iterator[tuple[Origin, Scenario]]:
    """Yield the good scenarios of a file with their place; add the faults of the others."""
    found = list(document.faults)
    entries = document.value if isinstance(document.value, list) else []
    if not entries and not found:
        found.append(Fault((), "must be a list of scenarios (`- id: …`)"))
    for index in range(len(entries)) if not found else ():
        scenario = validate_entry(entries, index, found)
        if scenario is not None:
            yield Origin(file=file, index=index, document=document), scenario
    for fault in sorted(found, key=lambda each: document.line(each.path)):
        line = document.line(fault.path)
        place = format_entry_path(entries, fault.path)
        faults.append(SourceFault(file=file, line=line, place=place, message=fault.message))
