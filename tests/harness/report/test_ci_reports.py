"""Markdown and JUnit XML for a pull request: complete, truncated, inert."""

import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from markdown_it import MarkdownIt

from lhkit.base.locales import Catalog
from lhkit.harness.records.record import Verdict
from lhkit.harness.report.junit import junit_xml
from lhkit.harness.report.markdown import code, markdown, table_lines
from lhkit.harness.results.compare import compare
from lhkit.harness.results.results import Run
from lhkit.harness.views.tables import Cell, Table
from tests.harness.report.runs import ENGLISH, FULL_RUN, HOSTILE_RUN, full_record, run_of
from tests.rows import check_rows


def test_markdown_shows_rates_and_failures_with_reasons() -> None:
    shown = markdown(FULL_RUN, ENGLISH, name="gemma")
    assert shown.startswith("## ❌ `gemma`\n")
    assert "| `AC-4 log after confirmation` | 1/2 50% [9–91] |" in shown
    assert "- `turn 0: add_note.text: does not match 우유`" in shown
    assert "<details><summary>❌ <code>fail-ko-01</code>" in shown
    assert "⚠️ <code>invalid-ko-01</code>" in shown
    assert "pass-ko-01" not in shown


def test_markdown_of_a_run_without_failures() -> None:
    good = full_record(verdict=Verdict.PASS, violations=())
    shown = markdown(run_of(good), ENGLISH, name="gemma")
    assert shown.startswith("## ✅")
    assert shown.endswith("No failures.\n")


def test_markdown_of_a_run_without_samples() -> None:
    shown = markdown(Run(records=()), ENGLISH, name="new")
    assert shown.endswith("No samples yet.\n")


def test_markdown_marks_a_pass_with_an_occurred_violation_as_failed() -> None:
    shown = markdown(run_of(full_record(verdict=Verdict.PASS)), ENGLISH, name="gemma")
    assert shown.startswith("## ❌")


@pytest.mark.parametrize("max_chars", [65_000, 5_000])
def test_markdown_is_truncated_at_the_limit_with_a_count(max_chars: int) -> None:
    run = run_of(*(full_record(f"s-{n}") for n in range(300)))
    shown = markdown(run, ENGLISH, name="gemma", max_chars=max_chars)
    assert len(shown) <= max_chars
    there = shown.count("<details>")
    assert there == shown.count("</details>") > 0
    assert shown.endswith(
        f"**Truncated: {300 - there} more failures do not fit. "
        "The HTML report contains the whole run.**\n"
    )


def test_markdown_truncates_a_long_head() -> None:
    shown = markdown(HOSTILE_RUN, ENGLISH, name="x", max_chars=600)
    assert len(shown) <= 600
    assert "Truncated: 1 more" in shown


