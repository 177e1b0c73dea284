"""A run in Markdown, for a pull request: a short table, then failures that unfold.

Text of users, models and tools is in code spans, code blocks or escaped HTML: there it can neither
format, nor link, nor mention anybody.
"""

import re
from collections.abc import Iterable, Iterator
from html import escape
from typing import Final

from lhkit.harness.compare import compare
from lhkit.harness.divergence import first_divergence
from lhkit.harness.html.samples import failures_first
from lhkit.harness.metrics import Summary, Tally
from lhkit.harness.pairs import Comparison
from lhkit.harness.record import SampleRecord, Verdict
from lhkit.harness.report.facts import facts
from lhkit.harness.report.plain import transcript
from lhkit.harness.results import Run
from lhkit.harness.words import (
    card_words,
    claim_words,
    claims_words,
    criterion_words,
    divergence_words,
    interval_words,
    numbers,
)
from lhkit.locales import Catalog
from lhkit.text import one_line, percent, seconds

MAX_CHARS: Final = 65_000
"""What a comment on a pull request takes, with a little to spare."""

_MARKS = {Verdict.PASS: "✅", Verdict.FAIL: "❌", Verdict.INVALID: "⚠️"}
_LINE_CHARS = 200

_TRANSCRIPT_CHARS = 3_000

_REASONS = 8
_FLIPS = 20
_FACTS = ("model", "dialect", "constraint", "commit", "command")


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
    head = "\n".join(
        [
            *_head(name, run.toolset, summary, catalog),
            *compared,
            *_summary_lines(run, summary, catalog),
        ]
    )
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


def _head(name: str, toolset: str, summary: Summary, catalog: Catalog) -> Iterator[str]:
    total, text = summary.total, catalog.text
    bad = total.failed or total.invalid or total.escaped
    yield f"## {_MARKS[Verdict.FAIL if bad else Verdict.PASS]} {code(name)}"
    yield ""
    columns = ("table.ac", "table.pass_rate", "report.interval", "table.tool_accuracy",
               "table.attempted", "table.escaped", "table.turn_p50")  # fmt: skip
    yield row_of(text(key) for key in columns)
    yield row_of(["---", *["---:"] * (len(columns) - 1)])
    words = criterion_words((each.name for each in summary.by_ac), toolset, catalog)
    for tally in summary.by_ac:
        yield row_of(_cells(tally, f"{cell(tally.name)} {words[tally.name]}"))
    for tally in summary.by_difficulty:
        yield row_of(_cells(tally, text(f"table.{tally.name}")))
    yield row_of(_cells(total, f"**{text('table.total')}**"))
    yield ""
    if summary.confirm.asked:
        yield f"- {card_words(summary, catalog)}"
        yield ""


def _cells(tally: Tally, name: str) -> tuple[str, ...]:
    return (
        name.strip(),
        f"{percent(tally.pass_rate)} ({tally.passed}/{tally.valid})",
        interval_words(tally.interval) if tally.valid else "–",
        percent(tally.tool_accuracy),
        str(sum(tally.attempted.values())),
        str(sum(tally.escaped.values())),
        seconds(tally.turn.p50_s),
    )


def _summary_lines(run: Run, summary: Summary, catalog: Catalog) -> Iterator[str]:
    total, text = summary.total, catalog.text
    yield text("table.invalid_line", count=total.invalid)
    for severity, codes in (("escaped", total.escaped), ("attempted", total.attempted)):
        if codes:
            counts = ", ".join(f"{code(rule)} {count}" for rule, count in codes.items())
            yield f"- {text(f'table.{severity}_line', codes=counts)}"
    if summary.false_claims:
        yield f"- {claims_words(summary, catalog)}"
        for sample, claim in summary.false_claims[:_FLIPS]:
            yield f"  - {code(claim_words(sample, claim, catalog).strip())}"
    wanted = {text(f"report.facts.{each}") for each in _FACTS}
    for label, value in facts(run, summary, catalog):
        if label in wanted:
            yield f"- {label}: {code(value)}"
    yield ""


def _compared(comparison: Comparison, catalog: Catalog) -> Iterator[str]:
    """Yield the numbers against a baseline, and which samples flipped."""
    yield f"### {catalog.text('report.flips')}"
    yield ""
    names = (comparison.name_a, comparison.name_b)
    yield row_of(["", *map(cell, names), catalog.text("compare.difference")])
    yield row_of(["---", "---:", "---:", "---:"])
    for row in numbers(comparison, catalog):
        yield row_of(row)
    yield ""
    for key, pairs in (("lost", comparison.lost), ("gained", comparison.gained)):
        if pairs:
            listed = ", ".join(code(str(pair.sample_id)) for pair in pairs[:_FLIPS])
            more = " …" if len(pairs) > _FLIPS else ""
            yield f"- {catalog.text(f'compare.{key}', count=len(pairs))} {listed}{more}"
            for pair in pairs[:_FLIPS]:
                if found := first_divergence(pair.a, pair.b):
                    where = f"{code(str(pair.sample_id))} {divergence_words(found, catalog)}"
                    yield f"  - {where}: {code(found.a)} | {code(found.b)}"
    yield ""


def _failure(record: SampleRecord, catalog: Catalog) -> str:
    shown = [
        one_line(reason, max_chars=_LINE_CHARS) for reason in record.judgement.reasons[:_REASONS]
    ]
    named = (str(record.sample_id), record.ac, *shown[:1])
    line = " · ".join(f"<code>{escape(one_line(w, max_chars=_LINE_CHARS))}</code>" for w in named)
    told = transcript(record, catalog, max_chars=_TRANSCRIPT_CHARS)
    fence = _fence(told, at_least=3)
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
            f"{fence}text",
            told,
            fence,
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


def cell(words: str) -> str:
    """Return a code span for a table, where a bar would end the cell."""
    return code(words).replace("|", "\\|")


def _fence(words: str, *, at_least: int) -> str:
    longest = max((len(run) for run in re.findall(r"`+", words)), default=0)
    return "`" * max(longest + 1, at_least)


def row_of(cells: Iterable[str]) -> str:
    """Return a row of a table in Markdown; what we did not write is a `cell` of it."""
    return f"| {' | '.join(cells)} |"
