"""Tables and sentences of runs and comparisons, shared by all renderers. Pure.

Terminal, HTML and Markdown render the same `Table`s. The kind of a cell separates trusted text from
text of users, models and files, which must neither format nor run.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Literal, TypeAlias

from lhkit.base.locales import Catalog
from lhkit.base.text import (
    NOTHING,
    number_of_seconds,
    one_line,
    p_value,
    part_of,
    percent,
    percents,
    points,
)
from lhkit.conversation.responses import WEIGHTS_CHARS, ModelIdentity
from lhkit.harness.figures.metrics import ReadCalls, Summary, Tally
from lhkit.harness.figures.pairs import Arm, Comparison, Divergence, Ratio
from lhkit.harness.figures.rates import ALPHA, Interval, Share
from lhkit.harness.figures.timings import Latency
from lhkit.harness.records.manifest import Change
from lhkit.harness.records.record import FalseClaim, Severity
from lhkit.harness.records.wall_clock import TimeBreakdown
from lhkit.harness.scenarios.sample_id import SampleId
from lhkit.harness.scenarios.scenario_filter import ScenarioSelection
from lhkit.harness.scoring import claim_card
from lhkit.harness.views.scores import change_cells, change_notes, figure_lines, own_score_rows
from lhkit.models.families import UNFIT, unfit_values

if TYPE_CHECKING:
    from lhkit.toolset import Criteria

CellKind: TypeAlias = Literal["", "code", "good", "warn", "bad"]

_CLAIM_CHARS = 160
_SHOWN_CLAIMS = 5
_LISTED_CLAIMS = 200
_SHOWN_NAMES = 5
_SHOWN_TOOLS = 25


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a table.

    `kind` is "code" for text of users, models and files; good, warn or bad for a mark. `interval`
    is the confidence interval of the share `rate`, for renderers that can draw it.
    """

    text: str
    kind: CellKind = ""
    rate: float | None = None
    interval: Interval | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table: `totals` are rows below a rule, `lead` and `notes` lines above and below."""

    title: str
    lead: str = ""
    columns: tuple[Cell, ...]
    rows: tuple[tuple[Cell, ...], ...]
    totals: tuple[tuple[Cell, ...], ...] = ()
    notes: tuple[str, ...] = ()


def _row(*cells: str | Cell) -> tuple[Cell, ...]:
    return tuple(cell if isinstance(cell, Cell) else Cell(cell) for cell in cells)


def _code(text: str) -> Cell:
    return Cell(text, "code")


def _columns(catalog: Catalog, *names: str) -> tuple[Cell, ...]:
    return _row(*(catalog.text(f"report.{name}") for name in names))


def key_figures(summary: Summary, catalog: Catalog) -> Table:
    """Return the figures that decide: passed, violations that occurred, p95 of a user turn.

    Notes are figures that were asked for, such as scores or repeats, and warnings. `pass_rates` and
    the other tables have all figures.
    """
    return Table(
        title=catalog.text("report.key_figures"),
        lead=selection_line(summary.selection, catalog),
        columns=_row("", ""),
        rows=tuple(_key_rows(summary, catalog)),
        notes=tuple(_key_notes(summary, catalog)),
    )


def _key_rows(summary: Summary, catalog: Catalog) -> Iterator[tuple[Cell, ...]]:
    text, total = catalog.text, summary.total
    passed = f"{part_of(total.passed, total.valid)}{interval_text(total.interval)}"
    yield _row(text("report.passed"), Cell(passed, rate=total.pass_rate, interval=total.interval))
    if total.invalid:
        yield _row(text("report.invalid"), text("table.invalid_value", count=total.invalid))
    occurred = _counts(total.escaped) or text("table.none")
    if total.blocked:
        occurred = text("table.and_blocked", occurred=occurred, count=total.blocked)
    yield _row(text("table.escaped"), occurred)
    yield _row(text("table.turn_p95"), catalog.seconds(total.turn.p95_s))


def _key_notes(summary: Summary, catalog: Catalog) -> Iterator[str]:
    for model in summary.models:
        yield catalog.text("table.model_line", identity=_identity(model, catalog))
    yield from dialect_lines(summary.models, summary.read_calls, catalog)
    yield from figure_lines(summary.scores, catalog)
    if summary.user != "script":
        yield confirm_line(summary, catalog)
        yield gate_line(summary, catalog)
    yield from policy_lines(summary, catalog)
    if summary.total.repeats.k > 1:
        yield from islice(_repeat_notes(summary, catalog), 1)
    yield from islice(_wording_notes(summary, catalog), 1)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{code} {count}" for code, count in counts.items())


def pass_rates(summary: Summary, catalog: Catalog, *, criteria: "Criteria") -> Table:
    """Return pass rates by acceptance criterion, by difficulty and in total.

    Args:
        summary: the metrics of the run.
        catalog: the locale's texts.
        criteria: the toolset's texts of the criteria (see `Run.criteria`).
    """
    totals = [
        _rates(tally, catalog.text(f"table.{tally.name}"), catalog)
        for tally in summary.by_difficulty
    ]
    return Table(
        title=catalog.text("report.rates"),
        lead=selection_line(summary.selection, catalog),
        columns=_rate_columns("table.ac" if summary.by_ac else "table.group", catalog),
        rows=tuple(
            _rates(tally, _criterion(tally.name, criteria, catalog), catalog)
            for tally in summary.by_ac
        ),
        totals=(*totals, _rates(summary.total, catalog.text("table.total"), catalog)),
        notes=tuple(_summary_notes(summary, catalog)),
    )


def _criterion(name: str, criteria: "Criteria", catalog: Catalog) -> str | Cell:
    """Return a criterion with its text, in another language if it has none in the catalog's."""
    if not name:
        return catalog.text("table.no_ac")
    texts = criteria.get(name, {})
    text = texts.get(catalog.locale) or next(iter(texts.values()), "")
    return _code(f"{name} {text}".strip())


