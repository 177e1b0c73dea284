"""Render the state of a panel as HTML, and the patches from one view to the next. Pure.

Foreign text is escaped, and its control and direction characters are made visible. Complete
replies are rendered as Markdown; streaming ones, names, arguments and results as plain text.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, TypeAlias, assert_never

from lhkit.base.json_values import compact, json_or_repr
from lhkit.base.locales import Catalog
from lhkit.base.text import NOTHING, visible
from lhkit.chat.truth import TruthLine, claim_text, truth_lines
from lhkit.confirm.decision import changed_arguments
from lhkit.confirm.form import FieldKind, Form, FormField, hint
from lhkit.confirm.summary import pretty
from lhkit.conversation.messages import (
    FalseReplyClaim,
    GateOutcome,
    ModelMessage,
    SystemMessage,
    ToolCallMessage,
    ToolCallOutcome,
    UserMessage,
)
from lhkit.conversation.tool_results import ToolCancelled, ToolErr, ToolOk, result_to_dict
from lhkit.notebook.panel.markdown import escaped, normal_lines, to_html
from lhkit.notebook.panel.state import (
    WHY_CHARS,
    BrokenItem,
    CardItem,
    ErrorItem,
    Item,
    ModelStatus,
    OptInRequested,
    PanelState,
    TruthItem,
)

MAX_VALUE_CHARS = 20_000
"""Arguments and results are cut after this many characters, to keep the page usable."""

_SHOWN_ARGS_CHARS = 80


@dataclass(frozen=True, slots=True)
class Fragment:
    """The HTML of one message; `stream` is its plain text so far while it streams."""

    html: str
    stream: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a page shows: a fragment per item, and one for a streaming reply."""

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
        previous: an earlier view, whose fragments of unchanged items are reused.
    """
    known = previous if previous and previous.locale == catalog.locale else None
    old = known.items if known else ()
    items = state.items
    reused = tuple(
        known.fragments[i]
        if known and i < len(old) and _is_same(old[i], item)
        else Fragment(fragment(item, catalog))
        for i, item in enumerate(items)
    )
    return View(
        items=items,
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


def _is_same(old: Item, item: Item) -> bool:
    """Compare by identity for speed; text before a call is a new value every time."""
    return old is item or (isinstance(item, ModelMessage) and old == item)


def _live(state: PanelState, catalog: Catalog, known: View | None) -> tuple[Fragment, ...]:
    if state.live is None or state.open_card is not None:
        return ()
    text = visible(normal_lines(state.live), keep_emoji=True)
    last = known.fragments[-1] if known and known.fragments else None
    if last is not None and last.stream == text:
        return (last,)
    body = f'<div class="lhkit-text lhkit-stream">{escape(text)}</div>'
    return (Fragment(_message("assistant", body, catalog, is_live=True), stream=text),)


def fragment(item: Item, catalog: Catalog) -> str:
    """Return the HTML of one item."""
    match item:
        case UserMessage(text=text):
            body = escaped(normal_lines(text), keep_emoji=True)
            return _message("user", f'<div class="lhkit-text">{body}</div>', catalog)
        case ModelMessage(text=text, stopped=is_stopped):
            return _assistant(text, "stopped" if is_stopped else "", catalog)
        case BrokenItem(text=text):
            return _assistant(text, "broken", catalog)
        case ToolCallMessage():
            return _tool(item, catalog)
        case CardItem():
            return _card(item, catalog)
        case SystemMessage(text=text):
            note = escaped(text, keep_emoji=True)
            return f'<div class="lhkit-message" data-role="system">{note}</div>'
        case ErrorItem():
            return _error(item, catalog)
        case TruthItem(calls=calls, claim=claim):
            lines = truth_lines(calls, catalog)
            return truth_html(lines, claim, catalog)
        case OptInRequested():
            return _opt_in(item, catalog)
        case _:
            assert_never(item)


def truth_html(lines: Sequence[TruthLine], claim: FalseReplyClaim | None, catalog: Catalog) -> str:
    """Return the lines of truth under a reply, and the mark of a reply that contradicts them."""
    shown = [f'<div data-kind="{line.kind}">{escape(line.text)}</div>' for line in lines]
    if claim is not None:
        how = 'role="status" data-guess' if claim.is_guess else 'role="alert"'
        shown.append(f'<div class="lhkit-claim" {how}>{escape(claim_text(claim, catalog))}</div>')
    return f'<div class="lhkit-truth">{"".join(shown)}</div>'


def status(state: PanelState, catalog: Catalog) -> str:
    """Return the HTML of the status line: model, dialect, connection, tokens, latency."""
    identity = state.identity
    dot = f'<span class="lhkit-dot" data-connection="{state.connection}"></span>'
    is_asking = state.open_card is not None
    words = [catalog.text(f"notebook.connection_{'asking' if is_asking else state.connection}")]
    if identity is not None:
        words = [visible(identity.model), *words]
        if identity.dialect:
            words.append(catalog.text("notebook.dialect", dialect=visible(identity.dialect)))
    figures = state.figures
    if state.has_figures and state.connection is not ModelStatus.ANSWERING:
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
    return dot + "".join(f"<span>{escape(word)}</span>" for word in words)


def _message(role: str, body: str, catalog: Catalog, *, is_live: bool = False) -> str:
    who = escape(catalog.text(f"notebook.role_{role}"))
    live = ' data-live="true"' if is_live else ""
    return (
        f'<div class="lhkit-message" data-role="{role}"{live}>'
        f'<div class="lhkit-who">{who}</div>{body}</div>'
    )


def _assistant(text: str, ending: str, catalog: Catalog) -> str:
    body = f'<div class="lhkit-text lhkit-markdown">{to_html(text)}</div>'
    if ending:
        word = escape(catalog.text(f"notebook.ending_{ending}"))
        body += f'<div class="lhkit-ending">{word}</div>'
    return _message("assistant", body + _button("copy", "notebook.copy", catalog), catalog)


def _button(action: str, key: str, catalog: Catalog, css: str = "lhkit-mini") -> str:
    label = escape(catalog.text(key))
    return f'<button type="button" class="{css}" data-action="{action}">{label}</button>'


def _tool(item: ToolCallMessage, catalog: Catalog) -> str:
    outcome = item.outcome
    state, words = tool_status(outcome, catalog)
    handler_s = outcome.handler_s if outcome and outcome.ran else None
    time = "" if handler_s is None else f'<span class="lhkit-time">{handler_s * 1000:.0f} ms</span>'
    name = escaped(item.name or "?")
    result = "" if outcome is None else _pretty(result_to_dict(outcome.result))
    rows = [
        ("arguments", _pretty(item.effective_args)),
        ("result", result),
        ("raw", visible(cut(item.raw))),
    ]
    sections = "".join(
        f'<div class="lhkit-part">{escape(catalog.text(f"notebook.tool_{key}"))}</div>'
        f"<pre>{escape(text)}</pre>"
        for key, text in rows
        if text
    )
    return (
        f'<details class="lhkit-message lhkit-tool" data-role="tool" data-status="{state}">'
        f'<summary><span class="lhkit-tool-name">{name}</span>'
        f'<span class="lhkit-tool-args">{escape(_short(item.effective_args))}</span>'
        f'<span class="lhkit-tool-status">{escape(words)}</span>{time}</summary>'
        f"{sections}</details>"
    )


def tool_status(outcome: ToolCallOutcome | None, catalog: Catalog) -> tuple[str, str]:
    """Return the state of a call, and its words."""
    if outcome is None:
        return "waiting", catalog.text("notebook.tool_waiting")
    unasked = f" · {catalog.text('policy.ran')}" if outcome.gate is GateOutcome.POLICY else ""
    match outcome.result:
        case ToolOk():
            return "ok", catalog.text("notebook.tool_ok") + unasked
        case ToolErr(code=code):
            return "error", catalog.text("notebook.tool_error", code=visible(code)) + unasked
        case ToolCancelled():
            return "cancelled", catalog.text("notebook.tool_cancelled") + unasked
        case _:
            assert_never(outcome.result)


def _card(item: CardItem, catalog: Catalog) -> str:
    outcome, form, card = item.outcome, item.form, escape(item.card)
    state = "open" if outcome is None else "allowed" if outcome.is_allowed else "denied"
    if outcome is not None:
        title, body = _card_title(item), _settled(item, catalog)
    elif item.edit is not None:
        title, body = "confirm.edit_title", _edit_form(item, item.edit, catalog)
    else:
        title, body = _card_title(item), _open_card(item, catalog)
    # not an alert for a form: screen readers should go through its fields
    has_fields = item.edit is not None or (form is not None and form.fields)
    role = "dialog" if has_fields else "alertdialog"
    role = f'role="{role}" tabindex="-1"' if outcome is None else 'role="group"'
    return (
        f'<div class="lhkit-confirm" {role}'
        f' data-state="{state}" data-card="{card}" data-attempt="{item.attempts}"'
        f' aria-labelledby="lhkit-t-{card}" aria-describedby="lhkit-d-{card} lhkit-s-{card}">'
        f'<div class="lhkit-title" id="lhkit-t-{card}">{escape(catalog.text(title))}</div>'
        f'<div class="lhkit-description" id="lhkit-d-{card}"><code>'
        f"{escaped(item.request.tool)}</code> "
        f"{escaped(item.request.heading)}</div>"
        f"{body}</div>"
    )


def _card_title(item: CardItem) -> str:
    return "confirm.title" if item.form is None else "form.title"


def _settled(item: CardItem, catalog: Catalog) -> str:
    reason = f'<div class="lhkit-why">{escaped(item.reason)}</div>' if item.reason else ""
    outcome = escape(catalog.text(f"notebook.outcome_{item.outcome}"))
    return (
        f'<div id="lhkit-s-{escape(item.card)}">{changes_html(item, catalog)}'
        f'<pre class="lhkit-summary">{escaped(item.request.summary)}</pre></div>{reason}'
        f'<div class="lhkit-row"><span class="lhkit-outcome" role="status">{outcome}</span></div>'
    )


def _open_card(item: CardItem, catalog: Catalog) -> str:
    card, request = escape(item.card), item.request
    texts = request.texts if item.form is None else (request.summary,)
    fields = _form(item, item.form, catalog) if item.form is not None else ""
    error = request.error or item.errors.get("", "")
    unseen = escape(catalog.text("confirm.unseen"))
    shown = "".join(f'<pre class="lhkit-summary">{_folded(text, catalog)}</pre>' for text in texts)
    changes = changes_html(item, catalog)
    return (
        f'<div id="lhkit-s-{card}">{changes}{shown}</div>{fields}{_alert(error)}'
        f'<div class="lhkit-unseen" id="lhkit-u-{card}" hidden>{unseen}</div>'
        f'<div class="lhkit-row"><span class="lhkit-outcome" role="status"></span>'
        f"{_why(catalog) if item.form is None else ''}{_card_buttons(item, catalog)}</div>"
    )


def _alert(text: str) -> str:
    return (
        f'<div class="lhkit-notice" data-error role="alert">{escaped(text)}</div>' if text else ""
    )


def _why(catalog: Catalog) -> str:
    label = escape(catalog.text("confirm.reason"))
    return (
        f'<input class="lhkit-field lhkit-why" data-why autocomplete="off" maxlength="{WHY_CHARS}"'
        f' placeholder="{label}" aria-label="{label}">'
    )


def changes_html(item: CardItem, catalog: Catalog) -> str:
    """Return the edited arguments, one per line; the new values follow in full."""
    old, new = item.proposed, item.request.args
    if old is None:
        return ""
    lines = [
        f"<div><code>{escaped(name)}</code> <del>{_brief(old, name)}</del> → "
        f"<ins>{_brief(new, name)}</ins></div>"
        for name in changed_arguments(old, new)
    ]
    label = escape(catalog.text("confirm.edited"))
    return f'<div class="lhkit-changes"><span>{label}</span><div>{"".join(lines)}</div></div>'


def _brief(args: Mapping[str, Any], name: str) -> str:
    text = visible(compact(args[name])) if name in args else NOTHING
    is_long = len(text) > _SHOWN_ARGS_CHARS
    return escape(text[:_SHOWN_ARGS_CHARS] + "…" if is_long else text)


def _edit_form(item: CardItem, edit: Form, catalog: Catalog) -> str:
    return (
        f'<div id="lhkit-s-{escape(item.card)}">{_form(item, edit, catalog)}</div>'
        f"{_alert(item.errors.get('', ''))}"
        f'<div class="lhkit-row"><span class="lhkit-outcome" role="status"></span>'
        f"{_card_buttons(item, catalog)}</div>"
    )


FOLD_CHARS = 400
"""A longer line of an open card is folded after half of this length."""

FOLD_LINES = 60
"""A card with more lines is folded after half of them."""

_END = "<span data-end></span>"
"""Must have been on the screen before the user can accept."""


def _folded(text: str, catalog: Catalog) -> str:
    """Return a text of an open card, with long lines and many lines folded.

    The page accepts only after all of it was unfolded, and every `data-end` was in view.
    """
    lines = text.split("\n")
    shown = [_folded_line(line, catalog) for line in lines]
    if len(lines) <= FOLD_LINES:
        return "\n".join(shown)
    half = FOLD_LINES // 2
    label = catalog.text("confirm.show_lines", count=f"{len(lines):,}")
    return "\n".join(shown[:half]) + _fold("\n" + "\n".join(shown[half:]), label)


def _folded_line(line: str, catalog: Catalog) -> str:
    shown = visible(line)
    if len(shown) <= FOLD_CHARS:
        return escape(shown) + _END
    half = FOLD_CHARS // 2
    pieces = [escape(shown[start : start + half]) + _END for start in range(0, len(shown), half)]
    label = catalog.text("confirm.show_chars", count=f"{len(line):,}")
    return pieces[0] + _fold("".join(pieces[1:]), label)


def _fold(rest: str, label: str) -> str:
    """Return the button that unfolds `rest`, and `rest`, which then gets the focus."""
    return (
        f'<button type="button" class="lhkit-button lhkit-fold" data-fold aria-expanded="false">'
        f'{escape(label)}</button><span class="lhkit-rest" tabindex="-1" hidden>{rest}</span>'
    )


def _card_buttons(item: CardItem, catalog: Catalog) -> str:
    if item.edit is not None:
        answers = {
            "back": ("lhkit-back", "confirm.back"),
            "check": ("lhkit-primary lhkit-check", "confirm.check"),
        }
    elif item.form is not None:
        answers = {
            "cancel": ("lhkit-cancel", "confirm.cancel"),
            "decline": ("lhkit-decline", "form.decline"),
            "send": ("lhkit-primary lhkit-run", "form.send"),
        }
    else:
        answers = {
            "cancel": ("lhkit-cancel", "confirm.cancel"),
            "edit": ("lhkit-edit", "confirm.edit"),
            "run": ("lhkit-primary lhkit-run", "confirm.run"),
        }
        if item.request.revise is None:
            del answers["edit"]
    # the page enables it when all of the card has been on the screen
    unseen = f' aria-disabled="true" aria-describedby="lhkit-u-{escape(item.card)}"'
    return "".join(
        f'<button type="button" class="lhkit-button {css}" data-answer="{how}"'
        f"{unseen if how in {'run', 'send'} else ''}>"
        f"{escape(catalog.text(key))}</button>"
        for how, (css, key) in answers.items()
    )


def _form(item: CardItem, form: Form, catalog: Catalog) -> str:
    secret = catalog.text("form.secret") if form.is_secret else ""
    fields = "".join(
        field_html(
            field,
            FieldEntry(
                name=field.name,
                typed=field.typed,
                error=item.errors.get(field.name, ""),
                about_id=f"lhkit-f-{item.card}-{number}",
            ),
            catalog,
        )
        + _END
        for number, field in enumerate(form.fields)
    )
    star = (
        escape(catalog.text("form.star")) if any(field.is_required for field in form.fields) else ""
    )
    return (
        f"{_alert(secret)}"
        f'<div class="lhkit-fill">{fields}<span class="lhkit-about">{star}</span></div>'
    )


def _error(item: ErrorItem, catalog: Catalog) -> str:
    detail = f'<pre class="lhkit-detail">{escaped(catalog.translate(item.detail))}</pre>'
    retry = _button("retry", "notebook.retry", catalog, "lhkit-button")
    return (
        f'<div class="lhkit-message" data-role="error" role="alert">{escaped(item.text)}'
        f"{detail if item.detail else ''}{retry if item.can_retry else ''}</div>"
    )


def opt_in_sentences(questions: Sequence[OptInRequested], catalog: Catalog) -> list[str]:
    """Return the notice that the user sees before text is sent to these models."""
    nowhere = catalog.text("notebook.opt_in_nowhere")
    asked = catalog.text("notebook.opt_in_tools")
    return [
        *(
            catalog.text("notebook.opt_in_who", model=ask.model, address=ask.address or nowhere)
            for ask in questions
        ),
        *([ask.policy for ask in questions if ask.policy] or [asked]),
        *dict.fromkeys(ask.licence for ask in questions),
    ]


def _opt_in(item: OptInRequested, catalog: Catalog) -> str:
    sentences = opt_in_sentences([item], catalog)
    listed = "".join(f"<li>{escaped(sentence)}</li>" for sentence in sentences)
    return (
        f'<div class="lhkit-opt-in"><div class="lhkit-title">'
        f"{escape(catalog.text('notebook.opt_in_title'))}</div><ul>{listed}</ul>"
        f'<div class="lhkit-row"><span></span>'
        f"{_button('opt_in', 'notebook.opt_in_button', catalog, 'lhkit-button lhkit-primary')}"
        f"</div></div>"
    )


def _short(args: Any) -> str:
    if isinstance(args, Mapping):
        line = ", ".join(f"{visible(str(name))}: {_value(value)}" for name, value in args.items())
    else:
        line = _value(args)
    text = " ".join(line[:MAX_VALUE_CHARS].split())
    return text if len(text) <= _SHOWN_ARGS_CHARS else text[:_SHOWN_ARGS_CHARS] + "…"


def _value(value: Any) -> str:
    return visible(value if isinstance(value, str) else json_or_repr(value))


def _pretty(value: Any) -> str:
    return visible(cut(pretty(value) if isinstance(value, Mapping) else _value(value)))


def cut(text: str) -> str:
    """Return at most `MAX_VALUE_CHARS` of a text, with its length if it is longer."""
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]} … [{len(text):,}]"


Patch: TypeAlias = list[Any]
"""`["set", index, html]` (also one past the end), `["append", index, text]`, `["cut", length]`."""


def patches(old: View | None, new: View) -> list[Patch]:
    """Return the changes from `old` to `new`; a streaming reply is appended to."""
    before = old.fragments if old else ()
    changes: list[Patch] = []
    if len(new.fragments) < len(before):
        changes.append(["cut", len(new.fragments)])
    for index, fragment in enumerate(new.fragments):
        earlier = before[index] if index < len(before) else None
        if earlier is fragment:
            continue
        more = _growth(earlier, fragment)
        changes.append(["set", index, fragment.html] if more is None else ["append", index, more])
    return changes


def _growth(before: Fragment | None, after: Fragment) -> str | None:
    """Return the text appended to a streaming reply; None for any other change."""
    if before is None or before.stream is None or after.stream is None:
        return None
    is_longer = after.stream.startswith(before.stream)
    return after.stream[len(before.stream) :] if is_longer else None


LINE_CHARS = 40
"""The most characters that fit into one line of a narrow page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldEntry:
    """A form field in a page.

    Args:
        name: its name in the page.
        typed: its input; None for null.
        more: further HTML attributes.
        error: the validation error.
        about_id: the HTML id of its description.
    """

    name: str
    typed: str | None = ""
    more: str = ""
    error: str = ""
    about_id: str = ""


