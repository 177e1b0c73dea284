"""Altair charts of a run for notebooks, and as SVG pictures for the report page.

Charts contain their data, so nothing is fetched. A picture is an SVG data URL, one for light and
one for dark pages; an `img` element never runs scripts in it.
"""

import base64
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lhkit.base.errors import importing
from lhkit.base.text import one_line
from lhkit.base.user_locale import user_catalog
from lhkit.harness.figures.metrics import ScoreFigure
from lhkit.harness.figures.pairs import Comparison
from lhkit.harness.figures.rates import Interval
from lhkit.harness.records.record import parse_moment
from lhkit.harness.records.transcript import xml_text
from lhkit.harness.results.history import History
from lhkit.harness.results.results import Run

if TYPE_CHECKING:
    import altair as alt

    Chart: TypeAlias = alt.Chart | alt.LayerChart | alt.VConcatChart

_BLUE: Final = "#3b7dd8"
_RED: Final = "#d1495b"
_YELLOW: Final = "#d9a02b"
_FONT: Final = "system-ui, 'Noto Sans KR', 'Noto Sans CJK KR', NanumGothic, sans-serif"
_LIGHT: Final = {"ink": "#1c2128", "dim": "#57606a", "line": "#d5dae0"}
_DARK: Final = {"ink": "#e4e8ee", "dim": "#9aa5b1", "line": "#363d47"}
_TO_DARK: Final = {
    f'{name}="{_LIGHT[part]}"': f'{name}="{_DARK[part]}"'
    for name in ("fill", "stroke")
    for part in _LIGHT
}
_TAG: Final = re.compile("<[^<>]*>")  # Vega escapes < and > in attributes
_COLOUR: Final = re.compile("|".join(_TO_DARK))
_WIDTH: Final = 520
_HISTORY_WIDTH: Final = 760
_SHOWN_LABELS = 24
_ROW_HEIGHT = 26
_TITLE_PADDING = 24  # browser fonts are wider than vl-convert measures
_COLUMN_WIDTH = 90
_STEPS = 200
_LABEL_CHARS = 40
_MOST_HISTOGRAMS = 8


def pass_rates(run: Run, *, locale: str | None = None) -> "Chart":
    """Return the pass rate of each acceptance criterion with its 95 % interval.

    If no sample has a criterion, it is the total pass rate.
    """
    text, summary = user_catalog(locale).text, run.summary()
    no_name = text("table.no_ac" if summary.by_ac else "table.total")
    tallies = [
        replace(tally, name=tally.name or no_name)
        for tally in summary.by_ac or [replace(summary.total, name="")]
        if tally.valid
    ]
    rows = [
        {
            "name": _label(tally.name),
            "rate": tally.pass_rate,
            "low": tally.interval.low if tally.interval else 0.0,
            "high": tally.interval.high if tally.interval else 1.0,
            "passed": tally.passed,
            "valid": tally.valid,
        }
        for tally in tallies
    ]
    return _intervals(rows, title=text("table.pass_rate"))


def _intervals(rows: Sequence[Mapping[str, Any]], *, title: str) -> "Chart":
    """Return a point with its interval for each row: `name`, `rate`, `low`, `high` and counts."""
    alt = _altair()
    scale = alt.Scale(domain=[0, 1])
    counts = [f"{key}:Q" for key in (rows[0] if rows else ()) if key not in {"name", "rate"}]
    tooltip = [alt.Tooltip(field) for field in ("name:N", *counts)]
    base = alt.Chart(_data(rows)).encode(
        y=alt.Y("name:N", sort=[row["name"] for row in rows], title=None),
        tooltip=tooltip,
    )
    line = base.mark_rule(strokeWidth=5, opacity=0.35, color=_BLUE).encode(
        x=alt.X("low:Q", scale=scale, axis=alt.Axis(format="%"), title=title),
        x2=alt.X2("high:Q"),
    )
    point = base.mark_point(filled=True, size=80, opacity=1, color=_BLUE).encode(
        x=alt.X("rate:Q", scale=scale)
    )
    chart: Chart = (line + point).properties(width=_WIDTH, height=_height(len(rows)))
    return chart


