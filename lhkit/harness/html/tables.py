"""A run's numbers as HTML: pass rates with intervals, violations, false claims, latencies."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from lhkit.harness.html.markup import Html, join, tag
from lhkit.harness.html.trace import severity_chip
from lhkit.harness.metrics import Summary, Tally
from lhkit.harness.record import Severity
from lhkit.harness.shares import Interval
from lhkit.harness.timings import Latency
from lhkit.harness.words import card_words, claim_why, claims_words, interval_words
from lhkit.locales import Catalog
from lhkit.text import one_line, percent, seconds

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
_SHOWN_CLAIMS = 200
_CLAIM_CHARS = 200


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
    listed = tile_list(shown, {"table.escaped"} if escaped else set(), catalog)
    card = tag("p", card_words(summary, catalog)) if summary.confirm.asked else None
    return join([listed, card])


def claim_table(summary: Summary, catalog: Catalog) -> Html | None:
    """Return the replies that are flagged as false success claims; None if there are none."""
    if not summary.false_claims:
        return None
    rows = [
        tag(
            "tr",
            tag("th", str(sample), scope="row"),
            tag("td", str(claim.turn)),
            tag("td", one_line(claim.words, max_chars=_CLAIM_CHARS)),
            tag("td", claim_why(claim, catalog)),
        )
        for sample, claim in summary.false_claims[:_SHOWN_CLAIMS]
    ]
    names = ("report.sample", "report.claim_turn", "report.words", "report.probability")
    caption = catalog.text("report.claims")
    listed = table([catalog.text(name) for name in names], rows, caption=caption)
    return join([tag("p", claims_words(summary, catalog)), listed])


def tile_list(
    shown: Iterable[tuple[str, str, str]], alarm: Collection[str], catalog: Catalog
) -> Html:
    """Return numbers as tiles.

    Args:
        shown: key of its name, value, and what stands small below it.
        alarm: the keys of those that should be looked at first.
        catalog: the texts.
    """
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


def tally_table(
    tallies: Sequence[Tally],
    total: Tally | None,
    catalog: Catalog,
    *,
    heading: str,
    words: Mapping[str, str] | None = None,
    by_difficulty: Sequence[Tally] = (),
    bars: bool = True,
) -> Html:
    """Return one row per group and, if given, a total.

    Args:
        tallies: the groups.
        total: all of them together.
        by_difficulty: the plain and the hard ones, told before the total.
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
    rows += [
        _tally_row(each, catalog.text(f"table.{each.name}"), bars=bars) for each in by_difficulty
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
    names = ("report.rule", "report.severity", "report.count")
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
