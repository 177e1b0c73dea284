"""Equality of two JSON values as a tool's JSON Schema means it.

Numbers compare by value (`1 == 1.0`), but `true` is never `1` and `"1"` is never `1`. Text
compares in Unicode NFC, arrays in order, objects key by key; a key that one side leaves out
equals the schema's `default`. Not a validator: both values may be invalid and still be equal.
"""

import unicodedata
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ABSENT: Any = object()
"""Stands for a value that is not there; equal to nothing but a schema's default."""

_COMBINING = frozenset({"$ref", "allOf", "anyOf", "oneOf"})
_MAX_REFS = 32  # a chain of references longer than this is a loop


@dataclass(frozen=True, slots=True)
class SchemaNode:
    """A place in a schema; `root` is what its `$ref`s point into."""

    schema: Any
    root: Any

    @classmethod
    def of(cls, schema: Any) -> "SchemaNode":
        """Return the top of `schema`."""
        return cls(schema, schema)

    def at(self, schema: Any) -> "SchemaNode":
        """Return another place of the same schema."""
        return SchemaNode(schema, self.root)

    def branches(self) -> tuple[Mapping[str, Any], ...]:
        """Return what this place may mean: references followed, `anyOf`/`oneOf` taken apart."""
        if isinstance(self.schema, dict) and _COMBINING.isdisjoint(self.schema):
            return (self.schema,)
        return tuple(_branches(self.schema, self.root, _MAX_REFS)) or ({},)


def _branches(schema: Any, root: Any, refs_left: int) -> Iterator[Mapping[str, Any]]:
    if not isinstance(schema, Mapping) or refs_left == 0:
        return
    if "$ref" in schema:
        yield from _branches(_resolved(schema["$ref"], root), root, refs_left - 1)
        return
    own = _merged(schema, root, refs_left)
    choices = [choice for key in ("anyOf", "oneOf") for choice in schema.get(key, ())]
    if not choices:
        yield own
    for choice in choices:
        for branch in _branches(choice, root, refs_left - 1):
            yield _joined(own, branch)


def _merged(schema: Mapping[str, Any], root: Any, refs_left: int) -> Mapping[str, Any]:
    """Return `schema` with its `allOf` parts folded in (of each part, the first branch)."""
    merged = schema
    for part in schema.get("allOf", ()):
        branch = next(_branches(part, root, refs_left - 1), None)
        merged = merged if branch is None else _joined(merged, branch)
    return merged


def _joined(first: Mapping[str, Any], second: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = {**second.get("properties", {}), **first.get("properties", {})}
    required = [*first.get("required", ()), *second.get("required", ())]
    return {**second, **first, "properties": properties, "required": required}


def _resolved(reference: Any, root: Any) -> Any:
    """Follow a local reference (`#/$defs/Name`); anything else is an unknown schema."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    place = root
    for part in reference.lstrip("#").strip("/").split("/"):
        if part:
            key = part.replace("~1", "/").replace("~0", "~")
            place = place.get(key) if isinstance(place, Mapping) else None
    return place


def property_of(branch: Mapping[str, Any], name: str) -> Any:
    """Return the schema of a property, `{}` where there is none."""
    declared = branch.get("properties", {})
    if name in declared:
        return declared[name]
    others = branch.get("additionalProperties", {})
    return others if isinstance(others, Mapping) else {}


def default_of(branch: Mapping[str, Any], name: str) -> Any:
    """Return the default of an optional property, `ABSENT` where there is none.

    A required property has no default in our sense: leaving it out is refused, not filled in.
    """
    if name in branch.get("required", ()):
        return ABSENT
    schema = branch.get("properties", {}).get(name, {})
    return schema.get("default", ABSENT) if isinstance(schema, Mapping) else ABSENT


def item_of(branch: Mapping[str, Any], index: int) -> Any:
    """Return the schema of an array's item at `index`."""
    first: Sequence[Any] = branch.get("prefixItems", ())
    return first[index] if index < len(first) else branch.get("items", {})


def equal(expected: Any, actual: Any, node: SchemaNode) -> bool:
    """Return True if both values mean the same at this place of a schema."""
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        return any(_objects_equal(expected, actual, branch, node) for branch in node.branches())
    if _is_array(expected) and _is_array(actual):
        return len(expected) == len(actual) and any(
            all(
                equal(mine, theirs, node.at(item_of(branch, index)))
                for index, (mine, theirs) in enumerate(zip(expected, actual, strict=True))
            )
            for branch in node.branches()
        )
    return _scalars_equal(expected, actual)


def _objects_equal(
    expected: Mapping[str, Any],
    actual: Mapping[str, Any],
    branch: Mapping[str, Any],
    node: SchemaNode,
) -> bool:
    mine, theirs = _by_nfc(expected), _by_nfc(actual)
    return all(
        equal(
            mine.get(name, default_of(branch, name)),
            theirs.get(name, default_of(branch, name)),
            node.at(property_of(branch, name)),
        )
        for name in mine.keys() | theirs.keys()
    )


def _by_nfc(value: Mapping[Any, Any]) -> dict[Any, Any]:
    return {nfc(key) if isinstance(key, str) else key: item for key, item in value.items()}


def _scalars_equal(expected: Any, actual: Any) -> bool:
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if is_number(expected) and is_number(actual):
        return bool(expected == actual)
    if isinstance(expected, str) and isinstance(actual, str):
        return nfc(expected) == nfc(actual)
    return expected is None and actual is None


_TRUTH: Mapping[bool, Hashable] = {False: ("false",), True: ("true",)}


def normal(value: Any) -> Hashable:
    """Return a form that two JSON values share exactly if they are `equal` without a schema.

    For sets and counters of values: `1` and `1.0` have one, `1` and `true` have two.
    """
    if isinstance(value, str):
        return value if value.isascii() else nfc(value)
    if isinstance(value, bool):
        return _TRUTH[value]
    if isinstance(value, Mapping):
        return frozenset({key: normal(item) for key, item in _by_nfc(value).items()}.items())
    return ("[", *map(normal, value)) if _is_array(value) else value


def is_number(value: Any) -> bool:
    """Return True for a JSON number; `true` is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_array(value: Any) -> bool:
    return isinstance(value, list | tuple)


def nfc(text: str) -> str:
    """Return `text` in Unicode NFC."""
    return unicodedata.normalize("NFC", text)


def folded(text: str) -> str:
    """Return `text` in NFC, case-folded, with white space collapsed."""
    return " ".join(nfc(nfc(text).casefold()).split())
