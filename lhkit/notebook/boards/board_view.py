"""Render the states of boards as HTML, with the template `static/board.html`; pure.

Foreign text is escaped, and its invisible characters are made visible.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from html import escape
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from lhkit.base.json_values import json_or_repr
from lhkit.base.locales import Catalog, load_catalog
from lhkit.base.text import visible
from lhkit.harness.authoring.scenario_yaml import yaml_text
from lhkit.harness.chats.draft_texts import (
    finding_lines,
    question_text,
    source_text,
    sources_text,
)
from lhkit.harness.chats.drafts import Answer, Draft
from lhkit.harness.chats.reviews import CallPlace, Label, ReviewComparison
from lhkit.harness.figures.agreement import Agreement
from lhkit.harness.records.record import CallRecord, SampleRecord
from lhkit.harness.records.transcript import turn_truth_lines
from lhkit.notebook.boards.board_state import (
    SIDES,
    WITH_CALL,
    ABState,
    Correction,
    DraftState,
    ReviewState,
    Stage,
    VoteChoice,
)
from lhkit.notebook.panel.markdown import escaped, to_html
from lhkit.notebook.panel.opt_in import opt_in_request
from lhkit.notebook.panel.render import FieldEntry, cut, field_html, truth_html
from lhkit.notebook.panel.saved import newest, saved_conversation
from lhkit.notebook.panel.state import PanelState


def ab_parts(state: ABState, catalog: Catalog) -> tuple[str, ...]:
    """Return the parts of an A/B board; unchanged parts are equal texts."""
    part = _parts_in(catalog.locale)
    if state.stage is Stage.OPT_IN:
        return (part.opt_in(state, _opt_in_sentences(state, catalog)),)
    return (
        part.ab_notices(state),
        part.message(state),
        part.vote(state, VoteChoice),
        part.reason(state, _saved_vote(state, catalog)),
        part.facts(_facts(state, catalog)),
    )


def _opt_in_sentences(state: ABState, catalog: Catalog) -> list[str]:
    """Return the notice before text is sent to both models, whose names would end the blindness."""
    nowhere = catalog.text("notebook.opt_in_nowhere")
    addresses = ", ".join(sorted({ask.address or nowhere for ask in state.opt_ins}))
    return [
        catalog.text("ab.opt_in_who", addresses=addresses),
        catalog.text("notebook.opt_in_tools"),
    ]


def ab_saved(state: ABState, sides: Sequence[PanelState], catalog: Catalog) -> tuple[str, ...]:
    """Return both conversations and the vote without buttons; empty before the first message."""
    talks = ["".join(saved_conversation(side, catalog)) for side in sides]
    if not any(talks):
        return ()
    columns = "".join(
        f"<section><h4>{escape(catalog.text(f'ab.{side}'))}</h4>{talk}</section>"
        for side, talk in zip(SIDES, talks, strict=True)
    )
    notes = "".join(f"<p>{escape(line)}</p>" for line in ab_lines(state, catalog))
    facts = _parts_in(catalog.locale).facts(_facts(state, catalog))
    return (f'<div class="lhkit-both">{columns}</div>', notes, str(facts))


def review_parts(state: ReviewState, catalog: Catalog) -> tuple[str, ...]:
    """Return the parts of a review board; unchanged parts are equal texts."""
    part = _parts_in(catalog.locale)
    fields = Markup("").join(_fields(state.form, catalog)) if state.form else ""
    compared = state.compared
    return (
        part.head(state, _counts(state, catalog)),
        *(
            _turn_part(state, number, catalog)
            for number in range(len(state.record.trajectory.turns))
        ),
        part.judge(state),
        part.correction(state.form, state.schemas, fields),
        part.compared(compared, agreement_lines(compared, catalog)) if compared else "",
    )


def review_saved(state: ReviewState, catalog: Catalog) -> tuple[str, ...]:
    """Return the current conversation with its labels, without buttons."""
    part, compared = _parts_in(catalog.locale), state.compared
    turns = newest(
        range(len(state.record.trajectory.turns)),
        lambda number: str(_turn_part(state, number, catalog)),
        catalog,
    )
    return (
        *(f"<p>{escape(line)}</p>" for line in review_lines(state, catalog)),
        *turns,
        str(part.compared(compared, agreement_lines(compared, catalog))) if compared else "",
    )


def _turn_part(state: ReviewState, number: int, catalog: Catalog) -> Any:
    name, turn = str(state.record.sample_id), state.record.trajectory.turns[number]
    return _parts_in(catalog.locale).turn(
        state,
        turn,
        [CallPlace(sample=name, turn=number, call=i) for i in range(len(turn.calls))],
        CallPlace(sample=name, turn=number),
    )


def draft_parts(state: DraftState, catalog: Catalog) -> tuple[str, ...]:
    """Return the parts of a review of drafts; unchanged parts are equal texts."""
    part = _parts_in(catalog.locale)
    fields = Markup("").join(_fields(state.form, catalog)) if state.form else ""
    return (
        *_draft_body(state, catalog),
        part.decide(state, question_text(state.draft, catalog), Answer),
        part.correction(state.form, state.schemas, fields),
    )


def draft_saved(state: DraftState, catalog: Catalog) -> tuple[str, ...]:
    """Return the current draft without buttons."""
    question = f"<p>{escape(question_text(state.draft, catalog))}</p>"
    return (*map(str, _draft_body(state, catalog)), question)


def draft_lines(state: DraftState, catalog: Catalog) -> list[str]:
    """Return a review of drafts in short, as text."""
    lines = [_draft_counts(state, catalog), *(notice.text for notice in state.notices)]
    return [visible(line) for line in lines]


def _draft_body(state: DraftState, catalog: Catalog) -> tuple[Any, ...]:
    """Return head, source conversation and proposed scenario of a draft."""
    part, draft = _parts_in(catalog.locale), state.draft
    turns = state.turns
    first = draft.source.turn + 1 - len(turns)
    places = [
        [CallPlace(sample=draft.source.chat, turn=first + n, call=i) for i in range(len(t.calls))]
        for n, t in enumerate(turns)
    ]
    replies = (CallPlace(sample=draft.source.chat, turn=first + n) for n in range(len(turns)))
    is_there = draft.id in state.records
    near = state.content.near.get(draft.id, ())
    return (
        part.draft_head(
            state,
            _draft_counts(state, catalog),
            source_text(draft.source.chat, draft.source.turn, catalog),
            [*finding_lines(draft.findings, catalog)],
            catalog.text("drafts.near", count=len(near), sources=sources_text(near, catalog))
            if near
            else "",
            "" if is_there else catalog.text("drafts.no_chat", folder=draft.source.folder),
        ),
        *(
            part.turn(state, turn, calls, reply) if is_there else part.message_of(turn)
            for turn, calls, reply in zip(turns, places, replies, strict=True)
        ),
        part.proposal(_proposal_lines(draft, catalog), yaml_text([draft.scenario])),
    )


def _draft_counts(state: DraftState, catalog: Catalog) -> str:
    return catalog.text(
        "drafts.head",
        reviewer=state.reviewer,
        number=state.conversation + 1,
        count=len(state.content.drafts),
        open=len(state.content.open),
    )


def _proposal_lines(draft: Draft, catalog: Catalog) -> Iterator[str]:
    """Yield what the proposed scenario expects of its last turn."""
    turn = draft.scenario["turns"][-1]
    for call in draft.calls:
        yield catalog.text("drafts.expects", call=_written_call(call))
    if not draft.calls:
        yield catalog.text("drafts.expects_nothing")
    for call in turn.get("forbid", ()):
        yield catalog.text("drafts.forbids", call=_written_call(call))
    reply = turn.get("reply", {})
    if reply.get("claims") == "none":
        yield catalog.text("drafts.claims_nothing")
    for words in reply.get("excludes", ()):
        yield catalog.text("drafts.excludes", words=words)


def _written_call(call: Mapping[str, Any]) -> str:
    return f"{call['tool']} {json_or_repr(call.get('args', {}))}"


@cache
def _parts_in(locale: str) -> Any:
    """Return the macros of the template, in a language."""
    environment = Environment(
        loader=PackageLoader("lhkit.notebook", "static"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) else visible(str(value)),
    )
    catalog = load_catalog(locale)
    environment.globals["text"] = catalog.text
    environment.filters |= {
        "cut": cut,
        "json": json_or_repr,
        "markdown": lambda text: Markup(to_html(text)),  # noqa: S704 - escapes by itself
        "prose": lambda text: Markup(escaped(text, keep_emoji=True)),  # noqa: S704 - escaped
        "truth": lambda turn: Markup(  # noqa: S704 - escapes by itself
            truth_html(turn_truth_lines(turn, catalog), turn.claim, catalog)
        ),
        "typed": Markup.escape,
        "corrections": _corrections,
        "call_words": partial(call_words, catalog=catalog),
    }
    return environment.get_template("board.html").module


def _saved_vote(state: ABState, catalog: Catalog) -> str:
    if state.choice is None:
        return ""
    choice = catalog.text(f"ab.{state.choice}")
    return catalog.text("ab.kept", choice=choice, count=state.votes)


def _facts(state: ABState, catalog: Catalog) -> list[dict[str, str]]:
    """Return the models and their figures: a column per side."""
    return [
        {
            "model": side.identity.title,
            "licence": opt_in_request(side.identity, catalog).licence,
            "dialect": side.identity.dialect,
            **_facts_of(side.record, catalog),
        }
        for side in state.revealed or ()
    ]


def _facts_of(record: SampleRecord, catalog: Catalog) -> dict[str, str]:
    turns = record.trajectory.turns
    responses = [call.response for turn in turns for call in turn.model_calls]
    first_s = next((s for r in responses if (s := r.timing.first_token_s) is not None), None)
    tokens = catalog.text(
        "notebook.tokens",
        prompt=f"{sum(response.usage.prompt_tokens for response in responses):,}",
        completion=f"{sum(response.usage.completion_tokens for response in responses):,}",
    )
    calls = [_call_line(call, catalog) for turn in turns for call in turn.calls]
    return {
        "first_token": catalog.seconds(first_s),
        "turns": catalog.seconds(sum(turn.active_s for turn in turns)),
        "tokens": tokens,
        "calls": "\n".join(calls),
        "raw": "\n".join(response.raw_text or response.text for response in responses),
    }


def _call_line(call: CallRecord, catalog: Catalog) -> str:
    edited = f"({catalog.text('confirm.edited')} {json_or_repr(call.edited)})"
    words = [call.tool, json_or_repr(call.effective_args), edited if call.is_edited else ""]
    return " ".join(filter(None, [*words, "→", call_words(call, catalog), call.reason]))


def call_words(call: CallRecord, catalog: Catalog) -> str:
    """Return the result of a call and the answer to its card, in the words of the panel."""
    key = f"notebook.outcome_{call.answer}"
    answer = catalog.text(key) if key in catalog.texts else call.answer
    match call.outcome:
        case "cancelled":  # the answer says it, and by whom
            return answer or catalog.text("notebook.tool_cancelled")
        case "ok":
            result = catalog.text("notebook.tool_ok")
        case code:
            result = catalog.text("notebook.tool_error", code=code)
    return " · ".join(filter(None, (result, answer)))


def _counts(state: ReviewState, catalog: Catalog) -> str:
    return catalog.text(
        "review.head",
        reviewer=state.reviewer,
        number=state.conversation + 1,
        count=len(state.records),
        done=state.done,
    )


def _fields(form: Correction, catalog: Catalog) -> Iterator[Markup]:
    """Yield the fields of a call's arguments; the first one gets the focus."""
    focus = f' data-focus="form-{form.number}"'
    for field in form.fields:
        entry = FieldEntry(
            name=f"arg:{field.name}",
            typed=form.typed.get(field.name, ""),
            error=form.errors.get(field.name, ""),
            more=f'{focus} data-enter="save" data-fresh',
        )
        yield Markup(field_html(field, entry, catalog))  # noqa: S704 - escapes by itself
        focus = ""


