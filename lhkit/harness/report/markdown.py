"""Render a run as Markdown for a pull request: a table, then collapsed failures.

Text of users, models and tools is in code spans, code blocks or escaped HTML, where it cannot
format, link or mention anybody.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Final

from lhkit.harness.html import failures_first
from lhkit.harness.metrics import Summary
from lhkit.harness.pairs import Comparison, first_divergence
from lhkit.harness.record import SampleRecord, Verdict
from lhkit.harness.report.metadata import eval_command
from lhkit.harness.results import Run
from lhkit.harness.tables import (
    Cell,
    Table,
    comparison_sentence,
    comparison_table,
    divergence_line,
    pass_rates,
)
from lhkit.harness.transcript import transcript
from lhkit.locales import Catalog
from lhkit.text import one_line, printable

MAX_CHARS: Final = 65_000
"""Slightly below the limit of a comment on GitHub."""

_MARKS = {Verdict.PASS: "✅", Verdict.FAIL: "❌", Verdict.INVALID: "⚠️"}
_LINE_CHARS = 200
_TRANSCRIPT_CHARS = 3_000
_MAX_REASONS = 8
_MAX_FLIPS = 20


def markdown(
    run: Run,
    catalog: Catalog,
    *,
    name: str,
    comparison: Comparison | None = None,
    findings: Sequence[str] | None = None,
    max_chars: int = MAX_CHARS,
) -> str:
    """Return the run as Markdown of at most `max_chars` characters.

    Args:
        run: the run to report.
        catalog: the locale's texts.
        name: the name of the run.
        comparison: with an earlier run.
        findings: the thresholds that are not reached, as sentences; None if there were none.
        max_chars: the limit; the last line then reports the number of omitted failures.
    """
    summary = run.summary()
    lines = (
        *_head_lines(run, summary, catalog, name, findings),
        *(() if comparison is None else _comparison_lines(comparison, catalog)),
        *_metadata_lines(run, summary, catalog),
    )
    head = "\n".join(lines)
    failed = [record for record in failures_first(run.records) if not record.is_passed]
    if not failed:
        key = "report.no_failures" if run.records else "report.no_samples"
        return f"{head}\n{catalog.text(key)}\n"[:max_chars]
    head = f"{head}\n### {catalog.text('report.failures')}\n\n"
    return _with_failures(head, failed, catalog, max_chars)


def _with_failures(head: str, failed: list[SampleRecord], catalog: Catalog, max_chars: int) -> str:
    """Return the head, the failures that fit, and the number of those that do not."""
    parts, used = [head], len(head)
    for number, record in enumerate(failed):
        part = _failure(record, catalog)
        cut = f"\n**{catalog.text('report.cut', count=len(failed) - number)}**\n"
        if used + len(part) + len(cut) > max_chars:
            return "".join(parts)[: max_chars - len(cut)] + cut
        parts.append(part)
        used += len(part)
    return "".join(parts)


def _head_lines(
    run: Run, summary: Summary, catalog: Catalog, name: str, findings: Sequence[str] | None
) -> Iterator[str]:
    total = summary.total
    has_failed = total.failed or total.invalid or total.escaped or findings
    yield f"## {_MARKS[Verdict.FAIL if has_failed else Verdict.PASS]} {code(name)}"
    yield ""
    if findings is not None:
        sentences = findings or (catalog.text("report.thresholds_reached"),)
        yield from _block(printable("\n".join(sentences)))
        yield ""
    yield from table_lines(pass_rates(summary, catalog, toolset=run.toolset))


def _metadata_lines(run: Run, summary: Summary, catalog: Catalog) -> Iterator[str]:
    values = {
        "commit": run.manifest.git_commit or "",
        "command": eval_command(run, summary),
    }
    for name, value in values.items():
        if value:
            yield f"- {catalog.text(f'report.metadata.{name}')}: {code(value)}"
    yield ""


def table_lines(table: Table) -> Iterator[str]:
    """Yield the lines of a table, with the last total in bold; lead and notes are code blocks."""
    if table.lead:
        yield from _block(printable(table.lead))
        yield ""
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
    """Return a row; untrusted text is a code span with escaped bars."""
    texts = (
        code(cell.text).replace("|", "\\|") if cell.kind == "code" else " ".join(cell.text.split())
        for cell in cells
    )
    return f"| {' | '.join(texts)} |"


def _block(text: str) -> Iterator[str]:
    """Yield a code block that its text cannot end."""
    fence = _fence(text, at_least=3)
    yield from (f"{fence}text", text, fence)


def _comparison_lines(comparison: Comparison, catalog: Catalog) -> Iterator[str]:
    """Yield the comparison with a baseline, and the samples that flipped."""
    yield f"### {catalog.text('report.flips')}"
    yield ""
    yield from _block(printable(comparison_sentence(comparison, catalog)))
    yield ""
    yield from table_lines(comparison_table(comparison, catalog))
    for key, pairs in comparison.flips.items():
        names = ", ".join(code(str(pair.sample_id)) for pair in pairs[:_MAX_FLIPS])
        more = " …" if len(pairs) > _MAX_FLIPS else ""
        yield f"- {catalog.text(f'compare.{key}', count=len(pairs))} {names}{more}"
        for pair in pairs[:_MAX_FLIPS]:
            if divergence := first_divergence(pair.a, pair.b):
                place = f"{code(str(pair.sample_id))} {divergence_line(divergence, catalog)}"
                yield f"  - {place}: {code(divergence.a)} | {code(divergence.b)}"
    yield ""


def _failure(record: SampleRecord, catalog: Catalog) -> str:
    reasons = [
        one_line(reason, max_chars=_LINE_CHARS)
        for reason in record.judgement.reasons[:_MAX_REASONS]
    ]
    texts = (str(record.sample_id), record.ac, *reasons[:1])
    line = " · ".join(f"<code>{escape(one_line(t, max_chars=_LINE_CHARS))}</code>" for t in texts)
    return "\n".join(
        [
            f"<details><summary>{_MARKS[record.judgement.verdict]} {line}</summary>",
            "",
            *(f"- {code(reason)}" for reason in reasons),
            *(
                f"- **{catalog.text(f'table.{violation.severity}')}** {code(violation.code)} "
                f"{code(violation.detail)}".rstrip()
                for violation in record.judgement.violations
            ),
            "",
            *_block(transcript(record, catalog, max_chars=_TRANSCRIPT_CHARS)),
            "",
            "</details>",
            "",
        ]
    )


def code(text: str) -> str:
    """Return a code span that its text cannot end; empty for empty text."""
    line = one_line(text, max_chars=_LINE_CHARS)
    if not line:
        return ""
    fence = _fence(line, at_least=1)
    space = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{space}{line}{space}{fence}"


def _fence(text: str, *, at_least: int) -> str:
    longest = max((len(ticks) for ticks in re.findall(r"`+", text)), default=0)
    return "`" * max(longest + 1, at_least)
