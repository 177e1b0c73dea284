"""The state of a board as HTML, top to bottom; pure.

Everything foreign is escaped; `data-press` names what a click or a key does.
"""

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any

from lhkit.harness.record import CallRecord, SampleRecord
from lhkit.harness.reviews import Agreement, CallPlace, Label, Reviewed
from lhkit.json_values import json_or_repr
from lhkit.locales import Catalog
from lhkit.notebook.board_state import (
    SIDES,
    WITH_CALL,
    WITH_WORDS,
    ABState,
    BoardState,
    Correction,
    ReviewState,
    Stage,
    VoteChoice,
)
from lhkit.notebook.fields import FieldEntry, escaped, field_html, option, press_button
from lhkit.notebook.markdown import to_html
from lhkit.notebook.render import MAX_VALUE_CHARS
from lhkit.text import seconds, visible

_MOVES = {
    "previous": "ArrowUp",
    "next": "ArrowDown",
    "previous_talk": "p",
    "next_talk": "n",
    "next_open": "o",
    "compare": "d",
}


def ab_parts(state: ABState, catalog: Catalog) -> tuple[str, ...]:
    """Return what stands below two conversations."""
    if state.stage is Stage.OPT_IN:
        return (_opt_in(state, catalog),)
    focus = f"{state.conversation}.{state.turns}" if state.stage is Stage.VOTING else ""
    votes = _question(
        "vote",
        catalog.text("ab.question"),
        {choice: catalog.text(f"ab.{choice}") for choice in VoteChoice},
        state.choice,
        enabled=state.may_vote,
        focus=focus,
    )
    told = f'<div role="status">{_told(state)}</div>'
    return (
        told,
        _message_row(state, catalog),
        votes,
        _reason(state, catalog),
        _facts(state, catalog),
    )


def review_parts(state: ReviewState, catalog: Catalog) -> tuple[str, ...]:
    """Return the board of a review."""
    label = state.labels.get(state.current)
    question = _question(
        "judge",
        catalog.text("review.question"),
        {each: catalog.text(f"review.{each}") for each in state.choices},
        label.held if label else None,
    )
    moves = "".join(
        press_button(name, catalog.text(f"review.go_{name}"), key=key, css="lhkit-quiet")
        for name, key in _MOVES.items()
    )
    return (
        _head(state, catalog),
        *_turns(state, catalog),
        f'{question}<div class="lhkit-actions">{moves}</div>',
        "" if state.form is None else _form(state.form, [*state.schemas], catalog),
        _compared(state, catalog),
    )


def _told(state: BoardState) -> str:
    return "".join(
        f'<div class="lhkit-told"{" data-fault" if each.is_fault else ""}>'
        f"{escaped(each.text)}</div>"
        for each in state.told
    )


def _question(
    press: str,
    words: str,
    choices: Mapping[Any, str],
    chosen: Any,
    *,
    enabled: bool = True,
    focus: str = "",
) -> str:
    """Return the row of what can be answered by the keys from 1 on."""
    buttons = "".join(
        press_button(
            press,
            label,
            value=value,
            key=str(number),
            css="lhkit-vote",
            enabled=enabled,
            pressed=value == chosen,
        )
        for number, (value, label) in enumerate(choices.items(), start=1)
    )
    return (
        f'<div class="lhkit-votes" role="group" tabindex="-1" data-focus="{focus}"'
        f' aria-label="{escape(words)}">'
        f'<span class="lhkit-question">{escape(words)}</span>{buttons}</div>'
    )


