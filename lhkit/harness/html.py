"""The pieces of HTML that reports and notebooks share."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from lhkit.events import EndReason, GateOutcome
from lhkit.harness.behaviour import Share
from lhkit.harness.claims import shipped_model
from lhkit.harness.metrics import Summary, Tally
from lhkit.harness.pairs import Comparison, Pair, PersonVotes
from lhkit.harness.record import (
    ArgumentScore,
    CallRecord,
    CallScore,
    FalseClaim,
    ModelCallRecord,
    SampleId,
    SampleRecord,
    Severity,
    TableDiff,
    TurnRecord,
    TurnScore,
    Verdict,
    Violation,
)
from lhkit.harness.shares import Interval
from lhkit.harness.timings import Latency
from lhkit.locales import DEFAULT_LOCALE, Catalog, available_locales, load_catalog
from lhkit.messages import ToolCall
from lhkit.settings import DEFAULT_TOOLSET
from lhkit.text import (
    NOTHING,
    one_line,
    p_value,
    part_of,
    percent,
    percents,
    points,
    printable,
    seconds,
)

# A few lines to write HTML without ever forgetting to escape. Knows nothing of runs.
#
# What is not `Html` is text: it is made printable (control and direction characters shown as
# escapes), cut if it is endless, and escaped. `Html` comes from here only.


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


# What a turn was to do beside what it did: one row per argument. From `TurnScore.calls`.


_COLUMNS = ("call", "argument", "expected", "actual", "why")


def score_table(score: TurnScore | None, catalog: Catalog) -> Html | None:
    """Return expected and actual calls side by side; None where none was due and none was made."""
    if score is None or not score.calls:
        return None
    head = (tag("th", catalog.text(f"report.{name}"), scope="col") for name in _COLUMNS)
    rows = (row for call in score.calls for row in _rows(call, catalog))
    table = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *rows), class_="lhr-diff")
    return tag(
        "div",
        label(catalog.text("report.comparison")),
        tag(
            "div",
            table,
            class_="lhr-scroll",
            tabindex="0",
            role="region",
            aria_label=catalog.text("report.comparison"),
        ),
    )


def _rows(call: CallScore, catalog: Catalog) -> Iterator[Html]:
    kind = "lhr-right" if call.ok else "lhr-wrong"
    height = str(len(call.arguments) + 1)
    name = tag("th", *_name(call, catalog), scope="rowgroup", rowspan=height)
    state = catalog.text(f"report.{_call_state(call)}")
    yield tag(
        "tr", name, tag("td", state, colspan="3"), tag("td", _why(ok=call.ok, reason=call.reason)),
        class_=f"{kind} lhr-head",
    )  # fmt: skip
    for argument in call.arguments:
        yield _argument(argument)


def _name(call: CallScore, catalog: Catalog) -> Iterator[Html]:
    yield tag("code", call.tool or call.called or "?")
    if call.optional:
        yield join([" ", chip(catalog.text("report.optional"))])


def _call_state(call: CallScore) -> str:
    if call.actual is None:
        return "not_called"
    return "surplus" if call.expected is None else "called"


def _argument(argument: ArgumentScore) -> Html:
    return tag(
        "tr",
        tag("td", tag("code", argument.name)),
        tag("td", _value(argument.expected)),
        tag("td", _value(argument.actual)),
        tag("td", _why(ok=argument.ok, reason=argument.reason)),
        class_="lhr-right" if argument.ok else "lhr-wrong",
    )


def _value(value: object) -> Html:
    """Return a value as JSON, so that `"1"` and `1` look different; a dash where there is none."""
    return tag("code", "–" if value is None else json_text(value))


def _why(*, ok: bool, reason: str) -> str:
    mark = "✓" if ok else "✗"
    return f"{mark} {reason}".rstrip()


# One sample as HTML: the transcript turn by turn, with everything that explains its verdict.
#
# For each turn: what the user said, what the model really wrote, what was read out of it, what the
# gate and the tool answered, where the time went, and what was expected instead.


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


def names_of_new(turn: TurnRecord) -> str:
    """Return the names of the tools that came in a turn, for the requests after it."""
    return ", ".join(str(tool.get("name", "")) for tool in turn.new_tools)


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


# A run's numbers as HTML: pass rates with intervals, violations, latencies, who played.


_TALLY_COLUMNS = (
    "table.pass_rate",
    "report.interval",
    "table.tool_accuracy",
    "table.attempted",
    "table.escaped",
    "table.turn_p50",
    "table.turn_p95",
)
_LATENCY_COLUMNS = ("n", "p50", "p90", "p95", "p99")


def tiles(summary: Summary, catalog: Catalog) -> Html:
    """Return the few numbers that decide: rate, verdicts, violations, time."""
    total = summary.total
    escaped = sum(total.escaped.values())
    shown = (
        ("table.pass_rate", percent(total.pass_rate), interval_words(total.interval)),
        ("report.passed", str(total.passed), ""),
        ("report.failed", str(total.failed), ""),
        ("report.invalid", str(total.invalid), ""),
        ("table.escaped", str(escaped), ""),
        ("table.attempted", str(sum(total.attempted.values())), ""),
        ("table.turn_p50", seconds(total.turn.p50_s), f"p95 {seconds(total.turn.p95_s)}"),
    )
    listed = tile_list(shown, {"table.escaped"} if escaped else set(), catalog)
    card = tag("p", card_words(summary, catalog)) if summary.confirm.asked else None
    return join([listed, card])


def card_words(summary: Summary, catalog: Catalog) -> str:
    """Return what the card is worth: wrong writes asked for, stopped, done, with intervals."""
    gate = summary.confirm
    return catalog.text(
        "table.card_line",
        wrong=_part_within(gate.wrong, gate.asked, gate.wrong_interval),
        stopped=_part_within(gate.wrong_stopped, gate.wrong, gate.stopped_interval),
        done=_part_within(gate.wrong_done, gate.wrong, gate.done_interval),
    )


def claims_words(summary: Summary, catalog: Catalog) -> str:
    """Return how many replies were flagged, and what the check is worth."""
    model = shipped_model()
    return catalog.text(
        "table.claims_line",
        count=summary.confirm.false_claims,
        precision=percent(model.precision),
        recall=percent(model.recall),
    )


def claim_why(claim: FalseClaim, catalog: Catalog) -> str:
    """Return the probability of a flag, or that the words are a tool's own."""
    own = catalog.text("table.claim_own")
    return own if claim.probability is None else percent(claim.probability)


