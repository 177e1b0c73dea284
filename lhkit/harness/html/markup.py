"""Elements of HTML that are always escaped; nothing here knows of runs.

Text that is not `Html` is made printable (control and direction characters shown as escapes), cut
if it is endless, and escaped. `Html` is made here only.
"""

import json
from collections.abc import Iterable
from html import escape
from typing import Any

from lhkit.text import printable

MAX_CHARS = 20_000
"""A single text is cut after this many characters: a model that repeats itself has no end."""

_SCROLLS_CHARS = 1_000
_LINE_CHARS = 100


class Html(str):
    """Markup that may be sent as it is; joined to plain text it becomes plain text again."""

    __slots__ = ()

    def __html__(self) -> str:
        """Tell jinja2 that this is escaped already."""
        return str(self)


def text(value: str) -> Html:
    """Return plain text as markup that can only be read, never run."""
    cut = value if len(value) <= MAX_CHARS else f"{value[:MAX_CHARS]} … [{len(value):,}]"
    return Html(escape(printable(cut), quote=True))


def join(parts: Iterable[str | None]) -> Html:
    """Return the parts one after another; plain ones are escaped, None is left out."""
    return Html("".join(part if isinstance(part, Html) else text(part) for part in parts if part))


def tag(name: str, *children: str | None, **attributes: str | bool | None) -> Html:
    """Return one element.

    Args:
        name: the element's name.
        children: `Html`, or plain text that is escaped; None is left out.
        attributes: `class_` stands for `class`, `data_ac` for `data-ac`; True is a bare attribute,
            None and False are left out, plain text is escaped.
    """
    written = "".join(map(_attribute, attributes.items()))
    return Html(f"<{name}{written}>{join(children)}</{name}>")


def _attribute(item: tuple[str, str | bool | None]) -> str:
    name, value = item[0].rstrip("_").replace("_", "-"), item[1]
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{join([value])}"'


def label(words: str) -> Html:
    """Return a caption of ours, which a search in the texts passes over."""
    return tag("b", words, class_="lhr-k")


def chip(words: str, kind: str = "") -> Html:
    """Return a small mark; its colour says nothing that its words do not say."""
    return tag("span", words, class_=f"lhr-chip {kind}".rstrip())


def block(value: str, kind: str = "") -> Html:
    """Return text as it stands, in lines; a long one scrolls, and the keyboard reaches it."""
    is_long = len(value) > _SCROLLS_CHARS
    return tag("pre", value, class_=f"lhr-text {kind}".rstrip(), tabindex="0" if is_long else None)


def json_text(value: Any) -> str:
    """Return a JSON value for people: on one line if it is short, else indented."""
    line = json.dumps(value, ensure_ascii=False, default=repr)
    if len(line) <= _LINE_CHARS:
        return line
    return json.dumps(value, ensure_ascii=False, indent=2, default=repr)
