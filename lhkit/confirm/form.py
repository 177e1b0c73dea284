"""Forms for what a tool asks a person during a call: fields, typed text, validation. Pure.

A form is what MCP allows for elicitation: an object whose fields are strings (with a format or an
enum), numbers, integers and booleans. Any other schema is refused with its reason. Keywords that
MCP does not name, such as `pattern`, are left to the server. What was typed is read and validated
by pydantic.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, AnyUrl, Field, FiniteFloat, TypeAdapter

from lhkit.json_values import JSON, NotJsonError, json_or_repr
from lhkit.locales import Catalog
from lhkit.text import visible

MOST_FIELDS = 50
MOST_CHOICES = 200
_MOST_CHARS = 1_000
"""A title, a description or a default that is longer is cut, or left out."""

_LABEL_CHARS = 60
"""A choice with a longer label is not chosen from the start: one line shows its beginning only."""


class UnsupportedFormError(ValueError):
    """A schema asks for more than a form can hold; the message is the reason."""


class FieldKind(StrEnum):
    """What a field holds."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    YES_NO = "yes_no"
    CHOICE = "choice"
    JSON = "json"  # in reviews only: an argument that no other kind can hold


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A value that can be chosen, as text, and its title."""

    value: str
    title: str = ""

    @property
    def label(self) -> str:
        """What a person reads."""
        return self.title or self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """One field. `typed` is its initial text; `low` and `high` bound a number or a length."""

    name: str
    kind: FieldKind
    title: str = ""
    about: str = ""
    is_needed: bool = False
    choices: tuple[Choice, ...] = ()
    typed: str = ""
    format: str = ""
    low: float | None = None
    high: float | None = None

    @property
    def label(self) -> str:
        """What the field is called."""
        return self.title or self.name

    @property
    def is_text(self) -> bool:
        """True if what is typed is the value itself."""
        return self.kind in (FieldKind.TEXT, FieldKind.CHOICE)


Typed: TypeAlias = Mapping[str, str]
"""What was typed or chosen, by the names of fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What is asked: `fields`, and what a yes sends besides, which `words` tell.

    Without fields it wants no more than a yes.
    """

    fields: tuple[FormField, ...] = ()
    given: Mapping[str, JSON] = field(default_factory=dict)
    words: str = ""
    is_secret: bool = False
    """True if it seems to be after a password, which nobody may ask for like this."""

    @property
    def typed(self) -> Typed:
        """What stands in the fields at first."""
        return {each.name: each.typed for each in self.fields}


class FormAction(StrEnum):
    """How a person answered, in MCP's words."""

    ACCEPT = "accept"
    DECLINE = "decline"  # said no
    CANCEL = "cancel"  # went away without a choice


@dataclass(frozen=True, slots=True, kw_only=True)
class FormAnswer:
    """A person's answer; `content` is only there for a yes."""

    action: FormAction
    content: Mapping[str, JSON] = field(default_factory=dict)


