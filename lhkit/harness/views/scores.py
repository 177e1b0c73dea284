"""Lines about the user's scores, shared by all renderers. Pure."""

from collections.abc import Iterable, Iterator

from lhkit.base.locales import Catalog
from lhkit.base.text import NOTHING, one_line, p_value, percent, percents, points
from lhkit.harness.figures.metrics import ScoreFigure
from lhkit.harness.figures.pairs import Comparison, ScoreChange
from lhkit.harness.figures.rates import Interval
from lhkit.harness.records.score_record import ScoreRecord
from lhkit.harness.views.agreement import agreement_note

_ERROR_CHARS = 160


def figure_lines(figures: Iterable[ScoreFigure], catalog: Catalog) -> Iterator[str]:
    """Yield one line for each score of a run."""
    for figure in figures:
        key = "scores.check" if figure.is_check else "scores.line"
        parts = " · ".join(_figure_parts(figure, catalog))
        yield catalog.text(key, name=figure.name, value=parts)


def _figure_parts(figure: ScoreFigure, catalog: Catalog) -> Iterator[str]:
    yield figure_text(figure, catalog)
    if figure.agreement is not None:
        yield agreement_note(figure.agreement, catalog)
    elif figure.is_judge:
        yield catalog.text("judges.unchecked")
    if figure.not_applicable:
        yield catalog.text("scores.not_applicable", count=figure.not_applicable)
    if figure.failed:
        sample, _, error = figure.error.partition(": ")
        error = one_line(f"{sample}: {catalog.translate(error)}", max_chars=_ERROR_CHARS)
        yield catalog.text("scores.failed", count=figure.failed, error=error)
    if figure.missing:
        yield catalog.text("scores.missing", count=figure.missing)


def figure_text(figure: ScoreFigure, catalog: Catalog) -> str:
    """Return a rate or mean with its interval, such as `12/14 86% [60–96]`."""
    if figure.value is None:
        return catalog.text("scores.none")
    if figure.is_rate:
        interval = figure.interval
        return catalog.text(
            "scores.rate",
            part=round(figure.value * figure.n),
            n=figure.n,
            rate=percent(figure.value),
            interval="" if interval is None else f" [{percents(interval.low, interval.high)}]",
        )
    return catalog.text(
        "scores.mean",
        value=number_text(figure.value),
        n=figure.n,
        interval=number_interval(figure.interval),
    )


def number_interval(interval: Interval | None) -> str:
    """Return an interval of a number, such as ` [1.2 … 3.4]`; empty for None."""
    if interval is None:
        return ""
    return f" [{number_text(interval.low)} … {number_text(interval.high)}]"


def number_text(value: float) -> str:
    """Return a number with three significant digits, or with all digits before the point."""
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"


def own_score_rows(figures: Iterable[ScoreFigure], catalog: Catalog) -> Iterator[tuple[str, ...]]:
    """Yield name, value with interval, and the samples without a value, by reason."""
    for figure in figures:
        _, *more = _figure_parts(figure, catalog)
        name = figure.name
        if figure.is_check:
            name = catalog.text("scores.check", name=name, value="").rstrip(": ")
        yield name, figure_text(figure, catalog), " · ".join(more)


def change_cells(change: ScoreChange, catalog: Catalog) -> tuple[str, str, str, str]:
    """Return name, both values and the difference of a score in two runs."""
    label = catalog.text("scores.line", name=change.name, value="").rstrip(": ")
    if change.difference is None or change.a is None or change.b is None:
        return label, NOTHING, NOTHING, NOTHING
    interval, p = change.interval, f"p {p_value(change.p_value)}, n = {change.n}"
    if change.is_rate:
        ends = ""
        if interval is not None:
            ends = f" ({points(interval.low)} … {points(interval.high)})"
        return (
            label,
            percent(change.a),
            percent(change.b),
            f"{points(change.difference)}{ends}, {p}",
        )
    ends = ""
    if interval is not None:
        ends = f" ({_signed(interval.low)} … {_signed(interval.high)})"
    values = number_text(change.a), number_text(change.b)
    return label, *values, f"{_signed(change.difference)}{ends}, {p}"


def _signed(value: float) -> str:
    return f"{'+' if value >= 0 else '-'}{number_text(abs(value))}"


def change_notes(comparison: Comparison, catalog: Catalog) -> Iterator[str]:
    """Yield what is particular about the scores of two runs."""
    if comparison.scores:
        yield catalog.text("scores.corrected")
    if other := sorted({change.name for change in comparison.scores if change.is_other}):
        yield catalog.text("scores.other_source", names=", ".join(other))
    yield from _judge_notes(comparison, catalog)


def _judge_notes(comparison: Comparison, catalog: Catalog) -> Iterator[str]:
    judges = [change for change in comparison.scores if change.is_judge]
    if unchecked := [change.name for change in judges if not change.is_labelled]:
        yield catalog.text("judges.compared_unchecked", names=", ".join(unchecked))
    if labelled := [change.name for change in judges if change.is_labelled]:
        yield catalog.text("judges.compared_labelled", names=", ".join(labelled))


def result_lines(result: ScoreRecord, catalog: Catalog) -> Iterator[str]:
    """Yield the values of a score of one sample, or why it failed."""
    if result.error:
        error = catalog.translate(result.error)
        yield f"{result.score}: {catalog.text('scores.result_failed', error=error)}"
    elif not result.values:
        yield f"{result.score}: {catalog.text('scores.does_not_apply')}"
    for each in result.values:
        if each.value is None:
            shown = catalog.text("scores.does_not_apply")
        else:
            shown = str(each.value) if isinstance(each.value, bool) else number_text(each.value)
        reason = f" · {each.reason}" if each.reason else ""
        yield f"{each.name}: {shown}{reason}"
