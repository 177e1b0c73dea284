"""A run's numbers as HTML: pass rates with intervals, violations, latencies, who played."""

from collections.abc import Iterable, Mapping, Sequence

from lhkit.harness.figures.metrics import Latency, Summary, Tally
from lhkit.harness.figures.statistics import Interval
from lhkit.harness.fragments.markup import Html, join, percent, seconds, tag
from lhkit.harness.fragments.trace import severity_chip
from lhkit.harness.records.record import Severity
from lhkit.locales import Catalog

_TALLY_COLUMNS = (
    "table.pass_rate",
    "report.interval",
    "table.tool_accuracy",
    "table.attempted",
    "table.escaped",
    "table.turn_p50",
    "table.turn_p95",
)
_LATENCY_COLUMNS = ("n", "p50", "p90", "p95", "p99")


def tiles(summary: Summary, catalog: Catalog) -> Html:
    """Return the few numbers that decide: rate, verdicts, violations, time."""
    total = summary.total
    escaped = sum(total.escaped.values())
    shown = (
        ("table.pass_rate", percent(total.pass_rate), interval_words(total.interval)),
        ("report.passed", str(total.passed), ""),
        ("report.failed", str(total.failed), ""),
        ("report.invalid", str(total.invalid), ""),
        ("table.escaped", str(escaped), ""),
        ("table.attempted", str(sum(total.attempted.values())), ""),
        ("table.turn_p50", seconds(total.turn.p50_s), f"p95 {seconds(total.turn.p95_s)}"),
    )
    alarm = {"table.escaped"} if escaped else set()
    items = (
        tag(
            "div",
            tag("dt", catalog.text(key)),
            tag("dd", value, tag("small", more) if more else None),
            class_="lhr-tile lhr-alarm" if key in alarm else "lhr-tile",
        )
        for key, value, more in shown
    )
    return tag("dl", *items, class_="lhr-tiles")


def criterion_words(tallies: Iterable[Tally], catalog: Catalog) -> dict[str, str]:
    """Return a few words for each acceptance criterion that we have words for."""
    return {each.name: catalog.texts.get(f"ac.{each.name}", "") for each in tallies}


def tally_table(
    tallies: Sequence[Tally],
    total: Tally | None,
    catalog: Catalog,
    *,
    heading: str,
    words: Mapping[str, str] | None = None,
    bars: bool = True,
) -> Html:
    """Return one row per group and, if given, a total.

    Args:
        tallies: the groups.
        total: all of them together.
        catalog: the texts.
        heading: what the groups are.
        words: a few words for a group, shown beside its name.
        bars: draw the intervals, where no plot does.
    """
    named = words or {}
    rows = [
        _tally_row(each, f"{each.name} {named.get(each.name, '')}".strip(), bars=bars)
        for each in tallies
    ]
    if total is not None:
        name = catalog.text("table.total")
        rows.append(_tally_row(total, name, bars=bars, class_="lhr-total"))
    columns = [heading, *(catalog.text(key) for key in _TALLY_COLUMNS)]
    return table(columns, rows, caption=heading)


def _tally_row(tally: Tally, name: str, *, bars: bool, class_: str | None = None) -> Html:
    interval = tally.interval if tally.valid else None
    drawn = interval_bar(tally.pass_rate, interval) if bars else interval_words(interval) or "–"
    return tag(
        "tr",
        tag("th", name, scope="row"),
        tag("td", f"{percent(tally.pass_rate)} ", tag("small", f"{tally.passed}/{tally.valid}")),
        tag("td", drawn),
        tag("td", f"{percent(tally.tool_accuracy)}"),
        tag("td", str(sum(tally.attempted.values()))),
        tag("td", str(sum(tally.escaped.values()))),
        tag("td", seconds(tally.turn.p50_s)),
        tag("td", seconds(tally.turn.p95_s)),
        class_=class_,
    )


def interval_words(interval: Interval | None) -> str:
    """Return an interval of a share, such as `41–78%`; empty where there is none."""
    return "" if interval is None else f"{100 * interval.low:.0f}–{percent(interval.high)}"


def interval_bar(rate: float | None, interval: Interval | None) -> Html:
    """Return a rate and its interval on a line from 0 to 100 %, and in words."""
    if rate is None or interval is None:
        return tag("span", "–")
    width = 100 * (interval.high - interval.low)
    line = tag(
        "span",
        tag("i", style=f"left:{100 * interval.low:.1f}%;width:{width:.1f}%"),
        tag("b", style=f"left:{100 * rate:.1f}%"),
        class_="lhr-interval",
        aria_hidden="true",
    )
    return join([line, tag("small", interval_words(interval))])


def violation_table(total: Tally, catalog: Catalog) -> Html | None:
    """Return how often each rule was broken, what really happened first; None if none was."""
    counts = [
        (severity, code, count)
        for severity, by_code in (
            (Severity.ESCAPED, total.escaped),
            (Severity.ATTEMPTED, total.attempted),
        )
        for code, count in by_code.items()
    ]
    if not counts:
        return None
    rows = [
        tag(
            "tr",
            tag("th", tag("code", code), scope="row"),
            tag("td", severity_chip(severity, catalog)),
            tag("td", str(count)),
        )
        for severity, code, count in counts
    ]
    names = ("report.rule", "report.severity", "audit.count")
    caption = catalog.text("report.violations")
    return table([catalog.text(name) for name in names], rows, caption=caption)


def latency_table(latencies: Mapping[str, Latency], catalog: Catalog) -> Html:
    """Return percentiles of some durations; those that nobody measured are left out."""
    rows = [
        tag(
            "tr",
            tag("th", catalog.text(f"report.{name}"), scope="row"),
            tag("td", f"{each.n:,}"),
            *(
                tag("td", seconds(value))
                for value in (each.p50_s, each.p90_s, each.p95_s, each.p99_s)
            ),
        )
        for name, each in latencies.items()
        if each.n
    ]
    caption = catalog.text("report.latency")
    return table([caption, *_LATENCY_COLUMNS], rows, caption=caption)


def table(columns: Iterable[str], rows: Iterable[Html], *, caption: str) -> Html:
    """Return a table that scrolls inside itself on a narrow screen; its caption is for readers."""
    head = (tag("th", column, scope="col") for column in columns)
    inner = tag(
        "table",
        tag("caption", caption, class_="lhr-unseen"),
        tag("thead", tag("tr", *head)),
        tag("tbody", *rows),
    )
    return tag("div", inner, class_="lhr-scroll", tabindex="0", role="region", aria_label=caption)
