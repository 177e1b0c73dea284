"""Forms for what a tool asks a person during a call: fields, typed text, validation. Pure.

A form is what MCP allows for elicitation: an object whose fields are strings (with a format or an
enum), numbers, integers and booleans. Any other schema is refused with its reason. Keywords that
MCP does not name, such as `pattern`, are left to the server.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from enum import StrEnum
from math import isfinite
from typing import Any, TypeAlias, TypeGuard
from urllib.parse import urlsplit

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
    for each in fields:
        if len(each.choices) > MOST_CHOICES:
            raise _unsupported(each.name, f"more than {MOST_CHOICES} choices")
    told = [message, *(text for each in fields for text in (each.name, each.title, each.about))]
    is_secret = any(map(_looks_secret, told))
    if len(fields) == 1 and fields[0].kind is FieldKind.YES_NO and not fields[0].typed:
        (only,) = fields
        words = "\n".join(filter(None, [f"{only.label}: {catalog.text('form.true')}", only.about]))
        return Form(given={only.name: True}, words=words, is_secret=is_secret)
    return Form(fields=fields, is_secret=is_secret)


def field_of(name: str, part: Any, *, is_needed: bool, catalog: Catalog | None = None) -> FormField:
    """Return the field for a property of a schema; with a catalog yes and no are words.

    Raises:
        UnsupportedFormError: no field can hold it.
    """
    if not isinstance(part, Mapping):
        raise _unsupported(name, "its schema is not an object")
    if union := part.keys() & {"anyOf", "allOf", "$ref"}:
        raise _unsupported(name, f"`{min(union)}` is not allowed")
    choices = _choices(name, part)
    told = part.get("type", "string" if choices else None)
    kind = _KINDS.get(told) if isinstance(told, str) else None
    if kind is None or (choices and kind is not FieldKind.TEXT):
        raise _unsupported(
            name, f"type {visible(json_or_repr(told))[:_LABEL_CHARS]} is not allowed"
        )
    if kind is FieldKind.YES_NO:
        choices = tuple(
            Choice(value=each, title=catalog.text(f"form.{each}") if catalog else "")
            for each in ("true", "false")
        )
    elif choices:
        kind = FieldKind.CHOICE
    low, high = _BOUNDS.get(kind, ("", ""))
    format_ = part.get("format")
    is_format = kind is FieldKind.TEXT and isinstance(format_, str) and format_ in _FORMATS
    made = FormField(
        name=name,
        kind=kind,
        title=_words(part.get("title")),
        about=_words(part.get("description")),
        is_needed=is_needed,
        choices=choices,
        format=str(format_) if is_format else "",
        low=_number(part.get(low)),
        high=_number(part.get(high)),
    )
    return _with_default(made, part["default"]) if "default" in part else made


_KINDS = {
    "string": FieldKind.TEXT,
    "integer": FieldKind.INTEGER,
    "number": FieldKind.NUMBER,
    "boolean": FieldKind.YES_NO,
}
_BOUNDS = {
    FieldKind.TEXT: ("minLength", "maxLength"),
    FieldKind.INTEGER: ("minimum", "maximum"),
    FieldKind.NUMBER: ("minimum", "maximum"),
}


def _unsupported(name: str, reason: str) -> UnsupportedFormError:
    return UnsupportedFormError(f"field {name[:_LABEL_CHARS]!r}: {reason}")


def _choices(name: str, part: Mapping[str, Any]) -> tuple[Choice, ...]:
    """Return what can be chosen: `enum`, with `enumNames` if there are, or titled constants."""
    pairs: list[tuple[Any, Any]]
    if "oneOf" in part:
        listed = part["oneOf"] if isinstance(part["oneOf"], list) else [None]
        pairs = [
            (each.get("const"), each.get("title")) if isinstance(each, Mapping) else (None, None)
            for each in listed
        ]
    elif "enum" in part:
        values: list[Any] = part["enum"] if isinstance(part["enum"], list) else [None]
        titles = part.get("enumNames")
        if not isinstance(titles, list) or len(titles) != len(values):
            titles = [None] * len(values)
        pairs = list(zip(values, titles, strict=True))
    else:
        return ()
    if not pairs or not all(isinstance(value, str) for value, _ in pairs):
        raise _unsupported(name, "its choices are not strings")
    titled: dict[str, str] = {}
    for value, title in pairs:
        titled.setdefault(value, _words(title))
    return tuple(Choice(value=value, title=title) for value, title in titled.items())


def _with_default(made: FormField, default: Any) -> FormField:
    """Return the field with its default as the initial text.

    A default that does not fit is ignored, and so is one that reads otherwise than it is: it would
    be sent as it is, by a person who has only read it.
    """
    try:
        text = typed_as(made, default)
        is_fit = value_of(made, text) == default and _fits(made, default)
    except (NotJsonError, ValueError, RecursionError):
        return made
    shown = text.replace("\t", " ")  # white space in a field looks like white space
    labels = [each.label for each in made.choices if each.value == text]
    is_seen = len(text) <= _MOST_CHARS and (bool(labels) or visible(shown) == shown)
    is_seen = is_seen and all(len(label) <= _LABEL_CHARS for label in labels)
    return replace(made, typed=text) if is_fit and is_seen else made


def _words(value: Any) -> str:
    return value[:_MOST_CHARS] if isinstance(value, str) else ""


def _number(value: Any) -> float | None:
    return value if _is_number(value) else None


def _is_number(value: Any) -> TypeGuard[float]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return isfinite(value)
    except OverflowError:  # an integer of more digits than a float has
        return False


def typed_as(made: FormField, value: Any) -> str:
    """Return a value as it is typed into a field.

    Raises:
        NotJsonError: nobody could type it.
    """
    return value if made.is_text and isinstance(value, str) else json_or_repr(value)


def value_of(made: FormField, typed: str) -> JSON:
    """Return what was typed as a value; whether it fits is another question.

    Raises:
        ValueError: it is none, such as a word for a number.
    """
    if made.is_text:
        return typed
    try:
        read: JSON = json.loads(typed, parse_constant=_not_a_number)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return read


def _not_a_number(word: str) -> None:
    raise ValueError(f"{word} is not valid JSON")


def filled(form: Form, typed: Typed, catalog: Catalog) -> Filled:
    """Return what the fields come to; what is left empty is left out, if it may be."""
    values: dict[str, JSON] = dict(form.given)
    faults: dict[str, str] = {}
    for each in form.fields:
        text = typed.get(each.name, "")
        text = text if each.is_text else text.strip()
        if text:
            try:
                values[each.name] = _checked(each, text)
            except ValueError:
                faults[each.name] = catalog.text("form.wrong", expected=expected(each, catalog))
        elif each.is_needed:
            faults[each.name] = catalog.text("form.needed")
    return Filled(values={} if faults else values, faults=faults)


def _checked(made: FormField, text: str) -> JSON:
    """Return what was typed as a value that fits.

    Raises:
        ValueError: it does not fit.
    """
    found: Any = value_of(made, text)
    if not _fits(made, found):
        raise ValueError(made.name)
    return int(found) if made.kind is FieldKind.INTEGER else found


def _fits(made: FormField, value: Any) -> bool:
    match made.kind:
        case FieldKind.TEXT:
            is_form = _FORMATS.get(made.format)
            is_text = isinstance(value, str) and _is_between(made, len(value))
            return is_text and (is_form is None or is_form(value))
        case FieldKind.INTEGER | FieldKind.NUMBER:
            is_whole = _is_number(value) and value == int(value)
            may_be = is_whole or (made.kind is FieldKind.NUMBER and _is_number(value))
            return may_be and _is_between(made, value)
        case FieldKind.CHOICE:
            return any(each.value == value for each in made.choices)
        case FieldKind.YES_NO:
            return isinstance(value, bool)
        case FieldKind.JSON:
            return True


def _is_between(made: FormField, size: float) -> bool:
    return (made.low is None or size >= made.low) and (made.high is None or size <= made.high)


def _is_date(text: str) -> bool:
    return re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text) is not None and _parses(date, text)


def _is_moment(text: str) -> bool:
    return _MOMENT.fullmatch(text) is not None and _parses(datetime, text.upper())


_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)


def _parses(kind: type[date], text: str) -> bool:
    try:
        kind.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_email(text: str) -> bool:
    return re.fullmatch(r"[^@\s]+@[^@\s]+", text) is not None


def _is_uri(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.scheme and (parts.netloc or parts.path)) and not re.search(r"\s", text)


_FORMATS: Mapping[str, Callable[[str], bool]] = {
    "date": _is_date,
    "date-time": _is_moment,
    "email": _is_email,
    "uri": _is_uri,
}


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
