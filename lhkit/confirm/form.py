"""Forms for the questions of a running tool (MCP elicitation): fields, parsing, validation.

A form has the fields that MCP allows: strings (with a format or an enum), numbers, integers and
booleans. Any other schema is refused with a reason. Keywords that MCP does not name, such as
`pattern`, are left to the server. pydantic parses and validates what the user types.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
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
"""Longer titles and descriptions are cut; a longer default is ignored."""

_LABEL_CHARS = 60
"""A choice with a longer label is never the default, since only its beginning is visible."""


class UnsupportedFormError(ValueError):
    """A schema has something that a form does not support; the message is the reason."""


class FieldKind(StrEnum):
    """The type of a field's value."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    YES_NO = "yes_no"
    CHOICE = "choice"
    JSON = "json"  # an argument of any other type; not in forms of servers


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A value of a choice field, as text, and its title."""

    value: str
    title: str = ""

    @property
    def label(self) -> str:
        """The text that the user reads."""
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
        choices: the values of a choice field.
        typed: the initial text.
        format: `date`, `date-time`, `email`, `uri` or empty.
        low: the minimum of a number or of a text's length.
        high: the maximum of a number or of a text's length.
    """

    name: str
    kind: FieldKind
    title: str = ""
    about: str = ""
    is_required: bool = False
    choices: tuple[Choice, ...] = ()
    typed: str = ""
    format: str = ""
    low: float | None = None
    high: float | None = None

    @property
    def label(self) -> str:
        """The title, or the name."""
        return self.title or self.name

    @property
    def is_text(self) -> bool:
        """True if the typed text is the value itself."""
        return self.kind in (FieldKind.TEXT, FieldKind.CHOICE)


Typed: TypeAlias = Mapping[str, str]
"""The typed or chosen text of each field, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A form; without fields it is a yes/no question.

    Attributes:
        fields: the fields to fill in.
        given: values that a yes sends in addition to the fields.
        words: a text that describes `given`.
        is_secret: the form seems to ask for a password or the like, which MCP forbids.
    """

    fields: tuple[FormField, ...] = ()
    given: Mapping[str, JSON] = dataclass_field(default_factory=dict)
    words: str = ""
    is_secret: bool = False

    @property
    def typed(self) -> Typed:
        """The initial text of each field."""
        return {field.name: field.typed for field in self.fields}


class FormAction(StrEnum):
    """The action of an answer, as in MCP."""

    ACCEPT = "accept"
    DECLINE = "decline"  # said no
    CANCEL = "cancel"  # closed the form without an answer


@dataclass(frozen=True, slots=True, kw_only=True)
class FormAnswer:
    """The user's answer; `content` has values only if the form was accepted."""

    action: FormAction
    content: Mapping[str, JSON] = dataclass_field(default_factory=dict)