def _message_row(state: ABState, catalog: Catalog) -> str:
    text = catalog.text
    is_busy = state.stage is Stage.ANSWERING
    words = escape(text("notebook.placeholder"))
    css = "lhkit-primary lhkit-send"
    send = press_button("send", text("notebook.send"), css=css, enabled=state.may_send)
    stop = press_button("stop", text("notebook.stop"), css="lhkit-stop", enabled=is_busy)
    can_retry = state.stage is Stage.FAILED
    retry = press_button("retry", text("notebook.retry"), css="lhkit-quiet", enabled=can_retry)
    can_begin = bool(state.turns) and not is_busy
    anew = press_button("begin", text("ab.begin"), css="lhkit-quiet", enabled=can_begin)
    return (
        '<div class="lhkit-write">'
        '<textarea class="lhkit-input" name="message" rows="2" data-enter="send"'
        f' placeholder="{words}" aria-label="{words}"></textarea>'
        f'<div class="lhkit-buttons">{send}{stop}</div></div>'
        f'<div class="lhkit-actions">{retry}{anew}</div>'
    )


def _reason(state: ABState, catalog: Catalog) -> str:
    if state.choice is None:
        return ""
    said = f'<div class="lhkit-told" role="status">{escape(_kept(state, catalog))}</div>'
    if state.stage is Stage.UNBLINDED:
        return said
    words = escape(catalog.text("ab.reason"))
    name = f"reason-{state.conversation}"
    keep = press_button("reason", catalog.text("ab.keep_reason"))
    unblind = press_button("unblind", catalog.text("ab.unblind"), css="lhkit-unblind")
    return (
        f'{said}<div class="lhkit-fields"><input class="lhkit-field" name="{name}"'
        f' data-enter="reason" data-focus="{name}"'
        f' value="{escaped(state.reason, keep_emoji=True)}"'
        f' placeholder="{words}" aria-label="{words}">{keep}{unblind}</div>'
    )


def _kept(state: ABState, catalog: Catalog) -> str:
    choice = catalog.text(f"ab.{state.choice}")
    return catalog.text("ab.kept", choice=choice, count=state.votes)


def _opt_in(state: ABState, catalog: Catalog) -> str:
    nowhere = catalog.text("notebook.opt_in_nowhere")
    sentences = [
        catalog.text(
            "notebook.opt_in_who",
            model=visible(each.model),
            address=visible(each.address or nowhere),
        )
        for each in state.opt_ins
    ]
    sentences.append(catalog.text("notebook.opt_in_tools"))
    sentences += dict.fromkeys(each.licence for each in state.opt_ins)
    button = press_button("opt_in", catalog.text("notebook.opt_in_button"), css="lhkit-primary")
    return _box(
        catalog.text("notebook.opt_in_title"),
        sentences,
        f'<div class="lhkit-row"><span></span>{button}</div>',
    )


def _box(title: str, lines: Iterable[str], more: str = "") -> str:
    listed = "".join(f"<li>{escape(each)}</li>" for each in lines)
    return (
        f'<div class="lhkit-opt-in"><div class="lhkit-title">{escape(title)}</div>'
        f"<ul>{listed}</ul>{more}</div>"
    )


def _facts(state: ABState, catalog: Catalog) -> str:
    """Return the table of which was which, and what it did."""
    if state.revealed is None:
        return ""
    columns = [
        {
            "model": escaped(side.identity.title),
            "dialect": escaped(side.identity.dialect),
            **_facts_of(side.record, catalog),
        }
        for side in state.revealed
    ]
    heads = "".join(f'<th scope="col">{escape(catalog.text(f"ab.{side}"))}</th>' for side in SIDES)
    rows = "".join(
        f'<tr><th scope="row">{escape(catalog.text(f"ab.fact_{key}"))}</th>'
        f"{''.join(f'<td>{column[key]}</td>' for column in columns)}</tr>"
        for key in columns[0]
    )
    return (
        f'<table class="lhkit-facts"><caption>{escape(catalog.text("ab.unblinded"))}</caption>'
        f"<thead><tr><td></td>{heads}</tr></thead><tbody>{rows}</tbody></table>"
    )