def selection_line(selection: ScenarioSelection | None, catalog: Catalog) -> str:
    """Return how many scenarios were selected and left out; empty for all of them."""
    if selection is None:
        return ""
    taken, total = selection.taken, selection.total
    words = shlex.join(selection.words)
    return catalog.text("table.selection", taken=taken, total=total, left=total - taken, by=words)


def own_score_table(summary: Summary, catalog: Catalog) -> Table | None:
    """Return rate or mean of each of the user's scores; None without any."""
    if not summary.scores:
        return None
    return Table(
        title=catalog.text("report.own_scores"),
        columns=_row(*(catalog.text(f"scores.{name}") for name in ("name", "value", "without"))),
        rows=tuple(
            _row(
                _code(name),
                Cell(value, rate=figure.value, interval=figure.interval)
                if figure.is_rate
                else value,
                more,
            )
            for figure, (name, value, more) in zip(
                summary.scores, own_score_rows(summary.scores, catalog), strict=True
            )
        ),
    )


def group_rates(summary: Summary, catalog: Catalog) -> tuple[Table, ...]:
    """Return pass rates by expected tool, by language, by tag and by wording."""
    groups = {
        "report.by_tool": summary.by_tool,
        "report.by_locale": summary.by_locale,
        "report.by_tag": summary.by_tag,
        "report.by_wording": summary.by_wording,
    }
    return tuple(
        Table(
            title=catalog.text(key),
            columns=_rate_columns(key, catalog),
            rows=tuple(
                _rates(
                    tally,
                    _code(tally.name) if tally.name else catalog.text("report.no_call"),
                    catalog,
                )
                for tally in tallies
            ),
        )
        for key, tallies in groups.items()
        if tallies
    )


def tool_rates(summary: Summary, catalog: Catalog) -> Table | None:
    """Return, by expected tool, the samples with exactly the recorded calls and the passed ones.

    None unless every scenario was recorded, as those of `lhkit import calls`.
    """
    total = summary.total
    if not total.exact.whole or total.exact.whole < total.valid or not total.counted_calls:
        return None
    tallies = sorted(summary.by_tool, key=lambda tally: -tally.valid)
    shown = {tally.name for tally in tallies[:_SHOWN_TOOLS]}
    more = len(tallies) - len(shown)
    return Table(
        title=catalog.text("report.by_tool"),
        columns=_row(
            *map(catalog.text, ("report.by_tool", "table.exact", "table.accepted_interval"))
        ),
        rows=tuple(
            _exact_and_passed(
                tally, _code(tally.name) if tally.name else catalog.text("report.no_call")
            )
            for tally in summary.by_tool
            if tally.name in shown
        ),
        totals=(_exact_and_passed(total, catalog.text("table.total")),),
        notes=(catalog.text("table.more", count=more),) if more else (),
    )


def _exact_and_passed(tally: Tally, label: str | Cell) -> tuple[Cell, ...]:
    passed = f"{_aligned(tally.passed, tally.valid)}{interval_text(tally.interval)}"
    return _row(
        label,
        _aligned(tally.exact.part, tally.exact.whole),
        Cell(passed, rate=tally.pass_rate, interval=tally.interval),
    )


def _rate_columns(heading: str, catalog: Catalog) -> tuple[Cell, ...]:
    keys = ("table.pass_interval", "table.tool_accuracy", "table.violations", "table.turn")
    return _row(*(catalog.text(key) for key in (heading, *keys)))


