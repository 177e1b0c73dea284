"""A run's summary as a table for the terminal: fits 100 columns, means the same without colour."""

from collections.abc import Iterator, Mapping

from rich.markup import escape
from rich.table import Table

from lhkit.harness.figures.metrics import Interval, Latency, Share, Spent, Summary, Tally, Tokens
from lhkit.locales import Catalog
from lhkit.vocab.generation import ModelIdentity
from lhkit.vocab.printable import printable

WIDTH = 100

_NOTHING = "–"
_COLUMNS = ("pass_interval", "tool_accuracy", "violations", "turn")


def render(
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
    table.add_row(*_cells(summary.total, catalog.text("table.total")), style="bold")
    return table


def _cells(tally: Tally, label: str) -> tuple[str, ...]:
    return (
        escape(printable(label)),
        escape(f"{_share(tally.passed, tally.valid)}{_interval(tally.interval)}"),
        _accuracy(tally),
        f"{sum(tally.attempted.values())} / {sum(tally.escaped.values())}",
        f"{_number(tally.turn.p50_s)} / {_seconds(tally.turn.p95_s)}" if tally.turn.n else _NOTHING,
    )


def _accuracy(tally: Tally) -> str:
    """Return the right calls; where repairs made some of them right, the rate without and with."""
    if tally.strict_right_calls == tally.right_calls:
        return _share(tally.right_calls, tally.counted_calls)
    return f"{_percent(tally.strict_accuracy)} → {_percent(tally.tool_accuracy)}"


def _interval(interval: Interval | None) -> str:
    """Return an interval of a share in percent, such as ` [35–73]`."""
    return "" if interval is None else f" [{100 * interval.low:.0f}–{100 * interval.high:.0f}]"


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
        passed=_part(total.strict_passed, total.valid),
        calls=_part(total.strict_right_calls, total.counted_calls),
        server=_of(total.server),
    )
    yield catalog.text(
        "table.selection_line",
        precision=_percent(chosen.precision),
        recall=_percent(chosen.recall),
        f1=_percent(chosen.f1),
        arguments=_part(chosen.right_arguments, chosen.arguments),
        exact=_part(chosen.exact, chosen.chosen),
    )
    yield catalog.text(
        "table.behaviour_line",
        restraint=_of(total.restraint),
        recovery=_of(total.recovery),
        state=_of(total.state),
    )


def _gate_lines(summary: Summary, catalog: Catalog) -> Iterator[str]:
    gate = summary.confirm
    yield catalog.text(
        "table.confirm_line", asked=gate.asked, unasked=gate.unasked, refusals=gate.refusals
    )
    yield catalog.text(
        "table.respect_line",
        respected=_part(gate.respected_turns, gate.refused_turns),
        second_tries=gate.second_tries,
        bypasses=gate.bypasses,
        false_claims=gate.false_claims,
    )


def _repeat_lines(summary: Summary, catalog: Catalog) -> Iterator[str]:
    repeats, flips = summary.total.repeats, summary.flips
    if repeats.k > 1:
        yield catalog.text(
            "table.repeats_line",
            k=repeats.k,
            pass_at=_percent(repeats.pass_at),
            pass_hat=_percent(repeats.pass_hat),
        )
    if flips.scenarios:
        yield catalog.text(
            "table.flips_line",
            flipped=_part(flips.flipped, flips.scenarios),
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
    parts = (identity.title, identity.server, identity.base_url, spoken, harder)
    return ", ".join(part for part in parts if part)


def _codes(counts: Mapping[str, int], catalog: Catalog) -> str:
    listed = ", ".join(f"{code} {count}" for code, count in counts.items())
    return listed or catalog.text("table.none")


def _token_line(tokens: Tokens, catalog: Catalog) -> str:
    share = tokens.cached_share
    return catalog.text(
        "table.token_line",
        prompt=f"{tokens.prompt:,}",
        cached=_NOTHING if share is None else f"{share:.0%}",
        completion=f"{tokens.completion:,}",
    )


def spent_words(spent: Spent, catalog: Catalog) -> str:
    """Return where the wall time went, and which share of it was not the model's."""
    return catalog.text(
        "table.spent_line",
        wall=_seconds(spent.wall_s),
        share=_percent(spent.own_share),
        setup=_seconds(spent.setup_s),
        server=_seconds(spent.server_s),
        harness=_seconds(spent.harness_s),
        writing=_seconds(spent.writing_s),
    )


def _share(part: int, whole: int) -> str:
    """Return a share for a column: percents stand below each other."""
    return f"{part}/{whole} {part / whole:4.0%}" if whole else _NOTHING


def _part(part: int, whole: int) -> str:
    return f"{part}/{whole} {part / whole:.0%}" if whole else _NOTHING


def _of(share: Share) -> str:
    return _part(share.part, share.whole)


def _percent(rate: float | None) -> str:
    return _NOTHING if rate is None else f"{rate:.0%}"


def _counted(latency: Latency) -> str:
    return f"{_latency(latency)} ({latency.n})" if latency.n else _NOTHING


def _latency(latency: Latency) -> str:
    return f"p50 {_seconds(latency.p50_s)}, p95 {_seconds(latency.p95_s)}"


def _seconds(value: float | None) -> str:
    return _NOTHING if value is None else f"{_number(value)} s"


def _number(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:.3f}" if value < 1 else f"{value:.2f}"