@check_rows(
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


def test_markdown_of_hostile_text_has_no_format_link_or_mention() -> None:
    shown = markdown(HOSTILE_RUN, ENGLISH, name="x", comparison=compare(FULL_RUN, HOSTILE_RUN))
    html = MarkdownIt("commonmark", {"html": True}).enable("table").render(shown)
    bare = re.sub(r"<(code|pre)\b[^>]*>.*?</\1>", "", html, flags=re.DOTALL)
    assert "pwned" not in bare
    assert "@octocat" not in bare
    assert html.count("@octocat") > 5
    tags = set(re.findall(r"<([a-z0-9]+)", html))
    assert tags <= {*("h2", "h3", "table", "thead", "tbody", "tr", "th", "td", "p", "ul", "li"),
                    *("code", "pre", "strong", "details", "summary")}  # fmt: skip


def test_markdown_with_a_baseline_has_a_comparison() -> None:
    before = run_of(full_record("one", verdict=Verdict.PASS), name="before")
    after = run_of(full_record("one"), name="b")
    shown = markdown(after, ENGLISH, name="b", comparison=compare(before, after))
    assert "### Comparison with the baseline" in shown
    assert "| pass rate, in points | 1/1 100% | 0/1 0% |" in shown
    assert "- Regressions (1): `one`" in shown


def test_markdown_groups_the_repeats_of_a_scenario() -> None:
    first = full_record("one")
    other = replace(
        full_record("one", repeat=2),
        score=replace(first.score, reasons=("another reason",)),
    )
    passed = full_record("one", repeat=3, verdict=Verdict.PASS, violations=())
    run = run_of(first, full_record("one", repeat=1), other, passed, full_record("two"))
    shown = markdown(run, ENGLISH, name="x")
    assert shown.count("<details>") == 2
    assert "<code>one</code> · <code>3 of 4 did not pass</code>" in shown
    assert "❌ <code>two</code> · <code>AC-4</code>" in shown
    group = shown.partition("<code>one</code>")[2].partition("</details>")[0]
    assert "- `one, one#2`\n  - `turn 0: add_note.text: does not match 우유`" in group
    assert "- `one#3`\n  - `another reason`" in group
    assert "`unconfirmed_write`" in group
    assert group.count("`unconfirmed_write`") == 1
    assert group.count("User: ") == 1  # one conversation


def test_markdown_groups_regressions_by_scenario() -> None:
    good = [full_record("one", repeat=n, verdict=Verdict.PASS, violations=()) for n in range(3)]
    bad = [full_record("one", repeat=n) for n in range(3)]
    before, after = run_of(*good, name="before"), run_of(*bad, name="b")
    shown = markdown(after, ENGLISH, name="b", comparison=compare(before, after))
    assert "- Regressions (3): `one` × 3\n" in shown


@check_rows(
    ("code_", "findings", "mark", "sentence"),
    [
        (0, (), "✅", "Every threshold is reached."),
        (0, ("too low",), "⚠️", "too low"),
        (1, ("too low",), "❌", "too low"),
        (3, ("no server",), "⚠️", "no server"),
        (4, ("who knows",), "❔", "who knows"),
    ],
)
def test_reports_have_the_exit_code_and_its_reasons(
    code_: int, findings: tuple[str, ...], mark: str, sentence: str
) -> None:
    shown = markdown(FULL_RUN, ENGLISH, name="x", findings=findings, exit_code=code_)
    assert shown.startswith(f"## {mark} `x`\n\nExit code {code_}: ")
    assert f"```text\n{sentence}\n```" in shown
    xml = junit_xml(FULL_RUN, ENGLISH, name="x", findings=findings, exit_code=code_)
    root = ET.fromstring(xml)  # noqa: S314 - our own
    suite = root.findall("testsuite[@name='Thresholds']")[0]
    kind = "error" if code_ == 3 else "failure"
    assert [element.tag for element in suite.iter() if element.get("type")] == [kind] * len(
        findings
    )
    for attribute in ("failures", "errors"):
        total = sum(int(each.get(attribute, "0")) for each in root)
        assert int(root.get(attribute, "0")) == total


def parsed(run: Run, catalog: Catalog) -> ET.Element:
    xml = junit_xml(run, catalog, name="gemma-json")
    return ET.fromstring(xml.encode())  # noqa: S314 - our own document


def test_junit_has_a_suite_per_criterion_and_a_case_per_sample() -> None:
    root = parsed(FULL_RUN, ENGLISH)
    assert root.tag == "testsuites"
    assert [suite.get("name") for suite in root] == ["AC-4", "AC-10"]
    suite = root[0]
    assert [case.get("name") for case in suite.iter("testcase")] == ["pass-ko-01", "fail-ko-01"]
    assert {case.get("classname") for case in suite.iter("testcase")} == {"gemma-json.AC-4"}
    assert suite.get("timestamp") == "2026-06-15T09:00:00+09:00"


def test_junit_counts_failures_and_errors() -> None:
    root = parsed(FULL_RUN, ENGLISH)
    assert [root.get(key) for key in ("tests", "failures", "errors")] == ["3", "1", "1"]
    for element in (root, *root):
        cases = list(element.iter("testcase"))
        assert element.get("tests") == str(len(cases))
        assert element.get("failures") == str(len(list(element.iter("failure"))))
        assert element.get("errors") == str(len(list(element.iter("error"))))
        seconds = sum(float(case.get("time", "nan")) for case in cases)
        assert float(element.get("time", "nan")) == pytest.approx(seconds)
    (failure,) = root.iter("failure")
    assert failure.get("message") == "turn 0: add_note.text: does not match 우유"
    assert failure.get("type") == "fail"
    assert "occurred: unconfirmed_write" in (failure.text or "")


def test_junit_case_output_is_the_transcript() -> None:
    outputs = [element.text or "" for element in parsed(FULL_RUN, ENGLISH).iter("system-out")]
    assert len(outputs) == 3
    assert all("User: 우유 사기라고 적어 줘" in output for output in outputs)
    assert '→ add_note({"text": "우유 사기", "tag": "home"}) [accepted]' in outputs[0]


def test_junit_replaces_characters_not_allowed_in_xml() -> None:
    root = parsed(HOSTILE_RUN, ENGLISH)
    (failure,) = root.iter("failure")
    assert "</script>" in (failure.get("message") or "")
    assert "\\x1b[31m\\x00\\x07\\ud800\ufffd ]]>" in (failure.text or "")


def test_junit_repeats_have_distinct_names() -> None:
    run = run_of(full_record("s"), full_record("s", repeat=1, verdict=Verdict.PASS))
    names = [case.get("name") for case in parsed(run, ENGLISH).iter("testcase")]
    assert names == ["s", "s#2"]
