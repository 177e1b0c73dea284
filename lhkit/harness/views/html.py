"""Render runs, samples and comparisons as HTML, for notebook cells and the report page.

Jinja2 templates escape every value, after it is made printable (control and bidirectional
characters shown as escapes) and truncated. No script, no network. A notebook cell is in the
language of the user.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from heapq import nsmallest
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Protocol

from lhkit.base.errors import importing
from lhkit.base.locales import Catalog
from lhkit.base.text import percent, printable
from lhkit.base.user_locale import user_catalog
from lhkit.harness.figures.metrics import Summary
from lhkit.harness.figures.pairs import Comparison, Pair
from lhkit.harness.records.record import SampleRecord, TurnRecord, Verdict
from lhkit.harness.records.score_record import ScoreRecord
from lhkit.harness.records.transcript import transcript_parts
from lhkit.harness.views.scores import result_lines
from lhkit.harness.views.tables import (
    Table,
    claim_table,
    comparison_table,
    gate_line,
    interval_text,
    key_figures,
    pass_rates,
    policy_lines,
    severity_mark,
    violation_table,
)

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

    from lhkit.toolset import Criteria

MAX_CHARS = 20_000
"""A single text is truncated to this many characters: a repeating model writes without end."""

NO_AC = " "
"""The value of a missing criterion in the page's filter, where an empty one selects all."""

_LINE_CHARS = 100
_SHOWN_SAMPLES = 30
_SHOWN_FLIPS = 15
_ORDER = (Verdict.FAIL, Verdict.INVALID, Verdict.PASS)


class ShownSample(Protocol):
    """What is shown of a `Sample`."""

    @property
    def _record(self) -> SampleRecord: ...

    @property
    def scores(self) -> Sequence[ScoreRecord]:
        """The results of its scores."""


def sample_html(sample: ShownSample) -> str:
    """Return the transcript of a sample, with the results of its scores."""
    return str(_macros(user_catalog()).cell_of_sample(sample))


def run_html(
    samples: Sequence[ShownSample],
    summary: Summary,
    *,
    criteria: "Criteria",
    name: str,
    left_out: int = 0,
) -> str:
    """Return the figures that decide, samples of a run, and folded tables.

    Args:
        samples: the shown samples.
        summary: the metrics of the run.
        left_out: how many samples of the run are not shown.
        criteria: the toolset's texts of the criteria (see `Run.criteria`).
        name: the name of the run; by default the names of its models.
    """
    catalog = user_catalog()
    title = name or ", ".join(identity.model for identity in summary.models)
    tables = (
        pass_rates(summary, catalog, criteria=criteria),
        violation_table(summary.total, catalog),
        claim_table(summary, catalog),
    )
    return str(
        _macros(catalog).cell_of_run(
            catalog.text("report.title", model=title or "–"),
            summary,
            key_figures(summary, catalog),
            [table for table in tables if table is not None],
            samples,
            left_out,
        )
    )


def comparison_html(comparison: Comparison) -> str:
    """Return the table of a comparison and the pairs that flipped."""
    catalog = user_catalog()
    table = comparison_table(comparison, catalog)
    return str(_macros(catalog).cell_of_comparison(comparison, table, _SHOWN_FLIPS))


def table_html(table: Table, catalog: Catalog) -> str:
    """Return a table with its title and notes."""
    return str(_macros(catalog).cell_of_table(table))


def failures_first(records: Iterable[SampleRecord]) -> list[SampleRecord]:
    """Return records with violations that occurred first, then failed, invalid, passed ones."""
    return sorted(records, key=_rank)


def shown_records(records: Iterable[SampleRecord]) -> list[SampleRecord]:
    """Return the records that a notebook cell shows, in the order of `failures_first`."""
    return nsmallest(_SHOWN_SAMPLES, records, key=_rank)


def _rank(record: SampleRecord) -> tuple[bool, int]:
    return not record.score.has_occurred, _ORDER.index(record.score.verdict)


def sample_renderer(catalog: Catalog) -> "Callable[[ShownSample], Markup]":
    """Return a function that renders a sample for the page: a line with an inert transcript."""
    return partial(_macros(catalog).sample, inert=True)


def flip_renderer(comparison: Comparison, catalog: Catalog) -> "Callable[[Pair], Markup]":
    """Return a function that renders a flip for the page: a line with two inert transcripts."""
    macro = _macros(catalog).flip
    return lambda pair: macro(pair, comparison, True)


def render(template: str, catalog: Catalog, **values: Any) -> str:
    """Return a rendered template of this package."""
    return _environment().get_template(template).render(_context(catalog), **values)


@cache
def asset(name: str) -> "Markup":
    """Return a CSS or JavaScript file of the package, unescaped."""
    with importing("eval"):
        from markupsafe import Markup

    source = files(__package__).joinpath("templates", name)
    return Markup(source.read_text(encoding="utf-8"))  # noqa: S704 - our own file


def _macros(catalog: Catalog) -> Any:
    return _environment().get_template("macros.html.j2").make_module(_context(catalog))


def _context(catalog: Catalog) -> dict[str, Any]:
    return {
        "text": catalog.text,
        "translate": catalog.translate,
        "seconds": catalog.seconds,
        "style": asset("report.css"),
        "gate_line": partial(gate_line, catalog=catalog),
        "policy_lines": partial(policy_lines, catalog=catalog),
        "score_lines": partial(result_lines, catalog=catalog),
        "transcript_parts": partial(transcript_parts, catalog=catalog),
        "severity_mark": partial(severity_mark, catalog=catalog),
    }


@cache
def _environment() -> "Environment":
    with importing("eval"):  # takes 0.1 s, which tables do not need
        from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("lhkit.harness.views"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        NO_AC=NO_AC,
        interval_text=interval_text,
        json_text=_json_text,
        percent=percent,
        turn_times=_turn_times,
    )
    return environment


def _printable(value: Any) -> Any:
    """Return markup unchanged, any other value as printable, truncated text."""
    if hasattr(value, "__html__"):
        return value
    text = str(value)
    return printable(text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]} … [{len(text):,}]")


def _json_text(value: Any) -> str:
    """Return readable JSON: on one line if it is short, else indented."""
    line = json.dumps(value, ensure_ascii=False, default=repr)
    if len(line) <= _LINE_CHARS:
        return line
    return json.dumps(value, ensure_ascii=False, indent=2, default=repr)


def _turn_times(turn: TurnRecord) -> dict[str, float]:
    times = {
        "model": sum(request.duration_s for request in turn.model_calls),
        "tool": sum(call.validation_s + call.handler_s for call in turn.calls),
        "waiting": turn.waiting_s,
    }
    return {**times, "harness": max(turn.duration_s - sum(times.values()), 0.0)}
