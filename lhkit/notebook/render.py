"""State to HTML: the only place that writes any. Pure; everything foreign is escaped.

Words of the model go through `markdown`, when complete; while they stream they are plain text.
Names, arguments, results and summaries are shown as text, control characters made visible.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, assert_never

from lhkit.confirm.summary import pretty
from lhkit.locales import Catalog
from lhkit.notebook.items import (
    AssistantItem,
    CardItem,
    Ending,
    ErrorItem,
    Item,
    NoteItem,
    OptInItem,
    ToolItem,
    UserItem,
)
from lhkit.notebook.markdown import to_html
from lhkit.notebook.state import Connection, PanelState
from lhkit.vocab.json_values import NotJsonError, compact
from lhkit.vocab.printable import printable
from lhkit.vocab.results import ToolCancelled, ToolErr, ToolOk, envelope

MAX_CHARS = 20_000
"""An argument or a result is cut after this many characters: the page is to stay usable."""

_SHOWN_ARGS_CHARS = 80


@dataclass(frozen=True, slots=True)
class Fragment:
    """The HTML of one message. `stream` is its plain text so far, while more may follow."""

    html: str
    stream: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the screen shows: one fragment an item, and one more for the answer that streams."""

    items: tuple[Item, ...] = ()
    fragments: tuple[Fragment, ...] = ()
    status: str = ""
    controls: Mapping[str, bool]
    locale: str


def render(state: PanelState, catalog: Catalog, previous: View | None = None) -> View:
    """Return the view of `state`.

    Args:
        state: what to show.
        catalog: the texts.
        previous: an earlier view; fragments of items that did not change are taken from it.
    """
    known = previous if previous and previous.locale == catalog.locale else None
    old = known.items if known else ()
    reused = tuple(
        known.fragments[i]
        if known and i < len(old) and old[i] is item
        else Fragment(fragment(item, catalog))
        for i, item in enumerate(state.items)
    )
    return View(
        items=state.items,
        fragments=(*reused, *_live(state, catalog, known)),
        status=status(state, catalog),
        controls={
            "busy": state.is_busy,
            "can_retry": not state.is_busy and state.is_repeatable,
            "needs_opt_in": state.needs_opt_in,
            "asking": state.open_card is not None,
        },
        locale=catalog.locale,
    )


def _live(state: PanelState, catalog: Catalog, known: View | None) -> tuple[Fragment, ...]:
    if state.live is None or state.open_card is not None:
        return ()
    last = known.fragments[-1] if known and known.fragments else None
    if last is not None and last.stream == state.live:
        return (last,)
    body = f'<div class="lhkit-text lhkit-stream">{escape(state.live)}</div>'
    return (Fragment(_message("assistant", body, catalog, is_live=True), stream=state.live),)


def fragment(item: Item, catalog: Catalog) -> str:  # noqa: PLR0911 - one arm an item
    """Return the HTML of one item."""
    match item:
        case UserItem(text=text):
            return _message("user", _text(text), catalog)
        case AssistantItem():
            return _assistant(item, catalog)
        case ToolItem():
            return _tool(item, catalog)
        case CardItem():
            return _card(item, catalog)
        case NoteItem(text=text):
            return f'<div class="lhkit-message" data-role="system">{escape(text)}</div>'
        case ErrorItem():
            return _error(item, catalog)
        case OptInItem():
            return _opt_in(item, catalog)
        case _:
            assert_never(item)


def status(state: PanelState, catalog: Catalog) -> str:
    """Return the HTML of the status line: model, dialect, connection, tokens, latency."""
    identity = state.identity
    parts = [f'<span class="lhkit-dot" data-connection="{state.connection}"></span>']
    is_asking = state.open_card is not None
    words = [catalog.text(f"notebook.connection_{'asking' if is_asking else state.connection}")]
    if identity is not None:
        words = [printable(identity.model), *words]
        if identity.dialect:
            words.append(catalog.text("notebook.dialect", dialect=printable(identity.dialect)))
    figures = state.figures
    if state.has_figures and state.connection is not Connection.ANSWERING:
        if figures.prompt_tokens or figures.completion_tokens:
            words.append(
                catalog.text(
                    "notebook.tokens",
                    prompt=f"{figures.prompt_tokens:,}",
                    completion=f"{figures.completion_tokens:,}",
                )
            )
        if figures.duration_s is not None:
            words.append(catalog.text("notebook.latency", seconds=f"{figures.duration_s:.1f}"))
    return "".join([*parts, *(f"<span>{escape(word)}</span>" for word in words)])


def _message(role: str, body: str, catalog: Catalog, *, is_live: bool = False) -> str:
    who = escape(catalog.text(f"notebook.role_{role}"))
    live = ' data-live="true"' if is_live else ""
    return (
        f'<div class="lhkit-message" data-role="{role}"{live}>'
        f'<div class="lhkit-who">{who}</div>{body}</div>'
    )


def _text(text: str) -> str:
    return f'<div class="lhkit-text">{escape(text)}</div>'


def _assistant(item: AssistantItem, catalog: Catalog) -> str:
    body = f'<div class="lhkit-text lhkit-markdown">{to_html(item.text)}</div>'
    if item.ending is not Ending.COMPLETE:
        word = escape(catalog.text(f"notebook.ending_{item.ending}"))
        body += f'<div class="lhkit-ending">{word}</div>'
    return _message("assistant", body + _button("copy", "notebook.copy", catalog), catalog)


