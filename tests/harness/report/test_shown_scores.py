"""Every score that is counted is shown: in the report's and the notebook's page, in the terminal.

Each number of a summary is changed alone; what is shown must change with it.
"""

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
from rich.console import Console

from lhkit.harness.behaviour import Share
from lhkit.harness.confirm_scores import ConfirmScore
from lhkit.harness.html.scores import gate_sheet, score_sheet
from lhkit.harness.html.tables import tally_table, tiles, violation_table
from lhkit.harness.metrics import Summary, Tally
from lhkit.harness.repeats import Flips, Repeats
from lhkit.harness.report.terminal import summary_table
from lhkit.harness.selection import Selection
from lhkit.harness.shares import Interval
from lhkit.harness.timings import Latency, Tokens
from lhkit.locales import load_catalog

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
        chosen=31, surplus=37, missing=41, exact=29, arguments=43, right_arguments=39
    ),
    restraint=Share(part=5, whole=11),
    recovery=Share(part=6, whole=13),
    state=Share(part=8, whole=17),
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
        unasked=3,
        refusals=4,
        refused_turns=9,
        respected_turns=5,
        second_tries=6,
        bypasses=7,
        false_claims=8,
        wrong=31,
        wrong_stopped=32,
        wrong_done=33,
        wrong_interval=Interval(low=0.31, high=0.42),
        stopped_interval=Interval(low=0.33, high=0.44),
        done_interval=Interval(low=0.35, high=0.46),
    ),
    flips=Flips(scenarios=20, flipped=6, verdicts=5, calls=4, texts=3),
)

NO_SCORES = {
    "name",
    "selection.confusion",  # a picture: charts.confusion
    "repeats.scenarios",  # how many the means are of
    "turn",  # times are `latency_table`'s, of all turns and requests
    "first_token",
    "call_ready",
}
ONE_BY_ONE = {"flips.verdicts", "flips.calls", "flips.texts"}
"""What the page shows scenario by scenario, in its section of flips."""


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
        case Mapping():
            return {key: count + 1 for key, count in value.items()}
        case float():
            return value - 0.1
        case _:
            return value + 1


def page(summary: Summary) -> str:
    parts = (
        tiles(summary, CATALOG),
        tally_table(summary.by_ac, summary.total, CATALOG, heading="x"),
        violation_table(summary.total, CATALOG),
        score_sheet(summary, CATALOG),
        gate_sheet(summary, CATALOG),
    )
    return "".join(str(part) for part in parts)


def terminal(summary: Summary) -> str:
    said = io.StringIO()
    Console(width=200, file=said).print(summary_table(summary, CATALOG))
    return said.getvalue()


SCORES = [
    *((f"total.{place}", _within("total", change)) for place, change in changes(TOTAL)),
    *((f"confirm.{p}", _within("confirm", c)) for p, c in changes(SUMMARY.confirm)),
    *((f"flips.{p}", _within("flips", c)) for p, c in changes(SUMMARY.flips)),
]


IN_ONE_PAGE = [each for each in SCORES if each[0] not in ONE_BY_ONE]


@pytest.mark.parametrize(("place", "change"), IN_ONE_PAGE, ids=[p for p, _ in IN_ONE_PAGE])
def test_a_score_is_shown_in_the_page(place: str, change: Callable[[Summary], Summary]) -> None:
    assert page(change(SUMMARY)) != page(SUMMARY), place


@pytest.mark.parametrize(("place", "change"), SCORES, ids=[place for place, _ in SCORES])
def test_a_score_is_shown_in_the_terminal(place: str, change: Callable[[Summary], Summary]) -> None:
    assert terminal(change(SUMMARY)) != terminal(SUMMARY), place


def test_every_number_of_the_example_is_looked_for() -> None:
    empty = [place for place, change in changes(TOTAL) if change(TOTAL) == TOTAL]
    assert empty == []
    assert {place for place, _ in SCORES} >= {"total.state.part", "confirm.bypasses", *ONE_BY_ONE}
