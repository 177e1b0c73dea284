"""A failure accepted as an alternative: a model's argument or phrase goes into the scenario's YAML.

Only that value changes in the file. Whether it is right is for the author to decide; that the tool
takes it, that the file is still the one that was run, and that the edited file is as intended, is
checked here.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from lhkit.errors import ScenarioError, UsageError
from lhkit.harness.arguments import ANY_OF, parse_matcher
from lhkit.harness.author.yaml_edit import Found, appended, found, replaced, written_json
from lhkit.harness.documents import read_yaml
from lhkit.harness.faults import Path, shown_path
from lhkit.harness.fingerprint import scenario_hash
from lhkit.harness.loader import Origin
from lhkit.harness.matchers import MATCHER_KEYS, AnyValue, Place
from lhkit.harness.record import SampleRecord
from lhkit.harness.scenario import Scenario
from lhkit.harness.text_forms import folded
from lhkit.json_values import shown
from lhkit.tools.schema import KnownKeys, SchemaNode, property_of
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
    matcher = parse_matcher(_value_at(text, path))
    if isinstance(matcher, AnyValue) or not matcher.fits(value, place):
        raise ScenarioError(f"{shown_path(path[1:])}: cannot be edited: widen it by hand")


def _value_at(text: str, path: Path) -> Any:
    document = read_yaml(text)
    if document.faults:
        raise ScenarioError(f"{shown_path(path[1:])}: cannot be edited: {document.faults[0]}")
    value = document.value
    for step in path:
        value = value[step]
    return value
