"""Runs, samples and comparisons as HTML, for notebook cells and the report's page.

Jinja2 templates escape every value; before that it is made printable (control and direction
characters shown as escapes) and cut if it is endless. No script, no network. The language of a
notebook cell is that of the conversations, Korean where they are mixed.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from lhkit.harness.metrics import Summary
from lhkit.harness.pairs import Comparison
from lhkit.harness.record import SampleRecord, TurnRecord, Verdict
from lhkit.harness.tables import (
    bracketed,
    card_line,
    claim_table,
    comparison_table,
    criterion_words,
    pass_rates,
    severity_mark,
    violation_table,
)
from lhkit.harness.transcript import parts
from lhkit.locales import DEFAULT_LOCALE, Catalog, available_locales, load_catalog
from lhkit.text import percent, printable, seconds

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

MAX_CHARS = 20_000
"""A single text is cut after this many characters: a model that repeats itself has no end."""

_LINE_CHARS = 100
_SHOWN_SAMPLES = 30
_SHOWN_FLIPS = 15
_ORDER = (Verdict.FAIL, Verdict.INVALID, Verdict.PASS)


@dataclass(frozen=True, slots=True, repr=False)
class SampleView:
    """One sample of a run, to look at in a notebook."""

    record: SampleRecord

    def _repr_html_(self) -> str:
        """Return its transcript, open."""
        return str(_parts(catalog_of([self.record])).cell_of_sample(self.record))

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
) -> str:
    """Return a run's numbers, and its samples with failures first.

    Args:
        records: the samples.
        summary: their numbers.
        toolset: the name of what was played in.
        name: what the run is called; without one, its models name it.
    """
    catalog = catalog_of(records)
    shown = failures_first(records)[:_SHOWN_SAMPLES]
    named = name or ", ".join(identity.model for identity in summary.models)
    words = criterion_words((each.name for each in summary.by_ac), toolset, catalog)
    tables = (
        pass_rates(summary, catalog, words),
        violation_table(summary.total, catalog),
        claim_table(summary, catalog),
    )
    return str(
        _parts(catalog).cell_of_run(
            catalog.text("report.title", model=named or "–"),
            summary,
            [table for table in tables if table is not None],
            shown,
            len(records) - len(shown),
        )
    )


def comparison_html(comparison: Comparison) -> str:
    """Return the numbers of a comparison, and the pairs that flipped."""
    catalog = catalog_of([pair.a for pair in comparison.pairs])
    table = comparison_table(comparison, catalog)
    return str(_parts(catalog).cell_of_comparison(comparison, table, _SHOWN_FLIPS))


def catalog_of(records: Sequence[SampleRecord]) -> Catalog:
    """Return the texts in the language of some samples."""
    spoken = {record.locale for record in records} & set(available_locales())
    return load_catalog(spoken.pop() if len(spoken) == 1 else DEFAULT_LOCALE)


def failures_first(records: Iterable[SampleRecord]) -> list[SampleRecord]:
    """Return what really did harm, then what failed, what is invalid, what passed."""
    return sorted(
        records,
        key=lambda each: (not each.judgement.has_occurred, _ORDER.index(each.judgement.verdict)),
    )


def render(template: str, catalog: Catalog, **values: Any) -> str:
    """Return a template of this package with some values."""
    return _environment().get_template(template).render(_context(catalog), **values)


@cache
def asset(name: str) -> "Markup":
    """Return a file of ours, which is code and not escaped."""
    from markupsafe import Markup

    source = files(__package__).joinpath("templates", name)
    return Markup(source.read_text(encoding="utf-8"))  # noqa: S704 - our own file


def _parts(catalog: Catalog) -> Any:
    """Return the macros that pages and cells are made of."""
    return _environment().get_template("parts.html.j2").make_module(_context(catalog))


def _context(catalog: Catalog) -> dict[str, Any]:
    return {
        "text": catalog.text,
        "style": asset("report.css"),
        "card_line": partial(card_line, catalog=catalog),
        "severity_mark": partial(severity_mark, catalog=catalog),
    }


@cache
def _environment() -> "Environment":
    from jinja2 import (  # 0.1 s that a table can do without
        Environment,
        PackageLoader,
        StrictUndefined,
    )

    environment = Environment(
        loader=PackageLoader("lhkit.harness"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_readable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        bracketed=bracketed,
        json_text=_json_text,
        parts=parts,
        percent=percent,
        seconds=seconds,
        turn_times=_turn_times,
    )
    return environment


def _readable(value: Any) -> Any:
    """Return what is shown of a value: markup as it is, any other text printable and cut."""
    if hasattr(value, "__html__"):
        return value
    text = str(value)
    return printable(text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]} … [{len(text):,}]")


def _json_text(value: Any) -> str:
    """Return a JSON value for people: on one line if it is short, else indented."""
    line = json.dumps(value, ensure_ascii=False, default=repr)
    if len(line) <= _LINE_CHARS:
        return line
    return json.dumps(value, ensure_ascii=False, indent=2, default=repr)


def _turn_times(turn: TurnRecord) -> dict[str, float]:
    """Return where the time of a turn went, in seconds."""
    times = {
        "model": sum(request.duration_s for request in turn.model_calls),
        "tool": sum(call.validation_s + call.handler_s for call in turn.calls),
        "waiting": turn.waiting_s,
    }
    return {**times, "harness": max(turn.duration_s - sum(times.values()), 0.0)}
