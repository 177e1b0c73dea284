"""A failure accepted as an alternative: a model's argument or phrase goes into the scenario's YAML.

Whether it is right is for the author to decide; that the tool takes it, that the file is still the
one that was run, and that the edited file is as intended, is checked here.

Only the span of that value changes, as the marks of ruamel's nodes give it: dumping the whole
document would keep comments and quotes, but not columns, folded texts and flow mappings.
"""

import difflib
import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode

from lhkit.errors import ScenarioError, UsageError
from lhkit.harness.arguments import ANY_OF, parse_matcher
from lhkit.harness.documents import read_yaml
from lhkit.harness.faults import Path, shown_path
from lhkit.harness.fingerprint import scenario_hash
from lhkit.harness.loader import Origin
from lhkit.harness.matchers import MATCHER_KEYS, AnyValue, Place
from lhkit.harness.record import SampleRecord
from lhkit.harness.scenario import Scenario
from lhkit.harness.text_forms import folded
from lhkit.json_values import shown
from lhkit.tools.schema import KnownKeys, SchemaNode, property_schema
from lhkit.tools.validation import value_fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One argument that a model gave and that was not expected so."""

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


def observed_arguments(record: SampleRecord) -> tuple[Observed, ...]:
    """Return the wrong arguments of calls that were expected; those left out are none."""
    observed = []
    for t, score in enumerate(record.judgement.scores):
        for row in score.calls:
            if row.expected is None or row.actual is None:
                continue
            args = record.evidence.turns[t].calls[row.actual].raw_args
            observed += [
                Observed(
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


def refuse_changed(scenario: Scenario, manifest: Mapping[str, Any]) -> None:
    """Refuse a scenario that is not the one that was played.

    Raises:
        UsageError: it changed since, or the run knows nothing of it.
    """
    if manifest.get("scenarios", {}).get(scenario.id) != scenario_hash(scenario):
        raise UsageError(f"{scenario.id} changed since it was played: play it again first")


def schema_of(
    observed: Observed, record: SampleRecord, manifest: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the schema of the tool that was called, as the run's manifest has it.

    Raises:
        UsageError: the manifest does not describe that tool.
    """
    for tool in manifest.get("locales", {}).get(record.locale, {}).get("tools", ()):
        if tool["name"] == observed.tool:
            schema: Mapping[str, Any] = tool["parameters"]
            return schema
    raise UsageError(
        f"{record.sample_id}: the run describes no tool {observed.tool!r} in {record.locale!r}: "
        "play it again, or widen the scenario by hand"
    )


def accept_argument(
    observed: Observed, origin: Origin, schema: Mapping[str, Any], text: str
) -> Edit:
    """Return the file with the observed argument as one more alternative.

    Args:
        observed: what the model gave.
        origin: where the scenario stands.
        schema: of the tool's arguments.
        text: the file as it is now.

    Raises:
        UsageError: the tool refuses the value (`lhkit lint` would, too).
        ScenarioError: the YAML is written in a way that cannot be edited by a program.
    """
    name, value = observed.name, observed.value
    reason = value_fault(schema, name, value)
    if not KnownKeys.of(schema).has(name):
        reason = f"it has no argument {name!r}"
    if reason is not None:
        raise UsageError(f"{observed.tool} refuses {shown(value)}: {reason}")
    call = ("turns", observed.turn, "expect", "calls", observed.expected)
    path: Path = (origin.index, *call, "args")
    args = _children(_node(text, path))
    if ANY_OF in args:
        raise ScenarioError(
            f"{shown_path(path[1:])}: cannot be edited: it lists several sets of arguments "
            f"({ANY_OF}): add one more by hand"
        )
    written = _json(value)
    if isinstance(value, Mapping) and any(key in MATCHER_KEYS for key in value):
        written = f"{{equals: {written}}}"  # else it is read as a matcher
    if name not in args:
        after = _appended(text, path, f"{name}: {{one_of: [{written}], optional: true}}")
    elif "one_of" in _children(_node(text, (*path, name))):
        after = _appended(text, (*path, name, "one_of"), written)
    else:
        after = _widened(text, (*path, name), written)
    node = SchemaNode.of(schema)
    place = Place(node.at(property_schema(node.branches()[0], name)))
    matcher = parse_matcher(_value_at(after, (*path, name)))
    if isinstance(matcher, AnyValue) or not matcher.fits(value, place):
        raise ScenarioError(f"{shown_path((*path[1:], name))}: cannot be edited: widen it by hand")
    return Edit(file=origin.file, before=text, after=after)