DECLINED = FormAnswer(action=FormAction.DECLINE)
CANCELLED = FormAnswer(action=FormAction.CANCEL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """What a form comes to: its values, and what is wrong, in words, by the names of fields."""

    values: Mapping[str, JSON]
    faults: Mapping[str, str]


def form_of(schema: Mapping[str, Any], message: str, catalog: Catalog) -> Form:
    """Return the form that a server's schema asks for.

    Raises:
        UnsupportedFormError: it asks for more than MCP allows; the message names the field.
    """
    properties, required = schema.get("properties"), schema.get("required", [])
    if not isinstance(properties, Mapping):
        raise UnsupportedFormError("`properties` is not an object")
    if len(properties) > MOST_FIELDS:
        raise UnsupportedFormError(f"{len(properties)} fields: at most {MOST_FIELDS} are allowed")
    if not isinstance(required, list) or any(each not in list(properties) for each in required):
        raise UnsupportedFormError("`required` is not a list of the names of its fields")
    fields = tuple(
        field_of(name, part, is_needed=name in required, catalog=catalog)
        for name, part in properties.items()
    )
    told = [message, *(text for each in fields for text in (each.name, each.title, each.about))]
    is_secret = any(map(_looks_secret, told))
    if len(fields) == 1 and fields[0].kind is FieldKind.YES_NO and not fields[0].typed:
        (only,) = fields
        words = "\n".join(filter(None, [f"{only.label}: {catalog.text('form.true')}", only.about]))
        return Form(given={only.name: True}, words=words, is_secret=is_secret)
    return Form(fields=fields, is_secret=is_secret)


_KINDS: Final = {
    "string": FieldKind.TEXT,
    "integer": FieldKind.INTEGER,
    "number": FieldKind.NUMBER,
    "boolean": FieldKind.YES_NO,
}


def field_of(name: str, part: Any, *, is_needed: bool, catalog: Catalog | None = None) -> FormField:
    """Return the field for a property of a schema; with a catalog yes and no are words.

    Raises:
        UnsupportedFormError: no field can hold it.
    """
    try:
        kind, choices = _kind_of(part)
    except UnsupportedFormError as error:
        raise UnsupportedFormError(f"field {name[:_LABEL_CHARS]!r}: {error}") from None
    if kind is FieldKind.YES_NO:
        told = [catalog.text(f"form.{each}") if catalog else "" for each in ("true", "false")]
        choices = dict(zip(("true", "false"), told, strict=True))
    is_text, format_ = kind is FieldKind.TEXT, part.get("format")
    low, high = ("minLength", "maxLength") if is_text else ("minimum", "maximum")
    made = FormField(
        name=name,
        kind=kind,
        title=_words(part.get("title")),
        about=_words(part.get("description")),
        is_needed=is_needed,
        choices=tuple(Choice(value=each, title=title) for each, title in choices.items()),
        format=format_ if is_text and isinstance(format_, str) and format_ in _FORMATS else "",
        low=_bound(part.get(low), is_length=is_text),
        high=_bound(part.get(high), is_length=is_text),
    )
    return _with_default(made, part["default"]) if "default" in part else made


def _kind_of(part: Any) -> tuple[FieldKind, dict[str, str]]:
    """Return what the field of a schema holds, and its choices with their titles.

    Raises:
        UnsupportedFormError: no field can hold it; the message is the reason.
    """
    if not isinstance(part, Mapping):
        raise UnsupportedFormError("its schema is not an object")
    if union := part.keys() & {"anyOf", "allOf", "$ref"}:
        raise UnsupportedFormError(f"`{min(union)}` is not allowed")
    choices = _choices(part)
    told = part.get("type", None if choices is None else "string")
    kind = _KINDS.get(told) if isinstance(told, str) else None
    if kind is None or (choices and kind is not FieldKind.TEXT):
        shown = visible(json_or_repr(told))[:_LABEL_CHARS]
        raise UnsupportedFormError(f"type {shown} is not allowed")
    return (FieldKind.CHOICE, choices) if choices else (kind, {})


def _choices(part: Mapping[str, Any]) -> dict[str, str] | None:
    """Return what can be chosen: `enum`, with `enumNames` if there are, or titled constants.

    Raises:
        UnsupportedFormError: that is no list of texts, or too long to choose from.
    """
    pairs: list[tuple[Any, Any]]
    if "oneOf" in part:
        listed = part["oneOf"] if isinstance(part["oneOf"], list) else []
        told = [each if isinstance(each, Mapping) else {} for each in listed]
        pairs = [(each.get("const"), each.get("title")) for each in told]
    elif "enum" in part:
        values = part["enum"] if isinstance(part["enum"], list) else []
        names = part.get("enumNames")
        titles = names if isinstance(names, list) and len(names) == len(values) else values
        pairs = [*zip(values, titles, strict=True)]
    else:
        return None
    if not pairs or not all(isinstance(value, str) for value, _ in pairs):
        raise UnsupportedFormError("its choices are not strings")
    if len(pairs) > MOST_CHOICES:
        raise UnsupportedFormError(f"more than {MOST_CHOICES} choices")
    return {value: _words(title) for value, title in pairs}


def _with_default(made: FormField, default: Any) -> FormField:
    """Return the field with its default as the initial text.

    A default that does not fit is ignored, and so is one that reads otherwise than it is: it would
    be sent as it is, by a person who has only read it.
    """
    try:
        text = typed_as(made, default)
        is_fit = value_of(made, text) == default
    except (NotJsonError, ValueError, RecursionError):
        return made
    shown = text.replace("\t", " ")  # white space in a field looks like white space
    labels = [each.label for each in made.choices if each.value == text]
    is_seen = len(text) <= _MOST_CHARS and (bool(labels) or visible(shown) == shown)
    is_seen = is_seen and all(len(label) <= _LABEL_CHARS for label in labels)
    return replace(made, typed=text) if is_fit and is_seen else made


def _words(value: Any) -> str:
    return value[:_MOST_CHARS] if isinstance(value, str) else ""


def _bound(value: Any, *, is_length: bool) -> float | None:
    """Return a limit; what is none is left to the server."""
    if is_length:
        return value if type(value) is int and value >= 0 else None
    return value if type(value) in (int, float) and abs(value) <= _MOST else None


_MOST: Final = 10**300
"""A limit beyond it, or an infinite one, is none: a person would not reach it."""


def typed_as(made: FormField, value: Any) -> str:
    """Return a value as it is typed into a field.

    Raises:
        NotJsonError: nobody could type it.
    """
    return value if made.is_text and isinstance(value, str) else json_or_repr(value)


def value_of(made: FormField, typed: str) -> JSON:
    """Return what was typed as the value that it stands for.

    Raises:
        ValueError: it does not fit the field, such as a word for a number.
    """
    adapter: TypeAdapter[Any] = TypeAdapter(_type_of(made))
    if made.is_text:
        adapter.validate_python(typed)
        return typed
    found = adapter.validate_json(typed, strict=True)
    return int(found) if made.kind is FieldKind.INTEGER else found


def _type_of(made: FormField) -> Any:
    """Return the type that pydantic holds a field's value to."""
    match made.kind:
        case FieldKind.TEXT:
            length = Field(min_length=made.low, max_length=made.high)  # type: ignore[arg-type]
            return Annotated[str, length, AfterValidator(_FORMATS.get(made.format, str))]
        case FieldKind.INTEGER:
            return Annotated[_Number, Field(ge=made.low, le=made.high, multiple_of=1)]
        case FieldKind.NUMBER:
            return Annotated[_Number, Field(ge=made.low, le=made.high)]
        case FieldKind.YES_NO:
            return bool
        case FieldKind.CHOICE:
            return Literal[tuple(each.value for each in made.choices)]
        case FieldKind.JSON:
            return Any


_Number: TypeAlias = int | FiniteFloat


def _moment(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError(f"{text} has no offset")
    return text


_FORMATS: Final[Mapping[str, Callable[[str], object]]] = {
    "date": lambda text: TypeAdapter(date).validate_strings(text, strict=True),
    "date-time": _moment,
    "email": TypeAdapter(Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+$")]).validate_python,
    "uri": lambda text: TypeAdapter(AnyUrl).validate_strings(text, strict=True),
}


def filled(form: Form, typed: Typed, catalog: Catalog) -> Filled:
    """Return what the fields come to; what is left empty is left out, if it may be."""
    values: dict[str, JSON] = dict(form.given)
    faults: dict[str, str] = {}
    for each in form.fields:
        text = typed.get(each.name, "")
        if text if each.is_text else text.strip():
            try:
                values[each.name] = value_of(each, text)
            except ValueError:
                faults[each.name] = catalog.text("form.wrong", expected=expected(each, catalog))
        elif each.is_needed:
            faults[each.name] = catalog.text("form.needed")
    return Filled(values={} if faults else values, faults=faults)


def expected(made: FormField, catalog: Catalog) -> str:
    """Return in words what a field takes."""
    if made.choices:
        return catalog.text("form.one_of")
    words = catalog.text(f"form.format_{made.format}" if made.format else f"form.{made.kind}")
    unit = "characters" if made.kind is FieldKind.TEXT else "number"
    limits = [
        catalog.text(f"form.{key}_{unit}", n=f"{int(n) if n == int(n) else n:,}")
        for key, n in (("low", made.low), ("high", made.high))
        if n is not None
    ]
    return ", ".join([words, *limits])


def hint(made: FormField, catalog: Catalog) -> str:
    """Return `expected` where a label alone does not say it; else nothing."""
    is_bounded = made.low is not None or made.high is not None
    is_plain = made.is_text or made.kind is FieldKind.YES_NO
    return "" if is_plain and not made.format and not is_bounded else expected(made, catalog)


_SECRETS = (
    "pass ?(word|wd|code|phrase)s?",
    "(secret|token|pin|credential)s?",
    "otp|cv[cv]2?|ssn|social security",
    "(api|private|access|secret) ?keys?",
    "(credit ?card|card number)s?",
)
_KOREAN_SECRETS = (
    "비밀 ?번호|암호|패스워드|토큰|(비밀|인증|개인|접근) ?키",
    "인증 ?(번호|코드)|보안 ?코드|핀 ?번호",
    "카드 ?번호|계좌 ?번호|주민 ?(등록 ?)?번호",
)
_SECRET = re.compile(rf"\b({'|'.join(_SECRETS)})\b|{'|'.join(_KOREAN_SECRETS)}", re.IGNORECASE)


def _looks_secret(text: str) -> bool:
    """Return True for words that ask for a password or the like, also in `camelCase`."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[_\W]+", " ", text)
    return _SECRET.search(spaced) is not None
