"""Add an argument or phrase of a failed sample to the accepted alternatives in a scenario file.

Only the text of that value is replaced, at the marks of ruamel's nodes: dumping the whole document
would change columns, folded texts and flow mappings.
"""

import difflib
import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path as FilePath
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode

from lhkit.base.errors import ScenarioError, UsageError
from lhkit.base.json_values import shown
from lhkit.base.schema import KnownKeys, SchemaNode, property_schema
from lhkit.harness.records.manifest import Manifest
from lhkit.harness.records.record import SampleRecord
from lhkit.harness.running.fingerprint import scenario_hash
from lhkit.harness.scenarios.documents import read_yaml
from lhkit.harness.scenarios.issues import Path, format_path
from lhkit.harness.scenarios.loader import Origin
from lhkit.harness.scenarios.matchers import ANY_OF, MATCHER, MATCHER_KEYS, AnyValue, Place, parse
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.harness.scenarios.values import fold_text
from lhkit.tools.validation import value_issue


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedArgument:
    """A wrong argument of an expected call."""

    turn: int
    call: int
    expected: int
    tool: str
    name: str
    value: Any

    def __str__(self) -> str:
        place = f"--turn {self.turn} --call {self.call} --arg {self.name}"
        return f"{place}: {self.tool}.{self.name}={shown(self.value)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A file before and after."""

    file: FilePath
    before: str
    after: str

    @property
    def diff(self) -> str:
        """The change as a unified diff, without a trailing newline."""
        lines = difflib.unified_diff(
            self.before.splitlines(),
            self.after.splitlines(),
            fromfile=str(self.file),
            tofile=str(self.file),
            lineterm="",
        )
        return "\n".join(lines)


def observed_arguments(record: SampleRecord) -> tuple[ObservedArgument, ...]:
    """Return the wrong arguments of expected calls, without missing ones."""
    observed = []
    for t, score in enumerate(record.score.turn_scores):
        for row in score.calls:
            if row.expected is None or row.actual is None:
                continue
            args = record.trajectory.turns[t].calls[row.actual].raw_args
            observed += [
                ObservedArgument(
                    turn=t,
                    call=row.actual,
                    expected=row.expected,
                    tool=row.tool,
                    name=argument.name,
                    value=args[argument.name],
                )
                for argument in row.arguments
                if not argument.ok and isinstance(args, Mapping) and argument.name in args
            ]
    return tuple(observed)


def require_unchanged(scenario: Scenario, manifest: Manifest) -> None:
    """Refuse a scenario that differs from the one in the run.

    Raises:
        UsageError: it changed since the run, or is not part of it.
    """
    if manifest.scenarios.get(scenario.id) != scenario_hash(scenario):
        raise UsageError(
            f"{scenario.id} changed since the run: score the run again with `lhkit rescore` and "
            "give the run that it writes, or run it again"
        )


def tool_schema(
    observed: ObservedArgument, record: SampleRecord, manifest: Manifest
) -> Mapping[str, Any]:
    """Return the schema of the called tool from the manifest of the run.

    Raises:
        UsageError: the manifest does not have that tool.
    """
    for tool in manifest.tools_of(record.sample_id.scenario, record.locale):
        if tool["name"] == observed.tool:
            schema: Mapping[str, Any] = tool["parameters"]
            return schema
    raise UsageError(
        f"{record.sample_id}: the run does not have tool {observed.tool!r} in {record.locale!r}: "
        "run it again, or edit the scenario by hand"
    )


