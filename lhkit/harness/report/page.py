"""A run as one HTML file that needs nothing else: no network, no server, not even scripts.

Failures come first. Transcripts wait as text and are built when a reader opens one, so that
thousands of samples stay quick; without scripts they are simply there. A content security policy
forbids every script but ours, as a second wall behind the escaping of the templates.
"""

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lhkit.harness.compare import compare
from lhkit.harness.html import asset, failures_first, render
from lhkit.harness.metrics import Summary
from lhkit.harness.pairs import Comparison
from lhkit.harness.record import Verdict
from lhkit.harness.report import charts
from lhkit.harness.report.charts import Picture, picture
from lhkit.harness.report.facts import facts
from lhkit.harness.results import Run
from lhkit.harness.tables import (
    Table,
    claim_table,
    comparison_table,
    criterion_words,
    gate_table,
    group_rates,
    latency_table,
    pass_rates,
    score_table,
    sentence,
    violation_table,
)
from lhkit.locales import Catalog

_HALF = 360  # pixels of a plot beside a table


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One part of the page between its head and its samples: tables, and a chart beside them.

    `groups` are tables that the reader opens; `comparison` is shown flip by flip.
    """

    id: str
    title: str
    tables: tuple[Table, ...] = ()
    chart: Picture | None = None
    groups: tuple[Table, ...] = ()
    sentence: str = ""
    comparison: Comparison | None = None


def html_page(run: Run, catalog: Catalog, *, name: str, baseline: Run | None = None) -> str:
    """Return the page.

    Args:
        run: what to report.
        catalog: the texts.
        name: what the run is called.
        baseline: an earlier run to set it against.

    Raises:
        MissingPackageError: altair or vl-convert is not installed.
    """
    summary = run.summary()
    script = asset("page.js")
    return render(
        "page.html.j2",
        catalog,
        locale=catalog.locale,
        title=catalog.text("report.title", model=name),
        script=script,
        script_sha256=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        page_style=asset("page.css"),
        summary=summary,
        sections=list(_sections(run, summary, catalog, baseline)),
        choices=_choices(run, summary, catalog),
        samples=failures_first(run.records),
        facts=facts(run, summary, catalog),
    )


def _sections(
    run: Run, summary: Summary, catalog: Catalog, baseline: Run | None
) -> Iterator[Section]:
    def section(name: str, *tables: Table | None, chart: Any = None, **more: Any) -> Section:
        return Section(
            id=name,
            title=catalog.text(f"report.{name}"),
            tables=tuple(table for table in tables if table is not None),
            chart=None if chart is None else picture(chart),
            **more,
        )

    locale = catalog.locale
    words = criterion_words((each.name for each in summary.by_ac), run.toolset, catalog)
    rates = charts.pass_rates(run, locale=locale).properties(width=_HALF)
    yield section("rates", pass_rates(summary, catalog, words), chart=rates)
    yield section(
        "scores",
        score_table(summary, catalog),
        gate_table(summary, catalog),
        groups=group_rates(summary, catalog),
    )
    if baseline is not None:
        comparison = compare(baseline, run)
        yield section(
            "flips",
            comparison_table(comparison, catalog),
            chart=charts.flips(comparison, locale=locale).properties(width=_HALF),
            sentence=sentence(comparison, catalog),
            comparison=comparison,
        )
    broken = violation_table(summary.total, catalog)
    if broken is not None:
        chart = charts.violations(run, locale=locale).properties(width=_HALF)
        yield section("violations", broken, chart=chart)
    if summary.false_claims:
        yield section("claims", claim_table(summary, catalog))
    if summary.total.turn.n:
        chart = charts.latencies(run, locale=locale).properties(width=_HALF)
        yield section("latency", latency_table(summary, catalog), chart=chart)
    if summary.confusion:
        yield section("confusion", chart=charts.confusion(run, locale=locale))


def _choices(run: Run, summary: Summary, catalog: Catalog) -> dict[str, list[tuple[str, str]]]:
    """Return what the samples can be filtered by, as (value, words)."""
    tags = sorted({tag for record in run.records for tag in record.tags})
    return {
        "verdict": [(each, catalog.text(f"report.verdict.{each}")) for each in Verdict],
        "ac": [(tally.name, tally.name) for tally in summary.by_ac],
        "tag": [(tag, tag) for tag in tags],
    }
