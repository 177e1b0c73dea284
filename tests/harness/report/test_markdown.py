"""Markdown for a pull request: complete, truncated, inert."""

import re
from collections.abc import Callable

import pytest
from markdown_it import MarkdownIt

from lhkit.harness.record import SampleRecord, Verdict
from lhkit.harness.report.markdown import code, markdown, table_lines
from lhkit.harness.results import Run
from lhkit.harness.tables import Cell, Table
from lhkit.locales import Catalog


def test_markdown_shows_rates_and_failures_with_reasons(full_run: Run, english: Catalog) -> None:
    shown = markdown(full_run, english, name="gemma")
    assert shown.startswith("## ❌ `gemma`\n")
    assert "| `AC-4 log after confirmation` | 1/2 50% [9–91] |" in shown
    assert "- `turn 0: add_note.text: does not match 우유`" in shown
    assert "<details><summary>❌ <code>fail-ko-01</code>" in shown
    assert "⚠️ <code>invalid-ko-01</code>" in shown
    assert "pass-ko-01" not in shown


def test_markdown_of_a_run_without_failures(
    make_run: Callable[..., Run], make_record: Callable[..., SampleRecord], english: Catalog
) -> None:
    good = make_record(verdict=Verdict.PASS, violations=())
    shown = markdown(make_run(good), english, name="gemma")
    assert shown.startswith("## ✅")
    assert shown.endswith("No failures.\n")


def test_markdown_of_a_run_without_samples(english: Catalog) -> None:
    shown = markdown(Run(records=()), english, name="new")
    assert shown.endswith("No samples yet.\n")


def test_markdown_marks_a_pass_with_an_occurred_violation_as_failed(
    make_run: Callable[..., Run], make_record: Callable[..., SampleRecord], english: Catalog
) -> None:
    shown = markdown(make_run(make_record(verdict=Verdict.PASS)), english, name="gemma")
    assert shown.startswith("## ❌")


@pytest.mark.parametrize("max_chars", [65_000, 5_000])
def test_markdown_is_truncated_at_the_limit_with_a_count(
    max_chars: int,
    make_run: Callable[..., Run],
    make_record: Callable[..., SampleRecord],
    english: Catalog,
) -> None:
    run = make_run(*(make_record(f"s-{n}") for n in range(300)))
    shown = markdown(run, english, name="gemma", max_chars=max_chars)
    assert len(shown) <= max_chars
    there = shown.count("<details>")
    assert there == shown.count("</details>") > 0
    assert shown.endswith(
        f"**Truncated: {300 - there} more failures do not fit. "
        "The HTML report contains the whole run.**\n"
    )


def test_markdown_truncates_a_long_head(hostile_run: Run, english: Catalog) -> None:
    shown = markdown(hostile_run, english, name="x", max_chars=600)
    assert len(shown) <= 600
    assert "Truncated: 1 more" in shown


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain", "`plain`"),
        ("a`b", "``a`b``"),
        ("`x`", "`` `x` ``"),
        ("two\nlines", "`two lines`"),
        ("\u202e", "`\\u202e`"),
        ("", ""),
    ],
)
def test_code_span_cannot_be_ended_by_its_text(raw: str, shown: str) -> None:
    assert code(raw) == shown


def test_table_lines_escape_bars_and_embolden_the_total() -> None:
    table = Table(
        title="t",
        columns=(Cell("a"), Cell("b|c", "code")),
        rows=((Cell("x"), Cell("1\n2")),),
        totals=((Cell("all"), Cell("3")),),
        notes=("``` <b>",),
    )
    assert [*table_lines(table)] == [
        *("| a | `b\\|c` |", "| --- | ---: |", "| x | 1 2 |", "| **all** | 3 |", ""),
        *("````text", "``` <b>", "````", ""),
    ]


@pytest.mark.promise("report.escapes")
def test_markdown_of_hostile_text_has_no_format_link_or_mention(
    hostile_run: Run, full_run: Run, english: Catalog
) -> None:
    shown = markdown(hostile_run, english, name="x", baseline=full_run)
    html = MarkdownIt("commonmark", {"html": True}).enable("table").render(shown)
    bare = re.sub(r"<(code|pre)\b[^>]*>.*?</\1>", "", html, flags=re.DOTALL)
    assert "pwned" not in bare
    assert "@octocat" not in bare
    assert html.count("@octocat") > 5
    tags = set(re.findall(r"<([a-z0-9]+)", html))
    assert tags <= {*("h2", "h3", "table", "thead", "tbody", "tr", "th", "td", "p", "ul", "li"),
                    *("code", "pre", "strong", "details", "summary")}  # fmt: skip


def test_markdown_with_a_baseline_has_a_comparison(
    make_run: Callable[..., Run], make_record: Callable[..., SampleRecord], english: Catalog
) -> None:
    before = make_run(make_record("one", verdict=Verdict.PASS), name="before")
    shown = markdown(make_run(make_record("one"), name="b"), english, name="b", baseline=before)
    assert "### Comparison with the baseline" in shown
    assert "| pass rate, in points | 1/1 100% | 0/1 0% |" in shown
    assert "- Regressions (1): `one`" in shown