def _facts_of(record: SampleRecord, catalog: Catalog) -> dict[str, str]:
    turns = record.evidence.turns
    answers = [each.response for turn in turns for each in turn.model_calls]
    first_s = next((s for each in answers if (s := each.timing.first_token_s) is not None), None)
    tokens = catalog.text(
        "notebook.tokens",
        prompt=f"{sum(each.usage.prompt_tokens for each in answers):,}",
        completion=f"{sum(each.usage.completion_tokens for each in answers):,}",
    )
    calls = [
        f"{call.tool} {json_or_repr(call.raw_args)} → {call.outcome} {call.answer}".rstrip()
        for turn in turns
        for call in turn.calls
    ]
    return {
        "first_token": escaped(seconds(first_s)),
        "turns": escaped(seconds(sum(turn.active_s for turn in turns))),
        "tokens": escaped(tokens),
        "calls": _pre("\n".join(calls)),
        "raw": _pre("\n".join(each.raw_text or each.text for each in answers)),
    }


def _head(state: ReviewState, catalog: Catalog) -> str:
    call = state.call
    place = catalog.text("review.place", place=state.place + 1, count=len(state.places))
    what = catalog.text("review.reply") if call is None else visible(call.tool)
    name = escaped(str(state.record.sample_id))
    return (
        '<div class="lhkit-head" role="status">'
        f'<div class="lhkit-title">{escape(_counts(state, catalog))}</div>'
        f'<div class="lhkit-told">{name} · {escape(place)}: {escape(what)}</div>'
        f"{_told(state)}</div>"
    )


def _counts(state: ReviewState, catalog: Catalog) -> str:
    return catalog.text(
        "review.head",
        reviewer=state.reviewer,
        number=state.conversation + 1,
        count=len(state.records),
        done=state.done,
    )


def _turns(state: ReviewState, catalog: Catalog) -> Iterator[str]:
    name = str(state.record.sample_id)
    user, assistant = (escape(catalog.text(f"notebook.role_{r}")) for r in ("user", "assistant"))
    for number, turn in enumerate(state.record.evidence.turns):
        calls = "".join(
            _unit(
                CallPlace(sample=name, turn=number, call=index),
                _call(call, catalog),
                state,
                catalog,
            )
            for index, call in enumerate(turn.calls)
        )
        reply = to_html(turn.reply) if turn.reply else escape(catalog.text("review.no_words"))
        said = (
            f'<div class="lhkit-who">{assistant}</div>'
            f'<div class="lhkit-text lhkit-markdown">{reply}</div>'
        )
        yield (
            '<div class="lhkit-turn"><div class="lhkit-message" data-role="user">'
            f'<div class="lhkit-who">{user}</div>'
            f'<div class="lhkit-text">{escaped(_cut(turn.user), keep_emoji=True)}</div></div>'
            f"{calls}{_unit(CallPlace(sample=name, turn=number), said, state, catalog)}</div>"
        )


def _unit(place: CallPlace, body: str, state: ReviewState, catalog: Catalog) -> str:
    """Return a call or a reply with its label."""
    label = state.labels.get(place)
    held = f' data-held="{label.held}"' if label else ""
    said = catalog.text(f"review.{label.held}" if label else "review.open")
    written = "".join(map(_pre, _written(label))) if label else ""
    current = ' data-current aria-current="true"' if place == state.current else ""
    return (
        f'<div class="lhkit-unit"{held}{current}><div class="lhkit-chip">{escape(said)}</div>'
        f"{body}{written}</div>"
    )


def _written(label: Label) -> Iterator[str]:
    """Yield the call and the words that should have been there."""
    if label.held in WITH_CALL:
        yield f"{label.tool} {json_or_repr(dict(label.args or {}))}"
    if label.say:
        yield label.say


def _call(call: CallRecord, catalog: Catalog) -> str:
    asked = f" · {escaped(call.answer)}" if call.answer else ""
    return (
        f'<div><code class="lhkit-tool-name">{escaped(call.tool)}</code>'
        f" → {escaped(call.outcome)}{asked}</div>"
        f'<div class="lhkit-part">{escape(catalog.text("notebook.tool_arguments"))}</div>'
        f"{_pre(json_or_repr(call.raw_args))}"
        f"<details><summary>{escape(catalog.text('notebook.tool_result'))}</summary>"
        f"{_pre(json_or_repr(dict(call.result)))}</details>"
    )


