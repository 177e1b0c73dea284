"""Fields of forms: their kinds, what a typed text means in one, and what one expects, in words.

pydantic parses and validates what the user types.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time
from enum import StrEnum
from fractions import Fraction
from typing import Annotated, Any, Final
from uuid import UUID

from pydantic import AfterValidator, AnyUrl, Field, FiniteFloat, TypeAdapter

from lhkit.base.errors import UsageError
from lhkit.base.json_values import JSON, NotJsonError, canonical, json_or_repr
from lhkit.base.locales import Catalog
from lhkit.base.patterns import matches

_NAMED = 20
"""So many choices are named in a message; the others are counted."""


class FieldKind(StrEnum):
    """The type of a field's value."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    YES_NO = "yes_no"
    CHOICE = "choice"
    JSON = "json"  # an argument of any other type; not in forms of servers


class Shape(StrEnum):
    """What the JSON text of a field is."""

    ANY = ""
    LIST = "list"  # all items of one kind
    TUPLE = "tuple"  # the first items of a kind each
    OBJECT = "object"  # declared members
    TABLE = "table"  # members of any name and one kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A value of a choice field, as text, and its title.

    Attributes:
        value: the text that stands for the value.
        title: a label.
        data: the value itself where it is not a text, such as the number 1; else None.
    """

    value: str
    title: str = ""
    data: JSON = None

    @property
    def label(self) -> str:
        """The text that the user reads."""
        if self.title and self.data is not None and self.title != self.value:
            return f"{self.title} ({self.value})"
        return self.title or self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """One field of a form.

    Attributes:
        name: the key in the result.
        kind: the type of the value.
        title: a label; by default the name.
        about: a description.
        is_required: the field must not be left empty.
        is_nullable: null is a value, other than leaving the field empty.
        is_argument: an argument of a tool, which is labelled by its name first, as on the card.
        choices: the values of a choice field.
        typed: the initial text; None for null.
        format: `date`, `date-time`, `moment` (a time that may be local), `time`, `uuid`, `email`,
            `uri` or empty.
        low: the minimum of a number or of the length of a text or list.
        high: the maximum of a number or of the length of a text or list.
        above: an exclusive minimum of a number.
        below: an exclusive maximum of a number.
        step: a number is a multiple of it.
        pattern: a regular expression that a text matches.
        options: fields of which any may accept the value, in a union of types.
        shape: what the JSON text of a JSON field is.
        parts: the fields of a JSON object or tuple; the one field of all items of a list, or of all
            members of a table.
        default: the value of an argument that is left out, as it is shown; empty if unknown.
    """

    name: str
    kind: FieldKind
    title: str = ""
    about: str = ""
    is_required: bool = False
    is_nullable: bool = False
    is_argument: bool = False
    choices: tuple[Choice, ...] = ()
    typed: str | None = ""
    format: str = ""
    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    step: float | None = None
    pattern: str = ""
    options: "tuple[FormField, ...]" = ()
    shape: Shape = Shape.ANY
    parts: "tuple[FormField, ...]" = ()
    default: str = ""

    @property
    def label(self) -> str:
        """The title, or the name; of an argument the name, and its title if it says more."""
        if not self.is_argument:
            return self.title or self.name
        is_same = _letters(self.title) in ("", _letters(self.name))
        return self.name if is_same else f"{self.name} ({self.title})"

    @property
    def is_text(self) -> bool:
        """True if the typed text is the value itself."""
        if self.options:
            return self.kind is FieldKind.TEXT and all(option.is_text for option in self.options)
        is_of_texts = all(choice.data is None for choice in self.choices)
        return self.kind is FieldKind.TEXT or (self.kind is FieldKind.CHOICE and is_of_texts)


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text)).casefold()


def format_value(field: FormField, value: Any) -> str | None:
    """Return the text that the user would type for a value; None for null."""
    if value is None and field.is_nullable and field.kind is not FieldKind.JSON:
        return None
    if field.kind is FieldKind.JSON:
        return json_or_repr(value)
    for choice in field.choices if field.kind is FieldKind.CHOICE else ():
        if is_same(value, choice.value if choice.data is None else choice.data):
            return choice.value
    if not isinstance(value, str):
        return json_or_repr(value)
    return value if field.is_text or _means(field, value, value) else json_or_repr(value)


def _means(field: FormField, text: str, value: Any) -> bool:
    """Return True if a text typed into a field is this value."""
    try:
        return is_same(parse_value(field, text), value)
    except (ValueError, RecursionError):
        return False


def is_same(first: Any, second: Any) -> bool:
    """Return True for the same JSON value; 1 is 1.0, but not true."""
    if isinstance(first, bool | str) or isinstance(second, bool | str):
        return type(first) is type(second) and bool(first == second)
    if isinstance(first, int | float) and isinstance(second, int | float):
        return first == second
    try:
        return canonical(first) == canonical(second)
    except NotJsonError:
        return False


def parse_value(field: FormField, typed: str | None) -> JSON:
    """Return the value of a typed text; of None, which is null.

    `null` is null in a field that may be null, unless it is a text or a choice there. In a union
    with numbers and the like, a text that could be one of them is typed in quotes.

    Raises:
        ValueError: the text is invalid for the field, such as a word for a number.
    """
    if typed is None:
        if not field.is_nullable:
            raise ValueError(f"{field.name} cannot be null")
        return None
    if field.is_nullable and typed.strip() == "null":
        if field.is_text:
            with suppress(ValueError):
                return _parse(field, typed)
        return None
    return _parse(field, typed)


def _parse(field: FormField, typed: str) -> JSON:
    if field.kind is FieldKind.JSON:
        value: JSON = TypeAdapter(Any).validate_json(typed, strict=True)
        if not accepts(field, value):
            raise ValueError("other JSON is expected")
        return value
    if field.options:
        return _parse_union(field, typed)
    if field.kind is FieldKind.CHOICE:
        chosen = next((choice for choice in field.choices if choice.value == typed), None)
        if chosen is None:
            raise ValueError(f"{typed} is not one of the choices")
        return typed if chosen.data is None else chosen.data
    if field.kind is FieldKind.TEXT:
        return _parse_text(field, typed)
    number: Any = TypeAdapter(_pydantic_type(field)).validate_json(typed, strict=True)
    return int(number) if field.kind is FieldKind.INTEGER else number


def _parse_text(field: FormField, typed: str) -> str:
    length = Field(min_length=field.low, max_length=field.high)  # type: ignore[arg-type]
    checked = Annotated[str, length, AfterValidator(_FORMATS.get(field.format, str))]
    TypeAdapter(checked).validate_python(typed)
    if field.pattern and not _matches(field.pattern, typed):
        raise ValueError(f"does not match {field.pattern}")
    return typed


def _matches(pattern: str, text: str) -> bool:
    try:
        return matches(pattern, text)
    except UsageError:  # a slow pattern is left to the tool
        return True


def _pydantic_type(field: FormField) -> Any:
    if field.kind is FieldKind.YES_NO:
        return bool
    limits = Field(ge=field.low, le=field.high, gt=field.above, lt=field.below)
    steps = [1.0] if field.kind is FieldKind.INTEGER else []
    steps += [field.step] if field.step else []

    def check(number: float) -> float:
        for step in steps:  # in decimal: 19.99 is a multiple of 0.01
            if (Fraction(str(number)) / Fraction(str(step))).denominator != 1:
                raise ValueError(f"{number} is not a multiple of {step}")
        return number

    return Annotated[int | FiniteFloat, limits, AfterValidator(check)]


def _parse_union(field: FormField, typed: str) -> JSON:
    """Return the value by the first option that accepts the text, with texts last."""
    texts = [option for option in field.options if option.is_text]
    others = [option for option in field.options if not option.is_text]
    tries = [(option, typed) for option in others]
    if others and typed.strip().startswith('"'):
        with suppress(ValueError):
            quoted = json.loads(typed)
            tries += [(option, quoted) for option in texts if isinstance(quoted, str)]
    for option, text in (*tries, *((option, typed) for option in texts)):
        with suppress(ValueError):
            return parse_value(option, text)
    raise ValueError("no type of the union accepts it")


def accepts(field: FormField, value: Any) -> bool:
    """Return whether a JSON value fits a field, as far as the field knows its schema."""
    if value is None and field.is_nullable:
        return True
    if field.options:
        return any(accepts(option, value) for option in field.options)
    if field.kind is not FieldKind.JSON:
        text = format_value(field, value)
        return text is not None and _means(field, text, value)
    if field.shape is Shape.ANY:
        return True
    if field.shape in (Shape.LIST, Shape.TUPLE):
        return isinstance(value, list) and _accepts_items(field, value)
    return isinstance(value, dict) and _accepts_members(field, value)


def _accepts_items(field: FormField, items: list[Any]) -> bool:
    is_too_short = field.low is not None and len(items) < field.low
    if is_too_short or (field.high is not None and len(items) > field.high):
        return False
    parts = field.parts * len(items) if field.shape is Shape.LIST else field.parts
    return all(accepts(part, item) for part, item in zip(parts, items, strict=False))


def _accepts_members(field: FormField, members: Mapping[str, Any]) -> bool:
    if field.shape is Shape.TABLE:
        return all(accepts(part, value) for part in field.parts for value in members.values())
    return all(
        accepts(part, members[part.name]) if part.name in members else not part.is_required
        for part in field.parts
    )


def _moment(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError(f"{text} has no offset")
    return text


def _local_moment(text: str) -> datetime:
    if len(text) <= len("2026-11-25"):
        raise ValueError(f"{text} has no time")
    return datetime.fromisoformat(text.upper())


_FORMATS: Final[Mapping[str, Callable[[str], object]]] = {
    "date": lambda text: TypeAdapter(date).validate_strings(text, strict=True),
    "date-time": _moment,
    "moment": _local_moment,
    "time": lambda text: time.fromisoformat(text.upper()),
    "uuid": UUID,
    "email": TypeAdapter(Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+$")]).validate_python,
    "uri": lambda text: TypeAdapter(AnyUrl).validate_strings(text, strict=True),
}

FORMATS: Final = frozenset(_FORMATS)


def expected(field: FormField, catalog: Catalog) -> str:
    """Return a description of the values that a field accepts."""
    return _expected(field, catalog, _Typed.CHOSEN)


class _Typed(StrEnum):
    """How a value is given, which decides how it is described."""

    CHOSEN = "chosen"  # from a list of labels
    PLAIN = "plain"
    JSON = "json"


def _expected(field: FormField, catalog: Catalog, typed: _Typed) -> str:
    if field.kind is FieldKind.JSON:
        typed = _Typed.JSON
    elif field.options and typed is _Typed.CHOSEN:
        typed = _Typed.PLAIN
    if field.options:
        words = [_expected(option, catalog, typed) for option in field.options]
    elif field.kind is FieldKind.JSON:
        words = [_json_words(field, catalog)]
    elif field.kind in (FieldKind.CHOICE, FieldKind.YES_NO):
        words = [_choice_words(field, catalog, typed)] if field.choices else []
    else:
        words = [_plain_words(field, catalog, typed)]
    words += ["null"] if field.is_nullable else []
    text = words[0]
    for more in dict.fromkeys(words[1:]):
        text = catalog.text("form.or", first=text, second=more)
    is_mixed = not field.is_text and any(o.kind is FieldKind.TEXT for o in field.options)
    return catalog.text("form.mixed", words=text) if is_mixed and typed is _Typed.PLAIN else text


def _choice_words(field: FormField, catalog: Catalog, typed: _Typed) -> str:
    names = []
    for choice in field.choices[:_NAMED]:
        name = choice.label if typed is _Typed.CHOSEN else choice.value
        is_text = choice.data is None and field.kind is FieldKind.CHOICE
        is_quoted = typed is _Typed.JSON and is_text
        names.append(json_or_repr(name) if is_quoted else name)
    names += ["…"] if len(field.choices) > _NAMED else []
    if len(names) == 1:
        return names[0]
    return catalog.text("form.one_of", choices=", ".join(names))


def _plain_words(field: FormField, catalog: Catalog, typed: _Typed) -> str:
    is_text = field.kind is FieldKind.TEXT
    key = f"form.format_{field.format}" if field.format else f"form.{field.kind}"
    words = catalog.text(key)
    limits = _limits(field, "characters" if is_text else "number", catalog)
    limits += [catalog.text("form.pattern", pattern=field.pattern)] if field.pattern else []
    words = ", ".join([words, *limits])
    return catalog.text("form.quoted", words=words) if typed is _Typed.JSON and is_text else words


def _json_words(field: FormField, catalog: Catalog) -> str:
    text = catalog.text
    if field.shape is Shape.ANY:
        return text("form.json")
    parts, names = [], field.shape is Shape.OBJECT
    for part in field.parts[:_NAMED]:
        is_any = part.kind is FieldKind.JSON and part.shape is Shape.ANY and not part.options
        words = text("form.anything") if is_any else _expected(part, catalog, _Typed.JSON)
        parts.append(f"{part.name}{'' if part.is_required else '?'}: {words}" if names else words)
    parts += ["…"] if len(field.parts) > _NAMED else []
    kind = "list" if field.shape in (Shape.LIST, Shape.TUPLE) else "object"
    words = (
        text(f"form.{field.shape}_of", words="; ".join(parts)) if parts else text(f"form.{kind}")
    )
    return ", ".join([words, *_limits(field, "items", catalog)])


def _limits(field: FormField, unit: str, catalog: Catalog) -> list[str]:
    limits = {
        f"low_{unit}": field.low,
        "above": field.above,
        f"high_{unit}": field.high,
        "below": field.below,
        "step": field.step,
    }
    return [catalog.text(f"form.{key}", n=_number(n)) for key, n in limits.items() if n is not None]


def _number(number: float) -> str:
    return f"{int(number) if number == int(number) else number:,}"


def hint(field: FormField, catalog: Catalog) -> str:
    """Return `expected` for a field that needs it; empty for plain text, choices and yes/no."""
    limits = (field.low, field.high, field.above, field.below, field.step)
    is_bounded = any(limit is not None for limit in limits) or field.pattern or field.format
    is_simple = field.is_text or field.kind in (FieldKind.YES_NO, FieldKind.CHOICE)
    is_plain = is_simple and not field.options and not is_bounded
    return "" if is_plain else expected(field, catalog)
