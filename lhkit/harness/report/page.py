"""The report as one HTML page that needs no network."""

import base64
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lhkit.errors import MissingPackageError
from lhkit.harness.compare import compare
from lhkit.harness.html import (
    Html,
    claim_table,
    criterion_words,
    failures_first,
    flip_list,
    gate_sheet,
    join,
    latency_table,
    numbers_table,
    sample_row,
    score_sheet,
    style,
    tag,
    tally_table,
    tiles,
    violation_table,
)
from lhkit.harness.metrics import Summary, Tally
from lhkit.harness.pairs import Comparison
from lhkit.harness.record import Verdict
from lhkit.harness.report.terminal import notes, sentence
from lhkit.harness.report.text import facts, xml_text
from lhkit.harness.results import Run
from lhkit.harness.shares import Interval
from lhkit.locales import DEFAULT_LOCALE, Catalog, load_catalog
from lhkit.text import one_line, printable

# Altair charts as pictures inside a page: SVG in a data address, once for light, once for dark.
#
# An `img` never runs what is in it and keeps its words apart from the page's; `picture` chooses by
# the reader's theme. Nothing is fetched.


BLUE: Final = "#3b7dd8"
RED: Final = "#d1495b"
YELLOW: Final = "#d9a02b"
_FONT: Final = "system-ui, 'Noto Sans KR', 'Noto Sans CJK KR', NanumGothic, sans-serif"
LIGHT: Final = {"ink": "#1c2128", "dim": "#57606a", "line": "#d5dae0"}
_DARK: Final = {"ink": "#e4e8ee", "dim": "#9aa5b1", "line": "#363d47"}


def picture(chart: Any, description: str) -> Html:
    """Return a chart as an element of a page.

    Args:
        chart: an altair chart.
        description: what it shows, for those who cannot see it.

    Raises:
        MissingPackageError: vl-convert is not installed.
    """
    spec = chart.to_dict()
    dark = tag("source", media="(prefers-color-scheme: dark)", srcset=_address(spec, _DARK))
    light = tag("img", src=_address(spec, LIGHT), alt=description)
    inner = f"{dark}{light}".replace("</source>", "").replace("</img>", "")
    return tag("figure", tag("picture", Html(inner)))


def _address(spec: dict[str, Any], colours: dict[str, str]) -> Html:
    svg = svg_of({**spec, "config": _config(colours)})
    return Html(f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}")


def svg_of(spec: dict[str, Any]) -> str:
    """Return a Vega-Lite specification drawn as SVG.

    Raises:
        MissingPackageError: vl-convert is not installed.
    """
    try:
        import vl_convert
    except ImportError as error:
        raise MissingPackageError(
            "vl-convert-python is not installed: in the clone, `pip install -e '.[report]'`"
        ) from error
    svg: str = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    return svg


def _config(colours: dict[str, str]) -> dict[str, Any]:
    ink, dim, line = colours["ink"], colours["dim"], colours["line"]
    axis = {
        "labelColor": ink,
        "titleColor": dim,
        "domainColor": line,
        "tickColor": line,
        "gridColor": line,
        "gridOpacity": 0.6,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelLimit": 220,
    }
    return {
        "background": "transparent",
        "font": _FONT,
        "view": {"stroke": "transparent"},
        "axis": axis,
        "legend": {"labelColor": ink, "titleColor": dim, "orient": "top", "labelFontSize": 12},
        "text": {"color": ink, "fontSize": 12},
    }


# The plots of a run as altair charts, for a notebook; the report draws the same ones.
#
# Each takes plain values of a run and holds its data inline, so that nothing is fetched.


if TYPE_CHECKING:
    import altair as alt

    Chart: TypeAlias = alt.Chart | alt.LayerChart

ESCAPED: Final = RED
ATTEMPTED: Final = YELLOW

WIDTH: Final = 520
_ROW = 26
_APART = 24
"""Between names of tools and the title beside them: a browser's fonts are wider than measured."""
_COLUMN = 90
_STEPS = 200
_LABEL_CHARS = 40