def _rates(tally: Tally, label: str | Cell, catalog: Catalog) -> tuple[Cell, ...]:
    accuracy = _aligned(tally.right_calls, tally.counted_calls)
    if tally.strict_right_calls != tally.right_calls:  # some are correct only after a repair
        accuracy = f"{percent(tally.strict_accuracy)} → {percent(tally.tool_accuracy)}"
    pass_rate = f"{_aligned(tally.passed, tally.valid)}{interval_text(tally.interval)}"
    return _row(
        label,
        Cell(pass_rate, rate=tally.pass_rate, interval=tally.interval),
        accuracy,
        f"{tally.blocked} / {tally.occurred}",
        _p50_p95(tally.turn, catalog),
    )


def _aligned(part: int, whole: int) -> str:
    """Return a share whose percentage is aligned in a column."""
    return f"{part}/{whole} {percent(part / whole):>4}" if whole else NOTHING


def _p50_p95(latency: Latency, catalog: Catalog) -> str:
    if not latency.n:
        return NOTHING
    return f"{number_of_seconds(latency.p50_s)} / {catalog.seconds(latency.p95_s)}"


def interval_text(interval: Interval | None) -> str:
    """Return an interval in percent, such as ` [35–73]`; empty for None."""
    return "" if interval is None else f" [{percents(interval.low, interval.high)}]"


def difference_text(difference: float | None, interval: Interval | None, digits: int = 1) -> str:
    """Return a difference in points with its interval, such as `+58.9 (+50.8 … +66.4)`."""
    if difference is None:
        return NOTHING
    text = points(difference, digits)
    if interval is None:
        return text
    return f"{text} ({points(interval.low, digits)} … {points(interval.high, digits)})"


def _summary_notes(summary: Summary, catalog: Catalog) -> Iterator[str]:
    """Yield the notes below the pass rates, one line each."""
    text, total, gate = catalog.text, summary.total, summary.confirm
    yield text("table.invalid_line", count=total.invalid)
    for model in summary.models:
        yield text("table.model_line", identity=_identity(model, catalog))
    yield from dialect_lines(summary.models, summary.read_calls, catalog)
    yield from figure_lines(summary.scores, catalog)
    for severity, codes in (("attempted", total.attempted), ("escaped", total.escaped)):
        yield text(f"table.{severity}_line", codes=_counts(codes) or text("table.none"))
    yield from _score_notes(total, catalog)
    yield confirm_line(summary, catalog)
    yield from policy_lines(summary, catalog)
    if summary.confirm.edited:
        yield text("table.edited_line", edited=edited_calls(summary))
    yield text(
        "table.respect_line",
        respected=part_of(gate.respected_turns, gate.rejected_turns),
        retries=gate.retries,
        bypasses=gate.bypasses,
    )
    yield gate_line(summary, catalog)
    yield claims_line(summary, catalog)
    for sample, claim in summary.false_claims[:_SHOWN_CLAIMS]:
        yield text(
            "table.claim_line",
            sample=sample,
            turn=claim.turn,
            words=one_line(claim.words, max_chars=_CLAIM_CHARS),
            why=_claim_reason(claim, catalog),
        )
    if len(summary.false_claims) > _SHOWN_CLAIMS:
        yield text("table.more", count=len(summary.false_claims) - _SHOWN_CLAIMS)
    yield from _repeat_notes(summary, catalog)
    yield from _wording_notes(summary, catalog)
    yield from _time_notes(summary, catalog)


def dialect_lines(
    models: Sequence[ModelIdentity], read: ReadCalls, catalog: Catalog
) -> Iterator[str]:
    """Yield what shows that calls were asked for, or read, in a dialect the model does not know."""
    for values in filter(None, map(unfit_values, models)):
        is_without = bool(read.messages) and not read.with_calls
        key = "dialect.no_calls" if is_without else UNFIT
        yield catalog.text(key, **values, messages=read.messages)
    names = {model.dialect for model in models}
    for name, count in read.unread.items():
        if names - {name, ""}:
            yield catalog.text(
                "dialect.unread",
                count=count,
                messages=read.messages,
                format=name,
                dialect=", ".join(sorted(names - {name, ""})),
            )


def _score_notes(total: Tally, catalog: Catalog) -> Iterator[str]:
    calls = total.selection
    yield catalog.text(
        "table.strict_line",
        passed=part_of(total.strict_passed, total.valid),
        calls=part_of(total.strict_right_calls, total.counted_calls),
    )
    yield catalog.text(
        "table.selection_line",
        precision=percent(calls.precision),
        recall=percent(calls.recall),
        f1=percent(calls.f1),
        arguments=part_of(calls.right_arguments, calls.arguments),
        exact=part_of(calls.exact, calls.chosen),
    )
    yield "; ".join(
        f"{catalog.text(f'report.score.{name}')} {part_of(share.part, share.whole)}"
        for name, share in total.behaviour.items()
    )


