"""The runs of a suite side by side: one row an arm, and how it differs from the first."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.markup import escape
from rich.table import Table

from lhkit.harness.compare import compare
from lhkit.harness.metrics import Tally
from lhkit.harness.pairs import Comparison
from lhkit.harness.results import Run
from lhkit.harness.timings import Latency
from lhkit.locales import Catalog
from lhkit.text import NOTHING, p_value, percent, percents, points, printable

_COLUMNS = ("pass", "calls", "violations", "turn", "first_token", "difference")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One arm: its total, and its comparison with the first arm (None for the first itself)."""

    name: str
    total: Tally
    comparison: Comparison | None = None


def matrix_rows(runs: Sequence[tuple[str, Run]]) -> tuple[Row, ...]:
    """Return a row for each (arm, run); all but the first are compared with the first."""
    return tuple(
        Row(
            name=name,
            total=run.summary().total,
            comparison=compare(runs[0][1], run) if number else None,
        )
        for number, (name, run) in enumerate(runs)
    )


def render_matrix(rows: Sequence[Row], catalog: Catalog, *, title: str = "") -> Table:
    """Return the table; what a column counts stands below it."""
    table = Table(
        title=escape(printable(title)) or None,
        caption=catalog.text("matrix.caption"),
        caption_justify="left",
    )
    table.add_column(catalog.text("matrix.arm"), overflow="fold")
    for column in _COLUMNS:
        table.add_column(catalog.text(f"matrix.{column}"), justify="right")
    for row in rows:
        table.add_row(*map(escape, _cells(row, catalog)))
    return table


def _cells(row: Row, catalog: Catalog) -> tuple[str, ...]:
    total = row.total
    invalid = catalog.text("matrix.invalid", count=total.invalid) if total.invalid else ""
    return (
        printable(row.name),
        "\n".join(filter(None, [_rate(total), invalid])),
        f"{percent(total.strict_accuracy)} → {percent(total.tool_accuracy)}",
        f"{sum(total.attempted.values())} / {sum(total.escaped.values())}",
        _latency(total.turn),
        _latency(total.first_token),
        _difference(row.comparison),
    )


def _rate(total: Tally) -> str:
    interval = total.interval
    ends = f" [{percents(interval.low, interval.high)}]" if interval else ""
    return f"{total.passed}/{total.valid} {percent(total.pass_rate)}{ends}"


def _latency(latency: Latency) -> str:
    if latency.p50_s is None or latency.p95_s is None:
        return NOTHING
    return f"{latency.p50_s:.2f} / {latency.p95_s:.2f} s"


def _difference(comparison: Comparison | None) -> str:
    if comparison is None or comparison.difference is None:
        return NOTHING
    interval = comparison.interval
    ends = f" [{points(interval.low, 0)}…{points(interval.high, 0)}]" if interval else ""
    told = p_value(comparison.p_value).removeprefix("= ")
    return f"{points(comparison.difference, 0)}{ends}\np {told}"
