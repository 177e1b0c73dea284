"""Render a run as JUnit XML, so that CI shows failed scenarios as failed tests.

One suite per acceptance criterion (the scenarios without one are a suite with the run's name), one
case per sample. Scores are properties. A failed sample is a `failure`, an invalid
one (infrastructure error) an `error`. Jenkins, GitLab and GitHub reporters accept this shape.
"""

from collections.abc import Iterable, Sequence
from typing import Final
from xml.etree import ElementTree as ET

from lhkit.base.locales import Catalog
from lhkit.harness.records.record import SampleRecord, Verdict
from lhkit.harness.records.score_record import ScoreRecord
from lhkit.harness.records.transcript import transcript, xml_text
from lhkit.harness.report.metadata import run_metadata
from lhkit.harness.results.results import Run
from lhkit.harness.views.scores import figure_text
from lhkit.harness.views.tables import severity_mark

_TRANSCRIPT_CHARS: Final = 20_000
_INFRASTRUCTURE: Final = 3
"""The exit code of an infrastructure error."""


def junit_xml(
    run: Run,
    catalog: Catalog,
    *,
    name: str,
    findings: Sequence[str] | None = None,
    exit_code: int | None = None,
) -> str:
    """Return the run as an XML document.

    Args:
        run: the run to report.
        catalog: the locale's texts.
        name: the name of the run.
        findings: the thresholds that are not reached, as sentences: a suite of one case; None if
            there were none.
        exit_code: the exit code that they led to: 3 (infrastructure error) is an `error`.
    """
    summary = run.summary()
    root = _element("testsuites", name, run.records)
    results = run.results_by_sample()
    for ac in [tally.name for tally in summary.by_ac] or [""] * bool(run.records):
        records = [record for record in run.records if (record.ac or "") == ac]
        suite = _element("testsuite", ac or name, records)
        suite.set("skipped", "0")
        started = min((r.started_at for r in records if r.started_at), default=None)
        if started:
            suite.set("timestamp", xml_text(started))
        properties = ET.SubElement(suite, "properties")
        for label, value in run_metadata(run, summary, catalog):
            ET.SubElement(properties, "property", name=xml_text(label), value=xml_text(value))
        for figure in summary.scores:
            value = figure_text(figure, catalog)
            ET.SubElement(properties, "property", name=f"score {figure.name}", value=value)
        suite.extend(
            _case(record, catalog, name, results.get(record.sample_id, ())) for record in records
        )
        root.append(suite)
    if findings is not None:
        kind = "error" if exit_code == _INFRASTRUCTURE else "failure"
        root.append(_thresholds(findings, kind, catalog, name))
        for attribute in ("tests", "failures", "errors"):
            count = int(root.get(attribute, "0")) + int(root[-1].get(attribute, "0"))
            root.set(attribute, str(count))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _thresholds(findings: Sequence[str], kind: str, catalog: Catalog, name: str) -> ET.Element:
    """Return a suite with one case for all thresholds: a `kind`, failure or error, if missed."""
    title = catalog.text("report.thresholds")
    counts = {"tests": "1", "failures": "0", "errors": "0", "skipped": "0", "time": "0.000"}
    suite = ET.Element("testsuite", {"name": title, **counts})
    case = ET.SubElement(suite, "testcase", classname=xml_text(name), name=title, time="0.000")
    if findings:
        suite.set(f"{kind}s", "1")
        failure = ET.SubElement(case, kind, message=xml_text(findings[0]), type="threshold")
        failure.text = xml_text("\n".join(findings))
    return suite


def _element(element: str, name: str, records: Sequence[SampleRecord]) -> ET.Element:
    verdicts = [record.score.verdict for record in records]
    return ET.Element(
        element,
        name=xml_text(name),
        tests=str(len(records)),
        failures=str(verdicts.count(Verdict.FAIL)),
        errors=str(verdicts.count(Verdict.INVALID)),
        time=f"{sum(record.wall_s for record in records):.3f}",
    )


def _case(
    record: SampleRecord, catalog: Catalog, run_name: str, results: Iterable[ScoreRecord]
) -> ET.Element:
    case = ET.Element(
        "testcase",
        classname=xml_text(f"{run_name}.{record.ac}" if record.ac else run_name),
        name=xml_text(str(record.sample_id)),
        time=f"{record.wall_s:.3f}",
    )
    values = [value for result in results for value in result.values if value.value is not None]
    if values:
        properties = ET.SubElement(case, "properties")
        for value in values:
            shown = xml_text(str(value.value))
            ET.SubElement(properties, "property", name=f"score {value.name}", value=shown)
    if not record.is_passed:
        kind = "failure" if record.is_valid else "error"
        reasons = [catalog.translate(reason) for reason in record.score.reasons]
        verdict = str(record.score.verdict)
        violations = (
            f"{severity_mark(v.severity, catalog).text}: {v.code}: {catalog.translate(v.detail)}"
            for v in record.score.violations
        )
        message = xml_text(reasons[0] if reasons else verdict)
        failure = ET.SubElement(case, kind, message=message, type=verdict)
        failure.text = xml_text("\n".join((*reasons, *violations)))
    output = ET.SubElement(case, "system-out")
    output.text = xml_text(transcript(record, catalog, max_chars=_TRANSCRIPT_CHARS))
    return case
