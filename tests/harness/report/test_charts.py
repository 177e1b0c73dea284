"""Charts: correct data, no external resources, any label."""

import base64
import sys
from collections.abc import Callable
from typing import Any

import pytest

from lhkit.base.errors import MissingPackageError
from lhkit.harness.records.record import Verdict
from lhkit.harness.report import charts
from lhkit.harness.report.charts import picture, svg_of
from lhkit.harness.report.page import html_page
from lhkit.harness.results.compare import compare
from lhkit.harness.results.results import Run
from tests.harness.report.runs import FULL_RUN, HOSTILE_RUN, KOREAN, full_record, run_of

pytestmark = pytest.mark.slow

OF_A_RUN = (charts.pass_rates, charts.latencies, charts.confusion, charts.violations)


def values(chart: Any) -> list[dict[str, Any]]:
    """Return the rows of a chart's first layer."""
    spec = chart.to_dict()
    first = spec["layer"][0] if "layer" in spec else spec
    data = first.get("data", spec.get("data"))
    rows: list[dict[str, Any]] = data["values"]
    return rows


def test_pass_rates_chart_has_intervals() -> None:
    (row,) = values(charts.pass_rates(FULL_RUN))  # AC-10 has no valid sample
    assert (row["name"], row["rate"], row["passed"], row["valid"]) == ("AC-4", 0.5, 1, 2)
    assert row["low"] < 0.5 < row["high"]


def test_latencies_chart_excludes_waiting_and_invalid_samples() -> None:
    rows = values(charts.latencies(FULL_RUN))
    assert [row["share"] for row in rows] == [0.5, 1.0]
    assert [row["seconds"] for row in rows] == pytest.approx([1.9, 1.9])


def test_latencies_chart_has_a_bounded_number_of_steps() -> None:
    run = run_of(*(full_record(f"s-{n}") for n in range(1000)))
    rows = values(charts.latencies(run))
    assert len(rows) == 201
    assert rows[-1]["share"] == 1.0


def test_confusion_chart_counts_expected_and_called_tools() -> None:
    rows = values(charts.confusion(FULL_RUN, locale="en"))
    assert {(row["expected"], row["called"], row["count"]) for row in rows} == {
        ("add_note", "add_note", 2),
        ("no call", "delete_note", 2),
    }


def test_violations_chart_counts_by_severity() -> None:
    rows = values(charts.violations(FULL_RUN, locale="en"))
    assert rows == [
        {"name": "unconfirmed_write", "kind": "violations occurred", "count": 1},
        {"name": "r7_framing", "kind": "violations blocked", "count": 1},
    ]


def test_flips_chart_counts_by_criterion() -> None:
    good = full_record("one", verdict=Verdict.PASS)
    chart = charts.flips(compare(run_of(good), run_of(full_record("one"))), locale="en")
    assert values(chart) == [{"name": "AC-4", "kind": "regressions", "count": -1}]


@pytest.mark.parametrize(
    ("criteria", "names"), [((None, None), ["total"]), (("AC-4", None), ["no AC", "AC-4"])]
)
def test_charts_count_samples_without_a_criterion(
    criteria: tuple[str | None, ...], names: list[str]
) -> None:
    run = run_of(*(full_record(f"s{n}", ac=ac) for n, ac in enumerate(criteria)))
    assert [row["name"] for row in values(charts.pass_rates(run, locale="en"))] == names
    good = (full_record(f"s{n}", verdict=Verdict.PASS, ac=ac) for n, ac in enumerate(criteria))
    flips = charts.flips(compare(run_of(*good), run), locale="en")
    counts = {row["name"]: row["count"] for row in values(flips)}
    assert counts == dict.fromkeys(names, -2 / len(names))


@pytest.mark.parametrize("chart", OF_A_RUN)
def test_charts_draw_hostile_text(chart: Callable[..., Any]) -> None:
    svg = svg_of(chart(HOSTILE_RUN).to_dict())
    assert svg.startswith("<svg")
    assert "<script" not in svg


@pytest.mark.parametrize("chart", OF_A_RUN)
def test_charts_draw_an_empty_run(chart: Callable[..., Any]) -> None:
    assert svg_of(chart(Run(records=())).to_dict()).startswith("<svg")


@pytest.mark.parametrize("package", ["altair", "vl_convert"])
def test_charts_report_a_missing_package(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackageError, match=r"pip install 'lhkit\[eval\]'"):
        html_page(FULL_RUN, KOREAN, name="x")


def drawn_svg(url: str) -> str:
    return base64.b64decode(url.removeprefix("data:image/svg+xml;base64,")).decode()


COLOURED = 'fill="#1c2128" <g stroke="#d5dae0">'


@pytest.mark.parametrize("chart", OF_A_RUN)
def test_dark_picture_is_as_drawn_in_dark_colours(chart: Callable[..., Any]) -> None:
    dark = {"config": charts._config(**charts._DARK)}
    for run in (HOSTILE_RUN, run_of(full_record("one", ac=COLOURED))):
        shown = chart(run)
        assert drawn_svg(picture(shown).dark) == svg_of({**shown.to_dict(), **dark})


def test_dark_picture_does_not_change_labels() -> None:
    drawn = picture(charts.pass_rates(run_of(full_record("one", ac=COLOURED))))
    text = 'fill="#1c2128" &lt;g stroke="#d5dae0"&gt;'
    for svg in (drawn_svg(drawn.light), drawn_svg(drawn.dark)):
        assert f">{text}</text>" in svg
        assert f"name: {text}".replace('"', "&quot;") in svg


def test_picture_has_a_light_and_a_dark_version() -> None:
    drawn = picture(charts.pass_rates(FULL_RUN))
    assert drawn.light != drawn.dark
    assert all(each.startswith("data:image/svg+xml;base64,") for each in (drawn.light, drawn.dark))
