"""The state of a board as HTML, top to bottom; pure. The template is `static/board.html`.

Everything foreign is escaped, and what cannot be seen in it is made visible.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from lhkit.harness.record import SampleRecord
from lhkit.harness.reviews import Agreement, CallPlace, Label, ReviewComparison
from lhkit.json_values import json_or_repr
from lhkit.locales import Catalog, load_catalog
from lhkit.notebook.board_state import (
    SIDES,
    WITH_CALL,
    ABState,
    Correction,
    ReviewState,
    Stage,
    VoteChoice,
)
from lhkit.notebook.markdown import escaped, to_html
from lhkit.notebook.render import MAX_VALUE_CHARS, FieldEntry, field_html
from lhkit.text import seconds, visible


def ab_parts(state: ABState, catalog: Catalog) -> tuple[str, ...]:
    """Return what stands below two conversations; what did not change is the same text."""
    part = _parts_in(catalog.locale)
    if state.stage is Stage.OPT_IN:
        return (part.opt_in(state, _opt_in(state, catalog)),)
    return (
        part.ab_told(state),
        part.message(state),
        part.vote(state, VoteChoice),
        part.reason(state, _kept(state, catalog)),
        part.facts(_facts(state, catalog)),
    )


def review_parts(state: ReviewState, catalog: Catalog) -> tuple[str, ...]:
    """Return the board of a review; what did not change is the same text."""
    part = _parts_in(catalog.locale)
    name = str(state.record.sample_id)
    fields = Markup("").join(_fields(state.form, catalog)) if state.form else ""
    found = state.compared
    return (
        part.head(state, _counts(state, catalog)),
        *(
            part.turn(
                state,
                turn,
                [CallPlace(sample=name, turn=number, call=i) for i in range(len(turn.calls))],
                CallPlace(sample=name, turn=number),
            )
            for number, turn in enumerate(state.record.evidence.turns)
        ),
        part.judge(state),
        part.correction(state.form, state.schemas, fields),
        part.compared(found, reviewed_lines(found, catalog)) if found else "",
    )


@cache
def _parts_in(locale: str) -> Any:
    """Return the macros of the template, in a language."""
    made = Environment(
        loader=PackageLoader("lhkit.notebook", "static"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda each: each if isinstance(each, Markup) else visible(str(each)),
    )
    made.globals["text"] = load_catalog(locale).text
    made.filters |= {
        "cut": _cut,
        "json": json_or_repr,
        "markdown": lambda words: Markup(to_html(words)),  # noqa: S704 - escapes by itself
        "prose": lambda words: Markup(escaped(words, keep_emoji=True)),  # noqa: S704 - escaped
        "typed": Markup.escape,
        "written": _written,
    }
    return made.get_template("board.html").module


def _opt_in(state: ABState, catalog: Catalog) -> list[str]:
    nowhere = catalog.text("notebook.opt_in_nowhere")
    return [
        *(
            catalog.text("notebook.opt_in_who", model=each.model, address=each.address or nowhere)
            for each in state.opt_ins
        ),
        catalog.text("notebook.opt_in_tools"),
        *dict.fromkeys(each.licence for each in state.opt_ins),
    ]


def _kept(state: ABState, catalog: Catalog) -> str:
    if state.choice is None:
        return ""
    choice = catalog.text(f"ab.{state.choice}")
    return catalog.text("ab.kept", choice=choice, count=state.votes)


def _facts(state: ABState, catalog: Catalog) -> list[dict[str, str]]:
    """Return which was which, and what it did: a column for each side."""
    return [
        {
            "model": side.identity.title,
            "dialect": side.identity.dialect,
            **_facts_of(side.record, catalog),
        }
        for side in state.revealed or ()
    ]


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
        "first_token": seconds(first_s),
        "turns": seconds(sum(turn.active_s for turn in turns)),
        "tokens": tokens,
        "calls": "\n".join(calls),
        "raw": "\n".join(each.raw_text or each.text for each in answers),
    }


def _counts(state: ReviewState, catalog: Catalog) -> str:
    return catalog.text(
        "review.head",
        reviewer=state.reviewer,
        number=state.conversation + 1,
        count=len(state.records),
        done=state.done,
    )


def _fields(form: Correction, catalog: Catalog) -> Iterator[Markup]:
    """Yield the fields for the arguments of a call; the first one gets the focus."""
    more = f' data-focus="form-{form.number}"'
    for each in form.fields:
        entry = FieldEntry(
            name=f"arg:{each.name}",
            typed=form.typed.get(each.name, ""),
            fault=form.faults.get(each.name, ""),
            more=f'{more} data-enter="save" data-fresh',
        )
        yield Markup(field_html(each, entry, catalog))  # noqa: S704 - escapes by itself
        more = ""


def _written(label: Label) -> Iterator[str]:
    """Yield the call and the words that should have been there."""
    if label.held in WITH_CALL:
        yield f"{label.tool} {json_or_repr(dict(label.args or {}))}"
    if label.say:
        yield label.say


def reviewed_lines(found: ReviewComparison, catalog: Catalog) -> list[str]:
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
    lines = [*(each.text for each in state.told), _kept(state, catalog), state.reason]
    for side, each in zip(SIDES, state.revealed or (), strict=False):
        lines.append(f"{catalog.text(f'ab.{side}')}: {each.identity.title}")
    return [visible(line) for line in lines if line]


def review_lines(state: ReviewState, catalog: Catalog) -> list[str]:
    """Return a review in short, for where no widget can be shown."""
    return [visible(each) for each in (_counts(state, catalog), *(n.text for n in state.told))]


def _cut(text: str) -> str:
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]} … [{len(text):,}]"
