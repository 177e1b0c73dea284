"""Two runs as pairs in HTML: the numbers, and every pair that flipped with both transcripts.

Knows a comparison by its shape only: computing one is `compare`'s business.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from lhkit.harness.figures.statistics import Interval
from lhkit.harness.fragments.markup import Html, join, percent, tag
from lhkit.harness.fragments.overview import table
from lhkit.harness.fragments.samples import verdict_chip
from lhkit.harness.fragments.trace import trace_html
from lhkit.harness.records.record import SampleRecord
from lhkit.locales import Catalog

_SMALLEST_P = 0.001


class Paired(Protocol):
    """One sample in both runs."""

    @property
    def a(self) -> SampleRecord:
        """The record of the first run."""

    @property
    def b(self) -> SampleRecord:
        """The record of the second run."""


class Compared(Protocol):
    """What a comparison of run a (before) and run b (after) says."""

    @property
    def name_a(self) -> str:
        """What a is called."""

    @property
    def name_b(self) -> str:
        """What b is called."""

    @property
    def pairs(self) -> Sequence[Paired]:
        """The samples that both runs answered."""

    @property
    def passed_a(self) -> int:
        """The pairs that passed in a."""

    @property
    def passed_b(self) -> int:
        """The pairs that passed in b."""

    @property
    def difference(self) -> float | None:
        """The pass rate of b less that of a."""

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval of the difference."""

    @property
    def p_value(self) -> float:
        """How surprising the flips would be if nothing had changed."""

    @property
    def lost(self) -> Sequence[Paired]:
        """The pairs where only a passed."""

    @property
    def gained(self) -> Sequence[Paired]:
        """The pairs where only b passed."""


def numbers_table(compared: Compared, catalog: Catalog) -> Html:
    """Return pass rates of both runs, their difference with its interval, and the test."""
    columns = ("", compared.name_a, compared.name_b, catalog.text("compare.difference"))
    rows = [
        tag("tr", tag("th", name, scope="row"), *(tag("td", cell) for cell in cells))
        for name, *cells in numbers(compared, catalog)
    ]
    return table(columns, rows, caption=catalog.text("report.flips"))


def numbers(compared: Compared, catalog: Catalog) -> Iterator[tuple[str, str, str, str]]:
    """Yield what the table says: name, a, b, difference."""
    n = len(compared.pairs)
    text = catalog.text
    a, b = (_share(passed, n) for passed in (compared.passed_a, compared.passed_b))
    yield text("compare.pass_rate"), a, b, _points(compared)
    lost, gained = len(compared.lost), len(compared.gained)
    yield text("compare.flips"), f"−{lost}", f"+{gained}", f"{gained - lost:+d}"
    p_value = compared.p_value
    shown = f"p < {_SMALLEST_P}" if p_value < _SMALLEST_P else f"p = {p_value:.3f}"
    yield text("compare.mcnemar"), "", "", shown


def flip_list(
    compared: Compared, catalog: Catalog, *, is_inert: bool = False, at_most: int | None = None
) -> Html:
    """Return the pairs that flipped, lost ones first; each opens into both transcripts.

    Args:
        compared: the comparison.
        catalog: the texts.
        is_inert: keep transcripts as text until a script opens them; see `samples.sample_row`.
        at_most: how many lost and how many gained ones to show; all if None.
    """
    parts: list[Html] = []
    for key, pairs in (("lost", compared.lost), ("gained", compared.gained)):
        if pairs:
            parts.append(tag("h4", catalog.text(f"compare.{key}", count=len(pairs))))
            shown = pairs[:at_most]
            parts += [_flip(pair, compared, catalog, is_inert=is_inert) for pair in shown]
            if len(shown) < len(pairs):
                more = catalog.text("compare.more", count=len(pairs) - len(shown))
                parts.append(tag("p", more))
    return join(parts)


def _flip(pair: Paired, compared: Compared, catalog: Catalog, *, is_inert: bool) -> Html:
    sides = ((compared.name_a, pair.a), (compared.name_b, pair.b))
    both = tag(
        "div",
        *(tag("div", tag("h4", name), trace_html(each, catalog)) for name, each in sides),
        class_="lhr-flip",
    )
    reasons = (pair.a.reasons or pair.b.reasons or ("",))[0]
    summary = tag(
        "summary",
        join([verdict_chip(pair.a.verdict, catalog), " → ", verdict_chip(pair.b.verdict, catalog)]),
        tag("span", pair.a.ac, class_="lhr-dim"),
        tag("span", str(pair.a.sample_id), class_="lhr-id"),
        tag("span", reasons, class_="lhr-reason"),
    )
    return tag("details", summary, tag("noscript", both) if is_inert else both, class_="lhr-sample")


def _share(passed: int, n: int) -> str:
    return f"{passed}/{n} {percent(passed / n)}" if n else "–"


def _points(compared: Compared) -> str:
    """Return a difference of shares in points, with its interval."""
    if compared.difference is None:
        return "–"
    shown = f"{100 * compared.difference:+.1f}"
    interval = compared.interval
    if interval is None:
        return shown
    return f"{shown} ({100 * interval.low:+.1f} … {100 * interval.high:+.1f})"
