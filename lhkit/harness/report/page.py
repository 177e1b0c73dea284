"""A run as one HTML file that needs nothing else: no network, no server, not even scripts.

Failures come first. Transcripts wait as text and are built when a reader opens one, so that
thousands of samples stay quick; without scripts they are simply there. A content security policy
forbids every script but ours, as a second wall behind the escaping in `html`.
"""

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeAlias

from lhkit.errors import MissingPackageError
from lhkit.harness.compare import compare
from lhkit.harness.html.display import style
from lhkit.harness.html.flips import flip_list, numbers_table
from lhkit.harness.html.markup import Html, join, tag
from lhkit.harness.html.samples import failures_first, sample_row
from lhkit.harness.html.scores import gate_sheet, score_sheet
from lhkit.harness.html.tables import (
    claim_table,
    latency_table,
    tally_table,
    tiles,
    violation_table,
)
from lhkit.harness.metrics import Summary, Tally
from lhkit.harness.record import Verdict
from lhkit.harness.report.charts import confusion, flips, latencies, pass_rates, violations
from lhkit.harness.report.comparison import notes, sentence
from lhkit.harness.report.facts import facts
from lhkit.harness.report.picture import picture
from lhkit.harness.results import Run
from lhkit.harness.words import criterion_words
from lhkit.locales import Catalog
from lhkit.text import printable

if TYPE_CHECKING:
    import altair as alt

    Chart: TypeAlias = alt.Chart | alt.LayerChart