DECLINED = FormAnswer(action=FormAction.DECLINE)
CANCELLED = FormAnswer(action=FormAction.CANCEL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedForm:
    """The parsed values of a form, and the error messages; both by field name."""

    values: Mapping[str, JSON]
    faults: Mapping[str, str]


def parse_form(schema: Mapping[str, Any], message: str, catalog: Catalog) -> Form:
    """Return the form for the schema of an MCP server.

    Args:
        schema: the `requestedSchema` of an elicitation.
        message: the server's message to the user, checked for words such as `password`.
        catalog: texts for yes and no.

    Raises:
        UnsupportedFormError: the schema has something MCP does not allow; names the field.
    """
    properties, required = schema.get("properties"), schema.get("required", [])
    if not isinstance(properties, Mapping):
        raise UnsupportedFormError("`properties` is not an object")
    if len(properties) > MOST_FIELDS:
        raise UnsupportedFormError(f"{len(properties)} fields: at most {MOST_FIELDS} are allowed")
    if not isinstance(required, list) or any(name not in list(properties) for name in required):
        raise UnsupportedFormError("`required` is not a list of the names of its fields")
    fields = tuple(
        parse_field(name, part, is_required=name in required, catalog=catalog)
        for name, part in properties.items()
    )
    texts = [message, *(text for f in fields for text in (f.name, f.title, f.about))]
    is_secret = any(map(_looks_secret, texts))
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


def parse_field(
    name: str, part: Any, *, is_required: bool, catalog: Catalog | None = None
) -> FormField:
    """Return the field for a property of a schema.

    Args:
        name: the property.
        part: its schema.
        is_required: the property is required.
        catalog: texts for yes and no; without it they are `true` and `false`.

    Raises:
        UnsupportedFormError: no kind of field fits; the message names the field.
    """
    try:
        kind, choices = _parse_kind(part)
    except UnsupportedFormError as error:
        raise UnsupportedFormError(f"field {name[:_LABEL_CHARS]!r}: {error}") from None
    if kind is FieldKind.YES_NO:
        choices = {
            word: catalog.text(f"form.{word}") if catalog else "" for word in ("true", "false")
        }
    is_text, format_ = kind is FieldKind.TEXT, part.get("format")
    low, high = ("minLength", "maxLength") if is_text else ("minimum", "maximum")
    field = FormField(
        name=name,
        kind=kind,
        title=_words(part.get("title")),
        about=_words(part.get("description")),
        is_required=is_required,
        choices=tuple(Choice(value=value, title=title) for value, title in choices.items()),
        format=format_ if is_text and isinstance(format_, str) and format_ in _FORMATS else "",
        low=_bound(part.get(low), is_length=is_text),
        high=_bound(part.get(high), is_length=is_text),
    )
    return _with_default(field, part["default"]) if "default" in part else field


def argument_fields(
    schema: Mapping[str, Any], catalog: Catalog | None = None
) -> tuple[FormField, ...]:
    """Return a field for each argument of a tool; JSON text where no other kind fits.

    Args:
        schema: the JSON Schema of the arguments.
        catalog: as in `parse_field`.
    """
    properties, required = schema.get("properties"), schema.get("required")
    required = required if isinstance(required, list | tuple) else ()
    parts = properties if isinstance(properties, Mapping) else {}
    return tuple(
        _argument_field(str(name), part, is_required=name in required, catalog=catalog)
        for name, part in parts.items()
    )


def _argument_field(
    name: str, part: Any, *, is_required: bool, catalog: Catalog | None
) -> FormField:
    part = _without_null(part)
    try:
        field = parse_field(name, part, is_required=is_required, catalog=catalog)
    except UnsupportedFormError:
        about = part.get("description", "") if isinstance(part, Mapping) else ""
        return FormField(name=name, kind=FieldKind.JSON, about=str(about), is_required=is_required)
    if field.kind is FieldKind.TEXT and part.get("pattern") == _DAY_PATTERN:
        field = replace(field, format="date", low=None, high=None)
    return replace(field, title="", typed="")


_DAY_PATTERN: Final = r"^\d{4}-\d{2}-\d{2}$"


def _without_null(part: Any) -> Any:
    """Return the schema of an argument's values other than null, as of `str | None`."""
    options = part.get("anyOf") if isinstance(part, Mapping) else None
    others = [one for one in options or () if one != {"type": "null"}]
    if len(others) != 1 or not isinstance(others[0], Mapping):
        return part
    return {**others[0], **{key: part[key] for key in part if key != "anyOf"}}


def argument_form(
    schema: Mapping[str, Any], args: Mapping[str, JSON], catalog: Catalog | None = None
) -> Form:
    """Return a form to edit the arguments of a call, filled in with them.

    A value that its field cannot show exactly, such as one with invisible characters, is JSON text.

    Args:
        schema: the JSON Schema of the arguments, such as `ConfirmRequest.parameters`.
        args: the arguments, such as `ConfirmRequest.args`.
        catalog: as in `parse_field`.
    """
    fields = {name: FormField(name=name, kind=FieldKind.JSON) for name in args}
    fields |= {field.name: field for field in argument_fields(schema, catalog)}
    return Form(
        fields=tuple(
            _filled_in(field, args[name]) if name in args else field
            for name, field in fields.items()
        )
    )


def _filled_in(field: FormField, value: JSON) -> FormField:
    text = format_value(field, value)
    try:
        is_exact = visible(text) == text and parse_value(field, text) == value
    except ValueError:
        is_exact = False
    if is_exact:
        return replace(field, typed=text)
    is_shown = [(char, visible(char) == char) for char in json_or_repr(value)]
    escaped = "".join(char if shown else json.dumps(char)[1:-1] for char, shown in is_shown)
    as_json = FormField(name=field.name, kind=FieldKind.JSON, about=field.about)
    return replace(as_json, typed=escaped, is_required=field.is_required)


def edited_arguments(
    form: Form, typed: Typed, args: Mapping[str, JSON], catalog: Catalog
) -> ParsedForm:
    """Return all arguments after an edit, and the error messages of fields.

    A field that was not changed keeps its argument as it is; an emptied one leaves it out. The
    tool's schema is not checked: see `ConfirmRequest.edited`.

    Args:
        form: the form of `argument_form`.
        typed: the text of each field; one that is missing was not changed.
        args: the arguments that the form was made from.
        catalog: texts of the messages.
    """
    changed = tuple(
        field for field in form.fields if typed.get(field.name, field.typed) != field.typed
    )
    done = filled(Form(fields=changed), typed, catalog)
    names = {field.name for field in changed}
    values = {name: value for name, value in args.items() if name not in names}
    values |= done.values
    in_order = {name: values[name] for name in (*args, *values) if name in values}
    return replace(done, values=in_order)


def _parse_kind(part: Any) -> tuple[FieldKind, dict[str, str]]:
    """Return the kind of a property's field, and its choices: value to title."""
    if not isinstance(part, Mapping):
        raise UnsupportedFormError("its schema is not an object")
    if union := part.keys() & {"anyOf", "allOf", "$ref"}:
        raise UnsupportedFormError(f"`{min(union)}` is not allowed")
    choices = _parse_choices(part)
    type_name = part.get("type", None if choices is None else "string")
    kind = _KINDS.get(type_name) if isinstance(type_name, str) else None
    if kind is None or (choices and kind is not FieldKind.TEXT):
        shown = visible(json_or_repr(type_name))[:_LABEL_CHARS]
        raise UnsupportedFormError(f"type {shown} is not allowed")
    return (FieldKind.CHOICE, choices) if choices else (kind, {})


def _parse_choices(part: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the choices of `enum` (with `enumNames`) or of `oneOf`: value to title."""
    pairs: list[tuple[Any, Any]]
    if "oneOf" in part:
        listed = part["oneOf"] if isinstance(part["oneOf"], list) else []
        choices = [choice if isinstance(choice, Mapping) else {} for choice in listed]
        pairs = [(choice.get("const"), choice.get("title")) for choice in choices]
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


def _with_default(field: FormField, default: Any) -> FormField:
    """Return the field with its default as the initial text.

    An invalid default is ignored, and so is one with invisible characters or beyond the visible
    part: the user would send something else than they read.
    """
    try:
        text = format_value(field, default)
        is_valid = parse_value(field, text) == default
    except (NotJsonError, ValueError, RecursionError):
        return field
    shown = text.replace("\t", " ")  # a tab looks like a space in a field
    labels = [choice.label for choice in field.choices if choice.value == text]
    is_readable = len(text) <= _MOST_CHARS and (bool(labels) or visible(shown) == shown)
    is_readable = is_readable and all(len(label) <= _LABEL_CHARS for label in labels)
    return replace(field, typed=text) if is_valid and is_readable else field


def _words(value: Any) -> str:
    return value[:_MOST_CHARS] if isinstance(value, str) else ""


def _bound(value: Any, *, is_length: bool) -> float | None:
    """Return a limit; None for an invalid one, which is left to the server."""
    if is_length:
        return value if type(value) is int and value >= 0 else None
    return value if type(value) in (int, float) and abs(value) <= _MOST else None


_MOST: Final = 10**300
"""Larger limits are ignored."""


def format_value(field: FormField, value: Any) -> str:
    """Return the text that the user would type for a value."""
    return value if field.is_text and isinstance(value, str) else json_or_repr(value)


def parse_value(field: FormField, typed: str) -> JSON:
    """Return the value of a typed text.

    Raises:
        ValueError: the text is invalid for the field, such as a word for a number.
    """
    adapter: TypeAdapter[Any] = TypeAdapter(_pydantic_type(field))
    if field.is_text:
        adapter.validate_python(typed)
        return typed
    value = adapter.validate_json(typed, strict=True)
    return int(value) if field.kind is FieldKind.INTEGER else value


def _pydantic_type(field: FormField) -> Any:
    match field.kind:
        case FieldKind.TEXT:
            length = Field(min_length=field.low, max_length=field.high)  # type: ignore[arg-type]
            return Annotated[str, length, AfterValidator(_FORMATS.get(field.format, str))]
        case FieldKind.INTEGER:
            return Annotated[_Number, Field(ge=field.low, le=field.high, multiple_of=1)]
        case FieldKind.NUMBER:
            return Annotated[_Number, Field(ge=field.low, le=field.high)]
        case FieldKind.YES_NO:
            return bool
        case FieldKind.CHOICE:
            return Literal[tuple(choice.value for choice in field.choices)]
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


def filled(form: Form, typed: Typed, catalog: Catalog) -> ParsedForm:
    """Return the values of a filled-in form; empty optional fields are omitted."""
    values: dict[str, JSON] = dict(form.given)
    faults: dict[str, str] = {}
    for field in form.fields:
        text = typed.get(field.name, "")
        if text if field.is_text else text.strip():
            try:
                values[field.name] = parse_value(field, text)
            except ValueError:
                faults[field.name] = catalog.text("form.wrong", expected=expected(field, catalog))
        elif field.is_required:
            faults[field.name] = catalog.text("form.needed")
    return ParsedForm(values={} if faults else values, faults=faults)


def expected(field: FormField, catalog: Catalog) -> str:
    """Return a description of the values that a field accepts."""
    if field.choices:
        return catalog.text("form.one_of")
    words = catalog.text(f"form.format_{field.format}" if field.format else f"form.{field.kind}")
    unit = "characters" if field.kind is FieldKind.TEXT else "number"
    limits = [
        catalog.text(f"form.{key}_{unit}", n=f"{int(n) if n == int(n) else n:,}")
        for key, n in (("low", field.low), ("high", field.high))
        if n is not None
    ]
    return ", ".join([words, *limits])


def hint(field: FormField, catalog: Catalog) -> str:
    """Return `expected` for a field that needs it; empty for plain text, choices and yes/no."""
    is_bounded = field.low is not None or field.high is not None
    is_plain = field.is_text or field.kind is FieldKind.YES_NO
    return "" if is_plain and not field.format and not is_bounded else expected(field, catalog)


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
    """Return True if a text asks for a password or the like, also in `camelCase`."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[_\W]+", " ", text)
    return _SECRET.search(spaced) is not None
