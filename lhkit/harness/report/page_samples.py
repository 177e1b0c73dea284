"""Choose and render the samples of the HTML page, so that its size is bounded.

A browser does not open a page of 20,000 transcripts. Of each kind (occurred violations, failed,
invalid, passed) the page has a bounded number, of as many scenarios as possible, and all together
have a bounded size.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

from lhkit.base.locales import Catalog
from lhkit.harness.figures.pairs import Comparison
from lhkit.harness.records.record import SampleRecord
from lhkit.harness.results.results import Run
from lhkit.harness.views.html import failures_first, flip_renderer, sample_renderer
from lhkit.harness.views.sample import Sample

if TYPE_CHECKING:
    from markupsafe import Markup

MAX_SAMPLES = 500
"""A page has at most this many samples of a kind, and as many flips of one."""
MAX_SAMPLE_BYTES = 7_000_000
"""All samples of a page have at most this size together."""
MAX_FLIP_BYTES = 2_000_000
"""All flips of a page, each with two transcripts, have at most this size together."""

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class PagePart:
    """Rendered samples or flips of one kind.

    Attributes:
        kind: `occurred`, a verdict, `regressions` or `improvements`.
        count: how many the run has.
        lines: those on the page, rendered.
    """

    kind: str
    count: int
    lines: "Sequence[Markup]"

    @property
    def left_out(self) -> int:
        """How many are not on the page."""
        return self.count - len(self.lines)


def sample_parts(run: Run, catalog: Catalog, *, is_whole: bool = False) -> list[PagePart]:
    """Return the samples of a page, failures first.

    Args:
        run: the run.
        catalog: the locale's texts.
        is_whole: whether all samples are on the page, whatever its size.
    """
    results, template = run.results_by_sample(), sample_renderer(catalog)

    def render(record: SampleRecord) -> "Markup":
        return template(Sample.of(record, scores=results.get(record.sample_id, ())))

    kinds = {
        kind: list(records) for kind, records in groupby(failures_first(run.records), key=_kind)
    }
    if is_whole:
        return _all_parts(kinds, render)
    return _bounded_parts(kinds, render, lambda record: record.sample_id.scenario, MAX_SAMPLE_BYTES)


def flip_parts(
    comparison: Comparison, catalog: Catalog, *, is_whole: bool = False
) -> list[PagePart]:
    """Return the flips of a page; the arguments are those of `sample_parts`."""
    render = flip_renderer(comparison, catalog)
    if is_whole:
        return _all_parts(comparison.flips, render)
    return _bounded_parts(
        comparison.flips, render, lambda pair: pair.a.sample_id.scenario, MAX_FLIP_BYTES
    )


def left_out_line(parts: Sequence[PagePart], catalog: Catalog) -> str:
    """Return which samples are on the page and how to see the others; empty if all are."""
    if not any(part.left_out for part in parts):
        return ""
    shown = (
        catalog.text(f"report.shown.{part.kind}", shown=f"{len(part.lines):,}", n=f"{part.count:,}")
        for part in parts
    )
    return catalog.text("report.part", counts=", ".join(shown))


def _kind(record: SampleRecord) -> str:
    return "occurred" if record.score.has_occurred else str(record.score.verdict)


def _all_parts(
    kinds: Mapping[str, Sequence[_Item]], render: "Callable[[_Item], Markup]"
) -> list[PagePart]:
    return [
        PagePart(kind=kind, count=len(items), lines=[render(item) for item in items])
        for kind, items in kinds.items()
    ]


def _bounded_parts(
    kinds: Mapping[str, Sequence[_Item]],
    render: "Callable[[_Item], Markup]",
    scenario: Callable[[_Item], str],
    left_bytes: int,
) -> list[PagePart]:
    """Return parts within the bounds; bytes that one kind does not need are left to the next."""
    parts = []
    for number, (kind, items) in enumerate(kinds.items()):
        share_bytes = left_bytes // (len(kinds) - number)
        lines, used_bytes = _fitting(items, _spread(items, scenario), render, share_bytes)
        left_bytes -= used_bytes
        parts.append(PagePart(kind=kind, count=len(items), lines=lines))
    return parts


def _fitting(
    items: Sequence[_Item],
    positions: Iterable[int],
    render: "Callable[[_Item], Markup]",
    most_bytes: int,
) -> "tuple[list[Markup], int]":
    """Return the rendered items that fit, and their size; one that is too large is left out."""
    lines, size_bytes = {}, 0
    for position in positions:
        line = render(items[position])
        line_bytes = len(line.encode())
        if size_bytes + line_bytes <= most_bytes:
            lines[position] = line
            size_bytes += line_bytes
    return [lines[position] for position in sorted(lines)], size_bytes


def _spread(items: Sequence[_Item], scenario: Callable[[_Item], str]) -> list[int]:
    """Return the positions of up to `MAX_SAMPLES` items, first one of each scenario."""
    seen: Counter[str] = Counter()
    rounds = []
    for position, item in enumerate(items):
        name = scenario(item)
        rounds.append((seen[name], position))
        seen[name] += 1
    return [position for _, position in sorted(rounds)[:MAX_SAMPLES]]
