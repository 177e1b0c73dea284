"""YAML text to plain JSON data, with the line of every value. Knows nothing of scenarios.

Stricter than YAML: no tags, no duplicate or merged keys, numbers as JSON writes them; dates stay
text. Anchors may be used, but what they expand to is bounded.
"""

import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from lhkit.harness.expectations.matchers import Fault, Path

MAX_VALUES = 500_000
MAX_DEPTH = 60

_SHOWN_CHARS = 40

_TAG = "tag:yaml.org,2002:"
_TEXT_TAGS = {_TAG + "str", _TAG + "timestamp"}
_JSON_TAGS = {_TAG + "int", _TAG + "float", _TAG + "bool", _TAG + "null"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """What a file says. `lines` counts from 1; `faults` are in order of appearance."""

    value: Any
    lines: Mapping[Path, int]
    faults: tuple[Fault, ...]

    def line(self, path: Path) -> int:
        """Return the line of a value, or of the nearest thing around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def read_yaml(text: str) -> Document:
    """Return the one document of `text`; its faults are listed, never raised."""
    reader = _Reader()
    try:
        node = YAML(typ="safe", pure=True).compose(io.StringIO(text))
        value = None if node is None else reader.value(node, ())
    except MarkedYAMLError as error:
        reader.lines[()] = error.problem_mark.line + 1 if error.problem_mark else 1
        reader.faults.append(Fault((), f"not YAML: {error.problem or error.context}"))
        value = None
    except (YAMLError, ValueError) as error:  # a character that YAML forbids
        reader.faults.append(Fault((), f"not YAML: {' '.join(str(error).split())}"))
        value = None
    except RecursionError:
        reader.faults.append(Fault((), f"nested deeper than {MAX_DEPTH} levels"))
        value = None
    return Document(value=value, lines=reader.lines, faults=tuple(reader.faults))


class _Reader:
    """Turns nodes into values, keeping lines and faults."""

    def __init__(self) -> None:
        self.lines: dict[Path, int] = {}
        self.faults: list[Fault] = []

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
        return self._wrong(path, f"the tag {node.tag} is not allowed: write plain data")

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, item in node.value:
            name = key.value if isinstance(key, ScalarNode) else None
            if name is None or key.tag not in _TEXT_TAGS:
                self.lines[path] = key.start_mark.line + 1
                self._wrong(path, f"a key must be a text in quotes, not {name or 'a structure'}")
            elif name in found:
                first = self.lines[*path, name]
                self.lines[*path, name] = key.start_mark.line + 1
                self._wrong((*path, name), f"the key stands here twice (first in line {first})")
            else:
                found[name] = self.value(item, (*path, name))
                self.lines[*path, name] = key.start_mark.line + 1
        return found

    def _scalar(self, node: ScalarNode, path: Path) -> Any:
        text = str(node.value)
        if node.tag == _TAG + "null":
            return None
        try:
            return json.loads(
                text.lower() if node.tag == _TAG + "bool" else text,
                parse_constant=_no,
                parse_float=_finite,
            )
        except ValueError:
            shown = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
            return self._wrong(path, f"{shown} is no JSON number: put it in quotes or write it out")

    def _wrong(self, path: Path, message: str) -> None:
        self.faults.append(Fault(path, message))


def _no(constant: str) -> Any:
    raise ValueError(constant)


def _finite(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _no(digits)
