"""The report as tables in a terminal."""

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from lhkit.harness.behaviour import Share
from lhkit.harness.html import (
    card_words,
    claim_why,
    claims_words,
    difference_words,
    votes_words,
)
from lhkit.harness.log import Change
from lhkit.harness.metrics import Summary, Tally
from lhkit.harness.pairs import Comparison, Pair, Ratio
from lhkit.harness.record import FalseClaim, SampleId, SampleRecord
from lhkit.harness.shares import Interval
from lhkit.harness.timings import Latency, Spent, Tokens
from lhkit.json_values import json_or_repr
from lhkit.locales import Catalog
from lhkit.responses import ModelIdentity
from lhkit.text import (
    NOTHING,
    number_of_seconds,
    one_line,
    p_value,
    part_of,
    percent,
    percents,
    printable,
    seconds,
)

# A run's summary as a table for the terminal: fits 100 columns, means the same without colour.


WIDTH = 100

_COLUMNS = ("pass_interval", "tool_accuracy", "violations", "turn")


def summary_table(
    summary: Summary, catalog: Catalog, descriptions: Mapping[str, str] | None = None
) -> Table:
    """Return one row per acceptance criterion and a total; what else matters stands below.

    Args:
        summary: the numbers.
        catalog: the texts.
        descriptions: a few words for each acceptance criterion, shown beside it.
    """
    table = Table(caption=_caption(summary, catalog), caption_justify="left", width=WIDTH)
    table.add_column(catalog.text("table.ac"), ratio=1, overflow="fold")
    for column in _COLUMNS:
        table.add_column(catalog.text(f"table.{column}"), justify="right", no_wrap=True)
    for tally in summary.by_ac:
        words = (descriptions or {}).get(tally.name, "")
        table.add_row(*_cells(tally, f"{tally.name} {words}".strip()))
    table.add_section()
    for tally in summary.by_difficulty:
        table.add_row(*_cells(tally, catalog.text(f"table.{tally.name}")))
    table.add_row(*_cells(summary.total, catalog.text("table.total")), style="bold")
    return table


def _cells(tally: Tally, label: str) -> tuple[str, ...]:
    return (
        escape(printable(label)),
        escape(f"{_column_share(tally.passed, tally.valid)}{_interval(tally.interval)}"),
        _accuracy(tally),
        f"{sum(tally.attempted.values())} / {sum(tally.escaped.values())}",
        f"{number_of_seconds(tally.turn.p50_s)} / {seconds(tally.turn.p95_s)}"
        if tally.turn.n
        else NOTHING,
    )


def _accuracy(tally: Tally) -> str:
    """Return the right calls; where repairs made some of them right, the rate without and with."""
    if tally.strict_right_calls == tally.right_calls:
        return _column_share(tally.right_calls, tally.counted_calls)
    return f"{percent(tally.strict_accuracy)} → {percent(tally.tool_accuracy)}"


def _interval(interval: Interval | None) -> str:
    """Return an interval of a share in percent, such as ` [35–73]`."""
    return "" if interval is None else f" [{percents(interval.low, interval.high)}]"


def _caption(summary: Summary, catalog: Catalog) -> str:
    text, total = catalog.text, summary.total
    lines = [
        text("table.invalid_line", count=total.invalid),
        *(text("table.model_line", identity=_identity(m, catalog)) for m in summary.models),
        text("table.attempted_line", codes=_codes(total.attempted, catalog)),
        text("table.escaped_line", codes=_codes(total.escaped, catalog)),
        *_score_lines(total, catalog),
        *_gate_lines(summary, catalog),
        *_repeat_lines(summary, catalog),
        text(
            "table.latency_line",
            first_token=_latency(total.first_token),
            call_ready=_latency(total.call_ready),
        ),
        *_cache_lines(summary, catalog),
        _token_line(summary.tokens, catalog),
        *([spent_words(summary.spent, catalog)] if summary.spent else []),
    ]
    return "\n".join(escape(printable(line)) for line in lines)


def _score_lines(total: Tally, catalog: Catalog) -> Iterator[str]:
    """Yield what was chosen and filled in right, and how the model behaved around its calls."""
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
        f"{catalog.text(f'table.behaviour.{name}')} {_of(share)}"
        for name, share in total.behaviour.items()
    )


