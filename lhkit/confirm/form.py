"""What a tool asks a person to fill in: fields, what is typed into them, what does not fit. Pure.

Fields are made from a JSON Schema of an object without nesting, as MCP allows it for elicitation:
texts with their formats, numbers, yes or no, one choice, several. Whatever else a schema says of a
field is left to whoever asks.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from enum import StrEnum
from math import isfinite
from typing import Any, TypeAlias, TypeGuard
from urllib.parse import urlsplit

from lhkit.json_values import JSON, NotJsonError, json_or_repr, plain_json
from lhkit.locales import Catalog
from lhkit.text import visible

MOST_FIELDS = 50
MOST_CHOICES = 200
_MOST_CHARS = 1_000
"""A title, a description or a default that is longer is cut, or left out."""

_LABEL_CHARS = 60
"""A choice with a longer label is not chosen from the start: one line shows its beginning only."""


class FieldKind(StrEnum):
    """What a field holds."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    YES_NO = "yes_no"
    CHOICE = "choice"
    CHOICES = "choices"  # several of them
    OTHER = "other"  # any JSON: no form of MCP may ask for that


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One that can be taken: as it is typed, as it is sent, and as people read it."""

    typed: str
    value: JSON
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """One field. `typed` is what stands in it at first: several texts only for several choices.

    `low` and `high` bound a number, the length of a text, or how many are chosen; `above` and
    `below` bound a number that may not reach them.
    """

    name: str
    kind: FieldKind
    title: str = ""
    about: str = ""
    is_needed: bool = False
    choices: tuple[Choice, ...] = ()
    typed: tuple[str, ...] = ()
    format: str = ""
    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None

    @property
    def label(self) -> str:
        """What the field is called."""
        return self.title or self.name

    @property
    def is_text(self) -> bool:
        """True if what is typed is the value itself."""
        if self.kind is FieldKind.CHOICE:
            return all(isinstance(each.value, str) for each in self.choices)
        return self.kind is FieldKind.TEXT


Typed: TypeAlias = Mapping[str, Sequence[str]]
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


# ----------------------------------------------------------------------------- a schema as fields
def form_of(schema: Mapping[str, Any], message: str, catalog: Catalog) -> Form | None:
    """Return the form that a stranger's schema asks for; None if it is none that can be shown."""
    properties = schema.get("properties")
    required = schema.get("required", [])
    if not isinstance(properties, Mapping) or not isinstance(required, list):
        return None
    fields = fields_of(schema, catalog)
    names = [each.name for each in fields]
    if len(fields) > MOST_FIELDS or any(name not in names for name in required):
        return None
    if any(each.kind is FieldKind.OTHER or len(each.choices) > MOST_CHOICES for each in fields):
        return None
    if any(each.kind is FieldKind.CHOICE and not each.is_text for each in fields):
        return None
    told = [message, *(text for each in fields for text in (each.name, each.title, each.about))]
    is_secret = any(map(_looks_secret, told))
    if len(fields) == 1 and fields[0].kind is FieldKind.YES_NO and not fields[0].typed:
        (only,) = fields
        words = "\n".join(filter(None, [f"{only.label}: {catalog.text('form.true')}", only.about]))
        return Form(given={only.name: True}, words=words, is_secret=is_secret)
    return Form(fields=fields, is_secret=is_secret)


def fields_of(schema: Mapping[str, Any], catalog: Catalog | None = None) -> tuple[FormField, ...]:
    """Return a field for each property of any schema; with a catalog yes and no are words."""
    properties = schema.get("properties")
    required = schema.get("required")
    needed = [each for each in required if isinstance(each, str)] if _is_list(required) else []
    return tuple(
        _field(str(name), part if isinstance(part, Mapping) else {}, name in needed, catalog)
        for name, part in (properties if isinstance(properties, Mapping) else {}).items()
    )


