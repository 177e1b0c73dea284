"""The tables and sentences of a run and of a comparison, built once for every renderer. Pure.

Terminal, HTML and Markdown lay out the same `Table`s. A cell says what its text is: words of ours,
or text of users, models and files that must not format or run.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from lhkit.harness.manifest import Change
from lhkit.harness.metrics import Share, Summary, Tally
from lhkit.harness.pairs import Comparison, Divergence, PersonVotes, Ratio
from lhkit.harness.record import FalseClaim, SampleId, Severity
from lhkit.harness.scoring.claim_model import shipped_model
from lhkit.harness.shares import Interval
from lhkit.harness.timings import Latency, TimeBreakdown
from lhkit.locales import Catalog
from lhkit.responses import ModelIdentity
from lhkit.settings import DEFAULT_TOOLSET
from lhkit.text import (
    NOTHING,
    number_of_seconds,
    one_line,
    p_value,
    part_of,
    percent,
    percents,
    points,
    seconds,
)

Kind: TypeAlias = Literal["", "code", "good", "warn", "bad"]

_CLAIM_CHARS = 160
_SHOWN_CLAIMS = 5
_LISTED_CLAIMS = 200
_SHOWN_NAMES = 5


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a table.

    `kind` is "code" for text of users, models and files, and good, warn or bad for a mark.
    `interval` is that of the share `rate`, for renderers that can draw it.
    """

    text: str
    kind: Kind = ""
    rate: float | None = None
    interval: Interval | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table with its title; `totals` are rows below a rule, `notes` are lines below the table."""

    title: str
    columns: tuple[Cell, ...]
    rows: tuple[tuple[Cell, ...], ...]
    totals: tuple[tuple[Cell, ...], ...] = ()
    notes: tuple[str, ...] = ()


def _row(*cells: str | Cell) -> tuple[Cell, ...]:
    return tuple(cell if isinstance(cell, Cell) else Cell(cell) for cell in cells)


def _code(text: str) -> Cell:
    return Cell(text, "code")


def pass_rates(
    summary: Summary, catalog: Catalog, descriptions: Mapping[str, str] | None = None
) -> Table:
    """Return a row for each acceptance criterion, then plain and hard scenarios and the total.

    Args:
        summary: the numbers.
        catalog: the texts.
        descriptions: a few words for each acceptance criterion, shown behind its name.
    """
    words = descriptions or {}
    totals = [_rates(each, catalog.text(f"table.{each.name}")) for each in summary.by_difficulty]
    return Table(
        title=catalog.text("report.rates"),
        columns=_rate_columns("table.ac", catalog),
        rows=tuple(
            _rates(each, _code(f"{each.name} {words.get(each.name, '')}".strip()))
            for each in summary.by_ac
        ),
        totals=(*totals, _rates(summary.total, catalog.text("table.total"))),
        notes=tuple(_summary_lines(summary, catalog)),
    )


def group_rates(summary: Summary, catalog: Catalog) -> tuple[Table, ...]:
    """Return the same columns by tool that was due, by language and by tag."""
    groups = {
        "report.by_tool": summary.by_tool,
        "report.by_locale": summary.by_locale,
        "report.by_tag": summary.by_tag,
    }
    return tuple(
        Table(
            title=catalog.text(key),
            columns=_rate_columns(key, catalog),
            rows=tuple(
                _rates(each, _code(each.name) if each.name else catalog.text("report.no_call"))
                for each in tallies
            ),
        )
        for key, tallies in groups.items()
        if tallies
    )


def _rate_columns(heading: str, catalog: Catalog) -> tuple[Cell, ...]:
    keys = ("table.pass_interval", "table.tool_accuracy", "table.violations", "table.turn")
    return _row(*(catalog.text(key) for key in (heading, *keys)))


def _rates(tally: Tally, label: str | Cell) -> tuple[Cell, ...]:
    accuracy = _aligned(tally.right_calls, tally.counted_calls)
    if tally.strict_right_calls != tally.right_calls:  # repairs made some of them right
        accuracy = f"{percent(tally.strict_accuracy)} → {percent(tally.tool_accuracy)}"
    shown = f"{_aligned(tally.passed, tally.valid)}{bracketed(tally.interval)}"
    return _row(
        label,
        Cell(shown, rate=tally.pass_rate, interval=tally.interval),
        accuracy,
        _violation_counts(tally),
        _half_and_most(tally.turn),
    )


def _aligned(part: int, whole: int) -> str:
    """Return a share for a column: percents are below each other."""
    return f"{part}/{whole} {percent(part / whole):>4}" if whole else NOTHING


def _violation_counts(tally: Tally) -> str:
    return f"{sum(tally.attempted.values())} / {sum(tally.escaped.values())}"


def _half_and_most(latency: Latency) -> str:
    if not latency.n:
        return NOTHING
    return f"{number_of_seconds(latency.p50_s)} / {seconds(latency.p95_s)}"


def bracketed(interval: Interval | None) -> str:
    """Return the interval of a share in percent, such as ` [35–73]`; empty without one."""
    return "" if interval is None else f" [{percents(interval.low, interval.high)}]"


def with_ends(difference: float | None, interval: Interval | None, digits: int = 1) -> str:
    """Return a difference in points and its interval, such as `+58.9 (+50.8 … +66.4)`."""
    if difference is None:
        return NOTHING
    shown = points(difference, digits)
    if interval is None:
        return shown
    return f"{shown} ({points(interval.low, digits)} … {points(interval.high, digits)})"


def criterion_words(names: Iterable[str], toolset: str, catalog: Catalog) -> dict[str, str]:
    """Return a few words for each acceptance criterion; none for those of another toolset."""
    is_ours = toolset == DEFAULT_TOOLSET
    return {name: catalog.texts.get(f"ac.{name}", "") if is_ours else "" for name in names}


def _summary_lines(summary: Summary, catalog: Catalog) -> Iterator[str]:
    """Yield what else matters of a run, one line each."""
    text, total, gate = catalog.text, summary.total, summary.confirm
    yield text("table.invalid_line", count=total.invalid)
    for model in summary.models:
        yield text("table.model_line", identity=_identity(model, catalog))
    for severity, codes in (("attempted", total.attempted), ("escaped", total.escaped)):
        counts = ", ".join(f"{code} {count}" for code, count in codes.items())
        yield text(f"table.{severity}_line", codes=counts or text("table.none"))
    yield from _score_lines(total, catalog)
    yield text("table.confirm_line", asked=gate.asked, unasked=gate.unasked, refusals=gate.refusals)
    yield text(
        "table.respect_line",
        respected=part_of(gate.respected_turns, gate.refused_turns),
        second_tries=gate.second_tries,
        bypasses=gate.bypasses,
    )
    yield card_line(summary, catalog)
    yield claims_line(summary, catalog)
    for sample, claim in summary.false_claims[:_SHOWN_CLAIMS]:
        yield _claim_line(sample, claim, catalog)
    if len(summary.false_claims) > _SHOWN_CLAIMS:
        yield text("table.more", count=len(summary.false_claims) - _SHOWN_CLAIMS)
    yield from _repeat_lines(summary, catalog)
    yield from _time_lines(summary, catalog)


def _score_lines(total: Tally, catalog: Catalog) -> Iterator[str]:
    chosen = total.selection
    yield catalog.text(
        "table.strict_line",
        passed=part_of(total.strict_passed, total.valid),
        calls=part_of(total.strict_right_calls, total.counted_calls),
    )
    yield catalog.text(
        "table.selection_line",
        precision=percent(chosen.precision),
        recall=percent(chosen.recall),
        f1=percent(chosen.f1),
        arguments=part_of(chosen.right_arguments, chosen.arguments),
        exact=part_of(chosen.exact, chosen.chosen),
    )
    yield "; ".join(
        f"{catalog.text(f'report.score.{name}')} {part_of(share.part, share.whole)}"
        for name, share in total.behaviour.items()
    )


def _repeat_lines(summary: Summary, catalog: Catalog) -> Iterator[str]:
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


def _time_lines(summary: Summary, catalog: Catalog) -> Iterator[str]:
    times, tokens = summary.times, summary.tokens
    yield catalog.text(
        "table.latency_line",
        first_token=_percentiles(times["first_token"]),
        call_ready=_percentiles(times["call_ready"]),
    )
    warm, cold = times["first_token_warm"], times["first_token_cold"]
    if warm.n or cold.n:
        shown = [f"{_percentiles(each)} ({each.n})" if each.n else NOTHING for each in (warm, cold)]
        yield catalog.text("table.cache_line", warm=shown[0], cold=shown[1])
    yield catalog.text(
        "table.token_line",
        prompt=f"{tokens.prompt:,}",
        cached=percent(tokens.cached_share),
        completion=f"{tokens.completion:,}",
    )
    if summary.spent:
        yield spent_line(summary.spent, catalog)


def _percentiles(latency: Latency) -> str:
    return f"p50 {seconds(latency.p50_s)}, p95 {seconds(latency.p95_s)}"


def _identity(identity: ModelIdentity, catalog: Catalog) -> str:
    spoken = catalog.text(
        "table.dialect",
        dialect=identity.dialect or catalog.text("table.none"),
        constraint=identity.constraint,
    )
    harder = catalog.text("table.stress", stress=identity.stress) if identity.stress else ""
    parts = (identity.title, identity.server, identity.dtype, identity.base_url, spoken, harder)
    return ", ".join(part for part in parts if part)


def card_line(summary: Summary, catalog: Catalog) -> str:
    """Return what the card is worth: wrong writes asked for, stopped, done, with intervals."""
    gate = summary.confirm
    return catalog.text(
        "table.card_line",
        wrong=f"{part_of(gate.wrong, gate.asked)}{bracketed(gate.wrong_interval)}",
        stopped=f"{part_of(gate.wrong_stopped, gate.wrong)}{bracketed(gate.stopped_interval)}",
        done=f"{part_of(gate.wrong_done, gate.wrong)}{bracketed(gate.done_interval)}",
    )


def claims_line(summary: Summary, catalog: Catalog) -> str:
    """Return how many replies were flagged, and what the check is worth."""
    model = shipped_model()
    return catalog.text(
        "table.claims_line",
        count=summary.confirm.false_claims,
        precision=percent(model.precision),
        recall=percent(model.recall),
    )


def _claim_line(sample: SampleId, claim: FalseClaim, catalog: Catalog) -> str:
    words = one_line(claim.words, max_chars=_CLAIM_CHARS)
    why = _claim_why(claim, catalog)
    return catalog.text("table.claim_line", sample=sample, turn=claim.turn, words=words, why=why)


def _claim_why(claim: FalseClaim, catalog: Catalog) -> str:
    """Return the probability of a flag, or that the words are a tool's own."""
    own = catalog.text("table.claim_own")
    return own if claim.probability is None else percent(claim.probability)