def claim_table(summary: Summary, catalog: Catalog) -> Html | None:
    """Return the replies that are flagged as false success claims; None if there are none."""
    if not summary.false_claims:
        return None
    rows = [
        tag(
            "tr",
            tag("th", str(sample), scope="row"),
            tag("td", str(claim.turn)),
            tag("td", one_line(claim.words, max_chars=_CLAIM_CHARS)),
            tag("td", claim_why(claim, catalog)),
        )
        for sample, claim in summary.false_claims[:_SHOWN_CLAIMS]
    ]
    names = ("report.sample", "report.claim_turn", "report.words", "report.probability")
    caption = catalog.text("report.claims")
    listed = table([catalog.text(name) for name in names], rows, caption=caption)
    return join([tag("p", claims_words(summary, catalog)), listed])


_SHOWN_CLAIMS = 200
_CLAIM_CHARS = 200


def _part_within(part: int, whole: int, interval: Interval | None) -> str:
    """Return a count with its share and the interval of that, such as `2/31 6% [2–21]`."""
    ends = "" if interval is None else f" [{percents(interval.low, interval.high)}]"
    return f"{part_of(part, whole)}{ends}"


def tile_list(
    shown: Iterable[tuple[str, str, str]], alarm: Collection[str], catalog: Catalog
) -> Html:
    """Return numbers as tiles.

    Args:
        shown: key of its name, value, and what stands small below it.
        alarm: the keys of those that should be looked at first.
        catalog: the texts.
    """
    items = (
        tag(
            "div",
            tag("dt", catalog.text(key)),
            tag("dd", value, tag("small", more) if more else None),
            class_="lhr-tile lhr-alarm" if key in alarm else "lhr-tile",
        )
        for key, value, more in shown
    )
    return tag("dl", *items, class_="lhr-tiles")


