"""Rewrite JSON Schemas of older drafts (`$schema`) as Draft 2020-12."""

import re
from collections.abc import Mapping
from typing import Any

from lhkit.base.schema import with_subschemas
from lhkit.tools.json_schema import (
    Draft4Validator,
    Draft6Validator,
    Draft7Validator,
    Draft201909Validator,
    SchemaError,
)

_LATEST = "https://json-schema.org/draft/2020-12/schema"
_URI = re.compile(r"^https?://json-schema\.org/draft[-/]([0-9-]+)/(?:hyper-)?schema#?$")
_VALIDATORS: Mapping[str, Any] = {
    "04": Draft4Validator,
    "06": Draft6Validator,
    "07": Draft7Validator,
    "2019-09": Draft201909Validator,
}
_KEPT_WITH_REF = frozenset(
    {"$ref", "$schema", "$defs", "definitions", "title", "description", "default", "examples"}
)
_NAME_TABLES = frozenset({"properties", "$defs", "definitions", "patternProperties"})


def upgrade_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema as Draft 2020-12; unchanged unless it names or needs an older draft.

    OpenAPI's `nullable: true` becomes the type null, which JSON Schema has instead.
    A schema that names no draft needs an older one if it has a list of `items` (up to 2019-09) or
    true or false as an exclusive bound (04): neither is valid in a later draft.

    Raises:
        SchemaError: the schema is invalid in its own draft, or that draft is not supported.
    """
    schema = _with_null(schema)
    uri = schema.get("$schema")
    match = _URI.match(uri) if isinstance(uri, str) else None
    draft = match[1] if match else _needed_draft(schema) if uri is None else None
    if draft in {None, "2020-12"}:
        return schema
    if draft not in _VALIDATORS:
        raise SchemaError(f"draft {draft} is not supported: write it in draft 2020-12")
    _VALIDATORS[draft].check_schema(schema)
    rewritten: Mapping[str, Any] = _rewrite(schema, schema, draft)
    return schema if rewritten == schema else {**rewritten, "$schema": _LATEST}


def _with_null(schema: Any) -> Any:
    """Return a schema that accepts null where it is `nullable`; the same object if nowhere."""
    if not isinstance(schema, Mapping):
        return schema
    inner: dict[str, Any] = with_subschemas(schema, _with_null)
    is_changed = any(inner[key] is not value for key, value in schema.items()) and inner != schema
    if schema.get("nullable") is not True:
        return inner if is_changed else schema
    result = {key: value for key, value in inner.items() if key != "nullable"}
    if isinstance(result.get("type"), str | list) and "null" not in result["type"]:
        types = result["type"]
        result["type"] = [*([types] if isinstance(types, str) else types), "null"]
    if "const" in result and "enum" not in result:
        result["enum"] = [result.pop("const")]
    if isinstance(result.get("enum"), list) and None not in result["enum"]:
        result["enum"] = [*result["enum"], None]
    choices = {key: result.pop(key) for key in _CHOICES if key in result}
    if choices.keys() == {"anyOf"} and isinstance(choices["anyOf"], list):
        result["anyOf"] = [*choices["anyOf"], {"type": "null"}]
    elif choices:
        result["anyOf"] = [choices, {"type": "null"}]
    return result


_CHOICES = ("$ref", "allOf", "anyOf", "oneOf", "not")


def _needed_draft(schema: Any) -> str | None:
    """Return the oldest draft that a schema has keywords of; None if it has none."""
    if not isinstance(schema, Mapping):
        return None
    if any(isinstance(schema.get(f"exclusive{end}"), bool) for end in ("Minimum", "Maximum")):
        return "04"
    needed: set[str | None] = {"2019-09"} if isinstance(schema.get("items"), list) else set()
    with_subschemas(schema, lambda inner: needed.add(_needed_draft(inner)))
    return min(filter(None, needed), default=None)  # "04" is below "2019-09"


def _rewrite(schema: Any, root: Mapping[str, Any], draft: str) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    result = with_subschemas(schema, lambda inner: _rewrite(inner, root, draft))
    if "$ref" in schema:
        if draft != "2019-09":  # older drafts ignore the other keywords
            kept = _KEPT_WITH_REF | ({"type"} if schema is root else set())
            result = {key: value for key, value in result.items() if key in kept}
        result["$ref"] = _rewrite_reference(schema["$ref"], root)
    rest = result.pop("additionalItems", None)
    if isinstance(result.get("items"), list):
        result["prefixItems"] = result.pop("items")
        result |= {} if rest is None else {"items": rest}
    for name, needed in result.pop("dependencies", {}).items():
        keyword = "dependentRequired" if isinstance(needed, list) else "dependentSchemas"
        result[keyword] = {**result.get(keyword, {}), name: needed}
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(result.get(exclusive), bool) and result.pop(exclusive) and bound in result:
            result[exclusive] = result.pop(bound)
    return result


def _rewrite_reference(reference: str, root: Mapping[str, Any]) -> str:
    """Return a local reference that points to its target in the rewritten schema."""
    parts: list[str] = []
    target: Any = root
    for part in reference.split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        inner = target.get(key) if isinstance(target, Mapping) else None
        is_tuple = isinstance(target, Mapping) and isinstance(target.get("items"), list)
        keyword = part
        if part == "#":
            inner = root
        elif isinstance(target, list) and key.isdecimal() and int(key) < len(target):
            inner = target[int(key)]
        elif is_tuple and key in {"items", "additionalItems"}:
            keyword = "prefixItems" if key == "items" else "items"
        elif key == "dependencies" and (not parts or parts[-1] not in _NAME_TABLES):
            keyword = "dependentSchemas"
        parts.append(keyword)
        target = inner
    return "/".join(parts)