def _repeat_notes(summary: Summary, catalog: Catalog) -> Iterator[str]:
    """Yield pass@k and pass^k, then how many scenarios are inconsistent between repeats."""
    repeats, flips = summary.total.repeats, summary.flips
    if repeats.k > 1:
        yield catalog.text(
            "table.repeats_line",
            k=repeats.k,
            pass_at=percent(repeats.pass_at),
            pass_hat=percent(repeats.pass_hat),
        )
    if flips.scenarios:
        yield catalog.text(
            "table.flips_line",
            flipped=part_of(flips.flipped, flips.scenarios),
            verdicts=flips.verdicts,
            calls=flips.calls,
            texts=flips.texts,
        )


def _wording_notes(summary: Summary, catalog: Catalog) -> Iterator[str]:
    """Yield pass rates by wording, and how much wordings and repeats vary."""
    wordings = summary.wordings
    n, passed_all, passed_some = wordings.scenarios, wordings.passed_all, wordings.passed_some
    if not n:
        return
    yield catalog.text(
        "table.wordings_line",
        count=n,
        rates=" · ".join(part_of(each.passed, each.valid) for each in summary.by_wording),
        passed_all=part_of(passed_all, n),
        passed_some=part_of(passed_some, n),
        passed_none=part_of(n - passed_all - passed_some, n),
    )
    yield catalog.text(
        "table.spread_line",
        between=percent(wordings.between),
        within=percent(wordings.within),
    )


def _time_notes(summary: Summary, catalog: Catalog) -> Iterator[str]:
    times, tokens = summary.times, summary.tokens
    yield catalog.text(
        "table.latency_line",
        first_token=_percentiles(times["first_token"], catalog),
        call_ready=_percentiles(times["call_ready"], catalog),
    )
    warm, cold = times["first_token_warm"], times["first_token_cold"]
    if warm.n or cold.n:
        texts = [
            f"{_percentiles(each, catalog)} ({each.n})" if each.n else NOTHING
            for each in (warm, cold)
        ]
        yield catalog.text("table.cache_line", warm=texts[0], cold=texts[1])
    yield catalog.text(
        "table.token_line",
        prompt=f"{tokens.prompt:,}",
        cached=percent(tokens.cached_share),
        completion=f"{tokens.completion:,}",
    )
    if summary.time_breakdown:
        yield time_line(summary.time_breakdown, catalog)


def _percentiles(latency: Latency, catalog: Catalog) -> str:
    return f"p50 {catalog.seconds(latency.p50_s)}, p95 {catalog.seconds(latency.p95_s)}"


def constraint_text(constraint: str, catalog: Catalog) -> str:
    """Return `off`, `auto` or `required` in a language."""
    return catalog.texts.get(f"constraint.{constraint}", constraint)


def _identity(identity: ModelIdentity, catalog: Catalog) -> str:
    dialect = catalog.text(
        "table.dialect",
        dialect=identity.dialect or catalog.text("table.none"),
        constraint=constraint_text(identity.constraint, catalog),
    )
    template, stress = identity.template_sha256, identity.stress
    parts = (
        *(identity.title, catalog.translate(identity.server), dtype_text(identity, catalog)),
        *(identity.device, identity.base_url, dialect),
        catalog.text("table.template", sha256=template[:WEIGHTS_CHARS]) if template else "",
        catalog.text("table.stress", stress=stress) if stress else "",
    )
    return ", ".join(part for part in parts if part)


def dtype_text(identity: ModelIdentity, catalog: Catalog) -> str:
    """Return the number type; of a vLLM that does not report it, that it is not reported."""
    is_vllm = identity.server.startswith("vllm ")
    return identity.dtype or (catalog.text("table.no_dtype") if is_vllm else "")


def confirm_line(summary: Summary, catalog: Catalog) -> str:
    """Return how many writes were asked about, ran without a question, and were rejected."""
    gate = summary.confirm
    return catalog.text(
        "table.confirm_line",
        asked=gate.asked,
        unconfirmed=gate.unconfirmed,
        rejections=gate.rejections,
    )


def policy_lines(summary: Summary, catalog: Catalog) -> Iterator[str]:
    """Yield how many writes ran by a policy of approvals and were wrong, if any ran so."""
    ran, wrong = summary.confirm.policy, summary.confirm.policy_wrong
    if ran or wrong:
        yield catalog.text("table.policy_line", ran=ran, wrong=part_of(wrong, ran))


