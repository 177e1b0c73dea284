"""What a place in a JSON Schema may mean: references, branches, defaults, declared names. Pure.

Validation and matching read schemas with the same eyes, these. A reference is followed inside its
own schema only (`#/$defs/Name`): nothing is ever fetched.
"""

import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain, islice, product
from typing import Any
from urllib.parse import unquote

import regex

from lhkit.errors import UsageError

ABSENT: Any = object()
"""Stands for a value that is not there; equal to nothing but a schema's default."""

_HOLDING_ONE = (
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
_HOLDING_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_HOLDING_TABLES = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")

_COMBINING = frozenset({"$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas"})
_PATTERNED = "patternProperties"
_OPENING = ("additionalProperties", "unevaluatedProperties")
_MAX_BRANCHES = 64  # choices multiply; nobody writes more on purpose


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
        """Return what this place may mean, each as one schema without choices.

        References are followed and `allOf` is folded in; every choice of `anyOf`, `oneOf`,
        `if`/`then`/`else` and `dependentSchemas` is a branch of its own.
        """
        if isinstance(self.schema, dict) and _COMBINING.isdisjoint(self.schema):
            return (self.schema,)
        return tuple(_branches(self.schema, self.root, frozenset())) or ({},)

    def default(self) -> Any:
        """Return what the schema says that leaving this out means; `ABSENT` if it does not say."""
        return next(
            (part["default"] for part in conjuncts(self.schema, self.root) if "default" in part),
            ABSENT,
        )


def _branches(schema: Any, root: Any, way: frozenset[int]) -> Iterator[Mapping[str, Any]]:
    """Yield the branches of a place; `way` are the schemas that led here, so that a loop ends."""
    if not isinstance(schema, Mapping) or id(schema) in way:
        return
    way |= {id(schema)}
    groups = [
        found
        for choices in _alternatives(schema, root)
        if (found := tuple(_first(_branches(one, root, way) for one in choices)))
    ]
    for chosen in islice(product(*groups), _MAX_BRANCHES):
        yield reduce(_joined, chosen, schema)


def _first(branches: Iterable[Iterable[Mapping[str, Any]]]) -> Iterable[Mapping[str, Any]]:
    return islice(chain.from_iterable(branches), _MAX_BRANCHES)


def _alternatives(schema: Mapping[str, Any], root: Any) -> Iterator[Sequence[Any]]:
    """Yield what applies beside `schema` itself: of each group one."""
    if "$ref" in schema:
        yield (resolved(schema["$ref"], root),)
    for part in schema.get("allOf", ()):
        yield (part,)
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            yield schema[key]
    if "if" in schema:
        yield ({"allOf": [schema["if"], schema.get("then", {})]}, schema.get("else", {}))
    for part in schema.get("dependentSchemas", {}).values():
        yield ({}, part)


def _joined(first: Mapping[str, Any], second: Mapping[str, Any]) -> Mapping[str, Any]:
    if not second:
        return first
    mine, theirs = first.get("properties", {}), second.get("properties", {})
    both = {
        name: {"allOf": [mine[name], theirs[name]]}
        for name in mine.keys() & theirs.keys()
        if mine[name] != theirs[name]
    }
    merged = {key: value for key, value in second.items() if key not in _COMBINING}
    merged |= {key: value for key, value in first.items() if key not in _COMBINING}
    if mine or theirs:
        merged["properties"] = {**theirs, **mine, **both}
    if "required" in merged:
        merged["required"] = [*first.get("required", ()), *second.get("required", ())]
    return merged


def resolved(reference: Any, root: Any) -> Any:
    """Follow a local reference (`#/$defs/Name`); anything else is an unknown schema, None."""
    if not isinstance(reference, str) or (reference != "#" and not reference.startswith("#/")):
        return None
    place = root
    for part in reference.split("/")[1:]:
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(place, Mapping):
            place = place.get(key)
        elif isinstance(place, list | tuple) and key.isdecimal() and int(key) < len(place):
            place = place[int(key)]
        else:
            return None
    return place


def conjuncts(schema: Any, root: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the schemas that always apply at a place: its own, what it refers to, its `allOf`."""
    return _reached(schema, root, _always, set())


def in_place(schema: Any, root: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every schema that may apply at a place, whichever of its choices is taken."""
    return _reached(schema, root, applied, set())


def _always(schema: Mapping[str, Any], root: Any) -> Iterator[Any]:
    if "$ref" in schema:
        yield resolved(schema["$ref"], root)
    yield from schema.get("allOf", ())


def applied(schema: Mapping[str, Any], root: Any) -> Iterator[Any]:
    """Yield the schemas that `schema` may apply to the very value that it is applied to."""
    yield from _always(schema, root)
    for key in ("anyOf", "oneOf"):
        yield from schema.get(key, ())
    for key in ("if", "then", "else"):
        yield schema.get(key)
    yield from schema.get("dependentSchemas", {}).values()


def _reached(
    schema: Any,
    root: Any,
    following: Callable[[Mapping[str, Any], Any], Iterator[Any]],
    seen: set[int],
) -> Iterator[Mapping[str, Any]]:
    if not isinstance(schema, Mapping) or id(schema) in seen:
        return
    seen.add(id(schema))
    yield schema
    for each in following(schema, root):
        yield from _reached(each, root, following, seen)


def property_of(branch: Mapping[str, Any], name: str) -> Any:
    """Return the schema of a property, `{}` where there is none; names compare in NFC."""
    declared: Mapping[str, Any] = branch.get("properties", {})
    spelled = spelling(name, declared)
    if spelled in declared:
        return declared[spelled]
    others = branch.get("additionalProperties", {})
    return others if isinstance(others, Mapping) else {}


def default_of(branch: Mapping[str, Any], name: str, root: Any) -> Any:
    """Return the default of an optional property, `ABSENT` where there is none.

    A required property has no default in our sense: leaving it out is refused, not filled in.

    Args:
        branch: the object's schema, without choices.
        name: the property; names compare in NFC.
        root: what the property's references point into.
    """
    required = branch.get("required", ())
    if spelling(name, required) in required:
        return ABSENT
    declared: Mapping[str, Any] = branch.get("properties", {})
    return SchemaNode(declared.get(spelling(name, declared)), root).default()


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownKeys:
    """The top-level keys that a schema knows, wherever it names them."""

    names: Collection[str]
    patterns: tuple[str, ...]
    is_open: bool

    @classmethod
    def of(cls, schema: Mapping[str, Any]) -> "KnownKeys":
        """Return what a whole schema declares at its top."""
        parts = list(in_place(schema, schema))
        return cls(
            names=dict.fromkeys(name for part in parts for name in part.get("properties", ())),
            patterns=tuple(p for part in parts for p in part.get(_PATTERNED, ())),
            is_open=any(part.get(key, False) is not False for part in parts for key in _OPENING),
        )

    def has(self, key: str) -> bool:
        """Return True if the schema knows this key, or lets any in."""
        return (
            self.is_open or key in self.names or any(matches_pattern(p, key) for p in self.patterns)
        )


_SEARCH_CPU_S = 2.0
"""Longest search: a schema may be somebody else's, and `re` cannot be interrupted."""


def matches_pattern(pattern: str, text: str) -> bool:
    """Return True if a schema's regular expression is found in a text, within a time limit.

    One that cannot be compiled is not asserted.

    Raises:
        UsageError: the search takes too long.
    """
    try:
        return regex.search(pattern, text, timeout=_SEARCH_CPU_S) is not None
    except regex.error:
        return True
    except TimeoutError as error:
        raise UsageError(
            f"pattern {pattern[:200]!r} takes longer than {_SEARCH_CPU_S:g} s in a text of "
            f"{len(text)} characters: write it without repeats inside of repeats"
        ) from error


def values_of(part: Mapping[str, Any], name: str) -> Iterator[Any]:
    """Yield the schemas that one part of an object's schema has for a property."""
    found = [part["properties"][name]] if name in part.get("properties", {}) else []
    found += [each for p, each in part.get(_PATTERNED, {}).items() if matches_pattern(p, name)]
    yield from found or (part[key] for key in _OPENING if key in part)


def items_of(part: Mapping[str, Any], index: int) -> Iterator[Any]:
    """Yield the schemas that one part of an array's schema has for an item."""
    first = part.get("prefixItems", ())
    if index < len(first):
        yield first[index]
    else:
        yield from (part[key] for key in ("items", "unevaluatedItems") if key in part)


def spelling(name: Any, declared: Collection[Any]) -> Any:
    """Return `name` as `declared` spells it: itself, or one that is the same in NFC.

    People see one name where a model, or the author's file, wrote its letters apart.
    """
    if name in declared or not isinstance(name, str) or name.isascii():
        return name
    same = (each for each in declared if isinstance(each, str) and nfc(each) == nfc(name))
    return next(same, name)


def item_of(branch: Mapping[str, Any], index: int) -> Any:
    """Return the schema of an array's item at `index`."""
    first: Sequence[Any] = branch.get("prefixItems", ())
    return first[index] if index < len(first) else branch.get("items", {})


def with_defaults(schema: Mapping[str, Any], defaults: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an object schema in which these properties have these defaults."""
    properties = dict(schema.get("properties", {}))
    for name, value in defaults.items():
        own = properties.get(name)
        properties[name] = {**(own if isinstance(own, Mapping) else {}), "default": value}
    return {**schema, "properties": properties}


def subschemas(schema: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the schemas directly inside of `schema`; not the data in `default`, `enum`, `const`."""
    found: list[Any] = []
    with_subschemas(schema, found.append)
    yield from found


def with_subschemas(schema: Mapping[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """Return `schema` with each schema directly inside of it changed; data stay as they are."""
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _HOLDING_ONE:
            made[key] = change(value)
        elif key in _HOLDING_LISTS and isinstance(value, list | tuple):
            made[key] = [change(each) for each in value]
        elif key in _HOLDING_TABLES and isinstance(value, Mapping):
            made[key] = {name: change(each) for name, each in value.items()}
        else:
            made[key] = value
    return made


def nfc(text: str) -> str:
    """Return `text` in Unicode NFC."""
    return unicodedata.normalize("NFC", text)
