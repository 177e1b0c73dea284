"""Loading of scenario files, with every fault by file, line and field."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath

from lhkit.base.errors import ScenarioError
from lhkit.harness.scenarios.documents import Document, read_document
from lhkit.harness.scenarios.faults import Fault, Path
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
class SourceFault:
    """A fault of a scenario file; `place` begins with the scenario's id, if any."""

    file: FilePath
    line: int
    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.place}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The valid scenarios of files, their origins by id, and all faults."""

    scenarios: tuple[Scenario, ...]
    origins: Mapping[str, Origin]
    faults: tuple[SourceFault, ...]


def load_scenarios(
    paths: FilePath | str | Iterable[FilePath | str], *, limit: int | None = None
) -> tuple[Scenario, ...]:
    """Load the scenarios of files and folders, in the given order, folders by name.

    Args:
        paths: one or more files in YAML, JSON (`*.json`: a list) or JSONL (`*.jsonl`: a scenario a
            line), or folders, which are searched for `*.yaml` and `*.yml`.
        limit: the most scenarios to return; no file is read once there are so many.

    Raises:
        ScenarioError: a file does not exist or is invalid. One line per fault, over all files:
            `file:line: scenario.field: message`.
    """
    sources = read_sources([paths] if isinstance(paths, FilePath | str) else paths, limit=limit)
    if sources.faults:
        raise ScenarioError("\n".join(map(str, sources.faults)))
    return sources.scenarios[:limit]


def read_sources(paths: Iterable[FilePath | str], *, limit: int | None = None) -> Sources:
    """Load scenarios with their origins; faults are returned, not raised.

    Once there are `limit` scenarios, no further file is read.

    Raises:
        ScenarioError: a file does not exist or cannot be read.
    """
    scenarios: dict[str, tuple[Scenario, Origin]] = {}
    faults: list[SourceFault] = []
    for file in _scenario_files(paths):
        if limit is not None and len(scenarios) >= limit:
            break
        document = read_document(file)
        for origin, scenario in _parse_document(file, document, faults):
            if scenario.id in scenarios:
                first = scenarios[scenario.id][1]
                message = f"the id is taken by {first.file}:{first.line()}"
                fault = SourceFault(
                    file=file, line=origin.line(), place=scenario.id, message=message
                )
                faults.append(fault)
            else:
                scenarios[scenario.id] = (scenario, origin)
    return Sources(
        scenarios=tuple(scenario for scenario, _ in scenarios.values()),
        origins={name: origin for name, (_, origin) in scenarios.items()},
        faults=tuple(faults),
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
    file: FilePath, document: Document, faults: list[SourceFault]
) -> Iterator[tuple[Origin, Scenario]]:
    """Yield the valid scenarios of a file, and add the faults of the others."""
    document_faults = list(document.faults)
    entries = document.value if isinstance(document.value, list) else []
    if not entries and not document_faults:
        document_faults.append(Fault((), "must be a list of scenarios (`- id: …`)"))
    for index in range(len(entries)) if not document_faults else ():
        scenario = validate_entry(entries, index, document_faults)
        if scenario is not None:
            yield Origin(file=file, index=index, document=document), scenario
    for fault in sorted(document_faults, key=lambda fault: document.line(fault.path)):
        line = document.line(fault.path)
        place = format_entry_path(entries, fault.path)
        faults.append(SourceFault(file=file, line=line, place=place, message=fault.message))
