"""One value of a YAML text changed in place: every other character stays as its author wrote it.

Dumping the whole document again would keep comments, but not the layout; so only the span of the
value is replaced, as the parser's marks give it. Knows nothing of scenarios.
"""

import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode

from lhkit.errors import ScenarioError
from lhkit.harness.faults import Path, shown_path

_NEEDS_QUOTES = re.compile(r"[\[\]{},]|: |:$| #|^[-?!&*|>%@`\"']|\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A value of the text: its node, and where its parent's indentation begins."""

    text: str
    node: Node
    path: Path

    @property
    def start(self) -> int:
        """Index of the first character."""
        return int(self.node.start_mark.index)

    @property
    def end(self) -> int:
        """Index after the last character; white space and comments behind it are not its own."""
        end = int(self.node.end_mark.index)
        if not isinstance(self.node, CollectionNode) or self.node.flow_style:
            return end
        last = self.node.value[-1]
        child = last[1] if isinstance(self.node, MappingNode) else last
        return Found(text=self.text, node=child, path=self.path).end

    @property
    def source(self) -> str:
        """The value as it can stand inside brackets: as written, or quoted where it must be."""
        if isinstance(self.node, ScalarNode):
            written = self.text[self.start : self.end].strip()
            is_quoted = self.node.style in {"'", '"'} and "\n" not in written
            if is_quoted or (self.node.style is None and not _NEEDS_QUOTES.search(written)):
                return written
            return written_json(str(self.node.value))
        if isinstance(self.node, CollectionNode) and self.node.flow_style:
            return self.text[self.start : self.end]
        raise ScenarioError(f"{shown_path(self.path)}: write it in one line first: {{…}}")

    def child(self, key: str) -> "Found | None":
        """Return the value of a key of this mapping, None if it has none."""
        return self.children().get(key)

    def children(self) -> dict[str, "Found"]:
        """Return the values of this mapping by key; nothing if it is none."""
        pairs = self.node.value if isinstance(self.node, MappingNode) else ()
        return {
            name.value: Found(text=self.text, node=node, path=(*self.path, name.value))
            for name, node in pairs
        }


def found(text: str, path: Path) -> Found:
    """Return the value at `path`.

    Raises:
        ScenarioError: it is not there, or is shared with another place by an anchor.
    """
    at = Found(text=text, node=YAML(typ="safe", pure=True).compose(io.StringIO(text)), path=())
    for step in path:
        inner = _step(at, step)
        if inner.node.anchor or not at.node.start_mark.index <= inner.start < _far_end(at):
            raise ScenarioError(
                f"{shown_path(inner.path)}: shared by a YAML anchor: write the value out first"
            )
        at = inner
    return at


def _far_end(at: Found) -> int:
    return int(at.node.end_mark.index)


def _step(at: Found, step: str | int) -> Found:
    inner: Found | None = None
    if isinstance(step, int) and isinstance(at.node, SequenceNode) and step < len(at.node.value):
        inner = Found(text=at.text, node=at.node.value[step], path=(*at.path, step))
    elif isinstance(step, str):
        inner = at.child(step)
    if inner is None:
        raise ScenarioError(
            f"{shown_path((*at.path, step))}: is not there: write it by hand, there is nothing to "
            "widen"
        )
    return inner


def replaced(place: Found, source: str) -> str:
    """Return the text with `source` in place of a value."""
    return place.text[: place.start] + source + place.text[place.end :]


def appended(place: Found, source: str) -> str:
    """Return the text with one more item at the end of a list, or entry of a mapping.

    Raises:
        ScenarioError: it is empty, so that nothing shows how it is written.
    """
    items: Sequence[Any] = place.node.value
    if not isinstance(place.node, CollectionNode) or not items:
        raise ScenarioError(f"{shown_path(place.path)}: is empty: write the first entry by hand")
    last = items[-1][1] if isinstance(place.node, MappingNode) else items[-1]
    end = Found(text=place.text, node=last, path=place.path).end
    if place.node.flow_style:
        return f"{place.text[:end]}, {source}{place.text[end:]}"
    line_end = place.text.find("\n", end)
    line_end = len(place.text) if line_end < 0 else line_end
    mark = "" if isinstance(place.node, MappingNode) else "- "
    newline = "\r\n" if place.text[:line_end].endswith("\r") else "\n"
    head = place.text[:line_end].removesuffix("\r")
    line = f"{newline}{' ' * place.node.start_mark.column}{mark}{source}"
    return head + line + place.text[len(head) :]


def written_json(value: Any) -> str:
    """Return a value as JSON, which YAML reads as just that: "no" and dates stay texts."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
