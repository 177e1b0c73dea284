"""One sample as HTML: its transcript turn by turn, with everything that explains its verdict.

For each turn: the user's message, the model's raw text, the calls parsed from it, the results of
the gate and the tools, where the time went, and what was expected instead.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lhkit.events import EndReason
from lhkit.harness.html.call_table import score_table
from lhkit.harness.html.markup import Html, block, chip, join, json_text, label, tag
from lhkit.harness.record import (
    CallRecord,
    ModelCallRecord,
    SampleRecord,
    Severity,
    TableDiff,
    TurnRecord,
    Violation,
)
from lhkit.harness.words import names_of_new
from lhkit.locales import Catalog
from lhkit.messages import GateOutcome, ToolCall
from lhkit.text import seconds

_GATE_KINDS = {GateOutcome.ACCEPTED: "lhr-good", GateOutcome.REJECTED: "lhr-warn"}


def trace_html(record: SampleRecord, catalog: Catalog) -> Html:
    """Return all that is known of one sample."""
    scores = dict(enumerate(record.judgement.scores))
    turns = (
        _turn(number, turn, join([score_table(scores.get(number), catalog)]), catalog)
        for number, turn in enumerate(record.evidence.turns)
    )
    return tag(
        "div",
        _facts(record, catalog),
        _reasons(record, catalog),
        _violations(record.judgement.violations, catalog),
        *turns,
        _state_changes(record.state_diff, catalog),
        class_="lhr-trace",
    )


def _facts(record: SampleRecord, catalog: Catalog) -> Html:
    words = catalog.text(
        "report.sample_facts",
        locale=record.locale,
        tags=", ".join(record.tags) or catalog.text("table.none"),
        repeat=record.sample_id.repeat + 1,
        attempts=record.attempts,
        wall=seconds(record.wall_s),
        harness=seconds(record.harness_s),
    )
    return tag("p", words, class_="lhr-dim")


def _reasons(record: SampleRecord, catalog: Catalog) -> Html | None:
    reasons = [
        *record.judgement.reasons,
        *([record.evidence.fault] if record.evidence.fault else []),
    ]
    if not reasons:
        return None
    items = (tag("li", reason) for reason in dict.fromkeys(reasons))
    return tag("div", label(catalog.text("report.reasons")), tag("ul", *items), class_="lhr-why")


def _violations(violations: tuple[Violation, ...], catalog: Catalog) -> Html | None:
    if not violations:
        return None
    items = (
        tag(
            "li",
            severity_chip(violation.severity, catalog),
            " ",
            tag("code", violation.code),
            *([] if violation.turn is None else [f" · {_turn_name(violation.turn, catalog)}"]),
            f" · {violation.detail}" if violation.detail else None,
        )
        for violation in violations
    )
    return tag("div", label(catalog.text("report.violations")), tag("ul", *items), class_="lhr-why")


def severity_chip(severity: Severity, catalog: Catalog) -> Html:
    """Return the mark of a severity."""
    kind = "lhr-bad" if severity is Severity.ESCAPED else "lhr-warn"
    return chip(catalog.text(f"table.{severity}"), kind)


def _turn_name(number: int, catalog: Catalog) -> str:
    return catalog.text("report.turn", number=number + 1)


def _turn(number: int, turn: TurnRecord, scored: Html, catalog: Catalog) -> Html:
    ended = "" if turn.ended is EndReason.ANSWERED else f" · {turn.ended}"
    fault = " · ".join(each for each in (turn.error, turn.cause, turn.detail) if each)
    name = _turn_name(number, catalog)
    return tag(
        "section",
        tag("h4", label(name), tag("small", f" {seconds(turn.duration_s)}{ended}")),
        _said("user", turn.user, catalog),
        _bar(turn, catalog),
        tag("ol", *_steps(turn, catalog), class_="lhr-steps"),
        scored,
        _said("reply", turn.reply, catalog) if turn.reply else _no_reply(catalog),
        _said("came", names_of_new(turn), catalog) if turn.new_tools else None,
        _said("hint", turn.hint, catalog) if turn.hint else None,
        _said("fault", fault, catalog) if fault else None,
        class_="lhr-turn",
        aria_label=name,
    )


def _said(who: str, words: str, catalog: Catalog) -> Html:
    return tag(
        "div", label(catalog.text(f"report.{who}")), block(words), class_=f"lhr-said lhr-{who}"
    )


def _no_reply(catalog: Catalog) -> Html:
    return tag("p", catalog.text("report.no_reply"), class_="lhr-dim")


def _steps(turn: TurnRecord, catalog: Catalog) -> Iterator[Html]:
    """Yield each message of the model with what came of its calls; calls of no message last."""
    for index, request in enumerate(turn.model_calls):
        made = [call for call in turn.calls if call.model_call == index]
        yield tag("li", _message(index, request, catalog), *(_settled(c, catalog) for c in made))
    known = range(len(turn.model_calls))
    lost = [call for call in turn.calls if call.model_call not in known]
    if lost:
        yield tag("li", *(_settled(call, catalog) for call in lost))


def _message(index: int, request: ModelCallRecord, catalog: Catalog) -> Html:
    name = catalog.text("report.message", number=index + 1)
    return tag(
        "div",
        tag(
            "p",
            label(name),
            *(join([" ", mark]) for mark in _marks(request, catalog)),
            tag("small", f" {_timing(request, catalog)}"),
        ),
        block(request.response.raw_text, "lhr-raw")
        if request.response.raw_text
        else tag("p", catalog.text("report.no_raw"), class_="lhr-dim"),
        *(_parsed(call, "report.parsed", catalog) for call in request.response.calls),
        _fragment(request.response.fragment, catalog),
        class_="lhr-message",
    )


def _marks(request: ModelCallRecord, catalog: Catalog) -> Iterator[Html]:
    if not request.response.strict:
        yield chip(catalog.text("report.mended"), "lhr-warn")
    if request.response.truncated:
        yield chip(catalog.text("report.truncated"), "lhr-bad")


def _timing(request: ModelCallRecord, catalog: Catalog) -> str:
    timing = request.response.timing
    times = {
        "report.first_token": timing.first_token_s,
        "report.call_ready": timing.call_ready_s,
        "report.last_token": timing.last_token_s,
    }
    parts = [f"{catalog.text(key)} {seconds(at)}" for key, at in times.items() if at is not None]
    usage = request.response.usage
    if usage.prompt_tokens or usage.completion_tokens:
        cached = "–" if usage.cached_tokens is None else str(usage.cached_tokens)
        parts.append(
            catalog.text(
                "report.usage",
                prompt=usage.prompt_tokens,
                cached=cached,
                completion=usage.completion_tokens,
            )
        )
    return " · ".join([seconds(request.duration_s), *parts])


def _parsed(call: ToolCall, key: str, catalog: Catalog) -> Html:
    repairs = (join([" ", chip(repair, "lhr-warn")]) for repair in call.repairs)
    words = f"{call.name}({json_text(call.args)})"
    return tag(
        "div", label(catalog.text(key)), " ", tag("code", words), *repairs,
        class_="lhr-parsed",
    )  # fmt: skip


def _fragment(fragment: str, catalog: Catalog) -> Html | None:
    if not fragment:
        return None
    return tag("div", label(catalog.text("report.fragment")), block(fragment, "lhr-raw"))


def _settled(call: CallRecord, catalog: Catalog) -> Html:
    kind = {"ok": "lhr-good", "cancelled": "lhr-warn"}.get(call.outcome, "lhr-bad")
    times = catalog.text(
        "report.call_times",
        waiting=seconds(call.waiting_s),
        tool=seconds(call.validation_s + call.handler_s),
    )
    dropped = catalog.text("report.dropped", names=", ".join(call.extra_args))
    return tag(
        "div",
        tag(
            "p",
            tag("code", call.tool or "?"),
            " ",
            chip(call.outcome, kind),
            " ",
            _gate(call, catalog),
            chip(dropped, "lhr-warn") if call.extra_args else None,
            tag("small", f" {times}"),
        ),
        label(catalog.text("report.arguments")),
        block(json_text(call.raw_args if call.args is None else call.args)),
        label(catalog.text("report.result")),
        block(json_text(call.result)),
        class_="lhr-call",
    )


def _gate(call: CallRecord, catalog: Catalog) -> Html | None:
    if call.gate is GateOutcome.NOT_NEEDED and not call.destructive:
        return None
    return chip(catalog.text(f"report.gate.{call.gate}"), _GATE_KINDS.get(call.gate, ""))


def _bar(turn: TurnRecord, catalog: Catalog) -> Html | None:
    """Return where the time of a turn went, as a bar that is also a sentence."""
    parts = {
        "model": sum(request.duration_s for request in turn.model_calls),
        "tool": sum(call.validation_s + call.handler_s for call in turn.calls),
        "waiting": turn.waiting_s,
    }
    parts["harness"] = max(turn.duration_s - sum(parts.values()), 0.0)
    whole = sum(parts.values())
    if not whole:
        return None
    words = ", ".join(f"{catalog.text(f'report.{k}_time')} {seconds(v)}" for k, v in parts.items())
    pieces = (
        tag("i", class_=f"lhr-{kind}", style=f"width:{100 * spent / whole:.2f}%")
        for kind, spent in parts.items()
        if spent
    )
    bar = tag("div", *pieces, class_="lhr-bar", role="img", aria_label=words)
    return join([bar, tag("p", words, class_="lhr-dim")])


def _state_changes(diffs: Mapping[str, TableDiff], catalog: Catalog) -> Html:
    if not diffs:
        return tag("p", catalog.text("report.no_change"), class_="lhr-dim")
    lines = (
        tag(
            "div",
            label(table),
            *_state_rows("del", "−", diff.removed),
            *_state_rows("ins", "+", diff.added),
        )
        for table, diff in diffs.items()
    )
    return tag("div", label(catalog.text("report.state")), *lines, class_="lhr-state")


def _state_rows(name: str, sign: str, rows: Iterable[Mapping[str, Any]]) -> Iterator[Html]:
    for row in rows:
        yield tag(name, f"{sign} {json_text(row)}")