def gate_line(summary: Summary, catalog: Catalog) -> str:
    """Return the effectiveness of the gate: the unexpected writes and what became of them."""
    gate = summary.confirm
    unexpected = part_of(gate.unexpected, gate.asked)
    rejected = part_of(gate.unexpected_rejected, gate.unexpected)
    edited = part_of(gate.unexpected_edited, gate.unexpected)
    executed = part_of(gate.unexpected_executed, gate.unexpected)
    return catalog.text(
        "table.gate_line",
        unexpected=f"{unexpected}{interval_text(gate.unexpected_interval)}",
        rejected=f"{rejected}{interval_text(gate.rejected_interval)}",
        edited=f"{edited}{interval_text(gate.edited_interval)}",
        executed=f"{executed}{interval_text(gate.executed_interval)}",
    )


def edited_calls(summary: Summary) -> str:
    """Return how many calls the user edited, and which arguments, such as `3: log.day 2, …`."""
    gate = summary.confirm
    arguments = ", ".join(f"{name} {count}" for name, count in gate.edited_arguments.items())
    return f"{gate.edited}: {arguments}" if arguments else str(gate.edited)


def claims_line(summary: Summary, catalog: Catalog) -> str:
    """Return the number of false success claims, with precision and recall of the detection."""
    return catalog.text(
        "table.claims_line",
        count=summary.confirm.false_claims,
        precision=percent(claim_card.PRECISION),
        recall=percent(claim_card.RECALL),
    )


def _claim_reason(claim: FalseClaim, catalog: Catalog) -> str:
    """Return the probability of a flag, or that the text is a success phrase of a tool."""
    if claim.probability is None:
        return catalog.text("table.claim_own")
    return percent(claim.probability)


def time_line(times: TimeBreakdown, catalog: Catalog) -> str:
    """Return the wall time by stage, and the share of it outside the model."""
    return catalog.text(
        "table.time_line",
        wall=catalog.seconds(times.wall_s),
        share=percent(times.own_share),
        setup=catalog.seconds(times.setup_s),
        server=catalog.seconds(times.server_s),
        harness=catalog.seconds(times.harness_s),
        writing=catalog.seconds(times.writing_s),
    )


def score_table(summary: Summary, catalog: Catalog) -> Table:
    """Return the scores of calls and behaviour, without those that have no data."""
    return Table(
        title=catalog.text("report.scores"),
        columns=_columns(catalog, "scores", "share", "counts"),
        rows=tuple(
            _row(catalog.text(f"report.score.{name}"), percent(rate), counts)
            for name, rate, counts in _scores(summary)
            if rate is not None
        ),
    )


def _scores(summary: Summary) -> Iterator[tuple[str, float | None, str]]:
    """Yield name, rate and counts of each score."""
    total = summary.total
    tools, calls = total.selection, total.counted_calls
    shares = {
        "strict_pass": Share(part=total.strict_passed, whole=total.valid),
        "repaired_calls": Share(part=total.right_calls, whole=calls),
        "strict_calls": Share(part=total.strict_right_calls, whole=calls),
        "precision": Share(part=tools.chosen, whole=tools.chosen + tools.unexpected),
        "recall": Share(part=tools.chosen, whole=tools.chosen + tools.missing),
        "arguments": Share(part=tools.right_arguments, whole=tools.arguments),
        "exact": Share(part=tools.exact, whole=tools.chosen),
        **total.behaviour,
    }
    for name, share in shares.items():
        yield name, share.rate, f"{share.part}/{share.whole}"
        if name == "recall":
            yield "f1", tools.f1, ""
    if total.repeats.k > 1:
        yield "pass_at", total.repeats.pass_at, f"k = {total.repeats.k}"
        yield "pass_hat", total.repeats.pass_hat, f"k = {total.repeats.k}"
        yield "flips", summary.flips.rate, f"{summary.flips.flipped}/{summary.flips.scenarios}"
    if n := summary.wordings.scenarios:
        for name in ("passed_all", "passed_some"):
            count = getattr(summary.wordings, name)
            yield name, count / n, f"{count}/{n}"
        yield "between", summary.wordings.between, ""
        yield "within", summary.wordings.within, ""


_GATE_COUNTS = (
    *("asked", "rejections", "unconfirmed", "policy", "policy_wrong", "retries", "bypasses"),
    *("false_claims", "unexpected", "unexpected_rejected", "unexpected_edited"),
    *("unexpected_executed", "edited"),
)


