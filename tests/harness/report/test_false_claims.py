"""Flagged false success claims in reports: counted, listed, never a violation."""

import io
from collections.abc import Callable

import pytest
from rich.console import Console

from lhkit.events import EndReason
from lhkit.harness.html.display import run_html
from lhkit.harness.html.tables import claim_table
from lhkit.harness.record import (
    Evidence,
    FalseClaim,
    Judgement,
    SampleId,
    SampleRecord,
    TurnRecord,
    Verdict,
)
from lhkit.harness.report.markdown import markdown
from lhkit.harness.report.terminal import summary_table
from lhkit.harness.results import Run
from lhkit.harness.scoring.claim_model import shipped_model
from lhkit.locales import load_catalog
from lhkit.text import percent

FLAGS = (
    FalseClaim(turn=0, words="<b>I've added milk.</b>", probability=0.973),
    FalseClaim(turn=1, words="buzzed"),
)
RECORD = SampleRecord(
    sample_id=SampleId(scenario="milk-en-01"),
    content_hash="h",
    ac="AC-1",
    locale="en",
    judgement=Judgement(verdict=Verdict.PASS, false_claims=FLAGS),
    evidence=Evidence(
        turns=tuple(
            TurnRecord(user="add milk", ended=EndReason.ANSWERED, reply=flag.words)
            for flag in FLAGS
        )
    ),
)
RUN = Run(records=(RECORD,), manifest={}, name="r")
CATALOG = load_catalog("en")


def terminal() -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(summary_table(RUN.summary(), CATALOG))
    return str(console.file.getvalue())  # type: ignore[attr-defined] - a StringIO


def markdown_text() -> str:
    return markdown(RUN, CATALOG, name="r")


def html() -> str:
    return str(run_html(RUN.records, RUN.summary(), toolset="notes", name="r"))


@pytest.mark.promise("eval.flags")
@pytest.mark.parametrize("shown", [terminal, markdown_text, html])
def test_report_lists_flags_with_words_probability_and_the_figures_of_the_check(
    shown: Callable[[], str],
) -> None:
    text = shown()
    model = shipped_model()
    for words in ("milk-en-01", "added milk", "97", "buzzed", percent(model.precision)):
        assert words in text, words
    assert percent(model.recall) in text
    assert "false_claim" not in text


def test_claim_table_escapes_words_and_is_absent_without_flags() -> None:
    table = str(claim_table(RUN.summary(), CATALOG))
    assert "<b>" not in table
    assert "&lt;b&gt;" in table
    assert claim_table(Run(records=(), manifest={}).summary(), CATALOG) is None


def test_flags_are_columns_of_the_frames_and_no_violations() -> None:
    assert [*RUN.scenarios["false_claims"]] == [2]
    assert [*RUN.scenarios["escaped"]] == [0]
    assert RUN.violations.empty
    assert [*RUN.turns["false_claim"]] == [flag.words for flag in FLAGS]
    assert RUN.turns["claim_probability"][0] == pytest.approx(0.973)
    assert RUN.turns["claim_probability"].isna().tolist() == [False, True]
