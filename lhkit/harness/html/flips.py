"""A comparison of two runs as HTML: the numbers, and the pairs that flipped."""

from lhkit.harness.html.markup import Html, join, tag
from lhkit.harness.html.samples import verdict_chip
from lhkit.harness.html.tables import table
from lhkit.harness.html.trace import trace_html
from lhkit.harness.pairs import Comparison, Pair
from lhkit.harness.words import numbers
from lhkit.locales import Catalog


def numbers_table(compared: Comparison, catalog: Catalog) -> Html:
    """Return pass rates of both runs, their difference with its interval, and the test."""
    columns = ("", compared.name_a, compared.name_b, catalog.text("compare.difference"))
    rows = [
        tag("tr", tag("th", name, scope="row"), *(tag("td", cell) for cell in cells))
        for name, *cells in numbers(compared, catalog)
    ]
    return table(columns, rows, caption=catalog.text("report.flips"))


def flip_list(
    compared: Comparison, catalog: Catalog, *, is_inert: bool = False, at_most: int | None = None
) -> Html:
    """Return the pairs that flipped, lost ones first; each opens into both transcripts.

    Args:
        compared: the comparison.
        catalog: the texts.
        is_inert: keep transcripts as text until a script opens them; see `sample_row`.
        at_most: how many lost and how many gained ones to show; all if None.
    """
    parts: list[Html] = []
    for key, pairs in (("lost", compared.lost), ("gained", compared.gained)):
        if pairs:
            parts.append(tag("h4", catalog.text(f"compare.{key}", count=len(pairs))))
            shown = pairs[:at_most]
            parts += [pair_row(pair, compared, catalog, is_inert=is_inert) for pair in shown]
            if len(shown) < len(pairs):
                more = catalog.text("compare.more", count=len(pairs) - len(shown))
                parts.append(tag("p", more))
    return join(parts)


def pair_row(
    pair: Pair,
    compared: Comparison,
    catalog: Catalog,
    *,
    is_inert: bool,
    lead: Html | None = None,
) -> Html:
    """Return one pair, closed; it opens into what stands before all, and both transcripts.

    Args:
        pair: the pair.
        compared: the comparison that it is of.
        catalog: the texts.
        is_inert: keep transcripts as text until a script opens them; see `sample_row`.
        lead: what stands before both transcripts.
    """
    sides = ((compared.name_a, pair.a), (compared.name_b, pair.b))
    both = tag(
        "div",
        *(tag("div", tag("h4", name), trace_html(each, catalog)) for name, each in sides),
        class_="lhr-flip",
    )
    both = both if lead is None else tag("div", lead, both)
    reasons = (pair.a.judgement.reasons or pair.b.judgement.reasons or ("",))[0]
    summary = tag(
        "summary",
        join(
            [
                verdict_chip(pair.a.judgement.verdict, catalog),
                " → ",
                verdict_chip(pair.b.judgement.verdict, catalog),
            ]
        ),
        tag("span", pair.a.ac, class_="lhr-dim"),
        tag("span", str(pair.a.sample_id), class_="lhr-id"),
        tag("span", reasons, class_="lhr-reason"),
    )
    return tag(
        "details",
        summary,
        tag("noscript", both) if is_inert else both,
        class_="lhr-sample",
        data_ac=pair.a.ac,
        data_verdict=pair.b.judgement.verdict,
    )
