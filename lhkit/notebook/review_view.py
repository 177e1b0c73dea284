"""The state of a review as HTML. Everything foreign is escaped."""

from collections.abc import Iterator
from html import escape

from lhkit.confirm.form import FormField
from lhkit.harness.record import CallRecord, TurnRecord
from lhkit.harness.reviews import Agreement, CallPlace, Held, Label, Reviewed
from lhkit.json_values import json_or_repr
from lhkit.locales import Catalog
from lhkit.notebook.correction import ARG_FIELD, MENDING, SAY_FIELD, TOOL_FIELD, argument_fields
from lhkit.notebook.fields import FieldEntry, escaped, field_html, option, press_button
from lhkit.notebook.markdown import to_html
from lhkit.notebook.render import MAX_VALUE_CHARS
from lhkit.notebook.review_state import CALL_KEYS, REPLY_KEYS, CorrectionForm, ReviewState
from lhkit.text import visible


def review_parts(state: ReviewState, catalog: Catalog) -> tuple[str, ...]:
    """Return the parts of the board, top to bottom."""
    return (
        _head(state, catalog),
        *_turns(state, catalog),
        _controls(state, catalog),
        _form(state, catalog),
        _compared(state, catalog),
    )


def _head(state: ReviewState, catalog: Catalog) -> str:
    words = catalog.text(
        "review.head",
        reviewer=state.reviewer,
        number=state.conversation + 1,
        count=len(state.records),
        done=state.done,
    )
    told = "".join(
        f'<div class="lhkit-told"{" data-fault" if each.is_fault else ""}>'
        f"{escaped(each.text)}</div>"
        for each in state.told
    )
    name = escaped(str(state.record.sample_id))
    return (
        f'<div class="lhkit-head" role="status"><div class="lhkit-title">{escape(words)}</div>'
        f'<div class="lhkit-told">{name} · {escape(_at(state, catalog))}</div>{told}</div>'
    )


def _at(state: ReviewState, catalog: Catalog) -> str:
    call = state.call
    place = catalog.text("review.place", place=state.place + 1, count=len(state.places))
    what = catalog.text("review.reply") if call is None else visible(call.tool)
    return f"{place}: {what}"


def _turns(state: ReviewState, catalog: Catalog) -> Iterator[str]:
    name = str(state.record.sample_id)
    for number, turn in enumerate(state.record.evidence.turns):
        parts = [_user(turn, catalog)]
        for index, call in enumerate(turn.calls):
            place = CallPlace(sample=name, turn=number, call=index)
            parts.append(_unit(place, _call(call, catalog), state, catalog))
        reply = _reply(turn, catalog)
        parts.append(_unit(CallPlace(sample=name, turn=number), reply, state, catalog))
        yield f'<div class="lhkit-turn">{"".join(parts)}</div>'


def _user(turn: TurnRecord, catalog: Catalog) -> str:
    who = escape(catalog.text("notebook.role_user"))
    return (
        f'<div class="lhkit-message" data-role="user"><div class="lhkit-who">{who}</div>'
        f'<div class="lhkit-text">{escaped(_cut(turn.user), keep_emoji=True)}</div></div>'
    )


def _unit(place: CallPlace, body: str, state: ReviewState, catalog: Catalog) -> str:
    label = state.labels.get(place)
    is_current = place == state.current
    held = f' data-held="{label.held}"' if label else ""
    said = catalog.text(f"review.{label.held}") if label else catalog.text("review.open")
    mended = ""
    if label is not None:
        args = json_or_repr(dict(label.args or {})) if label.held in MENDING else ""
        written = filter(None, (f"{label.tool} {args}".strip(), label.say))
        mended = "".join(f"<pre>{escaped(_cut(each))}</pre>" for each in written)
    current = ' data-current aria-current="true"' if is_current else ""
    return (
        f'<div class="lhkit-unit"{held}{current}><div class="lhkit-chip">{escape(said)}</div>'
        f"{body}{mended}</div>"
    )


def _call(call: CallRecord, catalog: Catalog) -> str:
    args = escaped(_cut(json_or_repr(call.raw_args)))
    result = escaped(_cut(json_or_repr(dict(call.result))))
    asked = f" · {escaped(call.answer)}" if call.answer else ""
    return (
        f'<div><code class="lhkit-tool-name">{escaped(call.tool)}</code>'
        f" → {escaped(call.outcome)}{asked}</div>"
        f'<div class="lhkit-part">{escape(catalog.text("notebook.tool_arguments"))}</div>'
        f"<pre>{args}</pre><details><summary>{escape(catalog.text('notebook.tool_result'))}</summary>"
        f"<pre>{result}</pre></details>"
    )


def _reply(turn: TurnRecord, catalog: Catalog) -> str:
    who = escape(catalog.text("notebook.role_assistant"))
    said = to_html(turn.reply) if turn.reply else escape(catalog.text("review.no_words"))
    return f'<div class="lhkit-who">{who}</div><div class="lhkit-text lhkit-markdown">{said}</div>'


def _controls(state: ReviewState, catalog: Catalog) -> str:
    keys = REPLY_KEYS if state.call is None else CALL_KEYS
    label = state.labels.get(state.current)
    judge = "".join(
        press_button(
            "judge",
            catalog.text(f"review.{held}"),
            value=held,
            key=key,
            pressed=label is not None and label.held is held,
        )
        for key, held in keys.items()
    )
    moves = (
        ("ArrowUp", "previous"),
        ("ArrowDown", "next"),
        ("p", "previous_talk"),
        ("n", "next_talk"),
        ("o", "next_open"),
        ("d", "compare"),
    )
    steps = "".join(
        press_button(
            name, catalog.text(f"review.go_{name}"), value=name, key=key, css="lhkit-quiet"
        )
        for key, name in moves
    )
    question = escape(catalog.text("review.question"))
    return (
        f'<div class="lhkit-votes" role="group" aria-label="{question}">'
        f'<span class="lhkit-question">{question}</span>{judge}</div>'
        f'<div class="lhkit-actions">{steps}</div>'
    )


