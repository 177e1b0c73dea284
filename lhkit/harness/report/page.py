"""Render a run or a history as one self-contained HTML file: no network, no server.

Readable without scripts. Failures come first. Transcripts are inert text until a sample is opened,
so that pages with thousands of samples stay fast. Besides the escaping of the templates, a content
security policy allows only the page's own script.
"""

import base64
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lhkit.base.locales import Catalog
from lhkit.harness.figures.metrics import Summary
from lhkit.harness.figures.pairs import Comparison
from lhkit.harness.records.record import Verdict
from lhkit.harness.report import charts
from lhkit.harness.report.charts import Picture, picture
from lhkit.harness.report.metadata import run_metadata
from lhkit.harness.report.page_samples import PagePart, flip_parts, left_out_line, sample_parts
from lhkit.harness.results.history import History
from lhkit.harness.results.results import Run
from lhkit.harness.views.approvals import approvals_table
from lhkit.harness.views.html import NO_AC, asset, render
from lhkit.harness.views.tables import (
    Table,
    claim_table,
    comparison_sentence,
    comparison_table,
    gate_table,
    group_rates,
    latency_table,
    own_score_table,
    pass_rates,
    score_table,
    violation_table,
)

_CHART_WIDTH = 360  # pixels, next to a table


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section of the page: tables with a chart.

    `groups` are collapsed tables; `flips` are listed below them.
    """

    id: str
    title: str
    tables: tuple[Table, ...] = ()
    chart: Picture | None = None
    groups: tuple[Table, ...] = ()
    sentence: str = ""
    flips: Sequence[PagePart] = ()


def html_page(
    run: Run,
    catalog: Catalog,
    *,
    name: str,
    comparison: Comparison | None = None,
    findings: Sequence[str] | None = None,
    is_whole: bool = False,
) -> str:
    """Return the HTML page of a run.

    Args:
        run: the run to report.
        catalog: the locale's texts.
        name: the name of the run.
        comparison: with an earlier run.
        findings: the thresholds that are not reached, as sentences; None if there were none.
        is_whole: whether the page has all samples of a large run, whatever its size (see
            `page_samples`).

    Raises:
        MissingPackageError: altair or vl-convert is not installed.
    """
    summary, samples = run.summary(), sample_parts(run, catalog, is_whole=is_whole)
    flips = [] if comparison is None else flip_parts(comparison, catalog, is_whole=is_whole)
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
        findings=findings,
        sections=list(
            _sections(run, summary, catalog, comparison, flips, is_decided=findings is not None)
        ),
        choices=_filter_choices(run, summary, catalog),
        samples=samples,
        left_out_line=left_out_line(samples, catalog),
        metadata=run_metadata(run, summary, catalog),
    )


def history_page(history: History, catalog: Catalog) -> str:
    """Return the HTML page of the runs of a suite over time.

    Raises:
        MissingPackageError: altair or vl-convert is not installed.
    """
    return render(
        "history.html.j2",
        catalog,
        locale=catalog.locale,
        page_style=asset("page.css"),
        it=history.table(catalog),
        chart=picture(charts.history(history, locale=catalog.locale)),
    )


def _sections(
    run: Run,
    summary: Summary,
    catalog: Catalog,
    comparison: Comparison | None,
    flips: Sequence[PagePart],
    *,
    is_decided: bool,
) -> Iterator[Section]:
    def section(name: str, *tables: Table | None, chart: Any = None, **fields: Any) -> Section:
        return Section(
            id=name,
            title=catalog.text(f"report.{name}"),
            tables=tuple(table for table in tables if table is not None),
            chart=None if chart is None else picture(chart),
            **fields,
        )

    locale = catalog.locale
    rates = (  # of the total alone, its bar in the table is enough
        charts.pass_rates(run, locale=locale).properties(width=_CHART_WIDTH)
        if summary.by_ac
        else None
    )
    yield section("rates", pass_rates(summary, catalog, criteria=run.criteria), chart=rates)
    yield section(
        "scores",
        score_table(summary, catalog),
        gate_table(summary, catalog),
        groups=group_rates(summary, catalog),
    )
    if (approvals := run.tool_risks()).tools:
        yield section("approvals", approvals_table(approvals, catalog))
    if (own := own_score_table(summary, catalog)) is not None:
        chart = charts.own_scores(run, locale=locale)
        yield section("own_scores", own, chart=chart)
    if comparison is not None:
        yield section(
            "flips",
            comparison_table(comparison, catalog),
            chart=charts.flips(comparison, locale=locale).properties(width=_CHART_WIDTH)
            if any(pair.a.ac for pair in comparison.pairs)
            else None,
            # see `markdown`: what did not decide contradicts no threshold
            sentence=""
            if is_decided and comparison.is_powerless
            else comparison_sentence(comparison, catalog),
            flips=flips,
        )
    violations = violation_table(summary.total, catalog)
    if violations is not None:
        chart = charts.violations(run, locale=locale).properties(width=_CHART_WIDTH)
        yield section("violations", violations, chart=chart)
    if summary.false_claims:
        yield section("claims", claim_table(summary, catalog))
    if summary.total.turn.n:
        chart = charts.latencies(run, locale=locale).properties(width=_CHART_WIDTH)
        yield section("latency", latency_table(summary, catalog), chart=chart)
    if summary.confusion:
        yield section("confusion", chart=charts.confusion(run, locale=locale))


def _filter_choices(
    run: Run, summary: Summary, catalog: Catalog
) -> dict[str, list[tuple[str, str]]]:
    tags = sorted({tag for record in run.records for tag in record.tags})
    verdicts = [(str(verdict), catalog.text(f"report.verdict.{verdict}")) for verdict in Verdict]
    criteria = [
        (tally.name or NO_AC, tally.name or catalog.text("table.no_ac")) for tally in summary.by_ac
    ]
    return {
        "verdict": verdicts,
        **({"ac": criteria} if criteria else {}),
        "tag": [(tag, tag) for tag in tags],
    }