def field_html(field: FormField, entry: FieldEntry, catalog: Catalog) -> str:
    """Return a field with its label, description and validation error."""
    mark = " *" if field.is_required else ""
    label = escaped(field.label) + mark
    about = _about(field, entry, catalog)
    aria = f' aria-describedby="{escape(entry.about_id)}"' if entry.about_id and about else ""
    aria += ' aria-invalid="true"' if entry.error else ""
    aria += ' aria-required="true"' if field.is_required else ""
    common = f'class="lhkit-field" name="{escape(entry.name)}" autocomplete="off"{aria}{entry.more}'
    control = _control(field, common, entry.typed, catalog)
    return f"<label>{label} {control}</label>{_null_box(field, entry, catalog)}{about}"


def _null_box(field: FormField, entry: FieldEntry, catalog: Catalog) -> str:
    """Return the box that makes the value null; a list has an option, and JSON says it itself."""
    if not field.is_nullable or _is_list(field) or field.kind is FieldKind.JSON:
        return ""
    checked = " checked" if entry.typed is None else ""
    name = f"{field.label}: {catalog.text('form.null')}"
    return (
        f'<label class="lhkit-null"><input type="checkbox" data-null{checked}'
        f' aria-label="{escaped(name)}"> {escape(catalog.text("form.null"))}</label>'
    )


