"""A run in Markdown, for a pull request: a short table, then failures that unfold.

Text of users, models and tools is in code spans, code blocks or escaped HTML: there it can neither
format, nor link, nor mention anybody.
"""

import re
from collections.abc import Iterable, Iterator
from html import escape
from typing import Final

from lhkit.harness.compare import compare
from lhkit.harness.html import failures_first
from lhkit.harness.metrics import Summary
from lhkit.harness.pairs import Comparison, first_divergence
from lhkit.harness.record import SampleRecord, Verdict
from lhkit.harness.report.facts import facts
from lhkit.harness.results import Run
from lhkit.harness.tables import (
    Cell,
    Table,
    comparison_table,
    criterion_words,
    divergence_line,
    pass_rates,
)
from lhkit.harness.transcript import transcript
from lhkit.locales import Catalog
from lhkit.text import one_line, printable

MAX_CHARS: Final = 65_000
"""What a comment on a pull request takes, with a little to spare."""

_MARKS = {Verdict.PASS: "✅", Verdict.FAIL: "❌", Verdict.INVALID: "⚠️"}
_LINE_CHARS = 200

_TRANSCRIPT_CHARS = 3_000

_REASONS = 8
_FLIPS = 20
_FACTS = ("commit", "command")


def markdown(
    run: Run,
    catalog: Catalog,
    *,
    name: str,
    baseline: Run | None = None,
    max_chars: int = MAX_CHARS,
) -> str:
    """Return the run as Markdown of at most `max_chars` characters.

    Args:
        run: what to report.
        catalog: the texts.
        name: what the run is called.
        baseline: an earlier run to set it against.
        max_chars: where to cut; the last line then says how much is left out.
    """
    summary = run.summary()
    compared = () if baseline is None else _compared(compare(baseline, run), catalog)
    lines = (*_head(run, summary, catalog, name), *compared, *_facts(run, summary, catalog))
    head = "\n".join(lines)
    failed = [
        each for each in failures_first(run.records) if each.judgement.verdict is not Verdict.PASS
    ]
    if not failed:
        key = "report.no_failures" if run.records else "report.no_samples"
        return f"{head}\n{catalog.text(key)}\n"[:max_chars]
    return _fitted(f"{head}\n### {catalog.text('report.failures')}\n\n", failed, catalog, max_chars)


def _fitted(head: str, failed: list[SampleRecord], catalog: Catalog, max_chars: int) -> str:
    """Return the head and as many failures as fit, and how many did not."""
    parts, used = [head], len(head)
    for number, record in enumerate(failed):
        part = _failure(record, catalog)
        cut = f"\n**{catalog.text('report.cut', count=len(failed) - number)}**\n"
        if used + len(part) + len(cut) > max_chars:
            return "".join(parts)[: max_chars - len(cut)] + cut
        parts.append(part)
        used += len(part)
    return "".join(parts)


def _head(run: Run, summary: Summary, catalog: Catalog, name: str) -> Iterator[str]:
    total = summary.total
    bad = total.failed or total.invalid or total.escaped
    yield f"## {_MARKS[Verdict.FAIL if bad else Verdict.PASS]} {code(name)}"
    yield ""
    words = criterion_words((each.name for each in summary.by_ac), run.toolset, catalog)
    yield from table_lines(pass_rates(summary, catalog, words))


def _facts(run: Run, summary: Summary, catalog: Catalog) -> Iterator[str]:
    wanted = {catalog.text(f"report.facts.{each}") for each in _FACTS}
    for label, value in facts(run, summary, catalog):
        if label in wanted:
            yield f"- {label}: {code(value)}"
    yield ""


def table_lines(table: Table) -> Iterator[str]:
    """Yield a table, its last row bold where it is a total, and its notes as a block of text."""
    yield _row(table.columns)
    yield f"| --- |{' ---: |' * (len(table.columns) - 1)}"
    for cells in (*table.rows, *table.totals[:-1]):
        yield _row(cells)
    for first, *rest in table.totals[-1:]:
        yield _row((Cell(f"**{first.text}**"), *rest))
    yield ""
    if table.notes:
        yield from _block(printable("\n".join(table.notes)))
        yield ""


def _row(cells: Iterable[Cell]) -> str:
    """Return a row; what we did not write is a code span, in which a bar would end the cell."""
    shown = (
        code(cell.text).replace("|", "\\|") if cell.kind == "code" else " ".join(cell.text.split())
        for cell in cells
    )
    return f"| {' | '.join(shown)} |"


def _block(text: str) -> Iterator[str]:
    """Yield text as it stands; nothing in it can end the block."""
    fence = _fence(text, at_least=3)
    yield from (f"{fence}text", text, fence)


def _compared(comparison: Comparison, catalog: Catalog) -> Iterator[str]:
    """Yield the numbers against a baseline, and which samples flipped."""
    yield f"### {catalog.text('report.flips')}"
    yield ""
    yield from table_lines(comparison_table(comparison, catalog))
    for key, pairs in (("lost", comparison.lost), ("gained", comparison.gained)):
        if pairs:
            listed = ", ".join(code(str(pair.sample_id)) for pair in pairs[:_FLIPS])
            more = " …" if len(pairs) > _FLIPS else ""
            yield f"- {catalog.text(f'compare.{key}', count=len(pairs))} {listed}{more}"
            for pair in pairs[:_FLIPS]:
                if found := first_divergence(pair.a, pair.b):
                    where = f"{code(str(pair.sample_id))} {divergence_line(found, catalog)}"
                    yield f"  - {where}: {code(found.a)} | {code(found.b)}"
    yield ""


def _failure(record: SampleRecord, catalog: Catalog) -> str:
    shown = [
        one_line(reason, max_chars=_LINE_CHARS) for reason in record.judgement.reasons[:_REASONS]
    ]
    named = (str(record.sample_id), record.ac, *shown[:1])
    line = " · ".join(f"<code>{escape(one_line(w, max_chars=_LINE_CHARS))}</code>" for w in named)
    told = transcript(record, catalog, max_chars=_TRANSCRIPT_CHARS)
    return "\n".join(
        [
            f"<details><summary>{_MARKS[record.judgement.verdict]} {line}</summary>",
            "",
            *(f"- {code(reason)}" for reason in shown),
            *(
                f"- **{catalog.text(f'table.{each.severity}')}** {code(each.code)} "
                f"{code(each.detail)}".rstrip()
                for each in record.judgement.violations
            ),
            "",
            *_block(told),
            "",
            "</details>",
            "",
        ]
    )


def code(words: str) -> str:
    """Return text as a code span that nothing in it can end; empty text gives nothing."""
    line = one_line(words, max_chars=_LINE_CHARS)
    if not line:
        return ""
    fence = _fence(line, at_least=1)
    space = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{space}{line}{space}{fence}"


def _fence(words: str, *, at_least: int) -> str:
    longest = max((len(run) for run in re.findall(r"`+", words)), default=0)
    return "`" * max(longest + 1, at_least)