def _corrections(label: Label) -> Iterator[str]:
    """Yield the corrected call and reply of a label."""
    if label.verdict in WITH_CALL:
        yield f"{label.tool} {json_or_repr(dict(label.args or {}))}"
    if label.say:
        yield label.say


def agreement_lines(compared: ReviewComparison, catalog: Catalog) -> list[str]:
    """Return the agreement of two reviewers, and every place where they differ."""
    lines = [
        _agreement_line(catalog.text("review.of_calls"), compared.calls, catalog),
        _agreement_line(catalog.text("review.of_replies"), compared.replies, catalog),
    ]
    for dispute in compared.disputes:
        place = dispute.place
        where = [place.sample, catalog.text("review.turn_number", number=place.turn + 1)]
        if place.call is not None:
            where.append(catalog.text("review.call_number", number=place.call + 1))
        first, second = (_label_text(label, catalog) for label in (dispute.first, dispute.second))
        lines.append(f"{', '.join(where)}: {compared.first} {first} / {compared.second} {second}")
    return [visible(line) for line in lines]


def _label_text(label: Label, catalog: Catalog) -> str:
    text, corrections = catalog.text(f"review.{label.verdict}"), ", ".join(_corrections(label))
    return f"{text} ({corrections})" if corrections else text


def _agreement_line(what: str, agreement: Agreement | None, catalog: Catalog) -> str:
    if agreement is None:
        return catalog.text("review.not_both", what=what)
    if agreement.kappa is None or agreement.interval is None:
        return catalog.text("review.one_kind", what=what, count=agreement.n)
    return catalog.text(
        "review.kappa",
        what=what,
        kappa=f"{agreement.kappa:.2f}",
        low=f"{agreement.interval.low:.2f}",
        high=f"{agreement.interval.high:.2f}",
        count=agreement.n,
        observed=f"{100 * agreement.observed:.0f}",
    )


def ab_lines(state: ABState, catalog: Catalog) -> list[str]:
    """Return an A/B board in short, as text."""
    notices = [notice.text for notice in state.notices]
    lines = [*notices, _saved_vote(state, catalog), state.reason]
    for side, revealed in zip(SIDES, state.revealed or (), strict=False):
        lines.append(f"{catalog.text(f'ab.{side}')}: {revealed.identity.title}")
    return [visible(line) for line in lines if line]


def review_lines(state: ReviewState, catalog: Catalog) -> list[str]:
    """Return a review in short, as text."""
    lines = [_counts(state, catalog), *(notice.text for notice in state.notices)]
    return [visible(line) for line in lines]
