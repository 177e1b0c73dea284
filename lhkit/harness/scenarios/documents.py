"""Parsing of YAML, JSON and JSONL, with the line of every value and issue.

Stricter than YAML: no tags, no duplicate or merged keys, numbers as JSON writes them; dates stay
text. Anchors are allowed, with a bounded expansion.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Any

from ruamel.yaml.resolver import implicit_resolvers
from yaml.composer import Composer
from yaml.cyaml import CParser
from yaml.error import MarkedYAMLError, YAMLError
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.resolver import BaseResolver

from lhkit.base.errors import ScenarioError
from lhkit.base.files import read_text_file
from lhkit.base.json_values import parse_json, plain_json
from lhkit.harness.scenarios.issues import Issue, Path, paths_in

MAX_FILE_BYTES = 10_000_000
"""A larger file would take minutes to read."""

MAX_VALUES = 500_000
MAX_DEPTH = 60

_SHOWN_CHARS = 40

_TAG = "tag:yaml.org,2002:"
_TEXT_TAGS = {_TAG + "str", _TAG + "timestamp"}
_JSON_TAGS = {_TAG + "int", _TAG + "float", _TAG + "bool", _TAG + "null"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The parsed value of a file, with lines from 1 and issues in order."""

    value: Any
    lines: Mapping[Path, int]
    issues: tuple[Issue, ...]

    def line(self, path: Path) -> int:
        """Return the line of a value, or of the innermost value around it with a line."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


class _Core(BaseResolver):  # type: ignore[misc]  # PyYAML has no types
    """The types of plain scalars in YAML 1.2: `no` and `12:30` are text."""


for _version, _tag, _pattern, _first in implicit_resolvers:
    if (1, 2) in _version:
        _Core.add_implicit_resolver(_tag, _pattern, _first)

_TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"


class _Parser(Composer, CParser, _Core):  # type: ignore[misc]  # PyYAML has no types
    """A parser by libyaml, composed in Python: libyaml crashes on deep nesting."""

    def __init__(self, text: str) -> None:
        Composer.__init__(self)
        CParser.__init__(self, text)
        _Core.__init__(self)


def read_yaml(text: str) -> Document:
    """Parse one YAML document; its issues are listed, never raised."""
    reader = _Reader()
    value, problem = None, ""
    try:
        node = _Parser(text).get_single_node()
        value = None if node is None else reader.value(node, ())
    except MarkedYAMLError as error:
        reader.lines[()] = error.problem_mark.line + 1 if error.problem_mark else 1
        is_deep = "nesting depth" in str(error.problem)  # of libyaml 0.2.6
        problem = _TOO_DEEP if is_deep else f"not YAML: {error.problem or error.context}"
    except (YAMLError, ValueError) as error:  # a character that YAML forbids
        problem = f"not YAML: {' '.join(str(error).split())}"
    except RecursionError:
        problem = _TOO_DEEP
    if problem:
        reader.issues.append(Issue((), problem))
    return Document(value=value, lines=reader.lines, issues=tuple(reader.issues))


def read_json(text: str) -> Document:
    """Parse JSON, with the line of every value; its issues are listed, never raised."""
    document = _read_json_value(text)
    if document.value is None and document.issues:
        return document
    return replace(document, lines=_json_lines(text))


def _read_json_value(text: str) -> Document:
    """Parse JSON; only an issue has a line."""
    duplicates: list[str] = []

    def to_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        counts = Counter(name for name, _ in pairs)
        duplicates.extend(name for name, count in counts.items() if count > 1)
        return dict(pairs)

    try:
        value = plain_json(parse_json(text, to_object=to_dict))
    except json.JSONDecodeError as error:
        issue = Issue((), f"not JSON: {error.msg}")
        return Document(value=None, lines={(): error.lineno}, issues=(issue,))
    except (ValueError, RecursionError) as error:
        return Document(value=None, lines={}, issues=(Issue((), f"not JSON: {error}"),))
    issues = tuple(Issue((), f"duplicate key {name!r} in an object") for name in duplicates)
    return Document(value=value, lines={}, issues=issues)


def _json_lines(text: str) -> Mapping[Path, int]:
    """Return the lines of JSON values, read as YAML, which has no surrogate pairs."""
    reader = _Reader()
    without_surrogates = re.sub(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}", r"\\u0020", text)
    try:
        node = _Parser(without_surrogates).get_single_node()
        if node is not None:
            reader.value(node, ())
    except (YAMLError, ValueError, RecursionError):  # such as tabs: then every value has line 1
        return {}
    return reader.lines


def read_json_lines(text: str) -> Document:
    """Parse JSON lines to a list; empty lines are skipped."""
    values: list[Any] = []
    lines: dict[Path, int] = {}
    issues: list[Issue] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            document = _read_json_value(line)
            lines |= dict.fromkeys(paths_in(document.value, (len(values),)), number)
            issues += [Issue((len(values),), issue.message) for issue in document.issues]
            values.append(document.value)
    return Document(value=values, lines=lines, issues=tuple(issues))


_FORMATS: Mapping[str, Callable[[str], Document]] = {
    ".json": read_json,
    ".jsonl": read_json_lines,
}
"""Parsers by file suffix; any other file is YAML."""


class _Reader:
    """Converts YAML nodes to values, and records lines and issues."""

    def __init__(self) -> None:
        self.lines: dict[Path, int] = {}
        self.issues: list[Issue] = []

    def value(self, node: Node, path: Path) -> Any:
        self.lines[path] = node.start_mark.line + 1
        if len(self.lines) > MAX_VALUES:
            raise ValueError(f"more than {MAX_VALUES} values: split the file")
        if len(path) > MAX_DEPTH:
            raise RecursionError
        if isinstance(node, MappingNode) and node.tag == _TAG + "map":
            return self._mapping(node, path)
        if isinstance(node, SequenceNode) and node.tag == _TAG + "seq":
            return [self.value(item, (*path, i)) for i, item in enumerate(node.value)]
        if isinstance(node, ScalarNode) and node.tag in _TEXT_TAGS:
            return str(node.value)
        if isinstance(node, ScalarNode) and node.tag in _JSON_TAGS:
            return self._scalar(node, path)
        return self._add_issue(path, f"the tag {node.tag} is not allowed: write plain data")

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key, item in node.value:
            name = key.value if isinstance(key, ScalarNode) else None
            if name is None or key.tag not in _TEXT_TAGS:
                self.lines[path] = key.start_mark.line + 1
                text = name or "a structure"
                self._add_issue(path, f"a key must be a text in quotes, not {text}")
            elif name in mapping:
                first = self.lines[*path, name]
                self.lines[*path, name] = key.start_mark.line + 1
                self._add_issue((*path, name), f"duplicate key (first in line {first})")
            else:
                mapping[name] = self.value(item, (*path, name))
                self.lines[*path, name] = key.start_mark.line + 1
        return mapping

    def _scalar(self, node: ScalarNode, path: Path) -> Any:
        text = str(node.value)
        if node.tag == _TAG + "null":
            return None
        try:
            return parse_json(text.lower() if node.tag == _TAG + "bool" else text)
        except ValueError:
            shown = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
            return self._add_issue(
                path, f"{shown} is not a JSON number: put it in quotes or write it out"
            )

    def _add_issue(self, path: Path, message: str) -> None:
        self.issues.append(Issue(path, message))


def read_document(file: FilePath) -> Document:
    """Parse a YAML, JSON or JSONL file; its issues are listed in the document.

    Raises:
        ScenarioError: the file cannot be read as text, or is larger than `MAX_FILE_BYTES`.
    """
    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            raise ScenarioError(f"{file}: larger than {MAX_FILE_BYTES:,} bytes: split the file")
        read = _FORMATS.get(file.suffix.lower(), read_yaml)
        return read(read_text_file(file, "utf-8-sig"))
    except FileNotFoundError as error:
        raise ScenarioError(f"{file}: no such file") from error
    except OSError as error:
        raise ScenarioError(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{file}: cannot be read as UTF-8 text: {error}") from error
