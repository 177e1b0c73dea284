"""Render the copy of a panel that a notebook file keeps: HTML without scripts and buttons. Pure.

For viewers without a kernel: nbconvert, a code host, an editor. Foreign text is escaped as in
`render`; values and the whole page are limited, because a notebook file stores all of it.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any, assert_never

from lhkit.base.json_values import json_or_repr
from lhkit.base.locales import Catalog
from lhkit.base.text import visible, whole_unicode
from lhkit.chat.truth import truth_lines
from lhkit.confirm.summary import pretty
from lhkit.conversation.messages import ModelMessage, SystemMessage, ToolCallMessage, UserMessage
from lhkit.conversation.tool_results import result_to_dict
from lhkit.notebook.panel.markdown import escaped, normal_lines, to_html
from lhkit.notebook.panel.render import changes_html, tool_status, truth_html
from lhkit.notebook.panel.state import (
    BrokenItem,
    CardItem,
    ErrorItem,
    Item,
    OptInRequested,
    PanelState,
    TruthItem,
)

MAX_VALUE_CHARS = 4_000
"""Messages, arguments and results are cut after this many characters."""

MAX_PAGE_CHARS = 200_000
"""Earlier messages are left out beyond this much HTML of a conversation."""

_CLASSES = "lhkit-saved mathjax_ignore tex2jax_ignore"  # dollars in a text are no formula
_SHEET = (Path(__file__).parents[1] / "static" / "saved.css").read_text(encoding="utf-8")
_STYLE = re.sub(r"/\*.*?\*/\n", "", _SHEET, flags=re.DOTALL)


def saved_page(parts: Sequence[str], catalog: Catalog, *, note: str = "") -> str:
    """Return the HTML of a copy; empty and invisible without parts.

    Args:
        parts: HTML of its parts, from top to bottom.
        catalog: the locale's texts.
        note: a sentence above the parts.
    """
    shown = [f'<p class="lhkit-note">{escaped(note)}</p>' if note else "", *parts]
    more = "" if parts else " data-empty"
    return whole_unicode(
        f'<div class="{_CLASSES}" lang="{escape(catalog.locale)}"{more}><style>{_STYLE}</style>'
        f"{''.join(shown) if parts else ''}</div>"
    )


def saved_conversation(state: PanelState, catalog: Catalog) -> list[str]:
    """Return the HTML of a conversation, item by item; empty before its first message."""
    items = state.items
    if not any(isinstance(item, UserMessage | CardItem) for item in items):
        return []
    return newest(items, lambda item: _item(item, catalog), catalog)


def newest(
    things: Sequence[Any],
    render: Callable[[Any], str],
    catalog: Catalog,
    *,
    note: str = '<p class="lhkit-note">{}</p>',
) -> list[str]:
    """Return the last things that fit, rendered, after a note on how many are left out."""
    shown: list[str] = []
    size = 0
    for thing in reversed(things):
        html = render(thing)
        size += len(html)
        if shown and size > MAX_PAGE_CHARS:
            count = f"{len(things) - len(shown):,}"
            shown.append(note.format(escape(catalog.text("notebook.saved_earlier", count=count))))
            break
        shown.append(html)
    return shown[::-1]


def saved_lines(lines: Iterable[str], catalog: Catalog) -> str:
    """Return the lines of a conversation as the text of a copy, with the same limits."""
    cut_lines = [_cut(line) for line in lines]
    return whole_unicode("\n".join(newest(cut_lines, str, catalog, note="{}")))


def _item(item: Item, catalog: Catalog) -> str:
    match item:
        case UserMessage(text=text):
            body = escaped(_cut(normal_lines(text)), keep_emoji=True)
            return _message("user", f'<pre class="lhkit-text">{body}</pre>', catalog)
        case ModelMessage(text=text, stopped=is_stopped):
            return _reply(text, "stopped" if is_stopped else "", catalog)
        case BrokenItem(text=text):
            return _reply(text, "broken", catalog)
        case ToolCallMessage():
            return _tool(item, catalog)
        case CardItem():
            return _card(item, catalog)
        case SystemMessage(text=text):
            return f'<p class="lhkit-note">{escaped(_cut(text), keep_emoji=True)}</p>'
        case ErrorItem(text=text, detail=detail):
            return f"<p><b>{escaped(_cut(text))}</b></p>{_pre(detail)}"
        case TruthItem(calls=calls, claim=claim):
            lines = truth_lines(calls, catalog)
            return truth_html(lines, claim, catalog)
        case OptInRequested():
            return ""
        case _:
            assert_never(item)


def _message(role: str, body: str, catalog: Catalog) -> str:
    return f"<p><b>{escape(catalog.text(f'notebook.role_{role}'))}</b></p>{body}"


def _reply(text: str, ending: str, catalog: Catalog) -> str:
    body = f"<div>{to_html(_cut(text))}</div>"
    if ending:
        body += f"<p><i>{escape(catalog.text(f'notebook.ending_{ending}'))}</i></p>"
    return _message("assistant", body, catalog)


def _tool(item: ToolCallMessage, catalog: Catalog) -> str:
    """Return a call as it ran; without its time, which differs from run to run."""
    status = tool_status(item.outcome, catalog)[1]
    edited = f" · {escape(catalog.text('confirm.edited'))}" if item.is_edited else ""
    result = "" if item.outcome is None else _value(result_to_dict(item.outcome.result))
    return (
        f"<details><summary><code>{escaped(item.name or '?')}</code> · {escape(status)}{edited}"
        f"</summary>{_pre(_value(item.effective_args))}{_pre(result)}</details>"
    )


def _card(item: CardItem, catalog: Catalog) -> str:
    title = escape(catalog.text("confirm.title" if item.form is None else "form.title"))
    key = f"notebook.outcome_{item.outcome}" if item.outcome else "notebook.saved_open"
    texts = item.request.texts if item.form is None else (item.request.summary,)
    return (
        f'<div class="lhkit-asked"><p>{title} <b>{escape(catalog.text(key))}</b></p>'
        f"<p><code>{escaped(item.request.tool)}</code> "
        f"{escaped(_cut(item.request.heading))}</p>{changes_html(item, catalog)}"
        f"{''.join(map(_pre, texts))}{_pre(item.reason)}</div>"
    )


def _value(value: Any) -> str:
    return pretty(value) if isinstance(value, dict) else json_or_repr(value)


def _pre(text: str) -> str:
    return f"<pre>{escape(visible(_cut(text)))}</pre>" if text else ""


def _cut(text: str) -> str:
    if len(text) <= MAX_VALUE_CHARS:
        return text
    return f"{text[:MAX_VALUE_CHARS]} … [{len(text):,}]"
