"""JSON Schemas that name an older draft (`$schema`), rewritten as Draft 2020-12."""

import re
from collections.abc import Mapping
from typing import Any

from lhkit.tools.json_schema import (
    Draft4Validator,
    Draft6Validator,
    Draft7Validator,
    Draft201909Validator,
    SchemaError,
)
from lhkit.tools.schema import with_subschemas

_URI = re.compile(r"^https?://json-schema\.org/draft[-/]([0-9-]+)/(?:hyper-)?schema#?$")
_VALIDATORS: Mapping[str, Any] = {
    "04": Draft4Validator,
    "06": Draft6Validator,
    "07": Draft7Validator,
    "2019-09": Draft201909Validator,
}
_KEPT_BESIDE_REF = frozenset(
    {"$ref", "$schema", "$defs", "definitions", "title", "description", "default", "examples"}
)


def upgraded(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema as one of Draft 2020-12: itself, unless it names an older draft.

    Raises:
        SchemaError: it is not valid by its own draft, or that draft is not supported.
    """
    uri = schema.get("$schema")
    found = _URI.match(uri) if isinstance(uri, str) else None
    if found is None or found[1] == "2020-12":
        return schema
    if found[1] not in _VALIDATORS:
        raise SchemaError(f"draft {found[1]} is not supported: write it in draft 2020-12")
    _VALIDATORS[found[1]].check_schema(schema)
    made: Mapping[str, Any] = _rewritten(schema, schema, found[1])
    return schema if made == schema else {**made, "$schema": _LATEST}


_LATEST = "https://json-schema.org/draft/2020-12/schema"


def _rewritten(schema: Any, root: Mapping[str, Any], draft: str) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    made = with_subschemas(schema, lambda inner: _rewritten(inner, root, draft))
    if "$ref" in schema:
        if draft != "2019-09":  # there, other keywords beside it are not read
            kept = _KEPT_BESIDE_REF | ({"type"} if schema is root else set())
            made = {key: value for key, value in made.items() if key in kept}
        made["$ref"] = _moved(schema["$ref"], root)
    rest = made.pop("additionalItems", None)
    if isinstance(made.get("items"), list):
        made["prefixItems"] = made.pop("items")
        made |= {} if rest is None else {"items": rest}
    for name, needed in made.pop("dependencies", {}).items():
        keyword = "dependentRequired" if isinstance(needed, list) else "dependentSchemas"
        made[keyword] = {**made.get(keyword, {}), name: needed}
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(made.get(exclusive), bool) and made.pop(exclusive) and bound in made:
            made[exclusive] = made.pop(bound)
    return made


def _moved(reference: str, root: Mapping[str, Any]) -> str:
    """Return a local reference to where its target stands after the rewriting."""
    parts: list[str] = []
    place: Any = root
    for part in reference.split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        inner = place.get(key) if isinstance(place, Mapping) else None
        is_tuple = isinstance(place, Mapping) and isinstance(place.get("items"), list)
        if part == "#":
            inner = root
        elif isinstance(place, list) and key.isdecimal() and int(key) < len(place):
            inner = place[int(key)]
        elif is_tuple and key in {"items", "additionalItems"}:
            part = "prefixItems" if key == "items" else "items"  # noqa: PLW2901 - the new name
        elif key == "dependencies" and not _is_name(parts):
            part = "dependentSchemas"  # noqa: PLW2901 - the new name
        parts.append(part)
        place = inner
    return "/".join(parts)


def _is_name(parts: list[str]) -> bool:
    """Return True if the next part of a reference is the name of a property or a definition."""
    return bool(parts) and parts[-1] in {"properties", "$defs", "definitions", "patternProperties"}