def _form(state: ReviewState, catalog: Catalog) -> str:
    form = state.form
    if form is None:
        return ""
    if form.held is Held.NOT_FINE:
        return _words_form(form, catalog)
    schema = state.schemas.get(form.tool, {})
    options = "".join(option(name, is_chosen=name == form.tool) for name in state.schemas)
    tool = f"{form.number}:{TOOL_FIELD}"
    fields = "".join(
        field_html(each, _entry(form, each, is_first=index == 0), catalog)
        for index, each in enumerate(argument_fields(schema))
    )
    fault = f'<div class="lhkit-told" data-fault role="alert">{escaped(form.fault)}</div>'
    return (
        f'<div class="lhkit-form" role="group" aria-label="{escape(catalog.text("review.form"))}">'
        f'<label>{escape(catalog.text("review.tool"))} <select class="lhkit-field" name="{tool}"'
        f' data-change="tool" data-fresh>{options}</select></label>{fields}'
        f"{_words(form, catalog) if form.held is Held.CALL_MISSING else ''}"
        f"{fault if form.fault else ''}"
        f'<div class="lhkit-row"><span></span>{_form_buttons(catalog)}</div></div>'
    )


def _words_form(form: CorrectionForm, catalog: Catalog) -> str:
    words = escape(catalog.text("review.better_words"))
    return (
        f'<div class="lhkit-form" role="group" aria-label="{words}">{_words(form, catalog)}'
        f'<div class="lhkit-row"><span></span>{_form_buttons(catalog)}</div></div>'
    )


def _words(form: CorrectionForm, catalog: Catalog) -> str:
    """Return the field for what should have been said; of a reply alone it has the focus."""
    focus = f' data-focus="form-{form.number}"' if form.held is Held.NOT_FINE else ""
    return (
        f"<label>{escape(catalog.text('review.better_words'))}"
        f' <textarea class="lhkit-field" name="{form.number}:{SAY_FIELD}" rows="3"'
        f' data-enter="save"{focus} data-fresh>{escape(form.say)}</textarea></label>'
    )


def _form_buttons(catalog: Catalog) -> str:
    save = press_button("save", catalog.text("review.save"), css="lhkit-primary")
    return press_button("cancel", catalog.text("confirm.cancel"), key="Escape") + save


def _entry(form: CorrectionForm, field: FormField, *, is_first: bool) -> FieldEntry:
    focus = f' data-focus="form-{form.number}"' if is_first else ""
    typed = form.values.get(field.name, "")
    return FieldEntry(
        name=f"{form.number}:{ARG_FIELD}{field.name}",
        typed=typed,
        fault=form.faults.get(field.name, ""),
        more=f'{focus} data-enter="save" data-fresh',
    )


def _compared(state: ReviewState, catalog: Catalog) -> str:
    found = state.compared
    if found is None:
        return ""
    lines = "".join(f"<li>{escape(line)}</li>" for line in reviewed_lines(found, catalog))
    title = catalog.text("review.compared", first=found.first, second=found.second)
    return (
        f'<div class="lhkit-opt-in"><div class="lhkit-title">{escaped(title)}</div>'
        f"<ul>{lines}</ul></div>"
    )


def reviewed_lines(found: Reviewed, catalog: Catalog) -> list[str]:
    """Return the agreement of two reviewers in words, and every place where they differ."""
    lines = [
        _agreement(catalog.text(f"review.of_{kind}"), each, catalog)
        for kind, each in (("calls", found.calls), ("replies", found.replies))
    ]
    for dispute in found.disputes:
        at = dispute.place
        call = "" if at.call is None else catalog.text("review.call_number", number=at.call + 1)
        turn = catalog.text("review.turn_number", number=at.turn + 1)
        what = ", ".join(filter(None, [at.sample, turn, call]))
        first, second = (_held(each, catalog) for each in (dispute.first, dispute.second))
        lines.append(f"{what}: {found.first} {first} / {found.second} {second}")
    return [visible(line) for line in lines]


def _held(label: Label, catalog: Catalog) -> str:
    words = catalog.text(f"review.{label.held}")
    args = json_or_repr(dict(label.args or {}))
    call = f"{label.tool} {args}" if label.held in MENDING else ""
    written = ", ".join(filter(None, (call, label.say)))
    return f"{words} ({written})" if written else words


def _agreement(what: str, found: Agreement | None, catalog: Catalog) -> str:
    if found is None:
        return catalog.text("review.not_both", what=what)
    if found.kappa is None or found.interval is None:
        return catalog.text("review.one_kind", what=what, count=found.n)
    return catalog.text(
        "review.kappa",
        what=what,
        kappa=f"{found.kappa:.2f}",
        low=f"{found.interval.low:.2f}",
        high=f"{found.interval.high:.2f}",
        count=found.n,
        observed=f"{100 * found.observed:.0f}",
    )


def review_lines(state: ReviewState, catalog: Catalog) -> list[str]:
    """Return the review in short, for where no widget can be shown."""
    head = catalog.text(
        "review.head",
        reviewer=state.reviewer,
        number=state.conversation + 1,
        count=len(state.records),
        done=state.done,
    )
    return [visible(line) for line in (head, *(each.text for each in state.told))]


def _cut(text: str) -> str:
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]} … [{len(text):,}]"
