"""The fields of a tool's arguments: what a JSON Schema means, as a field to type into.

References, `allOf` and single alternatives are resolved; a closed set of values is a choice, null
is an attribute of the field, and lists and objects are JSON text. A part of a schema that is not
valid makes a field for any JSON.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from lhkit.base.json_values import JSON, json_or_repr
from lhkit.base.locales import Catalog
from lhkit.base.patterns import matches
from lhkit.base.schema import ABSENT, SchemaNode, conjuncts, in_place
from lhkit.confirm.fields import FORMATS, Choice, FieldKind, FormField, Shape, is_same

MOST_CHOICES = 200
_MOST_CHARS = 1_000
"""Longer titles and descriptions are cut."""

_MOST_SHOWN = 60
"""Longer defaults are cut."""

_DEPTH = 3
"""Lists and objects nested deeper are any JSON."""

_MOST_PARTS = 2_000
"""The parts of a schema beyond this number are any JSON."""

_MOST = 10**300
"""Larger limits are ignored."""

_DAY_PATTERN: Final = r"^\d{4}-\d{2}-\d{2}$"

_TYPES: Final = ("null", "boolean", "integer", "number", "string", "array", "object")

_IMPLIED: Final[Mapping[str, frozenset[str]]] = {
    "string": frozenset({"minLength", "maxLength", "pattern", "format"}),
    "number": frozenset(
        {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
    ),
    "array": frozenset({"items", "prefixItems", "minItems", "maxItems"}),
    "object": frozenset({"properties", "required", "additionalProperties"}),
}
"""The type that is meant by the keywords of a schema without `type`."""


def schema_fields(
    schema: Mapping[str, Any], catalog: Catalog | None = None, names: Iterable[str] = ()
) -> dict[str, FormField]:
    """Return a field for each property of an object schema, by name.

    Args:
        schema: the JSON Schema of the arguments.
        catalog: texts for yes and no; without it they are `true` and `false`.
        names: further names, which the schema may allow as additional properties.
    """
    node = SchemaNode.of(schema)
    reading = _Reading(catalog)
    return {
        part.name: replace(part, is_argument=True)
        for part in _members(node, reading, depth=0, names=names)
    }


@dataclass
class _Reading:
    """The texts, and how many more parts of a schema are read."""

    catalog: Catalog | None
    left: int = _MOST_PARTS


def schema_text(value: Any) -> str:
    """Return a title or description; empty if it is not a text."""
    return value[:_MOST_CHARS] if isinstance(value, str) else ""


def bound(value: Any, *, is_length: bool) -> float | None:
    """Return a limit; None for an invalid one, which is left to the server."""
    if is_length:
        return value if type(value) is int and value >= 0 else None
    return value if type(value) in (int, float) and abs(value) <= _MOST else None


def _members(
    node: SchemaNode, reading: _Reading, *, depth: int, names: Iterable[str] = ()
) -> Iterator[FormField]:
    """Yield a field for each property that any branch of an object's schema declares."""
    branches = _safe(node.branches, ({},))
    tables = [_mapping(branch.get("properties")) for branch in branches]
    for name in dict.fromkeys([*(str(name) for table in tables for name in table), *names]):
        parts: list[Any] = []
        for branch, table in zip(branches, tables, strict=True):
            part = table.get(name, branch.get("additionalProperties", {}))
            if part not in parts:
                parts.append(part)
        is_required = all(name in _listed(branch.get("required")) for branch in branches)
        whole = parts[0] if len(parts) == 1 else {"anyOf": parts}
        yield _field(name, node.at(whole), is_required=is_required, reading=reading, depth=depth)


def _field(
    name: str, node: SchemaNode, *, is_required: bool, reading: _Reading, depth: int
) -> FormField:
    """Return the field for a part of a schema; for any JSON if it is too deep or invalid."""
    anything = FormField(name=name, kind=FieldKind.JSON, is_required=is_required)
    reading.left -= 1
    if depth > _DEPTH or reading.left < 0:
        return anything
    found: FormField = _safe(lambda: _Meaning.of(node, reading, depth).field(anything), anything)
    return found if is_required else replace(found, default=_safe(lambda: _default(node), ""))