def criterion_words(names: Iterable[str], toolset: str, catalog: Catalog) -> dict[str, str]:
    """Return a few words for each acceptance criterion; none for those of another toolset."""
    is_ours = toolset == DEFAULT_TOOLSET
    return {name: catalog.texts.get(f"ac.{name}", "") if is_ours else "" for name in names}


def tally_table(
    tallies: Sequence[Tally],
    total: Tally | None,
    catalog: Catalog,
    *,
    heading: str,
    words: Mapping[str, str] | None = None,
    by_difficulty: Sequence[Tally] = (),
    bars: bool = True,
) -> Html:
    """Return one row per group and, if given, a total.

    Args:
        tallies: the groups.
        total: all of them together.
        by_difficulty: the plain and the hard ones, told before the total.
        catalog: the texts.
        heading: what the groups are.
        words: a few words for a group, shown beside its name.
        bars: draw the intervals, where no plot does.
    """
    named = words or {}
    rows = [
        _tally_row(each, f"{each.name} {named.get(each.name, '')}".strip(), bars=bars)
        for each in tallies
    ]
    rows += [
        _tally_row(each, catalog.text(f"table.{each.name}"), bars=bars) for each in by_difficulty
    ]
    if total is not None:
        name = catalog.text("table.total")
        rows.append(_tally_row(total, name, bars=bars, class_="lhr-total"))
    columns = [heading, *(catalog.text(key) for key in _TALLY_COLUMNS)]
    return table(columns, rows, caption=heading)


def _tally_row(tally: Tally, name: str, *, bars: bool, class_: str | None = None) -> Html:
    interval = tally.interval if tally.valid else None
    drawn = interval_bar(tally.pass_rate, interval) if bars else interval_words(interval) or "–"
    return tag(
        "tr",
        tag("th", name, scope="row"),
        tag("td", f"{percent(tally.pass_rate)} ", tag("small", f"{tally.passed}/{tally.valid}")),
        tag("td", drawn),
        tag("td", f"{percent(tally.tool_accuracy)}"),
        tag("td", str(sum(tally.attempted.values()))),
        tag("td", str(sum(tally.escaped.values()))),
        tag("td", seconds(tally.turn.p50_s)),
        tag("td", seconds(tally.turn.p95_s)),
        class_=class_,
    )


def interval_words(interval: Interval | None) -> str:
    """Return an interval of a share, such as `41–78%`; empty where there is none."""
    return "" if interval is None else f"{percents(interval.low, interval.high)}%"


def interval_bar(rate: float | None, interval: Interval | None) -> Html:
    """Return a rate and its interval on a line from 0 to 100 %, and in words."""
    if rate is None or interval is None:
        return tag("span", "–")
    width = 100 * (interval.high - interval.low)
    line = tag(
        "span",
        tag("i", style=f"left:{100 * interval.low:.1f}%;width:{width:.1f}%"),
        tag("b", style=f"left:{100 * rate:.1f}%"),
        class_="lhr-interval",
        aria_hidden="true",
    )
    return join([line, tag("small", interval_words(interval))])


