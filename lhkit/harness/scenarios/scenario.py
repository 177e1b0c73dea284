"""Scenario files to scenarios, with every fault by file, line and field. The values: `script`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path as FilePath
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from lhkit.errors import ScenarioError
from lhkit.harness.expectations.assignment import Problem, assign_ordered
from lhkit.harness.expectations.matchers import Fault, Path, shown_path, slot_faults
from lhkit.harness.expectations.pattern import pattern_fault
from lhkit.harness.scenarios.script import (
    Before,
    Scenario,
    ScriptedFault,
    Turn,
    scenario_json_schema,
)
from lhkit.harness.scenarios.shape_words import known_fields, shape_words
from lhkit.harness.scenarios.yaml_source import Document, read_yaml
from lhkit.locales import available_locales
from lhkit.vocab.json_values import CLOCK_YEARS, compact

__all__ = [
    "Origin",
    "Scenario",
    "SourceFault",
    "Sources",
    "load_scenarios",
    "read_document",
    "read_sources",
    "scenario_faults",
    "scenario_json_schema",
    "shape_faults",
]

MAX_FILE_BYTES = 10_000_000
"""A larger file would take minutes to read."""

_ADAPTER = TypeAdapter(Scenario)


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


def load_scenarios(paths: Iterable[FilePath | str]) -> tuple[Scenario, ...]:
    """Return the scenarios of files and folders, in the order given, folders by name.

    Args:
        paths: YAML files, or folders that are searched for `*.yaml` and `*.yml`.

    Raises:
        ScenarioError: a file is not there or is wrong. One line per fault, over all files:
            `file:line: scenario.field: what is wrong`.
    """
    sources = read_sources(paths)
    if sources.faults:
        raise ScenarioError("\n".join(map(str, sources.faults)))
    return sources.scenarios


def read_sources(paths: Iterable[FilePath | str]) -> Sources:
    """Return what `load_scenarios` returns, with the place of each and the faults as values.

    Raises:
        ScenarioError: a file is not there or cannot be read.
    """
    found: dict[str, tuple[Scenario, Origin]] = {}
    faults: list[SourceFault] = []
    for file in _files(paths):
        document = read_document(file)
        for origin, scenario in _scenarios(file, document, faults):
            if scenario.id in found:
                first = found[scenario.id][1]
                message = f"the id is taken by {first.file}:{first.line()}"
                faults.append(_fault(origin, scenario.id, message))
            else:
                found[scenario.id] = (scenario, origin)
    return Sources(
        scenarios=tuple(scenario for scenario, _ in found.values()),
        origins={name: origin for name, (_, origin) in found.items()},
        faults=tuple(faults),
    )


def _fault(origin: Origin, place: str, message: str) -> SourceFault:
    return SourceFault(file=origin.file, line=origin.line(), place=place, message=message)


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


def read_document(file: FilePath) -> Document:
    """Return what a YAML file says; its faults are listed in it.

    Raises:
        ScenarioError: the file cannot be read as text, or is larger than `MAX_FILE_BYTES`.
    """
    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            raise ScenarioError(f"{file}: larger than {MAX_FILE_BYTES:,} bytes: split the file")
        return read_yaml(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise ScenarioError(f"{file}: there is no such file") from error
    except OSError as error:
        raise ScenarioError(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{file}: cannot be read as UTF-8 text: {error}") from error


def _scenarios(
    file: FilePath, document: Document, faults: list[SourceFault]
) -> Iterator[tuple[Origin, Scenario]]:
    """Yield the good scenarios of a file with their place; add the faults of the others."""
    found = list(document.faults)
    entries = document.value if isinstance(document.value, list) else []
    if not entries and not found:
        found.append(Fault((), "must be a list of scenarios (`- id: …`)"))
    for index, entry in enumerate(entries) if not found else ():
        scenario = _validated(entry, index, document, found)
        if scenario is not None:
            yield Origin(file=file, index=index, document=document), scenario
    for fault in sorted(found, key=lambda each: document.line(each.path)):
        line = document.line(fault.path)
        place = _labelled(entries, fault.path)
        faults.append(SourceFault(file=file, line=line, place=place, message=fault.message))


def _labelled(entries: list[Any], path: Path) -> str:
    """Return a path that begins with the scenario's id, where it has one."""
    entry = entries[path[0]] if path and isinstance(path[0], int) and entries else None
    name = entry.get("id") if isinstance(entry, dict) else None
    return shown_path((name, *path[1:]) if isinstance(name, str) else path)


