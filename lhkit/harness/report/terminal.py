"""Render runs, comparisons and suites in the terminal, in 100 columns and also without colour."""

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table as Rich
from rich.text import Text

from lhkit.base.locales import Catalog
from lhkit.base.text import one_line, printable
from lhkit.harness.figures.halves import Choice
from lhkit.harness.figures.metrics import Summary
from lhkit.harness.figures.pairs import Comparison, Pair, first_divergence
from lhkit.harness.records.transcript import short_lines
from lhkit.harness.results.compare import compare_arms
from lhkit.harness.results.results import Run
from lhkit.harness.views.halves import arms_table, choice_table
from lhkit.harness.views.tables import (
    Table,
    comparison_sentence,
    comparison_table,
    divergence_line,
    key_figures,
    matrix_table,
    pass_rates,
    shortened_list,
    tool_rates,
)

if TYPE_CHECKING:
    from lhkit.toolset import Criteria

WIDTH = 100

_SHOWN_FLIPS = 10
_SHOWN_CHARS = 160


def run_view(run: Run, catalog: Catalog, *, details: bool) -> RenderableType:
    """Return the figures that decide, or with `details` all of them; print it with `soft_wrap`."""
    summary = run.summary()
    view = (
        summary_view(summary, catalog, criteria=run.criteria)
        if details
        else key_view(summary, catalog)
    )
    by_tool = tool_rates(summary, catalog)
    return view if by_tool is None else Group(view, table_view(by_tool))


def key_view(summary: Summary, catalog: Catalog) -> RenderableType:
    """Return the figures that decide, one a line."""
    table = key_figures(summary, catalog)
    width = max(cell_len(label.text) for label, _ in table.rows)
    rows = (f"{set_cell_size(label.text, width)}  {value.text}" for label, value in table.rows)
    lines = (*filter(None, [table.lead]), *rows, *table.notes)
    return Group(*(Text(printable(line)) for line in lines))


def summary_view(summary: Summary, catalog: Catalog, *, criteria: "Criteria") -> RenderableType:
    """Return all figures: one row per acceptance criterion, with its text, a total, and notes."""
    return table_view(pass_rates(summary, catalog, criteria=criteria), width=WIDTH)


def comparison_view(
    comparison: Comparison, catalog: Catalog, *, has_outcome: bool = True, is_whole: bool = False
) -> RenderableType:
    """Return the table of a comparison, the flips with both conversations, and the outcome.

    Lines of conversations are cut, and only first reasons shown, unless `is_whole`.
    """
    outcome = Text(printable(comparison_sentence(comparison, catalog)), style="bold")
    return Group(
        table_view(comparison_table(comparison, catalog), width=WIDTH),
        *(Text(printable(line)) for line in _flips(comparison, catalog, is_whole)),
        *([outcome] if has_outcome else []),
    )


def matrix_view(
    runs: Sequence[tuple[str, Run]],
    catalog: Catalog,
    *,
    title: str = "",
    order_seed: int | None = None,
) -> RenderableType:
    """Return one row for each (arm, run), with its difference from the first arm.

    `order_seed` is that of `compare_arms`.
    """
    table = matrix_table(compare_arms(runs, order_seed=order_seed), catalog, title=title)
    return table_view(table, title=title)


def halves_view(
    runs: Sequence[tuple[str, Run]],
    choices: Sequence[Choice],
    catalog: Catalog,
    *,
    title: str,
) -> RenderableType:
    """Return one row for each (arm, run), and what one half of the scenarios says of the other."""
    arms = arms_table([(name, run.summary()) for name, run in runs], catalog, title=title)
    chosen = choice_table(choices, catalog)
    return Group(table_view(arms, title=title), table_view(chosen, title=chosen.title))


def table_view(table: Table, *, width: int | None = None, title: str = "") -> RenderableType:
    """Return a table for rich, whose first column takes the remaining width."""
    rich = Rich(
        title=escape(printable(title or table.lead)) or None,
        title_justify="center" if title else "left",
        caption="\n".join(escape(printable(note)) for note in table.notes),
        caption_justify="left",
        width=width,
    )
    head, *others = (escape(printable(column.text)) for column in table.columns)
    rich.add_column(head, ratio=1 if width else None, overflow="fold")
    for column in others:
        rich.add_column(column, justify="right", overflow="fold")
    for cells in table.rows:
        rich.add_row(*(escape(printable(cell.text)) for cell in cells))
    if table.totals:
        rich.add_section()
    for number, cells in enumerate(table.totals, start=1):
        is_last = number == len(table.totals)
        row = (escape(printable(cell.text)) for cell in cells)
        rich.add_row(*row, style="bold" if is_last else None)
    return rich


def _flips(comparison: Comparison, catalog: Catalog, is_whole: bool) -> Iterator[str]:
    """Yield the pairs whose verdicts differ by scenario, regressions first."""
    for key, pairs in comparison.flips.items():
        yield catalog.text(f"compare.{key}", count=len(pairs))
        by_scenario: dict[str, list[Pair]] = {}
        for pair in pairs:  # repeats are similar, so only one of them is shown
            by_scenario.setdefault(pair.sample_id.scenario, []).append(pair)
        shown = list(by_scenario.values())[:_SHOWN_FLIPS]
        for repeats in shown:
            yield "  " + shortened_list([str(pair.sample_id) for pair in repeats])
            yield from _flip(repeats[0], comparison, catalog, is_whole)
        if more := len(pairs) - sum(map(len, shown)):
            yield "  " + catalog.text("compare.more", count=more)


def _flip(pair: Pair, comparison: Comparison, catalog: Catalog, is_whole: bool) -> Iterator[str]:
    """Yield the first divergence of a pair, and both conversations."""
    if divergence := first_divergence(pair.a, pair.b):
        yield f"    {divergence_line(divergence, catalog)}"
        yield f"      {comparison.name_a} · {divergence.a}"
        yield f"      {comparison.name_b} · {divergence.b}"
    for name, record in ((comparison.name_a, pair.a), (comparison.name_b, pair.b)):
        shown = record.score.reasons[: None if is_whole else 1]
        why = "; ".join(catalog.translate(reason) for reason in shown)
        verdict = catalog.text(f"report.verdict.{record.score.verdict}")
        yield "    " + " · ".join(filter(None, [name, verdict, why]))
        for line in short_lines(record, catalog):
            yield f"      {one_line(line, max_chars=sys.maxsize if is_whole else _SHOWN_CHARS)}"
