"""A run's summary as a table for the terminal: fits 100 columns, means the same without colour."""

from collections.abc import Mapping

from rich.markup import escape
from rich.table import Table

from lhkit.harness.metrics import Latency, Summary, Tally, Tokens
from lhkit.locales import Catalog
from lhkit.vocab.generation import ModelIdentity
from lhkit.vocab.printable import printable

WIDTH = 100

_NOTHING = "–"
_COLUMNS = ("pass_rate", "tool_accuracy", "attempted", "escaped", "turn_p50", "turn_p95")


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
        _share(tally.passed, tally.valid),
        _share(tally.right_calls, tally.counted_calls),
        str(sum(tally.attempted.values())),
        str(sum(tally.escaped.values())),
        _seconds(tally.turn.p50_s),
        _seconds(tally.turn.p95_s),
    )


def _caption(summary: Summary, catalog: Catalog) -> str:
    text, total = catalog.text, summary.total
    lines = [
        text("table.invalid_line", count=total.invalid),
        *(text("table.model_line", identity=_identity(m, catalog)) for m in summary.models),
        text("table.attempted_line", codes=_codes(total.attempted, catalog)),
        text("table.escaped_line", codes=_codes(total.escaped, catalog)),
        text(
            "table.latency_line",
            first_token=_latency(total.first_token),
            call_ready=_latency(total.call_ready),
        ),
        _token_line(summary.tokens, catalog),
    ]
    return "\n".join(escape(printable(line)) for line in lines)


def _identity(identity: ModelIdentity, catalog: Catalog) -> str:
    spoken = catalog.text(
        "table.dialect",
        dialect=identity.dialect or catalog.text("table.none"),
        constraint=identity.constraint,
    )
    parts = (identity.model, identity.server, identity.base_url, spoken)
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


def _share(part: int, whole: int) -> str:
    return f"{part}/{whole} {part / whole:4.0%}" if whole else _NOTHING


def _latency(latency: Latency) -> str:
    return f"p50 {_seconds(latency.p50_s)}, p95 {_seconds(latency.p95_s)}"


def _seconds(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:.3f} s" if value < 1 else f"{value:.2f} s"