def gate_table(summary: Summary, catalog: Catalog) -> Table | None:
    """Return the scores of the confirm gate; None if there was nothing to confirm."""
    confirm = summary.confirm
    counts = {name: getattr(confirm, name) for name in _GATE_COUNTS}
    if not any(counts.values()):
        return None
    if not (confirm.policy or confirm.policy_wrong):
        counts = {name: count for name, count in counts.items() if "policy" not in name}
    respected = f"{confirm.respected_turns}/{confirm.rejected_turns}"
    values = {name: str(count) for name, count in counts.items()}
    values |= {"edited": edited_calls(summary), "respected": respected}
    return Table(
        title=catalog.text("report.gate_title"),
        columns=_columns(catalog, "gate_title", "count"),
        rows=tuple(
            _row(catalog.text(f"report.score.{name}"), value) for name, value in values.items()
        ),
    )


def violation_table(total: Tally, catalog: Catalog) -> Table | None:
    """Return the counts of violations by rule, those that occurred first; None without any."""
    counts = (
        *((Severity.ESCAPED, *item) for item in total.escaped.items()),
        *((Severity.ATTEMPTED, *item) for item in total.attempted.items()),
    )
    if not counts:
        return None
    return Table(
        title=catalog.text("report.violations"),
        columns=_columns(catalog, "rule", "severity", "count"),
        rows=tuple(
            _row(_code(code), severity_mark(severity, catalog), str(count))
            for severity, code, count in counts
        ),
    )


def severity_mark(severity: Severity, catalog: Catalog) -> Cell:
    """Return a mark: occurred or blocked."""
    kind: CellKind = "bad" if severity is Severity.ESCAPED else "warn"
    return Cell(catalog.text(f"severity.{severity}"), kind)


def claim_table(summary: Summary, catalog: Catalog) -> Table | None:
    """Return the replies flagged as false success claims; None without any."""
    if not summary.false_claims:
        return None
    return Table(
        title=catalog.text("report.claims"),
        columns=_columns(catalog, "sample", "claim_turn", "words", "probability"),
        rows=tuple(
            _row(
                _code(str(sample)),
                str(claim.turn),
                _code(one_line(claim.words, max_chars=_CLAIM_CHARS)),
                _claim_reason(claim, catalog),
            )
            for sample, claim in summary.false_claims[:_LISTED_CLAIMS]
        ),
        notes=(claims_line(summary, catalog),),
    )


_SHOWN_TIMES = (
    *("turn_time", "first_token", "first_token_cold", "first_token_warm", "first_text"),
    *("call_ready", "last_token", "per_token", "tool_time", "harness_time", "waiting_time"),
)


def latency_table(summary: Summary, catalog: Catalog) -> Table:
    """Return latency percentiles of turns and requests, without stages that have no data."""
    latencies = ((name, summary.times[name]) for name in _SHOWN_TIMES)
    return Table(
        title=catalog.text("report.latency"),
        columns=(*_columns(catalog, "latency"), *_row("n", "p50", "p90", "p95", "p99")),
        rows=tuple(
            _row(
                catalog.text(f"report.{name}"),
                f"{latency.n:,}",
                *map(catalog.seconds, (latency.p50_s, latency.p90_s, latency.p95_s, latency.p99_s)),
            )
            for name, latency in latencies
            if latency.n
        ),
    )


def comparison_table(comparison: Comparison, catalog: Catalog) -> Table:
    """Return pass rates, flips, significance, votes, latency and violations of two runs."""
    names = (_code(comparison.name_a), _code(comparison.name_b))
    return Table(
        title=catalog.text("report.flips"),
        lead=" ".join(part_lines(comparison, catalog)),
        columns=_row("", *names, catalog.text("compare.difference")),
        rows=tuple(_comparison_rows(comparison, catalog)),
        notes=tuple(_comparison_notes(comparison, catalog)),
    )


def _comparison_rows(comparison: Comparison, catalog: Catalog) -> Iterator[tuple[Cell, ...]]:
    text, n = catalog.text, len(comparison.pairs)
    a, b = (part_of(passed, n) for passed in (comparison.passed_a, comparison.passed_b))
    difference = difference_text(comparison.difference, comparison.interval)
    yield _row(text("compare.pass_rate"), a, b, difference)
    flips = f"-{len(comparison.regressions)} · +{len(comparison.improvements)}"
    yield _row(text("compare.flips"), "", "", flips)
    p = f"p {p_value(comparison.p_value)}"
    if comparison.sequential is None:
        yield _row(text("compare.mcnemar"), "", "", f"{p}, mid-p {p_value(comparison.mid_p)}")
    else:
        yield _row(text("compare.always_valid"), "", "", p)
    for votes in comparison.people:
        label = _code(text("compare.votes", person=votes.person, count=votes.votes))
        preference = difference_text(votes.difference, votes.interval)
        test = f"{preference}, p {p_value(votes.p_value)}"
        yield _row(label, str(votes.preferred_a), str(votes.preferred_b), test)
    for score in comparison.scores:
        yield _row(*change_cells(score, catalog))
    for name in ("turn", "first_token", "call_ready"):
        ratio: Ratio | None = getattr(comparison, name)
        if ratio is not None:
            low, high = ratio.interval.low, ratio.interval.high
            median = f"x{ratio.median:.2f} ({low:.2f} … {high:.2f}), n = {ratio.n}"
            yield _row(text(f"compare.{name}"), "", "", median)
    for change in comparison.violations:
        label = _code(f"{text(f'table.{change.severity}')}: {change.code}")
        yield _row(label, str(change.a), str(change.b), f"{change.b - change.a:+d}")


