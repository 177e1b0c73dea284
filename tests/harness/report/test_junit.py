"""JUnit XML: counts and valid characters."""

from xml.etree import ElementTree as ET

import pytest

from lhkit.harness.record import Verdict
from lhkit.harness.report.junit import junit_xml
from lhkit.harness.results import Run
from lhkit.locales import Catalog
from tests.harness.report.runs import ENGLISH, FULL_RUN, HOSTILE_RUN, full_record, run_of


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


@pytest.mark.promise("report.escapes")
def test_junit_replaces_characters_not_allowed_in_xml() -> None:
    root = parsed(HOSTILE_RUN, ENGLISH)
    (failure,) = root.iter("failure")
    assert "</script>" in (failure.get("message") or "")
    assert "\\x1b[31m\\x00\\x07\\ud800\ufffd ]]>" in (failure.text or "")


def test_junit_repeats_have_distinct_names() -> None:
    run = run_of(full_record("s"), full_record("s", repeat=1, verdict=Verdict.PASS))
    names = [case.get("name") for case in parsed(run, ENGLISH).iter("testcase")]
    assert names == ["s", "s#2"]