def violation_table(total: Tally, catalog: Catalog) -> Html | None:
    """Return how often each rule was broken, what really happened first; None if none was."""
    counts = [
        (severity, code, count)
        for severity, by_code in (
            (Severity.ESCAPED, total.escaped),
            (Severity.ATTEMPTED, total.attempted),
        )
        for code, count in by_code.items()
    ]
    if not counts:
        return None
    rows = [
        tag(
            "tr",
            tag("th", tag("code", code), scope="row"),
            tag("td", severity_chip(severity, catalog)),
            tag("td", str(count)),
        )
        for severity, code, count in counts
    ]
    names = ("report.rule", "report.severity", "report.count")
    caption = catalog.text("report.violations")
    return table([catalog.text(name) for name in names], rows, caption=caption)


def latency_table(latencies: Mapping[str, Latency], catalog: Catalog) -> Html:
    """Return percentiles of some durations; those that nobody measured are left out."""
    rows = [
        tag(
            "tr",
            tag("th", catalog.text(f"report.{name}"), scope="row"),
            tag("td", f"{each.n:,}"),
            *(
                tag("td", seconds(value))
                for value in (each.p50_s, each.p90_s, each.p95_s, each.p99_s)
            ),
        )
        for name, each in latencies.items()
        if each.n
    ]
    caption = catalog.text("report.latency")
    return table([caption, *_LATENCY_COLUMNS], rows, caption=caption)


def table(columns: Iterable[str], rows: Iterable[Html], *, caption: str) -> Html:
    """Return a table that scrolls inside itself on a narrow screen; its caption is for readers."""
    head = (tag("th", column, scope="col") for column in columns)
    inner = tag(
        "table",
        tag("caption", caption, class_="lhr-unseen"),
        tag("thead", tag("tr", *head)),
        tag("tbody", *rows),
    )
    return tag("div", inner, class_="lhr-scroll", tabindex="0", role="region", aria_label=caption)


# The scores of a run beyond its pass rate: calls, arguments, behaviour, the gate, repeats.


_GATE = (
    "asked",
    "refusals",
    "unasked",
    "second_tries",
    "bypasses",
    "false_claims",
    "wrong",
    "wrong_stopped",
    "wrong_done",
)


def score_sheet(summary: Summary, catalog: Catalog) -> Html:
    """Return what is known of how calls were chosen and filled in; unknown lines are left out."""
    rows = [
        tag("tr", tag("th", catalog.text(f"report.score.{name}"), scope="row"),
            tag("td", percent(rate)), tag("td", tag("small", counts)))
        for name, rate, counts in _lines(summary)
        if rate is not None
    ]  # fmt: skip
    columns = [catalog.text(f"report.{name}") for name in ("scores", "share", "counts")]
    return table(columns, rows, caption=columns[0])


def gate_sheet(summary: Summary, catalog: Catalog) -> Html | None:
    """Return how the confirm gate fared; None where nothing was to be confirmed."""
    confirm = summary.confirm
    counts = {name: getattr(confirm, name) for name in _GATE}
    if not any(counts.values()):
        return None
    lines = [(catalog.text(f"report.score.{name}"), str(n)) for name, n in counts.items()]
    respected = f"{confirm.respected_turns}/{confirm.refused_turns}"
    lines.append((catalog.text("report.score.respected"), respected))
    rows = [tag("tr", tag("th", name, scope="row"), tag("td", shown)) for name, shown in lines]
    columns = [catalog.text("report.gate_title"), catalog.text("report.count")]
    return table(columns, rows, caption=columns[0])