def _is_list(field: FormField) -> bool:
    return bool(field.choices) or field.kind is FieldKind.CHOICE


def _control(field: FormField, common: str, typed: str | None, catalog: Catalog) -> str:
    if _is_list(field):
        known = [choice.value for choice in field.choices]
        options = _option("", is_chosen=typed == "", label=catalog.text("form.left_out"))
        options += "".join(
            _option(choice.value, is_chosen=choice.value == typed, label=choice.label)
            for choice in field.choices
        )
        options += _option(typed, is_chosen=True) if typed and typed not in known else ""
        if field.is_nullable:
            label = catalog.text("form.null")
            options += _option("null", is_chosen=typed is None, label=label, more=" data-null")
        return f"<select {common}>{options}</select>"
    typed = typed or ""
    if field.kind is FieldKind.JSON:
        rows = min(max(3, typed.count("\n") + 1), _MOST_ROWS)
        return f'<textarea {common} rows="{rows}">\n{escape(typed)}</textarea>'
    if len(typed) > LINE_CHARS or "\n" in typed:  # a one-line input would show only its beginning
        rows = sum(1 + len(line) // (LINE_CHARS // 2) for line in typed.split("\n"))
        return f'<textarea {common} rows="{rows}">\n{escape(typed)}</textarea>'
    mode = _MODES.get(field.kind) or _MODES.get(field.format, "")
    if _is_day(field, typed):
        mode = ' type="date"'
    return f'<input {common}{mode} value="{escape(typed)}">'


_MOST_ROWS = 16


def _is_day(field: FormField, typed: str | None) -> bool:
    """Return whether a date field can show the text; it would show any other as empty."""
    is_day = re.fullmatch(r"(\d{4}-\d{2}-\d{2})?", typed or "") is not None
    return field.format == "date" and field.kind is FieldKind.TEXT and is_day


_MODES = {
    FieldKind.INTEGER: ' inputmode="numeric"',
    FieldKind.NUMBER: ' inputmode="decimal"',
    "email": ' inputmode="email"',
    "uri": ' inputmode="url"',
}


def _about(field: FormField, entry: FieldEntry, catalog: Catalog) -> str:
    default = catalog.text("form.default", value=field.default) if field.default else ""
    expected_text = "" if _is_day(field, entry.typed) else hint(field, catalog)
    lines = [
        f'<span class="lhkit-about">{escaped(text)}</span>'
        for text in (field.about, expected_text, default)
        if text
    ]
    if entry.error:
        lines.append(
            f'<span class="lhkit-about" data-error role="alert">{escaped(entry.error)}</span>'
        )
    if not lines:
        return ""
    about_id = f' id="{escape(entry.about_id)}"' if entry.about_id else ""
    return f'<span class="lhkit-abouts"{about_id}>{"".join(lines)}</span>'


def _option(value: str, *, is_chosen: bool, label: str | None = None, more: str = "") -> str:
    chosen = " selected" if is_chosen else ""
    shown = value if label is None else label
    return f'<option value="{escape(value)}"{chosen}{more}>{escaped(shown)}</option>'
