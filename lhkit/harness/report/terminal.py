"""A run's summary as a table for the terminal: fits 100 columns, means the same without colour."""

from collections.abc import Iterator, Mapping

from rich.markup import escape
from rich.table import Table

from lhkit.harness.behaviour import Share
from lhkit.harness.metrics import Summary, Tally
from lhkit.harness.shares import Interval
from lhkit.harness.timings import Latency, Tokens
from lhkit.harness.words import card_words, claim_words, claims_words, spent_words
from lhkit.locales import Catalog
from lhkit.responses import ModelIdentity
from lhkit.text import NOTHING, number_of_seconds, part_of, percent, percents, printable, seconds

WIDTH = 100

_COLUMNS = ("pass_interval", "tool_accuracy", "violations", "turn")
_SHOWN_CLAIMS = 5


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


def _column_share(part: int, whole: int) -> str:
    """Return a share for a column: percents stand below each other."""
    return f"{part}/{whole} {percent(part / whole):>4}" if whole else NOTHING


def _of(share: Share) -> str:
    return part_of(share.part, share.whole)


def _counted(latency: Latency) -> str:
    return f"{_latency(latency)} ({latency.n})" if latency.n else NOTHING


def _latency(latency: Latency) -> str:
    return f"p50 {seconds(latency.p50_s)}, p95 {seconds(latency.p95_s)}"
