"""Drop the nulls with which a table fills the arguments of other calls."""

from collections.abc import Mapping, Sequence
from typing import Any

from lhkit.base.schema import in_place, item_schemas, property_schemas
from lhkit.tools.validation import value_issue


def drop_padding(
    args: Mapping[str, Any], schema: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return arguments without padding, and the dropped names, dotted for an inner one.

    A null is dropped where the schema does not know the name, does not require it, or does not
    allow null. An object of nothing but padding is padding itself if it is not required.
    """
    dropped: list[str] = []
    return _without(args, [schema], schema, "", dropped), tuple(dropped)


def _without(
    value: Any, schemas: Sequence[Any], root: Mapping[str, Any], path: str, dropped: list[str]
) -> Any:
    parts = [part for schema in schemas for part in in_place(schema, root)]
    if isinstance(value, list):
        items = []
        for number, item in enumerate(value):
            inner = [schema for part in parts for schema in item_schemas(part, number)]
            items.append(_without(item, inner, root, path, dropped))
        return items
    if not isinstance(value, Mapping):
        return value
    required = {name for part in parts for name in part.get("required", ())}
    declared = {name for part in parts for name in part.get("properties", ())}
    is_described = not path or any("properties" in part for part in parts)  # else it is data
    kept: dict[str, Any] = {}
    for name, item in value.items():
        at = f"{path}{name}"
        inner = [schema for part in parts for schema in property_schemas(part, name)]
        is_entry = name not in declared and any(isinstance(s, Mapping) and s for s in inner)
        may_be_null = (name in required or is_entry) and _takes_null(inner, root)
        if item is None and is_described and not may_be_null:
            dropped.append(at)
            continue
        kept[name] = _without(item, inner, root, f"{at}.", dropped)
        if isinstance(item, Mapping) and item and not kept[name] and name not in required:
            del kept[name]
            dropped.append(at)
    return kept


def _takes_null(schemas: Sequence[Any], root: Mapping[str, Any]) -> bool:
    wrapper = {**root, "properties": {"value": {"allOf": list(schemas)}}}
    return bool(schemas) and value_issue(wrapper, "value", None) is None
