"""Runs, samples and comparisons as a notebook cell shows them: no script, in its theme.

The language is that of the conversations, Korean where they are mixed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from lhkit.harness.html.flips import flip_list, numbers_table
from lhkit.harness.html.markup import Html, tag
from lhkit.harness.html.samples import failures_first, sample_row, verdict_chip
from lhkit.harness.html.tables import claim_table, tally_table, tiles, violation_table
from lhkit.harness.html.trace import trace_html
from lhkit.harness.metrics import Summary
from lhkit.harness.pairs import Comparison
from lhkit.harness.record import SampleRecord
from lhkit.harness.words import criterion_words
from lhkit.locales import DEFAULT_LOCALE, Catalog, available_locales, load_catalog

_SHOWN_SAMPLES = 30
_SHOWN_FLIPS = 15


@dataclass(frozen=True, slots=True, repr=False)
class SampleView:
    """One sample of a run, to look at in a notebook."""

    record: SampleRecord

    def _repr_html_(self) -> str:
        """Return its transcript, open."""
        return sample_html(self.record)

    def __repr__(self) -> str:
        record = self.record
        name = str(record.sample_id)
        lines = (
            f"Sample({name}: {record.ac}, {record.judgement.verdict})",
            *record.judgement.reasons,
        )
        return "\n  ".join(lines)


def run_html(
    records: Sequence[SampleRecord], summary: Summary, *, toolset: str, name: str = ""
) -> Html:
    """Return a run's numbers, and its samples with failures first.

    Args:
        records: the samples.
        summary: their numbers.
        toolset: the name of what was played in.
        name: what the run is called; without one, its models name it.
    """
    catalog = catalog_of(records)
    shown = failures_first(records)[:_SHOWN_SAMPLES]
    more = len(records) - len(shown)
    named = name or ", ".join(identity.model for identity in summary.models)
    return styled(
        tag("h3", catalog.text("report.title", model=named or "–")),
        tiles(summary, catalog),
        tally_table(
            summary.by_ac,
            summary.total,
            catalog,
            heading=catalog.text("table.ac"),
            words=criterion_words((each.name for each in summary.by_ac), toolset, catalog),
            by_difficulty=summary.by_difficulty,
        ),
        violation_table(summary.total, catalog),
        claim_table(summary, catalog),
        tag("h4", catalog.text("report.samples")),
        *(sample_row(record, catalog) for record in shown),
        tag("p", catalog.text("report.more_samples", count=more)) if more else None,
    )


def sample_html(record: SampleRecord) -> Html:
    """Return one sample, open."""
    catalog = catalog_of([record])
    title = tag("h3", verdict_chip(record.judgement.verdict, catalog), f" {record.sample_id}")
    return styled(title, trace_html(record, catalog))


def comparison_html(compared: Comparison) -> Html:
    """Return the numbers of a comparison, and the pairs that flipped."""
    catalog = catalog_of([pair.a for pair in compared.pairs])
    title = tag("h3", f"{compared.name_a} → {compared.name_b}")
    flips = flip_list(compared, catalog, at_most=_SHOWN_FLIPS)
    return styled(title, numbers_table(compared, catalog), flips)


def styled(*parts: Html | None) -> Html:
    """Return parts as one piece of a notebook, with its style."""
    return tag("div", tag("style", style()), *parts, class_="lhr")


@cache
def style() -> Html:
    """Return the style of all fragments; colours are those of JupyterLab where it is there."""
    return Html(files(__package__).joinpath("report.css").read_text(encoding="utf-8"))


def catalog_of(records: Sequence[SampleRecord]) -> Catalog:
    """Return the texts in the language of some samples."""
    spoken = {record.locale for record in records} & set(available_locales())
    return load_catalog(spoken.pop() if len(spoken) == 1 else DEFAULT_LOCALE)