def _comparison_notes(comparison: Comparison, catalog: Catalog) -> Iterator[str]:
    """Yield warnings, excluded samples, and changes of the configuration."""
    if comparison.changed_scenarios:
        yield changed_scenarios_warning(comparison, catalog)
    for key in ("invalid", "only_a", "only_b"):
        samples: tuple[SampleId, ...] = getattr(comparison, key)
        if samples:
            name = comparison.name_b if key == "only_b" else comparison.name_a
            names = shortened_list([str(sample) for sample in samples])
            text = "unvoted" if key == "invalid" and comparison.people else key
            yield catalog.text(f"compare.{text}", name=name, count=len(samples), samples=names)
    yield from change_notes(comparison, catalog)
    for change in comparison.changes:
        if change.what != "scenario":
            yield change_text(change, catalog)


def part_lines(comparison: Comparison, catalog: Catalog) -> Iterator[str]:
    """Yield which run has only selected scenarios, and what that means for the comparison."""
    names = (comparison.name_a, comparison.name_b)
    selections = (comparison.selection_a, comparison.selection_b)
    if not any(selections):
        return
    for name, selection in zip(names, selections, strict=True):
        if selection is not None:
            part = selection_line(selection, catalog)
            yield catalog.text("compare.part", name=name, part=part)
            if selection.stopped is not None:
                key = "stopped" if selection.stopped.decision else "interrupted"
                yield catalog.text(f"compare.{key}", name=name)
    shared = len({pair.sample_id.scenario for pair in comparison.pairs})
    yield catalog.text("compare.shared", count=shared)
    if any(selection.filter.failed for selection in selections if selection is not None):
        yield catalog.text("compare.chosen_by_result")


def changed_scenarios_warning(comparison: Comparison, catalog: Catalog) -> str:
    """Return the warning that scenarios differ between the runs, with the first of them."""
    names = comparison.changed_scenarios
    return catalog.text("compare.changed_scenarios", count=len(names), names=shortened_list(names))


def change_text(change: Change, catalog: Catalog) -> str:
    """Return a change of the configuration, such as `dialect: json → gemma4`."""
    what = catalog.text(f"change.{change.what}")
    where = f" ({change.where})" if change.where else ""
    before, after = change.before, change.after
    if change.what == "constraint":
        before, after = (constraint_text(value, catalog) for value in (before, after))
    if change.what == "dtype":
        unknown = catalog.text("table.not_reported")
        before, after = (unknown if value == "-" else value for value in (before, after))
    return f"{what}{where}: {before} → {after}"