def _lines(summary: Summary) -> Iterator[tuple[str, float | None, str]]:
    """Yield name, share and counts of each score."""
    total = summary.total
    chosen = total.selection
    calls, valid = total.counted_calls, total.valid
    yield "strict_pass", total.strict_pass_rate, f"{total.strict_passed}/{valid}"
    yield "repaired_calls", total.tool_accuracy, f"{total.right_calls}/{calls}"
    yield "strict_calls", total.strict_accuracy, f"{total.strict_right_calls}/{calls}"
    yield "precision", chosen.precision, f"{chosen.chosen}/{chosen.chosen + chosen.surplus}"
    yield "recall", chosen.recall, f"{chosen.chosen}/{chosen.chosen + chosen.missing}"
    yield "f1", chosen.f1, ""
    yield "arguments", chosen.argument_share, f"{chosen.right_arguments}/{chosen.arguments}"
    yield "exact", chosen.exact_share, f"{chosen.exact}/{chosen.chosen}"
    yield from ((name, *_share_words(share)) for name, share in total.behaviour.items())
    if total.repeats.k > 1:
        yield "pass_at", total.repeats.pass_at, f"k = {total.repeats.k}"
        yield "pass_hat", total.repeats.pass_hat, f"k = {total.repeats.k}"
        yield "flips", summary.flips.rate, f"{summary.flips.flipped}/{summary.flips.scenarios}"


def _share_words(share: Share) -> tuple[float | None, str]:
    return share.rate, f"{share.part}/{share.whole}"


# A list of samples as HTML: failures first, one line each that opens into its transcript.


VERDICT_KINDS = {
    Verdict.PASS: "lhr-good",
    Verdict.FAIL: "lhr-bad",
    Verdict.INVALID: "lhr-warn",
}
"""The colour of a verdict; its word stands beside it."""

_MARKS = {Verdict.PASS: "✓", Verdict.FAIL: "✗", Verdict.INVALID: "!"}
_ORDER = (Verdict.FAIL, Verdict.INVALID, Verdict.PASS)


def failures_first(records: Iterable[SampleRecord]) -> list[SampleRecord]:
    """Return what really did harm, then what failed, what is invalid, what passed."""
    return sorted(
        records,
        key=lambda each: (not each.judgement.has_escaped, _ORDER.index(each.judgement.verdict)),
    )


def anchor(sample: SampleId) -> str:
    """Return the address of a sample inside a page."""
    return f"s-{sample.scenario}-{sample.repeat}"


def verdict_chip(verdict: Verdict, catalog: Catalog) -> Html:
    """Return the mark of a verdict."""
    words = f"{_MARKS[verdict]} {catalog.text(f'report.verdict.{verdict}')}"
    return chip(words, VERDICT_KINDS[verdict])


def sample_row(record: SampleRecord, catalog: Catalog, *, is_inert: bool = False) -> Html:
    """Return one sample, closed.

    Args:
        record: the sample.
        catalog: the texts.
        is_inert: put the transcript into `noscript`: where scripts run it stays one piece of text
            until a script opens it, so that thousands of them cost next to nothing; where they do
            not run it is simply there.
    """
    transcript = trace_html(record, catalog)
    return tag(
        "details",
        tag("summary", *_summary(record, catalog)),
        tag("noscript", transcript) if is_inert else transcript,
        class_="lhr-sample",
        id=anchor(record.sample_id) if is_inert else None,
        data_ac=record.ac,
        data_verdict=record.judgement.verdict,
        data_tags=" ".join(("", *record.tags, "")) if record.tags else None,
    )


def _summary(record: SampleRecord, catalog: Catalog) -> Iterable[Html | str]:
    spent = sum(turn.duration_s for turn in record.evidence.turns)
    yield verdict_chip(record.judgement.verdict, catalog)
    if record.judgement.has_escaped:
        yield chip(catalog.text("table.escaped"), "lhr-bad")
    yield tag("span", record.ac, class_="lhr-dim")
    yield tag("span", str(record.sample_id), class_="lhr-id")
    yield tag(
        "span", record.judgement.reasons[0] if record.judgement.reasons else "", class_="lhr-reason"
    )
    yield tag("small", seconds(spent) if record.evidence.turns else "–")


# Two runs as pairs in HTML: the numbers, and every pair that flipped with both transcripts.


