"""The tables of a run: they contain every score in every renderer.

Each number of a summary is changed alone; the tables must change.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from lhkit.base.locales import load_catalog
from lhkit.base.text import percent
from lhkit.harness.figures.metrics import ConfirmScore, Flips, Repeats, Selection, Summary, Tally
from lhkit.harness.figures.rates import Interval, Share
from lhkit.harness.figures.timings import Latency, Tokens
from lhkit.harness.records.record import FalseClaim
from lhkit.harness.report.markdown import markdown
from lhkit.harness.report.terminal import summary_view
from lhkit.harness.results.results import Run
from lhkit.harness.scoring import claim_card
from lhkit.harness.scoring.claim_model import shipped_model
from lhkit.harness.views.tables import (
    claim_table,
    gate_table,
    pass_rates,
    score_table,
    violation_table,
)
from tests.harness.build import PASS, printed, sample, turn_of

CATALOG = load_catalog("en")

TOTAL = Tally(
    name="total",
    passed=110,
    failed=130,
    invalid=17,
    interval=Interval(low=0.25, high=0.75),
    strict_passed=90,
    right_calls=19,
    strict_right_calls=18,
    counted_calls=23,
    selection=Selection(
        chosen=31, unexpected=37, missing=41, exact=29, arguments=43, right_arguments=39
    ),
    behaviour={"restraint": Share(part=5, whole=11), "state": Share(part=8, whole=17)},
    repeats=Repeats(k=3, scenarios=20, pass_at=0.8, pass_hat=0.4),
    attempted={"r1_try": 2},
    escaped={"r2_done": 1},
    turn=Latency(n=9, p50_s=1.0, p90_s=2.0, p95_s=3.0, p99_s=4.0),
)
SUMMARY = Summary(
    by_ac=(TOTAL,),
    total=TOTAL,
    tokens=Tokens(),
    confirm=ConfirmScore(
        asked=2,
        unconfirmed=3,
        rejections=4,
        rejected_turns=9,
        respected_turns=5,
        retries=6,
        bypasses=7,
        false_claims=8,
        unexpected=31,
        unexpected_rejected=32,
        unexpected_edited=34,
        unexpected_executed=33,
        edited=35,
        edited_arguments={"add_note.text": 36},
        unexpected_interval=Interval(low=0.31, high=0.42),
        rejected_interval=Interval(low=0.33, high=0.44),
        edited_interval=Interval(low=0.36, high=0.47),
        executed_interval=Interval(low=0.35, high=0.46),
    ),
    flips=Flips(scenarios=20, flipped=6, verdicts=5, calls=4, texts=3),
)

NO_SCORES = {
    "name",
    "selection.confusion",  # a chart: charts.confusion
    "repeats.scenarios",  # the number of scenarios of the means
    "turn",  # times: `latency_table`
}
NOT_IN_THE_PAGE = {
    *("flips.verdicts", "flips.calls", "flips.texts"),  # shown flip by flip
    "total.invalid",  # in its tiles, as the four intervals below
    *(
        f"confirm.{name}_interval.{end}"
        for name in ("unexpected", "rejected", "edited", "executed")
        for end in ("low", "high")
    ),
}


def changes(value: Any, at: str = "") -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Yield the place of each number in a value, and a function that returns it with another."""
    for field in fields(value):
        place, now = f"{at}{field.name}", getattr(value, field.name)
        if place in NO_SCORES:
            continue
        if is_dataclass(now):
            for inner, change in changes(now, f"{place}."):
                yield inner, _within(field.name, change)
        else:
            yield place, _within(field.name, _another)


def _within(name: str, change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda whole: replace(whole, **{name: change(getattr(whole, name))})


def _another(value: Any) -> Any:
    match value:
        case Share():
            return Share(part=value.part + 1, whole=value.whole)
        case Mapping():
            return {key: _another(count) for key, count in value.items()}
        case float():
            return value - 0.1
        case _:
            return value + 1


def page(summary: Summary) -> str:
    tables = (pass_rates(summary, CATALOG, criteria={}), violation_table(summary.total, CATALOG),
              score_table(summary, CATALOG), gate_table(summary, CATALOG))  # fmt: skip
    return repr([(table.rows, table.totals) for table in tables if table])


def terminal(summary: Summary) -> str:
    table = pass_rates(summary, CATALOG, criteria={})
    return repr((table.totals, table.notes))


SCORES = [
    *((f"total.{place}", _within("total", change)) for place, change in changes(TOTAL)),
    *((f"confirm.{p}", _within("confirm", c)) for p, c in changes(SUMMARY.confirm)),
    *((f"flips.{p}", _within("flips", c)) for p, c in changes(SUMMARY.flips)),
]


BY_TOOL = {"total.exact.part", "total.exact.whole"}  # only of imported calls, in `tool_rates`


def test_page_tables_contain_every_score() -> None:
    shown = [place for place, change in SCORES if page(change(SUMMARY)) != page(SUMMARY)]
    assert {place for place, _ in SCORES} - {*shown} == NOT_IN_THE_PAGE | BY_TOOL


def test_terminal_table_contains_every_score() -> None:
    shown = [place for place, change in SCORES if terminal(change(SUMMARY)) != terminal(SUMMARY)]
    assert {place for place, _ in SCORES} - {*shown} == BY_TOOL


def test_score_changes_cover_every_number() -> None:
    empty = [place for place, change in changes(TOTAL) if change(TOTAL) == TOTAL]
    assert empty == []
    assert {place for place, _ in SCORES} >= {
        "total.behaviour",
        "confirm.bypasses",
        *NOT_IN_THE_PAGE,
    }


FLAGS = (
    FalseClaim(turn=0, words="<b>I've added milk.</b>", probability=0.973),
    FalseClaim(turn=1, words="buzzed"),
)
RECORD = sample(
    "milk-en-01",
    PASS,
    0,
    *(turn_of(user="add milk", reply=flag.words) for flag in FLAGS),
    locale="en",
    false_claims=FLAGS,
)
RUN = Run(records=(RECORD,), name="r")


def terminal_text() -> str:
    return printed(summary_view(RUN.summary(), CATALOG, criteria={}), width=200)


def markdown_text() -> str:
    return markdown(RUN, CATALOG, name="r")


def html() -> str:
    return RUN._repr_html_()


@pytest.mark.parametrize("shown", [terminal_text, markdown_text, html])
def test_report_lists_false_claims_with_probability_and_detection_quality(
    shown: Callable[[], str],
) -> None:
    text = shown()
    for words in ("milk-en-01", "added milk", "97", "buzzed", percent(claim_card.PRECISION)):
        assert words in text, words
    assert percent(claim_card.RECALL) in text
    assert "false_claim" not in text


def test_report_loads_no_weights_of_the_claim_check() -> None:
    shipped_model.cache_clear()
    for shown in (terminal_text, markdown_text, html):
        assert shown()
    assert shipped_model.cache_info().misses == 0


def test_claim_table_is_absent_without_flags() -> None:
    assert claim_table(Run(records=()).summary(), CATALOG) is None
    assert "&lt;b&gt;I&#39;ve added milk" in html()


def test_false_claims_are_columns_of_frames_and_not_violations() -> None:
    assert [*RUN.scenarios["false_claims"]] == [2]
    assert [*RUN.scenarios["escaped"]] == [0]
    assert RUN.violations.empty
    assert [*RUN.turns["false_claim"]] == [flag.words for flag in FLAGS]
    assert RUN.turns["claim_probability"][0] == pytest.approx(0.973)
    assert RUN.turns["claim_probability"].isna().tolist() == [False, True]