def pass_rates(run: Run, *, locale: str = DEFAULT_LOCALE) -> "Chart":
    """Return the pass rate of each acceptance criterion with its 95 % interval."""
    alt, text = _altair(), load_catalog(locale).text
    tallies = [each for each in run.summary().by_ac if each.valid]
    rate = alt.Scale(domain=[0, 1])
    base = alt.Chart(_data(map(_rate_row, tallies))).encode(
        y=alt.Y("name:N", sort=[_shown(each.name) for each in tallies], title=None),
        tooltip=["name:N", "passed:Q", "valid:Q", "low:Q", "high:Q"],
    )
    line = base.mark_rule(strokeWidth=5, opacity=0.35, color=BLUE).encode(
        x=alt.X("low:Q", scale=rate, axis=alt.Axis(format="%"), title=text("table.pass_rate")),
        x2="high:Q",
    )
    point = base.mark_point(filled=True, size=80, opacity=1, color=BLUE).encode(
        x=alt.X("rate:Q", scale=rate)
    )
    drawn: Chart = (line + point).properties(width=WIDTH, height=_height(len(tallies)))
    return drawn


def latencies(run: Run, *, locale: str = DEFAULT_LOCALE) -> "Chart":
    """Return which share of the turns was over after how many seconds, with p50 and p95 marked.

    Waiting for a person is left out; so are invalid samples.
    """
    alt, text = _altair(), load_catalog(locale).text
    spent = sorted(
        turn.active_s
        for record in run.records
        if record.judgement.verdict is not Verdict.INVALID
        for turn in record.evidence.turns
    )
    seconds = alt.X("seconds:Q", title=text("report.turn_seconds"))
    curve = (
        alt.Chart(_data(_shares(spent)))
        .mark_line(interpolate="step-after", color=BLUE)
        .encode(
            x=seconds,
            y=alt.Y("share:Q", axis=alt.Axis(format="%"), title=text("report.turn_share")),
        )
    )
    turn = run.summary().total.turn
    for name, at, align, dx, dy in (
        ("p50", turn.p50_s, "left", 5, 60),
        ("p95", turn.p95_s, "right", -5, 80),
    ):
        mark = [] if at is None else [{"seconds": at, "name": f"{name} {at:.3g} s"}]
        rule = alt.Chart(_data(mark)).encode(x=seconds)
        curve += rule.mark_rule(strokeDash=[4, 3], color=ATTEMPTED, strokeWidth=1.5)
        curve += rule.mark_text(align=align, dx=dx, dy=dy).encode(text="name:N")
    drawn: Chart = curve.properties(width=WIDTH, height=190)
    return drawn


def confusion(run: Run, *, locale: str = DEFAULT_LOCALE) -> "Chart":
    """Return which tool was due (rows) and which was called (columns); a dash is no call."""
    alt, text = _altair(), load_catalog(locale).text
    nothing = text("report.no_call")
    cells: list[dict[str, Any]] = [
        {"due": _shown(due or nothing), "called": _shown(called or nothing), "count": count}
        for (due, called), count in run.summary().confusion.items()
    ]
    base = alt.Chart(_data(cells)).encode(
        x=alt.X("called:N", title=text("report.tool_called"), axis=alt.Axis(labelAngle=-35)),
        y=alt.Y("due:N", title=text("report.tool_due"), axis=alt.Axis(titlePadding=_APART)),
        tooltip=["due:N", "called:N", "count:Q"],
    )
    most = max((cell["count"] for cell in cells), default=1)
    squares = base.mark_rect().encode(
        color=alt.Color("count:Q", scale=alt.Scale(range=["#cfe0f7", "#1f4f9c"]), legend=None)
    )
    numbers = base.mark_text(fontWeight="bold").encode(
        text="count:Q",
        color=alt.condition(f"datum.count > {most / 2}", alt.value("white"), alt.value("#10243f")),
    )
    rows, columns = (len({cell[side] for cell in cells}) for side in ("due", "called"))
    width = min(WIDTH, columns * _COLUMN)
    drawn: Chart = (squares + numbers).properties(width=width, height=_height(rows))
    return drawn