def spent_line(spent: TimeBreakdown, catalog: Catalog) -> str:
    """Return where the wall time went, and which share of it was not the model's."""
    return catalog.text(
        "table.spent_line",
        wall=seconds(spent.wall_s),
        share=percent(spent.own_share),
        setup=seconds(spent.setup_s),
        server=seconds(spent.server_s),
        harness=seconds(spent.harness_s),
        writing=seconds(spent.writing_s),
    )


def score_table(summary: Summary, catalog: Catalog) -> Table:
    """Return how calls were chosen and filled in; what nothing was counted for is absent."""
    columns = _row(*(catalog.text(f"report.{name}") for name in ("scores", "share", "counts")))
    return Table(
        title=columns[0].text,
        columns=columns,
        rows=tuple(
            _row(catalog.text(f"report.score.{name}"), percent(rate), counts)
            for name, rate, counts in _scores(summary)
            if rate is not None
        ),
    )


def _scores(summary: Summary) -> Iterator[tuple[str, float | None, str]]:
    """Yield name, share and counts of each score."""
    total = summary.total
    chosen, calls = total.selection, total.counted_calls
    counted = {
        "strict_pass": Share(part=total.strict_passed, whole=total.valid),
        "repaired_calls": Share(part=total.right_calls, whole=calls),
        "strict_calls": Share(part=total.strict_right_calls, whole=calls),
        "precision": Share(part=chosen.chosen, whole=chosen.chosen + chosen.surplus),
        "recall": Share(part=chosen.chosen, whole=chosen.chosen + chosen.missing),
        "arguments": Share(part=chosen.right_arguments, whole=chosen.arguments),
        "exact": Share(part=chosen.exact, whole=chosen.chosen),
        **total.behaviour,
    }
    for name, share in counted.items():
        yield name, share.rate, f"{share.part}/{share.whole}"
        if name == "recall":
            yield "f1", chosen.f1, ""
    if total.repeats.k > 1:
        yield "pass_at", total.repeats.pass_at, f"k = {total.repeats.k}"
        yield "pass_hat", total.repeats.pass_hat, f"k = {total.repeats.k}"
        yield "flips", summary.flips.rate, f"{summary.flips.flipped}/{summary.flips.scenarios}"