def numbers_table(compared: Comparison, catalog: Catalog) -> Html:
    """Return pass rates of both runs, their difference with its interval, and the test."""
    columns = ("", compared.name_a, compared.name_b, catalog.text("compare.difference"))
    rows = [
        tag("tr", tag("th", name, scope="row"), *(tag("td", cell) for cell in cells))
        for name, *cells in numbers(compared, catalog)
    ]
    return table(columns, rows, caption=catalog.text("report.flips"))


def numbers(compared: Comparison, catalog: Catalog) -> Iterator[tuple[str, str, str, str]]:
    """Yield what the table says: name, a, b, difference."""
    n = len(compared.pairs)
    text = catalog.text
    a, b = (part_of(passed, n) for passed in (compared.passed_a, compared.passed_b))
    yield text("compare.pass_rate"), a, b, difference_words(compared)
    lost, gained = len(compared.lost), len(compared.gained)
    yield text("compare.flips"), f"−{lost}", f"+{gained}", f"{gained - lost:+d}"
    yield text("compare.mcnemar"), "", "", f"p {p_value(compared.p_value)}"
    for each in compared.people:
        label = text("compare.votes", person=each.person, count=each.votes)
        yield label, str(each.preferred_a), str(each.preferred_b), votes_words(each)


def flip_list(
    compared: Comparison, catalog: Catalog, *, is_inert: bool = False, at_most: int | None = None
) -> Html:
    """Return the pairs that flipped, lost ones first; each opens into both transcripts.

    Args:
        compared: the comparison.
        catalog: the texts.
        is_inert: keep transcripts as text until a script opens them; see `samples.sample_row`.
        at_most: how many lost and how many gained ones to show; all if None.
    """
    parts: list[Html] = []
    for key, pairs in (("lost", compared.lost), ("gained", compared.gained)):
        if pairs:
            parts.append(tag("h4", catalog.text(f"compare.{key}", count=len(pairs))))
            shown = pairs[:at_most]
            parts += [pair_row(pair, compared, catalog, is_inert=is_inert) for pair in shown]
            if len(shown) < len(pairs):
                more = catalog.text("compare.more", count=len(pairs) - len(shown))
                parts.append(tag("p", more))
    return join(parts)


def pair_row(
    pair: Pair,
    compared: Comparison,
    catalog: Catalog,
    *,
    is_inert: bool,
    lead: Html | None = None,
) -> Html:
    """Return one pair, closed; it opens into what stands before all, and both transcripts.

    Args:
        pair: the pair.
        compared: the comparison that it is of.
        catalog: the texts.
        is_inert: keep transcripts as text until a script opens them; see `sample_row`.
        lead: what stands before both transcripts.
    """
    sides = ((compared.name_a, pair.a), (compared.name_b, pair.b))
    both = tag(
        "div",
        *(tag("div", tag("h4", name), trace_html(each, catalog)) for name, each in sides),
        class_="lhr-flip",
    )
    both = both if lead is None else tag("div", lead, both)
    reasons = (pair.a.judgement.reasons or pair.b.judgement.reasons or ("",))[0]
    summary = tag(
        "summary",
        join(
            [
                verdict_chip(pair.a.judgement.verdict, catalog),
                " → ",
                verdict_chip(pair.b.judgement.verdict, catalog),
            ]
        ),
        tag("span", pair.a.ac, class_="lhr-dim"),
        tag("span", str(pair.a.sample_id), class_="lhr-id"),
        tag("span", reasons, class_="lhr-reason"),
    )
    return tag(
        "details",
        summary,
        tag("noscript", both) if is_inert else both,
        class_="lhr-sample",
        data_ac=pair.a.ac,
        data_verdict=pair.b.judgement.verdict,
    )


def difference_words(comparison: Comparison) -> str:
    """Return the difference of the pass rates in points, with its interval."""
    if comparison.difference is None:
        return NOTHING
    return _with_ends(comparison.difference, comparison.interval)