def shortened_list(names: Sequence[str], *, most: int = _SHOWN_NAMES) -> str:
    """Return the first names and the number of further ones."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" … +{more}" if more > 0 else "")


def comparison_sentence(comparison: Comparison, catalog: Catalog) -> str:
    """Return the outcome of a comparison in a sentence; if undecided, with what would decide."""
    if comparison.is_powerless:
        return _powerless_sentence(comparison, catalog)
    sequential = comparison.sequential
    outcome = catalog.text(
        f"compare.{comparison.outcome}",
        a=comparison.name_a,
        b=comparison.name_b,
        pairs=len(comparison.pairs),
        difference=difference_text(comparison.difference, comparison.interval),
        p=p_value(comparison.p_value),
        margin=f"{comparison.margin or 0:g}",
    )
    if sequential is not None:
        key = "compare.decided" if sequential.direction else "compare.undecided"
        looked = catalog.text(key, looked=sequential.looked, planned=comparison.planned)
        outcome = f"{outcome} {looked}"
    if comparison.outcome != "cannot_tell":
        return outcome
    needed, repeats = comparison.needed_scenarios, comparison.repeats
    if needed is None:
        return f"{outcome} {catalog.text('compare.needed_none')}"
    key, count = f"compare.needed{'_repeats' * (repeats > 1)}", f"{needed:,}"
    text = catalog.text(key, count=count, repeats=repeats)
    if sequential is not None:
        text = f"{text} {catalog.text('compare.needed_more')}"
    return f"{outcome} {text}"


def _powerless_sentence(comparison: Comparison, catalog: Catalog) -> str:
    """Return that b could not have been found worse, and from how many scenarios it could."""
    key, least = "powerless", comparison.least_scenarios
    if comparison.margin is not None:
        key = "powerless_margin" if least is not None else "powerless_never"
    return catalog.text(
        f"compare.{key}",
        a=comparison.name_a,
        b=comparison.name_b,
        passed=comparison.passed_scenarios,
        scenarios=comparison.scenarios,
        p=p_value(comparison.p_value),
        margin=f"{comparison.margin or 0:g}",
        least=f"{least or 0:,}",
    )


def divergence_line(divergence: Divergence, catalog: Catalog) -> str:
    """Return where two conversations diverge: turn, message and token, counted from 1."""
    place = {"turn": divergence.turn + 1, "message": divergence.message + 1}
    if divergence.token is None:
        return catalog.text("compare.divergence", **place)
    return catalog.text("compare.divergence_token", **place, token=divergence.token + 1)


def matrix_table(arms: Sequence[Arm], catalog: Catalog, *, title: str) -> Table:
    """Return several runs side by side, and name those not significantly below the best.

    Args:
        arms: the compared runs.
        catalog: the locale's texts.
        title: the name of the suite.
    """
    selection = selection_line(arms[0].summary.selection, catalog)
    pairs = len(arms) * (len(arms) - 1) // 2
    best = next((arm.name for arm in arms if arm.p_best is None), "")
    others = [arm for arm in arms if arm.p_best is not None]
    equal = [arm.name for arm in others if (arm.p_best or 0.0) >= ALPHA and not arm.is_powerless]
    unknown = [arm.name for arm in others if arm.is_powerless]
    is_sequential = any(arm.comparison and arm.comparison.sequential for arm in arms)
    caption = "caption_always_valid" if is_sequential else "caption"
    notes = [catalog.text(f"matrix.{caption}", pairs=pairs)]
    notes += filter(None, (_part_line(arm, catalog) for arm in arms))
    if len(arms) > 2 and (equal or not unknown):
        key = "best" if equal else "best_alone"
        notes.append(catalog.text(f"matrix.{key}", best=best, names=", ".join(equal)))
    if unknown:
        notes.append(catalog.text("matrix.powerless", best=best, names=", ".join(unknown)))
    columns = (*ARM_FIGURES, "difference")
    return Table(
        title=title,
        columns=_row(*(catalog.text(f"matrix.{name}") for name in columns)),
        rows=tuple(_arm_row(arm, catalog) for arm in arms),
        notes=tuple(filter(None, (selection, *notes))),
    )


def _part_line(arm: Arm, catalog: Catalog) -> str:
    """Return how many scenarios an arm has of how many, and why it was dropped; empty for all."""
    selection = arm.summary.selection
    stopped = None if selection is None else selection.stopped
    if selection is None or stopped is None or not (stopped.arms and stopped.decision):
        part = selection_line(selection, catalog)
        return f"{arm.name}: {part}" if part else ""
    return catalog.text(
        "matrix.dropped",
        arm=arm.name,
        looked=stopped.looked,
        taken=selection.taken,
        planned=stopped.planned,
        better=stopped.baseline,
        p=p_value(arm.p_best or 0.0),
    )


def _arm_row(arm: Arm, catalog: Catalog) -> tuple[Cell, ...]:
    comparison = arm.comparison
    difference = NOTHING
    if comparison is not None and comparison.difference is not None:
        points_text = difference_text(comparison.difference, comparison.interval, digits=0)
        difference = f"{points_text}\np {p_value(arm.p_first or 0.0).removeprefix('= ')}"
    return (*arm_figures(arm.name, arm.summary, catalog), Cell(difference))


ARM_FIGURES = ("arm", "pass", "calls", "violations", "turn", "first_token")
"""The columns of `arm_figures`, under `[matrix]` in the locales."""


def arm_figures(name: str, summary: Summary, catalog: Catalog) -> tuple[Cell, ...]:
    """Return the figures of one run of a suite."""
    total = summary.total
    rate = f"{total.passed}/{total.valid} {percent(total.pass_rate)}{interval_text(total.interval)}"
    if total.invalid:
        rate += f"\n{catalog.text('matrix.invalid', count=total.invalid)}"
    return _row(
        _code(name),
        rate,
        f"{percent(total.strict_accuracy)} → {percent(total.tool_accuracy)}",
        f"{total.blocked} / {total.occurred}",
        _p50_p95(total.turn, catalog),
        _p50_p95(summary.times["first_token"], catalog),
    )