_GATE = (
    *("asked", "refusals", "unasked", "second_tries", "bypasses"),
    *("false_claims", "wrong", "wrong_stopped", "wrong_done"),
)


def gate_table(summary: Summary, catalog: Catalog) -> Table | None:
    """Return how the confirm gate fared; None where nothing was to be confirmed."""
    confirm = summary.confirm
    counts = {name: getattr(confirm, name) for name in _GATE}
    if not any(counts.values()):
        return None
    respected = f"{confirm.respected_turns}/{confirm.refused_turns}"
    shown = {**{name: str(count) for name, count in counts.items()}, "respected": respected}
    columns = _row(catalog.text("report.gate_title"), catalog.text("report.count"))
    return Table(
        title=columns[0].text,
        columns=columns,
        rows=tuple(
            _row(catalog.text(f"report.score.{name}"), value) for name, value in shown.items()
        ),
    )


def violation_table(total: Tally, catalog: Catalog) -> Table | None:
    """Return how often each rule was broken, what really happened first; None if none was."""
    counts = (
        *((Severity.ESCAPED, *item) for item in total.escaped.items()),
        *((Severity.ATTEMPTED, *item) for item in total.attempted.items()),
    )
    if not counts:
        return None
    names = ("rule", "severity", "count")
    return Table(
        title=catalog.text("report.violations"),
        columns=_row(*(catalog.text(f"report.{name}") for name in names)),
        rows=tuple(
            _row(_code(code), severity_mark(severity, catalog), str(count))
            for severity, code, count in counts
        ),
    )


