"""A list of samples as HTML: failures first, one line each that opens into its transcript."""

from collections.abc import Iterable

from lhkit.harness.html.markup import Html, chip, tag
from lhkit.harness.html.trace import trace_html
from lhkit.harness.record import SampleId, SampleRecord, Verdict
from lhkit.locales import Catalog
from lhkit.text import seconds

VERDICT_KINDS = {
    Verdict.PASS: "lhr-good",
    Verdict.FAIL: "lhr-bad",
    Verdict.INVALID: "lhr-warn",
}
"""The colour of a verdict; its word stands beside it."""

_MARKS = {Verdict.PASS: "✓", Verdict.FAIL: "✗", Verdict.INVALID: "!"}
_ORDER = (Verdict.FAIL, Verdict.INVALID, Verdict.PASS)


def failures_first(records: Iterable[SampleRecord]) -> list[SampleRecord]:
    """Return what really did harm, then what failed, what is invalid, what passed."""
    return sorted(
        records,
        key=lambda each: (not each.judgement.has_escaped, _ORDER.index(each.judgement.verdict)),
    )


def anchor(sample: SampleId) -> str:
    """Return the address of a sample inside a page."""
    return f"s-{sample.scenario}-{sample.repeat}"


def verdict_chip(verdict: Verdict, catalog: Catalog) -> Html:
    """Return the mark of a verdict."""
    words = f"{_MARKS[verdict]} {catalog.text(f'report.verdict.{verdict}')}"
    return chip(words, VERDICT_KINDS[verdict])


def sample_row(record: SampleRecord, catalog: Catalog, *, is_inert: bool = False) -> Html:
    """Return one sample, closed.

    Args:
        record: the sample.
        catalog: the texts.
        is_inert: put the transcript into `noscript`: where scripts run it stays one piece of text
            until a script opens it, so that thousands of them cost next to nothing; where they do
            not run it is simply there.
    """
    transcript = trace_html(record, catalog)
    return tag(
        "details",
        tag("summary", *_summary(record, catalog)),
        tag("noscript", transcript) if is_inert else transcript,
        class_="lhr-sample",
        id=anchor(record.sample_id) if is_inert else None,
        data_ac=record.ac,
        data_verdict=record.judgement.verdict,
        data_tags=" ".join(("", *record.tags, "")) if record.tags else None,
    )


def _summary(record: SampleRecord, catalog: Catalog) -> Iterable[Html | str]:
    spent = sum(turn.duration_s for turn in record.evidence.turns)
    yield verdict_chip(record.judgement.verdict, catalog)
    if record.judgement.has_escaped:
        yield chip(catalog.text("table.escaped"), "lhr-bad")
    yield tag("span", record.ac, class_="lhr-dim")
    yield tag("span", str(record.sample_id), class_="lhr-id")
    yield tag(
        "span", record.judgement.reasons[0] if record.judgement.reasons else "", class_="lhr-reason"
    )
    yield tag("small", seconds(spent) if record.evidence.turns else "–")