def accept_argument(
    observed: ObservedArgument, origin: Origin, schema: Mapping[str, Any], text: str
) -> Edit:
    """Return the file with the observed argument as an accepted alternative.

    Args:
        observed: the argument.
        origin: place of the scenario.
        schema: schema of the tool's arguments.
        text: content of the file.

    Raises:
        UsageError: the tool refuses the value.
        ScenarioError: the YAML cannot be edited automatically.
    """
    name, value = observed.name, observed.value
    reason = value_issue(schema, name, value)
    if not KnownKeys.of(schema).has(name):
        reason = f"it has no argument {name!r}"
    if reason is not None:
        raise UsageError(f"{observed.tool} refuses {shown(value)}: {reason}")
    part = _Part.of(origin, text)
    path: Path = (part.index, "turns", observed.turn, "expect", "calls", observed.expected, "args")
    args = _children(_node(part.text, path))
    if ANY_OF in args:
        raise ScenarioError(
            f"{format_path(path[1:])}: cannot be edited: it lists several sets of arguments "
            f"({ANY_OF}): add one more by hand"
        )
    source = _json(value)
    if isinstance(value, Mapping) and any(key in MATCHER_KEYS for key in value):
        source = part.mapping(equals=source)  # otherwise it would be a matcher
    if name not in args:
        alternatives = part.mapping(one_of=f"[{source}]", optional="true")
        after = _append(part.text, path, f"{part.key(name)}: {alternatives}")
    elif "one_of" in _children(_node(part.text, (*path, name))):
        after = _append(part.text, (*path, name, "one_of"), source)
    else:
        after = _add_alternative(part, (*path, name), source)
    node = SchemaNode.of(schema)
    place = Place(node.at(property_schema(node.branches()[0], name)))
    matcher = parse(MATCHER, _value_at(after, (*path, name)))
    if isinstance(matcher, AnyValue) or not matcher.fits(value, place):
        raise ScenarioError(f"{format_path((*path[1:], name))}: cannot be edited: edit it by hand")
    return Edit(file=origin.file, before=text, after=part.within(after))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """The part of a file that is edited: a line of JSON Lines as a list of one, else all.

    `is_json`: keys need quotes.
    """

    text: str
    index: int
    head: str = ""
    tail: str = ""
    is_json: bool = False
    is_line: bool = False

    @classmethod
    def of(cls, origin: Origin, text: str) -> "_Part":
        suffix = origin.file.suffix.lower()
        if suffix != ".jsonl":
            return cls(text=text, index=origin.index, is_json=suffix == ".json")
        lines = text.split("\n")
        number = [n for n, line in enumerate(lines) if line.strip()][origin.index]
        return cls(
            text=f"[{lines[number].strip()}]",
            index=0,
            head="".join(f"{line}\n" for line in lines[:number]),
            tail="".join(f"\n{line}" for line in lines[number + 1 :]),
            is_json=True,
            is_line=True,
        )

    def within(self, after: str) -> str:
        """Return the file with this part edited."""
        return f"{self.head}{after[1:-1] if self.is_line else after}{self.tail}"

    def key(self, name: str) -> str:
        return _json(name) if self.is_json or not _PLAIN_KEY.fullmatch(name) else name

    def mapping(self, **sources: str) -> str:
        """Return the source of a mapping of sources."""
        return f"{{{', '.join(f'{self.key(key)}: {value}' for key, value in sources.items())}}}"


_PLAIN_KEY = re.compile(r"(?!(?:null|true|false)\Z)[^\W\d][\w-]*(?: [\w-]+)*", re.IGNORECASE)


def accept_phrase(phrase: str, turn: int, reply: str, origin: Origin, text: str) -> Edit:
    """Return the file with a phrase added to `reply.contains_any`.

    Raises:
        UsageError: the reply does not contain the phrase, or it is accepted already.
        ScenarioError: the turn has no `contains_any`, or the YAML cannot be edited automatically.
    """
    if not phrase.strip() or fold_text(phrase) not in fold_text(reply):
        raise UsageError(f"the reply of turn {turn} does not contain {phrase!r}: {shown(reply)}")
    part = _Part.of(origin, text)
    path: Path = (part.index, "turns", turn, "reply", "contains_any")
    if phrase in [item.value for item in _node(part.text, path).value]:
        raise UsageError(
            f"{phrase!r} is accepted already: run `lhkit rescore` to update the verdicts"
        )
    after = _append(part.text, path, _json(phrase))
    if _value_at(after, path)[-1:] != [phrase]:
        raise ScenarioError(f"{format_path(path[1:])}: cannot be edited: add the phrase by hand")
    return Edit(file=origin.file, before=text, after=part.within(after))


def _node(text: str, path: Path) -> Node:
    """Return the node at a path.

    Raises:
        ScenarioError: it does not exist, or is shared by an anchor.
    """
    node = _compose(text)
    for depth, step in enumerate(path, 1):
        if isinstance(step, str):
            inner = _children(node).get(step)
        else:
            items = node.value if isinstance(node, SequenceNode) else []
            inner = items[step] if step < len(items) else None
        if inner is None:
            raise ScenarioError(f"{format_path(path[:depth])} does not exist: write it by hand")
        is_inside = node.start_mark.index <= inner.start_mark.index < node.end_mark.index
        if inner.anchor or not is_inside:
            raise ScenarioError(
                f"{format_path(path[:depth])}: shared by a YAML anchor: write the value out first"
            )
        node = inner
    return node