def _gate_lines(summary: Summary, catalog: Catalog) -> Iterator[str]:
    gate = summary.confirm
    yield catalog.text(
        "table.confirm_line", asked=gate.asked, unasked=gate.unasked, refusals=gate.refusals
    )
    yield catalog.text(
        "table.respect_line",
        respected=part_of(gate.respected_turns, gate.refused_turns),
        second_tries=gate.second_tries,
        bypasses=gate.bypasses,
    )
    yield card_words(summary, catalog)
    yield claims_words(summary, catalog)
    flags = summary.false_claims
    yield from (claim_words(*each, catalog) for each in flags[:_SHOWN_CLAIMS])
    if len(flags) > _SHOWN_CLAIMS:
        yield catalog.text("table.more", count=len(flags) - _SHOWN_CLAIMS)


def claim_words(sample: SampleId, claim: FalseClaim, catalog: Catalog) -> str:
    """Return a flagged reply: its sample and turn, the words, and their probability."""
    return catalog.text(
        "table.claim_line",
        sample=sample,
        turn=claim.turn,
        words=one_line(claim.words, max_chars=_SHOWN_CHARS),
        why=claim_why(claim, catalog),
    )


_SHOWN_CLAIMS = 5


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


def _cache_lines(summary: Summary, catalog: Catalog) -> Iterator[str]:
    """Yield the times with and without a warm cache; nothing where the server does not say."""
    if summary.warm.n or summary.cold.n:
        yield catalog.text(
            "table.cache_line", warm=_counted(summary.warm), cold=_counted(summary.cold)
        )


def _identity(identity: ModelIdentity, catalog: Catalog) -> str:
    spoken = catalog.text(
        "table.dialect",
        dialect=identity.dialect or catalog.text("table.none"),
        constraint=identity.constraint,
    )
    harder = catalog.text("table.stress", stress=identity.stress) if identity.stress else ""
    parts = (
        *(identity.title, identity.server, identity.dtype),
        *(identity.base_url, spoken, harder),
    )
    return ", ".join(part for part in parts if part)


def _codes(counts: Mapping[str, int], catalog: Catalog) -> str:
    listed = ", ".join(f"{code} {count}" for code, count in counts.items())
    return listed or catalog.text("table.none")


def _token_line(tokens: Tokens, catalog: Catalog) -> str:
    return catalog.text(
        "table.token_line",
        prompt=f"{tokens.prompt:,}",
        cached=percent(tokens.cached_share),
        completion=f"{tokens.completion:,}",
    )


def spent_words(spent: Spent, catalog: Catalog) -> str:
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


def _column_share(part: int, whole: int) -> str:
    """Return a share for a column: percents stand below each other."""
    return f"{part}/{whole} {percent(part / whole):>4}" if whole else NOTHING


def _of(share: Share) -> str:
    return part_of(share.part, share.whole)


def _counted(latency: Latency) -> str:
    return f"{_latency(latency)} ({latency.n})" if latency.n else NOTHING


def _latency(latency: Latency) -> str:
    return f"p50 {seconds(latency.p50_s)}, p95 {seconds(latency.p95_s)}"


# A comparison in words: one table, the flips with both conversations, one sentence of verdict.
#
# For the terminal: fits 100 columns and means the same without colour.


_SHOWN_FLIPS = 10
_SHOWN_NAMES = 5
_SHOWN_CHARS = 160


def comparison_table(comparison: Comparison, catalog: Catalog) -> Group:
    """Return the whole comparison, the sentence last."""
    parts: list[RenderableType] = [_table(comparison, catalog)]
    parts += [Text(printable(line)) for line in notes(comparison, catalog)]
    parts += [Text(printable(line)) for line in _flips(comparison, catalog)]
    parts.append(Text(printable(sentence(comparison, catalog)), style="bold"))
    return Group(*parts)


def sentence(comparison: Comparison, catalog: Catalog) -> str:
    """Return what can be said of b against a, in one sentence."""
    return catalog.text(
        f"compare.{comparison.outcome}",
        a=comparison.name_a,
        b=comparison.name_b,
        pairs=len(comparison.pairs),
        difference=difference_words(comparison),
        p=p_value(comparison.p_value),
    )


def notes(comparison: Comparison, catalog: Catalog) -> Iterator[str]:
    """Yield what one has to know beside the table: other questions, samples left out, changes."""
    if comparison.other_questions:
        scenarios = first_names(comparison.other_questions)
        count = len(comparison.other_questions)
        yield catalog.text("compare.other_questions", count=count, scenarios=scenarios)
    for key in ("invalid", "only_a", "only_b"):
        samples: tuple[SampleId, ...] = getattr(comparison, key)
        if samples:
            name = comparison.name_b if key == "only_b" else comparison.name_a
            listed = first_names([str(sample) for sample in samples])
            told = "unvoted" if key == "invalid" and comparison.people else key
            yield catalog.text(f"compare.{told}", name=name, count=len(samples), samples=listed)
    for change in comparison.changes:
        if change.what != "scenario":
            yield change_text(change, catalog)