def own_scores(run: Run, *, locale: str | None = None) -> "Chart | None":
    """Return the user's scores: rates with their intervals, numbers as histograms.

    A line marks the mean of a number, a band its interval. None without values.
    """
    alt, text = _altair(), user_catalog(locale).text
    figures = [figure for figure in run.score_figures() if figure.interval is not None]
    rates = [figure for figure in figures if figure.is_rate]
    parts: list[Any] = []
    if rates:
        parts.append(
            _intervals(
                [
                    {
                        "name": _label(figure.name),
                        "rate": figure.value,
                        **_ends(figure),
                        "n": figure.n,
                    }
                    for figure in rates
                ],
                title=text("scores.value"),
            )
        )
    results = [value for result in run.score_records for value in result.values]
    for figure in [figure for figure in figures if not figure.is_rate][:_MOST_HISTOGRAMS]:
        values = [
            {"value": float(each.value)}
            for each in results
            if each.name == figure.name and each.value is not None
        ]
        title = alt.Title(_label(figure.name), anchor="start")
        bars = alt.Chart(_data(values)).mark_bar(color=_BLUE)
        bars = bars.encode(
            x=alt.X("value:Q", bin=alt.Bin(maxbins=20), title=None),
            y=alt.Y("count()", title=text("report.count")),
        )
        mark = alt.Chart(_data([{"mean": figure.value, **_ends(figure)}]))
        band = mark.mark_rect(opacity=0.25, color=_YELLOW).encode(
            x=alt.X("low:Q"), x2=alt.X2("high:Q")
        )
        rule = mark.mark_rule(color=_YELLOW, strokeWidth=2).encode(x=alt.X("mean:Q"))
        parts.append((bars + band + rule).properties(width=_WIDTH, height=80, title=title))
    chart: Chart | None = alt.vconcat(*parts) if parts else None
    return chart


def _ends(figure: ScoreFigure) -> dict[str, float]:
    interval = figure.interval or Interval(low=0.0, high=1.0)
    return {"low": interval.low, "high": interval.high}


