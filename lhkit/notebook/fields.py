"""Form fields and buttons as HTML, for cards and boards; pure. Everything foreign is escaped."""

from dataclasses import dataclass
from html import escape

from lhkit.confirm.form import FieldKind, FormField, hint
from lhkit.locales import Catalog
from lhkit.text import visible

LINE_CHARS = 40
"""A longer text does not fit into one line of a narrow page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldEntry:
    """How a field stands in a page: its name there, what is typed, more attributes, what is wrong.

    `telling` is the id of the line that says what the field is for; none without it.
    """

    name: str
    typed: str = ""
    more: str = ""
    fault: str = ""
    telling: str = ""


def field_html(field: FormField, entry: FieldEntry, catalog: Catalog) -> str:
    """Return a field with its label, what is to be known of it, and what is wrong with it."""
    mark = " *" if field.is_required else ""
    label = escaped(field.label) + mark
    about = _about(field, entry, catalog)
    told = f' aria-describedby="{escape(entry.telling)}"' if entry.telling and about else ""
    told += ' aria-invalid="true"' if entry.fault else ""
    told += ' aria-required="true"' if field.is_required else ""
    common = f'class="lhkit-field" name="{escape(entry.name)}" autocomplete="off"{told}{entry.more}'
    return f"<label>{label} {_control(field, common, entry.typed, catalog)}</label>{about}"


def _control(field: FormField, common: str, typed: str, catalog: Catalog) -> str:
    if field.choices:
        known = [each.value for each in field.choices]
        options = _option("", is_chosen=typed == "", label=catalog.text("form.left_out"))
        options += "".join(
            _option(each.value, is_chosen=each.value == typed, label=each.label)
            for each in field.choices
        )
        options += _option(typed, is_chosen=True) if typed and typed not in known else ""
        return f"<select {common}>{options}</select>"
    if field.kind is FieldKind.JSON:
        return f'<textarea {common} rows="3">{escape(typed)}</textarea>'
    if len(typed) > LINE_CHARS or "\n" in typed:  # a line would show its beginning only
        rows = sum(1 + len(line) // (LINE_CHARS // 2) for line in typed.split("\n"))
        return f'<textarea {common} rows="{rows}">\n{escape(typed)}</textarea>'
    mode = _MODES.get(field.kind) or _MODES.get(field.format, "")
    return f'<input {common}{mode} value="{escape(typed)}">'


_MODES = {
    FieldKind.INTEGER: ' inputmode="numeric"',
    FieldKind.NUMBER: ' inputmode="decimal"',
    "email": ' inputmode="email"',
    "uri": ' inputmode="url"',
}


def _about(field: FormField, entry: FieldEntry, catalog: Catalog) -> str:
    lines = [
        f'<span class="lhkit-about">{escaped(text)}</span>'
        for text in (field.about, hint(field, catalog))
        if text
    ]
    if entry.fault:
        lines.append(
            f'<span class="lhkit-about" data-fault role="alert">{escaped(entry.fault)}</span>'
        )
    if not lines:
        return ""
    name = f' id="{escape(entry.telling)}"' if entry.telling else ""
    return f'<span class="lhkit-abouts"{name}>{"".join(lines)}</span>'


def _option(value: str, *, is_chosen: bool, label: str | None = None) -> str:
    """Return a line to choose."""
    chosen = " selected" if is_chosen else ""
    shown = value if label is None else label
    return f'<option value="{escape(value)}"{chosen}>{escaped(shown)}</option>'


def escaped(text: str, *, keep_emoji: bool = False) -> str:
    """Return text for HTML, with what cannot be seen as escapes, as `lhkit.text.visible` says."""
    return escape(visible(text, keep_emoji=keep_emoji))