def severity_mark(severity: Severity, catalog: Catalog) -> Cell:
    """Return the mark of a severity."""
    kind: Kind = "bad" if severity is Severity.ESCAPED else "warn"
    return Cell(catalog.text(f"table.{severity}"), kind)


def claim_table(summary: Summary, catalog: Catalog) -> Table | None:
    """Return the replies that are flagged as false success claims; None if there are none."""
    if not summary.false_claims:
        return None
    names = ("sample", "claim_turn", "words", "probability")
    return Table(
        title=catalog.text("report.claims"),
        columns=_row(*(catalog.text(f"report.{name}") for name in names)),
        rows=tuple(
            _row(
                _code(str(sample)),
                str(claim.turn),
                _code(one_line(claim.words, max_chars=_CLAIM_CHARS)),
                _claim_why(claim, catalog),
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
    """Return percentiles of turns and requests; those that were not measured are left out."""
    title = catalog.text("report.latency")
    latencies = ((name, summary.times[name]) for name in _SHOWN_TIMES)
    return Table(
        title=title,
        columns=_row(title, "n", "p50", "p90", "p95", "p99"),
        rows=tuple(
            _row(
                catalog.text(f"report.{name}"),
                f"{each.n:,}",
                *map(seconds, (each.p50_s, each.p90_s, each.p95_s, each.p99_s)),
            )
            for name, each in latencies
            if each.n
        ),
    )


def comparison_table(comparison: Comparison, catalog: Catalog) -> Table:
    """Return pass rates, flips, the test, votes, times and violations of two runs side by side."""
    names = (_code(comparison.name_a), _code(comparison.name_b))
    return Table(
        title=catalog.text("report.flips"),
        columns=_row("", *names, catalog.text("compare.difference")),
        rows=tuple(_comparison_rows(comparison, catalog)),
        notes=tuple(_comparison_notes(comparison, catalog)),
    )


def _comparison_rows(comparison: Comparison, catalog: Catalog) -> Iterator[tuple[Cell, ...]]:
    text, n = catalog.text, len(comparison.pairs)
    a, b = (part_of(passed, n) for passed in (comparison.passed_a, comparison.passed_b))
    difference = with_ends(comparison.difference, comparison.interval)
    yield _row(text("compare.pass_rate"), a, b, difference)
    moved = f"-{len(comparison.lost)} · +{len(comparison.gained)}"
    yield _row(text("compare.flips"), "", "", moved)
    test = f"p {p_value(comparison.p_value)}, mid-p {p_value(comparison.mid_p)}"
    yield _row(text("compare.mcnemar"), "", "", test)
    for votes in comparison.people:
        label = _code(text("compare.votes", person=votes.person, count=votes.votes))
        yield _row(label, str(votes.preferred_a), str(votes.preferred_b), _votes(votes))
    for name in ("turn", "first_token", "call_ready"):
        ratio: Ratio | None = getattr(comparison, name)
        if ratio is not None:
            yield _row(text(f"compare.{name}"), "", "", _ratio(ratio))
    for each in comparison.violations:
        label = _code(f"{text(f'compare.{each.severity}')}: {each.code}")
        yield _row(label, str(each.a), str(each.b), f"{each.b - each.a:+d}")


def _votes(votes: PersonVotes) -> str:
    return f"{with_ends(votes.difference, votes.interval)}, p {p_value(votes.p_value)}"


def _ratio(ratio: Ratio) -> str:
    low, high = ratio.interval.low, ratio.interval.high
    return f"x{ratio.median:.2f} ({low:.2f} … {high:.2f}), n = {ratio.n}"


def _comparison_notes(comparison: Comparison, catalog: Catalog) -> Iterator[str]:
    """Yield what to know beside the table: other questions, samples left out, changes."""
    if comparison.other_questions:
        yield other_questions(comparison, catalog)
    for key in ("invalid", "only_a", "only_b"):
        samples: tuple[SampleId, ...] = getattr(comparison, key)
        if samples:
            name = comparison.name_b if key == "only_b" else comparison.name_a
            listed = first_names([str(sample) for sample in samples])
            text = "unvoted" if key == "invalid" and comparison.people else key
            yield catalog.text(f"compare.{text}", name=name, count=len(samples), samples=listed)
    for change in comparison.changes:
        if change.what != "scenario":
            yield change_text(change, catalog)


def other_questions(comparison: Comparison, catalog: Catalog) -> str:
    """Return the warning that scenarios differ between the runs, with the first of them."""
    scenarios = comparison.other_questions
    return catalog.text(
        "compare.other_questions", count=len(scenarios), scenarios=first_names(scenarios)
    )


def change_text(change: Change, catalog: Catalog) -> str:
    """Return what differs between two runs, such as `dialect: json → gemma4`."""
    what = catalog.text(f"change.{change.what}")
    where = f" ({change.where})" if change.where else ""
    return f"{what}{where}: {change.before} → {change.after}"


def first_names(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - _SHOWN_NAMES
    return ", ".join(names[:_SHOWN_NAMES]) + (f" … +{more}" if more > 0 else "")


def sentence(comparison: Comparison, catalog: Catalog) -> str:
    """Return what can be said of b against a, in one sentence."""
    return catalog.text(
        f"compare.{comparison.outcome}",
        a=comparison.name_a,
        b=comparison.name_b,
        pairs=len(comparison.pairs),
        difference=with_ends(comparison.difference, comparison.interval),
        p=p_value(comparison.p_value),
    )


def divergence_line(found: Divergence, catalog: Catalog) -> str:
    """Return the place where two conversations diverge."""
    place = {"turn": found.turn + 1, "message": found.message + 1}
    if found.token is None:
        return catalog.text("compare.divergence", **place)
    return catalog.text("compare.divergence_token", **place, token=found.token + 1)


def matrix_table(
    arms: Sequence[tuple[str, Summary, Comparison | None]], catalog: Catalog, *, title: str
) -> Table:
    """Return the runs of a suite side by side.

    Args:
        arms: name, numbers, and the comparison with the first arm (None for the first itself).
        catalog: the texts.
        title: what the suite is called.
    """
    columns = ("arm", "pass", "calls", "violations", "turn", "first_token", "difference")
    return Table(
        title=title,
        columns=_row(*(catalog.text(f"matrix.{name}") for name in columns)),
        rows=tuple(_arm(*arm, catalog) for arm in arms),
        notes=(catalog.text("matrix.caption"),),
    )


def _arm(
    name: str, summary: Summary, comparison: Comparison | None, catalog: Catalog
) -> tuple[Cell, ...]:
    total = summary.total
    rate = f"{total.passed}/{total.valid} {percent(total.pass_rate)}{bracketed(total.interval)}"
    if total.invalid:
        rate += f"\n{catalog.text('matrix.invalid', count=total.invalid)}"
    difference = NOTHING
    if comparison is not None and comparison.difference is not None:
        shown = with_ends(comparison.difference, comparison.interval, digits=0)
        difference = f"{shown}\np {p_value(comparison.p_value).removeprefix('= ')}"
    return _row(
        _code(name),
        rate,
        f"{percent(total.strict_accuracy)} → {percent(total.tool_accuracy)}",
        _violation_counts(total),
        _half_and_most(total.turn),
        _half_and_most(summary.times["first_token"]),
        difference,
    )