def votes_words(votes: PersonVotes) -> str:
    """Return the difference of one person's preferences in points, with interval and test."""
    return f"{_with_ends(votes.difference, votes.interval)}, p {p_value(votes.p_value)}"


def _with_ends(difference: float, interval: Interval | None) -> str:
    ends = "" if interval is None else f" ({points(interval.low)} … {points(interval.high)})"
    return f"{points(difference)}{ends}"


# What a cell shows of a run or a sample: self-contained, no script, in the theme of the notebook.
#
# The language is the one that the conversations are in, Korean where they mix.


_SHOWN_SAMPLES = 30
_SHOWN_FLIPS = 15


@dataclass(frozen=True, slots=True, repr=False)
class SampleView:
    """One sample of a run, to look at in a notebook."""

    record: SampleRecord

    def _repr_html_(self) -> str:
        """Return its transcript, open."""
        return sample_html(self.record)

    def __repr__(self) -> str:
        record = self.record
        name = str(record.sample_id)
        lines = (
            f"Sample({name}: {record.ac}, {record.judgement.verdict})",
            *record.judgement.reasons,
        )
        return "\n  ".join(lines)


def run_html(
    records: Sequence[SampleRecord], summary: Summary, *, toolset: str, name: str = ""
) -> Html:
    """Return a run's numbers, and its samples with failures first.

    Args:
        records: the samples.
        summary: their numbers.
        toolset: the name of what was played in.
        name: what the run is called; without one, its models name it.
    """
    catalog = catalog_of(records)
    shown = failures_first(records)[:_SHOWN_SAMPLES]
    more = len(records) - len(shown)
    named = name or ", ".join(identity.model for identity in summary.models)
    return styled(
        tag("h3", catalog.text("report.title", model=named or "–")),
        tiles(summary, catalog),
        tally_table(
            summary.by_ac,
            summary.total,
            catalog,
            heading=catalog.text("table.ac"),
            words=criterion_words((each.name for each in summary.by_ac), toolset, catalog),
            by_difficulty=summary.by_difficulty,
        ),
        violation_table(summary.total, catalog),
        claim_table(summary, catalog),
        tag("h4", catalog.text("report.samples")),
        *(sample_row(record, catalog) for record in shown),
        tag("p", catalog.text("report.more_samples", count=more)) if more else None,
    )


def sample_html(record: SampleRecord) -> Html:
    """Return one sample, open."""
    catalog = catalog_of([record])
    title = tag("h3", verdict_chip(record.judgement.verdict, catalog), f" {record.sample_id}")
    return styled(title, trace_html(record, catalog))


def comparison_html(compared: Comparison) -> Html:
    """Return the numbers of a comparison, and the pairs that flipped."""
    catalog = catalog_of([pair.a for pair in compared.pairs])
    title = tag("h3", f"{compared.name_a} → {compared.name_b}")
    flips = flip_list(compared, catalog, at_most=_SHOWN_FLIPS)
    return styled(title, numbers_table(compared, catalog), flips)


def styled(*parts: Html | None) -> Html:
    """Return parts as one piece of a notebook, with its style."""
    return tag("div", tag("style", style()), *parts, class_="lhr")


@cache
def style() -> Html:
    """Return the style of all fragments; colours are those of JupyterLab where it is there."""
    return Html(files(__package__).joinpath("report.css").read_text(encoding="utf-8"))


def catalog_of(records: Sequence[SampleRecord]) -> Catalog:
    """Return the texts in the language of some samples."""
    spoken = {record.locale for record in records} & set(available_locales())
    return load_catalog(spoken.pop() if len(spoken) == 1 else DEFAULT_LOCALE)


# Records, summaries and comparisons to HTML: what a notebook shows and what a report is made of.
#
# Pure: values in, escaped markup out, no file and no widget. Every text of a model, a user or a
# tool passes through `markup`, which escapes it; pages, plots and scripts are `report`'s business.