def change_text(change: Change, catalog: Catalog) -> str:
    """Return what was told differently, such as `dialect: json → gemma4`."""
    what = catalog.text(f"change.{change.what}")
    where = f" ({change.where})" if change.where else ""
    return f"{what}{where}: {change.before} → {change.after}"


def _table(comparison: Comparison, catalog: Catalog) -> Table:
    table = Table(width=WIDTH)
    table.add_column("", ratio=1, overflow="fold")
    for name in (comparison.name_a, comparison.name_b):
        table.add_column(escape(printable(name)), justify="right", overflow="fold")
    table.add_column(catalog.text("compare.difference"), justify="right", overflow="fold")
    for row in _rows(comparison, catalog):
        table.add_row(*(escape(printable(cell)) for cell in row))
    return table


def _rows(comparison: Comparison, catalog: Catalog) -> Iterator[tuple[str, str, str, str]]:
    n = len(comparison.pairs)
    a, b = (part_of(passed, n) for passed in (comparison.passed_a, comparison.passed_b))
    yield catalog.text("compare.pass_rate"), a, b, difference_words(comparison)
    gained, lost = len(comparison.gained), len(comparison.lost)
    yield catalog.text("compare.flips"), "", "", f"-{lost} · +{gained}"
    said = f"p {p_value(comparison.p_value)}, mid-p {p_value(comparison.mid_p)}"
    yield catalog.text("compare.mcnemar"), "", "", said
    for votes in comparison.people:
        label = catalog.text("compare.votes", person=votes.person, count=votes.votes)
        yield label, str(votes.preferred_a), str(votes.preferred_b), votes_words(votes)
    for key in ("turn", "first_token", "call_ready"):
        ratio: Ratio | None = getattr(comparison, key)
        if ratio is not None:
            yield catalog.text(f"compare.{key}"), "", "", _ratio(ratio)
    for each in comparison.violations:
        label = f"{catalog.text(f'compare.{each.severity}')}: {each.code}"
        yield label, str(each.a), str(each.b), f"{each.b - each.a:+d}"


def _flips(comparison: Comparison, catalog: Catalog) -> Iterator[str]:
    """Yield the pairs whose verdicts differ, lost ones first, by scenario."""
    for key, pairs in (("lost", comparison.lost), ("gained", comparison.gained)):
        if pairs:
            yield catalog.text(f"compare.{key}", count=len(pairs))
        shown = _by_scenario(pairs)[:_SHOWN_FLIPS]
        for repeats in shown:
            yield from _flip(repeats, comparison)
        more = len(pairs) - sum(map(len, shown))
        if more:
            yield "  " + catalog.text("compare.more", count=more)


def _by_scenario(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Return the pairs of each scenario: repeats resemble each other, so one of them is shown."""
    found: dict[str, list[Pair]] = {}
    for pair in pairs:
        found.setdefault(pair.sample_id.scenario, []).append(pair)
    return list(found.values())


def _flip(repeats: Sequence[Pair], comparison: Comparison) -> Iterator[str]:
    """Yield which samples flipped, and both conversations of the first."""
    yield "  " + first_names([str(pair.sample_id) for pair in repeats])
    first = repeats[0]
    for name, record in ((comparison.name_a, first.a), (comparison.name_b, first.b)):
        why = f" · {record.judgement.reasons[0]}" if record.judgement.reasons else ""
        yield f"    {name} · {record.judgement.verdict}{why}"
        yield from (
            f"      {one_line(line, max_chars=_SHOWN_CHARS)}" for line in _conversation(record)
        )


def _conversation(record: SampleRecord) -> Iterator[str]:
    for turn in record.evidence.turns:
        yield f"> {turn.user}"
        for call in turn.calls:
            yield f"{call.tool} {json_or_repr(call.raw_args)} → {call.outcome}"
        if turn.reply:
            yield f"< {turn.reply}"


def _ratio(ratio: Ratio) -> str:
    low, high = ratio.interval.low, ratio.interval.high
    return f"x{ratio.median:.2f} ({low:.2f} … {high:.2f}), n = {ratio.n}"


def first_names(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - _SHOWN_NAMES
    return ", ".join(names[:_SHOWN_NAMES]) + (f" … +{more}" if more > 0 else "")
