"""Equality of two JSON values as a tool's JSON Schema means it.

Numbers compare by value (`1 == 1.0`), but `true` is never `1` and `"1"` is never `1`. Text
compares in Unicode NFC, arrays in order, objects key by key; a key that one side leaves out
equals the schema's `default`. Not a validator: both values may be invalid and still be equal.
"""

from collections.abc import Hashable, Mapping
from typing import Any

from lhkit.tools.schema import SchemaNode, item_schema, nfc, property_default, property_schema


def equal(expected: Any, actual: Any, node: SchemaNode) -> bool:
    """Return True if both values mean the same at this place of a schema."""
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        return any(_objects_equal(expected, actual, branch, node) for branch in node.branches())
    if _is_array(expected) and _is_array(actual):
        return len(expected) == len(actual) and any(
            all(
                equal(mine, theirs, node.at(item_schema(branch, index)))
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
            mine.get(name, property_default(branch, name, node.root)),
            theirs.get(name, property_default(branch, name, node.root)),
            node.at(property_schema(branch, name)),
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