def _safe(read: Callable[[], Any], otherwise: Any) -> Any:
    """Return the fields of a schema, which may be invalid or too deeply nested."""
    try:
        return read()
    except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return otherwise


def _default(node: SchemaNode) -> str:
    """Return the default as it is shown; empty if there is none."""
    value = node.default()
    if value is ABSENT:
        return ""
    text = value if isinstance(value, str) and value else json_or_repr(value)
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "…"


@dataclass(kw_only=True)
class _Meaning:
    """What a schema accepts: single values, null, and fields for the rest."""

    title: str = ""
    about: str = ""
    constants: list[tuple[JSON, str]] = field(default_factory=list)
    """Each value and its title."""

    is_nullable: bool = False
    others: list[FormField] = field(default_factory=list)
    reading: _Reading

    @classmethod
    def of(cls, node: SchemaNode, reading: _Reading, depth: int) -> "_Meaning":
        meaning = cls(reading=reading)
        branches = node.branches(MOST_CHOICES + 2)
        if len(branches) > MOST_CHOICES + 1:
            raise ValueError("too many alternatives to show")
        always = list(conjuncts(node.schema, node.root))
        reader = _BranchReader(node, meaning, depth)
        for branch in branches:
            reader.read(branch)
        meaning.constants = _titled(meaning.constants, node, always)
        meaning.title = _first(always, "title") or _only(reader.texts, "title")
        meaning.about = _first(always, "description") or _only(reader.texts, "description")
        return meaning

    def field(self, anything: FormField) -> FormField:
        """Return the field; `anything` has its name."""
        options = self._options(anything.name)
        made = anything
        if len(options) == 1:
            made = replace(options[0], is_required=anything.is_required)
        elif options:
            made = replace(anything, kind=_kind_of(options), options=tuple(options))
        elif self.is_nullable:  # and nothing but null
            made = replace(anything, kind=FieldKind.CHOICE)
        return replace(made, title=self.title, about=self.about, is_nullable=self.is_nullable)

    def _options(self, name: str) -> list[FormField]:
        others = [replace(other, name=name) for other in self.others]
        if any(_is_plain(other, FieldKind.NUMBER) for other in others):
            others = [other for other in others if other.kind is not FieldKind.INTEGER]
        closed = self._closed(name, is_alone=not others)
        return [*others, *([closed] if closed else [])]

    def _closed(self, name: str, *, is_alone: bool) -> FormField | None:
        """Return the field of the single values, if there are any."""
        values = [value for value, _ in self.constants]
        if not values:
            return None
        if len(values) > MOST_CHOICES:
            raise ValueError("too many choices to show")
        if sorted(map(json_or_repr, values)) == ["false", "true"]:
            texts = {text: self._yes_no(text) for text in ("true", "false")}
            choices = tuple(Choice(value=value, title=title) for value, title in texts.items())
            return FormField(name=name, kind=FieldKind.YES_NO, choices=choices)
        is_of_texts = is_alone and all(isinstance(value, str) for value in values)
        choices = tuple(
            _choice(value, title, is_of_texts=is_of_texts) for value, title in self.constants
        )
        return FormField(name=name, kind=FieldKind.CHOICE, choices=choices)

    def _yes_no(self, text: str) -> str:
        catalog = self.reading.catalog
        return catalog.text(f"form.{text}") if catalog else ""


def _choice(value: JSON, title: str, *, is_of_texts: bool) -> Choice:
    """Return the choice of a value; its text is in quotes if it looks like another value."""
    if not isinstance(value, str):
        return Choice(value=json_or_repr(value), title=title, data=value)
    if is_of_texts or not _is_json(value):
        return Choice(value=value, title=title)
    return Choice(value=json_or_repr(value), title=title, data=value)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _is_plain(part: FormField, kind: FieldKind) -> bool:
    return part == FormField(name=part.name, kind=kind)