def violations(run: Run, *, locale: str = DEFAULT_LOCALE) -> "Chart":
    """Return how often each rule was broken, really and in vain."""
    alt, text = _altair(), load_catalog(locale).text
    total = run.summary().total
    names = {"escaped": text("table.escaped"), "attempted": text("table.attempted")}
    counted = {"escaped": total.escaped, "attempted": total.attempted}
    rows = [
        {"code": _shown(code), "severity": names[severity], "count": count}
        for severity, codes in counted.items()
        for code, count in codes.items()
    ]
    colours = alt.Scale(domain=list(names.values()), range=[ESCAPED, ATTEMPTED])
    drawn: Chart = (
        alt.Chart(_data(rows))
        .mark_bar()
        .encode(
            x=alt.X("count:Q", title=text("report.count"), axis=alt.Axis(tickMinStep=1)),
            y=alt.Y("code:N", sort="-x", title=None),
            color=alt.Color("severity:N", scale=colours, title=None),
            tooltip=["code:N", "severity:N", "count:Q"],
        )
        .properties(width=WIDTH, height=_height(len({row["code"] for row in rows})))
    )
    return drawn


def flips(comparison: Comparison, *, locale: str = DEFAULT_LOCALE) -> "Chart":
    """Return how many samples of each acceptance criterion were lost and gained."""
    alt, text = _altair(), load_catalog(locale).text
    names = {"lost": text("report.lost"), "gained": text("report.gained")}
    sides = (("lost", -1, comparison.lost), ("gained", 1, comparison.gained))
    counts = Counter((pair.a.ac, side, sign) for side, sign, pairs in sides for pair in pairs)
    rows = [
        {"ac": _shown(ac), "side": names[side], "count": sign * count}
        for (ac, side, sign), count in counts.items()
    ]
    order = [_shown(pair.a.ac) for pair in comparison.pairs]
    colours = alt.Scale(domain=list(names.values()), range=[ESCAPED, BLUE])
    drawn: Chart = (
        alt.Chart(_data(rows))
        .mark_bar()
        .encode(
            x=alt.X("count:Q", title=text("report.count"), axis=alt.Axis(tickMinStep=1)),
            y=alt.Y("ac:N", sort=list(dict.fromkeys(order)), title=None),
            color=alt.Color("side:N", scale=colours, title=None),
            tooltip=["ac:N", "side:N", "count:Q"],
        )
        .properties(width=WIDTH, height=_height(len({row["ac"] for row in rows})))
    )
    return drawn


def _rate_row(tally: Tally) -> dict[str, Any]:
    interval = tally.interval or Interval(low=0.0, high=1.0)
    return {
        "name": _shown(tally.name),
        "rate": tally.pass_rate,
        "low": interval.low,
        "high": interval.high,
        "passed": tally.passed,
        "valid": tally.valid,
    }


def _shown(words: str) -> str:
    """Return a label that is short and that the SVG can carry."""
    return one_line(xml_text(words), max_chars=_LABEL_CHARS)


def _shares(ordered: Sequence[float]) -> list[dict[str, float]]:
    """Return the empirical distribution, in a bounded number of steps."""
    n = len(ordered)
    places = sorted({round(k * (n - 1) / _STEPS) for k in range(_STEPS + 1)}) if n else []
    return [{"seconds": ordered[k], "share": (k + 1) / n} for k in places]


def _height(rows: int) -> int:
    return max(rows, 1) * _ROW


def _data(rows: Any) -> Any:
    return _altair().Data(values=list(rows))


def _altair() -> Any:
    """Return altair, which only plots need.

    Raises:
        MissingPackageError: it is not installed; the message says how to get it.
    """
    try:
        import altair as alt
    except ImportError as error:
        raise MissingPackageError(
            "altair is not installed: in the clone, `pip install -e '.[report]'`"
        ) from error
    return alt


# A run as one HTML file that needs nothing else: no network, no server, not even scripts.
#
# Failures come first. Transcripts wait as text and are built when a reader opens one, so that
# thousands of samples stay quick; without scripts they are simply there. A content security policy
# forbids every script but ours, as a second wall behind the escaping in `html`.


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
