"""Refuse schemas that cannot be a tool's, when it is registered, and say why.

Expects valid JSON Schema; a fault here is one that every call, or every call that uses an
argument, would run into.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from lhkit.tools.json_schema import Draft202012Validator
from lhkit.tools.schema import (
    KnownKeys,
    applied,
    conjuncts,
    in_place,
    nfc,
    resolved,
    subschemas,
    values_of,
)

_NAMING = ("properties", "patternProperties")


def schema_fault(schema: Mapping[str, Any]) -> str | None:
    """Return why a valid schema cannot be used for a tool's arguments, in words; None if it can.

    That is: a reference that leaves the schema or leads nowhere, a schema that is applied to itself
    without end, an argument that no call can give.
    """
    faults = chain(_broken_references(schema), _loops(schema))
    first = next(faults, None)
    return first or next(_unusable_names(schema), None)


def _everywhere(schema: Any) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """Yield every schema in a schema, and whether it stands inside of an `$id` of its own."""
    seen: set[int] = set()
    waiting: list[tuple[Any, bool]] = [(schema, False)]
    while waiting:
        place, is_foreign = waiting.pop()
        if not isinstance(place, Mapping) or id(place) in seen:
            continue
        seen.add(id(place))
        is_foreign = is_foreign or ("$id" in place and place is not schema)
        yield place, is_foreign
        waiting += [(each, is_foreign) for each in subschemas(place)]
        waiting.append((resolved(place.get("$ref"), schema), is_foreign))


def _broken_references(schema: Mapping[str, Any]) -> Iterator[str]:
    advice = "copy what is meant into $defs and write #/$defs/NAME"
    for place, is_foreign in _everywhere(schema):
        for key in ("$dynamicRef", "$recursiveRef"):
            if key in place:
                yield f"{key} {place[key]!r} is not supported: {advice}"
        if "$ref" not in place:
            continue
        reference = place["$ref"]
        if is_foreign:
            yield f"$ref {reference!r} stands inside of an $id of its own: {advice}"
        elif reference != "#" and not reference.startswith("#/"):
            yield f"$ref {reference!r} leaves the schema, and nothing is fetched: {advice}"
        elif not _is_schema(resolved(reference, schema)):
            yield f"$ref {reference!r} leads to no schema: {advice}"


def _is_schema(found: Any) -> bool:
    return isinstance(found, Mapping | bool) and not any(
        True for _ in Draft202012Validator(Draft202012Validator.META_SCHEMA).iter_errors(found)
    )


def _loops(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the references by which a schema is applied to the very value it is applied to."""
    done: set[int] = set()

    def looks(place: Any, way: frozenset[int]) -> Iterator[str]:
        if not isinstance(place, Mapping) or id(place) in done:
            return
        for each in (*applied(place, schema), place.get("not")):
            if id(each) in way | {id(place)}:
                named = place.get("$ref", "#")
                yield f"$ref {named!r} is applied to itself without end: leave it out"
            else:
                yield from looks(each, way | {id(place)})
        done.add(id(place))

    for place, _ in _everywhere(schema):
        yield from looks(place, frozenset())


def _unusable_names(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield why an argument that is declared or required can never be given."""
    declared = KnownKeys.of(schema)
    for part in in_place(schema, schema):
        dependent = part.get("dependentRequired", {})
        for name in (*part.get("required", ()), *chain.from_iterable(dependent.values())):
            if not declared.has(name):
                yield f"{name!r} is required and declared nowhere: add it to properties"
    spellings = [nfc(name) for name in declared.names]
    for name in sorted(declared.names):
        if spellings.count(nfc(name)) > 1:
            yield f"{name!r} is declared in two spellings that look the same: leave one out"
    for part in conjuncts(schema, schema):
        yield from _refused_names(part, declared)


def _refused_names(part: Mapping[str, Any], declared: KnownKeys) -> Iterator[str]:
    for name, each in part.get("properties", {}).items():
        if each is False:
            yield f"{name!r} takes no value (false): leave it out of properties"
    if part.get("additionalProperties") is False:
        own = {key: each for key, each in part.items() if key in _NAMING}
        for name in sorted(declared.names):
            if not any(True for _ in values_of(own, name)):
                yield (
                    f"{name!r} is refused by an additionalProperties: false that stands beside "
                    "other properties: declare all arguments in one place"
                )