def latencies(run: Run, *, locale: str | None = None) -> "Chart":
    """Return the cumulative distribution of turn times, with p50 and p95 marked.

    Waiting for the user and invalid samples are excluded.
    """
    alt, text = _altair(), user_catalog(locale).text
    times_s = sorted(
        turn.active_s
        for record in run.records
        if record.is_valid
        for turn in record.trajectory.turns
    )
    seconds = alt.X("seconds:Q", title=text("report.turn_seconds"))
    curve = (
        alt.Chart(_data(_distribution(times_s)))
        .mark_line(interpolate="step-after", color=_BLUE)
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
        curve += rule.mark_rule(strokeDash=[4, 3], color=_YELLOW, strokeWidth=1.5)
        curve += rule.mark_text(align=align, dx=dx, dy=dy).encode(text=alt.Text("name:N"))
    chart: Chart = curve.properties(width=_WIDTH, height=190)
    return chart


def confusion(run: Run, *, locale: str | None = None) -> "Chart":
    """Return the confusion matrix of expected tools (rows) and called tools (columns)."""
    alt, text = _altair(), user_catalog(locale).text
    no_call = text("report.no_call")
    cells: list[dict[str, Any]] = [
        {"expected": _label(expected or no_call), "called": _label(called or no_call), "count": n}
        for (expected, called), n in run.summary().confusion.items()
    ]
    base = alt.Chart(_data(cells)).encode(
        x=alt.X("called:N", title=text("report.tool_called"), axis=alt.Axis(labelAngle=-35)),
        y=alt.Y(
            "expected:N",
            title=text("report.tool_expected"),
            axis=alt.Axis(titlePadding=_TITLE_PADDING),
        ),
        tooltip=[alt.Tooltip(field) for field in ("expected:N", "called:N", "count:Q")],
    )
    most = max((cell["count"] for cell in cells), default=1)
    squares = base.mark_rect().encode(
        color=alt.Color("count:Q", scale=alt.Scale(range=["#cfe0f7", "#1f4f9c"]), legend=None)
    )
    numbers = base.mark_text(fontWeight="bold").encode(
        text=alt.Text("count:Q"),
        color=alt.condition(f"datum.count > {most / 2}", alt.value("white"), alt.value("#10243f")),
    )
    rows, columns = (len({cell[side] for cell in cells}) for side in ("expected", "called"))
    width = min(_WIDTH, columns * _COLUMN_WIDTH)
    chart: Chart = (squares + numbers).properties(width=width, height=_height(rows))
    return chart


def violations(run: Run, *, locale: str | None = None) -> "Chart":
    """Return the number of violations by rule: those that occurred and those blocked."""
    text, total = user_catalog(locale).text, run.summary().total
    return _bars(
        [
            {"name": _label(code), "kind": text(f"table.{severity}"), "count": count}
            for severity, codes in (("escaped", total.escaped), ("attempted", total.attempted))
            for code, count in codes.items()
        ],
        {text("table.escaped"): _RED, text("table.attempted"): _YELLOW},
        sort="-x",
        title=text("report.count"),
    )


def flips(comparison: Comparison, *, locale: str | None = None) -> "Chart":
    """Return the numbers of regressions and improvements by acceptance criterion.

    If no sample has a criterion, they are the totals.
    """
    text = user_catalog(locale).text
    has_criteria = any(pair.a.ac for pair in comparison.pairs)
    no_name = text("table.no_ac" if has_criteria else "table.total")
    counts = Counter(
        (pair.a.ac, kind, pair.gain) for kind, pairs in comparison.flips.items() for pair in pairs
    )
    return _bars(
        [
            {"name": _label(ac or no_name), "kind": text(f"report.{kind}"), "count": sign * count}
            for (ac, kind, sign), count in counts.items()
        ],
        {text("report.regressions"): _RED, text("report.improvements"): _BLUE},
        sort=list(dict.fromkeys(_label(pair.a.ac or no_name) for pair in comparison.pairs)),
        title=text("report.count"),
    )


def history(history: History, *, locale: str | None = None) -> "Chart":
    """Return pass rate, violations and turn time of runs over time, one line per model."""
    alt, text = _altair(), user_catalog(locale).text
    points = history.frame.to_dict("records")
    labels: Counter[str] = Counter()
    for point in points:
        moment = parse_moment(point["started_at"])
        when = f"{moment:%m-%d %H:%M} " if moment else ""
        label = _label(f"{when}{point['commit'][:8] or point['run']}")
        labels[label] += 1
        again = f" ({labels[label]})" if labels[label] > 1 else ""
        point |= {"label": label + again, "arm": _label(point["arm"])}
    colours = {text("table.escaped"): _RED, text("table.attempted"): _YELLOW}
    counts = [
        {"label": point["label"], "kind": kind, "count": point[column]}
        for point in points
        for kind, column in zip(colours, ("occurred", "blocked"), strict=True)
    ]
    order = [point["label"] for point in points]

    def x(*, labelled: bool = False) -> Any:
        is_crowded = len(order) > _SHOWN_LABELS
        axis = alt.Axis(labels=labelled, labelAngle=-35, labelOverlap=is_crowded, labelLimit=0)
        return alt.X("label:N", sort=order, title=None, axis=axis)

    legend = alt.Legend(columns=1, labelLimit=0, symbolOpacity=1)
    scale = alt.Scale(domain=sorted({point["arm"] for point in points}))
    arm = alt.Color("arm:N", title=None, scale=scale, legend=legend)
    measured = [point for point in points if not math.isnan(point["turn_p95_s"])]
    rates = alt.Chart(_data(points)).encode(color=arm)
    share = alt.Y(
        "pass_rate:Q",
        scale=alt.Scale(domain=[0, 1]),
        axis=alt.Axis(format="%"),
        title=text("table.pass_rate"),
    )
    interval = rates.mark_rule(strokeWidth=5, opacity=0.35).encode(
        x=x(), y=alt.Y("low:Q"), y2=alt.Y2("high:Q")
    )
    line = rates.mark_line(point={"size": 70}).encode(x=x(), y=share)
    bars = alt.Chart(_data(counts)).mark_bar(size=18)
    violations = bars.encode(
        x=x(),
        y=alt.Y("count:Q", title=text("report.violations"), axis=alt.Axis(tickMinStep=1)),
        color=alt.Color(
            "kind:N",
            scale=alt.Scale(domain=list(colours), range=list(colours.values())),
            title=None,
        ),
    )
    times = (
        alt.Chart(_data(measured))
        .mark_line(point={"size": 50})
        .encode(
            x=x(labelled=True),
            y=alt.Y("turn_p95_s:Q", title=text("history.seconds")),
            color=alt.Color("arm:N", scale=scale, legend=None),
        )
    )
    chart: Chart = alt.vconcat(
        (interval + line).properties(width=_HISTORY_WIDTH, height=190),
        violations.properties(width=_HISTORY_WIDTH, height=90),
        times.properties(width=_HISTORY_WIDTH, height=110),
    ).resolve_scale(color="independent")
    return chart


def _bars(
    rows: list[dict[str, Any]], colours: Mapping[str, str], *, sort: Any, title: str
) -> "Chart":
    """Return a bar chart of counts by name, coloured by kind."""
    alt = _altair()
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    chart: Chart = (
        alt.Chart(_data(rows))
        .mark_bar()
        .encode(
            x=alt.X("count:Q", title=title, axis=alt.Axis(tickMinStep=1)),
            y=alt.Y("name:N", sort=sort, title=None),
            color=alt.Color("kind:N", scale=scale, title=None),
            tooltip=[alt.Tooltip(field) for field in ("name:N", "kind:N", "count:Q")],
        )
        .properties(width=_WIDTH, height=_height(len({row["name"] for row in rows})))
    )
    return chart


def _label(text: str) -> str:
    """Return a short label that is valid in SVG."""
    return one_line(xml_text(text), max_chars=_LABEL_CHARS)


def _distribution(times_s: Sequence[float]) -> list[dict[str, float]]:
    """Return the cumulative distribution of sorted times, in a bounded number of steps."""
    n = len(times_s)
    indices = sorted({round(k * (n - 1) / _STEPS) for k in range(_STEPS + 1)}) if n else []
    return [{"seconds": times_s[k], "share": (k + 1) / n} for k in indices]


def _height(rows: int) -> int:
    return max(rows, 1) * _ROW_HEIGHT


def _data(rows: Any) -> Any:
    return _altair().Data(values=list(rows))


def _altair() -> Any:
    """Return the altair module.

    Raises:
        MissingPackageError: altair is not installed.
    """
    with importing("eval"):
        import altair as alt
    return alt


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A chart as SVG data URLs, for light and for dark pages."""

    light: str
    dark: str


def picture(chart: Any) -> Picture:
    """Return a chart drawn as SVG for light and dark pages.

    Raises:
        MissingPackageError: vl-convert is not installed.
    """
    light = svg_of({**chart.to_dict(validate=False), "config": _CONFIG})
    return Picture(light=_data_url(light), dark=_data_url(darkened(light)))


def _data_url(svg: str) -> str:
    from markupsafe import Markup

    # base64 needs neither escaping nor truncation
    return Markup(f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}")  # noqa: S704


def darkened(svg: str) -> str:
    """Return an SVG in the colours of dark pages.

    Replaces colours in tags only: labels are the user's.
    """
    return _TAG.sub(lambda tag: _COLOUR.sub(lambda found: _TO_DARK[found[0]], tag[0]), svg)


def svg_of(spec: dict[str, Any]) -> str:
    """Return the SVG drawing of a Vega-Lite specification.

    Raises:
        MissingPackageError: vl-convert is not installed.
    """
    with importing("eval"):
        import vl_convert
    svg: str = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    return svg


def _config(ink: str, dim: str, line: str) -> dict[str, Any]:
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
        "legend": {
            "labelColor": ink,
            "titleColor": dim,
            "orient": "top",
            "labelFontSize": 12,
            "columnPadding": 16,
        },
        "text": {"color": ink, "fontSize": 12},
    }


_CONFIG: Final = _config(**_LIGHT)