def _kind_of(options: Sequence[FormField]) -> FieldKind:
    """Return the kind that a union is shown as."""
    kinds = {option.kind for option in options}
    if FieldKind.JSON in kinds:
        return FieldKind.JSON
    texts = [option for option in options if option.is_text]
    if all(_is_decimal(text) for text in texts) and kinds & {FieldKind.NUMBER, FieldKind.INTEGER}:
        is_whole = FieldKind.NUMBER not in kinds and not texts
        return FieldKind.INTEGER if is_whole else FieldKind.NUMBER
    return FieldKind.TEXT


def _is_decimal(part: FormField) -> bool:
    """Return whether a text is a number in its pattern, as of pydantic's Decimal."""
    pattern = part.pattern
    return bool(pattern) and matches(pattern, "1") and not matches(pattern, "abc")


@dataclass
class _BranchReader:
    """Reads the branches of a schema into its meaning."""

    node: SchemaNode
    meaning: _Meaning
    depth: int
    texts: list[Mapping[str, Any]] = field(default_factory=list)
    """The branches that accept something other than null."""

    def read(self, branch: Mapping[str, Any]) -> None:
        types = _types(branch)
        constants = _constants(branch)
        if constants is not None:
            types = types if "type" in branch else ("any",)
            kept = [(value, title) for value, title in constants if _is_of(value, types)]
            for value, title in kept:
                self._add_constant(value, title)
            if any(value is not None for value, _ in kept):
                self.texts.append(branch)
            return
        if branch.get("nullable") is True:
            self.meaning.is_nullable = True
        for name in types:
            self._add_type(name, branch)
        if any(name != "null" for name in types):
            self.texts.append(branch)

    def _add_constant(self, value: JSON, title: str) -> None:
        if value is None:
            self.meaning.is_nullable = True
        elif not any(is_same(value, known) for known, _ in self.meaning.constants):
            self.meaning.constants.append((value, title))

    def _add_type(self, name: str, branch: Mapping[str, Any]) -> None:
        match name:
            case "null":
                self.meaning.is_nullable = True
            case "boolean":
                self._add_constant(True, "")
                self._add_constant(False, "")
            case "string":
                self._add(_text_field(branch))
            case "integer" | "number":
                self._add(_number_field(branch, FieldKind(name)))
            case "array":
                self._add(self._list_field(branch))
            case "object":
                self._add(self._object_field(branch))
            case _:
                self._add(_json_field(Shape.ANY))

    def _add(self, made: FormField) -> None:
        if made not in self.meaning.others:
            self.meaning.others.append(made)

    def _list_field(self, branch: Mapping[str, Any]) -> FormField:
        first, items = _listed(branch.get("prefixItems")), branch.get("items", {})
        listed = first or ([items] if isinstance(items, Mapping) and items else [])
        parts = tuple(self._part(item) for item in listed)
        made = _json_field(Shape.TUPLE if first else Shape.LIST, parts)
        return replace(
            made,
            low=bound(branch.get("minItems"), is_length=True),
            high=bound(branch.get("maxItems"), is_length=True),
        )

    def _object_field(self, branch: Mapping[str, Any]) -> FormField:
        others = branch.get("additionalProperties")
        if isinstance(others, Mapping) and others and not branch.get("properties"):
            return _json_field(Shape.TABLE, (self._part(others),))
        node, reading = self.node.at(branch), self.meaning.reading
        return _json_field(Shape.OBJECT, tuple(_members(node, reading, depth=self.depth + 1)))

    def _part(self, schema: Any) -> FormField:
        node, reading = self.node.at(schema), self.meaning.reading
        return _field("", node, is_required=True, reading=reading, depth=self.depth + 1)


def _json_field(shape: Shape, parts: tuple[FormField, ...] = ()) -> FormField:
    return FormField(name="", kind=FieldKind.JSON, shape=shape, parts=parts)


