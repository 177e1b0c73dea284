"""Acceptance criteria in reports: the texts of the toolset, or no rows where there are none."""

import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

import lhkit
from lhkit.harness.exports.inspect_log import write_inspect
from lhkit.harness.records.record import Verdict, decode_line, encode_record
from lhkit.harness.report.junit import junit_xml
from lhkit.harness.report.markdown import markdown
from lhkit.harness.report.terminal import summary_view
from lhkit.harness.results.compare import compare
from lhkit.harness.results.results import Run
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.harness.views.sample import Sample
from lhkit.harness.views.tables import pass_rates
from lhkit.toolset import BareToolset, Session, criteria_of, load
from tests.harness.build import printed
from tests.harness.report.runs import ENGLISH, KOREAN, full_record, run_of
from tests.rows import check_rows

pytestmark = pytest.mark.anyio

WISHES = {"read": ("What is on my list?", "en"), "buy": ("우유 사 줘", "ko"), None: ("hi", "en")}

TEXTS = {
    "read": {"en": "reads the list", "ko": "목록 읽기"},
    "buy": {"ko": "사기"},
    "never": {"en": "is in no scenario"},
}


class Shop:
    """A toolset without tools."""

    name = "shop"

    def __init__(self, criteria: Any = None) -> None:
        self.criteria = criteria

    def open(self, world: Mapping[str, Any], locale: str) -> Session:
        return BareToolset(registry=lhkit.ToolRegistry()).open(world, locale)


def scenarios(*criteria: str | None) -> list[Scenario]:
    entries = []
    for number, ac in enumerate(criteria):
        text, locale = WISHES[ac]
        entry = {"id": f"s{number}", "locale": locale, "turns": [{"user": text}]}
        entries.append(Scenario.from_data({**entry, **({"ac": ac} if ac else {})}))
    return entries


async def run_shop(*criteria: str | None, texts: Any = None, folder: Path | None = None) -> Run:
    run = await lhkit.replay(
        scenarios(*criteria),
        lhkit.gold_model,
        toolset=Shop(texts),
        run_dir=folder,
        progress=False,
    )
    return run if folder is None else Run.load(folder)


def rendered(run: Run, catalog: Any) -> dict[str, str]:
    return {
        "terminal": printed(summary_view(run.summary(), catalog, criteria=run.criteria)),
        "markdown": markdown(run, catalog, name="x"),
        "cell": run._repr_html_(),
    }


@pytest.mark.longer
@pytest.mark.usefixtures("korean")
async def test_reports_show_the_texts_of_the_toolset_in_both_languages(tmp_path: Path) -> None:
    run = await run_shop("read", "buy", texts=TEXTS, folder=tmp_path / "run")
    assert run.toolset == "shop"
    korean, english = rendered(run, KOREAN), rendered(run, ENGLISH)
    for name in ("terminal", "markdown"):
        assert "read 목록 읽기" in korean[name]
        assert "read reads the list" in english[name]
        assert "buy 사기" in korean[name]
        assert "buy 사기" in english[name]  # in the only language that it has
    assert "목록 읽기" in korean["cell"]
    stored = json.loads((tmp_path / "run" / "manifest.json").read_text(encoding="utf-8"))
    assert stored["criteria"] == {"read": TEXTS["read"], "buy": TEXTS["buy"]}


async def test_rescore_takes_the_texts_of_todays_toolset(tmp_path: Path) -> None:
    run = await run_shop("read", texts=TEXTS, folder=tmp_path / "run")
    new = lhkit.rescore(run, scenarios("read"), Shop({"read": "lists"}))
    assert new.criteria == {"read": {"en": "lists", "ko": "lists"}}
    assert lhkit.rescore(run, scenarios("read"), Shop()).criteria == {}


@pytest.mark.parametrize("toolset", ["shop", "life-helper", ""])
def test_a_run_without_texts_gets_those_of_the_default_toolset_only(toolset: str) -> None:
    run = run_of(full_record("s", ac="AC-4"))
    part = {"toolset": toolset, "criteria": {}}
    run = Run(records=run.records, manifest=run.manifest.model_copy(update=part))
    assert run.criteria == ({} if toolset == "shop" else criteria_of(load()))
    assert ("확인받고 기록" in rendered(run, KOREAN)["markdown"]) is (toolset != "shop")