_HALF = 360  # pixels of a plot beside a table


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One part of the page between its head and its samples."""

    id: str
    title: str
    body: Html


def html_page(run: Run, catalog: Catalog, *, name: str, baseline: Run | None = None) -> str:
    """Return the page.

    Args:
        run: what to report.
        catalog: the texts.
        name: what the run is called.
        baseline: an earlier run to set it against.

    Raises:
        MissingPackageError: jinja2, altair or vl-convert is not installed.
    """
    summary = run.summary()
    return rendered(
        catalog,
        title=catalog.text("report.title", model=name),
        tiles=tiles(summary, catalog),
        sections=list(_sections(run, summary, catalog, baseline)),
        choices=_choices(run, catalog),
        samples=[
            sample_row(record, catalog, is_inert=True) for record in failures_first(run.records)
        ],
        facts=[(label, printable(value)) for label, value in facts(run, summary, catalog)],
    )


def rendered(
    catalog: Catalog,
    *,
    title: str,
    tiles: Html,
    sections: Sequence[Section],
    samples: Sequence[Html],
    samples_title: str = "",
    choices: Mapping[str, Sequence[tuple[str, str]]] | None = None,
    facts: Sequence[tuple[str, str]] = (),
) -> str:
    """Return a page of sections and samples; a part that is empty is left out.

    Raises:
        MissingPackageError: jinja2 is not installed.
    """
    script = _asset("page.js")
    sha256 = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page: str = _template().render(
        locale=catalog.locale,
        text=catalog.text,
        title=printable(title),
        script=script,
        script_sha256=Html(sha256),
        style=Html(style() + _asset("page.css")),
        tiles=tiles,
        sections=sections,
        choices=choices or {},
        samples=samples,
        samples_title=samples_title or catalog.text("report.samples"),
        facts=facts,
    )
    return page


def _sections(
    run: Run, summary: Summary, catalog: Catalog, baseline: Run | None
) -> Iterator[Section]:
    yield _section("rates", _rates(run, summary, catalog), catalog)
    yield _section("scores", _scores(summary, catalog), catalog)
    if baseline is not None:
        yield _section("flips", _flips(run, baseline, catalog), catalog)
    broken = violation_table(summary.total, catalog)
    if broken is not None:
        chart = violations(run, locale=catalog.locale)
        yield _section("violations", _beside(broken, chart, "violations", catalog), catalog)
    flagged = claim_table(summary, catalog)
    if flagged is not None:
        yield _section("claims", flagged, catalog)
    if summary.total.turn.n:
        yield _section("latency", _latency(run, summary, catalog), catalog)
    if summary.confusion:
        chart = confusion(run, locale=catalog.locale)
        described = catalog.text("report.alt.confusion")
        yield _section("confusion", picture(chart, described), catalog)


def _section(name: str, body: Html, catalog: Catalog) -> Section:
    return Section(id=name, title=catalog.text(f"report.{name}"), body=body)


def _rates(run: Run, summary: Summary, catalog: Catalog) -> Html:
    table = tally_table(
        summary.by_ac,
        summary.total,
        catalog,
        heading=catalog.text("table.ac"),
        words=criterion_words((each.name for each in summary.by_ac), run.toolset, catalog),
        by_difficulty=summary.by_difficulty,
        bars=False,
    )
    chart = pass_rates(run, locale=catalog.locale)
    drawn = picture(chart.properties(width=_HALF), catalog.text("report.alt.rates"))
    return tag("div", table, drawn, class_="rates")


def _scores(summary: Summary, catalog: Catalog) -> Html:
    """Return the scores, and the pass rates by tool, language and tag for those who look."""
    sheets = tag("div", score_sheet(summary, catalog), gate_sheet(summary, catalog), class_="pair")
    groups = {"tool": summary.by_tool, "locale": summary.by_locale, "tag": summary.by_tag}
    tables = (
        tally_table(
            _named(tallies, catalog), None, catalog, heading=catalog.text(f"report.by_{key}")
        )
        for key, tallies in groups.items()
        if tallies
    )
    shut = tag("details", tag("summary", catalog.text("report.groups")), *tables, class_="groups")
    return join([sheets, shut])


def _named(tallies: Sequence[Tally], catalog: Catalog) -> list[Tally]:
    """Return groups with a word for the one without a name: no tool was due."""
    return [
        each if each.name else replace(each, name=catalog.text("report.no_call"))
        for each in tallies
    ]


def _latency(run: Run, summary: Summary, catalog: Catalog) -> Html:
    turns, requests = summary.times.turns, summary.times.requests
    table = latency_table(
        {
            "turn_time": turns.whole,
            "first_token": requests.first_token,
            "first_token_cold": summary.cold,
            "first_token_warm": summary.warm,
            "first_text": requests.first_text,
            "call_ready": requests.call_ready,
            "last_token": requests.last_token,
            "per_token": requests.per_token,
            "tool_time": turns.tools,
            "harness_time": turns.harness,
            "waiting_time": turns.waiting,
        },
        catalog,
    )
    chart = latencies(run, locale=catalog.locale)
    return _beside(table, chart, "latency", catalog)


def _beside(table: Html, chart: Any, name: str, catalog: Catalog) -> Html:
    drawn = picture(chart.properties(width=_HALF), catalog.text(f"report.alt.{name}"))
    return tag("div", table, drawn, class_="pair")


def _flips(run: Run, baseline: Run, catalog: Catalog) -> Html:
    comparison = compare(baseline, run)
    noted = (tag("p", note, class_="lhr-dim") for note in notes(comparison, catalog))
    chart = flips(comparison, locale=catalog.locale).properties(width=_HALF)
    drawn = picture(chart, catalog.text("report.alt.flips"))
    return join(
        [
            tag("p", sentence(comparison, catalog)),
            *noted,
            tag("div", numbers_table(comparison, catalog), drawn, class_="pair"),
            flip_list(comparison, catalog, is_inert=True),
        ]
    )


def _choices(run: Run, catalog: Catalog) -> dict[str, list[tuple[str, str]]]:
    """Return what the samples can be filtered by, as (value, words)."""
    tags = sorted({each for record in run.records for each in record.tags})
    acs = dict.fromkeys(tally.name for tally in run.summary().by_ac)
    return {
        "verdict": [(each, catalog.text(f"report.verdict.{each}")) for each in Verdict],
        "ac": _plain(tuple(acs)),
        "tag": _plain(tags),
    }


def _plain(values: Sequence[str]) -> list[tuple[str, str]]:
    return [(printable(value), printable(value)) for value in values]


def _asset(name: str) -> Html:
    """Return a file of ours, which is code and not escaped."""
    source = files(__package__).joinpath("templates", name)
    return Html(source.read_text(encoding="utf-8"))


def _template() -> Any:
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise MissingPackageError(
            "jinja2 is not installed: in the clone, `pip install -e '.[report]'`"
        ) from error
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.from_string(_asset("page.html.j2"))