def _text_field(branch: Mapping[str, Any]) -> FormField:
    pattern, name = branch.get("pattern"), branch.get("format")
    made = FormField(
        name="",
        kind=FieldKind.TEXT,
        low=bound(branch.get("minLength"), is_length=True),
        high=bound(branch.get("maxLength"), is_length=True),
    )
    if pattern == _DAY_PATTERN or name == "date":
        return replace(made, format="date", low=None, high=None)
    if isinstance(name, str):
        # tools accept local times, too
        made = replace(made, format="moment" if name == "date-time" else name)
    is_known = made.format in FORMATS
    return replace(
        made,
        format=made.format if is_known else "",
        pattern=pattern if isinstance(pattern, str) and not is_known else "",
    )


def _number_field(branch: Mapping[str, Any], kind: FieldKind) -> FormField:
    step = bound(branch.get("multipleOf"), is_length=False)
    return FormField(
        name="",
        kind=kind,
        low=bound(branch.get("minimum"), is_length=False),
        high=bound(branch.get("maximum"), is_length=False),
        above=bound(branch.get("exclusiveMinimum"), is_length=False),
        below=bound(branch.get("exclusiveMaximum"), is_length=False),
        step=step if step and step > 0 else None,
    )


def _types(branch: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the types of a branch; `any` if nothing says."""
    listed = branch.get("type")
    if listed is None:
        return next(
            ((name,) for name, keys in _IMPLIED.items() if not keys.isdisjoint(branch)), ("any",)
        )
    names = [listed] if isinstance(listed, str) else _listed(listed)
    return tuple(name if name in _TYPES else "any" for name in names)


def _constants(branch: Mapping[str, Any]) -> list[tuple[JSON, str]] | None:
    """Return the values of `const` or `enum` with their titles; None if there are none."""
    if "const" in branch:
        return [(branch["const"], "")]
    if "enum" not in branch:
        return None
    values = _listed(branch["enum"])
    for key in ("enumNames", "x-enumNames", "x-enum-varnames"):
        names = _listed(branch.get(key))
        if len(names) == len(values):
            return [(value, schema_text(name)) for value, name in zip(values, names, strict=True)]
    return [(value, "") for value in values]


def _titled(
    constants: list[tuple[JSON, str]], node: SchemaNode, always: Sequence[Any]
) -> list[tuple[JSON, str]]:
    """Return constants with the titles of their own alternatives, or else the descriptions."""
    texts: list[tuple[JSON, str]] = []
    for part in in_place(node.schema, node.root):
        own = _constants(part) or []
        if len(own) != 1 or any(part is one for one in always):
            continue
        value, text = own[0][0], schema_text(part.get("title"))
        if not text and (about := schema_text(part.get("description"))):
            text = f"{value if isinstance(value, str) else json_or_repr(value)}: {about}"
        texts.append((value, text))
    found = [next((text for own, text in texts if is_same(own, v)), "") for v, _ in constants]
    return [(v, title or text) for (v, title), text in zip(constants, found, strict=True)]


def _is_of(value: Any, types: Sequence[str]) -> bool:
    """Return whether a value is of one of these types."""
    if isinstance(value, bool):
        own = {"boolean"}
    elif isinstance(value, int | float):
        own = {"number"} | ({"integer"} if float(value).is_integer() else set())
    elif isinstance(value, str):
        own = {"string"}
    else:
        own = {"null" if value is None else "array" if isinstance(value, list) else "object"}
    return "any" in types or not own.isdisjoint(types)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _first(parts: Iterable[Mapping[str, Any]], key: str) -> str:
    return next((text for part in parts if (text := schema_text(part.get(key)))), "")


def _only(parts: Sequence[Mapping[str, Any]], key: str) -> str:
    """Return the text that all parts have."""
    texts = {schema_text(part.get(key)) for part in parts}
    return texts.pop() if len(texts) == 1 else ""
