"""Does a value fit a matcher? None if it does, otherwise the reason in words. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, assert_never

from lhkit.harness.assignment import Problem, assign, assign_ordered, strictly_ordered
from lhkit.harness.equality import equal, is_number
from lhkit.harness.matchers import (
    AnyValue,
    Approx,
    Equals,
    Fields,
    Items,
    Matcher,
    Matches,
    OneOf,
    Slot,
    Text,
)
from lhkit.harness.relative_dates import DateIs
from lhkit.json_values import shown
from lhkit.tools.schema import ABSENT, SchemaNode, default_of, item_of, property_of, spelling


@dataclass(frozen=True, slots=True)
class Place:
    """Where a comparison stands: the schema there, and the scenario's day for `date`."""

    node: SchemaNode
    today: date | None = None

    def at(self, schema: Any) -> "Place":
        """Return another place of the same schema."""
        return Place(self.node.at(schema), self.today)


def mismatch(matcher: Matcher, actual: Any, place: Place) -> str | None:
    """Return why `actual` does not fit `matcher`, or None if it fits."""
    match matcher:
        case Fields():
            return _fields_mismatch(matcher, actual, place)
        case Items():
            return _items_mismatch(matcher, actual, place)
        case OneOf(options=options):
            fits = any(mismatch(option, actual, place) is None for option in options)
        case AnyValue():
            fits = True
        case Equals(value=value):
            fits = equal(value, actual, place.node)
        case Matches(pattern=pattern):
            fits = isinstance(actual, str) and pattern.is_in(actual)
        case Approx():
            fits = _is_close(matcher, actual)
        case DateIs():
            fits = actual == matcher.resolved(place.today)
        case Text():
            fits = isinstance(actual, str) and matcher.is_like(actual)
        case _:
            assert_never(matcher)
    return None if fits else f"expected {described(matcher, place.today)}, got {shown(actual)}"


def described(matcher: Matcher, today: date | None = None) -> str:
    """Return in a few words what a matcher accepts."""
    match matcher:
        case Equals(value=value):
            return shown(value)
        case OneOf(options=options):
            return "one of " + ", ".join(described(option, today) for option in options)
        case AnyValue():
            return "any value"
        case Matches(pattern=pattern):
            return f"a text matching /{pattern.text}/"
        case Approx(value=value):
            return f"about {value}"
        case DateIs():
            return f"{matcher.resolved(today)} ({matcher.expression})"
        case Text(text=text):
            return f"the text {shown(text)}"
        case Fields(fields=fields):
            return f"an object with {', '.join(fields)}"
        case Items(items=items):
            return f"an array of {len(items)}"
        case _:
            assert_never(matcher)


def _is_close(matcher: Approx, actual: Any) -> bool:
    if not is_number(actual):
        return False
    try:
        return math.isclose(actual, matcher.value, rel_tol=matcher.rel, abs_tol=matcher.abs)
    except OverflowError:  # an integer beyond the range of floats
        return False


def _fields_mismatch(matcher: Fields, actual: Any, place: Place) -> str | None:
    if not isinstance(actual, Mapping):
        return f"expected an object, got {shown(actual)}"
    faults: list[str | None] = [None]
    for branch in place.node.branches():
        reasons = fields_reasons(matcher.fields, actual, place.at(branch), extra=matcher.extra)
        faults = [f"{name}: {reason}" for name, reason in reasons.items() if reason is not None]
        if not faults:
            return None
    return faults[0]


def arguments_reasons(
    slots: Mapping[str, Slot],
    args: Mapping[str, Any],
    schema: Mapping[str, Any],
    *,
    extra: bool,
    today: date | None = None,
) -> dict[str, str | None]:
    """Return `fields_reasons` of a call's arguments, under the branch of the schema that fits best.

    Args:
        slots: the expected arguments.
        args: the arguments that were given.
        schema: JSON Schema of the tool's arguments; `{}` compares them untyped.
        extra: tolerate arguments that are not expected.
        today: the scenario's day.
    """
    top = Place(SchemaNode.of(schema), today)
    found = (
        fields_reasons(slots, args, top.at(branch), extra=extra) for branch in top.node.branches()
    )
    return min(found, key=lambda reasons: sum(each is not None for each in reasons.values()))


def fields_reasons(
    slots: Mapping[str, Slot], actual: Mapping[str, Any], place: Place, *, extra: bool
) -> dict[str, str | None]:
    """Return, for every field expected or given, why it is wrong; None where it is right.

    Names compare in NFC. Of two spellings of one name the expected one counts.

    Args:
        slots: the expected fields.
        actual: the object.
        place: its schema must be an object schema without references at the top.
        extra: tolerate fields that are not expected.
    """
    branch, root = place.node.schema, place.node.root
    reasons: dict[str, str | None] = {}
    taken: set[str] = set()
    for name, slot in slots.items():
        inner = place.at(property_of(branch, name))
        given = spelling(name, actual)
        taken.add(given)
        value = actual.get(given, ABSENT)
        reasons[name] = _slot_reason(slot, value, default_of(branch, name, root), inner)
    for name, value in actual.items():
        if name not in taken and not extra:
            inner = place.at(property_of(branch, name))
            reasons[name] = _surplus_reason(value, default_of(branch, name, root), inner)
    return reasons


def _slot_reason(slot: Slot, value: Any, default: Any, place: Place) -> str | None:
    if value is not ABSENT:
        return mismatch(slot.matcher, value, place)
    if slot.optional:
        return None
    if default is not ABSENT and mismatch(slot.matcher, default, place) is None:
        return None
    return f"missing: expected {described(slot.matcher, place.today)}"


def _surplus_reason(value: Any, default: Any, place: Place) -> str | None:
    if default is not ABSENT and equal(default, value, place.node):
        return None
    return f"surplus: nothing was expected, got {shown(value)}"


def _items_mismatch(matcher: Items, actual: Any, place: Place) -> str | None:
    if not isinstance(actual, list | tuple):
        return f"expected an array, got {shown(actual)}"
    faults = [_branch_mismatch(matcher, actual, place, branch) for branch in place.node.branches()]
    return None if None in faults else faults[0]


def _branch_mismatch(
    matcher: Items, actual: Sequence[Any], place: Place, branch: Mapping[str, Any]
) -> str | None:
    reasons = [
        [
            mismatch(slot.matcher, value, place.at(item_of(branch, j)))
            for j, value in enumerate(actual)
        ]
        for slot in matcher.items
    ]
    problem = Problem(
        costs=[[0 if reason is None else None for reason in row] for row in reasons],
        left_expected=[0 if slot.optional else 1 for slot in matcher.items],
        left_actual=[1] * len(actual),
    )
    order = () if matcher.unordered else strictly_ordered(len(matcher.items))
    pairs = assign_ordered(problem, order) if order else assign(problem)
    paired, used = {i for i, _ in pairs}, {j for _, j in pairs}
    for i, slot in enumerate(matcher.items):
        if i not in paired and not slot.optional:
            beside = reasons[i][i] if i < len(actual) else None
            return f"item {i}: {beside or 'not there'}"
    surplus = [j for j in range(len(actual)) if j not in used]
    return f"item {surplus[0]}: nothing was expected" if surplus else None
