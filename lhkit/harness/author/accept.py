"""A call that a model made is accepted into a scenario's file, the layout kept."""

import difflib
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode

from lhkit.errors import ScenarioError, UsageError
from lhkit.harness.documents import read_yaml
from lhkit.harness.faults import Path, shown_path
from lhkit.harness.fingerprint import scenario_hash
from lhkit.harness.loader import Origin
from lhkit.harness.matchers import ANY_OF, MATCHER_KEYS, AnyValue, parse_slot
from lhkit.harness.mismatch import Place, mismatch
from lhkit.harness.record import SampleRecord
from lhkit.harness.scenario import Scenario
from lhkit.harness.text_forms import folded
from lhkit.json_values import shown
from lhkit.tools.schema import KnownKeys, SchemaNode, property_of
from lhkit.tools.validation import value_fault

# One value of a YAML text changed in place: every other character stays as its author wrote it.
#
# Dumping the whole document again would keep comments, but not the layout; so only the span of the
# value is replaced, as the parser's marks give it. Knows nothing of scenarios.


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


# A failure taken as an alternative: what a model did goes into the scenario's YAML as `one_of`.
#
# Only that value changes in the file. Whether it is right is for the author to say; that the tool
# takes it, that the file is still the one that was played, and that the result says what it should
# is checked here. Showing and writing is the command's business.


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
    return tuple(
        Observed(
            turn=t,
            call=row.actual,
            expected=row.expected,
            tool=row.tool,
            name=argument.name,
            value=record.evidence.turns[t].calls[row.actual].raw_args[argument.name],
        )
        for t, score in enumerate(record.judgement.scores)
        for row in score.calls
        if row.expected is not None and row.actual is not None
        for argument in row.arguments
        if not argument.ok
        and _is_given(record.evidence.turns[t].calls[row.actual].raw_args, argument.name)
    )


def _is_given(args: Any, name: str) -> bool:
    return isinstance(args, Mapping) and name in args


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
    node = SchemaNode.of(schema)
    inner = node.at(property_of(node.branches()[0], observed.name))
    reason = value_fault(schema, observed.name, observed.value)
    if not KnownKeys.of(schema).has(observed.name):
        reason = f"it has no argument {observed.name!r}"
    if reason is not None:
        raise UsageError(f"{observed.tool} refuses {shown(observed.value)}: {reason}")
    path = _args_path(observed, origin)
    after = _with_alternative(text, path, observed)
    _refuse_unless_accepted(after, (*path, observed.name), observed.value, Place(inner))
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
    place = found(text, path)
    if phrase in [item.value for item in place.node.value]:
        raise UsageError(
            f"{phrase!r} is already among the alternatives: `lhkit rescore` the run to see it count"
        )
    after = appended(place, written_json(phrase))
    if _value_at(after, path)[-1:] != [phrase]:
        raise ScenarioError(f"{shown_path(path[1:])}: cannot be edited: add the phrase by hand")
    return Edit(file=origin.file, before=text, after=after)


def _args_path(observed: Observed, origin: Origin) -> Path:
    call = ("turns", observed.turn, "expect", "calls", observed.expected)
    return (origin.index, *call, "args")


def _with_alternative(text: str, path: Path, observed: Observed) -> str:
    value = _option(observed.value)
    args = found(text, path)
    if args.child(ANY_OF) is not None:
        raise ScenarioError(
            f"{shown_path(path[1:])}: cannot be edited: it lists several sets of arguments "
            f"({ANY_OF}): add one more by hand"
        )
    present = args.child(observed.name)
    if present is None:
        return appended(args, f"{observed.name}: {{one_of: [{value}], optional: true}}")
    place = found(text, (*path, observed.name))
    options = place.child("one_of")
    if options is not None:
        return appended(options, value)
    return replaced(place, _widened(place, value))


def _option(value: Any) -> str:
    """Return a value as one alternative; one that looks like a matcher is written with equals."""
    source = written_json(value)
    is_like_matcher = isinstance(value, Mapping) and any(key in MATCHER_KEYS for key in value)
    return f"{{equals: {source}}}" if is_like_matcher else source


def _widened(place: Found, value: str) -> str:
    """Return `{one_of: [old, new]}`, with the old matcher's `optional` beside `one_of`."""
    optional = place.child("optional")
    if optional is None:
        return f"{{one_of: [{place.source}, {value}]}}"
    kept = [
        f"{name}: {part.source}" for name, part in place.children().items() if name != "optional"
    ]
    return f"{{one_of: [{{{', '.join(kept)}}}, {value}], optional: {optional.source}}}"


def _refuse_unless_accepted(text: str, path: Path, value: Any, place: Place) -> None:
    slot = parse_slot(_value_at(text, path))
    if isinstance(slot.matcher, AnyValue) or mismatch(slot.matcher, value, place) is not None:
        raise ScenarioError(f"{shown_path(path[1:])}: cannot be edited: widen it by hand")


def _value_at(text: str, path: Path) -> Any:
    document = read_yaml(text)
    if document.faults:
        raise ScenarioError(f"{shown_path(path[1:])}: cannot be edited: {document.faults[0]}")
    value = document.value
    for step in path:
        value = value[step]
    return value
