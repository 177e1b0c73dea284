"""Forms: the questions of a running tool (MCP elicitation), and the arguments of a call.

A form of a server has the fields that MCP allows: strings (with a format or an enum), numbers,
integers and booleans. Any other schema is refused with a reason. Keywords that MCP does not name,
such as `pattern`, are left to the server. A form of arguments has a field for any schema. In
both, an empty optional field is left out, and null is a value of its own (`None` as typed text).
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from enum import StrEnum
from typing import Any, Final, TypeAlias

from lhkit.base.json_values import JSON, NotJsonError, json_or_repr, plain_or_repr
from lhkit.base.locales import Catalog
from lhkit.base.text import visible
from lhkit.confirm.fields import (
    Choice,
    FieldKind,
    FormField,
    expected,
    format_value,
    hint,
    is_same,
    parse_value,
)
from lhkit.confirm.schema_fields import MOST_CHOICES, bound, schema_fields, schema_text

__all__ = [
    "CANCELLED",
    "DECLINED",
    "MOST_CHOICES",
    "MOST_FIELDS",
    "Choice",
    "FieldKind",
    "Form",
    "FormAction",
    "FormAnswer",
    "FormField",
    "ParsedForm",
    "Typed",
    "UnsupportedFormError",
    "argument_fields",
    "argument_form",
    "edited_arguments",
    "expected",
    "filled",
    "format_value",
    "hint",
    "parse_field",
    "parse_form",
    "parse_value",
]

MOST_FIELDS = 50
_MOST_CHARS = 1_000
"""A longer default is ignored."""

_LABEL_CHARS = 60
"""A choice with a longer label is never the default, since only its beginning is visible."""


class UnsupportedFormError(ValueError):
    """A schema has something that a form does not support; the message is the reason."""


Typed: TypeAlias = Mapping[str, str | None]
"""The typed or chosen text of each field, by name; None for null."""


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
    DECLINE = "decline"  # the user refuses
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
    errors: Mapping[str, str]


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


_FORMATS: Final = frozenset({"date", "date-time", "email", "uri"})

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
        title=schema_text(part.get("title")),
        about=schema_text(part.get("description")),
        is_required=is_required,
        choices=tuple(Choice(value=value, title=title) for value, title in choices.items()),
        format=format_ if is_text and isinstance(format_, str) and format_ in _FORMATS else "",
        low=bound(part.get(low), is_length=is_text),
        high=bound(part.get(high), is_length=is_text),
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
    return tuple(schema_fields(schema, catalog).values())


def argument_form(
    schema: Mapping[str, Any], args: Mapping[str, JSON], catalog: Catalog | None = None
) -> Form:
    """Return a form to edit the arguments of a call, filled in with them.

    A value that its field cannot show exactly, such as one with invisible characters, is JSON text.

    Args:
        schema: the JSON Schema of the arguments, such as `ConfirmRequest.parameters`.
        args: the arguments, such as `ConfirmRequest.args`; defaults among them are shown as any
            other value.
        catalog: as in `parse_field`.
    """
    fields = schema_fields(schema, catalog, args)
    return Form(
        fields=tuple(
            _filled_in(fields[name], args[name]) if name in args else fields[name]
            for name in dict.fromkeys([*args, *fields])
        )
    )


def _filled_in(field: FormField, value: JSON) -> FormField:
    text = format_value(field, value)
    try:
        is_exact = is_same(parse_value(field, text), value)
    except (ValueError, RecursionError):
        is_exact = False
    if is_exact and (text is None or visible(text) == text):
        is_long = field.kind is FieldKind.JSON and text is not None and len(text) > _LINE_CHARS
        return replace(field, typed=_lines(value) if is_long else text)
    is_shown = [(char, visible(char) == char) for char in json_or_repr(value)]
    escaped = "".join(char if shown else json.dumps(char)[1:-1] for char, shown in is_shown)
    as_json = replace(field, kind=FieldKind.JSON, choices=(), options=(field,), is_nullable=False)
    return replace(as_json if is_exact else _anything(field), typed=escaped)


def _anything(field: FormField) -> FormField:
    """Return a field for any JSON in place of one that does not fit its value."""
    plain = FormField(name=field.name, kind=FieldKind.JSON, title=field.title, about=field.about)
    return replace(plain, is_argument=True, is_required=field.is_required, default=field.default)


def _lines(value: JSON) -> str:
    """Return JSON in several lines, which is easier to edit."""
    return json.dumps(plain_or_repr(value), ensure_ascii=False, indent=1)


_LINE_CHARS = 40


def edited_arguments(
    form: Form, typed: Typed, args: Mapping[str, JSON], catalog: Catalog
) -> ParsedForm:
    """Return all arguments after an edit, and the error messages of fields.

    A field that was not changed keeps its argument as it is; an emptied one leaves it out, so that
    the default applies if there is one. Null is typed as None, and as `null` where that is no
    text. The tool's schema is not checked beyond the fields: see `ConfirmRequest.edited`.

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
    return {value: schema_text(title) for value, title in pairs}


def _with_default(field: FormField, default: Any) -> FormField:
    """Return the field with its default as the initial text.

    An invalid default is ignored, and so is one with invisible characters or beyond the visible
    part: the user would send something else than they read.
    """
    try:
        text = format_value(field, default) or ""
        is_valid = parse_value(field, text) == default
    except (NotJsonError, ValueError, RecursionError):
        return field
    shown = text.replace("\t", " ")  # a tab looks like a space in a field
    labels = [choice.label for choice in field.choices if choice.value == text]
    is_readable = len(text) <= _MOST_CHARS and (bool(labels) or visible(shown) == shown)
    is_readable = is_readable and all(len(label) <= _LABEL_CHARS for label in labels)
    return replace(field, typed=text) if is_valid and is_readable else field


def filled(form: Form, typed: Typed, catalog: Catalog) -> ParsedForm:
    """Return the values of a filled-in form; empty optional fields are omitted."""
    values: dict[str, JSON] = dict(form.given)
    errors: dict[str, str] = {}
    for field in form.fields:
        text = typed.get(field.name, "")
        if text is None or (text if field.is_text else text.strip()):
            try:
                values[field.name] = parse_value(field, text)
            except ValueError:
                errors[field.name] = catalog.text("form.wrong", expected=expected(field, catalog))
        elif field.is_required:
            key = "form.needed_or_null" if field.is_nullable else "form.needed"
            errors[field.name] = catalog.text(key)
    return ParsedForm(values={} if errors else values, errors=errors)


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