def _form(form: Correction, tools: Iterable[str], catalog: Catalog) -> str:
    more = ' data-enter="save" data-fresh'
    focus = f' data-focus="form-{form.number}"'
    title, body = catalog.text("review.better_words"), ""
    if form.held in WITH_CALL:
        title = catalog.text("review.form")
        options = "".join(option(name, is_chosen=name == form.tool) for name in tools)
        body = (
            f'<label>{escape(catalog.text("review.tool"))} <select class="lhkit-field" name="tool"'
            f' data-change="tool" data-fresh>{options}</select></label>'
        )
    for index, each in enumerate(form.fields):
        typed, fault = form.typed.get(each.name, ""), form.faults.get(each.name, "")
        first = more if index else more + focus
        entry = FieldEntry(name=f"arg:{each.name}", typed=typed, fault=fault, more=first)
        body += field_html(each, entry, catalog)
    if form.held in WITH_WORDS:
        last = more if form.fields else more + focus
        body += (
            f"<label>{escape(catalog.text('review.better_words'))} <textarea"
            f' class="lhkit-field" name="say" rows="3"{last}>{escape(form.say)}</textarea></label>'
        )
    if form.fault:
        body += f'<div class="lhkit-told" data-fault role="alert">{escaped(form.fault)}</div>'
    save = press_button("save", catalog.text("review.save"), css="lhkit-primary")
    cancel = press_button("cancel", catalog.text("confirm.cancel"), key="Escape")
    return (
        f'<div class="lhkit-form" role="group" aria-label="{escape(title)}">{body}'
        f'<div class="lhkit-row"><span></span>{cancel}{save}</div></div>'
    )


def _compared(state: ReviewState, catalog: Catalog) -> str:
    found = state.compared
    if found is None:
        return ""
    title = catalog.text("review.compared", first=found.first, second=found.second)
    return _box(visible(title), reviewed_lines(found, catalog))


def reviewed_lines(found: Reviewed, catalog: Catalog) -> list[str]:
    """Return the agreement of two reviewers in words, and every place where they differ."""
    lines = [
        _agreement(catalog.text("review.of_calls"), found.calls, catalog),
        _agreement(catalog.text("review.of_replies"), found.replies, catalog),
    ]
    for dispute in found.disputes:
        at = dispute.place
        where = [at.sample, catalog.text("review.turn_number", number=at.turn + 1)]
        if at.call is not None:
            where.append(catalog.text("review.call_number", number=at.call + 1))
        first, second = (_said(each, catalog) for each in (dispute.first, dispute.second))
        lines.append(f"{', '.join(where)}: {found.first} {first} / {found.second} {second}")
    return [visible(line) for line in lines]


def _said(label: Label, catalog: Catalog) -> str:
    words, written = catalog.text(f"review.{label.held}"), ", ".join(_written(label))
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


def ab_lines(state: ABState, catalog: Catalog) -> list[str]:
    """Return the board below two conversations in short, for where no widget can be shown."""
    lines = [each.text for each in state.told]
    if state.choice is not None:
        lines += filter(None, (_kept(state, catalog), state.reason))
    for side, each in zip(SIDES, state.revealed or (), strict=False):
        lines.append(f"{catalog.text(f'ab.{side}')}: {each.identity.title}")
    return [visible(line) for line in lines]


def review_lines(state: ReviewState, catalog: Catalog) -> list[str]:
    """Return a review in short, for where no widget can be shown."""
    return [visible(each) for each in (_counts(state, catalog), *(n.text for n in state.told))]


def _pre(text: str) -> str:
    return f'<pre tabindex="0">{escaped(_cut(text))}</pre>' if text else ""


def _cut(text: str) -> str:
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]} … [{len(text):,}]"