def _button(action: str, key: str, catalog: Catalog, css: str = "lhkit-mini") -> str:
    label = escape(catalog.text(key))
    return f'<button type="button" class="{css}" data-action="{action}">{label}</button>'


def _tool(item: ToolItem, catalog: Catalog) -> str:
    state, words = _tool_outcome(item, catalog)
    handler_s = item.trace.handler_s if item.trace and item.trace.ran else None
    time = "" if handler_s is None else f'<span class="lhkit-time">{handler_s * 1000:.0f} ms</span>'
    name = escape(printable(item.name) or "?")
    result = "" if item.result is None else _pretty(envelope(item.result))
    rows = [("arguments", _pretty(item.args)), ("result", result), ("raw", _cut(item.raw))]
    sections = "".join(
        f'<div class="lhkit-part">{escape(catalog.text(f"notebook.tool_{key}"))}</div>'
        f"<pre>{escape(text)}</pre>"
        for key, text in rows
        if text
    )
    return (
        f'<details class="lhkit-message lhkit-tool" data-role="tool" data-status="{state}">'
        f'<summary><span class="lhkit-tool-name">{name}</span>'
        f'<span class="lhkit-tool-args">{escape(_short(item.args))}</span>'
        f'<span class="lhkit-tool-status">{escape(words)}</span>{time}</summary>'
        f"{sections}</details>"
    )


def _tool_outcome(item: ToolItem, catalog: Catalog) -> tuple[str, str]:
    match item.result:
        case None:
            return "waiting", catalog.text("notebook.tool_waiting")
        case ToolOk():
            return "ok", catalog.text("notebook.tool_ok")
        case ToolErr(code=code):
            return "error", catalog.text("notebook.tool_error", code=printable(code))
        case ToolCancelled():
            return "cancelled", catalog.text("notebook.tool_cancelled")
        case _:
            assert_never(item.result)


def _card(item: CardItem, catalog: Catalog) -> str:
    outcome = item.outcome
    state = "open" if outcome is None else "allowed" if outcome.is_allowed else "denied"
    card = escape(item.card)
    said = "" if outcome is None else catalog.text(f"notebook.outcome_{outcome}")
    buttons = (
        f'<button type="button" class="lhkit-button lhkit-cancel" data-answer="cancel">'
        f"{escape(catalog.text('confirm.cancel'))}</button>"
        f'<button type="button" class="lhkit-button lhkit-primary lhkit-run" data-answer="run">'
        f"{escape(catalog.text('confirm.run'))}</button>"
    )
    role = 'role="alertdialog" tabindex="-1"' if outcome is None else 'role="group"'
    return (
        f'<div class="lhkit-confirm" {role} data-state="{state}" data-card="{card}"'
        f' aria-labelledby="lhkit-t-{card}" aria-describedby="lhkit-d-{card} lhkit-s-{card}">'
        f'<div class="lhkit-title" id="lhkit-t-{card}">'
        f"{escape(catalog.text('confirm.title'))}</div>"
        f'<div class="lhkit-description" id="lhkit-d-{card}"><code>'
        f"{escape(printable(item.request.tool))}</code> "
        f"{escape(printable(item.request.description))}</div>"
        f'<pre class="lhkit-summary" id="lhkit-s-{card}">'
        f"{escape(printable(item.request.summary))}</pre>"
        f'<div class="lhkit-row"><span class="lhkit-outcome" role="status">{escape(said)}</span>'
        f"{buttons if outcome is None else ''}</div></div>"
    )


def _error(item: ErrorItem, catalog: Catalog) -> str:
    detail = f'<pre class="lhkit-detail">{escape(printable(item.detail))}</pre>'
    retry = _button("retry", "notebook.retry", catalog, "lhkit-button")
    return (
        f'<div class="lhkit-message" data-role="error" role="alert">{escape(item.text)}'
        f"{detail if item.detail else ''}{retry if item.can_retry else ''}</div>"
    )


def _opt_in(item: OptInItem, catalog: Catalog) -> str:
    where = item.address or catalog.text("notebook.opt_in_nowhere")
    sentences = (
        catalog.text("notebook.opt_in_who", model=printable(item.model), address=printable(where)),
        catalog.text("notebook.opt_in_tools"),
        item.licence,
    )
    listed = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return (
        f'<div class="lhkit-opt-in"><div class="lhkit-title">'
        f"{escape(catalog.text('notebook.opt_in_title'))}</div><ul>{listed}</ul>"
        f'<div class="lhkit-row"><span></span>'
        f"{_button('opt_in', 'notebook.opt_in_button', catalog, 'lhkit-button lhkit-primary')}"
        f"</div></div>"
    )


def _short(args: Any) -> str:
    text = " ".join(_pretty_line(args)[:MAX_CHARS].split())
    return text if len(text) <= _SHOWN_ARGS_CHARS else text[:_SHOWN_ARGS_CHARS] + "…"


def _pretty_line(args: Any) -> str:
    if isinstance(args, Mapping):
        return ", ".join(f"{printable(str(k))}: {_value(v)}" for k, v in args.items())
    return _value(args)


def _value(value: Any) -> str:
    if isinstance(value, str):
        return printable(value)
    try:
        return printable(compact(value))
    except NotJsonError:
        return printable(repr(value))


def _pretty(value: Any) -> str:
    if not isinstance(value, Mapping):
        return _cut(_value(value))
    return _cut(pretty(value))


def _cut(text: str) -> str:
    cut = text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]} … [{len(text):,}]"
    return printable(cut)
