"""Navigate JSON Schemas: references, branches, defaults, declared names.

Shared by validation and by the matching of calls. Only references within the same schema
(`#/$defs/Name`) are followed; nothing is fetched.
"""

import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import chain, islice, product
from typing import Any
from urllib.parse import unquote

from lhkit.base.json_values import plain_json
from lhkit.base.patterns import matches

ABSENT: Any = object()
"""Returned where a schema has no default, since `None` may be one."""

NOTED_FORMAT = "x-format"
"""The `format` of a server's schema: a note for the model, which only the server checks."""

_SCHEMA_KEYWORDS = (
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_SCHEMA_LIST_KEYWORDS = ("allOf", "anyOf", "oneOf", "prefixItems")
_SCHEMA_TABLE_KEYWORDS = (
    "$defs",
    "definitions",
    "dependencies",
    "dependentSchemas",
    "patternProperties",
    "properties",
)

_COMBINING = frozenset({"$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas"})
_CHOICES = _COMBINING - {"$ref", "allOf"}
_OPEN_KEYWORDS = ("additionalProperties", "unevaluatedProperties")
_MAX_BRANCHES = 64  # choices multiply; handwritten schemas have fewer


@dataclass(frozen=True, slots=True)
class SchemaNode:
    """A subschema, and the `root` schema that its references are resolved in."""

    schema: Any
    root: Any

    @classmethod
    def of(cls, schema: Any) -> "SchemaNode":
        """Return the node of a whole schema."""
        return cls(schema, schema)

    def at(self, schema: Any) -> "SchemaNode":
        """Return the node of another subschema of the same root."""
        return SchemaNode(schema, self.root)

    def branches(self, most: int = _MAX_BRANCHES) -> tuple[Mapping[str, Any], ...]:
        """Return the alternatives of this subschema, each without references and choices.

        References are resolved and `allOf` is merged; each choice of `anyOf`, `oneOf`,
        `if`/`then`/`else` and `dependentSchemas` is a separate branch.

        Args:
            most: the limit of branches, since choices multiply; any further ones are left out.
        """
        if isinstance(self.schema, dict) and _COMBINING.isdisjoint(self.schema):
            return (self.schema,)
        return tuple(_branches(self.schema, self.root, frozenset(), most)) or ({},)

    def default(self) -> Any:
        """Return the default value; `ABSENT` if there is none."""
        return next(
            (part["default"] for part in conjuncts(self.schema, self.root) if "default" in part),
            ABSENT,
        )


def _branches(
    schema: Any, root: Any, parents: frozenset[int], most: int
) -> Iterator[Mapping[str, Any]]:
    """Yield the branches of a subschema; `parents` ends recursion in a schema that is cyclic."""
    if not isinstance(schema, Mapping) or id(schema) in parents:
        return
    parents |= {id(schema)}
    groups: list[tuple[Mapping[str, Any], ...]] = []
    for choices in _choice_groups(schema, root):
        branches = chain.from_iterable(_branches(choice, root, parents, most) for choice in choices)
        if group := tuple(islice(branches, most)):
            groups.append(group)
    for combination in islice(product(*groups), most):
        yield reduce(_merge, combination, schema)


def _choice_groups(schema: Mapping[str, Any], root: Any) -> Iterator[Sequence[Any]]:
    """Yield groups of subschemas; one of each group applies in addition to `schema`."""
    if "$ref" in schema:
        yield (resolve(schema["$ref"], root),)
    for part in schema.get("allOf", ()):
        yield (part,)
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            yield schema[key]
    if "if" in schema:
        yield ({"allOf": [schema["if"], schema.get("then", {})]}, schema.get("else", {}))
    for part in schema.get("dependentSchemas", {}).values():
        yield ({}, part)


def _merge(first: Mapping[str, Any], second: Mapping[str, Any]) -> Mapping[str, Any]:
    if not second:
        return first
    properties, more = first.get("properties", {}), second.get("properties", {})
    both = {
        name: {"allOf": [properties[name], more[name]]}
        for name in properties.keys() & more.keys()
        if properties[name] != more[name]
    }
    merged = {key: value for key, value in second.items() if key not in _COMBINING}
    merged |= {key: value for key, value in first.items() if key not in _COMBINING}
    if properties or more:
        merged["properties"] = {**more, **properties, **both}
    if "required" in merged:
        merged["required"] = [*first.get("required", ()), *second.get("required", ())]
    if "type" in first and "type" in second and first["type"] != second["type"]:
        merged["type"] = _common_types(first["type"], second["type"])
    if "enum" in first and "enum" in second:
        merged["enum"] = [value for value in first["enum"] if _is_among(value, second["enum"])]
    return merged


def _common_types(first: Any, second: Any) -> list[str]:
    """Return the types that both allow, which may be none; an integer is a number, too."""
    types, others = ([one] if isinstance(one, str) else list(one) for one in (first, second))
    common = [name for name in types if name in others]
    for narrow, wide in ((types, others), (others, types)):
        if "integer" in narrow and "number" in wide and "integer" not in common:
            common.append("integer")
    return common


def _is_among(value: Any, others: Sequence[Any]) -> bool:
    """Return True if a list has the JSON value, in which true is not 1."""
    return any(value == one and isinstance(value, bool) is isinstance(one, bool) for one in others)


def resolve(reference: Any, root: Any) -> Any:
    """Return the target of a local reference (`#/$defs/Name`); None if there is none."""
    if not isinstance(reference, str) or (reference != "#" and not reference.startswith("#/")):
        return None
    target = root
    for part in reference.split("/")[1:]:
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(target, Mapping):
            target = target.get(key)
        elif isinstance(target, list | tuple) and key.isdecimal() and int(key) < len(target):
            target = target[int(key)]
        else:
            return None
    return target


def conjuncts(schema: Any, root: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the subschemas that always apply: itself, its `$ref` and its `allOf`, recursively."""
    return _walk(schema, root, _always_applied, set())


def in_place(schema: Any, root: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every subschema that may apply to the same value, choices included, recursively."""
    return _walk(schema, root, applied, set())


def _always_applied(schema: Mapping[str, Any], root: Any) -> Iterator[Any]:
    if "$ref" in schema:
        yield resolve(schema["$ref"], root)
    yield from schema.get("allOf", ())


def applied(schema: Mapping[str, Any], root: Any) -> Iterator[Any]:
    """Yield the direct subschemas that may apply to the same value as `schema`."""
    yield from _always_applied(schema, root)
    for key in ("anyOf", "oneOf"):
        yield from schema.get(key, ())
    for key in ("if", "then", "else"):
        yield schema.get(key)
    yield from schema.get("dependentSchemas", {}).values()


def _walk(
    schema: Any,
    root: Any,
    children: Callable[[Mapping[str, Any], Any], Iterator[Any]],
    seen: set[int],
) -> Iterator[Mapping[str, Any]]:
    if not isinstance(schema, Mapping) or id(schema) in seen:
        return
    seen.add(id(schema))
    yield schema
    for child in children(schema, root):
        yield from _walk(child, root, children, seen)


def property_schema(branch: Mapping[str, Any], name: str) -> Any:
    """Return the schema of a property, `{}` where there is none; names compare in NFC."""
    declared: Mapping[str, Any] = branch.get("properties", {})
    spelled = spelling(name, declared)
    if spelled in declared:
        return declared[spelled]
    others = branch.get("additionalProperties", {})
    return others if isinstance(others, Mapping) else {}


def property_default(branch: Mapping[str, Any], name: str, root: Any) -> Any:
    """Return the default of an optional property, `ABSENT` where there is none.

    The default of a required property is ignored: a call without that property is refused.

    Args:
        branch: the object's schema, without choices.
        name: the property; names compare in NFC.
        root: the schema that references are resolved in.
    """
    required = branch.get("required", ())
    if spelling(name, required) in required:
        return ABSENT
    declared: Mapping[str, Any] = branch.get("properties", {})
    return SchemaNode(declared.get(spelling(name, declared)), root).default()


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownKeys:
    """The top-level keys that an object schema declares, in any of its subschemas."""

    names: Collection[str]
    patterns: tuple[str, ...]
    is_open: bool

    @classmethod
    def of(cls, schema: Mapping[str, Any]) -> "KnownKeys":
        """Return the keys of a whole schema."""
        parts = list(in_place(schema, schema))
        return cls(
            names=dict.fromkeys(name for part in parts for name in part.get("properties", ())),
            patterns=tuple(p for part in parts for p in part.get("patternProperties", ())),
            is_open=any(
                part.get(key, False) is not False for part in parts for key in _OPEN_KEYWORDS
            ),
        )

    def has(self, key: str) -> bool:
        """Return True if the schema declares this key or allows any."""
        return self.is_open or key in self.names or any(matches(p, key) for p in self.patterns)


def property_schemas(part: Mapping[str, Any], name: str) -> Iterator[Any]:
    """Yield the schemas that a part of an object's schema (of `in_place`) has for a property."""
    schemas = [part["properties"][name]] if name in part.get("properties", {}) else []
    patterns = part.get("patternProperties", {})
    schemas += [schema for pattern, schema in patterns.items() if matches(pattern, name)]
    yield from schemas or (part[key] for key in _OPEN_KEYWORDS if key in part)


def item_schemas(part: Mapping[str, Any], index: int) -> Iterator[Any]:
    """Yield the schemas that a part of an array's schema (of `in_place`) has for an item."""
    first = part.get("prefixItems", ())
    if index < len(first):
        yield first[index]
    else:
        yield from (part[key] for key in ("items", "unevaluatedItems") if key in part)


def spelling(name: Any, declared: Collection[Any]) -> Any:
    """Return `name` as `declared` spells it: unchanged, or the name that is equal in NFC.

    A model or an author's file may write letters decomposed (NFD), which look the same.
    """
    if name in declared or not isinstance(name, str) or name.isascii():
        return name
    return next((d for d in declared if isinstance(d, str) and nfc(d) == nfc(name)), name)


def item_schema(branch: Mapping[str, Any], index: int) -> Any:
    """Return the schema of an array's item at `index`, `{}` where there is none."""
    first: Sequence[Any] = branch.get("prefixItems", ())
    return first[index] if index < len(first) else branch.get("items", {})


def with_defaults(schema: Mapping[str, Any], defaults: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a copy of an object schema with these defaults, by property."""
    properties = dict(schema.get("properties", {}))
    for name, value in defaults.items():
        declared = properties.get(name)
        base = declared if isinstance(declared, Mapping) else {}
        properties[name] = {**base, "default": value}
    return {**schema, "properties": properties}


def fill_defaults(
    value: Any, node: SchemaNode, fits: Callable[[Any, Any], bool] | None = None
) -> Any:
    """Return a plain value with the defaults of its schema, where that has one branch only.

    Args:
        value: the value.
        node: its schema.
        fits: returns whether a branch accepts a value. With it, of several branches the only one
            that does is taken, such as the variant that a `kind` names; if there are more,
            the schema without its choices. Conditions (`if`, `dependentSchemas`) are decided by
            the value with its unconditional defaults.
    """
    if fits is None or not isinstance(value, dict) or not _has_conditions(node):
        return _filled(value, node, fits)
    value = _filled(value, node.at(_settled(node.schema, node.root, lambda *_: None)), fits)
    for _ in range(_MAX_ROUNDS):  # a default may fulfil the next condition
        decide = partial(_decided, value, fits)
        filled = _filled(value, node.at(_settled(node.schema, node.root, decide)), fits)
        if filled == value:
            break
        value = filled
    return value


_MAX_ROUNDS = 8


def _decided(
    value: Mapping[str, Any], fits: Callable[[Any, Any], bool], key: str, condition: Any
) -> bool:
    """Return whether the condition of an `if`, or the name of a `dependentSchemas`, holds."""
    return fits(condition, value) if key == "if" else condition in value


def _has_conditions(node: SchemaNode) -> bool:
    parts = in_place(node.schema, node.root)
    return any(key in part for part in parts for key in ("if", "dependentSchemas"))


def _settled(
    schema: Any,
    root: Any,
    decide: Callable[[str, Any], bool | None],
    parents: frozenset[int] = frozenset(),
) -> Any:
    """Return a schema without conditions: with what applies if they are decided so.

    Args:
        schema: the schema.
        root: the schema that references are resolved in.
        decide: takes (`if`, its schema) or (`dependentSchemas`, a name); returns whether that
            holds, or None to leave both sides out.
        parents: the schemas around this one, which ends recursion.
    """
    if not isinstance(schema, Mapping):
        return schema
    if id(schema) in parents:
        return {}
    settle = partial(_settled, root=root, decide=decide, parents=parents | {id(schema)})
    inner = [settle(part) for part in _always_applied(schema, root)]
    if "if" in schema and (holds := decide("if", schema["if"])) is not None:
        inner.append(settle(schema.get("then" if holds else "else", {})))
    for name, part in schema.get("dependentSchemas", {}).items():
        if decide("dependentSchemas", name):
            inner.append(settle(part))
    rest = {key: part for key, part in schema.items() if key not in _CONDITIONAL}
    rest |= {key: [*map(settle, schema[key])] for key in ("anyOf", "oneOf") if key in schema}
    return {**rest, "allOf": inner} if inner else rest


_CONDITIONAL = frozenset({"$ref", "allOf", "if", "then", "else", "dependentSchemas"})


def _filled(value: Any, node: SchemaNode, fits: Callable[[Any, Any], bool] | None) -> Any:
    branches = [branch for branch in node.branches() if branch.get("type") != "null"]
    if len(branches) > 1 and fits is not None and isinstance(value, dict | list):
        branches = [branch for branch in branches if fits(branch, value)]
    if len(branches) > 1 and fits is not None and isinstance(node.schema, Mapping):
        always = {key: part for key, part in node.schema.items() if key not in _CHOICES}
        return value if always == node.schema else _filled(value, node.at(always), fits)
    if len(branches) != 1:
        return value
    branch = branches[0]
    if isinstance(value, list):
        return [
            fill_defaults(item, node.at(item_schema(branch, i)), fits)
            for i, item in enumerate(value)
        ]
    if not isinstance(value, dict):
        return value
    filled = {
        name: fill_defaults(item, node.at(_whole_property(branch, name)), fits)
        for name, item in value.items()
    }
    for name in branch.get("properties", {}):
        default = property_default(branch, name, node.root)
        if name not in filled and default is not ABSENT:
            filled[name] = plain_json(default)
    return filled


def _whole_property(branch: Mapping[str, Any], name: str) -> Any:
    """Return the schema of a property with those of the patterns that its name matches."""
    patterns = branch.get("patternProperties", {})
    matched = [schema for pattern, schema in patterns.items() if matches(pattern, name)]
    if not matched:
        return property_schema(branch, name)
    declared = branch.get("properties", {})
    spelled = spelling(name, declared)
    return {"allOf": [*([declared[spelled]] if spelled in declared else []), *matched]}


def subschemas(schema: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the direct subschemas of `schema`; not the data in `default`, `enum`, `const`."""
    children: list[Any] = []
    with_subschemas(schema, children.append)
    yield from children


def with_subschemas(schema: Mapping[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """Return `schema` with `change` applied to each direct subschema.

    Data (`default`, `enum`, `const`, …) stay as they are. Keywords of older drafts count, too: a
    list of `items`, `dependencies`.
    """
    changed: dict[str, Any] = {}
    for key, value in schema.items():
        if key in (*_SCHEMA_LIST_KEYWORDS, "items") and isinstance(value, list | tuple):
            changed[key] = [change(inner) for inner in value]
        elif key in _SCHEMA_KEYWORDS:
            changed[key] = change(value)
        elif key in _SCHEMA_TABLE_KEYWORDS and isinstance(value, Mapping):
            changed[key] = {
                name: inner if isinstance(inner, list) else change(inner)
                for name, inner in value.items()
            }
        else:
            changed[key] = value
    return changed


def nfc(text: str) -> str:
    """Return `text` in Unicode NFC."""
    return unicodedata.normalize("NFC", text)