def accept_phrase(phrase: str, turn: int, reply: str, origin: Origin, text: str) -> Edit:
    """Return the file with a phrase as one more alternative under `reply.contains_any`.

    Raises:
        UsageError: the model did not say that, or it is there already.
        ScenarioError: the turn has no `contains_any`, or it cannot be edited by a program.
    """
    if not phrase.strip() or folded(phrase) not in folded(reply):
        raise UsageError(f"the reply of turn {turn} does not say {phrase!r}: {shown(reply)}")
    path: Path = (origin.index, "turns", turn, "reply", "contains_any")
    if phrase in [item.value for item in _node(text, path).value]:
        raise UsageError(
            f"{phrase!r} is already among the alternatives: `lhkit rescore` the run to see it count"
        )
    after = _appended(text, path, _json(phrase))
    if _value_at(after, path)[-1:] != [phrase]:
        raise ScenarioError(f"{shown_path(path[1:])}: cannot be edited: add the phrase by hand")
    return Edit(file=origin.file, before=text, after=after)


def _node(text: str, path: Path) -> Node:
    """Return the node at a path.

    Raises:
        ScenarioError: it is not there, or is shared with another place by an anchor.
    """
    node: Node = YAML(typ="safe", pure=True).compose(io.StringIO(text))
    for depth, step in enumerate(path, 1):
        if isinstance(step, str):
            inner = _children(node).get(step)
        else:
            items = node.value if isinstance(node, SequenceNode) else []
            inner = items[step] if step < len(items) else None
        if inner is None:
            raise ScenarioError(
                f"{shown_path(path[:depth])}: is not there: write it by hand, there is nothing to "
                "widen"
            )
        is_inside = node.start_mark.index <= inner.start_mark.index < node.end_mark.index
        if inner.anchor or not is_inside:
            raise ScenarioError(
                f"{shown_path(path[:depth])}: shared by a YAML anchor: write the value out first"
            )
        node = inner
    return node


def _children(node: Node) -> dict[str, Node]:
    """Return the values of a mapping by key; nothing if it is none."""
    pairs = node.value if isinstance(node, MappingNode) else ()
    return {key.value: value for key, value in pairs}


def _end(node: Node) -> int:
    """Return the index after a value, without the white space and comments behind it."""
    if isinstance(node, CollectionNode) and not node.flow_style:
        return _end(node.value[-1][1] if isinstance(node, MappingNode) else node.value[-1])
    return int(node.end_mark.index)


def _source(text: str, node: Node, path: Path) -> str:
    """Return a value as it can stand inside brackets: as written, or quoted where it must be."""
    written = text[node.start_mark.index : node.end_mark.index]
    if isinstance(node, ScalarNode):
        written = written.strip()
        is_quoted = node.style in {"'", '"'} and "\n" not in written
        if is_quoted or (node.style is None and not _NEEDS_QUOTES.search(written)):
            return written
        return _json(str(node.value))
    if isinstance(node, CollectionNode) and node.flow_style:
        return written
    raise ScenarioError(f"{shown_path(path)}: write it in one line first: {{…}}")


_NEEDS_QUOTES = re.compile(r"[\[\]{},]|: |:$| #|^[-?!&*|>%@`\"']|\n")


def _widened(text: str, path: Path, written: str) -> str:
    """Return the text with `{one_of: [old, new]}` in place of a matcher, `optional` beside it."""
    node = _node(text, path)
    parts = _children(node)
    optional = parts.pop("optional", None)
    if optional is None:
        source = f"{{one_of: [{_source(text, node, path)}, {written}]}}"
    else:
        kept = [f"{name}: {_source(text, part, path)}" for name, part in parts.items()]
        is_optional = _source(text, optional, path)
        source = f"{{one_of: [{{{', '.join(kept)}}}, {written}], optional: {is_optional}}}"
    return text[: node.start_mark.index] + source + text[_end(node) :]


def _appended(text: str, path: Path, source: str) -> str:
    """Return the text with one more item at the end of a list, or entry of a mapping.

    Raises:
        ScenarioError: it is empty, so that nothing shows how it is written.
    """
    node = _node(text, path)
    if not isinstance(node, CollectionNode) or not node.value:
        raise ScenarioError(f"{shown_path(path)}: is empty: write the first entry by hand")
    end = _end(node.value[-1][1] if isinstance(node, MappingNode) else node.value[-1])
    if node.flow_style:
        return f"{text[:end]}, {source}{text[end:]}"
    head = text[:end] + text[end:].partition("\n")[0]
    newline = "\r\n" if head.endswith("\r") else "\n"
    head = head.removesuffix("\r")
    mark = "" if isinstance(node, MappingNode) else "- "
    return f"{head}{newline}{' ' * node.start_mark.column}{mark}{source}{text[len(head) :]}"


def _value_at(text: str, path: Path) -> Any:
    """Return the value at a path of an edited text."""
    document = read_yaml(text)
    if document.faults:
        raise ScenarioError(f"{shown_path(path[1:])}: cannot be edited: {document.faults[0]}")
    value = document.value
    for step in path:
        value = value[step]
    return value


def _json(value: Any) -> str:
    """Return a value as JSON, which YAML reads as just that: "no" and dates stay texts."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