def _validated(entry: Any, index: int, document: Document, found: list[Fault]) -> Scenario | None:
    try:
        scenario = _ADAPTER.validate_json(compact(entry), strict=True)
    except ValidationError as error:
        found += shape_faults(error, _ADAPTER, document, (index,))
        return None
    wrong = [Fault((index, *each.path), each.message) for each in scenario_faults(scenario)]
    found += wrong
    return None if wrong else scenario


def shape_faults(
    error: ValidationError, adapter: TypeAdapter[Any], document: Document, at: Path = ()
) -> tuple[Fault, ...]:
    """Return what `adapter` found wrong with the value that stands at `at` in a document."""
    schema = adapter.json_schema()
    found: dict[Path, list[ErrorDetails]] = {}
    for each in error.errors(include_url=False):
        if each["type"] == "too_short" and each["input"]:
            continue  # its items are there and wrong: said elsewhere
        path = _path_of((*at, *each["loc"]), each["type"], document.lines)
        found.setdefault(path, []).append(each)
    return tuple(
        Fault(path, shape_words(errors, known_fields(schema, path[len(at) : -1])))
        for path, errors in found.items()
    )


def _path_of(location: Path, kind: str, lines: Mapping[Path, int]) -> Path:
    """Return pydantic's location without the names of union members, which are no keys."""
    path: Path = ()
    for part in location:
        if (*path, part) in lines:
            path = (*path, part)
    return (*path, location[-1]) if kind == "missing" else path


def scenario_faults(scenario: Scenario) -> Iterator[Fault]:
    """Yield what is wrong inside a well-formed scenario: matchers, patterns, order, clock."""
    if scenario.locale not in available_locales():
        yield Fault(("locale",), f"must be one of {', '.join(available_locales())}")
    yield from _world_faults(scenario.world)
    yield from _twice_broken(scenario.faults)
    for name, tables in (("final", scenario.final), ("gone", scenario.gone)):
        for table, rows in tables.items():
            for number, row in enumerate(rows):
                yield from _matcher_faults(row, (name, table, number))
    for number, turn in enumerate(scenario.turns):
        yield from _turn_faults(turn, ("turns", number))


def _world_faults(world: Mapping[str, Any]) -> Iterator[Fault]:
    for name, value in world.items():
        if name == "now":
            if not _is_moment(value):
                yield Fault(
                    ("world", "now"),
                    "must be a time with offset, from the year "
                    f"{CLOCK_YEARS[0]} to {CLOCK_YEARS[-1]}: 2026-06-15T09:00:00+09:00",
                )
        elif not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
            yield Fault(("world", name), "must be a list of rows")


def _twice_broken(faults: Sequence[ScriptedFault]) -> Iterator[Fault]:
    tools = [fault.tool for fault in faults]
    for number, tool in enumerate(tools):
        if tool in tools[:number]:
            yield Fault(
                ("faults", number, "tool"), f"{tool} stands here twice: write one entry with times"
            )


def _is_moment(value: Any) -> bool:
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return False
    return moment.tzinfo is not None and moment.year in CLOCK_YEARS


def _turn_faults(turn: Turn, path: Path) -> Iterator[Fault]:
    for number, call in enumerate(turn.expect.calls):
        yield from _matcher_faults(call.args, (*path, "expect", "calls", number, "args"))
    for number, forbidden in enumerate(turn.forbid):
        yield from _matcher_faults(forbidden.args, (*path, "forbid", number, "args"))
    pattern = turn.reply.matches
    fault = None if pattern is None else pattern_fault(pattern)
    if fault is not None:
        yield Fault((*path, "reply", "matches"), fault)
    if isinstance(turn.expect.order, Before):
        yield from _order_faults(turn.expect.order, len(turn.expect.calls), path)


def _matcher_faults(matchers: Mapping[str, Any], path: Path) -> Iterator[Fault]:
    for name, raw in matchers.items():
        yield from slot_faults(raw, (*path, name))


def _order_faults(order: Before, n: int, path: Path) -> Iterator[Fault]:
    nothing = Problem(costs=[[]] * n, left_expected=[0] * n, left_actual=[])
    try:
        assign_ordered(nothing, order.before)
    except ScenarioError as error:
        yield Fault((*path, "expect", "order"), str(error).removeprefix("order: "))