@lru_cache(maxsize=1)  # a file of a thousand rows takes seconds
def _compose(text: str) -> Node:
    node: Node = YAML(typ="safe", pure=True).compose(io.StringIO(text))
    return node


def _children(node: Node) -> dict[str, Node]:
    """Return the values of a mapping node by key; empty for any other node."""
    pairs = node.value if isinstance(node, MappingNode) else ()
    return {key.value: value for key, value in pairs}


def _end(node: Node) -> int:
    """Return the index of the end of a value, before trailing white space and comments."""
    if isinstance(node, CollectionNode) and not node.flow_style:
        return _end(node.value[-1][1] if isinstance(node, MappingNode) else node.value[-1])
    return int(node.end_mark.index)


def _source(text: str, node: Node, path: Path) -> str:
    """Return the source of a value for use inside brackets, quoted if necessary."""
    written = text[node.start_mark.index : node.end_mark.index]
    if isinstance(node, ScalarNode):
        written = written.strip()
        is_quoted = node.style in {"'", '"'} and "\n" not in written
        if is_quoted or (node.style is None and not _NEEDS_QUOTES.search(written)):
            return written
        return _json(str(node.value))
    if isinstance(node, CollectionNode) and node.flow_style:
        return written
    if "#" in text[node.start_mark.index : _end(node)]:  # a comment, perhaps
        raise ScenarioError(f"{format_path(path)}: write it on one line first: {{…}}")
    return _json(_value_at(text, path))


_NEEDS_QUOTES = re.compile(r"[\[\]{},]|: |:$| #|^[-?!&*|>%@`\"']|\n")


def _add_alternative(part: _Part, path: Path, alternative: str) -> str:
    """Return the text with `{one_of: [old, new]}` instead of a matcher; `optional` is kept."""
    text = part.text
    node = _node(text, path)
    parts = _children(node)
    optional = parts.pop("optional", None)
    if optional is None:
        source = part.mapping(one_of=f"[{_source(text, node, path)}, {alternative}]")
    else:
        rest = {name: _source(text, inner, path) for name, inner in parts.items()}
        source = part.mapping(
            one_of=f"[{part.mapping(**rest)}, {alternative}]",
            optional=_source(text, optional, path),
        )
    before = text[: node.start_mark.index]
    if isinstance(node, CollectionNode) and not node.flow_style:  # it begins on its own line
        before = f"{before.rstrip()} "
    return before + source + text[_end(node) :]


def _append(text: str, path: Path, source: str) -> str:
    """Return the text with an item appended to a list, or an entry to a mapping.

    Raises:
        ScenarioError: it is empty, so its style is unknown.
    """
    node = _node(text, path)
    if isinstance(node, MappingNode) and node.flow_style and not node.value:
        return f"{text[: node.start_mark.index]}{{{source}}}{text[node.end_mark.index :]}"
    if not isinstance(node, CollectionNode) or not node.value:
        raise ScenarioError(f"{format_path(path)} is empty: write the first entry by hand")
    end = _end(node.value[-1][1] if isinstance(node, MappingNode) else node.value[-1])
    if node.flow_style:
        return f"{text[:end]}, {source}{text[end:]}"
    head = text[:end] + text[end:].partition("\n")[0]
    newline = "\r\n" if head.endswith("\r") else "\n"
    head = head.removesuffix("\r")
    mark = "" if isinstance(node, MappingNode) else "- "
    return f"{head}{newline}{' ' * node.start_mark.column}{mark}{source}{text[len(head) :]}"


def _value_at(text: str, path: Path) -> Any:
    document = read_yaml(text)
    if document.issues:
        reason = document.issues[0].message
        raise ScenarioError(f"{format_path(path[1:])}: cannot be edited: {reason}")
    value = document.value
    for step in path:
        value = value[step]
    return value


def _json(value: Any) -> str:
    """Return a value as JSON, which is unambiguous in YAML, such as for "no" and dates."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return _NOT_IN_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