def _field(
    name: str, told: Mapping[str, Any], is_needed: bool, catalog: Catalog | None
) -> FormField:
    part = _not_null(told)
    kind, choices = _kind(part, catalog)
    low, high = _BOUNDS.get(kind, ("", ""))
    made = FormField(
        name=name,
        kind=kind,
        title=_words(told.get("title") or part.get("title")),
        about=_words(told.get("description") or part.get("description")),
        is_needed=is_needed,
        choices=choices,
        format=_format(part) if kind is FieldKind.TEXT else "",
        low=_number(part.get(low)),
        high=_number(part.get(high)),
        above=_number(part.get("exclusiveMinimum")),
        below=_number(part.get("exclusiveMaximum")),
    )
    return _with_default(made, told["default"]) if "default" in told else made


_BOUNDS = {
    FieldKind.TEXT: ("minLength", "maxLength"),
    FieldKind.INTEGER: ("minimum", "maximum"),
    FieldKind.NUMBER: ("minimum", "maximum"),
    FieldKind.CHOICES: ("minItems", "maxItems"),
}


def _format(part: Mapping[str, Any]) -> str:
    told = part.get("format")
    return told if isinstance(told, str) and told in _FORMATS else ""


def _not_null(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a field may hold besides null: leaving it out says as much."""
    for key in ("anyOf", "oneOf"):
        branches = part.get(key)
        if _is_list(branches):
            real = [each for each in branches if each != {"type": "null"}]
            if len(real) == 1 and len(branches) > 1 and isinstance(real[0], Mapping):
                return real[0]
    return part


def _kind(part: Mapping[str, Any], catalog: Catalog | None) -> tuple[FieldKind, tuple[Choice, ...]]:
    listed = _choices(part)
    if listed:
        return FieldKind.CHOICE, listed
    kind = part.get("type")
    if kind == "boolean":
        return FieldKind.YES_NO, _yes_or_no(catalog)
    if kind == "array" and isinstance(items := part.get("items"), Mapping):
        listed = _choices(items)
        if listed and all(isinstance(each.value, str) for each in listed):
            return FieldKind.CHOICES, listed
    return _SIMPLE.get(kind if isinstance(kind, str) else "", FieldKind.OTHER), ()


_SIMPLE = {"string": FieldKind.TEXT, "integer": FieldKind.INTEGER, "number": FieldKind.NUMBER}


def _yes_or_no(catalog: Catalog | None) -> tuple[Choice, ...]:
    return tuple(
        Choice(typed=typed, value=value, title=catalog.text(f"form.{typed}") if catalog else "")
        for typed, value in (("true", True), ("false", False))
    )


def _choices(part: Mapping[str, Any]) -> tuple[Choice, ...]:
    """Return what can be chosen: `enum`, with `enumNames` if there are, or titled constants."""
    values = part.get("enum")
    if _is_list(values) and values:
        titles = part.get("enumNames")
        told = titles if _is_list(titles) and len(titles) == len(values) else [""] * len(values)
        return _distinct(zip(values, told, strict=True))
    for key in ("oneOf", "anyOf"):
        listed = part.get(key)
        if not _is_list(listed) or not listed:
            continue
        if all(isinstance(each, Mapping) and "const" in each for each in listed):
            return _distinct((each["const"], each.get("title", "")) for each in listed)
    return ()


def _distinct(pairs: Iterable[tuple[Any, Any]]) -> tuple[Choice, ...]:
    made: dict[str, Choice] = {}
    for value, title in pairs:
        try:
            typed = value if isinstance(value, str) else json_or_repr(value)
            choice = Choice(typed=typed, value=plain_json(value), title=_words(title))
        except NotJsonError:
            return ()
        made.setdefault(typed, choice)
    return tuple(made.values())


def _with_default(made: FormField, default: Any) -> FormField:
    """Return the field with what stands in it at first.

    A default that does not fit is none, nor is one that reads otherwise than it is: it is sent as
    it is written, by somebody who has only read it.
    """
    if made.kind is FieldKind.CHOICES:
        chosen = default if _is_list(default) else ()
        typed = tuple(each for each in chosen if isinstance(each, str))
        is_fit = len(typed) == len(chosen) and _fits(made, list(typed))
        return replace(made, typed=typed) if is_fit else made
    try:
        text = typed_as(made, default)
        is_fit = value_of(made, text) == default and _fits(made, default)
    except (NotJsonError, ValueError, RecursionError):
        return made
    shown = text.replace("\t", " ")  # white space in a field looks like white space
    labels = [each.title or each.typed for each in made.choices if each.typed == text]
    is_seen = len(text) <= _MOST_CHARS and (bool(labels) or visible(shown) == shown)
    is_seen = is_seen and all(len(label) <= _LABEL_CHARS for label in labels)
    return replace(made, typed=(text,)) if is_fit and is_seen else made


def _is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, list | tuple)


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


# ------------------------------------------------------------------------- what is typed as values
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
    chosen = next((each for each in made.choices if each.typed == typed), None)
    if chosen is not None:
        return chosen.value
    if made.is_text:
        return typed
    try:
        read: JSON = json.loads(typed, parse_constant=_no_number)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return read


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def filled(form: Form, typed: Typed, catalog: Catalog) -> Filled:
    """Return what the fields come to; what is left empty is left out, if it may be."""
    values: dict[str, JSON] = dict(form.given)
    faults: dict[str, str] = {}
    for each in form.fields:
        try:
            found = _read(each, typed.get(each.name, ()))
        except ValueError:
            faults[each.name] = catalog.text("form.wrong", expected=expected(each, catalog))
            continue
        if found is not _LEFT_OUT:
            values[each.name] = found
        elif each.is_needed:
            faults[each.name] = catalog.text("form.needed")
    return Filled(values={} if faults else values, faults=faults)


_LEFT_OUT: Any = object()


def _read(made: FormField, typed: Sequence[str]) -> Any:
    """Return the value of a field, or that it is left out.

    Raises:
        ValueError: it does not fit.
    """
    if made.kind is FieldKind.CHOICES:
        found: Any = list(typed)
        if not typed and not (made.is_needed and _fits(made, found)):
            return _LEFT_OUT
    else:
        text = typed[0] if typed else ""
        if not made.is_text:
            text = text.strip()
        if not text and not (typed and made.is_needed and made.typed == ("",)):
            return _LEFT_OUT  # also a text that is needed, unless nothing was what stood there
        found = value_of(made, text)
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
        case FieldKind.CHOICES:
            known = {each.typed for each in made.choices}
            are_known = set(value) <= known and len(set(value)) == len(value)
            return are_known and _is_between(made, len(value))
        case FieldKind.YES_NO | FieldKind.CHOICE:
            return any(each.value == value for each in made.choices)
        case FieldKind.OTHER:
            return True


def _is_between(made: FormField, size: float) -> bool:
    return (
        (made.low is None or size >= made.low)
        and (made.high is None or size <= made.high)
        and (made.above is None or size > made.above)
        and (made.below is None or size < made.below)
    )


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


# --------------------------------------------------------------------------------------- in words
def expected(made: FormField, catalog: Catalog) -> str:
    """Return in words what a field takes."""
    match made.kind:
        case FieldKind.YES_NO | FieldKind.CHOICE:
            return catalog.text("form.one_of")
        case FieldKind.CHOICES:
            words = catalog.text("form.some_of")
        case FieldKind.TEXT:
            words = catalog.text(f"form.format_{made.format}" if made.format else "form.text")
        case _:
            words = catalog.text(f"form.{made.kind}")
    unit = {FieldKind.TEXT: "characters", FieldKind.CHOICES: "choices"}.get(made.kind, "number")
    bounds = [("low", made.low), ("high", made.high), ("above", made.above), ("below", made.below)]
    limits = [
        catalog.text(f"form.{key}_{unit}", n=f"{int(n) if n == int(n) else n:,}")
        for key, n in bounds
        if n is not None
    ]
    return ", ".join([words, *limits])


def hint(made: FormField, catalog: Catalog) -> str:
    """Return `expected` where a label alone does not say it; else nothing."""
    bounds = (made.low, made.high, made.above, made.below)
    is_plain = not made.format and all(each is None for each in bounds)
    return "" if is_plain and made.kind in _PLAIN else expected(made, catalog)


_PLAIN = frozenset({FieldKind.TEXT, FieldKind.YES_NO, FieldKind.CHOICE, FieldKind.CHOICES})

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
