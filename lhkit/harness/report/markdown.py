"""Render a run as Markdown for a pull request: a table, then collapsed failures.

Text of users, models and tools is in code spans, code blocks or escaped HTML, where it cannot
format, link or mention anybody.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Final

from lhkit.base.errors import MissingPackageError
from lhkit.base.locales import Catalog
from lhkit.base.text import one_line, printable
from lhkit.harness.figures.metrics import Summary
from lhkit.harness.figures.pairs import Comparison, Pair, first_divergence
from lhkit.harness.records.record import SampleRecord, Verdict
from lhkit.harness.records.transcript import transcript
from lhkit.harness.report.metadata import eval_command
from lhkit.harness.results.results import Run
from lhkit.harness.views.approvals import approvals_table
from lhkit.harness.views.html import failures_first
from lhkit.harness.views.tables import (
    Cell,
    Table,
    comparison_sentence,
    comparison_table,
    divergence_line,
    pass_rates,
    shortened_list,
    tool_rates,
)

MAX_CHARS: Final = 65_000
"""Slightly below the limit of a comment on GitHub."""

_MARKS = {Verdict.PASS: "✅", Verdict.FAIL: "❌", Verdict.INVALID: "⚠️"}
_EXIT_MARKS = {0: "✅", 1: "❌", 3: "⚠️", 4: "❔"}
_LINE_CHARS = 200
_TRANSCRIPT_CHARS = 3_000
_MAX_REASONS = 8
_MAX_FLIPS = 20
_MAX_REMARKS = 20


def markdown(
    run: Run,
    catalog: Catalog,
    *,
    name: str,
    comparison: Comparison | None = None,
    findings: Sequence[str] | None = None,
    exit_code: int | None = None,
    remarks: Sequence[str] = (),
    max_chars: int = MAX_CHARS,
) -> str:
    """Return the run as Markdown of at most `max_chars` characters.

    Args:
        run: the run to report.
        catalog: the locale's texts.
        name: the name of the run.
        comparison: with an earlier run.
        findings: the thresholds that are not reached, as sentences; None if there were none.
        exit_code: the exit code that the thresholds led to, which then decides the mark in the
            title; None without thresholds.
        remarks: sentences that belong to the findings.
        max_chars: the limit; the last line then reports the number of omitted failures.
    """
    summary = run.summary()
    lines = (
        *_head_lines(run, summary, catalog, name, findings, exit_code, remarks),
        *(
            ()
            if comparison is None
            else _comparison_lines(comparison, catalog, is_decided=findings is not None)
        ),
        *_metadata_lines(run, summary, catalog),
    )
    head = "\n".join(lines)
    failed = [record for record in failures_first(run.records) if not record.is_passed]
    if not failed:
        key = "report.no_failures" if run.records else "report.no_samples"
        return f"{head}\n{catalog.text(key)}\n"[:max_chars]
    head = f"{head}\n### {catalog.text('report.failures')}\n\n"
    samples = Counter(record.sample_id.scenario for record in run.records)
    return _with_failures(head, failed, samples, catalog, max_chars)


def _with_failures(
    head: str,
    failed: Sequence[SampleRecord],
    samples: Mapping[str, int],
    catalog: Catalog,
    max_chars: int,
) -> str:
    """Return the head, the failures that fit by scenario, and the number of those that do not."""
    parts, used, left = [head], len(head), len(failed)
    by_scenario: dict[str, list[SampleRecord]] = {}
    for record in failed:
        by_scenario.setdefault(record.sample_id.scenario, []).append(record)
    for scenario, records in by_scenario.items():
        part = _failure(records, samples[scenario], catalog)
        cut = f"\n**{catalog.text('report.cut', count=left)}**\n"
        if used + len(part) + len(cut) > max_chars:
            return "".join(parts)[: max_chars - len(cut)] + cut
        parts.append(part)
        used += len(part)
        left -= len(records)
    return "".join(parts)


def _head_lines(
    run: Run,
    summary: Summary,
    catalog: Catalog,
    name: str,
    findings: Sequence[str] | None,
    exit_code: int | None,
    remarks: Sequence[str],
) -> Iterator[str]:
    total = summary.total
    has_failed = total.failed or total.invalid or total.escaped or findings
    mark = _MARKS[Verdict.FAIL if has_failed else Verdict.PASS]
    if exit_code is not None:  # that of the job: samples may fail where no threshold is missed
        mark = _EXIT_MARKS.get(exit_code, mark) if exit_code or not findings else "⚠️"
    yield f"## {mark} {code(name)}"
    yield ""
    if exit_code is not None:
        key = "exit_zero" if findings and not exit_code else f"exit_{exit_code}"
        yield catalog.text(f"report.{key}")
        yield ""
    if findings is not None:
        sentences = findings or (catalog.text("report.thresholds_reached"),)
        more = [remark for remark in remarks if remark not in sentences][:_MAX_REMARKS]
        yield from _block(printable("\n".join([*sentences, *more])))
        yield ""
    yield from table_lines(pass_rates(summary, catalog, criteria=run.criteria))
    if by_tool := tool_rates(summary, catalog):
        yield from table_lines(by_tool)
    yield from _approval_lines(run, catalog)


def _approval_lines(run: Run, catalog: Catalog) -> Iterator[str]:
    """Yield which cards are needed; a run without a tool that writes has none."""
    try:
        approvals = run.tool_risks()
    except MissingPackageError:  # a report without the extra `eval` has everything else
        return
    if approvals.tools:
        yield f"### {catalog.text('report.approvals')}"
        yield ""
        yield from table_lines(approvals_table(approvals, catalog))


def _metadata_lines(run: Run, summary: Summary, catalog: Catalog) -> Iterator[str]:
    if commit := run.manifest.git_commit:
        yield f"- {catalog.text('report.metadata.commit')}: {code(commit)}"
        yield ""
    if command := eval_command(run, summary):  # a block: to be copied whole
        yield f"{catalog.text('report.metadata.command')}:"
        yield ""
        yield from _block(printable(command))
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


def _comparison_lines(
    comparison: Comparison, catalog: Catalog, *, is_decided: bool
) -> Iterator[str]:
    """Yield the comparison with a baseline, and the samples that flipped."""
    yield f"### {catalog.text('report.flips')}"
    yield ""
    # thresholds that do not rest on a powerless test would be contradicted by its sentence
    if not (is_decided and comparison.is_powerless):
        yield from _block(printable(comparison_sentence(comparison, catalog)))
        yield ""
    yield from table_lines(comparison_table(comparison, catalog))
    for key, pairs in comparison.flips.items():
        by_scenario: dict[str, list[Pair]] = {}
        for pair in pairs:
            by_scenario.setdefault(pair.sample_id.scenario, []).append(pair)
        shown = [*by_scenario.values()][:_MAX_FLIPS]
        names = ", ".join(_flip_name(repeats) for repeats in shown)
        more = " …" if len(by_scenario) > _MAX_FLIPS else ""
        yield f"- {catalog.text(f'compare.{key}', count=len(pairs))} {names}{more}"
        for pair, *_ in shown:  # repeats are similar, so only one of them is shown
            if divergence := first_divergence(pair.a, pair.b):
                place = f"{code(str(pair.sample_id))} {divergence_line(divergence, catalog)}"
                yield f"  - {place}: {code(divergence.a)} | {code(divergence.b)}"
    yield ""


def _flip_name(pairs: Sequence[Pair]) -> str:
    """Return the sample of a pair, or the scenario of several and their number."""
    first = pairs[0].sample_id
    return code(str(first)) if len(pairs) == 1 else f"{code(first.scenario)} × {len(pairs)}"


def _failure(records: Sequence[SampleRecord], samples: int, catalog: Catalog) -> str:
    """Return the samples of a scenario that did not pass, with the conversation of the first.

    Args:
        records: the samples that did not pass.
        samples: the number of all samples of the scenario.
        catalog: the locale's texts.
    """
    first = records[0]
    texts = [*filter(None, [first.ac]), *map(catalog.translate, first.score.reasons[:1])]
    if samples == 1:
        texts = [str(first.sample_id), *texts]
    else:
        count = catalog.text("report.not_passed", count=len(records), samples=samples)
        texts = [first.sample_id.scenario, count, *texts]
    line = " · ".join(f"<code>{escape(one_line(t, max_chars=_LINE_CHARS))}</code>" for t in texts)
    return "\n".join(
        [
            f"<details><summary>{_MARKS[first.score.verdict]} {line}</summary>",
            "",
            *_reason_lines(records, catalog, is_single=samples == 1),
            *_violation_lines(records, catalog),
            "",
            *_block(transcript(first, catalog, max_chars=_TRANSCRIPT_CHARS)),
            "",
            "</details>",
            "",
        ]
    )


def _reason_lines(
    records: Iterable[SampleRecord], catalog: Catalog, *, is_single: bool
) -> Iterator[str]:
    """Yield the reasons; those of several samples once, below the samples that share them."""
    by_reasons: dict[tuple[str, ...], list[str]] = {}
    for record in records:
        reasons = tuple(record.score.reasons[:_MAX_REASONS])
        by_reasons.setdefault(reasons, []).append(str(record.sample_id))
    for reasons, names in by_reasons.items():
        if not is_single:
            yield f"- {code(shortened_list(names))}"
        indent = "" if is_single else "  "
        yield from (f"{indent}- {code(catalog.translate(reason))}" for reason in reasons)


def _violation_lines(records: Iterable[SampleRecord], catalog: Catalog) -> Iterator[str]:
    """Yield each violation, once if several samples have it."""
    counts = Counter(
        (violation.severity, violation.code, violation.detail)
        for record in records
        for violation in record.score.violations
    )
    for (severity, name, detail), count in counts.items():
        said = code(catalog.translate(detail))
        line = f"- **{catalog.text(f'table.{severity}')}** {code(name)} {said}".rstrip()
        yield line + (f" × {count}" if count > 1 else "")


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