@pytest.mark.parametrize("catalog", [KOREAN, ENGLISH], ids=["ko", "en"])
async def test_reports_of_a_toolset_without_criteria_have_no_row_of_them(catalog: Any) -> None:
    run = await run_shop(None, None)
    summary = run.summary()
    table = pass_rates(summary, catalog, criteria=run.criteria)
    assert (summary.by_ac, table.rows, len(table.totals)) == ((), (), 1)
    assert table.columns[0].text == catalog.text("table.group")
    for text in rendered(run, catalog).values():
        assert "None" not in text
        assert "AC" not in text
        assert "2/2 100%" in text
    assert run.scenarios["ac"].isna().all()
    assert run.manifest.criteria == {}


def mixed(*criteria: str | None) -> Run:
    """Return a run of failed samples with these criteria."""
    return run_of(*(full_record(f"s{n}", ac=ac) for n, ac in enumerate(criteria)))


@pytest.mark.parametrize("catalog", [KOREAN, ENGLISH], ids=["ko", "en"])
def test_reports_count_samples_without_a_criterion_in_a_row_of_their_own(catalog: Any) -> None:
    run = mixed("AC-1", None, None)
    assert [(tally.name, tally.failed) for tally in run.summary().by_ac] == [("", 2), ("AC-1", 1)]
    for text in rendered(run, catalog).values():
        assert "None" not in text
    label = catalog.text("table.no_ac")
    assert label in rendered(run, catalog)["terminal"]
    assert label in rendered(run, catalog)["markdown"]


@check_rows(
    ("criteria", "suites", "classes"),
    [
        ((None, None), {"gemma": 2}, {"gemma"}),
        (("AC-1", None), {"gemma": 1, "AC-1": 1}, {"gemma", "gemma.AC-1"}),
        (("AC-1", "AC-2"), {"AC-1": 1, "AC-2": 1}, {"gemma.AC-1", "gemma.AC-2"}),
        ((), {}, set()),
    ],
)
def test_junit_contains_every_sample(
    criteria: Sequence[str | None], suites: dict[str, int], classes: set[str]
) -> None:
    root = ET.fromstring(junit_xml(mixed(*criteria), ENGLISH, name="gemma"))  # noqa: S314
    assert {suite.get("name"): len(suite.findall("testcase")) for suite in root} == suites
    assert {case.get("classname") for case in root.iter("testcase")} == classes
    assert root.get("tests") == str(len(criteria))


def test_sample_without_a_criterion_is_stored_and_displayed() -> None:
    record = full_record("s", ac=None)
    assert decode_line(encode_record(record)) == record
    line = json.loads(encode_record(record))
    del line["ac"]  # a record may leave it out
    assert decode_line(json.dumps(line)).ac is None
    assert repr(Sample.of(record)).startswith("Sample(s: fail)")
    assert repr(Sample.of(full_record("s", ac="AC-1"))).startswith("Sample(s: AC-1, fail)")
    assert "None" not in Sample.of(record)._repr_html_()


def test_inspect_log_leaves_out_a_missing_criterion(tmp_path: Path) -> None:
    write_inspect(mixed("AC-1", None), tmp_path / "run.eval")
    with zipfile.ZipFile(tmp_path / "run.eval") as log:
        samples = [json.loads(log.read(name)) for name in log.namelist() if "samples/" in name]
    assert sorted(str(sample["metadata"].get("ac", "left out")) for sample in samples) == [
        "AC-1",
        "left out",
    ]


def test_comparison_of_runs_without_criteria_is_displayed() -> None:
    before, after = (
        run_of(full_record("s", verdict=v, ac=None)) for v in (Verdict.PASS, Verdict.FAIL)
    )
    html = compare(before, after)._repr_html_()
    assert "None" not in html


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("AC-2", "--ac AC-2 fits no scenario's ac. Nearest: AC-1."),
        ("None", "--ac None fits no scenario's ac. Nearest: AC-1."),
        ("", "--ac  fits no scenario's ac. Nearest: AC-1."),
    ],
)
def test_select_refuses_a_criterion_that_no_scenario_has(value: str, expected: str) -> None:
    run = mixed("AC-1", None)
    assert [record.ac for record in run.select(ac="ac-1").records] == ["AC-1"]
    with pytest.raises(lhkit.UsageError, match=expected):
        run.select(ac=value)
    with pytest.raises(lhkit.UsageError, match=r"no scenario.s ac\. Nearest: none"):
        mixed(None).select(ac="AC-1")
